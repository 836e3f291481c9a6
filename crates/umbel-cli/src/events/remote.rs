//! The events of another server, read over the protocol that clients of event stores speak:
//! KurrentDB, EventStoreDB, or Umbel itself.

use std::fmt::Display;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper::http::uri::{PathAndQuery, Uri};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tonic::body::Body;
use tonic::client::{Grpc, GrpcService};
use tonic::{Request, Response, Streaming};
use tonic_prost::ProstCodec;
use umbel_events::EventId;
use umbel_proto::reading::of_all;
use umbel_proto::shared::{Uuid, uuid};
use umbel_proto::streams::read_req::AllOption;
use umbel_proto::streams::read_resp::{Content, RecordedEvent};
use umbel_proto::streams::{ReadReq, ReadResp};

use crate::errors::{Failure, Outcome};

const READ: &str = "/event_store.client.streams.Streams/Read";
/// The longest message that is taken: a larger event could not be imported.
const MESSAGE_BYTES_MAX: usize = 64 << 20;
const PORT: u16 = 2113;
/// How connection strings begin that name one server.
const SCHEMES: [&str; 3] = ["esdb", "kurrentdb", "kdb"];

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    host: String,
    port: u16,
}

impl Address {
    /// Reads a connection string. A user and a password in it are not sent: who does without
    /// encryption does without them.
    pub fn parse(text: &str) -> Outcome<Address> {
        let wrong = |why: &str| {
            Err(Failure::usage(format!(
                "--from {text}: {why}; write esdb://HOST:PORT?tls=false, such as \
                 esdb://localhost:2113?tls=false"
            )))
        };
        let Some((scheme, rest)) = text.split_once("://") else {
            return wrong("this is no connection string");
        };
        if !SCHEMES.contains(&scheme) {
            return wrong("it must name one server, by esdb://, kurrentdb:// or kdb://");
        }
        let (hosts, query) = rest.split_once('?').unwrap_or((rest, ""));
        let is_clear = query.split('&').any(|one| one.eq_ignore_ascii_case("tls=false"));
        if !is_clear {
            return wrong(
                "this program reads from servers that listen in clear only (tls=false), as those \
                 started with --insecure do",
            );
        }
        let host = hosts.rsplit_once('@').map_or(hosts, |(_, host)| host).trim_end_matches('/');
        if host.contains(',') {
            return wrong("name one of these servers");
        }
        let is_bare_v6 = host.starts_with('[') && host.ends_with(']');
        let (host, port) = match host.rsplit_once(':').filter(|_| !is_bare_v6) {
            Some((host, port)) => (host, port.parse().ok()),
            None => (host, Some(PORT)),
        };
        match port {
            Some(port) if !host.is_empty() => {
                Ok(Address { host: host.trim_matches(['[', ']']).to_string(), port })
            }
            _ => wrong("it names no host and port"),
        }
    }

    fn shown(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }
}

/// What a server keeps for itself and is not imported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Links in streams that are views here.
    ViewLinks,
    /// What it wrote about how it does.
    Statistics,
    /// Its users, projections and the like.
    System,
}

impl Class {
    /// Which of these an event is; `None` where it is to be imported.
    pub fn of(stream: &str, kind: &str, takes_system: bool) -> Option<Class> {
        let subject = stream.strip_prefix("$$");
        let about = subject.unwrap_or(stream);
        // Nobody can append to these here; the others hold links of a projection.
        let is_view = about == "$streams" || ["$ce-", "$et-"].iter().any(|p| about.starts_with(p));
        let holds_links = ["$bc-", "$category-", "$et"].iter().any(|p| about.starts_with(p));
        if subject.is_none() && (is_view || (holds_links && matches!(kind, "$>" | "$@"))) {
            return Some(Class::ViewLinks);
        }
        if about.starts_with("$stats-") {
            return Some(Class::Statistics);
        }
        let is_system = about.starts_with('$') && about != "$settings" && !takes_system;
        is_system.then_some(Class::System)
    }
}

/// An event as the server has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteEvent {
    /// Its stream.
    pub stream: String,
    /// Its number in the stream.
    pub revision: u64,
    /// When it was appended, in units of 100 ns since 1970.
    pub created: Option<u64>,
    /// Its id.
    pub id: EventId,
    /// Its type.
    pub kind: String,
    /// Whether its data is said to be JSON.
    pub is_json: bool,
    /// Its data.
    pub data: Vec<u8>,
    /// What is said about it besides.
    pub metadata: Vec<u8>,
}

