//! One crash cycle (life) of an event store with subscribers. If the cycle ends without a crash,
//! the last append goes to all subscriptions, and every subscriber waits for it. A subscriber that
//! the store fails to wake times out.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use umbel::Env;
use umbel_base::ignore_poison::IgnorePoison;
use umbel_env::JoinHandle;
use umbel_events::{
    Durability, Error, ExpectedVersion, NewEvent, Position, Store, StreamAppend, StreamState,
};
use umbel_sim::{Random, Sim};

use super::{FOLDER, RETAINED_STREAMS, TRUNCATED_STREAMS, options};
use crate::events::subscriptions::crash_cycle_state::{CyclePhase, SubscriptionCycle};
use crate::events::subscriptions::event_oracle::{AppendedEvent, EventOracle};
use crate::events::subscriptions::retention_thread;
use crate::events::subscriptions::subscriber::Subscriber;
use crate::events::subscriptions::subscriber_thread::run_subscriber;
use crate::support::campaign_tally::{CampaignTally, now};
use crate::support::derived_seed::derive_seed;

const APPENDERS: u64 = 4;
/// Number of appends of each writer.
const APPENDS: u64 = 60;
/// Number of large appends at the beginning of some stores' first crash cycle, so that views have
/// blocks.
const LARGE_APPENDS: u64 = 12;
const LARGE_EVENTS: u64 = 100;

/// Plan of a crash cycle.
#[derive(Debug, Clone, Copy)]
pub struct SubscriptionCyclePlan {
    /// Seed of all threads.
    pub seed: u64,
    /// Durability of acknowledged appends.
    pub durability: Durability,
    /// Threads of the store.
    pub threads: usize,
    /// Whether one stream gets many events at once.
    pub begins_with_many: bool,
    /// Whether a stream may be tombstoned.
    pub may_tombstone: bool,
}

