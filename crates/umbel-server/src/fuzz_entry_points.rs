//! Entry points for fuzz targets: decoders of client input and of streams that clients may write.
//! Each entry point accepts any bytes, and checks that the decoded value has the properties on
//! which its users rely.

use hyper::body::Bytes;
use hyper::header::AUTHORIZATION;
use hyper::http::HeaderValue;
use hyper::{HeaderMap, Method};
use prost::Message;
use umbel_events::limits::{EVENT_BYTES_MAX, METADATA_BYTES_MAX};
use umbel_events::{
    AppendRequest as StoreRequest, EventId, ExpectedVersion, NewEvent, RecordedEvent, StreamAppend,
};
use umbel_proto::kv::MultiGetRequest;
use umbel_proto::limits::MESSAGE_BYTES_MAX;
use umbel_proto::persistent::{self, CreateOptions, CreateReq};
use umbel_proto::streams::append_req::{Content, ProposedMessage};
use umbel_proto::streams::{AppendReq, BatchAppendReq, ReadReq, read_req};
use umbel_proto::v2::streams::{AppendRecord, AppendRecordsRequest, AppendRequest};

use crate::access_control::acl::{self, Acl, DefaultAcls};
use crate::access_control::users;
use crate::auth::basic_authentication::BasicCredentials;
use crate::consumer_groups::group_config::{self, GroupConfig};
use crate::consumer_groups::{dispatcher, group_config_log};
use crate::event_store::work_history::{self, WorkKind};
use crate::event_store::{auto_scavenge, system_projections};
use crate::grpc::message_limits::RequestMessage;
use crate::http::api::route_table::{self, RouteMatch};
use crate::http::api::{event_list, group_routes, user_routes};
use crate::http::console::console_actions;
use crate::http::console::query_string::QueryString;
use crate::limits::{
    API_REQUEST_BYTES_MAX, AUTO_SCAVENGE_BYTES_MAX, CONSOLE_BYTES_MAX, SMALL_MESSAGE_BYTES_MAX,
    WORK_RECORD_BYTES_MAX,
};
use crate::protocol::deadline::Deadline;
use crate::protocol::filter_request::FilterRequest;
use crate::protocol::group_key::GroupKey;
use crate::protocol::message_reader;
use crate::protocol::proto_convert::{self, EventReader, ProposedEvent};
use crate::services::kv;
use crate::services::kv::BatchMessage;
use crate::services::streams::new_record::RecordReader;
use crate::services::streams::oversized_messages;
use crate::services::streams::proposed_events::{AppendPart, BatchPart};
use crate::services::streams::read_request::ReadRequest;
use crate::services::streams::record_part::{RecordsMessage, SessionPart};
use crate::telemetry::trace_context::TraceId;

/// Longest message stream that is filtered at once, and the limit of its messages.
const FILTERED_BYTES_MAX: usize = 1 << 16;
const MESSAGE_BYTES: usize = 64;

/// A parser of bytes that clients send or store.
pub struct ClientParser {
    /// The content that the parser reads.
    pub name: &'static str,
    /// Most bytes that it gets.
    pub bytes_max: usize,
    /// Parses the bytes and drops the result.
    pub parse: fn(Bytes),
}

