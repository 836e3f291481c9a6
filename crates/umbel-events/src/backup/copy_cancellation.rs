//! [`CopyCancellation`]: ends a backup, a restore or the verification of a backup early.

use std::sync::Arc;
use std::time::Duration;

use crate::primitives::wakeup::Wakeup;
use crate::types::error::{Error, Result};

/// Request to end a backup, a restore or the verification of a backup early. Clones share the
/// request, which is final.
#[derive(Debug, Clone, Default)]
pub struct CopyCancellation(Arc<Wakeup>);

impl CopyCancellation {
    /// Requests the end, and returns at once. The copy then ends with [`Error::Cancelled`]. It
    /// looks for a request after each block of at most 1 MiB and each record that it checks, and
    /// while it waits because of its rate limit. A sync of a file ends first. A copy that begins
    /// later with this request does nothing.
    ///
    /// A request after the last block may have no effect; the copy then succeeds.
    pub fn cancel(&self) {
        self.0.wake();
    }

    /// Whether the end was requested.
    pub fn is_cancelled(&self) -> bool {
        self.0.is_woken()
    }

    /// Whether a copy waits, or has waited.
    #[cfg(test)]
    pub(crate) fn has_waiter(&self) -> bool {
        self.0.has_waiter()
    }

    /// Returns [`Error::Cancelled`] once the end was requested.
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_cancelled() { Err(Error::Cancelled) } else { Ok(()) }
    }

    /// Waits for this time, or until the end is requested, which is an error. The time is that of
    /// the machine, also in a simulation with a clock of its own.
    pub(crate) fn pause(&self, time: Duration) -> Result<()> {
        self.0.wait(time);
        self.check()
    }
}
