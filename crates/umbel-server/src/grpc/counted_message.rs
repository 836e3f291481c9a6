//! [`CountedMessage`]: one message that counts against the receive quota.
//!
//! The message lies in an [`EvictableValue`], which the quota drops if the call stalls and another
//! message needs the quota. A task decodes a message that takes long, and proceeds without its
//! call.

use std::sync::Arc;
use std::time::Duration;

use hyper::body::Bytes;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tonic::Status;

use crate::grpc::message_limits::RequestMessage;
use crate::limits::{
    INLINE_MESSAGE_BYTES_MAX, LONG_MESSAGE_BYTES_MIN, MESSAGE_GROWTH_BYTES, MESSAGE_GROWTH_TIME,
    RECEIVE_BYTES_FREE, STALLED_MESSAGE_TIME, UNTAKEN_MESSAGE_TIME,
};
use crate::protocol::grpc_status;
use crate::resources::connection_registry::Connection;
use crate::resources::decoding_places::DecodingPlaces;
use crate::resources::inbound_quota::{EvictableValue, InboundQuota};

/// Shortest and longest piece of a long message in memory.
const PIECE_BYTES: (usize, usize) = (4 << 10, 64 << 10);

/// A message that counts against the quota, until its call takes it.
pub struct CountedMessage<Q> {
    content: EvictableValue<MessageContent<Q>>,
    growth: MessageGrowth,
    /// The task that decodes the complete message.
    decoding: Option<JoinSet<()>>,
}

/// The growth of a message that is being received. A client that trickles bytes would otherwise
/// keep its share of the quota.
struct MessageGrowth {
    /// Begin of the present period, which ends once enough bytes are received.
    began: Instant,
    /// Bytes received in the present period.
    bytes: usize,
}

impl MessageGrowth {
    fn new() -> MessageGrowth {
        MessageGrowth { began: Instant::now(), bytes: 0 }
    }

    /// Records received bytes. Returns the time after which the message may be evicted if no more
    /// bytes arrive.
    fn record(&mut self, bytes: usize) -> Duration {
        self.bytes += bytes;
        if self.bytes >= MESSAGE_GROWTH_BYTES {
            *self = MessageGrowth::new();
        }
        let left = MESSAGE_GROWTH_TIME.saturating_sub(self.began.elapsed());
        left.min(STALLED_MESSAGE_TIME)
    }
}

/// The content of a message.
enum MessageContent<Q> {
    Bytes(LongMessageBytes),
    Decoded(Result<Q, Status>),
    /// Neither of them, while the message is decoded.
    Decoding,
}

impl<Q: RequestMessage> CountedMessage<Q> {
    /// Creates a message without bytes, which counts against this quota.
    pub fn new(quota: &Arc<InboundQuota>) -> CountedMessage<Q> {
        let content = MessageContent::Bytes(LongMessageBytes::default());
        let content = EvictableValue::new(quota, content);
        CountedMessage { content, growth: MessageGrowth::new(), decoding: None }
    }

    /// Takes the bytes of this message, which has `length` bytes, from the received ones.
    ///
    /// # Errors
    /// The quota has no space, or the message was evicted.
    pub fn add(&mut self, received: &mut Bytes, length: usize) -> Result<(), Status> {
        let evictable_after = self.growth.record(received.len());
        let added = self.content.change(Some(evictable_after), |content, share| {
            let MessageContent::Bytes(long) = content else { return true };
            let own = received.split_to((length - long.bytes).min(received.len()));
            let is_free = |bytes: usize| bytes.saturating_sub(RECEIVE_BYTES_FREE);
            let more = is_free(long.bytes + own.len()) - is_free(long.bytes);
            let has_quota = share.grow(more);
            if has_quota {
                long.add(&own);
            }
            has_quota
        });
        match added {
            Some(true) => Ok(()),
            Some(false) => Err(grpc_status::receive_quota_exhausted()),
            None => Err(grpc_status::message_evicted()),
        }
    }

    /// Number of received bytes; `usize::MAX` for a message that is being decoded.
    ///
    /// # Errors
    /// The message was evicted.
    pub fn received_bytes(&self) -> Result<usize, Status> {
        if self.decoding.is_some() {
            return Ok(usize::MAX);
        }
        let bytes = self.content.inspect(|content| match content {
            MessageContent::Bytes(long) => long.bytes,
            _ => usize::MAX,
        });
        bytes.ok_or_else(grpc_status::message_evicted)
    }

