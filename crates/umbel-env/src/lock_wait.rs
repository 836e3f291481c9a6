//! Waiting for a lock that another process or handle holds.
//!
//! No suitable system call waits for a lock for a limited time, so the lock is tried repeatedly.
//! The pauses double up to a limit and are randomized, so that no waiter always tries just after
//! another one.

use std::path::Path;
use std::time::Duration;

use umbel_base::{Error, Result};

use crate::env::Env;
use crate::file_system::Lock;

/// The first pause between two attempts.
const PAUSE_FIRST: Duration = Duration::from_millis(2);
/// The longest pause between two attempts, before randomization makes it up to half longer.
const PAUSE_MAX: Duration = Duration::from_millis(64);

impl Env {
    /// Takes the exclusive lock of the file at `path`, as
    /// [`FileSystem::lock`](crate::FileSystem::lock) does, and waits up to `wait` while another
    /// process or handle holds it. Zero does not wait.
    ///
    /// # Errors
    /// [`Error::Locked`] if the lock is still held after `wait`; also errors of the system.
    pub fn lock(&self, path: &Path, wait: Duration) -> Result<Box<dyn Lock>> {
        let mut locked = self.files.lock(path);
        if wait.is_zero() || !matches!(locked, Err(Error::Locked(_))) {
            return locked;
        }
        let end = self.clock.now().saturating_add(wait);
        let mut pause = PAUSE_FIRST;
        while matches!(locked, Err(Error::Locked(_))) {
            let left = end.saturating_sub(self.clock.now());
            if left.is_zero() {
                break;
            }
            self.threads.pause(self.jittered(pause)?.min(left));
            pause = (pause * 2).min(PAUSE_MAX);
            locked = self.files.lock(path);
        }
        locked
    }

    /// Returns `time`, made up to half longer or shorter at random.
    fn jittered(&self, time: Duration) -> Result<Duration> {
        let mut random = [0; 1];
        self.entropy.fill(&mut random)?;
        Ok(time / 2 + time * u32::from(random[0]) / 255)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::env::{Clock, JoinHandle, Threads};

    /// A clock that only pauses advance, and threads that count the pauses.
    #[derive(Debug, Default)]
    struct Paused {
        millis: AtomicU32,
        pauses: AtomicU32,
    }

    impl Clock for Paused {
        fn now(&self) -> Duration {
            Duration::from_millis(u64::from(self.millis.load(Ordering::Relaxed)))
        }

        fn wall_micros(&self) -> u64 {
            0
        }
    }

    impl Threads for Paused {
        fn spawn(&self, _: &str, _: Box<dyn FnOnce() + Send>) -> Result<Box<dyn JoinHandle>> {
            Err(Error::invalid("no threads here"))
        }

        fn parallelism(&self) -> usize {
            1
        }

        fn pause(&self, time: Duration) {
            let millis = time.as_micros().div_ceil(1000) as u32;
            self.millis.fetch_add(millis, Ordering::Relaxed);
            self.pauses.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn wait_for_a_held_lock_ends_at_the_timeout() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("LOCK");
        let paused = Arc::new(Paused::default());
        let env = Env {
            clock: Arc::clone(&paused) as Arc<dyn Clock>,
            threads: Arc::clone(&paused) as Arc<dyn Threads>,
            ..Env::system()
        };
        let held = env.lock(&path, Duration::ZERO).unwrap();
        let refused = |wait| matches!(env.lock(&path, wait), Err(Error::Locked(_)));
        assert!(refused(Duration::ZERO));
        assert_eq!(paused.pauses.load(Ordering::Relaxed), 0);
        assert!(refused(Duration::from_secs(10)));
        let (waited, pauses) = (paused.now(), paused.pauses.load(Ordering::Relaxed));
        assert!(waited >= Duration::from_secs(10) && waited < Duration::from_secs(11));
        assert!((100..400).contains(&pauses), "{pauses} pauses");
        drop(held);
        env.lock(&path, Duration::from_secs(10)).unwrap();
        assert_eq!(paused.pauses.load(Ordering::Relaxed), pauses, "it was free at once");
    }

    /// Story: a store in a new directory seemed to be locked. Its lock file had the inode number of
    /// a file that another thread had just closed, and whose registration was not removed yet.
    #[test]
    fn new_directories_are_free_while_others_are_released() {
        let folder = tempfile::tempdir().unwrap();
        let lock_often = |thread: u32| {
            let env = Env::system();
            for round in 0..300 {
                let path = folder.path().join(format!("{thread}-{round}"));
                env.files.create_dir_all(&path).unwrap();
                let held = env.lock(&path.join("LOCK"), Duration::ZERO).unwrap();
                std::fs::remove_dir_all(&path).unwrap();
                drop(held);
            }
        };
        std::thread::scope(|scope| {
            (0..4).for_each(|thread| drop(scope.spawn(move || lock_often(thread))));
        });
    }
}
