//! [`Feed`]: who watches what, and what he was told and has not taken.
//!
//! Nobody waits for a watcher. What he has not taken stays in a queue of his own; where that holds
//! too much it is thrown away, and he is told to read anew. So it is where all queues together
//! hold too much: the one that holds the most goes.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use prost::bytes::Bytes;
use tokio::sync::Notify;
use tonic::Status;
use umbel_proto::kv::{Change, ChangeKind, Changes, Entry, KeyRange, OperationKind};

use super::writer::Operation;
use crate::limits::{
    EVENT_BYTES_BESIDE, WATCH_BYTES_MAX, WATCH_WRITES_MAX, WATCHES_BYTES_MAX, WATCHES_MAX,
};

/// What somebody watches.
#[derive(Debug, Clone)]
pub struct Watched {
    /// The keyspace's name.
    pub keyspace: String,
    /// How its keys begin.
    pub prefix: Vec<u8>,
    /// Whether values are left out.
    pub keys_only: bool,
}

/// How many watch, and how many were let go.
#[derive(Debug, Default)]
pub struct Counts {
    /// Who watch, as far as it was noticed that others have left.
    pub watches: AtomicUsize,
    /// Who did not keep up, since the start.
    pub let_go: AtomicU64,
}

/// Everybody who watches.
#[derive(Debug)]
pub struct Feed {
    queues: Vec<Arc<Queue>>,
    counts: Arc<Counts>,
    watches_max: usize,
    bytes_max: usize,
}

/// What one is told.
#[derive(Debug)]
struct Queue {
    watched: Watched,
    state: Mutex<State>,
    bell: Notify,
}

#[derive(Debug, Default)]
struct State {
    told: VecDeque<(Changes, usize)>,
    /// Bytes of that, and of what was taken last.
    bytes: usize,
    taken: usize,
    /// Why nothing comes any more.
    end: Option<Status>,
    /// Whether nobody takes anything any more.
    is_left: bool,
}

/// Takes what is told. Dropping it ends the watch.
#[derive(Debug)]
pub struct Watcher {
    queue: Arc<Queue>,
}

impl Feed {
    /// Nobody, to begin with.
    pub fn new(counts: Arc<Counts>) -> Feed {
        let queues = Vec::new();
        Feed { queues, counts, watches_max: WATCHES_MAX, bytes_max: WATCHES_BYTES_MAX }
    }

    /// Begins a watch.
    pub fn begin(&mut self, watched: Watched) -> Result<Watcher, Status> {
        self.forget();
        if self.queues.len() >= self.watches_max {
            return Err(Status::resource_exhausted(format!(
                "{} watches go on, which is the most there may be; end one, or watch a prefix \
                 that covers several",
                self.watches_max
            )));
        }
        let queue = Arc::new(Queue { watched, state: Mutex::default(), bell: Notify::new() });
        self.queues.push(Arc::clone(&queue));
        self.counts.watches.store(self.queues.len(), Ordering::Relaxed);
        Ok(Watcher { queue })
    }

    /// Tells everybody whom it concerns of a write.
    pub fn tell(&mut self, sequence: u64, operations: &[Operation]) {
        if self.queues.is_empty() {
            return;
        }
        // Copied once for all, and only what is told to anybody: the message in which it came may
        // be large.
        let mut copies: Vec<Option<ChangeKind>> = vec![None; operations.len()];
        let mut held = self.held();
        for queue in &self.queues {
            let mut changes = Vec::new();
            for (operation, copy) in operations.iter().zip(&mut copies) {
                if queue.watched.concerns(operation) {
                    let kind = copy.get_or_insert_with(|| change(&operation.kind));
                    changes.push(queue.watched.shown(kind));
                }
            }
            if !changes.is_empty() {
                held += queue.push(Changes { sequence, changes });
            }
            if held > self.bytes_max {
                self.make_room();
                held = self.held();
            }
        }
        self.forget();
    }

    /// Ends every watch: what was written may not last.
    pub fn fail(&mut self, error: &umbel::Error) {
        for queue in self.queues.drain(..) {
            queue.end(crate::failure::of_engine(error));
        }
        self.counts.watches.store(0, Ordering::Relaxed);
    }

    /// Lets go of those who take nothing any more.
    fn forget(&mut self) {
        let mut let_go = 0;
        self.queues.retain(|queue| {
            let state = queue.locked();
            let_go += u64::from(!state.is_left && state.end.is_some());
            !state.is_left && state.end.is_none()
        });
        self.counts.let_go.fetch_add(let_go, Ordering::Relaxed);
        self.counts.watches.store(self.queues.len(), Ordering::Relaxed);
    }

