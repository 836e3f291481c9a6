//! A client that speaks the protocol and checks that an answer says the same in all of its places.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::stream;
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper::http::uri::{PathAndQuery, Uri};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::TcpStream;
use tonic::body::Body;
use tonic::client::{Grpc, GrpcService};
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;
use umbel_proto::streams::read_req::Options;
use umbel_proto::streams::read_resp::Content;
use umbel_proto::streams::{
    AppendReq, AppendResp, BatchAppendReq, BatchAppendResp, DeleteOptions, DeleteReq, DeleteResp,
    DeleteResult, ReadReq, ReadResp, SERVICE, append_req,
};

use super::known::{Batch, Told};
use super::words::{self, Answer};

#[derive(Debug, Clone)]
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

/// A connection, which several may use.
#[derive(Debug, Clone)]
pub struct Client {
    wire: Wire,
    origin: Uri,
}

/// What came of reading.
#[derive(Debug)]
pub enum Read {
    /// These events, in the order in which they came; `false` where the stream was said to be none.
    Events(Vec<Told>, bool),
    /// The stream was tombstoned.
    Tombstoned,
    /// The call failed.
    Failed(String),
}

/// What came of deleting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Deleted {
    /// It was done, and written at this position.
    Done(Option<u64>),
    /// It was refused.
    Refused,
    /// The call failed.
    Failed(String),
}

impl Client {
    /// Connects.
    pub async fn connect(address: SocketAddr) -> Result<Client, String> {
        let said = |what: &str, error: &dyn std::fmt::Display| format!("{what}: {error}");
        let stream = TcpStream::connect(address).await.map_err(|e| said("connecting", &e))?;
        stream.set_nodelay(true).map_err(|e| said("connecting", &e))?;
        let builder = Builder::new(TokioExecutor::new());
        let shaken = builder.handshake(TokioIo::new(stream)).await;
        let (sender, connection) = shaken.map_err(|e| said("shaking hands", &e))?;
        tokio::spawn(connection);
        let origin = format!("http://{address}").parse().map_err(|e| said("the address", &e))?;
        Ok(Client { wire: Wire(sender), origin })
    }

    async fn grpc(&self) -> Result<Grpc<Wire>, Status> {
        let mut grpc = Grpc::with_origin(self.wire.clone(), self.origin.clone());
        grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        Ok(grpc)
    }

    /// Appends with `Append`.
    pub async fn append(&self, batch: &Batch) -> Answer {
        let options = append_req::Options {
            stream_identifier: Some(words::name(&batch.stream)),
            expected_stream_revision: Some(words::expected(batch.expected)),
        };
        let mut parts = vec![AppendReq { content: Some(append_req::Content::Options(options)) }];
        parts.extend(words::events(batch).into_iter().map(|event| {
            let content = Some(append_req::Content::ProposedMessage(event));
            AppendReq { content }
        }));
        let codec = ProstCodec::<AppendReq, AppendResp>::default();
        let call = async {
            let mut grpc = self.grpc().await?;
            let parts = Request::new(stream::iter(parts));
            grpc.client_streaming(parts, path("Append"), codec).await.map(Response::into_inner)
        };
        words::of_append(batch, call.await)
    }

    /// Appends with `BatchAppend`, all in one call; one answer for each in their order.
    pub async fn append_batches(&self, batches: &[Batch]) -> Vec<Answer> {
        let parts: Vec<BatchAppendReq> = (0..)
            .zip(batches)
            .flat_map(|(number, batch)| words::batch_parts(number, batch))
            .collect();
        let mut answers = BTreeMap::new();
        let codec = ProstCodec::<BatchAppendReq, BatchAppendResp>::default();
        let call = async {
            let mut grpc = self.grpc().await?;
            let parts = Request::new(stream::iter(parts));
            let mut said = grpc.streaming(parts, path("BatchAppend"), codec).await?.into_inner();
            while let Some(answer) = said.message().await? {
                let number = words::correlation(&answer);
                let Some(batch) = number.and_then(|number| batches.get(number as usize)) else {
                    return Err(Status::internal(format!("an answer to no batch: {answer:?}")));
                };
                let answer = words::of_batch(batch, answer);
                if answers.insert(number.unwrap_or(0), answer).is_some() {
                    return Err(Status::internal("a batch was answered twice"));
                }
            }
            Err(Status::internal("the call ended without this answer"))
        };
        let ended: Result<(), Status> = call.await;
        let failed = || Answer::Failed(format!("{ended:?}"));
        (0..batches.len() as u64)
            .map(|number| answers.remove(&number).unwrap_or_else(failed))
            .collect()
    }

    /// Deletes a stream with the call of this name.
    pub async fn delete(&self, method: &str, stream: &str) -> Deleted {
        let options = DeleteOptions {
            stream_identifier: Some(words::name(stream)),
            expected_stream_revision: Some(words::expected(umbel_events::Expected::Any)),
        };
        let asked = DeleteReq { options: Some(options) };
        match self.unary::<DeleteReq, DeleteResp>(method, asked).await {
            Ok(DeleteResp { position_option: Some(DeleteResult::Position(position)) }) => {
                Deleted::Done(Some(position.commit_position))
            }
            Ok(_) => Deleted::Done(None),
            Err(status) => match words::exception(&status) {
                Some("wrong-expected-version" | "stream-deleted") => Deleted::Refused,
                _ => Deleted::Failed(format!("{status:?}")),
            },
        }
    }

    async fn unary<Q, A>(&self, method: &str, message: Q) -> Result<A, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let mut grpc = self.grpc().await?;
        let codec = ProstCodec::<Q, A>::default();
        grpc.unary(Request::new(message), path(method), codec).await.map(Response::into_inner)
    }

    /// Opens a read or a subscription; the answers are taken one by one.
    pub async fn open(&self, options: Options) -> Result<Streaming<ReadResp>, Status> {
        let mut grpc = self.grpc().await?;
        let codec = ProstCodec::<ReadReq, ReadResp>::default();
        let asked = Request::new(ReadReq { options: Some(options) });
        grpc.server_streaming(asked, path("Read"), codec).await.map(Response::into_inner)
    }

    /// Reads everything that is answered.
    pub async fn read(&self, options: Options) -> Read {
        let mut events = Vec::new();
        let mut is_there = true;
        let call = async {
            let mut answers = self.open(options).await?;
            while let Some(answer) = answers.message().await? {
                match answer.content {
                    Some(Content::Event(event)) => {
                        events.push(words::told(event).map_err(Status::internal)?);
                    }
                    Some(Content::StreamNotFound(_)) => is_there = false,
                    other => return Err(Status::internal(format!("a read was told {other:?}"))),
                }
            }
            Ok(())
        };
        match call.await {
            Ok(()) => Read::Events(events, is_there),
            Err(status) if words::exception(&status) == Some("stream-deleted") => Read::Tombstoned,
            Err(status) => Read::Failed(format!("{status:?}")),
        }
    }
}

fn path(method: &str) -> PathAndQuery {
    let path = format!("/{SERVICE}/{method}");
    path.parse().expect("the names of calls are paths")
}
