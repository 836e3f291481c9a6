//! gRPC statuses of failures. Statuses of failures that clients handle have the failure's name and
//! details as trailers.

use prost::bytes::Bytes;
use tonic::metadata::{Ascii, MetadataMap, MetadataValue};
use tonic::{Code, Status};
use umbel_base::fail_point;
use umbel_events::limits::{APPEND_BYTES_MAX, EVENT_BYTES_MAX};
use umbel_events::{Error, ExpectedVersion, PresentEvents, is_index_name, parse_index};

use crate::limits::{
    APPENDS_BYTES_MAX, FILTER_EXPRESSIONS_MAX, HEADERS_MAX, MESSAGE_GROWTH_BYTES,
    MESSAGE_GROWTH_TIME, RECEIVE_BYTES_MAX, STALLED_MESSAGE_TIME, STATUS_BYTES_MAX,
};
use crate::protocol::group_key::GroupKey;
use crate::protocol::truncate_text::truncate_text;

/// Trailer with the name of the failure.
pub const EXCEPTION: &str = "exception";
const STREAM_NAME: &str = "stream-name";
const GROUP_NAME: &str = "group-name";
const LOGIN_NAME: &str = "login-name";
/// Name of the failure that the caller lacks permission.
pub const ACCESS_DENIED: &str = "access-denied";
/// Name of the failure that another node leads.
pub const NOT_LEADER: &str = "not-leader";
const AUTHENTICATION_REQUIRED: &str =
    "authentication required: the call has no user; send a user name and a password";
/// Trailer with the space that an append lacked. Clients of other servers do not read it.
pub const MISSING_SPACE: &str = "umbel-missing-space";
/// The disk is full.
pub const DISK: &str = "disk";
/// The event log has reached its quota.
pub const LOG_QUOTA: &str = "log-quota";

/// Maximum number of characters of an unknown path or name that a status repeats.
pub const PATH_CHARS_MAX: usize = 200;

/// Numbers that stand for states without a revision.
const NO_STREAM: i64 = -1;
const ANY: i64 = -2;
const STREAM_EXISTS: i64 = -4;
const DELETED: i64 = -5;
const TOMBSTONED: i64 = -6;

/// Status of a failure of the store.
pub fn status(error: &Error) -> Status {
    match error {
        Error::WrongExpectedVersion { stream, expected, current, present } => {
            wrong_expected(("Append", present.as_ref()), stream, *expected, *current)
        }
        Error::StreamDeleted { stream } => stream_deleted(stream),
        Error::TooLarge { event: Some(id), bytes, max_bytes: limit } => named_exception(
            Status::invalid_argument(error.to_string()),
            "maximum-append-event-size-exceeded",
            &[
                ("maximum-append-event-size", limit.to_string()),
                ("event-id", id.to_string()),
                ("proposed-append-event-size", bytes.to_string()),
            ],
        ),
        Error::TooLarge { event: None, max_bytes: limit, .. }
        | Error::UndeleteTooLarge { max_bytes: limit, .. } => {
            append_too_large(*limit, error.to_string())
        }
        Error::Invalid(message) => Status::invalid_argument(message),
        Error::ClockRejected { .. } => Status::failed_precondition(error.to_string()),
        Error::LogQuotaExceeded { .. } => without_space(LOG_QUOTA, error.to_string()),
        Error::RegexTooExpensive { .. } => Status::invalid_argument(error.to_string()),
        // Clients know both texts: of a node that cannot serve now, and of an unknown outcome.
        Error::NotLeader => not_ready(),
        Error::AppendAmbiguous => Status::aborted(format!("Operation timed out: {error}")),
        // The event store adds advice on damage, which the engine does not have.
        Error::Store(umbel::Error::Corruption { .. }) => Status::data_loss(error.to_string()),
        Error::Store(error) => engine_status(error),
        other => Status::unknown(other.to_string()),
    }
}

