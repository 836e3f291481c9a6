//! [`MessageStream`]: the messages that a client sends in a call.
//!
//! Each message has its own memory, which is freed with the message. tonic's decoder keeps the
//! memory of the longest message until the call ends. A client may keep a thousand calls open that
//! each had a long message: docs/decisions/0037. A blocking thread decodes long messages.

use std::future::{Future, poll_fn};
use std::marker::PhantomData;
use std::pin::Pin;

use hyper::body::{Body as _, Bytes};
use prost::bytes::{Buf, BytesMut};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tonic::Status;
use tonic::body::Body;
use umbel_proto::limits::MESSAGE_BYTES_MAX;

use crate::grpc::message_limits::RequestMessage;
use crate::limits::{INLINE_MESSAGE_BYTES_MAX, LONG_MESSAGES_MAX};
use crate::protocol::grpc_status;

/// Bytes of the prefix of each message: a compression flag, and the length in four bytes.
pub const PREFIX_BYTES: usize = 5;

/// Longest message that may share a buffer with other messages that were received together with it.
const SHARED_BUFFER_BYTES_MAX: usize = 4 << 10;

/// Initial buffer capacity for a message too long for a shared buffer.
const INITIAL_CAPACITY: usize = 64 << 10;

/// Shortest and longest piece of a long message in memory.
const PIECE_BYTES: (usize, usize) = (4 << 10, 64 << 10);

/// The places of the long messages that are decoded at the same time.
static LONG_MESSAGES: Semaphore = Semaphore::const_new(LONG_MESSAGES_MAX);

/// A long message that a blocking thread decodes.
type LongMessage<Q> = Pin<Box<dyn Future<Output = Result<Q, Status>> + Send>>;

/// The messages that a client sends in a call.
pub struct MessageStream<Q> {
    body: Body,
    /// Received bytes of the next message, and perhaps of later ones.
    received: BytesMut,
    /// Length of the next message, once its prefix was received.
    length: Option<usize>,
    /// The received part of a long message.
    arriving: Option<LongMessageBytes>,
    /// The long message that is being decoded.
    long: Option<LongMessage<Q>>,
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
            arriving: None,
            long: None,
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
            if let Some(long) = &mut self.long {
                let decoded = long.as_mut().await;
                self.long = None;
                return decoded.map(Some);
            }
            match self.take_message()? {
                Some(ReceivedMessage::Short(message)) => return Q::from_bytes(message).map(Some),
                Some(ReceivedMessage::Long(message)) => {
                    self.long = Some(Box::pin(decode_long(message)));
                    continue;
                }
                None => {}
            }
            match poll_fn(|context| Pin::new(&mut self.body).poll_frame(context)).await {
                // The body ends after trailers.
                Some(frame) => {
                    let data = frame?.into_data().unwrap_or_default();
                    self.append(data);
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
    fn append(&mut self, mut data: Bytes) {
        if let (Some(length), Some(long)) = (self.length, &mut self.arriving) {
            long.add(&data.split_to((length - long.bytes).min(data.len())));
        }
        let (come, capacity) = (self.received.len() + data.len(), self.received.capacity());
        if let Some(length) = self.length.filter(|_| come > capacity) {
            let grown = (2 * capacity).clamp(INITIAL_CAPACITY, length.max(INITIAL_CAPACITY));
            let mut larger = BytesMut::with_capacity(come.max(grown.min(length)));
            larger.extend_from_slice(&self.received);
            self.received = larger;
        }
        self.received.extend_from_slice(&data);
    }

    /// Returns the next message, if all of it was received.
    fn take_message(&mut self) -> Result<Option<ReceivedMessage>, Status> {
        let length = match self.length {
            Some(length) => length,
            None if self.received.len() < PREFIX_BYTES => return Ok(None),
            None => self.read_prefix()?,
        };
        if let Some(long) = self.arriving.take_if(|long| long.bytes == length) {
            self.length = None;
            return Ok(Some(ReceivedMessage::Long(long)));
        }
        if self.arriving.is_some() {
            return Ok(None);
        }
        if self.received.len() < length {
            return Ok(None);
        }
        self.length = None;
        let message = self.received.split_to(length).freeze();
        // The remaining bytes must not keep the memory of a large message before them.
        if self.received.is_empty() || length > SHARED_BUFFER_BYTES_MAX {
            self.received = BytesMut::from(&self.received[..]);
        }
        Ok(Some(ReceivedMessage::Short(message)))
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
        if length > INLINE_MESSAGE_BYTES_MAX {
            let mut long = LongMessageBytes::default();
            long.add(&self.received.split_to(length.min(self.received.len())));
            self.received = BytesMut::from(&self.received[..]);
            self.arriving = Some(long);
        }
        Ok(length)
    }
}

/// The bytes of a complete message.
enum ReceivedMessage {
    Short(Bytes),
    Long(LongMessageBytes),
}

/// The received part of a long message, in pieces: one buffer would be copied each time it grows,
/// on an asynchronous worker.
///
/// INVARIANT: the pieces have at most twice the capacity of the received bytes, or of one piece.
#[derive(Debug, Default)]
struct LongMessageBytes {
    /// Copies of the received bytes. The bytes themselves are parts of larger buffers, which no
    /// quota counts.
    pieces: Vec<Vec<u8>>,
    /// Bytes of all pieces.
    bytes: usize,
}

impl LongMessageBytes {
    fn add(&mut self, mut received: &[u8]) {
        while !received.is_empty() {
            if self.pieces.last().is_none_or(|piece| piece.len() == piece.capacity()) {
                let capacity = self.bytes.clamp(PIECE_BYTES.0, PIECE_BYTES.1);
                self.pieces.push(Vec::with_capacity(capacity));
            }
            let Some(piece) = self.pieces.last_mut() else { return };
            let (taken, rest) =
                received.split_at(received.len().min(piece.capacity() - piece.len()));
            piece.extend_from_slice(taken);
            self.bytes += taken.len();
            received = rest;
        }
    }

    /// Joins the pieces, which are freed one after the other.
    fn join(self) -> Bytes {
        let mut message = Vec::with_capacity(self.bytes);
        for piece in self.pieces {
            message.extend_from_slice(&piece);
        }
        message.into()
    }
}

impl<Q> std::fmt::Debug for MessageStream<Q> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("MessageStream").field("length", &self.length).finish_non_exhaustive()
    }
}

