//! [`Connection`]: a connection to a server of event stores, encrypted or not, anonymous or as a
//! user.

use std::error::Error;
use std::fmt::{self, Display};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use base64::Engine;
use http_body_util::{BodyExt, Empty, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use hyper::http::uri::{PathAndQuery, Uri};
use hyper::{Method, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use prost::Message;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tonic::body::Body;
use tonic::client::{Grpc, GrpcService};
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;
use umbel_events::EventId;
use umbel_proto::shared::{Uuid, uuid};
use umbel_proto::streams::read_req::Options;
use umbel_proto::streams::{ReadReq, ReadResp};
use umbel_server::{LOG_QUOTA, missing_space};

use crate::errors::{CommandError, CommandResult};
use crate::events::client::connection_string::ConnectionString;
use crate::events::client::tls;

/// gRPC method that reads and subscribes.
const READ_METHOD: &str = "/event_store.client.streams.Streams/Read";
/// Time limit for a server to accept a connection and to negotiate its protocol.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit of an answer over HTTP, such as a page of names from a cold disk.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(1);
/// Time limit of an action of the console, such as a redaction of many events.
const ACTION_TIMEOUT: Duration = Duration::from_hours(1);
/// Begin of the error of a transport that the other side ended with an alert of TLS.
const TLS_ALERT: &str = "received fatal alert";
/// Maximum length of an accepted message; no event in a store needs a longer message.
const MESSAGE_BYTES_MAX: usize = 64 << 20;
/// Maximum length of an accepted HTTP response: a page of the longest names, each byte escaped.
const PAGE_BYTES_MAX: usize = 8 << 20;

/// Remedy of an operator whose call is refused. The server says which user has the right.
pub const ACCESS_REMEDY: &str = "name another user in the address: kurrentdb://USER@HOST:PORT";

/// Kind of an HTTP request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HttpCall {
    /// Check whether a server is there.
    Check,
    /// Request of the HTTP API or for data of the console.
    Request,
    /// Action of the console.
    ConsoleAction,
}

impl HttpCall {
    /// Time limit for the head of the response.
    fn timeout(self) -> Duration {
        match self {
            HttpCall::Check => CONNECT_TIMEOUT,
            HttpCall::Request => ANSWER_TIMEOUT,
            HttpCall::ConsoleAction => ACTION_TIMEOUT,
        }
    }
}

/// Creates the runtime of connections. Its thread answers the pings of a server, also while a
/// command waits for a slow reader of its output.
///
/// # Errors
/// The operating system cannot provide the runtime's resources.
pub fn runtime() -> CommandResult<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|error| CommandError::System(format!("could not start: {error}")))
}

/// Returns the event id in a message, which has one of two forms; `None` if the id is invalid.
pub fn event_id(id: Uuid) -> Option<EventId> {
    match id.value? {
        uuid::Value::String(text) => text.parse().ok(),
        uuid::Value::Structured(halves) => Some(EventId(u128::from(halves).to_be_bytes())),
    }
}

/// Transport of a connection.
trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

/// Transport that keeps the first error of a read. The calls above it fail without the cause.
struct ObservedStream {
    stream: Box<dyn ByteStream>,
    error: Arc<OnceLock<String>>,
}

impl AsyncRead for ObservedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if let Poll::Ready(Err(error)) = &read {
            // A later error follows from the first one.
            let _ = self.error.set(error.to_string());
        }
        read
    }
}

impl AsyncWrite for ObservedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// A connection to a server.
#[derive(Debug, Clone)]
pub struct Connection {
    sender: SendRequest<Body>,
    origin: Uri,
    authorization: Option<HeaderValue>,
    /// Whether a certificate identifies the user.
    has_user_certificate: bool,
    /// Whether the server has answered a request.
    has_answered: Arc<AtomicBool>,
    /// First error of the transport.
    transport_error: Arc<OnceLock<String>>,
    /// Certificate that the server presented; `None` if the connection is not encrypted.
    pub certificate: Option<Vec<u8>>,
}

/// Failure of a connection, with the address and the remedy.
#[derive(Debug)]
pub struct ConnectionFailure {
    origin: Uri,
    reason: String,
    remedy: &'static str,
}

impl Display for ConnectionFailure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ConnectionFailure { origin, reason, remedy } = self;
        write!(formatter, "the connection to {origin} failed: {reason}{remedy}")
    }
}

impl Error for ConnectionFailure {}

