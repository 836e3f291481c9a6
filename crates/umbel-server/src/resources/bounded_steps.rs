//! [`BoundedSteps`]: a loop of a task in bounded steps, so that the loop holds no worker for long.

use crate::limits::{POLL_BYTES, POLL_MESSAGES};

/// Events that a task has processed since it last yielded to other tasks.
#[derive(Debug, Default)]
pub struct BoundedSteps {
    events: usize,
    bytes: usize,
}

impl BoundedSteps {
    /// Counts an event with this number of bytes. Yields to other tasks after [`POLL_MESSAGES`]
    /// events or [`POLL_BYTES`] bytes.
    pub async fn count(&mut self, bytes: usize) {
        (self.events, self.bytes) = (self.events + 1, self.bytes + bytes);
        if self.events >= POLL_MESSAGES || self.bytes >= POLL_BYTES {
            *self = BoundedSteps::default();
            tokio::task::yield_now().await;
        }
    }
}
