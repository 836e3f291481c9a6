//! The memtable: the tree, the filter in front of it and the range tombstones beside it.

use crate::entry::Target;
use crate::filter::GrowingFilter;
use crate::tombstones::Tombstones;
use crate::tree::Tree;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use umbel_base::{FragmentedTombstones, RangeTombstone, SequenceNumber, ValueKind};
use umbel_filter::ConcurrentBloom;

/// How large an entry is taken to be, header and share of its node included, when the filter is
/// sized.
const ENTRY_BYTES_GUESS: usize = 128;
/// Most keys a filter is sized for: 20 MiB at ten bits a key.
const FILTER_KEYS_MAX: u64 = 16 << 20;

/// How a memtable is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemtableOptions {
    /// How many bytes it will hold, roughly. Sizes the filter; is not a limit.
    pub capacity_bytes: usize,
    /// Bits per key of the filter; none where it is zero or less.
    pub bloom_bits: i32,
}

/// What [`Memtable::get`] finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found<'a> {
    /// The version's sequence number.
    pub sequence: SequenceNumber,
    /// Whether the key was put or deleted.
    pub kind: ValueKind,
    /// The value; empty for a delete.
    pub value: &'a [u8],
}

/// An ordered map of versions, written by one thread at a time and read without locks.
///
/// What was inserted before a call began (in the sense of happens-before, for instance because the
/// reader took its sequence number from the writer) is seen by it.
pub struct Memtable {
    /// Whether anything was inserted. It, the filter and the tree's root are what readers look at
    /// first; all three change rarely.
    filled: AtomicBool,
    filter: GrowingFilter,
    /// Made with the first range tombstone.
    tombstones: OnceLock<Box<Tombstones>>,
    tombstone_bytes: AtomicUsize,
    tree: Tree,
}

impl Memtable {
    /// An empty memtable. It takes no memory but its own few hundred bytes.
    pub fn new(options: &MemtableOptions) -> Memtable {
        let keys = (options.capacity_bytes / ENTRY_BYTES_GUESS) as u64;
        let keys = keys.clamp(1, FILTER_KEYS_MAX);
        Memtable {
            filled: AtomicBool::new(false),
            filter: GrowingFilter::new(keys, options.bloom_bits),
            tombstones: OnceLock::new(),
            tombstone_bytes: AtomicUsize::new(0),
            tree: Tree::new(),
        }
    }

    /// Asks the processor, without waiting for it, for the line of the filter that an insert of a
    /// key with this hash changes: in a large memtable it is rarely in a cache.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        self.filter.prefetch(hash);
    }

    /// Inserts a version. `hash` is the key's, as the filter is asked later. Writers wait for one
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
        // The filter first: whoever finds the entry must find its hash.
        self.filter.insert(hash, writer.growth());
        writer.insert(key, sequence, kind, value);
        self.note_filled();
    }

    /// Adds a range tombstone: versions of keys in `start..end` older than `sequence` are deleted.
    /// An empty range changes nothing.
    pub fn delete_range(&self, start: &[u8], end: &[u8], sequence: SequenceNumber) {
        if start < end {
            let (start, end) = (start.to_vec(), end.to_vec());
            let tombstones = self.tombstones.get_or_init(|| Box::new(Tombstones::new()));
            let bytes = tombstones.push(RangeTombstone { start, end, sequence });
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
    pub fn get(&self, key: &[u8], sequence: SequenceNumber) -> Option<Found<'_>> {
        let entry = self.tree.find(Target { key, sequence })?;
        (entry.key() == key).then(|| Found {
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

    /// The filter as it is now, to be folded into that of the table made from this memtable. None
    /// where there is none or nothing was inserted yet; later calls may give a larger one.
    pub fn filter(&self) -> Option<&ConcurrentBloom> {
        self.filter.current()
    }

    /// The range tombstones. Cut anew when some were added since they were cut last, else only
    /// lent. For a point read [`Memtable::covering`] is cheaper.
    pub fn tombstones(&self) -> Arc<FragmentedTombstones> {
        self.tombstones.get().map_or_else(Arc::default, |tombstones| tombstones.fragments())
    }

    /// The sequence number of the newest range tombstone over `key` that a reader at `sequence`
    /// sees. One load where there is none; stays cheap while range tombstones are being added.
    #[inline]
    pub fn covering(&self, key: &[u8], sequence: SequenceNumber) -> Option<SequenceNumber> {
        self.tombstones.get()?.covering(key, sequence)
    }

    /// Whether there are range tombstones: one load.
    #[inline]
    pub fn has_tombstones(&self) -> bool {
        self.tombstones.get().is_some()
    }

    /// Memory that entries, nodes and range tombstones fill, in bytes: grows with each insert, is
    /// none while there are none, and is what tells when a memtable is full.
    pub fn bytes(&self) -> usize {
        self.tree.bytes() + self.tombstone_bytes.load(Ordering::Relaxed)
    }

    /// Memory taken, in bytes: the arenas with what they keep for the next entries, the filter with
    /// what it needs to grow, range tombstones, and the memtable itself. What a memory budget
    /// counts. The allocator's own overhead and cut range tombstones are left out.
    pub fn memory_bytes(&self) -> usize {
        let tombstones = self.tombstones.get().map_or(0, |tombstones| tombstones.memory_bytes());
        size_of::<Memtable>() + self.tree.memory_bytes() + self.filter.memory_bytes() + tombstones
    }

    /// How many versions were inserted. Range tombstones do not count.
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
