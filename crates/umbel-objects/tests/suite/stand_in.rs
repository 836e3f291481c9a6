//! [`StandIn`]: an HTTP server with the answers that a test writes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use umbel_env::Env;

/// Time of the store in each answer.
const DATE: &str = "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
/// The same time in microseconds since 1970.
pub const DATE_MICROS: u64 = 784_111_777_000_000;

/// A request as the server received it.
#[derive(Debug, Clone)]
pub struct Received {
    /// Request line and headers, in small letters.
    pub head: String,
    /// Body.
    pub body: Vec<u8>,
}

/// A server that answers one request of each connection.
pub struct StandIn {
    address: SocketAddr,
    received: Mutex<Vec<Received>>,
}

impl StandIn {
    /// Starts a server with an answer for each request. An empty answer cuts the connection.
    pub fn start(answer: impl Fn(&Received) -> String + Send + Sync + 'static) -> Arc<StandIn> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = Arc::new(StandIn { address, received: Mutex::default() });
        let (own, answer) = (Arc::clone(&server), Arc::new(answer));
        spawn(move || {
            for stream in listener.incoming() {
                let (own, answer) = (Arc::clone(&own), Arc::clone(&answer));
                spawn(move || own.serve(&mut stream.unwrap(), &*answer));
            }
        });
        server
    }

    /// URL of the server.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// All requests so far.
    pub fn requests(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }

    /// Answers the first request of a connection.
    pub fn serve<S: Read + Write>(&self, stream: &mut S, answer: &dyn Fn(&Received) -> String) {
        let Some(request) = receive(stream) else { return };
        self.received.lock().unwrap().push(request.clone());
        let _ = stream.write_all(answer(&request).as_bytes());
        let _ = stream.flush();
    }
}

/// Reads a request; `None` if it ends early.
fn receive(stream: &mut impl Read) -> Option<Received> {
    let mut reader = BufReader::new(stream);
    let (mut head, mut line) = (String::new(), String::new());
    while reader.read_line(&mut line).unwrap_or(0) > 2 {
        head.push_str(&std::mem::take(&mut line).to_lowercase());
    }
    let len = head.split("content-length: ").nth(1).and_then(|text| text.lines().next());
    let mut body = vec![0; len.map_or(0, |len| len.trim().parse().unwrap())];
    reader.read_exact(&mut body).ok()?;
    (!head.is_empty()).then_some(Received { head, body })
}

/// Runs work on a thread of its own.
pub fn spawn(work: impl FnOnce() + Send + 'static) {
    drop(Env::system().threads.spawn("server", Box::new(work)).unwrap());
}

/// An answer with a status, headers and a body.
pub fn answer(status: &str, headers: &str, body: &str) -> String {
    let len = body.len();
    let end = format!("Content-Length: {len}\r\nConnection: close\r\n\r\n{body}");
    format!("HTTP/1.1 {status}\r\n{DATE}{headers}{end}")
}

/// An answer with the code of an error.
pub fn error(status: &str, code: &str) -> String {
    let body = format!("<Error><Code>{code}</Code><Message>m</Message></Error>");
    answer(status, "Content-Type: application/xml\r\n", &body)
}

/// Starts a proxy that connects each tunnel to this server, and returns its URL and the first line
/// of each request.
pub fn tunnel_to(target: SocketAddr) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let lines = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&lines);
    spawn(move || {
        for stream in listener.incoming() {
            let mut client = stream.unwrap();
            let Some(request) = receive(&mut client) else { continue };
            kept.lock().unwrap().push(request.head);
            let mut server = TcpStream::connect(target).unwrap();
            client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").unwrap();
            let (mut from_client, mut to_client) = (client.try_clone().unwrap(), client);
            let mut to_server = server.try_clone().unwrap();
            spawn(move || drop(std::io::copy(&mut from_client, &mut to_server)));
            spawn(move || {
                let _ = std::io::copy(&mut server, &mut to_client);
                let _ = to_client.shutdown(std::net::Shutdown::Both);
            });
        }
    });
    (url, lines)
}
