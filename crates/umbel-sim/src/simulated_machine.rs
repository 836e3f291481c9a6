//! [`Machine`]: every call of the disk goes through it. The machine numbers the call, counts it at
//! its site, adds it to the trace hash, and applies the planned faults.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use umbel_base::ignore_poison::IgnorePoison;

use umbel_base::{Error, Result};

use crate::disk::{Disk, ResolvedDirectory};
use crate::fault_plan::{CrashSide, FaultKind, FaultPlan};
use crate::file_call_class::Operation;
use crate::operator_schedule::OperatorSchedule;
use crate::random::{Random, digest, join};

/// Start of the simulated time: the 14th of November 2023, in microseconds since 1970.
pub(crate) const WALL_START_MICROS: u64 = 1_700_000_000_000_000;

/// A simulated machine.
#[derive(Debug)]
pub(crate) struct Machine {
    state: Mutex<MachineState>,
    /// The clock, in nanoseconds. The clock is outside of the state, because every thread reads it
    /// all the time.
    pub(crate) now_ns: AtomicU64,
    /// Operation of an operator between two calls.
    pub(crate) scheduled: OperatorSchedule,
}

/// Everything that calls change.
#[derive(Debug)]
pub(crate) struct MachineState {
    pub(crate) disk: Disk,
    pub(crate) plan: FaultPlan,
    /// The current directory of the process.
    pub(crate) current_dir: ResolvedDirectory,
    /// The numbers of the locked files and of the directories they are in.
    pub(crate) locks: BTreeSet<u64>,
    /// Pinned versions by the number of the lock file, with the number of pins of each version.
    pub(crate) pins: BTreeMap<(u64, u64), u64>,
    /// Tokens of open files; all handles of a file share one token.
    pub(crate) handles: BTreeMap<u64, Weak<()>>,
    pub(crate) entropy: Random,
    pub(crate) is_dead: bool,
    pub(crate) trace: u64,
    seed: u64,
    sites: Vec<Site>,
    site_numbers: BTreeMap<Operation, BTreeMap<String, u32>>,
    /// The site of each call, the first call first.
    calls: Vec<u32>,
}

#[derive(Debug)]
struct Site {
    operation: Operation,
    label: String,
    calls: u64,
}

/// One call as it arrives.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call<'a> {
    pub(crate) operation: Operation,
    pub(crate) class: &'a str,
    pub(crate) path: &'a Path,
    /// A hash of the call's other arguments.
    pub(crate) detail: u64,
}

/// Planned outcome of a call that takes place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallVerdict {
    /// The call is executed.
    Execute,
    /// The call reports success without being executed.
    Ignore,
    /// The call returns this error.
    Fail(FaultKind),
}

impl Call<'_> {
    /// Creates an error of this call.
    pub(crate) fn error(&self, error: io::Error) -> Error {
        Error::io(self.operation.phrase(), self.path, error)
    }

    fn power_lost(&self) -> Error {
        self.error(io::Error::other("the simulated machine has lost power"))
    }
}

impl Machine {
    pub(crate) fn new(seed: u64, disk: Disk, now_ns: u64) -> Machine {
        let state = MachineState {
            disk,
            plan: FaultPlan::default(),
            current_dir: ResolvedDirectory::ROOT,
            locks: BTreeSet::new(),
            pins: BTreeMap::new(),
            handles: BTreeMap::new(),
            entropy: Random::new(join(seed, 1)),
            is_dead: false,
            trace: seed,
            seed,
            sites: Vec::new(),
            site_numbers: BTreeMap::new(),
            calls: Vec::new(),
        };
        let moves = OperatorSchedule::default();
        Machine { state: Mutex::new(state), now_ns: AtomicU64::new(now_ns), scheduled: moves }
    }

