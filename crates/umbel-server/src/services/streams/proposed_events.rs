//! [`BatchPart`] and [`AppendPart`]: the messages with events of the first protocol. Each event is
//! read straight from the bytes of its message.

use hyper::body::Bytes;
use prost::DecodeError;
use prost::bytes::Buf;
use prost::encoding::{self, DecodeContext, WireType};
use tonic::Status;
use umbel_events::limits::{APPEND_BYTES_MAX, APPEND_EVENTS_MAX, STREAM_NAME_BYTES_MAX};
use umbel_proto::shared::{Uuid, uuid};
use umbel_proto::streams::append_req;
use umbel_proto::streams::batch_append_req::Options;

use crate::grpc::message_limits::RequestMessage;
use crate::limits::{EVENT_OVERHEAD_BYTES, SMALL_MESSAGE_BYTES_MAX};
use crate::protocol::grpc_status;
use crate::protocol::message_reader::{self, MessageReader};
use crate::protocol::proto_convert::{EventReader, ProposedEvent};
use crate::resources::deferred_drop::ProposedEventList;

/// Events of one message, within the limits of one append.
#[derive(Debug, Default)]
pub struct ProposedEvents {
    /// The events.
    pub events: ProposedEventList,
    /// Bytes of the events.
    pub bytes: usize,
    /// Bytes of memory that the events keep.
    pub memory_bytes: usize,
    /// Reason to refuse the append; there are no events then.
    pub refusal: Option<Status>,
}

impl ProposedEvents {
    /// Creates an empty list with space for this number of events.
    pub fn with_capacity(events: usize) -> ProposedEvents {
        let events = Vec::with_capacity(events.min(APPEND_EVENTS_MAX)).into();
        ProposedEvents { events, ..ProposedEvents::default() }
    }

    /// Adds an event. The first event over a limit, or an invalid one, refuses the append.
    pub fn add(&mut self, event: Result<ProposedEvent, Status>) {
        if self.refusal.is_some() {
            return;
        }
        match event.and_then(|event| self.check(event)) {
            Ok(event) => self.events.push(event),
            Err(refusal) => self.refuse(refusal),
        }
    }

    /// Refuses the append, and drops its events.
    pub fn refuse(&mut self, refusal: Status) {
        *self = ProposedEvents { refusal: Some(refusal), ..ProposedEvents::default() };
    }

    fn check(&mut self, event: ProposedEvent) -> Result<ProposedEvent, Status> {
        self.bytes += event.bytes();
        self.memory_bytes += event.memory_bytes() + EVENT_OVERHEAD_BYTES;
        check_append_limits(self.bytes, self.events.len() + 1).map(|()| event)
    }
}

/// Fails if an append with this many bytes and events is too large.
pub fn check_append_limits(bytes: usize, events: usize) -> Result<(), Status> {
    if bytes > APPEND_BYTES_MAX {
        let limit = APPEND_BYTES_MAX as u64;
        let message = format!("the append exceeds {limit} bytes; append the events in parts");
        return Err(grpc_status::append_too_large(limit, message));
    }
    if events > APPEND_EVENTS_MAX {
        return Err(Status::invalid_argument(format!(
            "the append exceeds {APPEND_EVENTS_MAX} events; append them in parts"
        )));
    }
    Ok(())
}

/// A message of the call BatchAppend: a part of a batch.
#[derive(Debug, Default)]
pub struct BatchPart {
    /// Identifier of the batch.
    pub correlation_id: Option<Uuid>,
    /// Options of the batch, in its first part.
    pub options: Option<Options>,
    /// Events of this part.
    pub events: ProposedEvents,
    /// Whether this part is the last one of the batch.
    pub is_final: bool,
}

impl RequestMessage for BatchPart {
    const MAY_BE_LONG: bool = true;

    fn from_bytes(message: Bytes) -> Result<BatchPart, Status> {
        let count = message_reader::count_fields(&message, BATCH_EVENTS);
        let events = ProposedEvents::with_capacity(count);
        let part = BatchPart { events, ..BatchPart::default() };
        let mut reader = BatchReader { part, head: HeadLimit::default() };
        message_reader::read_message(message, &mut reader)?;
        reader.part.detach_head();
        Ok(reader.part)
    }

    fn memory_bytes(&self) -> usize {
        self.events.bytes + self.events.events.len() * EVENT_OVERHEAD_BYTES
    }
}

