//! [`PriorityThreads`]: the threads of the system for tests, which count lowered priorities.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use umbel_base::Result;

use crate::env::{Env, JoinHandle, Threads};

/// The threads of the system, none of which gets a lower priority. The value counts how often one
/// wanted it. Clones share the count.
#[derive(Debug, Clone, Default)]
pub struct PriorityThreads(Arc<AtomicUsize>);

impl PriorityThreads {
    /// Returns the environment of the system with these threads.
    pub fn env(&self) -> Env {
        Env { threads: Arc::new(self.clone()), ..Env::system() }
    }

    /// Returns how many threads lowered their priority.
    pub fn lowered(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Threads for PriorityThreads {
    fn spawn(&self, name: &str, work: Box<dyn FnOnce() + Send>) -> Result<Box<dyn JoinHandle>> {
        Env::system().threads.spawn(name, work)
    }

    fn parallelism(&self) -> usize {
        Env::system().threads.parallelism()
    }

    fn lower_priority(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}