/// Status of a version conflict. `what` names the refused request, an append or a delete, and the
/// events of the request that are in the stream already.
pub fn wrong_expected(
    what: (&str, Option<&PresentEvents>),
    stream: &str,
    expected: ExpectedVersion,
    current: Option<u64>,
) -> Status {
    let (expected, actual) = (expected_number(expected), current_number(current));
    named_exception(
        Status::failed_precondition(wrong_expected_text(what, stream, &expected, &actual)),
        "wrong-expected-version",
        &[
            (STREAM_NAME, stream.to_string()),
            ("expected-version", expected),
            ("actual-version", actual),
        ],
    )
}

/// Message of a version conflict, which clients parse. The cause, where there is one, stands before
/// the part that clients parse.
pub fn wrong_expected_text(
    (what, present): (&str, Option<&PresentEvents>),
    stream: &str,
    expected: &str,
    actual: &str,
) -> String {
    let cause = present.map_or_else(String::new, |present| format!(" ({present})"));
    format!(
        "{what} failed due to WrongExpectedVersion{cause}. Stream: {stream}, Expected version: \
         {expected}, Actual version: {actual}"
    )
}

/// Expected revision as the number that clients know.
pub fn expected_number(expected: ExpectedVersion) -> String {
    match expected {
        ExpectedVersion::Any => ANY.to_string(),
        ExpectedVersion::NoStream => NO_STREAM.to_string(),
        ExpectedVersion::Exists => STREAM_EXISTS.to_string(),
        ExpectedVersion::Exact(revision) => revision.to_string(),
        ExpectedVersion::Deleted => DELETED.to_string(),
        ExpectedVersion::Tombstoned => TOMBSTONED.to_string(),
    }
}

/// Current revision as the number that clients know.
pub fn current_number(current: Option<u64>) -> String {
    current.map_or_else(|| NO_STREAM.to_string(), |revision| revision.to_string())
}

/// Status of a write to a tombstoned stream.
pub fn stream_deleted(stream: &str) -> Status {
    named_exception(
        Status::failed_precondition(stream_deleted_text(stream)),
        "stream-deleted",
        &[(STREAM_NAME, stream.to_string())],
    )
}

/// Status: the server has no index with this name.
pub fn index_missing(index: &str) -> Status {
    let name = index.escape_debug();
    let message = format!(
        "there is no index '{name}'; the indexes are $idx-ce-CATEGORY and $idx-et-TYPE, each read \
         as the only stream prefix of a filter on all events"
    );
    named_exception(
        Status::not_found(message),
        "index-not-found",
        &[("index-name", index.to_string())],
    )
}

/// Returns an error for a read of a stream whose name is reserved for indexes. No stream has such a
/// name, so the read would find nothing.
pub fn check_not_index(stream: &str) -> Result<(), Status> {
    if !is_index_name(stream) {
        return Ok(());
    }
    if parse_index(stream).is_none() {
        return Err(index_missing(stream));
    }
    let name = stream.escape_debug();
    Err(Status::invalid_argument(format!(
        "'{name}' is an index and no stream; read it as the only stream prefix of a filter on all \
         events"
    )))
}

/// Message about a tombstoned stream, which clients search for.
pub fn stream_deleted_text(stream: &str) -> String {
    format!("Event stream '{stream}' is deleted.")
}

/// Status of an append that exceeds the size limit.
pub fn append_too_large(limit: u64, message: String) -> Status {
    named_exception(
        Status::invalid_argument(message),
        "maximum-append-size-exceeded",
        &[("maximum-append-size", limit.to_string())],
    )
}

/// Status of an event without its type or content type.
pub fn metadata_missing() -> Status {
    named_exception(
        Status::invalid_argument("every event needs the metadata properties type and content-type"),
        "missing-required-metadata-property",
        &[("required-metadata-properties", "type,content-type".to_string())],
    )
}

/// Status of a failed decode of an append; a message over the limit is reported as an append over
/// the limit.
pub fn decode_error(status: Status) -> Status {
    match status.code() {
        Code::OutOfRange => message_too_large(status.message()),
        _ => as_client_error(status),
    }
}

