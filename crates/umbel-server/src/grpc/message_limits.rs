//! [`Question`]: a message that clients send, and how much memory it may come to.
//!
//! An empty event takes 2 bytes of a message and over a hundred of memory: 17 MiB of them are a
//! gigabyte. So a message that carries no events or values is short, and of a long one everything
//! that there may be many of is counted before any of it is read.

use prost::Message;
use prost::encoding::{WireType, decode_key, decode_varint};
use prost_types::Value;
use umbel_proto::kv::{
    BatchRequest, Condition, CreateKeyspaceRequest, DeleteRequest, GetRequest, MultiGetRequest,
    Operation, PutRequest, ScanRequest, WatchRequest,
};
use umbel_proto::shared::Uuid;
use umbel_proto::streams::append_req::ProposedMessage;
use umbel_proto::streams::{AppendReq, BatchAppendReq, DeleteReq, ReadReq};
use umbel_proto::v2::streams::{
    AppendRecord, AppendRecordsRequest, AppendRequest, ConsistencyCheck,
};
use umbel_proto::{monitoring, operations, persistent, projections, users};

use crate::limits::{PARTS_BYTES_MAX, SHORT_BYTES_MAX};

/// A message that clients send.
pub trait Question: Message + Default {
    /// What a long one may have many of; `None` where none may be long.
    const PARTS: Option<Parts> = None;

    /// Why a message of so many bytes may not come.
    fn refuse_length(bytes: usize) -> Result<(), String> {
        if Self::PARTS.is_some() || bytes <= SHORT_BYTES_MAX {
            return Ok(());
        }
        Err(format!("a message of this call has {bytes} bytes, but may have {SHORT_BYTES_MAX}"))
    }

    /// Why a message that came is not read.
    fn refuse_parts(message: &[u8]) -> Result<(), String> {
        // A short one cannot have many.
        let parts = Self::PARTS.filter(|_| message.len() > UNCOUNTED_BYTES_MAX);
        match count(message, parts.unwrap_or_default(), 0, &mut { PARTS_BYTES_MAX }) {
            Ok(()) => Ok(()),
            Err(Odd::Many) => Err(format!(
                "a message of {} bytes has so many parts that they would take more than \
                 {PARTS_BYTES_MAX} bytes of memory; send fewer in one message",
                message.len()
            )),
            Err(Odd::Broken) => Err("a message within another ends within a field".to_string()),
        }
    }
}

/// Why a message is not read.
#[derive(Debug, PartialEq, Eq)]
enum Odd {
    /// It would take too much memory.
    Many,
    /// A message in it is none.
    Broken,
}

/// The fields of a message that there may be many of, at whatever depth: the tag of each, the
/// bytes of memory that each takes beside what it says, and what it has many of itself.
type Parts = &'static [Part];

/// One of these fields.
pub struct Part(u32, usize, Parts);

/// A message of no more bytes is not counted: what it holds is some megabytes at most.
const UNCOUNTED_BYTES_MAX: usize = 64 << 10;
/// What a piece of memory of its own costs, about.
const HEAP_BYTES: usize = 32;
/// The pairs for which a map makes room with the first one.
const PAIRS: usize = 11;
/// Messages within messages are read to this depth.
const DEPTH_MAX: usize = 100;

const fn bytes_of<T>(pieces: usize) -> usize {
    size_of::<T>() + pieces * HEAP_BYTES
}

/// A pair in a map, which is twice as large as what is in it at worst.
const fn pair<V>() -> usize {
    2 * size_of::<(String, V)>() + 2 * HEAP_BYTES
}

/// What has so many pieces of memory and a map.
const fn with_map<T, V>(pieces: usize) -> usize {
    bytes_of::<T>(pieces + 1) + PAIRS * size_of::<(String, V)>()
}

/// `type` and `content-type`, and whatever else somebody sends.
static EVENT: [Part; 1] = [Part(2, pair::<String>(), &[])];
static APPEND: [Part; 1] = [Part(2, 0, &EVENT)];
static BATCH: [Part; 1] = [Part(3, with_map::<ProposedMessage, String>(1), &EVENT)];
static PROPERTY: [Part; 1] = [Part(2, 0, &VALUE)];
static STRUCT: [Part; 1] = [Part(1, pair::<Value>(), &PROPERTY)];
static LIST: [Part; 1] = [Part(1, bytes_of::<Value>(1), &VALUE)];
static VALUE: [Part; 2] = [Part(5, with_map::<Value, Value>(0), &STRUCT), Part(6, 0, &LIST)];
static RECORD: [Part; 1] = [Part(2, pair::<Value>(), &PROPERTY)];
/// An identifier, a name and an identifier of a schema, data, and a stream.
const RECORD_BYTES: usize = with_map::<AppendRecord, Value>(5);
static SESSION: [Part; 1] = [Part(2, RECORD_BYTES, &RECORD)];
static RECORDS: [Part; 2] =
    [Part(1, RECORD_BYTES, &RECORD), Part(2, bytes_of::<ConsistencyCheck>(1), &[])];
