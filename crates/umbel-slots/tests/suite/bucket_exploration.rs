//! Random histories in which the bucket is replaced by an earlier state of it, where other leaders
//! go on, while the nodes keep what they have. Checks that no node ever drops a slot: what it has
//! is the beginning of what it has later. A node that cannot go on so must stop (C23).
//!
//! The exploration proper has no such event: there, the first slot of each number is the right one.

use std::time::Duration;

use umbel_env::Objects;
use umbel_sim::Random;
use umbel_slots::{
    ChainState, CollectionStep, EpochTable, FollowStep, Slot, SlotCollection, SlotEntry, SlotError,
    SlotFollower, SlotIds, SlotResult, SlotSnapshot, SlotTakeover, SlotTimes, SlotWriter,
    TakeoverStep, WriteStep,
};

use super::explored_objects::naming_all;
use super::explored_store::{ExploredClock, ExploredStore, StoreFault, StoreState, UNIT_MICROS};
use super::histories::STORE;

/// Histories of a normal test run, events of each, and histories within which a planted fault must
/// be found.
const SEEDS: u64 = 120;
const EVENTS: usize = 1500;
const PLANTED_SEEDS: u64 = 4000;
const NODES: usize = 3;
/// Earlier states of the bucket that an operator has.
const COPIES_MAX: usize = 4;

/// The shortest `keep`, so that a leader which goes on can announce deletions.
fn times() -> SlotTimes {
    let units = |units: u64| Duration::from_micros(units * UNIT_MICROS);
    SlotTimes { fresh: units(10), skew: units(2), keep: units(72) }
}

/// Rule that a reading node breaks: it reads snapshots as if the rule found nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadFault {
    None,
    /// C14: a resignation in a snapshot counts for nothing.
    IgnoresResignation,
    /// C23: the first slot of the node's own epoch is not compared.
    IgnoresOwnEpoch,
    /// C23: the node's end is not compared with the beginning of the next epoch.
    IgnoresNextEpoch,
}

impl ReadFault {
    /// The snapshot as a node with this chain reads it.
    pub fn read(self, snapshot: &SlotSnapshot, chain: &ChainState) -> SlotSnapshot {
        let mut forged = snapshot.clone();
        let mut starts = snapshot.chain.epochs.starts().to_vec();
        let own = chain.epochs.last();
        let index = starts.iter().position(|start| own.is_some_and(|own| own.epoch == start.epoch));
        match (self, index, own) {
            (ReadFault::IgnoresResignation, _, _) => forged.chain.end.has_resigned = false,
            (ReadFault::IgnoresOwnEpoch, Some(index), Some(own)) => starts[index] = own,
            (ReadFault::IgnoresNextEpoch, Some(index), _) => {
                let mut least = chain.end.number + 1;
                for start in &mut starts[index + 1..] {
                    start.number = start.number.max(least);
                    least = start.number + 1;
                }
            }
            _ => {}
        }
        forged.chain.epochs = EpochTable::new(starts).unwrap_or(forged.chain.epochs);
        // A table that no snapshot can have is no such table.
        match SlotSnapshot::decode(&forged.encode(), &STORE, forged.chain.end.number) {
            Ok(forged) => forged,
            Err(_) => snapshot.clone(),
        }
    }

    /// Lets a node with this chain do something with the store, of which it reads the snapshots so.
    pub fn with_store<T>(
        self,
        store: &mut StoreState,
        chain: &ChainState,
        action: impl FnOnce(&mut StoreState) -> T,
    ) -> T {
        let right = store.objects.clone();
        if self != ReadFault::None {
            for (name, (bytes, _)) in &mut store.objects {
                let number = name.strip_prefix("snapshots/").and_then(|it| it.get(..20));
                let number = number.and_then(|number| number.parse().ok());
                let Some(number) = number else { continue };
                let snapshot = SlotSnapshot::decode(bytes, &STORE, number).expect("a snapshot");
                *bytes = self.read(&snapshot, chain).encode();
            }
        }
        let done = action(store);
        for (name, (bytes, _)) in &mut store.objects {
            if let Some((right, _)) = right.get(name) {
                bytes.clone_from(right);
            }
        }
        done
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
    role: Role,
    disk: Option<ChainState>,
    /// Uids of the slots that it has. A snapshot has them as its state.
    slots: Vec<[u8; 16]>,
    collection: SlotCollection,
}

struct History {
    store: StoreState,
    random: Random,
    fault: ReadFault,
    nodes: Vec<Node>,
    copies: Vec<StoreState>,
    acknowledged: u64,
    /// Nodes that stopped since their own epoch is not that of the snapshot.
    stopped: u64,
}

type Violation = String;

impl History {
    fn new(seed: u64, fault: ReadFault) -> History {
        let mut store = StoreState { fault: StoreFault::None, ..StoreState::default() };
        let ids = SlotIds { store: STORE, uid: [1; 16] };
        let first = SlotSnapshot { ids, chain: ChainState::default(), state: Vec::new() };
        store.land(first.name().as_str(), &first.encode());
        let node = |_| Node {
            role: Role::Down,
            disk: None,
            slots: Vec::new(),
            collection: SlotCollection::new(STORE, times()),
        };
        let nodes = (0..NODES).map(node).collect();
        let (random, copies) = (Random::new(seed), Vec::new());
        History { store, random, fault, nodes, copies, acknowledged: 0, stopped: 0 }
    }

