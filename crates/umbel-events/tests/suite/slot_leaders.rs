//! The leader of a replicated event log over a simulated object store: what it acknowledges is in
//! the slots, whatever requests, other leaders and crashes do.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use umbel_env::{Access, Creation, Env, ObjectName, ObjectResult, Objects};
use umbel_events::{
    AppendRequest, DeadlineObjects, Durability, EVENT_CHUNK_KIND, Error, ExpectedVersion,
    LeaderEnd, LeaderRole, LeaderStep, LeaderThread, LogPoint, NewEvent, SlotLeader,
    SlotLeaderOptions, Store, StoreOptions, StreamAppend,
};
use umbel_log::HEADER_BYTES;
use umbel_sim::{Fault, FaultKind, FaultRates, ObjectFault, ObjectSim, RequestKind, Sim, Survival};
use umbel_slots::{ChainState, InitStep, LogInit, Slot, SlotEntry, StoreObject};

use super::support::{all, id, options};

const STORE: [u8; 16] = [7; 16];
const START: LogPoint = LogPoint { epoch: 0, offset: 0 };
/// Bytes of each event: a chunk has a few of them.
const DATA_BYTES: usize = 9000;
/// Steps after which anything that is awaited has happened.
const STEPS_MAX: usize = 5000;
/// Appends of a history, two at a time: more than a chunk has.
const ROUNDS: usize = 7;
/// Those of a history that is killed.
const KILLED_ROUNDS: usize = 5;
/// Bytes of an end record.
const END_BYTES: usize = 48;

fn object() -> StoreObject {
    StoreObject::new(STORE)
}

/// An object store with a new replicated log.
fn new_log(seed: u64) -> ObjectSim {
    let objects = ObjectSim::new(seed);
    objects.keep_history(false);
    let mut init = LogInit::new(object()).expect("valid constants");
    let (client, clock) = (objects.client(1000), objects.env().clock);
    while init.step(&*client, &*clock).expect("no fault") != InitStep::Created {}
    objects
}

/// The environment of the leader of a node, whose random ids are its own.
fn leader_env(objects: &ObjectSim, number: u64) -> Env {
    Env { entropy: Sim::new(1000 + number).env().entropy, ..objects.env() }
}

/// Outcomes of appends, by the numbers of their events.
#[derive(Debug, Default)]
struct Outcomes {
    acknowledged: Vec<u64>,
    ambiguous: Vec<u64>,
    failed: Vec<String>,
}

/// A node with an event store of its own.
struct Node {
    sim: Sim,
    number: u64,
    store: Store,
    leader: SlotLeader,
    objects: ObjectSim,
    client: Arc<dyn Objects>,
    outcomes: Arc<Mutex<Outcomes>>,
}

impl Node {
    /// A candidate whose store has the slots of `chain`, up to `in_slots`.
    fn open(
        sim: &Sim,
        objects: &ObjectSim,
        number: u64,
        chain: Option<ChainState>,
        in_slots: LogPoint,
    ) -> Node {
        let options = StoreOptions { durability: Durability::Synced, ..options(sim) };
        let (store, log) = Store::open_replicated("/events", options, in_slots).expect("opened");
        let env = leader_env(objects, number);
        let named = SlotLeaderOptions::new(format!("node-{number}"), "a.example", 2113);
        Node {
            sim: sim.clone(),
            number,
            store,
            leader: SlotLeader::new(&env, log, object(), chain, named),
            objects: objects.clone(),
            client: objects.client(number),
            outcomes: Arc::default(),
        }
    }

    /// A candidate with an empty store.
    fn new(objects: &ObjectSim) -> Node {
        Node::open(&Sim::new(1), objects, 1, None, START)
    }

    /// A leader with an empty store.
    fn leading(objects: &ObjectSim) -> Node {
        let mut node = Node::new(objects);
        node.run_until("it leads", Node::is_leader);
        node
    }