static WRITES: [Part; 2] =
    [Part(1, bytes_of::<Operation>(2), &[]), Part(2, bytes_of::<Condition>(3), &[])];
static IDS: [Part; 1] = [Part(2, bytes_of::<Uuid>(1), &[])];
/// What a consumer does and does not acknowledge. The reason may be long: it is cut.
static CONSUMER: [Part; 2] = [Part(2, 0, &IDS), Part(3, 0, &IDS)];
static KEYS: [Part; 1] = [Part(2, bytes_of::<Vec<u8>>(1), &[])];

macro_rules! questions {
    ($($question:ty $(: $parts:expr)?,)*) => {
        $(impl Question for $question {
            $(const PARTS: Option<Parts> = Some($parts);)?
        })*
    };
}

questions! {
    (),
    AppendReq: &APPEND,
    AppendRecordsRequest: &RECORDS,
    AppendRequest: &SESSION,
    BatchAppendReq: &BATCH,
    BatchRequest: &WRITES,
    CreateKeyspaceRequest,
    DeleteReq,
    DeleteRequest,
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
    projections::NamedReq,
    projections::StatisticsReq,
    users::ChangePasswordReq,
    users::LoginReq,
    users::ResetPasswordReq,
    users::UserReq,
}

/// The bytes that are counted of what comes as a long message, whether it is one or not.
pub fn counted<Q: Question>(message: &[u8]) -> usize {
    let mut left = usize::MAX;
    // What is broken is counted as far as it is none.
    let _ = count(message, Q::PARTS.unwrap_or_default(), 0, &mut left);
    usize::MAX - left
}

/// The bytes that are counted for so many events with what they say of themselves.
pub const fn of_events(count: usize) -> usize {
    count * (with_map::<ProposedMessage, String>(1) + 2 * pair::<String>())
}

/// The same for records without properties.
pub const fn of_records(count: usize) -> usize {
    count * RECORD_BYTES
}

/// Whether what is counted of a message fits in the bytes that are left. What is no message is left
/// to whoever reads it, who gives up where this does; but where one within it ends in the middle of
/// a field he reads on beyond its end before he does, so that is refused here.
fn count(mut message: &[u8], parts: Parts, depth: usize, left: &mut usize) -> Result<(), Odd> {
    while !message.is_empty() && !parts.is_empty() && depth <= DEPTH_MAX {
        let Some((tag, field, behind)) = next(message) else {
            return if depth == 0 { Ok(()) } else { Err(Odd::Broken) };
        };
        message = behind;
        if let Some(Part(_, bytes, parts)) = parts.iter().find(|part| part.0 == tag) {
            *left = left.checked_sub(*bytes).ok_or(Odd::Many)?;
            count(field, parts, depth + 1, left)?;
        }
    }
    Ok(())
}

