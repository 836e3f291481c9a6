//! One seeded script: a user with a log and keys, a filter on the crash disk, and possible faults.
//! After every open the user inserts the uncovered keys, and the filter must never exclude a key of
//! the log.

pub mod failpoint_list;
pub mod file_damage;
pub mod memory_hash_source;

use std::collections::BTreeSet;
use std::path::Path;

use umbel_base::Result;
use umbel_existence::{ExistenceFilter, ExistenceOptions, ExistenceSize, StepProgress};
use umbel_sim::{CrashSide, Fault, FaultKind, Random, Sim, Survival};

use crate::existence_script::memory_hash_source::{Keys, hash_of, settle};

/// Folder of the filter.
pub const FOLDER: &str = "/store/existence";

/// Fault planted in a script.
pub type Plant = fn(&Sim);

/// Result of a script.
#[derive(Debug, Default, Clone, Copy)]
pub struct ScriptResult {
    /// Number of opens of the filter.
    pub opens: u64,
    /// Number of power losses and kills.
    pub crashes: u64,
    /// Number of calls that failed.
    pub faults: u64,
    /// Number of opens of damaged files.
    pub rotten: u64,
    /// Number of growths of the filter.
    pub growths: u64,
    /// Number of rebuilds of the filter.
    pub rebuilds: u64,
    /// Number of filter lines that were repaired.
    pub healed: u64,
    /// Number of keys that were probed.
    pub checks: u64,
}

/// Faults of a script besides crashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScriptFaults {
    /// No faults; every successful flush must then be durable.
    Clear,
    /// Calls fail, and the disk is full at times.
    Failing,
    /// Files rot while the filter is closed.
    Rotten,
}

struct Script {
    random: Random,
    fault_kind: ScriptFaults,
    plant: Plant,
    sim: Sim,
    /// A copy of an earlier state of the disk.
    older: Sim,
    options: ExistenceOptions,
    filter: ExistenceFilter,
    /// The user's log: the hashes at positions 1, 2 and so on.
    log: Vec<u64>,
    /// Length of the durable part of the log.
    durable: usize,
    /// Permanently deleted keys.
    deleted: BTreeSet<u64>,
    keys: Keys,
    next_key: u64,
    /// Highest position of a successful flush.
    promised: u64,
    done: ScriptResult,
}

/// Runs the script of a seed. The error names the excluded key or another violation.
pub fn run(seed: u64, plant: Plant) -> std::result::Result<ScriptResult, String> {
    let mut script = Script::begin(seed, plant).map_err(|error| format!("open: {error}"))?;
    let operations = 40 + script.random.below(80);
    for _ in 0..operations {
        script.operate().map_err(|problem| format!("seed {seed}: {problem}"))?;
    }
    script.end().map_err(|problem| format!("seed {seed}, at the end: {problem}"))?;
    Ok(script.done)
}

fn sizes(random: &mut Random) -> ExistenceSize {
    match random.below(6) {
        0 => ExistenceSize::Fixed { bytes: 4096 },
        1 => ExistenceSize::Fixed { bytes: 4096 * (1 + random.below(4)) },
        _ => ExistenceSize::Growing { first_keys: 20 + random.below(200) },
    }
}

impl Script {
    fn begin(seed: u64, plant: Plant) -> Result<Script> {
        let mut random = Random::new(seed);
        let sim = Sim::new(seed);
        let fault_kind =
            random.pick(&[ScriptFaults::Clear, ScriptFaults::Failing, ScriptFaults::Rotten]);
        let size = sizes(&mut random);
        let options = ExistenceOptions {
            size,
            hash: 3,
            store: 8,
            step_bytes: 4096,
            ..ExistenceOptions::default()
        };
        let files = sim.env().files;
        files.create_dir_all(Path::new("/store"))?;
        files.sync_dir(Path::new("/"))?;
        plant(&sim);
        let filter = ExistenceFilter::open(&sim.env(), Path::new(FOLDER), options)?;
        Ok(Script {
            random,
            fault_kind,
            plant,
            older: sim.clone_disk(),
            sim,
            options,
            filter,
            log: Vec::new(),
            durable: 0,
            deleted: BTreeSet::new(),
            keys: Keys::default(),
            next_key: 0,
            promised: 0,
            done: ScriptResult::default(),
        })
    }

    fn operate(&mut self) -> std::result::Result<(), String> {
        match self.random.below(100) {
            0..=29 => self.insert(),
            30..=44 => self.flush_in_one_way(),
            45..=47 => self.checkpoint(),
            48..=77 => self.steps(),
            78 => self.filter.rebuild(),
            79..=80 => self.delete(),
            81..=86 => self.plan_trouble(),
            87..=88 => self.older = self.sim.clone_disk(),
            89..=91 => {
                self.check("while open")?;
                self.filter.note_false_positive();
            }
            _ => self.crash()?,
        }
        if self.sim.is_dead() {
            self.crash()?;
        }
        Ok(())
    }

