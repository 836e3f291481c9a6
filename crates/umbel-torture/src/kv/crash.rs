//! The crash campaign: runs every script with a crash before and after every call of the file
//! system. The campaign checks several images of each crash, and uses the store afterwards.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use umbel_base::ignore_poison::IgnorePoison;

use umbel::Env;
use umbel_sim::{Sim, Survival};

use crate::simulation::call_observer::{Observer, observed_env};
use crate::simulation::crash_image_check::{FOLLOW_UPS, FollowUp, ImageChecker, no_panic};
use crate::simulation::oracle::{Loss, Oracle};
use crate::simulation::script::Script;
use crate::simulation::script_runner::{EnvMaker, ScriptRunner};
use crate::support::campaign_tally::CampaignTally;
use crate::support::derived_seed::{derive_seed, seed_from_name};

/// Amount of work at each moment.
#[derive(Debug, Clone, Copy)]
pub struct Depth {
    /// One of this many moments is examined.
    pub every: u64,
    /// Maximum number of images at each moment.
    pub images: usize,
    /// One of this many images is used further after its check.
    pub follow_every: u64,
    /// Largest number of subsets of pending units tried at a moment; 0 for none.
    pub subsets: u64,
}

impl Depth {
    /// Examines every moment and every image.
    pub const FULL: Depth = Depth { every: 1, images: 7, follow_every: 3, subsets: 32 };
    /// Depth of the seeded part that the test command runs.
    pub const SMALL: Depth = Depth { every: 16, images: 2, follow_every: 6, subsets: 0 };
    /// Depth of hunts for planted faults: quick, with a sample of all checks.
    pub const HUNT: Depth = Depth { every: 1, images: 3, follow_every: 5, subsets: 0 };
}

/// Moment and image to examine again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplayPoint {
    /// The moment.
    pub moment: u64,
    /// The image.
    pub image: u64,
}

/// Bug between the engine and its environment. The plant gets the machine and its unchanged
/// environment.
pub type EnvPlant = Arc<dyn Fn(&Sim, Env) -> Env + Send + Sync>;

/// Returns a plant without a bug.
pub fn nothing_planted() -> EnvPlant {
    Arc::new(|_, env| env)
}

/// Call sites with their numbers of calls and crashes.
pub type CallSites = BTreeMap<String, (u64, u64)>;

/// Run of one script in the campaign.
#[derive(Debug)]
pub struct CrashRun {
    examiner: ImageChecker,
    model: Arc<Mutex<Oracle>>,
    depth: Depth,
    seed: u64,
    only: Option<ReplayPoint>,
    /// Whether the run ends at the first violation.
    stop_early: bool,
    stopped: AtomicBool,
    moments: AtomicU64,
    images: AtomicU64,
    crashes_here: AtomicU64,
    found: Mutex<Vec<(String, ReplayPoint)>>,
    sites: Mutex<CallSites>,
}

/// Result of one script.
#[derive(Debug)]
pub struct CrashResult {
    /// Number of moments at which a crash was simulated.
    pub moments: u64,
    /// Number of examined images.
    pub images: u64,
    /// Number of images of crashes inside a recovery.
    pub deep_images: u64,
    /// Violations, and where to replay them.
    pub violations: Vec<(String, Option<ReplayPoint>)>,
    /// Call sites that the script reached.
    pub sites: CallSites,
}

