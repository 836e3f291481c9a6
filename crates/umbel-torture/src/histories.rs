//! Eight threads append to an event store with expected revisions and retries, four read, then the
//! process is killed or the power fails; and again, on what was left. Whatever happened, each
//! stream is in order and without gaps, no append is there twice or in part, and what was
//! acknowledged or seen is there, at its place.

mod check;
mod life;

use std::sync::Arc;

use umbel_events::{Durability, EventId, Expected, StoreOptions};
use umbel_sim::{Sim, Survival, When};

use crate::check::no_panic;
use crate::random::{Random, join};
use crate::report::Tally;

/// How many seeds the campaign takes, and its small part.
pub const SEEDS: u64 = 1000;
pub const SEEDS_SMALL: u64 = 30;
/// Lives of one store.
const LIVES: u64 = 3;
const FOLDER: &str = "/events";

/// What came of an append, as far as the one who appended knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It was acknowledged: first revision, and position of the last event.
    Acknowledged(u64, u64),
    /// It was refused.
    Refused,
    /// There was no answer.
    Unknown,
}

/// An append.
#[derive(Debug, Clone)]
struct Attempt {
    stream: String,
    expected: Expected,
    ids: Vec<EventId>,
    fate: Fate,
}

/// Everything anybody knows of a store.
#[derive(Debug, Default)]
struct Known {
    attempts: Vec<Attempt>,
    /// What somebody saw at which position.
    seen: Vec<(u64, EventId)>,
    /// The number of the next event.
    next_id: u64,
}

fn id(number: u64) -> EventId {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    EventId(bytes)
}

fn options(sim: &Sim, durability: Durability, threads: usize) -> StoreOptions {
    StoreOptions {
        durability,
        background_threads: threads,
        chunk_bytes: 64 << 10,
        memory_bytes: Some(8 << 20),
        env: sim.env(),
        ..StoreOptions::default()
    }
}

/// Histories of so many seeds.
pub fn campaign(seed: u64, seeds: u64) -> Tally {
    let tally = Tally::new("histories");
    for number in 0..seeds {
        let own = join(seed, number);
        let held = match history(own, None, &tally) {
            Ok(()) => true,
            Err(text) => {
                tally.violation(format!("seed {own}: {text}"), format!("histories {own}"));
                false
            }
        };
        tally.scenario(held);
    }
    tally
}

/// One history once more. Threads take their turns as they like, so it may take some times to see
/// again what was seen once.
pub fn again(seed: u64) -> Result<(), String> {
    let tally = Tally::new("histories");
    (0..20).try_for_each(|_| history(seed, None, &tally))
}

/// One history; calls whose site fits `left_out` are not made.
fn history(seed: u64, left_out: Option<&str>, tally: &Tally) -> Result<(), String> {
    let mut random = Random::new(seed);
    let durability = if random.once_in(2) { Durability::Buffered } else { Durability::Synced };
    let mut sim = Sim::new(seed);
    let mut known = Known::default();
    for life in 0..LIVES {
        if let Some(pattern) = left_out {
            sim.ignore_calls(pattern);
        }
        let calls = 30 + random.below(if life == 0 { 2500 } else { 1500 });
        let when = if random.once_in(2) { When::Before } else { When::After };
        sim.crash_at(sim.calls() + calls, when);
        let threads = random.below(3) as usize;
        let lived = Arc::new(sim.clone());
        no_panic(|| life::live(&lived, join(seed, life), durability, threads, &mut known))?;
        tally.add("lives", 1);
        let killed = random.once_in(3);
        if !sim.is_dead() {
            sim.crash_now();
        }
        sim = match killed {
            true => sim.kill_image(),
            false => {
                let survival = Survival::any(random.next(), sim.pending_units());
                sim.crash_image(&survival, random.next())
            }
        };
        let keeps_all = killed || durability == Durability::Synced;
        let opened = options(&sim, durability, 0);
        no_panic(|| check::check(opened, keeps_all, &mut known, tally))?;
    }
    Ok(())
}

/// Calls that somebody might forget; histories must notice each.
const LEFT_OUT: [&str; 3] = ["sync *.chunk", "sync CHUNKS.new", "sync_dir directory"];

/// Bugs inside the store; histories must notice each.
#[cfg(feature = "canary")]
const INSIDE: [umbel_base::canary::Switch; 10] = {
    use umbel_base::canary::Switch;
    [
        Switch::EventsSeenEarly,
        Switch::EventsPositionsReused,
        Switch::EventsIndexAhead,
        Switch::EventsBehindGap,
        Switch::EventsRetryForgotten,
        Switch::EventsWindowLost,
        Switch::EventsHeadGoesBack,
        Switch::EventsAheadForgotten,
        Switch::EventsExpectedIgnored,
        Switch::EventsMarkerTooFar,
    ]
};

/// Whether each of the planted bugs is noticed within so many seeds.
pub fn planted(seed: u64, seeds: u64) -> Tally {
    let tally = Tally::new("histories-planted");
    for pattern in LEFT_OUT {
        hunt(&tally, &format!("'{pattern}' left out"), seed, seeds, Some(pattern));
    }
    #[cfg(feature = "canary")]
    for bug in INSIDE {
        bug.turn_on();
        hunt(&tally, &format!("{bug:?}"), seed, seeds, None);
        umbel_base::canary::turn_all_off();
    }
    #[cfg(not(feature = "canary"))]
    tally.skip("bugs inside the store: they are built in with the feature canary".to_string());
    tally
}

fn hunt(tally: &Tally, bug: &str, seed: u64, seeds: u64, left_out: Option<&str>) {
    let quiet = Tally::new(bug);
    let noticed = (0..seeds)
        .find_map(|number| Some((number, history(join(seed, number), left_out, &quiet).err()?)));
    match &noticed {
        Some((after, text)) => tally.note(format!("{bug}: noticed by seed {after}: {text}")),
        None => tally.violation(
            format!("{bug}: nobody noticed in {seeds} seeds"),
            format!("histories {seed}"),
        ),
    }
    tally.scenario(noticed.is_some());
}
