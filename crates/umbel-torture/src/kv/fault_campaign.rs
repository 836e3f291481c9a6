//! The fault campaign: each call of a script fails, once or permanently, with every kind of error.
//! The campaign also runs scripts on disks of every size that is too small.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use umbel::{Durability, Env, Error};
use umbel_sim::{Fault, FaultKind, Sim, Survival};

use crate::kv::crash::EnvPlant;
use crate::simulation::crash_image_check::{FOLLOW_UPS, FollowUp, ImageChecker, no_panic};
use crate::simulation::oracle::{Loss, Oracle};
use crate::simulation::script::{Op, Script, Write};
use crate::simulation::script_runner::{EnvMaker, ScriptRunner, StepError};
use crate::support::campaign_tally::CampaignTally;
use crate::support::derived_seed::{derive_seed, seed_from_name};

/// Every kind of failure.
pub const FAULT_KINDS: [FaultKind; 5] =
    [FaultKind::Eio, FaultKind::Enospc, FaultKind::Edquot, FaultKind::Emfile, FaultKind::Eacces];

/// Fault of one run.
#[derive(Debug, Clone, Copy)]
pub enum FaultPlan {
    /// A call fails.
    Call(u64, Fault),
    /// The disk has only this many bytes.
    Small(u64),
}

fn world_of(plant: &EnvPlant) -> EnvMaker {
    let plant = Arc::clone(plant);
    Arc::new(move |sim: &Sim| plant(sim, sim.env()))
}

/// Returns the number of calls of the script and the bytes that it takes.
pub fn measure(script: &Arc<Script>, seed: u64) -> (u64, u64) {
    let world: EnvMaker = Arc::new(|sim: &Sim| -> Env { sim.env() });
    let sim = Sim::new(seed);
    let mut runner = ScriptRunner::new(Arc::clone(script), sim.clone(), world, Arc::default());
    // A failure without a fault is reported by the crash campaign.
    let _ = no_panic(|| runner.run());
    let bytes: usize = sim.files().iter().map(|file| sim.read(file).len()).sum();
    (sim.calls(), bytes as u64)
}

/// Runs a script with one fault. Returns `Ok(true)` if the store reported the fault.
pub fn run(
    script: &Arc<Script>,
    seed: u64,
    wrong: FaultPlan,
    reverts: bool,
    plant: &EnvPlant,
) -> Result<bool, String> {
    let world = world_of(plant);
    let model = Arc::new(Mutex::new(Oracle::default()));
    let sim = Sim::new(seed);
    sim.revert_on_failed_sync(reverts);
    match wrong {
        FaultPlan::Call(call, fault) => sim.fail_at(call, fault),
        FaultPlan::Small(bytes) => sim.set_capacity(bytes),
    }
    let mut trial = FaultTrial {
        runner: ScriptRunner::new(Arc::clone(script), sim.clone(), Arc::clone(&world), model),
        examiner: ImageChecker {
            script: Arc::clone(script),
            world,
            settled: false,
            deep_images: Arc::new(AtomicU64::new(0)),
        },
        wrong,
        seed,
        reverts,
        noticed: false,
    };
    no_panic(|| trial.run())?;
    Ok(trial.noticed)
}

/// Continuation of a script after a failed operation.
enum AfterFailure {
    /// The script ends: the handle refuses writes, or the fault persists.
    End,
    /// The script continues with the next operation, since the failed one took effect.
    Continue,
    /// The script repeats the failed operation, which had no effect and must succeed once the fault
    /// has passed.
    Retry,
}

struct FaultTrial {
    runner: ScriptRunner,
    examiner: ImageChecker,
    wrong: FaultPlan,
    seed: u64,
    /// Whether a failed sync drops pages from the page cache, so that even buffered writes are
    /// lost.
    reverts: bool,
    noticed: bool,
}

impl FaultTrial {
    fn is_once(&self) -> bool {
        matches!(self.wrong, FaultPlan::Call(_, Fault { sticky: false, .. }))
    }

    fn run(&mut self) -> Result<(), String> {
        let first = self.runner.sim.clone();
        let ended = self.operations();
        first.heal();
        first.clear_capacity();
        ended?;
        if self.runner.sim.is_dead() {
            return Ok(());
        }
        self.runner.sim.heal();
        self.runner.sim.clear_capacity();
        self.check_end()
    }

