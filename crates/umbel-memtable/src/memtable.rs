//! The memtable: the tree, the filter in front of it and the range tombstones.

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
/// Most keys a filter is sized for: 20 MiB at ten bits a key.
const FILTER_KEYS_MAX: u64 = 16 << 20;

/// Options of a memtable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemtableOptions {
    /// Number of bytes it will hold, roughly. Sizes the filter; is not a limit.
    pub capacity_bytes: usize,
    /// Bits per key of the filter; none where it is zero or less.
    pub bloom_bits: i32,
}

/// Result of [`Memtable::get`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemtableHit<'a> {
    /// The version's sequence number.
    pub sequence: SequenceNumber,
    /// Whether the key was put or deleted.
    pub kind: ValueKind,
    /// The value; empty for a delete.
    pub value: &'a [u8],
}

/// An ordered map of versions, written by one thread at a time and read without locks.
///
/// A call sees every entry inserted before it began. "Before" means happens-before, for example
/// because the reader took its sequence number from the writer.
pub struct Memtable {
    /// Whether anything was inserted. Readers first read this, the filter and the tree's root,
    /// which all change rarely.
    filled: AtomicBool,
    filter: GrowingFilter,
    /// Made with the first range tombstone.
    tombstones: OnceLock<Box<RangeTombstones>>,
    tombstone_bytes: AtomicUsize,
    tree: Tree,
}

impl Memtable {
    /// An empty memtable. It takes no memory but its own few hundred bytes.
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

    /// Prefetches the filter's line that an insert of a
    /// key with this hash changes. In a large memtable it is rarely in a cache.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        self.filter.prefetch(hash);
    }

    /// Inserts a version. `hash` is the key's, as the filter is probed later. Writers wait for one
    /// another.
    ///
    /// REQUIRES: (`key`, `sequence`) was not inserted before; the limits of `umbel_base::limits`.
    ///
    /// # Panics
    /// Where key, value or sequence number are over their limits; nothing is changed then.
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

    /// Adds a range tombstone: versions of keys in `start..end` older than `sequence` are deleted.
    /// An empty range changes nothing.
    pub fn delete_range(&self, start: &[u8], end: &[u8], sequence: SequenceNumber) {
        if start < end {
            let tombstones = self.tombstones.get_or_init(|| Box::new(RangeTombstones::new()));
            let bytes = tombstones.push(RangeTombstoneRef { start, end, sequence });
            self.tombstone_bytes.fetch_add(bytes, Ordering::Relaxed);
            self.note_filled();
        }
    }

    /// Writes only the first time, so that readers keep the line.
    #[inline]
    fn note_filled(&self) {
        if !self.filled.load(Ordering::Relaxed) {
            self.filled.store(true, Ordering::Relaxed);
        }
    }

    /// The newest version of `key` not newer than `sequence`. Range tombstones are not applied.
    #[inline]
    pub fn get(&self, key: &[u8], sequence: SequenceNumber) -> Option<MemtableHit<'_>> {
        let entry = self.tree.find(SeekKey { key, sequence })?;
        (entry.key() == key).then(|| MemtableHit {
            sequence: entry.sequence(),
            kind: entry.kind(),
            value: entry.value(),
        })
    }

    /// Whether a key with this hash may have been inserted; always, where there is no filter.
    /// Range tombstones are not in the filter.
    #[inline]
    pub fn may_contain(&self, hash: u64) -> bool {
        self.filter.may_contain(hash)
    }

    /// The current filter, to be folded into that of the table made from this memtable. `None`
    /// without a filter or before the first insert; later calls may return a larger one.
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

    /// The range tombstones in the order of their deletes.
    pub fn range_tombstones(&self) -> impl Iterator<Item = RangeTombstoneRef<'_>> + Clone {
        self.tombstones.get().into_iter().flat_map(|tombstones| tombstones.iter())
    }

    /// The sequence number of the newest range tombstone over `key` that a reader at `sequence`
    /// sees. Costs one load without range tombstones, and stays cheap while they are being added.
    #[inline]
    pub fn covering(&self, key: &[u8], sequence: SequenceNumber) -> Option<SequenceNumber> {
        self.tombstones.get()?.covering(key, sequence)
    }

    /// Whether there are range tombstones: one load.
    #[inline]
    pub fn has_tombstones(&self) -> bool {
        self.tombstones.get().is_some()
    }

    /// Memory that entries, nodes and range tombstones fill, in bytes. It grows with each insert,
    /// is 0 without entries, and decides when a memtable is full.
    pub fn bytes(&self) -> usize {
        self.tree.bytes() + self.tombstone_bytes.load(Ordering::Relaxed)
    }

    /// Memory taken, in bytes: the arenas with their space for the next entries, the filter with
    /// its memory for growth, range tombstones, and the memtable itself. A memory budget
    /// counts it. The allocator's own overhead is not included.
    pub fn memory_bytes(&self) -> usize {
        let tombstones = self.tombstones.get().map_or(0, |tombstones| tombstones.memory_bytes());
        size_of::<Memtable>() + self.tree.memory_bytes() + self.filter.memory_bytes() + tombstones
    }

    /// Number of versions inserted. Range tombstones do not count.
    pub fn entries(&self) -> u64 {
        self.tree.entries() as u64
    }

    /// Whether nothing was inserted, no range tombstone either: one relaxed load of a line that an
    /// insert changes only once.
    #[inline]
    pub fn is_empty(&self) -> bool {
        !self.filled.load(Ordering::Relaxed)
    }

    /// The tree, for the cursor.
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
