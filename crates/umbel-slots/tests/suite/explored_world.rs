//! [`World`]: nodes, their store and its late requests, as one state of an exploration.

use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};
use std::time::Duration;

use umbel_base::checksum::checksum;
use umbel_env::{Clock, Objects};
use umbel_slots::{
    ChainState, CollectionStep, Floor, FollowStep, NamedObject, ObjectTable, ProofStep, Slot,
    SlotCollection, SlotEntry, SlotError, SlotFollower, SlotIds, SlotResult, SlotSnapshot,
    SlotTakeover, SlotTimes, SlotWriter, TakeoverStep, WriteStep, snapshot_name,
};

use super::explored_actions::{Action, Bounds, Event};
use super::explored_events::{DiskLoss, EventFault, ExploredEvents, slot_ids};
use super::explored_objects::{ExploredObjects, ObjectFault};
use super::explored_reads::{ExploredReads, ReadsFault};
use super::explored_requests::{ExploredRequest, Replay, StatedTimes};
use super::explored_store::{ExploredClock, ExploredStore, StoreFault, StoreState, UNIT_MICROS};

const STORE: [u8; 16] = [7; 16];
pub const NODES: usize = 2;
/// Requests of a node in an event of a random history that joins several.
const JOINED_STEPS: usize = 24;
/// Number for the clocks of all nodes.
pub const ALL_NODES: usize = NODES + 1;
/// Ids of the newest events that clients repeat.
const REPEATED_IDS: u8 = 3;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Role {
    Down,
    Following(Box<SlotTakeover>),
    Leading(Box<SlotWriter>),
    /// Serves its directory without the cluster.
    Alone,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Node {
    role: Role,
    /// The state on its disk.
    disk: Option<ChainState>,
    events: ExploredEvents,
    objects: ExploredObjects,
    reads: ExploredReads,
    /// Used while it leads. What it has seen stays valid while it does not.
    collection: SlotCollection,
    /// A request whose moments are apart.
    request: Option<ExploredRequest>,
    /// Units in which its clock stood still.
    paused: u64,
    /// Number of ids that it has used.
    ids: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct World {
    pub store: StoreState,
    nodes: Vec<Node>,
    /// Whether the wall clocks of the nodes show the pauses that the others do not.
    pub wall_shows: bool,
    /// The store's times for requests whose moments are apart.
    pub stated: StatedTimes,
    /// Whether the history is a random one, in which an event can join several requests of a node.
    pub joins_steps: bool,
    /// Whether late requests take effect seldom.
    pub holds_late: bool,
    /// Whether followers do not read floors, which breaks C13.
    pub ignores_floors: bool,
    /// Whether files are uploaded, and what the slots name is checked.
    pub has_files: bool,
    /// Whether the last step of a collection waited for slots.
    waits: bool,
    /// Snapshots that were moved away.
    lost: u8,
    /// Durations of the collections.
    pub collection_times: SlotTimes,
    pub left: Bounds,
    /// Number of acknowledged slots.
    pub acknowledged: u64,
    /// Number of the last acknowledged slot.
    last_acknowledged: u64,
    /// Number of slots that ever were, and the ids in them.
    chain: (u64, Vec<u8>),
    /// Ids that clients have sent.
    sent: u8,
    /// Ids that any node acknowledged to clients of the cluster.
    pub acknowledged_ids: BTreeSet<u8>,
}

/// Description of what is wrong.
pub type Violation = String;

pub fn times(fresh: u64, keep: u64) -> SlotTimes {
    let units = |units: u64| Duration::from_micros(units * UNIT_MICROS);
    SlotTimes { fresh: units(fresh), skew: Duration::ZERO, keep: units(keep) }
}

impl World {
    pub fn new(bounds: Bounds, times: SlotTimes, fault: StoreFault) -> World {
        let mut store = StoreState { fault, ..StoreState::default() };
        let first = SlotSnapshot {
            ids: SlotIds { store: STORE, uid: [1; 16] },
            chain: ChainState::default(),
            state: Vec::new(),
        };
        store.land(first.name().as_str(), &first.encode());
        store.advance(0);
        let node = |number| Node {
            role: Role::Following(Box::new(takeover(number, times, None))),
            disk: None,
            events: ExploredEvents::new(EventFault::None),
            objects: ExploredObjects::default(),
            reads: ExploredReads::default(),
            collection: SlotCollection::new(STORE, times),
            request: None,
            paused: 0,
            ids: 0,
        };
        let nodes = (0..NODES).map(node).collect();
        let (chain, acknowledged_ids) = ((0, Vec::new()), BTreeSet::new());
        let mut world = World {
            store,
            nodes,
            wall_shows: false,
            stated: StatedTimes::default(),
            joins_steps: false,
            holds_late: false,
            ignores_floors: false,
            has_files: bounds.files > 0,
            waits: false,
            lost: 0,
            collection_times: times,
            left: bounds,
            acknowledged: 0,
            last_acknowledged: 0,
            chain,
            sent: 0,
            acknowledged_ids,
        };
        world.plant(EventFault::None);
        world
    }

    /// Lets collections delete after these durations.
    pub fn collect_after(&mut self, times: SlotTimes) {
        self.collection_times = times;
        for node in &mut self.nodes {
            node.collection = SlotCollection::new(STORE, times);
        }
    }

    /// Gives each node the fault, and opens its empty event store.
    pub fn plant(&mut self, fault: EventFault) {
        for node in &mut self.nodes {
            node.events = ExploredEvents::new(fault);
            assert_eq!(node.events.open(), Ok(true));
        }
    }

    /// Gives each node the fault.
    pub fn plant_in_objects(&mut self, fault: ObjectFault) {
        for node in &mut self.nodes {
            node.objects.fault = fault;
        }
    }

    /// Gives each node the fault.
    pub fn plant_in_reads(&mut self, fault: ReadsFault) {
        for node in &mut self.nodes {
            node.reads.fault = fault;
        }
    }

    /// Lets the first node lead, while the second one has followed to the end of the slots.
    pub fn elect(&mut self, times: SlotTimes) {
        let bounds = self.left;
        self.left.proposals = 1;
        let act = |world: &mut World, node, action| {
            let event = Event::Act { node, action, outcome: 0 };
            world.apply(event, times).expect("no violation")
        };
        for node in 0..NODES {
            while act(self, node, Action::Step) > 0 {}
            if node == 0 {
                act(self, node, Action::BeginEpoch);
                while act(self, node, Action::Step) > 0 {}
            }
        }
        assert!(matches!(self.nodes[0].role, Role::Leading(_)));
        self.left = bounds;
    }

    /// Events that can be next. A step of a node is listed with its first outcome only.
    pub fn events(&self, times: SlotTimes) -> Vec<Event> {
        let mut all: Vec<Event> = (0..self.store.late.len()).map(Event::Land).collect();
        if self.left.ticks > 0 {
            for units in [1, times.keep.as_micros() as u64 / UNIT_MICROS] {
                // All clocks run, or that of one node stands still, or only the store's jumps.
                all.extend((0..=ALL_NODES).map(|paused| Event::Tick { units, paused }));
            }
        }
        if self.left.losses > 0 {
            all.push(Event::LoseSnapshot);
        }
        if self.left.turns > 0 {
            let keep = times.keep.as_micros() as u64 / UNIT_MICROS;
            all.extend((1..=3).map(|count| Event::TurnBack { units: count * keep }));
        }
        for node in 0..NODES {
            self.add_node_events(node, &mut all);
        }
        all
    }

    fn add_node_events(&self, node: usize, all: &mut Vec<Event>) {
        let Node { role, events, .. } = &self.nodes[node];
        if events.has_tickets() {
            all.push(Event::Act { node, action: Action::Wait, outcome: 0 });
        }
        if *role == Role::Down {
            all.push(Event::Start(node));
            if self.left.alone > 0 {
                all.extend([Event::OpenAlone(node), Event::Detach(node)]);
            }
            if events.is_detached() {
                all.push(Event::Replace(node));
            }
            return;
        }
        if self.left.crashes > 0 {
            let tail = events.has_tail().then_some(DiskLoss::Tail);
            let losses = [DiskLoss::Nothing, DiskLoss::Everything].into_iter().chain(tail);
            all.extend(losses.map(|loss| Event::Crash { node, loss }));
        }
        if *role == Role::Alone || self.left.ends > 0 {
            all.extend([Event::Close(node), Event::Demote(node)]);
        }
        let mut actions = vec![
            Action::Step,
            Action::Propose,
            Action::Follow,
            Action::BeginEpoch,
            Action::Upload { is_snapshot: true },
            Action::Upload { is_snapshot: false },
            Action::SendUpload,
            Action::Collect,
            Action::RestartCollection,
        ];
        if self.joins_steps {
            all.push(Event::TakeOver(node));
            all.extend([true, false].map(|is_snapshot| Event::Upload { node, is_snapshot }));
            all.push(Event::CollectRound { node, outcome: 0 });
        }
        match &self.nodes[node].request {
            Some(request) if request.has_effect() => actions.push(Action::GetAnswer),
            Some(_) => all.push(Event::Effect { node, outcome: 0 }),
            None if self.left.apart > 0 => all.push(Event::Send(node)),
            None => {}
        }
        if events.can_commit() {
            actions.push(Action::Commit);
        }
        if self.nodes[node].reads.are_used() || self.left.reads > 0 {
            actions.extend([Action::SendRead, Action::Prove, Action::AnswerRead]);
        }
        if self.left.appends > 0 {
            let ids = self.sent.saturating_sub(REPEATED_IDS)..=self.sent;
            let pairs = ids.flat_map(|before| [false, true].map(|waits| (before + 1, waits)));
            actions.extend(pairs.map(|(id, waits)| Action::Append { id, waits }));
        }
        all.extend(actions.into_iter().map(|action| Event::Act { node, action, outcome: 0 }));
    }

    /// Lets an event happen. Returns the number of outcomes that it could have had; zero if it
    /// cannot happen now, which changes nothing.
    pub fn apply(&mut self, event: Event, times: SlotTimes) -> Result<usize, Violation> {
        let count = |store: &StoreState| (store.objects.len(), store.first.len());
        let before = count(&self.store);
        let outcomes = self.happen(event, times)?;
        if outcomes > 0 {
            self.check_events()?;
            if self.has_files && count(&self.store) != before {
                self.check_objects()?;
            }
        }
        Ok(outcomes)
    }

    fn happen(&mut self, event: Event, times: SlotTimes) -> Result<usize, Violation> {
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
            Event::TurnBack { units } => {
                if self.store.clock() < units {
                    return Ok(0);
                }
                self.left.turns -= 1;
                self.store.turned_back += units;
            }
            Event::Send(node) => {
                if !self.can_act(node, Action::Step) {
                    return Ok(0);
                }
                self.left.apart -= 1;
                let request =
                    ExploredRequest::new(self.clock(node), self.store.clock() * UNIT_MICROS);
                self.nodes[node].request = Some(request);
            }
            Event::Effect { node, outcome } => return Ok(self.take_effect(node, outcome)),
            Event::TakeOver(node) => return self.take_over(node, times),
            Event::Upload { node, is_snapshot } => return self.upload(node, is_snapshot, times),
            Event::LoseSnapshot => return Ok(self.lose_snapshot()),
            Event::CollectRound { node, outcome } => return self.collect(node, outcome, times),
            Event::Start(node) => {
                if !self.nodes[node].events.open()? {
                    return Ok(0);
                }
                self.follow(node, times);
            }
            Event::Crash { node, loss } => {
                self.left.crashes -= 1;
                self.crash(node, loss);
            }
            Event::Replace(node) => self.crash(node, DiskLoss::Everything),
            Event::Close(node) => self.close(node),
            Event::Demote(node) => {
                if !matches!(self.nodes[node].role, Role::Leading(_)) {
                    return Ok(0);
                }
                self.left.ends -= 1;
                self.demote(node, times)?;
            }
            Event::OpenAlone(node) => {
                if !self.nodes[node].events.can_open_alone() {
                    return Ok(0);
                }
                self.left.alone -= 1;
                self.nodes[node].role = Role::Alone;
            }
            Event::Detach(node) => {
                if !self.nodes[node].events.detach() {
                    return Ok(0);
                }
                self.left.alone -= 1;
            }
            Event::Act { node, action, outcome } => return self.act(node, action, outcome, times),
        }
        Ok(1)
    }

    /// All states that an event can lead to.
    pub fn successors(
        &self,
        event: Event,
        times: SlotTimes,
    ) -> Result<Vec<(Event, World)>, Failed> {
        let mut all = Vec::new();
        // Most actions cannot be done. A copy of the world takes much longer than to see that.
        if matches!(event, Event::Act { node, action, .. } if !self.can_act(node, action)) {
            return Ok(all);
        }
        let (mut event, mut outcomes) = (event, 1);
        for number in 0.. {
            if number >= outcomes {
                break;
            }
            if let Some(outcome) = event.outcome() {
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

    /// Lets a follower take over, with requests that have no faults. Returns zero if it cannot.
    fn take_over(&mut self, node: usize, times: SlotTimes) -> Result<usize, Violation> {
        let mut steps = 0;
        for _ in 0..JOINED_STEPS {
            if !matches!(self.nodes[node].role, Role::Following(_)) {
                break;
            }
            let begun = self.act(node, Action::BeginEpoch, 0, times)?;
            let step = self.act(node, Action::Step, 0, times)?;
            if begun + step == 0 {
                break;
            }
            steps = 1;
        }
        Ok(steps)
    }

    /// Lets a leader collect, with requests that all have this outcome. Returns zero if it cannot.
    fn collect(
        &mut self,
        node: usize,
        outcome: usize,
        times: SlotTimes,
    ) -> Result<usize, Violation> {
        let mut steps = 0;
        for _ in 0..JOINED_STEPS {
            if self.act(node, Action::Collect, outcome, times)? == 0 {
                break;
            }
            steps = 1;
            if self.waits {
                self.act(node, Action::Propose, 0, times)?;
                self.act(node, Action::Step, 0, times)?;
            }
        }
        Ok(steps)
    }

    /// Lets a leader upload and name an object, with requests that have no faults. Returns zero if
    /// it cannot.
    fn upload(
        &mut self,
        node: usize,
        is_snapshot: bool,
        times: SlotTimes,
    ) -> Result<usize, Violation> {
        if self.act(node, Action::Upload { is_snapshot }, 0, times)? == 0 {
            return Ok(0);
        }
        for _ in 0..JOINED_STEPS {
            if !self.nodes[node].objects.is_uploading() {
                break;
            }
            let sent = self.act(node, Action::SendUpload, 0, times)?;
            let proposed = self.act(node, Action::Propose, 0, times)?;
            let step = self.act(node, Action::Step, 0, times)?;
            if sent + proposed + step == 0 {
                break;
            }
        }
        Ok(1)
    }

    /// The newest snapshot is damaged, and an operator moves it away. Returns zero if there is none
    /// but the first one.
    fn lose_snapshot(&mut self) -> usize {
        let names = self.store.objects.keys().filter(|name| name.starts_with("snapshots/"));
        let Some(name) = names.skip(1).last().cloned() else { return 0 };
        self.left.losses -= 1;
        self.lost += 1;
        self.store.objects.remove(&name);
        1
    }

    /// Follows from the state on the disk.
    fn follow(&mut self, node: usize, times: SlotTimes) {
        let disk = self.nodes[node].disk.clone();
        let end = disk.as_ref().map_or(0, |chain| chain.end.number);
        // A node that was deposed still knows what was replaced.
        if !self.nodes[node].objects.is_at(end) || self.nodes[node].role == Role::Down {
            self.restart_objects(node, end);
        }
        self.nodes[node].objects.give_up();
        self.nodes[node].reads.fail();
        self.nodes[node].request = None;
        self.nodes[node].role = Role::Following(Box::new(takeover(node, times, disk)));
    }

    /// A leader leads no more. What is certain stays on its disk.
    fn demote(&mut self, node: usize, times: SlotTimes) -> Result<(), Violation> {
        self.nodes[node].events.demote()?;
        self.follow(node, times);
        Ok(())
    }

    /// The node knows what the slots up to this one name, and not what was replaced.
    fn restart_objects(&mut self, node: usize, number: u64) {
        if self.left.collects {
            let table = self.table_at(number).expect("slots that nodes have applied");
            self.nodes[node].objects.restart(table.end(), table.state().clone());
        }
    }

    /// The table after the slots up to this number.
    fn table_at(&self, number: u64) -> Result<ObjectTable, Violation> {
        let mut table = ObjectTable::default();
        for slot in (1..=number).map_while(|number| self.first_of(number)) {
            table.apply(&slot)?;
        }
        Ok(table)
    }

    fn close(&mut self, node: usize) {
        self.left.ends -= u8::from(self.nodes[node].role != Role::Alone);
        self.nodes[node].role = Role::Down;
        self.nodes[node].request = None;
        let ids = self.nodes[node].events.close();
        self.acknowledged_ids.extend(ids);
    }

    fn crash(&mut self, node: usize, loss: DiskLoss) {
        let times = self.collection_times;
        let node = &mut self.nodes[node];
        node.role = Role::Down;
        node.request = None;
        node.collection = SlotCollection::new(STORE, times);
        node.events.crash(loss);
        if loss == DiskLoss::Everything {
            node.disk = None;
            node.objects.lose_disk();
        }
    }

    /// The clocks of a node.
    fn clock(&self, node: usize) -> ExploredClock {
        let shown = self.store.time - self.nodes[node].paused;
        ExploredClock { node: shown, wall: if self.wall_shows { self.store.time } else { shown } }
    }

    /// Lets the request of a node take effect. Returns the number of outcomes that it could have
    /// had.
    fn take_effect(&mut self, node: usize, outcome: usize) -> usize {
        let clock = self.clock(node);
        let Node { role, request, .. } = &mut self.nodes[node];
        let Some(request) = request else { return 0 };
        let store = ExploredStore::new(std::mem::take(&mut self.store), outcome);
        let micros = store.micros();
        // The state machine itself gets the answer later.
        let has_effect = request.take_effect(&store, micros, |objects| match role.clone() {
            Role::Following(mut takeover) => drop(takeover.step(objects, &clock)),
            Role::Leading(mut writer) => drop(writer.step(objects, &clock)),
            Role::Down | Role::Alone => {}
        });
        assert!(has_effect, "each step sends a request");
        let outcomes;
        (self.store, outcomes) = store.finish();
        outcomes
    }

    /// A node with a request whose moments are apart.
    pub fn sender(&self) -> Option<usize> {
        self.nodes.iter().position(|node| node.request.is_some())
    }

    fn new_id(&mut self, node: usize) -> [u8; 16] {
        self.nodes[node].ids += 1;
        let mut uid = [0; 16];
        (uid[0], uid[1]) = (node as u8 + 2, self.nodes[node].ids);
        uid
    }

    /// The answer that a node gets, if the action is to get one.
    fn replay(&mut self, node: usize, action: Action) -> Option<Replay> {
        if action != Action::GetAnswer {
            return None;
        }
        let request = self.nodes[node].request.take()?;
        Some(request.replay(self.stated, self.clock(node), self.store.clock() * UNIT_MICROS))
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
        let (clock, replay) = (self.clock(node), self.replay(node, action));
        let ignores_floors = self.ignores_floors && matches!(role, Role::Following(_));
        let hidden = self.nodes[node].reads.hidden(action).or(ignores_floors.then_some("floors/"));
        let store = ExploredStore::new(std::mem::take(&mut self.store), outcome);
        let store = store.with_hidden(hidden);
        let (target, shown_clock): (&dyn Objects, &dyn Clock) = match &replay {
            Some(replay) => (replay, replay),
            None => (&store, &clock),
        };
        let mut done = Done::Nothing;
        match (action, &mut role) {
            (Action::Step | Action::GetAnswer, Role::Following(takeover)) => {
                done = Done::Took(takeover.step(target, shown_clock));
            }
            (Action::Step | Action::GetAnswer, Role::Leading(writer)) => {
                done = Done::Wrote(writer.step(target, shown_clock));
            }
            (Action::BeginEpoch, Role::Following(takeover)) => {
                let begins = SlotEntry::EpochBegins { host: String::from("h"), port: node as u16 };
                let has_begun = takeover.begin_epoch(self.new_id(node), 0, vec![begins]);
                self.left.proposals -= u8::from(has_begun.expect("a valid slot"));
            }
            (Action::Follow, Role::Following(takeover)) => takeover.keep_following(),
            (Action::Append { id, waits }, role) => {
                done = Done::Acknowledged(self.append(node, *role == Role::Alone, id, waits));
            }
            (Action::Wait, _) => {
                let acknowledged = self.nodes[node].events.wait(0);
                done = Done::Acknowledged(Ok(acknowledged.into_iter().collect()));
            }
            (Action::Commit, _) => {
                done = Done::Acknowledged(self.nodes[node].events.commit());
            }
            (action, Role::Leading(writer)) => {
                done = self.act_as_leader(node, action, writer, &store, &clock);
            }
            _ => {}
        }
        let outcomes;
        (self.store, outcomes) = store.finish();
        self.nodes[node].role = role;
        self.settle(node, done, times)?;
        Ok(outcomes)
    }

    /// Does one thing that only a leader can do.
    fn act_as_leader(
        &mut self,
        node: usize,
        action: Action,
        writer: &mut SlotWriter,
        store: &ExploredStore,
        clock: &ExploredClock,
    ) -> Done {
        match action {
            Action::Propose => {
                self.left.proposals -= 1;
                let entry = self.nodes[node].events.next_entry();
                let upload = self.nodes[node].objects.next_entry();
                let entries = [entry].into_iter().chain(upload).collect();
                writer.propose(self.new_id(node), 0, entries).expect("a valid slot");
            }
            Action::Upload { is_snapshot } => {
                match is_snapshot {
                    true => self.left.snapshots -= 1,
                    false => self.left.files -= 1,
                }
                let uid = self.new_id(node);
                self.nodes[node].objects.want(uid, is_snapshot);
            }
            Action::SendUpload => {
                let Node { events, objects, .. } = &mut self.nodes[node];
                objects.send(store, |uid| {
                    let (ids, chain) = (SlotIds { store: STORE, uid }, writer.chain().clone());
                    SlotSnapshot { ids, chain, state: events.state() }
                });
            }
            Action::SendRead => {
                self.left.reads -= 1;
                self.nodes[node].reads.arrive(writer, self.last_acknowledged);
            }
            Action::Prove => return Done::Proved(writer.prove(store, clock)),
            Action::AnswerRead => return Done::Answered(self.nodes[node].reads.answer(writer)),
            Action::Collect => return Done::Collected(self.collect_step(node, store, clock)),
            Action::RestartCollection => self.nodes[node].collection.restart(),
            _ => {}
        }
        Done::Nothing
    }

    /// Sends the next request of a collection, with the fault of the node.
    fn collect_step(
        &mut self,
        node: usize,
        store: &ExploredStore,
        clock: &ExploredClock,
    ) -> SlotResult<CollectionStep> {
        let Node { collection, objects, .. } = &mut self.nodes[node];
        let table = objects.collected_table(store);
        let step = store.with_twin(objects.twin(), || collection.step(store, clock, &table));
        if step == Ok(CollectionStep::Waiting) && objects.fault == ObjectFault::WaitsForNoSlot {
            let later = ExploredObjects::after_two_slots(&table, STORE);
            return collection.step(store, clock, &later);
        }
        if step == Ok(CollectionStep::Done) {
            objects.table_mut().forget(collection.floor().slot);
        }
        step
    }

    fn append(
        &mut self,
        node: usize,
        is_alone: bool,
        id: u8,
        waits: bool,
    ) -> Result<Vec<u8>, Violation> {
        self.left.appends -= 1;
        self.sent = self.sent.max(id);
        let events = &mut self.nodes[node].events;
        let acknowledged = match is_alone {
            true => events.append_alone(id),
            false => events.append(id, waits)?,
        };
        Ok(acknowledged.into_iter().collect())
    }

    fn can_act(&self, node: usize, action: Action) -> bool {
        let request = self.nodes[node].request.as_ref();
        match (&self.nodes[node].role, action) {
            (_, Action::GetAnswer) => request.is_some_and(ExploredRequest::has_effect),
            (_, Action::Step) if request.is_some() => false,
            (Role::Leading(writer), Action::Step) => writer.is_busy(),
            (Role::Leading(writer), Action::Propose) => {
                !writer.is_busy() && self.left.proposals > 0
            }
            (Role::Leading(..), Action::Upload { is_snapshot }) => {
                let left = if is_snapshot { self.left.snapshots } else { self.left.files };
                left > 0 && !self.nodes[node].objects.is_uploading()
            }
            (Role::Leading(..), Action::SendRead) => self.left.reads > 0,
            (Role::Leading(writer), Action::Prove) => {
                !writer.is_busy() && self.nodes[node].reads.are_used()
            }
            (Role::Leading(writer), Action::AnswerRead) => {
                self.nodes[node].reads.can_answer(writer, self.clock(node))
            }
            (Role::Leading(..), Action::SendUpload) => self.nodes[node].objects.can_send(),
            (Role::Leading(..), Action::Collect | Action::RestartCollection) => self.left.collects,
            (Role::Leading(..) | Role::Alone, Action::Append { .. }) => self.left.appends > 0,
            (Role::Leading(..) | Role::Following(_), Action::Commit) => {
                self.nodes[node].events.can_commit()
            }
            (_, Action::Wait) => self.nodes[node].events.has_tickets(),
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
        self.waits = matches!(done, Done::Collected(Ok(CollectionStep::Waiting)));
        let checked = |error: SlotError| match error.is_temporary() {
            true => Ok(()),
            false => Err(format!("node {node} failed: {error}")),
        };
        match done {
            Done::Nothing | Done::Took(Ok(TakeoverStep::Again)) => {}
            Done::Acknowledged(ids) => self.acknowledge(node, ids?)?,
            Done::Answered(answer) => answer.map_err(|it| format!("node {node}: {it}"))?,
            Done::Proved(Err(error)) => checked(error)?,
            Done::Proved(Ok(ProofStep::Deposed)) => self.demote(node, times)?,
            Done::Proved(Ok(ProofStep::Proven | ProofStep::Unknown)) => {}
            // A list lacked the only snapshot. The process ends, and is started again.
            Done::Took(Err(SlotError::Refused(_))) if self.store.lists_lack => {
                self.crash(node, DiskLoss::Nothing);
            }
            Done::Took(Err(error)) => checked(error)?,
            Done::Wrote(Err(error)) => checked(error)?,
            Done::Collected(Err(error)) => checked(error)?,
            Done::Took(Ok(TakeoverStep::Followed(step))) => self.settle_followed(node, step)?,
            Done::Took(Ok(TakeoverStep::Overtaken)) => {}
            Done::Took(Ok(TakeoverStep::AtEnd)) => {
                // The exploration begins an epoch as an event of its own, or follows on.
            }
            Done::Took(Ok(TakeoverStep::Leading(writer, slot))) => {
                self.check(node, "leads since", &slot)?;
                self.nodes[node].events.promote(slot.epoch)?;
                self.add_objects(node, |objects| objects.slot_created(&slot))?;
                self.nodes[node].disk = Some(writer.chain().clone());
                let clock = self.clock(node);
                self.nodes[node].reads.promote(&writer, clock);
                self.nodes[node].role = Role::Leading(writer);
            }
            Done::Wrote(Ok(WriteStep::Acknowledged(slot))) => {
                self.check(node, "acknowledged", &slot)?;
                self.nodes[node].events.slot_created(&slot)?;
                self.add_objects(node, |objects| objects.slot_created(&slot))?;
                self.acknowledged += 1;
                self.last_acknowledged = self.last_acknowledged.max(slot.number);
                let clock = self.clock(node);
                self.nodes[node].reads.slot_created(clock);
                self.keep_end(node);
            }
            Done::Wrote(Ok(WriteStep::Deposed)) => self.demote(node, times)?,
            Done::Wrote(Ok(WriteStep::Idle | WriteStep::Open)) | Done::Collected(Ok(_)) => {}
        }
        Ok(())
    }

    /// Checks what a follower got, and lets its event store and its objects follow.
    fn settle_followed(&mut self, node: usize, step: FollowStep) -> Result<(), Violation> {
        match step {
            FollowStep::Applied(slot) => {
                self.check(node, "applied", &slot)?;
                self.nodes[node].events.apply_slot(&slot)?;
                self.add_objects(node, |objects| objects.apply(&slot))?;
                self.keep_end(node);
            }
            FollowStep::Object { object, bytes, .. } => {
                self.nodes[node].objects.read(&object, &bytes)?;
                self.keep_end(node);
            }
            FollowStep::Restart(snapshot) => {
                let end = snapshot.chain.end;
                if end.number > 0 && self.first_of(end.number).map(|it| it.ids.uid) != Some(end.uid)
                {
                    return Err(format!("node {node} began from a wrong snapshot {}", end.number));
                }
                self.nodes[node].events.load(end.epoch, &snapshot.state)?;
                self.restart_objects(node, end.number);
                let Node { role, objects, .. } = &mut self.nodes[node];
                if let Role::Following(takeover) = role {
                    takeover.fetch(objects.missing());
                }
                self.keep_end(node);
            }
            FollowStep::Again | FollowStep::Current(_) => {}
        }
        Ok(())
    }

    /// Lets the objects of a node change with a slot, if leaders collect.
    fn add_objects(
        &mut self,
        node: usize,
        change: impl FnOnce(&mut ExploredObjects) -> Result<(), Violation>,
    ) -> Result<(), Violation> {
        match self.left.collects {
            true => change(&mut self.nodes[node].objects),
            false => Ok(()),
        }
    }

    /// A node acknowledges events to clients, which read them there.
    fn acknowledge(&mut self, node: usize, ids: Vec<u8>) -> Result<(), Violation> {
        let Node { role, events, .. } = &self.nodes[node];
        if let Some(id) = ids.iter().find(|id| *role != Role::Alone && !events.shows(**id)) {
            return Err(format!("node {node} acknowledges event {id} and does not show it"));
        }
        self.acknowledged_ids.extend(ids);
        Ok(())
    }

    fn keep_end(&mut self, node: usize) {
        let chain = match &self.nodes[node].role {
            Role::Down | Role::Alone => return,
            // A snapshot counts once the node has the objects of its state.
            Role::Following(takeover) if takeover.follower().is_fetching() => return,
            Role::Following(takeover) => takeover.follower().chain(),
            Role::Leading(writer) => writer.chain(),
        };
        self.nodes[node].disk = Some(chain.clone());
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

    /// Checks the rules for the event log: the chain has each id once, and all acknowledged ones;
    /// the nodes have and show nothing else.
    fn check_events(&mut self) -> Result<(), Violation> {
        while let Some(slot) = self.first_of(self.chain.0 + 1) {
            let (from, ids) = slot_ids(&slot);
            if !ids.is_empty() && from != self.chain.1.len() as u64 {
                return Err(format!("slot {} does not continue the log", slot.number));
            }
            if let Some(id) = ids.iter().find(|id| self.chain.1.contains(id)) {
                return Err(format!("slot {} has event {id} a second time", slot.number));
            }
            self.chain.0 += 1;
            self.chain.1.extend(ids);
        }
        let chain = &self.chain.1;
        if let Some(id) = self.acknowledged_ids.iter().find(|id| !chain.contains(id)) {
            return Err(format!("event {id} is acknowledged, and the slots have {chain:?}"));
        }
        for (number, node) in self.nodes.iter().enumerate() {
            let violation = |it| format!("node {number}: {it}, the slots have {chain:?}");
            node.events.check(chain).map_err(violation)?;
        }
        Ok(())
    }

    /// Checks C15 and C16: the store has two named snapshots after all deleted slots, but for those
    /// that an operator moved away. It has what a node needs that begins from the newest floor.
    fn check_objects(&self) -> Result<(), Violation> {
        let chain = self.table_at(self.chain.0)?;
        let exists = |name: &str| self.store.objects.contains_key(name);
        let is_deleted = |number: &u64| !exists(&format!("slots/{number:020}"));
        let deleted = (1..=self.chain.0).rev().find(is_deleted).unwrap_or(0);
        let named = chain.state().snapshots.iter();
        let kept = named.filter(|(number, uid)| {
            *number >= deleted && exists(snapshot_name(*number, uid).as_str())
        });
        let count = kept.count() + usize::from(self.lost);
        if deleted > 0 && count < 2 {
            return Err(format!("slot {deleted} is deleted, with {count} snapshots after it"));
        }
        let floor = self.newest_floor();
        let later = (floor + 1..=self.chain.0).filter_map(|number| self.first_of(number));
        let later: Vec<NamedObject> =
            later.flat_map(|slot| slot.entries).filter_map(|it| NamedObject::of(&it)).collect();
        let at_floor = self.table_at(floor)?;
        let mut needed = at_floor.state().objects.iter().chain(&later);
        match needed.find(|object| !exists(object.name.as_str())) {
            Some(object) => Err(format!("{} is missing, with floor {floor}", object.name)),
            None => Ok(()),
        }
    }

    /// The last slot that the newest floor announces.
    fn newest_floor(&self) -> u64 {
        let floors = self.store.objects.iter().rev();
        let mut floors = floors.filter(|(name, _)| name.starts_with("floors/"));
        let newest = floors.find_map(|(name, (bytes, _))| {
            let number = name.strip_prefix("floors/")?.parse().ok()?;
            Floor::decode(bytes, &STORE, number).ok()
        });
        newest.map_or(0, |floor| floor.slot)
    }

    /// Number of answered reads.
    pub fn answered_reads(&self) -> u64 {
        self.nodes.iter().map(|node| node.reads.answered).sum()
    }

    /// Number of files that were deleted.
    pub fn deleted_files(&self) -> usize {
        let files = self.store.first.keys().filter(|name| name.starts_with("chunks/"));
        files.filter(|name| !self.store.objects.contains_key(*name)).count()
    }

    /// Number of leaders whose events the slots have.
    pub fn epochs_with_events(&self) -> usize {
        let slots = (1..=self.chain.0).filter_map(|number| self.first_of(number));
        let with_events = slots.filter(|slot| !slot_ids(slot).1.is_empty());
        with_events.map(|slot| slot.epoch).collect::<BTreeSet<u64>>().len()
    }

    pub fn fingerprint(&self) -> u128 {
        let mut hasher = BufferHasher(Vec::with_capacity(4096));
        self.hash(&mut hasher);
        let hash = |id| u128::from(checksum(id, 0, &hasher.0));
        hash(0) << 64 | hash(1)
    }
}

/// Collects what is hashed, for a fast hash of all of it.
struct BufferHasher(Vec<u8>);

impl Hasher for BufferHasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn finish(&self) -> u64 {
        checksum(0, 0, &self.0)
    }
}

/// An event with a violation.
pub struct Failed {
    pub event: Event,
    pub violation: Violation,
}

/// Result of an action.
enum Done {
    Nothing,
    Took(Result<TakeoverStep, SlotError>),
    Wrote(Result<WriteStep, SlotError>),
    Collected(Result<CollectionStep, SlotError>),
    Proved(Result<ProofStep, SlotError>),
    Answered(Result<(), Violation>),
    /// These ids are acknowledged.
    Acknowledged(Result<Vec<u8>, Violation>),
}

fn takeover(node: usize, times: SlotTimes, disk: Option<ChainState>) -> SlotTakeover {
    let follower = SlotFollower::new(STORE, times, disk);
    SlotTakeover::new(STORE, times, format!("{node}"), follower)
}
