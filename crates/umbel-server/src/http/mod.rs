//! What is answered to plain HTTP requests: whether the server is there, what it is, and what its
//! store does.

use http_body_util::Full;
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, WWW_AUTHENTICATE};
use hyper::http::HeaderValue;
use hyper::http::uri::Authority;
use hyper::{HeaderMap, Method, Response, StatusCode};
use prost::bytes::Bytes;
use tonic::body::Body;
use tonic::{Code, Status};
use umbel_events::Stats;

use crate::limits::HEADERS_MAX;
use crate::service::Service;
use crate::{metrics, pages};

const PING: &str = r#"{"text":"Ping request successfully handled"}"#;
const JSON: &str = "application/json";
const TEXT: &str = "text/plain; charset=utf-8";
/// Every path that is served.
pub const PATHS: [&str; 7] =
    ["/health/live", "/health/ready", "/ping", "/info", "/gossip", "/stats", "/metrics"];

/// The answer to a request that is no call.
pub async fn answer(
    service: &Service,
    method: &Method,
    path: &str,
    reached: Option<&Authority>,
) -> Response<Body> {
    if !PATHS.contains(&path) {
        let paths = PATHS.join(", ");
        let text = format!("there is nothing here but {paths} and the calls of its clients\n");
        return response(StatusCode::NOT_FOUND, Some(TEXT), text);
    }
    if !matches!(*method, Method::GET | Method::HEAD) {
        let text = "only GET is served here\n".to_string();
        let mut response = response(StatusCode::METHOD_NOT_ALLOWED, Some(TEXT), text);
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    match path {
        "/health/live" => response(StatusCode::NO_CONTENT, None, String::new()),
        "/health/ready" => ready(service),
        "/ping" => response(StatusCode::OK, Some(JSON), PING.to_string()),
        "/info" => response(StatusCode::OK, Some(JSON), pages::info(service).to_string()),
        "/gossip" => {
            let page = pages::gossip(service, reached).to_string();
            response(StatusCode::OK, Some(JSON), page)
        }
        _ => match service.store.stats().await {
            Ok(stats) if path == "/stats" => {
                response(StatusCode::OK, Some(JSON), pages::stats(&stats).to_string())
            }
            Ok(stats) => metrics(service, &stats).await,
            Err(error) => {
                let text = format!("the store does not answer: {error}\n");
                response(StatusCode::SERVICE_UNAVAILABLE, Some(TEXT), text)
            }
        },
    }
}

/// Whether calls should be sent here.
fn ready(service: &Service) -> Response<Body> {
    let why_not = match service.is_stopping() {
        true => Some("the server stops\n".to_string()),
        false => service
            .failure()
            .map(|reason| format!("nothing can be written: {reason}; start the server again\n")),
    };
    match why_not {
        Some(text) => response(StatusCode::SERVICE_UNAVAILABLE, Some(TEXT), text),
        None => response(StatusCode::NO_CONTENT, None, String::new()),
    }
}

async fn metrics(service: &Service, stats: &Stats) -> Response<Body> {
    let kv = match &service.kv {
        Some(kv) => kv.stats().await,
        None => None,
    };
    match metrics::text(stats, kv.as_ref(), service) {
        Ok(text) => response(StatusCode::OK, Some(metrics::CONTENT_TYPE), text),
        Err(error) => {
            let text = format!("the metrics could not be written: {error}\n");
            response(StatusCode::INTERNAL_SERVER_ERROR, Some(TEXT), text)
        }
    }
}

/// Whoever asks may not, or did not show who he is; `says_who` tells whether he tried to.
pub fn refused(refusal: &Status, says_who: bool) -> Response<Body> {
    let status = match refusal.code() {
        Code::PermissionDenied if says_who => StatusCode::FORBIDDEN,
        Code::PermissionDenied | Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let mut response = response(status, Some(TEXT), format!("{}\n", refusal.message()));
    if status == StatusCode::UNAUTHORIZED {
        let scheme = HeaderValue::from_static("Basic realm=\"umbel\", charset=\"UTF-8\"");
        response.headers_mut().insert(WWW_AUTHENTICATE, scheme);
    }
    response
}

/// A call that is no HTTP/2 request, or a path of a call without the content type of one.
pub fn no_call() -> Response<Body> {
    let text = "calls come by HTTP/2 with application/grpc\n".to_string();
    response(StatusCode::UNSUPPORTED_MEDIA_TYPE, Some(TEXT), text)
}

/// A request over HTTP/1.1 that does not say to whom it goes, or says so twice.
pub fn no_host() -> Response<Body> {
    let text = "a request over HTTP/1.1 has one host header\n".to_string();
    response(StatusCode::BAD_REQUEST, Some(TEXT), text)
}

/// A request with more headers than one may have.
pub fn many_headers(headers: usize) -> Response<Body> {
    let text = format!("a request has {HEADERS_MAX} headers at most, this one has {headers}\n");
    response(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, Some(TEXT), text)
}

/// What a request says it brings, without what is behind a semicolon, in small letters.
pub fn media_type(headers: &HeaderMap) -> Option<String> {
    let said = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    let kind = said.split_once(';').map_or(said, |(kind, _)| kind);
    Some(kind.trim().to_ascii_lowercase())
}

fn response(status: StatusCode, kind: Option<&'static str>, text: String) -> Response<Body> {
    let mut response = Response::new(Body::new(Full::new(Bytes::from(text))));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Some(kind) = kind {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    }
    response
}
