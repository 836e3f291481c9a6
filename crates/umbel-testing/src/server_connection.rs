//! [`Connection`]: connection over which a client calls the server and sends messages unchecked.

use std::fmt::Display;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::{Stream, stream};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper::http::uri::{PathAndQuery, Uri};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tonic::body::Body;
use tonic::client::{Grpc, GrpcService};
use tonic::metadata::AsciiMetadataValue;
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;
use umbel_proto::streams::read_req::Options;
use umbel_proto::streams::{
    AppendReq, AppendResp, BatchAppendReq, BatchAppendResp, ReadReq, ReadResp,
};

/// Service of the streams, repeated here so that a changed name is noticed.
pub const STREAMS: &str = "event_store.client.streams.Streams";
/// Maximum bytes of a message that is sent or received.
const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// A connection that several clients may share.
#[derive(Debug, Clone)]
pub struct Connection {
    sender: SendRequest<Body>,
    origin: Uri,
    /// Authorization header of every call.
    pub authorization: Option<AsciiMetadataValue>,
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

impl Connection {
    /// Connects to a server.
    pub async fn to(address: SocketAddr) -> Result<Connection, String> {
        let failed = |error: &dyn Display| format!("connecting: {error}");
        let stream = TcpStream::connect(address).await.map_err(|e| failed(&e))?;
        stream.set_nodelay(true).map_err(|e| failed(&e))?;
        Connection::over(stream, &format!("http://{address}")).await
    }

    /// Starts HTTP/2 over a stream that is connected to the server with this address.
    pub async fn over<S>(stream: S, origin: &str) -> Result<Connection, String>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let describe = |what: &str, error: &dyn Display| format!("{what}: {error}");
        let builder = Builder::new(TokioExecutor::new());
        let handshake = builder.handshake(TokioIo::new(stream)).await;
        let (sender, connection) = handshake.map_err(|e| describe("shaking hands", &e))?;
        tokio::spawn(connection);
        let origin = origin.parse().map_err(|e| describe("the address", &e))?;
        Ok(Connection { sender, origin, authorization: None })
    }

    /// Builds a request with this message and the client's authorization.
    pub fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(authorization) = &self.authorization {
            request.metadata_mut().insert("authorization", authorization.clone());
        }
        request
    }

    /// Returns a gRPC client, once the connection can accept a call.
    pub async fn grpc(&self) -> Result<Grpc<Connection>, Status> {
        let mut grpc = Grpc::with_origin(self.clone(), self.origin.clone())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        Ok(grpc)
    }

    /// Makes a unary call.
    pub async fn unary<Q, A>(&self, service: &str, method: &str, message: Q) -> Result<A, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let mut grpc = self.grpc().await?;
        let (request, codec) = (self.request(message), ProstCodec::<Q, A>::default());
        grpc.unary(request, path(service, method), codec).await.map(Response::into_inner)
    }

    /// Calls `Append` with these messages.
    pub async fn append_parts(&self, parts: Vec<AppendReq>) -> Result<AppendResp, Status> {
        self.client_streaming(STREAMS, "Append", stream::iter(parts)).await
    }

    /// Makes a client-streaming call.
    pub async fn client_streaming<Q, A, S>(
        &self,
        service: &str,
        method: &str,
        messages: S,
    ) -> Result<A, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
        S: Stream<Item = Q> + Send + 'static,
    {
        let mut grpc = self.grpc().await?;
        let (request, codec) = (self.request(messages), ProstCodec::<Q, A>::default());
        let answer = grpc.client_streaming(request, path(service, method), codec).await;
        answer.map(Response::into_inner)
    }

    /// Calls `BatchAppend` with these messages; the caller reads the responses.
    pub async fn batches<S>(&self, parts: S) -> Result<Streaming<BatchAppendResp>, Status>
    where
        S: Stream<Item = BatchAppendReq> + Send + 'static,
    {
        self.streaming(STREAMS, "BatchAppend", parts).await
    }

    /// Makes a bidirectional streaming call; the caller reads the responses.
    pub async fn streaming<Q, A, S>(
        &self,
        service: &str,
        method: &str,
        messages: S,
    ) -> Result<Streaming<A>, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
        S: Stream<Item = Q> + Send + 'static,
    {
        self.streaming_of(service, method, self.request(messages)).await
    }

    /// Makes a streaming call from a complete request, including its headers.
    pub async fn streaming_of<Q, A, S>(
        &self,
        service: &str,
        method: &str,
        request: Request<S>,
    ) -> Result<Streaming<A>, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
        S: Stream<Item = Q> + Send + 'static,
    {
        let mut grpc = self.grpc().await?;
        let codec = ProstCodec::<Q, A>::default();
        let answers = grpc.streaming(request, path(service, method), codec).await;
        answers.map(Response::into_inner)
    }

    /// Calls `Read` with this request; the caller reads the responses.
    pub async fn open(&self, request: Request<ReadReq>) -> Result<Streaming<ReadResp>, Status> {
        let mut grpc = self.grpc().await?;
        let codec = ProstCodec::default();
        let answers = grpc.server_streaming(request, path(STREAMS, "Read"), codec).await;
        answers.map(Response::into_inner)
    }

    /// Opens a read or a subscription; the caller reads the responses.
    pub async fn subscribe(&self, options: Options) -> Result<Streaming<ReadResp>, Status> {
        self.open(self.request(ReadReq { options: Some(options) })).await
    }
}

fn path(service: &str, method: &str) -> PathAndQuery {
    format!("/{service}/{method}").parse().expect("the names of calls are paths")
}
