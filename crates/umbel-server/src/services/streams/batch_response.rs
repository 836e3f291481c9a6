//! Responses to the batches of a BatchAppend call.

use std::sync::Mutex;
use std::time::Duration;
use umbel_base::fail_point;
use umbel_base::ignore_poison::IgnorePoison;

use prost::Message;
use tokio::time::Instant;
use tonic::{Code, Status};
use umbel_env::ProcessLocal;
use umbel_events::limits::APPEND_BYTES_MAX;
use umbel_events::{Error, ExpectedVersion, WriteResult};
use umbel_proto::shared::{
    BadRequest, MaximumAppendSizeExceeded, StreamDeleted, StreamIdentifier, Uuid,
    WrongExpectedVersion, wrong_expected_version,
};
use umbel_proto::status::{self, ErrorInfo, detail};
use umbel_proto::streams::BatchAppendResp;
use umbel_proto::streams::batch_append_req::{self, Options};
use umbel_proto::streams::batch_append_resp::{self, Outcome};

use crate::protocol::{grpc_status, proto_convert};
use crate::services::streams::append;
use crate::telemetry::append_metrics::AppendTimer;

/// Minimum interval of warnings about failed batches.
const WARNING_INTERVAL: Duration = Duration::from_secs(1);

/// Fields of a request that its response repeats.
pub struct BatchResponseBuilder {
    id: Uuid,
    stream: Option<StreamIdentifier>,
    expected: Option<batch_append_req::Expected>,
    timer: AppendTimer,
}

/// Time of the last warning.
static LAST_WARNING: ProcessLocal<Mutex<Option<Instant>>> = ProcessLocal::new();

/// Logs, at most once a second, a batch failure that the client did not cause. The access log does
/// not contain it, because the call itself does not fail.
fn warn_failure(status: &Status) {
    let is_clients = matches!(status.code(), Code::InvalidArgument | Code::PermissionDenied);
    let mut last_warning = LAST_WARNING.get().lock().ignore_poison();
    if is_clients
        || last_warning.is_some_and(|last_warning| last_warning.elapsed() < WARNING_INTERVAL)
    {
        return;
    }
    *last_warning = Some(Instant::now());
    tracing::warn!(code = ?status.code(), reason = status.message(), "batches are not written");
}

impl BatchResponseBuilder {
    /// Keeps the fields of a batch that its response repeats. `timer` ends with the response.
    pub fn new(id: Uuid, options: &Options, timer: AppendTimer) -> BatchResponseBuilder {
        let stream = options.stream_identifier.clone();
        BatchResponseBuilder { id, stream, expected: options.expected_stream_position, timer }
    }

    /// Builds the response from the store's result.
    pub fn complete(self, result: Result<WriteResult, Error>) -> BatchAppendResp {
        let outcome = match result {
            Ok(done) => Outcome::Success(append::success_response(&done)),
            Err(error) => Outcome::Error(self.error_status(&error)),
        };
        self.respond(outcome)
    }

    /// Builds the response to an invalid batch.
    pub fn reject(self, refusal: &Status) -> BatchAppendResp {
        let error = rejection_status(refusal.code(), refusal.message().to_string(), refusal);
        self.respond(Outcome::Error(error))
    }

    /// Builds the response to a batch whose deadline passed first.
    pub fn time_out(self) -> BatchAppendResp {
        let message = "Timeout: the deadline passed before the append completed; the server may \
             still complete the append";
        let error = detailed_status(Code::DeadlineExceeded, message, "Timeout", &());
        self.respond(Outcome::Error(error))
    }

    /// Builds the response to a batch whose last part did not arrive in time.
    pub fn expire(self) -> BatchAppendResp {
        let message = "Timeout: the last part of the batch did not arrive in time; the batch was \
             not written";
        let error = detailed_status(Code::DeadlineExceeded, message, "Timeout", &());
        self.respond(Outcome::Error(error))
    }

