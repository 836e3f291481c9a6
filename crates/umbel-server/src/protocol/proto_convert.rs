//! Conversion between messages and the store's types.

use std::collections::BTreeMap;

use prost::DecodeError;
use prost::bytes::{Buf, Bytes};
use prost::encoding::{self, DecodeContext, WireType};
use prost_types::Timestamp;
use tonic::Status;
use umbel_base::fail_point;
use umbel_events::limits::STREAM_NAME_BYTES_MAX;
use umbel_events::{EventId, ExpectedVersion, NewEvent, RecordedEvent, ResolvedEvent};
use umbel_proto::limits::MESSAGE_BYTES_MAX;
use umbel_proto::shared::{AllStreamPosition, StreamIdentifier, Uuid, uuid};
use umbel_proto::streams::read_req::UuidForm;
use umbel_proto::streams::{ExpectedRevision, ReadResp, read_resp};

use crate::limits::LARGE_FIELD_BYTES;
use crate::protocol::grpc_status;
use crate::protocol::message_reader::{self, MessageReader};

/// Metadata keys of an event.
const TYPE: &str = "type";
const CONTENT_TYPE: &str = "content-type";
const CREATED: &str = "created";
/// Content type of JSON data; events with any other content type count as binary.
const JSON: &str = "application/json";
const BINARY: &str = "application/octet-stream";

/// Microseconds per second.
const MICROS: u64 = 1_000_000;

/// An event to be appended. The event keeps no memory of the message that it came with, unless the
/// event itself is long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProposedEvent {
    id: EventId,
    kind: Box<str>,
    is_json: bool,
    data: Bytes,
    /// Without shared ownership, which would take twice the memory of an empty field.
    metadata: Box<[u8]>,
}

impl ProposedEvent {
    /// Creates an event from its type and its data and metadata.
    pub fn new(
        id: EventId,
        kind: Box<str>,
        is_json: bool,
        (data, metadata): (Bytes, Box<[u8]>),
    ) -> ProposedEvent {
        ProposedEvent { id, kind, is_json, data, metadata }
    }

    /// Sets the identifier of an event that its client sent without one.
    pub fn set_id(&mut self, id: EventId) {
        self.id = id;
    }

    /// Bytes of the event's type, data and metadata.
    pub fn bytes(&self) -> usize {
        self.kind.len() + self.data.len() + self.metadata.len()
    }

    /// Bytes of memory that the event keeps.
    pub fn memory_bytes(&self) -> usize {
        let data = match self.data.len() {
            bytes if bytes < LARGE_FIELD_BYTES => bytes,
            _ => MESSAGE_BYTES_MAX,
        };
        self.kind.len() + data + self.metadata.len()
    }

    /// Borrows the event in the store's form.
    pub fn as_new_event(&self) -> NewEvent<'_> {
        NewEvent {
            id: self.id,
            kind: &self.kind,
            is_json: self.is_json,
            data: &self.data,
            metadata: &self.metadata,
        }
    }
}

/// Reader of a `ProposedMessage`. The same reader merges several messages.
#[derive(Debug, Default)]
pub struct EventReader {
    id: Option<Uuid>,
    kind: Option<Bytes>,
    content_type: Option<Bytes>,
    metadata: Bytes,
    data: Bytes,
}

impl MessageReader for EventReader {
    fn read_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        bytes: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        match tag {
            1 => {
                let id = self.id.get_or_insert_default();
                encoding::message::merge(wire_type, id, bytes, context)
            }
            2 => {
                let mut pair = TextPair::default();
                message_reader::read_nested(wire_type, &mut pair, bytes, context)?;
                match message_reader::text_of(&pair.key) {
                    TYPE => self.kind = Some(pair.value),
                    CONTENT_TYPE => self.content_type = Some(pair.value),
                    _ => {}
                }
                Ok(())
            }
            3 => encoding::bytes::merge(wire_type, &mut self.metadata, bytes, context),
            4 => encoding::bytes::merge(wire_type, &mut self.data, bytes, context),
            _ => encoding::skip_field(wire_type, tag, bytes, context),
        }
    }
}