impl GrpcService<Body> for Connection {
    type ResponseBody = Incoming;
    type Error = ConnectionFailure;
    type Future =
        Pin<Box<dyn Future<Output = Result<hyper::Response<Incoming>, ConnectionFailure>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), ConnectionFailure>> {
        self.sender.poll_ready(context).map_err(|error| self.failure(&error))
    }

    fn call(&mut self, mut request: hyper::Request<Body>) -> Self::Future {
        if let Some(authorization) = &self.authorization {
            request.headers_mut().insert(AUTHORIZATION, authorization.clone());
        }
        let (answer, connection) = (self.sender.send_request(request), self.clone());
        Box::pin(async move {
            let answer = answer.await.map_err(|error| connection.failure(&error))?;
            connection.has_answered.store(true, Ordering::Relaxed);
            Ok(answer)
        })
    }
}

impl Connection {
    /// Connects to a server.
    ///
    /// # Errors
    /// The reason why the server was not reached, with the remedy.
    pub async fn open(address: &ConnectionString) -> CommandResult<Connection> {
        let name = address.host_and_port_text();
        let unreachable = |reason: &dyn Display| {
            CommandError::System(format!("could not reach a server at {name}: {reason}"))
        };
        let late = || unreachable(&format!("no answer within {} s", CONNECT_TIMEOUT.as_secs()));
        let connected = TcpStream::connect((&address.host[..], address.port));
        let connected =
            tokio::time::timeout(CONNECT_TIMEOUT, connected).await.map_err(|_| late())?;
        let stream = connected.map_err(|error| unreachable(&error))?;
        stream.set_nodelay(true).map_err(|error| unreachable(&error))?;
        let (stream, certificate): (Box<dyn ByteStream>, _) = match &address.encryption {
            None => (Box::new(stream), None),
            Some(wanted) => {
                let handshake = tls::encrypt(stream, &address.host, wanted);
                let handshake =
                    tokio::time::timeout(CONNECT_TIMEOUT, handshake).await.map_err(|_| late())?;
                let (stream, certificate) =
                    handshake.map_err(|failure| failure.with_prefix(&name))?;
                (Box::new(stream), certificate)
            }
        };
        let mut builder = Builder::new(TokioExecutor::new());
        // Keep-alive ends a connection whose peer does not respond.
        builder.timer(TokioTimer::new()).keep_alive_while_idle(true);
        builder.keep_alive_interval(CONNECT_TIMEOUT / 2).keep_alive_timeout(CONNECT_TIMEOUT / 2);
        let transport_error = Arc::new(OnceLock::new());
        let stream = ObservedStream { stream, error: Arc::clone(&transport_error) };
        let handshake = builder.handshake(TokioIo::new(stream));
        let handshake =
            tokio::time::timeout(CONNECT_TIMEOUT, handshake).await.map_err(|_| late())?;
        let (sender, connection) = handshake.map_err(|error| unreachable(&error))?;
        tokio::spawn(connection);
        let origin = address.origin().parse().map_err(|error| unreachable(&error))?;
        let authorization = address.user.as_ref().map(|(user, password)| {
            let both = base64::engine::general_purpose::STANDARD
                .encode(format!("{user}:{password}").as_bytes());
            HeaderValue::try_from(format!("Basic {both}"))
        });
        let authorization = authorization.transpose().map_err(|error| unreachable(&error))?;
        Ok(Connection {
            sender,
            origin,
            authorization,
            has_user_certificate: address.encryption.as_ref().is_some_and(|tls| tls.user.is_some()),
            has_answered: Arc::default(),
            transport_error,
            certificate,
        })
    }

    /// Whether the requests name a user, by a password or a certificate.
    pub fn has_login(&self) -> bool {
        self.authorization.is_some() || self.has_user_certificate
    }

    /// Whether the server ended the connection with an alert of TLS, as it does with a certificate
    /// of a user that it refuses.
    pub fn is_refused(&self) -> bool {
        self.transport_error.get().is_some_and(|error| error.starts_with(TLS_ALERT))
    }

    fn failure(&self, error: &hyper::Error) -> ConnectionFailure {
        let remedy = match self.certificate {
            Some(_) if self.is_refused() && self.has_user_certificate => {
                "; the server refuses the certificate of userCertFile: name one that is valid, for \
                 clients (clientAuth), and signed by an authority that the server trusts"
            }
            Some(_) => "",
            // The advice is for a first request.
            None if self.has_answered.load(Ordering::Relaxed) => "",
            None => "; if the server uses TLS, write https://, or leave out tls=false",
        };
        let reason = self.transport_error.get().cloned().unwrap_or_else(|| error_chain(error));
        ConnectionFailure { origin: self.origin.clone(), reason, remedy }
    }

