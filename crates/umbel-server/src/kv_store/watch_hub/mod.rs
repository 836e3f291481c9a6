//! [`WatchHub`]: the watches, each with a queue of the changes that its watcher has not taken yet.
//!
//! The writer never waits for a watcher. Changes that a watcher has not taken stay in its queue. A
//! queue that grows too large is dropped, and its client must read the state again. If all queues
//! together grow too large, the largest queue is dropped.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use umbel_base::ignore_poison::IgnorePoison;

use prost::bytes::Bytes;
use tokio::sync::Notify;
use tonic::Status;
use umbel_proto::kv::{Change, ChangeKind, Changes, Entry, KeyRange, OperationKind};

use crate::kv_store::write_request::WriteOperation;
use crate::limits::{
    EVENT_OVERHEAD_BYTES, WATCH_BYTES_MAX, WATCH_WRITES_MAX, WATCHES_BYTES_MAX, WATCHES_MAX,
};

use watch_index::{WatchIndex, WatchNumber};
use write_key_index::OperationIndexes;

/// Keys that a watch observes.
#[derive(Debug, Clone)]
pub struct WatchFilter {
    /// Name of the keyspace.
    pub keyspace: String,
    /// Prefix of the keys.
    pub prefix: Vec<u8>,
    /// Whether values are left out.
    pub keys_only: bool,
}

/// Numbers of active and evicted watches.
#[derive(Debug, Default)]
pub struct WatchCounts {
    /// Active watches, including those whose end is not noticed yet.
    pub watches: AtomicUsize,
    /// Watches evicted since the start because they did not keep up.
    pub evicted: AtomicU64,
}

/// All watches.
#[derive(Debug)]
pub struct WatchHub {
    queues: BTreeMap<WatchNumber, Arc<WatchQueue>>,
    index: WatchIndex,
    next_number: WatchNumber,
    totals: Arc<QueueTotals>,
    counts: Arc<WatchCounts>,
    watches_max: usize,
    bytes_max: usize,
}

/// Totals of all queues.
#[derive(Debug, Default)]
struct QueueTotals {
    /// Bytes of the queues that have not ended.
    bytes: AtomicUsize,
    /// Whether a watch ended since the hub removed those that did.
    has_ended: AtomicBool,
}

/// Queue of one watch.
#[derive(Debug)]
struct WatchQueue {
    filter: WatchFilter,
    state: Mutex<QueueState>,
    totals: Arc<QueueTotals>,
    /// Wakes the watcher for each write; a `Wakeup` of the event store would wake it only once.
    notify: Notify,
}

#[derive(Debug, Default)]
struct QueueState {
    pending: VecDeque<(Changes, usize)>,
    /// Bytes of the queued writes and of the write taken last.
    bytes: usize,
    delivered_bytes: usize,
    /// Reason why the watch has ended; `None` while it is active.
    end: Option<Status>,
    /// Whether the watcher is dropped.
    is_abandoned: bool,
}

/// Receives the changes of a watch. Dropping the watcher ends the watch.
#[derive(Debug)]
pub struct Watcher {
    queue: Arc<WatchQueue>,
}

impl WatchHub {
    /// Creates a hub without watches.
    pub fn new(counts: Arc<WatchCounts>) -> WatchHub {
        WatchHub {
            queues: BTreeMap::new(),
            index: WatchIndex::default(),
            next_number: 0,
            totals: Arc::default(),
            counts,
            watches_max: WATCHES_MAX,
            bytes_max: WATCHES_BYTES_MAX,
        }
    }

    /// Begins a watch.
    pub fn subscribe(&mut self, watched: WatchFilter) -> Result<Watcher, Status> {
        self.remove_ended();
        if self.queues.len() >= self.watches_max {
            return Err(Status::resource_exhausted(format!(
                "{} watches are open, which is the limit; end a watch, or watch one prefix \
                 instead of several",
                self.watches_max
            )));
        }
        let number = self.next_number;
        self.next_number += 1;
        self.index.insert(&watched, number);
        let queue = Arc::new(WatchQueue {
            filter: watched,
            state: Mutex::default(),
            totals: Arc::clone(&self.totals),
            notify: Notify::new(),
        });
        self.queues.insert(number, Arc::clone(&queue));
        self.counts.watches.store(self.queues.len(), Ordering::Relaxed);
        Ok(Watcher { queue })
    }

