//! [`ApiRequest`]: a request of the HTTP API: its path parameters, query, headers and body.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::{Body, Bytes};
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE};
use hyper::http::request::Parts;
use hyper::{HeaderMap, StatusCode};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde::de::DeserializeOwned;
use tonic::{Extensions, Status};

use crate::auth::authorization::Caller;
use crate::grpc::request_body::RequestBody;
use crate::http;
use crate::http::api::api_response::ApiError;
use crate::http::console::query_string::QueryString;
use crate::limits::{API_REQUEST_BYTES_MAX, ERROR_BYTES_MAX, HEADERS_TIME, INLINE_BYTES_MAX};
use crate::protocol::truncate_text::truncate_text;
use crate::resources::connection_registry::Connection;
use crate::resources::inbound_quota::{InboundQuota, QuotaShare};
use crate::server_context::ServerContext;

/// Bytes of a body that a route does not read, up to which it takes no quota. So full quotas do not
/// refuse `{}` of a shutdown.
const UNREAD_BODY_BYTES: usize = 16;

/// A request of the HTTP API.
#[derive(Debug)]
pub struct ApiRequest {
    head: Parts,
    query: QueryString,
    parameters: Vec<String>,
    body: RequestBody,
}

/// A received body, with its share of the quota of received bytes.
#[derive(Debug)]
pub struct ReceivedBody {
    /// The bytes.
    pub bytes: Vec<u8>,
    _share: QuotaShare,
}

impl ApiRequest {
    /// Takes a request whose path has these parameters, in the order of the path.
    ///
    /// # Errors
    /// A parameter or the query is not UTF-8.
    pub fn new(
        request: hyper::Request<RequestBody>,
        parameters: Vec<String>,
    ) -> Result<ApiRequest, ApiError> {
        let (head, body) = request.into_parts();
        let query = QueryString::parse(head.uri.query().unwrap_or_default())?;
        Ok(ApiRequest { head, query, parameters, body })
    }

    /// The parameter of the path with this index.
    pub fn parameter(&self, index: usize) -> &str {
        self.parameters.get(index).map_or("", String::as_str)
    }

    /// The query parameters.
    pub fn query(&self) -> &QueryString {
        &self.query
    }

    /// The headers.
    pub fn headers(&self) -> &HeaderMap {
        &self.head.headers
    }

    /// The value of the header with these names. KurrentDB's headers have two names, such as
    /// `Kurrent-EventType` and `ES-EventType`.
    ///
    /// # Errors
    /// The value is not UTF-8, or the request has different values.
    pub fn header(&self, names: [&str; 2]) -> Result<Option<&str>, ApiError> {
        let mut found = None;
        for name in names {
            for value in self.head.headers.get_all(name) {
                let wrong = |_| ApiError::bad_request(format!("the header {name} is not UTF-8"));
                let text = std::str::from_utf8(value.as_bytes()).map_err(wrong)?.trim();
                if found.is_some_and(|found| found != text) {
                    let names = names.join(" or ");
                    let why = format!("the header {names} has different values; send one value");
                    return Err(ApiError::bad_request(why));
                }
                found = Some(text);
            }
        }
        Ok(found)
    }

    /// The caller.
    pub fn caller(&self) -> Caller {
        Caller::from_extensions(&self.head.extensions)
    }

    /// The client's connection.
    pub fn connection(&self) -> Option<Arc<Connection>> {
        self.head.extensions.get::<Arc<Connection>>().cloned()
    }

    /// Converts to a request of a gRPC call, with its caller and connection.
    pub fn to_call<M>(&self, message: M) -> tonic::Request<M> {
        let mut request = tonic::Request::new(message);
        let extensions: &mut Extensions = request.extensions_mut();
        extensions.insert(self.caller());
        if let Some(connection) = self.connection() {
            extensions.insert(connection);
        }
        request
    }

    /// Receives a JSON body and parses it.
    ///
    /// # Errors
    /// The body has another content type, is too long, ends early, or is not of the type.
    pub async fn json<T: DeserializeOwned>(
        &mut self,
        service: &ServerContext,
    ) -> Result<T, ApiError> {
        match http::media_type(self.headers()) {
            Some(kind) if kind == "application/json" => {}
            kind => return Err(unsupported_type(kind, "application/json")),
        }
        let body = self.receive(service, API_REQUEST_BYTES_MAX, HEADERS_TIME).await?;
        // The limit of the body keeps the time below a millisecond.
        const { assert!(API_REQUEST_BYTES_MAX <= INLINE_BYTES_MAX) };
        parse_json(&body.bytes)
    }

    /// Receives a body that the route does not read. Only an empty one, `{}` and `null` are
    /// accepted: a member that is ignored would look like one that takes effect.
    ///
    /// # Errors
    /// The body has something in it, is too long, or ends early.
    pub async fn receive_nothing(&mut self, service: &ServerContext) -> Result<(), ApiError> {
        let limits = (API_REQUEST_BYTES_MAX, UNREAD_BODY_BYTES);
        let body = self.receive_within(service, limits, HEADERS_TIME).await?;
        if is_nothing(&body.bytes) {
            return Ok(());
        }
        Err(ApiError::bad_request(
            "this request takes no body; send none, or {}, and name parameters in the query",
        ))
    }

