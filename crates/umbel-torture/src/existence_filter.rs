//! The histories of `umbel-existence`: a user with a log and keys, a filter on the crash disk, and
//! whatever can happen to them. No key of the log may ever be denied.
//!
//! They are those of the crate's own tests, which take some hundred seeds.

#[path = "../../umbel-existence/tests/suite/history.rs"]
mod history;
#[path = "../../umbel-existence/tests/suite/keys.rs"]
mod keys;
#[path = "../../umbel-existence/tests/suite/plants.rs"]
mod plants;
#[path = "../../umbel-existence/tests/suite/rot.rs"]
mod rot;

use self::history::{Done, Plant};
use crate::check::no_panic;
use crate::random::join;
use crate::report::Tally;

/// How many seeds the campaign takes, and its small part.
pub const SEEDS: u64 = 100_000;
pub const SEEDS_SMALL: u64 = 1000;
/// Within so many seeds each planted bug must be noticed.
pub const SEEDS_PLANTED: u64 = 10_000;

/// Histories of so many seeds.
pub fn campaign(seed: u64, seeds: u64) -> Tally {
    let tally = Tally::new("existence");
    for number in 0..seeds {
        let own = join(seed, number);
        let ended = history(own, |_| ());
        tally.scenario(ended.is_ok());
        match ended {
            Ok(done) => count(&tally, &done),
            Err(text) => tally.violation(text, format!("existence {own}")),
        }
    }
    tally
}

/// One history once more.
pub fn again(seed: u64) -> Result<(), String> {
    history(seed, |_| ()).map(|done| println!("nothing was wrong: {done:?}"))
}

fn history(seed: u64, plant: Plant) -> Result<Done, String> {
    no_panic(|| history::run(seed, plant))
}

fn count(tally: &Tally, done: &Done) {
    for (what, count) in [
        ("opens", done.opens),
        ("ends of a life", done.crashes),
        ("failed calls", done.faults),
        ("lives that began with damaged files", done.rotten),
        ("growths", done.growths),
        ("rebuilds", done.rebuilds),
        ("lines healed", done.healed),
        ("keys asked for", done.checks),
    ] {
        tally.add(what, count);
    }
}

/// Whether each of the planted bugs is noticed within so many seeds.
pub fn planted(seed: u64, seeds: u64) -> Tally {
    let tally = Tally::new("existence-planted");
    for (pattern, plant) in plants::FORGOTTEN {
        hunt(&tally, &format!("'{pattern}' left out"), seed, seeds, plant);
    }
    #[cfg(feature = "canary")]
    for bug in plants::INSIDE {
        bug.turn_on();
        hunt(&tally, &format!("{bug:?}"), seed, seeds, |_| ());
        umbel_base::canary::turn_all_off();
    }
    #[cfg(not(feature = "canary"))]
    tally.skip("bugs inside the filter: they are built in with the feature canary".to_string());
    tally
}

fn hunt(tally: &Tally, bug: &str, seed: u64, seeds: u64, plant: Plant) {
    let noticed =
        (0..seeds).find_map(|number| Some((number, history(join(seed, number), plant).err()?)));
    match &noticed {
        Some((after, text)) => tally.note(format!("{bug}: noticed by seed {after}: {text:.300}")),
        None => tally.violation(
            format!("{bug}: nobody noticed in {seeds} seeds"),
            format!("existence {seed}"),
        ),
    }
    tally.scenario(noticed.is_some());
}
