//! [`Sim`]: the handle by which a test controls a simulated machine.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use umbel_env::Env;

use crate::disk::{Disk, UnitNumber};
use crate::fault_plan::{CrashSide, Fault};
use crate::power_loss::{Survival, chosen_image, crash_image};
use crate::random::join;
use crate::sim_env;
use crate::simulated_machine::{Machine, MachineState};

/// Maximum number of pending units of which [`Sim::crash_images_exhaustive`] tries every subset.
pub const EXHAUSTIVE_UNITS_MAX: usize = 12;

/// A simulated machine with a crash disk. Clones of the handle share the machine.
#[derive(Debug, Clone)]
pub struct Sim {
    pub(crate) machine: Arc<Machine>,
}

impl Sim {
    /// A machine with an empty disk. The seed decides its entropy and how failing calls fail.
    pub fn new(seed: u64) -> Sim {
        Sim::boot(seed, Disk::new(), 0)
    }

    fn boot(seed: u64, disk: Disk, now_ns: u64) -> Sim {
        Sim { machine: Arc::new(Machine::new(seed, disk, now_ns)) }
    }

    /// Returns the environment for the engine on this machine.
    pub fn env(&self) -> Env {
        sim_env::env(&self.machine)
    }

    fn with<T>(&self, ask: impl FnOnce(&mut MachineState) -> T) -> T {
        ask(&mut self.machine.state())
    }

    // -- reports --

    /// Number of calls of the file system so far. The first call has number 1; calls after a power
    /// loss do not count.
    pub fn calls(&self) -> u64 {
        self.with(|state| state.calls())
    }

    /// Returns every reached call site, such as `sync *.log`, with its number of calls.
    pub fn sites(&self) -> BTreeMap<String, u64> {
        self.with(|state| state.sites())
    }

    /// Returns the site of the call with this number.
    pub fn site_of(&self, call: u64) -> Option<String> {
        self.with(|state| state.label_of(call))
    }

    /// Returns the numbers of the calls that can change the disk. A crash at any other call leaves
    /// the same images as a crash at one of these.
    pub fn changing_calls(&self) -> Vec<u64> {
        self.with(|state| state.changing_calls())
    }

    /// Returns a hash of all calls so far with their paths, bytes and success. Two runs of one seed
    /// with the same calls have the same hash.
    pub fn trace_hash(&self) -> u64 {
        self.with(|state| state.trace)
    }

    /// Number of changes that a power loss could undo now.
    pub fn pending_units(&self) -> u64 {
        self.with(|state| state.disk.pending().len() as u64)
    }

    /// Whether the power was lost.
    pub fn is_dead(&self) -> bool {
        self.with(|state| state.is_dead)
    }

    /// Number of calls failed because of [`Sim::fail_at`] and [`Sim::fail_site`].
    pub fn faults_fired(&self) -> u64 {
        self.with(|state| state.plan.fired)
    }

    /// Number of calls omitted because of [`Sim::ignore_calls`]. A planted fault that no real call
    /// reached proves nothing: require more than 0.
    pub fn calls_ignored(&self) -> u64 {
        self.with(|state| state.plan.skipped)
    }

    // -- planned faults --

    /// Cuts the power at a call. From then on every call returns
    /// [`Error::Io`](umbel_base::Error::Io) and changes nothing.
    pub fn crash_at(&self, call: u64, when: CrashSide) {
        self.with(|state| state.plan.crash = Some((call, when)));
    }

    /// Cuts the power now.
    pub fn crash_now(&self) {
        self.with(|state| state.is_dead = true);
    }

    /// Makes the call with this number fail, if it can return this error on a real disk. A failing
    /// write may have written some of its bytes. A failing sync drops the bytes that it should have
    /// made durable, and the next sync of that file succeeds.
    pub fn fail_at(&self, call: u64, fault: Fault) {
        self.with(|state| state.plan.fail_call(call, fault));
    }

