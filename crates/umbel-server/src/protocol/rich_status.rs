//! gRPC statuses of the second protocol. The details of a status are the kind of failure and, last,
//! the facts of the failure.

use prost::Message;
use prost::bytes::Bytes;
use tonic::{Code, Status};
use umbel_events::limits::{APPEND_BYTES_MAX, EVENT_BYTES_MAX};
use umbel_events::{Error, LeaderAddress, PresentEvents};
use umbel_proto::status::{self, ErrorInfo, detail};
use umbel_proto::v2::errors::{
    AccessDeniedErrorDetails, AppendConsistencyViolationErrorDetails,
    AppendRecordSizeExceededErrorDetails, AppendTransactionSizeExceededErrorDetails,
    ConsistencyViolation, NodeInfo, NotLeaderNodeErrorDetails, PACKAGE,
    StreamAlreadyInAppendSessionErrorDetails, StreamRevisionConflictErrorDetails,
    StreamTombstonedErrorDetails,
};

use crate::limits::VIOLATIONS_BYTES_MAX;
use crate::protocol::grpc_status;

/// Domain of the error kinds that any call can return.
const COMMON_DOMAIN: &str = "kurrent.rpc";

/// Status of a version conflict. `present` are events of the append that are in the stream already,
/// where they are the cause.
pub fn revision_conflict(
    stream: &str,
    expected: i64,
    actual: i64,
    present: Option<&PresentEvents>,
) -> Status {
    let cause = present.map_or_else(String::new, |present| format!(" Cause: {present}."));
    let message = format!(
        "Append failed due to a revision conflict on stream '{stream}'. Expected revision: \
         {expected}. Actual revision: {actual}.{cause}"
    );
    let facts = StreamRevisionConflictErrorDetails {
        stream: stream.to_string(),
        expected_revision: expected,
        actual_revision: actual,
    };
    let name = "StreamRevisionConflictErrorDetails";
    streams_status(Code::FailedPrecondition, "STREAM_REVISION_CONFLICT", message, name, &facts)
}

/// Status of an append to a tombstoned stream.
pub fn tombstoned(stream: &str) -> Status {
    let message = format!("Stream '{stream}' was tombstoned and can never be appended to again.");
    let facts = StreamTombstonedErrorDetails { stream: stream.to_string() };
    let name = "StreamTombstonedErrorDetails";
    streams_status(Code::FailedPrecondition, "STREAM_TOMBSTONED", message, name, &facts)
}

/// Status: a record is too large.
pub fn record_too_large(stream: &str, record_id: String, size: usize) -> Status {
    let message = format!(
        "Record '{record_id}' of stream '{stream}' has {size} bytes; the limit is \
         {EVENT_BYTES_MAX}."
    );
    let facts = AppendRecordSizeExceededErrorDetails {
        stream: stream.to_string(),
        record_id,
        size: i32::try_from(size).unwrap_or(i32::MAX),
        max_size: EVENT_BYTES_MAX as i32,
    };
    let name = "AppendRecordSizeExceededErrorDetails";
    streams_status(Code::InvalidArgument, "APPEND_RECORD_SIZE_EXCEEDED", message, name, &facts)
}

/// Status: the records of a transaction together are too large. `size` is the count up to the
/// abort.
pub fn transaction_too_large(size: u64) -> Status {
    let message = format!(
        "The records have {size} bytes or more together; the limit is {APPEND_BYTES_MAX}; append \
         them in parts."
    );
    transaction_size_status(size, message)
}

fn transaction_size_status(size: u64, message: String) -> Status {
    let facts = AppendTransactionSizeExceededErrorDetails {
        size: i32::try_from(size).unwrap_or(i32::MAX),
        max_size: APPEND_BYTES_MAX as i32,
    };
    let name = "AppendTransactionSizeExceededErrorDetails";
    streams_status(Code::Aborted, "APPEND_TRANSACTION_SIZE_EXCEEDED", message, name, &facts)
}

/// Status: a session names a stream twice.
pub fn duplicate_stream(stream: &str) -> Status {
    let message = format!(
        "Stream '{stream}' is named twice in one session, which ignores case; name it once."
    );
    let facts = StreamAlreadyInAppendSessionErrorDetails { stream: stream.to_string() };
    let name = "StreamAlreadyInAppendSessionErrorDetails";
    streams_status(Code::Aborted, "STREAM_ALREADY_IN_APPEND_SESSION", message, name, &facts)
}

