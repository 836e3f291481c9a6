//! Bare server: gRPC by tonic with its defaults, without a store.

use std::convert::Infallible;
use std::future::{Future, ready};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::{Stream, StreamExt, stream};
use prost::Message;
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::server::{ClientStreamingService, Grpc, ServerStreamingService, StreamingService};
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;
use umbel_lab::engine::Result;
use umbel_proto::streams::read_req::{CountOption, StreamOption};
use umbel_proto::streams::{
    AppendReq, AppendResp, BatchAppendReq, BatchAppendResp, ReadReq, ReadResp, append_req,
};

use super::messages::{appended, batch_appended, confirmed, id, proposed, recorded};
use crate::serving::bare_append_sink::AppendSink;
use crate::serving::bare_subscribers::Subscribers;

/// Upper bound on the batches of one call in flight.
const BATCHES_MAX: usize = 256;

/// Prints the server's address, then serves until standard input ends.
///
/// # Errors
/// The system refused an address, threads or the file.
pub fn serve(sync: Option<&Path>) -> Result<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    runtime
        .block_on(async {
            let sink = match sync {
                Some(path) => AppendSink::synced(path)?,
                None => AppendSink::Nowhere,
            };
            let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
            let served = tonic::transport::Server::builder().serve(free, BareServer::new(sink));
            println!("http://{free}");
            let input = tokio::task::spawn_blocking(|| {
                std::io::copy(&mut std::io::stdin(), &mut std::io::sink())
            });
            tokio::select! {
                served = served => Ok(served?),
                _ = input => Ok(()),
            }
        })
        .inspect(|()| std::process::exit(0))
}

/// Parses the address in the first line that Umbel or the bare server prints.
pub(super) fn address_in(line: &str) -> Option<SocketAddr> {
    let rest = line.split_once("://")?.1;
    rest.split(['?', '/', '\n']).next()?.parse().ok()
}

/// State that the calls share.
#[derive(Debug, Clone)]
struct BareServer {
    sink: AppendSink,
    live: Arc<Subscribers>,
    /// Answer to every read.
    event: ReadResp,
}

impl BareServer {
    fn new(sink: AppendSink) -> BareServer {
        let event = recorded("order-0000000000000000", &proposed(id(1, 1)));
        BareServer { sink, live: Arc::default(), event }
    }

    fn publish(&self, stream: &[u8], event: &append_req::ProposedMessage) {
        let stream = String::from_utf8_lossy(stream);
        self.live.publish(&stream, || recorded(&stream, event));
    }
}

type ServerResponse = std::result::Result<http::Response<Body>, Infallible>;

impl Service<http::Request<Body>> for BareServer {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = ServerResponse> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<std::result::Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let bare = self.clone();
        Box::pin(async move {
            let method = request.uri().path().rsplit('/').next().unwrap_or_default().to_string();
            Ok(match method.as_str() {
                "Append" => {
                    Grpc::new(ProstCodec::default())
                        .client_streaming(AppendService(bare), request)
                        .await
                }
                "BatchAppend" => {
                    Grpc::new(ProstCodec::default())
                        .streaming(BatchAppendService(bare), request)
                        .await
                }
                "Read" => {
                    Grpc::new(ProstCodec::default())
                        .server_streaming(ReadService(bare), request)
                        .await
                }
                _ => Status::unimplemented("a bare server").into_http(),
            })
        })
    }
}

type UnaryFuture<A> =
    Pin<Box<dyn Future<Output = std::result::Result<Response<A>, Status>> + Send>>;
type MessageStream<A> = Pin<Box<dyn Stream<Item = std::result::Result<A, Status>> + Send>>;

struct AppendService(BareServer);

impl ClientStreamingService<AppendReq> for AppendService {
    type Response = AppendResp;
    type Future = UnaryFuture<AppendResp>;

    fn call(&mut self, request: Request<Streaming<AppendReq>>) -> Self::Future {
        let bare = self.0.clone();
        Box::pin(async move {
            let mut parts = request.into_inner();
            let mut stream = Vec::new();
            let mut events = Vec::new();
            while let Some(part) = parts.message().await? {
                match part.content {
                    Some(append_req::Content::Options(options)) => {
                        let name = options.stream_identifier.unwrap_or_default();
                        stream = name.stream_name.to_vec();
                    }
                    Some(append_req::Content::ProposedMessage(event)) => events.push(event),
                    None => {}
                }
            }
            let bytes = || events.iter().flat_map(Message::encode_to_vec).collect();
            if !bare.sink.append(bytes).await {
                return Err(Status::internal("the file cannot be written"));
            }
            events.iter().for_each(|event| bare.publish(&stream, event));
            Ok(Response::new(appended()))
        })
    }
}

struct BatchAppendService(BareServer);

impl StreamingService<BatchAppendReq> for BatchAppendService {
    type Response = BatchAppendResp;
    type ResponseStream = MessageStream<BatchAppendResp>;
    type Future = UnaryFuture<Self::ResponseStream>;

    fn call(&mut self, request: Request<Streaming<BatchAppendReq>>) -> Self::Future {
        let bare = self.0.clone();
        let answers = request.into_inner().map(move |batch| {
            let bare = bare.clone();
            async move {
                let batch = batch?;
                if !bare.sink.append(|| batch.encode_to_vec()).await {
                    return Err(Status::internal("the file cannot be written"));
                }
                Ok(batch_appended(&batch))
            }
        });
        let answers: Self::ResponseStream = Box::pin(answers.buffered(BATCHES_MAX));
        Box::pin(ready(Ok(Response::new(answers))))
    }
}

struct ReadService(BareServer);

impl ServerStreamingService<ReadReq> for ReadService {
    type Response = ReadResp;
    type ResponseStream = MessageStream<ReadResp>;
    type Future = UnaryFuture<Self::ResponseStream>;

    fn call(&mut self, request: Request<ReadReq>) -> Self::Future {
        let options = request.into_inner().options.unwrap_or_default();
        let answers: Self::ResponseStream = match options.count_option {
            Some(CountOption::Count(count)) => {
                let event = self.0.event.clone();
                Box::pin(stream::iter((0..count).map(move |_| Ok(event.clone()))))
            }
            _ => {
                let name = match &options.stream_option {
                    Some(StreamOption::Stream(one)) => {
                        let name = one.stream_identifier.clone().unwrap_or_default();
                        String::from_utf8_lossy(&name.stream_name).into_owned()
                    }
                    _ => String::new(),
                };
                let live = stream::unfold(self.0.live.subscribe(&name), |mut live| async {
                    let event = live.recv().await.map_err(|_| Status::aborted("fell behind"));
                    Some((event, live))
                });
                Box::pin(stream::once(ready(Ok(confirmed()))).chain(live))
            }
        };
        Box::pin(ready(Ok(Response::new(answers))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_parsed_from_output_of_both_servers() {
        let expected: SocketAddr = "127.0.0.1:2113".parse().unwrap();
        for line in ["http://127.0.0.1:2113\n", "kurrentdb://127.0.0.1:2113?tls=false\n"] {
            assert_eq!(address_in(line), Some(expected));
        }
        assert_eq!(address_in("nothing"), None);
    }
}
