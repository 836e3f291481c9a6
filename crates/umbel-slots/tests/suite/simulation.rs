//! Three nodes on a simulated object store with lost, late and repeated requests, for hours of its
//! time: stopped processes, pauses that no clock of a node shows, and lost disks. Unlike in the
//! exploration, a request takes time, and its moments are apart.
//!
//! `UMBEL_SLOT_SEEDS=10000 cargo test --release -p umbel-slots --test suite simulation` is the
//! campaign.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use umbel_env::{Clock, Objects};
use umbel_sim::{ConditionMode, FaultRates, ObjectFault, ObjectSim, ObjectStoreMode, Random};
use umbel_slots::{
    ChainEnd, ChainState, CollectionStep, FollowStep, ObjectState, ObjectTable, Slot,
    SlotCollection, SlotEntry, SlotError, SlotFollower, SlotIds, SlotSnapshot, SlotTakeover,
    SlotTimes, SlotWriter, TakeoverStep, WriteStep,
};

const STORE: [u8; 16] = [7; 16];
const NODES: usize = 3;
/// Histories of a normal test run, and events of each.
const SEEDS: u64 = 500;
const EVENTS: usize = 1500;
/// Most requests of a collection in one event, and most events for which a process is stopped.
const COLLECTION_STEPS_MAX: u64 = 12;
const STALL_EVENTS_MAX: u64 = 240;
/// Histories within which a planted fault must be found.
const PLANTED_SEEDS: u64 = 1000;
/// Requests in which a node without faults reaches the end.
const STEPS_MAX: usize = 2000;

fn times() -> SlotTimes {
    let seconds = Duration::from_secs;
    SlotTimes { fresh: seconds(60), skew: seconds(15), keep: seconds(480) }
}

/// The clocks of a node, which stood still for some time.
#[derive(Debug)]
struct NodeClock {
    base: Arc<dyn Clock>,
    paused: Duration,
    /// Time in which the wall clock stood still, too.
    wall_paused: Duration,
}

impl Clock for NodeClock {
    fn now(&self) -> Duration {
        self.base.now().saturating_sub(self.paused)
    }

    fn wall_micros(&self) -> u64 {
        self.base.wall_micros() - self.wall_paused.as_micros() as u64
    }
}

#[derive(Debug)]
enum Role {
    Down,
    Following(Box<SlotTakeover>),
    Leading(Box<SlotWriter>),
}

#[derive(Debug)]
struct Node {
    objects: Arc<dyn Objects>,
    clock: NodeClock,
    role: Role,
    collection: SlotCollection,
    disk: Option<ChainState>,
    /// Events for which the process is stopped.
    stalled: u64,
}

/// A history, and what its nodes have reported.
struct History {
    sim: ObjectSim,
    times: SlotTimes,
    random: Random,
    /// Whether the wall clocks show pauses.
    shows_pauses: bool,
    nodes: Vec<Node>,
    /// The slot that a node first reported for each number.
    reported: BTreeMap<u64, Slot>,
    /// Numbers and uids of the snapshots whose writes were confirmed. All slots name them.
    snapshots: BTreeSet<(u64, [u8; 16])>,
    acknowledged: u64,
    deleted: u64,
}

type Violation = String;

fn takeover(times: SlotTimes, disk: Option<ChainState>) -> SlotTakeover {
    SlotTakeover::new(STORE, times, "node", SlotFollower::new(STORE, times, disk))
}

impl History {
    fn new(seed: u64, mode: ObjectStoreMode, times: SlotTimes) -> History {
        let sim = ObjectSim::new(seed);
        sim.keep_history(false);
        let ids = SlotIds { store: STORE, uid: [1; 16] };
        let first = SlotSnapshot { ids, chain: ChainState::default(), state: Vec::new() };
        sim.client(9).put(&first.name(), &first.encode()).expect("no fault yet");
        sim.set_mode(mode);
        let mut random = Random::new(seed);
        let rate = [0, 3, 15, 40][random.below_usize(4)];
        let late = FaultRates::transient(rate).with(ObjectFault::LateLanding, 20);
        sim.set_rates(late);
        sim.set_landing_delay(Duration::from_secs(1500));
        let node = |number: usize| Node {
            objects: sim.client(number as u64),
            clock: NodeClock {
                base: sim.env().clock,
                paused: Duration::ZERO,
                wall_paused: Duration::ZERO,
            },
            role: Role::Down,
            collection: SlotCollection::new(STORE, times),
            disk: None,
            stalled: 0,
        };
        let nodes = (0..NODES).map(node).collect();
        let reported = BTreeMap::new();
        let shows_pauses = seed.is_multiple_of(4);
        let (snapshots, acknowledged, deleted) = (BTreeSet::new(), 0, 0);
        History {
            sim,
            times,
            random,
            shows_pauses,
            nodes,
            reported,
            snapshots,
            acknowledged,
            deleted,
        }
    }