    /// Appends keys to the log, adds them to the source, and inserts them into the filter.
    fn insert(&mut self) {
        for _ in 0..1 + self.random.below(60) {
            let hash = hash_of(self.next_key);
            self.next_key += 1;
            self.log.push(hash);
            self.keys.put(hash);
            self.filter.insert(hash);
        }
    }

    fn flush(&mut self) {
        self.durable = self.log.len();
        let position = self.durable as u64;
        if self.filter.flush(position).is_ok() {
            self.promised = self.promised.max(position);
        }
    }

    /// Makes a full flush, or a brief flush, which leaves long writes to background steps.
    fn flush_in_one_way(&mut self) {
        if self.random.once_in(2) {
            return self.flush();
        }
        self.durable = self.log.len();
        let position = self.durable as u64;
        if matches!(self.filter.flush_journal_only(position), Ok(true)) {
            self.promised = self.promised.max(position);
        }
    }

    fn checkpoint(&mut self) {
        self.durable = self.log.len();
        let position = self.durable as u64;
        if self.filter.checkpoint(position).is_ok() {
            self.promised = self.promised.max(position);
        }
    }

    fn steps(&mut self) {
        self.keys.be_busy(self.random.once_in(3));
        for _ in 0..1 + self.random.below(9) {
            // An error is the disk's; the next step tries again.
            if matches!(self.filter.step(&self.keys), Ok(StepProgress::Idle)) {
                break;
            }
        }
    }

    fn delete(&mut self) {
        if self.durable > 0 {
            let hash = self.log[self.random.below(self.durable as u64) as usize];
            self.deleted.insert(hash);
        }
    }

    /// Plans a power loss at a later call or, if calls may fail, a failing call or a full disk.
    fn plan_trouble(&mut self) {
        let call = self.sim.calls() + 1 + self.random.below(25);
        if self.fault_kind != ScriptFaults::Failing || self.random.once_in(3) {
            let when = self.random.pick(&[CrashSide::Before, CrashSide::After]);
            self.sim.crash_at(call, when);
            return;
        }
        match self.random.below(8) {
            0 => {
                let used: usize =
                    self.sim.files().iter().map(|path| self.sim.read(path).len()).sum();
                let free_bytes = self.random.pick(&[0, 4096, 12_288]);
                self.sim.set_capacity((used as u64).next_multiple_of(4096) + free_bytes);
            }
            1 => self.sim.clear_capacity(),
            2 => self.sim.heal(),
            3 => self.sim.revert_on_failed_sync(self.random.once_in(2)),
            4 => {
                let kinds = [FaultKind::Eio, FaultKind::Enospc];
                let fault = Fault { kind: self.random.pick(&kinds), sticky: false };
                let sites = ["write *.journal", "sync *.journal", "sync_dir", "rename"];
                self.sim.fail_site(self.random.pick(&sites), 1, fault);
            }
            _ => {
                use FaultKind as F;
                let kind = self.random.pick(&[F::Eio, F::Enospc, F::Edquot, F::Emfile, F::Eacces]);
                let fault = Fault { kind, sticky: self.random.once_in(6) };
                self.sim.fail_at(call, fault);
            }
        }
    }

    /// Ends the process by a power loss, a kill or a close, damages files if the script does, and
    /// opens the filter again.
    fn crash(&mut self) -> std::result::Result<(), String> {
        self.done.crashes += 1;
        self.done.faults += self.sim.faults_fired();
        self.count();
        let policy = Survival::any(self.random.next(), self.sim.pending_units());
        let seed = self.random.next();
        let is_killed = !self.sim.is_dead() && self.random.once_in(4);
        self.sim = match is_killed {
            true => self.sim.kill_image(),
            false => self.sim.crash_image(&policy, seed),
        };
        // Any part of the log after its durable end may survive.
        let lost = (self.log.len() - self.durable) as u64;
        let kept = self.durable + self.random.below(lost + 1) as usize;
        self.log.truncate(kept);
        // The next process reads its log from the disk.
        self.durable = kept;
        if self.fault_kind == ScriptFaults::Rotten && self.random.once_in(2) {
            self.done.rotten += 1;
            file_damage::damage(&mut self.random, &self.sim, &self.older);
        }
        // Without a filter nothing was promised, and there is little to see.
        let is_off = self.options.size == ExistenceSize::Off;
        if is_off {
            self.promised = 0;
        }
        if self.random.once_in(if is_off { 2 } else { 12 }) {
            self.options.size = match self.random.once_in(5) {
                true => ExistenceSize::Off,
                false => sizes(&mut self.random),
            };
        }
        if self.random.once_in(60) {
            self.options.hash += 1;
            self.promised = 0;
        }
        (self.plant)(&self.sim);
        self.open()
    }

