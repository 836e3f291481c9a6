//! [`RecordsPart`] and [`SessionPart`]: the messages with records of the second protocol. Each
//! record becomes an event straight from the bytes of its message.

use std::collections::HashMap;

use hyper::body::Bytes;
use prost::DecodeError;
use prost::bytes::Buf;
use prost::encoding::{self, DecodeContext, WireType};
use tonic::Status;
use umbel_events::EventId;
use umbel_events::limits::{APPEND_BYTES_MAX, APPEND_EVENTS_MAX, APPEND_STREAMS_MAX};
use umbel_events::limits::{EVENT_BYTES_MAX, STREAM_NAME_BYTES_MAX};
use umbel_proto::v2::streams::ConsistencyCheck;

use crate::grpc::message_limits::RequestMessage;
use crate::limits::EVENT_OVERHEAD_BYTES;
use crate::protocol::id_generator::IdGenerator;
use crate::protocol::message_reader::{self, MessageReader};
use crate::protocol::proto_convert;
use crate::protocol::rich_status::{self, invalid};
use crate::resources::deferred_drop::{DeferredDrop, PartCount, ProposedEventList};
use crate::services::streams::new_record::{NewRecord, RecordReader};

/// Number of identifiers after which a call yields to others.
const IDS_PER_SLICE: usize = 4096;

/// Records for one stream.
#[derive(Debug, Default)]
pub struct StreamRecords {
    /// The stream.
    pub stream: String,
    /// The records as events.
    pub events: ProposedEventList,
    /// Bytes of the events.
    pub bytes: usize,
    /// Indexes of the events whose records have no identifier.
    without_id: Vec<u32>,
}

impl StreamRecords {
    /// Gives the records without an identifier a new one. Yields between many of them.
    pub async fn set_missing_ids(&mut self, ids: &mut IdGenerator) -> Result<(), Status> {
        for indexes in std::mem::take(&mut self.without_id).chunks(IDS_PER_SLICE) {
            for index in indexes {
                self.events[*index as usize].set_id(ids.generate()?);
            }
            if indexes.len() == IDS_PER_SLICE {
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }
}

impl PartCount for Vec<StreamRecords> {
    fn part_count(&self) -> usize {
        self.iter().map(|stream| stream.events.len() + 1).sum()
    }
}

/// Records of one message, within the limits of one append.
#[derive(Debug, Default)]
struct RecordList {
    streams: DeferredDrop<Vec<StreamRecords>>,
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
        let events = Vec::with_capacity(capacity.min(APPEND_EVENTS_MAX)).into();
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

    /// Records the reason to refuse the append, and drops its records.
    fn refuse(&mut self, result: Result<(), Status>) {
        if let Err(status) = result {
            *self = RecordList { refusal: Some(status), ..RecordList::default() };
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
    pub streams: DeferredDrop<Vec<StreamRecords>>,
    /// The checks of streams.
    pub checks: Vec<ConsistencyCheck>,
}

/// The message of the call AppendRecords, or the reason to refuse it.
#[derive(Debug)]
pub struct RecordsMessage(pub Result<RecordsPart, Status>);

impl RequestMessage for RecordsMessage {
    const MAY_BE_LONG: bool = true;

    fn from_bytes(message: Bytes) -> Result<RecordsMessage, Status> {
        let mut reader = RecordsReader {
            message: message.clone(),
            records_max: message_reader::count_fields(&message, RECORDS),
            has_records: false,
            records: RecordList::default(),
            stream_indexes: HashMap::new(),
            checks: Vec::new(),
        };
        message_reader::read_message(message, &mut reader)?;
        Ok(RecordsMessage(reader.into_part()))
    }

    fn memory_bytes(&self) -> usize {
        let streams = self.0.iter().flat_map(|part| &*part.streams);
        let memory = |it: &StreamRecords| it.bytes + it.events.len() * EVENT_OVERHEAD_BYTES;
        streams.map(memory).sum()
    }
}

/// Number of the field with the records of an `AppendRecordsRequest`.
const RECORDS: u32 = 1;

/// Reader of an `AppendRecordsRequest`.
struct RecordsReader {
    message: Bytes,
    /// Number of the fields with records.
    records_max: usize,
    has_records: bool,
    records: RecordList,
    stream_indexes: HashMap<Bytes, usize>,
    checks: Vec<ConsistencyCheck>,
}

impl MessageReader for RecordsReader {
    fn read_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        bytes: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        self.has_records |= tag == RECORDS;
        match tag {
            // The records and checks of a refused append are not decoded.
            RECORDS | 2 if self.records.refusal.is_some() => {
                message_reader::skip_nested(tag, wire_type, bytes, context)
            }
            RECORDS => {
                let message = self.message.clone();
                let mut record = RecordReader::new(&message);
                message_reader::read_nested(wire_type, &mut record, bytes, context)?;
                let added = self.add_record(record);
                self.records.refuse(added);
                Ok(())
            }
            2 => {
                let mut check = ConsistencyCheck::default();
                encoding::message::merge(wire_type, &mut check, bytes, context)?;
                if self.checks.len() == APPEND_STREAMS_MAX {
                    self.records.refuse(Err(too_many_streams()));
                }
                self.checks.push(check);
                Ok(())
            }
            _ => encoding::skip_field(wire_type, tag, bytes, context),
        }
    }
}

impl RecordsReader {
    fn add_record(&mut self, record: RecordReader<'_>) -> Result<(), Status> {
        let stream = record.stream();
        let index = match self.stream_indexes.get(stream) {
            Some(index) => *index,
            None => {
                let capacity = if self.stream_indexes.is_empty() { self.records_max } else { 0 };
                let name = message_reader::text_of(stream);
                let index = self.records.add_stream(name, capacity)?;
                self.stream_indexes.insert(stream.clone(), index);
                index
            }
        };
        self.records.add(index, record.into_record()?)
    }

    fn into_part(self) -> Result<RecordsPart, Status> {
        if !self.has_records {
            return Err(invalid("there are no records; send at least one"));
        }
        let RecordList { streams, refusal, .. } = self.records;
        refusal.map_or(Ok(RecordsPart { streams, checks: self.checks }), Err)
    }
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
        let count = message_reader::count_fields(&message, SESSION_RECORDS);
        let events = Vec::with_capacity(count.min(APPEND_EVENTS_MAX)).into();
        let own = StreamRecords { events, ..StreamRecords::default() };
        let mut reader = SessionReader {
            message: message.clone(),
            stream: Bytes::new(),
            expected_revision: None,
            named_stream: Bytes::new(),
            records: RecordList { streams: vec![own].into(), ..RecordList::default() },
        };
        message_reader::read_message(message, &mut reader)?;
        Ok(reader.into_part())
    }

    fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }
}

/// Number of the field with the records of an `AppendRequest`.
const SESSION_RECORDS: u32 = 2;

/// Reader of an `AppendRequest`.
struct SessionReader {
    message: Bytes,
    stream: Bytes,
    expected_revision: Option<i64>,
    /// The stream that records name; empty if none does.
    named_stream: Bytes,
    records: RecordList,
}

impl MessageReader for SessionReader {
    fn read_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        bytes: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        match tag {
            1 => message_reader::read_text(wire_type, &mut self.stream, bytes, context),
            SESSION_RECORDS if self.records.refusal.is_some() => {
                message_reader::skip_nested(tag, wire_type, bytes, context)
            }
            SESSION_RECORDS => {
                let message = self.message.clone();
                let mut record = RecordReader::new(&message);
                message_reader::read_nested(wire_type, &mut record, bytes, context)?;
                let added = self.add_record(record);
                self.records.refuse(added);
                Ok(())
            }
            3 => {
                let revision = self.expected_revision.get_or_insert_default();
                encoding::sint64::merge(wire_type, revision, bytes, context)
            }
            _ => encoding::skip_field(wire_type, tag, bytes, context),
        }
    }
}