    /// One step, and the wait after it.
    fn step(&mut self) -> LeaderStep {
        let step = self.leader.step(&*self.client);
        if let LeaderStep::Wait(time) = step {
            self.objects.advance(time);
        }
        step
    }

    fn run_until(&mut self, what: &str, is_done: impl Fn(&Node) -> bool) {
        for _ in 0..STEPS_MAX {
            if is_done(&*self) {
                return;
            }
            self.step();
        }
        panic!("not so after {STEPS_MAX} steps: {what}: {:?}", self.leader.status());
    }

    /// Steps until the leader waits for appends or a heartbeat.
    fn run_until_idle(&mut self) {
        for _ in 0..STEPS_MAX {
            match self.leader.step(&*self.client) {
                LeaderStep::Again => {}
                LeaderStep::Wait(_) => return,
                LeaderStep::Ended(end) => panic!("it ended: {end}"),
            }
        }
        panic!("no end of the steps");
    }

    fn is_leader(&self) -> bool {
        self.leader.status().role == LeaderRole::Leader
    }

    fn end(&self) -> Option<LeaderEnd> {
        match self.leader.status().role {
            LeaderRole::Ended(end) => Some(end),
            _ => None,
        }
    }

    fn has_ended(&self) -> bool {
        self.end().is_some()
    }

    /// Whether the slots have everything that was appended.
    fn is_in_slots(&self) -> bool {
        self.leader.log().unslotted().expect("open").is_empty()
    }

    fn submit(&self, number: u64) {
        let data = vec![number as u8; DATA_BYTES];
        let events = [NewEvent::binary(id(number), "Large", &data)];
        let appends =
            [StreamAppend { stream: "cart-1", expected: ExpectedVersion::Any, events: &events }];
        let request = AppendRequest { appends: &appends, checks: &[] };
        let pending = self.store.submit(&request).expect("submitted");
        let outcomes = Arc::clone(&self.outcomes);
        pending.on_acknowledged(move |result| {
            let mut outcomes = outcomes.lock().expect("no panic");
            match result {
                Ok(_) => outcomes.acknowledged.push(number),
                Err(Error::AppendAmbiguous) => outcomes.ambiguous.push(number),
                Err(error) => outcomes.failed.push(error.to_string()),
            }
        });
    }

    fn acknowledged(&self) -> Vec<u64> {
        self.outcomes.lock().expect("no panic").acknowledged.clone()
    }

    fn ambiguous(&self) -> Vec<u64> {
        self.outcomes.lock().expect("no panic").ambiguous.clone()
    }

    /// Another node with the slots so far, and with the disk of this one.
    fn successor(&self) -> Node {
        let (slots, image) = (slots(&self.objects), self.sim.kill_image());
        let (chain, end) = (chain_of(&slots), end_of(&slots));
        Node::open(&image, &self.objects, self.number + 1, Some(chain), end)
    }
}

/// Numbers of the events that readers see.
fn visible(store: &Store) -> Vec<u64> {
    let number = |id: umbel_events::EventId| {
        u64::from_le_bytes(*id.0.first_chunk().expect("an id has 16 bytes"))
    };
    all(store).into_iter().map(|event| number(event.id)).collect()
}

/// All slots, which are a chain.
fn slots(objects: &ObjectSim) -> Vec<Slot> {
    let stored = objects.objects();
    let mut slots = Vec::new();
    for number in 1_u64.. {
        let Some(bytes) = stored.get(&format!("slots/{number:020}")) else { break };
        slots.push(Slot::decode(bytes, &STORE, number).expect("a slot"));
    }
    let count = stored.keys().filter(|name| name.starts_with("slots/")).count();
    assert_eq!(slots.len(), count, "without a gap");
    chain_of(&slots);
    slots
}

fn chain_of(slots: &[Slot]) -> ChainState {
    let mut chain = ChainState::default();
    slots.iter().for_each(|slot| chain.advance(slot).expect("in the chain"));
    chain
}

/// A chunk of the event log, as the slots have it.
#[derive(Debug)]
struct SlotChunk {
    start: u64,
    bytes: Vec<u8>,
    /// Mark and running checksum of the end record.
    ended: Option<(u32, u64)>,
}

