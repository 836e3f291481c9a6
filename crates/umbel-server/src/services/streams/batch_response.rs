//! How a batch ended, as its answer says it.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use prost::Message;
use tokio::time::Instant;
use tonic::{Code, Status};
use umbel_env::PerProcess;
use umbel_events::limits::APPEND_BYTES_MAX;
use umbel_events::{Appended, Error, Expected};
use umbel_proto::shared::{
    AccessDenied, BadRequest, MaximumAppendSizeExceeded, StreamDeleted, StreamIdentifier, Timeout,
    Unknown, Uuid, WrongExpectedVersion, wrong_expected_version,
};
use umbel_proto::status::{self, detail};
use umbel_proto::streams::batch_append_req::Options;
use umbel_proto::streams::batch_append_resp::{self, Outcome};
use umbel_proto::streams::{BatchAppendResp, ExpectedRevision};

use crate::{append, convert, failure};

/// Batches that fail are told of again after this time.
const TOLD_AGAIN: Duration = Duration::from_secs(1);

/// What an answer repeats of its request.
pub struct Echo {
    id: Uuid,
    stream: Option<StreamIdentifier>,
    expected: Option<ExpectedRevision>,
}

/// When the log was last told that batches fail.
static TOLD: PerProcess<Mutex<Option<Instant>>> = PerProcess::new();

/// Tells the log, once a second at most, where it is not the client's doing that a batch fails: the
/// call itself does not, so that nobody else tells of it.
fn note(status: &Status) {
    let is_clients = matches!(status.code(), Code::InvalidArgument | Code::PermissionDenied);
    let mut told = TOLD.get().lock().unwrap_or_else(PoisonError::into_inner);
    if is_clients || told.is_some_and(|told| told.elapsed() < TOLD_AGAIN) {
        return;
    }
    *told = Some(Instant::now());
    tracing::warn!(code = ?status.code(), reason = status.message(), "batches are not written");
}

impl Echo {
    /// What is repeated of a batch with these options.
    pub fn new(id: Uuid, options: &Options) -> Echo {
        let stream = options.stream_identifier.clone();
        Echo { id, stream, expected: options.expected_stream_position }
    }

    /// The answer of the store.
    pub fn outcome(self, result: Result<Appended, Error>) -> BatchAppendResp {
        let outcome = match result {
            Ok(done) => Outcome::Success(append::success(&done)),
            Err(error) => Outcome::Error(self.failed(&error)),
        };
        self.answer(outcome)
    }

    /// The request of the batch is wrong.
    pub fn refused(self, refusal: &Status) -> BatchAppendResp {
        let error = failed_status(refusal.code(), refusal.message().to_string(), refusal);
        self.answer(Outcome::Error(error))
    }

    /// The deadline passed first.
    pub fn timed_out(self) -> BatchAppendResp {
        let message = "Timeout: the deadline passed before the append was done; it may still be";
        let error = outcome(Code::DeadlineExceeded, message, "Timeout", &Timeout {});
        self.answer(Outcome::Error(error))
    }

    /// The last part of the batch did not come in time.
    pub fn gave_up(self) -> BatchAppendResp {
        let message = "Timeout: the last part of the batch did not come in time; nothing of it was \
                       written";
        let error = outcome(Code::DeadlineExceeded, message, "Timeout", &Timeout {});
        self.answer(Outcome::Error(error))
    }

    fn failed(&self, error: &Error) -> status::Status {
        match error {
            Error::WrongExpected { stream, expected, current } => {
                let number = failure::expected_number(*expected);
                let actual = failure::current_number(*current);
                let text = failure::wrong_expected_text("Append", stream, &number, &actual);
                let detail = wrong_expected(*expected, *current);
                #[cfg(feature = "canary")]
                if umbel_base::canary::Switch::ServerDetailForgotten.is_on() {
                    return outcome(Code::AlreadyExists, &text, "Unknown", &Unknown {});
                }
                outcome(Code::AlreadyExists, &text, "WrongExpectedVersion", &detail)
            }
            Error::Deleted { stream } => {
                let text = failure::stream_deleted_text(stream);
                let stream_identifier = Some(convert::identifier(stream));
                let detail = StreamDeleted { stream_identifier };
                outcome(Code::NotFound, &text, "StreamDeleted", &detail)
            }
            Error::TooLarge { most, .. } => {
                // Of an event or of all of them: the limit that was met.
                let max_append_size = u32::try_from(*most).unwrap_or(u32::MAX);
                let detail = MaximumAppendSizeExceeded { max_append_size };
                let text = error.to_string();
                outcome(Code::InvalidArgument, &text, "MaximumAppendSizeExceeded", &detail)
            }
            error => {
                let status = failure::status(error);
                note(&status);
                failed_status(status.code(), status.message().to_string(), &status)
            }
        }
    }

    fn answer(self, outcome: Outcome) -> BatchAppendResp {
        use batch_append_resp::Expected;
        let expected = self.expected.map(|expected| match expected {
            ExpectedRevision::Revision(revision) => Expected::StreamPosition(revision),
            ExpectedRevision::NoStream(()) => Expected::NoStream(()),
            ExpectedRevision::Any(()) => Expected::Any(()),
            ExpectedRevision::StreamExists(()) => Expected::StreamExists(()),
        });
        BatchAppendResp {
            correlation_id: Some(self.id),
            result: Some(outcome),
            stream_identifier: self.stream,
            expected_stream_position: expected,
        }
    }
}

