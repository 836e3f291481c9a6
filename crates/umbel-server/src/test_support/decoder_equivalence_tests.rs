//! Comparison of the readers of long messages with prost's decoder, which decodes all other
//! messages. Both get the same bytes: messages with repeated, unknown and misplaced fields, groups,
//! deep values, wrong wire types, and changed bytes. Checked properties:
//!
//! - A reader accepts a message if, and only if, the decoder does and the tree of the decoder is
//!   valid. A refused append may have malformed elements after the first invalid one.
//! - An accepted message has the same value.

use std::fmt::Debug;

use hyper::body::Bytes;
use proptest::prelude::*;
use prost::Message;
use prost_types::Value;
use prost_types::value::Kind;
use tonic::Status;
use umbel_events::NewEvent;
use umbel_proto::kv::{BatchRequest, Condition, MultiGetRequest, OperationKind, PutRequest};
use umbel_proto::persistent;
use umbel_proto::streams::append_req::{Content, ProposedMessage};
use umbel_proto::streams::{AppendReq, BatchAppendReq};
use umbel_proto::v2::streams::{AppendRecord, AppendRecordsRequest, AppendRequest, SchemaFormat};

use crate::grpc::message_limits::RequestMessage;
use crate::protocol::proto_convert::{self, ProposedEvent};
use crate::services::kv::BatchMessage;
use crate::services::streams::proposed_events::{AppendPart, BatchPart};
use crate::services::streams::record_part::{RecordsMessage, SessionPart};

/// The type of a field.
#[derive(Clone, Copy)]
enum FieldType {
    Varint,
    Float,
    Text(&'static [&'static str]),
    Message(&'static [Field]),
    /// A `google.protobuf.Value`, which may contain others.
    Value,
}

type Field = (u32, FieldType);

use FieldType::{Float, Text, Varint};

const UUID: &str = "00000000-0000-1234-0000-000000000003";
const NAMES: [&str; 4] = ["cart", "", "käse", "a\0"];
const HALVES: [Field; 2] = [(1, Varint), (2, Varint)];
const IDS: [Field; 2] = [
    (1, FieldType::Message(&HALVES)),
    (2, Text(&[UUID, UUID, UUID, UUID, UUID, UUID, UUID, "7", ""])),
];
const NAME: [Field; 1] = [(3, Text(&NAMES))];
const TYPE_PAIR: [Field; 2] = [(1, Text(&["type"])), (2, Text(&["Opened", "Closed", ""]))];
const CONTENT_PAIR: [Field; 2] =
    [(1, Text(&["content-type"])), (2, Text(&["application/json", "text", ""]))];
const TEXT_PAIR: [Field; 2] = [
    (1, Text(&["other", "type", "content-type", ""])),
    (2, Text(&["Opened", "application/json", ""])),
];
const EVENT: [Field; 7] = [
    (1, FieldType::Message(&IDS)),
    (2, FieldType::Message(&TYPE_PAIR)),
    (2, FieldType::Message(&CONTENT_PAIR)),
    (2, FieldType::Message(&TEXT_PAIR)),
    (3, Text(&NAMES)),
    (4, Text(&NAMES)),
    (1, FieldType::Message(&IDS)),
];
const NOTHING: [Field; 0] = [];
const APPEND_OPTIONS: [Field; 4] = [
    (1, FieldType::Message(&NAME)),
    (2, Varint),
    (3, FieldType::Message(&NOTHING)),
    (4, FieldType::Message(&NOTHING)),
];
const APPEND: [Field; 3] = [
    (1, FieldType::Message(&APPEND_OPTIONS)),
    (2, FieldType::Message(&EVENT)),
    (2, FieldType::Message(&EVENT)),
];
const BATCH_OPTIONS: [Field; 5] = [
    (1, FieldType::Message(&NAME)),
    (2, Varint),
    (4, FieldType::Message(&NOTHING)),
    (6, FieldType::Message(&HALVES)),
    (7, FieldType::Message(&HALVES)),
];
const BATCH: [Field; 5] = [
    (1, FieldType::Message(&IDS)),
    (2, FieldType::Message(&BATCH_OPTIONS)),
    (3, FieldType::Message(&EVENT)),
    (3, FieldType::Message(&EVENT)),
    (4, Varint),
];
const KINDS: [Field; 4] = [(1, Varint), (2, Float), (3, Text(&NAMES)), (4, Varint)];
const PROPERTY: [Field; 2] = [(1, Text(&["p", "q", "", "$schema.name"])), (2, FieldType::Value)];
const SCHEMA: [Field; 4] =
    [(1, Varint), (2, Text(&["Opened", "Closed", ""])), (3, Text(&NAMES)), (2, Text(&["t"]))];