impl SlotChunk {
    /// Offset after the last record.
    fn end(&self) -> u64 {
        HEADER_BYTES + self.bytes.len() as u64
    }
}

/// The chunks that the slots have. Asserts the order that the format requires.
fn chunks_of(slots: &[Slot]) -> BTreeMap<u64, SlotChunk> {
    let mut chunks: BTreeMap<u64, SlotChunk> = BTreeMap::new();
    for entry in slots.iter().flat_map(|slot| &slot.entries) {
        match entry {
            SlotEntry::LogBegins { log, start, .. } => {
                assert_eq!(log.kind, EVENT_CHUNK_KIND);
                let have_ended = chunks.values().all(|chunk| chunk.ended.is_some());
                assert!(have_ended, "a chunk begins after the end of the one before it");
                let chunk = SlotChunk { start: *start, bytes: Vec::new(), ended: None };
                assert!(chunks.insert(log.id, chunk).is_none(), "it begins once");
            }
            SlotEntry::Bytes { log, from, bytes } => {
                let chunk = chunks.get_mut(&log.id).expect("it began before");
                assert_eq!((*from, chunk.ended), (chunk.end(), None), "contiguous records");
                chunk.bytes.extend_from_slice(bytes);
            }
            SlotEntry::LogEnded { log, end, mark, running } => {
                let chunk = chunks.get_mut(&log.id).expect("it began before");
                assert_eq!((*end, chunk.ended), (chunk.end(), None), "after its last record");
                chunk.ended = Some((*mark, *running));
            }
            _ => {}
        }
    }
    chunks
}

/// The point after the last record in the slots.
fn end_of(slots: &[Slot]) -> LogPoint {
    let chunks = chunks_of(slots);
    let offset = chunks.values().next_back().map_or(0, |chunk| chunk.start + chunk.end());
    LogPoint { epoch: slots.last().map_or(0, |slot| slot.epoch), offset }
}

/// Compares the chunks of the slots byte by byte with the files of a node. Returns the number of
/// end records that the files have. A chunk that an open after a crash has ended has none, and all
/// of it was durable.
fn compare_files(sim: &Sim, slots: &[Slot]) -> usize {
    let mut end_records = 0;
    for (id, chunk) in chunks_of(slots) {
        let path = format!("/events/log/{id:08}.chunk");
        let file = sim.env().files.open(path.as_ref(), Access::Read).expect("a chunk");
        let mut bytes = vec![0; chunk.bytes.len()];
        file.read_exact_at(&mut bytes, HEADER_BYTES).expect("whole records");
        assert!(bytes == chunk.bytes, "chunk {id} has other bytes");
        let mut record = [0; END_BYTES];
        file.read_at(&mut record, chunk.end()).expect("readable");
        let Some((mark, running)) = chunk.ended else { continue };
        if record[28] == 2 {
            assert_eq!(record[24..28], mark.to_le_bytes(), "chunk {id}");
            assert_eq!(record[40..48], running.to_le_bytes(), "chunk {id}");
            end_records += 1;
        } else {
            assert_eq!(u64::from(mark) * 8, chunk.end(), "chunk {id}");
        }
    }
    end_records
}

/// Opens a disk with what the slots have. Asserts that exactly this is visible, and that nothing
/// acknowledged is missing. Returns the number of visible events.
fn check_reopened(image: &Sim, slots: &[Slot], acknowledged: &[u64], context: &str) -> u64 {
    compare_files(image, slots);
    let options = StoreOptions { durability: Durability::Synced, ..options(image) };
    let (store, _) = Store::open_replicated("/events", options, end_of(slots)).expect(context);
    let visible = visible(&store);
    let count = visible.len() as u64;
    assert_eq!(visible, (1..=count).collect::<Vec<_>>(), "{context}");
    assert!(acknowledged.iter().all(|number| *number <= count), "{context}: {acknowledged:?}");
    assert!(store.verify().expect("verified").damage.is_empty(), "{context}");
    store.close().expect("closed");
    count
}

