//! Client of the model tests of malformed calls: it sends any bytes and records the response.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};
use tonic::{Code, Status};
use umbel_proto::{monitoring, persistent, projections, streams};
use umbel_sim::Random;

/// Time limit of a call; a call that takes longer counts as hanging.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(20);
/// Time to listen to a call that may never end.
pub const LISTEN_TIME: Duration = Duration::from_millis(150);
/// Calls that may never end.
pub const ENDLESS: [(&str, &str); 4] = [
    (persistent::SERVICE, "Read"),
    (monitoring::SERVICE, "Stats"),
    (projections::SERVICE, "Statistics"),
    (streams::SERVICE, "BatchAppend"),
];

/// End of a request body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyEnd {
    Whole,
    /// The body ends in the middle of its last message.
    Half,
    /// The client resets the call.
    Reset,
}

/// Outcome of a call: its status and the messages of its response. The status is `None` if the call
/// has not ended.
pub struct CallOutcome {
    pub code: Option<Code>,
    pub status: Option<Status>,
    pub messages: Vec<Vec<u8>>,
}

type Body = http_body_util::combinators::BoxBody<Bytes, io::Error>;

/// A client that sends any bytes.
pub struct MalformedClient {
    sender: SendRequest<Body>,
    authority: String,
    /// The last call.
    pub last: String,
}

/// Time limit for listening to a call, and a predicate on the message that ends it.
pub type ListenUntil<'a> = (Duration, &'a dyn Fn(&[u8]) -> bool);

/// Frames a message for the connection.
pub fn framed(flag: u8, message: &[u8]) -> Vec<u8> {
    [&[flag][..], &(message.len() as u32).to_be_bytes(), message].concat()
}

/// Builds a message with random fields, some of them nested messages.
pub fn random_message(random: &mut Random, depth: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..random.below_usize(4) {
        let tag = 1 + random.below_usize(6) as u8;
        match random.below_usize(3) {
            0 => {
                bytes.push(tag << 3);
                let number = random.pick(&[0, 1, 7, u64::MAX, i64::MIN as u64, 1 << 31]);
                prost::encoding::encode_varint(number, &mut bytes);
            }
            1 if depth > 0 => {
                let inner = random_message(random, depth - 1);
                bytes.push(tag << 3 | 2);
                prost::encoding::encode_varint(inner.len() as u64, &mut bytes);
                bytes.extend(inner);
            }
            _ => {
                let text = random.pick(&["", "group", "\u{0}", "$by_category", "a-b-c"]);
                bytes.extend([tag << 3 | 2, text.len() as u8]);
                bytes.extend(text.as_bytes());
            }
        }
    }
    bytes
}

impl MalformedClient {
    /// Connects a client; also returns the task that serves its connection.
    pub async fn to(address: SocketAddr) -> (MalformedClient, JoinHandle<hyper::Result<()>>) {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let builder = Builder::new(TokioExecutor::new());
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
        let client =
            MalformedClient { sender, authority: address.to_string(), last: String::new() };
        (client, tokio::spawn(connection))
    }

    /// Calls a method with these bytes. An endless call is listened to for a short time.
    pub async fn call(
        &mut self,
        service: &'static str,
        method: &'static str,
        sent: Vec<u8>,
        end: BodyEnd,
    ) -> CallOutcome {
        let is_endless = ENDLESS.contains(&(service, method));
        let time = if is_endless { LISTEN_TIME } else { CALL_TIMEOUT };
        self.call_until(service, method, (sent, end), (time, &|_| false)).await
    }

    /// Calls a method with these bytes, and listens until the time limit or a sufficient message.
    pub async fn call_until(
        &mut self,
        service: &'static str,
        method: &'static str,
        (sent, end): (Vec<u8>, BodyEnd),
        (time, is_enough): ListenUntil<'_>,
    ) -> CallOutcome {
        let kept = if end == BodyEnd::Half { sent.len().saturating_sub(2) } else { sent.len() };
        let mut frames = vec![Ok(Frame::data(Bytes::from(sent[..kept].to_vec())))];
        if end == BodyEnd::Reset {
            frames.push(Err(io::Error::other("reset")));
        }
        // The data is sent before the call is reset.
        let frames = stream::unfold(frames.into_iter(), |mut frames| async {
            tokio::task::yield_now().await;
            frames.next().map(|frame| (frame, frames))
        });
        let request = hyper::Request::post(format!("http://{}/{service}/{method}", self.authority))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(BodyExt::boxed(StreamBody::new(frames)))
            .unwrap();
        self.last = format!("{service}/{method}, {end:?}, of {sent:?}");
        let mut answer = CallOutcome { code: None, status: None, messages: Vec::new() };
        let Ok(response) = self.sender.send_request(request).await else { return answer };
        let mut status = Status::from_header_map(response.headers());
        let (mut body, mut bytes) = (response.into_body(), Vec::new());
        let until = Instant::now() + time;
        while !answer.messages.last().is_some_and(|last| is_enough(last))
            && let Ok(Some(Ok(frame))) = timeout_at(until, body.frame()).await
        {
            match frame.into_data() {
                Ok(data) => bytes.extend_from_slice(&data),
                Err(frame) => {
                    let trailers = frame.into_trailers().unwrap_or_default();
                    status = Status::from_header_map(&trailers);
                }
            }
            while let Some(message) = next_message(&mut bytes) {
                answer.messages.push(message);
            }
        }
        (answer.code, answer.status) = (status.as_ref().map(Status::code), status);
        answer
    }
}

/// Splits off the first message of these bytes, if it is complete.
fn next_message(bytes: &mut Vec<u8>) -> Option<Vec<u8>> {
    let length = u32::from_be_bytes(bytes.get(1..5)?.try_into().unwrap()) as usize;
    let message = bytes.get(5..5 + length)?.to_vec();
    bytes.drain(..5 + length);
    Some(message)
}