/// Status: too many different filter expressions are in use.
pub fn too_many_expressions() -> Status {
    Status::resource_exhausted(format!(
        "reads and subscriptions use {FILTER_EXPRESSIONS_MAX} different filter expressions, which \
         is the limit; use prefixes, or end some subscriptions"
    ))
}

/// Status: too many calls are open.
pub fn too_many_calls(limit: usize) -> Status {
    Status::resource_exhausted(format!("{limit} calls are open, which is the limit; try again"))
}

/// Status: a call has too many headers.
pub fn too_many_headers(headers: usize) -> Status {
    Status::resource_exhausted(format!(
        "the call has {headers} headers; the limit is {HEADERS_MAX}"
    ))
}

/// Truncates a status to a length that clients accept; no other limit bounds these headers. A
/// longer text only repeats what the client sent.
pub fn truncate_status(status: Status) -> Status {
    if status.message().len() <= STATUS_BYTES_MAX {
        return status;
    }
    let message = truncate_text(status.message(), STATUS_BYTES_MAX).into_owned();
    // These repeat the message.
    let details =
        if status.details().len() > STATUS_BYTES_MAX { &[][..] } else { status.details() };
    let details = Bytes::copy_from_slice(details);
    Status::with_details_and_metadata(status.code(), message, details, status.metadata().clone())
}

/// Status of a malformed message.
pub fn malformed_message(why: &str) -> Status {
    fail_point!("request-malformed-is-internal", |_| Status::internal(why));
    Status::invalid_argument(why)
}

/// Prefixes of tonic's messages about malformed requests, which tonic reports as internal errors.
const DECODE_ERROR_PREFIXES: [&str; 4] = [
    "Missing request message.",
    "Unexpected EOF decoding stream.",
    "failed to decode Protobuf message",
    "protocol error: received message with",
];

/// Message about a request that ended early.
const TRUNCATED_REQUEST: &str = "the client disconnected before the end of its request";

/// Error of the body of a truncated request. The error's status is not "cancelled", which the
/// decoder would take for the end of the messages.
pub fn truncated_request() -> Status {
    Status::aborted(TRUNCATED_REQUEST)
}

/// Turns statuses of malformed messages and aborted requests into client errors, since the server
/// did not fail.
pub fn as_client_error(status: Status) -> Status {
    let is_no_message =
        DECODE_ERROR_PREFIXES.iter().any(|begin| status.message().starts_with(begin));
    match status.code() {
        Code::Internal if is_no_message => Status::invalid_argument(status.message()),
        Code::Aborted if status.message() == TRUNCATED_REQUEST => {
            Status::cancelled(TRUNCATED_REQUEST)
        }
        _ => status,
    }
}

/// Status of a message over the limit, reported as an append over the limit. `why` names the limit.
pub fn message_too_large(why: &str) -> Status {
    let limit = APPEND_BYTES_MAX as u64;
    let message = format!("{why}; an append may have {limit} bytes, an event {EVENT_BYTES_MAX}");
    append_too_large(limit, message)
}

/// Status: appends that are not in the log yet fill their quota.
pub fn append_quota_exhausted() -> Status {
    Status::resource_exhausted(format!(
        "appends in flight hold {APPENDS_BYTES_MAX} bytes, which is their quota; try again"
    ))
}

/// Status: received messages fill their quota.
pub fn receive_quota_exhausted() -> Status {
    Status::resource_exhausted(format!(
        "received messages hold {RECEIVE_BYTES_MAX} bytes, which is their quota; try \
         again"
    ))
}

/// Status: a message was dropped, because its call did not take it and others needed its memory.
pub fn message_evicted() -> Status {
    Status::resource_exhausted(format!(
        "received messages fill their quota, and the message of this call made no progress: send a \
         message without pauses of {} s and with at least {MESSAGE_GROWTH_BYTES} bytes in {} s, \
         read the responses of the call, and try again",
        STALLED_MESSAGE_TIME.as_secs(),
        MESSAGE_GROWTH_TIME.as_secs(),
    ))
}

