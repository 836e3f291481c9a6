//! What clients of the second protocol are told when something fails: a status whose details are
//! the kind of failure and, last, its facts.

use prost::Message;
use prost::bytes::Bytes;
use tonic::{Code, Status};
use umbel_events::Error;
use umbel_events::limits::{APPEND_BYTES_MAX, EVENT_BYTES_MAX};
use umbel_proto::status::{ErrorInfo, RichStatus, detail};
use umbel_proto::v2::errors::{
    AccessDeniedErrorDetails, AppendConsistencyViolationErrorDetails,
    AppendRecordSizeExceededErrorDetails, AppendTransactionSizeExceededErrorDetails,
    ConsistencyViolation, PACKAGE, StreamAlreadyInAppendSessionErrorDetails,
    StreamRevisionConflictErrorDetails, StreamTombstonedErrorDetails,
};

use crate::failure;
use crate::limits::VIOLATIONS_BYTES_MAX;

/// Where the kinds of failures that any call may have are defined.
const SHARED: &str = "kurrent.rpc";

/// A stream is at another revision.
pub fn revision_conflict(stream: &str, expected: i64, actual: i64) -> Status {
    let message = format!(
        "Append failed due to a revision conflict on stream '{stream}'. Expected revision: \
         {expected}. Actual revision: {actual}."
    );
    let facts = StreamRevisionConflictErrorDetails {
        stream: stream.to_string(),
        expected_revision: expected,
        actual_revision: actual,
    };
    let name = "StreamRevisionConflictErrorDetails";
    of_streams(Code::FailedPrecondition, "STREAM_REVISION_CONFLICT", message, name, &facts)
}

/// A stream to be appended to was tombstoned.
pub fn tombstoned(stream: &str) -> Status {
    let message = format!("Stream '{stream}' was tombstoned and can never be appended to again.");
    let facts = StreamTombstonedErrorDetails { stream: stream.to_string() };
    let name = "StreamTombstonedErrorDetails";
    of_streams(Code::FailedPrecondition, "STREAM_TOMBSTONED", message, name, &facts)
}

/// A record is too large.
pub fn record_too_large(stream: &str, record_id: String, size: usize) -> Status {
    let message = format!(
        "Record '{record_id}' of stream '{stream}' has {size} bytes, but may have \
         {EVENT_BYTES_MAX}."
    );
    let facts = AppendRecordSizeExceededErrorDetails {
        stream: stream.to_string(),
        record_id,
        size: i32::try_from(size).unwrap_or(i32::MAX),
        max_size: EVENT_BYTES_MAX as i32,
    };
    let name = "AppendRecordSizeExceededErrorDetails";
    of_streams(Code::InvalidArgument, "APPEND_RECORD_SIZE_EXCEEDED", message, name, &facts)
}

/// The records are too large together. `size` is as far as they were counted.
pub fn transaction_too_large(size: u64) -> Status {
    let message = format!(
        "The records have {size} bytes or more together, but may have {APPEND_BYTES_MAX}; append \
         them in parts."
    );
    let facts = AppendTransactionSizeExceededErrorDetails {
        size: i32::try_from(size).unwrap_or(i32::MAX),
        max_size: APPEND_BYTES_MAX as i32,
    };
    let name = "AppendTransactionSizeExceededErrorDetails";
    of_streams(Code::Aborted, "APPEND_TRANSACTION_SIZE_EXCEEDED", message, name, &facts)
}

/// A session names a stream twice.
pub fn stream_twice(stream: &str) -> Status {
    let message = format!(
        "Stream '{stream}' is there twice in one session, in which upper and lower case count as \
         the same; name it once."
    );
    let facts = StreamAlreadyInAppendSessionErrorDetails { stream: stream.to_string() };
    let name = "StreamAlreadyInAppendSessionErrorDetails";
    of_streams(Code::Aborted, "STREAM_ALREADY_IN_APPEND_SESSION", message, name, &facts)
}

/// A session without a request.
pub fn no_requests() -> Status {
    let message = "The session has no requests; send at least one.".to_string();
    rich(Code::FailedPrecondition, PACKAGE, "APPEND_SESSION_NO_REQUESTS", message, None)
}

/// Checks do not hold. As many are told as a trailer has room for.
pub fn violations(all: Vec<ConsistencyViolation>) -> Status {
    let count = all.len();
    let mut facts = AppendConsistencyViolationErrorDetails::default();
    let mut bytes = 0;
    for violation in all {
        bytes += violation.encoded_len();
        if bytes > VIOLATIONS_BYTES_MAX && !facts.violations.is_empty() {
            break;
        }
        facts.violations.push(violation);
    }
    let told = facts.violations.len();
    let message = match told == count {
        true => format!("Append failed: {count} consistency check(s) do not hold."),
        false => format!(
            "Append failed: {count} consistency checks do not hold; the first {told} are told."
        ),
    };
    let name = "AppendConsistencyViolationErrorDetails";
    of_streams(Code::FailedPrecondition, "APPEND_CONSISTENCY_VIOLATION", message, name, &facts)
}

/// The request itself is wrong.
pub fn invalid(message: impl Into<String>) -> Status {
    rich(Code::InvalidArgument, SHARED, "BAD_REQUEST", message.into(), None)
}

