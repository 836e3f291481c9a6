//! [`DeferredInserts`]: hashes of journals that were read and are not among the lines yet.
//!
//! Adding one costs a miss of the cache, and there may be a million. So they are sorted into parts,
//! by the lines they belong to, and a part is added when one of its lines is first requested.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use umbel_base::ignore_poison::IgnorePoison;

/// Into how many parts a filter is divided.
pub(crate) const PARTITIONS: u64 = 256;
/// Space for no more is made ahead, whatever a file's length promises.
const PARTITION_RESERVE_MAX: usize = 1 << 16;

/// Hashes, each in its part.
#[derive(Debug)]
pub(crate) struct PartitionedHashes {
    parts: Vec<Vec<u64>>,
    count: u64,
}

impl PartitionedHashes {
    /// None yet; about `expected` will come.
    pub(crate) fn new(expected: u64) -> PartitionedHashes {
        // They are spread evenly, up to some deviations.
        let usual = usize::try_from(expected / PARTITIONS).unwrap_or(0).min(PARTITION_RESERVE_MAX);
        let capacity = usual + usual / 8 + 8;
        PartitionedHashes {
            parts: (0..PARTITIONS).map(|_| Vec::with_capacity(capacity)).collect(),
            count: 0,
        }
    }

    /// Adds one to its part.
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

    /// Them, part by part.
    pub(crate) fn parts(&self) -> &[Vec<u64>] {
        &self.parts
    }
}

/// Hashes of journals that were read and are not among the lines yet.
#[derive(Debug)]
pub(crate) struct DeferredInserts {
    parts: Vec<Mutex<Vec<u64>>>,
    left: AtomicU64,
}

impl DeferredInserts {
    /// These hashes, sorted.
    pub(crate) fn new(sorted: PartitionedHashes) -> DeferredInserts {
        let parts = sorted.parts.into_iter().map(Mutex::new).collect();
        DeferredInserts { parts, left: AtomicU64::new(sorted.count) }
    }

    /// Number of hashes that wait; a caller that finds none sees the bits of all.
    pub(crate) fn left(&self) -> u64 {
        self.left.load(Ordering::Acquire)
    }

    /// Hands the hashes of a part to `add`, unless that was done: a thread that comes meanwhile
    /// waits until it is. Returns how many they were.
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
