//! Subscribers of the bare server.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::broadcast::{Receiver, Sender, channel};
use umbel_proto::streams::ReadResp;

/// Number of events by which a subscriber to all may lag behind; [`LAG_STREAM_MAX`] is the number
/// for a stream. Both numbers are higher than the events ever in flight. Memory for this many
/// events is allocated from the start.
const LAG_ALL_MAX: usize = 1 << 14;
const LAG_STREAM_MAX: usize = 1 << 10;

/// Subscribers to each stream, and to all events under the empty name.
#[derive(Debug, Default)]
pub(super) struct Subscribers {
    /// Whether any client subscribes, so that appends without subscribers take no lock.
    any: AtomicBool,
    streams: Mutex<HashMap<String, Sender<ReadResp>>>,
}

impl Subscribers {
    /// Subscribes to new events of this stream.
    pub(super) fn subscribe(&self, stream: &str) -> Receiver<ReadResp> {
        self.any.store(true, Ordering::Release);
        let mut streams = self.streams.lock().expect("no holder of the lock panics");
        if let Some(sender) = streams.get(stream) {
            return sender.subscribe();
        }
        // A stream without subscribers is not noticed otherwise if it gets no appends.
        streams.retain(|_, sender| sender.receiver_count() > 0);
        let capacity = if stream.is_empty() { LAG_ALL_MAX } else { LAG_STREAM_MAX };
        let (sender, receiver) = channel(capacity);
        streams.insert(stream.to_string(), sender);
        receiver
    }

    /// Sends an event to its subscribers; calls `event` only if it has any.
    pub(super) fn publish(&self, stream: &str, event: impl Fn() -> ReadResp) {
        if !self.any.load(Ordering::Acquire) {
            return;
        }
        let mut streams = self.streams.lock().expect("no holder of the lock panics");
        for name in [stream, ""] {
            if let Some(sender) = streams.get(name)
                && sender.send(event()).is_err()
            {
                streams.remove(name);
            }
        }
        if streams.is_empty() {
            self.any.store(false, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Story: the memory for each stream's events was kept after its subscribers had gone. So 6 MiB
    /// for each of a thousand streams were kept in each round, until the system had no memory.
    #[test]
    fn dropped_subscribers_leave_no_memory() {
        let live = Subscribers::default();
        let all = live.subscribe("");
        for number in 0..100 {
            drop(live.subscribe(&format!("stream-{number}")));
        }
        assert_eq!(live.streams.lock().unwrap().len(), 2);
        let (one, mut other) = (live.subscribe("cart"), live.subscribe("cart"));
        live.publish("cart", ReadResp::default);
        assert_eq!((all.len(), one.len(), other.try_recv()), (1, 1, Ok(ReadResp::default())));
    }
}