impl SessionReader {
    fn add_record(&mut self, record: RecordReader<'_>) -> Result<(), Status> {
        let stream = record.stream();
        if self.named_stream.is_empty() {
            self.named_stream = stream.clone();
        } else if !stream.is_empty() && *stream != self.named_stream {
            return Err(other_stream());
        }
        // Errors of records name the stream, which usually comes before them.
        let own = &mut self.records.streams[0].stream;
        if own.is_empty() && !proto_convert::is_name_too_long(&self.stream) {
            *own = message_reader::text_of(&self.stream).to_string();
        }
        self.records.add(0, record.into_record()?)
    }

    fn into_part(self) -> SessionPart {
        let SessionReader { stream, expected_revision, named_stream, mut records, .. } = self;
        // The name may come after the records.
        let name = message_reader::text_of(&stream);
        records.refuse(check_stream_name(name));
        if !named_stream.is_empty() && named_stream != stream {
            records.refuse(Err(other_stream()));
        }
        let memory_bytes = records.memory_bytes();
        let RecordList { mut streams, refusal, .. } = records;
        // A long name is not kept; the name is refused.
        let stream = name.chars().take(STREAM_NAME_BYTES_MAX + 3).collect();
        let records = refusal.map_or_else(|| Ok(streams.pop().unwrap_or_default()), Err);
        SessionPart { stream, expected_revision, records, memory_bytes }
    }
}

fn other_stream() -> Status {
    invalid(
        "a record of a session names another stream than its request; leave the record's stream \
         out",
    )
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use futures_util::FutureExt;
    use prost::Message;
    use umbel_env::Env;
    use umbel_proto::v2::streams::{AppendRecord, AppendRequest, SchemaInfo};

    use super::*;

    /// Story: an asynchronous worker drew the identifiers of 100,000 records one after the other.
    #[test]
    fn call_yields_while_many_records_get_identifiers() {
        let schema = SchemaInfo { format: 1, name: "Counted".to_string(), id: None };
        let given = "00000000-0000-1234-0000-000000000003";
        let record = |number: usize| AppendRecord {
            schema: Some(schema.clone()),
            record_id: (number == 1).then(|| given.to_string()),
            ..AppendRecord::default()
        };
        for (count, yields) in [(IDS_PER_SLICE, 0), (3 * IDS_PER_SLICE, 2)] {
            let (stream, records) = ("s".to_string(), (0..count).map(record).collect());
            let message = AppendRequest { stream, records, expected_revision: None };
            let part = SessionPart::from_bytes(message.encode_to_vec().into()).unwrap();
            let (mut records, entropy) = (part.records.unwrap(), Env::system().entropy);
            let mut ids = IdGenerator::new(&entropy);
            let mut setting = Box::pin(records.set_missing_ids(&mut ids));
            for _ in 0..yields {
                assert!((&mut setting).now_or_never().is_none());
            }
            setting.now_or_never().expect("it is done").unwrap();
            let ids = records.events.iter().map(|event| event.as_new_event().id);
            let unique: HashSet<EventId> = ids.collect();
            assert_eq!(unique.len(), count);
            assert!(unique.contains(&given.parse().unwrap()));
        }
    }
}
