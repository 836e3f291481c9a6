//! [`SuperVersion`]: memtables and version that a reader of a keyspace uses, replaced together.
//! Also cursors over a super version, and over the inputs of merges.

pub mod flush_compaction_inputs;
pub mod memtable_cursor;
mod memtable_slot;
pub mod skip_spans;
pub mod sorted_runs;
pub mod super_version_cursor;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;
use umbel_base::ignore_poison::IgnorePoison;

use arc_swap::{ArcSwap, Guard};
use umbel_base::SequenceNumber;

use crate::options::KeyspaceOptions;
use crate::super_version::skip_spans::SkipSpans;
use crate::version::{LiveTable, Version};

pub use memtable_slot::{MemtableBytes, MemtableSlot};

/// Memtables and tables of a keyspace at one moment.
///
/// INVARIANT: a write that precedes the super version is in its memtables or tables. So a reader
/// that loads the super version first and the visible sequence number second misses no such write.
#[derive(Debug, Clone)]
pub struct SuperVersion {
    /// The memtable that takes the writes.
    pub active: Arc<MemtableSlot>,
    /// Frozen memtables that wait for a flush, newest first.
    pub frozen: Vec<Arc<MemtableSlot>>,
    /// The tables of the super version.
    pub version: Arc<Version>,
    /// Key ranges without visible keys, which all super versions share until the keyspace is
    /// cleared.
    pub skip_spans: Arc<SkipSpans>,
}

impl SuperVersion {
    /// Returns the memtables, newest first.
    #[inline]
    pub fn memtables(&self) -> impl Iterator<Item = &Arc<MemtableSlot>> {
        std::iter::once(&self.active).chain(&self.frozen)
    }

    /// Whether a reader at `sequence` sees no entry of the memtables.
    #[inline]
    pub fn has_no_memtable_entries(&self, sequence: SequenceNumber) -> bool {
        self.active.starts_after(sequence)
            && self.frozen.iter().all(|buffer| buffer.starts_after(sequence))
    }
}

/// Statistics of replaced super versions that readers still use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RetiredStats {
    /// Number of references to replaced super versions.
    pub holders: usize,
    /// Bytes of memtables that only replaced super versions reference.
    pub memtable_bytes: u64,
    /// Time at which the oldest super version in use was first recorded as replaced, by the clock
    /// passed to [`SuperVersionCell::note_time`].
    pub since: Option<Duration>,
}

/// A replaced super version, and the time when it was first recorded as still in use.
type RetiredSuperVersion = (Weak<SuperVersion>, Option<Duration>);

/// The current super version, read without a lock.
#[derive(Debug)]
pub struct SuperVersionCell {
    current: ArcSwap<SuperVersion>,
    /// Replaced super versions that readers possibly still use.
    retired: Mutex<Vec<RetiredSuperVersion>>,
}

impl SuperVersionCell {
    /// Creates the super version of a keyspace with the tables of `version` and an empty memtable.
    pub fn new(options: &KeyspaceOptions, version: Version) -> SuperVersionCell {
        let active = Arc::new(MemtableSlot::new(options));
        let version = Arc::new(version);
        let (frozen, skip_spans) = (Vec::new(), Arc::default());
        let view = SuperVersion { active, frozen, version, skip_spans };
        SuperVersionCell { current: ArcSwap::from_pointee(view), retired: Mutex::default() }
    }

    /// Returns the super version for the duration of a call.
    #[inline]
    pub fn load(&self) -> Guard<Arc<SuperVersion>> {
        self.current.load()
    }

    /// Returns a reference to the super version, for an iterator.
    pub fn acquire(&self) -> Arc<SuperVersion> {
        self.current.load_full()
    }

    /// Returns the super version and the sequence number of the present state. `visible` reads the
    /// sequence number up to which writes are visible.
    ///
    /// A super version that was loaded before a freeze lacks the writes after the freeze, but a
    /// sequence number read later would include them. So both are read until they match.
    pub fn acquire_present(
        &self,
        visible: impl Fn() -> SequenceNumber,
    ) -> (Arc<SuperVersion>, SequenceNumber) {
        let mut view = self.acquire();
        loop {
            let sequence = visible();
            // A freeze precedes the publication of each write to the new memtable.
            if Arc::ptr_eq(&self.load().active, &view.active) {
                return (view, sequence);
            }
            view = self.acquire();
        }
    }

