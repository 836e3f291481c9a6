//! [`RequestMessage`]: a request message, with a bound of its memory after decoding.
//!
//! An empty event takes 2 bytes of a message but over a hundred bytes of memory: 17 MiB of empty
//! events decode to a gigabyte. Messages without events or values must therefore be short. In a
//! long message, all elements of repeated fields are counted before it is decoded.

use prost::Message;
use prost::encoding::{WireType, decode_key, decode_varint};
use prost_types::Value;
use umbel_proto::kv::{
    BatchRequest, Condition, CreateKeyspaceRequest, DeleteRequest, DropKeyspaceRequest, GetRequest,
    MultiGetRequest, Operation, PutRequest, ScanRequest, WatchRequest,
};
use umbel_proto::shared::Uuid;
use umbel_proto::streams::append_req::ProposedMessage;
use umbel_proto::streams::{AppendReq, BatchAppendReq, DeleteReq, ReadReq};
use umbel_proto::v2::streams::{
    AppendRecord, AppendRecordsRequest, AppendRequest, ConsistencyCheck,
};
use umbel_proto::{monitoring, operations, persistent, projections, users};

use crate::limits::{DECODED_OVERHEAD_BYTES_MAX, SMALL_MESSAGE_BYTES_MAX};

/// A message that clients send.
pub trait RequestMessage: Message + Default {
    /// The repeated fields of a long message; `None` where the message must be short.
    const REPEATED_FIELDS: Option<RepeatedFields> = None;

    /// Checks the length of a message; the error is the reason to refuse it.
    fn check_length(bytes: usize) -> Result<(), String> {
        if Self::REPEATED_FIELDS.is_some() || bytes <= SMALL_MESSAGE_BYTES_MAX {
            return Ok(());
        }
        Err(format!(
            "the message has {bytes} bytes, but a message of this call may have at most \
             {SMALL_MESSAGE_BYTES_MAX}"
        ))
    }

    /// Checks the memory that a message needs after decoding; the error is the reason to refuse it.
    fn check_fields(message: &[u8]) -> Result<(), String> {
        // A short message cannot have many elements.
        let parts = Self::REPEATED_FIELDS.filter(|_| message.len() > UNCHECKED_BYTES_MAX);
        match count_fields(message, parts.unwrap_or_default(), 0, &mut {
            DECODED_OVERHEAD_BYTES_MAX
        }) {
            Ok(()) => Ok(()),
            Err(RejectReason::TooLarge) => Err(format!(
                "a message of {} bytes has too many elements: decoded, its elements exceed \
                 {DECODED_OVERHEAD_BYTES_MAX} bytes of memory; send fewer elements in one message",
                message.len()
            )),
            Err(RejectReason::Malformed) => Err("a nested message ends within a field".to_string()),
        }
    }
}

/// The reason to refuse a message.
#[derive(Debug, PartialEq, Eq)]
enum RejectReason {
    /// The message would take too much memory.
    TooLarge,
    /// A nested message is malformed.
    Malformed,
}

/// The repeated fields of a message, at any depth. Each field has its tag, the memory of an element
/// besides the element's content, and the repeated fields of the element.
type RepeatedFields = &'static [RepeatedField];

/// A repeated field.
pub struct RepeatedField(u32, usize, RepeatedFields);

/// Longest message whose fields are not counted, since it decodes to some megabytes at most.
const UNCHECKED_BYTES_MAX: usize = 64 << 10;
/// Approximate overhead of a heap allocation.
const HEAP_BYTES: usize = 32;
/// Number of pairs for which a map allocates memory at its first insertion.
const MAP_CAPACITY_MIN: usize = 11;
/// Depth to which nested messages are decoded.
const DEPTH_MAX: usize = 100;

const fn element_bytes<T>(pieces: usize) -> usize {
    size_of::<T>() + pieces * HEAP_BYTES
}

/// Memory of a pair in a map, whose table is twice as large as its content at worst.
const fn map_entry_bytes<V>() -> usize {
    2 * size_of::<(String, V)>() + 2 * HEAP_BYTES
}

/// Memory of an element with this number of allocations and a map.
const fn bytes_with_map<T, V>(pieces: usize) -> usize {
    element_bytes::<T>(pieces + 1) + MAP_CAPACITY_MIN * size_of::<(String, V)>()
}

