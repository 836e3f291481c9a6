//! The memtable: a tree, a filter and range tombstones.

use crate::entry::SeekKey;
use crate::growing_filter::GrowingFilter;
use crate::range_tombstones::RangeTombstones;
use crate::tree::Tree;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use umbel_base::{FragmentedTombstones, RangeTombstoneRef, SequenceNumber, ValueKind};
use umbel_filter::ConcurrentBloom;

/// Estimated bytes of an entry, header and share of its node included, for the size of the
/// filter.
const ENTRY_BYTES_ESTIMATE: usize = 128;
/// Maximum number of keys for which a filter is sized, which takes 20 MiB at ten bits per key.
const FILTER_KEYS_MAX: u64 = 16 << 20;

/// Options of a memtable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemtableOptions {
    /// Approximate bytes of entries that the memtable will have, by which the filter is sized. It
    /// is not a limit.
    pub capacity_bytes: usize,
    /// Bits per key of the filter; zero or less for no filter.
    pub bloom_bits: i32,
}

/// Result of [`Memtable::get`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemtableHit<'a> {
    /// Sequence number of the version.
    pub sequence: SequenceNumber,
    /// Whether the key was put or deleted.
    pub kind: ValueKind,
    /// The value; empty for a delete.
    pub value: &'a [u8],
}

/// An ordered map of versions of keys, which one thread at a time writes and others read without
/// locks.
///
/// A read sees every entry whose insertion happened before the read, for example because the reader
/// took its sequence number from the writer.
pub struct Memtable {
    /// Whether any entry was inserted. Readers first read this field, the filter and the tree's
    /// root, which all change rarely.
    filled: AtomicBool,
    filter: GrowingFilter,
    /// The range tombstones; created with the first one.
    tombstones: OnceLock<Box<RangeTombstones>>,
    tombstone_bytes: AtomicUsize,
    tree: Tree,
}

impl Memtable {
    /// Creates an empty memtable, which takes only its own few hundred bytes of memory.
    pub fn new(options: &MemtableOptions) -> Memtable {
        let keys = (options.capacity_bytes / ENTRY_BYTES_ESTIMATE) as u64;
        let keys = keys.clamp(1, FILTER_KEYS_MAX);
        Memtable {
            filled: AtomicBool::new(false),
            filter: GrowingFilter::new(keys, options.bloom_bits),
            tombstones: OnceLock::new(),
            tombstone_bytes: AtomicUsize::new(0),
            tree: Tree::new(),
        }
    }

