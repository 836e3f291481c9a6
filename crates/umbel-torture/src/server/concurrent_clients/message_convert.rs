//! Converts requests to messages and messages to answers. An inconsistent answer counts as nonsense
//! and is always a violation, even at a crash.

use prost::Message;
use tonic::Status;
use umbel_events::ExpectedVersion;
use umbel_proto::shared::{self, Uuid, WrongExpectedVersion, uuid, wrong_expected_version};
use umbel_proto::status;
use umbel_proto::streams::append_req::ProposedMessage;
use umbel_proto::streams::append_resp::{
    self, Current, CurrentRevision, OldCurrent, PositionOption, Success,
};
use umbel_proto::streams::batch_append_req;
use umbel_proto::streams::batch_append_resp::{self, Outcome};
use umbel_proto::streams::read_resp::{EventPosition, ReadEvent};
use umbel_proto::streams::{AppendResp, BatchAppendReq, BatchAppendResp, ExpectedRevision};

use crate::server::concurrent_clients::client_oracle::{ClientBatch, ClientEventId, ReceivedEvent};

/// Answer to an append.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AppendAnswer {
    /// The append succeeded; the values are revision and position of its last event.
    Done(u64, u64),
    /// The stream is at another revision than expected.
    Wrong(Option<u64>),
    /// The stream was tombstoned.
    Tombstoned,
    /// The call failed.
    Failed(String),
    /// The answer is inconsistent.
    Nonsense(String),
}

/// Converts an expected revision to its message.
pub fn expected(expected: ExpectedVersion) -> ExpectedRevision {
    match expected {
        ExpectedVersion::Any => ExpectedRevision::Any(()),
        // The message cannot express the latter two, and no batch expects them.
        ExpectedVersion::NoStream | ExpectedVersion::Deleted | ExpectedVersion::Tombstoned => {
            ExpectedRevision::NoStream(())
        }
        ExpectedVersion::Exists => ExpectedRevision::StreamExists(()),
        ExpectedVersion::Exact(revision) => ExpectedRevision::Revision(revision),
    }
}

fn identifier(id: ClientEventId) -> Uuid {
    Uuid { value: Some(uuid::Value::Structured(id.into())) }
}

fn id_of(uuid: Option<&Uuid>) -> Option<ClientEventId> {
    match uuid?.value.as_ref()? {
        uuid::Value::Structured(halves) => Some((*halves).into()),
        uuid::Value::String(_) => None,
    }
}

/// Converts the events of a batch to messages. The data of each event names its stream.
pub fn events(batch: &ClientBatch) -> Vec<ProposedMessage> {
    let metadata = || {
        [("type", "Happened"), ("content-type", "application/json")]
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .into()
    };
    let event = |id: &ClientEventId| ProposedMessage {
        id: Some(identifier(*id)),
        metadata: metadata(),
        custom_metadata: Vec::new().into(),
        data: format!("{id:<width$}", width = batch.bytes).into_bytes().into(),
    };
    batch.ids.iter().map(event).collect()
}

/// Splits a batch with this number into parts, one for each event.
pub fn batch_parts(number: u64, batch: &ClientBatch) -> Vec<BatchAppendReq> {
    let options = batch_append_req::Options {
        stream_identifier: Some(batch.stream.as_str().into()),
        expected_stream_position: Some(expected(batch.expected).into()),
        deadline_option: None,
    };
    let mut parts: Vec<_> = events(batch)
        .into_iter()
        .map(|event| BatchAppendReq {
            correlation_id: Some(identifier(ClientEventId::from(number))),
            options: None,
            proposed_messages: vec![event],
            is_final: false,
        })
        .collect();
    if let Some(first) = parts.first_mut() {
        first.options = Some(options);
    }
    if let Some(last) = parts.last_mut() {
        last.is_final = true;
    }
    parts
}

/// Returns the number of an answer's batch.
pub fn correlation(answer: &BatchAppendResp) -> Option<u64> {
    id_of(answer.correlation_id.as_ref()).map(|id| id as u64)
}

/// Returns the exception name of an error.
pub fn exception(status: &Status) -> Option<&str> {
    status.metadata().get("exception")?.to_str().ok()
}

fn success(success: &Success) -> AppendAnswer {
    match (success.current_revision_option, success.position_option) {
        (
            Some(CurrentRevision::CurrentRevision(last)),
            Some(PositionOption::Position(position)),
        ) if position.commit_position == position.prepare_position => {
            AppendAnswer::Done(last, position.commit_position)
        }
        _ => AppendAnswer::Nonsense(format!("an append of events was answered with {success:?}")),
    }
}

