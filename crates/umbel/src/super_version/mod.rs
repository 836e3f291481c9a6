//! [`SuperVersion`]: memtables and version that a reader of a keyspace uses, replaced as one; and
//! the cursors over it and over merge inputs.

pub mod memtable_cursor;
pub mod merge_inputs;
pub mod sorted_runs;
pub mod super_version_cursor;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;
use umbel_base::ignore_poison::IgnorePoison;

use arc_swap::{ArcSwap, Guard};
use umbel_base::SequenceNumber;
use umbel_memtable::{Memtable, MemtableOptions};

use crate::blob::blob_files::BlobFile;
use crate::options::KeyspaceOptions;
use crate::version::{TableFile, Version};

/// Number of range tombstones of a memtable at which it is flushed. Overlapping ones are split, so
/// a reader pays for up to the square of their number until a flush has dropped the hidden ones.
const RANGE_DELETES_MAX: usize = 256;

/// Size of a memtable at which it is flushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemtableBytes {
    /// Bytes in memory.
    pub memory: u64,
    /// Bytes of long values that its entries point at.
    pub blobs: u64,
}

/// A memtable with the state that a flush needs.
#[derive(Debug)]
pub struct MemtableSlot {
    /// The entries.
    pub memtable: Arc<Memtable>,
    /// Sequence number of its first write; `u64::MAX` if it is empty.
    first_sequence: AtomicU64,
    write_state: MemtableWriteState,
}

/// State of a [`MemtableSlot`] that changes with each write, in a cache line apart from the state
/// that each read needs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct MemtableWriteState {
    /// Sequence number of its last write.
    last_sequence: AtomicU64,
    /// Number of range tombstones in it.
    range_deletes: AtomicUsize,
    /// Bytes of the long values that its entries point at.
    blob_bytes: AtomicU64,
    /// The files of these long values.
    blobs: Mutex<Vec<Arc<BlobFile>>>,
    /// The last marker set on its keyspace while it was active.
    marker: Mutex<Option<Vec<u8>>>,
}

impl MemtableSlot {
    /// An empty memtable for a keyspace with these options.
    pub fn new(options: &KeyspaceOptions) -> MemtableSlot {
        let capacity_bytes = usize::try_from(options.memtable_bytes).unwrap_or(usize::MAX);
        let options = MemtableOptions { capacity_bytes, bloom_bits: options.bloom_bits };
        MemtableSlot {
            memtable: Arc::new(Memtable::new(&options)),
            first_sequence: AtomicU64::new(u64::MAX),
            write_state: MemtableWriteState::default(),
        }
    }

    /// Records a write with this number. REQUIRES: the commit lock.
    #[inline]
    pub fn note(&self, sequence: SequenceNumber) {
        if self.first_sequence.load(Ordering::Relaxed) == u64::MAX {
            self.first_sequence.store(sequence, Ordering::Release);
        }
        self.write_state.last_sequence.store(sequence, Ordering::Release);
    }

    /// Counts a range tombstone. REQUIRES: the commit lock.
    pub fn note_range_delete(&self) {
        self.write_state.range_deletes.fetch_add(1, Ordering::Relaxed);
    }

    /// Holds the file of a long value that an entry points at. REQUIRES: the commit lock, and that
    /// the entry is inserted later.
    pub fn add_blob(&self, blob: Arc<BlobFile>) {
        self.write_state.blob_bytes.fetch_add(blob.pointer.value_bytes, Ordering::Relaxed);
        self.write_state.blobs.lock().ignore_poison().push(blob);
    }

    /// The files of long values that its entries point at.
    pub fn blobs(&self) -> Vec<Arc<BlobFile>> {
        self.write_state.blobs.lock().ignore_poison().clone()
    }

    /// Whether its size reaches `limit`, or it has too many range tombstones.
    #[inline]
    pub fn is_full(&self, limit: MemtableBytes) -> bool {
        self.memtable.bytes() as u64 >= limit.memory
            || self.write_state.blob_bytes.load(Ordering::Relaxed) >= limit.blobs
            || self.write_state.range_deletes.load(Ordering::Relaxed) >= RANGE_DELETES_MAX
    }

    /// Whether it is empty for a reader at `sequence`.
    ///
    /// A reader that took `sequence` from the published number, or from the writer, sees the record
    /// of each write up to it.
    #[inline]
    pub fn starts_after(&self, sequence: SequenceNumber) -> bool {
        self.first_sequence.load(Ordering::Acquire) > sequence
    }

    /// Sequence number of its first write; `u64::MAX` if it is empty.
    pub fn first_sequence(&self) -> SequenceNumber {
        self.first_sequence.load(Ordering::Acquire)
    }

    /// Sequence number of its last write.
    pub fn last_sequence(&self) -> SequenceNumber {
        self.write_state.last_sequence.load(Ordering::Acquire)
    }

    /// Sets the marker that a flush of this memtable stores. REQUIRES: the commit lock.
    pub fn set_marker(&self, marker: &[u8]) {
        let mut held = self.write_state.marker.lock().ignore_poison();
        let held = held.get_or_insert_default();
        held.clear();
        held.extend_from_slice(marker);
    }

    /// The marker that a flush of this memtable stores.
    pub fn marker(&self) -> Option<Vec<u8>> {
        self.write_state.marker.lock().ignore_poison().clone()
    }

    /// Whether a flush would write nothing.
    pub fn is_empty(&self) -> bool {
        self.first_sequence() == u64::MAX && self.marker().is_none()
    }
}

