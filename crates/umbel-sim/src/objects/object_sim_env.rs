//! The environment of clients of a simulated object store.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use umbel_base::Result;
use umbel_base::ignore_poison::IgnorePoison;
use umbel_env::{Clock, Env, JoinHandle, Threads};

use crate::objects::sim_store::SimStore;
use crate::sim::Sim;
use crate::simulated_machine::WALL_START_MICROS;

/// Returns the environment of the clients of `store`.
pub(crate) fn env(store: &Arc<Mutex<SimStore>>, seed: u64) -> Env {
    let env = Sim::new(seed).env();
    Env {
        clock: Arc::new(ClientClock(Arc::clone(store))),
        threads: Arc::new(ClientThreads {
            store: Arc::clone(store),
            threads: Arc::clone(&env.threads),
        }),
        ..env
    }
}

/// The clock of the clients.
#[derive(Debug)]
struct ClientClock(Arc<Mutex<SimStore>>);

impl Clock for ClientClock {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.0.lock().ignore_poison().now_ns)
    }

    fn wall_micros(&self) -> u64 {
        WALL_START_MICROS + self.0.lock().ignore_poison().now_ns / 1000
    }
}

/// Threads whose pauses advance the clock.
#[derive(Debug)]
struct ClientThreads {
    store: Arc<Mutex<SimStore>>,
    threads: Arc<dyn Threads>,
}

impl Threads for ClientThreads {
    fn spawn(&self, name: &str, work: Box<dyn FnOnce() + Send>) -> Result<Box<dyn JoinHandle>> {
        self.threads.spawn(name, work)
    }

    fn parallelism(&self) -> usize {
        1
    }

    fn pause(&self, time: Duration) {
        let mut store = self.store.lock().ignore_poison();
        let until_ns = store.now_ns.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(0));
        store.run_until(until_ns);
    }
}
