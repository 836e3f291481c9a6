//! [`Waiting`]: hashes of journals that were read and are not among the lines yet.
//!
//! Adding one costs a miss of the cache, and there may be a million. So they are sorted into parts,
//! by the lines they belong to, and a part is added when one of its lines is first asked for.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Into how many parts a filter is divided.
pub(crate) const PARTS: u64 = 256;

/// Hashes of journals that were read and are not among the lines yet.
#[derive(Debug)]
pub(crate) struct Waiting {
    parts: Vec<Mutex<Vec<u64>>>,
    left: AtomicU64,
}

impl Waiting {
    /// These hashes, each in the part that `part_of` says.
    pub(crate) fn new(hashes: &[u64], part_of: impl Fn(u64) -> u64) -> Waiting {
        // They are spread evenly, up to some deviations.
        let usual = hashes.len() / PARTS as usize;
        let room = usual + usual / 8 + 8;
        let mut parts: Vec<Vec<u64>> = (0..PARTS).map(|_| Vec::with_capacity(room)).collect();
        hashes.iter().for_each(|hash| parts[part_of(*hash) as usize].push(*hash));
        let parts = parts.into_iter().map(Mutex::new).collect();
        Waiting { parts, left: AtomicU64::new(hashes.len() as u64) }
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
