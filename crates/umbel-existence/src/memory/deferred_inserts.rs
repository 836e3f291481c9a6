//! [`Waiting`]: hashes of journals that were read and are not among the lines yet.
//!
//! Adding one costs a miss of the cache, and there may be a million. So they are sorted into parts,
//! by the lines they belong to, and a part is added when one of its lines is first asked for.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Into how many parts a filter is divided.
pub(crate) const PARTS: u64 = 256;
/// Room for no more is made ahead, whatever a file's length promises.
const PART_ROOM_MAX: usize = 1 << 16;

/// Hashes, each in its part.
#[derive(Debug)]
pub(crate) struct Sorted {
    parts: Vec<Vec<u64>>,
    count: u64,
}

impl Sorted {
    /// None yet; about `expected` will come.
    pub(crate) fn new(expected: u64) -> Sorted {
        // They are spread evenly, up to some deviations.
        let usual = usize::try_from(expected / PARTS).unwrap_or(0).min(PART_ROOM_MAX);
        let room = usual + usual / 8 + 8;
        Sorted { parts: (0..PARTS).map(|_| Vec::with_capacity(room)).collect(), count: 0 }
    }

    /// Adds one to its part.
    #[inline]
    pub(crate) fn push(&mut self, part: u64, hash: u64) {
        if let Some(part) = self.parts.get_mut(part as usize) {
            part.push(hash);
            self.count += 1;
        }
    }

    /// How many there are.
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
pub(crate) struct Waiting {
    parts: Vec<Mutex<Vec<u64>>>,
    left: AtomicU64,
}

impl Waiting {
    /// These hashes, sorted.
    pub(crate) fn new(sorted: Sorted) -> Waiting {
        let parts = sorted.parts.into_iter().map(Mutex::new).collect();
        Waiting { parts, left: AtomicU64::new(sorted.count) }
    }

    /// How many hashes wait; whoever finds none sees the bits of all.
    pub(crate) fn left(&self) -> u64 {
        self.left.load(Ordering::Acquire)
    }

    /// Hands the hashes of a part to `add`, unless that was done: whoever comes meanwhile waits
    /// until it is. Returns how many they were.
    pub(crate) fn take(&self, part: u64, add: impl FnOnce(&[u64])) -> u64 {
        let Some(part) = self.parts.get(part as usize) else { return 0 };
        let mut hashes = part.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
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
