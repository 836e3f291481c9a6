//! [`RecordsPart`] and [`SessionPart`]: the messages with records of the second protocol. Each
//! record becomes an event straight from the bytes of its message.

use std::collections::HashMap;

use hyper::body::Bytes;
use prost::Message;
use tonic::Status;
use umbel_events::EventId;
use umbel_events::limits::{APPEND_BYTES_MAX, APPEND_EVENTS_MAX, APPEND_STREAMS_MAX};
use umbel_events::limits::{EVENT_BYTES_MAX, STREAM_NAME_BYTES_MAX};
use umbel_proto::v2::streams::ConsistencyCheck;

use crate::grpc::message_limits::RequestMessage;
use crate::limits::EVENT_OVERHEAD_BYTES;
use crate::protocol::grpc_status;
use crate::protocol::proto_convert::{self, EventError, ProposedEvent};
use crate::protocol::rich_status::{self, invalid};
use crate::protocol::wire_reader::{self, MalformedMessage, WireField, WireReader};
use crate::services::streams::new_record::NewRecord;

/// Numbers of the fields of `AppendRecordsRequest`.
const RECORDS: u32 = 1;
const CHECKS: u32 = 2;
/// Numbers of the fields of `AppendRequest`.
const SESSION_STREAM: u32 = 1;
const SESSION_RECORDS: u32 = 2;
const SESSION_REVISION: u32 = 3;

/// Records for one stream.
#[derive(Debug, Default)]
pub struct StreamRecords {
    /// The stream.
    pub stream: String,
    /// The records as events.
    pub events: Vec<ProposedEvent>,
    /// Bytes of the events.
    pub bytes: usize,
    /// Indexes of the events whose records have no identifier.
    without_id: Vec<u32>,
}

impl StreamRecords {
    /// Gives the records without an identifier a new one.
    pub fn set_missing_ids(
        &mut self,
        new_id: impl Fn() -> Result<EventId, Status>,
    ) -> Result<(), Status> {
        for index in std::mem::take(&mut self.without_id) {
            self.events[index as usize].set_id(new_id()?);
        }
        Ok(())
    }
}

/// Records of one message, within the limits of one append.
#[derive(Debug, Default)]
struct RecordList {
    streams: Vec<StreamRecords>,
    count: usize,
    bytes: usize,
    /// Reason to refuse the append; there are no records then.
    refusal: Option<Status>,
}

impl RecordList {
    /// Adds a stream without records; returns its index.
    fn add_stream(&mut self, stream: &str, capacity: usize) -> Result<usize, Status> {
        check_stream_name(stream)?;
        if self.streams.len() == APPEND_STREAMS_MAX {
            return Err(too_many_streams());
        }
        let events = Vec::with_capacity(capacity.min(APPEND_EVENTS_MAX));
        let stream = stream.to_string();
        self.streams.push(StreamRecords { stream, events, ..StreamRecords::default() });
        Ok(self.streams.len() - 1)
    }

    fn add(&mut self, index: usize, record: NewRecord) -> Result<(), Status> {
        let target = &mut self.streams[index];
        let limited_bytes = record.limited_bytes();
        if limited_bytes > EVENT_BYTES_MAX {
            return Err(too_large(&target.stream, record.id(), limited_bytes));
        }
        self.bytes += record.bytes();
        self.count += 1;
        check_transaction_limits(self.bytes, self.count)?;
        if record.id().is_none() {
            target.without_id.push(target.events.len() as u32);
        }
        target.bytes += record.bytes();
        target.events.push(record.into_event());
        Ok(())
    }

    /// Records the reason to refuse the append, and drops its records. Bytes that are no message
    /// are an error.
    fn refuse(&mut self, result: Result<(), EventError>) -> Result<(), MalformedMessage> {
        match result {
            Ok(()) => Ok(()),
            Err(EventError::Malformed(why)) => Err(why),
            Err(EventError::Invalid(status)) => {
                *self = RecordList { refusal: Some(status), ..RecordList::default() };
                Ok(())
            }
        }
    }

    /// Bytes of memory that the records keep.
    fn memory_bytes(&self) -> usize {
        self.bytes + self.count * EVENT_OVERHEAD_BYTES
    }
}

fn too_large(stream: &str, id: Option<EventId>, bytes: usize) -> Status {
    let id = id.map(|id| id.to_string()).unwrap_or_default();
    rich_status::record_too_large(stream, id, bytes)
}

/// Fails if a transaction with this many bytes and records is too large.
pub fn check_transaction_limits(bytes: usize, records: usize) -> Result<(), Status> {
    if bytes > APPEND_BYTES_MAX {
        return Err(rich_status::transaction_too_large(bytes as u64));
    }
    if records > APPEND_EVENTS_MAX {
        return Err(invalid(format!(
            "the append exceeds {APPEND_EVENTS_MAX} records; append them in parts"
        )));
    }
    Ok(())
}

/// Fails if a stream cannot have this name.
pub fn check_stream_name(stream: &str) -> Result<(), Status> {
    if stream.is_empty() || proto_convert::is_name_too_long(stream.as_bytes()) {
        return Err(invalid(format!(
            "a stream's name has {} bytes, but must have 1 to {STREAM_NAME_BYTES_MAX}",
            stream.len()
        )));
    }
    Ok(())
}

