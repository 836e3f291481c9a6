//! From what clients mean to messages, and from answers to what they say. An answer that says
//! things which cannot go together is nonsense, which no crash excuses.

use prost::Message;
use tonic::Status;
use umbel_events::Expected;
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

use super::known::{Batch, Id, Told};

/// What an append was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Done: revision and position of the last event.
    Done(u64, u64),
    /// The stream is at something else.
    Wrong(Option<u64>),
    /// The stream was tombstoned.
    Tombstoned,
    /// The call failed.
    Failed(String),
    /// It makes no sense.
    Nonsense(String),
}

/// What is expected as a message.
pub fn expected(expected: Expected) -> ExpectedRevision {
    match expected {
        Expected::Any => ExpectedRevision::Any(()),
        // The message has no word for the latter two, and no batch expects them.
        Expected::NoStream | Expected::Deleted | Expected::Tombstoned => {
            ExpectedRevision::NoStream(())
        }
        Expected::Exists => ExpectedRevision::StreamExists(()),
        Expected::Exact(revision) => ExpectedRevision::Revision(revision),
    }
}

fn identifier(id: Id) -> Uuid {
    Uuid { value: Some(uuid::Value::Structured(id.into())) }
}

fn id_of(uuid: Option<&Uuid>) -> Option<Id> {
    match uuid?.value.as_ref()? {
        uuid::Value::Structured(halves) => Some((*halves).into()),
        uuid::Value::String(_) => None,
    }
}

/// The events of a batch as messages. Their data says whose it is.
pub fn events(batch: &Batch) -> Vec<ProposedMessage> {
    let metadata = || {
        [("type", "Happened"), ("content-type", "application/json")]
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .into()
    };
    let event = |id: &Id| ProposedMessage {
        id: Some(identifier(*id)),
        metadata: metadata(),
        custom_metadata: Vec::new().into(),
        data: format!("{id:<width$}", width = batch.bytes).into_bytes().into(),
    };
    batch.ids.iter().map(event).collect()
}

