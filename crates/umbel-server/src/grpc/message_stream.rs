//! [`MessageStream`]: the messages that a client sends in a call.
//!
//! Each message has its own memory, which is freed with the message. tonic's decoder keeps the
//! memory of the longest message until the call ends. A client may keep a thousand calls open that
//! each had a long message: docs/decisions/0037.
//!
//! A message of more than some kibibytes counts against a quota until its call takes it. A call is
//! polled only while its client takes responses. So such a message is a [`CountedMessage`], which
//! the quota drops if the call stalls.

use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::{Body as _, Bytes};
use hyper::http::Extensions;
use prost::bytes::{Buf, BytesMut};
use tonic::Status;
use tonic::body::Body;
use umbel_proto::limits::MESSAGE_BYTES_MAX;

use crate::grpc::counted_message::CountedMessage;
use crate::grpc::message_limits::RequestMessage;
use crate::limits::{INLINE_MESSAGE_BYTES_MAX, PARTIAL_APPEND_TIME, RECEIVE_BYTES_FREE};
use crate::protocol::grpc_status;
use crate::resources::connection_registry::Connection;
use crate::resources::decoding_places::DecodingPlaces;
use crate::resources::inbound_quota::InboundQuota;

/// Bytes of the prefix of each message: a compression flag, and the length in four bytes.
pub const PREFIX_BYTES: usize = 5;

/// Longest message that may share a buffer with other messages that were received together with it.
const SHARED_BUFFER_BYTES_MAX: usize = 4 << 10;

/// Initial buffer capacity for a message too long for a shared buffer.
const INITIAL_CAPACITY: usize = 64 << 10;

/// Bytes of a message whose decoding consumes one unit of a task's budget. A task yields after 128
/// units, which are those of the longest message that is decoded where it is received.
const BYTES_PER_BUDGET_UNIT: usize = INLINE_MESSAGE_BYTES_MAX / 128;

/// The quota of received messages, and the time limit of a message. An extension of each request.
#[derive(Debug, Clone)]
pub struct ReceiveLimits {
    /// The quota of all connections together.
    pub quota: Arc<InboundQuota>,
    /// The places of all connections together.
    pub places: DecodingPlaces,
    /// Maximum time for which a message, or a request after its only message, may stay incomplete.
    pub time: Duration,
}

impl Default for ReceiveLimits {
    fn default() -> ReceiveLimits {
        let (quota, places) = (Arc::default(), DecodingPlaces::default());
        ReceiveLimits { quota, places, time: PARTIAL_APPEND_TIME }
    }
}

/// The messages that a client sends in a call.
pub struct MessageStream<Q> {
    body: Body,
    limits: ReceiveLimits,
    connection: Option<Arc<Connection>>,
    /// Received bytes of the next message, and perhaps of later ones.
    received: BytesMut,
    /// Length of the next message, once its prefix was received.
    length: Option<usize>,
    /// The next message, if it counts against the quota.
    counted: Option<CountedMessage<Q>>,
    /// Units of the task's budget that the received message still consumes before it is decoded.
    budget_units: Option<usize>,
    /// Whether the stream has ended, so that no more bytes are read.
    is_finished: bool,
    _message: PhantomData<fn() -> Q>,
}

/// The next message of a stream.
enum NextMessage<Q> {
    Short(Q),
    /// The decoded message, which still counts against the quota.
    Counted(CountedMessage<Q>),
}

impl<Q: RequestMessage> NextMessage<Q> {
    /// Takes the message. Releases its share of the quota.
    fn take(self) -> Result<Q, Status> {
        match self {
            NextMessage::Short(message) => Ok(message),
            NextMessage::Counted(message) => message.take(),
        }
    }
}

