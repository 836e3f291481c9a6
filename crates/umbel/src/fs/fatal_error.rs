//! A failed write or sync is final: the first one is kept here and every later write answers with
//! it.

use std::sync::OnceLock;

use umbel_base::{Error, Result};

/// The first failure after which nothing may be written any more.
#[derive(Debug, Default)]
pub struct Poison {
    reason: OnceLock<Error>,
}

impl Poison {
    /// Keeps `error` as the reason, unless there is one already, and hands it back.
    pub fn set(&self, error: Error) -> Error {
        // Losing the race is fine: the first failure is the one worth telling.
        let _ = self.reason.set(error.clone());
        error
    }

    /// Whether a write or sync has failed.
    pub fn is_set(&self) -> bool {
        self.reason.get().is_some()
    }

    /// The reason, where nothing may be written any more.
    pub fn reason(&self) -> Option<String> {
        self.reason.get().map(Error::without_remedy)
    }

    /// An error where a write or sync has failed.
    pub fn check(&self) -> Result<()> {
        match self.reason.get() {
            None => Ok(()),
            Some(error) => Err(Error::ReadOnly(error.without_remedy())),
        }
    }
}
