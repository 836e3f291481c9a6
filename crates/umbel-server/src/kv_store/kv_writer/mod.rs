//! [`Writer`]: the thread that writes.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};
use tonic::Status;
use umbel::{Db, Durability, Keyspace, Result, Snapshot};
use umbel_proto::kv::OperationKind;

use super::feed::{Counts, Feed, Watched, Watcher};
use crate::budget::Share;
use crate::limits::WRITES_TOGETHER_MAX;

/// What is to be written, all of it or nothing.
#[derive(Debug)]
pub struct Write {
    /// In their order.
    pub operations: Vec<Operation>,
    /// What has to be so before them.
    pub conditions: Vec<Condition>,
    /// Whether it is answered once it survives power loss, whatever the server does else.
    pub sync: bool,
    /// What it holds of what all writes together may.
    #[expect(dead_code, reason = "it is held for as long as the operations are")]
    pub share: Share,
}

/// One operation.
#[derive(Debug)]
pub struct Operation {
    /// On what.
    pub keyspace: Keyspace,
    /// What is done.
    pub kind: OperationKind,
}

/// What has to be so.
#[derive(Debug)]
pub struct Condition {
    /// Where.
    pub keyspace: Keyspace,
    /// Of which key.
    pub key: Vec<u8>,
    /// Its value; `None` where it must have none.
    pub value: Option<Vec<u8>>,
}

/// What the thread is asked for, and who wants to know what it comes to.
#[derive(Debug)]
pub enum Job {
    /// To write.
    Write(Box<Write>, oneshot::Sender<Result<u64>>),
    /// To begin a watch.
    Watch(Watched, oneshot::Sender<std::result::Result<(Watcher, Snapshot), Status>>),
}

/// Writes, and tells those who watch.
#[derive(Debug)]
pub struct Writer {
    db: Db,
    sync: bool,
    feed: Feed,
    /// Writes that are visible and not told yet, with their numbers.
    untold: Vec<(u64, Box<Write>)>,
    /// Whose writes wait for a sync.
    waiting: Vec<(u64, oneshot::Sender<Result<u64>>)>,
}

impl Writer {
    /// One for this store, which syncs every write where it is told to.
    pub fn new(db: Db, sync: bool, counts: Arc<Counts>) -> Writer {
        let feed = Feed::new(counts);
        Writer { db, sync, feed, untold: Vec::new(), waiting: Vec::new() }
    }

    /// Does what comes until nobody can ask any more.
    pub fn run(mut self, mut jobs: mpsc::UnboundedReceiver<Job>) {
        while let Some(first) = jobs.blocking_recv() {
            self.take(first);
            while self.untold.len() < WRITES_TOGETHER_MAX
                && let Ok(next) = jobs.try_recv()
            {
                self.take(next);
            }
            self.end_group();
        }
    }

    fn take(&mut self, job: Job) {
        match job {
            Job::Write(write, sender) => match self.commit(&write) {
                Ok(sequence) => {
                    if self.sync || write.sync {
                        self.waiting.push((sequence, sender));
                    } else {
                        // Whoever asked may have gone away; it is written all the same.
                        let _ = sender.send(Ok(sequence));
                    }
                    self.untold.push((sequence, write));
                }
                Err(error) => {
                    let _ = sender.send(Err(error));
                }
            },
            Job::Watch(watched, sender) => {
                // What was written before it is told to others, and is in its snapshot.
                self.end_group();
                let snapshot = self.db.snapshot();
                let begun = self.feed.begin(watched).map(|watcher| (watcher, snapshot));
                let _ = sender.send(begun);
            }
        }
    }

    /// Writes, without waiting for the disk. The number that the store is at then is that of the
    /// write, because only this thread writes.
    fn commit(&self, write: &Write) -> Result<u64> {
        let mut batch = self.db.batch();
        for Operation { keyspace, kind } in &write.operations {
            match kind {
                OperationKind::Put(entry) => batch.put(keyspace, &entry.key, &entry.value),
                OperationKind::Delete(key) => batch.delete(keyspace, key),
                OperationKind::DeleteRange(range) => {
                    batch.delete_range(keyspace, &range.start, &range.end);
                }
            }
        }
        for Condition { keyspace, key, value } in &write.conditions {
            match value {
                Some(value) => batch.expect_value(keyspace, key, value),
                None => batch.expect_absent(keyspace, key),
            }
        }
        batch.commit(Durability::Buffered)?;
        Ok(self.db.snapshot().sequence())
    }

    /// Makes durable what is to be, answers, and tells who watches: nobody is told what a power cut
    /// could take although it was to survive one.
    fn end_group(&mut self) {
        let synced = if self.waiting.is_empty() { Ok(()) } else { self.db.sync() };
        for (sequence, sender) in self.waiting.drain(..) {
            let _ = sender.send(synced.clone().map(|()| sequence));
        }
        if let Err(error) = synced {
            self.feed.fail(&error);
        }
        for (sequence, write) in self.untold.drain(..) {
            self.feed.tell(sequence, &write.operations);
        }
    }
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;