/// Status: a transaction names too many streams.
pub fn too_many_streams() -> Status {
    invalid(format!("an append names at most {APPEND_STREAMS_MAX} streams, checks included"))
}

/// The message of the call AppendRecords.
#[derive(Debug)]
pub struct RecordsPart {
    /// The records by stream, in the order in which the streams come first.
    pub streams: Vec<StreamRecords>,
    /// The checks of streams.
    pub checks: Vec<ConsistencyCheck>,
}

/// The message of the call AppendRecords, or the reason to refuse it.
#[derive(Debug)]
pub struct RecordsMessage(pub Result<RecordsPart, Status>);

impl RequestMessage for RecordsMessage {
    const MAY_BE_LONG: bool = true;

    fn from_bytes(message: Bytes) -> Result<RecordsMessage, Status> {
        read_records(&message).map_err(malformed)
    }
}

fn malformed(MalformedMessage(why): MalformedMessage) -> Status {
    grpc_status::malformed_message(why)
}

fn read_records(message: &Bytes) -> Result<RecordsMessage, MalformedMessage> {
    let count = wire_reader::count_fields(message, RECORDS)?;
    if count == 0 {
        return Ok(RecordsMessage(Err(invalid("there are no records; send at least one"))));
    }
    let mut records = RecordList::default();
    let mut stream_indexes: HashMap<&str, usize> = HashMap::new();
    let mut checks = Vec::new();
    for field in WireReader::new(message) {
        match field? {
            WireField { tag: RECORDS, value } if records.refusal.is_none() => {
                let record = value.bytes()?;
                let stream = record_stream(record)?;
                let mut add = || {
                    let index = match stream_indexes.get(stream) {
                        Some(index) => *index,
                        None => {
                            let capacity = if stream_indexes.is_empty() { count } else { 0 };
                            let index = records.add_stream(stream, capacity);
                            let index = index.map_err(EventError::Invalid)?;
                            stream_indexes.insert(stream, index);
                            index
                        }
                    };
                    let record = NewRecord::from_wire(message, record)?;
                    records.add(index, record).map_err(EventError::Invalid)
                };
                let added = add();
                records.refuse(added)?;
            }
            WireField { tag: CHECKS, value } if records.refusal.is_none() => {
                let check = ConsistencyCheck::decode(value.bytes()?)
                    .map_err(|_| MalformedMessage("a check is malformed"))?;
                if checks.len() == APPEND_STREAMS_MAX {
                    records.refuse(Err(EventError::Invalid(too_many_streams())))?;
                }
                checks.push(check);
            }
            _ => {}
        }
    }
    let RecordList { streams, refusal, .. } = records;
    Ok(RecordsMessage(refusal.map_or(Ok(RecordsPart { streams, checks }), Err)))
}

/// The stream that a record names; empty if it names none.
fn record_stream(record: &[u8]) -> Result<&str, MalformedMessage> {
    let mut stream = "";
    for field in WireReader::new(record) {
        let field = field?;
        if field.tag == NewRecord::STREAM {
            stream = field.value.text()?;
        }
    }
    Ok(stream)
}

/// A message of the call AppendSession.
#[derive(Debug)]
pub struct SessionPart {
    /// The stream.
    pub stream: String,
    /// The number of the expected revision.
    pub expected_revision: Option<i64>,
    /// The records, or the reason to refuse the append.
    pub records: Result<StreamRecords, Status>,
    /// Bytes of memory that the records keep.
    pub memory_bytes: usize,
}

impl RequestMessage for SessionPart {
    const MAY_BE_LONG: bool = true;

    fn from_bytes(message: Bytes) -> Result<SessionPart, Status> {
        read_session_part(&message).map_err(malformed)
    }
}

fn read_session_part(message: &Bytes) -> Result<SessionPart, MalformedMessage> {
    let (mut stream, mut expected_revision, mut count) = ("", None, 0);
    for field in WireReader::new(message) {
        match field? {
            WireField { tag: SESSION_STREAM, value } => stream = value.text()?,
            WireField { tag: SESSION_REVISION, value } => {
                let number = value.varint()?;
                expected_revision = Some((number >> 1) as i64 ^ -((number & 1) as i64));
            }
            WireField { tag: SESSION_RECORDS, .. } => count += 1,
            _ => {}
        }
    }
    let mut records = RecordList::default();
    let added = records.add_stream(stream, count).map(drop).map_err(EventError::Invalid);
    records.refuse(added)?;
    for field in WireReader::new(message) {
        let WireField { tag, value } = field?;
        if tag != SESSION_RECORDS || records.refusal.is_some() {
            continue;
        }
        let record = value.bytes()?;
        let named = record_stream(record)?;
        let added = if !named.is_empty() && named != stream {
            Err(EventError::Invalid(invalid(
                "a record of a session names another stream than its request; leave the record's \
                 stream out",
            )))
        } else {
            NewRecord::from_wire(message, record)
                .and_then(|record| records.add(0, record).map_err(EventError::Invalid))
        };
        records.refuse(added)?;
    }
    let memory_bytes = records.memory_bytes();
    let RecordList { mut streams, refusal, .. } = records;
    // A long name is not kept; the name is refused.
    let stream = stream.chars().take(STREAM_NAME_BYTES_MAX + 3).collect();
    let records = refusal.map_or_else(|| Ok(streams.pop().unwrap_or_default()), Err);
    Ok(SessionPart { stream, expected_revision, records, memory_bytes })
}
