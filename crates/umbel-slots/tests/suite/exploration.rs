//! Explores the state machines of the replicated log with every order of requests, lost answers,
//! late effects, lists that lag, pauses that a node does not see, crashes and lost disks, up to a
//! bound. Checks in every state that what was acknowledged is what the chain has. Each node has an
//! event store, too, which appends, closes and follows: [`super::explored_events`].
//!
//! `UMBEL_SLOT_STATES=5000000 cargo test --release -p umbel-slots --test suite exploration` is the
//! campaign; a normal test run explores fewer states.

use std::collections::{HashSet, VecDeque};

use umbel_sim::Random;
use umbel_slots::SlotTimes;

use super::explored_actions::{Action, Bounds, Event, SLOTS};
use super::explored_store::StoreFault;
use super::explored_world::{Failed, NODES, World, times};

/// States and random histories of a normal test run.
pub const STATES: usize = 30_000;
pub const WALKS: usize = 220;
/// Histories within which a planted fault must be found.
pub const PLANTED_WALKS: u64 = 4000;
/// Events that are tried for each one that happens, at most.
const ATTEMPTS: usize = 100;
/// Mean number of events between two stalls of a node, and the longest stall.
const STALL_INTERVAL: u64 = 10;
const STALL_EVENTS_MAX: usize = 200;

/// Result of an exploration.
pub struct Explored {
    pub states: usize,
    pub is_complete: bool,
    /// The first violation, with the events that led to it.
    pub violation: Option<String>,
}

/// The violation with its history.
fn told(failed: &Failed, events: &[Event]) -> String {
    let events: Vec<String> = events.iter().map(|event| format!("{event:?}")).collect();
    format!("{}, in {:?} after\n{}", failed.violation, failed.event, events.join("\n"))
}

/// Explores states in the order of the number of events that lead to them, up to a number of
/// states.
pub fn explore(world: World, times: SlotTimes, states_max: usize) -> Explored {
    let mut seen = HashSet::from([world.fingerprint()]);
    // Each state's event, and the index of the state before.
    let mut paths: Vec<(usize, Event)> = vec![(0, Event::Start(0))];
    let mut open = VecDeque::from([(0, world)]);
    while let Some((index, world)) = open.pop_front() {
        for event in world.events(times) {
            let successors = match world.successors(event, times) {
                Ok(successors) => successors,
                Err(failed) => {
                    let mut events = Vec::new();
                    let mut at = index;
                    while at != 0 {
                        events.push(paths[at].1);
                        at = paths[at].0;
                    }
                    events.reverse();
                    let violation = Some(told(&failed, &events));
                    return Explored { states: seen.len(), is_complete: false, violation };
                }
            };
            for (event, next) in successors {
                if seen.len() >= states_max {
                    return Explored { states: seen.len(), is_complete: false, violation: None };
                }
                if seen.insert(next.fingerprint()) {
                    paths.push((index, event));
                    open.push_back((paths.len() - 1, next));
                }
            }
        }
    }
    Explored { states: seen.len(), is_complete: true, violation: None }
}

/// A node that does nothing for a while, as a stopped process.
#[derive(Default)]
struct Stall {
    node: usize,
    events_left: usize,
    /// Whether its clock stands still meanwhile, as that of a machine that pauses.
    pauses: bool,
}

impl Stall {
    /// Whether the stalled node would do this. Begins and ends stalls.
    fn stops(&mut self, random: &mut Random, world: &World, event: Event) -> bool {
        self.events_left = self.events_left.saturating_sub(1);
        if self.events_left == 0 && random.below(STALL_INTERVAL) == 0 {
            let sender = world.sender();
            self.node = sender.unwrap_or_else(|| random.below_usize(NODES));
            self.events_left = random.below_usize(STALL_EVENTS_MAX);
            self.pauses = sender.is_some() || random.below(2) == 0;
        }
        let stops = match event {
            Event::Act { node, .. }
            | Event::Send(node)
            | Event::Effect { node, .. }
            | Event::TakeOver(node)
            | Event::Upload { node, .. }
            | Event::CollectRound { node, .. } => node == self.node,
            Event::Tick { paused, .. } => self.pauses && paused != self.node,
            _ => false,
        };
        stops && self.events_left > 0
    }
}

/// Whether a random history drops most of these events, which would hide the others.
fn is_rare(event: Event) -> bool {
    match event {
        Event::Tick { .. }
        | Event::Crash { .. }
        | Event::Close(_)
        | Event::Demote(_)
        | Event::OpenAlone(_)
        | Event::Detach(_)
        | Event::Replace(_) => true,
        Event::Act { action: Action::RestartCollection | Action::Append { .. }, .. } => true,
        Event::TurnBack { .. } | Event::LoseSnapshot => true,
        Event::Act { .. } | Event::Land(_) | Event::Start(_) => false,
        Event::Send(_) | Event::Effect { .. } => false,
        Event::TakeOver(_) | Event::CollectRound { .. } | Event::Upload { .. } => false,
    }
}

