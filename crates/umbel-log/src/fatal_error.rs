//! [`FatalError`]: why nothing is made durable any more.

use std::sync::OnceLock;

use umbel_base::{Error, Result};

/// Reason of the first failed sync or write, after which nothing becomes durable.
#[derive(Debug, Default)]
pub(crate) struct FatalError(OnceLock<String>);

impl FatalError {
    /// An error where something failed before.
    pub(crate) fn check(&self) -> Result<()> {
        match self.0.get() {
            Some(reason) => Err(Error::ReadOnly(reason.clone())),
            None => Ok(()),
        }
    }

    /// It is unknown how much of a failed attempt reached the disk. The next one may succeed
    /// without it: the system reports a lost write-back only once.
    pub(crate) fn record(&self, result: Result<()>) -> Result<()> {
        result.inspect_err(|error| {
            // The first reason stays.
            let _ = self.0.set(error.to_string());
        })
    }
}