impl BatchPart {
    /// Copies the head of the part out of its message, which it would keep in memory while the
    /// caller is authorized. Of an identifier or name that is too long, only a beginning is kept,
    /// which is refused in the same way.
    fn detach_head(&mut self) {
        if let Some(Uuid { value: Some(uuid::Value::String(text)) }) = &mut self.correlation_id {
            *text = text.chars().take(HEAD_TEXT_CHARS_MAX).collect();
        }
        let options = self.options.as_mut();
        if let Some(identifier) = options.and_then(|it| it.stream_identifier.as_mut()) {
            let name = &identifier.stream_name;
            let name = &name[..name.len().min(HEAD_TEXT_CHARS_MAX)];
            identifier.stream_name = Bytes::copy_from_slice(name);
        }
    }
}

/// Length of an identifier or name that is longer than any valid one.
const HEAD_TEXT_CHARS_MAX: usize = STREAM_NAME_BYTES_MAX + 3;

/// Number of the field with the events of a `BatchAppendReq`.
const BATCH_EVENTS: u32 = 3;

/// Reader of a `BatchAppendReq`.
struct BatchReader {
    part: BatchPart,
    head: HeadLimit,
}

impl MessageReader for BatchReader {
    fn read_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        bytes: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        let BatchPart { correlation_id, options, events, is_final } = &mut self.part;
        match tag {
            1 => {
                self.head.take(bytes)?;
                let id = correlation_id.get_or_insert_default();
                encoding::message::merge(wire_type, id, bytes, context)
            }
            2 => {
                self.head.take(bytes)?;
                let options = options.get_or_insert_default();
                encoding::message::merge(wire_type, options, bytes, context)
            }
            // The events of a refused batch are not decoded.
            BATCH_EVENTS if events.refusal.is_some() => {
                message_reader::skip_nested(tag, wire_type, bytes, context)
            }
            BATCH_EVENTS => {
                let mut event = EventReader::default();
                message_reader::read_nested(wire_type, &mut event, bytes, context)?;
                events.add(event.into_event());
                Ok(())
            }
            4 => encoding::bool::merge(wire_type, is_final, bytes, context),
            _ => encoding::skip_field(wire_type, tag, bytes, context),
        }
    }
}

/// Bytes of the fields of a message besides its events.
#[derive(Debug, Default)]
struct HeadLimit {
    bytes: usize,
}

impl HeadLimit {
    /// Counts the field that comes next, whose content is about to be decoded.
    fn take(&mut self, bytes: &impl Buf) -> Result<(), DecodeError> {
        self.bytes = self.bytes.saturating_add(message_reader::next_length(bytes));
        if self.bytes > SMALL_MESSAGE_BYTES_MAX {
            let why = "the fields of a message besides its events exceed 1 MiB";
            return Err(message_reader::error(why));
        }
        Ok(())
    }
}

/// A message of the call Append.
#[derive(Debug)]
pub enum AppendPart {
    /// The target of the append.
    Options(append_req::Options),
    /// An event, or the reason to refuse it.
    Event(Result<Box<ProposedEvent>, Status>),
    /// Neither of them.
    Empty,
}

impl RequestMessage for AppendPart {
    const MAY_BE_LONG: bool = true;

    fn from_bytes(message: Bytes) -> Result<AppendPart, Status> {
        let mut reader = AppendReader::default();
        message_reader::read_message(message, &mut reader)?;
        Ok(match reader.content {
            AppendContent::Options(options) => AppendPart::Options(options),
            AppendContent::Event(event) => AppendPart::Event(event.into_event().map(Box::new)),
            AppendContent::Empty => AppendPart::Empty,
        })
    }
}

/// Reader of an `AppendReq`.
#[derive(Debug, Default)]
struct AppendReader {
    content: AppendContent,
    head: HeadLimit,
}

/// The content of a message. Of several kinds the last one counts; several contents of one kind in
/// a row are merged.
#[derive(Debug, Default)]
enum AppendContent {
    #[default]
    Empty,
    Options(append_req::Options),
    Event(Box<EventReader>),
}

impl MessageReader for AppendReader {
    fn read_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        bytes: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        match (tag, &mut self.content) {
            (1, AppendContent::Options(options)) => {
                self.head.take(bytes)?;
                encoding::message::merge(wire_type, options, bytes, context)
            }
            (1, _) => {
                self.head.take(bytes)?;
                let mut options = append_req::Options::default();
                encoding::message::merge(wire_type, &mut options, bytes, context)?;
                self.content = AppendContent::Options(options);
                Ok(())
            }
            (2, AppendContent::Event(event)) => {
                message_reader::read_nested(wire_type, &mut **event, bytes, context)
            }
            (2, _) => {
                let mut event = Box::<EventReader>::default();
                message_reader::read_nested(wire_type, &mut *event, bytes, context)?;
                self.content = AppendContent::Event(event);
                Ok(())
            }
            _ => encoding::skip_field(wire_type, tag, bytes, context),
        }
    }
}
