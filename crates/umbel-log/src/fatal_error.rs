//! [`FatalError`]: the first failed write or sync of a log, after which nothing becomes durable any
//! more.

use std::sync::OnceLock;

use umbel_base::{Error, Result};

/// Reason of the first failed sync or write, after which every later one fails.
#[derive(Debug, Default)]
pub(crate) struct FatalError(OnceLock<String>);

impl FatalError {
    /// Returns an error if a write or sync failed before.
    pub(crate) fn check(&self) -> Result<()> {
        match self.0.get() {
            Some(reason) => Err(Error::ReadOnly(reason.clone())),
            None => Ok(()),
        }
    }

    /// Records the error of a failed write or sync, and returns `result`. It is unknown how much of
    /// a failed attempt reached the disk. The next sync can succeed although bytes are lost, since
    /// the system reports a lost write-back only once.
    pub(crate) fn record(&self, result: Result<()>) -> Result<()> {
        result.inspect_err(|error| {
            // The first reason stays.
            let _ = self.0.set(error.to_string());
        })
    }
}
