//! [`Env`]: everything the engine may request from the world, in one handle.

use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use umbel_base::Result;

use crate::file_system::FileSystem;
use crate::fork_guarded_files::ForkGuardedFiles;

/// The world as the engine sees it. Cloning shares it.
#[derive(Debug, Clone)]
pub struct Env {
    /// Files and directories.
    pub files: Arc<dyn FileSystem>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Random bytes.
    pub entropy: Arc<dyn Entropy>,
    /// Threads.
    pub threads: Arc<dyn Threads>,
    /// Limits and usage of the process.
    pub resources: Arc<dyn Resources>,
}

impl Env {
    /// The same world, with its files held at a directory: see [`FileSystem::open_directory`].
    /// REQUIRES: `path` is absolute.
    pub fn open_directory(&self, path: &Path) -> Result<Env> {
        Ok(Env { files: self.files.open_directory(path)?, ..self.clone() })
    }

    /// The same environment for a handle of this process. In a forked child every call that would
    /// change a file or a directory is refused with [`Error::Forked`](umbel_base::Error::Forked).
    pub fn fork_guarded(&self) -> Env {
        let files = ForkGuardedFiles::new(Arc::clone(&self.files));
        Env { files: Arc::new(files), ..self.clone() }
    }
}

/// Limits of the process on this machine.
pub trait Resources: Send + Sync + Debug {
    /// Bytes of memory the process may use: those of the machine, or fewer where a limit of the
    /// process or its container says so. `None` where nothing says.
    fn memory_bytes(&self) -> Option<u64>;
    /// Number of files that the process may have open, after raising its soft limit towards the
    /// hard one. `None` where there is no limit or it is unknown.
    fn open_files_max(&self) -> Option<u64>;
    /// Requests the allocator to return freed memory to the system, where it keeps
    /// much of it and has a call for that. Takes some milliseconds.
    fn trim_memory(&self) {}
    /// Whether memory that requests huge pages may be given some. `None` where nothing says.
    fn huge_pages(&self) -> Option<bool> {
        None
    }
    /// Number of voluntary context switches of the calling thread: it waited for a file or for
    /// another thread. `None` where the system does not report it.
    fn context_switches(&self) -> Option<u64> {
        None
    }
}

/// Time. Order never depends on it.
pub trait Clock: Send + Sync + Debug {
    /// Time since some fixed moment; never goes backwards.
    fn now(&self) -> Duration;
    /// Microseconds since 1970 by the wall clock, which may jump.
    fn wall_micros(&self) -> u64;
}

/// Random bytes.
pub trait Entropy: Send + Sync + Debug {
    /// Fills `buffer` with unpredictable bytes.
    fn fill(&self, buffer: &mut [u8]) -> Result<()>;
    /// Sixteen such bytes, for an id or a seed.
    fn id(&self) -> Result<[u8; 16]> {
        let mut id = [0; 16];
        self.fill(&mut id)?;
        Ok(id)
    }
    /// Eight such bytes as a number that is not 0, which stands for none.
    fn number(&self) -> Result<u64> {
        let mut bytes = [0; 8];
        self.fill(&mut bytes)?;
        Ok(u64::from_le_bytes(bytes).max(1))
    }
}

/// Threads.
pub trait Threads: Send + Sync + Debug {
    /// Starts a named thread.
    fn spawn(&self, name: &str, work: Box<dyn FnOnce() + Send>) -> Result<Box<dyn JoinHandle>>;
    /// Number of threads that can run at the same time, at least 1.
    fn parallelism(&self) -> usize;
    /// Makes the calling thread wait for about this time. For a change that no condition variable
    /// reports, such as the release of a lock by another process.
    #[expect(clippy::disallowed_methods, reason = "this is the pause that every other crate calls")]
    fn pause(&self, time: Duration) {
        std::thread::sleep(time);
    }
}

/// A started thread.
pub trait JoinHandle: Send + Sync + Debug {
    /// Waits until the thread ends. `false` where it panicked, and, without waiting, in a forked
    /// child, which has no such thread.
    fn join(self: Box<Self>) -> bool;
}
