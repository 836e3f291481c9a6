//! The route of `/streams` that appends events.

use std::sync::Arc;

use hyper::header::{CONTENT_TYPE, LOCATION};
use hyper::http::HeaderName;
use hyper::{HeaderMap, StatusCode};
use serde_json::json;
use serde_json::value::RawValue;
use umbel_events::limits::STREAM_NAME_BYTES_MAX;
use umbel_events::{Error, EventId, ExpectedVersion, WriteResult};
use umbel_proto::limits::MESSAGE_BYTES_MAX;

use crate::access_control::acl::StreamAction;
use crate::event_store::append_command::{AppendCommand, StreamEvents};
use crate::http;
use crate::http::api::api_request::{ApiRequest, ReceivedBody, encode_segment, unsupported_type};
use crate::http::api::api_response::{
    ApiError, ApiResult, HttpResponse, json_response, set_header,
};
use crate::http::api::event_list::{self, proposed_event};
use crate::protocol::{grpc_status, proto_convert};
use crate::server_context::ServerContext;
use crate::services::streams::append::EventBuffer;

/// Names of the header of the expected version.
pub const EXPECTED_VERSION: [&str; 2] = ["kurrent-expectedversion", "es-expectedversion"];
const EVENT_TYPE: [&str; 2] = ["kurrent-eventtype", "es-eventtype"];
const EVENT_ID: [&str; 2] = ["kurrent-eventid", "es-eventid"];
const CURRENT_VERSION: [&str; 2] = ["kurrent-currentversion", "es-currentversion"];
const ACCEPTED_TYPES: &str = "application/json or application/octet-stream for one event, or \
                              application/vnd.kurrent.events+json for a list";

/// Content of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    /// The data of one event, which is JSON.
    Json,
    /// The data of one event.
    Octets,
    /// A list of events.
    Events,
}

/// Properties of a single event, which headers have.
struct EventHead {
    id: Option<EventId>,
    kind: String,
}

/// Appends the events of a request.
pub async fn run(service: &Arc<ServerContext>, mut request: ApiRequest) -> ApiResult {
    let stream = stream_name(&request)?;
    let expected = expected_version(request.header(EXPECTED_VERSION)?)?;
    let content = content(request.headers())?;
    let head = event_head(&request, content)?;
    let caller = request.caller();
    service.authorizer.authorize(&service.store, &caller, StreamAction::Write, &stream).await?;
    let body = request.receive(service, MESSAGE_BYTES_MAX, service.partial_append_time).await?;
    let parse = {
        let service = Arc::clone(service);
        move || parse_events(&service, &body, content, head)
    };
    let EventBuffer { events, quota_share, .. } = run_blocking(parse).await?;
    let appended = StreamEvents { stream: stream.clone(), expected, events };
    let command = AppendCommand::to_stream(appended, quota_share);
    let result = service.store.appends().submit(command).await;
    match result.map_err(Error::into_first_conflict) {
        Ok(results) => Ok(created(&stream, &results[0])),
        Err(Error::WrongExpectedVersion { current, .. }) => Err(conflict(expected, current)),
        Err(error) => Err(grpc_status::status(&error).into()),
    }
}

/// The name of the stream that a request changes, which is the first parameter of its path.
pub fn stream_name(request: &ApiRequest) -> Result<String, ApiError> {
    let stream = request.parameter(0).to_string();
    grpc_status::check_not_index(&stream)?;
    if proto_convert::is_name_too_long(stream.as_bytes()) {
        let why = format!("the stream's name is longer than {STREAM_NAME_BYTES_MAX} bytes");
        return Err(ApiError::bad_request(why));
    }
    Ok(stream)
}

/// Runs a parser on a thread that may be busy: a long body takes time.
async fn run_blocking(
    parse: impl FnOnce() -> Result<EventBuffer, ApiError> + Send + 'static,
) -> Result<EventBuffer, ApiError> {
    let parsed = tokio::task::spawn_blocking(parse).await;
    parsed.unwrap_or_else(|_| Err(grpc_status::shutting_down().into()))
}

fn created(stream: &str, done: &WriteResult) -> HttpResponse {
    let value = json!({
        "streamId": stream,
        "lastEventNumber": done.last,
        "position": done.position.map(|position| position.to_string()),
    });
    let mut response = json_response(StatusCode::CREATED, &value);
    if let Some(last) = done.last {
        let path = format!("/streams/{}/{last}", encode_segment(stream));
        set_header(&mut response, LOCATION, &path);
    }
    response
}

