//! Sixteen subscribers, four of each kind (a stream, all, filtered, a view), follow an event store
//! that others append to, truncate, delete from and scavenge, until the process is killed or the
//! power fails; and again, on what was left, from the checkpoints they kept. Whatever happened,
//! each was told every event of its kind once and in order, and can go on behind any checkpoint.

mod check;
mod custodian;
mod follower;
mod following;
mod ledger;
mod life;
mod stage;

#[cfg(feature = "canary")]
use umbel_base::canary::Switch;
use umbel_events::{Durability, EventId, StoreOptions};
use umbel_sim::{Sim, Survival, When};

use crate::check::no_panic;
use crate::history::Histories;
use crate::random::{Random, join};
use crate::report::Tally;
use follower::Follower;
use ledger::Ledger;

/// The campaign.
pub const CAMPAIGN: Histories = Histories {
    campaign: "subscribers",
    about: "subscriptions",
    history,
    left_out: &["sync *.chunk", "sync CHUNKS.new"],
    #[cfg(feature = "canary")]
    inside: &[
        Switch::SubscriptionSkips,
        Switch::SubscriptionRepeats,
        Switch::SubscriptionAhead,
        Switch::SubscriberNotWoken,
        Switch::FilterExaminedTooFar,
        Switch::FilterDropsLast,
        Switch::ViewCountsTwice,
        Switch::ViewTailForgotten,
        Switch::ViewBlockShort,
        Switch::ViewResumesLate,
        Switch::EventsSeenEarly,
        Switch::EventsPositionsReused,
    ],
};

/// Lives of one store.
const LIVES: u64 = 3;
const FOLDER: &str = "/events";

/// Streams of which nothing is ever hidden.
const KEPT: [&str; 5] = ["cart-0", "cart-2", "order-0", "plain", "$own"];
/// Streams that are truncated and deleted. Each append to one has one event, so that what was
/// acknowledged tells of every event of theirs, also of those that are scavenged soon.
const CUT: [&str; 2] = ["cart-1", "order-1"];

/// The id of an event by its number.
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
    let mut followers = Follower::everybody();
    let mut ledger = Ledger::default();
    for life in 0..LIVES {
        if let Some(pattern) = left_out {
            sim.ignore_calls(pattern);
        }
        // In one of three lives everybody gets done.
        let calls = if random.once_in(3) { u64::MAX / 2 } else { 60 + random.below(4000) };
        let when = if random.once_in(2) { When::Before } else { When::After };
        sim.crash_at(sim.calls() + calls, when);
        let plan = life::Plan {
            seed: join(seed, life),
            durability,
            threads: random.below(3) as usize,
            begins_with_many: life == 0 && random.once_in(4),
            may_tombstone: random.once_in(4),
        };
        no_panic(|| life::live(&sim, &plan, &mut followers, &mut ledger, tally))?;
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
        let plan = check::Plan {
            options: options(&sim, durability, 0),
            seed: join(seed, 1000 + life),
            keeps_all: killed || durability == Durability::Synced,
            is_last: life + 1 == LIVES,
        };
        no_panic(|| check::check(plan, &mut followers, &mut ledger, tally))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subscribers_miss_nothing_and_are_told_nothing_twice() {
        let tally = CAMPAIGN.run(11, 5);
        assert_eq!(tally.violations(), 0, "{}", tally.end().text("umbel-torture"));
    }
}