    /// Queues a write for every matching watch.
    pub fn publish(&mut self, sequence: u64, operations: &[WriteOperation]) {
        if self.queues.is_empty() {
            return;
        }
        let watches = self.index.watches_of(operations);
        if !watches.is_empty() {
            self.push_changes(sequence, operations, &watches);
        }
        self.remove_ended();
    }

    /// Queues a write for these watches.
    fn push_changes(
        &self,
        sequence: u64,
        operations: &[WriteOperation],
        watches: &BTreeSet<WatchNumber>,
    ) {
        // Copied once for all watches, and only operations that match one: the message in which
        // they came may be large.
        let mut copies: Vec<Option<ChangeKind>> = vec![None; operations.len()];
        let mut indexes = OperationIndexes::new(operations);
        for number in watches {
            let Some(queue) = self.queues.get(number) else { continue };
            let Some(index) = indexes.of(&queue.filter.keyspace) else { continue };
            let matching = index.matching(&queue.filter).into_iter().map(|number| {
                let kind =
                    copies[number].get_or_insert_with(|| to_change(&operations[number].kind));
                queue.filter.project(kind)
            });
            let changes: Vec<Change> = matching.collect();
            if !changes.is_empty() {
                queue.push(Changes { sequence, changes });
            }
            if self.totals.bytes.load(Ordering::Relaxed) > self.bytes_max {
                self.evict_largest();
            }
        }
    }

    /// Ends every watch, because published writes may be lost.
    pub fn fail(&mut self, error: &umbel::Error) {
        for queue in std::mem::take(&mut self.queues).into_values() {
            queue.end(crate::protocol::grpc_status::engine_status(error));
        }
        self.index = WatchIndex::default();
        self.counts.watches.store(0, Ordering::Relaxed);
    }

    /// Ends the watches of a keyspace that was dropped.
    pub fn end_keyspace(&mut self, name: &str) {
        let removed: Vec<(WatchNumber, Arc<WatchQueue>)> =
            self.queues.extract_if(.., |_, queue| queue.filter.keyspace == name).collect();
        for (_, queue) in &removed {
            queue.end(Status::not_found(format!("the keyspace '{name}' was dropped")));
        }
        self.index.remove_all(removed.iter().map(|(number, queue)| (&queue.filter, *number)));
        self.counts.watches.store(self.queues.len(), Ordering::Relaxed);
    }

    /// Removes watches that have ended or whose watcher is dropped.
    fn remove_ended(&mut self) {
        if !self.totals.has_ended.swap(false, Ordering::AcqRel) {
            return;
        }
        let mut evicted = 0;
        let removed = self.queues.extract_if(.., |_, queue| {
            let state = queue.locked();
            evicted += u64::from(!state.is_abandoned && state.end.is_some());
            state.is_abandoned || state.end.is_some()
        });
        let removed: Vec<(WatchNumber, Arc<WatchQueue>)> = removed.collect();
        self.index.remove_all(removed.iter().map(|(number, queue)| (&queue.filter, *number)));
        self.counts.evicted.fetch_add(evicted, Ordering::Relaxed);
        self.counts.watches.store(self.queues.len(), Ordering::Relaxed);
    }

    /// Evicts the largest queues until the others fit.
    fn evict_largest(&self) {
        let mut held: Vec<(usize, &Arc<WatchQueue>)> =
            self.queues.values().map(|queue| (queue.locked().bytes, queue)).collect();
        let mut sum: usize = held.iter().map(|(bytes, _)| bytes).sum();
        held.sort_unstable_by_key(|(bytes, _)| *bytes);
        while sum > self.bytes_max
            && let Some((bytes, queue)) = held.pop()
        {
            queue.end(lagged_status());
            sum -= bytes;
        }
    }
}

impl WatchFilter {
    fn project(&self, kind: &ChangeKind) -> Change {
        let kind = match kind {
            ChangeKind::Put(entry) if self.keys_only => {
                ChangeKind::Put(Entry { key: entry.key.clone(), value: Bytes::new() })
            }
            kind => kind.clone(),
        };
        Change { kind: Some(kind) }
    }
}

