//! The histories through the server: eight clients append with both calls, with expected revisions
//! and retries, four read or subscribe, now and then streams are deleted; then the power fails, the
//! process is killed or the server is stopped; and again, on what was left. What clients were told
//! is judged, and nothing else: each stream is in order and without gaps, no append is there twice
//! or in part, what was acknowledged or seen is there, a refusal names a revision that can be, and
//! a subscription that goes on where it was is told everything once.

mod append;
mod check;
mod client;
mod follow;
mod known;
mod life;
mod seam;
mod stand;
mod words;

use std::sync::Arc;

use umbel_events::Durability;
use umbel_sim::{Sim, Survival, When};

use crate::check::no_panic;
use crate::random::{Random, join};
use crate::report::Tally;

/// How many seeds the campaign takes, and its small part.
pub const SEEDS: u64 = 1000;
pub const SEEDS_SMALL: u64 = 30;
/// Lives of one store.
const LIVES: u64 = 3;

/// Histories of so many seeds.
pub fn campaign(seed: u64, seeds: u64) -> Tally {
    let tally = Tally::new("histories-server");
    for number in 0..seeds {
        let own = join(seed, number);
        let held = match history(own, None, &tally) {
            Ok(()) => true,
            Err(text) => {
                let replay = format!("histories-server {own}");
                tally.violation(format!("seed {own}: {text:.2000}"), replay);
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
    let tally = Tally::new("histories-server");
    (0..20).try_for_each(|_| history(seed, None, &tally))
}

/// One history; calls whose site fits `left_out` are not made.
fn history(seed: u64, left_out: Option<&str>, tally: &Tally) -> Result<(), String> {
    let mut random = Random::new(seed);
    let durability = if random.once_in(2) { Durability::Buffered } else { Durability::Synced };
    let deletes = random.once_in(2);
    let mut sim = Sim::new(seed);
    let mut known = known::Known::default();
    for life in 0..LIVES {
        if let Some(pattern) = left_out {
            sim.ignore_calls(pattern);
        }
        let manner = stand::Manner { durability, threads: 1 + random.below(2) as usize };
        let stops = random.once_in(6).then(|| random.below(60));
        let calls = 30 + random.below(if life == 0 { 2500 } else { 1500 });
        let when = if random.once_in(2) { When::Before } else { When::After };
        if stops.is_none() {
            sim.crash_at(sim.calls() + calls, when);
        }
        let plan = life::Plan { manner, deletes, stops, seed: join(seed, life) };
        let lived = Arc::new(sim.clone());
        let closed = no_panic(|| life::live(&lived, &plan, &mut known))?;
        let killed = random.once_in(3);
        tally.add("lives", 1);
        tally.add(if closed { "lives that ended with a stop" } else { "lives cut short" }, 1);
        sim = match killed {
            true => sim.kill_image(),
            false => {
                let survival = Survival::any(random.next(), sim.pending_units());
                sim.crash_image(&survival, random.next())
            }
        };
        let keeps_all = killed || closed || durability == Durability::Synced;
        sim = no_panic(|| check::check(&sim, manner, keeps_all, &mut known, &mut random, tally))?;
    }
    let count = |wanted: fn(&known::Fate) -> bool| {
        known.attempts.iter().filter(|attempt| wanted(&attempt.fate)).count() as u64
    };
    tally.add("appends acknowledged", count(|fate| matches!(fate, known::Fate::Acknowledged(..))));
    tally.add("appends refused", count(|fate| *fate == known::Fate::Refused));
    tally.add("events told to subscriptions", known.followed_all.len() as u64);
    tally.add("deletions acknowledged", known.endings.len() as u64);
    Ok(())
}

/// Calls that somebody might forget; histories must notice each.
const LEFT_OUT: [&str; 2] = ["sync *.chunk", "sync_dir directory"];

/// Bugs inside the server, and two of the store behind it; histories must notice each.
#[cfg(feature = "canary")]
const INSIDE: [umbel_base::canary::Switch; 8] = {
    use umbel_base::canary::Switch;
    [
        Switch::ServerAnswersEarly,
        Switch::ServerRetryCountsOn,
        Switch::ServerDetailForgotten,
        Switch::ServerSubscriptionSkips,
        Switch::ServerSubscriptionRepeats,
        Switch::ServerBatchesSwapped,
        Switch::EventsSeenEarly,
        Switch::EventsPositionsReused,
    ]
};

/// Whether each of the planted bugs is noticed within so many seeds.
pub fn planted(seed: u64, seeds: u64) -> Tally {
    let tally = Tally::new("histories-server-planted");
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
    tally.skip("bugs inside the server: they are built in with the feature canary".to_string());
    tally
}

fn hunt(tally: &Tally, bug: &str, seed: u64, seeds: u64, left_out: Option<&str>) {
    let quiet = Tally::new(bug);
    let noticed = (0..seeds)
        .find_map(|number| Some((number, history(join(seed, number), left_out, &quiet).err()?)));
    match &noticed {
        Some((after, text)) => tally.note(format!("{bug}: noticed by seed {after}: {text:.300}")),
        None => tally.violation(
            format!("{bug}: nobody noticed in {seeds} seeds"),
            format!("histories-server {seed}"),
        ),
    }
    tally.scenario(noticed.is_some());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histories_hold_through_the_server() {
        let outcome = campaign(1, 6).end();
        assert_eq!(outcome.violation_count, 0, "{:?}", outcome.violations);
        assert!(outcome.counts["appends acknowledged"] > 100, "{:?}", outcome.counts);
        assert!(outcome.counts["events told to subscriptions"] > 100, "{:?}", outcome.counts);
    }
}