/// Converts the answer to `Append`.
pub fn append_answer(batch: &ClientBatch, answer: Result<AppendResp, Status>) -> AppendAnswer {
    let wrong = match answer {
        Ok(AppendResp { result: Some(append_resp::Outcome::Success(done)) }) => {
            return success(&done);
        }
        Ok(AppendResp { result: Some(append_resp::Outcome::WrongExpectedVersion(wrong)) }) => wrong,
        Ok(other) => return AppendAnswer::Nonsense(format!("{other:?}")),
        Err(status) if exception(&status) == Some("stream-deleted") => {
            return AppendAnswer::Tombstoned;
        }
        Err(status) => return AppendAnswer::Failed(format!("{status:?}")),
    };
    let echoed = match batch.expected {
        ExpectedVersion::Any => append_resp::Expected::ExpectedAny(()),
        ExpectedVersion::NoStream | ExpectedVersion::Deleted | ExpectedVersion::Tombstoned => {
            append_resp::Expected::ExpectedNoStream(())
        }
        ExpectedVersion::Exists => append_resp::Expected::ExpectedStreamExists(()),
        ExpectedVersion::Exact(revision) => append_resp::Expected::ExpectedRevision(revision),
    };
    let (current, old_current) =
        (wrong.current_revision_option, wrong.current_revision_option_20_6_0);
    match (current, old_current, wrong.expected_revision_option) {
        (
            Some(Current::CurrentRevision(new)),
            Some(OldCurrent::CurrentRevision2060(old)),
            Some(of),
        ) if (new, of) == (old, echoed) => AppendAnswer::Wrong(Some(new)),
        (Some(Current::CurrentNoStream(())), Some(OldCurrent::NoStream2060(())), Some(of))
            if of == echoed =>
        {
            AppendAnswer::Wrong(None)
        }
        _ => AppendAnswer::Nonsense(format!("{batch:?} was answered with {wrong:?}")),
    }
}

/// Converts the answer to a batch.
pub fn batch_answer(batch: &ClientBatch, answer: BatchAppendResp) -> AppendAnswer {
    use batch_append_resp::Expected;
    let echoed = match batch.expected {
        ExpectedVersion::Any => Expected::Any(()),
        ExpectedVersion::NoStream | ExpectedVersion::Deleted | ExpectedVersion::Tombstoned => {
            Expected::NoStream(())
        }
        ExpectedVersion::Exists => Expected::StreamExists(()),
        ExpectedVersion::Exact(revision) => Expected::StreamPosition(revision),
    };
    if answer.stream_identifier != Some(batch.stream.as_str().into())
        || answer.expected_stream_position != Some(echoed)
    {
        return AppendAnswer::Nonsense(format!("{batch:?} was answered with {answer:?}"));
    }
    match answer.result {
        Some(Outcome::Success(done)) => success(&done),
        Some(Outcome::Error(error)) => failure_answer(batch, &error),
        None => AppendAnswer::Nonsense("an answer to a batch says nothing".to_string()),
    }
}

fn failure_answer(batch: &ClientBatch, error: &status::Status) -> AppendAnswer {
    use wrong_expected_version::{Current, Expected};
    let detail = error.details.first().cloned().unwrap_or_default();
    let kind = detail.type_url.rsplit('.').next().unwrap_or_default();
    let nonsense = || AppendAnswer::Nonsense(format!("{batch:?} was answered with {error:?}"));
    match (error.code, kind) {
        (6, "WrongExpectedVersion") => {
            let echoed = match batch.expected {
                ExpectedVersion::Any => Expected::ExpectedAny(()),
                ExpectedVersion::NoStream
                | ExpectedVersion::Deleted
                | ExpectedVersion::Tombstoned => Expected::ExpectedNoStream(()),
                ExpectedVersion::Exists => Expected::ExpectedStreamExists(()),
                ExpectedVersion::Exact(revision) => Expected::ExpectedStreamPosition(revision),
            };
            let wrong = WrongExpectedVersion::decode(detail.value.as_slice()).ok();
            let is_echoed = |wrong: &WrongExpectedVersion| {
                wrong.expected_stream_position_option == Some(echoed)
            };
            match wrong.filter(is_echoed).and_then(|wrong| wrong.current_stream_revision_option) {
                Some(Current::CurrentStreamRevision(current)) => AppendAnswer::Wrong(Some(current)),
                Some(Current::CurrentNoStream(())) => AppendAnswer::Wrong(None),
                None => nonsense(),
            }
        }
        (5, "StreamDeleted") => match shared::StreamDeleted::decode(detail.value.as_slice()) {
            Ok(deleted) if deleted.stream_identifier == Some(batch.stream.as_str().into()) => {
                AppendAnswer::Tombstoned
            }
            _ => nonsense(),
        },
        (5 | 6, _) => nonsense(),
        _ => AppendAnswer::Failed(format!("{error:?}")),
    }
}

/// Converts a received event; fails if it is inconsistent.
pub fn received_event(read: ReadEvent) -> Result<ReceivedEvent, String> {
    let Some(event) = read.event else { return Err("an answer has no event".to_string()) };
    let position = event.commit_position;
    let name = event.stream_identifier.map(|name| String::from_utf8(name.stream_name.into()));
    let (Some(Ok(stream)), Some(id)) = (name, id_of(event.id.as_ref())) else {
        return Err("an event has no stream or no id".to_string());
    };
    if event.prepare_position != position
        || read.position != Some(EventPosition::CommitPosition(position))
    {
        return Err(format!("{id:x} is at position {position} and at another one"));
    }
    let is_ours = !stream.starts_with('$')
        && event.stream_revision != crate::server::concurrent_clients::client_oracle::LAST_OF_ALL;
    if is_ours && event.data.trim_ascii_end() != id.to_string().as_bytes() {
        return Err(format!("the data of {id:x} in {stream} is that of another event"));
    }
    Ok(ReceivedEvent { stream, revision: event.stream_revision, position, id })
}
