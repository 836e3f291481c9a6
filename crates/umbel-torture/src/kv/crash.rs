//! The crash campaign: every script, a crash before and after every call of the file system,
//! several images each, and what comes after.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use umbel::Env;
use umbel_sim::{Sim, Survival};

use crate::check::{Examiner, FOLLOWS, Follow, no_panic};
use crate::model::{Loss, Model};
use crate::random::{join, of_name};
use crate::report::Tally;
use crate::runner::{Runner, World};
use crate::script::Script;
use crate::watch::{Observer, watched};

/// How much is done at each moment.
#[derive(Debug, Clone, Copy)]
pub struct Depth {
    /// One moment in so many is looked at.
    pub every: u64,
    /// Images at each moment, at most.
    pub images: usize,
    /// One image in so many is followed up.
    pub follow_every: u64,
    /// Most subsets of pending units tried at a moment; 0 for none.
    pub subsets: u64,
}

impl Depth {
    /// Everything.
    pub const FULL: Depth = Depth { every: 1, images: 7, follow_every: 3, subsets: 32 };
    /// The seeded part of the test command.
    pub const SMALL: Depth = Depth { every: 5, images: 2, follow_every: 6, subsets: 0 };
    /// For canaries: quick, but of everything something.
    pub const CANARY: Depth = Depth { every: 1, images: 3, follow_every: 5, subsets: 0 };
}

/// Where to look again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spot {
    /// The moment.
    pub moment: u64,
    /// The image.
    pub image: u64,
}

/// A bug put between the engine and its world. It is given the machine and the world as it is.
pub type Plant = Arc<dyn Fn(&Sim, Env) -> Env + Send + Sync>;

/// No bug.
pub fn nothing_planted() -> Plant {
    Arc::new(|_, env| env)
}

/// Sites with calls and crashes.
pub type Sites = BTreeMap<String, (u64, u64)>;

/// One script under the campaign.
#[derive(Debug)]
pub struct Crashing {
    examiner: Examiner,
    model: Arc<Mutex<Model>>,
    depth: Depth,
    seed: u64,
    only: Option<Spot>,
    /// Whether the first violation ends the looking.
    stop_early: bool,
    stopped: AtomicBool,
    moments: AtomicU64,
    images: AtomicU64,
    crashes_here: AtomicU64,
    found: Mutex<Vec<(String, Spot)>>,
    sites: Mutex<Sites>,
}

/// What one script came to.
#[derive(Debug)]
pub struct Ended {
    /// Moments passed.
    pub moments: u64,
    /// Images examined.
    pub images: u64,
    /// Images of crashes inside recovery.
    pub deep_images: u64,
    /// What was wrong, and where to see it again.
    pub violations: Vec<(String, Option<Spot>)>,
    /// Call sites.
    pub sites: Sites,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs one script with a crash at every call.
pub fn run_script(
    script: &Arc<Script>,
    seed: u64,
    depth: Depth,
    only: Option<Spot>,
    plant: &Plant,
    stop_early: bool,
) -> Ended {
    let model = Arc::new(Mutex::new(Model::default()));
    let deep_images = Arc::new(AtomicU64::new(0));
    let examined = Arc::clone(plant);
    let world: World = Arc::new(move |sim: &Sim| examined(sim, sim.env()));
    let crashing = Arc::new(Crashing {
        examiner: Examiner {
            script: Arc::clone(script),
            world,
            settled: true,
            deep_images: Arc::clone(&deep_images),
        },
        model: Arc::clone(&model),
        depth,
        seed,
        only,
        stop_early,
        stopped: AtomicBool::new(false),
        moments: AtomicU64::new(0),
        images: AtomicU64::new(0),
        crashes_here: AtomicU64::new(0),
        found: Mutex::default(),
        sites: Mutex::default(),
    });
    let observer: Arc<dyn Observer> = Arc::clone(&crashing) as _;
    let planted = Arc::clone(plant);
    let shown: World = Arc::new(move |sim: &Sim| planted(sim, watched(sim, &observer)));
    let sim = Sim::new(seed);
    let mut runner = Runner::new(Arc::clone(script), sim, shown, Arc::clone(&model));
    let ran = no_panic(|| runner.run());
    runner.sim.crash_now();
    runner.let_go();
    let mut violations: Vec<(String, Option<Spot>)> =
        lock(&crashing.found).iter().map(|(text, spot)| (text.clone(), Some(*spot))).collect();
    if let Err(text) = ran {
        violations.push((format!("without any crash: {text}"), None));
    }
    Ended {
        moments: crashing.moments.load(Ordering::Relaxed),
        images: crashing.images.load(Ordering::Relaxed),
        deep_images: deep_images.load(Ordering::Relaxed),
        violations,
        sites: std::mem::take(&mut *lock(&crashing.sites)),
    }
}

impl Crashing {
    fn policies(&self, moment: u64, units: u64, after: bool) -> Vec<Option<Survival>> {
        let seed = join(self.seed, moment);
        if units == 0 {
            return vec![Some(Survival::None)];
        }
        let third = units / 3;
        let all = [
            Some(Survival::None),
            None,
            Some(Survival::Random(0.5)),
            Some(Survival::Prefix(units - third)),
            Some(Survival::All),
            Some(Survival::Garbage(0.5)),
            Some(Survival::NamesOnly),
            Some(Survival::DataOnly),
            Some(Survival::Reverse(units - third)),
            Some(Survival::NewestOnly),
            Some(Survival::Random(0.8)),
            Some(Survival::Garbage(0.8)),
            Some(Survival::any(seed, units)),
        ];
        if self.depth.images >= 7 {
            // Before a call the one half, after it the other.
            let half = if after { &all[6..] } else { &all[..7] };
            return half.to_vec();
        }
        let first = (moment as usize * 5 + usize::from(after) * 6) % all.len();
        (0..self.depth.images).map(|i| all[(first + i * 4) % all.len()]).collect()
    }

