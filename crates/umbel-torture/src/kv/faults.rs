//! The fault campaign: every call of a script fails, once or from then on, in every way it can; and
//! disks of every size that are too small.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use umbel::{Durability, Env, Error};
use umbel_sim::{Fault, FaultKind, Sim, Survival};

use crate::check::{Examiner, FOLLOWS, Follow, no_panic};
use crate::crash::Plant;
use crate::model::{Loss, Model};
use crate::random::{join, of_name};
use crate::report::Tally;
use crate::runner::{Failure, Runner, World};
use crate::script::{Op, Script, Write};

/// Every way to fail that is tried.
pub const KINDS: [FaultKind; 5] =
    [FaultKind::Eio, FaultKind::Enospc, FaultKind::Edquot, FaultKind::Emfile, FaultKind::Eacces];

/// What goes wrong in one run.
#[derive(Debug, Clone, Copy)]
pub enum Wrong {
    /// A call fails.
    Call(u64, Fault),
    /// The disk has only so many bytes.
    Small(u64),
}

fn world_of(plant: &Plant) -> World {
    let plant = Arc::clone(plant);
    Arc::new(move |sim: &Sim| plant(sim, sim.env()))
}

/// How many calls the script makes on its first machine, and how many bytes it takes.
pub fn measure(script: &Arc<Script>, seed: u64) -> (u64, u64) {
    let world: World = Arc::new(|sim: &Sim| -> Env { sim.env() });
    let sim = Sim::new(seed);
    let mut runner = Runner::new(Arc::clone(script), sim.clone(), world, Arc::default());
    // What goes wrong without a fault is the crash campaign's to report.
    let _ = no_panic(|| runner.run());
    let bytes: usize = sim.files().iter().map(|file| sim.read(file).len()).sum();
    (sim.calls(), bytes as u64)
}

