//! Explores the state machines of the replicated log with every order of requests, lost answers,
//! late effects, lists that lag, pauses that a node does not see, crashes and lost disks, up to a
//! bound. Checks in every state that what was acknowledged is what the chain has.
//!
//! `UMBEL_SLOT_STATES=5000000 cargo test --release -p umbel-slots --test suite exploration` is the
//! campaign; a normal test run explores fewer states.

use std::collections::hash_map::DefaultHasher;
use std::collections::{HashSet, VecDeque};
use std::hash::{Hash, Hasher};
use std::time::Duration;

use umbel_env::Objects;
use umbel_sim::Random;
use umbel_slots::{
    ChainEnd, CollectionStep, FollowStep, Slot, SlotCollection, SlotEntry, SlotError, SlotFollower,
    SlotIds, SlotSnapshot, SlotTakeover, SlotTimes, SlotWriter, TakeoverStep, WriteStep,
};

use super::explored_store::{ExploredClock, ExploredStore, StoreFault, StoreState, UNIT_MICROS};

/// States and random histories of a normal test run.
const STATES: usize = 30_000;
const WALKS: usize = 500;
/// Histories within which a planted fault must be found.
const PLANTED_WALKS: u64 = 4000;
/// Mean number of events between two stalls of a node, and the longest stall.
const STALL_INTERVAL: u64 = 10;
const STALL_EVENTS_MAX: usize = 200;
const STORE: [u8; 16] = [7; 16];
const NODES: usize = 2;
/// Number for the clocks of all nodes.
const ALL_NODES: usize = NODES + 1;

