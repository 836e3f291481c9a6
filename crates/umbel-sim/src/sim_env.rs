//! Clock, entropy and threads of a simulated machine.

use std::sync::Arc;
use std::time::Duration;

use umbel_base::Result;
use umbel_env::{Clock, Entropy, Env, JoinHandle, Resources, Threads};

use crate::random::join;
use crate::sim_files::SimFiles;
use crate::simulated_machine::{Machine, WALL_START_MICROS};

/// The environment of a simulated machine.
pub(crate) fn env(machine: &Arc<Machine>) -> Env {
    let system = Env::system();
    Env {
        files: Arc::new(SimFiles::new(machine)),
        clock: Arc::new(SimClock { machine: Arc::clone(machine) }),
        entropy: Arc::new(SimEntropy { machine: Arc::clone(machine) }),
        threads: Arc::new(SimThreads { system: system.threads, machine: Arc::clone(machine) }),
        resources: Arc::new(SimResources),
    }
}

/// Resources of the simulated machine: 16 GiB of memory and any number of open files, whatever the
/// real machine has.
#[derive(Debug)]
struct SimResources;

impl Resources for SimResources {
    fn memory_bytes(&self) -> Option<u64> {
        Some(16 << 30)
    }

    fn open_files_max(&self) -> Option<u64> {
        None
    }
}

/// A clock that advances by a microsecond whenever a thread reads it or makes a call.
#[derive(Debug)]
struct SimClock {
    machine: Arc<Machine>,
}

impl Clock for SimClock {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.machine.advance_ns(1000))
    }

    fn wall_micros(&self) -> u64 {
        WALL_START_MICROS + self.machine.advance_ns(1000) / 1000
    }
}

/// Entropy that the seed decides.
#[derive(Debug)]
struct SimEntropy {
    machine: Arc<Machine>,
}

impl Entropy for SimEntropy {
    fn fill(&self, buffer: &mut [u8]) -> Result<()> {
        let mut state = self.machine.state();
        state.entropy.fill(buffer);
        state.trace = join(state.trace, buffer.len() as u64);
        Ok(())
    }
}

/// Real threads, although the machine reports a parallelism of one. With several threads the order
/// of calls, and so the trace, is random: deterministic tests run the engine without background
/// threads.
#[derive(Debug)]
struct SimThreads {
    system: Arc<dyn Threads>,
    machine: Arc<Machine>,
}

impl Threads for SimThreads {
    fn spawn(&self, name: &str, work: Box<dyn FnOnce() + Send>) -> Result<Box<dyn JoinHandle>> {
        self.system.spawn(name, work)
    }

    fn parallelism(&self) -> usize {
        1
    }

    /// Advances the clock without waiting.
    fn pause(&self, time: Duration) {
        self.machine.advance_ns(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX >> 8));
    }
}