    fn moment(&self, sim: &Sim, changes: bool, after: bool) -> u64 {
        let moment = self.moments.fetch_add(1, Ordering::Relaxed);
        if self.stopped.load(Ordering::Relaxed) {
            return 0;
        }
        match self.only {
            Some(spot) if spot.moment != moment => return 0,
            None if !join(self.seed, moment).is_multiple_of(self.depth.every) => return 0,
            _ => {}
        }
        let mut policies = self.policies(moment, sim.pending_units(), after);
        if !changes {
            // The disk is as it was after the last change: one look is enough.
            policies.truncate(1);
        }
        let model = lock(&self.model).clone();
        let mut number = 0;
        for policy in policies {
            let seed = join(join(self.seed, moment), number);
            let (image, loss) = match policy {
                None => (sim.kill_image(), Loss::Kill),
                Some(policy) => (sim.crash_image(&policy, seed), Loss::Power),
            };
            self.look(&model, &image, loss, Spot { moment, image: number }, &format!("{policy:?}"));
            number += 1;
        }
        if changes && self.depth.subsets > 0 && sim.pending_units() <= 5 {
            for image in sim.crash_images_exhaustive(self.depth.subsets) {
                let spot = Spot { moment, image: number };
                self.look(&model, &image, Loss::Power, spot, "a subset of the pending units");
                number += 1;
            }
        }
        number
    }

    fn look(&self, model: &Model, image: &Sim, loss: Loss, spot: Spot, policy: &str) {
        if self.only.is_some_and(|only| only != spot) || self.stopped.load(Ordering::Relaxed) {
            return;
        }
        self.images.fetch_add(1, Ordering::Relaxed);
        let seed = join(join(self.seed, spot.moment), spot.image + 7);
        let follow = match seed % self.depth.follow_every {
            0 => FOLLOWS[(seed / 64 % FOLLOWS.len() as u64) as usize],
            _ => Follow::Nothing,
        };
        if let Err(text) = self.examiner.examine(model, image, loss, follow, seed) {
            let text = format!("{loss:?} image {policy}, then {follow:?}: {text}");
            lock(&self.found).push((text, spot));
            if self.stop_early {
                self.stopped.store(true, Ordering::Relaxed);
            }
        }
    }
}

impl Observer for Crashing {
    fn before(&self, sim: &Sim, changes: bool) {
        let images = self.moment(sim, changes, false);
        self.crashes_here.store(images, Ordering::Relaxed);
    }