    /// Locks the state, for one call or query.
    pub(crate) fn state(&self) -> MutexGuard<'_, MachineState> {
        // A test that panics while it holds the state has failed already.
        self.state.lock().ignore_poison()
    }

    /// Advances the clock.
    pub(crate) fn advance_ns(&self, ns: u64) -> u64 {
        self.now_ns.fetch_add(ns, Ordering::Relaxed) + ns
    }

    /// Returns the wall clock, in microseconds since 1970.
    pub(crate) fn wall_micros(&self) -> u64 {
        WALL_START_MICROS + self.now_ns.load(Ordering::Relaxed) / 1000
    }

    /// Makes the moves that are planned before the next call. No lock is held, so that a move may
    /// do whatever a test does.
    fn run_scheduled(&self) {
        let next = self.scheduled.next();
        if next == 0 {
            return;
        }
        let call = match self.state() {
            state if state.is_dead => return,
            state => state.calls() + 1,
        };
        if call >= next {
            self.scheduled.due(call).into_iter().for_each(|planned_move| planned_move());
        }
    }

    /// Executes one call: `work` gets the state and the planned outcome of this call.
    pub(crate) fn call<T>(
        self: &Arc<Self>,
        call: Call<'_>,
        work: impl FnOnce(&mut MachineState, CallVerdict) -> Result<T>,
    ) -> Result<T> {
        self.advance_ns(1000);
        self.run_scheduled();
        let mut state = self.state();
        if state.is_dead {
            return Err(call.power_lost());
        }
        state.disk.now_micros = self.wall_micros();
        let number = state.count(&call);
        match state.plan.crash {
            Some((at, CrashSide::Before)) if at == number => {
                state.is_dead = true;
                return Err(call.power_lost());
            }
            _ => {}
        }
        let verdict = match state.plan.fault(number, call.operation, call.class) {
            Some(kind) => CallVerdict::Fail(kind),
            None if state.plan.ignores(call.operation, call.class) => CallVerdict::Ignore,
            None => CallVerdict::Execute,
        };
        let mut result = work(&mut state, verdict);
        if result.is_ok()
            && let Some(error) = state.plan.lost_answer(call.operation, call.class)
        {
            result = Err(call.error(error));
        }
        state.trace = join(state.trace, u64::from(result.is_ok()));
        if state.plan.crash == Some((number, CrashSide::After)) {
            state.is_dead = true;
            return Err(call.power_lost());
        }
        result
    }

    /// Executes a call that has no effect at all if a fault hits it.
    pub(crate) fn simple_call<T>(
        self: &Arc<Self>,
        call: Call<'_>,
        ignored: Option<T>,
        work: impl FnOnce(&mut MachineState) -> io::Result<T>,
    ) -> Result<T> {
        self.call(call, |state, verdict| match (verdict, ignored) {
            (CallVerdict::Fail(kind), _) => Err(call.error(kind.error())),
            (CallVerdict::Ignore, Some(ignored)) => Ok(ignored),
            _ => work(state).map_err(|error| call.error(error)),
        })
    }
}

impl MachineState {
    /// Numbers and hashes a call.
    fn count(&mut self, call: &Call<'_>) -> u64 {
        let site = self.site_number(call.operation, call.class);
        self.sites[site as usize].calls += 1;
        self.calls.push(site);
        let path = digest(call.path.as_os_str().as_encoded_bytes());
        self.trace = join(join(self.trace, call.operation as u64), join(path, call.detail));
        self.calls.len() as u64
    }

    fn site_number(&mut self, operation: Operation, class: &str) -> u32 {
        let numbers = self.site_numbers.entry(operation).or_default();
        if let Some(number) = numbers.get(class) {
            return *number;
        }
        let number = self.sites.len() as u32;
        numbers.insert(class.to_owned(), number);
        let label = format!("{} {class}", operation.word());
        self.sites.push(Site { operation, label, calls: 0 });
        number
    }

    /// Number of calls.
    pub(crate) fn calls(&self) -> u64 {
        self.calls.len() as u64
    }

    /// Returns a pseudo-random number for the present call, which the machine's seed decides.
    pub(crate) fn chance_of_call(&self) -> Random {
        Random::new(join(self.seed, self.calls()))
    }

    /// Returns every reached site with its number of calls.
    pub(crate) fn sites(&self) -> BTreeMap<String, u64> {
        self.sites.iter().map(|site| (site.label.clone(), site.calls)).collect()
    }

    fn site_of(&self, call: u64) -> Option<&Site> {
        let index = usize::try_from(call.checked_sub(1)?).ok()?;
        self.sites.get(*self.calls.get(index)? as usize)
    }

    /// The label of the site of one call.
    pub(crate) fn label_of(&self, call: u64) -> Option<String> {
        self.site_of(call).map(|site| site.label.clone())
    }

    /// The numbers of the calls that can change the disk.
    pub(crate) fn changing_calls(&self) -> Vec<u64> {
        let changes = |call: &u64| self.site_of(*call).is_some_and(|site| site.operation.changes());
        (1..=self.calls()).filter(changes).collect()
    }

    /// Drops nodes without a name and a handle.
    pub(crate) fn collect_garbage(&mut self) {
        self.handles.retain(|_, token| token.strong_count() > 0);
        let handles = &self.handles;
        self.disk.collect_garbage(|number| handles.contains_key(&number));
    }
}
