//! From messages to the words of the store and back.

use std::collections::BTreeMap;

use prost::bytes::Bytes;
use prost_types::Timestamp;
use tonic::Status;
use umbel_events::{EventId, Expected, NewEvent, RecordedEvent, ResolvedEvent};
use umbel_proto::shared::{AllStreamPosition, StreamIdentifier, Uuid, uuid};
use umbel_proto::streams::append_req::ProposedMessage;
use umbel_proto::streams::read_req::UuidForm;
use umbel_proto::streams::{ExpectedRevision, ReadResp, read_resp};

use crate::failure;

/// The keys of an event's metadata.
const TYPE: &str = "type";
const CONTENT_TYPE: &str = "content-type";
const CREATED: &str = "created";
/// The content types: every other is taken for the second.
const JSON: &str = "application/json";
const BINARY: &str = "application/octet-stream";

/// Microseconds of the clock in one second.
const MICROS: u64 = 1_000_000;

/// An event to be appended, in memory of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proposed {
    id: EventId,
    kind: String,
    is_json: bool,
    data: Bytes,
    metadata: Bytes,
}

impl Proposed {
    /// Reads a message; an error where it lacks what an event needs.
    pub fn read(mut message: ProposedMessage) -> Result<Proposed, Status> {
        let id = event_id(message.id.as_ref())?;
        let (Some(kind), Some(content)) =
            (message.metadata.remove(TYPE), message.metadata.get(CONTENT_TYPE))
        else {
            return Err(failure::metadata_missing());
        };
        let is_json = content == JSON;
        Ok(Proposed { id, kind, is_json, data: message.data, metadata: message.custom_metadata })
    }

    /// The bytes it holds.
    pub fn bytes(&self) -> usize {
        self.kind.len() + self.data.len() + self.metadata.len()
    }

    /// The event as the store takes it.
    pub fn event(&self) -> NewEvent<'_> {
        NewEvent {
            id: self.id,
            kind: &self.kind,
            is_json: self.is_json,
            data: &self.data,
            metadata: &self.metadata,
        }
    }
}

/// The name of a stream; an error where there is none or it is no text.
pub fn stream_name(identifier: Option<StreamIdentifier>) -> Result<String, Status> {
    let Some(identifier) = identifier else {
        return Err(Status::invalid_argument("the request names no stream"));
    };
    match String::from_utf8(identifier.stream_name.into()) {
        Ok(name) if !name.is_empty() => Ok(name),
        Ok(_) => Err(Status::invalid_argument("the stream's name is empty")),
        Err(_) => Err(Status::invalid_argument("the stream's name is not UTF-8")),
    }
}

/// A stream's name as a message.
pub fn identifier(name: &str) -> StreamIdentifier {
    name.into()
}

/// What a write expects; an error where the request does not say.
pub fn expected(option: Option<ExpectedRevision>) -> Result<Expected, Status> {
    match option {
        Some(ExpectedRevision::Revision(revision)) => Ok(Expected::Exact(revision)),
        Some(ExpectedRevision::NoStream(())) => Ok(Expected::NoStream),
        Some(ExpectedRevision::Any(())) => Ok(Expected::Any),
        Some(ExpectedRevision::StreamExists(())) => Ok(Expected::Exists),
        None => Err(Status::invalid_argument(
            "the request says nothing of the stream's revision; say which is expected, or any",
        )),
    }
}

/// An event's identifier in either form.
fn event_id(id: Option<&Uuid>) -> Result<EventId, Status> {
    match id.and_then(|id| id.value.as_ref()) {
        Some(uuid::Value::String(text)) => text
            .parse()
            .map_err(|error: umbel_events::Error| Status::invalid_argument(error.to_string())),
        Some(uuid::Value::Structured(halves)) => Ok(EventId(u128::from(*halves).to_be_bytes())),
        None => Err(Status::invalid_argument("an event has no id; give it a UUID")),
    }
}

/// The identifier of a batch; an error where there is none or it is no UUID.
pub fn correlation_id(id: Option<Uuid>) -> Result<Uuid, Status> {
    let wrong = |what| Status::invalid_argument(format!("a batch has {what}; give it a UUID"));
    let id = id.filter(|id| id.value.is_some()).ok_or_else(|| wrong("no correlation id"))?;
    match event_id(Some(&id)) {
        Ok(_) => Ok(id),
        Err(_) => Err(wrong("a correlation id that is none")),
    }
}

/// An identifier in the form that was asked for.
pub fn uuid(id: EventId, form: UuidForm) -> Uuid {
    let value = match form {
        UuidForm::String(()) => uuid::Value::String(id.to_string()),
        UuidForm::Structured(()) => uuid::Value::Structured(u128::from_be_bytes(id.0).into()),
    };
    Uuid { value: Some(value) }
}

