//! The console: pages for people, and the JSON they are made of.
//!
//! The pages are three files that are part of the program. Whoever asks for them is looked at as in
//! any call; a browser asks for name and password itself. What changes something must come from
//! these pages: other sites' pages cannot send its header, and a name that somebody else's server
//! answers for cannot be made to stand for this one.

use std::net::IpAddr;
use std::sync::Arc;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Body as _;
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, LOCATION, ORIGIN, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use hyper::http::uri::Authority;
use hyper::http::{HeaderName, HeaderValue};
use hyper::{HeaderMap, Method, Response, StatusCode};
use prost::bytes::Bytes;
use serde_json::{Value, json};
use tonic::body::Body;
use tonic::{Code, Status};

use crate::access::Caller;
use crate::asked::Asked;
use crate::console_query::Query;
use crate::console_views::Shown;
use crate::limits::{CONSOLE_BYTES_MAX, HEADERS_TIME};
use crate::peers::Peer;
use crate::service::Service;
use crate::{console_changes, console_views, failure, http};

type HttpRequest = hyper::Request<Asked>;
type HttpResponse = Response<Body>;

/// The pages: their paths, what they are, and their bytes.
const PAGES: [(&str, &str, &str); 3] = [
    ("/console/", "text/html; charset=utf-8", include_str!("../console/index.html")),
    ("/console/console.css", "text/css; charset=utf-8", include_str!("../console/console.css")),
    (
        "/console/console.js",
        "text/javascript; charset=utf-8",
        include_str!("../console/console.js"),
    ),
];
/// What a browser may do with them: nothing that does not come from here.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; \
    frame-ancestors 'none'";
/// The header that pages of other sites cannot send.
const OURS: HeaderName = HeaderName::from_static("x-umbel-console");
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// What the pages ask.
pub const VIEWS: &str = "/console/api/";

/// Whether a path is of the console.
pub fn is_ours(path: &str) -> bool {
    path == "/" || path == "/console" || path.starts_with("/console/")
}

/// Answers a request that was admitted, and came to this name.
pub async fn answer(
    service: Arc<Service>,
    request: HttpRequest,
    reached: Option<Authority>,
) -> HttpResponse {
    if let Err(why) = check_name(&service, reached.as_ref()) {
        return plain(StatusCode::FORBIDDEN, why);
    }
    let path = request.uri().path().to_string();
    let is_reading = matches!(*request.method(), Method::GET | Method::HEAD);
    if matches!(&*path, "/" | "/console") {
        return redirect();
    }
    if let Some((_, kind, text)) = PAGES.iter().find(|(page, ..)| *page == path) {
        return if is_reading { file(kind, text) } else { not_allowed("GET, HEAD") };
    }
    let caller = Caller::of(request.extensions());
    let Some(name) = path.strip_prefix(VIEWS) else { return not_found(&path) };
    if console_views::NAMES.contains(&name) {
        if !is_reading {
            return not_allowed("GET, HEAD");
        }
        let query = match Query::parse(request.uri().query().unwrap_or_default()) {
            Ok(query) => query,
            Err(status) => return told(Err(status)),
        };
        let peer = request.extensions().get::<Arc<Peer>>().cloned();
        return shown(console_views::view(&service, (&caller, peer), name, &query).await);
    }
    if console_changes::NAMES.contains(&name) {
        if request.method() != Method::POST {
            return not_allowed("POST");
        }
        if let Err(why) = check_change(request.headers(), reached.as_ref()) {
            return plain(StatusCode::FORBIDDEN, why);
        }
        let asked = match body(request).await {
            Ok(asked) => asked,
            Err(status) => return told(Err(status)),
        };
        return told(console_changes::change(&service, &caller, name, &asked).await);
    }
    not_found(&path)
}

/// A name under which no other site can be: addresses, this machine's own, and the one under which
/// clients are told to come. Where users are asked who they are, any: a browser sends no other
/// site's passwords.
fn check_name(service: &Service, reached: Option<&Authority>) -> Result<(), &'static str> {
    if service.access.has_users() {
        return Ok(());
    }
    let Some(authority) = reached else { return Ok(()) };
    let host = authority.host().trim_matches(['[', ']']);
    let is_told =
        service.advertise.as_ref().is_some_and(|(name, _)| name.eq_ignore_ascii_case(host));
    let is_own = host == "localhost" || host.ends_with(".localhost");
    if is_own || is_told || host.parse::<IpAddr>().is_ok() {
        return Ok(());
    }
    Err("this name could be anybody's: come by an address, by localhost, or by the name in \
         --advertise\n")
}