#[test]
fn appends_are_acknowledged_with_their_slot() {
    let objects = new_log(1);
    let mut node = Node::leading(&objects);
    assert_eq!(node.leader.status().epoch, 1);
    for round in 1..=ROUNDS as u64 {
        node.run_until_idle();
        objects.advance(Duration::from_millis(200));
        node.submit(2 * round - 1);
        node.submit(2 * round);
        let before = slots(&objects).len();
        let status = node.leader.status();
        assert!(status.bytes_not_in_slots >= 2 * DATA_BYTES as u64, "{status:?}");
        // A lone append on a quiet store goes at once: the first step reads the records, and the
        // second one creates the slot.
        assert_eq!(node.step(), LeaderStep::Again);
        assert_eq!(slots(&objects).len(), before);
        assert_eq!(node.acknowledged().len() as u64, 2 * round - 2, "in no slot");
        assert_eq!(node.step(), LeaderStep::Again);
        node.store.flush().expect("flushed");
        assert_eq!(slots(&objects).len(), before + 1);
        assert_eq!(node.acknowledged(), (1..=2 * round).collect::<Vec<_>>());
        assert_eq!(visible(&node.store), node.acknowledged());
        let status = node.leader.status();
        assert_eq!((status.slot, status.bytes_not_in_slots), (before as u64 + 1, 0));
        assert!(status.success_age < Some(Duration::from_secs(1)), "{status:?}");
    }
    let slots = slots(&objects);
    assert!(chunks_of(&slots).len() > 1, "several chunks");
    assert_eq!(compare_files(&node.sim, &slots), chunks_of(&slots).len() - 1);
}

/// Appends within the interval share a slot, and heartbeats come without appends only.
#[test]
fn slots_have_an_interval() {
    let objects = new_log(1);
    let mut node = Node::leading(&objects);
    let count = |objects: &ObjectSim| slots(objects).len();
    objects.advance(Duration::from_secs(1));
    node.submit(1);
    node.run_until("in a slot", Node::is_in_slots);
    node.submit(2);
    node.submit(3);
    let before = count(&objects);
    let LeaderStep::Wait(wait) = node.step() else { panic!("a slot within the interval") };
    assert!(wait <= Duration::from_millis(100), "{wait:?}");
    node.run_until("in a slot", Node::is_in_slots);
    assert_eq!(count(&objects), before + 1, "both in one slot");

    let started = objects.env().clock.now();
    let before = count(&objects);
    while objects.env().clock.now() < started + Duration::from_secs(60) {
        node.step();
    }
    let heartbeats = count(&objects) - before;
    assert!((28..=31).contains(&heartbeats), "{heartbeats} heartbeats in a minute");
    let last = slots(&objects).pop().expect("a slot");
    assert_eq!(last.entries, [SlotEntry::Nothing]);
    assert!(node.is_leader());
}

#[test]
fn unknown_answers_are_read_again() {
    let faults = ObjectFault::ALL.into_iter().filter(|fault| fault.is_transient());
    for fault in faults {
        let objects = new_log(1);
        objects.set_landing_delay(Duration::from_secs(5));
        let mut node = Node::leading(&objects);
        objects.advance(Duration::from_secs(1));
        objects.plan(fault);
        node.submit(1);
        node.run_until("acknowledged", |node| node.acknowledged() == [1]);
        objects.settle();
        node.run_until("a heartbeat", |node| {
            slots(&node.objects).last().is_some_and(|slot| slot.entries == [SlotEntry::Nothing])
        });
        assert_eq!(visible(&node.store), [1], "{fault:?}");
        check_reopened(&node.sim.kill_image(), &slots(&objects), &[1], &format!("{fault:?}"));
    }
}

