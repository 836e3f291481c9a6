//! Group sync: one sync of the log for all queued appends, which then reach the index, become
//! visible and are acknowledged. A thread that waits for an append, or the background thread, does
//! the group sync.

use std::sync::MutexGuard;

use umbel_base::fail_point;
use umbel_base::ignore_poison::IgnorePoison;

use crate::append::index_commit::IndexCommit;
use crate::index::index_batch::IndexBatch;
use crate::shared_store_state::StoreInner;
use crate::types::error::Result;

impl StoreInner {
    /// Waits until `position` is visible; syncs and indexes if no other thread does. In a
    /// replicated store, first waits until a slot has the position.
    pub fn apply_through(&self, position: u64) -> Result<()> {
        while self.visible.position() < position {
            self.check_process()?;
            self.visible.gate.wait_for_slot(position)?;
            let driver = self.index_lock.lock().ignore_poison();
            if self.visible.position() >= position {
                break;
            }
            self.apply_queue(driver)?;
        }
        Ok(())
    }

    /// Indexes the queued appends that the gate permits. Waits for no slot.
    pub fn apply_permitted(&self) -> Result<()> {
        self.check_process()?;
        self.apply_queue(self.index_lock.lock().ignore_poison())
    }

    /// Like [`StoreInner::apply_through`], but waits for no slot.
    pub fn apply_without_slots(&self, position: u64) -> Result<()> {
        match self.visible.gate.as_replicated() {
            None => self.apply_through(position),
            Some(_) => self.apply_permitted(),
        }
    }

    /// Indexes queued appends, and acknowledges them. `driver` is the guard of `index_lock`.
    fn apply_queue(&self, driver: MutexGuard<'_, ()>) -> Result<()> {
        let driven = self.apply_queue_once();
        drop(driver);
        self.visible.notify();
        self.callbacks.run_visible(&self.components);
        driven
    }

    /// Indexes the queue as far as the gate permits, after a sync where one is needed.
    /// REQUIRES: the caller holds `index_lock`.
    fn apply_queue_once(&self) -> Result<()> {
        self.check_writable()?;
        if !self.sync_before_ack {
            return match &mut *self.appender.lock().ignore_poison() {
                Some(appender) => appender.apply_queue(&self.components),
                None => Err(umbel::Error::Closed.into()),
            };
        }
        let commit = IndexCommit::begin(self)?;
        let queue = match &mut *self.appender.lock().ignore_poison() {
            Some(appender) => appender.queue.take_groups(commit.end()),
            None => return Err(umbel::Error::Closed.into()),
        };
        let Some(last) = queue.last() else { return Ok(()) };
        debug_assert!(commit.end() == u64::MAX || commit.end() == last.end, "slots end at records");
        self.sync_log_through(last.end)?;
        let mut batch = IndexBatch::new(&self.index);
        let changes = || queue.iter().flat_map(|queued| queued.changes.iter());
        commit.commit_changes(&mut batch, changes(), last.position)?;
        if let Some(appender) = &mut *self.appender.lock().ignore_poison() {
            appender.pending_heads.remove_indexed(&mut appender.queue, &queue);
        }
        commit.finish(last.position, changes().map(|change| change.hash))?;
        if let Some(appender) = &mut *self.appender.lock().ignore_poison() {
            appender.queue.reuse_groups(queue);
        }
        Ok(())
    }

    /// Makes the log durable up to the offset `end`.
    fn sync_log_through(&self, end: u64) -> Result<()> {
        fail_point!("events-show-before-durable", |_| Ok(()));
        if self.log.durable() < end {
            self.sync_log()?;
        }
        Ok(())
    }

    /// Whether an append is in the log but not in the index.
    pub fn has_queued_appends(&self) -> bool {
        self.appender
            .lock()
            .ignore_poison()
            .as_ref()
            .is_some_and(|appender| !appender.queue.is_empty())
    }
}