const RECORD: [Field; 7] = [
    (1, Text(&[UUID, "", UUID, UUID, UUID, "7"])),
    (2, FieldType::Message(&PROPERTY)),
    (2, FieldType::Message(&PROPERTY)),
    (3, FieldType::Message(&SCHEMA)),
    (3, FieldType::Message(&SCHEMA)),
    (4, Text(&NAMES)),
    (5, Text(&["cart", "cart", "", "till"])),
];
const CHECK: [Field; 2] = [(1, Text(&NAMES)), (2, Varint)];
const CHECKS: [Field; 1] = [(1, FieldType::Message(&CHECK))];
const RECORDS: [Field; 3] = [
    (1, FieldType::Message(&RECORD)),
    (1, FieldType::Message(&RECORD)),
    (2, FieldType::Message(&CHECKS)),
];
const SESSION: [Field; 4] = [
    (1, Text(&["cart", "cart", ""])),
    (2, FieldType::Message(&RECORD)),
    (2, FieldType::Message(&RECORD)),
    (3, Varint),
];
const ENTRY: [Field; 2] =
    [(1, Text(&["a", "b", "c", "a", "b", ""])), (2, Text(&["d", "e", "d", "e", ""]))];
const OPERATION: [Field; 4] = [
    (1, Text(&["users", "default", ""])),
    (2, FieldType::Message(&ENTRY)),
    (3, Text(&["k", "l", ""])),
    (4, FieldType::Message(&ENTRY)),
];
const CONDITION: [Field; 3] =
    [(1, Text(&["users", ""])), (2, Text(&["k", "k", ""])), (3, Text(&["v", ""]))];
const WRITES: [Field; 4] = [
    (1, FieldType::Message(&OPERATION)),
    (1, FieldType::Message(&OPERATION)),
    (2, FieldType::Message(&CONDITION)),
    (3, Varint),
];
const PUT: [Field; 4] = [(1, Text(&NAMES)), (2, Text(&NAMES)), (3, Text(&NAMES)), (4, Varint)];
const ACKS: [Field; 2] = [(1, Text(&NAMES)), (2, FieldType::Message(&IDS))];
const NACKS: [Field; 4] =
    [(1, Text(&NAMES)), (2, FieldType::Message(&IDS)), (3, Varint), (4, Text(&NAMES))];
const CONSUMER: [Field; 2] = [(2, FieldType::Message(&ACKS)), (3, FieldType::Message(&NACKS))];

/// Choices that build a message. A shorter list builds a simpler message.
struct Choices(std::vec::IntoIter<u8>);

impl Choices {
    /// A number below `count`.
    fn below(&mut self, count: usize) -> usize {
        usize::from(self.0.next().unwrap_or(0)) % count.max(1)
    }

    /// A choice that is rarely made.
    fn is_rare(&mut self) -> bool {
        self.below(256) > 254
    }

    fn message(&mut self, fields: &[Field], depth: usize) -> Vec<u8> {
        let mut message = Vec::new();
        // Most messages have each field, so that they are valid.
        if self.below(8) < 7 {
            fields.iter().for_each(|field| self.field(*field, depth, &mut message));
        }
        for _ in 0..self.below(4) {
            if fields.is_empty() || self.below(4) == 0 {
                let tag = 16 + self.below(3) as u32;
                self.unknown(tag, depth, &mut message);
            } else {
                let field = fields[self.below(fields.len())];
                self.field(field, depth, &mut message);
            }
        }
        message
    }

