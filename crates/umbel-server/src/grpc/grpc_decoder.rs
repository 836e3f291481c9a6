//! [`MessageStream`]: the messages that a client sends in a call.
//!
//! Each message has its own memory, which is freed with the message. tonic's decoder keeps the
//! memory of the longest message until the call ends. A client may keep a thousand calls open that
//! each had a long message: docs/decisions/0037.

use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::Pin;

use hyper::body::{Body as _, Bytes};
use prost::bytes::{Buf, BytesMut};
use tonic::Status;
use tonic::body::Body;
use umbel_proto::limits::MESSAGE_BYTES_MAX;

use crate::grpc::message_limits::RequestMessage;
use crate::protocol::grpc_status;

/// Bytes of the prefix of each message: a compression flag, and the length in four bytes.
pub const PREFIX_BYTES: usize = 5;

/// Longest message that may share a buffer with other messages that were received together with it.
const SHARED_BUFFER_BYTES_MAX: usize = 4 << 10;

/// Initial buffer capacity for a message too long for a shared buffer.
const INITIAL_CAPACITY: usize = 64 << 10;

/// The messages that a client sends in a call.
#[derive(Debug)]
pub struct MessageStream<Q> {
    body: Body,
    /// Received bytes of the next message, and perhaps of later ones.
    received: BytesMut,
    /// Length of the next message, once its prefix was received.
    length: Option<usize>,
    /// Whether the stream has ended, so that no more bytes are read.
    is_finished: bool,
    _message: PhantomData<fn() -> Q>,
}

