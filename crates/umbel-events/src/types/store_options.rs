//! [`StoreOptions`]: the options of an open.

use std::time::Duration;

use umbel::{Durability, MemoryBudget, Options};
use umbel_env::Env;
use umbel_existence::{ExistenceOptions, ExistenceSize};

use crate::limits::{CHUNK_BYTES_MAX, CHUNK_BYTES_MIN};
use crate::types::error::{Error, Result};

/// Options of a store, given at each open.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// Creates the store if the folder does not exist or is empty.
    pub create_if_missing: bool,
    /// Refuses an existing store.
    pub error_if_exists: bool,
    /// Maximum wait while another process or handle has the store open, before the open fails with
    /// `Locked`. Zero, the default, does not wait.
    pub lock_wait: Duration,
    /// Durability of an acknowledged append.
    pub durability: Durability,
    /// Bytes of memory for the indexes, like `umbel::Options::memory_bytes`.
    pub memory_bytes: Option<u64>,
    /// Budget that the indexes share with other stores of the process, instead of `memory_bytes`;
    /// like `umbel::Options::memory_budget`.
    pub memory_budget: Option<MemoryBudget>,
    /// Maximum number of open table files of the indexes, like `umbel::Options::open_tables_max`.
    pub open_tables_max: Option<u64>,
    /// Maximum bytes of one file of the event log, 64 KiB to 32 MiB, unless an append needs more.
    /// The first file has at most 4 MiB; each next file has twice as much as the one before, up to
    /// this maximum.
    pub chunk_bytes: u64,
    /// Maximum bytes of the event log, at least 64 KiB; `None`, the default, for no limit. An
    /// append that would exceed it is refused with
    /// [`Error::LogQuotaExceeded`](crate::Error::LogQuotaExceeded). A sixteenth of the quota, but 1
    /// MiB to 256 MiB, is reserved above it for deletes and for streams whose names begin with
    /// `$`. The disk space is higher by up to two files of `chunk_bytes`, and by the index.
    pub log_quota_bytes: Option<u64>,
    /// Size of the existence filter, which recognizes streams that never had an event. By default
    /// the filter grows with the store.
    pub existence: ExistenceSize,
    /// Number of threads that maintain the indexes. With 0, the appending thread does this work,
    /// which makes runs deterministic. With 0, submitted appends are acknowledged when a thread
    /// waits for them.
    pub background_threads: usize,
    /// Accepts the wall clock. A clock that is ahead of what the store believes is believed. If the
    /// clock is over five minutes behind the last event, a clock epoch begins: times of later
    /// events restart from the clock. Otherwise the option has no effect. Set it for one open only.
    pub accept_clock: bool,
    /// Environment of the store.
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
            open_tables_max: None,
            chunk_bytes: CHUNK_BYTES_MAX,
            log_quota_bytes: None,
            existence: ExistenceOptions::default().size,
            background_threads: 2,
            accept_clock: false,
            env: Env::system(),
        }
    }
}

impl StoreOptions {
    /// Returns the options of the indexes that the caller of the event store sets.
    pub fn index_options(&self) -> Options {
        Options {
            lock_wait: self.lock_wait,
            memory_bytes: self.memory_bytes,
            memory_budget: self.memory_budget.clone(),
            open_tables_max: self.open_tables_max,
            background_threads: self.background_threads,
            log_segment_bytes: 64 << 10,
            env: self.env.clone(),
            ..Options::default()
        }
    }

    /// Returns an error that names an option out of range and its valid range.
    pub fn validate(&self) -> Result<()> {
        if !(CHUNK_BYTES_MIN..=CHUNK_BYTES_MAX).contains(&self.chunk_bytes) {
            return Err(Error::invalid(format!(
                "chunk_bytes is {}, but must be {CHUNK_BYTES_MIN} to {CHUNK_BYTES_MAX}",
                self.chunk_bytes
            )));
        }
        if let Some(bytes) = self.log_quota_bytes.filter(|bytes| *bytes < CHUNK_BYTES_MIN) {
            return Err(Error::invalid(format!(
                "log_quota_bytes is {bytes}, but must be at least {CHUNK_BYTES_MIN}"
            )));
        }
        // Checked before any file is created: a store that cannot be opened is not created.
        Ok(self.index_options().check()?)
    }
}
