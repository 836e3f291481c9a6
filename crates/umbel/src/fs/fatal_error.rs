//! Fatal error of a store: after a failed write or sync, every later write returns the first
//! failure.

use std::sync::{Mutex, OnceLock};
use umbel_base::ignore_poison::IgnorePoison;

use umbel_base::{Error, Result};

/// First failure after which the store refuses writes, and the transient one that work waits for.
#[derive(Debug, Default)]
pub struct FatalError {
    reason: OnceLock<Error>,
    /// Reason why work was postponed last, until it is done.
    pub postponed: Mutex<Option<Error>>,
}

impl FatalError {
    /// Stores `error` as the reason, unless there is one already, and returns it.
    pub fn set(&self, error: Error) -> Error {
        // Losing the race is fine: the first failure is the one to report.
        let _ = self.reason.set(error.clone());
        error
    }

    /// Records `error` as the reason why the store refuses writes, unless it is transient. Without
    /// a file descriptor or disk space nothing was done, and the work is retried. If a full disk is
    /// final, the fatal error is set already.
    pub fn set_unless_transient(&self, error: Error) -> Error {
        let passes = error.is_out_of_descriptors() || matches!(error, Error::DiskFull { .. });
        if passes && !self.is_set() {
            self.note_postponed(Some(error.clone()));
            return error;
        }
        self.set(error)
    }

    /// Records the reason why work is postponed, or that it was done.
    pub fn note_postponed(&self, reason: Option<Error>) {
        *self.postponed.lock().ignore_poison() = reason;
    }

    /// The reason why work is postponed, while it is.
    pub fn postponed(&self) -> Option<Error> {
        self.postponed.lock().ignore_poison().clone()
    }

    /// Whether a write or sync has failed.
    pub fn is_set(&self) -> bool {
        self.reason.get().is_some()
    }

    /// The reason, where the store refuses writes.
    pub fn reason(&self) -> Option<String> {
        self.reason.get().map(Error::message_without_advice)
    }

    /// Returns an error where a write or sync has failed.
    pub fn check(&self) -> Result<()> {
        match self.reason.get() {
            None => Ok(()),
            Some(error) => Err(Error::ReadOnly(error.message_without_advice())),
        }
    }
}
