//! [`MemtableSlot`]: a memtable with the state that a flush needs.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use umbel_base::ignore_poison::IgnorePoison;

use umbel_base::{FragmentedTombstones, SequenceNumber, ValueKind};
use umbel_env::ProcessMark;
use umbel_memtable::{Memtable, MemtableOptions};

use crate::fs::blob_files::BlobFile;
use crate::options::KeyspaceOptions;

/// Number of range tombstones at which a memtable is flushed. A flush drops range tombstones that
/// newer ones hide.
const RANGE_DELETES_MAX: usize = 256;

/// Sizes at which a memtable is flushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemtableBytes {
    /// Bytes of the memtable in memory.
    pub memory: u64,
    /// Bytes of long values that the memtable's entries point at.
    pub blobs: u64,
}

/// A memtable with the state that a flush needs.
#[derive(Debug)]
pub struct MemtableSlot {
    /// The memtable with the entries.
    pub memtable: Arc<Memtable>,
    /// Sequence number of the memtable's first write; `u64::MAX` if it is empty.
    first_sequence: AtomicU64,
    write_state: MemtableWriteState,
    /// The process that made it.
    process: ProcessMark,
}

/// State of a [`MemtableSlot`] that changes with each write, in a cache line apart from the state
/// that each read needs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct MemtableWriteState {
    /// Sequence number of the memtable's last write.
    last_sequence: AtomicU64,
    /// Number of range tombstones in the memtable.
    range_deletes: AtomicUsize,
    /// Number of deletes in the memtable.
    deletes: AtomicU64,
    /// Bytes of the long values that the memtable's entries point at.
    blob_bytes: AtomicU64,
    /// References to the files of long values that the memtable's entries point at.
    blobs: Mutex<Vec<Arc<BlobFile>>>,
    /// The last marker that was set on the keyspace while this memtable was active.
    marker: Mutex<Option<Vec<u8>>>,
}

impl MemtableSlot {
    /// Creates an empty memtable for a keyspace with these options.
    pub fn new(options: &KeyspaceOptions) -> MemtableSlot {
        let capacity_bytes = usize::try_from(options.memtable_bytes).unwrap_or(usize::MAX);
        let options = MemtableOptions { capacity_bytes, bloom_bits: options.bloom_bits };
        MemtableSlot {
            memtable: Arc::new(Memtable::new(&options)),
            first_sequence: AtomicU64::new(u64::MAX),
            write_state: MemtableWriteState::default(),
            process: ProcessMark::current(),
        }
    }

    /// Inserts an entry. `hash` is the hash of its key. REQUIRES: the caller holds the commit lock,
    /// and the file of a long value was [added](MemtableSlot::add_blob).
    #[inline]
    pub fn insert(
        &self,
        key: &[u8],
        sequence: SequenceNumber,
        kind: ValueKind,
        value: &[u8],
        hash: u64,
    ) {
        self.memtable.insert(key, sequence, kind, value, hash);
        if kind == ValueKind::Delete {
            let deletes = &self.write_state.deletes;
            deletes.store(deletes.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
        self.note(sequence);
    }

    /// Inserts a range tombstone. REQUIRES: the caller holds the commit lock.
    pub fn delete_range(&self, start: &[u8], end: &[u8], sequence: SequenceNumber) {
        self.memtable.delete_range(start, end, sequence);
        self.write_state.range_deletes.fetch_add(1, Ordering::Relaxed);
        self.note(sequence);
    }

    /// Records a write with sequence number `sequence`.
    #[inline]
    fn note(&self, sequence: SequenceNumber) {
        if self.first_sequence.load(Ordering::Relaxed) == u64::MAX {
            self.first_sequence.store(sequence, Ordering::Release);
        }
        self.write_state.last_sequence.store(sequence, Ordering::Release);
    }

    /// Adds the range tombstones, cut where they overlap. Threads that need them at the same time
    /// share the work, except in a forked child, which must not wait for another thread.
    pub fn add_fragmented_tombstones(&self, to: &mut Vec<Arc<FragmentedTombstones>>) {
        self.memtable.add_fragmented_tombstones(to, self.process.is_current());
    }

    /// Bytes of the entries, and of the long values that they point at.
    pub fn held_bytes(&self) -> u64 {
        self.memtable.bytes() as u64 + self.long_bytes()
    }

    /// Bytes of the long values that the entries point at.
    pub fn long_bytes(&self) -> u64 {
        self.write_state.blob_bytes.load(Ordering::Relaxed)
    }

    /// Number of deletes in the memtable, without range tombstones.
    pub fn deletes(&self) -> u64 {
        self.write_state.deletes.load(Ordering::Relaxed)
    }

    /// Number of range tombstones in the memtable.
    pub fn range_deletes(&self) -> u64 {
        self.write_state.range_deletes.load(Ordering::Relaxed) as u64
    }

    /// Keeps the file of a long value for an entry that is inserted later. REQUIRES: the caller
    /// holds the commit lock.
    pub fn add_blob(&self, blob: Arc<BlobFile>) {
        self.write_state.blob_bytes.fetch_add(blob.pointer.value_bytes, Ordering::Relaxed);
        self.write_state.blobs.lock().ignore_poison().push(blob);
    }

    /// Returns the files of long values that the memtable's entries point at.
    pub fn blobs(&self) -> Vec<Arc<BlobFile>> {
        self.write_state.blobs.lock().ignore_poison().clone()
    }

    /// Whether the memtable's size reaches `limit`, or it has too many range tombstones.
    #[inline]
    pub fn is_full(&self, limit: MemtableBytes) -> bool {
        self.memtable.bytes() as u64 >= limit.memory
            || self.write_state.blob_bytes.load(Ordering::Relaxed) >= limit.blobs
            || self.write_state.range_deletes.load(Ordering::Relaxed) >= RANGE_DELETES_MAX
    }

    /// Whether a reader at `sequence` sees no entry of the memtable.
    ///
    /// A reader that took `sequence` from the published number, or from the writer, sees every call
    /// of `note` for writes up to `sequence`.
    #[inline]
    pub fn starts_after(&self, sequence: SequenceNumber) -> bool {
        self.first_sequence.load(Ordering::Acquire) > sequence
    }

    /// Sequence number of the memtable's first write; `u64::MAX` if it is empty.
    pub fn first_sequence(&self) -> SequenceNumber {
        self.first_sequence.load(Ordering::Acquire)
    }

    /// Sequence number of the memtable's last write.
    pub fn last_sequence(&self) -> SequenceNumber {
        self.write_state.last_sequence.load(Ordering::Acquire)
    }

    /// Sets the marker that a flush of this memtable stores. REQUIRES: the caller holds the commit
    /// lock.
    pub fn set_marker(&self, marker: &[u8]) {
        let mut held = self.write_state.marker.lock().ignore_poison();
        let held = held.get_or_insert_default();
        held.clear();
        held.extend_from_slice(marker);
    }

    /// Returns the marker that a flush of this memtable stores.
    pub fn marker(&self) -> Option<Vec<u8>> {
        self.write_state.marker.lock().ignore_poison().clone()
    }

    /// Whether a flush of this memtable would write nothing.
    pub fn is_empty(&self) -> bool {
        self.first_sequence() == u64::MAX && self.marker().is_none()
    }
}
