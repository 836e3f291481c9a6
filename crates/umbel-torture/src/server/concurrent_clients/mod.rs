//! The histories through the server: eight clients append with both calls, with expected revisions
//! and retries, four read or subscribe, now and then streams are deleted; then the power fails, the
//! process is killed or the server is stopped; and again, on what was left. What clients were told
//! is judged, and nothing else: each stream is in order and without gaps, no append is there twice
//! or in part, what was acknowledged or seen is there, a refusal names a revision that can be, and
//! a subscription that goes on where it was is told everything once.

mod append;
mod check;
mod client;
#[path = "../../umbel-server/tests/suite/connection.rs"]
pub mod connection;
mod follow;
mod known;
mod life;
mod seam;
mod stand;
mod words;

use std::sync::Arc;

#[cfg(feature = "canary")]
use umbel_base::canary::Switch;
use umbel_events::Durability;
use umbel_sim::{Sim, Survival, When};

use crate::check::no_panic;
use crate::history::Histories;
use crate::random::{Random, join};
use crate::report::Tally;

/// The campaign; two of the bugs are of the store behind the server.
pub const CAMPAIGN: Histories = Histories {
    campaign: "histories-server",
    about: "the server",
    history,
    left_out: &["sync *.chunk", "sync_dir directory"],
    #[cfg(feature = "canary")]
    inside: &[
        Switch::ServerAnswersEarly,
        Switch::ServerRetryCountsOn,
        Switch::ServerDetailForgotten,
        Switch::ServerSubscriptionSkips,
        Switch::ServerSubscriptionRepeats,
        Switch::ServerBatchesSwapped,
        Switch::EventsSeenEarly,
        Switch::EventsPositionsReused,
    ],
};

/// Lives of one store.
const LIVES: u64 = 3;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histories_hold_through_the_server() {
        let outcome = CAMPAIGN.run(1, 6).end();
        assert_eq!(outcome.violation_count, 0, "{:?}", outcome.violations);
        assert!(outcome.counts["appends acknowledged"] > 100, "{:?}", outcome.counts);
        assert!(outcome.counts["events told to subscriptions"] > 100, "{:?}", outcome.counts);
    }
}