/// Metadata of an event: `type`, `content-type`, and keys that clients add.
static EVENT: [RepeatedField; 1] = [RepeatedField(2, map_entry_bytes::<String>(), &[])];
static APPEND: [RepeatedField; 1] = [RepeatedField(2, 0, &EVENT)];
static BATCH: [RepeatedField; 1] =
    [RepeatedField(3, bytes_with_map::<ProposedMessage, String>(1), &EVENT)];
static PROPERTY: [RepeatedField; 1] = [RepeatedField(2, 0, &VALUE)];
static STRUCT: [RepeatedField; 1] = [RepeatedField(1, map_entry_bytes::<Value>(), &PROPERTY)];
static LIST: [RepeatedField; 1] = [RepeatedField(1, element_bytes::<Value>(1), &VALUE)];
static VALUE: [RepeatedField; 2] =
    [RepeatedField(5, bytes_with_map::<Value, Value>(0), &STRUCT), RepeatedField(6, 0, &LIST)];
static RECORD: [RepeatedField; 1] = [RepeatedField(2, map_entry_bytes::<Value>(), &PROPERTY)];
/// A record has five allocations: an identifier, a schema name and identifier, data, and a stream.
const RECORD_BYTES: usize = bytes_with_map::<AppendRecord, Value>(5);
static SESSION: [RepeatedField; 1] = [RepeatedField(2, RECORD_BYTES, &RECORD)];
static RECORDS: [RepeatedField; 2] = [
    RepeatedField(1, RECORD_BYTES, &RECORD),
    RepeatedField(2, element_bytes::<ConsistencyCheck>(1), &[]),
];
static WRITES: [RepeatedField; 2] = [
    RepeatedField(1, element_bytes::<Operation>(2), &[]),
    RepeatedField(2, element_bytes::<Condition>(3), &[]),
];
static IDS: [RepeatedField; 1] = [RepeatedField(2, element_bytes::<Uuid>(1), &[])];
/// Event ids that a consumer acks or nacks. The reason of a nack may be long, and is cut.
static CONSUMER: [RepeatedField; 2] = [RepeatedField(2, 0, &IDS), RepeatedField(3, 0, &IDS)];
static KEYS: [RepeatedField; 1] = [RepeatedField(2, element_bytes::<Vec<u8>>(1), &[])];

macro_rules! request_messages {
    ($($question:ty $(: $parts:expr)?,)*) => {
        $(impl RequestMessage for $question {
            $(const REPEATED_FIELDS: Option<RepeatedFields> = Some($parts);)?
        })*
    };
}

request_messages! {
    (),
    AppendReq: &APPEND,
    AppendRecordsRequest: &RECORDS,
    AppendRequest: &SESSION,
    BatchAppendReq: &BATCH,
    BatchRequest: &WRITES,
    CreateKeyspaceRequest,
    DeleteReq,
    DeleteRequest,
    DropKeyspaceRequest,
    GetRequest,
    MultiGetRequest: &KEYS,
    PutRequest: &[],
    ReadReq,
    ScanRequest,
    WatchRequest,
    monitoring::StatsReq,
    operations::SetNodePriorityReq,
    operations::StartScavengeReq,
    operations::StopScavengeReq,
    persistent::CreateReq,
    persistent::DeleteReq,
    persistent::GetInfoReq,
    persistent::ListReq,
    persistent::ReadReq: &CONSUMER,
    persistent::ReplayParkedReq,
    projections::CreateReq,
    projections::ProjectionReq,
    projections::StatisticsReq,
    users::ChangePasswordReq,
    users::LoginReq,
    users::ResetPasswordReq,
    users::UserReq,
}

/// Whether the limits of messages permit these bytes. For measurements only.
pub fn check<M: RequestMessage>(message: &[u8]) -> bool {
    M::check_length(message.len()).is_ok() && M::check_fields(message).is_ok()
}

/// The memory counted for a message, even if the message is short.
pub fn decoded_bytes<Q: RequestMessage>(message: &[u8]) -> usize {
    let mut left = usize::MAX;
    // A malformed message is counted up to the malformed field.
    let _ = count_fields(message, Q::REPEATED_FIELDS.unwrap_or_default(), 0, &mut left);
    usize::MAX - left
}