    /// The bytes that wait for all watches.
    fn held(&self) -> usize {
        self.queues.iter().map(|queue| queue.locked().bytes).sum()
    }

    fn make_room(&self) {
        let mut held: Vec<(usize, &Arc<Queue>)> =
            self.queues.iter().map(|queue| (queue.locked().bytes, queue)).collect();
        let mut sum: usize = held.iter().map(|(bytes, _)| bytes).sum();
        held.sort_unstable_by_key(|(bytes, _)| *bytes);
        while sum > self.bytes_max
            && let Some((bytes, queue)) = held.pop()
        {
            queue.end(too_slow());
            sum -= bytes;
        }
    }
}

impl Watched {
    fn concerns(&self, operation: &Operation) -> bool {
        if operation.keyspace.name() != self.keyspace {
            return false;
        }
        match &operation.kind {
            OperationKind::Put(entry) => entry.key.starts_with(&self.prefix),
            OperationKind::Delete(key) => key.starts_with(&self.prefix),
            OperationKind::DeleteRange(range) => {
                // Some key that begins so lies behind the start and before the end.
                let begins_before =
                    range.start.starts_with(&self.prefix) || range.start[..] <= self.prefix[..];
                begins_before && range.end[..] > self.prefix[..]
            }
        }
    }

    fn shown(&self, kind: &ChangeKind) -> Change {
        let kind = match kind {
            ChangeKind::Put(entry) if self.keys_only => {
                ChangeKind::Put(Entry { key: entry.key.clone(), value: Bytes::new() })
            }
            kind => kind.clone(),
        };
        Change { kind: Some(kind) }
    }
}

/// A copy of what an operation does.
fn change(kind: &OperationKind) -> ChangeKind {
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

fn bytes_of(changes: &Changes) -> usize {
    let one = |change: &Change| match &change.kind {
        Some(ChangeKind::Put(entry)) => entry.key.len() + entry.value.len(),
        Some(ChangeKind::Delete(key)) => key.len(),
        Some(ChangeKind::DeleteRange(range)) => range.start.len() + range.end.len(),
        None => 0,
    };
    changes.changes.iter().map(|change| one(change) + EVENT_BYTES_BESIDE).sum()
}

fn too_slow() -> Status {
    Status::aborted(
        "changes come faster than this watch takes them, and those that waited were let go: scan \
         again and watch from there, or watch with entries",
    )
}

impl Queue {
    fn locked(&self) -> std::sync::MutexGuard<'_, State> {
        // Nothing here can leave the state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells of a write: how many bytes wait for it.
    fn push(&self, changes: Changes) -> usize {
        let bytes = bytes_of(&changes);
        let mut state = self.locked();
        if state.end.is_some() || state.is_left {
            return 0;
        }
        // One write alone is always taken, however large it is.
        let is_over = state.bytes > 0 && state.bytes + bytes > WATCH_BYTES_MAX;
        if is_over || state.told.len() >= WATCH_WRITES_MAX {
            drop(state);
            self.end(too_slow());
            return 0;
        }
        state.bytes += bytes;
        state.told.push_back((changes, bytes));
        drop(state);
        self.bell.notify_one();
        bytes
    }

    fn end(&self, status: Status) {
        let mut state = self.locked();
        state.told = VecDeque::new();
        state.bytes = state.taken;
        state.end.get_or_insert(status);
        drop(state);
        self.bell.notify_one();
    }
}

impl Watcher {
    /// What is told next; waits for it.
    ///
    /// # Errors
    /// The watch is over, with what its client is told.
    pub async fn next(&self) -> Result<Changes, Status> {
        loop {
            if let Some(next) = self.take() {
                return next;
            }
            self.queue.bell.notified().await;
        }
    }

    /// What was told, where anything was. What was taken before is not held any more.
    fn take(&self) -> Option<Result<Changes, Status>> {
        let mut state = self.queue.locked();
        state.bytes -= std::mem::take(&mut state.taken);
        match state.told.pop_front() {
            Some((changes, bytes)) => {
                state.taken = bytes;
                Some(Ok(changes))
            }
            None => state.end.clone().map(Err),
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let mut state = self.queue.locked();
        *state = State { is_left: true, ..State::default() };
    }
}

#[cfg(test)]
#[path = "feed_tests.rs"]
mod tests;