impl EventReader {
    /// The event; fails if the message lacks a required field.
    pub fn into_event(self) -> Result<ProposedEvent, Status> {
        let id = event_id(self.id.as_ref())?;
        let (Some(kind), Some(content_type)) = (self.kind, self.content_type) else {
            return Err(grpc_status::metadata_missing());
        };
        Ok(ProposedEvent {
            id,
            kind: message_reader::text_of(&kind).into(),
            is_json: content_type == JSON,
            data: detach(self.data),
            metadata: self.metadata[..].into(),
        })
    }
}

/// A pair of a map of texts.
#[derive(Debug, Default)]
struct TextPair {
    key: Bytes,
    value: Bytes,
}

impl MessageReader for TextPair {
    fn read_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        bytes: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        match tag {
            1 => message_reader::read_text(wire_type, &mut self.key, bytes, context),
            2 => message_reader::read_text(wire_type, &mut self.value, bytes, context),
            _ => encoding::skip_field(wire_type, tag, bytes, context),
        }
    }
}

/// Copies a field out of the buffer of its message, unless the field is nearly all of it.
pub fn detach(field: Bytes) -> Bytes {
    if field.len() < LARGE_FIELD_BYTES { Bytes::copy_from_slice(&field) } else { field }
}

/// Copies the name of a stream out of a message; fails if the name is missing or not UTF-8.
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

/// Whether a name is too long for a stream. The name of its metadata stream is two bytes longer.
pub fn is_name_too_long(name: &[u8]) -> bool {
    name.strip_prefix(b"$$").unwrap_or(name).len() > STREAM_NAME_BYTES_MAX
}

/// Builds the message with a stream's name.
pub fn stream_identifier(name: &str) -> StreamIdentifier {
    name.into()
}

/// Reads the expected revision of a write; fails if the request has none.
pub fn expected_revision(option: Option<ExpectedRevision>) -> Result<ExpectedVersion, Status> {
    fail_point!("append-default-missing-revision", option.is_none(), |_| Ok(ExpectedVersion::Any));
    match option {
        Some(ExpectedRevision::Revision(revision)) => Ok(ExpectedVersion::Exact(revision)),
        Some(ExpectedRevision::NoStream(())) => Ok(ExpectedVersion::NoStream),
        Some(ExpectedRevision::Any(())) => Ok(ExpectedVersion::Any),
        Some(ExpectedRevision::StreamExists(())) => Ok(ExpectedVersion::Exists),
        None => {
            Err(Status::invalid_argument("the request has no expected revision; set one, or any"))
        }
    }
}

/// Reads an event's identifier, which is a text or two numbers.
pub fn event_id(id: Option<&Uuid>) -> Result<EventId, Status> {
    match id.and_then(|id| id.value.as_ref()) {
        Some(uuid::Value::String(text)) => parse_event_id(text),
        Some(uuid::Value::Structured(halves)) => Ok(EventId(u128::from(*halves).to_be_bytes())),
        None => Err(Status::invalid_argument("an event has no id; give it a UUID")),
    }
}

fn parse_event_id(text: &str) -> Result<EventId, Status> {
    let id: Result<EventId, umbel_events::Error> = text.parse();
    fail_point!("append-accept-invalid-id", id.is_err(), |_| Ok(EventId([0; 16])));
    id.map_err(|error| Status::invalid_argument(error.to_string()))
}

/// Checks the identifier of a batch append; fails if it is missing or no UUID.
pub fn correlation_id(id: Option<Uuid>) -> Result<Uuid, Status> {
    let wrong = |what| Status::invalid_argument(format!("a batch has {what}; give it a UUID"));
    let id = id.filter(|id| id.value.is_some()).ok_or_else(|| wrong("no correlation id"))?;
    if event_id(Some(&id)).is_err() {
        return Err(wrong("an invalid correlation id"));
    }
    let mut id = id;
    if let Some(uuid::Value::String(text)) = &mut id.value {
        // It may have overwritten a longer text, whose capacity it keeps.
        text.shrink_to_fit();
    }
    Ok(id)
}