/// Status: a request did not end in time after its only message.
pub fn request_timed_out() -> Status {
    Status::deadline_exceeded("the request did not end in time after its message")
}

/// Status: a message did not arrive completely in time.
pub fn message_timed_out() -> Status {
    Status::deadline_exceeded("a message did not arrive completely in time")
}

/// Status: the last part of an append did not arrive in time.
pub fn append_timed_out() -> Status {
    Status::aborted(
        "Operation timed out: the last part of the append did not arrive in time; the \
         append was not written",
    )
}

/// Status: the caller lacks permission. `requirement` is a sentence with the user that has it.
pub fn access_denied(requirement: &str) -> Status {
    let text = format!("Access Denied: {requirement}");
    named_exception(Status::permission_denied(text), ACCESS_DENIED, &[])
}

/// Status: a call without credentials requires a user. Clients know this failure by the code and
/// the exception of a missing permission.
pub fn authentication_required() -> Status {
    named_exception(Status::permission_denied(AUTHENTICATION_REQUIRED), ACCESS_DENIED, &[])
}

/// Whether a status is [`authentication_required`].
pub fn is_authentication_required(status: &Status) -> bool {
    status.code() == Code::PermissionDenied && status.message() == AUTHENTICATION_REQUIRED
}

/// The space that an append lacked: `disk` or `log-quota`; `None` for another failure.
pub fn missing_space(status: &Status) -> Option<&str> {
    status.metadata().get(MISSING_SPACE)?.to_str().ok()
}

fn without_space(space: &'static str, text: String) -> Status {
    let mut trailers = MetadataMap::new();
    trailers.insert(MISSING_SPACE, MetadataValue::from_static(space));
    Status::with_metadata(Code::ResourceExhausted, text, trailers)
}

/// Status: the current password that a change of a password requires is wrong.
pub fn wrong_current_password() -> Status {
    let status = Status::permission_denied("the current password is wrong");
    named_exception(status, ACCESS_DENIED, &[])
}

/// Status: the credentials are invalid, without the reason.
pub fn unauthenticated() -> Status {
    Status::unauthenticated("the user name or password is wrong, or the user is disabled")
}

/// Status: too many passwords wait for verification.
pub fn authentication_overloaded() -> Status {
    Status::unavailable("Server Is Too Busy: too many passwords wait for verification; try again")
}

/// Status: the user does not exist.
pub fn user_not_found(login: &str) -> Status {
    let shown: String = login.chars().take(PATH_CHARS_MAX).collect();
    let text = format!("User '{shown}' is not found.");
    named_exception(Status::not_found(text), "user-not-found", &[(LOGIN_NAME, shown)])
}

/// Status: the user exists already, or was just changed by another client.
pub fn user_conflict(login: &str) -> Status {
    let shown: String = login.chars().take(PATH_CHARS_MAX).collect();
    let text = format!("User '{shown}' already exists, or was changed at the same time.");
    named_exception(Status::failed_precondition(text), "user-conflict", &[(LOGIN_NAME, shown)])
}

/// Status: the node does not lead, and this one does. Clients search for the message, and connect
/// to the address.
pub fn not_leader(host: &str, port: u16) -> Status {
    named_exception(
        Status::not_found("Leader info available"),
        NOT_LEADER,
        &[("leader-endpoint-host", host.to_string()), ("leader-endpoint-port", port.to_string())],
    )
}

/// Status: the node does not lead, and knows no leader. Clients know the message.
pub fn not_ready() -> Status {
    Status::unavailable("Server Is Not Ready")
}

/// Status: no scavenge has this id.
pub fn scavenge_not_found(id: &str) -> Status {
    let shown: String = id.chars().take(PATH_CHARS_MAX).collect();
    named_exception(
        Status::not_found(format!("Scavenge '{shown}' not found")),
        "scavenge-not-found",
        &[("scavenge-id", shown)],
    )
}

