//! The console: web pages, and the JSON that they show.
//!
//! The pages are files embedded in the program. Callers are authenticated as in any call; a
//! browser prompts for name and password itself. Only the console's own pages can request changes:
//! pages of other sites cannot send the console's header. The check of the host name prevents DNS
//! rebinding, where another site's name resolves to this server.

use std::sync::Arc;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Body as _;
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, LOCATION,
    REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use hyper::http::uri::Authority;
use hyper::http::{HeaderName, HeaderValue};
use hyper::{HeaderMap, Method, Response, StatusCode};
use prost::bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::SemaphorePermit;
use tonic::Status;
use tonic::body::Body;

use crate::auth::authorization::Caller;
use crate::grpc::request_body::RequestBody;
use crate::http::console::console_data::{PageContent, PageData};
use crate::http::console::event_download::EventDownload;
use crate::http::console::query_string::QueryString;
use crate::limits::{
    CONSOLE_ACTION_BYTES_MAX, CONSOLE_BYTES_MAX, CONSOLE_REQUESTS_MAX, HEADERS_TIME,
    REDACTION_BYTES_MAX,
};
use crate::resources::connection_registry::Connection;
use crate::server_context::ServerContext;

use crate::http;
use crate::http::request_origin::{check_host, is_own_origin};
use crate::protocol::grpc_status;
use crate::telemetry::access_log::FailureReason;

pub mod console_actions;
pub mod console_data;
mod event_download;
mod event_search;
mod group_page;
mod group_settings;
mod live_tail;
mod log_page;
pub mod query_string;
pub mod redact;

type HttpRequest = hyper::Request<RequestBody>;
type HttpResponse = Response<Body>;

/// An embedded file: path, content type and content.
type StaticFile = (&'static str, &'static str, &'static str);

/// Embeds the scripts of the pages.
macro_rules! scripts {
    ($($name:literal),*) => {
        [$((
            concat!("/console/", $name),
            "text/javascript; charset=utf-8",
            include_str!(concat!("../../../console/", $name)),
        )),*]
    };
}

/// The page and its styles.
const DOCUMENTS: [StaticFile; 2] = [
    ("/console/", "text/html; charset=utf-8", include_str!("../../../console/index.html")),
    (
        "/console/console.css",
        "text/css; charset=utf-8",
        include_str!("../../../console/console.css"),
    ),
];
/// The scripts of the page.
const SCRIPTS: [StaticFile; 13] = scripts![
    "console.js",
    "event.js",
    "groups.js",
    "live.js",
    "overview.js",
    "page.js",
    "search.js",
    "store.js",
    "streams.js",
    "uplot.js",
    "users.js",
    "views.js",
    "work.js"
];

/// The embedded files.
fn static_files() -> impl Iterator<Item = &'static StaticFile> {
    DOCUMENTS.iter().chain(&SCRIPTS)
}

/// Paths of the embedded files.
#[cfg(test)]
pub fn static_paths() -> impl Iterator<Item = &'static str> {
    static_files().map(|(path, ..)| *path)
}

/// The policy for browsers: load only content from this server.
const CONTENT_SECURITY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; \
    frame-ancestors 'none'";
/// A header that pages of other sites cannot send.
const CSRF_HEADER: HeaderName = HeaderName::from_static("x-umbel-console");

/// Path prefix of the JSON endpoints.
pub const API_PREFIX: &str = "/console/api/";

/// Whether a path belongs to the console.
pub fn is_console_path(path: &str) -> bool {
    path == "/" || path == "/console" || path.starts_with("/console/")
}

/// Whether a path is that of an action, which makes a change.
pub fn is_action_path(path: &str) -> bool {
    let name = path.strip_prefix(API_PREFIX);
    name.is_some_and(|name| console_actions::ACTIONS.contains(&name))
}