    fn uid(&mut self) -> [u8; 16] {
        let mut uid = [0; 16];
        self.random.fill(&mut uid);
        uid
    }

    /// Lets one event happen.
    fn advance(&mut self) -> Result<(), Violation> {
        let node = self.random.below_usize(NODES);
        match self.random.below(200) {
            0..=2 => {
                self.copies.truncate(COPIES_MAX - 1);
                self.copies.insert(0, self.store.clone());
            }
            3 => self.replace_bucket(),
            5..=7 => self.nodes[node].role = Role::Down,
            8..=20 => self.store.advance(1 + self.random.below(9)),
            21..=22 => self.store.advance(37 + self.random.below(60)),
            _ => self.act(node)?,
        }
        Ok(())
    }

    /// An operator replaces the bucket by a copy. Its time goes on.
    fn replace_bucket(&mut self) {
        if !self.copies.is_empty() {
            let index = self.random.below_usize(self.copies.len());
            self.store.objects = self.copies[index].objects.clone();
        }
    }

    /// Lets a node send one request.
    fn request<T>(
        &mut self,
        node: usize,
        action: impl FnOnce(&mut Node, &dyn Objects, &ExploredClock) -> T,
    ) -> T {
        let node = &mut self.nodes[node];
        let chain = match &node.role {
            Role::Following(takeover) => takeover.follower().chain().clone(),
            Role::Down | Role::Leading(_) => ChainState::default(),
        };
        self.fault.with_store(&mut self.store, &chain, |state| {
            let clock = ExploredClock { node: state.time, wall: state.time };
            let store = ExploredStore::new(std::mem::take(state), 0);
            let done = action(node, &store, &clock);
            *state = store.finish().0;
            done
        })
    }

    fn act(&mut self, node: usize) -> Result<(), Violation> {
        let (uid, choice) = (self.uid(), self.random.below(100));
        match &mut self.nodes[node].role {
            Role::Down if choice < 20 => self.start(node),
            Role::Down => {}
            Role::Following(takeover) if takeover.is_at_end() => {
                let begins = SlotEntry::EpochBegins { host: "h".into(), port: 1 };
                if choice >= 30 || !takeover.begin_epoch(uid, 0, vec![begins]).expect("valid") {
                    takeover.keep_following();
                }
            }
            Role::Following(_) => {
                let step = self.request(node, |it, store, clock| match &mut it.role {
                    Role::Following(takeover) => takeover.step(store, clock),
                    Role::Down | Role::Leading(_) => unreachable!("it follows"),
                });
                self.follow(node, step)?;
            }
            Role::Leading(_) if choice < 15 => {
                self.collect(node);
            }
            Role::Leading(writer) if choice < 25 => {
                let chain = writer.chain().clone();
                let state = self.nodes[node].slots.concat();
                let snapshot = SlotSnapshot { ids: SlotIds { store: STORE, uid }, chain, state };
                self.store.land(snapshot.name().as_str(), &snapshot.encode());
            }
            Role::Leading(writer) if !writer.is_busy() => {
                let entry = if choice < 28 { SlotEntry::Resigned } else { SlotEntry::Nothing };
                writer.propose(uid, 0, vec![entry]).expect("a valid slot");
            }
            Role::Leading(_) => self.write(node)?,
        }
        let node = &mut self.nodes[node];
        match &node.role {
            Role::Down => {}
            Role::Following(takeover) if takeover.follower().end().number == 0 => {}
            Role::Following(takeover) => node.disk = Some(takeover.follower().chain().clone()),
            Role::Leading(writer) => node.disk = Some(writer.chain().clone()),
        }
        Ok(())
    }