    fn uid(&mut self) -> [u8; 16] {
        let mut uid = [0; 16];
        self.random.fill(&mut uid);
        uid
    }

    /// Lets one event happen.
    fn advance(&mut self) -> Result<(), Violation> {
        let node = self.random.below_usize(NODES);
        for it in &mut self.nodes {
            it.stalled = it.stalled.saturating_sub(1);
        }
        match self.random.below(200) {
            0..=3 => {
                let time = Duration::from_secs(30 + self.random.below(300));
                self.sim.advance(time);
                // A pause of the machine, which its clock does not show.
                if self.random.below(2) == 0 {
                    let clock = &mut self.nodes[node].clock;
                    clock.paused += time;
                    clock.wall_paused += if self.shows_pauses { Duration::ZERO } else { time };
                }
            }
            4..=20 => self.sim.advance(Duration::from_millis(self.random.below(4000))),
            21 => self.crash(node),
            22..=26 => self.nodes[node].stalled = self.random.below(STALL_EVENTS_MAX),
            _ if self.nodes[node].stalled > 0 => {}
            _ => self.act(node)?,
        }
        Ok(())
    }

    fn crash(&mut self, node: usize) {
        self.sim.kill(node as u64);
        let loses_disk = self.random.below(3) == 0;
        let it = &mut self.nodes[node];
        it.objects = self.sim.client(node as u64);
        it.role = Role::Down;
        it.collection = SlotCollection::new(STORE, self.times);
        if loses_disk {
            it.disk = None;
        }
    }

    fn act(&mut self, node: usize) -> Result<(), Violation> {
        let (uid, choice) = (self.uid(), self.random.below(100));
        let it = &mut self.nodes[node];
        let (objects, clock) = (&*it.objects, &it.clock);
        match &mut it.role {
            Role::Down => {
                it.role = Role::Following(Box::new(takeover(self.times, it.disk.clone())))
            }
            Role::Following(takeover) if takeover.is_at_end() => {
                let begins = SlotEntry::EpochBegins { host: "h".into(), port: node as u16 };
                if choice >= 15 || !takeover.begin_epoch(uid, 0, vec![begins]).expect("valid") {
                    takeover.keep_following();
                }
            }
            Role::Following(takeover) => {
                let step = takeover.step(objects, clock);
                self.follow(node, step)?;
            }
            Role::Leading(writer) if choice < 30 => {
                let snapshots = self.snapshots.clone();
                let state = ObjectState { snapshots, ..ObjectState::default() };
                let table = ObjectTable::new(writer.end().number, writer.end(), state);
                for _ in 0..=self.random.below(COLLECTION_STEPS_MAX) {
                    let step = it.collection.step(objects, clock, &table);
                    if let Some(CollectionStep::Found(names)) = checked(node, step)? {
                        self.deleted += names.len() as u64;
                    }
                }
            }
            Role::Leading(writer) if choice < 35 => {
                let ids = SlotIds { store: STORE, uid };
                let snapshot =
                    SlotSnapshot { ids, chain: writer.chain().clone(), state: Vec::new() };
                if objects.put(&snapshot.name(), &snapshot.encode()).is_ok() {
                    self.snapshots.insert((snapshot.chain.end.number, uid));
                }
            }
            Role::Leading(writer) if !writer.is_busy() => {
                writer.propose(uid, 0, vec![SlotEntry::Nothing]).expect("a valid slot");
            }
            Role::Leading(writer) => {
                let step = writer.step(objects, clock);
                match checked(node, step)? {
                    Some(WriteStep::Acknowledged(slot)) => {
                        self.report(node, &slot)?;
                        self.acknowledged = self.acknowledged.max(slot.number);
                    }
                    Some(WriteStep::Deposed) => {
                        let it = &mut self.nodes[node];
                        it.role = Role::Following(Box::new(takeover(self.times, it.disk.clone())));
                    }
                    _ => {}
                }
            }
        }
        self.keep_end(node);
        Ok(())
    }

    fn follow(
        &mut self,
        node: usize,
        step: Result<TakeoverStep, SlotError>,
    ) -> Result<(), Violation> {
        match checked(node, step)? {
            Some(TakeoverStep::Followed(FollowStep::Applied(slot))) => self.report(node, &slot)?,
            Some(TakeoverStep::Followed(FollowStep::Restart(snapshot))) => {
                let ChainEnd { number, uid, .. } = snapshot.chain.end;
                let known = self.reported.get(&number).map(|slot| slot.ids.uid);
                if number > 0 && known != Some(uid) {
                    return Err(format!("node {node} begins from a wrong snapshot {number}"));
                }
            }
            Some(TakeoverStep::Leading(writer, slot)) => {
                self.report(node, &slot)?;
                self.nodes[node].role = Role::Leading(writer);
            }
            _ => {}
        }
        Ok(())
    }

