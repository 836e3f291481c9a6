//! Requests over HTTP/1.1, one for each connection.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// Header of a body of JSON.
pub const JSON: &str = "content-type: application/json";
/// Header of a list of events.
pub const EVENTS: &str = "content-type: application/vnd.kurrent.events+json";

/// A response: status, head in lower case, and body.
#[derive(Debug)]
pub struct HttpAnswer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl HttpAnswer {
    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The body as text.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    /// Asserts the status and returns the body as JSON.
    pub fn is(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{} {}", self.head, self.text());
        self.json()
    }
}

/// Sends a request with a body.
pub fn send(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[&str],
    body: &[u8],
) -> HttpAnswer {
    let mut stream = TcpStream::connect(address).unwrap();
    let has_host = headers.iter().any(|header| header.starts_with("host:"));
    let host = if has_host { String::new() } else { format!("host: {address}\r\n") };
    let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
    let length = body.len();
    let head = format!("{host}{headers}connection: close\r\ncontent-length: {length}\r\n");
    // Sent at once, even if not all of it is read: a refusal may precede the body.
    let _ = stream.write_all(format!("{method} {path} HTTP/1.1\r\n{head}\r\n").as_bytes());
    let _ = stream.write_all(body);
    let mut answer = Vec::new();
    // A server that closed the connection before it read the body may reset it.
    let _ = stream.read_to_end(&mut answer);
    let end = answer.windows(4).position(|part| part == b"\r\n\r\n").expect("a response");
    let head = String::from_utf8(answer[..end].to_vec()).unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    HttpAnswer { status, head: head.to_ascii_lowercase(), body: answer[end + 4..].to_vec() }
}

/// The header of a user with a password, both as `USER:PASSWORD`.
pub fn authorization(user: &str) -> String {
    format!("authorization: Basic {}", STANDARD.encode(user))
}

/// Reads a path without credentials.
pub fn get(address: SocketAddr, path: &str) -> HttpAnswer {
    send(address, "GET", path, &[], b"")
}

/// Posts a value as JSON, without credentials.
pub fn post(address: SocketAddr, path: &str, value: &Value) -> HttpAnswer {
    send(address, "POST", path, &[JSON], value.to_string().as_bytes())
}

/// Waits until a value that the server changes in the background is true.
pub fn wait_for(mut found: impl FnMut() -> Option<Value>) -> Value {
    let (_sender, never) = std::sync::mpsc::channel::<()>();
    for _ in 0..600 {
        if let Some(value) = found() {
            return value;
        }
        let _ = never.recv_timeout(Duration::from_millis(20));
    }
    panic!("timeout");
}