/// Lets this many random events happen. Returns the state after them.
pub fn walk(mut world: World, times: SlotTimes, seed: u64, count: usize) -> Result<World, String> {
    let mut random = Random::new(seed);
    let mut happened = Vec::new();
    // Long histories with appends take most of the time.
    world.joins_steps = world.left.appends == 0 || seed.is_multiple_of(4);
    let mut stall = Stall::default();
    // All nodes can be detached: then nothing can happen.
    for _ in 0..count * ATTEMPTS {
        if happened.len() >= count {
            break;
        }
        let events = world.events(times);
        let mut event = events[random.below_usize(events.len())];
        if stall.stops(&mut random, &world, event) {
            continue;
        }
        let is_held = match event {
            Event::Land(_) => world.holds_late,
            // A leader needs long to delete a file.
            Event::TakeOver(_) | Event::Act { action: Action::BeginEpoch, .. } => world.has_files,
            _ => false,
        };
        if (is_held || is_rare(event)) && random.below(8) != 0 {
            continue;
        }
        if let Some(outcome) = event.outcome() {
            // Half of the requests have no fault.
            *outcome = random.below_usize(6).saturating_sub(3);
        }
        match world.apply(event, times) {
            Ok(0) => {}
            Ok(_) => happened.push(event),
            Err(violation) => return Err(told(&Failed { event, violation }, &happened)),
        }
    }
    Ok(world)
}

pub fn from_environment(name: &str, default: usize) -> usize {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

#[test]
fn nothing_acknowledged_is_lost_in_any_order_of_events() {
    let bounds = Bounds { proposals: 3, snapshots: 1, crashes: 1, ticks: 2, ..SLOTS };
    let times = times(1, 4);
    let states_max = from_environment("UMBEL_SLOT_STATES", STATES);
    let explored = explore(World::new(bounds, times, StoreFault::None), times, states_max);
    if let Some(violation) = explored.violation {
        panic!("{violation}");
    }
    assert!(explored.is_complete || explored.states >= states_max);
}

/// Bounds of random histories.
const LONG: Bounds = Bounds { proposals: 30, snapshots: 6, crashes: 4, ticks: 16, ..SLOTS };
/// Events of a random history.
const EVENTS: usize = 300;

#[test]
fn nothing_acknowledged_is_lost_in_long_histories() {
    let times = times(1, 4);
    let world = World::new(LONG, times, StoreFault::None);
    let mut acknowledged = 0;
    for seed in 0..from_environment("UMBEL_SLOT_WALKS", WALKS) as u64 {
        match walk(world.clone(), times, seed, EVENTS) {
            Ok(world) => acknowledged += world.acknowledged,
            Err(violation) => panic!("seed {seed}: {violation}"),
        }
    }
    assert!(acknowledged > 1000, "{acknowledged} acknowledged slots show nothing");
}

#[test]
fn nothing_acknowledged_is_lost_with_short_pages_and_skewed_servers() {
    let times = SlotTimes { skew: times(1, 20).fresh, ..times(1, 20) };
    let mut world = World::new(LONG, times, StoreFault::None);
    (world.store.odd_slots_late, world.store.page_objects) = (1, 1);
    let mut acknowledged = 0;
    for seed in 0..from_environment("UMBEL_SLOT_WALKS", WALKS) as u64 {
        match walk(world.clone(), times, seed, EVENTS) {
            Ok(world) => acknowledged += world.acknowledged,
            Err(violation) => panic!("seed {seed}: {violation}"),
        }
    }
    assert!(acknowledged > 1000, "{acknowledged} acknowledged slots show nothing");
}

/// The number of the history that shows a fault.
fn first_violation(times: SlotTimes, fault: StoreFault) -> Option<u64> {
    let world = World::new(LONG, times, fault);
    (0..PLANTED_WALKS).find(|seed| walk(world.clone(), times, *seed, EVENTS).is_err())
}

#[test]
fn planted_faults_are_found() {
    let right = times(1, 4);
    for fault in [StoreFault::IgnoresConditions, StoreFault::EarlyAnswers] {
        let found = first_violation(right, fault);
        assert!(found.is_some(), "{fault:?}");
    }
    // A leader that trusts any old success, and deletions at once.
    for (name, wrong) in [("no freshness", times(1000, 4)), ("no age", times(1, 0))] {
        let found = first_violation(wrong, StoreFault::None);
        assert!(found.is_some(), "{name}");
    }
}
