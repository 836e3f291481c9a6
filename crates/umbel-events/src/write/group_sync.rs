//! Group sync: one sync of the log for all queued appends, which then reach the index, become
//! visible and are acknowledged. A thread that waits for an append, or the background thread, does
//! the group sync.

use umbel_base::fail_point;
use umbel_base::ignore_poison::IgnorePoison;

use crate::append::index_commit::IndexCommit;
use crate::index::index_batch::IndexBatch;
use crate::shared_store_state::StoreInner;
use crate::types::error::Result;

impl StoreInner {
    /// Waits until `position` is visible; syncs and indexes if no other thread does.
    pub fn apply_through(&self, position: u64) -> Result<()> {
        while self.visible.position() < position {
            self.check_process()?;
            let driver = self.index_lock.lock().ignore_poison();
            if self.visible.position() >= position {
                break;
            }
            let driven = self.apply_queue_once();
            drop(driver);
            self.visible.notify();
            self.callbacks.run_visible(&self.components);
            driven?;
        }
        Ok(())
    }

    /// Indexes the queue, after a sync where one is needed.
    /// REQUIRES: the caller holds `index_lock`.
    fn apply_queue_once(&self) -> Result<()> {
        self.check_writable()?;
        if !self.sync_before_ack {
            return match &mut *self.appender.lock().ignore_poison() {
                Some(appender) => appender.apply_queue(&self.components),
                None => Err(umbel::Error::Closed.into()),
            };
        }
        let commit = IndexCommit::begin(self);
        let queue = match &mut *self.appender.lock().ignore_poison() {
            Some(appender) => appender.queue.take_groups(commit.end()),
            None => return Err(umbel::Error::Closed.into()),
        };
        let Some(last) = queue.last() else { return Ok(()) };
        self.sync_log_through(last.end)?;
        let mut batch = IndexBatch::new(&self.index);
        let changes = || queue.iter().flat_map(|queued| queued.changes.iter());
        commit.commit_changes(&mut batch, changes(), last.position)?;
        if let Some(appender) = &mut *self.appender.lock().ignore_poison() {
            appender.pending_heads.remove_indexed(&mut appender.queue, &queue);
        }
        commit.finish(last.position, changes().map(|change| change.hash));
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