    fn field(&mut self, (tag, kind): Field, depth: usize, out: &mut Vec<u8>) {
        if self.is_rare() {
            return self.unknown(tag, depth, out);
        }
        match kind {
            Varint => {
                key(tag, 0, out);
                let numbers = [1, 2, 4, 3, 1, 1, 2, 0, 9, u64::MAX];
                prost::encoding::encode_varint(numbers[self.below(numbers.len())], out);
            }
            Float => {
                key(tag, 1, out);
                let numbers = [3.0, -0.5, 1e300, 0.0, f64::NAN];
                let number: f64 = numbers[self.below(numbers.len())];
                out.extend_from_slice(&number.to_le_bytes());
            }
            Text(texts) => {
                let text = texts[self.below(texts.len())].as_bytes();
                let text = if self.is_rare() { b"\xff" } else { text };
                content(tag, text, out);
            }
            FieldType::Message(fields) => {
                let message = self.message(fields, depth);
                content(tag, &message, out);
            }
            FieldType::Value => {
                let value = self.value(depth);
                content(tag, &value, out);
            }
        }
    }

    /// A value, perhaps of several kinds or nested deeply.
    fn value(&mut self, depth: usize) -> Vec<u8> {
        let mut value = Vec::new();
        for _ in 0..=self.below(3) {
            match self.below(8) {
                0 if depth < 4 => {
                    let pairs = [(1, FieldType::Message(&PROPERTY))];
                    let pairs = [pairs, pairs].concat();
                    let object = self.message(&pairs, depth + 1);
                    content(5, &object, &mut value);
                }
                1 if depth < 4 => {
                    let list = self.message(&[(1, FieldType::Value)], depth + 1);
                    content(6, &list, &mut value);
                }
                2 if self.is_rare() => {
                    // Near the limit of the depth.
                    let nested = (0..44 + self.below(8)).fold(Vec::new(), |inner, _| {
                        let (mut list, mut outer) = (Vec::new(), Vec::new());
                        content(1, &inner, &mut list);
                        content(6, &list, &mut outer);
                        outer
                    });
                    value.extend_from_slice(&nested);
                }
                _ => {
                    let kind = KINDS[self.below(KINDS.len())];
                    self.field(kind, depth, &mut value);
                }
            }
        }
        value
    }

    /// A field of any wire type.
    fn unknown(&mut self, tag: u32, depth: usize, out: &mut Vec<u8>) {
        match self.below(7) {
            0 => {
                key(tag, 0, out);
                out.push(self.below(128) as u8);
            }
            1 => [&tag_bytes(tag, 1)[..], &[7; 8]].concat().iter().for_each(|it| out.push(*it)),
            2 => [&tag_bytes(tag, 5)[..], &[7; 4]].concat().iter().for_each(|it| out.push(*it)),
            3 => content(tag, b"\x08\x01", out),
            4 => {
                // A group with fields, which may be nested deeply.
                let depths = [1, 2, 50, 95, 97, 99, 100, 101];
                let groups = depths[self.below(depths.len())];
                (0..groups).for_each(|_| key(tag, 3, out));
                self.message(&[(1, Varint)], depth).iter().for_each(|it| out.push(*it));
                (0..groups).for_each(|_| key(tag, 4, out));
            }
            5 if self.is_rare() => key(tag, self.below(8) as u32, out),
            _ => content(tag, &[], out),
        }
    }

    /// Changes some bytes of some messages.
    fn mutate(&mut self, message: &mut Vec<u8>) {
        if self.below(3) < 2 {
            return;
        }
        for _ in 0..=self.below(3) {
            let index = (self.below(256) * 256 + self.below(256)) % (message.len() + 1);
            match self.below(4) {
                0 => message.truncate(index),
                1 => message.insert(index, self.below(256) as u8),
                _ if index < message.len() => message[index] ^= 1 << self.below(8),
                _ => message.push(self.below(256) as u8),
            }
        }
    }
}

fn tag_bytes(tag: u32, wire_type: u32) -> Vec<u8> {
    let mut out = Vec::new();
    key(tag, wire_type, &mut out);
    out
}

fn key(tag: u32, wire_type: u32, out: &mut Vec<u8>) {
    prost::encoding::encode_varint(u64::from(tag << 3 | wire_type), out);
}