    /// Client for gRPC calls on this connection.
    ///
    /// # Errors
    /// The connection has ended.
    pub async fn grpc_client(&self) -> CommandResult<Grpc<Connection>> {
        let mut grpc = Grpc::with_origin(self.clone(), self.origin.clone())
            .max_decoding_message_size(MESSAGE_BYTES_MAX);
        grpc.ready().await.map_err(|failure| CommandError::System(failure.to_string()))?;
        Ok(grpc)
    }

    /// Returns the body and the status of a GET request that checks whether a server is there.
    ///
    /// # Errors
    /// The call fails or times out, or the body exceeds `PAGE_BYTES_MAX`. An HTTP error status is
    /// not an error.
    pub async fn http_get(&self, path: &str) -> CommandResult<(StatusCode, Bytes)> {
        self.send_http(HttpCall::Check, Method::GET, path, None).await
    }

    /// Returns the body and the status of an HTTP request without a body.
    ///
    /// # Errors
    /// The errors of [`Connection::http_get`].
    pub async fn http(&self, method: Method, path: &str) -> CommandResult<(StatusCode, Bytes)> {
        self.send_http(HttpCall::Request, method, path, None).await
    }

    /// Returns the body and the status of an HTTP request with a JSON body.
    ///
    /// # Errors
    /// The errors of [`Connection::http_get`].
    pub async fn http_with_json(
        &self,
        method: Method,
        path: &str,
        body: &Value,
    ) -> CommandResult<(StatusCode, Bytes)> {
        self.send_http(HttpCall::Request, method, path, Some(body.to_string())).await
    }

    /// Returns the body and the status of a request for an action of the console.
    ///
    /// # Errors
    /// The errors of [`Connection::http_get`].
    pub async fn console_action(
        &self,
        path: &str,
        body: &Value,
    ) -> CommandResult<(StatusCode, Bytes)> {
        self.send_http(HttpCall::ConsoleAction, Method::POST, path, Some(body.to_string())).await
    }

    async fn send_http(
        &self,
        call: HttpCall,
        method: Method,
        path: &str,
        json: Option<String>,
    ) -> CommandResult<(StatusCode, Bytes)> {
        let uri = format!("{}{path}", self.origin.to_string().trim_end_matches('/'));
        let wrong = |reason: &dyn Display| {
            CommandError::System(format!("no response from {uri}: {reason}"))
        };
        let mut request = hyper::Request::builder().method(method).uri(&uri);
        if call == HttpCall::ConsoleAction {
            request = request.header("x-umbel-console", "1");
        }
        let request = match json {
            None => request.body(Body::new(Empty::new())),
            Some(json) => request
                .header(CONTENT_TYPE, "application/json")
                .body(Body::new(Full::new(Bytes::from(json)))),
        };
        let request = request.map_err(|error| wrong(&error))?;
        let mut connection = self.clone();
        let answer = tokio::time::timeout(call.timeout(), connection.call(request)).await;
        let answer = answer.map_err(|_| wrong(&"it took too long"))?;
        let answer = answer.map_err(|failure| {
            let ConnectionFailure { reason, remedy, .. } = failure;
            // A check tries what the server speaks.
            let is_try = call == HttpCall::Check && !self.is_refused();
            let remedy = if is_try { "" } else { remedy };
            wrong(&format!("{reason}{remedy}"))
        })?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), PAGE_BYTES_MAX).collect();
        let body = tokio::time::timeout(ANSWER_TIMEOUT, body).await;
        let body = body.map_err(|_| wrong(&"it took too long"))?;
        Ok((status, body.map_err(|error| wrong(&error))?.to_bytes()))
    }

    /// Makes a unary call.
    ///
    /// # Errors
    /// The error that the server returns, or the end of the connection.
    pub async fn unary<M, R>(&self, path: &'static str, message: M) -> CommandResult<R>
    where
        M: Message + Default + 'static,
        R: Message + Default + 'static,
    {
        let mut calls = self.grpc_client().await?;
        let (path, codec) = (PathAndQuery::from_static(path), ProstCodec::<M, R>::default());
        let answer = calls.unary(Request::new(message), path, codec).await;
        answer.map(tonic::Response::into_inner).map_err(|status| status_error(&status))
    }

    /// Reads or subscribes.
    ///
    /// # Errors
    /// The error that the server returns, or the end of the connection.
    pub async fn read(&self, options: Options) -> CommandResult<Streaming<ReadResp>> {
        self.read_or_status(options).await?.map_err(|status| status_error(&status))
    }

    /// Like [`Connection::read`], but returns the server's error as a status.
    pub async fn read_or_status(
        &self,
        options: Options,
    ) -> CommandResult<Result<Streaming<ReadResp>, Status>> {
        let request = Request::new(ReadReq { options: Some(options) });
        let path = PathAndQuery::from_static(READ_METHOD);
        let mut calls = self.grpc_client().await?;
        let answers = calls.server_streaming(request, path, ProstCodec::default()).await;
        Ok(answers.map(tonic::Response::into_inner))
    }
}