    fn error_status(&self, error: &Error) -> status::Status {
        match error {
            Error::WrongExpectedVersion { stream, expected, current, present } => {
                let number = grpc_status::expected_number(*expected);
                let actual = grpc_status::current_number(*current);
                let text = grpc_status::wrong_expected_text(
                    ("Append", present.as_ref()),
                    stream,
                    &number,
                    &actual,
                );
                fail_point!("conflict-omit-detail", |_| {
                    detailed_status(Code::AlreadyExists, &text, "Unknown", &())
                });
                let detail = wrong_expected_version(*expected, *current);
                detailed_status(Code::AlreadyExists, &text, "WrongExpectedVersion", &detail)
            }
            Error::StreamDeleted { stream } => {
                let text = grpc_status::stream_deleted_text(stream);
                let stream_identifier = Some(proto_convert::stream_identifier(stream));
                let detail = StreamDeleted { stream_identifier };
                detailed_status(Code::NotFound, &text, "StreamDeleted", &detail)
            }
            Error::TooLarge { max_bytes: limit, .. }
            | Error::UndeleteTooLarge { max_bytes: limit, .. } => {
                // The limit that was exceeded: of one event or of all together.
                let max_append_size = u32::try_from(*limit).unwrap_or(u32::MAX);
                let detail = MaximumAppendSizeExceeded { max_append_size };
                let text = error.to_string();
                detailed_status(Code::InvalidArgument, &text, "MaximumAppendSizeExceeded", &detail)
            }
            error => {
                let status = grpc_status::status(error);
                warn_failure(&status);
                rejection_status(status.code(), status.message().to_string(), &status)
            }
        }
    }

    fn respond(self, outcome: Outcome) -> BatchAppendResp {
        use batch_append_req::Expected as Requested;
        use batch_append_resp::Expected;
        let expected = self.expected.map(|expected| match expected {
            Requested::StreamPosition(revision) => Expected::StreamPosition(revision),
            Requested::NoStream(()) => Expected::NoStream(()),
            Requested::Any(()) => Expected::Any(()),
            Requested::StreamExists(()) => Expected::StreamExists(()),
        });
        self.timer.end(match &outcome {
            Outcome::Success(_) => Code::Ok,
            Outcome::Error(status) => Code::from_i32(status.code),
        });
        BatchAppendResp {
            correlation_id: Some(self.id),
            result: Some(outcome),
            stream_identifier: self.stream,
            expected_stream_position: expected,
        }
    }
}

/// Domain of the failures that no detail of the protocol describes.
const DOMAIN: &str = "umbel";

/// Returns the status of an invalid request, or of a failure that the client cannot avoid.
///
/// For the detail `Unknown`, clients (Python, Node) drop the text and raise an error without a
/// reason. They show the text of a detail that they do not know.
fn rejection_status(code: Code, message: String, failed: &Status) -> status::Status {
    let exception = failed.metadata().get("exception");
    if exception.is_some_and(|name| name == "maximum-append-size-exceeded") {
        let limit = failed.metadata().get("maximum-append-size");
        let limit = limit.and_then(|limit| limit.to_str().ok()?.parse().ok());
        let max_append_size = limit.unwrap_or(APPEND_BYTES_MAX as u32);
        let detail = MaximumAppendSizeExceeded { max_append_size };
        return detailed_status(code, &message, "MaximumAppendSizeExceeded", &detail);
    }
    if exception.is_some_and(|name| name == grpc_status::ACCESS_DENIED) {
        return detailed_status(code, &message, "AccessDenied", &());
    }
    if code == Code::InvalidArgument {
        return detailed_status(code, &message.clone(), "BadRequest", &BadRequest { message });
    }
    let metadata = [("message".to_string(), message.clone())].into();
    let info = ErrorInfo { reason: format!("{code:?}"), domain: DOMAIN.to_string(), metadata };
    let details = vec![detail("google.rpc.ErrorInfo", &info)];
    status::Status { code: code as i32, message, details }
}

fn detailed_status(code: Code, message: &str, name: &str, facts: &impl Message) -> status::Status {
    let details = vec![detail(&format!("event_store.client.{name}"), facts)];
    status::Status { code: code as i32, message: message.to_string(), details }
}

