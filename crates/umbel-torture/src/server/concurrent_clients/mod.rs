//! Scripts through the server: eight clients append with `Append` and `BatchAppend`, with expected
//! revisions and retries, and four clients read or subscribe. Streams are sometimes deleted. At
//! some moment the power fails, the process is killed or the server is stopped; the same store then
//! gets the next crash cycle.
//!
//! Only what clients received is checked:
//!
//! - Each stream is in order and without gaps.
//! - No append exists twice or in part.
//! - Everything acknowledged or seen exists.
//! - A refusal names a possible revision.
//! - A resumed subscription delivers each event once.

mod append_clients;
mod catch_up_boundary;
mod checked_client;
mod client_oracle;
mod message_convert;
mod reader_clients;
mod server_check;
mod server_crash_cycle;
mod server_cycle_state;
mod test_server;

use std::sync::Arc;

use umbel_events::Durability;
use umbel_sim::{CrashSide, Random, Sim, Survival};

use crate::simulation::crash_image_check::no_panic;
use crate::support::campaign_tally::CampaignTally;
use crate::support::derived_seed::derive_seed;
use crate::support::failpoint_list;
use crate::support::seeded_campaign::SeededCampaign;

/// The campaign; some of its faults are in the event store below the server.
pub const CAMPAIGN: SeededCampaign = SeededCampaign {
    campaign: "histories-server",
    subject: "the server",
    script: run_script,
    omitted_calls: &["sync *.chunk", "sync_dir directory"],
    failpoints: &failpoint_list::SERVER,
};

/// Number of crash cycles of one store.
const LIVES: u64 = 3;

/// Runs one script, and omits the calls whose site matches `left_out`.
fn run_script(seed: u64, left_out: Option<&str>, tally: &CampaignTally) -> Result<(), String> {
    let mut random = Random::new(seed);
    let durability = if random.once_in(2) { Durability::Buffered } else { Durability::Synced };
    let deletes = random.once_in(2);
    let mut sim = Sim::new(seed);
    let mut known = client_oracle::ClientOracle::default();
    for life in 0..LIVES {
        if let Some(pattern) = left_out {
            sim.ignore_calls(pattern);
        }
        let mode = test_server::StoreMode { durability, threads: 1 + random.below(2) as usize };
        let stops = random.once_in(6).then(|| random.below(60));
        let calls = 30 + random.below(if life == 0 { 2500 } else { 1500 });
        let when = if random.once_in(2) { CrashSide::Before } else { CrashSide::After };
        if stops.is_none() {
            sim.crash_at(sim.calls() + calls, when);
        }
        let plan = server_crash_cycle::ServerCyclePlan {
            mode,
            deletes,
            stops,
            seed: derive_seed(seed, life),
        };
        let lived = Arc::new(sim.clone());
        let closed = no_panic(|| server_crash_cycle::run_life(&lived, &plan, &mut known))?;
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
        sim = no_panic(|| {
            server_check::check(&sim, mode, keeps_all, &mut known, &mut random, tally)
        })?;
    }
    let count = |wanted: fn(&client_oracle::ClientFate) -> bool| {
        known.attempts.iter().filter(|attempt| wanted(&attempt.fate)).count() as u64
    };
    tally.add(
        "appends acknowledged",
        count(|fate| matches!(fate, client_oracle::ClientFate::Acknowledged(..))),
    );
    tally.add("appends refused", count(|fate| *fate == client_oracle::ClientFate::Refused));
    tally.add("events delivered to subscriptions", known.subscribed_all.len() as u64);
    tally.add("deletions acknowledged", known.deletions.len() as u64);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_hold_through_the_server() {
        let outcome = CAMPAIGN.run(1, 6).end();
        assert_eq!(outcome.violation_count, 0, "{:?}", outcome.violations);
        assert!(outcome.counts["appends acknowledged"] > 100, "{:?}", outcome.counts);
        assert!(outcome.counts["events delivered to subscriptions"] > 100, "{:?}", outcome.counts);
    }
}
