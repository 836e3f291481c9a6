//! The fatal error of a store: after a failed write or sync, every later write returns the first
//! failure.

use std::sync::{Mutex, OnceLock};
use umbel_base::ignore_poison::IgnorePoison;

use umbel_base::{Error, Result};

/// The first failure after which the store refuses writes, and the transient error that postpones
/// work.
#[derive(Debug, Default)]
pub struct FatalError {
    reason: OnceLock<Error>,
    /// Reason why background work is postponed; `None` after the work is done.
    pub postponed: Mutex<Option<Error>>,
}

impl FatalError {
    /// Sets `error` as the fatal error, unless an earlier one is set, and returns `error`. A full
    /// disk becomes an [`Error::Io`]: writes do not continue once there is space.
    pub fn set(&self, error: Error) -> Error {
        let error = error.without_disk_full();
        // Losing the race is fine: the first failure is the one to report.
        let _ = self.reason.set(error.clone());
        error
    }

    /// Sets `error` as the fatal error, unless `error` is transient. Lack of file descriptors or
    /// disk space is transient: nothing was written, and the work is retried. A full disk after
    /// which writes cannot continue has set the fatal error already.
    pub fn set_unless_transient(&self, error: Error) -> Error {
        let passes = error.is_out_of_descriptors() || matches!(error, Error::DiskFull { .. });
        if passes && !self.is_set() {
            self.note_postponed(Some(error.clone()));
            return error;
        }
        self.set(error)
    }

    /// Records the reason why work is postponed, or with `None` that the work was done.
    pub fn note_postponed(&self, reason: Option<Error>) {
        *self.postponed.lock().ignore_poison() = reason;
    }

    /// Returns the reason why work is postponed; `None` if no work is postponed.
    pub fn postponed(&self) -> Option<Error> {
        self.postponed.lock().ignore_poison().clone()
    }

    /// Whether a write or sync has failed.
    pub fn is_set(&self) -> bool {
        self.reason.get().is_some()
    }

    /// Returns the reason why the store refuses writes; `None` if it accepts writes.
    pub fn reason(&self) -> Option<String> {
        self.reason.get().map(Error::message_without_advice)
    }

    /// Returns the fatal error if a write or sync has failed.
    pub fn check(&self) -> Result<()> {
        match self.reason.get() {
            None => Ok(()),
            Some(error) => Err(Error::ReadOnly(error.message_without_advice())),
        }
    }
}
