//! [`DiskFullBackoff`]: postpones background work that failed on a full disk.
//!
//! Work that failed on a full disk has left the content as it was, so it can wait. A writer that
//! begins to wait for such work makes it run at once, and fails if the disk is still full. Each
//! attempt of such work fills the disk for a while, so the pauses between attempts grow.

use std::time::Duration;

use umbel_base::{Error, SequenceNumber};

/// First pause of postponed work, and the longest pause while no write happens.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(256));

/// Whether background work is required.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    /// Work for which writers will wait if it is not done.
    Required,
    /// Work that only makes the store smaller.
    Optional,
}

/// Work that waits for disk space; guarded by the work lock.
#[derive(Debug, Default)]
pub struct DiskFullBackoff {
    /// Number of times that required work found the disk full.
    failures: u64,
    required: Backoff,
    optional: Backoff,
}

/// Backoff of required work, or of optional work.
#[derive(Debug, Default)]
struct Backoff {
    /// Time and error of the failure, until the work is retried.
    failed: Option<(Duration, Error)>,
    /// The current pause between attempts.
    pause: Duration,
    /// Sequence number of the newest write at the failure.
    newest: SequenceNumber,
}

impl DiskFullBackoff {
    fn backoff_mut(&mut self, need: Priority) -> &mut Backoff {
        match need {
            Priority::Required => &mut self.required,
            Priority::Optional => &mut self.optional,
        }
    }

    /// Postpones work of priority `need` that failed with an error. The last argument is the time,
    /// and the sequence number of the newest write.
    pub fn note_failure(
        &mut self,
        need: Priority,
        error: Error,
        (now, newest): (Duration, SequenceNumber),
    ) {
        self.failures += u64::from(need == Priority::Required);
        let backoff = self.backoff_mut(need);
        let is_repeated = backoff.newest == newest && !backoff.pause.is_zero();
        let pause = if is_repeated { (backoff.pause * 2).min(PAUSE.1) } else { PAUSE.0 };
        *backoff = Backoff { failed: Some((now, error)), pause, newest };
    }

    /// Remaining pause of work of priority `need`; `None` if the work can be tried now.
    pub fn remaining(
        &mut self,
        need: Priority,
        (now, newest): (Duration, SequenceNumber),
    ) -> Option<Duration> {
        let backoff = self.backoff_mut(need);
        let (failed, _) = backoff.failed.as_ref()?;
        // A caller that writes again may have freed disk space.
        let pause = if backoff.newest == newest { backoff.pause } else { PAUSE.0 };
        let left = failed.saturating_add(pause).saturating_sub(now);
        if left.is_zero() {
            backoff.failed = None;
            return None;
        }
        Some(left)
    }

    /// Allows the retry of required work at once, for a writer that begins to wait for the work.
    /// Returns the argument for [`DiskFullBackoff::failure_since`], and whether the work was
    /// postponed.
    pub fn retry_required(&mut self) -> (u64, bool) {
        (self.failures, self.required.failed.take().is_some())
    }

    /// The error of required work that found the disk full after
    /// [`DiskFullBackoff::retry_required`]; `None` if the work is done or still running.
    pub fn failure_since(&self, refusals: u64) -> Option<&Error> {
        let failed = self.required.failed.as_ref().filter(|_| self.failures > refusals)?;
        Some(&failed.1)
    }

    /// The error because of which work waits.
    pub fn reason(&self) -> Option<&Error> {
        let failed = self.required.failed.as_ref().or(self.optional.failed.as_ref());
        failed.map(|(_, reason)| reason)
    }

    /// Allows the retry of all work now.
    pub fn retry_all(&mut self) {
        (self.required.failed, self.optional.failed) = (None, None);
    }

    /// Records that work of priority `need` succeeded.
    pub fn note_success(&mut self, need: Priority) {
        *self.backoff_mut(need) = Backoff::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Error {
        Error::io("write", "/store".as_ref(), std::io::Error::from_raw_os_error(28))
    }

    /// Postponed work was retried each second while no write happened.
    #[test]
    fn pauses_grow_until_a_write() {
        let (mut shortage, mut now) = (DiskFullBackoff::default(), Duration::ZERO);
        for seconds in [1, 2, 4, 8, 16, 32, 64, 128, 256, 256] {
            shortage.note_failure(Priority::Required, full(), (now, 7));
            let left = shortage.remaining(Priority::Required, (now, 7));
            assert_eq!(left, Some(Duration::from_secs(seconds)));
            now += Duration::from_secs(seconds);
            assert_eq!(shortage.remaining(Priority::Required, (now, 7)), None);
        }
        shortage.note_failure(Priority::Required, full(), (now, 7));
        assert_eq!(shortage.remaining(Priority::Required, (now, 8)), Some(PAUSE.0));
        assert_eq!(shortage.remaining(Priority::Optional, (now, 8)), None);
        let (refusals, was_postponed) = shortage.retry_required();
        assert!(was_postponed && shortage.failure_since(refusals).is_none());
        assert_eq!(shortage.remaining(Priority::Required, (now, 8)), None);
        shortage.note_failure(Priority::Optional, full(), (now, 8));
        assert!(shortage.failure_since(refusals).is_none());
        shortage.note_failure(Priority::Required, full(), (now, 8));
        assert!(shortage.failure_since(refusals).is_some());
    }
}
