//! [`CopyThrottle`]: rate limit, progress and early end of a backup, a restore or the verification
//! of a backup.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use umbel_env::{Clock, Env};

use crate::backup::copy_cancellation::CopyCancellation;
use crate::types::error::Result;

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
    /// it fails with `BackupInUse`. Zero, the default, does not wait.
    pub lock_wait: Duration,
    /// Callback that is called after each copied or checked block of at most 1 MiB.
    pub progress: Option<&'a mut dyn FnMut(CopyProgress)>,
    /// Request of another thread, or of the callback, to end early. The wait of `lock_wait` does
    /// not end by it.
    pub cancellation: CopyCancellation,
}

impl fmt::Debug for CopyOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CopyOptions")
            .field("bytes_per_second", &self.bytes_per_second)
            .field("lock_wait", &self.lock_wait)
            .field("cancellation", &self.cancellation)
            .finish_non_exhaustive()
    }
}

/// Limits the rate of copying or checking, reports progress, and ends a cancelled copy.
pub struct CopyThrottle<'a> {
    options: CopyOptions<'a>,
    clock: Arc<dyn Clock>,
    started: Duration,
    copied: CopyProgress,
}

impl<'a> CopyThrottle<'a> {
    /// Begins work on `total_bytes` bytes.
    pub fn begin(env: &Env, options: CopyOptions<'a>, total_bytes: u64) -> CopyThrottle<'a> {
        let clock = Arc::clone(&env.clock);
        let started = clock.now();
        CopyThrottle { options, clock, started, copied: CopyProgress { bytes: 0, total_bytes } }
    }

    /// Returns `Cancelled` if the caller requested the end.
    pub fn check(&self) -> Result<()> {
        self.options.cancellation.check()
    }

    /// Records that `bytes` bytes were processed, and waits if the rate exceeds the limit. The wait
    /// is in the time of the machine, also in a simulation.
    ///
    /// # Errors
    /// `Cancelled` if the caller requested the end, before the wait or during it.
    pub fn record(&mut self, bytes: u64) -> Result<()> {
        self.copied.bytes += bytes;
        if let Some(progress) = &mut self.options.progress {
            progress(self.copied);
        }
        let Some(rate) = self.options.bytes_per_second else { return self.check() };
        let due = Duration::from_secs_f64(self.copied.bytes as f64 / rate.max(1) as f64);
        let elapsed = self.clock.now().saturating_sub(self.started);
        self.options.cancellation.pause(due.saturating_sub(elapsed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::error::Error;

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
        (0..3).for_each(|_| pace.record(1000).expect("not cancelled"));
        let elapsed = env.clock.now().saturating_sub(started);
        assert!(elapsed >= Duration::from_millis(290), "{elapsed:?}");
        assert_eq!(reported, [1000, 2000, 3000]);
    }

    /// Story: a backup with a rate limit waited up to 16 s after each MiB, and nothing ended it.
    #[test]
    fn cancellation_ends_the_wait_of_the_rate_limit() {
        let env = Env::system();
        let cancellation = CopyCancellation::default();
        let (sender, blocks) = std::sync::mpsc::channel();
        // The wait follows the report of the block.
        let mut note = |progress: CopyProgress| {
            let _ = sender.send(progress);
        };
        let options = CopyOptions {
            bytes_per_second: Some(1),
            progress: Some(&mut note),
            cancellation: cancellation.clone(),
            ..CopyOptions::default()
        };
        let started = env.clock.now();
        let mut pace = CopyThrottle::begin(&env, options, 1 << 20);
        let cancel = move || {
            blocks.recv().expect("the sender");
            while !cancellation.has_waiter() {
                std::thread::yield_now();
            }
            cancellation.cancel();
            cancellation.cancel();
        };
        let thread = env.threads.spawn("cancel", Box::new(cancel)).expect("a thread");
        assert!(matches!(pace.record(1 << 20), Err(Error::Cancelled)), "12 days later");
        assert!(thread.join() && matches!(pace.check(), Err(Error::Cancelled)));
        assert!(matches!(pace.record(0), Err(Error::Cancelled)), "it stays cancelled");
        let elapsed = env.clock.now().saturating_sub(started);
        assert!(elapsed < Duration::from_secs(60), "{elapsed:?}");
    }
}