/// One run with one thing going wrong. `Ok(true)` where the engine noticed.
pub fn run(
    script: &Arc<Script>,
    seed: u64,
    wrong: Wrong,
    reverts: bool,
    plant: &Plant,
) -> Result<bool, String> {
    let world = world_of(plant);
    let model = Arc::new(Mutex::new(Model::default()));
    let sim = Sim::new(seed);
    sim.revert_on_failed_sync(reverts);
    match wrong {
        Wrong::Call(call, fault) => sim.fail_at(call, fault),
        Wrong::Small(bytes) => sim.set_capacity(bytes),
    }
    let mut trial = Trial {
        runner: Runner::new(Arc::clone(script), sim.clone(), Arc::clone(&world), model),
        examiner: Examiner {
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
    no_panic(|| trial.go())?;
    Ok(trial.noticed)
}

/// How a script goes on after a failed operation.
enum Next {
    /// Not at all: the handle refuses writes, or the fault stays.
    End,
    /// With the next operation: the failed one is there.
    Go,
    /// With the failed operation, which left nothing: the fault has passed, so it must succeed.
    Retry,
}

struct Trial {
    runner: Runner,
    examiner: Examiner,
    wrong: Wrong,
    seed: u64,
    /// Whether a failed sync takes bytes out of the page cache: then even buffered writes go.
    reverts: bool,
    noticed: bool,
}

impl Trial {
    fn is_once(&self) -> bool {
        matches!(self.wrong, Wrong::Call(_, Fault { sticky: false, .. }))
    }

    fn go(&mut self) -> Result<(), String> {
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
        self.afterwards()
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
            let Err(failure) = self.runner.step(op) else { continue };
            let already = self.noticed;
            let what = format!("operation {number} ({op:.60?})");
            self.check_failure(&what, failure)?;
            if already {
                return Err(format!("{what} failed although the fault had passed"));
            }
            match self.go_on_after(before)? {
                Next::End => return Ok(()),
                Next::Go => {}
                Next::Retry => {
                    let again = self.runner.step(op);
                    again.map_err(|f| format!("{what}, tried again: {}", f.text()))?;
                }
            }
        }
        Ok(())
    }

    fn check_failure(&mut self, what: &str, failure: Failure) -> Result<(), String> {
        self.noticed = true;
        match failure {
            Failure::Wrong(text) => Err(format!("{what}: {text}")),
            Failure::Engine(error @ (Error::Corruption { .. } | Error::Conflict(_))) => {
                Err(format!("{what} answers a failing call with: {error}"))
            }
            Failure::Engine(Error::Full { path, .. }) if !path.starts_with("/data") => {
                Err(format!("{what}: a full disk is reported without the file"))
            }
            Failure::Engine(error) => {
                let text = error.to_string();
                if text.contains("internal") {
                    return Err(format!("{what} answers with: {text}"));
                }
                Ok(())
            }
        }
    }

    /// How the script goes on after a failed operation.
    fn go_on_after(&mut self, before: Model) -> Result<Next, String> {
        if !self.runner.is_open() {
            if !self.is_once() {
                return Ok(Next::End);
            }
            let kept = if self.reverts { Loss::Power } else { Loss::Kill };
            let again = self.runner.open().and_then(|()| self.runner.recovered(kept));
            again.map_err(|f| format!("opening again after a failed close: {}", f.text()))?;
        }
        let poisoned = self.runner.db().is_ok_and(|db| db.stats().read_only_reason.is_some());
        if poisoned {
            self.check_poisoned()?;
        }
        if !self.is_once() {
            return Ok(Next::End);
        }
        // Reads go on, and show the operation or do not.
        if let Err(failure) = self.runner.read() {
            let after = std::mem::replace(&mut *self.runner.model(), before);
            let second = self.runner.read();
            if second.is_ok() && !poisoned {
                return Ok(Next::Retry);
            }
            // What was issued may still be on the disk.
            *self.runner.model() = after;
            let Err(second) = second else { return Ok(Next::End) };
            let text = format!("{} / {}", failure.text(), second.text());
            return Err(format!("after a failed operation: {text}"));
        }
        Ok(if poisoned { Next::End } else { Next::Go })
    }

    fn check_poisoned(&self) -> Result<(), String> {
        let Ok(db) = self.runner.db() else { return Ok(()) };
        let Some(name) = db.keyspaces().first().cloned() else { return Ok(()) };
        let Ok(Some(keyspace)) = db.existing_keyspace(&name) else { return Ok(()) };
        let refused = |result: Result<(), Error>, what: &str| match result {
            Err(Error::ReadOnly(_)) => Ok(()),
            other => Err(format!("after a failed write {what} answered {other:?}")),
        };
        refused(keyspace.put(b"poisoned", b"x"), "a put")?;
        let mut batch = db.batch();
        batch.put(&keyspace, b"poisoned", b"x");
        refused(batch.commit(Durability::Synced), "a synced batch")?;
        refused(db.sync(), "a sync")?;
        refused(db.flush(), "a flush")
    }

    fn afterwards(&mut self) -> Result<(), String> {
        let model = self.runner.model().clone();
        let sim = self.runner.sim.clone();
        let kept = if self.reverts { Loss::Power } else { Loss::Kill };
        let mut images = vec![(sim.kill_image(), kept, Follow::CutAgain)];
        let turn = FOLLOWS[(self.seed % 4) as usize];
        images.push((sim.kill_image(), kept, turn));
        for policy in [Survival::None, Survival::All, Survival::any(self.seed, sim.pending_units())]
        {
            images.push((sim.crash_image(&policy, self.seed), Loss::Power, Follow::Nothing));
        }
        for (number, (image, loss, follow)) in images.iter().enumerate() {
            let examined = self.examiner.examine(&model, image, *loss, *follow, self.seed);
            examined.map_err(|text| format!("image {number} after it ({follow:?}): {text}"))?;
        }
        // The same process: close as well as possible, open again.
        self.runner.let_go();
        let image = sim.clone_disk();
        let examined = self.examiner.examine(&model, &image, kept, Follow::GoOn, self.seed);
        examined.map_err(|text| format!("closed and opened again: {text}"))
    }
}

/// The scripts whose calls are made to fail.
pub const SCRIPTS: [&str; 29] = [
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

/// A small script for disks that are full.
pub fn filling() -> Script {
    let mut script = Script::new("filling").keyspace("a", crate::script::small());
    for number in 0..60 {
        script = script.op(Op::Single(Write::Put(
            "a",
            crate::script::key(number % 25),
            crate::script::value(number, "fill", 300),
        )));
        if number % 7 == 0 {
            script = script.op(Op::Sync);
        }
    }
    script
}

/// Every call of every script, one in `every`; all kinds.
pub fn campaign(scripts: &[Script], seed: u64, every: u64) -> Tally {
    let tally = Tally::new("faults");
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed) as usize;
                    let Some(script) = scripts.get(at) else { return };
                    one(&Arc::new(script.clone()), seed, every, &tally);
                }
            });
        }
    });
    tally
}

fn one(script: &Arc<Script>, seed: u64, every: u64, tally: &Tally) {
    let script_seed = join(seed, of_name(&script.name));
    let (calls, bytes) = measure(script, script_seed);
    let before = tally.violations();
    let plant = crate::crash::nothing_planted();
    let trial = |wrong: Wrong, reverts: bool, replay: String| {
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
        for (number, kind) in KINDS.into_iter().enumerate() {
            for sticky in [false, true] {
                let draw = join(join(script_seed, call), number as u64 * 2 + u64::from(sticky));
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
                trial(Wrong::Call(call, Fault { kind, sticky }), reverts, replay);
            }
        }
    }
    for pages in 1..=bytes / 4096 + 2 {
        if join(script_seed, pages).is_multiple_of(every.div_ceil(4)) {
            let replay = format!("faults {} {seed} full {}", script.name, pages * 4096);
            trial(Wrong::Small(pages * 4096), false, replay);
            tally.add("disks too small", 1);
        }
    }
    tally.add("calls", calls);
    tally.add("scripts", 1);
    tally.scenario(tally.violations() == before);
}
