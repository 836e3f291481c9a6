//! Planted bugs: a campaign that does not find them is worth nothing.

use std::sync::Arc;

use umbel_sim::{Fault, FaultKind};

use crate::crash::{self, Depth, Plant};
use crate::faults::{self, Wrong};
use crate::planted::{Bug, forget, plant};
use crate::random::{join, of_name};
use crate::report::Tally;
#[cfg(feature = "canary")]
use crate::rot;
use crate::script::Script;
use crate::scripts;

/// Which campaign is to find a bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hunt {
    Crash,
    Faults,
    #[cfg(feature = "canary")]
    Rot,
}

struct Canary {
    name: &'static str,
    hunt: Hunt,
    /// The script with which the small part begins.
    first: &'static str,
    plant: Plant,
}

fn canaries() -> Vec<Canary> {
    let canary = |name, hunt, plant| {
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
        Canary { name, hunt, first, plant }
    };
    let mut all = vec![
        canary("skipped directory sync", Hunt::Crash, forget("sync_dir")),
        canary("skipped table sync", Hunt::Crash, forget("sync *.table")),
        canary("skipped manifest sync", Hunt::Crash, forget("sync *.manifest")),
        canary("early acknowledgement: skipped log sync", Hunt::Crash, forget("sync *.log")),
        canary("CURRENT renamed before it is synced", Hunt::Crash, forget("sync CURRENT.new")),
        canary("a table link forgotten in a checkpoint", Hunt::Crash, forget("hard_link *.table")),
        canary("skipped sync of a long value", Hunt::Crash, forget("sync *.blob")),
        canary(
            "a long value's link forgotten in a checkpoint",
            Hunt::Crash,
            forget("hard_link *.blob"),
        ),
        canary("stale CURRENT", Hunt::Crash, plant(Bug::StaleCurrent(2))),
        canary("CURRENT replaced in two steps", Hunt::Crash, plant(Bug::RenameInTwoSteps)),
        canary("lost manifest append", Hunt::Crash, plant(Bug::LostManifestAppend(3))),
        canary("hole before an acknowledged record", Hunt::Crash, plant(Bug::HoleInTheLog(2))),
        canary("lost table sector", Hunt::Crash, plant(Bug::LostTableSector)),
        canary("ignored lock", Hunt::Crash, plant(Bug::IgnoredLock)),
        canary("only the newest segment synced", Hunt::Crash, plant(Bug::OldSegmentsNotSynced)),
        canary("log cut short at closing", Hunt::Crash, plant(Bug::LogCutShort)),
        canary("log removed too early", Hunt::Crash, plant(Bug::LogRemovedEarly)),
        canary(
            "used log renamed before its header is synced",
            Hunt::Crash,
            plant(Bug::RelabelNotSynced),
        ),
        canary("used log named before its header is written", Hunt::Crash, forget("write *.log")),
        canary("sync error ignored", Hunt::Faults, plant(Bug::IgnoredSyncError)),
        canary("write error ignored", Hunt::Faults, plant(Bug::IgnoredWriteError)),
    ];
    all.extend(engine_canaries());
    all
}

#[cfg(feature = "canary")]
fn engine_canaries() -> Vec<Canary> {
    use umbel_base::canary::Switch;
    let canary = |name, hunt, switch: Switch| {
        let plant: Plant = Arc::new(move |_, env| {
            switch.turn_on();
            env
        });
        let first = match switch {
            Switch::SnapshotsForgotten => "snapshot-across-compactions",
            Switch::TombstonesDroppedEarly => "tombstones-to-the-bottom",
            Switch::BlobRemovedEarly => "long-values-read-across-compactions",
            Switch::ExistenceReplayForgotten => "existence-replayed",
            Switch::ExistenceWalkSkipsMemtables => "existence-later",
            Switch::ExistenceUncoveredBelieved => "existence-later",
            _ => "",
        };
        Canary { name, hunt, first, plant }
    };
    vec![
        canary("ignored checksum", Hunt::Rot, Switch::IgnoredChecksum),
        canary("tombstones dropped early", Hunt::Crash, Switch::TombstonesDroppedEarly),
        canary("reused sequence numbers", Hunt::Crash, Switch::ReusedSequence),
        canary("reused file ids", Hunt::Crash, Switch::ReusedFileId),
        canary("snapshots forgotten by compaction", Hunt::Crash, Switch::SnapshotsForgotten),
        canary("a long value removed under a reader", Hunt::Crash, Switch::BlobRemovedEarly),
        canary(
            "a filter that forgets what is replayed",
            Hunt::Crash,
            Switch::ExistenceReplayForgotten,
        ),
        canary(
            "a filter made without the memtables",
            Hunt::Crash,
            Switch::ExistenceWalkSkipsMemtables,
        ),
        canary(
            "a filter believed that lacks what was flushed",
            Hunt::Faults,
            Switch::ExistenceUncoveredBelieved,
        ),
    ]
}

#[cfg(not(feature = "canary"))]
fn engine_canaries() -> Vec<Canary> {
    Vec::new()
}

/// Plants each bug and hunts it.
pub fn campaign(seed: u64, is_small: bool) -> Tally {
    let tally = Tally::new("canaries");
    for canary in canaries() {
        let caught = match canary.hunt {
            Hunt::Crash => by_crashing(&canary, seed, is_small),
            Hunt::Faults => by_failing(&canary, seed),
            #[cfg(feature = "canary")]
            Hunt::Rot => by_rotting(&canary, seed),
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
    umbel_base::canary::turn_all_off();
}

#[cfg(not(feature = "canary"))]
fn turn_off() {}

fn by_crashing(canary: &Canary, seed: u64, is_small: bool) -> Option<(u64, String)> {
    let mut tries = 0;
    let mut scripts = scripts::all();
    if is_small {
        // In full every script is searched in turn, so that the number of tries means something.
        scripts.sort_by_key(|script| script.name != canary.first);
    }
    for script in scripts {
        let script_seed = join(seed, of_name(&script.name));
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

fn by_failing(canary: &Canary, seed: u64) -> Option<(u64, String)> {
    let mut tries = 0;
    for name in faults::SCRIPTS {
        let Some(script) = scripts::named(name) else { continue };
        let script: Arc<Script> = Arc::new(script);
        let script_seed = join(seed, of_name(name));
        let (calls, _) = faults::measure(&script, script_seed);
        for call in 1..=calls {
            tries += 1;
            let fault = Fault { kind: FaultKind::Enospc, sticky: false };
            let wrong = Wrong::Call(call, fault);
            if let Err(what) = faults::run(&script, script_seed, wrong, false, &canary.plant) {
                return Some((tries, format!("script {name}, call {call}: {what}")));
            }
        }
    }
    None
}

#[cfg(feature = "canary")]
fn by_rotting(canary: &Canary, seed: u64) -> Option<(u64, String)> {
    let specimen = match rot::specimen(seed, &canary.plant) {
        Ok(specimen) => specimen,
        Err(what) => return Some((1, what)),
    };
    for (tries, damage) in rot::damages(&specimen, true, seed).into_iter().enumerate() {
        if let Err(what) = specimen.judge(&damage, &canary.plant) {
            return Some((tries as u64 + 1, format!("{damage:?}: {what}")));
        }
    }
    None
}
