//! Planted bugs, which a campaign must find to be trusted.

use std::sync::Arc;

use umbel_sim::{Fault, FaultKind};

#[cfg(feature = "canary")]
use crate::kv::bit_rot;
use crate::kv::crash::{self, Depth, EnvPlant};
use crate::kv::faults::{self, FaultPlan};
use crate::kv::faulty_env::{EnvBug, omit_calls, plant_bug};
use crate::simulation::script::Script;
use crate::simulation::scripts;
use crate::support::campaign_tally::CampaignTally;
use crate::support::seeded_random::{derive_seed, seed_from_name};

/// Campaign that must find a bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HuntCampaign {
    Crash,
    Faults,
    #[cfg(feature = "canary")]
    Rot,
}

struct PlantedBug {
    name: &'static str,
    hunt: HuntCampaign,
    /// Script that the small part tries first.
    first: &'static str,
    plant: EnvPlant,
}

fn planted_bugs() -> Vec<PlantedBug> {
    let bug = |name, hunt, plant| {
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
        PlantedBug { name, hunt, first, plant }
    };
    let crash = |name, plant| bug(name, HuntCampaign::Crash, plant);
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
        bug("sync error ignored", HuntCampaign::Faults, plant_bug(EnvBug::IgnoredSyncError)),
        bug("write error ignored", HuntCampaign::Faults, plant_bug(EnvBug::IgnoredWriteError)),
    ];
    all.extend(engine_canaries());
    all
}

#[cfg(feature = "canary")]
fn engine_canaries() -> Vec<PlantedBug> {
    use umbel_base::failpoint::Failpoint;
    let canary = |name, hunt, switch: Failpoint| {
        let plant: EnvPlant = Arc::new(move |_, env| {
            switch.enable();
            env
        });
        let first = match switch {
            Failpoint::SnapshotsForgotten => "snapshot-across-compactions",
            Failpoint::TombstonesDroppedEarly => "tombstones-to-the-bottom",
            Failpoint::BlobRemovedEarly => "long-values-read-across-compactions",
            Failpoint::ExistenceReplayForgotten => "existence-replayed",
            Failpoint::ExistenceWalkSkipsMemtables => "existence-later",
            Failpoint::ExistenceUncoveredBelieved => "existence-later",
            _ => "",
        };
        PlantedBug { name, hunt, first, plant }
    };
    vec![
        canary("ignored checksum", HuntCampaign::Rot, Failpoint::IgnoredChecksum),
        canary("tombstones dropped early", HuntCampaign::Crash, Failpoint::TombstonesDroppedEarly),
        canary("reused sequence numbers", HuntCampaign::Crash, Failpoint::ReusedSequence),
        canary("reused file ids", HuntCampaign::Crash, Failpoint::ReusedFileId),
        canary(
            "snapshots forgotten by compaction",
            HuntCampaign::Crash,
            Failpoint::SnapshotsForgotten,
        ),
        canary(
            "a long value removed under a reader",
            HuntCampaign::Crash,
            Failpoint::BlobRemovedEarly,
        ),
        canary(
            "a filter that forgets what is replayed",
            HuntCampaign::Crash,
            Failpoint::ExistenceReplayForgotten,
        ),
        canary(
            "a filter made without the memtables",
            HuntCampaign::Crash,
            Failpoint::ExistenceWalkSkipsMemtables,
        ),
        canary(
            "a filter believed that lacks what was flushed",
            HuntCampaign::Faults,
            Failpoint::ExistenceUncoveredBelieved,
        ),
    ]
}

#[cfg(not(feature = "canary"))]
fn engine_canaries() -> Vec<PlantedBug> {
    Vec::new()
}

/// Plants each bug and hunts it.
pub fn campaign(seed: u64, is_small: bool) -> CampaignTally {
    let tally = CampaignTally::new("canaries");
    for canary in planted_bugs() {
        let caught = match canary.hunt {
            HuntCampaign::Crash => by_crashing(&canary, seed, is_small),
            HuntCampaign::Faults => by_failing(&canary, seed),
            #[cfg(feature = "canary")]
            HuntCampaign::Rot => by_rotting(&canary, seed),
        };
        turn_off();
        tally.scenario(caught.is_some());
        match caught {
            Some((tries, what)) => {
                tally.max("most tries to catch one", tries);
                tally.note(format!("'{}' caught after {tries} tries: {what:.150}", canary.name));
            }
            None => {
                let what = format!("the planted bug '{}' was not caught", canary.name);
                tally.violation(what, format!("canaries {seed}"));
            }
        }
    }
    if !cfg!(feature = "canary") {
        tally.skip(
            "bugs inside the engine (ignored checksum, tombstones dropped early ...): build with \
             --features canary"
                .to_string(),
        );
    }
    tally
}

#[cfg(feature = "canary")]
fn turn_off() {
    umbel_base::failpoint::disable_all();
}

#[cfg(not(feature = "canary"))]
fn turn_off() {}

fn by_crashing(canary: &PlantedBug, seed: u64, is_small: bool) -> Option<(u64, String)> {
    let mut tries = 0;
    let mut scripts = scripts::all();
    if is_small {
        // In full every script is tried in turn, so that the number of tries has a meaning.
        scripts.sort_by_key(|script| script.name != canary.first);
    }
    for script in scripts {
        let script_seed = derive_seed(seed, seed_from_name(&script.name));
        let script = Arc::new(script);
        let depth = Depth::CANARY;
        let ended = crash::run_script(&script, script_seed, depth, None, &canary.plant, true);
        tries += ended.images + 1;
        if let Some((what, _)) = ended.violations.first() {
            return Some((tries, format!("script {}: {what}", script.name)));
        }
    }
    None
}

fn by_failing(canary: &PlantedBug, seed: u64) -> Option<(u64, String)> {
    let mut tries = 0;
    for name in faults::FAULT_SCRIPTS {
        let Some(script) = scripts::named(name) else { continue };
        let script: Arc<Script> = Arc::new(script);
        let script_seed = derive_seed(seed, seed_from_name(name));
        let (calls, _) = faults::measure(&script, script_seed);
        for call in 1..=calls {
            tries += 1;
            let fault = Fault { kind: FaultKind::Enospc, sticky: false };
            let wrong = FaultPlan::Call(call, fault);
            if let Err(what) = faults::run(&script, script_seed, wrong, false, &canary.plant) {
                return Some((tries, format!("script {name}, call {call}: {what}")));
            }
        }
    }
    None
}

#[cfg(feature = "canary")]
fn by_rotting(canary: &PlantedBug, seed: u64) -> Option<(u64, String)> {
    let specimen = match bit_rot::closed_store(seed, &canary.plant) {
        Ok(specimen) => specimen,
        Err(what) => return Some((1, what)),
    };
    for (tries, damage) in bit_rot::damages(&specimen, true, seed).into_iter().enumerate() {
        if let Err(what) = specimen.read_damaged(&damage, &canary.plant) {
            return Some((tries as u64 + 1, format!("{damage:?}: {what}")));
        }
    }
    None
}