/// Serves an authorized request that was sent to this host name.
pub async fn handle(
    service: Arc<ServerContext>,
    request: HttpRequest,
    reached: Option<Authority>,
) -> HttpResponse {
    if let Err(why) = check_host(&service, reached.as_ref()) {
        return text_response(StatusCode::FORBIDDEN, why);
    }
    let path = request.uri().path().to_string();
    let is_reading = matches!(*request.method(), Method::GET | Method::HEAD);
    if matches!(&*path, "/" | "/console") {
        return redirect();
    }
    if let Some((_, kind, text)) = static_files().find(|(page, ..)| *page == path) {
        return if is_reading { static_file(kind, text) } else { not_allowed("GET, HEAD") };
    }
    let caller = Caller::from_extensions(request.extensions());
    let Some(name) = path.strip_prefix(API_PREFIX) else { return not_found(&path) };
    if console_data::DATA_PATHS.contains(&name) {
        if !is_reading {
            return not_allowed("GET, HEAD");
        }
        let query = match QueryString::parse(request.uri().query().unwrap_or_default()) {
            Ok(query) => query,
            Err(status) => return action_response(Err(status)),
        };
        let peer = request.extensions().get::<Arc<Connection>>().cloned();
        return page_response(
            console_data::page_data(&service, (&caller, peer), name, &query).await,
        );
    }
    if console_actions::ACTIONS.contains(&name) {
        if request.method() != Method::POST {
            return not_allowed("POST");
        }
        let is_encrypted = service.is_encrypted;
        if let Err(why) = check_same_origin(request.headers(), reached.as_ref(), is_encrypted) {
            return text_response(StatusCode::FORBIDDEN, why);
        }
        let peer = request.extensions().get::<Arc<Connection>>().cloned();
        let (body, _permit) = match read_body(&service, request, name).await {
            Ok(read) => read,
            Err(status) => return action_response(Err(status)),
        };
        let done = console_actions::run_action(&service, (&caller, peer), name, body).await;
        return action_response(done);
    }
    not_found(&path)
}

/// Checks that the console's own pages sent the request.
fn check_same_origin(
    headers: &HeaderMap,
    reached: Option<&Authority>,
    is_encrypted: bool,
) -> Result<(), &'static str> {
    let is_json = http::media_type(headers).is_some_and(|kind| kind == "application/json");
    if headers.contains_key(CSRF_HEADER) && is_json && is_own_origin(headers, reached, is_encrypted)
    {
        return Ok(());
    }
    Err("only the console's own pages can make changes: send JSON with the header \
         x-umbel-console\n")
}

/// The body of an action. The permit counts the bodies in memory.
async fn read_body<'a>(
    service: &'a ServerContext,
    request: HttpRequest,
    action: &str,
) -> Result<(Bytes, SemaphorePermit<'a>), Status> {
    let permit = tokio::time::timeout(HEADERS_TIME, service.console_requests.acquire()).await;
    let Ok(Ok(permit)) = permit else {
        return Err(Status::resource_exhausted(format!(
            "{CONSOLE_REQUESTS_MAX} other requests of consoles are running; try again later"
        )));
    };
    let bytes_max = match action {
        "append" => CONSOLE_BYTES_MAX,
        redact::REDACT => REDACTION_BYTES_MAX,
        _ => CONSOLE_ACTION_BYTES_MAX,
    };
    let limited = Limited::new(request.into_body(), bytes_max).collect();
    let come = tokio::time::timeout(HEADERS_TIME, limited).await;
    let late = |_| Status::deadline_exceeded("the request did not arrive in time");
    let read = come.map_err(late)?.map_err(|error| match error.downcast::<Status>() {
        Ok(status) => grpc_status::as_client_error(*status),
        Err(_) => Status::invalid_argument(format!("the request is longer than {bytes_max} bytes")),
    })?;
    Ok((read.to_bytes(), permit))
}

/// Returns the response with a page's data, which holds its quota until it is written.
fn page_response(answer: Result<PageData, Status>) -> HttpResponse {
    let (mut response, reservation) = match answer {
        Ok((PageContent::Json(text), reservation)) => (json_response(text), reservation),
        Ok((PageContent::Download(file), reservation)) => (file_response(file), reservation),
        Err(status) => (action_response(Err(status)), None),
    };
    if let Some((held, reservation)) = reservation {
        let bytes = response.body().size_hint().exact().unwrap_or_default();
        held.charge(reservation, usize::try_from(bytes).unwrap_or(usize::MAX));
        response.extensions_mut().insert(held.unsent_page());
    }
    response
}

