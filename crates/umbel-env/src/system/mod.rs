//! The real operating system: [`Env::system`] has its files, clock, entropy and threads.
//!
//! INVARIANT: `unsafe` appears only where a system call has no safe wrapper, or memory is shared
//! with the kernel. Each file with `unsafe` gives the reason.

mod close_on_fork;
mod direct_io;
mod lock_file;
mod mapped_file;
mod open_directory;
mod open_file;
mod process_limits;
mod process_usage;
mod reader_pin;
mod system_files;
mod write_back;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use umbel_base::{Error, Result};

use crate::env::{Clock, Entropy, Env, JoinHandle, Threads};
use crate::process::ProcessOwned;

impl Env {
    /// Returns the environment of the operating system: its files, clocks, random bytes and
    /// threads.
    pub fn system() -> Env {
        Env {
            files: Arc::new(system_files::SystemFiles::new()),
            clock: Arc::new(SystemClock { start: monotonic_now() }),
            entropy: Arc::new(SystemEntropy::default()),
            threads: Arc::new(SystemThreads),
            resources: Arc::new(process_limits::SystemResources),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the clock that every other crate reads")]
fn monotonic_now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "this is the clock that every other crate reads")]
fn wall_now() -> SystemTime {
    SystemTime::now()
}

/// The monotonic clock, from the creation of the environment on, and the wall clock.
#[derive(Debug)]
struct SystemClock {
    start: Instant,
}

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        monotonic_now().saturating_duration_since(self.start)
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn now_with_suspends(&self) -> Duration {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Duration::try_from(time).unwrap_or_default()
    }

    fn wall_micros(&self) -> u64 {
        let since_1970 = wall_now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since_1970.as_micros()).unwrap_or(u64::MAX)
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn thread_time(&self) -> Option<Duration> {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Duration::try_from(time).ok()
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn boot_id(&self) -> Option<[u8; 16]> {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let digits: String = text.trim().chars().filter(|c| *c != '-').collect();
        let is_id = digits.len() == 32;
        let id = u128::from_str_radix(&digits, 16).ok().filter(|id| is_id && *id != 0)?;
        Some(id.to_be_bytes())
    }
}

/// The kernel's random bytes, mixed with a second source. Some processors had a random-number
/// instruction that returned a constant, which must not give two stores the same secret.
#[derive(Debug, Default)]
struct SystemEntropy {
    calls: AtomicU64,
}

impl Entropy for SystemEntropy {
    fn fill(&self, buffer: &mut [u8]) -> Result<()> {
        getrandom::fill(buffer).map_err(|error| {
            let error = match error.raw_os_error() {
                Some(number) => io::Error::from_raw_os_error(number),
                None => io::Error::other(error.to_string()),
            };
            Error::io("read bytes from", Path::new("the system's random number source"), error)
        })?;
        // Exclusive or with an independent stream never weakens the kernel's bytes.
        let mut state = self.second_source(buffer);
        for chunk in buffer.chunks_mut(8) {
            for (byte, mixed) in chunk.iter_mut().zip(split_mix(&mut state).to_le_bytes()) {
                *byte ^= mixed;
            }
        }
        Ok(())
    }
}

impl SystemEntropy {
    /// Returns a number that differs between calls, processes and moments, without the kernel's
    /// random bytes.
    fn second_source(&self, buffer: &[u8]) -> u64 {
        let since_1970 = wall_now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let facts = [
            since_1970.as_nanos() as u64,
            buffer.as_ptr() as usize as u64,
            std::ptr::from_ref(self) as usize as u64,
            u64::from(std::process::id()),
            self.calls.fetch_add(1, Ordering::Relaxed),
        ];
        facts.into_iter().fold(0, |mut state, fact| {
            state ^= fact;
            split_mix(&mut state)
        })
    }
}

/// The next number of Steele, Lea and Flood's SplitMix64.
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut word = *state;
    word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

/// Nice value that is added for a lower priority: a tenth of the usual weight.
#[cfg(any(target_os = "linux", target_os = "android"))]
const LOW_PRIORITY: i32 = 10;

/// Threads of the operating system.
#[derive(Debug)]
struct SystemThreads;

impl Threads for SystemThreads {
    fn spawn(&self, name: &str, work: Box<dyn FnOnce() + Send>) -> Result<Box<dyn JoinHandle>> {
        // A name that the operating system could not take must not be a panic of ours.
        let name: String = name.chars().filter(|character| *character != '\0').collect();
        match thread::Builder::new().name(name.clone()).spawn(work) {
            Ok(handle) => Ok(Box::new(SystemThread(ProcessOwned::new(handle)))),
            Err(error) => Err(Error::io("start thread", Path::new(&name), error)),
        }
    }

    fn parallelism(&self) -> usize {
        thread::available_parallelism().map_or(1, usize::from)
    }

    /// On Linux, a nice value belongs to a thread. Elsewhere it would slow the whole process.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn lower_priority(&self) {
        // Without the lower priority the work is only less considerate.
        rustix::process::nice(LOW_PRIORITY).ok();
    }
}

/// A started thread. A forked child does not have the thread, so that a wait for it in the child
/// would never end.
#[derive(Debug)]
struct SystemThread(ProcessOwned<thread::JoinHandle<()>>);

impl JoinHandle for SystemThread {
    fn join(self: Box<Self>) -> bool {
        self.0.into_inner().is_some_and(|handle| handle.join().is_ok())
    }
}