/// All events of a server, on their way.
pub struct Remote {
    name: String,
    runtime: Runtime,
    answers: Streaming<ReadResp>,
    taken: u64,
}

impl Remote {
    /// Connects to a server and asks for all of its events.
    pub fn open(address: &Address) -> Outcome<Remote> {
        let name = address.shown();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
        let runtime = runtime
            .map_err(|error| Failure::System(format!("could not begin to connect: {error}")))?;
        let answers = runtime.block_on(read_all(address)).map_err(|reason| {
            Failure::System(format!(
                "could not read from the server at {name}: {reason}; is it there, and does it \
                 listen in clear?"
            ))
        })?;
        Ok(Remote { name, runtime, answers, taken: 0 })
    }

    /// What the server is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The next event; `None` where there are no more.
    pub fn next(&mut self) -> Outcome<Option<RemoteEvent>> {
        loop {
            let answer = self.runtime.block_on(self.answers.message());
            let answer = answer.map_err(|status| self.failed(status.message()))?;
            let Some(answer) = answer else { return Ok(None) };
            // Others say where the log ends, which the last answer says as well.
            let Some(Content::Event(read)) = answer.content else { continue };
            let Some(event) = read.event.or(read.link) else { continue };
            self.taken += 1;
            return match event_of(event) {
                Some(event) => Ok(Some(event)),
                None => Err(self.failed("an answer holds no event that can be read")),
            };
        }
    }

    fn failed(&self, reason: &str) -> Failure {
        Failure::System(format!(
            "reading from the server at {} ended after {} events: {reason}; run this again, what \
             was imported is passed over",
            self.name, self.taken
        ))
    }
}

/// An event out of its message; `None` where it lacks what every event has.
fn event_of(mut event: RecordedEvent) -> Option<RemoteEvent> {
    let stream = String::from_utf8(event.stream_identifier?.stream_name.to_vec()).ok()?;
    let content = event.metadata.get("content-type");
    let is_json = content.is_some_and(|content| content == "application/json");
    let created = event.metadata.get("created").and_then(|created| created.parse().ok());
    Some(RemoteEvent {
        stream,
        revision: event.stream_revision,
        created,
        id: event_id(event.id?)?,
        kind: event.metadata.remove("type")?,
        is_json,
        data: event.data.into(),
        metadata: event.custom_metadata.into(),
    })
}

fn event_id(id: Uuid) -> Option<EventId> {
    match id.value? {
        uuid::Value::String(text) => text.parse().ok(),
        uuid::Value::Structured(halves) => Some(EventId(u128::from(halves).to_be_bytes())),
    }
}

async fn read_all(address: &Address) -> Result<Streaming<ReadResp>, String> {
    let said = |error: &dyn Display| error.to_string();
    let stream = TcpStream::connect((&address.host[..], address.port));
    let stream = stream.await.map_err(|error| said(&error))?;
    stream.set_nodelay(true).map_err(|error| said(&error))?;
    let shaken = Builder::new(TokioExecutor::new()).handshake(TokioIo::new(stream)).await;
    let (sender, connection) = shaken.map_err(|error| said(&error))?;
    tokio::spawn(connection);
    let origin: Uri =
        format!("http://{}", address.shown()).parse().map_err(|error| said(&error))?;
    let mut grpc = Grpc::with_origin(Connection { sender }, origin)
        .max_decoding_message_size(MESSAGE_BYTES_MAX);
    grpc.ready().await.map_err(|error| said(&error))?;
    let asked = ReadReq { options: Some(of_all(AllOption::Start(()))) };
    let codec = ProstCodec::<ReadReq, ReadResp>::default();
    let path = PathAndQuery::from_static(READ);
    let answers = grpc.server_streaming(Request::new(asked), path, codec).await;
    answers.map(Response::into_inner).map_err(|status| said(&status.message()))
}

/// A connection as tonic calls it.
struct Connection {
    sender: SendRequest<Body>,
}

impl GrpcService<Body> for Connection {
    type ResponseBody = Incoming;
    type Error = hyper::Error;
    type Future =
        Pin<Box<dyn Future<Output = Result<hyper::Response<Incoming>, hyper::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), hyper::Error>> {
        self.sender.poll_ready(context)
    }

    fn call(&mut self, request: hyper::Request<Body>) -> Self::Future {
        Box::pin(self.sender.send_request(request))
    }
}

#[cfg(test)]
#[path = "remote_tests.rs"]
mod tests;