/// A batch with this number in parts: one for each event where it has several.
pub fn batch_parts(number: u64, batch: &Batch) -> Vec<BatchAppendReq> {
    let options = batch_append_req::Options {
        stream_identifier: Some(batch.stream.as_str().into()),
        expected_stream_position: Some(expected(batch.expected)),
        deadline_option: None,
    };
    let mut parts: Vec<_> = events(batch)
        .into_iter()
        .map(|event| BatchAppendReq {
            correlation_id: Some(identifier(Id::from(number))),
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

/// The number of the batch that an answer is of.
pub fn correlation(answer: &BatchAppendResp) -> Option<u64> {
    id_of(answer.correlation_id.as_ref()).map(|id| id as u64)
}

/// The name of a failure.
pub fn exception(status: &Status) -> Option<&str> {
    status.metadata().get("exception")?.to_str().ok()
}

fn success(success: &Success) -> Answer {
    match (success.current_revision_option, success.position_option) {
        (
            Some(CurrentRevision::CurrentRevision(last)),
            Some(PositionOption::Position(position)),
        ) if position.commit_position == position.prepare_position => {
            Answer::Done(last, position.commit_position)
        }
        _ => Answer::Nonsense(format!("an append of events was answered with {success:?}")),
    }
}

/// What the answer to `Append` says.
pub fn of_append(batch: &Batch, answer: Result<AppendResp, Status>) -> Answer {
    let wrong = match answer {
        Ok(AppendResp { result: Some(append_resp::Outcome::Success(done)) }) => {
            return success(&done);
        }
        Ok(AppendResp { result: Some(append_resp::Outcome::WrongExpectedVersion(wrong)) }) => wrong,
        Ok(other) => return Answer::Nonsense(format!("{other:?}")),
        Err(status) if exception(&status) == Some("stream-deleted") => return Answer::Tombstoned,
        Err(status) => return Answer::Failed(format!("{status:?}")),
    };
    let told = match batch.expected {
        Expected::Any => append_resp::Expected::Any(()),
        Expected::NoStream | Expected::Deleted | Expected::Tombstoned => {
            append_resp::Expected::NoStream(())
        }
        Expected::Exists => append_resp::Expected::StreamExists(()),
        Expected::Exact(revision) => append_resp::Expected::Revision(revision),
    };
    match (wrong.current, wrong.old_current, wrong.expected) {
        (Some(Current::Revision(new)), Some(OldCurrent::Revision(old)), Some(of))
            if (new, of) == (old, told) =>
        {
            Answer::Wrong(Some(new))
        }
        (Some(Current::NoStream(())), Some(OldCurrent::NoStream(())), Some(of)) if of == told => {
            Answer::Wrong(None)
        }
        _ => Answer::Nonsense(format!("{batch:?} was answered with {wrong:?}")),
    }
}

/// What the answer to a batch says.
pub fn of_batch(batch: &Batch, answer: BatchAppendResp) -> Answer {
    use batch_append_resp::Expected as Told;
    let told = match batch.expected {
        Expected::Any => Told::Any(()),
        Expected::NoStream | Expected::Deleted | Expected::Tombstoned => Told::NoStream(()),
        Expected::Exists => Told::StreamExists(()),
        Expected::Exact(revision) => Told::StreamPosition(revision),
    };
    if answer.stream_identifier != Some(batch.stream.as_str().into())
        || answer.expected_stream_position != Some(told)
    {
        return Answer::Nonsense(format!("{batch:?} was answered with {answer:?}"));
    }
    match answer.result {
        Some(Outcome::Success(done)) => success(&done),
        Some(Outcome::Error(error)) => of_failure(batch, &error),
        None => Answer::Nonsense("an answer to a batch says nothing".to_string()),
    }
}

fn of_failure(batch: &Batch, error: &status::Status) -> Answer {
    use wrong_expected_version::{Current, Expected as Told};
    let detail = error.details.clone().unwrap_or_default();
    let kind = detail.type_url.rsplit('.').next().unwrap_or_default();
    let nonsense = || Answer::Nonsense(format!("{batch:?} was answered with {error:?}"));
    match (error.code, kind) {
        (6, "WrongExpectedVersion") => {
            let told = match batch.expected {
                Expected::Any => Told::Any(()),
                Expected::NoStream | Expected::Deleted | Expected::Tombstoned => Told::NoStream(()),
                Expected::Exists => Told::StreamExists(()),
                Expected::Exact(revision) => Told::StreamPosition(revision),
            };
            match WrongExpectedVersion::decode(detail.value.as_slice()) {
                Ok(wrong) if wrong.expected == Some(told) => match wrong.current {
                    Some(Current::StreamRevision(current)) => Answer::Wrong(Some(current)),
                    Some(Current::NoStream(())) => Answer::Wrong(None),
                    None => nonsense(),
                },
                _ => nonsense(),
            }
        }
        (5, "StreamDeleted") => match shared::StreamDeleted::decode(detail.value.as_slice()) {
            Ok(deleted) if deleted.stream_identifier == Some(batch.stream.as_str().into()) => {
                Answer::Tombstoned
            }
            _ => nonsense(),
        },
        (5 | 6, _) => nonsense(),
        _ => Answer::Failed(format!("{error:?}")),
    }
}

/// An event as it was told; an error where it contradicts itself.
pub fn told(read: ReadEvent) -> Result<Told, String> {
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
    let is_ours = !stream.starts_with('$') && event.stream_revision != super::known::LAST_OF_ALL;
    if is_ours && event.data.trim_ascii_end() != id.to_string().as_bytes() {
        return Err(format!("the data of {id:x} in {stream} is that of another event"));
    }
    Ok(Told { stream, revision: event.stream_revision, position, id })
}