    /// Opens the filter and inserts the keys that it does not cover, as a user must.
    fn open(&mut self) -> std::result::Result<(), String> {
        if self.fault_kind == ScriptFaults::Failing && self.random.once_in(4) {
            let call = self.sim.calls() + 1 + self.random.below(12);
            self.sim.fail_at(call, Fault { kind: FaultKind::Eio, sticky: false });
        }
        // With large steps the open adds the hashes of the journals; with small ones it answers
        // "maybe".
        self.options.step_bytes = self.random.pick(&[4096, 1 << 17]);
        let (env, folder) = (self.sim.env(), Path::new(FOLDER));
        let opened = ExistenceFilter::open(&env, folder, self.options)
            .or_else(|_| ExistenceFilter::open(&env, folder, self.options));
        self.filter = opened.map_err(|error| format!("it did not open: {error}"))?;
        self.done.opens += 1;
        self.keys = Keys::of(self.log.iter().copied().filter(|hash| !self.deleted.contains(hash)));
        if self.options.size == ExistenceSize::Off {
            self.promised = 0;
            return self.check("without a filter");
        }
        let covered = self.filter.covered();
        if covered > self.log.len() as u64 {
            return Err(format!("{covered} is covered of a log of {}", self.log.len()));
        }
        if self.fault_kind == ScriptFaults::Clear && covered < self.promised {
            let lost = self.filter.stats().lost;
            let promised = self.promised;
            return Err(format!("{covered} is covered, but {promised} was flushed: {lost:?}"));
        }
        self.promised = covered;
        for index in covered as usize..self.log.len() {
            self.filter.insert(self.log[index]);
            if self.random.once_in(50) {
                // As much of the log as was inserted may be flushed.
                drop(self.filter.flush(index as u64 + 1));
            }
        }
        self.check("after an open")
    }

    fn count(&mut self) {
        let stats = self.filter.stats();
        self.done.growths += stats.growths;
        self.done.rebuilds += stats.rebuilds;
        self.done.healed += stats.healed_lines;
    }

    /// Checks that the filter excludes no key of the log, unless the key is deleted.
    fn check(&mut self, moment: &str) -> std::result::Result<(), String> {
        let mut answers = vec![false; self.log.len()];
        self.filter.may_contain_batch(&self.log, &mut answers);
        for (index, (hash, answer)) in self.log.iter().zip(answers).enumerate() {
            let is_denied = !answer || !self.filter.may_contain(*hash);
            if is_denied && !self.deleted.contains(hash) {
                let stats = self.filter.stats();
                return Err(format!(
                    "{moment} the key at position {} of {} is denied: {stats:?}",
                    index + 1,
                    self.log.len()
                ));
            }
        }
        self.done.checks += self.log.len() as u64;
        let damaged = self.filter.stats().damaged_lines;
        if self.fault_kind == ScriptFaults::Clear && damaged > 0 {
            return Err(format!("{moment} {damaged} lines are damaged, and nothing rots"));
        }
        Ok(())
    }

    /// Checks that the filter, without further faults, finishes its work, answers probes, and
    /// survives one more power loss.
    fn end(&mut self) -> std::result::Result<(), String> {
        self.sim.heal();
        self.sim.clear_capacity();
        self.settle()?;
        self.flush();
        if self.promised < self.durable as u64 && self.options.size != ExistenceSize::Off {
            return Err("a flush fails although nothing is wrong".to_owned());
        }
        self.crash()?;
        self.sim.heal();
        self.settle()
    }

    fn settle(&mut self) -> std::result::Result<(), String> {
        self.keys.be_busy(false);
        settle(&self.filter, &self.keys).map_err(|error| format!("it does not settle: {error}"))?;
        self.check("settled")?;
        self.count();
        let stats = self.filter.stats();
        if stats.is_on && (!stats.is_answering || stats.damaged_lines + stats.unread_pages > 0) {
            return Err(format!("it settled and is not well: {stats:?}"));
        }
        let absent = (1..=400).map(|number| hash_of(u64::MAX - number));
        let denied = absent.filter(|hash| !self.filter.may_contain(*hash)).count();
        let expected = 400.0 * (1.0 - stats.estimated_rate);
        if stats.is_on && (denied as f64) < expected * 0.8 - 10.0 {
            return Err(format!("only {denied} of 400 absent keys are denied: {stats:?}"));
        }
        Ok(())
    }
}
