//! Who is subscribed at the bare server.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::broadcast::{Receiver, Sender, channel};
use umbel_proto::streams::ReadResp;

/// How many events a subscriber to all, and one to a stream, may be behind: more than are ever
/// under way. There is room for them from the start.
const BEHIND_ALL_MAX: usize = 1 << 14;
const BEHIND_STREAM_MAX: usize = 1 << 10;

/// The subscribers to each stream, and to all under the empty name.
#[derive(Debug, Default)]
pub(super) struct Live {
    /// Spares appends the lock where nobody is subscribed.
    any: AtomicBool,
    streams: Mutex<HashMap<String, Sender<ReadResp>>>,
}

impl Live {
    /// What comes to this stream from here on.
    pub(super) fn subscribe(&self, stream: &str) -> Receiver<ReadResp> {
        self.any.store(true, Ordering::Release);
        let mut streams = self.streams.lock().expect("nobody panics with the lock");
        if let Some(sender) = streams.get(stream) {
            return sender.subscribe();
        }
        // A stream to which nobody appends any more is not noticed otherwise.
        streams.retain(|_, sender| sender.receiver_count() > 0);
        let room = if stream.is_empty() { BEHIND_ALL_MAX } else { BEHIND_STREAM_MAX };
        let (sender, receiver) = channel(room);
        streams.insert(stream.to_string(), sender);
        receiver
    }

    /// Tells those who are concerned of an event; makes it only if there are any.
    pub(super) fn tell(&self, stream: &str, event: impl Fn() -> ReadResp) {
        if !self.any.load(Ordering::Acquire) {
            return;
        }
        let mut streams = self.streams.lock().expect("nobody panics with the lock");
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

    /// Story: the room for each stream's events stayed when its subscribers had gone: 6 MiB for
    /// each of a thousand streams in each round, until the system had no memory.
    #[test]
    fn nothing_is_kept_for_subscribers_that_have_gone() {
        let live = Live::default();
        let all = live.subscribe("");
        for number in 0..100 {
            drop(live.subscribe(&format!("stream-{number}")));
        }
        assert_eq!(live.streams.lock().unwrap().len(), 2);
        let (one, mut other) = (live.subscribe("cart"), live.subscribe("cart"));
        live.tell("cart", ReadResp::default);
        assert_eq!((all.len(), one.len(), other.try_recv()), (1, 1, Ok(ReadResp::default())));
    }
}