/// Memtables and tables of a keyspace at one moment.
///
/// INVARIANT: a write is in `active` or in a part that was installed before it. So a reader that
/// loads the super version first and the visible sequence number second misses no write older than
/// the super version.
#[derive(Debug, Clone)]
pub struct SuperVersion {
    /// The memtable that takes the writes.
    pub active: Arc<MemtableSlot>,
    /// Frozen memtables that wait for a flush, newest first.
    pub frozen: Vec<Arc<MemtableSlot>>,
    /// The tables.
    pub version: Arc<Version>,
}

impl SuperVersion {
    /// Whether the memtables are empty for a reader at `sequence`.
    #[inline]
    pub fn has_no_memtable_entries(&self, sequence: SequenceNumber) -> bool {
        self.active.starts_after(sequence)
            && self.frozen.iter().all(|buffer| buffer.starts_after(sequence))
    }
}

/// Statistics of replaced super versions that readers still hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RetiredStats {
    /// Number of references to replaced super versions.
    pub holders: usize,
    /// Memory of memtables that only replaced super versions hold, in bytes.
    pub memtable_bytes: u64,
    /// Time for which the oldest of them is known to be held, by the clock passed to
    /// [`SuperVersionCell::note_time`].
    pub since: Option<Duration>,
}

/// A replaced super version, and the time when it was first recorded as held.
type RetiredSuperVersion = (Weak<SuperVersion>, Option<Duration>);

/// The current super version, read without a lock.
#[derive(Debug)]
pub struct SuperVersionCell {
    current: ArcSwap<SuperVersion>,
    /// Replaced super versions that readers may still hold.
    retired: Mutex<Vec<RetiredSuperVersion>>,
}

impl SuperVersionCell {
    /// A keyspace with these tables and an empty memtable.
    pub fn new(options: &KeyspaceOptions, version: Version) -> SuperVersionCell {
        let active = Arc::new(MemtableSlot::new(options));
        let view = SuperVersion { active, frozen: Vec::new(), version: Arc::new(version) };
        SuperVersionCell { current: ArcSwap::from_pointee(view), retired: Mutex::default() }
    }

    /// The super version for the duration of a call.
    #[inline]
    pub fn load(&self) -> Guard<Arc<SuperVersion>> {
        self.current.load()
    }

    /// The super version for as long as an iterator needs it.
    pub fn acquire(&self) -> Arc<SuperVersion> {
        self.current.load_full()
    }

    /// Replaces the active memtable with a new one; the old one waits for a flush. REQUIRES: the
    /// commit lock.
    pub fn freeze(&self, options: &KeyspaceOptions) {
        let active = Arc::new(MemtableSlot::new(options));
        let before = self.current.rcu(|view| {
            let mut frozen = Vec::with_capacity(view.frozen.len() + 1);
            frozen.push(Arc::clone(&view.active));
            frozen.extend(view.frozen.iter().cloned());
            let active = Arc::clone(&active);
            SuperVersion { active, frozen, version: Arc::clone(&view.version) }
        });
        self.note_retired(&before);
    }

    /// Replaces the tables with these ids with the same tables without readers. The readers close
    /// when no reader holds the former super version.
    pub fn close_readers(&self, ids: &HashSet<u64>) {
        self.replace_tables(|table| {
            ids.contains(&table.meta.id).then(|| Arc::new(table.unopened()))
        });
    }

    /// Replaces the tables with these ids with the same tables with other filters.
    pub fn refilter(&self, tables: &HashMap<u64, Arc<TableFile>>) {
        self.replace_tables(|table| tables.get(&table.meta.id).cloned());
    }

    fn replace_tables(&self, other: impl Fn(&Arc<TableFile>) -> Option<Arc<TableFile>>) {
        let before = self.current.rcu(|view| {
            let version = Arc::new(view.version.with_replacements(&other));
            SuperVersion { active: Arc::clone(&view.active), frozen: view.frozen.clone(), version }
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

    /// Records that super versions replaced by now are still held at `now`.
    pub fn note_time(&self, now: Duration) {
        let mut past = self.lock_retired();
        past.retain(|(view, _)| view.strong_count() > 0);
        past.iter_mut().for_each(|(_, since)| *since = Some(since.unwrap_or(now)));
    }

    /// Statistics of replaced super versions that readers still hold.
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

    /// Drops all memtables and tables; readers keep those they hold. REQUIRES: the commit lock and
    /// the manifest lock.
    pub fn clear(&self, options: &KeyspaceOptions) {
        let (active, version) =
            (Arc::new(MemtableSlot::new(options)), Arc::new(Version::default()));
        let before =
            self.current.swap(Arc::new(SuperVersion { active, frozen: Vec::new(), version }));
        self.note_retired(&before);
    }

    /// Installs `version` and drops the memtables that are now in tables. REQUIRES: the manifest
    /// lock.
    pub fn install(&self, version: Version, flushed: &[Arc<MemtableSlot>]) {
        let version = Arc::new(version);
        let before = self.current.rcu(|view| {
            let mut frozen = view.frozen.clone();
            frozen.retain(|buffer| !flushed.iter().any(|done| Arc::ptr_eq(done, buffer)));
            let (active, version) = (Arc::clone(&view.active), Arc::clone(&version));
            SuperVersion { active, frozen, version }
        });
        self.note_retired(&before);
    }
}