    /// Makes the `nth` call from now on of the matching sites fail, counted from 1 over the calls
    /// that the fault fits. A pattern is a label (`sync *.log`), an operation (`sync`) or a class
    /// of files (`*.log`).
    pub fn fail_site(&self, pattern: &str, nth: u64, fault: Fault) {
        self.with(|state| state.plan.fail_site(pattern, nth.max(1), fault));
    }

    /// Lets the `nth` successful call from now on of the matching sites take its full effect and
    /// return this error of the operating system. A network file system does so if its server's
    /// answer is lost: a repeated `link` then reports that the name exists (17). Patterns are those
    /// of [`Sim::fail_site`].
    pub fn lose_answer(&self, pattern: &str, nth: u64, error_number: i32) {
        self.with(|state| state.plan.lose_answer(pattern, nth.max(1), error_number));
    }

    /// Lets the matching calls succeed without doing anything, like a caller with the planted bug
    /// that it omits them. Patterns are those of [`Sim::fail_site`]. Calls that return a value
    /// (`create`, `open`, `read`, `lock`) cannot be ignored.
    pub fn ignore_calls(&self, pattern: &str) {
        self.with(|state| state.plan.ignore(pattern));
    }

    /// Sets whether syncs of files and directories report success but do nothing.
    pub fn lying_disk(&self, lies: bool) {
        self.with(|state| state.plan.lies = lies);
    }

    /// Sets whether a failed sync also removes its bytes from the page cache, as some file systems
    /// do. By default, as in other file systems, reads still show these bytes until the machine
    /// restarts.
    pub fn revert_on_failed_sync(&self, reverts: bool) {
        self.with(|state| state.plan.reverts = reverts);
    }

    /// Sets whether files can be mapped, which is the default.
    pub fn allow_mapping(&self, allow: bool) {
        self.with(|state| state.plan.refuses_mappings = !allow);
    }

    /// Sets whether files can be written past the page cache, which is the default.
    pub fn allow_direct(&self, allow: bool) {
        self.with(|state| state.plan.refuses_direct = !allow);
    }

    /// Sets whether a file can get a second name by a hard link. The default is yes; real hard
    /// links between two file systems are impossible.
    pub fn allow_links(&self, allow: bool) {
        self.with(|state| state.plan.refuses_links = !allow);
    }

    /// Sets whether two names can exchange their files in one step. The default is yes; some
    /// network file systems cannot do it.
    pub fn allow_exchanges(&self, allow: bool) {
        self.with(|state| state.plan.refuses_exchanges = !allow);
    }

    /// Sets whether a reader can pin a version. The default is yes; a reader that cannot read the
    /// lock file, or a system without such locks, cannot pin.
    pub fn allow_pins(&self, allow: bool) {
        self.with(|state| state.plan.refuses_pins = !allow);
    }

    /// Limits the bytes that all files together may take, in whole pages. Reservations and writes
    /// that need more return [`Error::DiskFull`](umbel_base::Error::DiskFull).
    pub fn set_capacity(&self, bytes: u64) {
        self.with(|state| state.plan.capacity = Some(bytes));
    }

    /// Removes the limit of [`Sim::set_capacity`].
    pub fn clear_capacity(&self) {
        self.with(|state| state.plan.capacity = None);
    }

    /// Removes every planned fault, ignored call and lie about syncs. The effects of earlier faults
    /// stay.
    pub fn heal(&self) {
        self.with(|state| {
            state.plan.heal();
            state.plan.crash = None;
        });
    }

    /// Schedules a move of an operator right before the next call whose number is at least `call`.
    /// The move may use the machine in every way; calls that the move makes are numbered, too.
    pub fn schedule_before_call(
        &self,
        call: u64,
        planned_move: impl FnOnce(&Sim) + Send + 'static,
    ) {
        // The machine holds the move, which must not hold the machine.
        let machine = Arc::downgrade(&self.machine);
        let with_sim = move || {
            if let Some(machine) = machine.upgrade() {
                planned_move(&Sim { machine });
            }
        };
        self.machine.scheduled.plan(call, Box::new(with_sim));
    }