/// The tag of the first field, what it holds where that has a length, and what is behind it.
fn next(mut message: &[u8]) -> Option<(u32, &[u8], &[u8])> {
    let (tag, kind) = decode_key(&mut message).ok()?;
    let bytes = match kind {
        WireType::Varint => decode_varint(&mut message).map(|_| 0),
        WireType::LengthDelimited => decode_varint(&mut message),
        WireType::SixtyFourBit => Ok(8),
        WireType::ThirtyTwoBit => Ok(4),
        WireType::StartGroup | WireType::EndGroup => Ok(0),
    };
    let (field, behind) = message.split_at_checked(usize::try_from(bytes.ok()?).ok()?)?;
    let field = if kind == WireType::LengthDelimited { field } else { &[] };
    Some((tag, field, behind))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use persistent::{Ack, Nack, Said};
    use prost_types::{ListValue, Struct, value::Kind};

    use super::*;

    fn counted<Q: Question>(question: &Q) -> usize {
        super::counted::<Q>(&question.encode_to_vec())
    }

    fn value(kind: Kind) -> Value {
        Value { kind: Some(kind) }
    }

    #[test]
    fn what_there_may_be_many_of_is_counted_at_whatever_depth() {
        let text = |(key, value): (&str, &str)| (key.to_string(), value.to_string());
        let metadata: BTreeMap<_, _> = [("type", "A"), ("content-type", "B")].map(text).into();
        let event = ProposedMessage { metadata, ..ProposedMessage::default() };
        let batch = BatchAppendReq { proposed_messages: vec![event; 3], ..Default::default() };
        let event = with_map::<ProposedMessage, String>(1) + 2 * pair::<String>();
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
        let of_struct = with_map::<Value, Value>(0) + 2 * pair::<Value>();
        let of_lists = 15 * bytes_of::<Value>(1);
        let of_record = RECORD_BYTES + 2 * pair::<Value>() + of_struct + of_lists;
        let of_checks = 9 * bytes_of::<ConsistencyCheck>(1);
        assert_eq!(counted(&records), 2 * of_record + of_checks);
        let session = AppendRequest { records: vec![record], ..AppendRequest::default() };
        assert_eq!(counted(&session), of_record);

        let (operations, conditions) = (vec![Operation::default(); 4], vec![Default::default(); 2]);
        let batch = BatchRequest { operations, conditions, sync: true };
        let of_writes = 4 * bytes_of::<Operation>(2) + 2 * bytes_of::<Condition>(3);
        assert_eq!(counted(&batch), of_writes);
        let get = MultiGetRequest { keys: vec![vec![1; 300]; 6], ..MultiGetRequest::default() };
        assert_eq!(counted(&get), 6 * bytes_of::<Vec<u8>>(1));
        let ids = vec![Uuid::default(); 7];
        let nack = Said::Nack(Nack { ids: ids.clone(), ..Nack::default() });
        for said in [Said::Ack(Ack { ids, ..Ack::default() }), nack] {
            let said = persistent::ReadReq { content: Some(said) };
            assert_eq!(counted(&said), 7 * bytes_of::<Uuid>(1));
        }
    }

    #[test]
    fn what_is_no_message_is_counted_as_far_as_it_is_read() {
        let event = [0x1a, 0];
        let mut bytes = event.repeat(5);
        for odd in [&[0x0b, 0x0c][..], &[0x09, 1, 2, 3, 4, 5, 6, 7, 8], &[0x0d, 1, 2, 3, 4]] {
            bytes.extend([odd, &event].concat());
        }
        for end in [&[][..], &[0x1a], &[0x1a, 9, 1], &[0x07], &[0x00, 1], &[0xff; 20]] {
            // What stands behind is not read.
            let behind = event.repeat(usize::from(!end.is_empty()));
            let message = [&bytes, end, &behind].concat();
            let bytes = super::counted::<BatchAppendReq>(&message);
            assert_eq!(bytes, 8 * with_map::<ProposedMessage, String>(1), "{end:?}");
        }
        // A list in a list, and so on: nobody reads it to its end.
        let mut nested = Vec::new();
        for _ in 0..1000 {
            let mut outer = vec![0x32];
            prost::encoding::encode_varint(nested.len() as u64, &mut outer);
            let inner = [outer, nested].concat();
            nested = vec![0x0a];
            prost::encoding::encode_varint(inner.len() as u64, &mut nested);
            nested.extend(inner);
        }
        assert_eq!(count(&nested, &LIST, 0, &mut { 1 << 30 }), Ok(()));
    }

    /// Story: whoever reads a message within another reads its last field also where that is longer
    /// than the message, and finds out only then. What he read was counted as something else.
    #[test]
    fn one_whose_last_field_is_longer_than_itself_is_refused() {
        let values = [0x0a, 0].repeat(1000);
        let field = |tag: u8, bytes: &[u8]| {
            let mut out = vec![tag << 3 | 2];
            prost::encoding::encode_varint(bytes.len() as u64, &mut out);
            [&out, bytes].concat()
        };
        // A record of one byte: the tag of a property, which is beyond it.
        let property = field(2, &field(2, &field(6, &values)));
        let records = [&[0x0a, 1], &property[..]].concat();
        let refused = AppendRecordsRequest::decode(&records[..]).unwrap_err().to_string();
        assert!(refused.contains("delimited length exceeded"), "{refused}");
        assert_eq!(count(&records, &RECORDS, 0, &mut { usize::MAX }), Err(Odd::Broken));
        // Behind a message that ends where it should, nothing is strange.
        let good = [&field(1, &property)[..], &field(1, &[])].concat();
        assert!(AppendRecordsRequest::decode(&good[..]).is_ok());
        assert_eq!(count(&good, &RECORDS, 0, &mut { usize::MAX }), Ok(()));
    }

    /// Whatever an append may have fits.
    #[test]
    fn the_most_events_of_an_append_fit_in_one_message() {
        let most = umbel_events::limits::APPEND_EVENTS_MAX;
        let record = RECORD_BYTES + 4 * pair::<Value>();
        let event = with_map::<ProposedMessage, String>(1) + 2 * pair::<String>();
        for each in [record, event, bytes_of::<Operation>(2)] {
            assert!(most * each < PARTS_BYTES_MAX, "{}", most * each);
        }
        let largest = UNCOUNTED_BYTES_MAX / 2 * RECORD_BYTES;
        assert!(largest < PARTS_BYTES_MAX / 4, "{largest}");
    }
}
