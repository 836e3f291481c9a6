//! [`CopyThrottle`]: rate limit and progress of a backup, a restore or the verification of a
//! backup.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use umbel_env::{Clock, Env, Threads};

/// Progress of a backup, a restore or the verification of a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyProgress {
    /// Bytes copied or checked.
    pub bytes: u64,
    /// Bytes to copy or check in total.
    pub total_bytes: u64,
}

/// Options of a backup, a restore or the verification of a backup.
#[derive(Default)]
pub struct CopyOptions<'a> {
    /// Maximum bytes per second that are copied or checked; unlimited if `None`.
    pub bytes_per_second: Option<u64>,
    /// Time that a backup or restore waits for another backup or restore in the same folder, before
    /// it fails with `Locked`. Zero, the default, does not wait.
    pub lock_wait: Duration,
    /// Callback that is called after each copied or checked block of at most 1 MiB.
    pub progress: Option<&'a mut dyn FnMut(CopyProgress)>,
}

impl fmt::Debug for CopyOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CopyOptions")
            .field("bytes_per_second", &self.bytes_per_second)
            .field("lock_wait", &self.lock_wait)
            .finish_non_exhaustive()
    }
}

/// Limits the rate of copying or checking, and reports progress.
pub struct CopyThrottle<'a> {
    options: CopyOptions<'a>,
    clock: Arc<dyn Clock>,
    threads: Arc<dyn Threads>,
    started: Duration,
    copied: CopyProgress,
}

impl<'a> CopyThrottle<'a> {
    /// Begins work on `total_bytes` bytes.
    pub fn begin(env: &Env, options: CopyOptions<'a>, total_bytes: u64) -> CopyThrottle<'a> {
        let (clock, threads) = (Arc::clone(&env.clock), Arc::clone(&env.threads));
        let started = clock.now();
        let done = CopyProgress { bytes: 0, total_bytes };
        CopyThrottle { options, clock, threads, started, copied: done }
    }

    /// Records that `bytes` bytes were processed, and waits if the rate exceeds the limit.
    pub fn record(&mut self, bytes: u64) {
        self.copied.bytes += bytes;
        if let Some(progress) = &mut self.options.progress {
            progress(self.copied);
        }
        let Some(rate) = self.options.bytes_per_second else { return };
        let due = Duration::from_secs_f64(self.copied.bytes as f64 / rate.max(1) as f64);
        let elapsed = self.clock.now().saturating_sub(self.started);
        if let Some(left) = due.checked_sub(elapsed).filter(|left| !left.is_zero()) {
            self.threads.pause(left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copy_keeps_its_rate_limit_and_reports_progress() {
        let env = Env::system();
        let mut reported = Vec::new();
        let mut note = |progress: CopyProgress| reported.push(progress.bytes);
        let options = CopyOptions {
            bytes_per_second: Some(10_000),
            progress: Some(&mut note),
            ..CopyOptions::default()
        };
        let started = env.clock.now();
        let mut pace = CopyThrottle::begin(&env, options, 3000);
        (0..3).for_each(|_| pace.record(1000));
        let elapsed = env.clock.now().saturating_sub(started);
        assert!(elapsed >= Duration::from_millis(290), "{elapsed:?}");
        assert_eq!(reported, [1000, 2000, 3000]);
    }
}