/// The error of a stream that has another version than expected.
pub fn conflict(expected: ExpectedVersion, current: Option<u64>) -> ApiError {
    let shown = current.map_or("-1".to_string(), |current| current.to_string());
    let wanted = match expected {
        ExpectedVersion::Exact(revision) => format!("revision {revision}"),
        ExpectedVersion::NoStream => "no stream".to_string(),
        _ => "an existing stream".to_string(),
    };
    let message = format!(
        "Wrong expected EventNumber: the request expects {wanted}, the last revision is {shown} \
         (-1: no stream)"
    );
    with_current_version(ApiError::new(StatusCode::CONFLICT, message), current)
}

/// Adds the last revision of the stream to an error; `None` if there is no stream.
pub fn with_current_version(error: ApiError, current: Option<u64>) -> ApiError {
    let shown = current.map_or("-1".to_string(), |current| current.to_string());
    let mut error = error.with_detail("currentVersion", current.map_or(json!(-1), |it| json!(it)));
    for name in CURRENT_VERSION {
        error = error.with_header(HeaderName::from_static(name), &shown);
    }
    error
}

/// Parses KurrentDB's numbers: −2 any, −1 no stream, −4 an existing stream.
pub fn expected_version(text: Option<&str>) -> Result<ExpectedVersion, ApiError> {
    match text {
        None | Some("-2") => Ok(ExpectedVersion::Any),
        Some("-1") => Ok(ExpectedVersion::NoStream),
        Some("-4") => Ok(ExpectedVersion::Exists),
        Some(number) => number.parse().map(ExpectedVersion::Exact).map_err(|_| {
            ApiError::bad_request(
                "the header Kurrent-ExpectedVersion must be a revision, -2 (any), -1 (no stream) \
                 or -4 (existing stream)",
            )
        }),
    }
}

fn content(headers: &HeaderMap) -> Result<Content, ApiError> {
    let mut kinds = headers.get_all(CONTENT_TYPE).iter();
    let first = kinds.next();
    if kinds.any(|kind| Some(kind) != first) {
        let why = "the header Content-Type has different values; send one value";
        return Err(ApiError::bad_request(why));
    }
    let kind = http::media_type(headers);
    match kind.as_deref() {
        Some("application/json") => Ok(Content::Json),
        Some("application/octet-stream") => Ok(Content::Octets),
        Some("application/vnd.kurrent.events+json" | "application/vnd.eventstore.events+json") => {
            Ok(Content::Events)
        }
        _ => Err(unsupported_type(kind, ACCEPTED_TYPES)),
    }
}

/// The properties of a single event, from headers and path; `None` for a list.
fn event_head(request: &ApiRequest, content: Content) -> Result<Option<EventHead>, ApiError> {
    let kind = request.header(EVENT_TYPE)?.map(str::to_string);
    let in_path = Some(request.parameter(1)).filter(|id| !id.is_empty());
    let in_path = in_path.map(parse_id).transpose()?;
    let in_header = request.header(EVENT_ID)?.map(parse_id).transpose()?;
    if in_path.is_some() && in_header.is_some() && in_path != in_header {
        let why = "the path and the header Kurrent-EventId have different ids; send one of them";
        return Err(ApiError::bad_request(why));
    }
    let id = in_path.or(in_header);
    if content == Content::Events {
        if kind.is_some() || id.is_some() {
            let why = "each event of a list has its own eventType and eventId; send no headers \
                       for them, and no id in the path";
            return Err(ApiError::bad_request(why));
        }
        return Ok(None);
    }
    let missing = || {
        ApiError::bad_request(
            "the request has no event type: send the header Kurrent-EventType, or a list of \
             events as application/vnd.kurrent.events+json",
        )
    };
    Ok(Some(EventHead { id, kind: kind.ok_or_else(missing)? }))
}

fn parse_id(text: &str) -> Result<EventId, ApiError> {
    text.parse().map_err(|error: Error| ApiError::bad_request(error.to_string()))
}

/// Parses the events of a body.
fn parse_events(
    service: &ServerContext,
    body: &ReceivedBody,
    content: Content,
    head: Option<EventHead>,
) -> Result<EventBuffer, ApiError> {
    let mut buffer = EventBuffer::new(&service.append_quota);
    if let Some(EventHead { id, kind }) = head {
        let id = id.map_or_else(|| service.event_id(), Ok)?;
        if content == Content::Json {
            serde_json::from_slice::<&RawValue>(&body.bytes).map_err(|error| {
                ApiError::bad_request(format!("the event's data is not JSON: {error}"))
            })?;
        }
        let is_json = content == Content::Json;
        buffer.add(proposed_event(id, kind, is_json, (&body.bytes, b"")))?;
        return Ok(buffer);
    }
    let mut ids = service.id_generator();
    event_list::parse(&service.append_quota, &body.bytes, || ids.generate())
}
