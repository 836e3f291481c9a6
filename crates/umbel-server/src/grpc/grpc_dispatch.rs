//! [`Handler`]: a function that answers one call, as each of the four kinds of calls.

use std::error::Error;
use std::future::{Future, Ready, ready};

use futures_util::{Stream, stream};
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{HeaderMap, Version};
use prost::Message;
use tonic::body::Body;
use tonic::metadata::MetadataValue;
use tonic::{Request, Response, Status};

use crate::encoded::Encoded;
use crate::failure;
use crate::messages::Messages;
use crate::question::Question;

const ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");

/// Serves one call, whose kind its method says.
pub fn grpc() -> Grpc {
    Grpc(())
}

/// What serves one call with answers of the type `A` to questions of the type `Q`.
#[derive(Debug)]
pub struct Grpc(());

/// An answer that is there already.
type Said<A> = Ready<Result<Response<A>, Status>>;

/// A function that answers one call. Every call has its own.
pub struct Handler<F>(F);

impl<F> Handler<F> {
    /// Answers with what the function answers.
    pub fn new(function: F) -> Handler<F> {
        Handler(function)
    }
}

impl Handler<()> {
    /// Answers with this, whatever is asked.
    pub fn saying<Q, A>(answer: A) -> Handler<impl FnOnce(Request<Q>) -> Said<A>> {
        Handler::new(move |_| ready(Ok(Response::new(answer))))
    }
}

/// The body of a request.
pub trait Asking: hyper::body::Body<Data = Bytes, Error: Into<Failed>> + Send + 'static {}

type Failed = Box<dyn Error + Send + Sync>;

impl<B: hyper::body::Body<Data = Bytes, Error: Into<Failed>> + Send + 'static> Asking for B {}

impl Grpc {
    /// One message is answered with one.
    pub async fn unary<F, T, Q, A>(
        self,
        Handler(answer): Handler<F>,
        request: hyper::Request<impl Asking>,
    ) -> hyper::Response<Body>
    where
        F: FnOnce(Request<Q>) -> T,
        T: Future<Output = Result<Response<A>, Status>>,
        Q: Question,
        A: Message + 'static,
    {
        respond(async { answer(one(request).await?).await }.await.map(single))
    }

    /// One message is answered with many.
    pub async fn server_streaming<F, T, Q, A, S>(
        self,
        Handler(answer): Handler<F>,
        request: hyper::Request<impl Asking>,
    ) -> hyper::Response<Body>
    where
        F: FnOnce(Request<Q>) -> T,
        T: Future<Output = Result<Response<S>, Status>>,
        Q: Question,
        A: Message + 'static,
        S: Stream<Item = Result<A, Status>> + Unpin + Send + 'static,
    {
        respond(async { answer(one(request).await?).await }.await)
    }

    /// Many messages are answered with one.
    pub async fn client_streaming<F, T, Q, A>(
        self,
        Handler(answer): Handler<F>,
        request: hyper::Request<impl Asking>,
    ) -> hyper::Response<Body>
    where
        F: FnOnce(Request<Messages<Q>>) -> T,
        T: Future<Output = Result<Response<A>, Status>>,
        Q: Question,
        A: Message + 'static,
    {
        respond(async { answer(many(request)?).await }.await.map(single))
    }

    /// Many messages are answered with many.
    pub async fn streaming<F, T, Q, A, S>(
        self,
        Handler(answer): Handler<F>,
        request: hyper::Request<impl Asking>,
    ) -> hyper::Response<Body>
    where
        F: FnOnce(Request<Messages<Q>>) -> T,
        T: Future<Output = Result<Response<S>, Status>>,
        Q: Question,
        A: Message + 'static,
        S: Stream<Item = Result<A, Status>> + Unpin + Send + 'static,
    {
        respond(async { answer(many(request)?).await }.await)
    }
}

/// The messages of a request.
fn many<Q: Question>(request: hyper::Request<impl Asking>) -> Result<Request<Messages<Q>>, Status> {
    check_encoding(request.headers())?;
    Ok(Request::from_http(request.map(Messages::new)))
}

/// The one message of a request.
async fn one<Q: Question>(request: hyper::Request<impl Asking>) -> Result<Request<Q>, Status> {
    let (metadata, extensions, mut messages) = many(request)?.into_parts();
    let message = messages.message().await?;
    let message = message.ok_or_else(|| failure::no_message("the request has no message"))?;
    if messages.message().await?.is_some() {
        return Err(failure::no_message("the request has more messages than the one of its call"));
    }
    Ok(Request::from_parts(metadata, extensions, message))
}

/// An error where messages may be compressed.
fn check_encoding(headers: &HeaderMap) -> Result<(), Status> {
    match headers.get(ENCODING) {
        Some(encoding) if encoding != "identity" => {
            let mut status = Status::unimplemented(format!(
                "messages are compressed as {encoding:?}, which this server does not take"
            ));
            let taken = MetadataValue::from_static("identity");
            status.metadata_mut().insert("grpc-accept-encoding", taken);
            Err(status)
        }
        _ => Ok(()),
    }
}

fn single<A>(response: Response<A>) -> Response<impl Stream<Item = Result<A, Status>> + Unpin> {
    response.map(|answer| stream::iter([Ok(answer)]))
}

fn respond<A, S>(answered: Result<Response<S>, Status>) -> hyper::Response<Body>
where
    A: Message + 'static,
    S: Stream<Item = Result<A, Status>> + Unpin + Send + 'static,
{
    let (metadata, answers, extensions) = match answered {
        Ok(response) => response.into_parts(),
        Err(status) => return failure::short(status).into_http(),
    };
    let mut response = hyper::Response::new(Body::new(Encoded::new(answers)));
    *response.version_mut() = Version::HTTP_2;
    *response.headers_mut() = metadata.into_headers();
    response.headers_mut().insert(CONTENT_TYPE, GRPC);
    *response.extensions_mut() = extensions;
    response
}