/// The memory counted for this number of events with two metadata entries each.
pub const fn events_bytes(count: usize) -> usize {
    count * (bytes_with_map::<ProposedMessage, String>(1) + 2 * map_entry_bytes::<String>())
}

/// The memory counted for this number of records without properties.
pub const fn records_bytes(count: usize) -> usize {
    count * RECORD_BYTES
}

/// Checks that the memory counted for a message fits into the remaining bytes. A malformed message
/// is accepted here, since the decoder stops at the same field. But a last field that exceeds its
/// nested message is refused here, since the decoder reads such a field before it stops.
fn count_fields(
    mut message: &[u8],
    parts: RepeatedFields,
    depth: usize,
    left: &mut usize,
) -> Result<(), RejectReason> {
    while !message.is_empty() && !parts.is_empty() && depth <= DEPTH_MAX {
        let Some((tag, field, rest)) = next_field(message) else {
            return if depth == 0 { Ok(()) } else { Err(RejectReason::Malformed) };
        };
        message = rest;
        if let Some(RepeatedField(_, bytes, parts)) = parts.iter().find(|part| part.0 == tag) {
            *left = left.checked_sub(*bytes).ok_or(RejectReason::TooLarge)?;
            count_fields(field, parts, depth + 1, left)?;
        }
    }
    Ok(())
}

