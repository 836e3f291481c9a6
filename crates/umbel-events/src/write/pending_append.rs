//! [`PendingAppend`]: an append that is in the log and waits for its acknowledgement.

use std::sync::Arc;

use umbel_base::fail_point;
use umbel_slots::AppendTicket;

use crate::append::append_request::WriteResult;
use crate::primitives::panic_guard::catch_panic;
use crate::shared_store_state::StoreInner;
use crate::types::error::{Error, Result};

/// An append that was accepted and is not acknowledged yet.
#[derive(Debug)]
#[must_use = "an append is acknowledged only to a caller that waits for it"]
pub struct PendingAppend {
    pub(crate) shared: Arc<StoreInner>,
    pub(crate) results: Vec<WriteResult>,
    pub(crate) position: u64,
    /// Epoch and position of the append in a replicated store.
    pub(crate) ticket: Option<AppendTicket>,
}

impl PendingAppend {
    /// Whether [`PendingAppend::wait`] would return at once.
    pub fn is_acknowledged(&self) -> bool {
        self.shared.visible.position() >= self.position && self.has_right_epoch()
    }

    /// Whether the epoch of the append permits to acknowledge it, once its position is visible.
    fn has_right_epoch(&self) -> bool {
        let shared = &self.shared;
        match shared.visible.gate.as_replicated() {
            None => true,
            // A forked child must not take a lock. The position was visible in this epoch.
            Some(_) if shared.open_mark.is_forked() => true,
            Some(_) => shared.visible.gate.confirms(self.ticket, self.position),
        }
    }

    /// Waits until the append is acknowledged: the append has the store's durability, and all
    /// readers see its events. Returns one result for each stream, in the order of the request.
    ///
    /// # Errors
    /// A failure to make the append durable or to index it. The next open of the store shows
    /// whether the append exists; a retry with the same event ids is recognised.
    /// [`Error::AppendAmbiguous`] once a replicated store leads no more, or was closed.
    pub fn wait(mut self) -> Result<Vec<WriteResult>> {
        self.wait_acknowledged()?;
        Ok(std::mem::take(&mut self.results))
    }

    /// Waits until the append is acknowledged, and keeps the results. A failed wait can be
    /// repeated.
    pub(crate) fn wait_acknowledged(&self) -> Result<()> {
        let shared = &self.shared;
        match shared.damage.record(shared.apply_through(self.position)) {
            Ok(()) if self.has_right_epoch() => Ok(()),
            // A forked child must not take a lock.
            Err(error) if shared.open_mark.is_forked() || !shared.visible.gate.has_ended() => {
                Err(error)
            }
            _ => Err(Error::AppendAmbiguous),
        }
    }

    /// Extends the wait to a later append, whose results are dropped.
    pub(crate) fn extend_to(&mut self, mut later: PendingAppend) {
        // This wait requests the indexing of both.
        let position = std::mem::take(&mut later.position);
        if position > self.position {
            (self.position, self.ticket) = (position, later.ticket);
        }
    }

    /// Calls `callback` with the results once the append is acknowledged. The callback must not
    /// block its thread. Without background threads, a thread that waits for another append or
    /// flushes the store calls the callback. Different threads may call the callbacks of two
    /// appends, in any order. A panic of the callback is reported and not propagated; the other
    /// callbacks are still called.
    pub fn on_acknowledged(
        mut self,
        callback: impl FnOnce(Result<Vec<WriteResult>>) + Send + 'static,
    ) {
        let (shared, position) = (Arc::clone(&self.shared), self.position);
        let results = std::mem::take(&mut self.results);
        if let Err(error) = shared.check_process() {
            // In a forked child: acknowledged appends are so, and only the parent knows about the
            // rest.
            let outcome = if self.is_acknowledged() { Ok(results) } else { Err(error.into()) };
            catch_panic(|| callback(outcome));
            return;
        }
        // No callback that was added before waits; at most another thread is calling one now.
        if self.is_next_callback() {
            catch_panic(|| callback(Ok(results)));
            return;
        }
        let done = move |outcome: Result<()>| callback(outcome.map(|()| results));
        shared.callbacks.add(position, Box::new(done));
        // The position may have become visible before the callback was added.
        if shared.visible.position() >= position || shared.check_writable().is_err() {
            shared.callbacks.run_visible(&shared.components);
        }
    }

    /// Whether the append is acknowledged and no callback of an earlier append waits.
    fn is_next_callback(&self) -> bool {
        fail_point!("append-acknowledge-early", |_| true);
        self.is_acknowledged() && self.shared.callbacks.is_empty()
    }
}

impl Drop for PendingAppend {
    /// Requests from the background thread that it index this append, which no thread waits for any
    /// more. A request before the drop would only delay threads that wait for appends.
    fn drop(&mut self) {
        if !self.is_acknowledged() {
            self.shared.background.request_indexing();
        }
    }
}
