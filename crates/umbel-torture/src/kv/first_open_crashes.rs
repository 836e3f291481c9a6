//! A crash or failed call at every point of the first open must leave a folder that opens.

use std::sync::Arc;

use umbel::{Db, Durability};
use umbel_sim::{Fault, Sim, Survival};

use crate::kv::crash::{Depth, nothing_planted, run_script};
use crate::kv::fault_campaign::FAULT_KINDS;
use crate::simulation::crash_image_check::no_panic;
use crate::simulation::full_read;
use crate::simulation::script::{Script, small};
use crate::support::campaign_tally::CampaignTally;
use crate::support::derived_seed::derive_seed;

const FOLDERS: [&str; 3] = ["/store", "/data/store", "/one/two/three/store"];

fn script(folder: &'static str) -> Script {
    Script { folder, ..Script::new("first-open") }
}

/// Crashes at every call of the first open, and makes every call fail.
pub fn campaign(seed: u64, is_small: bool) -> CampaignTally {
    let tally = CampaignTally::new("first-open");
    for folder in FOLDERS {
        let rounds = if is_small { 1 } else { 16 };
        let depth = match is_small {
            true => Depth { every: 1, images: 3, follow_every: 2, subsets: 16 },
            false => Depth { every: 1, images: 7, follow_every: 1, subsets: 64 },
        };
        let mut held = true;
        for round in 0..rounds {
            let script = Arc::new(script(folder));
            let ended = run_script(
                &script,
                derive_seed(seed, round),
                depth,
                None,
                &nothing_planted(),
                false,
            );
            tally.add("crash moments", ended.moments);
            tally.add("images", ended.images);
            tally.add("images of crashes inside recovery", ended.deep_images);
            for (text, spot) in ended.violations {
                held = false;
                let replay = format!("first-open {seed}");
                tally.violation(format!("{folder}, round {round}, {spot:?}: {text}"), replay);
            }
        }
        tally.scenario(held);
        tally.scenario(fail_every_call(folder, seed, &tally));
    }
    tally
}

fn fail_every_call(folder: &'static str, seed: u64, tally: &CampaignTally) -> bool {
    let script = script(folder);
    let sim = Sim::new(seed);
    let opened = Db::open(folder, full_read::first_options(&script, sim.env()));
    let calls = sim.calls();
    drop(opened);
    let mut held = true;
    for call in 1..=calls {
        for (number, kind) in FAULT_KINDS.into_iter().enumerate() {
            for sticky in [false, true] {
                tally.add("failing opens", 1);
                let own = derive_seed(seed, call * 16 + number as u64);
                let failed = no_panic(|| fail_call(&script, own, call, Fault { kind, sticky }));
                if let Err(text) = failed {
                    held = false;
                    let what = format!("{folder}, call {call} {kind:?} sticky {sticky}: {text}");
                    tally.violation(what, format!("first-open {seed}"));
                }
            }
        }
    }
    held
}

fn fail_call(script: &Script, seed: u64, call: u64, fault: Fault) -> Result<(), String> {
    let sim = Sim::new(seed);
    sim.fail_at(call, fault);
    let opened = Db::open(script.folder, full_read::first_options(script, sim.env()));
    if let Err(error) = &opened
        && !error.to_string().contains('/')
    {
        return Err(format!("the error names no file: {error}"));
    }
    drop(opened);
    sim.heal();
    let units = sim.pending_units();
    for image in [
        sim.kill_image(),
        sim.crash_image(&Survival::None, seed),
        sim.crash_image(&Survival::any(seed, units), seed),
        sim.crash_image(&Survival::any(seed + 1, units), seed),
        sim,
    ] {
        check_usable(script, &image)?;
    }
    Ok(())
}

/// Checks that the folder opens and accepts a synced write, which survives a power loss.
fn check_usable(script: &Script, image: &Sim) -> Result<(), String> {
    let describe = |error: umbel::Error| format!("afterwards: {error}");
    let db =
        Db::open(script.folder, full_read::first_options(script, image.env())).map_err(describe)?;
    let keyspace = db.keyspace("a", small()).map_err(describe)?;
    let mut batch = db.batch();
    batch.put(&keyspace, b"key", b"value");
    batch.commit(Durability::Synced).map_err(describe)?;
    let after = image.crash_image(&Survival::None, 1);
    let db =
        Db::open(script.folder, full_read::first_options(script, after.env())).map_err(describe)?;
    let keyspace = db.keyspace("a", small()).map_err(describe)?;
    let found = keyspace.get(b"key").map_err(describe)?;
    if found.as_deref() != Some(b"value") {
        return Err("a synced write after a failed first open was lost".to_string());
    }
    Ok(())
}
