//! Planted faults, which a campaign must detect to be trusted.

use std::sync::Arc;

use umbel_sim::{Fault, FaultKind};

use crate::kv::bit_rot::{self, DamageDensity};
use crate::kv::crash::{self, Depth, EnvPlant, nothing_planted};
use crate::kv::fault_campaign::{self, FaultPlan};
use crate::kv::planted_env_bugs::{EnvBug, omit_calls, plant_bug};
use crate::simulation::script::Script;
use crate::simulation::scripts;
use crate::support::active_failpoint::{self, ActiveFailpoint};
use crate::support::campaign_tally::CampaignTally;
use crate::support::derived_seed::{derive_seed, seed_from_name};
use crate::support::failpoint_list::{self, Failpoint};

/// Campaign that must detect a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HuntCampaign {
    Crash,
    Faults,
    Rot,
}

struct PlantedFault {
    name: &'static str,
    hunt: HuntCampaign,
    /// Script that the small part tries first.
    first: &'static str,
    /// Environment with the fault.
    plant: EnvPlant,
    /// Failpoint that is the fault.
    failpoint: Option<&'static str>,
}

fn planted_faults() -> Vec<PlantedFault> {
    let fault = |name, hunt, plant| {
        let first = match name {
            "skipped table sync" => "empty-and-binary",
            "a table link forgotten in a checkpoint" => "checkpoint",
            "stale CURRENT" => "manifest-rewrite",
            "ignored lock" => "second-open",
            "only the newest segment synced" => "unmapped-log",
            "log removed too early" => "several-unsynced-segments",
            "skipped sync of a long value" => "long-values",
            "a long value's link forgotten in a checkpoint" => "long-values-checkpoint",
            _ => "",
        };
        PlantedFault { name, hunt, first, plant, failpoint: None }
    };
    let crash = |name, plant| fault(name, HuntCampaign::Crash, plant);
    let mut all = vec![
        crash("skipped directory sync", omit_calls("sync_dir")),
        crash("skipped table sync", omit_calls("sync *.table")),
        crash("skipped manifest sync", omit_calls("sync *.manifest")),
        crash("early acknowledgement: skipped log sync", omit_calls("sync *.log")),
        crash("CURRENT renamed before it is synced", omit_calls("sync CURRENT.new")),
        crash("a table link forgotten in a checkpoint", omit_calls("hard_link *.table")),
        crash("skipped sync of a long value", omit_calls("sync *.blob")),
        crash("a long value's link forgotten in a checkpoint", omit_calls("hard_link *.blob")),
        crash("stale CURRENT", plant_bug(EnvBug::StaleCurrent(2))),
        crash("CURRENT replaced in two steps", plant_bug(EnvBug::RenameInTwoSteps)),
        crash("lost manifest append", plant_bug(EnvBug::LostManifestAppend(3))),
        crash("hole before an acknowledged record", plant_bug(EnvBug::HoleInTheLog(2))),
        crash("lost table sector", plant_bug(EnvBug::LostTableSector)),
        crash("ignored lock", plant_bug(EnvBug::IgnoredLock)),
        crash("only the newest segment synced", plant_bug(EnvBug::OldSegmentsNotSynced)),
        crash("log cut short at closing", plant_bug(EnvBug::LogCutShort)),
        crash("log removed too early", plant_bug(EnvBug::LogRemovedEarly)),
        crash("used log renamed before its header is synced", plant_bug(EnvBug::RelabelNotSynced)),
        crash("used log named before its header is written", omit_calls("write *.log")),
        fault("sync error ignored", HuntCampaign::Faults, plant_bug(EnvBug::IgnoredSyncError)),
        fault("write error ignored", HuntCampaign::Faults, plant_bug(EnvBug::IgnoredWriteError)),
    ];
    if active_failpoint::AVAILABLE {
        all.extend(engine_faults());
    }
    all
}

