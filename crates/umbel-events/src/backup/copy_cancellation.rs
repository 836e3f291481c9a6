//! [`CopyCancellation`]: ends a backup, a restore or the verification of a backup early.

use std::sync::Arc;
use std::time::Duration;

use crate::primitives::wakeup::Wakeup;
use crate::types::error::{Error, Result};

/// Request to end a backup, a restore or the verification of a backup early. Clones share the
/// request, which cannot be taken back.
#[derive(Debug, Clone, Default)]
pub struct CopyCancellation(Arc<Wakeup>);

impl CopyCancellation {
    /// Requests the end, and returns at once. The copy ends with [`Error::Cancelled`] after its
    /// present block of at most 1 MiB, also while it waits because of its rate limit. A copy that
    /// begins later with this request does nothing.
    ///
    /// A request after the last block may have no effect; the copy then succeeds.
    pub fn cancel(&self) {
        self.0.wake();
    }

    /// Whether the end was requested.
    pub fn is_cancelled(&self) -> bool {
        self.0.is_woken()
    }

    /// Returns [`Error::Cancelled`] once the end was requested.
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_cancelled() { Err(Error::Cancelled) } else { Ok(()) }
    }

    /// Waits for this time, or until the end is requested, which is an error.
    pub(crate) fn pause(&self, time: Duration) -> Result<()> {
        self.0.wait(time);
        self.check()
    }
}
