//! The client of the model test of wrong calls: it sends any bytes and takes what comes of them.

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

/// Nothing here takes longer, unless it hangs.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// How long a call is listened to that may go on for ever.
pub const GLANCE: Duration = Duration::from_millis(150);
/// Calls that may go on for ever.
pub const ENDLESS: [(&str, &str); 4] = [
    (persistent::SERVICE, "Read"),
    (monitoring::SERVICE, "Stats"),
    (projections::SERVICE, "Statistics"),
    (streams::SERVICE, "BatchAppend"),
];

/// Numbers that follow from a seed.
pub struct Random(pub u64);

impl Random {
    /// A number below this.
    pub fn below(&mut self, most: usize) -> usize {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % most
    }

    /// One of these.
    pub fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

/// How a body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Whole,
    /// In the middle of its last message.
    Half,
    /// The client resets the call.
    Reset,
}

/// What becomes of a call: its status and the messages of its answer. No status where it goes on.
pub struct Answer {
    pub code: Option<Code>,
    pub status: Option<Status>,
    pub messages: Vec<Vec<u8>>,
}

type Body = http_body_util::combinators::BoxBody<Bytes, io::Error>;

/// A client that sends any bytes.
pub struct Client {
    sender: SendRequest<Body>,
    authority: String,
    /// What was called last.
    pub last: String,
}

/// How long a call is listened to, and which of its messages is enough.
pub type Until<'a> = (Duration, &'a dyn Fn(&[u8]) -> bool);

/// A message as it goes over the connection.
pub fn framed(flag: u8, message: &[u8]) -> Vec<u8> {
    [&[flag][..], &(message.len() as u32).to_be_bytes(), message].concat()
}

/// A message with any fields, some of them messages again.
pub fn anything(random: &mut Random, depth: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..random.below(4) {
        let tag = 1 + random.below(6) as u8;
        match random.below(3) {
            0 => {
                bytes.push(tag << 3);
                let number = random.of(&[0, 1, 7, u64::MAX, i64::MIN as u64, 1 << 31]);
                prost::encoding::encode_varint(number, &mut bytes);
            }
            1 if depth > 0 => {
                let inner = anything(random, depth - 1);
                bytes.push(tag << 3 | 2);
                prost::encoding::encode_varint(inner.len() as u64, &mut bytes);
                bytes.extend(inner);
            }
            _ => {
                let text = random.of(&["", "group", "\u{0}", "$by_category", "a-b-c"]);
                bytes.extend([tag << 3 | 2, text.len() as u8]);
                bytes.extend(text.as_bytes());
            }
        }
    }
    bytes
}

impl Client {
    /// One that is connected, and what serves its connection.
    pub async fn to(address: SocketAddr) -> (Client, JoinHandle<hyper::Result<()>>) {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let builder = Builder::new(TokioExecutor::new());
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
        let client = Client { sender, authority: address.to_string(), last: String::new() };
        (client, tokio::spawn(connection))
    }

    /// Calls with these bytes. A call that goes on for ever is listened to for a moment.
    pub async fn call(
        &mut self,
        service: &'static str,
        method: &'static str,
        sent: Vec<u8>,
        end: End,
    ) -> Answer {
        let is_endless = ENDLESS.contains(&(service, method));
        let time = if is_endless { GLANCE } else { PATIENCE };
        self.call_until(service, method, (sent, end), (time, &|_| false)).await
    }

    /// Calls with these bytes, and listens for so long, or until there is a message that is enough.
    pub async fn call_until(
        &mut self,
        service: &'static str,
        method: &'static str,
        (sent, end): (Vec<u8>, End),
        (time, is_enough): Until<'_>,
    ) -> Answer {
        let kept = if end == End::Half { sent.len().saturating_sub(2) } else { sent.len() };
        let mut frames = vec![Ok(Frame::data(Bytes::from(sent[..kept].to_vec())))];
        if end == End::Reset {
            frames.push(Err(io::Error::other("reset")));
        }
        // What is sent is under way before the call is reset.
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
        let mut answer = Answer { code: None, status: None, messages: Vec::new() };
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

/// Takes the first message of these bytes, where all of it is there.
fn next_message(bytes: &mut Vec<u8>) -> Option<Vec<u8>> {
    let length = u32::from_be_bytes(bytes.get(1..5)?.try_into().unwrap()) as usize;
    let message = bytes.get(5..5 + length)?.to_vec();
    bytes.drain(..5 + length);
    Some(message)
}
