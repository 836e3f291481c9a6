//! Errors of reads of tombstoned streams, whose text and exit code are those of a read.

use tonic::Status;

use crate::errors::CommandError;
use crate::events::client::connection_string::ConnectionString;
use crate::events::client::grpc_connection::status_error;
use crate::events::client::shell_command::umbel_command;

/// Whether a status says that a stream is tombstoned.
pub fn is_stream_deleted(status: &Status) -> bool {
    let exception = status.metadata().get("exception");
    exception.is_some_and(|name| name.as_bytes() == b"stream-deleted")
}

/// The error of a read of the events of a tombstoned stream. `list` is the command that lists the
/// streams.
pub fn events_error(stream: &str, list: &str) -> CommandError {
    CommandError::NoSuchKey(format!(
        "the stream '{}' was tombstoned, so its events can never be read again; `{list}` lists the \
         streams",
        stream.escape_debug()
    ))
}

/// The error of a read of the metadata of a tombstoned stream. `list` is the command that lists the
/// streams.
pub fn metadata_error(stream: &str, list: &str) -> CommandError {
    CommandError::NoSuchKey(format!(
        "the stream '{}' was tombstoned, so its metadata can never be read or changed again; \
         `{list}` lists the streams",
        stream.escape_debug()
    ))
}

/// The error of a read of a stream, or of all streams, that the server at the address answers with
/// this status.
pub fn read_error(
    status: &Status,
    stream: Option<&str>,
    address: &ConnectionString,
) -> CommandError {
    match stream {
        Some(stream) if is_stream_deleted(status) => {
            events_error(stream, &umbel_command(&["streams"], address))
        }
        _ => status_error(status),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_tombstone_is_an_absent_stream() {
        let address = ConnectionString::parse("--connect", "127.0.0.1:2113").unwrap();
        let read_error = |status: &Status, stream| read_error(status, stream, &address);
        let mut status = Status::failed_precondition("Event stream 'a' is deleted.");
        assert_eq!(read_error(&status, Some("a")).exit_code(), 2);
        status.metadata_mut().insert("exception", "stream-deleted".parse().unwrap());
        let error = read_error(&status, Some("a\n"));
        assert_eq!(error.exit_code(), 1);
        assert!(error.to_string().starts_with("the stream 'a\\n' was tombstoned"), "{error}");
        let list = "`umbel streams --connect http://127.0.0.1:2113` lists";
        assert!(error.to_string().contains(list), "{error}");
        assert_eq!(read_error(&status, None).exit_code(), 2);
    }
}
