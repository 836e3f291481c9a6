//! One life of an event store with subscribers, until the world ends. Where it does not, the last
//! append goes to all who are followed, and everybody waits for it: who is forgotten then, waits
//! too long.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use umbel::Env;
use umbel_env::JoinHandle;
use umbel_events::{
    Durability, Error, Expected, NewEvent, Position, Store, StreamAppend, StreamState,
};
use umbel_sim::Sim;

use super::follower::Follower;
use super::following::follow;
use super::ledger::{Known, Ledger};
use super::stage::{Phase, Stage, locked};
use super::{CUT, FOLDER, KEPT, custodian, options};
use crate::random::{Random, join};
use crate::report::{Tally, now};

const APPENDERS: u64 = 4;
/// Appends of each who appends.
const APPENDS: u64 = 60;
/// Appends of many events each, with which some first lives begin, so that views have blocks.
const LARGE_APPENDS: u64 = 12;
const LARGE_EVENTS: u64 = 100;

/// What a life is like.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Decides what everybody does.
    pub seed: u64,
    /// What acknowledged appends survive.
    pub durability: Durability,
    /// Threads of the store.
    pub threads: usize,
    /// Whether one stream gets many events at once.
    pub begins_with_many: bool,
    /// Whether a stream may be ended for good.
    pub may_tombstone: bool,
}