fn content(tag: u32, content: &[u8], out: &mut Vec<u8>) {
    key(tag, 2, out);
    prost::encoding::encode_varint(content.len() as u64, out);
    out.extend_from_slice(content);
}

/// Any message of this definition.
fn messages(fields: &'static [Field]) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..300).prop_map(move |choices| {
        let mut choices = Choices(choices.into_iter());
        let mut message = choices.message(fields, 0);
        choices.mutate(&mut message);
        message
    })
}

/// An event as the store gets it.
type Stored = (Option<[u8; 16]>, String, bool, Vec<u8>, Vec<u8>);

fn stored(event: &ProposedEvent) -> Stored {
    let NewEvent { id, kind, is_json, data, metadata } = event.as_new_event();
    (Some(id.0), kind.to_string(), is_json, data.to_vec(), metadata.to_vec())
}

/// The event of a decoded message; `None` if it is invalid.
fn event_of(message: &ProposedMessage) -> Option<Stored> {
    let id = proto_convert::event_id(message.id.as_ref()).ok()?;
    let kind = message.metadata.get("type")?.clone();
    let is_json = message.metadata.get("content-type")? == "application/json";
    let (data, metadata) = (message.data.to_vec(), message.custom_metadata.to_vec());
    Some((Some(id.0), kind, is_json, data, metadata))
}

/// The event of a decoded record; `None` if it is invalid. It has no identifier if none was sent.
fn record_of(record: &AppendRecord) -> Option<Stored> {
    let id = match record.record_id.as_deref().unwrap_or_default() {
        "" => None,
        text => Some(text.parse::<umbel_events::EventId>().ok()?.0),
    };
    let schema = record.schema.clone().unwrap_or_default();
    let format = match SchemaFormat::try_from(schema.format).ok()? {
        SchemaFormat::Unspecified => return None,
        SchemaFormat::Json => "Json",
        SchemaFormat::Protobuf => "Protobuf",
        SchemaFormat::Avro => "Avro",
        SchemaFormat::Bytes => "Bytes",
    };
    if schema.name.is_empty() {
        return None;
    }
    let json = |text: &str| serde_json::to_string(text).unwrap();
    let schema_id = schema.id.unwrap_or_default();
    let mut pairs = vec![format!("\"$schema.format\":{}", json(format))];
    if !schema_id.is_empty() {
        pairs.push(format!("\"$schema.id\":{}", json(&schema_id)));
    }
    pairs.push(format!("\"$schema.name\":{}", json(&schema.name)));
    for (key, value) in &record.properties {
        if !["$schema.name", "$schema.format"].contains(&key.as_str()) {
            pairs.push(format!("{}:{}", json(key), json_of(value)?));
        }
    }
    let metadata = format!("{{{}}}", pairs.join(",")).into_bytes();
    Some((id, schema.name, format == "Json", record.data.clone(), metadata))
}

fn json_of(value: &Value) -> Option<String> {
    Some(match value.kind.as_ref() {
        None | Some(Kind::NullValue(_)) => "null".to_string(),
        Some(Kind::BoolValue(value)) => value.to_string(),
        Some(Kind::StringValue(text)) => serde_json::to_string(text).unwrap(),
        Some(Kind::NumberValue(number)) if number.fract() == 0.0 && number.abs() < 1e15 => {
            (*number as i64).to_string()
        }
        Some(Kind::NumberValue(number)) => serde_json::Number::from_f64(*number)?.to_string(),
        Some(Kind::ListValue(list)) => {
            let values: Option<Vec<String>> = list.values.iter().map(json_of).collect();
            format!("[{}]", values?.join(","))
        }
        Some(Kind::StructValue(fields)) => {
            let pair = |(key, value): (&String, &Value)| {
                Some(format!("{}:{}", serde_json::to_string(key).unwrap(), json_of(value)?))
            };
            let pairs: Option<Vec<String>> = fields.fields.iter().map(pair).collect();
            format!("{{{}}}", pairs?.join(","))
        }
    })
}