/// Random faults for a longer time: all appends are acknowledged once, in one history.
#[test]
fn appends_survive_random_faults() {
    for seed in 1..=20 {
        let objects = new_log(seed);
        let mut node = Node::leading(&objects);
        objects.set_rates(FaultRates::transient(15));
        for number in 1..=10 {
            node.submit(number);
            // One more timeout could be the end of the leader, rightly.
            node.run_until("in slots, or ended", |node| node.is_in_slots() || node.has_ended());
            if node.has_ended() {
                break;
            }
            node.store.flush().expect("flushed");
        }
        objects.set_rates(FaultRates::none());
        objects.settle();
        let (slots, acknowledged) = (slots(&objects), node.acknowledged());
        if !node.has_ended() {
            assert_eq!(acknowledged, (1..=10).collect::<Vec<_>>(), "seed {seed}");
        }
        let image = node.sim.kill_image();
        check_reopened(&image, &slots, &acknowledged, &format!("seed {seed}"));
    }
}

#[test]
fn overloaded_store_delays_appends_and_then_ends_the_leader() {
    let storm = || FaultRates::none().with(ObjectFault::SlowDown { commits: false }, 1000);
    let objects = new_log(1);
    let mut node = Node::leading(&objects);
    objects.advance(Duration::from_secs(1));
    objects.set_rates(storm());
    node.submit(1);
    let requests = |objects: &ObjectSim| objects.request_counts().values().sum::<u64>();
    let (started, before) = (objects.env().clock.now(), requests(&objects));
    while objects.env().clock.now() < started + Duration::from_secs(20) {
        node.step();
    }
    let sent = requests(&objects) - before;
    assert!((10..=60).contains(&sent), "{sent} requests in 20 s");
    assert!(node.is_leader() && node.acknowledged().is_empty());
    assert!(node.leader.status().failure.is_some_and(|failure| failure.contains("503")));
    objects.set_rates(FaultRates::none());
    node.run_until("acknowledged", |node| node.acknowledged() == [1]);
    assert_eq!(node.leader.status().failure, None);

    node.submit(2);
    objects.set_rates(storm());
    node.run_until("it ended", Node::has_ended);
    assert_eq!(node.end(), Some(LeaderEnd::Stale));
    assert_eq!((node.acknowledged(), node.ambiguous()), (vec![1], vec![2]));
    objects.set_rates(FaultRates::none());
    check_reopened(&node.sim.kill_image(), &slots(&objects), &[1], "after the storm");
}

/// A pause that the node's clock shows, with a slot that was created before it.
#[test]
fn leader_that_paused_acknowledges_nothing() {
    let objects = new_log(1);
    let mut node = Node::leading(&objects);
    node.submit(1);
    objects.plan(ObjectFault::LostAnswer);
    // The first step begins the slot, the second one creates it.
    node.step();
    node.step();
    objects.advance(Duration::from_secs(90));
    node.run_until("it ended", Node::has_ended);
    assert_eq!(node.end(), Some(LeaderEnd::Stale));
    assert_eq!((node.acknowledged(), node.ambiguous()), (vec![], vec![1]));
}

#[test]
fn second_leader_deposes_the_first_one() {
    for is_open in [false, true] {
        let objects = new_log(1);
        let mut first = Node::leading(&objects);
        objects.advance(Duration::from_secs(1));
        first.submit(1);
        first.run_until("in a slot", Node::is_in_slots);
        first.store.flush().expect("flushed");
        let mut second = first.successor();
        first.submit(2);
        if is_open {
            // The slot has its content, and its creation is not sent.
            objects.advance(Duration::from_secs(1));
            assert_eq!(first.step(), LeaderStep::Again);
        }
        first.submit(3);
        second.run_until("it leads", Node::is_leader);
        assert_eq!(second.leader.status().epoch, 2);
        first.run_until("it ended", Node::has_ended);
        assert_eq!(first.end(), Some(LeaderEnd::Deposed));
        assert_eq!((first.acknowledged(), first.ambiguous()), (vec![1], vec![2, 3]));
        let (slots_before, closed) = (slots(&objects).len(), first.step());
        assert_eq!(closed, LeaderStep::Ended(LeaderEnd::Deposed), "it stays so");

        second.submit(4);
        second.run_until("in a slot", Node::is_in_slots);
        second.store.flush().expect("flushed");
        assert_eq!(visible(&second.store), [1, 4], "nothing of the first one");
        let slots = slots(&objects);
        assert!(slots.len() > slots_before);
        compare_files(&second.sim, &slots);
    }
}

