//! Sixteen subscribers, four of each kind (stream, all, filtered, view), follow an event store.
//! Other threads append to it, truncate, delete and scavenge, until the process is killed or the
//! power fails. The next crash cycle uses the same store, and the subscribers resume from their
//! checkpoints. Each subscriber must receive every event of its subscription once and in order, and
//! be able to resume from any checkpoint.

mod crash_cycle_state;
mod event_oracle;
mod retention_thread;
mod subscriber;
mod subscriber_thread;
mod subscription_check;
mod subscription_crash_cycle;

use umbel_events::{Durability, EventId, StoreOptions};
use umbel_sim::{CrashSide, Random, Sim, Survival};

use crate::simulation::crash_image_check::no_panic;
use crate::support::campaign_tally::CampaignTally;
use crate::support::derived_seed::derive_seed;
use crate::support::failpoint_list;
use crate::support::seeded_campaign::SeededCampaign;
use event_oracle::EventOracle;
use subscriber::Subscriber;

/// The campaign.
pub const CAMPAIGN: SeededCampaign = SeededCampaign {
    campaign: "subscribers",
    subject: "subscriptions",
    script: run_script,
    omitted_calls: &["sync *.chunk", "sync CHUNKS.new"],
    failpoints: &failpoint_list::SUBSCRIPTIONS,
};

/// Number of crash cycles of one store.
const LIVES: u64 = 3;
const FOLDER: &str = "/events";

/// Streams whose events are never hidden.
const RETAINED_STREAMS: [&str; 5] = ["cart-0", "cart-2", "order-0", "plain", "$own"];
/// Streams that are truncated and deleted. Each append to such a stream has one event, so that
/// acknowledgements report every event, even one that is scavenged soon.
const TRUNCATED_STREAMS: [&str; 2] = ["cart-1", "order-1"];

/// Returns the id of an event by its number.
fn event_id(number: u64) -> EventId {
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

/// Runs one script, and omits the calls whose site matches `left_out`.
fn run_script(seed: u64, left_out: Option<&str>, tally: &CampaignTally) -> Result<(), String> {
    let mut random = Random::new(seed);
    let durability = if random.once_in(2) { Durability::Buffered } else { Durability::Synced };
    let mut sim = Sim::new(seed);
    let mut followers = Subscriber::all_kinds();
    let mut oracle = EventOracle::default();
    for life in 0..LIVES {
        if let Some(pattern) = left_out {
            sim.ignore_calls(pattern);
        }
        // In one of three lives all threads finish.
        let calls = if random.once_in(3) { u64::MAX / 2 } else { 60 + random.below(4000) };
        let when = if random.once_in(2) { CrashSide::Before } else { CrashSide::After };
        sim.crash_at(sim.calls() + calls, when);
        let plan = subscription_crash_cycle::SubscriptionCyclePlan {
            seed: derive_seed(seed, life),
            durability,
            threads: random.below(3) as usize,
            begins_with_many: life == 0 && random.once_in(4),
            may_tombstone: random.once_in(4),
        };
        no_panic(|| {
            subscription_crash_cycle::run_life(&sim, &plan, &mut followers, &mut oracle, tally)
        })?;
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
        let plan = subscription_check::CheckPlan {
            options: options(&sim, durability, 0),
            seed: derive_seed(seed, 1000 + life),
            keeps_all: killed || durability == Durability::Synced,
            is_last: life + 1 == LIVES,
        };
        no_panic(|| subscription_check::check(plan, &mut followers, &mut oracle, tally))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subscribers_receive_each_event_exactly_once() {
        let tally = CAMPAIGN.run(11, 5);
        assert_eq!(tally.violations(), 0, "{}", tally.end().text("umbel-torture"));
    }
}