/// Bounds of a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Bounds {
    /// Slots that the leaders propose, beginnings of epochs included.
    proposals: u8,
    snapshots: u8,
    crashes: u8,
    /// Times at which time passes.
    ticks: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Role {
    Down,
    Following(Box<SlotTakeover>),
    Leading(Box<SlotWriter>),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Node {
    role: Role,
    /// The state on its disk.
    disk: Option<ChainEnd>,
    /// Used while it leads. What it has seen stays valid while it does not.
    collection: SlotCollection,
    /// Units in which its clock stood still.
    paused: u64,
    /// Number of ids that it has used.
    ids: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct World {
    store: StoreState,
    nodes: Vec<Node>,
    left: Bounds,
    /// Number of acknowledged slots.
    acknowledged: u64,
}

/// Description of what is wrong.
type Violation = String;

fn times(fresh: u64, keep: u64) -> SlotTimes {
    let units = |units: u64| Duration::from_micros(units * UNIT_MICROS);
    SlotTimes { fresh: units(fresh), skew: Duration::ZERO, keep: units(keep) }
}

impl World {
    fn new(bounds: Bounds, times: SlotTimes, fault: StoreFault) -> World {
        let mut store = StoreState { fault, ..StoreState::default() };
        let first = SlotSnapshot {
            ids: SlotIds { store: STORE, uid: [1; 16] },
            end: ChainEnd::default(),
            state: Vec::new(),
        };
        store.land(first.name().as_str(), &first.encode());
        store.advance(0);
        let node = |number| Node {
            role: Role::Following(Box::new(takeover(number, times, None))),
            disk: None,
            collection: SlotCollection::new(STORE, times),
            paused: 0,
            ids: 0,
        };
        World { store, nodes: (0..NODES).map(node).collect(), left: bounds, acknowledged: 0 }
    }

    /// Events that can be next. A step of a node is listed with its first outcome only.
    fn events(&self, times: SlotTimes) -> Vec<Event> {
        let mut all: Vec<Event> = (0..self.store.late.len()).map(Event::Land).collect();
        if self.left.ticks > 0 {
            for units in [1, times.keep.as_micros() as u64 / UNIT_MICROS] {
                // All clocks run, or that of one node stands still, or only the store's jumps.
                all.extend((0..=ALL_NODES).map(|paused| Event::Tick { units, paused }));
            }
        }
        for (node, it) in self.nodes.iter().enumerate() {
            if it.role == Role::Down {
                all.push(Event::Start(node));
                continue;
            }
            if self.left.crashes > 0 {
                all.extend([false, true].map(|loses_disk| Event::Crash { node, loses_disk }));
            }
            let actions = [
                Action::Step,
                Action::Propose,
                Action::Follow,
                Action::BeginEpoch,
                Action::Snapshot,
                Action::Collect,
                Action::RestartCollection,
            ];
            all.extend(actions.map(|action| Event::Act { node, action, outcome: 0 }));
        }
        all
    }

    /// Lets an event happen. Returns the number of outcomes that it could have had; zero if it
    /// cannot happen now, which changes nothing.
    fn apply(&mut self, event: Event, times: SlotTimes) -> Result<usize, Violation> {
        match event {
            Event::Land(index) => self.store.land_late(index),
            Event::Tick { units, paused } => {
                self.left.ticks -= 1;
                self.store.advance(units);
                for (number, node) in self.nodes.iter_mut().enumerate() {
                    if paused == number || paused == ALL_NODES {
                        node.paused += units;
                    }
                }
            }
            Event::Start(node) => self.start(node, times),
            Event::Crash { node, loses_disk } => self.crash(node, loses_disk, times),
            Event::Act { node, action, outcome } => return self.act(node, action, outcome, times),
        }
        Ok(1)
    }

    /// All states that an event can lead to.
    fn successors(&self, event: Event, times: SlotTimes) -> Result<Vec<(Event, World)>, Failed> {
        let mut all = Vec::new();
        let (mut event, mut outcomes) = (event, 1);
        for number in 0.. {
            if number >= outcomes {
                break;
            }
            if let Event::Act { outcome, .. } = &mut event {
                *outcome = number;
            }
            let mut next = self.clone();
            outcomes = next.apply(event, times).map_err(|violation| Failed { event, violation })?;
            if outcomes > 0 {
                all.push((event, next));
            }
        }
        Ok(all)
    }

    fn start(&mut self, node: usize, times: SlotTimes) {
        let disk = self.nodes[node].disk;
        self.nodes[node].role = Role::Following(Box::new(takeover(node, times, disk)));
    }

    fn crash(&mut self, node: usize, loses_disk: bool, times: SlotTimes) {
        self.left.crashes -= 1;
        let node = &mut self.nodes[node];
        node.role = Role::Down;
        node.collection = SlotCollection::new(STORE, times);
        if loses_disk {
            node.disk = None;
        }
    }

    fn new_id(&mut self, node: usize) -> [u8; 16] {
        self.nodes[node].ids += 1;
        let mut uid = [0; 16];
        (uid[0], uid[1]) = (node as u8 + 2, self.nodes[node].ids);
        uid
    }

    /// Does one thing at a node. Returns the number of outcomes that its request could have had;
    /// zero if the node cannot do it now.
    fn act(
        &mut self,
        node: usize,
        action: Action,
        outcome: usize,
        times: SlotTimes,
    ) -> Result<usize, Violation> {
        if !self.can_act(node, action) {
            return Ok(0);
        }
        let mut role = std::mem::replace(&mut self.nodes[node].role, Role::Down);
        let clock = ExploredClock(self.store.time - self.nodes[node].paused);
        let store = ExploredStore::new(std::mem::take(&mut self.store), outcome);
        let mut done = Done::Nothing;
        match (action, &mut role) {
            (Action::Step, Role::Following(takeover)) => {
                done = Done::Took(takeover.step(&store, &clock));
            }
            (Action::Step, Role::Leading(writer)) => {
                done = Done::Wrote(writer.step(&store, &clock));
            }
            (Action::Propose, Role::Leading(writer)) => {
                self.left.proposals -= 1;
                let entries = vec![SlotEntry::Nothing];
                writer.propose(self.new_id(node), 0, entries).expect("a valid slot");
            }
            (Action::Snapshot, Role::Leading(writer)) => {
                self.left.snapshots -= 1;
                let ids = SlotIds { store: STORE, uid: self.new_id(node) };
                let snapshot = SlotSnapshot { ids, end: writer.end(), state: Vec::new() };
                // A write that is not confirmed is given up; it can still take effect.
                let _ = store.put(&snapshot.name(), &snapshot.encode());
            }
            (Action::Collect, Role::Leading(_)) => {
                done = Done::Collected(self.nodes[node].collection.step(&store, &clock));
            }
            (Action::BeginEpoch, Role::Following(takeover)) => {
                let begins = SlotEntry::EpochBegins { host: String::from("h"), port: node as u16 };
                let has_begun = takeover.begin_epoch(self.new_id(node), 0, vec![begins]);
                self.left.proposals -= u8::from(has_begun.expect("a valid slot"));
            }
            (Action::RestartCollection, Role::Leading(_)) => self.nodes[node].collection.restart(),
            (Action::Follow, Role::Following(takeover)) => takeover.keep_following(),
            _ => {}
        }
        let outcomes;
        (self.store, outcomes) = store.finish();
        self.nodes[node].role = role;
        self.settle(node, done, times)?;
        Ok(outcomes)
    }

    fn can_act(&self, node: usize, action: Action) -> bool {
        match (&self.nodes[node].role, action) {
            (Role::Leading(writer), Action::Step) => writer.is_busy(),
            (Role::Leading(writer), Action::Propose) => {
                !writer.is_busy() && self.left.proposals > 0
            }
            (Role::Leading(..), Action::Snapshot) => self.left.snapshots > 0,
            (Role::Leading(..), Action::Collect | Action::RestartCollection) => true,
            (Role::Following(takeover), Action::Step) => !takeover.is_at_end(),
            (Role::Following(takeover), Action::Follow) => takeover.is_at_end(),
            (Role::Following(takeover), Action::BeginEpoch) => {
                takeover.is_at_end() && self.left.proposals > 0
            }
            _ => false,
        }
    }

    /// Checks what a step returned, and changes the node's role.
    fn settle(&mut self, node: usize, done: Done, times: SlotTimes) -> Result<(), Violation> {
        let checked = |error: SlotError| match error.is_temporary() {
            true => Ok(()),
            false => Err(format!("node {node} failed: {error}")),
        };
        match done {
            Done::Nothing | Done::Took(Ok(TakeoverStep::Again)) => {}
            Done::Took(Err(error)) => checked(error)?,
            Done::Wrote(Err(error)) => checked(error)?,
            Done::Collected(Err(error)) => checked(error)?,
            Done::Took(Ok(TakeoverStep::Followed(FollowStep::Applied(slot)))) => {
                self.check(node, "applied", &slot)?;
                self.keep_end(node);
            }
            Done::Took(Ok(TakeoverStep::Followed(FollowStep::Restart(snapshot)))) => {
                let end = snapshot.end;
                if end.number > 0 && self.first_of(end.number).map(|it| it.ids.uid) != Some(end.uid)
                {
                    return Err(format!("node {node} began from a wrong snapshot {}", end.number));
                }
                self.keep_end(node);
            }
            Done::Took(Ok(TakeoverStep::Followed(_) | TakeoverStep::Overtaken)) => {}
            Done::Took(Ok(TakeoverStep::AtEnd)) => {
                // The exploration begins an epoch as an event of its own, or follows on.
            }
            Done::Took(Ok(TakeoverStep::Leading(writer, slot))) => {
                self.check(node, "leads since", &slot)?;
                self.nodes[node].disk = Some(writer.end());
                self.nodes[node].role = Role::Leading(writer);
            }
            Done::Wrote(Ok(WriteStep::Acknowledged(slot))) => {
                self.check(node, "acknowledged", &slot)?;
                self.acknowledged += 1;
                self.keep_end(node);
            }
            Done::Wrote(Ok(WriteStep::Deposed)) => {
                // What is certain stays on its disk.
                self.start(node, times);
            }
            Done::Wrote(Ok(WriteStep::Idle | WriteStep::Open)) | Done::Collected(Ok(_)) => {}
        }
        Ok(())
    }

    fn keep_end(&mut self, node: usize) {
        let end = match &self.nodes[node].role {
            Role::Down => return,
            Role::Following(takeover) => takeover.follower().end(),
            Role::Leading(writer) => writer.end(),
        };
        self.nodes[node].disk = Some(end);
    }

    /// The first slot that the number ever had.
    fn first_of(&self, number: u64) -> Option<Slot> {
        let bytes = self.store.first.get(&format!("slots/{number:020}"))?;
        Slot::decode(bytes, &STORE, number).ok()
    }

    fn check(&self, node: usize, verb: &str, slot: &Slot) -> Result<(), Violation> {
        match self.first_of(slot.number).as_ref() == Some(slot) {
            true => Ok(()),
            false => {
                Err(format!("node {node} {verb} a slot {} that is not the first", slot.number))
            }
        }
    }

    fn fingerprint(&self) -> u128 {
        let hash = |salt: u8| {
            let mut hasher = DefaultHasher::new();
            salt.hash(&mut hasher);
            self.hash(&mut hasher);
            hasher.finish()
        };
        u128::from(hash(0)) << 64 | u128::from(hash(1))
    }
}

/// Next event of a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    /// A late request takes effect.
    Land(usize),
    /// Time passes, while the clock of one node stands still; no node has the number [`NODES`].
    /// With [`ALL_NODES`], the clocks of all nodes stand still.
    Tick {
        units: u64,
        paused: usize,
    },
    Start(usize),
    Crash {
        node: usize,
        loses_disk: bool,
    },
    Act {
        node: usize,
        action: Action,
        outcome: usize,
    },
}

/// An event with a violation.
struct Failed {
    event: Event,
    violation: Violation,
}

/// Action of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    /// The next request of its state machine.
    Step,
    Propose,
    /// A node at the end follows on.
    Follow,
    BeginEpoch,
    Snapshot,
    Collect,
    /// Ends a round of the collection, as a caller does that only reports.
    RestartCollection,
}