/// An event as the answer to a read. Its place is that of the link, where it was found through one.
pub fn read_event(resolved: ResolvedEvent, form: UuidForm) -> ReadResp {
    let ResolvedEvent { event, link } = resolved;
    let position = match link.as_ref().or(event.as_ref()) {
        Some(original) => read_resp::EventPosition::CommitPosition(original.position),
        None => read_resp::EventPosition::NoPosition(()),
    };
    answer(read_resp::Content::Event(read_resp::ReadEvent {
        event: event.map(|event| recorded(event, form)),
        link: link.map(|link| recorded(link, form)),
        position: Some(position),
    }))
}

fn recorded(event: RecordedEvent, form: UuidForm) -> read_resp::RecordedEvent {
    let content_type = if event.is_json { JSON } else { BINARY };
    let metadata = BTreeMap::from([
        (TYPE.to_string(), event.kind),
        (CREATED.to_string(), event.created.to_string()),
        (CONTENT_TYPE.to_string(), content_type.to_string()),
    ]);
    read_resp::RecordedEvent {
        id: Some(uuid(event.id, form)),
        stream_identifier: Some(StreamIdentifier { stream_name: event.stream.into() }),
        stream_revision: event.revision,
        prepare_position: event.position,
        commit_position: event.position,
        metadata,
        custom_metadata: event.metadata.into(),
        data: event.data.into(),
    }
}

/// One answer of a read.
pub fn answer(content: read_resp::Content) -> ReadResp {
    ReadResp { content: Some(content) }
}

/// A place among all events: writes are committed where they are prepared.
pub fn position(position: u64) -> AllStreamPosition {
    AllStreamPosition { commit_position: position, prepare_position: position }
}

/// A moment of the wall clock.
pub fn timestamp(wall_micros: u64) -> Timestamp {
    Timestamp {
        seconds: (wall_micros / MICROS) as i64,
        nanos: (wall_micros % MICROS) as i32 * 1000,
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    const ID: EventId = EventId(*b"\x80123456789abcdef");

    fn proposed(id: Option<Uuid>, metadata: &[(&str, &str)]) -> ProposedMessage {
        let metadata =
            metadata.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        ProposedMessage { id, metadata, ..ProposedMessage::default() }
    }

    #[test]
    fn identifiers_come_and_go_in_both_forms() {
        for form in [UuidForm::Structured(()), UuidForm::String(())] {
            assert_eq!(event_id(Some(&uuid(ID, form))).unwrap(), ID);
        }
        let structured = uuid(ID, UuidForm::Structured(()));
        let Some(uuid::Value::Structured(halves)) = structured.value else { panic!() };
        assert_eq!(halves.most_significant_bits as u64, 0x8031_3233_3435_3637);
        for wrong in [None, Some(Uuid::default())] {
            assert_eq!(event_id(wrong.as_ref()).unwrap_err().code(), Code::InvalidArgument);
        }
        let no_uuid = Uuid { value: Some(uuid::Value::String("7".to_string())) };
        assert_eq!(event_id(Some(&no_uuid)).unwrap_err().code(), Code::InvalidArgument);
    }

    #[test]
    fn events_need_a_type_and_a_content_type() {
        let id = Some(uuid(ID, UuidForm::String(())));
        let whole = [("type", "Opened"), ("content-type", "application/json")];
        let read = Proposed::read(proposed(id.clone(), &whole)).unwrap();
        assert_eq!((read.event().kind, read.event().is_json), ("Opened", true));
        for lacking in [&whole[..1], &whole[1..], &[]] {
            let status = Proposed::read(proposed(id.clone(), lacking)).unwrap_err();
            let exception = status.metadata().get("exception").unwrap();
            assert_eq!(exception, "missing-required-metadata-property");
        }
        let binary = [("type", "Opened"), ("content-type", "application/json; charset=utf-8")];
        assert!(!Proposed::read(proposed(id, &binary)).unwrap().event().is_json);
    }

    #[test]
    fn names_of_streams_are_text_and_not_empty() {
        let name = |bytes: &'static [u8]| {
            stream_name(Some(StreamIdentifier { stream_name: Bytes::from_static(bytes) }))
        };
        assert_eq!(name("käse".as_bytes()).unwrap(), "käse");
        assert!(name(b"").unwrap_err().message().contains("empty"));
        assert!(name(b"\xff").unwrap_err().message().contains("UTF-8"));
        assert!(stream_name(None).unwrap_err().message().contains("no stream"));
    }

    #[test]
    fn moments_have_nanoseconds() {
        assert_eq!(timestamp(2_000_003), Timestamp { seconds: 2, nanos: 3000 });
    }
}