/// Sets the identifier of an event of the decoder to the one that stands for none.
fn with_id((id, kind, is_json, data, metadata): Stored) -> Stored {
    (Some(id.unwrap_or_default()), kind, is_json, data, metadata)
}

fn read<M: RequestMessage>(message: &[u8]) -> Result<M, Status> {
    M::from_bytes(Bytes::copy_from_slice(message))
}

/// Compares a message of which a reader makes nothing else with the decoder's message.
fn compare<M: RequestMessage + Message + Default + PartialEq + Debug>(message: &[u8]) {
    assert_eq!(read::<M>(message).ok(), M::decode(message).ok());
}

fn compare_append(message: &[u8]) -> bool {
    let decoded = AppendReq::decode(message).ok().map(|it| it.content);
    match (read(message), decoded) {
        (Err(_), None) => false,
        (Ok(AppendPart::Empty), Some(None)) => true,
        (Ok(AppendPart::Options(read)), Some(Some(Content::Options(options)))) => {
            assert_eq!(read, options);
            true
        }
        (Ok(AppendPart::Event(read)), Some(Some(Content::ProposedMessage(event)))) => {
            assert_eq!(read.as_ref().ok().map(|it| stored(it)), event_of(&event));
            read.is_ok()
        }
        (read, decoded) => panic!("{read:?} is {decoded:?}"),
    }
}

fn compare_batch(message: &[u8]) -> bool {
    let decoded = BatchAppendReq::decode(message).ok();
    let events = |batch: &BatchAppendReq| -> Option<Vec<Stored>> {
        batch.proposed_messages.iter().map(event_of).collect()
    };
    let valid = decoded.as_ref().and_then(events);
    match read::<BatchPart>(message) {
        Err(_) => assert!(decoded.is_none(), "{decoded:?}"),
        Ok(part) if part.events.refusal.is_some() => assert!(valid.is_none(), "{decoded:?}"),
        Ok(part) => {
            let decoded = decoded.expect("it is a message");
            let read: Vec<Stored> = part.events.events.iter().map(stored).collect();
            assert_eq!(Some(read), valid);
            assert_eq!(part.correlation_id, decoded.correlation_id);
            assert_eq!((part.options, part.is_final), (decoded.options, decoded.is_final));
            return true;
        }
    }
    false
}

fn compare_records(message: &[u8]) -> bool {
    let decoded = AppendRecordsRequest::decode(message).ok();
    let is_named = |record: &AppendRecord| !record.stream.is_empty();
    let valid = decoded.as_ref().and_then(|request| {
        let records = request.records.iter();
        let records = records.map(|record| {
            Some((record.stream.clone(), with_id(record_of(record).filter(|_| is_named(record))?)))
        });
        records.collect::<Option<Vec<_>>>().filter(|records| !records.is_empty())
    });
    match read::<RecordsMessage>(message) {
        Err(_) => assert!(decoded.is_none(), "{decoded:?}"),
        Ok(RecordsMessage(Err(_))) => assert!(valid.is_none(), "{decoded:?}"),
        Ok(RecordsMessage(Ok(part))) => {
            let mut valid = valid.expect("it is valid");
            for records in part.streams.into_inner() {
                let read: Vec<Stored> = records.events.iter().map(stored).collect();
                let (own, others) = valid.into_iter().partition(|it| it.0 == records.stream);
                let own: Vec<_> = Vec::into_iter(own).map(|(_, event)| event).collect();
                assert_eq!(read, own);
                valid = others;
            }
            assert!(valid.is_empty());
            assert_eq!(part.checks, decoded.expect("it is a message").checks);
            return true;
        }
    }
    false
}

fn compare_session(message: &[u8]) -> bool {
    let decoded = AppendRequest::decode(message).ok();
    let valid = decoded.as_ref().filter(|it| !it.stream.is_empty()).and_then(|request| {
        let records = request.records.iter().map(|record| {
            let is_own = record.stream.is_empty() || record.stream == request.stream;
            record_of(record).filter(|_| is_own).map(with_id)
        });
        records.collect::<Option<Vec<_>>>()
    });
    match read::<SessionPart>(message) {
        Err(_) => assert!(decoded.is_none(), "{decoded:?}"),
        Ok(SessionPart { records: Err(_), .. }) => assert!(valid.is_none(), "{decoded:?}"),
        Ok(part) => {
            let decoded = decoded.expect("it is a message");
            let read = part.records.map(|it| it.events.iter().map(stored).collect());
            assert_eq!(read.ok(), valid);
            assert_eq!(part.stream, decoded.stream);
            assert_eq!(part.expected_revision, decoded.expected_revision);
            return true;
        }
    }
    false
}