/// Encodes an identifier in the requested form.
pub fn to_uuid(id: EventId, form: UuidForm) -> Uuid {
    let value = match form {
        UuidForm::String(()) => uuid::Value::String(id.to_string()),
        UuidForm::Structured(()) => uuid::Value::Structured(u128::from_be_bytes(id.0).into()),
    };
    Uuid { value: Some(value) }
}

/// Builds the read response of an event. The position is the link's, if a link led to the event.
pub fn event_response(resolved: ResolvedEvent, form: UuidForm) -> ReadResp {
    let ResolvedEvent { event, link } = resolved;
    let position = match link.as_ref().or(event.as_ref()) {
        Some(original) => read_resp::EventPosition::CommitPosition(original.position),
        None => read_resp::EventPosition::NoPosition(()),
    };
    read_response(read_resp::Content::Event(read_resp::ReadEvent {
        event: event.map(|event| recorded_event(event, form)),
        link: link.map(|link| recorded_event(link, form)),
        position: Some(position),
    }))
}

/// Builds the message of a recorded event.
pub fn recorded_event(event: RecordedEvent, form: UuidForm) -> read_resp::RecordedEvent {
    let content_type = if event.is_json { JSON } else { BINARY };
    let metadata = BTreeMap::from([
        (TYPE.to_string(), event.kind),
        (CREATED.to_string(), event.created.to_string()),
        (CONTENT_TYPE.to_string(), content_type.to_string()),
    ]);
    read_resp::RecordedEvent {
        id: Some(to_uuid(event.id, form)),
        stream_identifier: Some(StreamIdentifier { stream_name: event.stream.into() }),
        stream_revision: event.revision,
        prepare_position: event.position,
        commit_position: event.position,
        metadata,
        custom_metadata: event.metadata.into(),
        data: event.data.into(),
    }
}

/// Builds one read response.
pub fn read_response(content: read_resp::Content) -> ReadResp {
    ReadResp { content: Some(content) }
}

/// Builds a position in the event log; commit and prepare positions are equal.
pub fn all_position(position: u64) -> AllStreamPosition {
    AllStreamPosition { commit_position: position, prepare_position: position }
}

