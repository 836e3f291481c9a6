//! What is answered to plain HTTP requests: whether the server is there.

use http_body_util::Full;
use hyper::header::{ALLOW, CONTENT_TYPE};
use hyper::http::HeaderValue;
use hyper::{Method, Response, StatusCode};
use prost::bytes::Bytes;
use tonic::body::Body;

const PING: &str = r#"{"text":"Ping request successfully handled"}"#;

/// The answer to a request that is no call.
pub fn answer(method: &Method, path: &str) -> Response<Body> {
    let known = matches!(path, "/health/live" | "/ping");
    if known && !matches!(*method, Method::GET | Method::HEAD) {
        let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "only GET is served here\n");
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    match path {
        "/health/live" => response(StatusCode::NO_CONTENT, None, ""),
        "/ping" => response(StatusCode::OK, Some("application/json"), PING),
        _ => text(
            StatusCode::NOT_FOUND,
            "there is nothing here; /health/live and /ping are, and the calls of event store \
             clients\n",
        ),
    }
}

/// A call that is no HTTP/2 request, or a path of a call without the content type of one.
pub fn no_call() -> Response<Body> {
    text(StatusCode::UNSUPPORTED_MEDIA_TYPE, "calls come by HTTP/2 with application/grpc\n")
}

fn text(status: StatusCode, text: &'static str) -> Response<Body> {
    response(status, Some("text/plain; charset=utf-8"), text)
}

fn response(status: StatusCode, kind: Option<&'static str>, text: &'static str) -> Response<Body> {
    let body = Full::new(Bytes::from_static(text.as_bytes()));
    let mut response = Response::new(Body::new(body));
    *response.status_mut() = status;
    if let Some(kind) = kind {
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_has_its_status() {
        let cases = [
            (Method::GET, "/health/live", 204),
            (Method::HEAD, "/health/live", 204),
            (Method::GET, "/ping", 200),
            (Method::POST, "/ping", 405),
            (Method::GET, "/", 404),
            (Method::DELETE, "/streams/a", 404),
        ];
        for (method, path, status) in cases {
            assert_eq!(answer(&method, path).status().as_u16(), status, "{method} {path}");
        }
        assert_eq!(no_call().status().as_u16(), 415);
    }
}