/// Result of an action.
enum Done {
    Nothing,
    Took(Result<TakeoverStep, SlotError>),
    Wrote(Result<WriteStep, SlotError>),
    Collected(Result<CollectionStep, SlotError>),
}

fn takeover(node: usize, times: SlotTimes, disk: Option<ChainEnd>) -> SlotTakeover {
    let follower = SlotFollower::new(STORE, times, disk);
    SlotTakeover::new(STORE, times, format!("{node}"), follower)
}

/// Result of an exploration.
struct Explored {
    states: usize,
    is_complete: bool,
    /// The first violation, with the events that led to it.
    violation: Option<String>,
}

/// The violation with its history.
fn told(failed: &Failed, events: &[Event]) -> String {
    let events: Vec<String> = events.iter().map(|event| format!("{event:?}")).collect();
    format!("{}, in {:?} after\n{}", failed.violation, failed.event, events.join("\n"))
}

/// Explores states in the order of the number of events that lead to them, up to a number of
/// states.
fn explore(world: World, times: SlotTimes, states_max: usize) -> Explored {
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
}

impl Stall {
    /// Whether the stalled node would do this. Begins and ends stalls.
    fn stops(&mut self, random: &mut Random, event: Event) -> bool {
        self.events_left = self.events_left.saturating_sub(1);
        if self.events_left == 0 && random.below(STALL_INTERVAL) == 0 {
            self.node = random.below_usize(NODES);
            self.events_left = random.below_usize(STALL_EVENTS_MAX);
        }
        let acts = matches!(event, Event::Act { node, .. } if node == self.node);
        acts && self.events_left > 0
    }
}