    fn operations(&mut self) -> Result<(), String> {
        if let Err(failure) = self.runner.open() {
            self.check_failure("the first open", failure)?;
            if !self.is_once() {
                return Ok(());
            }
            let again = self.runner.open();
            again.map_err(|f| format!("opening again after a failed open: {}", f.text()))?;
        }
        let script = Arc::clone(&self.runner.script);
        for (number, op) in script.ops.iter().enumerate() {
            let before = self.runner.model().clone();
            let Err(failure) = self.runner.run_op(op) else { continue };
            let already = self.noticed;
            let what = format!("operation {number} ({op:.60?})");
            self.check_failure(&what, failure)?;
            if already {
                return Err(format!("{what} failed although the fault had passed"));
            }
            match self.next_after(before)? {
                AfterFailure::End => return Ok(()),
                AfterFailure::Continue => {}
                AfterFailure::Retry => {
                    let again = self.runner.run_op(op);
                    again.map_err(|f| format!("{what}, tried again: {}", f.text()))?;
                }
            }
        }
        Ok(())
    }

    fn check_failure(&mut self, what: &str, failure: StepError) -> Result<(), String> {
        self.noticed = true;
        match failure {
            StepError::Wrong(text) => Err(format!("{what}: {text}")),
            StepError::Engine(error @ (Error::Corruption { .. } | Error::Conflict(_))) => {
                Err(format!("{what} reports a failed call as: {error}"))
            }
            StepError::Engine(Error::DiskFull { path, .. }) if !path.starts_with("/data") => {
                Err(format!("{what}: a full disk is reported without the file"))
            }
            StepError::Engine(error) => {
                let text = error.to_string();
                if text.contains("internal") {
                    return Err(format!("{what} reports: {text}"));
                }
                Ok(())
            }
        }
    }

    /// Continuation of the script after a failed operation.
    fn next_after(&mut self, before: Oracle) -> Result<AfterFailure, String> {
        if !self.runner.is_open() {
            if !self.is_once() {
                return Ok(AfterFailure::End);
            }
            let kept = if self.reverts { Loss::Power } else { Loss::Kill };
            let again = self.runner.open().and_then(|()| self.runner.check_recovered(kept));
            again.map_err(|f| format!("opening again after a failed close: {}", f.text()))?;
        }
        let poisoned = self.runner.db().is_ok_and(|db| db.stats().read_only_reason.is_some());
        if poisoned {
            self.check_fatal_error()?;
        }
        if !self.is_once() {
            return Ok(AfterFailure::End);
        }
        // Reads continue, with or without the operation's effect.
        if let Err(failure) = self.runner.read() {
            let after = std::mem::replace(&mut *self.runner.model(), before);
            let second = self.runner.read();
            if second.is_ok() && !poisoned {
                return Ok(AfterFailure::Retry);
            }
            // An issued write may still be on the disk.
            *self.runner.model() = after;
            let Err(second) = second else { return Ok(AfterFailure::End) };
            let text = format!("{} / {}", failure.text(), second.text());
            return Err(format!("after a failed operation: {text}"));
        }
        Ok(if poisoned { AfterFailure::End } else { AfterFailure::Continue })
    }

    fn check_fatal_error(&self) -> Result<(), String> {
        let Ok(db) = self.runner.db() else { return Ok(()) };
        let Some(name) = db.keyspaces().first().cloned() else { return Ok(()) };
        let Ok(Some(keyspace)) = db.existing_keyspace(&name) else { return Ok(()) };
        let refused = |result: Result<(), Error>, what: &str| match result {
            Err(Error::ReadOnly(_)) => Ok(()),
            other => Err(format!("after a failed write {what} returned {other:?}")),
        };
        refused(keyspace.put(b"poisoned", b"x"), "a put")?;
        let mut batch = db.batch();
        batch.put(&keyspace, b"poisoned", b"x");
        refused(batch.commit(Durability::Synced), "a synced batch")?;
        refused(db.sync(), "a sync")?;
        refused(db.flush(), "a flush")
    }