/// The parsers of client bytes, for measurements of their memory.
pub const CLIENT_PARSERS: [ClientParser; 24] = [
    ClientParser {
        name: "stream metadata, on its append",
        bytes_max: METADATA_BYTES_MAX,
        parse: |data| check_metadata("$$s", &data),
    },
    ClientParser {
        name: "`$settings`, on its append",
        bytes_max: METADATA_BYTES_MAX,
        parse: |data| check_metadata("$settings", &data),
    },
    ClientParser {
        name: "ACL in stream metadata",
        bytes_max: EVENT_BYTES_MAX,
        parse: |data| drop(Acl::from_metadata(&data)),
    },
    ClientParser {
        name: "default ACLs in `$settings`",
        bytes_max: EVENT_BYTES_MAX,
        parse: |data| drop(DefaultAcls::from_settings(&data)),
    },
    ClientParser {
        name: "user in `$user-…`",
        bytes_max: EVENT_BYTES_MAX,
        parse: |data| measured("$UserUpdated", &data, users::parse),
    },
    ClientParser {
        name: "groups in `$persistentSubscriptionConfig`",
        bytes_max: EVENT_BYTES_MAX,
        parse: |data| {
            measured(group_config_log::LIST_TYPE, &data, |it| {
                drop(group_config_log::parse_list(it));
            });
        },
    },
    ClientParser {
        name: "change of a group in `$persistentSubscriptionConfig`",
        bytes_max: EVENT_BYTES_MAX,
        parse: |data| {
            measured(group_config_log::CHANGE_TYPE, &data, |it| {
                drop(group_config_log::parse_change(it));
            });
        },
    },
    ClientParser {
        name: "checkpoint of a group",
        bytes_max: EVENT_BYTES_MAX,
        parse: |data| drop(serde_json::from_slice::<String>(&data)),
    },
    ClientParser {
        name: "projections in `$umbel-views`",
        bytes_max: EVENT_BYTES_MAX,
        parse: |data| {
            measured("$viewsChanged", &data, |it| {
                let _ = system_projections::parse(it);
            });
        },
    },
    ClientParser {
        name: "outcome in `$scavenges` or `$backups`",
        bytes_max: WORK_RECORD_BYTES_MAX,
        parse: |data| {
            measured("$scavengeCompleted", &data, |it| {
                drop(work_history::parse(WorkKind::Scavenge, it));
            });
        },
    },
    ClientParser {
        name: "settings in `$umbel-auto-scavenge`",
        bytes_max: AUTO_SCAVENGE_BYTES_MAX,
        parse: |data| {
            measured(auto_scavenge::CHANGED_TYPE, &data, |it| drop(auto_scavenge::parse(it)));
        },
    },
    ClientParser {
        name: "`$correlationId` in event metadata",
        bytes_max: EVENT_BYTES_MAX,
        parse: |data| {
            let _ = dispatcher::correlation_hash(&data, "s");
        },
    },
    ClientParser {
        name: "console, append",
        bytes_max: CONSOLE_BYTES_MAX,
        parse: |data| console_actions::parse_append(&data),
    },
    ClientParser {
        name: "HTTP, list of events",
        bytes_max: MESSAGE_BYTES_MAX,
        parse: |data| event_list::check(&data),
    },
    ClientParser {
        name: "HTTP, user",
        bytes_max: API_REQUEST_BYTES_MAX,
        parse: |data| user_routes::check(&data),
    },
    ClientParser {
        name: "HTTP, settings of a group",
        bytes_max: API_REQUEST_BYTES_MAX,
        parse: |data| group_routes::check(&data),
    },
    ClientParser {
        name: "message `AppendReq`",
        bytes_max: MESSAGE_BYTES_MAX,
        parse: decode::<AppendPart>,
    },
    ClientParser {
        name: "message `BatchAppendReq`",
        bytes_max: MESSAGE_BYTES_MAX,
        parse: decode::<BatchPart>,
    },
    ClientParser {
        name: "message `AppendRecordsRequest`, with the properties of its records",
        bytes_max: MESSAGE_BYTES_MAX,
        parse: decode::<RecordsMessage>,
    },
    ClientParser {
        name: "message `AppendRequest` of a session, with the properties of its records",
        bytes_max: MESSAGE_BYTES_MAX,
        parse: decode::<SessionPart>,
    },
    ClientParser {
        name: "message `BatchRequest` (keys and values)",
        bytes_max: MESSAGE_BYTES_MAX,
        parse: decode::<BatchMessage>,
    },
    ClientParser {
        name: "message `MultiGetRequest` (keys and values)",
        bytes_max: MESSAGE_BYTES_MAX,
        parse: decode::<MultiGetRequest>,
    },
    ClientParser {
        name: "messages of a consumer, such as acks",
        bytes_max: MESSAGE_BYTES_MAX,
        parse: decode::<persistent::ReadReq>,
    },
    ClientParser {
        name: "other messages, such as `ReadReq`",
        bytes_max: SMALL_MESSAGE_BYTES_MAX,
        parse: decode::<ReadReq>,
    },
];

fn check_metadata(stream: &str, data: &[u8]) {
    let event = [NewEvent::json(EventId([7; 16]), "$metadata", data)];
    let appends = [StreamAppend { stream, expected: ExpectedVersion::Any, events: &event }];
    drop(StoreRequest { appends: &appends, checks: &[] }.check_metadata());
}

/// Parses an event with this data. The copy of the data is the reader's.
fn measured(kind: &str, data: &[u8], parse: fn(&RecordedEvent)) {
    parse(&event(kind, data));
}

fn decode<M: RequestMessage>(data: Bytes) {
    if M::check_length(data.len()).is_ok() {
        drop(M::from_bytes(data));
    }
}

/// Builds an event with this data, as if read from a stream.
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