/// The caller may not do this with a stream. Any other refusal stays what it is.
pub fn refused(status: Status, operation: &str, user: Option<&str>) -> Status {
    if status.code() != Code::PermissionDenied {
        return status;
    }
    let facts = AccessDeniedErrorDetails {
        operation: operation.to_string(),
        username: user.map(str::to_string),
        permission: None,
    };
    let facts = Some(("AccessDeniedErrorDetails", facts.encode_to_vec()));
    rich(Code::PermissionDenied, SHARED, "ACCESS_DENIED", status.message().to_string(), facts)
}

/// The last part of a session did not come in time.
pub fn parts_too_late() -> Status {
    let message = failure::parts_too_late().message().to_string();
    rich(Code::DeadlineExceeded, SHARED, "OPERATION_TIMEOUT", message, None)
}

/// What reading a client's message came to: one over the limit is too much for one append.
pub fn unreadable(status: Status) -> Status {
    match status.code() {
        Code::OutOfRange => transaction_too_large(APPEND_BYTES_MAX as u64 + 1),
        _ => failure::of_the_client(status),
    }
}

/// A failure of the store that is none of a stream's state.
pub fn of(error: &Error) -> Status {
    match error {
        Error::TooLarge { event: None, bytes, .. } => transaction_too_large(*bytes),
        Error::Deleted { stream } => tombstoned(stream),
        Error::Invalid(message) => invalid(message),
        error => failure::status(error),
    }
}

fn of_streams(
    code: Code,
    reason: &str,
    message: String,
    name: &str,
    facts: &impl Message,
) -> Status {
    rich(code, PACKAGE, reason, message, Some((name, facts.encode_to_vec())))
}

fn rich(
    code: Code,
    domain: &str,
    reason: &str,
    message: String,
    facts: Option<(&str, Vec<u8>)>,
) -> Status {
    let info = ErrorInfo { reason: reason.to_string(), domain: domain.to_string() };
    let mut details = vec![detail("google.rpc.ErrorInfo", &info)];
    details.extend(facts.map(|(name, value)| prost_types::Any {
        type_url: format!("type.googleapis.com/{domain}.{name}"),
        value,
    }));
    let rich = RichStatus { code: code as i32, message: message.clone(), details };
    Status::with_details(code, message, Bytes::from(rich.encode_to_vec()))
}

#[cfg(test)]
mod tests {
    use umbel_proto::v2::errors::{StreamStateViolation, ViolationType};

    use super::*;

    fn details(status: &Status) -> RichStatus {
        let rich = RichStatus::decode(status.details()).unwrap();
        assert_eq!((rich.code, &*rich.message), (status.code() as i32, status.message()));
        assert_eq!(rich.details[0].type_url, "type.googleapis.com/google.rpc.ErrorInfo");
        rich
    }

    #[test]
    fn every_failure_has_its_kind_first_and_its_facts_last() {
        let stream = || "cart".to_string();
        let cases = [
            (revision_conflict("cart", -1, 3), Code::FailedPrecondition, "StreamRevisionConflict"),
            (tombstoned("cart"), Code::FailedPrecondition, "StreamTombstoned"),
            (record_too_large("cart", stream(), 9), Code::InvalidArgument, "AppendRecordSize"),
            (transaction_too_large(u64::MAX), Code::Aborted, "AppendTransactionSizeExceeded"),
            (stream_twice("cart"), Code::Aborted, "StreamAlreadyInAppendSession"),
            (violations(Vec::new()), Code::FailedPrecondition, "AppendConsistencyViolation"),
        ];
        for (status, code, name) in cases {
            assert_eq!(status.code(), code, "{name}");
            let rich = details(&status);
            let last = &rich.details.last().unwrap().type_url;
            let begin = format!("type.googleapis.com/{PACKAGE}.{name}");
            assert!(rich.details.len() == 2 && last.starts_with(&begin), "{last}");
        }
        for status in [no_requests(), invalid("why"), parts_too_late()] {
            assert_eq!(details(&status).details.len(), 1);
        }
        let large = Error::TooLarge { event: None, bytes: 7, most: 1 };
        assert_eq!(of(&large).code(), Code::Aborted);
        assert_eq!(of(&Error::Store(umbel::Error::Closed)).code(), Code::Unavailable);
    }

    /// Clients take trailers up to a limit: a status with ten thousand violations would have ended
    /// the connection.
    #[test]
    fn violations_are_told_as_far_as_there_is_room() {
        let one = |index: i32, name: &str| ConsistencyViolation {
            check_index: index,
            violation: Some(ViolationType::StreamState(StreamStateViolation {
                stream: name.to_string(),
                expected_state: -1,
                actual_state: 4,
            })),
        };
        for (count, name) in [(1, "n".repeat(1024)), (5, "cart".into()), (10_000, "cart".into())] {
            let status = violations((0..count).map(|index| one(index, &name)).collect());
            let last = details(&status).details.pop().unwrap().value;
            let told = AppendConsistencyViolationErrorDetails::decode(&last[..]).unwrap();
            assert_eq!(told.violations[0], one(0, &name));
            assert_eq!(told.violations.len() == count as usize, count < 10, "{count}");
            assert!(status.details().len() < VIOLATIONS_BYTES_MAX + 2048);
            assert!(status.message().contains(&count.to_string()));
        }
    }
}
