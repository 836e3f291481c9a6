//! [`BatchPart`] and [`AppendPart`]: the messages with events of the first protocol. Each event is
//! read straight from the bytes of its message.

use hyper::body::Bytes;
use prost::Message;
use tonic::Status;
use umbel_events::limits::{APPEND_BYTES_MAX, APPEND_EVENTS_MAX};
use umbel_proto::shared::Uuid;
use umbel_proto::streams::append_req;
use umbel_proto::streams::batch_append_req::Options;
use umbel_proto::streams::{AppendReq, BatchAppendReq};

use crate::grpc::message_limits::RequestMessage;
use crate::limits::{EVENT_OVERHEAD_BYTES, SMALL_MESSAGE_BYTES_MAX};
use crate::protocol::grpc_status;
use crate::protocol::proto_convert::{EventError, ProposedEvent};
use crate::protocol::wire_reader::{self, MalformedMessage, WireReader};

/// Numbers of the fields of [`BatchAppendReq`].
const BATCH_HEAD: [u32; 3] = [1, 2, 4];
const BATCH_EVENTS: u32 = 3;
/// Numbers of the fields of [`AppendReq`].
const APPEND_OPTIONS: u32 = 1;
const APPEND_EVENT: u32 = 2;

/// Events of one message, within the limits of one append.
#[derive(Debug, Default)]
pub struct ProposedEvents {
    /// The events.
    pub events: Vec<ProposedEvent>,
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
        let events = Vec::with_capacity(events.min(APPEND_EVENTS_MAX));
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
        read_batch(&message).map_err(malformed)
    }
}

fn malformed(MalformedMessage(why): MalformedMessage) -> Status {
    grpc_status::malformed_message(why)
}

fn read_batch(message: &Bytes) -> Result<BatchPart, MalformedMessage> {
    let head = wire_reader::select_fields(message, &BATCH_HEAD, SMALL_MESSAGE_BYTES_MAX)?;
    let head = BatchAppendReq::decode(Bytes::from(head))
        .map_err(|_| MalformedMessage("the identifier or the options of a batch are malformed"))?;
    let count = wire_reader::count_fields(message, BATCH_EVENTS)?;
    let mut events = ProposedEvents::with_capacity(count);
    for field in WireReader::new(message) {
        let field = field?;
        if field.tag == BATCH_EVENTS {
            match ProposedEvent::from_wire(message, field.value.bytes()?) {
                Ok(event) => events.add(Ok(event)),
                Err(EventError::Invalid(status)) => events.add(Err(status)),
                Err(EventError::Malformed(why)) => return Err(why),
            }
        }
    }
    let BatchAppendReq { correlation_id, options, is_final, .. } = head;
    Ok(BatchPart { correlation_id, options, events, is_final })
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
        read_append_part(&message).map_err(malformed)
    }
}

fn read_append_part(message: &Bytes) -> Result<AppendPart, MalformedMessage> {
    let mut event = None;
    let mut last = None;
    for field in WireReader::new(message) {
        let field = field?;
        if field.tag == APPEND_EVENT {
            event = Some(field.value.bytes()?);
        }
        if field.tag == APPEND_EVENT || field.tag == APPEND_OPTIONS {
            last = Some(field.tag);
        }
    }
    match (last, event) {
        (Some(APPEND_EVENT), Some(event)) => match ProposedEvent::from_wire(message, event) {
            Ok(event) => Ok(AppendPart::Event(Ok(Box::new(event)))),
            Err(EventError::Invalid(status)) => Ok(AppendPart::Event(Err(status))),
            Err(EventError::Malformed(why)) => Err(why),
        },
        (Some(APPEND_OPTIONS), _) => {
            let head =
                wire_reader::select_fields(message, &[APPEND_OPTIONS], SMALL_MESSAGE_BYTES_MAX)?;
            let wrong = |_| MalformedMessage("the options of an append are malformed");
            match AppendReq::decode(Bytes::from(head)).map_err(wrong)?.content {
                Some(append_req::Content::Options(options)) => Ok(AppendPart::Options(options)),
                _ => Ok(AppendPart::Empty),
            }
        }
        _ => Ok(AppendPart::Empty),
    }
}