    /// Prefetches the cache line of the filter that an insert of a key with this hash changes. In a
    /// large memtable this line is rarely in a CPU cache.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        self.filter.prefetch(hash);
    }

    /// Inserts a version of `key`. `hash` is the key's hash, with which readers probe the filter.
    /// Concurrent writers wait for each other.
    ///
    /// REQUIRES: (`key`, `sequence`) was not inserted before; the limits of `umbel_base::limits`.
    ///
    /// # Panics
    /// If key, value or sequence number are over their limits; the memtable is then unchanged.
    pub fn insert(
        &self,
        key: &[u8],
        sequence: SequenceNumber,
        kind: ValueKind,
        value: &[u8],
        hash: u64,
    ) {
        let mut writer = self.tree.writer();
        // The filter first: a caller that finds the entry must find its hash.
        self.filter.insert(hash, writer.growth());
        writer.insert(key, sequence, kind, value);
        self.note_filled();
    }

    /// Adds a range tombstone, which deletes versions of keys in `start..end` that are older than
    /// `sequence`. An empty range changes nothing.
    pub fn delete_range(&self, start: &[u8], end: &[u8], sequence: SequenceNumber) {
        if start < end {
            let tombstones = self.tombstones.get_or_init(|| Box::new(RangeTombstones::new()));
            let bytes = tombstones.push(RangeTombstoneRef { start, end, sequence });
            self.tombstone_bytes.fetch_add(bytes, Ordering::Relaxed);
            self.note_filled();
        }
    }

    /// Notes that the memtable is not empty. Writes only the first time, so that readers keep the
    /// cache line.
    #[inline]
    fn note_filled(&self) {
        if !self.filled.load(Ordering::Relaxed) {
            self.filled.store(true, Ordering::Relaxed);
        }
    }

    /// Returns the newest version of `key` that is not newer than `sequence`. Range tombstones are
    /// not applied.
    #[inline]
    pub fn get(&self, key: &[u8], sequence: SequenceNumber) -> Option<MemtableHit<'_>> {
        let entry = self.tree.find(SeekKey { key, sequence })?;
        (entry.key() == key).then(|| MemtableHit {
            sequence: entry.sequence(),
            kind: entry.kind(),
            value: entry.value(),
        })
    }

    /// Whether a key with this hash was possibly inserted; always `true` without a filter. Range
    /// tombstones are not in the filter.
    #[inline]
    pub fn may_contain(&self, hash: u64) -> bool {
        self.filter.may_contain(hash)
    }

    /// Returns the current filter, from which the filter of the flushed table can be made by
    /// folding. `None` without a filter or before the first insert; later calls can return a larger
    /// filter.
    pub fn filter(&self) -> Option<&ConcurrentBloom> {
        self.filter.current()
    }

    /// Adds the range tombstones, cut where they overlap, in one or more runs. For a point read
    /// [`Memtable::covering`] is cheaper.
    ///
    /// While another thread cuts, the caller waits if `may_wait`. Otherwise the caller cuts for
    /// itself, as it must in a forked child, where that thread does not exist.
    pub fn add_fragmented_tombstones(
        &self,
        to: &mut Vec<Arc<FragmentedTombstones>>,
        may_wait: bool,
    ) {
        if let Some(tombstones) = self.tombstones.get() {
            tombstones.add_fragments(to, may_wait);
        }
    }

    /// Returns the range tombstones in the order in which they were added.
    pub fn range_tombstones(&self) -> impl Iterator<Item = RangeTombstoneRef<'_>> + Clone {
        self.tombstones.get().into_iter().flat_map(|tombstones| tombstones.iter())
    }

    /// Returns the sequence number of the newest range tombstone over `key` that a reader at
    /// `sequence` sees. The call costs one load without range tombstones, and stays cheap while
    /// tombstones are added.
    #[inline]
    pub fn covering(&self, key: &[u8], sequence: SequenceNumber) -> Option<SequenceNumber> {
        self.tombstones.get()?.covering(key, sequence)
    }

    /// Whether the memtable has range tombstones, at the cost of one load.
    #[inline]
    pub fn has_tombstones(&self) -> bool {
        self.tombstones.get().is_some()
    }

    /// Bytes that entries, nodes and range tombstones take. The number grows with each insert, is 0
    /// without entries, and decides when a memtable is full.
    pub fn bytes(&self) -> usize {
        self.tree.bytes() + self.tombstone_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of memory that the memtable takes, for a memory budget. The bytes include free space
    /// of the arenas, the filter's memory for growth, range tombstones and the memtable itself, but
    /// no overhead of the allocator.
    pub fn memory_bytes(&self) -> usize {
        let tombstones = self.tombstones.get().map_or(0, |tombstones| tombstones.memory_bytes());
        size_of::<Memtable>() + self.tree.memory_bytes() + self.filter.memory_bytes() + tombstones
    }

    /// Number of versions inserted, without range tombstones.
    pub fn entries(&self) -> u64 {
        self.tree.entries() as u64
    }

    /// Whether neither an entry nor a range tombstone was inserted. The call is one relaxed load of
    /// a cache line that inserts change only once.
    #[inline]
    pub fn is_empty(&self) -> bool {
        !self.filled.load(Ordering::Relaxed)
    }

    /// Returns the tree, for the cursor.
    pub(crate) fn tree(&self) -> &Tree {
        &self.tree
    }
}

impl fmt::Debug for Memtable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memtable")
            .field("entries", &self.entries())
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}
