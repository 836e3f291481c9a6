//! A client that sends the messages as they are, so that wrong ones can be sent too.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::stream;
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper::http::uri::PathAndQuery;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::TcpStream;
use tonic::body::Body;
use tonic::client::{Grpc, GrpcService};
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;
use umbel_proto::shared::{StreamIdentifier, Uuid, uuid};
use umbel_proto::streams::read_req::{
    AllOption, AllOptions, ControlOption, CountOption, FilterOption, Options, Position,
    RevisionOption, StreamOption, StreamOptions, UuidForm, UuidOption,
};
use umbel_proto::streams::{
    AppendReq, AppendResp, BatchAppendReq, BatchAppendResp, DeleteOptions, DeleteReq, DeleteResp,
    ExpectedRevision, ReadReq, ReadResp, append_req, append_resp, read_resp,
};

const STREAMS: &str = "event_store.client.streams.Streams";

pub const ANY: ExpectedRevision = ExpectedRevision::Any(());
pub const NO_STREAM: ExpectedRevision = ExpectedRevision::NoStream(());
pub const EXISTS: ExpectedRevision = ExpectedRevision::StreamExists(());

#[derive(Clone)]
struct Wire(SendRequest<Body>);

impl GrpcService<Body> for Wire {
    type ResponseBody = Incoming;
    type Error = hyper::Error;
    type Future =
        Pin<Box<dyn Future<Output = Result<hyper::Response<Incoming>, hyper::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), hyper::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: hyper::Request<Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}

/// A connection.
#[derive(Clone)]
pub struct Client {
    wire: Wire,
    address: SocketAddr,
}

impl Client {
    pub async fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let builder = Builder::new(TokioExecutor::new());
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        Client { wire: Wire(sender), address }
    }

    async fn grpc(&self) -> Grpc<Wire> {
        let origin = format!("http://{}", self.address).parse().unwrap();
        let mut grpc = Grpc::with_origin(self.wire.clone(), origin)
            .max_decoding_message_size(64 << 20)
            .max_encoding_message_size(64 << 20);
        grpc.ready().await.unwrap();
        grpc
    }

    pub async fn unary<Q, A>(&self, service: &str, method: &str, message: Q) -> Result<A, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let codec = ProstCodec::<Q, A>::default();
        let request = Request::new(message);
        let answer = self.grpc().await.unary(request, path(service, method), codec).await;
        answer.map(Response::into_inner)
    }

    pub async fn append_parts(&self, parts: Vec<AppendReq>) -> Result<AppendResp, Status> {
        let codec = ProstCodec::<AppendReq, AppendResp>::default();
        let request = Request::new(stream::iter(parts));
        let mut grpc = self.grpc().await;
        let answer = grpc.client_streaming(request, path(STREAMS, "Append"), codec).await;
        answer.map(Response::into_inner)
    }

    /// Appends; the answer is the outcome or an error of the call.
    pub async fn append(
        &self,
        stream: &str,
        expected: ExpectedRevision,
        events: &[append_req::ProposedMessage],
    ) -> Result<append_resp::Outcome, Status> {
        let options = append_req::Options {
            stream_identifier: Some(name(stream)),
            expected_stream_revision: Some(expected),
        };
        let mut parts = vec![part(append_req::Content::Options(options))];
        let events = events.iter().cloned().map(append_req::Content::ProposedMessage);
        parts.extend(events.map(part));
        Ok(self.append_parts(parts).await?.result.unwrap())
    }

    pub async fn batches<S>(&self, parts: S) -> Result<Streaming<BatchAppendResp>, Status>
    where
        S: futures_util::Stream<Item = BatchAppendReq> + Send + 'static,
    {
        let codec = ProstCodec::<BatchAppendReq, BatchAppendResp>::default();
        let mut grpc = self.grpc().await;
        let path = path(STREAMS, "BatchAppend");
        grpc.streaming(Request::new(parts), path, codec).await.map(Response::into_inner)
    }

    pub async fn delete(
        &self,
        method: &str,
        stream: &str,
        expected: ExpectedRevision,
    ) -> Result<DeleteResp, Status> {
        let options = DeleteOptions {
            stream_identifier: Some(name(stream)),
            expected_stream_revision: Some(expected),
        };
        self.unary(STREAMS, method, DeleteReq { options: Some(options) }).await
    }

    pub async fn open(&self, request: Request<ReadReq>) -> Result<Streaming<ReadResp>, Status> {
        let codec = ProstCodec::<ReadReq, ReadResp>::default();
        let mut grpc = self.grpc().await;
        let answers = grpc.server_streaming(request, path(STREAMS, "Read"), codec).await;
        answers.map(Response::into_inner)
    }

    /// Opens a read or a subscription; the answers are taken one by one.
    pub async fn subscribe(&self, options: Options) -> Result<Streaming<ReadResp>, Status> {
        self.open(Request::new(ReadReq { options: Some(options) })).await
    }

    /// Reads everything that is answered.
    pub async fn read(&self, options: Options) -> Result<Vec<read_resp::Content>, Status> {
        let mut answers = self.subscribe(options).await?;
        let mut contents = Vec::new();
        while let Some(answer) = answers.message().await? {
            contents.push(answer.content.unwrap());
        }
        Ok(contents)
    }
}