/// Returns the tag of the first field, the field's content if it has a length, and the remaining
/// message.
fn next_field(mut message: &[u8]) -> Option<(u32, &[u8], &[u8])> {
    let (tag, kind) = decode_key(&mut message).ok()?;
    let bytes = match kind {
        WireType::Varint => decode_varint(&mut message).map(|_| 0),
        WireType::LengthDelimited => decode_varint(&mut message),
        WireType::SixtyFourBit => Ok(8),
        WireType::ThirtyTwoBit => Ok(4),
        WireType::StartGroup | WireType::EndGroup => Ok(0),
    };
    let (field, rest) = message.split_at_checked(usize::try_from(bytes.ok()?).ok()?)?;
    let field = if kind == WireType::LengthDelimited { field } else { &[] };
    Some((tag, field, rest))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use persistent::{Ack, Nack, ReadReqContent};
    use prost_types::{ListValue, Struct, value::Kind};

    use super::*;

    fn counted<Q: RequestMessage>(question: &Q) -> usize {
        decoded_bytes::<Q>(&question.encode_to_vec())
    }

    fn value(kind: Kind) -> Value {
        Value { kind: Some(kind) }
    }

    #[test]
    fn repeated_fields_are_counted_at_every_depth() {
        let text = |(key, value): (&str, &str)| (key.to_string(), value.to_string());
        let metadata: BTreeMap<_, _> = [("type", "A"), ("content-type", "B")].map(text).into();
        let event = ProposedMessage { metadata, ..ProposedMessage::default() };
        let batch = BatchAppendReq { proposed_messages: vec![event; 3], ..Default::default() };
        let event = bytes_with_map::<ProposedMessage, String>(1) + 2 * map_entry_bytes::<String>();
        assert_eq!(counted(&batch), 3 * event);

        let numbers = vec![value(Kind::NumberValue(7.0)); 5];
        let list = value(Kind::ListValue(ListValue { values: numbers }));
        let fields = [("a".to_string(), list.clone()), ("b".to_string(), list.clone())].into();
        let properties = [
            ("list".to_string(), list),
            ("struct".to_string(), value(Kind::StructValue(Struct { fields }))),
        ];
        let record = AppendRecord { properties: properties.into(), ..AppendRecord::default() };
        let checks = vec![ConsistencyCheck::default(); 9];
        let records = AppendRecordsRequest { records: vec![record.clone(); 2], checks };
        let of_struct = bytes_with_map::<Value, Value>(0) + 2 * map_entry_bytes::<Value>();
        let of_lists = 15 * element_bytes::<Value>(1);
        let of_record = RECORD_BYTES + 2 * map_entry_bytes::<Value>() + of_struct + of_lists;
        let of_checks = 9 * element_bytes::<ConsistencyCheck>(1);
        assert_eq!(counted(&records), 2 * of_record + of_checks);
        let session = AppendRequest { records: vec![record], ..AppendRequest::default() };
        assert_eq!(counted(&session), of_record);

        let (operations, conditions) = (vec![Operation::default(); 4], vec![Default::default(); 2]);
        let batch = BatchRequest { operations, conditions, sync: true };
        let of_writes = 4 * element_bytes::<Operation>(2) + 2 * element_bytes::<Condition>(3);
        assert_eq!(counted(&batch), of_writes);
        let get = MultiGetRequest { keys: vec![vec![1; 300]; 6], ..MultiGetRequest::default() };
        assert_eq!(counted(&get), 6 * element_bytes::<Vec<u8>>(1));
        let ids = vec![Uuid::default(); 7];
        let nack = ReadReqContent::Nack(Nack { ids: ids.clone(), ..Nack::default() });
        for message in [ReadReqContent::Ack(Ack { ids, ..Ack::default() }), nack] {
            let message = persistent::ReadReq { content: Some(message) };
            assert_eq!(counted(&message), 7 * element_bytes::<Uuid>(1));
        }
    }

    #[test]
    fn malformed_message_is_counted_up_to_the_error() {
        let event = [0x1a, 0];
        let mut bytes = event.repeat(5);
        for odd in [&[0x0b, 0x0c][..], &[0x09, 1, 2, 3, 4, 5, 6, 7, 8], &[0x0d, 1, 2, 3, 4]] {
            bytes.extend([odd, &event].concat());
        }
        for end in [&[][..], &[0x1a], &[0x1a, 9, 1], &[0x07], &[0x00, 1], &[0xff; 20]] {
            // The rest after it is not read.
            let rest = event.repeat(usize::from(!end.is_empty()));
            let message = [&bytes, end, &rest].concat();
            let bytes = decoded_bytes::<BatchAppendReq>(&message);
            assert_eq!(bytes, 8 * bytes_with_map::<ProposedMessage, String>(1), "{end:?}");
        }
        // Lists nested in lists: no decoder reads them to the end.
        let mut nested = Vec::new();
        for _ in 0..1000 {
            let mut outer = vec![0x32];
            prost::encoding::encode_varint(nested.len() as u64, &mut outer);
            let inner = [outer, nested].concat();
            nested = vec![0x0a];
            prost::encoding::encode_varint(inner.len() as u64, &mut nested);
            nested.extend(inner);
        }
        assert_eq!(count_fields(&nested, &LIST, 0, &mut { 1 << 30 }), Ok(()));
    }

    /// Story: the decoder reads the last field of a nested message even where it is longer than the
    /// message, and detects that only afterwards. The bytes beyond were counted as other fields.
    #[test]
    fn nested_message_with_overlong_last_field_is_rejected() {
        let values = [0x0a, 0].repeat(1000);
        let field = |tag: u8, bytes: &[u8]| {
            let mut out = vec![tag << 3 | 2];
            prost::encoding::encode_varint(bytes.len() as u64, &mut out);
            [&out, bytes].concat()
        };
        // A record of one byte: the tag of a property, whose content lies beyond the record.
        let property = field(2, &field(2, &field(6, &values)));
        let records = [&[0x0a, 1], &property[..]].concat();
        let refused = AppendRecordsRequest::decode(&records[..]).unwrap_err().to_string();
        assert!(refused.contains("delimited length exceeded"), "{refused}");
        assert_eq!(
            count_fields(&records, &RECORDS, 0, &mut { usize::MAX }),
            Err(RejectReason::Malformed)
        );
        // After a nested message that ends correctly, the next field is read.
        let good = [&field(1, &property)[..], &field(1, &[])].concat();
        assert!(AppendRecordsRequest::decode(&good[..]).is_ok());
        assert_eq!(count_fields(&good, &RECORDS, 0, &mut { usize::MAX }), Ok(()));
    }

    /// The largest allowed append fits into one message.
    #[test]
    fn largest_append_fits_in_one_message() {
        let events_max = umbel_events::limits::APPEND_EVENTS_MAX;
        let record = RECORD_BYTES + 4 * map_entry_bytes::<Value>();
        let event = bytes_with_map::<ProposedMessage, String>(1) + 2 * map_entry_bytes::<String>();
        for each in [record, event, element_bytes::<Operation>(2)] {
            assert!(events_max * each < DECODED_OVERHEAD_BYTES_MAX, "{}", events_max * each);
        }
        let largest = UNCHECKED_BYTES_MAX / 2 * RECORD_BYTES;
        assert!(largest < DECODED_OVERHEAD_BYTES_MAX / 4, "{largest}");
    }
}
