//! The memtable's range tombstones: a list for the writer, a snapshot of its fragments for readers.

use arc_swap::ArcSwap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use umbel_base::{FragmentedTombstones, RangeTombstone};

/// Fragments, and of how many tombstones they are.
#[derive(Default)]
struct Snapshot {
    count: usize,
    fragments: Arc<FragmentedTombstones>,
}

/// A growing set of range tombstones.
#[derive(Default)]
pub(crate) struct Tombstones {
    list: Mutex<Vec<RangeTombstone>>,
    /// Length of the list.
    count: AtomicUsize,
    /// Made by the first reader that finds it behind `count`.
    snapshot: ArcSwap<Snapshot>,
}

impl Tombstones {
    /// Adds one and returns the bytes it takes.
    pub(crate) fn push(&self, tombstone: RangeTombstone) -> usize {
        let bytes = size_of::<RangeTombstone>() + tombstone.start.len() + tombstone.end.len();
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        list.push(tombstone);
        self.count.store(list.len(), Ordering::Release);
        bytes
    }

    /// Whether there are none.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// The fragments of at least those tombstones whose `push` happened before this call.
    pub(crate) fn fragments(&self) -> Arc<FragmentedTombstones> {
        let count = self.count.load(Ordering::Acquire);
        let snapshot = self.snapshot.load();
        if snapshot.count >= count {
            return Arc::clone(&snapshot.fragments);
        }
        let list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        // Another reader may have been faster.
        let snapshot = self.snapshot.load();
        if snapshot.count == list.len() {
            return Arc::clone(&snapshot.fragments);
        }
        let fragments = Arc::new(FragmentedTombstones::new(list.iter()));
        let made = Snapshot { count: list.len(), fragments: Arc::clone(&fragments) };
        self.snapshot.store(Arc::new(made));
        fragments
    }
}
