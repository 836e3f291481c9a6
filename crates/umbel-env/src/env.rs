//! [`Env`]: all services of the operating system that the engine uses, in one handle.

use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use umbel_base::Result;

use crate::file_system::FileSystem;
use crate::fork_guarded_files::ForkGuardedFiles;

/// The operating system as the engine uses it. A clone shares the same services.
#[derive(Debug, Clone)]
pub struct Env {
    /// The file system: files and directories.
    pub files: Arc<dyn FileSystem>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// A source of random bytes.
    pub entropy: Arc<dyn Entropy>,
    /// Starts threads.
    pub threads: Arc<dyn Threads>,
    /// Limits and resource usage of the process.
    pub resources: Arc<dyn Resources>,
}

impl Env {
    /// Returns the same environment, with a file system that holds a directory open: see
    /// [`FileSystem::open_directory`].
    /// REQUIRES: `path` is absolute.
    pub fn open_directory(&self, path: &Path) -> Result<Env> {
        Ok(Env { files: self.files.open_directory(path)?, ..self.clone() })
    }

    /// Returns the same environment for a handle of this process. In a forked child every call
    /// through it that would change a file or directory fails with
    /// [`Error::Forked`](umbel_base::Error::Forked).
    pub fn fork_guarded(&self) -> Env {
        let files = ForkGuardedFiles::new(Arc::clone(&self.files));
        Env { files: Arc::new(files), ..self.clone() }
    }
}

/// Limits of the process on this machine.
pub trait Resources: Send + Sync + Debug {
    /// Bytes of memory that the process may use: those of the machine, or fewer if the process or
    /// its container has a limit. `None` if unknown.
    fn memory_bytes(&self) -> Option<u64>;
    /// Number of files that the process may have open, after raising its soft limit towards the
    /// hard limit. `None` if there is no limit or it is unknown.
    fn open_files_max(&self) -> Option<u64>;
    /// Requests the allocator to return freed memory to the system, if the allocator has a call for
    /// that. The call takes some milliseconds.
    fn trim_memory(&self) {}
    /// Whether the system gives huge pages to memory that requests them; `None` if unknown.
    fn huge_pages(&self) -> Option<bool> {
        None
    }
    /// Number of voluntary context switches of the calling thread, in which it waited for a file or
    /// another thread. `None` if the system does not report it.
    fn context_switches(&self) -> Option<u64> {
        None
    }
    /// Usage of the machine by the process; `None` if unknown.
    fn process_usage(&self) -> Option<ProcessUsage> {
        None
    }
    /// Space of the file system that contains this path; `None` if unknown.
    fn disk_space(&self, _path: &Path) -> Option<DiskSpace> {
        None
    }
}

/// Usage of the machine by a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessUsage {
    /// Processor time of all threads, in user and system mode.
    pub cpu_time: Duration,
    /// Number of threads.
    pub threads: u64,
    /// Time since 1970 when the process started.
    pub started: Duration,
    /// Bytes of virtual memory.
    pub virtual_bytes: u64,
    /// Bytes of memory that are in the machine's memory.
    pub resident_bytes: u64,
    /// Number of open file descriptors.
    pub open_files: u64,
}

/// Space of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskSpace {
    /// Bytes of the file system.
    pub total_bytes: u64,
    /// Bytes that the process can still use.
    pub available_bytes: u64,
}

/// A clock. The order of writes never depends on time.
pub trait Clock: Send + Sync + Debug {
    /// Time since some fixed moment, which never goes backward.
    fn now(&self) -> Duration;
    /// Like [`Clock::now`], but also counts the time in which the machine is suspended, where the
    /// system knows it.
    fn now_with_suspends(&self) -> Duration {
        self.now()
    }
    /// Microseconds since 1970 by the wall clock, which can jump.
    fn wall_micros(&self) -> u64;
    /// Processor time that the calling thread has used; `None` where the system does not report it.
    fn thread_time(&self) -> Option<Duration> {
        None
    }
    /// Random id of the machine's last start. Times of [`Clock::now_with_suspends`] from processes
    /// with the same id can be compared. `None` where the system has no such id.
    fn boot_id(&self) -> Option<[u8; 16]> {
        None
    }
}

/// A source of random bytes.
pub trait Entropy: Send + Sync + Debug {
    /// Fills `buffer` with unpredictable bytes.
    fn fill(&self, buffer: &mut [u8]) -> Result<()>;
    /// Returns sixteen unpredictable bytes, for an id or a seed.
    fn id(&self) -> Result<[u8; 16]> {
        let mut id = [0; 16];
        self.fill(&mut id)?;
        Ok(id)
    }
    /// Returns an unpredictable number that is not 0, since 0 means "no number".
    fn number(&self) -> Result<u64> {
        let mut bytes = [0; 8];
        self.fill(&mut bytes)?;
        Ok(u64::from_le_bytes(bytes).max(1))
    }
}

/// Starts threads.
pub trait Threads: Send + Sync + Debug {
    /// Starts a named thread.
    fn spawn(&self, name: &str, work: Box<dyn FnOnce() + Send>) -> Result<Box<dyn JoinHandle>>;
    /// Number of threads that can run at the same time, at least 1.
    fn parallelism(&self) -> usize;
    /// Makes the calling thread wait for about this time. Callers use it to wait for a change that
    /// no condition variable reports, such as another process's release of a lock.
    #[expect(clippy::disallowed_methods, reason = "this is the pause that every other crate calls")]
    fn pause(&self, time: Duration) {
        std::thread::sleep(time);
    }
    /// Lowers the priority of the calling thread, where the system has priorities of threads. While
    /// all processors are busy, it gets about a tenth of the time of a usual thread. A refusal is
    /// ignored.
    fn lower_priority(&self) {}
}

/// A started thread.
pub trait JoinHandle: Send + Sync + Debug {
    /// Waits until the thread ends; returns `false` if it panicked. In a forked child, which does
    /// not have the thread, returns `false` without waiting.
    fn join(self: Box<Self>) -> bool;
}