fn path(service: &str, method: &str) -> PathAndQuery {
    format!("/{service}/{method}").parse().unwrap()
}

pub fn part(content: append_req::Content) -> AppendReq {
    AppendReq { content: Some(content) }
}

pub fn name(stream: &str) -> StreamIdentifier {
    StreamIdentifier { stream_name: stream.as_bytes().to_vec().into() }
}

/// The identifier with this number.
pub fn id(number: u64) -> Uuid {
    let halves =
        uuid::Structured { most_significant_bits: 0x1234, least_significant_bits: number as i64 };
    Uuid { value: Some(uuid::Value::Structured(halves)) }
}

/// The event with this number, which is its data too.
pub fn event(number: u64) -> append_req::ProposedMessage {
    append_req::ProposedMessage {
        id: Some(id(number)),
        metadata: [("type", "Counted"), ("content-type", "application/json")]
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .into(),
        custom_metadata: b"{}".to_vec().into(),
        data: number.to_string().into_bytes().into(),
    }
}

pub fn events(numbers: std::ops::Range<u64>) -> Vec<append_req::ProposedMessage> {
    numbers.map(event).collect()
}

/// A read of a stream from its start, forwards, of all there is.
pub fn of_stream(stream: &str, from: RevisionOption) -> Options {
    Options {
        stream_option: Some(StreamOption::Stream(StreamOptions {
            stream_identifier: Some(name(stream)),
            revision_option: Some(from),
        })),
        read_direction: 0,
        resolve_links: false,
        count_option: Some(CountOption::Count(i64::MAX as u64)),
        filter_option: Some(FilterOption::NoFilter(())),
        uuid_option: Some(UuidOption { content: Some(UuidForm::Structured(())) }),
        control_option: Some(ControlOption { compatibility: 0 }),
    }
}

/// A read of all events, forwards.
pub fn of_all(from: AllOption) -> Options {
    let all = StreamOption::All(AllOptions { all_option: Some(from) });
    Options { stream_option: Some(all), ..of_stream("", RevisionOption::Start(())) }
}

pub fn at(position: u64) -> AllOption {
    AllOption::Position(Position { commit_position: position, prepare_position: position })
}

pub fn backwards(options: Options) -> Options {
    Options { read_direction: 1, ..options }
}

pub fn at_most(count: u64, options: Options) -> Options {
    Options { count_option: Some(CountOption::Count(count)), ..options }
}

pub fn subscription(options: Options) -> Options {
    Options { count_option: Some(CountOption::Subscription(())), ..options }
}

/// The event of an answer that is one.
pub fn recorded(content: read_resp::Content) -> read_resp::RecordedEvent {
    match content {
        read_resp::Content::Event(event) => event.event.unwrap(),
        other => panic!("no event: {other:?}"),
    }
}

/// The numbers of events, which are their data.
pub fn numbers(contents: Vec<read_resp::Content>) -> Vec<u64> {
    contents.into_iter().map(|content| number(&recorded(content))).collect()
}

pub fn number(event: &read_resp::RecordedEvent) -> u64 {
    std::str::from_utf8(&event.data).unwrap().parse().unwrap()
}

/// The fact that an error carries under this name.
pub fn fact<'a>(status: &'a Status, key: &str) -> &'a str {
    let value = status.metadata().get(key).unwrap_or_else(|| panic!("no {key}: {status:?}"));
    value.to_str().unwrap()
}