/// Text of a connection error, with the errors that caused it.
fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut below = error.source();
    while let Some(error) = below {
        text.push_str(": ");
        text.push_str(&error.to_string());
        below = error.source();
    }
    text
}

/// Converts the gRPC status of a call to an error: the server's status, or one that stands for the
/// failure of the connection.
pub fn status_error(status: &Status) -> CommandError {
    if let Some(failure) = status.source().and_then(|error| error.downcast_ref()) {
        let failure: &ConnectionFailure = failure;
        return CommandError::System(failure.to_string());
    }
    let text = format!("the server says: {}", status.message());
    let exception = status.metadata().get("exception").map(|name| name.as_bytes());
    match status.code() {
        Code::ResourceExhausted if missing_space(status) == Some(LOG_QUOTA) => {
            CommandError::QuotaReached(text)
        }
        // The protocol reports invalid settings of a group as a failure of the server.
        Code::Internal if exception == Some(b"persistent-subscription-failed") => {
            CommandError::usage(text)
        }
        Code::NotFound if exception == Some(b"not-leader") => {
            let trailer = |name: &str| status.metadata().get(name)?.to_str().ok();
            let host = trailer("leader-endpoint-host").unwrap_or("unknown");
            let port = trailer("leader-endpoint-port").unwrap_or("unknown");
            CommandError::usage(format!(
                "the server follows and accepts no writes; the leader is at {host}:{port}: name \
                 it with --connect"
            ))
        }
        // Another user would not help.
        Code::PermissionDenied if text.contains("current password") => CommandError::usage(text),
        Code::PermissionDenied => CommandError::usage(format!("{text}; {ACCESS_REMEDY}")),
        Code::InvalidArgument
        | Code::AlreadyExists
        | Code::FailedPrecondition
        | Code::NotFound
        | Code::Unauthenticated
        | Code::Unimplemented => CommandError::usage(text),
        Code::DataLoss => CommandError::Damaged(text),
        _ => CommandError::System(text),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::sync::mpsc::{Receiver, channel};

    use super::*;

    /// First bytes of a client of HTTP/2, and frames of a server: settings and a ping.
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    const PING: [u8; 17] = [0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];

    /// Accepts a connection and sends a ping once the client waits. Returns once it is answered.
    fn ping_a_client(listener: &TcpListener, client_waits: &Receiver<()>) {
        let (mut stream, _) = listener.accept().unwrap();
        // A ping without an answer fails the test instead of blocking it.
        stream.set_read_timeout(Some(CONNECT_TIMEOUT)).unwrap();
        let mut preface = [0; PREFACE.len()];
        stream.read_exact(&mut preface).unwrap();
        assert_eq!(&preface[..], PREFACE);
        stream.write_all(&SETTINGS).unwrap();
        client_waits.recv_timeout(CONNECT_TIMEOUT).unwrap();
        stream.write_all(&PING).unwrap();
        let mut is_answered = false;
        while !is_answered {
            let mut head = [0; 9];
            stream.read_exact(&mut head).unwrap();
            let len = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut payload = vec![0; len as usize];
            stream.read_exact(&mut payload).unwrap();
            is_answered = (head[3], head[4] & 1) == (6, 1) && payload[..] == PING[9..];
        }
    }

    /// Story: the server ended the connection of `umbel streams | less`, whose pings no thread
    /// answered while the command waited for the reader of its output.
    #[test]
    fn pings_are_answered_while_a_command_waits_for_its_reader() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let address = ConnectionString::parse("--connect", &address).unwrap();
        let (waits, client_waits) = channel();
        let runtime = runtime().unwrap();
        std::thread::scope(|scope| {
            let server = scope.spawn(move || ping_a_client(&listener, &client_waits));
            let connection = runtime.block_on(Connection::open(&address)).unwrap();
            // No thread but those of the runtime drives the connection from here on.
            waits.send(()).unwrap();
            server.join().unwrap();
            drop(connection);
        });
    }
}
