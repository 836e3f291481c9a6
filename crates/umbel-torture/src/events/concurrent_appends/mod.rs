//! Eight threads append to an event store with expected revisions and retries, and four read. At
//! some moment the process is killed or the power fails; the same store then gets the next crash
//! cycle. Each stream must be in order and without gaps. No append may exist twice or in part.
//! Acknowledged or seen events must be at their places.

mod append_check;
mod append_crash_cycle;

use std::sync::Arc;

use umbel_events::{Durability, EventId, ExpectedVersion, StoreOptions};
use umbel_sim::{CrashSide, Random, Sim, Survival};

use crate::simulation::crash_image_check::no_panic;
use crate::support::campaign_tally::CampaignTally;
use crate::support::derived_seed::derive_seed;
use crate::support::failpoint_list;
use crate::support::seeded_campaign::SeededCampaign;

/// The campaign.
pub const CAMPAIGN: SeededCampaign = SeededCampaign {
    campaign: "histories",
    subject: "the store",
    script: run_script,
    omitted_calls: &["sync *.chunk", "sync CHUNKS.new", "sync_dir directory"],
    failpoints: &failpoint_list::EVENT_STORE,
};

/// Number of crash cycles of one store.
const LIVES: u64 = 3;
const FOLDER: &str = "/events";

/// Outcome of an append, as its writer knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AttemptFate {
    /// The append was acknowledged; the values are its first revision and the position of its last
    /// event.
    Acknowledged(u64, u64),
    /// The append was refused.
    Refused,
    /// The append was neither acknowledged nor refused.
    Unknown,
}

/// An append that a writer attempted.
#[derive(Debug, Clone)]
struct AppendAttempt {
    stream: String,
    expected: ExpectedVersion,
    ids: Vec<EventId>,
    fate: AttemptFate,
}

/// Everything that the clients know of a store.
#[derive(Debug, Default)]
struct AppendOracle {
    attempts: Vec<AppendAttempt>,
    /// Events that a reader saw, by position.
    seen: Vec<(u64, EventId)>,
    /// Number of the next event.
    next_id: u64,
}

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
    let mut known = AppendOracle::default();
    for life in 0..LIVES {
        if let Some(pattern) = left_out {
            sim.ignore_calls(pattern);
        }
        let calls = 30 + random.below(if life == 0 { 2500 } else { 1500 });
        let when = if random.once_in(2) { CrashSide::Before } else { CrashSide::After };
        sim.crash_at(sim.calls() + calls, when);
        let threads = random.below(3) as usize;
        let lived = Arc::new(sim.clone());
        no_panic(|| {
            append_crash_cycle::live(
                &lived,
                derive_seed(seed, life),
                durability,
                threads,
                &mut known,
            )
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
        let keeps_all = killed || durability == Durability::Synced;
        let opened = options(&sim, durability, 0);
        no_panic(|| append_check::check(opened, keeps_all, &mut known, tally))?;
    }
    Ok(())
}
