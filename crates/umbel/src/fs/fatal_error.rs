//! Fatal error of a store: after a failed write or sync, every later write returns the first
//! failure.

use std::sync::OnceLock;

use umbel_base::{Error, Result};

/// First failure after which the store refuses writes.
#[derive(Debug, Default)]
pub struct FatalError {
    reason: OnceLock<Error>,
}

impl FatalError {
    /// Stores `error` as the reason, unless there is one already, and returns it.
    pub fn set(&self, error: Error) -> Error {
        // Losing the race is fine: the first failure is the one to report.
        let _ = self.reason.set(error.clone());
        error
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