fn engine_faults() -> impl Iterator<Item = PlantedFault> {
    failpoint_list::ENGINE.iter().map(|&Failpoint { name, .. }| {
        let hunt = match name {
            "checksum-constant" => HuntCampaign::Rot,
            "existence-trust-uncovered-filter" => HuntCampaign::Faults,
            _ => HuntCampaign::Crash,
        };
        let first = match name {
            "compaction-forget-snapshots" => "snapshot-across-compactions",
            "compaction-drop-tombstones-early" => "tombstones-to-the-bottom",
            "compaction-replace-inputs-early" => "deep-levels",
            "compaction-remove-overlapped-tables" => "range-over-part-of-a-table",
            "blob-remove-under-reader" => "long-values-read-across-compactions",
            "skip-spans-ignore-puts" => "puts-into-skip-spans",
            "existence-forget-replayed-keys" => "existence-replayed",
            "existence-walk-skip-memtables" | "existence-trust-uncovered-filter" => {
                "existence-later"
            }
            _ => "",
        };
        PlantedFault { name, hunt, first, plant: nothing_planted(), failpoint: Some(name) }
    })
}

/// Plants each fault and hunts it.
pub fn campaign(seed: u64, is_small: bool) -> CampaignTally {
    let tally = CampaignTally::new("fault-detection");
    for fault in planted_faults() {
        let caught = {
            let _active = fault.failpoint.map(ActiveFailpoint::activate);
            match fault.hunt {
                HuntCampaign::Crash => by_crashing(&fault, seed, is_small),
                HuntCampaign::Faults => by_failing(&fault, seed),
                HuntCampaign::Rot => by_rotting(&fault, seed),
            }
        };
        tally.scenario(caught.is_some());
        match caught {
            Some((tries, what)) => {
                tally.max("most tries to catch one", tries);
                tally.note(format!("'{}' caught after {tries} tries: {what:.150}", fault.name));
            }
            None => {
                let what = format!("the planted fault '{}' was not caught", fault.name);
                tally.violation(what, format!("fault-detection {seed}"));
            }
        }
    }
    if !active_failpoint::AVAILABLE {
        tally.skip("faults inside the engine: they need the feature failpoints".to_string());
    }
    tally
}

fn by_crashing(fault: &PlantedFault, seed: u64, is_small: bool) -> Option<(u64, String)> {
    let mut tries = 0;
    let mut scripts = scripts::all();
    if is_small {
        // In full every script is tried in turn, so that the number of tries has a meaning.
        scripts.sort_by_key(|script| script.name != fault.first);
    }
    for script in scripts {
        let script_seed = derive_seed(seed, seed_from_name(&script.name));
        let script = Arc::new(script);
        let depth = Depth::HUNT;
        let ended = crash::run_script(&script, script_seed, depth, None, &fault.plant, true);
        tries += ended.images + 1;
        if let Some((what, _)) = ended.violations.first() {
            return Some((tries, format!("script {}: {what}", script.name)));
        }
    }
    None
}

fn by_failing(fault: &PlantedFault, seed: u64) -> Option<(u64, String)> {
    let mut tries = 0;
    for name in fault_campaign::FAULT_SCRIPTS {
        let Some(script) = scripts::named(name) else { continue };
        let script: Arc<Script> = Arc::new(script);
        let script_seed = derive_seed(seed, seed_from_name(name));
        let (calls, _) = fault_campaign::measure(&script, script_seed);
        for call in 1..=calls {
            tries += 1;
            let enospc = Fault { kind: FaultKind::Enospc, sticky: false };
            let wrong = FaultPlan::Call(call, enospc);
            if let Err(what) = fault_campaign::run(&script, script_seed, wrong, false, &fault.plant)
            {
                return Some((tries, format!("script {name}, call {call}: {what}")));
            }
        }
    }
    None
}

fn by_rotting(fault: &PlantedFault, seed: u64) -> Option<(u64, String)> {
    let specimen = match bit_rot::closed_store(seed, &fault.plant) {
        Ok(specimen) => specimen,
        Err(what) => return Some((1, what)),
    };
    let damages = bit_rot::damages(&specimen, DamageDensity::Hunt, seed);
    for (tries, damage) in damages.into_iter().enumerate() {
        if let Err(what) = specimen.read_damaged(&damage, &fault.plant) {
            return Some((tries as u64 + 1, format!("{damage:?}: {what}")));
        }
    }
    None
}