/// Status: the consumer group does not exist.
pub fn group_missing(key: &GroupKey) -> Status {
    let (stream, group) = (key.source(), &key.group);
    let message = format!("Subscription group {group} on stream {stream} does not exist.");
    group_status(Status::not_found(message), "persistent-subscription-does-not-exist", key)
}

/// Status: the stream, or `$all` for `None`, has no consumer group.
pub fn groups_missing(stream: Option<String>) -> Status {
    let key = GroupKey { stream, group: String::new() };
    let message = format!("Stream {} has no subscription group.", key.source());
    group_status(Status::not_found(message), "persistent-subscription-does-not-exist", &key)
}

/// Status: the consumer group exists already.
pub fn group_exists(key: &GroupKey) -> Status {
    let (stream, group) = (key.source(), &key.group);
    let message = format!("Subscription group {group} on stream {stream} exists.");
    group_status(Status::already_exists(message), "persistent-subscription-exists", key)
}

/// Status: the settings of a consumer group are invalid.
pub fn group_failed(key: &GroupKey, reason: &str) -> Status {
    let (stream, group) = (key.source(), &key.group);
    let facts = [
        (STREAM_NAME, stream.to_string()),
        (GROUP_NAME, group.clone()),
        ("reason", reason.to_string()),
    ];
    let message = format!("Subscription group {group} on stream {stream} failed: '{reason}'");
    named_exception(Status::internal(message), "persistent-subscription-failed", &facts)
}

/// Status: a consumer group has its maximum number of consumers.
pub fn group_full(key: &GroupKey) -> Status {
    let (stream, group) = (key.source(), &key.group);
    let message =
        format!("Maximum subscriptions reached for subscription group {group} on stream {stream}.");
    group_status(Status::failed_precondition(message), "maximum-subscribers-reached", key)
}

/// Status: a consumer group was deleted or changed while consumers were connected.
pub fn group_dropped(key: &GroupKey) -> Status {
    let (stream, group) = (key.source(), &key.group);
    let message = format!("Subscription group {group} on stream {stream} was dropped.");
    group_status(Status::cancelled(message), "persistent-subscription-dropped", key)
}

/// Status: a consumer group cannot store its progress, a failure that no consumer caused.
pub fn group_unavailable(key: &GroupKey, error: &Error) -> Status {
    let (stream, group) = (key.source(), &key.group);
    let code = match error {
        Error::Store(error) => engine_status(error).code(),
        Error::LogQuotaExceeded { .. } => Code::ResourceExhausted,
        _ => Code::Internal,
    };
    let code = if code == Code::InvalidArgument { Code::Internal } else { code };
    Status::new(
        code,
        format!(
            "Subscription group '{group}' on stream '{stream}' cannot store its progress: \
             {error}; the server tries again"
        ),
    )
}

fn group_status(status: Status, exception: &'static str, key: &GroupKey) -> Status {
    let facts = [(STREAM_NAME, key.source().to_string()), (GROUP_NAME, key.group.clone())];
    named_exception(status, exception, &facts)
}

/// Status: the method is not served.
pub fn unknown_method(path: &str) -> Status {
    let path: String = path.chars().take(PATH_CHARS_MAX).collect();
    Status::unimplemented(format!("{path} is not served by this server"))
}

/// Status: the server shuts down.
pub fn shutting_down() -> Status {
    Status::unavailable("Server Is Not Ready: the server is stopping; try again")
}

/// Status of a failure of the key-value store, in key-value calls.
pub fn engine_status(error: &umbel::Error) -> Status {
    let text = error.to_string();
    match error {
        umbel::Error::Conflict(_) => {
            fail_point!("kv-conflict-is-internal", |_| Status::internal(&*text));
            Status::aborted(text)
        }
        umbel::Error::Invalid(_) => Status::invalid_argument(text),
        // `status` words the corruption of the event store.
        umbel::Error::Corruption { .. } => Status::data_loss(format!(
            "{}; restore the directory of the key-value store from a copy or from a checkpoint \
             on another disk: backups and repairs of the event store do not include keys and \
             values",
            error.message_without_advice()
        )),
        umbel::Error::DiskFull { .. } => without_space(DISK, text),
        error if error.is_out_of_descriptors() => Status::resource_exhausted(text),
        umbel::Error::ReadOnly(_) | umbel::Error::Closed | umbel::Error::Forked(_) => {
            Status::unavailable(format!("Server Is Not Ready: {text}"))
        }
        _ => Status::internal(text),
    }
}