impl<Q: RequestMessage> MessageStream<Q> {
    /// Creates the stream of the messages in a request body. The extensions are those of the
    /// request.
    pub fn new<B>(body: B, extensions: &Extensions) -> MessageStream<Q>
    where
        B: hyper::body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        MessageStream {
            body: Body::new(body),
            // Without limits the stream has its own.
            limits: extensions.get().cloned().unwrap_or_default(),
            connection: extensions.get().cloned(),
            received: BytesMut::new(),
            length: None,
            counted: None,
            budget_units: None,
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
        let next = match self.read_next().await {
            Ok(Some(next)) => next.take().map(Some),
            Ok(None) => Ok(None),
            Err(status) => Err(status),
        };
        self.is_finished = !matches!(next, Ok(Some(_)));
        if self.is_finished {
            // The call may wait long until its client takes the status.
            (self.received, self.counted) = (BytesMut::new(), None);
        }
        next
    }

    /// The only message of a request, once the request has ended. Until then the message is not
    /// decoded, because a decoded message may take many times its bytes, and only these count
    /// against the quota.
    ///
    /// # Errors
    /// The request is truncated or does not end in time, the message is malformed, or there is not
    /// exactly one message.
    pub async fn only_message(mut self) -> Result<Q, Status> {
        let length = self.receive_next().await?;
        let length =
            length.ok_or_else(|| grpc_status::malformed_message("the request has no message"))?;
        if let Some(counted) = &self.counted {
            counted.begin_wait_for_end();
        }
        let end = tokio::time::timeout(self.limits.time, self.read_end(length)).await;
        end.unwrap_or_else(|_| Err(grpc_status::request_timed_out()))?;
        self.decode_next(length).await?.take()
    }

    async fn read_next(&mut self) -> Result<Option<NextMessage<Q>>, Status> {
        match self.receive_next().await? {
            Some(length) => self.decode_next(length).await.map(Some),
            None => Ok(None),
        }
    }

    /// Receives the bytes of the next message; returns their number, or `None` after the last
    /// message.
    async fn receive_next(&mut self) -> Result<Option<usize>, Status> {
        loop {
            if let Some(length) = self.received_length()? {
                return Ok(Some(length));
            }
            match poll_fn(|context| Pin::new(&mut self.body).poll_frame(context)).await {
                // The body ends after trailers.
                Some(frame) => {
                    let data = frame?.into_data().unwrap_or_default();
                    self.append(data)?;
                }
                None if self.received.is_empty() && self.length.is_none() => return Ok(None),
                None => return Err(ends_within()),
            }
        }
    }

    /// Waits for the end of the request, which has no message after the received one of `length`
    /// bytes.
    async fn read_end(&mut self, length: usize) -> Result<(), Status> {
        // The bytes of a counted message are not among the received ones.
        let own = if self.counted.is_some() { 0 } else { length };
        loop {
            if self.received.len() >= own + PREFIX_BYTES {
                return Err(grpc_status::malformed_message(
                    "the request has several messages; this call takes one",
                ));
            }
            match poll_fn(|context| Pin::new(&mut self.body).poll_frame(context)).await {
                Some(frame) => {
                    self.received.extend_from_slice(&frame?.into_data().unwrap_or_default());
                }
                None if self.received.len() == own => return Ok(()),
                None => return Err(ends_within()),
            }
        }
    }

    /// Adds received bytes. The buffer grows with the received bytes, so an announced length alone
    /// costs no memory. The buffer never grows beyond the end of the message, which may occupy it
    /// for a long time.
    fn append(&mut self, mut data: Bytes) -> Result<(), Status> {
        // A frame without bytes is no progress.
        if data.is_empty() {
            return Ok(());
        }
        if let (Some(length), Some(counted)) = (self.length, &mut self.counted) {
            counted.add(&mut data, length)?;
        }
        let (come, capacity) = (self.received.len() + data.len(), self.received.capacity());
        if let Some(length) = self.length.filter(|_| come > capacity) {
            let grown = (2 * capacity).clamp(INITIAL_CAPACITY, length.max(INITIAL_CAPACITY));
            let mut larger = BytesMut::with_capacity(come.max(grown.min(length)));
            larger.extend_from_slice(&self.received);
            self.received = larger;
        }
        self.received.extend_from_slice(&data);
        Ok(())
    }

