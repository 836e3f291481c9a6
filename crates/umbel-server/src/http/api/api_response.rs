//! Responses of the HTTP API: JSON, and errors as JSON.

use http_body_util::Full;
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, WWW_AUTHENTICATE,
    X_CONTENT_TYPE_OPTIONS,
};
use hyper::http::{HeaderName, HeaderValue};
use hyper::{Response, StatusCode};
use prost::bytes::Bytes;
use serde_json::{Value, json};
use tonic::Status;
use tonic::body::Body;

use crate::http;
use crate::protocol::grpc_status;
use crate::telemetry::access_log::FailureReason;

/// A response.
pub type HttpResponse = Response<Body>;

const JSON: &str = "application/json; charset=utf-8";

/// An error of the API.
#[derive(Debug)]
pub struct ApiError {
    status: StatusCode,
    message: String,
    /// Further members of the JSON object.
    details: Vec<(&'static str, Value)>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

/// Result of a route.
pub type ApiResult = Result<HttpResponse, ApiError>;

impl ApiError {
    /// Creates an error with this status and message.
    pub fn new(status: StatusCode, message: impl Into<String>) -> ApiError {
        ApiError { status, message: message.into(), details: Vec::new(), headers: Vec::new() }
    }

    /// An error of the request.
    pub fn bad_request(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, message)
    }

    /// An error about a thing that does not exist.
    pub fn not_found(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::NOT_FOUND, message)
    }

    /// The error of a method that a path does not serve.
    pub fn method_not_allowed(allowed: &str) -> ApiError {
        let message = format!("this path serves only {allowed}");
        let error = ApiError::new(StatusCode::METHOD_NOT_ALLOWED, message);
        error.with_header(ALLOW, allowed)
    }

    /// Adds a member to the JSON object.
    pub fn with_detail(mut self, name: &'static str, value: Value) -> ApiError {
        self.details.push((name, value));
        self
    }

    /// Adds a header; a value that no header can have is left out.
    pub fn with_header(mut self, name: HeaderName, value: &str) -> ApiError {
        self.headers.extend(HeaderValue::try_from(value).ok().map(|value| (name, value)));
        self
    }

    /// The response.
    pub fn into_response(self) -> HttpResponse {
        let mut value = json!({
            "success": false,
            "error": error_name(self.status),
            "message": self.message,
        });
        for (name, detail) in self.details {
            value[name] = detail;
        }
        let mut response = json_response(self.status, &value);
        FailureReason::attach(&mut response, &self.message);
        response.headers_mut().extend(self.headers);
        response
    }
}

impl From<Status> for ApiError {
    fn from(status: Status) -> ApiError {
        let status = grpc_status::as_client_error(status);
        let exception = status.metadata().get("exception").and_then(|text| text.to_str().ok());
        let code = match exception {
            // The protocol of clients reports invalid settings as a failure of the server.
            Some("persistent-subscription-failed") => StatusCode::BAD_REQUEST,
            Some("stream-deleted") => StatusCode::GONE,
            Some("maximum-append-size-exceeded") => StatusCode::PAYLOAD_TOO_LARGE,
            _ => http::failure_status(&status),
        };
        let error = ApiError::new(code, status.message());
        match code {
            StatusCode::UNAUTHORIZED => {
                error.with_header(WWW_AUTHENTICATE, "Basic realm=\"umbel\", charset=\"UTF-8\"")
            }
            _ => error,
        }
    }
}

/// The member `error` for a status, with KurrentDB's words where it has them.
fn error_name(status: StatusCode) -> &'static str {
    match status {
        StatusCode::BAD_REQUEST => "BadRequest",
        StatusCode::UNAUTHORIZED => "Unauthorized",
        StatusCode::FORBIDDEN => "AccessDenied",
        StatusCode::NOT_FOUND => "NotFound",
        StatusCode::METHOD_NOT_ALLOWED => "MethodNotAllowed",
        StatusCode::NOT_ACCEPTABLE => "NotAcceptable",
        StatusCode::CONFLICT => "Conflict",
        StatusCode::GONE => "StreamDeleted",
        StatusCode::PAYLOAD_TOO_LARGE => "TooLarge",
        StatusCode::UNSUPPORTED_MEDIA_TYPE => "UnsupportedMediaType",
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => "TryAgain",
        StatusCode::SERVICE_UNAVAILABLE => "Unavailable",
        StatusCode::INSUFFICIENT_STORAGE => "InsufficientStorage",
        _ => "Error",
    }
}

/// A response with JSON.
pub fn json_response(status: StatusCode, value: &Value) -> HttpResponse {
    bytes_response(status, JSON, value.to_string().into())
}

/// A response with JSON that is a text already.
pub fn json_text_response(text: String) -> HttpResponse {
    bytes_response(StatusCode::OK, JSON, text.into())
}

/// A response with bytes of this content type. Browsers show the bytes in no page.
pub fn bytes_response(status: StatusCode, kind: &'static str, body: Bytes) -> HttpResponse {
    let mut response = Response::new(Body::new(Full::new(body)));
    *response.status_mut() = status;
    for (name, value) in [
        (CONTENT_TYPE, kind),
        (CACHE_CONTROL, "no-store"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'; sandbox"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Sets a header of a response; a value that no header can have is left out.
pub fn set_header(response: &mut HttpResponse, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::try_from(value) {
        response.headers_mut().insert(name, value);
    }
}
