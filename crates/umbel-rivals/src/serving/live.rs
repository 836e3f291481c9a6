//! Who is subscribed at the bare server.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::broadcast::{Receiver, Sender, channel};
use umbel_proto::streams::ReadResp;

/// How many events a subscriber may be behind: more than are ever under way.
const BEHIND_MAX: usize = 1 << 14;

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
        let sender = streams.entry(stream.to_string()).or_insert_with(|| channel(BEHIND_MAX).0);
        sender.subscribe()
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