    /// Drops the moves of [`Sim::schedule_before_call`] that were not made yet. Returns the number
    /// of dropped moves.
    pub fn clear_scheduled(&self) -> u64 {
        self.machine.scheduled.clear()
    }

    /// Advances the clock.
    pub fn advance(&self, time: Duration) {
        self.machine.advance_ns(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX / 2));
    }

    // -- surviving state --

    fn restarted(&self, seed: u64, disk: Disk) -> Sim {
        let second_ns = 1_000_000_000;
        Sim::boot(seed, disk, self.machine.now_ns.load(Ordering::Relaxed) + second_ns)
    }

    /// The machine after a power loss at this moment, without held locks, planned faults and
    /// pending units. The original machine continues unchanged.
    pub fn crash_image(&self, policy: &Survival, seed: u64) -> Sim {
        let disk = self.with(|state| crash_image(&state.disk, policy, seed));
        self.restarted(join(seed, 2), disk)
    }

    /// Every image that a power loss at this moment can leave, if each pending unit survives whole
    /// or not at all. With more than [`EXHAUSTIVE_UNITS_MAX`] units or more than `limit` images,
    /// returns `limit` images of random policies instead.
    pub fn crash_images_exhaustive(&self, limit: u64) -> CrashImages {
        let mut units = self.with(|state| state.disk.pending());
        units.sort_unstable();
        let subsets = 1u64.checked_shl(units.len() as u32).unwrap_or(u64::MAX);
        let is_exhaustive = units.len() <= EXHAUSTIVE_UNITS_MAX && subsets <= limit;
        let count = if is_exhaustive { subsets } else { limit };
        // The images are of this moment, even if the machine continues during their checks.
        CrashImages { sim: self.clone_disk(), units, is_exhaustive, next: 0, count }
    }

    /// The machine after the death of every process: all written bytes are in the page cache and
    /// readable, and pending units stay pending. The new machine has no held locks and no planned
    /// faults.
    pub fn kill_image(&self) -> Sim {
        let (seed, disk) = self.with(|state| (join(state.trace, 3), state.disk.clone()));
        self.restarted(seed, disk)
    }

    /// Returns a copy of the disk with its pending units, for a later [`Sim::restore`]. The copy is
    /// the same as [`Sim::kill_image`].
    pub fn clone_disk(&self) -> Sim {
        self.kill_image()
    }

    /// Replaces the disk by a copy of another machine's disk. Handles that were opened before are
    /// invalid afterwards.
    pub fn restore(&self, source: &Sim) {
        let disk = source.with(|state| state.disk.clone());
        self.with(|state| state.disk = disk);
    }
}

/// The images of [`Sim::crash_images_exhaustive`].
#[derive(Debug)]
pub struct CrashImages {
    sim: Sim,
    units: Vec<UnitNumber>,
    is_exhaustive: bool,
    next: u64,
    count: u64,
}

impl CrashImages {
    /// Whether the images cover all subsets of the pending units.
    pub fn is_exhaustive(&self) -> bool {
        self.is_exhaustive
    }

    /// Number of images that are still to come.
    pub fn remaining(&self) -> u64 {
        self.count - self.next
    }
}

impl Iterator for CrashImages {
    type Item = Sim;

    fn next(&mut self) -> Option<Sim> {
        if self.next == self.count {
            return None;
        }
        let chosen = self.next;
        self.next += 1;
        if !self.is_exhaustive {
            let policy = Survival::any(chosen, self.units.len() as u64);
            return Some(self.sim.crash_image(&policy, chosen));
        }
        let survives = |number| {
            let index = self.units.binary_search(&number);
            index.is_ok_and(|index| chosen >> index & 1 == 1)
        };
        let disk = self.sim.with(|state| chosen_image(&state.disk, survives));
        Some(self.sim.restarted(join(chosen, 4), disk))
    }
}