    /// Length of the next message, if all of it was received.
    fn received_length(&mut self) -> Result<Option<usize>, Status> {
        let length = match self.length {
            Some(length) => length,
            None if self.received.len() < PREFIX_BYTES => return Ok(None),
            None => self.read_prefix()?,
        };
        let received = match &self.counted {
            Some(counted) => counted.received_bytes()?,
            None => self.received.len(),
        };
        Ok((received >= length).then_some(length))
    }

    /// Decodes the received message of this length. The future may be dropped and called again.
    async fn decode_next(&mut self, length: usize) -> Result<NextMessage<Q>, Status> {
        if length <= INLINE_MESSAGE_BYTES_MAX {
            self.consume_budget(length).await;
        }
        if let Some(counted) = &mut self.counted {
            counted.decode(length, &self.limits.places, self.connection.as_ref()).await;
        }
        (self.length, self.budget_units) = (None, None);
        if let Some(counted) = self.counted.take() {
            return Ok(NextMessage::Counted(counted));
        }
        let message = self.received.split_to(length).freeze();
        // The remaining bytes must not keep the memory of a large message before them.
        if self.received.is_empty() || length > SHARED_BUFFER_BYTES_MAX {
            self.received = BytesMut::from(&self.received[..]);
        }
        Q::from_bytes(message).map(NextMessage::Short)
    }

    /// Consumes the budget for a message that is decoded here. Once the budget is consumed, the
    /// task yields: a call may have received hundreds of messages at once.
    async fn consume_budget(&mut self, length: usize) {
        let units = self.budget_units.get_or_insert(length / BYTES_PER_BUDGET_UNIT);
        // A future that is dropped has consumed its units nevertheless.
        while *units > 0 {
            tokio::task::consume_budget().await;
            *units -= 1;
        }
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
        if length > RECEIVE_BYTES_FREE {
            let mut counted = CountedMessage::new(&self.limits.quota);
            let mut received = std::mem::take(&mut self.received).freeze();
            counted.add(&mut received, length)?;
            self.received = BytesMut::from(&received[..]);
            self.counted = Some(counted);
        }
        Ok(length)
    }
}

fn ends_within() -> Status {
    grpc_status::malformed_message("the request ends within a message")
}