    fn report(&mut self, node: usize, slot: &Slot) -> Result<(), Violation> {
        let known = self.reported.entry(slot.number).or_insert_with(|| slot.clone());
        match known == slot {
            true => Ok(()),
            false => Err(format!("node {node} has another slot {}", slot.number)),
        }
    }

    fn keep_end(&mut self, node: usize) {
        let it = &mut self.nodes[node];
        match &it.role {
            Role::Down => {}
            // Without a snapshot there is no state.
            Role::Following(takeover) if takeover.follower().end() == ChainEnd::default() => {}
            Role::Following(takeover) => it.disk = Some(takeover.follower().chain().clone()),
            Role::Leading(writer) => it.disk = Some(writer.chain().clone()),
        }
    }

    /// Ends all faults. Each node, and a new one, must have everything acknowledged.
    fn finish(&mut self) -> Result<(), Violation> {
        self.sim.set_rates(FaultRates::none());
        self.sim.settle();
        self.sim.advance(Duration::from_secs(1));
        let mut ends = Vec::new();
        for node in 0..=NODES {
            let disk = self.nodes.get(node).and_then(|it| it.disk.clone());
            let (mut takeover, objects) =
                (takeover(self.times, disk), self.sim.client(node as u64));
            let clock = self.sim.env().clock;
            for _ in 0..STEPS_MAX {
                let step = takeover.step(&*objects, &*clock);
                let is_at_end = matches!(step, Ok(TakeoverStep::AtEnd));
                self.follow(0, step)?;
                if is_at_end {
                    break;
                }
            }
            ends.push(takeover.follower().end());
        }
        if ends.iter().any(|end| *end != ends[0] || end.number < self.acknowledged) {
            return Err(format!("{} is acknowledged, the nodes have {ends:?}", self.acknowledged));
        }
        Ok(())
    }
}

/// The result of a step, or nothing if its request failed.
fn checked<T>(node: usize, step: Result<T, SlotError>) -> Result<Option<T>, Violation> {
    match step {
        Ok(step) => Ok(Some(step)),
        Err(error) if error.is_temporary() => Ok(None),
        Err(error) => Err(format!("node {node} failed: {error}")),
    }
}

/// Returns the number of acknowledged slots, and of deleted objects.
fn run(seed: u64, mode: ObjectStoreMode, times: SlotTimes) -> Result<(u64, u64), Violation> {
    let mut history = History::new(seed, mode, times);
    for _ in 0..EVENTS {
        history.advance()?;
    }
    history.finish()?;
    Ok((history.acknowledged, history.deleted))
}

/// Runs this many histories, and checks that they show something.
fn run_all(seeds: u64, mode: &ObjectStoreMode) {
    let (mut acknowledged, mut deleted) = (0, 0);
    for seed in 0..seeds {
        match run(seed, mode.clone(), times()) {
            Ok((slots, objects)) => {
                (acknowledged, deleted) = (acknowledged + slots, deleted + objects)
            }
            Err(violation) => panic!("seed {seed}: {violation}"),
        }
    }
    assert!(acknowledged > 10 * seeds, "{acknowledged} acknowledged slots show nothing");
    assert!(deleted > seeds, "{deleted} deleted objects show nothing");
}

fn seeds() -> u64 {
    let seeds = std::env::var("UMBEL_SLOT_SEEDS");
    seeds.map_or(SEEDS, |text| text.parse().expect("a number"))
}

#[test]
fn nodes_agree_on_a_simulated_store() {
    run_all(seeds(), &ObjectStoreMode::default());
}

#[test]
fn nodes_agree_on_a_simulated_directory() {
    let mode = ObjectStoreMode { times_creations_only: true, ..ObjectStoreMode::default() };
    run_all(seeds() / 5, &mode);
}

#[test]
fn planted_faults_are_found_in_the_simulation() {
    let right = ObjectStoreMode::default();
    let ignores = ObjectStoreMode { conditions: ConditionMode::Ignored, ..right.clone() };
    for (name, mode, times) in [
        ("no conditions", ignores, times()),
        ("no freshness", right, SlotTimes { fresh: Duration::from_secs(1 << 20), ..times() }),
    ] {
        let found = (0..PLANTED_SEEDS).find(|seed| run(*seed, mode.clone(), times).is_err());
        assert!(found.is_some(), "{name}");
    }
}
