//! [`DeferredInserts`]: hashes that were read from journals and are not added to the lines yet.
//!
//! Adding a hash costs a cache miss, and journals can have a million hashes. So an open sorts
//! hashes by their lines into parts, and a part is added when one of its lines is first requested.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use umbel_base::ignore_poison::IgnorePoison;

/// Number of parts into which a filter's lines are divided.
pub(crate) const PARTITIONS: u64 = 256;
/// Largest number of hashes for which memory is reserved ahead, for a journal of any length.
const PARTITION_RESERVE_MAX: usize = 1 << 16;

/// Hashes by the part of their lines.
#[derive(Debug)]
pub(crate) struct PartitionedHashes {
    parts: Vec<Vec<u64>>,
    count: u64,
}

impl PartitionedHashes {
    /// Creates an empty set, with memory for about `expected` hashes.
    pub(crate) fn new(expected: u64) -> PartitionedHashes {
        // They are spread evenly, up to some deviations.
        let usual = usize::try_from(expected / PARTITIONS).unwrap_or(0).min(PARTITION_RESERVE_MAX);
        let capacity = usual + usual / 8 + 8;
        PartitionedHashes {
            parts: (0..PARTITIONS).map(|_| Vec::with_capacity(capacity)).collect(),
            count: 0,
        }
    }

    /// Adds a hash to its part.
    #[inline]
    pub(crate) fn push(&mut self, part: u64, hash: u64) {
        if let Some(part) = self.parts.get_mut(part as usize) {
            part.push(hash);
            self.count += 1;
        }
    }

    /// Number of deferred hashes.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// The hashes, part by part.
    pub(crate) fn parts(&self) -> &[Vec<u64>] {
        &self.parts
    }
}

/// Hashes that were read from journals and are not added to the lines yet.
#[derive(Debug)]
pub(crate) struct DeferredInserts {
    parts: Vec<Mutex<Vec<u64>>>,
    left: AtomicU64,
}

impl DeferredInserts {
    /// Creates the deferred hashes from sorted ones.
    pub(crate) fn new(sorted: PartitionedHashes) -> DeferredInserts {
        let parts = sorted.parts.into_iter().map(Mutex::new).collect();
        DeferredInserts { parts, left: AtomicU64::new(sorted.count) }
    }

    /// Number of deferred hashes; a caller that gets 0 sees the bits of all of them.
    pub(crate) fn left(&self) -> u64 {
        self.left.load(Ordering::Acquire)
    }

    /// Passes the hashes of a part to `add`, once for each part. Other threads that request the
    /// same part wait until `add` has returned. Returns the number of hashes.
    pub(crate) fn take(&self, part: u64, add: impl FnOnce(&[u64])) -> u64 {
        let Some(part) = self.parts.get(part as usize) else { return 0 };
        let mut hashes = part.lock().ignore_poison();
        let count = hashes.len() as u64;
        if count > 0 {
            add(&hashes);
            *hashes = Vec::new();
            // Release: the bits before the number.
            self.left.fetch_sub(count, Ordering::AcqRel);
        }
        count
    }
}
