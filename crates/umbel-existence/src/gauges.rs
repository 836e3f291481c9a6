//! Numbers that are read without waiting for a working thread.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that one thread at a time changes.
#[derive(Debug, Default)]
pub(crate) struct Gauge(AtomicU64);

impl Gauge {
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

/// Counters since the filter was opened, and its progress.
#[derive(Debug, Default)]
pub(crate) struct Gauges {
    /// The user's position up to which everything is durable here.
    pub(crate) covered: Gauge,
    /// Hashes that were taken for a flush which failed.
    pub(crate) unwritten: Gauge,
    pub(crate) flushes: Gauge,
    pub(crate) generations: Gauge,
    pub(crate) bytes_written: Gauge,
    pub(crate) growths: Gauge,
    pub(crate) rebuilds: Gauge,
    pub(crate) healed_lines: Gauge,
}