/// Status: a session has no request.
pub fn empty_session() -> Status {
    let message = "The session has no requests; send at least one.".to_string();
    detailed_status(Code::FailedPrecondition, PACKAGE, "APPEND_SESSION_NO_REQUESTS", message, None)
}

/// Status: checks of a request failed; lists as many violations as fit into a trailer.
/// `present` are events of the request that are in their stream already, where they are a cause.
pub fn consistency_violations(
    all: Vec<ConsistencyViolation>,
    present: Option<&PresentEvents>,
) -> Status {
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
    let listed = facts.violations.len();
    let message = match listed == count {
        true => format!("Append failed: {count} consistency check(s) do not hold."),
        false => format!(
            "Append failed: {count} consistency checks do not hold; the details list the first \
             {listed}."
        ),
    };
    let message = match present {
        Some(present) => format!("{message} Cause: {present}."),
        None => message,
    };
    let name = "AppendConsistencyViolationErrorDetails";
    streams_status(Code::FailedPrecondition, "APPEND_CONSISTENCY_VIOLATION", message, name, &facts)
}

/// Status: the request is invalid.
pub fn invalid(message: impl Into<String>) -> Status {
    detailed_status(Code::InvalidArgument, COMMON_DOMAIN, "BAD_REQUEST", message.into(), None)
}

/// Status: the caller lacks permission for a stream. Any other status is returned unchanged.
pub fn access_denied(status: Status, operation: &str, user: Option<&str>) -> Status {
    if status.code() != Code::PermissionDenied {
        return status;
    }
    let facts = AccessDeniedErrorDetails {
        operation: operation.to_string(),
        username: user.map(str::to_string),
        permission: None,
    };
    let facts = Some(("AccessDeniedErrorDetails", facts.encode_to_vec()));
    detailed_status(
        Code::PermissionDenied,
        COMMON_DOMAIN,
        "ACCESS_DENIED",
        status.message().to_string(),
        facts,
    )
}

/// Status: the node does not lead, and this one does.
pub fn not_leader(leader: &LeaderAddress) -> Status {
    let LeaderAddress { node, host, port } = leader;
    let message = format!(
        "The server is not the leader of its replicated log. Send the request to the leader at \
         {host}:{port}."
    );
    let (host, port, node_id) = (host.clone(), i32::from(*port), Some(node.clone()));
    let current_leader = Some(NodeInfo { host, port, node_id });
    let facts = NotLeaderNodeErrorDetails { current_leader }.encode_to_vec();
    let facts = Some(("NotLeaderNodeErrorDetails", facts));
    detailed_status(Code::FailedPrecondition, COMMON_DOMAIN, "NOT_LEADER_NODE", message, facts)
}

/// Status: the last part of a session did not arrive in time.
pub fn session_timed_out() -> Status {
    let message = grpc_status::append_timed_out().message().to_string();
    detailed_status(Code::DeadlineExceeded, COMMON_DOMAIN, "OPERATION_TIMEOUT", message, None)
}

/// Status of a failed decode: a message over the limit is too large for one append.
pub fn decode_error(status: Status) -> Status {
    match status.code() {
        Code::OutOfRange => transaction_too_large(APPEND_BYTES_MAX as u64 + 1),
        _ => grpc_status::as_client_error(status),
    }
}

/// Status of a store failure other than a stream's state.
pub fn store_error(error: &Error) -> Status {
    match error {
        Error::TooLarge { event: None, bytes, .. } => transaction_too_large(*bytes),
        Error::UndeleteTooLarge { bytes, .. } => transaction_size_status(*bytes, error.to_string()),
        Error::StreamDeleted { stream } => tombstoned(stream),
        Error::Invalid(message) => invalid(message),
        error => grpc_status::status(error),
    }
}

fn streams_status(
    code: Code,
    reason: &str,
    message: String,
    name: &str,
    facts: &impl Message,
) -> Status {
    detailed_status(code, PACKAGE, reason, message, Some((name, facts.encode_to_vec())))
}

fn detailed_status(
    code: Code,
    domain: &str,
    reason: &str,
    message: String,
    facts: Option<(&str, Vec<u8>)>,
) -> Status {
    let (reason, domain) = (reason.to_string(), domain.to_string());
    let info = ErrorInfo { reason, domain: domain.clone(), ..ErrorInfo::default() };
    let mut details = vec![detail("google.rpc.ErrorInfo", &info)];
    details.extend(facts.map(|(name, value)| prost_types::Any {
        type_url: format!("type.googleapis.com/{domain}.{name}"),
        value,
    }));
    let rich = status::Status { code: code as i32, message: message.clone(), details };
    Status::with_details(code, message, Bytes::from(rich.encode_to_vec()))
}