/// Runs one script once, and checks crash images taken before and after its file system calls, as
/// `depth` selects.
pub fn run_script(
    script: &Arc<Script>,
    seed: u64,
    depth: Depth,
    only: Option<ReplayPoint>,
    plant: &EnvPlant,
    stop_early: bool,
) -> CrashResult {
    let model = Arc::new(Mutex::new(Oracle::default()));
    let deep_images = Arc::new(AtomicU64::new(0));
    let examined = Arc::clone(plant);
    let world: EnvMaker = Arc::new(move |sim: &Sim| examined(sim, sim.env()));
    let crashing = Arc::new(CrashRun {
        examiner: ImageChecker {
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
    let shown: EnvMaker = Arc::new(move |sim: &Sim| planted(sim, observed_env(sim, &observer)));
    let sim = Sim::new(seed);
    let mut runner = ScriptRunner::new(Arc::clone(script), sim, shown, Arc::clone(&model));
    let ran = no_panic(|| runner.run());
    runner.sim.crash_now();
    runner.drop_handles();
    let mut violations: Vec<(String, Option<ReplayPoint>)> = crashing
        .found
        .lock()
        .ignore_poison()
        .iter()
        .map(|(text, spot)| (text.clone(), Some(*spot)))
        .collect();
    if let Err(text) = ran {
        violations.push((format!("without any crash: {text}"), None));
    }
    CrashResult {
        moments: crashing.moments.load(Ordering::Relaxed),
        images: crashing.images.load(Ordering::Relaxed),
        deep_images: deep_images.load(Ordering::Relaxed),
        violations,
        sites: std::mem::take(&mut *crashing.sites.lock().ignore_poison()),
    }
}

impl CrashRun {
    fn policies(&self, moment: u64, units: u64, after: bool) -> Vec<Option<Survival>> {
        let seed = derive_seed(self.seed, moment);
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
            // One half of the images before a call, the other after it.
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
            None if !derive_seed(self.seed, moment).is_multiple_of(self.depth.every) => return 0,
            _ => {}
        }
        let mut policies = self.policies(moment, sim.pending_units(), after);
        if !changes {
            // The disk has not changed since the last image: one is enough.
            policies.truncate(1);
        }
        let model = self.model.lock().ignore_poison().clone();
        let mut number = 0;
        for policy in policies {
            let seed = derive_seed(derive_seed(self.seed, moment), number);
            let (image, loss) = match policy {
                None => (sim.kill_image(), Loss::Kill),
                Some(policy) => (sim.crash_image(&policy, seed), Loss::Power),
            };
            self.check_image(
                &model,
                &image,
                loss,
                ReplayPoint { moment, image: number },
                &format!("{policy:?}"),
            );
            number += 1;
        }
        if changes && self.depth.subsets > 0 && sim.pending_units() <= 5 {
            for image in sim.crash_images_exhaustive(self.depth.subsets) {
                let spot = ReplayPoint { moment, image: number };
                self.check_image(
                    &model,
                    &image,
                    Loss::Power,
                    spot,
                    "a subset of the pending units",
                );
                number += 1;
            }
        }
        number
    }

    fn check_image(
        &self,
        model: &Oracle,
        image: &Sim,
        loss: Loss,
        spot: ReplayPoint,
        policy: &str,
    ) {
        if self.only.is_some_and(|only| only != spot) || self.stopped.load(Ordering::Relaxed) {
            return;
        }
        self.images.fetch_add(1, Ordering::Relaxed);
        let seed = derive_seed(derive_seed(self.seed, spot.moment), spot.image + 7);
        let follow = match seed % self.depth.follow_every {
            0 => FOLLOW_UPS[(seed / 64 % FOLLOW_UPS.len() as u64) as usize],
            _ => FollowUp::Nothing,
        };
        if let Err(text) = self.examiner.examine(model, image, loss, follow, seed) {
            let text = format!("{loss:?} image {policy}, then {follow:?}: {text}");
            self.found.lock().ignore_poison().push((text, spot));
            if self.stop_early {
                self.stopped.store(true, Ordering::Relaxed);
            }
        }
    }
}

impl Observer for CrashRun {
    fn before(&self, sim: &Sim, changes: bool) {
        let images = self.moment(sim, changes, false);
        self.crashes_here.store(images, Ordering::Relaxed);
    }

    fn after(&self, sim: &Sim, changes: bool) {
        let before = self.crashes_here.load(Ordering::Relaxed);
        let images = if changes { self.moment(sim, true, true) } else { 0 };
        let site = sim.site_of(sim.calls()).unwrap_or_default();
        let mut sites = self.sites.lock().ignore_poison();
        let entry = sites.entry(site).or_insert((0, 0));
        entry.0 += 1;
        entry.1 += before + images;
    }
}

/// The file operations of the engine on each kind of file. The fault campaign covers operations
/// that only follow a failure.
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

/// Runs scripts on two threads and collects their results.
pub fn campaign(scripts: &[Script], seed: u64, depth: Depth) -> CampaignTally {
    let tally = CampaignTally::new("crash");
    let sites = Mutex::new(CallSites::new());
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed) as usize;
                    let Some(script) = scripts.get(at) else { return };
                    run_one(script, seed, depth, &tally, &sites);
                }
            });
        }
    });
    let sites = sites.into_inner().ignore_poison();
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

fn run_one(
    script: &Script,
    seed: u64,
    depth: Depth,
    tally: &CampaignTally,
    sites: &Mutex<CallSites>,
) {
    let script_seed = derive_seed(seed, seed_from_name(&script.name));
    let script = Arc::new(script.clone());
    let ended = run_script(&script, script_seed, depth, None, &nothing_planted(), false);
    tally.add("scripts", 1);
    tally.add("crash moments", ended.moments);
    tally.add("images", ended.images);
    tally.add("images of crashes inside recovery", ended.deep_images);
    tally.scenario(ended.violations.is_empty());
    for (text, spot) in ended.violations {
        let spot = spot.unwrap_or(ReplayPoint { moment: u64::MAX, image: 0 });
        let replay = format!("crash {} {seed} {} {}", script.name, spot.moment, spot.image);
        tally.violation(format!("script {}: {text}", script.name), replay);
    }
    let mut all = sites.lock().ignore_poison();
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
    fn unreached_call_site_is_a_violation() {
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