/// Decodes request headers: credentials, deadline and trace context. The query string of a console
/// page gets the same input.
pub fn headers(input: &[u8]) {
    if let Ok(value) = HeaderValue::from_bytes(input) {
        for name in [AUTHORIZATION.as_str(), "grpc-timeout", "traceparent"] {
            let mut headers = HeaderMap::new();
            headers.insert(hyper::http::HeaderName::from_static(name), value.clone());
            if let Ok(Some(basic)) = BasicCredentials::from_headers(&headers) {
                basic.assert_round_trip();
            }
            if let Some(trace) = TraceId::from_headers(&headers) {
                let written = format!("00-{trace}-00f067aa0ba902b7-01");
                let written =
                    HeaderValue::try_from(written).expect("hex digits are a valid header value");
                headers.insert("traceparent", written);
                assert_eq!(
                    TraceId::from_headers(&headers),
                    Some(trace),
                    "it is written as it was read"
                );
            }
            let _ = Deadline::from_headers(&headers);
        }
    }
    if let Ok(text) = std::str::from_utf8(input)
        && let Ok(query) = QueryString::parse(text)
    {
        let _ = (query.text("stream").len(), query.number("from"));
    }
}

/// Decodes any bytes as a request of the HTTP API: as a path, and as the bodies of its routes.
pub fn http_requests(input: &[u8]) {
    if let Ok(path) = std::str::from_utf8(input) {
        for method in [Method::GET, Method::POST, Method::PUT, Method::DELETE] {
            if let RouteMatch::Route(route, parameters) = route_table::find(&method, path) {
                let wanted = route.path.matches('{').count();
                assert_eq!((parameters.len(), &route.method), (wanted, &method), "{path}");
                assert!(route_table::is_api_path(path), "{path}");
            }
        }
    }
    event_list::check(input);
    user_routes::check(input);
    group_routes::check(input);
}

/// Decodes the metadata of a stream and the last event of `$settings`, which hold permissions.
pub fn rights(input: &[u8]) {
    let (first, second) = input.split_at(input.len() / 2);
    acl::check(&Acl::from_metadata(input), input);
    acl::check(&Acl::from_metadata(first), first);
    acl::check_defaults(input, second);
}

/// Decodes an event of a user's stream.
pub fn stored_user(input: &[u8]) {
    users::check(&event("$UserUpdated", input));
}

/// Decodes stored state: the consumer groups, a group's checkpoint, and the stopped projections.
pub fn stored_settings(input: &[u8]) {
    let list = event(group_config_log::LIST_TYPE, input);
    for (key, config) in group_config_log::parse_list(&list).iter().flatten() {
        assert_round_trip(key, config);
    }
    let change = event(group_config_log::CHANGE_TYPE, input);
    if let Some((key, config)) = group_config_log::parse_change(&change) {
        let written = group_config_log::change_json(&key, config.as_ref(), 0);
        let again = event(group_config_log::CHANGE_TYPE, written.as_bytes());
        let (key_again, config_again) =
            group_config_log::parse_change(&again).expect("it can be read again");
        assert_eq!((&key, config.is_some()), (&key_again, config_again.is_some()));
        config.iter().for_each(|config| assert_round_trip(&key, config));
    }
    if let Some(projection_states) = system_projections::parse(&event("$viewsChanged", input)) {
        let again = system_projections::parse(&event(
            "$viewsChanged",
            &system_projections::encode(&projection_states),
        ));
        assert_eq!(again, Some(projection_states), "what was read can be written and read again");
    }
    if let Ok(text) = std::str::from_utf8(input)
        && let Some(position) = group_config::parse_position(text)
    {
        for stream in [None, Some("cart".to_string())] {
            let key = GroupKey { stream, group: "group".to_string() };
            let written = group_config::format_position(&key, position);
            assert_eq!(group_config::parse_position(&written), Some(position), "{written}");
        }
    }
}

/// Asserts that a group's settings are unchanged after a restart. All groups are stored in one
/// event, so unreadable settings of one group would make all groups unreadable.
fn assert_round_trip(key: &GroupKey, config: &GroupConfig) {
    let written = config.to_json(key);
    let again = GroupConfig::parse(&written.to_string());
    let (key_again, config_again) = again.expect("it can be read again");
    assert_eq!((key, written), (&key_again, config_again.to_json(&key_again)));
}

