//! Scripts of `umbel-existence`: a user with a log and keys, a filter on the crash disk, and all
//! faults. The filter must never exclude a key of the log.
//!
//! The crate's own tests run the same scripts with some hundred seeds.

use umbel_testing::existence_script::{self, Plant, ScriptResult, failpoint_list};

use crate::simulation::crash_image_check::no_panic;
use crate::support::active_failpoint::{self, ActiveFailpoint};
use crate::support::campaign_tally::CampaignTally;
use crate::support::derived_seed::derive_seed;

/// Default number of seeds.
pub const SEEDS: u64 = 100_000;
pub const SEEDS_SMALL: u64 = 300;
/// Number of seeds within which each planted fault must be detected.
pub const SEEDS_PLANTED: u64 = 10_000;

/// Runs scripts of the given number of seeds.
pub fn campaign(seed: u64, seeds: u64) -> CampaignTally {
    let tally = CampaignTally::new("existence");
    for number in 0..seeds {
        let own = derive_seed(seed, number);
        let ended = run_script(own, |_| ());
        tally.scenario(ended.is_ok());
        match ended {
            Ok(done) => count(&tally, &done),
            Err(text) => tally.violation(text, format!("existence {own}")),
        }
    }
    tally
}

/// Replays one script.
pub fn replay(seed: u64) -> Result<(), String> {
    run_script(seed, |_| ()).map(|done| println!("nothing was wrong: {done:?}"))
}

fn run_script(seed: u64, plant: Plant) -> Result<ScriptResult, String> {
    no_panic(|| existence_script::run(seed, plant))
}

fn count(tally: &CampaignTally, done: &ScriptResult) {
    for (what, count) in [
        ("opens", done.opens),
        ("ends of a life", done.crashes),
        ("failed calls", done.faults),
        ("lives that began with damaged files", done.rotten),
        ("growths", done.growths),
        ("rebuilds", done.rebuilds),
        ("lines healed", done.healed),
        ("keys probed", done.checks),
    ] {
        tally.add(what, count);
    }
}

/// Hunts each planted fault within the limit of seeds.
pub fn hunt_faults(seed: u64, seeds: u64) -> CampaignTally {
    let tally = CampaignTally::new("existence-planted");
    for (pattern, plant) in failpoint_list::FORGOTTEN {
        hunt(&tally, &format!("'{pattern}' left out"), seed, seeds, plant);
    }
    if !active_failpoint::AVAILABLE {
        tally.skip("faults inside the filter: they need the feature failpoints".to_string());
        return tally;
    }
    for (name, fault) in failpoint_list::FAILPOINTS {
        let _active = ActiveFailpoint::activate(name);
        hunt(&tally, &format!("{name} ({fault})"), seed, seeds, |_| ());
    }
    tally
}

fn hunt(tally: &CampaignTally, fault: &str, seed: u64, seeds: u64, plant: Plant) {
    let noticed = (0..seeds)
        .find_map(|number| Some((number, run_script(derive_seed(seed, number), plant).err()?)));
    match &noticed {
        Some((after, text)) => tally.note(format!("{fault}: noticed by seed {after}: {text:.300}")),
        None => {
            let what = format!("{fault}: not noticed in {seeds} seeds");
            tally.violation(what, format!("existence {seed}"));
        }
    }
    tally.scenario(noticed.is_some());
}
