//! [`Ticket`]: an append that has its place in the log, and who waits for it to be acknowledged.

use std::sync::Arc;

use crate::error::Result;
use crate::panics::caught;
use crate::request::Appended;
use crate::shared::Shared;

/// An append that was accepted and is not acknowledged yet.
#[derive(Debug)]
#[must_use = "an append is acknowledged only to whoever waits for it"]
pub struct Ticket {
    pub(crate) shared: Arc<Shared>,
    pub(crate) answers: Vec<Appended>,
    pub(crate) position: u64,
}

impl Ticket {
    /// The answers before anybody may give them, for a bug to plant.
    #[cfg(feature = "canary")]
    pub fn answers_early(&self) -> Vec<Appended> {
        self.answers.clone()
    }

    /// Whether waiting would return at once.
    pub fn is_done(&self) -> bool {
        self.shared.visible.position() >= self.position
    }

    /// Waits until the append is acknowledged: it survives what the store's durability says, and
    /// everybody sees it. One answer for each stream, in the order of the request.
    ///
    /// # Errors
    /// Where it could not be made durable or indexed. Whether it is there is known at the next
    /// open; the same append with the same event ids is recognised.
    pub fn wait(mut self) -> Result<Vec<Appended>> {
        self.shared.drive(self.position)?;
        Ok(std::mem::take(&mut self.answers))
    }

    /// Calls `callback` with the answers once the append is acknowledged, on some thread, which it
    /// must not keep. Without background threads that is one that waits for another ticket or
    /// flushes the store. Those of two appends may be called by two threads, in either order. Where
    /// it panics, the panic is reported and goes no further: others are called all the same.
    pub fn then(mut self, callback: impl FnOnce(Result<Vec<Appended>>) + Send + 'static) {
        let (shared, position) = (Arc::clone(&self.shared), self.position);
        let answers = std::mem::take(&mut self.answers);
        if let Err(error) = shared.check_process() {
            // A forked child: what was acknowledged is so, and of the rest only the parent knows.
            let outcome = if self.is_done() { Ok(answers) } else { Err(error.into()) };
            caught(|| callback(outcome));
            return;
        }
        // Nobody who was added before waits yet; at most another thread is calling him now.
        if self.is_done() && shared.callbacks.is_empty() {
            caught(|| callback(Ok(answers)));
            return;
        }
        let done = move |outcome: Result<()>| callback(outcome.map(|()| answers));
        shared.callbacks.add(position, Box::new(done));
        // It may have become visible before it was added.
        if shared.visible.position() >= position || shared.check_writable().is_err() {
            shared.callbacks.run(&shared.parts);
        }
    }
}

impl Drop for Ticket {
    /// Whoever does not wait leaves it to the thread of the store, which would otherwise only be in
    /// the way of those who do.
    fn drop(&mut self) {
        if !self.is_done() {
            self.shared.bell.wants_drive();
        }
    }
}
