//! Plain HTTP endpoints: health checks, server information and statistics of the store.

use std::sync::Arc;

use http_body_util::Full;
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, WWW_AUTHENTICATE};
use hyper::http::HeaderValue;
use hyper::http::uri::Authority;
use hyper::{HeaderMap, Method, Response, StatusCode};
use prost::bytes::Bytes;
use tonic::body::Body;
use tonic::{Code, Status};
use umbel_events::Error;

use crate::http::api::route_table::FIRST_SEGMENTS;
use crate::http::metrics::MetricReadings;
use crate::http::metrics::text_format::TextFormat;
use crate::limits::HEADERS_MAX;
use crate::protocol::grpc_status;
use crate::server_context::ServerContext;
use crate::services::node_info;
use crate::telemetry::access_log::FailureReason;

pub mod api;
pub mod console;
pub mod metrics;
pub mod request_origin;

const PING: &str = r#"{"text":"Ping request successfully handled"}"#;
const JSON: &str = "application/json";
const TEXT: &str = "text/plain; charset=utf-8";
/// All paths that are served.
pub const PATHS: [&str; 7] =
    ["/health/live", "/health/ready", "/ping", "/info", "/gossip", "/stats", "/metrics"];

/// The response to a request that is not a gRPC call.
pub async fn handle(
    service: &Arc<ServerContext>,
    method: &Method,
    path: &str,
    headers: &HeaderMap,
    reached: Option<&Authority>,
) -> Response<Body> {
    if !PATHS.contains(&path) {
        return response(StatusCode::NOT_FOUND, Some(TEXT), unserved_text());
    }
    if !matches!(*method, Method::GET | Method::HEAD) {
        let text = "this path serves only GET, HEAD\n".to_string();
        let mut response = response(StatusCode::METHOD_NOT_ALLOWED, Some(TEXT), text);
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    match path {
        "/health/live" => response(StatusCode::NO_CONTENT, None, String::new()),
        "/health/ready" => readiness(service),
        "/ping" => response(StatusCode::OK, Some(JSON), PING.to_string()),
        "/info" => response(StatusCode::OK, Some(JSON), node_info::info(service).to_string()),
        "/gossip" => {
            let page = node_info::gossip(service, reached).to_string();
            response(StatusCode::OK, Some(JSON), page)
        }
        "/stats" => match service.store.stats_and_usage(&service.env.resources).await {
            Ok((stats, _, disk)) => {
                let page = node_info::stats_page(&stats, disk.as_ref(), service);
                response(StatusCode::OK, Some(JSON), page.to_string())
            }
            Err(error) => unreadable(&error),
        },
        _ => match MetricReadings::read(service).await {
            Ok(readings) => metrics(service, readings, TextFormat::requested(headers)).await,
            Err(error) => unreadable(&error),
        },
    }
}

/// The text about a path that is not served, with those that are.
fn unserved_text() -> String {
    let (pages, routes) = (PATHS.join(", "), FIRST_SEGMENTS.join(", /"));
    format!(
        "this path is not served; the paths are {pages}, /console/, /{routes} and gRPC calls; \
         /openapi.json has all routes\n"
    )
}

/// The HTTP status of a failed request.
pub fn failure_status(status: &Status) -> StatusCode {
    match status.code() {
        _ if grpc_status::is_authentication_required(status) => StatusCode::UNAUTHORIZED,
        // The request cannot succeed before an operator makes space.
        _ if grpc_status::missing_space(status).is_some() => StatusCode::INSUFFICIENT_STORAGE,
        code => http_status(code),
    }
}

/// The HTTP status for a gRPC code.
fn http_status(code: Code) -> StatusCode {
    match code {
        // A client that cancelled sees no status.
        Code::InvalidArgument | Code::OutOfRange | Code::Cancelled => StatusCode::BAD_REQUEST,
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::AlreadyExists | Code::FailedPrecondition | Code::Aborted => StatusCode::CONFLICT,
        Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Code::DeadlineExceeded => StatusCode::REQUEST_TIMEOUT,
        Code::Unimplemented => StatusCode::NOT_IMPLEMENTED,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// Returns the readiness of the server: whether clients should send calls to it.
fn readiness(service: &ServerContext) -> Response<Body> {
    let why_not = match service.is_stopping() {
        true => Some("the server is stopping\n".to_string()),
        false => {
            service.failure().map(|reason| format!("writes fail: {reason}; restart the server\n"))
        }
    };
    match why_not {
        Some(text) => response(StatusCode::SERVICE_UNAVAILABLE, Some(TEXT), text),
        None => response(StatusCode::NO_CONTENT, None, String::new()),
    }
}

/// The response where the store has no statistics: it is closed or cannot be read.
fn unreadable(error: &Error) -> Response<Body> {
    let text = format!("the store's statistics could not be read: {error}\n");
    response(StatusCode::SERVICE_UNAVAILABLE, Some(TEXT), text)
}

/// Renders the metrics on another thread: with hundreds of consumer groups it takes milliseconds.
async fn metrics(
    service: &Arc<ServerContext>,
    readings: MetricReadings,
    format: TextFormat,
) -> Response<Body> {
    let service = Arc::clone(service);
    let rendering =
        tokio::task::spawn_blocking(move || metrics::render(&readings, &service, format));
    // An error of the task means that it panicked, or that the server stops.
    match rendering.await.unwrap_or(Err(std::fmt::Error)) {
        Ok(text) => response(StatusCode::OK, Some(format.content_type()), text),
        Err(error) => {
            let text = format!("the metrics could not be encoded: {error}\n");
            response(StatusCode::INTERNAL_SERVER_ERROR, Some(TEXT), text)
        }
    }
}

/// The response to a caller without access.
pub fn access_denied(refusal: &Status) -> Response<Body> {
    let status = failure_status(refusal);
    let mut response = response(status, Some(TEXT), format!("{}\n", refusal.message()));
    if status == StatusCode::UNAUTHORIZED {
        let scheme = HeaderValue::from_static("Basic realm=\"umbel\", charset=\"UTF-8\"");
        response.headers_mut().insert(WWW_AUTHENTICATE, scheme);
    }
    response
}

/// The response to a gRPC call without HTTP/2 or without the gRPC content type.
pub fn not_grpc() -> Response<Body> {
    let text = "calls need HTTP/2 and the content type application/grpc\n".to_string();
    response(StatusCode::UNSUPPORTED_MEDIA_TYPE, Some(TEXT), text)
}

/// The response to an HTTP/1.1 request without a host header, or with several.
pub fn missing_host() -> Response<Body> {
    let text = "a request over HTTP/1.1 needs exactly one host header\n".to_string();
    response(StatusCode::BAD_REQUEST, Some(TEXT), text)
}

/// The response to a request with too many headers.
pub fn too_many_headers(headers: usize) -> Response<Body> {
    let text = format!("the request has {headers} headers; the limit is {HEADERS_MAX}\n");
    response(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, Some(TEXT), text)
}

/// The content type of a request in lower case, without parameters.
pub fn media_type(headers: &HeaderMap) -> Option<String> {
    let content_type = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    let kind = content_type.split_once(';').map_or(content_type, |(kind, _)| kind);
    Some(kind.trim().to_ascii_lowercase())
}

fn response(status: StatusCode, kind: Option<&'static str>, text: String) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    FailureReason::attach(&mut response, &text);
    *response.body_mut() = Body::new(Full::new(Bytes::from(text)));
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Some(kind) = kind {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    }
    response
}
