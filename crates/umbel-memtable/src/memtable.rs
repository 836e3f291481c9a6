//! The memtable: the tree, the filter in front of it and the range tombstones beside it.

use crate::entry::Target;
use crate::tombstones::Tombstones;
use crate::tree::Tree;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
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
    tree: Tree,
    filter: Option<ConcurrentBloom>,
    tombstones: Tombstones,
    tombstone_bytes: AtomicUsize,
}

impl Memtable {
    /// An empty memtable.
    pub fn new(options: &MemtableOptions) -> Memtable {
        let keys = (options.capacity_bytes / ENTRY_BYTES_GUESS) as u64;
        let keys = keys.clamp(1, FILTER_KEYS_MAX);
        Memtable {
            tree: Tree::new(),
            filter: (options.bloom_bits > 0)
                .then(|| ConcurrentBloom::new(keys, options.bloom_bits)),
            tombstones: Tombstones::default(),
            tombstone_bytes: AtomicUsize::new(0),
        }
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
        // The filter first: whoever finds the entry must find its hash.
        if let Some(filter) = &self.filter {
            filter.insert(hash);
        }
        self.tree.insert(key, sequence, kind, value);
    }

    /// Adds a range tombstone: versions of keys in `start..end` older than `sequence` are deleted.
    /// An empty range changes nothing.
    pub fn delete_range(&self, start: &[u8], end: &[u8], sequence: SequenceNumber) {
        if start < end {
            let (start, end) = (start.to_vec(), end.to_vec());
            let bytes = self.tombstones.push(RangeTombstone { start, end, sequence });
            self.tombstone_bytes.fetch_add(bytes, Ordering::Relaxed);
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
        self.filter.as_ref().is_none_or(|filter| filter.may_contain(hash))
    }

    /// The filter, to be folded into that of the table made from this memtable.
    pub fn filter(&self) -> Option<&ConcurrentBloom> {
        self.filter.as_ref()
    }

    /// The range tombstones. Cut anew when some were added since the last call, else only lent.
    pub fn tombstones(&self) -> Arc<FragmentedTombstones> {
        self.tombstones.fragments()
    }

    /// Whether there are range tombstones: one load.
    #[inline]
    pub fn has_tombstones(&self) -> bool {
        !self.tombstones.is_empty()
    }

    /// Memory taken by entries, nodes and range tombstones, in bytes. What an empty memtable costs
    /// already, its filter above all, is not counted, so that an empty one is never full.
    pub fn bytes(&self) -> usize {
        self.tree.bytes() + self.tombstone_bytes.load(Ordering::Relaxed)
    }

    /// How many versions were inserted. Range tombstones do not count.
    pub fn entries(&self) -> u64 {
        self.tree.entries() as u64
    }

    /// Whether nothing was inserted, no range tombstone either.
    pub fn is_empty(&self) -> bool {
        self.entries() == 0 && !self.has_tombstones()
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