/// Decodes a long message on a thread that may be busy.
async fn decode_long<Q: RequestMessage>(message: LongMessageBytes) -> Result<Q, Status> {
    // A call whose client takes nothing may never be polled again. So a task waits for the place,
    // which is free once the message is decoded, whether the result is taken or not.
    let mut decoding = JoinSet::new();
    decoding.spawn(async move {
        // The semaphore is never closed.
        let place = LONG_MESSAGES.acquire().await;
        let decode = move || {
            let decoded = Q::from_bytes(message.join());
            drop(place);
            decoded
        };
        tokio::task::spawn_blocking(decode).await
    });
    match decoding.join_next().await {
        Some(Ok(Ok(decoded))) => decoded,
        _ => Err(Status::internal("a message could not be decoded")),
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::{FutureExt, stream};
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
                crate::test_support::test_service::message_channel::<GetRequest, GetRequest>();
            let waited = tokio::time::timeout(std::time::Duration::from_secs(1), async {
                messages.message().await
            });
            assert!(waited.await.is_err());
            sender.send(GetRequest::default()).unwrap();
            assert_eq!(messages.message().await.unwrap(), Some(GetRequest::default()));
        });
    }

    /// Story: the one place for decoding went to a call whose client read no responses. Such a call
    /// is not polled, so no other client's long messages were decoded any more.
    #[test]
    fn call_that_is_not_polled_does_not_keep_the_place() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let long = || of::<PutRequest>(vec![framed(&put(100_000)).to_vec()]);
            let (mut unpolled, mut other) = (long(), long());
            let place = LONG_MESSAGES.acquire().await.unwrap();
            for messages in [&mut unpolled, &mut other] {
                // It waits for the place.
                assert!(messages.message().now_or_never().is_none());
                tokio::task::yield_now().await;
            }
            drop(place);
            let time = std::time::Duration::from_secs(20);
            let message = tokio::time::timeout(time, other.message()).await;
            assert_eq!(message.expect("it is decoded").unwrap(), Some(put(100_000)));
            // A dropped stream gives up its turn.
            let place = LONG_MESSAGES.acquire().await.unwrap();
            let (mut dropped, mut other) = (long(), long());
            assert!(dropped.message().now_or_never().is_none());
            assert!(other.message().now_or_never().is_none());
            drop((dropped, place));
            let message = tokio::time::timeout(time, other.message()).await;
            assert_eq!(message.expect("it is decoded").unwrap(), Some(put(100_000)));
        });
    }

    /// Story: short pieces between long ones kept a buffer of 64 KiB each, which no quota counted.
    #[test]
    fn pieces_of_a_long_message_take_little_more_than_their_bytes() {
        for sizes in [&[1, 4096][..], &[1], &[4095], &[16_384], &[100_000, 1], &[4096, 1, 1, 1]] {
            let (mut long, mut expected) = (LongMessageBytes::default(), Vec::new());
            for (number, size) in sizes.iter().cycle().take(300).enumerate() {
                let received = vec![number as u8; *size];
                long.add(&received);
                expected.extend_from_slice(&received);
                let memory: usize = long.pieces.iter().map(Vec::capacity).sum();
                assert!(memory <= (2 * long.bytes).max(PIECE_BYTES.0), "{sizes:?}: {memory}");
                assert!(memory < long.bytes + PIECE_BYTES.1);
            }
            assert_eq!(long.bytes, expected.len());
            assert_eq!(long.join(), expected);
        }
    }
}
