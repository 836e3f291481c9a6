//! [`Failed`]: why nothing is made durable any more.

use std::sync::OnceLock;

use umbel_base::{Error, Result};

/// Why nothing is made durable any more.
#[derive(Debug, Default)]
pub(crate) struct Failed(OnceLock<String>);

impl Failed {
    /// An error where something failed before.
    pub(crate) fn check(&self) -> Result<()> {
        match self.0.get() {
            Some(reason) => Err(Error::ReadOnly(reason.clone())),
            None => Ok(()),
        }
    }

    /// What of a failed attempt reached the disk is not known, and the next one may succeed without
    /// it: the system reports the loss of what it was to write once.
    pub(crate) fn noting(&self, result: Result<()>) -> Result<()> {
        result.inspect_err(|error| {
            // The first reason stays.
            let _ = self.0.set(error.to_string());
        })
    }
}