impl<Q> std::fmt::Debug for MessageStream<Q> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("MessageStream").field("length", &self.length).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::{FutureExt, stream};
    use http_body_util::StreamBody;
    use hyper::body::Frame;
    use tonic::Code;
    use umbel_proto::kv::{GetRequest, PutRequest};

    use super::*;
    use crate::limits::{
        LONG_MESSAGE_BYTES_MIN, MESSAGE_GROWTH_BYTES, MESSAGE_GROWTH_TIME, STALLED_MESSAGE_TIME,
        UNTAKEN_MESSAGE_TIME,
    };
    use crate::resources::connection_registry::ConnectionRegistry;
    use crate::test_support::test_service::{framed, run_paused};

    fn of<Q: RequestMessage>(pieces: Vec<Vec<u8>>) -> MessageStream<Q> {
        let frames =
            pieces.into_iter().map(|piece| Ok::<_, Infallible>(Frame::data(Bytes::from(piece))));
        MessageStream::new(StreamBody::new(stream::iter(frames)), &Extensions::new())
    }

    /// The stream of one message, with these places.
    fn with_places(places: &DecodingPlaces, bytes: usize) -> MessageStream<PutRequest> {
        let mut extensions = Extensions::new();
        let places = places.clone();
        extensions.insert(ReceiveLimits { places, ..ReceiveLimits::default() });
        let frame = Ok::<_, Infallible>(Frame::data(framed(&put(bytes))));
        MessageStream::new(StreamBody::new(stream::iter([frame])), &extensions)
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
            let waited =
                tokio::time::timeout(Duration::from_secs(1), async { messages.message().await });
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
            let places = DecodingPlaces::default();
            let long = || with_places(&places, 100_000);
            let (mut unpolled, mut other) = (long(), long());
            let place = places.acquire(false).await.unwrap();
            for messages in [&mut unpolled, &mut other] {
                // It waits for the place.
                assert!(messages.message().now_or_never().is_none());
                tokio::task::yield_now().await;
            }
            drop(place);
            let time = Duration::from_secs(20);
            let message = tokio::time::timeout(time, other.message()).await;
            assert_eq!(message.expect("it is decoded").unwrap(), Some(put(100_000)));
            // A dropped stream gives up its turn.
            let place = places.acquire(false).await.unwrap();
            let (mut dropped, mut other) = (long(), long());
            assert!(dropped.message().now_or_never().is_none());
            assert!(other.message().now_or_never().is_none());
            drop((dropped, place));
            let message = tokio::time::timeout(time, other.message()).await;
            assert_eq!(message.expect("it is decoded").unwrap(), Some(put(100_000)));
        });
    }

    /// The frames of a stream are sent one by one; its messages count against this quota.
    type Frames = tokio::sync::mpsc::UnboundedSender<Vec<u8>>;

    fn within<Q: RequestMessage>(quota: &Arc<InboundQuota>) -> (Frames, MessageStream<Q>) {
        let (frames, mut sent) = tokio::sync::mpsc::unbounded_channel::<Vec<u8>>();
        let frames_of = stream::poll_fn(move |context| {
            let frame = |data: Vec<u8>| Ok::<_, Infallible>(Frame::data(Bytes::from(data)));
            sent.poll_recv(context).map(|data| data.map(frame))
        });
        let mut extensions = Extensions::new();
        let quota = Arc::clone(quota);
        extensions.insert(ReceiveLimits { quota, ..ReceiveLimits::default() });
        (frames, MessageStream::new(StreamBody::new(frames_of), &extensions))
    }

    /// The messages of a stream that has sent a message of this many bytes.
    fn sent(quota: &Arc<InboundQuota>, bytes: usize) -> (Frames, MessageStream<PutRequest>) {
        let (frames, messages) = within(quota);
        frames.send(framed(&put(bytes)).to_vec()).unwrap();
        (frames, messages)
    }

    const EXHAUSTED: Code = Code::ResourceExhausted;

    /// Story: a call that is not polled kept the quota of its complete message. Fifteen connections
    /// whose clients read no responses kept the quota of all clients, for ever.
    #[test]
    fn complete_message_of_a_stalled_call_is_evicted_for_others() {
        run_paused(async {
            let quota = Arc::new(InboundQuota::new(200_000));
            let (_open, mut stalled) = sent(&quota, 150_000);
            assert!(stalled.message().now_or_never().is_none());
            // It is decoded by a task, and not taken.
            tokio::time::sleep(UNTAKEN_MESSAGE_TIME / 2).await;
            let before = quota.used_bytes();
            let (_other, mut other) = sent(&quota, 150_000);
            let refused = other.message().await.unwrap_err();
            assert_eq!(refused.code(), EXHAUSTED, "{refused:?}");
            assert_eq!(quota.used_bytes(), before, "a refused call keeps nothing");
            tokio::time::sleep(UNTAKEN_MESSAGE_TIME).await;
            assert_eq!(quota.used_bytes(), before, "no other message needs the quota");
            for _ in 0..3 {
                let served = sent(&quota, 150_000).1.message().await.unwrap();
                assert_eq!(served, Some(put(150_000)));
            }
            let evicted = stalled.message().await.unwrap_err();
            assert_eq!(evicted.code(), EXHAUSTED, "{evicted:?}");
            assert_eq!(stalled.message().await.unwrap(), None);
            assert_eq!(quota.used_bytes(), 0);
        });
    }

    #[test]
    fn partial_message_without_progress_is_evicted_for_others() {
        run_paused(async {
            let quota = Arc::new(InboundQuota::new(200_000));
            let (frames, mut stalled) = within::<PutRequest>(&quota);
            let bytes = framed(&put(150_000)).to_vec();
            frames.send(bytes[..140_000].to_vec()).unwrap();
            assert!(stalled.message().now_or_never().is_none());
            for _ in 0..2 {
                tokio::time::sleep(STALLED_MESSAGE_TIME / 2).await;
                let refused = sent(&quota, 150_000).1.message().await.unwrap_err();
                assert_eq!(refused.code(), EXHAUSTED, "{refused:?}");
                // A poll without a byte is no progress, but the byte is.
                assert!(stalled.message().now_or_never().is_none());
                frames.send(bytes[140_000..140_001].to_vec()).unwrap();
                assert!(stalled.message().now_or_never().is_none());
            }
            tokio::time::sleep(STALLED_MESSAGE_TIME / 2).await;
            assert!(stalled.message().now_or_never().is_none());
            tokio::time::sleep(STALLED_MESSAGE_TIME / 2).await;
            sent(&quota, 150_000).1.message().await.unwrap().unwrap();
            assert_eq!(stalled.message().now_or_never().unwrap().unwrap_err().code(), EXHAUSTED);
        });
    }

    /// Story: a client that sent a byte, or a frame without bytes, every few seconds kept its share
    /// of the quota.
    #[test]
    fn trickled_message_is_evicted_for_others() {
        run_paused(async {
            let quota = Arc::new(InboundQuota::new(200_000));
            let bytes = framed(&put(150_000)).to_vec();
            let second = Duration::from_secs(1);
            let is_free = || quota.clone().new_share().grow(100_000);
            // Frames of these sizes, one each second.
            let enough = MESSAGE_GROWTH_BYTES.div_ceil(MESSAGE_GROWTH_TIME.as_secs() as usize - 1);
            let too_few = MESSAGE_GROWTH_BYTES / (MESSAGE_GROWTH_TIME.as_secs() as usize + 1);
            for (size, kept) in [
                (enough, 26),
                (too_few, MESSAGE_GROWTH_TIME.as_secs()),
                (1, MESSAGE_GROWTH_TIME.as_secs()),
                (0, STALLED_MESSAGE_TIME.as_secs()),
            ] {
                let (frames, mut messages) = within::<PutRequest>(&quota);
                frames.send(bytes[..120_000].to_vec()).unwrap();
                let mut sent = 120_000;
                assert!(messages.message().now_or_never().is_none());
                for number in 1..=25 {
                    tokio::time::sleep(second).await;
                    assert_eq!(is_free(), number >= kept, "{size} bytes, after {number} s");
                    frames.send(bytes[sent..sent + size].to_vec()).unwrap();
                    sent += size;
                    let received = messages.message().now_or_never();
                    let Some(received) = received else { continue };
                    let status = received.unwrap_err();
                    assert_eq!(status.code(), EXHAUSTED);
                    assert!(status.message().contains("4096 bytes in 10 s"), "{status:?}");
                    break;
                }
                drop(messages);
                assert_eq!(quota.used_bytes(), 0);
            }
        });
    }

    /// Story: the request of a call with one message did not end. Its message was counted by no
    /// quota meanwhile, and a connection may have a thousand such calls.
    #[test]
    fn only_message_counts_until_its_request_ends() {
        run_paused(async {
            let quota = Arc::new(InboundQuota::new(200_000));
            let (frames, messages) = sent(&quota, 150_000);
            let mut waiting = Box::pin(messages.only_message());
            let time = Duration::from_millis(500);
            assert!(tokio::time::timeout(time, &mut waiting).await.is_err());
            assert!(quota.used_bytes() > 100_000);
            drop(frames);
            assert_eq!(waiting.await.unwrap(), put(150_000));
            assert_eq!(quota.used_bytes(), 0);
            // Others evict it, and without others it has a time limit.
            let (_open, messages) = sent(&quota, 150_000);
            let waiting = tokio::spawn(messages.only_message());
            tokio::time::sleep(UNTAKEN_MESSAGE_TIME * 2).await;
            sent(&quota, 150_000).1.message().await.unwrap().unwrap();
            let late = waiting.await.unwrap().unwrap_err();
            assert_eq!(late.code(), Code::DeadlineExceeded, "{late:?}");
            // A malformed message fails once its request has ended.
            let (frames, messages) = within::<PutRequest>(&quota);
            let prefix = framed(&put(150_000))[..PREFIX_BYTES].to_vec();
            let length = u32::from_be_bytes(prefix[1..].try_into().unwrap()) as usize;
            frames.send([prefix, vec![0xff; length]].concat()).unwrap();
            drop(frames);
            let time = Duration::from_secs(1);
            let failed = tokio::time::timeout(time, messages.only_message()).await.unwrap();
            assert_eq!(failed.unwrap_err().code(), Code::InvalidArgument);
            let (frames, messages) = sent(&quota, 150_000);
            frames.send(framed(&put(1)).to_vec()).unwrap();
            let twice = messages.only_message().await.unwrap_err();
            assert!(twice.message().contains("several messages"), "{twice:?}");
        });
    }

    /// Message that counts how many of its type were decoded.
    struct NumberedMessage;

    static NUMBER_DECODED: AtomicUsize = AtomicUsize::new(0);

    impl RequestMessage for NumberedMessage {
        const MAY_BE_LONG: bool = true;

        fn from_bytes(_: Bytes) -> Result<NumberedMessage, Status> {
            NUMBER_DECODED.fetch_add(1, Ordering::Relaxed);
            Ok(NumberedMessage)
        }
    }

    /// Story: the only message of a call was decoded before its request ended. For half a minute
    /// the decoded message took up to sixty times the bytes that counted.
    #[test]
    fn only_message_is_decoded_after_its_request_ends() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let quota = Arc::new(InboundQuota::new(200_000));
            let sizes = [100, RECEIVE_BYTES_FREE + 1, INLINE_MESSAGE_BYTES_MAX + 1];
            for (number, bytes) in sizes.into_iter().enumerate() {
                let (frames, messages) = within::<NumberedMessage>(&quota);
                frames.send(framed(&put(bytes)).to_vec()).unwrap();
                let mut only = Box::pin(messages.only_message());
                let time = Duration::from_millis(100);
                assert!(tokio::time::timeout(time, &mut only).await.is_err());
                assert_eq!(NUMBER_DECODED.load(Ordering::Relaxed), number, "{bytes}");
                drop(frames);
                only.await.unwrap();
                assert_eq!(NUMBER_DECODED.load(Ordering::Relaxed), number + 1, "{bytes}");
            }
            assert_eq!(quota.used_bytes(), 0);
        });
    }

    /// Story: one long message was decoded for seconds, and appends of 200 KB waited for their turn
    /// behind it.
    #[test]
    fn shorter_message_does_not_wait_for_long_ones() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let places = DecodingPlaces::default();
            let place = places.acquire(true).await.unwrap();
            let mut long = with_places(&places, LONG_MESSAGE_BYTES_MIN);
            let moment = Duration::from_millis(100);
            assert!(tokio::time::timeout(moment, long.message()).await.is_err());
            let mut shorter = with_places(&places, 200_000);
            let time = Duration::from_secs(20);
            let message = tokio::time::timeout(time, shorter.message()).await;
            assert_eq!(message.expect("it is decoded").unwrap(), Some(put(200_000)));
            drop(place);
            assert!(long.message().await.unwrap().is_some());
        });
    }

    /// Story: a call decoded all messages that had arrived, up to 256 of 64 KiB each, before its
    /// worker served another call.
    #[test]
    fn messages_of_one_poll_are_limited() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            for (bytes, most) in [(INLINE_MESSAGE_BYTES_MAX - 100, 1), (8 << 10, 4), (2, 100)] {
                let sent: Vec<u8> = (0..100).flat_map(|_| framed(&put(bytes))).collect();
                let mut messages = of::<PutRequest>(vec![sent]);
                let mut polls = Vec::new();
                while polls.iter().sum::<usize>() < 100 {
                    tokio::task::yield_now().await;
                    let mut decoded = 0;
                    // A step of a call reads what has arrived, without waiting, and then waits.
                    while let Some(message) = messages.message().now_or_never() {
                        assert!(message.unwrap().is_some());
                        decoded += 1;
                        if polls.iter().sum::<usize>() + decoded == 100 {
                            break;
                        }
                    }
                    polls.push(decoded);
                }
                let highest = polls.iter().copied().max().unwrap();
                assert!(highest <= most && highest * 2 > most, "{bytes}: {polls:?}");
                assert_eq!(messages.message().await.unwrap(), None);
            }
        });
    }

    /// Message whose decoding takes until a thread is released, and then fails.
    struct PanickingMessage;

    static RELEASED: Mutex<Option<std::sync::mpsc::Receiver<()>>> = Mutex::new(None);

    impl RequestMessage for PanickingMessage {
        const MAY_BE_LONG: bool = true;

        fn from_bytes(_: Bytes) -> Result<PanickingMessage, Status> {
            let released = RELEASED.lock().unwrap().take().expect("one message at a time");
            let _ = released.recv();
            panic!("a test of a panic");
        }
    }

    /// Neither a call that is dropped while its message is decoded, nor a panic of the decoder,
    /// keeps quota or a place.
    #[test]
    fn failed_and_dropped_decoding_release_quota_and_place() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let quota = Arc::new(InboundQuota::new(200_000));
            let places = DecodingPlaces::default();
            for is_dropped in [false, true] {
                let (release, released) = std::sync::mpsc::channel();
                *RELEASED.lock().unwrap() = Some(released);
                let mut extensions = Extensions::new();
                let limits = ReceiveLimits {
                    quota: Arc::clone(&quota),
                    places: places.clone(),
                    ..ReceiveLimits::default()
                };
                extensions.insert(limits);
                let frame = Ok::<_, Infallible>(Frame::data(framed(&put(150_000))));
                let frames = StreamBody::new(stream::iter([frame]));
                let mut messages = MessageStream::<PanickingMessage>::new(frames, &extensions);
                while RELEASED.lock().unwrap().is_some() {
                    assert!(messages.message().now_or_never().is_none());
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                assert!(quota.used_bytes() > 100_000);
                if is_dropped {
                    drop(messages);
                    assert!(places.acquire(false).now_or_never().is_none(), "it is decoded");
                    release.send(()).unwrap();
                } else {
                    release.send(()).unwrap();
                    let status = messages.message().await.map(drop).unwrap_err();
                    assert_eq!(status.code(), Code::Internal, "{status:?}");
                }
                let time = Duration::from_secs(20);
                let place = tokio::time::timeout(time, places.acquire(false)).await;
                assert!(place.expect("the place is free").is_some());
                while quota.used_bytes() > 0 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
        });
    }

    /// The first bytes of the messages of this type, in the order of their decoding.
    static DECODED: Mutex<Vec<u8>> = Mutex::new(Vec::new());

    struct OrderedMessage;

    impl RequestMessage for OrderedMessage {
        const MAY_BE_LONG: bool = true;

        fn from_bytes(message: Bytes) -> Result<OrderedMessage, Status> {
            DECODED.lock().unwrap().push(message[0]);
            Ok(OrderedMessage)
        }
    }

    /// Story: a connection with a thousand calls had a thousand turns in the queue.
    #[test]
    fn messages_of_one_connection_have_one_turn() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let registry = Arc::new(ConnectionRegistry::default());
            let slots = [(); 2].map(|()| registry.register(None));
            let places = DecodingPlaces::default();
            let on = |index: usize| {
                let mut extensions = Extensions::new();
                let places = places.clone();
                extensions.insert(ReceiveLimits { places, ..ReceiveLimits::default() });
                extensions.insert(Arc::clone(&slots[index].connection));
                let message = framed(&put(100_000));
                let frame = [&message[..PREFIX_BYTES], &[index as u8], &message[6..]].concat();
                let frame = Ok::<_, Infallible>(Frame::data(Bytes::from(frame)));
                let frames = StreamBody::new(stream::iter([frame]));
                MessageStream::<OrderedMessage>::new(frames, &extensions)
            };
            let place = places.acquire(false).await.unwrap();
            let mut queued: Vec<_> = (0..20).map(|_| on(0)).collect();
            queued.push(on(1));
            for messages in &mut queued {
                assert!(messages.message().now_or_never().is_none());
            }
            // All of them wait for the place.
            tokio::time::sleep(Duration::from_millis(10)).await;
            drop(place);
            for messages in &mut queued {
                assert!(messages.message().await.unwrap().is_some());
            }
            let order = DECODED.lock().unwrap().clone();
            assert_eq!((order.len(), &order[..3]), (21, &[0, 1, 0][..]));
        });
    }
}
