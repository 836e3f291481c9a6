//! [`Keys`]: a source of keys, which an existence filter reads when it is rebuilt or grows.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use umbel_base::{Error, Result};
use umbel_existence::{ExistenceFilter, HashSource, StepProgress};
use umbel_sim::Random;

/// Returns the hash of the key with this number.
pub fn hash_of(number: u64) -> u64 {
    Random::new(number ^ 0x1234_5678).next()
}

/// Source of keys in the order of their hashes; the cursor is the last hash.
#[derive(Debug, Default)]
pub struct Keys {
    hashes: Mutex<BTreeSet<u64>>,
    is_busy: AtomicBool,
}

impl Keys {
    /// Creates a source of these hashes.
    pub fn of(hashes: impl IntoIterator<Item = u64>) -> Keys {
        Keys { hashes: Mutex::new(hashes.into_iter().collect()), ..Keys::default() }
    }

    /// Sets whether other work keeps the processors busy from now on.
    pub fn be_busy(&self, is_busy: bool) {
        self.is_busy.store(is_busy, Ordering::Relaxed);
    }

    /// Adds a hash.
    pub fn put(&self, hash: u64) {
        self.hashes.lock().expect("no thread panics under this lock").insert(hash);
    }
}

impl HashSource for Keys {
    fn hashes(
        &self,
        after: Option<&[u8]>,
        most: usize,
        output: &mut Vec<u64>,
    ) -> Result<Option<Vec<u8>>> {
        let keys = self.hashes.lock().expect("no thread panics under this lock");
        let start = match after {
            None => 0,
            Some(bytes) => {
                let last = bytes.try_into().map(u64::from_be_bytes);
                let last = last.map_err(|_| Error::invalid("no cursor of this source"))?;
                match last.checked_add(1) {
                    Some(start) => start,
                    None => return Ok(None),
                }
            }
        };
        output.extend(keys.range(start..).take(most));
        let is_over = keys.range(start..).nth(most).is_none();
        Ok(output.last().filter(|_| !is_over).map(|last| last.to_be_bytes().to_vec()))
    }

    fn estimated(&self) -> u64 {
        self.hashes.lock().expect("no thread panics under this lock").len() as u64
    }

    fn is_busy(&self) -> bool {
        self.is_busy.load(Ordering::Relaxed)
    }
}

/// Does steps of the filter's background work until none is left.
pub fn settle(filter: &ExistenceFilter, source: &dyn HashSource) -> Result<()> {
    for _ in 0..1_000_000 {
        if filter.step(source)? == StepProgress::Idle {
            return Ok(());
        }
    }
    Err(Error::invalid("a million steps did not end it"))
}