/// Copies the change that an operation makes.
fn to_change(kind: &OperationKind) -> ChangeKind {
    let copy = |bytes: &Bytes| Bytes::copy_from_slice(bytes);
    match kind {
        OperationKind::Put(entry) => {
            ChangeKind::Put(Entry { key: copy(&entry.key), value: copy(&entry.value) })
        }
        OperationKind::Delete(key) => ChangeKind::Delete(copy(key)),
        OperationKind::DeleteRange(range) => {
            ChangeKind::DeleteRange(KeyRange { start: copy(&range.start), end: copy(&range.end) })
        }
    }
}

fn changes_bytes(changes: &Changes) -> usize {
    let one = |change: &Change| match &change.kind {
        Some(ChangeKind::Put(entry)) => entry.key.len() + entry.value.len(),
        Some(ChangeKind::Delete(key)) => key.len(),
        Some(ChangeKind::DeleteRange(range)) => range.start.len() + range.end.len(),
        None => 0,
    };
    changes.changes.iter().map(|change| one(change) + EVENT_OVERHEAD_BYTES).sum()
}

fn lagged_status() -> Status {
    Status::aborted(
        "the client is too slow for this watch, and the queued changes were dropped: watch again \
         and then scan, or watch with entries",
    )
}

impl WatchQueue {
    fn locked(&self) -> std::sync::MutexGuard<'_, QueueState> {
        // No panic here can leave the state inconsistent.
        self.state.lock().ignore_poison()
    }

    /// Queues a write, or ends the watch where its queue is full.
    fn push(&self, changes: Changes) {
        let bytes = changes_bytes(&changes);
        let mut state = self.locked();
        if state.end.is_some() || state.is_abandoned {
            return;
        }
        // A single write always fits, however large it is.
        let is_over = state.bytes > 0 && state.bytes + bytes > WATCH_BYTES_MAX;
        if is_over || state.pending.len() >= WATCH_WRITES_MAX {
            drop(state);
            self.end(lagged_status());
            return;
        }
        state.bytes += bytes;
        self.totals.bytes.fetch_add(bytes, Ordering::Relaxed);
        state.pending.push_back((changes, bytes));
        drop(state);
        self.notify.notify_one();
    }

    /// Counts nothing for this queue any more.
    fn release(&self, state: &mut QueueState) {
        self.totals.bytes.fetch_sub(state.bytes, Ordering::Relaxed);
        (state.bytes, state.delivered_bytes) = (0, 0);
    }

    fn end(&self, status: Status) {
        let mut state = self.locked();
        state.pending = VecDeque::new();
        // Other queues need not make room for what a client of an ended watch has not taken.
        self.release(&mut state);
        state.end.get_or_insert(status);
        self.totals.has_ended.store(true, Ordering::Release);
        drop(state);
        self.notify.notify_one();
    }
}

impl Watcher {
    /// Waits for the next write.
    ///
    /// # Errors
    /// The status for the client, after the watch has ended.
    pub async fn next(&self) -> Result<Changes, Status> {
        loop {
            if let Some(next) = self.try_next() {
                return next;
            }
            self.queue.notify.notified().await;
        }
    }

    /// Takes the next queued write, if any. Releases the memory of the write taken before.
    fn try_next(&self) -> Option<Result<Changes, Status>> {
        let mut state = self.queue.locked();
        let delivered_bytes = std::mem::take(&mut state.delivered_bytes);
        state.bytes -= delivered_bytes;
        self.queue.totals.bytes.fetch_sub(delivered_bytes, Ordering::Relaxed);
        match state.pending.pop_front() {
            Some((changes, bytes)) => {
                state.delivered_bytes = bytes;
                Some(Ok(changes))
            }
            None => state.end.clone().map(Err),
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let mut state = self.queue.locked();
        self.queue.release(&mut state);
        *state = QueueState { is_abandoned: true, ..QueueState::default() };
        self.queue.totals.has_ended.store(true, Ordering::Release);
    }
}

mod watch_index;
mod write_key_index;

#[cfg(test)]
mod tests;
