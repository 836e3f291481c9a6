//! [`JobThread`]: a thread that runs jobs one after the other.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, mpsc};

use umbel_base::Result;
use umbel_base::ignore_poison::IgnorePoison;

use crate::env::Threads;
use crate::process::ProcessOwned;

/// Work that a thread does once.
type Job = Box<dyn FnOnce() + Send>;

/// A thread that runs jobs one after the other. The first job starts it.
///
/// An allocator gives a new thread memory of its own, and keeps what the thread frees. So a thread
/// for each job can take the memory of many jobs.
#[derive(Debug)]
pub struct JobThread {
    name: &'static str,
    /// Sender of jobs to the thread; `None` while there is no thread.
    jobs: Mutex<Option<ProcessOwned<mpsc::Sender<Job>>>>,
}

impl JobThread {
    /// Creates a thread with this name, which starts with its first job.
    pub const fn new(name: &'static str) -> JobThread {
        JobThread { name, jobs: Mutex::new(None) }
    }

    /// Runs a job after those before it. A panic of a job is reported by the panic hook, and ends
    /// that job only.
    ///
    /// # Errors
    /// The thread cannot be started. The job is dropped then.
    pub fn run(&self, threads: &dyn Threads, job: Job) -> Result<()> {
        let mut jobs = self.jobs.lock().ignore_poison();
        let job = match &*jobs {
            Some(jobs) => match jobs.send(job) {
                Ok(()) => return Ok(()),
                // The thread has ended.
                Err(mpsc::SendError(job)) => job,
            },
            None => job,
        };
        let (sender, received) = mpsc::channel::<Job>();
        let work = move || {
            for job in received {
                let _ = catch_unwind(AssertUnwindSafe(job));
            }
        };
        // The receiver is in the work, which has not begun.
        let _ = sender.send(job);
        threads.spawn(self.name, Box::new(work))?;
        *jobs = Some(ProcessOwned::new(sender));
        Ok(())
    }

    /// Ends the thread after its jobs, without a wait. Dropping this value does the same.
    pub fn end(&self) {
        drop(self.jobs.lock().ignore_poison().take());
    }
}