/// Decodes client messages: a read, a group, a filter, an event, a record, a key-value batch and a
/// scan.
pub fn requests(input: &[u8]) {
    kv::check_decoding(input);
    check_long_message(input);
    if let Ok(request) = ReadReq::decode(input) {
        let _ = ReadRequest::from_options(request.options);
    }
    if let Ok(request) = read_req::FilterOptions::decode(input) {
        let _ = FilterRequest::from_options(request);
    }
    if let Ok(request) = CreateReq::decode(input) {
        group(request.options);
    }
    if let Ok(request) = CreateOptions::decode(input) {
        group(Some(request));
    }
    let bytes = Bytes::copy_from_slice(input);
    let mut event = EventReader::default();
    let event = message_reader::read_message(bytes.clone(), &mut event).map(|()| event);
    assert_eq!(event.is_ok(), ProposedMessage::decode(input).is_ok());
    if let Ok(Ok(event)) = event.map(EventReader::into_event) {
        let message = ProposedMessage::decode(input).expect("it is a message");
        assert!(event.bytes() <= input.len() && event.memory_bytes() >= event.bytes());
        check_event(&event, &message);
    }
    if let Ok(id) = umbel_proto::shared::Uuid::decode(input)
        && let Ok(known) = proto_convert::event_id(Some(&id))
    {
        let written: EventId = known.to_string().parse().expect("it is a UUID");
        assert_eq!(written, known);
    }
    let mut record = RecordReader::new(&bytes);
    let record = message_reader::read_message(bytes.clone(), &mut record).map(|()| record);
    if let Ok(Ok(record)) = record.map(RecordReader::into_record) {
        let message = AppendRecord::decode(input).expect("it is a message");
        let event = record.into_event();
        let metadata: serde_json::Value =
            serde_json::from_slice(event.as_new_event().metadata).expect("metadata is JSON");
        assert!(metadata["$schema.name"].is_string() && metadata["$schema.format"].is_string());
        let kept = message.properties.keys().all(|key| metadata.get(key).is_some());
        assert!(kept, "a property is missing");
        assert_eq!(event.as_new_event().data, message.data);
    }
}

/// Checks that an event read from bytes is the event of the decoded message.
fn check_event(event: &ProposedEvent, message: &ProposedMessage) {
    let event = event.as_new_event();
    assert_eq!(Ok(event.id), proto_convert::event_id(message.id.as_ref()).map_err(drop));
    assert_eq!(Some(event.kind), message.metadata.get("type").map(String::as_str));
    assert_eq!((event.data, event.metadata), (&message.data[..], &message.custom_metadata[..]));
}

/// Checks long messages: what is read from the bytes is what a decoder reads.
fn check_long_message(input: &[u8]) {
    if let Ok(part) = BatchPart::from_bytes(Bytes::copy_from_slice(input)) {
        let batch = BatchAppendReq::decode(input).expect("it is a message");
        assert_eq!(part.correlation_id, batch.correlation_id);
        assert_eq!((part.options, part.is_final), (batch.options, batch.is_final));
        if part.events.refusal.is_none() {
            assert_eq!(part.events.events.len(), batch.proposed_messages.len());
            for (event, message) in part.events.events.iter().zip(&batch.proposed_messages) {
                check_event(event, message);
            }
        }
    }
    if let Ok(RecordsMessage(Ok(part))) = RecordsMessage::from_bytes(Bytes::copy_from_slice(input))
    {
        let request = AppendRecordsRequest::decode(input).expect("it is a message");
        let events: usize = part.streams.iter().map(|records| records.events.len()).sum();
        assert_eq!((events, part.checks), (request.records.len(), request.checks));
    }
    if let Ok(part) = SessionPart::from_bytes(Bytes::copy_from_slice(input))
        && let Ok(records) = part.records
    {
        let request = AppendRequest::decode(input).expect("it is a message");
        assert_eq!(records.events.len(), request.records.len());
        assert_eq!(
            (part.stream, part.expected_revision),
            (request.stream, request.expected_revision)
        );
    }
    if let Ok(AppendPart::Event(Ok(event))) = AppendPart::from_bytes(Bytes::copy_from_slice(input))
    {
        let content = AppendReq::decode(input).expect("it is a message").content;
        let Some(Content::ProposedMessage(message)) = content else { panic!("{content:?}") };
        check_event(&event, &message);
    }
    let _ = MultiGetRequest::from_bytes(Bytes::copy_from_slice(input));
    let _ = persistent::ReadReq::from_bytes(Bytes::copy_from_slice(input));
}

fn group(options: Option<CreateOptions>) {
    if let Ok((key, config)) = GroupConfig::from_request(options) {
        assert_round_trip(&key, &config);
    }
}

/// Filters the bytes of a batch call, cut into pieces of every length: the output is the same.
pub fn batches(input: &[u8]) {
    let input = &input[..input.len().min(FILTERED_BYTES_MAX)];
    let Some((first, sent)) = input.split_first() else { return };
    let unsplit = oversized_messages::filter_bytes(sent, sent.len().max(1), MESSAGE_BYTES);
    let pieces = oversized_messages::filter_bytes(sent, usize::from(*first).max(1), MESSAGE_BYTES);
    assert_eq!(unsplit, pieces, "pieces of {first}");
    assert!(unsplit.len() <= sent.len(), "nothing is added");
}
