//! Doing once more what a violation says.

use std::path::Path;
use std::sync::Arc;

use umbel_sim::Fault;

use crate::crash::{self, Depth, Spot, nothing_planted};
use crate::faults::{self, KINDS, Wrong};
use crate::random::{join, of_name};
use crate::report::Tally;
use crate::script::Script;
use crate::{
    advisor, answers, big_open, calls, canaries, directories, existence, filters, first_open,
    histories, histories_server, kill, rot, scripts, subscribers,
};

/// The words behind the campaign's name.
struct Words<'a> {
    words: Vec<&'a str>,
}

impl Words<'_> {
    fn number(&self, at: usize) -> Result<u64, String> {
        let word = self.words.get(at).ok_or("a word is missing")?;
        word.parse().map_err(|_| format!("'{word}' is no number"))
    }

    fn script(&self) -> Result<Arc<Script>, String> {
        let name = self.words.first().ok_or("the script's name is missing")?;
        let found = if *name == "filling" { Some(faults::filling()) } else { scripts::named(name) };
        found.map(Arc::new).ok_or_else(|| format!("there is no script '{name}'"))
    }
}

/// Replays; an error says what was found.
pub fn replay(what: &str, place: &Path) -> Result<(), String> {
    let mut words = what.split_whitespace();
    let campaign = words.next().unwrap_or_default();
    let words = Words { words: words.collect() };
    match campaign {
        "crash" => crash_again(&words),
        "faults" => fail_again(&words),
        "rot" if words.words.get(1) == Some(&"dirty") => {
            show(rot::campaign(words.number(0)?, true))
        }
        "rot" => {
            let (seed, small) = (words.number(0)?, words.number(1)? == 1);
            let plant = nothing_planted();
            let specimen = rot::specimen(seed, &plant)?;
            let damages = rot::damages(&specimen, small, seed);
            let damage = damages.get(words.number(2)? as usize).ok_or("no such damage")?;
            let verdict = specimen.judge(damage, &plant)?;
            println!("{damage:?}: {verdict:?}");
            Ok(())
        }
        "first-open" => show(first_open::campaign(words.number(0)?, false)),
        "existence" => existence::again(words.number(0)?),
        "histories" => histories::CAMPAIGN.again(words.number(0)?),
        "histories-server" => histories_server::CAMPAIGN.again(words.number(0)?),
        "subscribers" => subscribers::CAMPAIGN.again(words.number(0)?),
        "calls" => calls::CAMPAIGN.again(words.number(0)?),
        "directories" => directories::CAMPAIGN.again(words.number(0)?),
        "kill" => show(kill::campaign(place, words.number(0)?, words.number(1)?)),
        "canaries" => show(canaries::campaign(words.number(0)?, false)),
        "advisor" => show(advisor::campaign(place, words.number(0)?, words.number(1)?)),
        "filters" => show(filters::campaign(place, words.number(0)?, words.number(1)?)),
        "big-open" => show(big_open::campaign(place, words.number(0)?, big_open::KEYS)),
        "model" => {
            show(answers::campaign(words.number(0)? + words.number(1)?, answers::OPERATIONS))
        }
        other => Err(format!("there is no campaign '{other}'")),
    }
}

fn show(tally: Tally) -> Result<(), String> {
    let outcome = tally.end();
    println!("{}", outcome.text("umbel-torture"));
    if outcome.violation_count == 0 { Ok(()) } else { Err("violations, see above".to_string()) }
}

fn crash_again(words: &Words<'_>) -> Result<(), String> {
    let script = words.script()?;
    let seed = join(words.number(1)?, of_name(&script.name));
    let only = Some(Spot { moment: words.number(2)?, image: words.number(3)? });
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

fn fail_again(words: &Words<'_>) -> Result<(), String> {
    let script = words.script()?;
    let seed = join(words.number(1)?, of_name(&script.name));
    let (wrong, reverts) = if words.words.get(2) == Some(&"full") {
        (Wrong::Small(words.number(3)?), false)
    } else {
        let kind = KINDS.get(words.number(3)? as usize).ok_or("no such kind")?;
        let fault = Fault { kind: *kind, sticky: words.number(4)? == 1 };
        (Wrong::Call(words.number(2)?, fault), words.number(5)? == 1)
    };
    let noticed = faults::run(&script, seed, wrong, reverts, &nothing_planted())?;
    println!("nothing was wrong; the engine noticed: {noticed}");
    Ok(())
}