/// Runs threads until all are done or the crash has happened. A returned error is a violation.
pub fn run_life(
    sim: &Sim,
    plan: &SubscriptionCyclePlan,
    followers: &mut Vec<Subscriber>,
    oracle: &mut EventOracle,
    tally: &CampaignTally,
) -> Result<(), String> {
    // A world that ends during the open has acknowledged nothing.
    let opened = Store::open(FOLDER, options(sim, plan.durability, plan.threads));
    let store = match opened {
        Ok(store) => store,
        Err(_) if sim.is_dead() => return Ok(()),
        Err(error) => return Err(format!("opening: {error}")),
    };
    let life = Arc::new(SubscriptionCycle::new(sim, store, std::mem::take(oracle)));
    let back = Arc::new(Mutex::new(Vec::new()));
    let mut following = Vec::new();
    for (number, follower) in followers.drain(..).enumerate() {
        let (shared, back) = (Arc::clone(&life), Arc::clone(&back));
        let random = Random::new(derive_seed(plan.seed, 100 + number as u64));
        let work = move || {
            let followed = run_subscriber(&shared, follower, random);
            back.lock().ignore_poison().push((number, followed));
        };
        following.push(spawn("follower", work)?);
    }
    let ended = act(&life, plan)?;
    let ended = join_all(following) && ended;
    let mut back = std::mem::take(&mut *back.lock().ignore_poison());
    back.sort_by_key(|(number, _)| *number);
    followers.extend(back.into_iter().map(|(_, follower)| follower));
    *oracle = std::mem::take(&mut *life.oracle());
    tally.add("subscriptions", life.subscriptions.load(Ordering::Relaxed));
    tally.add("waits for the last append", life.waited.load(Ordering::Relaxed));
    // In half of the lives the store is not closed.
    if Random::new(derive_seed(plan.seed, 52)).once_in(2) {
        sim.crash_now();
    }
    match life.take_violation() {
        Some(text) => Err(text),
        None if !ended => Err("a thread panicked".to_string()),
        None => Ok(()),
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<Box<dyn JoinHandle>, String> {
    Env::system().threads.spawn(name, Box::new(work)).map_err(|error| error.to_string())
}

/// Waits for all threads. Returns `false` if a thread panicked.
fn join_all(threads: Vec<Box<dyn JoinHandle>>) -> bool {
    let mut ended = true;
    for thread in threads {
        ended &= thread.join();
    }
    ended
}

/// Runs all threads, then makes the last append.
fn act(life: &Arc<SubscriptionCycle>, plan: &SubscriptionCyclePlan) -> Result<bool, String> {
    let mut acting = Vec::new();
    for number in 0..APPENDERS {
        let (shared, random) = (Arc::clone(life), Random::new(derive_seed(plan.seed, number)));
        let is_large = plan.begins_with_many && number == 0;
        acting.push(spawn("appender", move || append(&shared, random, is_large))?);
    }
    let (shared, random) = (Arc::clone(life), Random::new(derive_seed(plan.seed, 50)));
    let may_tombstone = plan.may_tombstone;
    let over = Arc::new(AtomicU64::new(0));
    let over_flag = Arc::clone(&over);
    let tend = move || retention_thread::run_retention(&shared, random, may_tombstone, &over_flag);
    let custodian = spawn("custodian", tend)?;
    let mut ended = join_all(acting);
    over.store(1, Ordering::SeqCst);
    ended &= custodian.join();
    part(life, Random::new(derive_seed(plan.seed, 51)));
    Ok(ended)
}

/// Makes the last append, to all subscriptions at once, or closes the store.
fn part(life: &SubscriptionCycle, mut random: Random) {
    life.set_phase(CyclePhase::Parting(life.store.visible_position().0));
    let nap = Duration::from_micros(random.below(8000));
    life.store.wait_past(Position::END, nap);
    match last_append(life, &mut random) {
        Ok(last_before) => life.set_phase(CyclePhase::Parted(last_before, now())),
        Err(error) => {
            life.failed("the last append", &error);
            life.set_phase(CyclePhase::Ended);
            // This wakes all waiting threads.
            let _ = life.store.clone().close();
        }
    }
}

/// Makes the last append and returns the position after which it was made.
fn last_append(life: &SubscriptionCycle, random: &mut Random) -> Result<u64, Error> {
    let new = format!("cart-last-{}", life.ids(1)[0]);
    let mut streams = vec![RETAINED_STREAMS[0], RETAINED_STREAMS[2], new.as_str()];
    for stream in TRUNCATED_STREAMS {
        if life.store.stream_state(stream)? != StreamState::Tombstoned {
            streams.push(stream);
        }
    }
    let turn = random.below(streams.len() as u64) as usize;
    streams.rotate_left(turn);
    let ids = life.ids(streams.len() as u64);
    let events: Vec<_> = ids.iter().map(|id| [NewEvent::json(*id, "Paid", b"{}")]).collect();
    let appends: Vec<_> = streams
        .iter()
        .zip(&events)
        .map(|(stream, events)| StreamAppend { stream, expected: ExpectedVersion::Any, events })
        .collect();
    let last_before = life.store.visible_position().0;
    life.store.append_streams(&appends, &[])?;
    Ok(last_before)
}

fn append(life: &SubscriptionCycle, mut random: Random, begins_with_many: bool) {
    let large = if begins_with_many { LARGE_APPENDS } else { 0 };
    for number in 0..large + APPENDS {
        let is_large = number < large;
        let cut = random.below(12) as usize;
        let (stream, count) = match TRUNCATED_STREAMS.get(cut) {
            _ if is_large => (RETAINED_STREAMS[0].to_string(), LARGE_EVENTS),
            Some(stream) => (stream.to_string(), 1),
            None if random.once_in(12) => (format!("cart-new-{}", random.next()), 2),
            None => (RETAINED_STREAMS[random.below(5) as usize].to_string(), 1 + random.below(4)),
        };
        let kind = match random.below(10) {
            0 => "Paid",
            1..4 => "Added",
            4..6 => "Removed",
            _ => "Seen",
        };
        let kind = if is_large { "Paid" } else { kind };
        let ids = life.ids(count);
        let data = vec![b' '; random.below(if is_large { 40 } else { 1500 }) as usize];
        let events: Vec<_> = ids.iter().map(|id| NewEvent::json(*id, kind, &data)).collect();
        let done = match life.store.append(&stream, ExpectedVersion::Any, &events) {
            Ok(done) => done,
            Err(Error::StreamDeleted { .. }) => continue,
            Err(error) => return life.failed("appending", &error),
        };
        let (Some(revision), Some(position)) = (done.last, done.position) else {
            return life.wrong(format!("an append of events was answered with {done:?}"));
        };
        let id = ids[ids.len() - 1];
        let known = AppendedEvent { id, stream, revision, kind: kind.to_string(), is_there: false };
        let noted = life.oracle().acknowledged(position, known);
        noted.unwrap_or_else(|text| life.wrong(text));
    }
}
