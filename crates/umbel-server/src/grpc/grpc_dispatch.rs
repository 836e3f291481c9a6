//! [`Handler`]: a function that serves one call, and its dispatch by each of the four call kinds.

use std::error::Error;
use std::future::{Future, Ready, ready};

use futures_util::{Stream, StreamExt, stream};
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{HeaderMap, Version};
use prost::Message;
use tonic::body::Body;
use tonic::metadata::MetadataValue;
use tonic::{Request, Response, Status};

use crate::grpc::grpc_encoder::GrpcEncoder;
use crate::grpc::message_limits::RequestMessage;
use crate::grpc::message_stream::MessageStream;
use crate::protocol::grpc_status;

const ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");

/// Creates the dispatch of one call, which has a method for each of the four call kinds.
pub fn grpc_dispatch() -> GrpcDispatch {
    GrpcDispatch(())
}

/// Dispatches one call to a handler.
#[derive(Debug)]
pub struct GrpcDispatch(());

/// A response that is ready.
type ReadyResponse<A> = Ready<Result<Response<A>, Status>>;

/// A function that serves one call. Every gRPC method has its own handler.
pub struct Handler<F>(F);

impl<F> Handler<F> {
    /// Creates a handler that serves the call with this function.
    pub fn new(function: F) -> Handler<F> {
        Handler(function)
    }
}

impl Handler<()> {
    /// Creates a handler that responds with this value to any request.
    pub fn constant<Q, A>(answer: A) -> Handler<impl FnOnce(Request<Q>) -> ReadyResponse<A>> {
        Handler::new(move |_| ready(Ok(Response::new(answer))))
    }
}

/// The body of a request.
pub trait GrpcBody:
    hyper::body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static
{
}

type BoxError = Box<dyn Error + Send + Sync>;

impl<B: hyper::body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static> GrpcBody for B {}

impl GrpcDispatch {
    /// Serves a call with one request message and one response message.
    pub async fn unary<F, T, Q, A>(
        self,
        Handler(answer): Handler<F>,
        request: hyper::Request<impl GrpcBody>,
    ) -> hyper::Response<Body>
    where
        F: FnOnce(Request<Q>) -> T,
        T: Future<Output = Result<Response<A>, Status>>,
        Q: RequestMessage,
        A: Message + 'static,
    {
        respond(async { answer(one(request).await?).await }.await.map(single_response))
    }

    /// Serves a call with one request message and many response messages. The headers follow the
    /// first message, so an error that precedes it is a response of trailers only.
    pub async fn server_streaming<F, T, Q, A, S>(
        self,
        Handler(answer): Handler<F>,
        request: hyper::Request<impl GrpcBody>,
    ) -> hyper::Response<Body>
    where
        F: FnOnce(Request<Q>) -> T,
        T: Future<Output = Result<Response<S>, Status>>,
        Q: RequestMessage,
        A: Message + 'static,
        S: Stream<Item = Result<A, Status>> + Unpin + Send + 'static,
    {
        respond(async { with_first(answer(one(request).await?).await?).await }.await)
    }

    /// Serves a call with many request messages and one response message.
    pub async fn client_streaming<F, T, Q, A>(
        self,
        Handler(answer): Handler<F>,
        request: hyper::Request<impl GrpcBody>,
    ) -> hyper::Response<Body>
    where
        F: FnOnce(Request<MessageStream<Q>>) -> T,
        T: Future<Output = Result<Response<A>, Status>>,
        Q: RequestMessage,
        A: Message + 'static,
    {
        respond(async { answer(request_stream(request)?).await }.await.map(single_response))
    }

    /// Serves a call with many request messages and many response messages. The headers precede the
    /// first message, because clients wait for them before they send.
    pub async fn streaming<F, T, Q, A, S>(
        self,
        Handler(answer): Handler<F>,
        request: hyper::Request<impl GrpcBody>,
    ) -> hyper::Response<Body>
    where
        F: FnOnce(Request<MessageStream<Q>>) -> T,
        T: Future<Output = Result<Response<S>, Status>>,
        Q: RequestMessage,
        A: Message + 'static,
        S: Stream<Item = Result<A, Status>> + Unpin + Send + 'static,
    {
        respond(async { answer(request_stream(request)?).await }.await)
    }
}

/// The messages of a request.
fn request_stream<Q: RequestMessage>(
    request: hyper::Request<impl GrpcBody>,
) -> Result<Request<MessageStream<Q>>, Status> {
    check_encoding(request.headers())?;
    let (head, body) = request.into_parts();
    let messages = MessageStream::new(body, &head.extensions);
    Ok(Request::from_http(hyper::Request::from_parts(head, messages)))
}

/// The single message of a request.
async fn one<Q: RequestMessage>(
    request: hyper::Request<impl GrpcBody>,
) -> Result<Request<Q>, Status> {
    let (metadata, extensions, messages) = request_stream(request)?.into_parts();
    let message = messages.only_message().await?;
    Ok(Request::from_parts(metadata, extensions, message))
}

/// Refuses a request whose header announces compressed messages.
fn check_encoding(headers: &HeaderMap) -> Result<(), Status> {
    match headers.get(ENCODING) {
        Some(encoding) if encoding != "identity" => {
            let mut status = Status::unimplemented(format!(
                "messages are compressed as {encoding:?}, which this server does not support"
            ));
            let taken = MetadataValue::from_static("identity");
            status.metadata_mut().insert("grpc-accept-encoding", taken);
            Err(status)
        }
        _ => Ok(()),
    }
}

fn single_response<A>(
    response: Response<A>,
) -> Response<impl Stream<Item = Result<A, Status>> + Unpin> {
    response.map(|answer| stream::iter([Ok(answer)]))
}

/// Waits for the first message of a response. An error in its place fails the call.
async fn with_first<A, S>(
    response: Response<S>,
) -> Result<Response<impl Stream<Item = Result<A, Status>> + Unpin>, Status>
where
    S: Stream<Item = Result<A, Status>> + Unpin,
{
    let (metadata, mut answers, extensions) = response.into_parts();
    let first = answers.next().await.transpose()?;
    // A stream is not polled after its end.
    let rest = stream::iter(first.is_some().then_some(answers)).flatten();
    let answers = stream::iter(first.map(Ok)).chain(rest);
    Ok(Response::from_parts(metadata, answers, extensions))
}

fn respond<A, S>(answered: Result<Response<S>, Status>) -> hyper::Response<Body>
where
    A: Message + 'static,
    S: Stream<Item = Result<A, Status>> + Unpin + Send + 'static,
{
    let (metadata, answers, extensions) = match answered {
        Ok(response) => response.into_parts(),
        Err(status) => return grpc_status::truncate_status(status).into_http(),
    };
    let mut response = hyper::Response::new(Body::new(GrpcEncoder::new(answers)));
    *response.version_mut() = Version::HTTP_2;
    *response.headers_mut() = metadata.into_headers();
    response.headers_mut().insert(CONTENT_TYPE, GRPC);
    *response.extensions_mut() = extensions;
    response
}