/// Whether the pages from here ask, and no other site's.
fn check_change(headers: &HeaderMap, reached: Option<&Authority>) -> Result<(), &'static str> {
    let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let is_json = http::media_type(headers).is_some_and(|kind| kind == "application/json");
    let is_from_here = text(&FETCH_SITE).is_none_or(|site| site == "same-origin");
    let host = reached.map_or("", Authority::as_str);
    let is_origin = text(&ORIGIN).is_none_or(|origin| {
        origin.split_once("://").is_some_and(|(_, authority)| authority == host)
    });
    if headers.contains_key(OURS) && is_json && is_from_here && is_origin {
        return Ok(());
    }
    Err("changes come from the console's own pages only: as JSON, with the header \
         x-umbel-console\n")
}

/// What a request to change something says.
async fn body(request: HttpRequest) -> Result<Value, Status> {
    let limited = Limited::new(request.into_body(), CONSOLE_BYTES_MAX).collect();
    let come = tokio::time::timeout(HEADERS_TIME, limited).await;
    let late = |_| Status::deadline_exceeded("the request did not come in time");
    let read = come.map_err(late)?.map_err(|error| match error.downcast::<Status>() {
        Ok(status) => failure::of_the_client(*status),
        Err(_) => {
            Status::invalid_argument(format!("the request has {CONSOLE_BYTES_MAX} bytes at most"))
        }
    })?;
    serde_json::from_slice(&read.to_bytes())
        .map_err(|error| Status::invalid_argument(format!("the request is no JSON: {error}")))
}

/// What a page shows. As long as it is not written its room is taken.
fn shown(answer: Result<Shown, Status>) -> HttpResponse {
    let (answer, room) =
        answer.map_or_else(|status| (Err(status), None), |(value, room)| (Ok(value), room));
    let mut response = told(answer);
    if let Some((held, room)) = room {
        let bytes = response.body().size_hint().exact().unwrap_or_default();
        held.hold(room, usize::try_from(bytes).unwrap_or(usize::MAX));
        response.extensions_mut().insert(held.unsent());
    }
    response
}

fn told(answer: Result<Value, Status>) -> HttpResponse {
    let (status, value) = match answer {
        Ok(value) => (StatusCode::OK, value),
        Err(status) => (http_status(status.code()), json!({ "error": status.message() })),
    };
    respond(status, "application/json", value.to_string().into())
}

fn http_status(code: Code) -> StatusCode {
    match code {
        // Who broke off sees none.
        Code::InvalidArgument | Code::OutOfRange | Code::Cancelled => StatusCode::BAD_REQUEST,
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::AlreadyExists | Code::FailedPrecondition | Code::Aborted => StatusCode::CONFLICT,
        Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Code::DeadlineExceeded => StatusCode::REQUEST_TIMEOUT,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

fn file(kind: &'static str, text: &'static str) -> HttpResponse {
    respond(StatusCode::OK, kind, Bytes::from_static(text.as_bytes()))
}

fn plain(status: StatusCode, text: &'static str) -> HttpResponse {
    respond(status, "text/plain; charset=utf-8", Bytes::from_static(text.as_bytes()))
}

fn not_found(path: &str) -> HttpResponse {
    let shown: String = path.chars().take(100).collect();
    let text = format!("the console has nothing at {}\n", shown.escape_default());
    respond(StatusCode::NOT_FOUND, "text/plain; charset=utf-8", text.into())
}

fn not_allowed(methods: &'static str) -> HttpResponse {
    let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "this is asked for otherwise\n");
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(methods));
    response
}

fn redirect() -> HttpResponse {
    let mut response = plain(StatusCode::SEE_OTHER, "the console is at /console/\n");
    response.headers_mut().insert(LOCATION, HeaderValue::from_static("/console/"));
    response
}

fn respond(status: StatusCode, kind: &'static str, body: Bytes) -> HttpResponse {
    let mut response = Response::new(Body::new(Full::new(body)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    for (name, value) in [
        (CONTENT_TYPE, kind),
        (CACHE_CONTROL, "no-store"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (REFERRER_POLICY, "no-referrer"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pages_are_small() {
        let bytes: usize = PAGES.iter().map(|(_, _, text)| text.len()).sum();
        assert!(bytes < 150_000, "{bytes} bytes, before they are compressed");
        for (path, _, text) in PAGES {
            // The one address is the name of a kind of element and is not fetched.
            let text = text.replace("http://www.w3.org/2000/svg", "");
            assert!(!text.contains("http://") && !text.contains("https://"), "{path}");
            assert!(!text.contains("innerHTML") && !text.contains("style=\""), "{path}");
        }
    }
}