/// The last slot of a leader without an answer, which its successor lacks.
#[test]
fn candidate_without_the_last_slots_is_overtaken() {
    let objects = new_log(1);
    let mut first = Node::leading(&objects);
    let mut second = first.successor();
    objects.advance(Duration::from_secs(1));
    first.submit(1);
    first.run_until("in a slot", Node::is_in_slots);
    let before = slots(&objects);
    second.run_until("it ended", Node::has_ended);
    assert_eq!(second.end(), Some(LeaderEnd::Overtaken));
    assert_eq!(slots(&objects), before, "no epoch began");
    // Its store is open, and follows.
    assert!(visible(&second.store).is_empty());
    first.submit(2);
    first.run_until("acknowledged", |node| node.acknowledged() == [1, 2]);
}

#[test]
fn candidate_with_records_beyond_the_slots_deposes_nobody() {
    let objects = new_log(1);
    let first = Node::leading(&objects);
    first.submit(1);
    first.store.sync().expect("durable");
    let mut second = first.successor();
    let before = slots(&objects);
    second.run_until("it ended", Node::has_ended);
    assert!(matches!(second.end(), Some(LeaderEnd::Failed(_))), "{:?}", second.end());
    assert_eq!(slots(&objects), before, "no epoch began");
}

#[test]
fn resignation_is_the_last_entry() {
    for pending in [false, true] {
        let objects = new_log(1);
        let mut first = Node::leading(&objects);
        if pending {
            first.submit(1);
            first.submit(2);
        }
        first.leader.resign();
        first.run_until("it ended", Node::has_ended);
        assert_eq!(first.end(), Some(LeaderEnd::Resigned));
        let numbers: &[u64] = if pending { &[1, 2] } else { &[] };
        assert_eq!((first.acknowledged(), first.ambiguous()), (numbers.to_vec(), vec![]));
        let chain = chain_of(&slots(&objects));
        assert!(chain.end.has_resigned);
        let mut second = first.successor();
        second.run_until("it leads", Node::is_leader);
        assert_eq!(visible(&second.store), numbers);
    }
}

#[test]
fn closed_store_gives_up_its_epoch() {
    let objects = new_log(1);
    let mut node = Node::leading(&objects);
    objects.advance(Duration::from_secs(1));
    node.submit(1);
    node.run_until("in a slot", Node::is_in_slots);
    node.submit(2);
    node.store.clone().close().expect("closed");
    assert_eq!((node.acknowledged(), node.ambiguous()), (vec![1], vec![2]));
    node.run_until("it ended", Node::has_ended);
    assert_eq!(node.end(), Some(LeaderEnd::Closed));
    assert!(chain_of(&slots(&objects)).end.has_resigned);
    check_reopened(&node.sim.kill_image(), &slots(&objects), &[1], "after the close");
}

#[test]
fn failed_log_ends_the_leader() {
    let objects = new_log(1);
    let mut node = Node::leading(&objects);
    objects.advance(Duration::from_secs(1));
    node.submit(1);
    node.run_until("in a slot", Node::is_in_slots);
    node.store.flush().expect("flushed");
    node.sim.fail_site("sync *.chunk", 1, Fault { kind: FaultKind::Eio, sticky: false });
    node.submit(2);
    node.run_until("it ended", Node::has_ended);
    assert!(matches!(node.end(), Some(LeaderEnd::LogFailed(_))), "{:?}", node.end());
    assert_eq!(node.acknowledged(), [1], "never without a sync");
    assert!(chain_of(&slots(&objects)).end.has_resigned, "another node takes over at once");
    let image = node.sim.crash_image(&Survival::None, 1);
    assert_eq!(check_reopened(&image, &slots(&objects), &[1], "after the failure"), 1);
}