/// Lives until everybody is done or the world has ended. An error is something that was wrong.
pub fn live(
    sim: &Sim,
    plan: &Plan,
    followers: &mut Vec<Follower>,
    ledger: &mut Ledger,
    tally: &Tally,
) -> Result<(), String> {
    // Where the world ends in the opening, nothing was promised.
    let opened = Store::open(FOLDER, options(sim, plan.durability, plan.threads));
    let store = match opened {
        Ok(store) => store,
        Err(_) if sim.is_dead() => return Ok(()),
        Err(error) => return Err(format!("opening: {error}")),
    };
    let stage = Arc::new(Stage::new(sim, store, std::mem::take(ledger)));
    let back = Arc::new(Mutex::new(Vec::new()));
    let mut following = Vec::new();
    for (number, follower) in followers.drain(..).enumerate() {
        let (shared, back) = (Arc::clone(&stage), Arc::clone(&back));
        let random = Random::new(join(plan.seed, 100 + number as u64));
        let work = move || {
            let followed = follow(&shared, follower, random);
            locked(&back).push((number, followed));
        };
        following.push(spawn("follower", work)?);
    }
    let ended = act(&stage, plan)?;
    let ended = join_all(following) && ended;
    let mut back = std::mem::take(&mut *locked(&back));
    back.sort_by_key(|(number, _)| *number);
    followers.extend(back.into_iter().map(|(_, follower)| follower));
    *ledger = std::mem::take(&mut *stage.ledger());
    tally.add("subscriptions", stage.subscriptions.load(Ordering::Relaxed));
    tally.add("waits for the last append", stage.waited.load(Ordering::Relaxed));
    // In half of the lives nothing is closed.
    if Random::new(join(plan.seed, 52)).once_in(2) {
        sim.crash_now();
    }
    match stage.take_wrong() {
        Some(text) => Err(text),
        None if !ended => Err("a thread panicked".to_string()),
        None => Ok(()),
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<Box<dyn JoinHandle>, String> {
    Env::system().threads.spawn(name, Box::new(work)).map_err(|error| error.to_string())
}

/// Waits for all of them. `false` where one panicked.
fn join_all(threads: Vec<Box<dyn JoinHandle>>) -> bool {
    let mut ended = true;
    for thread in threads {
        ended &= thread.join();
    }
    ended
}

/// Has everybody append, and parts.
fn act(stage: &Arc<Stage>, plan: &Plan) -> Result<bool, String> {
    let mut acting = Vec::new();
    for number in 0..APPENDERS {
        let (shared, random) = (Arc::clone(stage), Random::new(join(plan.seed, number)));
        let is_large = plan.begins_with_many && number == 0;
        acting.push(spawn("appender", move || append(&shared, random, is_large))?);
    }
    let (shared, random) = (Arc::clone(stage), Random::new(join(plan.seed, 50)));
    let may_tombstone = plan.may_tombstone;
    let over = Arc::new(AtomicU64::new(0));
    let told = Arc::clone(&over);
    let tend = move || custodian::tend(&shared, random, may_tombstone, &told);
    let custodian = spawn("custodian", tend)?;
    let mut ended = join_all(acting);
    over.store(1, Ordering::SeqCst);
    ended &= custodian.join();
    part(stage, Random::new(join(plan.seed, 51)));
    Ok(ended)
}

/// Makes the last append, to all who are followed at once, or ends everything.
fn part(stage: &Stage, mut random: Random) {
    stage.set_phase(Phase::Parting(stage.store.visible().0));
    let nap = Duration::from_micros(random.below(8000));
    stage.store.wait_beyond(Position::END, nap);
    match last_append(stage, &mut random) {
        Ok(behind) => stage.set_phase(Phase::Parted(behind, now())),
        Err(error) => {
            stage.failed("the last append", &error);
            stage.set_phase(Phase::Ended);
            // This wakes everybody.
            let _ = stage.store.clone().close();
        }
    }
}

/// Returns the position behind which it was made.
fn last_append(stage: &Stage, random: &mut Random) -> Result<u64, Error> {
    let new = format!("cart-last-{}", stage.ids(1)[0]);
    let mut streams = vec![KEPT[0], KEPT[2], new.as_str()];
    for stream in CUT {
        if stage.store.stream(stream)? != StreamState::Tombstoned {
            streams.push(stream);
        }
    }
    let turn = random.below(streams.len() as u64) as usize;
    streams.rotate_left(turn);
    let ids = stage.ids(streams.len() as u64);
    let events: Vec<_> = ids.iter().map(|id| [NewEvent::json(*id, "Paid", b"{}")]).collect();
    let appends: Vec<_> = streams
        .iter()
        .zip(&events)
        .map(|(stream, events)| StreamAppend { stream, expected: Expected::Any, events })
        .collect();
    let behind = stage.store.visible().0;
    stage.store.append_together(&appends, &[])?;
    Ok(behind)
}

fn append(stage: &Stage, mut random: Random, begins_with_many: bool) {
    let large = if begins_with_many { LARGE_APPENDS } else { 0 };
    for number in 0..large + APPENDS {
        let is_large = number < large;
        let cut = random.below(12) as usize;
        let (stream, count) = match CUT.get(cut) {
            _ if is_large => (KEPT[0].to_string(), LARGE_EVENTS),
            Some(stream) => (stream.to_string(), 1),
            None if random.once_in(12) => (format!("cart-new-{}", random.next()), 2),
            None => (KEPT[random.below(5) as usize].to_string(), 1 + random.below(4)),
        };
        let kind = match random.below(10) {
            0 => "Paid",
            1..4 => "Added",
            4..6 => "Removed",
            _ => "Seen",
        };
        let kind = if is_large { "Paid" } else { kind };
        let ids = stage.ids(count);
        let data = vec![b' '; random.below(if is_large { 40 } else { 1500 }) as usize];
        let events: Vec<_> = ids.iter().map(|id| NewEvent::json(*id, kind, &data)).collect();
        let done = match stage.store.append(&stream, Expected::Any, &events) {
            Ok(done) => done,
            Err(Error::Deleted { .. }) => continue,
            Err(error) => return stage.failed("appending", &error),
        };
        let (Some(revision), Some(position)) = (done.last, done.position) else {
            return stage.wrong(format!("an append of events was answered with {done:?}"));
        };
        let id = ids[ids.len() - 1];
        let known = Known { id, stream, revision, kind: kind.to_string(), is_there: false };
        let noted = stage.ledger().acknowledged(position, known);
        noted.unwrap_or_else(|text| stage.wrong(text));
    }
}