fn wrong_expected_version(expected: ExpectedVersion, current: Option<u64>) -> WrongExpectedVersion {
    use wrong_expected_version::{Current, Expected as ExpectedOption};
    let expected_option = match expected {
        ExpectedVersion::Exact(revision) => ExpectedOption::ExpectedStreamPosition(revision),
        ExpectedVersion::Any => ExpectedOption::ExpectedAny(()),
        ExpectedVersion::Exists => ExpectedOption::ExpectedStreamExists(()),
        // Calls of this protocol never expect the latter two.
        ExpectedVersion::NoStream | ExpectedVersion::Deleted | ExpectedVersion::Tombstoned => {
            ExpectedOption::ExpectedNoStream(())
        }
    };
    let current = current.map_or(Current::CurrentNoStream(()), Current::CurrentStreamRevision);
    WrongExpectedVersion {
        current_stream_revision_option: Some(current),
        expected_stream_position_option: Some(expected_option),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use umbel_env::Env;

    use super::*;
    use crate::telemetry::append_metrics::AppendMetrics;

    fn error_of(answer: BatchAppendResp) -> status::Status {
        match answer.result {
            Some(Outcome::Error(status)) => status,
            other => panic!("{other:?}"),
        }
    }

    fn builder(options: &Options) -> BatchResponseBuilder {
        let timer = Arc::new(AppendMetrics::default()).begin_batch(&Env::system().clock);
        BatchResponseBuilder::new(Uuid::default(), options, timer)
    }

    fn echo() -> BatchResponseBuilder {
        builder(&Options::default())
    }

    #[test]
    fn every_failure_has_its_code_and_one_detail() {
        let stream = || "a".to_string();
        let wrong = Error::WrongExpectedVersion {
            stream: stream(),
            expected: ExpectedVersion::Any,
            current: Some(3),
            present: None,
        };
        let large = Error::TooLarge { event: None, bytes: 2, max_bytes: 1 };
        let recreated = Error::UndeleteTooLarge { stream: stream(), bytes: 2, max_bytes: 1 };
        let full = Error::LogQuotaExceeded {
            directory: "x".into(),
            bytes: 1,
            log_bytes: 9,
            quota_bytes: 9,
        };
        let cases = [
            (recreated, 3, "event_store.client.MaximumAppendSizeExceeded"),
            (wrong, 6, "event_store.client.WrongExpectedVersion"),
            (Error::StreamDeleted { stream: stream() }, 5, "event_store.client.StreamDeleted"),
            (large, 3, "event_store.client.MaximumAppendSizeExceeded"),
            (Error::Invalid(stream()), 3, "event_store.client.BadRequest"),
            (Error::Store(umbel::Error::Closed), 14, "google.rpc.ErrorInfo"),
            (full, 8, "google.rpc.ErrorInfo"),
            (out_of(28), 8, "google.rpc.ErrorInfo"),
            (out_of(24), 8, "google.rpc.ErrorInfo"),
        ];
        for (error, code, name) in cases {
            let status = error_of(echo().complete(Err(error)));
            let [detail] = &status.details[..] else { panic!("{status:?} has one detail") };
            assert_eq!(status.code, code, "{name}");
            assert!(detail.type_url.ends_with(&format!("/{name}")), "{detail:?}");
        }
        let late = error_of(echo().time_out());
        assert_eq!(late.code, 4);
        let large = error_of(echo().reject(&grpc_status::append_too_large(1, stream())));
        let name = &large.details[0].type_url;
        assert!(name.ends_with("MaximumAppendSizeExceeded"), "{name}");
    }

    /// An error of the system that a file of the store meets.
    fn out_of(errno: i32) -> Error {
        let source = std::io::Error::from_raw_os_error(errno);
        Error::Store(umbel::Error::io("write", std::path::Path::new("/db/1.chunk"), source))
    }

    /// Story: on a full disk and without a file descriptor, a client in Python raised
    /// `UnknownError('')`, because the detail had no text and the client drops that of the status.
    #[test]
    fn failure_of_the_server_names_its_reason_in_status_and_detail() {
        for (errno, reason) in [(28, "No space left on device"), (24, "raise `ulimit -n`")] {
            let status = error_of(echo().complete(Err(out_of(errno))));
            assert!(status.message.contains(reason), "{status:?}");
            let info = ErrorInfo::decode(&status.details[0].value[..]).unwrap();
            assert_eq!(
                (&*info.reason, &info.metadata["message"]),
                ("ResourceExhausted", &status.message)
            );
        }
    }

    /// Story: for a single event over the limit, the response reported the limit of all events
    /// together.
    #[test]
    fn response_reports_the_limit_that_was_exceeded() {
        let id = Some(umbel_events::EventId([1; 16]));
        for (event, limit) in [(id, 8 << 20), (None, 16 << 20)] {
            let error = Error::TooLarge { event, bytes: 17 << 20, max_bytes: limit };
            let status = error_of(echo().complete(Err(error)));
            let detail = MaximumAppendSizeExceeded::decode(&status.details[0].value[..]).unwrap();
            assert_eq!(u64::from(detail.max_append_size), limit);
        }
    }

    #[test]
    fn response_repeats_the_batch_options() {
        let options = Options {
            stream_identifier: Some(proto_convert::stream_identifier("a")),
            expected_stream_position: Some(batch_append_req::Expected::StreamPosition(4)),
            deadline_option: None,
        };
        let done =
            WriteResult { first: Some(5), last: Some(5), position: Some(9), is_retry: false };
        let answer = builder(&options).complete(Ok(done));
        assert_eq!(answer.stream_identifier, options.stream_identifier);
        let expected = batch_append_resp::Expected::StreamPosition(4);
        assert_eq!(answer.expected_stream_position, Some(expected));
        assert!(matches!(answer.result, Some(Outcome::Success(_))));
    }
}