#[cfg(test)]
mod tests {
    use umbel_proto::v2::errors::{StreamStateViolation, ViolationType};

    use super::*;

    fn details(status: &Status) -> status::Status {
        let rich = status::Status::decode(status.details()).unwrap();
        assert_eq!((rich.code, &*rich.message), (status.code() as i32, status.message()));
        assert_eq!(rich.details[0].type_url, "type.googleapis.com/google.rpc.ErrorInfo");
        rich
    }

    #[test]
    fn error_kind_is_first_and_details_are_last() {
        let stream = || "cart".to_string();
        let cases = [
            (
                revision_conflict("cart", -1, 3, None),
                Code::FailedPrecondition,
                "StreamRevisionConflict",
            ),
            (tombstoned("cart"), Code::FailedPrecondition, "StreamTombstoned"),
            (record_too_large("cart", stream(), 9), Code::InvalidArgument, "AppendRecordSize"),
            (transaction_too_large(u64::MAX), Code::Aborted, "AppendTransactionSizeExceeded"),
            (duplicate_stream("cart"), Code::Aborted, "StreamAlreadyInAppendSession"),
            (
                consistency_violations(Vec::new(), None),
                Code::FailedPrecondition,
                "AppendConsistencyViolation",
            ),
        ];
        for (status, code, name) in cases {
            assert_eq!(status.code(), code, "{name}");
            let rich = details(&status);
            let last = &rich.details.last().unwrap().type_url;
            let begin = format!("type.googleapis.com/{PACKAGE}.{name}");
            assert!(rich.details.len() == 2 && last.starts_with(&begin), "{last}");
        }
        for status in [empty_session(), invalid("why"), session_timed_out()] {
            assert_eq!(details(&status).details.len(), 1);
        }
        let (node, host) = (stream(), stream());
        let refused = not_leader(&LeaderAddress { node, host, port: 2113 });
        assert_eq!(refused.code(), Code::FailedPrecondition);
        let last = details(&refused).details.pop().unwrap();
        assert!(last.type_url.ends_with("/kurrent.rpc.NotLeaderNodeErrorDetails"), "{last:?}");
        let leader = NotLeaderNodeErrorDetails::decode(&last.value[..]).unwrap().current_leader;
        assert_eq!(leader.map(|leader| leader.port), Some(2113));
        let large = Error::TooLarge { event: None, bytes: 7, max_bytes: 1 };
        assert_eq!(store_error(&large).code(), Code::Aborted);
        let large = Error::UndeleteTooLarge { stream: stream(), bytes: 7, max_bytes: 1 };
        let status = store_error(&large);
        let last = details(&status).details.pop().unwrap().type_url;
        assert!(last.ends_with("AppendTransactionSizeExceededErrorDetails"), "{last}");
        assert!(status.message().contains("'cart'"), "{status:?}");
        assert_eq!(store_error(&Error::Store(umbel::Error::Closed)).code(), Code::Unavailable);
    }

    /// Clients limit the size of trailers: a status with ten thousand violations would end the
    /// connection.
    #[test]
    fn violations_are_reported_up_to_the_trailer_limit() {
        let one = |index: i32, name: &str| ConsistencyViolation {
            check_index: index,
            violation: Some(ViolationType::StreamState(StreamStateViolation {
                stream: name.to_string(),
                expected_state: -1,
                actual_state: 4,
            })),
        };
        for (count, name) in [(1, "n".repeat(1024)), (5, "cart".into()), (10_000, "cart".into())] {
            let status =
                consistency_violations((0..count).map(|index| one(index, &name)).collect(), None);
            let last = details(&status).details.pop().unwrap().value;
            let listed = AppendConsistencyViolationErrorDetails::decode(&last[..]).unwrap();
            assert_eq!(listed.violations[0], one(0, &name));
            assert_eq!(listed.violations.len() == count as usize, count < 10, "{count}");
            assert!(status.details().len() < VIOLATIONS_BYTES_MAX + 2048);
            assert!(status.message().contains(&count.to_string()));
        }
    }
}