fn is_valid_write(kind: Option<&OperationKind>) -> bool {
    match kind {
        None => false,
        Some(OperationKind::Put(entry)) => !entry.key.is_empty(),
        Some(OperationKind::Delete(key)) => !key.is_empty(),
        Some(OperationKind::DeleteRange(range)) => range.start < range.end,
    }
}

fn compare_writes(message: &[u8]) -> bool {
    let decoded = BatchRequest::decode(message).ok();
    let valid = decoded.clone().filter(|batch| {
        let are_valid = batch.operations.iter().all(|it| is_valid_write(it.kind.as_ref()))
            && batch.conditions.iter().all(|it| !it.key.is_empty());
        are_valid && !batch.operations.is_empty()
    });
    match read::<BatchMessage>(message) {
        Err(_) => assert!(decoded.is_none(), "{decoded:?}"),
        Ok(BatchMessage(Err(_))) => assert!(valid.is_none(), "{decoded:?}"),
        Ok(BatchMessage(Ok(batch))) => {
            let BatchRequest { operations, conditions, sync } = valid.expect("it is valid");
            let operations = operations.into_iter().map(|it| (it.keyspace, it.kind.unwrap()));
            let conditions = conditions
                .into_iter()
                .map(|it| (it.keyspace.clone(), Condition { keyspace: String::new(), ..it }));
            assert_eq!(batch.parts(), (operations.collect(), conditions.collect(), sync));
            return true;
        }
    }
    false
}

/// Number of messages for each property; `UMBEL_DECODER_CASES` sets another one.
fn config() -> ProptestConfig {
    let cases = std::env::var("UMBEL_DECODER_CASES").ok().and_then(|text| text.parse().ok());
    ProptestConfig::with_cases(cases.unwrap_or(1000))
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn append_is_the_decoded_message(message in messages(&APPEND)) {
        compare_append(&message);
    }

    #[test]
    fn batch_is_the_decoded_message(message in messages(&BATCH)) {
        compare_batch(&message);
    }

    #[test]
    fn records_are_the_decoded_message(message in messages(&RECORDS)) {
        compare_records(&message);
    }

    #[test]
    fn session_is_the_decoded_message(message in messages(&SESSION)) {
        compare_session(&message);
    }

    #[test]
    fn writes_are_the_decoded_message(message in messages(&WRITES)) {
        compare_writes(&message);
    }

    #[test]
    fn put_is_the_decoded_message(message in messages(&PUT)) {
        compare::<PutRequest>(&message);
        compare::<MultiGetRequest>(&message);
    }

    #[test]
    fn acknowledgement_is_the_decoded_message(message in messages(&CONSUMER)) {
        compare::<persistent::ReadReq>(&message);
    }
}

/// The properties above say little if nearly all messages are refused.
#[test]
fn many_messages_are_accepted() {
    let mut random = umbel_sim::Random::new(7);
    type Compare = fn(&[u8]) -> bool;
    let cases: [(&'static [Field], Compare); 5] = [
        (&APPEND, compare_append),
        (&BATCH, compare_batch),
        (&RECORDS, compare_records),
        (&SESSION, compare_session),
        (&WRITES, compare_writes),
    ];
    for (fields, compare) in cases {
        let mut accepted = 0;
        for _ in 0..1000 {
            let choices: Vec<u8> = (0..300).map(|_| random.below(256) as u8).collect();
            let mut choices = Choices(choices.into_iter());
            let mut message = choices.message(fields, 0);
            choices.mutate(&mut message);
            accepted += usize::from(compare(&message));
        }
        assert!((50..950).contains(&accepted), "{accepted}");
    }
}
