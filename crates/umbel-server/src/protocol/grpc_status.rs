//! What clients are told when something fails: a status, and for those they handle the name of the
//! failure and its facts as trailers.

use prost::bytes::Bytes;
use tonic::metadata::{Ascii, MetadataMap, MetadataValue};
use tonic::{Code, Status};
use umbel_events::limits::{APPEND_BYTES_MAX, EVENT_BYTES_MAX};
use umbel_events::{Error, Expected};

use crate::cut::cut;
use crate::group_key::GroupKey;
use crate::limits::{
    APPENDS_BYTES_MAX, EXPRESSIONS_MAX, HEADERS_MAX, RECEIVING_BYTES_MAX, STATUS_BYTES_MAX,
};
use crate::planted::{Bug, planted};

/// The trailer that names the failure.
pub const EXCEPTION: &str = "exception";
const STREAM_NAME: &str = "stream-name";
const GROUP_NAME: &str = "group-name";
const LOGIN_NAME: &str = "login-name";
/// The name of the failure that the caller may not.
pub const ACCESS_DENIED: &str = "access-denied";

/// How many characters of what is not served or not there are told back.
pub const PATH_SHOWN: usize = 200;

/// The numbers by which clients know what is no revision.
const NO_STREAM: i64 = -1;
const ANY: i64 = -2;
const STREAM_EXISTS: i64 = -4;
const DELETED: i64 = -5;
const TOMBSTONED: i64 = -6;

/// What a client is told of a failure of the store.
pub fn status(error: &Error) -> Status {
    match error {
        Error::WrongExpected { stream, expected, current } => {
            wrong_expected("Append", stream, *expected, *current)
        }
        Error::Deleted { stream } => stream_deleted(stream),
        Error::TooLarge { event: Some(id), bytes, most } => named(
            Status::invalid_argument(error.to_string()),
            "maximum-append-event-size-exceeded",
            &[
                ("maximum-append-event-size", most.to_string()),
                ("event-id", id.to_string()),
                ("proposed-append-event-size", bytes.to_string()),
            ],
        ),
        Error::TooLarge { event: None, most, .. } => append_too_large(*most, error.to_string()),
        Error::Invalid(message) => Status::invalid_argument(message),
        Error::Runaway { .. } => Status::invalid_argument(error.to_string()),
        // The event store knows what helps against damage, which the engine does not.
        Error::Store(umbel::Error::Corruption { .. }) => Status::data_loss(error.to_string()),
        Error::Store(error) => of_engine(error),
        other => Status::unknown(other.to_string()),
    }
}

/// A write found its stream at another revision. `what` was refused: an append or a deletion.
pub fn wrong_expected(
    what: &str,
    stream: &str,
    expected: Expected,
    current: Option<u64>,
) -> Status {
    let (expected, actual) = (expected_number(expected), current_number(current));
    named(
        Status::failed_precondition(wrong_expected_text(what, stream, &expected, &actual)),
        "wrong-expected-version",
        &[
            (STREAM_NAME, stream.to_string()),
            ("expected-version", expected),
            ("actual-version", actual),
        ],
    )
}

/// The sentence that clients take apart.
pub fn wrong_expected_text(what: &str, stream: &str, expected: &str, actual: &str) -> String {
    format!(
        "{what} failed due to WrongExpectedVersion. Stream: {stream}, Expected version: \
         {expected}, Actual version: {actual}"
    )
}

/// What was expected, as the number by which clients know it.
pub fn expected_number(expected: Expected) -> String {
    match expected {
        Expected::Any => ANY.to_string(),
        Expected::NoStream => NO_STREAM.to_string(),
        Expected::Exists => STREAM_EXISTS.to_string(),
        Expected::Exact(revision) => revision.to_string(),
        Expected::Deleted => DELETED.to_string(),
        Expected::Tombstoned => TOMBSTONED.to_string(),
    }
}

/// What a stream is at, as the number by which clients know it.
pub fn current_number(current: Option<u64>) -> String {
    current.map_or_else(|| NO_STREAM.to_string(), |revision| revision.to_string())
}

/// The stream was tombstoned.
pub fn stream_deleted(stream: &str) -> Status {
    named(
        Status::failed_precondition(stream_deleted_text(stream)),
        "stream-deleted",
        &[(STREAM_NAME, stream.to_string())],
    )
}

/// The sentence that clients look for.
pub fn stream_deleted_text(stream: &str) -> String {
    format!("Event stream '{stream}' is deleted.")
}

/// An append is larger than the store takes.
pub fn append_too_large(most: u64, message: String) -> Status {
    named(
        Status::invalid_argument(message),
        "maximum-append-size-exceeded",
        &[("maximum-append-size", most.to_string())],
    )
}

