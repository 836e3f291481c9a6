//! Numbers that a caller can read without waiting for a thread that works on the filter.

use std::sync::atomic::{AtomicU64, Ordering};

/// A counter that only one thread at a time changes.
#[derive(Debug, Default)]
pub(crate) struct MaintenanceCounter(AtomicU64);

impl MaintenanceCounter {
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
pub(crate) struct MaintenanceCounters {
    /// The user's position up to which everything is durable here.
    pub(crate) covered: MaintenanceCounter,
    /// Hashes that were taken for a flush which failed.
    pub(crate) unwritten: MaintenanceCounter,
    pub(crate) flushes: MaintenanceCounter,
    pub(crate) generations: MaintenanceCounter,
    pub(crate) bytes_written: MaintenanceCounter,
    pub(crate) growths: MaintenanceCounter,
    pub(crate) rebuilds: MaintenanceCounter,
    pub(crate) healed_lines: MaintenanceCounter,
    /// Journals that the open found damaged or missing.
    pub(crate) damaged_journals: MaintenanceCounter,
}
