//! From messages to the words of the store and back.

use std::collections::BTreeMap;

use prost::bytes::Bytes;
use prost_types::Timestamp;
use tonic::Status;
use umbel_events::limits::STREAM_NAME_BYTES_MAX;
use umbel_events::{EventId, Expected, NewEvent, RecordedEvent, ResolvedEvent};
use umbel_proto::limits::MESSAGE_BYTES_MAX;
use umbel_proto::shared::{AllStreamPosition, StreamIdentifier, Uuid, uuid};
use umbel_proto::streams::append_req::ProposedMessage;
use umbel_proto::streams::read_req::UuidForm;
use umbel_proto::streams::{ExpectedRevision, ReadResp, read_resp};

use crate::failure;
use crate::limits::LONG_BYTES;
use crate::planted::{Bug, planted};

/// The keys of an event's metadata.
const TYPE: &str = "type";
const CONTENT_TYPE: &str = "content-type";
const CREATED: &str = "created";
/// The content types: every other is taken for the second.
const JSON: &str = "application/json";
const BINARY: &str = "application/octet-stream";

/// Microseconds of the clock in one second.
const MICROS: u64 = 1_000_000;

/// An event to be appended. It keeps nothing in memory of what came with it, unless it is long
/// itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proposed {
    id: EventId,
    kind: Box<str>,
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
        let (data, metadata) = (own(message.data), own(message.custom_metadata));
        // It may have come after a longer one, whose memory it has.
        Ok(Proposed { id, kind: kind.into_boxed_str(), is_json, data, metadata })
    }

    /// The bytes of it.
    pub fn bytes(&self) -> usize {
        self.kind.len() + self.data.len() + self.metadata.len()
    }

    /// The bytes of memory that it keeps.
    pub fn held_bytes(&self) -> usize {
        let held = |field: &Bytes| match field.len() {
            bytes if bytes < LONG_BYTES => bytes,
            _ => MESSAGE_BYTES_MAX,
        };
        self.kind.len() + held(&self.data) + held(&self.metadata)
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

/// A field of a message, which is a part of the memory into which the message came. What is nearly
/// all of it is left there: copying it would be for nothing.
fn own(field: Bytes) -> Bytes {
    if field.len() < LONG_BYTES { Bytes::copy_from_slice(&field) } else { field }
}

/// The name of a stream, in memory of its own; an error where there is none or it is no text.
pub fn stream_name(identifier: Option<StreamIdentifier>) -> Result<String, Status> {
    let Some(identifier) = identifier else {
        return Err(Status::invalid_argument("the request names no stream"));
    };
    match String::from_utf8(identifier.stream_name.to_vec()) {
        Ok(name) if !name.is_empty() => Ok(name),
        Ok(_) => Err(Status::invalid_argument("the stream's name is empty")),
        Err(_) => Err(Status::invalid_argument("the stream's name is not UTF-8")),
    }
}

/// Whether no stream can have this name for its length. That of a stream's metadata is its own
/// behind two more bytes.
pub fn is_too_long(name: &[u8]) -> bool {
    name.strip_prefix(b"$$").unwrap_or(name).len() > STREAM_NAME_BYTES_MAX
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
        None if planted(Bug::ExpectedUnsaid) => Ok(Expected::Any),
        None => Err(Status::invalid_argument(
            "the request says nothing of the stream's revision; say which is expected, or any",
        )),
    }
}

/// An event's identifier in either form.
pub fn event_id(id: Option<&Uuid>) -> Result<EventId, Status> {
    match id.and_then(|id| id.value.as_ref()) {
        Some(uuid::Value::String(text)) => text
            .parse()
            .or_else(
                |error| if planted(Bug::IdIsZeros) { Ok(EventId([0; 16])) } else { Err(error) },
            )
            .map_err(|error: umbel_events::Error| Status::invalid_argument(error.to_string())),
        Some(uuid::Value::Structured(halves)) => Ok(EventId(u128::from(*halves).to_be_bytes())),
        None => Err(Status::invalid_argument("an event has no id; give it a UUID")),
    }
}

/// The identifier of a batch; an error where there is none or it is no UUID.
pub fn correlation_id(id: Option<Uuid>) -> Result<Uuid, Status> {
    let wrong = |what| Status::invalid_argument(format!("a batch has {what}; give it a UUID"));
    let id = id.filter(|id| id.value.is_some()).ok_or_else(|| wrong("no correlation id"))?;
    if event_id(Some(&id)).is_err() {
        return Err(wrong("a correlation id that is none"));
    }
    let mut id = id;
    if let Some(uuid::Value::String(text)) = &mut id.value {
        // It may have come after a longer one, whose memory it has.
        text.shrink_to_fit();
    }
    Ok(id)
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

/// An event as clients read it.
pub fn recorded(event: RecordedEvent, form: UuidForm) -> read_resp::RecordedEvent {
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
    use prost::Message;
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

    /// One byte of data kept all that came with it in memory, and was counted as one byte.
    #[test]
    fn an_event_keeps_nothing_of_what_came_with_it() {
        let id = Some(uuid(ID, UuidForm::String(())));
        let junk = "j".repeat(1 << 20);
        let whole = [("type", "Opened"), ("content-type", JSON), ("junk", &junk)];
        let mut message = proposed(id, &whole);
        message.data = Bytes::from_static(b"d");
        message.custom_metadata = Bytes::from_static(b"m");
        let came = Bytes::from(message.encode_to_vec());
        let read = Proposed::read(ProposedMessage::decode(came.clone()).unwrap()).unwrap();
        assert_eq!((&*read.data, &*read.metadata), (&b"d"[..], &b"m"[..]));
        assert!(came.is_unique(), "something of the message is kept");
        assert_eq!(read.held_bytes(), read.bytes());
        // Where nearly all of the message is kept, it is not copied, and counted as a whole.
        message.data = vec![7; LONG_BYTES].into();
        let came = Bytes::from(message.encode_to_vec());
        let read = Proposed::read(ProposedMessage::decode(came.clone()).unwrap()).unwrap();
        assert!(came.as_ptr_range().contains(&read.data.as_ptr()), "a long event was copied");
        assert!(read.held_bytes() >= came.len(), "{} of {}", read.held_bytes(), came.len());
    }

    /// A field that came twice had memory for the longer of both.
    #[test]
    fn an_identifier_keeps_nothing_of_what_came_before_it() {
        let id = uuid(ID, UuidForm::String(()));
        let long = Uuid { value: Some(uuid::Value::String("0".repeat(1 << 20))) };
        let came = [long.encode_to_vec(), id.encode_to_vec()].concat();
        let capacity = |id: &Uuid| match &id.value {
            Some(uuid::Value::String(text)) => text.capacity(),
            other => panic!("{other:?}"),
        };
        let twice = Uuid::decode(&came[..]).unwrap();
        assert!(twice == id && capacity(&twice) >= 1 << 20, "it has the memory of the first");
        assert!(capacity(&correlation_id(Some(twice)).unwrap()) < 1000);
    }

    #[test]
    fn a_name_does_not_keep_the_memory_of_a_message() {
        let mut came = Bytes::from(vec![b'n'; 1 << 20]);
        let part = came.split_to(4);
        drop(came);
        let name = stream_name(Some(StreamIdentifier { stream_name: part })).unwrap();
        assert!(name == "nnnn" && name.capacity() < 1000, "{}", name.capacity());
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
