//! Decoders of what clients send and of what stands in streams that clients may write, for the
//! fuzz targets: each takes any bytes, and what it read must hold what its callers rely on.

use hyper::HeaderMap;
use hyper::header::AUTHORIZATION;
use hyper::http::HeaderValue;
use prost::Message;
use prost_types::{Value, value::Kind};
use umbel_events::{EventId, RecordedEvent};
use umbel_proto::kv::{BatchRequest, MultiGetRequest};
use umbel_proto::persistent::{self, CreateOptions, CreateReq, Said};
use umbel_proto::streams::append_req::{Content, ProposedMessage};
use umbel_proto::streams::{AppendReq, BatchAppendReq, ReadReq, read_req};
use umbel_proto::v2::streams::{AppendRecord, AppendRecordsRequest, AppendRequest};

use crate::acl::{self, Acl};
use crate::console_query::Query;
use crate::convert::{self, Proposed};
use crate::credentials::Basic;
use crate::deadline::Deadline;
use crate::filter_request::FilterRequest;
use crate::group_config::{self, GroupConfig};
use crate::group_key::GroupKey;
use crate::read_request::ReadRequest;
use crate::record::Record;
use crate::trace::TraceId;
use crate::{gates, group_keep, kv, oversize, question, users};

/// The longest stream that is sifted at once, and the limit of its messages.
const SIFTED_BYTES_MAX: usize = 1 << 16;
const MESSAGE_BYTES: usize = 64;

/// An event with this data, as if it stood in a stream.
fn event(kind: &str, data: &[u8]) -> RecordedEvent {
    RecordedEvent {
        stream: "$stored".to_string(),
        revision: 3,
        position: 4096,
        id: EventId([7; 16]),
        kind: kind.to_string(),
        is_json: true,
        created: 1,
        data: data.to_vec(),
        metadata: Vec::new(),
    }
}

/// The headers that a server reads: who asks, until when he waits, and of which trace it is. Behind
/// the question mark of a page stands the same input.
pub fn headers(input: &[u8]) {
    if let Ok(value) = HeaderValue::from_bytes(input) {
        for name in [AUTHORIZATION.as_str(), "grpc-timeout", "traceparent"] {
            let mut headers = HeaderMap::new();
            headers.insert(hyper::http::HeaderName::from_static(name), value.clone());
            if let Ok(Some(basic)) = Basic::read(&headers) {
                basic.check();
            }
            if let Some(trace) = TraceId::of(&headers) {
                let said = format!("00-{trace}-00f067aa0ba902b7-01");
                let said = HeaderValue::try_from(said).expect("hex digits are a value");
                headers.insert("traceparent", said);
                assert_eq!(TraceId::of(&headers), Some(trace), "it is told as it was read");
            }
            let _ = Deadline::of(&headers);
        }
    }
    if let Ok(text) = std::str::from_utf8(input)
        && let Ok(query) = Query::parse(text)
    {
        let _ = (query.text("stream").len(), query.number("from"));
    }
}

/// The metadata of a stream and the last event of `$settings`: who may do what.
pub fn rights(input: &[u8]) {
    let (first, second) = input.split_at(input.len() / 2);
    acl::check(&Acl::of_metadata(input), input);
    acl::check(&Acl::of_metadata(first), first);
    acl::check_defaults(input, second);
}

/// An event of a user's stream.
pub fn stored_user(input: &[u8]) {
    users::check(&event("$UserUpdated", input));
}

/// What is kept of groups of consumers: which there are, and how far one is; and which views are
/// stopped.
pub fn stored_settings(input: &[u8]) {
    if let Some(configs) = group_keep::parse_configs(&event("$PersistentConfig", input)) {
        for (key, config) in &configs {
            again(key, config);
        }
    }
    if let Some(gates) = gates::parse(&event("$viewsChanged", input)) {
        let again = gates::parse(&event("$viewsChanged", &gates::said(&gates)));
        assert_eq!(again, Some(gates), "what was read can be written and read again");
    }
    if let Ok(text) = std::str::from_utf8(input)
        && let Some(place) = group_config::parse_place(text)
    {
        for stream in [None, Some("cart".to_string())] {
            let key = GroupKey { stream, group: "group".to_string() };
            let said = group_config::place(&key, place);
            assert_eq!(group_config::parse_place(&said), Some(place), "{said}");
        }
    }
}

/// What a group is by now is what it is when its server starts again. All groups stand in one
/// event: one that cannot be read takes all others with it.
fn again(key: &GroupKey, config: &GroupConfig) {
    let said = config.said(key);
    let read = serde_json::from_slice(said.to_string().as_bytes()).expect("it is JSON");
    let (key_again, config_again) = GroupConfig::parse(&read).expect("it can be read again");
    assert_eq!((key, said), (&key_again, config_again.said(&key_again)));
}