/// An event came without its type or its content type.
pub fn metadata_missing() -> Status {
    named(
        Status::invalid_argument("every event needs the metadata properties type and content-type"),
        "missing-required-metadata-property",
        &[("required-metadata-properties", "type,content-type".to_string())],
    )
}

/// What reading a client's message came to: one over the limit is an append over the limit.
pub fn unreadable(status: Status) -> Status {
    match status.code() {
        Code::OutOfRange => message_too_large(status.message()),
        _ => of_the_client(status),
    }
}

/// So many different expressions are in use that there is no room for another.
pub fn many_expressions() -> Status {
    Status::resource_exhausted(format!(
        "{EXPRESSIONS_MAX} different expressions are in use by reads and subscriptions, which is \
         the most there may be; use prefixes, or end some"
    ))
}

/// So many calls are open that there is no room for another.
pub fn many_calls(most: usize) -> Status {
    Status::resource_exhausted(format!(
        "{most} calls are open, which is the most there may be; try again"
    ))
}

/// A call with more headers than one may have.
pub fn many_headers(headers: usize) -> Status {
    Status::resource_exhausted(format!(
        "a call has {HEADERS_MAX} headers at most, this one has {headers}"
    ))
}

/// A status that clients take: a text of some length, in headers that nobody counts. What is longer
/// repeats what the client sent.
pub fn short(status: Status) -> Status {
    if status.message().len() <= STATUS_BYTES_MAX {
        return status;
    }
    let message = cut(status.message(), STATUS_BYTES_MAX).into_owned();
    // These say it again.
    let details =
        if status.details().len() > STATUS_BYTES_MAX { &[][..] } else { status.details() };
    let details = Bytes::copy_from_slice(details);
    Status::with_details_and_metadata(status.code(), message, details, status.metadata().clone())
}

/// Something is no message of the call it came over.
pub fn no_message(why: &str) -> Status {
    if planted(Bug::NoMessageIsOurs) {
        return Status::internal(why);
    }
    Status::invalid_argument(why)
}

/// How what reads the messages of other services begins to say that one is none, which it takes for
/// the server's failure.
const NO_MESSAGE: [&str; 4] = [
    "Missing request message.",
    "Unexpected EOF decoding stream.",
    "failed to decode Protobuf message",
    "protocol error: received message with",
];

/// What is said of a request whose end does not come.
const BROKEN_OFF: &str = "the client broke off before it had sent all of its request";

/// How the body of such a request fails. It is no cancellation yet: what reads messages takes that
/// for their end.
pub fn broken_off() -> Status {
    Status::aborted(BROKEN_OFF)
}

/// Whose message is none has asked wrongly, and who broke off has left: these are no failures of
/// the server.
pub fn of_the_client(status: Status) -> Status {
    let is_no_message = NO_MESSAGE.iter().any(|begin| status.message().starts_with(begin));
    match status.code() {
        Code::Internal if is_no_message => Status::invalid_argument(status.message()),
        Code::Aborted if status.message() == BROKEN_OFF => Status::cancelled(BROKEN_OFF),
        _ => status,
    }
}

/// A message over the limit is an append over the limit. `why` says which limit.
pub fn message_too_large(why: &str) -> Status {
    let most = APPEND_BYTES_MAX as u64;
    let message = format!("{why}; an append may have {most} bytes, an event {EVENT_BYTES_MAX}");
    append_too_large(most, message)
}

/// What came of appends and is not in the log yet fills the memory there is for it.
pub fn no_room() -> Status {
    Status::resource_exhausted(format!(
        "appends that have come hold {APPENDS_BYTES_MAX} bytes, which is what they may; try again"
    ))
}

/// Messages that have come in part fill the memory there is for them.
pub fn no_room_for_messages() -> Status {
    Status::resource_exhausted(format!(
        "messages that are on their way hold {RECEIVING_BYTES_MAX} bytes, which is what they may; \
         try again"
    ))
}

/// A message began and did not come whole in time.
pub fn message_late() -> Status {
    Status::deadline_exceeded("a message began and did not come whole in time")
}

/// The last part of an append did not come in time.
pub fn parts_too_late() -> Status {
    Status::aborted(
        "Operation timed out: the last part of the append did not come in time; nothing of it was \
         written",
    )
}

/// Whoever asks may not.
pub fn access_denied() -> Status {
    named(Status::permission_denied("Access Denied"), ACCESS_DENIED, &[])
}

/// Whoever asks is not who he says he is, whatever of it is wrong.
pub fn unauthenticated() -> Status {
    Status::unauthenticated("the user's name or the password is wrong, or the user is disabled")
}