    fn after(&self, sim: &Sim, changes: bool) {
        let before = self.crashes_here.load(Ordering::Relaxed);
        let images = if changes { self.moment(sim, true, true) } else { 0 };
        let site = sim.site_of(sim.calls()).unwrap_or_default();
        let mut sites = lock(&self.sites);
        let entry = sites.entry(site).or_insert((0, 0));
        entry.0 += 1;
        entry.1 += before + images;
    }
}

/// The file operations of the engine on each kind of file. Those that only a failure leads to are
/// the fault campaign's business.
const ENGINE_SITES: [&str; 44] = [
    "create *.blob",
    "create *.log",
    "create *.manifest",
    "create *.table",
    "create CURRENT.new",
    "create_dir directory",
    "exists CURRENT",
    "exists CURRENT.new",
    "hard_link *.blob",
    "hard_link *.table",
    "len *.blob",
    "len *.log",
    "len *.manifest",
    "len *.table",
    "lock LOCK",
    "map *.log",
    "open *.blob",
    "open *.log",
    "open *.manifest",
    "open *.table",
    "open CURRENT",
    "preallocate *.blob",
    "preallocate *.log",
    "read *.blob",
    "read *.log",
    "read *.manifest",
    "read *.table",
    "read CURRENT",
    "read_dir directory",
    "remove *.blob",
    "remove *.log",
    "remove *.manifest",
    "remove *.table",
    "remove CURRENT.new",
    "rename *.log to *.log",
    "rename CURRENT.new to CURRENT",
    "set_len *.log",
    "store *.log",
    "sync *.blob",
    "sync *.log",
    "sync *.manifest",
    "sync *.table",
    "sync CURRENT.new",
    "sync_dir directory",
];

/// Runs scripts over two threads and collects what they came to.
pub fn campaign(scripts: &[Script], seed: u64, depth: Depth) -> Tally {
    let tally = Tally::new("crash");
    let sites = Mutex::new(Sites::new());
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed) as usize;
                    let Some(script) = scripts.get(at) else { return };
                    one(script, seed, depth, &tally, &sites);
                }
            });
        }
    });
    let sites = sites.into_inner().unwrap_or_else(PoisonError::into_inner);
    for (site, (calls, crashes)) in &sites {
        tally.note(format!("site {site}: {calls} calls, {crashes} images"));
    }
    let writes =
        ["write *.blob", "write *.log", "write *.manifest", "write *.table", "write CURRENT.new"];
    for site in ENGINE_SITES.into_iter().chain(writes) {
        if !sites.contains_key(site) {
            tally.violation(format!("no script reaches the site {site}"), "crash".to_string());
        }
    }
    tally.scenario(tally.violations() == 0);
    tally
}

fn one(script: &Script, seed: u64, depth: Depth, tally: &Tally, sites: &Mutex<Sites>) {
    let script_seed = join(seed, of_name(&script.name));
    let script = Arc::new(script.clone());
    let ended = run_script(&script, script_seed, depth, None, &nothing_planted(), false);
    tally.add("scripts", 1);
    tally.add("crash moments", ended.moments);
    tally.add("images", ended.images);
    tally.add("images of crashes inside recovery", ended.deep_images);
    tally.scenario(ended.violations.is_empty());
    for (text, spot) in ended.violations {
        let spot = spot.unwrap_or(Spot { moment: u64::MAX, image: 0 });
        let replay = format!("crash {} {seed} {} {}", script.name, spot.moment, spot.image);
        tally.violation(format!("script {}: {text}", script.name), replay);
    }
    let mut all = lock(sites);
    for (site, (calls, crashes)) in ended.sites {
        let entry = all.entry(site).or_insert((0, 0));
        entry.0 += calls;
        entry.1 += crashes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_that_no_script_reaches_is_a_violation() {
        let script = Script::new("nothing");
        let depth = Depth { every: u64::MAX, ..Depth::SMALL };
        let ended = campaign(&[script], 1, depth).end();
        let missed = |site: &str| {
            ended.violations.iter().any(|v| v.what == format!("no script reaches the site {site}"))
        };
        assert!(missed("hard_link *.table") && missed("create *.table"));
        assert!(ended.failed == 1);
    }
}