    fn check_end(&mut self) -> Result<(), String> {
        let model = self.runner.model().clone();
        let sim = self.runner.sim.clone();
        let kept = if self.reverts { Loss::Power } else { Loss::Kill };
        let mut images = vec![(sim.kill_image(), kept, FollowUp::CutAgain)];
        let turn = FOLLOW_UPS[(self.seed % 4) as usize];
        images.push((sim.kill_image(), kept, turn));
        for policy in [Survival::None, Survival::All, Survival::any(self.seed, sim.pending_units())]
        {
            images.push((sim.crash_image(&policy, self.seed), Loss::Power, FollowUp::Nothing));
        }
        for (number, (image, loss, follow)) in images.iter().enumerate() {
            let examined = self.examiner.examine(&model, image, *loss, *follow, self.seed);
            examined.map_err(|text| format!("image {number} after it ({follow:?}): {text}"))?;
        }
        // The same process: close as far as possible, open again.
        self.runner.drop_handles();
        let image = sim.clone_disk();
        let examined = self.examiner.examine(&model, &image, kept, FollowUp::GoOn, self.seed);
        examined.map_err(|text| format!("closed and opened again: {text}"))
    }
}

/// Scripts whose calls are made to fail.
pub const FAULT_SCRIPTS: [&str; 29] = [
    "buffered-singles",
    "synced-batches",
    "mixed-durability",
    "sync-call",
    "conditional-batches",
    "range-deletes-in-the-log",
    "log-rotation-synced",
    "unmapped-log",
    "unmapped-flush",
    "big-values",
    "rotation-and-flush",
    "clean-reopen",
    "flush-unsynced-order",
    "flush-of-deletes",
    "compaction",
    "snapshot-across-compactions",
    "checkpoint",
    "batches-across-keyspaces",
    "drop-and-create-again",
    "flush-all",
    "long-values",
    "long-values-batches",
    "long-values-compacted",
    "long-values-checkpoint",
    "existence-replayed",
    "existence-flushed",
    "existence-later",
    "existence-off-and-on",
    "existence-unlogged",
];

/// Returns a small script for full disks.
pub fn full_disk_script() -> Script {
    let mut script = Script::new("filling").keyspace("a", crate::simulation::script::small());
    for number in 0..60 {
        script = script.op(Op::Single(Write::Put(
            "a",
            crate::simulation::script::key(number % 25),
            crate::simulation::script::value(number, "fill", 300),
        )));
        if number % 7 == 0 {
            script = script.op(Op::Sync);
        }
    }
    script
}

/// Fails one call in `every` of every script, with all kinds of failure.
pub fn campaign(scripts: &[Script], seed: u64, every: u64) -> CampaignTally {
    let tally = CampaignTally::new("faults");
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed) as usize;
                    let Some(script) = scripts.get(at) else { return };
                    run_one(&Arc::new(script.clone()), seed, every, &tally);
                }
            });
        }
    });
    tally
}

fn run_one(script: &Arc<Script>, seed: u64, every: u64, tally: &CampaignTally) {
    let script_seed = derive_seed(seed, seed_from_name(&script.name));
    let (calls, bytes) = measure(script, script_seed);
    let before = tally.violations();
    let plant = crate::kv::crash::nothing_planted();
    let trial = |wrong: FaultPlan, reverts: bool, replay: String| {
        tally.add("failing runs", 1);
        match run(script, script_seed, wrong, reverts, &plant) {
            Ok(true) => tally.add("runs in which the engine reported it", 1),
            Ok(false) => {}
            Err(text) => {
                let text = format!("script {}, {wrong:?}, reverts {reverts}: {text}", script.name);
                tally.violation(text, replay);
            }
        }
    };
    for call in 1..=calls {
        for (number, kind) in FAULT_KINDS.into_iter().enumerate() {
            for sticky in [false, true] {
                let draw = derive_seed(
                    derive_seed(script_seed, call),
                    number as u64 * 2 + u64::from(sticky),
                );
                if !draw.is_multiple_of(every) {
                    continue;
                }
                let reverts = (draw / 64).is_multiple_of(3);
                let replay = format!(
                    "faults {} {seed} {call} {number} {} {}",
                    script.name,
                    u8::from(sticky),
                    u8::from(reverts)
                );
                trial(FaultPlan::Call(call, Fault { kind, sticky }), reverts, replay);
            }
        }
    }
    for pages in 1..=bytes / 4096 + 2 {
        if derive_seed(script_seed, pages).is_multiple_of(every.div_ceil(4)) {
            let replay = format!("faults {} {seed} full {}", script.name, pages * 4096);
            trial(FaultPlan::Small(pages * 4096), false, replay);
            tally.add("disks too small", 1);
        }
    }
    tally.add("calls", calls);
    tally.add("scripts", 1);
    tally.scenario(tally.violations() == before);
}
