//! [`KvWriter`]: the thread that commits all writes of the key-value store.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};
use tonic::Status;
use umbel::{Db, Durability, Result, Snapshot};
use umbel_base::damage_count::DamageCount;
use umbel_proto::kv::OperationKind;

use crate::kv_store::watch_hub::{WatchCounts, WatchFilter, WatchHub, Watcher};
use crate::kv_store::write_request::{WriteCondition, WriteOperation, WriteRequest};
use crate::limits::GROUP_SYNC_WRITES_MAX;

/// A job for the writer thread, with the sender of its reply.
#[derive(Debug)]
pub enum WriterJob {
    /// Commit a write.
    Write(Box<WriteRequest>, oneshot::Sender<Result<u64>>),
    /// Begin a watch.
    Watch(WatchFilter, oneshot::Sender<std::result::Result<(Watcher, Snapshot), Status>>),
    /// Drop the keyspace of this name.
    DropKeyspace(String, oneshot::Sender<Result<bool>>),
}

/// Commits writes and publishes them to the watches.
#[derive(Debug)]
pub struct KvWriter {
    db: Db,
    sync: bool,
    watch_hub: WatchHub,
    /// Visible writes that are not published yet, with their sequence numbers.
    unpublished: Vec<(u64, Box<WriteRequest>)>,
    /// Replies of writes that wait for a sync.
    unsynced: Vec<(u64, oneshot::Sender<Result<u64>>)>,
    damage: DamageCount,
}

impl KvWriter {
    /// Creates a writer for this store; it syncs every write if `sync` is set.
    pub fn new(db: Db, sync: bool, counts: Arc<WatchCounts>, damage: DamageCount) -> KvWriter {
        let (watch_hub, unpublished, unsynced) = (WatchHub::new(counts), Vec::new(), Vec::new());
        KvWriter { db, sync, watch_hub, unpublished, unsynced, damage }
    }

    /// Does jobs until all senders are gone.
    pub fn run(mut self, mut jobs: mpsc::UnboundedReceiver<WriterJob>) {
        while let Some(first) = jobs.blocking_recv() {
            self.handle(first);
            while self.unpublished.len() < GROUP_SYNC_WRITES_MAX
                && let Ok(next) = jobs.try_recv()
            {
                self.handle(next);
            }
            self.sync_group();
        }
    }

    fn handle(&mut self, job: WriterJob) {
        match job {
            WriterJob::Write(write, sender) => match self.damage.record(self.commit(&write)) {
                Ok(sequence) => {
                    if self.sync || write.sync {
                        self.unsynced.push((sequence, sender));
                    } else {
                        // The caller may have left; the write stays committed.
                        let _ = sender.send(Ok(sequence));
                    }
                    self.unpublished.push((sequence, write));
                }
                Err(error) => {
                    let _ = sender.send(Err(error));
                }
            },
            WriterJob::Watch(watched, sender) => {
                // Publishes earlier writes, which the snapshot contains, to the other watches.
                self.sync_group();
                let snapshot = self.db.snapshot();
                let begun = self.watch_hub.subscribe(watched).map(|watcher| (watcher, snapshot));
                let _ = sender.send(begun);
            }
            WriterJob::DropKeyspace(name, sender) => {
                // Publishes earlier writes to the watches before these end.
                self.sync_group();
                let dropped = self.drop_keyspace(&name);
                let _ = sender.send(self.damage.record(dropped));
            }
        }
    }

    /// Drops a keyspace and ends its watches. Returns whether the keyspace existed.
    fn drop_keyspace(&mut self, name: &str) -> Result<bool> {
        if self.db.existing_keyspace(name)?.is_none() {
            return Ok(false);
        }
        self.db.drop_keyspace(name)?;
        self.watch_hub.end_keyspace(name);
        Ok(true)
    }

    /// Commits without waiting for the disk. Returns the store's sequence number after the commit;
    /// it is the write's number, because only this thread writes.
    fn commit(&self, write: &WriteRequest) -> Result<u64> {
        let mut batch = self.db.batch();
        for WriteOperation { keyspace, kind } in &write.operations {
            match kind {
                OperationKind::Put(entry) => batch.put(keyspace, &entry.key, &entry.value),
                OperationKind::Delete(key) => batch.delete(keyspace, key),
                OperationKind::DeleteRange(range) => {
                    batch.delete_range(keyspace, &range.start, &range.end);
                }
            }
        }
        for WriteCondition { keyspace, key, value } in &write.conditions {
            match value {
                Some(value) => batch.expect_value(keyspace, key, value),
                None => batch.expect_absent(keyspace, key),
            }
        }
        batch.commit(Durability::Buffered)?;
        Ok(self.db.snapshot().sequence())
    }

    /// Syncs if a write requires it, replies, and publishes. Watches see a write that requires a
    /// sync only after the sync.
    fn sync_group(&mut self) {
        let synced = if self.unsynced.is_empty() { Ok(()) } else { self.db.sync() };
        let synced = self.damage.record(synced);
        for (sequence, sender) in self.unsynced.drain(..) {
            let _ = sender.send(synced.clone().map(|()| sequence));
        }
        if let Err(error) = synced {
            self.watch_hub.fail(&error);
        }
        for (sequence, write) in self.unpublished.drain(..) {
            self.watch_hub.publish(sequence, &write.operations);
        }
    }
}

#[cfg(test)]
mod tests;