    /// Replaces the active memtable with a new one; the old one waits for a flush. REQUIRES: the
    /// caller holds the commit lock.
    pub fn freeze(&self, options: &KeyspaceOptions) {
        let active = Arc::new(MemtableSlot::new(options));
        let before = self.current.rcu(|view| {
            let mut frozen = Vec::with_capacity(view.frozen.len() + 1);
            frozen.push(Arc::clone(&view.active));
            frozen.extend(view.frozen.iter().cloned());
            let active = Arc::clone(&active);
            SuperVersion { active, frozen, ..SuperVersion::clone(view) }
        });
        self.note_retired(&before);
    }

    /// Replaces the tables with these `ids` by the same tables without open table readers. The old
    /// table readers close when no read uses the replaced super version.
    pub fn close_readers(&self, ids: &HashSet<u64>) {
        self.replace_tables(|table| {
            ids.contains(&table.meta.id).then(|| Arc::new(table.unopened()))
        });
    }

    /// Replaces each table whose id is in `tables` by the given one: the same table with another
    /// filter.
    pub fn refilter(&self, tables: &HashMap<u64, Arc<LiveTable>>) {
        self.replace_tables(|table| tables.get(&table.meta.id).cloned());
    }

    fn replace_tables(&self, other: impl Fn(&Arc<LiveTable>) -> Option<Arc<LiveTable>>) {
        let before = self.current.rcu(|view| {
            let version = Arc::new(view.version.with_replacements(&other));
            SuperVersion { version, ..SuperVersion::clone(view) }
        });
        self.note_retired(&before);
    }

    fn lock_retired(&self) -> MutexGuard<'_, Vec<RetiredSuperVersion>> {
        self.retired.lock().ignore_poison()
    }

    fn note_retired(&self, view: &Arc<SuperVersion>) {
        let mut past = self.lock_retired();
        past.retain(|(view, _)| view.strong_count() > 0);
        past.push((Arc::downgrade(view), None));
    }

    /// Records the time `now` for replaced super versions in use that have no time yet.
    pub fn note_time(&self, now: Duration) {
        let mut past = self.lock_retired();
        past.retain(|(view, _)| view.strong_count() > 0);
        past.iter_mut().for_each(|(_, since)| *since = Some(since.unwrap_or(now)));
    }

    /// Statistics of replaced super versions that readers still use.
    pub fn retired_stats(&self) -> RetiredStats {
        let known = self.lock_retired().clone();
        let mut past = RetiredStats::default();
        let mut held: Vec<Arc<MemtableSlot>> = Vec::new();
        for (view, since) in &known {
            let Some(view) = view.upgrade() else { continue };
            // Excludes this function's own reference.
            past.holders += Arc::strong_count(&view) - 1;
            past.since = past.since.into_iter().chain(*since).min();
            held.extend(view.frozen.iter().chain([&view.active]).cloned());
        }
        if held.is_empty() {
            return past;
        }
        let current = self.acquire();
        held.retain(|buffer| {
            !current.frozen.iter().chain([&current.active]).any(|b| Arc::ptr_eq(b, buffer))
        });
        held.sort_by_key(|buffer| Arc::as_ptr(buffer) as usize);
        held.dedup_by(|a, b| Arc::ptr_eq(a, b));
        past.memtable_bytes = held.iter().map(|buffer| buffer.memtable.memory_bytes() as u64).sum();
        past
    }

    /// Drops all memtables and tables; readers keep those that they use. REQUIRES: the caller holds
    /// the commit lock and the manifest lock.
    pub fn clear(&self, options: &KeyspaceOptions) {
        let (active, version) =
            (Arc::new(MemtableSlot::new(options)), Arc::new(Version::default()));
        // No sequence number tells the state before from the one after, so spans are not shared.
        let (frozen, skip_spans) = (Vec::new(), Arc::default());
        let before =
            self.current.swap(Arc::new(SuperVersion { active, frozen, version, skip_spans }));
        self.note_retired(&before);
    }

    /// Installs `version`, and drops the memtables `flushed`, whose entries are in its tables.
    /// REQUIRES: the caller holds the manifest lock.
    pub fn install(&self, version: Version, flushed: &[Arc<MemtableSlot>]) {
        let version = Arc::new(version);
        let before = self.current.rcu(|view| {
            let mut frozen = view.frozen.clone();
            frozen.retain(|buffer| !flushed.iter().any(|done| Arc::ptr_eq(done, buffer)));
            let version = Arc::clone(&version);
            SuperVersion { frozen, version, ..SuperVersion::clone(view) }
        });
        self.note_retired(&before);
    }
}
