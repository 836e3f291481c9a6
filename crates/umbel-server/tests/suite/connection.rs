//! A connection over which a client calls the server and sends messages as they are. The histories
//! of `umbel-torture` have it too.

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

/// The service that has the streams, said anew so that another name is noticed.
pub const STREAMS: &str = "event_store.client.streams.Streams";
/// The longest message that is sent or taken.
const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// A connection, which several may use.
#[derive(Debug, Clone)]
pub struct Connection {
    sender: SendRequest<Body>,
    origin: Uri,
    /// Who calls, as every call says it.
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
    /// Connects.
    pub async fn to(address: SocketAddr) -> Result<Connection, String> {
        let failed = |error: &dyn Display| format!("connecting: {error}");
        let stream = TcpStream::connect(address).await.map_err(|e| failed(&e))?;
        stream.set_nodelay(true).map_err(|e| failed(&e))?;
        Connection::over(stream, &format!("http://{address}")).await
    }

    /// Speaks HTTP/2 over what is connected to the server with this address.
    pub async fn over<S>(stream: S, origin: &str) -> Result<Connection, String>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let said = |what: &str, error: &dyn Display| format!("{what}: {error}");
        let builder = Builder::new(TokioExecutor::new());
        let shaken = builder.handshake(TokioIo::new(stream)).await;
        let (sender, connection) = shaken.map_err(|e| said("shaking hands", &e))?;
        tokio::spawn(connection);
        let origin = origin.parse().map_err(|e| said("the address", &e))?;
        Ok(Connection { sender, origin, authorization: None })
    }

    /// A request with this message, as whoever calls.
    pub fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(authorization) = &self.authorization {
            request.metadata_mut().insert("authorization", authorization.clone());
        }
        request
    }

    pub async fn grpc(&self) -> Result<Grpc<Connection>, Status> {
        let mut grpc = Grpc::with_origin(self.clone(), self.origin.clone())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        Ok(grpc)
    }

    /// A call of one message that is answered with one.
    pub async fn unary<Q, A>(&self, service: &str, method: &str, message: Q) -> Result<A, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let mut grpc = self.grpc().await?;
        let (request, codec) = (self.request(message), ProstCodec::<Q, A>::default());
        grpc.unary(request, path(service, method), codec).await.map(Response::into_inner)
    }

    /// `Append` with these messages.
    pub async fn append_parts(&self, parts: Vec<AppendReq>) -> Result<AppendResp, Status> {
        self.client_streaming(STREAMS, "Append", stream::iter(parts)).await
    }

    /// A call of many messages that is answered with one.
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

    /// `BatchAppend` with these messages; the answers are taken one by one.
    pub async fn batches<S>(&self, parts: S) -> Result<Streaming<BatchAppendResp>, Status>
    where
        S: Stream<Item = BatchAppendReq> + Send + 'static,
    {
        self.streaming(STREAMS, "BatchAppend", parts).await
    }

    /// A call of many messages that is answered with many, which are taken one by one.
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

    /// The same with a request that has more in it than its messages.
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

    /// `Read` with this request; the answers are taken one by one.
    pub async fn open(&self, request: Request<ReadReq>) -> Result<Streaming<ReadResp>, Status> {
        let mut grpc = self.grpc().await?;
        let codec = ProstCodec::default();
        let answers = grpc.server_streaming(request, path(STREAMS, "Read"), codec).await;
        answers.map(Response::into_inner)
    }

    /// Opens a read or a subscription; the answers are taken one by one.
    pub async fn subscribe(&self, options: Options) -> Result<Streaming<ReadResp>, Status> {
        self.open(self.request(ReadReq { options: Some(options) })).await
    }
}

fn path(service: &str, method: &str) -> PathAndQuery {
    format!("/{service}/{method}").parse().expect("the names of calls are paths")
}
