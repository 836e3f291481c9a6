//! [`ReadPool`]: the threads that read the later pages of reads.
//!
//! A long read, or a search that passes hidden events, takes all the processor time that it gets.
//! Many of them on blocking threads would occupy all processors, and appends would wait for one.
//! The pool reads fewer pages at a time than the machine has processors, and the calls take turns.
//!
//! A page that waits for the disk needs no processor. So after a while it counts no more, and
//! another thread of the pool starts the next page: see [`JobQueue`](job_queue::JobQueue).

mod job_queue;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use umbel_base::ignore_poison::IgnorePoison;
use umbel_env::{Clock, Env, JoinHandle};

use crate::limits::SLOW_PAGES_MAX;
use crate::resources::read_pool::job_queue::{JobQueue, NextJob, Ticket};

/// The work of a job, which sends its result to the caller.
type Job = Box<dyn FnOnce() + Send>;

/// The threads that read the later pages of reads. Dropping the pool ends them.
#[derive(Debug)]
pub struct ReadPool(Arc<PoolState>);

/// The state that the threads share.
struct PoolState {
    clock: Arc<dyn Clock>,
    jobs: Mutex<PoolJobs>,
    /// Wakes an idle thread.
    changed: Condvar,
}

/// The jobs, and what the idle threads do.
struct PoolJobs {
    queue: JobQueue<Job>,
    idle_threads: usize,
    /// Whether an idle thread waits until a running job is slow.
    has_timer: bool,
}

/// Number of jobs of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadPoolCounts {
    /// Jobs that wait for a thread.
    pub waiting: usize,
    /// Jobs that run.
    pub running: usize,
}

impl ReadPool {
    /// Starts the threads: one for each processor but one, at least one, and further ones for jobs
    /// that wait for the disk. They end once the pool is dropped.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn start(env: &Env) -> umbel::Result<(ReadPool, Vec<Box<dyn JoinHandle>>)> {
        let slots = env.threads.parallelism().saturating_sub(1).max(1);
        let jobs = PoolJobs { queue: JobQueue::new(slots), idle_threads: 0, has_timer: false };
        let state = PoolState {
            clock: Arc::clone(&env.clock),
            jobs: Mutex::new(jobs),
            changed: Condvar::new(),
        };
        let pool = ReadPool(Arc::new(state));
        let threads = (0..slots + SLOW_PAGES_MAX).map(|_| {
            let state = Arc::clone(&pool.0);
            env.threads.spawn("umbel-read", Box::new(move || state.run_jobs()))
        });
        let threads = threads.collect::<umbel::Result<Vec<_>>>()?;
        Ok((pool, threads))
    }

    /// Runs a job on a thread of the pool, after the jobs that wait already. If the future is
    /// dropped, a job that has not started is dropped, too.
    ///
    /// # Errors
    /// `Closed` if the job panics or the pool ends.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> umbel::Result<T> {
        #[cfg(test)]
        let _stopped_clock = stop_paused_clock();
        let (sender, result) = oneshot::channel();
        let runtime = Handle::current();
        let job = Box::new(move || {
            // The work may read the runtime's clock.
            let _inside = runtime.enter();
            // The caller may have left.
            let _ = sender.send(work());
        });
        let _queued = QueuedJob { state: &self.0, ticket: self.0.add(job)? };
        result.await.map_err(|_| umbel::Error::Closed)
    }

    /// Number of jobs.
    pub fn counts(&self) -> ReadPoolCounts {
        let jobs = self.0.locked();
        ReadPoolCounts { waiting: jobs.queue.waiting(), running: jobs.queue.running() }
    }
}

impl Drop for ReadPool {
    fn drop(&mut self) {
        let left = self.0.locked().queue.close();
        self.0.changed.notify_all();
        // Jobs are dropped without the lock.
        drop(left);
    }
}

/// Stops a paused clock of the runtime until the returned value is dropped. Otherwise the clock
/// advances while a job runs, since no task of the runtime is busy.
#[cfg(test)]
pub fn stop_paused_clock() -> std::sync::mpsc::Sender<()> {
    let (sender, dropped) = std::sync::mpsc::channel();
    tokio::task::spawn_blocking(move || dropped.recv());
    sender
}

/// A job whose caller waits. Dropping it cancels the job.
struct QueuedJob<'a> {
    state: &'a PoolState,
    ticket: Ticket,
}

impl Drop for QueuedJob<'_> {
    fn drop(&mut self) {
        let cancelled = self.state.locked().queue.cancel(self.ticket);
        // Jobs are dropped without the lock.
        drop(cancelled);
    }
}

impl PoolState {
    fn locked(&self) -> MutexGuard<'_, PoolJobs> {
        // No panic here can leave the queue inconsistent.
        self.jobs.lock().ignore_poison()
    }

    fn add(&self, job: Job) -> umbel::Result<Ticket> {
        let mut jobs = self.locked();
        let ticket = jobs.queue.add(job).ok_or(umbel::Error::Closed)?;
        let is_needed = jobs.needs_thread(self.clock.now());
        drop(jobs);
        if is_needed {
            self.changed.notify_one();
        }
        Ok(ticket)
    }

    /// Runs jobs until the pool is dropped.
    fn run_jobs(&self) {
        let mut jobs = self.locked();
        loop {
            let now = self.clock.now();
            match jobs.queue.take(now) {
                NextJob::Closed => return,
                NextJob::Run(ticket, job) => {
                    let is_needed = jobs.needs_thread(now);
                    drop(jobs);
                    if is_needed {
                        self.changed.notify_one();
                    }
                    // A panic was reported. The dropped sender tells the caller.
                    let _ = catch_unwind(AssertUnwindSafe(job));
                    jobs = self.locked();
                    jobs.queue.finish(ticket);
                }
                NextJob::Wait(limit) => jobs = self.wait(jobs, limit),
            }
        }
    }

    /// Waits for a change. One thread waits until a running job is slow, at most for `limit`.
    fn wait<'a>(
        &'a self,
        mut jobs: MutexGuard<'a, PoolJobs>,
        limit: Option<Duration>,
    ) -> MutexGuard<'a, PoolJobs> {
        jobs.idle_threads += 1;
        let mut jobs = match limit.filter(|_| !jobs.has_timer) {
            Some(limit) => {
                jobs.has_timer = true;
                let (mut jobs, _) = self.changed.wait_timeout(jobs, limit).ignore_poison();
                jobs.has_timer = false;
                jobs
            }
            None => self.changed.wait(jobs).ignore_poison(),
        };
        jobs.idle_threads -= 1;
        jobs
    }
}

impl PoolJobs {
    /// Whether an idle thread has work: a job, or to wait until a running job is slow.
    fn needs_thread(&self, now: Duration) -> bool {
        self.idle_threads > 0
            && self.queue.waiting() > 0
            && (!self.has_timer || self.queue.has_free_slot(now))
    }
}

impl fmt::Debug for PoolState {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let jobs = self.locked();
        let (waiting, running) = (jobs.queue.waiting(), jobs.queue.running());
        formatter
            .debug_struct("PoolState")
            .field("waiting", &waiting)
            .field("running", &running)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