    /// Receives the body.
    ///
    /// # Errors
    /// The body is longer than `bytes_max`, takes longer than `time`, or ends early.
    pub async fn receive(
        &mut self,
        service: &ServerContext,
        bytes_max: usize,
        time: Duration,
    ) -> Result<ReceivedBody, ApiError> {
        self.receive_within(service, (bytes_max, 0), time).await
    }

    /// Receives a body of at most `bytes_max` bytes, which takes no quota up to `free_bytes`.
    async fn receive_within(
        &mut self,
        service: &ServerContext,
        (bytes_max, free_bytes): (usize, usize),
        time: Duration,
    ) -> Result<ReceivedBody, ApiError> {
        let length = self.head.headers.get(CONTENT_LENGTH).and_then(|text| text.to_str().ok());
        let length = length.and_then(|text| text.parse::<u64>().ok());
        if length.is_some_and(|length| length > bytes_max as u64) {
            return Err(too_long(bytes_max));
        }
        let limits = (bytes_max, free_bytes);
        let receiving = receive(&mut self.body, &service.receive_quota, limits);
        let late =
            |_| ApiError::new(StatusCode::REQUEST_TIMEOUT, "the request did not arrive in time");
        tokio::time::timeout(time, receiving).await.map_err(late)?
    }
}

/// Parses a JSON object. The error has only the beginning of the client's text.
///
/// # Errors
/// The bytes are no object, or not of the type.
pub fn parse_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    // The parser's error of another value would repeat the value.
    if bytes.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'{') {
        return Err(ApiError::bad_request("the body must be a JSON object"));
    }
    serde_json::from_slice(bytes).map_err(|error| {
        let text = error.to_string();
        let shown = truncate_text(&text, ERROR_BYTES_MAX);
        ApiError::bad_request(format!("the body is not the expected JSON: {shown}"))
    })
}

/// Whether a body has nothing in it: no bytes, `{}` or `null`.
fn is_nothing(body: &[u8]) -> bool {
    match body.trim_ascii() {
        b"" | b"null" => true,
        [b'{', members @ .., b'}'] => members.trim_ascii().is_empty(),
        _ => false,
    }
}

async fn receive(
    body: &mut (impl Body<Data = Bytes, Error = Status> + Unpin),
    quota: &Arc<InboundQuota>,
    (bytes_max, free_bytes): (usize, usize),
) -> Result<ReceivedBody, ApiError> {
    let mut received = ReceivedBody { bytes: Vec::new(), _share: quota.new_share() };
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        let bytes = received.bytes.len() + data.len();
        if bytes > bytes_max {
            return Err(too_long(bytes_max));
        }
        if bytes > free_bytes && !received._share.grow_to(bytes) {
            return Err(crate::protocol::grpc_status::receive_quota_exhausted().into());
        }
        received.bytes.extend_from_slice(&data);
    }
    Ok(received)
}

fn too_long(bytes_max: usize) -> ApiError {
    let message = format!("the request is longer than {bytes_max} bytes");
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, message)
}

/// The error of a body with a content type that a route does not accept.
pub fn unsupported_type(kind: Option<String>, accepted: &str) -> ApiError {
    let kind = kind.map_or("missing".to_string(), |kind| {
        kind.chars().take(100).collect::<String>().escape_default().to_string()
    });
    let name = CONTENT_TYPE;
    let message = format!("the header {name} is {kind}, but must be {accepted}");
    ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message)
}

/// Checks the percent-encoding of a path. A percent sign that encodes no byte would become part of
/// a name.
///
/// # Errors
/// A percent sign is not followed by two hex digits, or the decoded path is not UTF-8.
pub fn check_encoding(path: &str) -> Result<(), ApiError> {
    let is_byte = |rest: &str| {
        rest.as_bytes().get(..2).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    if !path.split('%').skip(1).all(is_byte) {
        return Err(ApiError::bad_request(
            "the path has a percent sign without two hex digits; write %25 for a percent sign",
        ));
    }
    match percent_decode_str(path).decode_utf8() {
        Ok(_) => Ok(()),
        Err(_) => Err(ApiError::bad_request("the path is not percent-encoded UTF-8")),
    }
}

/// Decodes a segment of a path; `None` if it is not UTF-8.
pub fn decode_segment(segment: &str) -> Option<String> {
    percent_decode_str(segment).decode_utf8().ok().map(|text| text.into_owned())
}

/// Encodes a text as a segment of a path.
pub fn encode_segment(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;

    use super::*;

    /// Story: uploads had filled the quota, and a shutdown with the body `{}` was refused.
    #[test]
    fn short_body_that_is_not_read_needs_no_quota() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let quota = Arc::new(InboundQuota::new(10));
        let mut uploads = quota.new_share();
        assert!(uploads.grow(10));
        let status = |text: &'static str, free_bytes: usize| {
            let body = Full::new(Bytes::from_static(text.as_bytes()));
            let mut body = body.map_err(|never| -> Status { match never {} });
            let received = runtime.block_on(receive(&mut body, &quota, (100, free_bytes)));
            received.map(|body| body.bytes.len()).map_err(|error| error.into_response().status())
        };
        assert_eq!(status("{}", UNREAD_BODY_BYTES), Ok(2));
        assert_eq!(status("                ", UNREAD_BODY_BYTES), Ok(16));
        let refused = Err(StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(status("                 ", UNREAD_BODY_BYTES), refused);
        assert_eq!(status("{}", 0), refused);
        assert_eq!(quota.used_bytes(), 10);
    }
}