/// More ask to be known than are looked at.
pub fn too_busy() -> Status {
    Status::unavailable("Server Is Too Busy: many passwords wait to be looked at; try again")
}

/// There is no such user.
pub fn user_not_found(login: &str) -> Status {
    let shown: String = login.chars().take(PATH_SHOWN).collect();
    let text = format!("User '{shown}' is not found.");
    named(Status::not_found(text), "user-not-found", &[(LOGIN_NAME, shown)])
}

/// There is such a user already, or somebody else has just changed him.
pub fn user_conflict(login: &str) -> Status {
    let shown: String = login.chars().take(PATH_SHOWN).collect();
    let text = format!("User '{shown}' already exists, or was changed at the same time.");
    named(Status::failed_precondition(text), "user-conflict", &[(LOGIN_NAME, shown)])
}

/// There is no scavenge with this name.
pub fn scavenge_not_found(id: &str) -> Status {
    let shown: String = id.chars().take(PATH_SHOWN).collect();
    named(
        Status::not_found(format!("Scavenge '{shown}' not found")),
        "scavenge-not-found",
        &[("scavenge-id", shown)],
    )
}

/// There is no such group of consumers.
pub fn group_missing(key: &GroupKey) -> Status {
    let (stream, group) = (key.source(), &key.group);
    let message = format!("Subscription group '{group}' on stream '{stream}' does not exist.");
    of_group(Status::not_found(message), "persistent-subscription-does-not-exist", key)
}

/// There is such a group of consumers already.
pub fn group_exists(key: &GroupKey) -> Status {
    let (stream, group) = (key.source(), &key.group);
    let message = format!("Subscription group '{group}' on stream '{stream}' exists.");
    of_group(Status::already_exists(message), "persistent-subscription-exists", key)
}

/// A group cannot be as was asked.
pub fn group_failed(key: &GroupKey, reason: &str) -> Status {
    let (stream, group) = (key.source(), &key.group);
    let facts = [
        (STREAM_NAME, stream.to_string()),
        (GROUP_NAME, group.clone()),
        ("reason", reason.to_string()),
    ];
    let message = format!("Subscription group '{group}' on stream '{stream}' failed: '{reason}'");
    named(Status::internal(message), "persistent-subscription-failed", &facts)
}

/// A group has as many consumers as it may.
pub fn group_full(key: &GroupKey) -> Status {
    let (stream, group) = (key.source(), &key.group);
    let message = format!(
        "Maximum subscriptions reached for subscription group '{group}' on stream '{stream}'."
    );
    of_group(Status::failed_precondition(message), "maximum-subscribers-reached", key)
}

/// A group went away or changed while consumers were connected.
pub fn group_dropped(key: &GroupKey) -> Status {
    let (stream, group) = (key.source(), &key.group);
    let message = format!("Subscription group '{group}' on stream '{stream}' was dropped.");
    of_group(Status::cancelled(message), "persistent-subscription-dropped", key)
}

/// A group cannot keep what became of its events, which is nothing that a consumer asked for.
pub fn group_stuck(key: &GroupKey, error: &Error) -> Status {
    let (stream, group) = (key.source(), &key.group);
    let code = match error {
        Error::Store(error) => of_engine(error).code(),
        _ => Code::Internal,
    };
    let code = if code == Code::InvalidArgument { Code::Internal } else { code };
    Status::new(
        code,
        format!(
            "Subscription group '{group}' on stream '{stream}' cannot keep what became of its \
             events: {error}; the server tries again"
        ),
    )
}

fn of_group(status: Status, exception: &'static str, key: &GroupKey) -> Status {
    let facts = [(STREAM_NAME, key.source().to_string()), (GROUP_NAME, key.group.clone())];
    named(status, exception, &facts)
}

/// A call that is not served.
pub fn not_served(path: &str) -> Status {
    let path: String = path.chars().take(PATH_SHOWN).collect();
    Status::unimplemented(format!("{path} is not served here"))
}

/// The server is about to stop.
pub fn stopping() -> Status {
    Status::unavailable("Server Is Not Ready: it is being stopped; try again")
}

/// What a client is told of a failure of the engine, in calls for keys and values.
pub fn of_engine(error: &umbel::Error) -> Status {
    let text = error.to_string();
    match error {
        umbel::Error::Conflict(_) if !planted(Bug::ConflictIsOurs) => Status::aborted(text),
        umbel::Error::Invalid(_) => Status::invalid_argument(text),
        // Those of the event store are told by it.
        umbel::Error::Corruption { .. } => Status::data_loss(format!(
            "{}; restore the folder of keys and values from a copy of it, or from a checkpoint on \
             another disk: backups and repairs of the event store leave it out",
            error.without_remedy()
        )),
        umbel::Error::Full { .. } => Status::resource_exhausted(text),
        umbel::Error::ReadOnly(_) | umbel::Error::Closed | umbel::Error::Forked(_) => {
            Status::unavailable(format!("Server Is Not Ready: {text}"))
        }
        _ => Status::internal(text),
    }
}