/// Messages of clients: what a read, a group, a filter, an event, a record, a batch of keys and a
/// scan of them are to be.
pub fn requests(input: &[u8]) {
    kv::check(input);
    long(input);
    if let Ok(asked) = ReadReq::decode(input) {
        let _ = ReadRequest::read(asked.options);
    }
    if let Ok(asked) = read_req::FilterOptions::decode(input) {
        let _ = FilterRequest::read(asked);
    }
    if let Ok(asked) = CreateReq::decode(input) {
        group(asked.options);
    }
    if let Ok(asked) = CreateOptions::decode(input) {
        group(Some(asked));
    }
    if let Ok(message) = ProposedMessage::decode(input)
        && let Ok(event) = Proposed::read(message)
    {
        assert!(event.bytes() <= input.len() && event.held_bytes() >= event.bytes());
    }
    if let Ok(id) = umbel_proto::shared::Uuid::decode(input)
        && let Ok(known) = convert::event_id(Some(&id))
    {
        let said: EventId = known.to_string().parse().expect("it is a UUID");
        assert_eq!(said, known);
    }
    if let Ok(message) = AppendRecord::decode(input)
        && let Ok(record) = Record::read(message, || Ok(EventId([7; 16])))
    {
        let metadata: serde_json::Value =
            serde_json::from_slice(record.event().metadata).expect("metadata is JSON");
        assert!(metadata["$schema.name"].is_string() && metadata["$schema.format"].is_string());
    }
}

/// Long messages: whatever there are many of once one is read was counted before.
fn long(input: &[u8]) {
    if let Ok(batch) = BatchAppendReq::decode(input) {
        let events = batch.proposed_messages;
        let pairs: usize = events.iter().map(|event| event.metadata.len()).sum();
        let bytes = pairs * size_of::<(String, String)>() + size_of_val(&events[..]);
        assert!(question::counted::<BatchAppendReq>(input) >= bytes);
    }
    if let Ok(records) = AppendRecordsRequest::decode(input) {
        let bytes = records.records.iter().flat_map(|record| record.properties.values()).map(held);
        let bytes = bytes.sum::<usize>() + size_of_val(&records.records[..]);
        assert!(question::counted::<AppendRecordsRequest>(input) >= bytes);
    }
    if let Ok(session) = AppendRequest::decode(input) {
        let bytes = session.records.iter().flat_map(|record| record.properties.values()).map(held);
        let bytes = bytes.sum::<usize>() + size_of_val(&session.records[..]);
        assert!(question::counted::<AppendRequest>(input) >= bytes);
    }
    if let Ok(AppendReq { content: Some(Content::ProposedMessage(event)) }) =
        AppendReq::decode(input)
    {
        let bytes = event.metadata.len() * size_of::<(String, String)>();
        assert!(question::counted::<AppendReq>(input) >= bytes);
    }
    if let Ok(get) = MultiGetRequest::decode(input) {
        assert!(question::counted::<MultiGetRequest>(input) >= size_of_val(&get.keys[..]));
    }
    if let Ok(persistent::ReadReq { content: Some(Said::Ack(ack)) }) =
        persistent::ReadReq::decode(input)
    {
        let bytes = size_of_val(&ack.ids[..]);
        assert!(question::counted::<persistent::ReadReq>(input) >= bytes);
    }
    if let Ok(batch) = BatchRequest::decode(input) {
        let bytes = size_of_val(&batch.operations[..]) + size_of_val(&batch.conditions[..]);
        assert!(question::counted::<BatchRequest>(input) >= bytes);
    }
}

/// The bytes of a value with those in it.
fn held(value: &Value) -> usize {
    let inner = match &value.kind {
        Some(Kind::StructValue(fields)) => fields.fields.values().map(held).sum(),
        Some(Kind::ListValue(list)) => list.values.iter().map(held).sum(),
        _ => 0,
    };
    inner + size_of::<Value>()
}

fn group(options: Option<CreateOptions>) {
    if let Ok((key, config)) = GroupConfig::read(options) {
        again(&key, &config);
    }
}

/// The bytes of a call of batches, cut in pieces of every length: what goes on is the same.
pub fn batches(input: &[u8]) {
    let input = &input[..input.len().min(SIFTED_BYTES_MAX)];
    let Some((first, sent)) = input.split_first() else { return };
    let whole = oversize::sifted(sent, sent.len().max(1), MESSAGE_BYTES);
    let pieces = oversize::sifted(sent, usize::from(*first).max(1), MESSAGE_BYTES);
    assert_eq!(whole, pieces, "pieces of {first}");
    assert!(whole.len() <= sent.len(), "nothing is added");
}
