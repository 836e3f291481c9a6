//! Eight threads append to an event store with expected revisions and retries, four read, then the
//! process is killed or the power fails; and again, on what was left. Whatever happened, each
//! stream is in order and without gaps, no append is there twice or in part, and what was
//! acknowledged or seen is there, at its place.

mod check;
mod life;

use std::sync::Arc;

#[cfg(feature = "canary")]
use umbel_base::canary::Switch;
use umbel_events::{Durability, EventId, Expected, StoreOptions};
use umbel_sim::{Sim, Survival, When};

use crate::check::no_panic;
use crate::history::Histories;
use crate::random::{Random, join};
use crate::report::Tally;

/// The campaign.
pub const CAMPAIGN: Histories = Histories {
    campaign: "histories",
    about: "the store",
    history,
    left_out: &["sync *.chunk", "sync CHUNKS.new", "sync_dir directory"],
    #[cfg(feature = "canary")]
    inside: &[
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
    ],
};

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
