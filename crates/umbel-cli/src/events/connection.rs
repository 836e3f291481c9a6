//! A connection to a server, over which events are read.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper::http::uri::{PathAndQuery, Uri};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tonic::body::Body;
use tonic::client::{Grpc, GrpcService};
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;
use umbel_proto::limits::MESSAGE_BYTES_MAX;
use umbel_proto::streams::read_req::Options;
use umbel_proto::streams::{ReadReq, ReadResp};

use crate::errors::{Failure, Outcome};

/// The call that reads and subscribes.
const READ: &str = "/event_store.client.streams.Streams/Read";

/// A connection to a server.
#[derive(Debug)]
pub struct Connection {
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

/// Reads or subscribes at the server with this address.
pub async fn read(address: &str, options: Options) -> Outcome<Streaming<ReadResp>> {
    let authority = authority(address)?;
    let unreachable = |error: &dyn std::fmt::Display| {
        Failure::System(format!("could not reach a server at {authority}: {error}"))
    };
    let stream = TcpStream::connect(authority).await.map_err(|error| unreachable(&error))?;
    let builder = Builder::new(TokioExecutor::new());
    let shaken = builder.handshake(TokioIo::new(stream)).await;
    let (sender, connection) = shaken.map_err(|error| unreachable(&error))?;
    tokio::spawn(connection);
    let origin: Uri = format!("http://{authority}")
        .parse()
        .map_err(|error| Failure::usage(format!("--connect is {address}: {error}")))?;
    let mut grpc = Grpc::with_origin(Connection { sender }, origin)
        .max_decoding_message_size(MESSAGE_BYTES_MAX);
    grpc.ready().await.map_err(|error| unreachable(&error))?;
    let request = Request::new(ReadReq { options: Some(options) });
    let path = PathAndQuery::from_static(READ);
    let answers = grpc.server_streaming(request, path, ProstCodec::default()).await;
    answers.map(tonic::Response::into_inner).map_err(|status| refused(&status))
}

/// What a server said instead of an answer.
pub fn refused(status: &Status) -> Failure {
    let text = format!("the server says: {}", status.message());
    match status.code() {
        Code::InvalidArgument | Code::FailedPrecondition | Code::NotFound | Code::Unimplemented => {
            Failure::usage(text)
        }
        Code::DataLoss => Failure::Damaged(text),
        _ => Failure::System(text),
    }
}

/// The host and the port of an address as people and servers write it.
fn authority(address: &str) -> Outcome<&str> {
    let (scheme, rest) = address.split_once("://").unwrap_or(("http", address));
    let is_clear = match scheme {
        "http" => true,
        "kurrentdb" | "esdb" => rest.contains("tls=false"),
        _ => false,
    };
    if !is_clear {
        return Err(Failure::usage(format!(
            "--connect is {address}, but connections cannot be encrypted yet; write \
             http://HOST:PORT"
        )));
    }
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    match rest[..end].rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => Ok(&rest[..end]),
        _ => Err(Failure::usage(format!(
            "--connect is {address}, but must have a host and a port: http://HOST:PORT"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_named_as_it_names_itself_or_as_people_do() {
        for (address, wanted) in [
            ("http://127.0.0.1:2113", "127.0.0.1:2113"),
            ("127.0.0.1:2113", "127.0.0.1:2113"),
            ("kurrentdb://[::1]:2113?tls=false", "[::1]:2113"),
            ("esdb://store:7/?tls=false", "store:7"),
        ] {
            assert_eq!(authority(address).unwrap(), wanted);
        }
        for wrong in [
            "https://a:1",
            "kurrentdb://a:1",
            "kurrentdb+discover://a:1?tls=false",
            "a",
            ":1",
            "a:x",
        ] {
            assert!(matches!(authority(wrong), Err(Failure::Usage(_))), "{wrong}");
        }
    }
}
