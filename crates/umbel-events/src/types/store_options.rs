//! [`StoreOptions`]: how a store is opened.

use std::time::Duration;

use umbel::{Durability, MemoryBudget, Options};
use umbel_env::Env;
use umbel_existence::{ExistenceOptions, Size};

use crate::error::{Error, Result};
use crate::limits::{CHUNK_BYTES_MAX, CHUNK_BYTES_MIN};

/// Options of a store, given at each open.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// Create the store where the folder does not exist or is empty.
    pub create_if_missing: bool,
    /// Refuse a store that exists.
    pub error_if_exists: bool,
    /// How long to wait while another process or handle has the store open, before the open is
    /// refused with `Locked`. Zero, the default, does not wait.
    pub lock_wait: Duration,
    /// What an acknowledged append survives.
    pub durability: Durability,
    /// Bytes of memory for the indexes, as `umbel::Options::memory_bytes`.
    pub memory_bytes: Option<u64>,
    /// A budget that the indexes share with other stores of the process, in the place of
    /// `memory_bytes`; as `umbel::Options::memory_budget`.
    pub memory_budget: Option<MemoryBudget>,
    /// The most bytes of one file of the event log, 64 KiB to 32 MiB, unless an append needs more.
    /// The first has 4 MiB at most, and each next one twice as many up to this.
    pub chunk_bytes: u64,
    /// How large the existence filter is, by which a stream that never had an event is told from
    /// one that may have had some. By default it grows with the store.
    pub existence: Size,
    /// Threads that keep the indexes in order. 0: the appending thread does it, which makes every
    /// run the same; what was submitted is then acknowledged when somebody waits for it.
    pub background_threads: usize,
    /// The world the store lives in.
    pub env: Env,
}

impl Default for StoreOptions {
    fn default() -> StoreOptions {
        StoreOptions {
            create_if_missing: true,
            error_if_exists: false,
            lock_wait: Duration::ZERO,
            durability: Durability::Buffered,
            memory_bytes: None,
            memory_budget: None,
            chunk_bytes: CHUNK_BYTES_MAX,
            existence: ExistenceOptions::default().size,
            background_threads: 2,
            env: Env::system(),
        }
    }
}

impl StoreOptions {
    /// Those of the indexes, as far as the caller says them.
    pub fn of_index(&self) -> Options {
        Options {
            lock_wait: self.lock_wait,
            memory_bytes: self.memory_bytes,
            memory_budget: self.memory_budget.clone(),
            background_threads: self.background_threads,
            log_segment_bytes: 64 << 10,
            env: self.env.clone(),
            ..Options::default()
        }
    }

    /// An error that says which option is out of range and what it may be.
    pub fn check(&self) -> Result<()> {
        if !(CHUNK_BYTES_MIN..=CHUNK_BYTES_MAX).contains(&self.chunk_bytes) {
            return Err(Error::invalid(format!(
                "chunk_bytes is {}, but must be {CHUNK_BYTES_MIN} to {CHUNK_BYTES_MAX}",
                self.chunk_bytes
            )));
        }
        // Before there is a file of them: a store that cannot be opened is not made.
        Ok(self.of_index().check()?)
    }
}