    /// Decodes the complete message, long ones on a thread that may be busy. The future may be
    /// dropped and called again. Afterwards the content is decoded or evicted.
    pub async fn decode(
        &mut self,
        length: usize,
        places: &DecodingPlaces,
        connection: Option<&Arc<Connection>>,
    ) {
        if length <= INLINE_MESSAGE_BYTES_MAX {
            decode(&self.content);
            return;
        }
        let decoding = self.decoding.get_or_insert_with(|| {
            // It is not evicted while it waits for its place, where it makes progress.
            self.content.change(None, |_, _| ());
            let mut decoding = JoinSet::new();
            let (content, places) = (self.content.clone(), places.clone());
            decoding.spawn(decode_later(content, length, places, connection.cloned()));
            decoding
        });
        // A failed task leaves no decoded content.
        let _ = decoding.join_next().await;
    }

    /// Makes the complete message evictable while its request has not ended.
    pub fn begin_wait_for_end(&self) {
        self.content.change(Some(UNTAKEN_MESSAGE_TIME), |_, _| ());
    }

    /// Takes the decoded message. Releases its share of the quota.
    ///
    /// # Errors
    /// The message is malformed, was evicted, or could not be decoded.
    pub fn take(self) -> Result<Q, Status> {
        match self.content.take() {
            Some(MessageContent::Decoded(decoded)) => decoded,
            Some(_) => Err(Status::internal("a message could not be decoded")),
            None => Err(grpc_status::message_evicted()),
        }
    }
}

/// Decodes a complete message on a thread that may be busy. A call whose client takes nothing may
/// never be polled again. So a task runs this: the place that it gets is free once the message is
/// decoded, whether the message is taken or not.
async fn decode_later<Q: RequestMessage>(
    content: EvictableValue<MessageContent<Q>>,
    length: usize,
    places: DecodingPlaces,
    connection: Option<Arc<Connection>>,
) {
    let is_long = length >= LONG_MESSAGE_BYTES_MIN;
    // The messages of a connection together have one turn in the queue.
    let _turn = match &connection {
        Some(connection) => Some(connection.wait_decoding_turn(is_long).await),
        None => None,
    };
    let place = places.acquire(is_long).await;
    let work = move || {
        decode(&content);
        drop(place);
    };
    let _ = tokio::task::spawn_blocking(work).await;
}

/// Replaces the bytes of a message by the decoded message.
fn decode<Q: RequestMessage>(content: &EvictableValue<MessageContent<Q>>) {
    let bytes = content.change(None, |content, _| {
        match std::mem::replace(content, MessageContent::Decoding) {
            MessageContent::Bytes(long) => Some(long),
            other => {
                *content = other;
                None
            }
        }
    });
    let Some(Some(bytes)) = bytes else { return };
    let decoded = Q::from_bytes(bytes.join());
    content.change(Some(UNTAKEN_MESSAGE_TIME), |content, share| {
        // Small elements take more memory than their bytes.
        let memory_bytes = decoded.as_ref().map_or(0, Q::memory_bytes);
        let has_quota = share.grow_to(memory_bytes.saturating_sub(RECEIVE_BYTES_FREE));
        *content = MessageContent::Decoded(match has_quota {
            true => decoded,
            false => Err(grpc_status::receive_quota_exhausted()),
        });
    });
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

impl<Q> std::fmt::Debug for CountedMessage<Q> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("CountedMessage").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    /// Message that takes 190,000 bytes of memory.
    struct PeakMessage;

    impl RequestMessage for PeakMessage {
        fn from_bytes(_: Bytes) -> Result<PeakMessage, Status> {
            Ok(PeakMessage)
        }

        fn memory_bytes(&self) -> usize {
            190_000
        }
    }

    /// Story: a decoded message that waited for its call counted with its bytes only.
    #[test]
    fn decoded_message_counts_with_its_memory() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            for (bytes_max, is_refused) in [(180_000, false), (170_000, true)] {
                let quota = Arc::new(InboundQuota::new(bytes_max));
                let mut message = CountedMessage::<PeakMessage>::new(&quota);
                let mut bytes = Bytes::from(vec![0; 20_000]);
                message.add(&mut bytes, 20_000).unwrap();
                let own = quota.used_bytes();
                assert!(own < 20_000);
                decode(&message.content);
                let used = if is_refused { own } else { 190_000 - RECEIVE_BYTES_FREE };
                assert_eq!(quota.used_bytes(), used);
                let taken = message.take();
                let code = taken.err().map(|status| status.code());
                assert_eq!(code, is_refused.then_some(Code::ResourceExhausted));
                assert_eq!(quota.used_bytes(), 0);
            }
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
