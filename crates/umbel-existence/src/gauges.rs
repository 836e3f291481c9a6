//! Numbers that are looked at without waiting for whoever works.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that one thread at a time changes.
#[derive(Debug, Default)]
pub(crate) struct Number(AtomicU64);

impl Number {
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Release);
    }

    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::AcqRel);
    }
}

/// What was done since the filter was opened, and how far it is.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// The user's position up to which everything is durable here.
    pub(crate) covered: Number,
    /// Hashes that were taken for a flush which failed.
    pub(crate) unwritten: Number,
    pub(crate) flushes: Number,
    pub(crate) generations: Number,
    pub(crate) bytes_written: Number,
    pub(crate) growths: Number,
    pub(crate) rebuilds: Number,
    pub(crate) healed_lines: Number,
}