#[test]
fn stopped_leader_acknowledges_nothing_more() {
    let objects = new_log(1);
    let mut node = Node::leading(&objects);
    node.submit(1);
    node.leader.stop();
    assert_eq!(node.step(), LeaderStep::Ended(LeaderEnd::Closed));
    assert_eq!((node.acknowledged(), node.ambiguous()), (vec![], vec![1]));
    assert!(!chain_of(&slots(&objects)).end.has_resigned);
}

/// Leads and appends, for this number of steps at most. Returns whether the history ended before.
fn append_and_lead(node: &mut Node, steps: usize, fault: Option<ObjectFault>) -> bool {
    let (mut left, mut next) = (steps, 1);
    for _ in 0..=KILLED_ROUNDS {
        while !(node.is_leader() && node.is_in_slots()) {
            if left == 0 || node.has_ended() {
                return false;
            }
            left -= 1;
            if left == 0
                && let Some(fault) = fault
            {
                node.objects.plan(fault);
            }
            node.step();
        }
        node.store.flush().expect("flushed");
        for _ in 0..2 {
            node.submit(next);
            next += 1;
        }
    }
    true
}

/// Kills a leader after each step, with each fault of its last request, and opens its disk again.
#[test]
fn nothing_acknowledged_is_lost_by_a_kill() {
    let changes = |fault: &ObjectFault| fault.is_transient() && fault.fits(RequestKind::Create);
    let faults = ObjectFault::ALL.into_iter().filter(changes);
    let (mut visible, mut acknowledged) = (0, 0);
    for fault in [None].into_iter().chain(faults.map(Some)) {
        for steps in 0.. {
            assert!(steps < STEPS_MAX, "no end of the history");
            let context = format!("{fault:?} in step {steps}");
            let objects = new_log(1);
            let mut node = Node::new(&objects);
            let has_ended = append_and_lead(&mut node, steps, fault);
            let images =
                [node.sim.kill_image(), node.sim.crash_image(&Survival::None, steps as u64)];
            objects.kill(node.number);
            objects.settle();
            let slots = slots(&objects);
            for image in &images {
                visible += check_reopened(image, &slots, &node.acknowledged(), &context);
            }
            acknowledged += 2 * node.acknowledged().len() as u64;
            if has_ended {
                break;
            }
        }
    }
    assert!(visible >= acknowledged && acknowledged > 0, "{visible} and {acknowledged}");
}

/// Each leader resigns, and the next one leads on the disk that it left.
#[test]
fn leaders_follow_each_other() {
    let objects = new_log(1);
    let mut node = Node::leading(&objects);
    for epoch in 1..=4 {
        assert_eq!(node.leader.status().epoch, epoch);
        node.submit(2 * epoch - 1);
        node.run_until("in a slot", Node::is_in_slots);
        node.store.flush().expect("flushed");
        node.submit(2 * epoch);
        node.leader.resign();
        node.run_until("it ended", Node::has_ended);
        assert_eq!(node.acknowledged(), [2 * epoch - 1, 2 * epoch]);
        let mut next = node.successor();
        next.run_until("it leads", Node::is_leader);
        assert_eq!(visible(&next.store), (1..=2 * epoch).collect::<Vec<_>>());
        node = next;
    }
    let slots = slots(&objects);
    check_reopened(&node.sim.kill_image(), &slots, &(1..=8).collect::<Vec<_>>(), "at the end");
}