/// Lets this many random events happen. Returns the number of slots that were acknowledged.
fn walk(mut world: World, times: SlotTimes, seed: u64, count: usize) -> Result<u64, String> {
    let mut random = Random::new(seed);
    let mut happened = Vec::new();
    let mut stall = Stall::default();
    while happened.len() < count {
        let events = world.events(times);
        let mut event = events[random.below_usize(events.len())];
        if stall.stops(&mut random, event) {
            continue;
        }
        let is_rare = matches!(
            event,
            Event::Tick { .. }
                | Event::Crash { .. }
                | Event::Act { action: Action::RestartCollection, .. }
        );
        if is_rare && random.below(8) != 0 {
            continue;
        }
        if let Event::Act { outcome, .. } = &mut event {
            // Half of the requests have no fault.
            *outcome = random.below_usize(6).saturating_sub(3);
        }
        match world.apply(event, times) {
            Ok(0) => {}
            Ok(_) => happened.push(event),
            Err(violation) => return Err(told(&Failed { event, violation }, &happened)),
        }
    }
    Ok(world.acknowledged)
}

fn from_environment(name: &str, default: usize) -> usize {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

#[test]
fn nothing_acknowledged_is_lost_in_any_order_of_events() {
    let bounds = Bounds { proposals: 3, snapshots: 1, crashes: 1, ticks: 2 };
    let times = times(1, 4);
    let states_max = from_environment("UMBEL_SLOT_STATES", STATES);
    let explored = explore(World::new(bounds, times, StoreFault::None), times, states_max);
    if let Some(violation) = explored.violation {
        panic!("{violation}");
    }
    assert!(explored.is_complete || explored.states >= states_max);
}

/// Bounds of random histories.
const LONG: Bounds = Bounds { proposals: 30, snapshots: 6, crashes: 4, ticks: 16 };
/// Events of a random history.
const EVENTS: usize = 300;

#[test]
fn nothing_acknowledged_is_lost_in_long_histories() {
    let times = times(1, 4);
    let world = World::new(LONG, times, StoreFault::None);
    let mut acknowledged = 0;
    for seed in 0..from_environment("UMBEL_SLOT_WALKS", WALKS) as u64 {
        match walk(world.clone(), times, seed, EVENTS) {
            Ok(count) => acknowledged += count,
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
            Ok(count) => acknowledged += count,
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