fn named_exception(
    status: Status,
    exception: &'static str,
    facts: &[(&'static str, String)],
) -> Status {
    let mut trailers = MetadataMap::new();
    trailers.insert(EXCEPTION, MetadataValue::from_static(exception));
    for (key, value) in facts {
        trailers.insert(*key, ascii_trailer(value));
    }
    Status::with_metadata(status.code(), status.message(), trailers)
}

/// Encodes a trailer as printable ASCII; every other byte becomes `%` and two hex digits.
fn ascii_trailer(text: &str) -> MetadataValue<Ascii> {
    let mut value = String::with_capacity(text.len());
    for byte in text.bytes() {
        if matches!(byte, b' '..=b'~') {
            value.push(char::from(byte));
        } else {
            value.push_str(&format!("%{byte:02X}"));
        }
    }
    MetadataValue::try_from(value).expect("printable ASCII is a valid header value")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fact<'a>(status: &'a Status, key: &str) -> &'a str {
        status.metadata().get(key).unwrap().to_str().unwrap()
    }

    /// Story: some errors repeated what a client had sent, up to 17 MiB, which became three times
    /// as long in the headers of the response. Clients reject such headers, and no quota counted
    /// them.
    #[test]
    fn status_length_is_bounded() {
        let details = Bytes::from(vec![1; 9 << 10]);
        let mut metadata = MetadataMap::new();
        metadata.insert("fact", MetadataValue::from_static("kept"));
        let long = "é".repeat(1 << 20);
        let status = Status::with_details_and_metadata(Code::Aborted, long, details, metadata);
        let truncated = truncate_status(status);
        assert_eq!(
            (truncated.code(), truncated.message().len(), truncated.details()),
            (Code::Aborted, 8191, &[][..])
        );
        assert!(truncated.message().ends_with("é…") && truncated.metadata().contains_key("fact"));
        assert_eq!(truncate_status(Status::aborted("a")).message(), "a");
    }

    #[test]
    fn version_conflict_has_both_revisions_in_client_format() {
        let error = Error::WrongExpectedVersion {
            stream: "cart".to_string(),
            expected: ExpectedVersion::NoStream,
            current: Some(4),
            present: None,
        };
        let status = status(&error);
        assert_eq!(status.code(), Code::FailedPrecondition);
        assert_eq!(fact(&status, "exception"), "wrong-expected-version");
        assert_eq!(fact(&status, "expected-version"), "-1");
        assert_eq!(fact(&status, "actual-version"), "4");
        let conflict = wrong_expected(("Delete", None), "cart", ExpectedVersion::Any, None);
        assert_eq!(
            conflict.message(),
            "Delete failed due to WrongExpectedVersion. Stream: cart, Expected version: -2, \
             Actual version: -1"
        );
    }

    /// Clients search for these texts, which have no quotes in EventStoreDB.
    #[test]
    fn texts_about_groups_are_those_of_the_original() {
        let key = GroupKey { stream: Some("cart".to_string()), group: "billing".to_string() };
        let on = "ubscription group billing on stream cart";
        for (status, wanted) in [
            (group_missing(&key), format!("S{on} does not exist.")),
            (group_exists(&key), format!("S{on} exists.")),
            (group_failed(&key, "why"), format!("S{on} failed: 'why'")),
            (group_full(&key), format!("Maximum subscriptions reached for s{on}.")),
            (group_dropped(&key), format!("S{on} was dropped.")),
        ] {
            assert_eq!(status.message(), wanted);
        }
    }

    /// Story: an append with a part of its events in the stream was refused without the cause, with
    /// the message that no version was expected.
    #[test]
    fn partial_retry_names_the_cause_before_the_parsed_part() {
        let present = PresentEvents { first_revision: 5, count: 2, appended: 3 };
        let error = Error::WrongExpectedVersion {
            stream: "cart".to_string(),
            expected: ExpectedVersion::Any,
            current: Some(7),
            present: Some(present),
        };
        let status = status(&error);
        assert_eq!(fact(&status, "exception"), "wrong-expected-version");
        let message = status.message();
        let parsed = "). Stream: cart, Expected version: -2, Actual version: 7";
        assert!(message.starts_with("Append failed due to WrongExpectedVersion ("), "{message}");
        assert!(message.contains("has the first 2 of the 3 events, from revision 5"), "{message}");
        assert!(message.ends_with(parsed), "{message}");
    }

    #[test]
    fn followers_name_the_leader_in_trailers() {
        let refused = not_leader("b.example", 2113);
        assert_eq!((refused.code(), refused.message()), (Code::NotFound, "Leader info available"));
        assert_eq!(fact(&refused, "exception"), "not-leader");
        assert_eq!(fact(&refused, "leader-endpoint-host"), "b.example");
        assert_eq!(fact(&refused, "leader-endpoint-port"), "2113");
        let unknown = status(&Error::NotLeader);
        assert_eq!((unknown.code(), unknown.message()), (Code::Unavailable, "Server Is Not Ready"));
        let ambiguous = status(&Error::AppendAmbiguous);
        assert_eq!(ambiguous.code(), Code::Aborted);
        assert!(ambiguous.message().starts_with("Operation timed out: "), "{ambiguous:?}");
    }

    #[test]
    fn non_ascii_names_are_escaped() {
        let status = stream_deleted("käse\n");
        assert_eq!(fact(&status, "stream-name"), "k%C3%A4se%0A");
        assert_eq!(status.message(), "Event stream 'käse\n' is deleted.");
    }

    #[test]
    fn oversized_message_is_reported_as_oversized_append() {
        let status = decode_error(Status::out_of_range("too large"));
        assert_eq!(status.code(), Code::InvalidArgument);
        assert_eq!(fact(&status, "exception"), "maximum-append-size-exceeded");
        assert_eq!(fact(&status, "maximum-append-size"), APPEND_BYTES_MAX.to_string());
        assert_eq!(decode_error(Status::cancelled("gone")).code(), Code::Cancelled);
    }

    #[test]
    fn store_failures_are_reported_by_remedy() {
        let path = std::path::Path::new("x");
        let io = |kind| umbel::Error::io("write", path, std::io::Error::from(kind));
        let cases = [
            (io(std::io::ErrorKind::StorageFull), Code::ResourceExhausted),
            (io(std::io::ErrorKind::QuotaExceeded), Code::ResourceExhausted),
            (io(std::io::ErrorKind::FileTooLarge), Code::ResourceExhausted),
            (io(std::io::ErrorKind::PermissionDenied), Code::Internal),
            (
                umbel::Error::io("open", path, std::io::Error::from_raw_os_error(24)),
                Code::ResourceExhausted,
            ),
            (umbel::Error::corruption(path, 3, "bad"), Code::DataLoss),
            (umbel::Error::Closed, Code::Unavailable),
            (umbel::Error::Forked(path.to_path_buf()), Code::Unavailable),
        ];
        for (number, (error, code)) in cases.into_iter().enumerate() {
            let status = status(&Error::Store(error));
            assert_eq!(status.code(), code);
            // A lack of descriptors ends by itself.
            assert_eq!(missing_space(&status), (number < 3).then_some(DISK), "{status:?}");
        }
        let quota = Error::LogQuotaExceeded {
            directory: "x".into(),
            bytes: 1,
            log_bytes: 2,
            quota_bytes: 3,
        };
        assert_eq!(missing_space(&status(&quota)), Some(LOG_QUOTA));
    }
}
