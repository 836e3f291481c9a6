//! [`Handler`]: a function that answers one call, as each of the four kinds of calls.

use std::future::{Future, Ready, ready};

use futures_util::Stream;
use prost::Message;
use tonic::server::{
    ClientStreamingService, Grpc, ServerStreamingService, StreamingService, UnaryService,
};
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;
use umbel_proto::limits::MESSAGE_BYTES_MAX;

/// Serves one call with answers of the type `A` to questions of the type `Q`.
pub fn grpc<A, Q>() -> Grpc<ProstCodec<A, Q>>
where
    A: Message + Send + 'static,
    Q: Message + Default + Send + 'static,
{
    Grpc::new(ProstCodec::default())
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX)
}

/// An answer that is there already.
type Said<A> = Ready<Result<Response<A>, Status>>;

/// A function that answers one call. Every call has its own.
pub struct Handler<F>(Option<F>);

impl<F> Handler<F> {
    /// Answers with what the function answers.
    pub fn new(function: F) -> Handler<F> {
        Handler(Some(function))
    }

    fn answer<Q, T>(&mut self, question: Q) -> T
    where
        F: FnOnce(Q) -> T,
    {
        let function = self.0.take().expect("a handler answers one call");
        function(question)
    }
}

impl Handler<()> {
    /// Answers with this, whatever is asked.
    pub fn saying<Q, A>(answer: A) -> Handler<impl FnOnce(Request<Q>) -> Said<A>> {
        Handler::new(move |_| ready(Ok(Response::new(answer))))
    }
}

impl<F, T, Q, A> UnaryService<Q> for Handler<F>
where
    F: FnOnce(Request<Q>) -> T,
    T: Future<Output = Result<Response<A>, Status>>,
{
    type Response = A;
    type Future = T;

    fn call(&mut self, request: Request<Q>) -> T {
        self.answer(request)
    }
}

impl<F, T, Q, A> ClientStreamingService<Q> for Handler<F>
where
    F: FnOnce(Request<Streaming<Q>>) -> T,
    T: Future<Output = Result<Response<A>, Status>>,
{
    type Response = A;
    type Future = T;

    fn call(&mut self, request: Request<Streaming<Q>>) -> T {
        self.answer(request)
    }
}

impl<F, T, Q, A, S> ServerStreamingService<Q> for Handler<F>
where
    F: FnOnce(Request<Q>) -> T,
    T: Future<Output = Result<Response<S>, Status>>,
    S: Stream<Item = Result<A, Status>>,
{
    type Response = A;
    type ResponseStream = S;
    type Future = T;

    fn call(&mut self, request: Request<Q>) -> T {
        self.answer(request)
    }
}

impl<F, T, Q, A, S> StreamingService<Q> for Handler<F>
where
    F: FnOnce(Request<Streaming<Q>>) -> T,
    T: Future<Output = Result<Response<S>, Status>>,
    S: Stream<Item = Result<A, Status>>,
{
    type Response = A;
    type ResponseStream = S;
    type Future = T;

    fn call(&mut self, request: Request<Streaming<Q>>) -> T {
        self.answer(request)
    }
}