#[test]
fn thread_leads_until_it_resigns() {
    for background_threads in [0, 2] {
        let (objects, sim) = (new_log(1), Sim::new(1));
        let durability = Durability::Synced;
        let options = StoreOptions { durability, background_threads, ..options(&sim) };
        let (store, log) = Store::open_replicated("/events", options, START).expect("opened");
        let env = leader_env(&objects, 1);
        let named = SlotLeaderOptions::new("node-1", "a.example", 2113);
        let leader = SlotLeader::new(&env, log, object(), None, named);
        let thread = LeaderThread::start(&env, leader, objects.client(1)).expect("started");
        let mut number = 1;
        while number <= 20 {
            let event = NewEvent::json(id(number), "Happened", b"{}");
            match store.append("cart-1", ExpectedVersion::Any, &[event]) {
                Ok(_) => number += 1,
                // It does not lead yet.
                Err(Error::NotLeader) => std::thread::yield_now(),
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(visible(&store), (1..=20).collect::<Vec<_>>());
        let status = thread.status();
        assert_eq!((status.role, status.epoch), (LeaderRole::Leader, 1));
        assert!(thread.end().is_none());
        thread.resign();
        assert_eq!(thread.wait(), LeaderEnd::Resigned);
        assert_eq!(thread.status().role, LeaderRole::Ended(LeaderEnd::Resigned));
        let slots = slots(&objects);
        assert!(chain_of(&slots).end.has_resigned);
        let numbers: Vec<_> = (1..=20).collect();
        check_reopened(&sim.kill_image(), &slots, &numbers, "after the resignation");
    }
}

/// A thread that is dropped ends its store, so that no append waits for ever.
#[test]
fn dropped_thread_ends_its_store() {
    let (objects, sim) = (new_log(1), Sim::new(1));
    let options = StoreOptions { durability: Durability::Synced, ..options(&sim) };
    let (store, log) = Store::open_replicated("/events", options, START).expect("opened");
    let env = leader_env(&objects, 1);
    let named = SlotLeaderOptions::new("node-1", "a.example", 2113);
    let leader = SlotLeader::new(&env, log.clone(), object(), None, named);
    let thread = LeaderThread::start(&env, leader, objects.client(1)).expect("started");
    while !matches!(thread.status().role, LeaderRole::Leader) {
        std::thread::yield_now();
    }
    drop(thread);
    while !log.has_ended() {
        std::thread::yield_now();
    }
    let event = NewEvent::json(id(1), "Happened", b"{}");
    store.append("cart-1", ExpectedVersion::Any, &[event]).expect_err("it has ended");
}

/// An object store whose creations wait until the test ends.
#[derive(Debug)]
struct HangingObjects {
    inner: Arc<dyn Objects>,
    released: Mutex<mpsc::Receiver<()>>,
}

impl Objects for HangingObjects {
    umbel_env::delegate_object_calls!(inner: location create_concurrently put read list delete);

    fn create(&self, name: &ObjectName, bytes: &[u8]) -> ObjectResult<Creation> {
        // The end of the test drops the sender.
        let _ = self.released.lock().expect("no panic").recv();
        self.inner.create(name, bytes)
    }
}

#[test]
fn requests_end_at_their_limit() {
    let objects = ObjectSim::new(1);
    let (sender, released) = mpsc::channel();
    let hanging = HangingObjects { inner: objects.client(1), released: Mutex::new(released) };
    let limits = (Duration::from_millis(5), Duration::from_millis(15));
    let threads = Env::system().threads;
    let limited = DeadlineObjects::new(Arc::new(hanging), threads, limits);
    let name = ObjectName::new("slots/1").expect("a name");
    for limit in [5, 10, 15, 15] {
        // Story: the request for a time and short reads made the limit the first one again, so a
        // long slot was never created.
        let _ = limited.time_micros(Duration::ZERO);
        let _ = limited.read(&ObjectName::new("slots/2").expect("a name"), 0..1);
        assert_eq!(limited.creation_limit(), Duration::from_millis(limit));
        let answer = limited.create(&name, b"x").expect("an unknown outcome");
        assert_eq!(answer.store_micros, None);
        let Creation::Unknown(error) = answer.value else { panic!("a certain outcome") };
        assert!(error.is_temporary(), "{error}");
        assert!(error.to_string().contains("no answer within"), "{error}");
    }
    drop(sender);
    let created = limited.create(&name, b"x").expect("an answer").value;
    assert!(matches!(created, Creation::Created | Creation::Exists | Creation::Unknown(_)));
}