/// Builds the message of a wall-clock time.
pub fn to_timestamp(wall_micros: u64) -> Timestamp {
    Timestamp {
        seconds: (wall_micros / MICROS) as i64,
        nanos: (wall_micros % MICROS) as i32 * 1000,
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use tonic::Code;
    use umbel_proto::streams::append_req::ProposedMessage;

    use super::*;

    fn read(message: &ProposedMessage) -> Result<ProposedEvent, Status> {
        read_bytes(&message.encode_to_vec().into())
    }

    fn read_bytes(message: &Bytes) -> Result<ProposedEvent, Status> {
        let mut reader = EventReader::default();
        message_reader::read_message(message.clone(), &mut reader).expect("it is well-formed");
        reader.into_event()
    }

    const ID: EventId = EventId(*b"\x80123456789abcdef");

    fn proposed(id: Option<Uuid>, metadata: &[(&str, &str)]) -> ProposedMessage {
        let metadata =
            metadata.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        ProposedMessage { id, metadata, ..ProposedMessage::default() }
    }

    #[test]
    fn uuids_round_trip_in_both_forms() {
        for form in [UuidForm::Structured(()), UuidForm::String(())] {
            assert_eq!(event_id(Some(&to_uuid(ID, form))).unwrap(), ID);
        }
        let structured = to_uuid(ID, UuidForm::Structured(()));
        let Some(uuid::Value::Structured(halves)) = structured.value else { panic!() };
        assert_eq!(halves.most_significant_bits as u64, 0x8031_3233_3435_3637);
        for wrong in [None, Some(Uuid::default())] {
            assert_eq!(event_id(wrong.as_ref()).unwrap_err().code(), Code::InvalidArgument);
        }
        let no_uuid = Uuid { value: Some(uuid::Value::String("7".to_string())) };
        assert_eq!(event_id(Some(&no_uuid)).unwrap_err().code(), Code::InvalidArgument);
    }

    #[test]
    fn event_without_type_or_content_type_is_rejected() {
        let id = Some(to_uuid(ID, UuidForm::String(())));
        let properties = [("type", "Opened"), ("content-type", "application/json")];
        let event = read(&proposed(id.clone(), &properties)).unwrap();
        assert_eq!((event.as_new_event().kind, event.as_new_event().is_json), ("Opened", true));
        for lacking in [&properties[..1], &properties[1..], &[]] {
            let status = read(&proposed(id.clone(), lacking)).unwrap_err();
            let exception = status.metadata().get("exception").unwrap();
            assert_eq!(exception, "missing-required-metadata-property");
        }
        let binary = [("type", "Opened"), ("content-type", "application/json; charset=utf-8")];
        assert!(!read(&proposed(id, &binary)).unwrap().as_new_event().is_json);
    }

    /// Story: one byte of data kept its whole message in memory, but was counted as one byte.
    #[test]
    fn event_does_not_retain_its_message() {
        let id = Some(to_uuid(ID, UuidForm::String(())));
        let junk = "j".repeat(1 << 20);
        let properties = [("type", "Opened"), ("content-type", JSON), ("junk", &junk)];
        let mut message = proposed(id, &properties);
        message.data = Bytes::from_static(b"d");
        message.custom_metadata = Bytes::from_static(b"m");
        let message_bytes = Bytes::from(message.encode_to_vec());
        let read = read_bytes(&message_bytes).unwrap();
        assert_eq!((&*read.data, &*read.metadata), (&b"d"[..], &b"m"[..]));
        assert!(message_bytes.is_unique(), "something of the message is kept");
        assert_eq!(read.memory_bytes(), read.bytes());
        // If nearly all of the message is kept, it is not copied but counted as a whole.
        message.data = vec![7; LARGE_FIELD_BYTES].into();
        let message_bytes = Bytes::from(message.encode_to_vec());
        let read = read_bytes(&message_bytes).unwrap();
        assert!(
            message_bytes.as_ptr_range().contains(&read.data.as_ptr()),
            "a long event was copied"
        );
        assert!(
            read.memory_bytes() >= message_bytes.len(),
            "{} of {}",
            read.memory_bytes(),
            message_bytes.len()
        );
    }

    /// Story: a field that occurred twice in a message kept capacity for the longer of both values.
    #[test]
    fn identifier_keeps_no_capacity_of_a_repeated_field() {
        let id = to_uuid(ID, UuidForm::String(()));
        let long = Uuid { value: Some(uuid::Value::String("0".repeat(1 << 20))) };
        let message_bytes = [long.encode_to_vec(), id.encode_to_vec()].concat();
        let capacity = |id: &Uuid| match &id.value {
            Some(uuid::Value::String(text)) => text.capacity(),
            other => panic!("{other:?}"),
        };
        let twice = Uuid::decode(&message_bytes[..]).unwrap();
        assert!(twice == id && capacity(&twice) >= 1 << 20, "it has the memory of the first");
        assert!(capacity(&correlation_id(Some(twice)).unwrap()) < 1000);
    }

    #[test]
    fn stream_name_does_not_retain_its_message() {
        let mut message_bytes = Bytes::from(vec![b'n'; 1 << 20]);
        let part = message_bytes.split_to(4);
        drop(message_bytes);
        let name = stream_name(Some(StreamIdentifier { stream_name: part })).unwrap();
        assert!(name == "nnnn" && name.capacity() < 1000, "{}", name.capacity());
    }

    #[test]
    fn stream_name_must_be_nonempty_utf8() {
        let name = |bytes: &'static [u8]| {
            stream_name(Some(StreamIdentifier { stream_name: Bytes::from_static(bytes) }))
        };
        assert_eq!(name("käse".as_bytes()).unwrap(), "käse");
        assert!(name(b"").unwrap_err().message().contains("empty"));
        assert!(name(b"\xff").unwrap_err().message().contains("UTF-8"));
        assert!(stream_name(None).unwrap_err().message().contains("no stream"));
    }

    #[test]
    fn timestamps_have_nanoseconds() {
        assert_eq!(to_timestamp(2_000_003), Timestamp { seconds: 2, nanos: 3000 });
    }
}