/// A failure without facts of its own: a wrong request, or something that the client cannot help.
fn failed_status(code: Code, message: String, failed: &Status) -> status::Status {
    let exception = failed.metadata().get("exception");
    if exception.is_some_and(|name| name == "maximum-append-size-exceeded") {
        let most = failed.metadata().get("maximum-append-size");
        let most = most.and_then(|most| most.to_str().ok()?.parse().ok());
        let max_append_size = most.unwrap_or(APPEND_BYTES_MAX as u32);
        let detail = MaximumAppendSizeExceeded { max_append_size };
        return outcome(code, &message, "MaximumAppendSizeExceeded", &detail);
    }
    if exception.is_some_and(|name| name == failure::ACCESS_DENIED) {
        return outcome(code, &message, "AccessDenied", &AccessDenied {});
    }
    if code == Code::InvalidArgument {
        return outcome(code, &message.clone(), "BadRequest", &BadRequest { message });
    }
    outcome(code, &message, "Unknown", &Unknown {})
}

fn outcome(code: Code, message: &str, name: &str, facts: &impl Message) -> status::Status {
    let details = Some(detail(&format!("event_store.client.{name}"), facts));
    status::Status { code: code as i32, message: message.to_string(), details }
}

fn wrong_expected(expected: Expected, current: Option<u64>) -> WrongExpectedVersion {
    use wrong_expected_version::{Current, Expected as Told};
    let told = match expected {
        Expected::Exact(revision) => Told::StreamPosition(revision),
        Expected::Any => Told::Any(()),
        Expected::Exists => Told::StreamExists(()),
        // The calls of this protocol expect neither of the latter.
        Expected::NoStream | Expected::Deleted | Expected::Tombstoned => Told::NoStream(()),
    };
    let current = current.map_or(Current::NoStream(()), Current::StreamRevision);
    WrongExpectedVersion { current: Some(current), expected: Some(told) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_of(answer: BatchAppendResp) -> status::Status {
        match answer.result {
            Some(Outcome::Error(status)) => status,
            other => panic!("{other:?}"),
        }
    }

    fn echo() -> Echo {
        Echo::new(Uuid::default(), &Options::default())
    }

    #[test]
    fn every_failure_has_its_code_and_one_detail() {
        let stream = || "a".to_string();
        let wrong =
            Error::WrongExpected { stream: stream(), expected: Expected::Any, current: Some(3) };
        let large = Error::TooLarge { event: None, bytes: 2, most: 1 };
        let cases = [
            (wrong, 6, "event_store.client.WrongExpectedVersion"),
            (Error::Deleted { stream: stream() }, 5, "event_store.client.StreamDeleted"),
            (large, 3, "event_store.client.MaximumAppendSizeExceeded"),
            (Error::Invalid(stream()), 3, "event_store.client.BadRequest"),
            (Error::Store(umbel::Error::Closed), 14, "event_store.client.Unknown"),
        ];
        for (error, code, name) in cases {
            let status = error_of(echo().outcome(Err(error)));
            let detail = status.details.unwrap();
            assert_eq!(status.code, code, "{name}");
            assert!(detail.type_url.ends_with(&format!("/{name}")), "{detail:?}");
        }
        let late = error_of(echo().timed_out());
        assert_eq!(late.code, 4);
        let large = error_of(echo().refused(&failure::append_too_large(1, stream())));
        let name = large.details.unwrap().type_url;
        assert!(name.ends_with("MaximumAppendSizeExceeded"), "{name}");
    }

    /// The story: of an event that was too large a client was told the limit of all together.
    #[test]
    fn the_limit_that_is_told_is_the_one_that_was_met() {
        let id = Some(umbel_events::EventId([1; 16]));
        for (event, most) in [(id, 8 << 20), (None, 16 << 20)] {
            let error = Error::TooLarge { event, bytes: 17 << 20, most };
            let status = error_of(echo().outcome(Err(error)));
            let detail = status.details.unwrap().value;
            let detail = MaximumAppendSizeExceeded::decode(&detail[..]).unwrap();
            assert_eq!(u64::from(detail.max_append_size), most);
        }
    }

    #[test]
    fn an_answer_repeats_what_was_asked() {
        let options = Options {
            stream_identifier: Some(convert::identifier("a")),
            expected_stream_position: Some(ExpectedRevision::Revision(4)),
            deadline_option: None,
        };
        let done = Appended { first: Some(5), last: Some(5), position: Some(9), was_there: false };
        let answer = Echo::new(Uuid::default(), &options).outcome(Ok(done));
        assert_eq!(answer.stream_identifier, options.stream_identifier);
        let expected = batch_append_resp::Expected::StreamPosition(4);
        assert_eq!(answer.expected_stream_position, Some(expected));
        assert!(matches!(answer.result, Some(Outcome::Success(_))));
    }
}