    /// A node makes a whole round of its collection: a floor needs two of them, and a deletion a
    /// third one.
    fn collect(&mut self, node: usize) {
        loop {
            let table = naming_all(&self.store, 0);
            match self.request(node, |it, store, clock| it.collection.step(store, clock, &table)) {
                Ok(CollectionStep::Done) => return,
                Ok(CollectionStep::Again | CollectionStep::Found(_)) => {}
                Ok(CollectionStep::Waiting) => unreachable!("slots name all objects"),
                Err(_) => return self.stop(node),
            }
        }
    }

    fn start(&mut self, node: usize) {
        let node = &mut self.nodes[node];
        let follower = SlotFollower::new(STORE, times(), node.disk.clone());
        let takeover = SlotTakeover::new(STORE, times(), "node", follower);
        node.role = Role::Following(Box::new(takeover));
    }

    /// The process of a node ends. Sometimes an operator gives it an empty directory.
    fn stop(&mut self, node: usize) {
        let is_emptied = self.random.below(8) == 0;
        let node = &mut self.nodes[node];
        node.role = Role::Down;
        node.collection = SlotCollection::new(STORE, times());
        if is_emptied {
            (node.disk, node.slots) = (None, Vec::new());
        }
    }

    fn write(&mut self, node: usize) -> Result<(), Violation> {
        let step = self.request(node, |it, store, clock| match &mut it.role {
            Role::Leading(writer) => writer.step(store, clock),
            Role::Down | Role::Following(_) => unreachable!("it leads"),
        });
        let it = &mut self.nodes[node];
        if let Role::Leading(writer) = &it.role {
            it.disk = Some(writer.chain().clone());
        }
        match step {
            Ok(WriteStep::Acknowledged(slot)) => {
                self.acknowledged += 1;
                self.add(node, &slot)?;
                if slot.ends_epoch() {
                    self.start(node);
                }
            }
            Ok(WriteStep::Deposed) => self.start(node),
            Ok(WriteStep::Idle | WriteStep::Open) => {}
            Err(_) => self.stop(node),
        }
        Ok(())
    }

    fn follow(&mut self, node: usize, step: SlotResult<TakeoverStep>) -> Result<(), Violation> {
        match step {
            Ok(TakeoverStep::Followed(FollowStep::Applied(slot))) => self.add(node, &slot)?,
            Ok(TakeoverStep::Followed(FollowStep::Restart(snapshot))) => {
                let slots = &mut self.nodes[node].slots;
                if !snapshot.state.starts_with(&slots.concat()) {
                    let (number, count) = (snapshot.chain.end.number, slots.len());
                    return Err(format!(
                        "node {node} has {count} slots, and drops some for {number}"
                    ));
                }
                *slots = snapshot.state.as_chunks().0.to_vec();
            }
            Ok(TakeoverStep::Leading(writer, slot)) => {
                self.add(node, &slot)?;
                self.nodes[node].role = Role::Leading(writer);
            }
            Ok(_) => {}
            Err(SlotError::Damaged { reason, .. }) => {
                self.stopped +=
                    u64::from(reason.contains("this node has") && reason.contains("epoch"));
                self.stop(node);
            }
            Err(_) => self.stop(node),
        }
        Ok(())
    }

    fn add(&mut self, node: usize, slot: &Slot) -> Result<(), Violation> {
        let slots = &mut self.nodes[node].slots;
        slots.push(slot.ids.uid);
        match slots.len() as u64 == slot.number {
            true => Ok(()),
            false => Err(format!("node {node} has slot {} as number {}", slot.number, slots.len())),
        }
    }
}

/// Returns the number of acknowledged slots, and of nodes that stopped at another epoch.
fn run(seed: u64, fault: ReadFault) -> Result<(u64, u64), Violation> {
    let mut history = History::new(seed, fault);
    for _ in 0..EVENTS {
        history.advance()?;
    }
    Ok((history.acknowledged, history.stopped))
}

#[test]
fn no_node_drops_a_slot_after_a_replaced_bucket() {
    let (mut acknowledged, mut stopped) = (0, 0);
    for seed in 0..SEEDS {
        match run(seed, ReadFault::None) {
            Ok((slots, nodes)) => (acknowledged, stopped) = (acknowledged + slots, stopped + nodes),
            Err(violation) => panic!("seed {seed}: {violation}"),
        }
    }
    assert!(acknowledged > 10 * SEEDS, "{acknowledged} acknowledged slots show nothing");
    assert!(stopped > 20, "{stopped} nodes that stopped show nothing");
}

#[test]
fn planted_faults_of_readers_are_found() {
    for fault in [ReadFault::IgnoresOwnEpoch, ReadFault::IgnoresNextEpoch] {
        let found = (0..PLANTED_SEEDS).find(|seed| run(*seed, fault).is_err());
        assert!(found.is_some(), "{fault:?}");
    }
}