fn named(status: Status, exception: &'static str, facts: &[(&'static str, String)]) -> Status {
    let mut trailers = MetadataMap::new();
    trailers.insert(EXCEPTION, MetadataValue::from_static(exception));
    for (key, value) in facts {
        trailers.insert(*key, trailer(value));
    }
    Status::with_metadata(status.code(), status.message(), trailers)
}

/// A trailer is ASCII that can be seen: what is not is written as `%` and two hex digits a byte.
fn trailer(text: &str) -> MetadataValue<Ascii> {
    let mut value = String::with_capacity(text.len());
    for byte in text.bytes() {
        if matches!(byte, b' '..=b'~') {
            value.push(char::from(byte));
        } else {
            value.push_str(&format!("%{byte:02X}"));
        }
    }
    MetadataValue::try_from(value).expect("printable ASCII is a value")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fact<'a>(status: &'a Status, key: &str) -> &'a str {
        status.metadata().get(key).unwrap().to_str().unwrap()
    }

    /// Story: some errors repeated what a client had sent, up to 17 MiB, three times as long in the
    /// headers of the answer. No client takes these, and nobody counted them.
    #[test]
    fn a_status_is_no_longer_than_clients_take() {
        let details = Bytes::from(vec![1; 9 << 10]);
        let mut metadata = MetadataMap::new();
        metadata.insert("fact", MetadataValue::from_static("kept"));
        let long = "é".repeat(1 << 20);
        let status = Status::with_details_and_metadata(Code::Aborted, long, details, metadata);
        let told = short(status);
        assert_eq!(
            (told.code(), told.message().len(), told.details()),
            (Code::Aborted, 8191, &[][..])
        );
        assert!(told.message().ends_with("é…") && told.metadata().contains_key("fact"));
        assert_eq!(short(Status::aborted("a")).message(), "a");
    }

    #[test]
    fn a_wrong_revision_says_both_as_clients_read_them() {
        let error = Error::WrongExpected {
            stream: "cart".to_string(),
            expected: Expected::NoStream,
            current: Some(4),
        };
        let status = status(&error);
        assert_eq!(status.code(), Code::FailedPrecondition);
        assert_eq!(fact(&status, "exception"), "wrong-expected-version");
        assert_eq!(fact(&status, "expected-version"), "-1");
        assert_eq!(fact(&status, "actual-version"), "4");
        let said = wrong_expected("Delete", "cart", Expected::Any, None);
        assert_eq!(
            said.message(),
            "Delete failed due to WrongExpectedVersion. Stream: cart, Expected version: -2, \
             Actual version: -1"
        );
    }

    #[test]
    fn names_that_are_not_ascii_are_escaped() {
        let status = stream_deleted("käse\n");
        assert_eq!(fact(&status, "stream-name"), "k%C3%A4se%0A");
        assert_eq!(status.message(), "Event stream 'käse\n' is deleted.");
    }

    #[test]
    fn a_message_over_the_limit_is_an_append_over_the_limit() {
        let status = unreadable(Status::out_of_range("too large"));
        assert_eq!(status.code(), Code::InvalidArgument);
        assert_eq!(fact(&status, "exception"), "maximum-append-size-exceeded");
        assert_eq!(fact(&status, "maximum-append-size"), APPEND_BYTES_MAX.to_string());
        assert_eq!(unreadable(Status::cancelled("gone")).code(), Code::Cancelled);
    }

    #[test]
    fn a_failing_store_is_told_by_what_can_be_done() {
        let path = std::path::Path::new("x");
        let io = |kind| umbel::Error::io("write", path, std::io::Error::from(kind));
        let cases = [
            (io(std::io::ErrorKind::StorageFull), Code::ResourceExhausted),
            (io(std::io::ErrorKind::QuotaExceeded), Code::ResourceExhausted),
            (io(std::io::ErrorKind::FileTooLarge), Code::ResourceExhausted),
            (io(std::io::ErrorKind::PermissionDenied), Code::Internal),
            (umbel::Error::corruption(path, 3, "bad"), Code::DataLoss),
            (umbel::Error::Closed, Code::Unavailable),
            (umbel::Error::Forked(path.to_path_buf()), Code::Unavailable),
        ];
        for (error, code) in cases {
            assert_eq!(status(&Error::Store(error)).code(), code);
        }
    }
}
