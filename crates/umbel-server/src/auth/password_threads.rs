//! [`PasswordThreads`]: the threads that hash passwords, at a low priority.
//!
//! A hash deliberately takes all of a processor for some milliseconds. Clients that guess passwords
//! keep these threads busy, and the calls of other clients would wait for a processor meanwhile.

use std::fmt;
use std::sync::Arc;

use tokio::runtime::{Builder, Runtime};
use tonic::Status;
use umbel_env::Env;

use crate::access_control::passwords::CONCURRENT_HASHES_MAX;
use crate::protocol::grpc_status;
#[cfg(test)]
use crate::resources::read_pool::stop_paused_clock;

/// The threads that hash passwords. They end once this value is dropped and their work is done.
pub struct PasswordThreads {
    /// Runs blocking work only; `None` once this value is dropped.
    runtime: Option<Runtime>,
}

impl PasswordThreads {
    /// Creates the threads. They start with their first work, and end after some idle seconds.
    ///
    /// # Errors
    /// The system refuses the resources of the threads.
    pub fn new(env: &Env) -> umbel::Result<PasswordThreads> {
        let threads = Arc::clone(&env.threads);
        let runtime = Builder::new_current_thread()
            .max_blocking_threads(CONCURRENT_HASHES_MAX)
            .thread_name("umbel-password")
            .on_thread_start(move || threads.lower_priority())
            .build();
        let runtime = runtime
            .map_err(|error| umbel::Error::io("start thread", "umbel-password".as_ref(), error))?;
        Ok(PasswordThreads { runtime: Some(runtime) })
    }

    /// Runs work on one of the threads. It runs to its end even if the caller leaves.
    ///
    /// # Errors
    /// The work panicked, or the server shuts down.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Status> {
        #[cfg(test)]
        let _stopped_clock = stop_paused_clock();
        let runtime = self.runtime.as_ref().ok_or_else(grpc_status::shutting_down)?;
        runtime.spawn_blocking(work).await.map_err(|_| grpc_status::shutting_down())
    }
}

impl Drop for PasswordThreads {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // The last owner can be an asynchronous task, which must not wait.
            runtime.shutdown_background();
        }
    }
}

impl fmt::Debug for PasswordThreads {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("PasswordThreads").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use umbel_env::{JoinHandle, Threads};

    use super::*;

    /// Threads that count how many of them have a low priority.
    #[derive(Debug, Default)]
    struct CountingThreads(AtomicUsize);

    impl Threads for CountingThreads {
        fn spawn(
            &self,
            name: &str,
            work: Box<dyn FnOnce() + Send>,
        ) -> umbel::Result<Box<dyn JoinHandle>> {
            Env::system().threads.spawn(name, work)
        }

        fn parallelism(&self) -> usize {
            1
        }

        fn lower_priority(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn few_threads_of_low_priority_run_the_work() {
        let counting = Arc::new(CountingThreads::default());
        let threads: Arc<dyn Threads> = Arc::clone(&counting) as Arc<dyn Threads>;
        let passwords = PasswordThreads::new(&Env { threads, ..Env::system() }).unwrap();
        let name = || std::thread::current().name().map(str::to_string);
        let work = (0..8).map(|_| passwords.run(name));
        for ran_on in futures_util::future::join_all(work).await {
            assert_eq!(ran_on.unwrap().as_deref(), Some("umbel-password"));
        }
        let lowered = counting.0.load(Ordering::Relaxed);
        assert!((1..=CONCURRENT_HASHES_MAX).contains(&lowered), "{lowered}");
    }
}
