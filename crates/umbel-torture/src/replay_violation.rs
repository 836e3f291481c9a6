//! Replay of a violation.

use std::path::Path;
use std::sync::Arc;

use umbel_sim::Fault;

use crate::events::{concurrent_appends, subscriptions};
use crate::kv::bit_rot::DamageDensity;
use crate::kv::crash::{self, Depth, ReplayPoint, nothing_planted};
use crate::kv::fault_campaign::{self, FAULT_KINDS, FaultPlan};
use crate::kv::{
    advisor, bit_rot, filter_rates, first_open_crashes, kill, open_time, planted_fault_campaign,
    random_model,
};
use crate::server::{calls, concurrent_clients};
use crate::simulation::script::Script;
use crate::simulation::scripts;
use crate::support::campaign_tally::CampaignTally;
use crate::support::derived_seed::{derive_seed, seed_from_name};
use crate::{directories, existence_filter};

/// The words after the campaign's name.
struct ReplayWords<'a> {
    words: Vec<&'a str>,
}

impl ReplayWords<'_> {
    fn number(&self, at: usize) -> Result<u64, String> {
        let word = self.words.get(at).ok_or("a word is missing")?;
        word.parse().map_err(|_| format!("'{word}' is no number"))
    }

    fn script(&self) -> Result<Arc<Script>, String> {
        let name = self.words.first().ok_or("the script's name is missing")?;
        let found = if *name == "filling" {
            Some(fault_campaign::full_disk_script())
        } else {
            scripts::named(name)
        };
        found.map(Arc::new).ok_or_else(|| format!("there is no script '{name}'"))
    }
}

/// Replays a violation; an error describes it.
pub fn replay(what: &str, place: &Path) -> Result<(), String> {
    let mut words = what.split_whitespace();
    let campaign = words.next().unwrap_or_default();
    let words = ReplayWords { words: words.collect() };
    match campaign {
        "crash" => replay_crash(&words),
        "faults" => replay_fault(&words),
        "rot" if words.words.get(1) == Some(&"dirty") => {
            let (seed, small) = (words.number(0)?, words.number(2)? == 1);
            let specimen = bit_rot::closed_store(seed, &nothing_planted())?;
            let flips = specimen.dirty_flips(small, seed);
            let flip = flips.get(words.number(3)? as usize).ok_or("no such flip")?;
            let verdict = specimen.read_damaged_dirty(flip)?;
            println!("not closed, {flip:?}: {verdict:?}");
            Ok(())
        }
        "rot" => {
            let (seed, small) = (words.number(0)?, words.number(1)? == 1);
            let plant = nothing_planted();
            let specimen = bit_rot::closed_store(seed, &plant)?;
            let damages = bit_rot::damages(&specimen, DamageDensity::of_campaign(small), seed);
            let damage = damages.get(words.number(2)? as usize).ok_or("no such damage")?;
            let verdict = specimen.read_damaged(damage, &plant)?;
            println!("{damage:?}: {verdict:?}");
            Ok(())
        }
        "first-open" => print_result(first_open_crashes::campaign(words.number(0)?, false)),
        "existence" => existence_filter::replay(words.number(0)?),
        "histories" => concurrent_appends::CAMPAIGN.replay(words.number(0)?),
        "histories-server" => concurrent_clients::CAMPAIGN.replay(words.number(0)?),
        "subscribers" => subscriptions::CAMPAIGN.replay(words.number(0)?),
        "calls" => calls::CAMPAIGN.replay(words.number(0)?),
        "directories" => directories::CAMPAIGN.replay(words.number(0)?),
        "kill" => print_result(kill::campaign(place, words.number(0)?, words.number(1)?)),
        "fault-detection" => {
            print_result(planted_fault_campaign::campaign(words.number(0)?, false))
        }
        "advisor" => print_result(advisor::campaign(place, words.number(0)?, words.number(1)?)),
        "filters" => {
            print_result(filter_rates::campaign(place, words.number(0)?, words.number(1)?))
        }
        "big-open" => print_result(open_time::campaign(place, words.number(0)?, open_time::KEYS)),
        "model" => print_result(random_model::campaign(
            words.number(0)? + words.number(1)?,
            random_model::OPERATIONS,
        )),
        other => Err(format!("there is no campaign '{other}'")),
    }
}

fn print_result(tally: CampaignTally) -> Result<(), String> {
    let outcome = tally.end();
    println!("{}", outcome.text("umbel-torture"));
    if outcome.violation_count == 0 { Ok(()) } else { Err("violations, see above".to_string()) }
}

fn replay_crash(words: &ReplayWords<'_>) -> Result<(), String> {
    let script = words.script()?;
    let seed = derive_seed(words.number(1)?, seed_from_name(&script.name));
    let only = Some(ReplayPoint { moment: words.number(2)?, image: words.number(3)? });
    // The depth decides the images at a moment; the violation names those of its own run.
    for depth in [Depth::FULL, Depth::SMALL] {
        let ended = crash::run_script(&script, seed, depth, only, &nothing_planted(), false);
        if let Some((text, _)) = ended.violations.first() {
            return Err(text.clone());
        }
    }
    println!("nothing was wrong");
    Ok(())
}

fn replay_fault(words: &ReplayWords<'_>) -> Result<(), String> {
    let script = words.script()?;
    let seed = derive_seed(words.number(1)?, seed_from_name(&script.name));
    let (wrong, reverts) = if words.words.get(2) == Some(&"full") {
        (FaultPlan::Small(words.number(3)?), false)
    } else {
        let kind = FAULT_KINDS.get(words.number(3)? as usize).ok_or("no such kind")?;
        let fault = Fault { kind: *kind, sticky: words.number(4)? == 1 };
        (FaultPlan::Call(words.number(2)?, fault), words.number(5)? == 1)
    };
    let noticed = fault_campaign::run(&script, seed, wrong, reverts, &nothing_planted())?;
    println!("nothing was wrong; the engine noticed: {noticed}");
    Ok(())
}