impl<Q: RequestMessage> MessageStream<Q> {
    /// Creates the stream of the messages in a request body.
    pub fn new<B>(body: B) -> MessageStream<Q>
    where
        B: hyper::body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (body, come) = (Body::new(body), BytesMut::new());
        MessageStream {
            body,
            received: come,
            length: None,
            is_finished: false,
            _message: PhantomData,
        }
    }

    /// The next message; `None` after the last one. The future may be dropped without losing bytes.
    ///
    /// # Errors
    /// The request is truncated, or a message is malformed. After an error there are no more
    /// messages.
    pub async fn message(&mut self) -> Result<Option<Q>, Status> {
        if self.is_finished {
            return Ok(None);
        }
        let next = self.read_next().await;
        self.is_finished = !matches!(next, Ok(Some(_)));
        next
    }

    async fn read_next(&mut self) -> Result<Option<Q>, Status> {
        loop {
            if let Some(message) = self.try_decode()? {
                return Ok(Some(message));
            }
            match poll_fn(|context| Pin::new(&mut self.body).poll_frame(context)).await {
                // The body ends after trailers.
                Some(frame) => {
                    let data = frame?.into_data().unwrap_or_default();
                    self.append(&data);
                }
                None if self.received.is_empty() && self.length.is_none() => return Ok(None),
                None => {
                    return Err(grpc_status::malformed_message(
                        "the request ends within a message",
                    ));
                }
            }
        }
    }

    /// Adds received bytes. The buffer grows with the received bytes, so an announced length alone
    /// costs no memory. The buffer never grows beyond the end of the message, which may occupy it
    /// for a long time.
    fn append(&mut self, data: &[u8]) {
        let (come, capacity) = (self.received.len() + data.len(), self.received.capacity());
        if let Some(length) = self.length.filter(|_| come > capacity) {
            let grown = (2 * capacity).clamp(INITIAL_CAPACITY, length.max(INITIAL_CAPACITY));
            let mut larger = BytesMut::with_capacity(come.max(grown.min(length)));
            larger.extend_from_slice(&self.received);
            self.received = larger;
        }
        self.received.extend_from_slice(data);
    }

    /// Returns the next message, if all of it was received.
    fn try_decode(&mut self) -> Result<Option<Q>, Status> {
        let length = match self.length {
            Some(length) => length,
            None if self.received.len() < PREFIX_BYTES => return Ok(None),
            None => self.read_prefix()?,
        };
        if self.received.len() < length {
            return Ok(None);
        }
        self.length = None;
        let message = self.received.split_to(length).freeze();
        // The remaining bytes must not keep the memory of a large message before them.
        if self.received.is_empty() || length > SHARED_BUFFER_BYTES_MAX {
            self.received = BytesMut::from(&self.received[..]);
        }
        Q::check_fields(&message).map_err(|why| grpc_status::malformed_message(&why))?;
        let decoded = Q::decode(message);
        decoded.map(Some).map_err(|error| grpc_status::malformed_message(&error.to_string()))
    }

    /// Parses a prefix. Returns the length of the message.
    fn read_prefix(&mut self) -> Result<usize, Status> {
        let (is_compressed, length) = (self.received.get_u8(), self.received.get_u32() as usize);
        if is_compressed != 0 {
            return Err(grpc_status::malformed_message(
                "a message is compressed, but the request has no grpc-encoding header",
            ));
        }
        Q::check_length(length).map_err(|why| grpc_status::malformed_message(&why))?;
        if length > MESSAGE_BYTES_MAX {
            return Err(Status::out_of_range(format!(
                "a message has {length} bytes; the limit is {MESSAGE_BYTES_MAX}"
            )));
        }
        self.length = Some(length);
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::stream;
    use http_body_util::StreamBody;
    use hyper::body::Frame;
    use tonic::Code;
    use umbel_proto::kv::{GetRequest, PutRequest};

    use super::*;
    use crate::test_support::test_service::{framed, run_paused};

    fn of<Q: RequestMessage>(pieces: Vec<Vec<u8>>) -> MessageStream<Q> {
        let frames =
            pieces.into_iter().map(|piece| Ok::<_, Infallible>(Frame::data(Bytes::from(piece))));
        MessageStream::new(StreamBody::new(stream::iter(frames)))
    }

    fn put(bytes: usize) -> PutRequest {
        PutRequest { key: vec![1; 7], value: vec![2; bytes], ..PutRequest::default() }
    }

    #[test]
    fn messages_decode_across_any_frame_boundaries() {
        let puts = [0, 3, 70_000, 1, 0].map(put);
        let sent: Vec<u8> = puts.iter().flat_map(framed).collect();
        for piece in [1, 2, 5, 6, 100, 16_384, 70_010, sent.len()] {
            run_paused(async {
                let mut messages = of(sent.chunks(piece).map(<[u8]>::to_vec).collect());
                for put in &puts {
                    assert_eq!(messages.message().await.unwrap().as_ref(), Some(put), "{piece}");
                }
                assert_eq!(messages.message().await.unwrap(), None);
                assert_eq!(messages.message().await.unwrap(), None);
            });
        }
    }

    #[test]
    fn malformed_message_fails_and_ends_the_call() {
        let compressed = [&[1][..], &framed(&put(9))[1..]].concat();
        let nonsense = [&[0, 0, 0, 0, 3][..], &[0xff; 3]].concat();
        let next = framed(&put(1)).to_vec();
        for (pieces, code) in [
            (vec![framed(&put(9))[..10].to_vec()], Code::InvalidArgument),
            (vec![vec![0, 0]], Code::InvalidArgument),
            (vec![compressed, next.clone()], Code::InvalidArgument),
            (vec![nonsense, next.clone()], Code::InvalidArgument),
            (vec![vec![0, 0xff, 0, 0, 0], next], Code::OutOfRange),
        ] {
            run_paused(async {
                let mut messages = of::<PutRequest>(pieces.clone());
                let refused = messages.message().await.unwrap_err();
                assert_eq!(refused.code(), code, "{pieces:?}: {refused:?}");
                assert_eq!(messages.message().await.unwrap(), None);
            });
        }
    }

    /// Story: the decoder kept the memory of the longest message until the call ended. A client
    /// with a thousand idle calls, each of which had sent 16 MiB, made the server keep 16 GiB.
    #[test]
    fn buffer_is_freed_after_a_message_is_taken() {
        run_paused(async {
            let pieces = vec![framed(&put(1 << 20)).to_vec(), framed(&put(5)).to_vec()];
            let mut messages = of::<PutRequest>(pieces);
            let long = messages.message().await.unwrap().unwrap();
            assert_eq!((long.value.len(), messages.received.capacity()), (1 << 20, 0));
            messages.message().await.unwrap().unwrap();
            assert!(messages.received.capacity() < 100, "{}", messages.received.capacity());
        });
    }

    #[test]
    fn message_after_a_cancelled_wait_is_received() {
        run_paused(async {
            let (sender, mut messages) =
                crate::test_support::test_service::message_channel::<GetRequest>();
            let waited = tokio::time::timeout(std::time::Duration::from_secs(1), async {
                messages.message().await
            });
            assert!(waited.await.is_err());
            sender.send(GetRequest::default()).unwrap();
            assert_eq!(messages.message().await.unwrap(), Some(GetRequest::default()));
        });
    }
}