/// Returns a file that the browser saves and never shows.
fn file_response(file: EventDownload) -> HttpResponse {
    let EventDownload { content, file_name } = file;
    let mut response = respond(StatusCode::OK, "application/octet-stream", content);
    let disposition = format!("attachment; filename=\"{file_name}\"");
    // The name has no characters that a header must not have.
    if let Ok(disposition) = HeaderValue::from_str(&disposition) {
        response.headers_mut().insert(CONTENT_DISPOSITION, disposition);
    }
    response
}

fn action_response(answer: Result<Value, Status>) -> HttpResponse {
    match answer {
        Ok(value) => respond(StatusCode::OK, "application/json", value.to_string().into()),
        Err(status) => {
            let value = json!({ "error": status.message() });
            let code = http::failure_status(&status);
            let mut response = respond(code, "application/json", value.to_string().into());
            FailureReason::attach(&mut response, status.message());
            response
        }
    }
}

fn json_response(text: String) -> HttpResponse {
    respond(StatusCode::OK, "application/json", text.into())
}

fn static_file(kind: &'static str, text: &'static str) -> HttpResponse {
    respond(StatusCode::OK, kind, Bytes::from_static(text.as_bytes()))
}

fn text_response(status: StatusCode, text: &'static str) -> HttpResponse {
    respond(status, "text/plain; charset=utf-8", Bytes::from_static(text.as_bytes()))
}

fn not_found(path: &str) -> HttpResponse {
    let shown: String = path.chars().take(100).collect();
    let text = format!("the console has nothing at {}\n", shown.escape_default());
    respond(StatusCode::NOT_FOUND, "text/plain; charset=utf-8", text.into())
}

fn not_allowed(methods: &'static str) -> HttpResponse {
    let mut response = text_response(
        StatusCode::METHOD_NOT_ALLOWED,
        "this HTTP method is not allowed for this path\n",
    );
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(methods));
    response
}

fn redirect() -> HttpResponse {
    let mut response = text_response(StatusCode::SEE_OTHER, "the console is at /console/\n");
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
        (CONTENT_SECURITY_POLICY, CONTENT_SECURITY),
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
    use hyper::header::ORIGIN;

    use super::*;

    /// Story: a page with another scheme under the server's name could make changes.
    #[test]
    fn origin_must_have_a_scheme_of_the_server() {
        let host: Authority = "store.example:2113".parse().unwrap();
        let is_own = |scheme: &str, is_encrypted: bool| {
            let origin = format!("{scheme}://store.example:2113");
            let headers =
                [(CONTENT_TYPE, "application/json"), (CSRF_HEADER, "1"), (ORIGIN, origin.as_str())];
            let headers: HeaderMap = headers
                .into_iter()
                .map(|(name, value)| (name, HeaderValue::from_str(value).unwrap()))
                .collect();
            check_same_origin(&headers, Some(&host), is_encrypted).is_ok()
        };
        for (scheme, plain, encrypted) in [
            ("https", true, true),
            ("http", true, false),
            ("ftp", false, false),
            ("chrome-extension", false, false),
            ("", false, false),
        ] {
            assert_eq!((is_own(scheme, false), is_own(scheme, true)), (plain, encrypted));
        }
    }

    #[test]
    fn console_pages_are_small() {
        let bytes: usize = static_files().map(|(_, _, text)| text.len()).sum();
        assert!(bytes < 200_000, "{bytes} bytes, before they are compressed");
        for (path, _, text) in static_files() {
            if *path == "/console/uplot.js" {
                // The library has its address and its licence in a comment, and makes no requests.
                assert!(!text.contains("fetch(") && !text.contains("XMLHttp"), "{path}");
                continue;
            }
            assert!(!text.contains("http://") && !text.contains("https://"), "{path}");
            assert!(!text.contains("innerHTML") && !text.contains("style=\""), "{path}");
        }
    }
}
