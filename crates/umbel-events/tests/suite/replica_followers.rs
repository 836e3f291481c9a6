//! Rules B2, B4 to B6, B13 to B15, B18 and B19 of `docs/explanation/replication.md`: a follower is
//! fed from slots, has the bytes of its leader, and continues after every crash.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{LazyLock, mpsc};
use std::time::Duration;

use umbel_env::{Env, ObjectName};
use umbel_events::{
    AppendRequest, Direction, Durability, EVENT_LOG_KIND, Error, ExpectedVersion, LogReplication,
    NewEvent, PendingAppend, Position, ReplicatedLog, Revision, SlotApplier, SlotRecords, Source,
    Store, StoreOptions, StreamAppend, Subscription, SubscriptionStart, ViewKind, accept_clock,
};
use umbel_sim::{CrashSide, Sim, Survival};
use umbel_slots::{ChainState, LogId, ObjectContent, Slot, SlotEntry, SlotIds, SlotSettings};

use super::support::{all, event, id, options, outline};

static LOG: LazyLock<ReplicatedLog> = LazyLock::new(|| ReplicatedLog {
    id: [7; 16],
    seed: [9; 16],
    settings: SlotSettings::default(),
});
const FOLDER: &str = "/events";
/// Upper bound of a wait, which is exceeded only if a call never comes.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

fn replica_options(sim: &Sim) -> StoreOptions {
    StoreOptions { durability: Durability::Synced, ..options(sim) }
}

/// A node with its own disk.
struct Node {
    sim: Sim,
    store: Store,
    log: LogReplication,
    applier: SlotApplier,
}

impl Node {
    fn try_open(sim: &Sim) -> umbel_events::Result<Node> {
        let (store, log, applier) = Store::open_replica(FOLDER, replica_options(sim), *LOG)?;
        Ok(Node { sim: sim.clone(), store, log, applier })
    }

    fn open(sim: &Sim) -> Node {
        Node::try_open(sim).expect("opened")
    }

    fn new(seed: u64) -> Node {
        Node::open(&Sim::new(seed))
    }

    /// Number of the last applied slot.
    fn applied(&self) -> usize {
        self.applier.chain().expect("open").end.number as usize
    }

    /// Applies the slots that the node lacks.
    fn follow(&mut self, chain: &Slots) {
        for slot in &chain.slots[self.applied()..] {
            self.applier.apply(slot).unwrap_or_else(|error| panic!("{}: {error}", slot.number));
        }
    }

    fn close(self) -> Sim {
        self.store.close().expect("closed");
        self.sim
    }
}

/// The chain of slots, as the object store has it.
#[derive(Default)]
struct Slots {
    slots: Vec<Slot>,
    chain: ChainState,
    /// Chunks that began.
    begun: BTreeSet<u64>,
}

impl Slots {
    /// Returns the next slot, which is not in the chain yet.
    fn next(&self, entries: Vec<SlotEntry>) -> Slot {
        let end = self.chain.end;
        let number = end.number + 1;
        let ids = SlotIds { store: LOG.id, uid: [number as u8; 16] };
        let (previous, node) = (end.uid, "a".to_owned());
        let mut slot =
            Slot { ids, number, epoch: end.epoch, previous, node, wall_micros: 0, entries };
        slot.epoch += u64::from(slot.begins_epoch());
        slot
    }

    fn push(&mut self, entries: Vec<SlotEntry>) -> &Slot {
        let slot = self.next(entries);
        slot.check_entries().expect("readers accept it");
        self.chain.advance(&slot).expect("it follows");
        self.slots.push(slot);
        self.slots.last().expect("just added")
    }

    /// The node begins the next epoch.
    fn lead(&mut self, node: &Node) {
        let begins = SlotEntry::EpochBegins { host: "a".into(), port: 1 };
        node.log.promote(self.chain.end.epoch + 1).expect("a follower");
        node.log.slot_in_chain(self.push(vec![begins])).expect("its slot");
    }

    /// Entries of a slot with these records.
    fn entries(&mut self, records: &SlotRecords) -> Vec<SlotEntry> {
        let mut entries = Vec::new();
        for part in &records.chunks {
            let log = LogId { kind: EVENT_LOG_KIND, id: part.chunk };
            if self.begun.insert(part.chunk) {
                let (start, capacity, key) = (part.start, part.capacity, part.key);
                entries.push(SlotEntry::LogBegins { log, start, capacity, key });
            }
            if !part.bytes.is_empty() {
                let bytes = part.bytes.clone();
                entries.push(SlotEntry::Bytes { log, from: part.from, bytes });
            }
            if let Some(ended) = part.ended {
                let (end, mark, running) = (ended.end, ended.mark, ended.running);
                entries.push(SlotEntry::LogEnded { log, end, mark, running });
            }
        }
        entries
    }

    /// Creates slots with everything that the leader has appended.
    fn create(&mut self, leader: &Node, bytes_max: u64) {
        while let Some(records) = leader.log.next_slot(bytes_max).expect("readable") {
            let entries = self.entries(&records);
            leader.log.slot_in_chain(self.push(entries)).expect("a slot of this log");
        }
    }
}

fn submit(store: &Store, stream: &str, event: NewEvent<'_>) -> PendingAppend {
    let appends = [StreamAppend { stream, expected: ExpectedVersion::Any, events: &[event] }];
    store.submit(&AppendRequest { appends: &appends, checks: &[] }).expect("submitted")
}

fn append(store: &Store, stream: &str, number: u64) {
    submit(store, stream, event(number)).on_acknowledged(|_| ());
}

fn append_large(store: &Store, stream: &str, number: u64) {
    let data = vec![number as u8; 9000];
    let large = NewEvent::binary(id(number), "Large", &data).with_metadata(b"m");
    submit(store, stream, large).on_acknowledged(|_| ());
}

/// Runs a write that waits for its slot, and creates this slot.
fn write_and_create(leader: &Node, chain: &mut Slots, write: impl FnOnce(&Store) + Send + 'static) {
    let store = leader.store.clone();
    let (sender, done) = mpsc::channel();
    let work = move || {
        write(&store);
        sender.send(()).expect("the receiver exists");
    };
    let thread = Env::system().threads.spawn("write", Box::new(work)).expect("a thread");
    assert!(!leader.log.wait_unslotted(WAIT_TIMEOUT).expect("open").is_empty());
    chain.create(leader, u64::MAX);
    done.recv_timeout(WAIT_TIMEOUT).expect("an answer");
    assert!(thread.join());
}

/// One round of a leader: appends of several kinds, and slots with a maximum size.
fn work(leader: &Node, chain: &mut Slots, round: u64) {
    for number in round * 10..round * 10 + 3 {
        append(&leader.store, &format!("cart-{}", number % 5), number);
    }
    let events = [event(round * 10 + 4), event(round * 10 + 5)];
    let appends = ["order-1", "cart-1"].map(|stream| StreamAppend {
        stream,
        expected: ExpectedVersion::Any,
        events: &events,
    });
    let both = leader.store.submit(&AppendRequest { appends: &appends, checks: &[] });
    both.expect("submitted").on_acknowledged(|_| ());
    append_large(&leader.store, "cart-2", round * 10 + 6);
    chain.create(leader, [1, 700, u64::MAX][round as usize % 3]);
    match round % 4 {
        1 => write_and_create(leader, chain, |store| {
            store.delete("cart-1", ExpectedVersion::Any).expect("deleted");
        }),
        2 => write_and_create(leader, chain, move |store| {
            let stream = format!("gone-{round}");
            store.tombstone(&stream, ExpectedVersion::Any).expect("tombstoned");
        }),
        3 => {
            chain.push(vec![SlotEntry::Nothing]);
            let slot = chain.slots.last().expect("a heartbeat");
            leader.log.slot_in_chain(slot).expect("a slot of this log");
        }
        _ => {}
    }
    // An append into the next chunk would wait for this, and so for a slot.
    leader.store.flush().expect("flushed");
}

/// A leader's chain of some rounds.
fn history(seed: u64, rounds: u64) -> (Node, Slots) {
    let (leader, mut chain) = (Node::new(seed), Slots::default());
    chain.lead(&leader);
    (0..rounds).for_each(|round| work(&leader, &mut chain, round));
    (leader, chain)
}

/// Asserts that all reads of two stores return the same.
fn assert_same_reads(one: &Store, other: &Store, what: &str) {
    let stores = [one, other];
    let both = |what_is: &str, equal: bool| assert!(equal, "{what}: {what_is}");
    let [first, second] = stores.map(all);
    assert_eq!(first, second, "{what}");
    let backwards = |store: &Store| outline(store.read_all(Position::END, Direction::Backwards));
    both("$all backwards", backwards(one) == backwards(other));
    let names = stores.map(|store| store.streams("", None, 1000).expect("readable"));
    assert_eq!(names[0], names[1], "{what}");
    for (name, _) in &names[0] {
        let events = |store: &Store| {
            let read = store.read(name, Revision::START, Direction::Forwards);
            read.map(|event| event.map_err(|error| error.to_string())).collect::<Vec<_>>()
        };
        both(name, events(one) == events(other));
    }
    for kind in [ViewKind::Category, ViewKind::Type] {
        let views = |store: &Store| store.views(kind, "", None, 100).expect("readable");
        assert_eq!(views(one), views(other), "{what}");
    }
    for view in ["$ce-cart", "$ce-order", "$et-Happened", "$et-Large", "$et-$metadata", "$streams"]
    {
        let links = |store: &Store| {
            let read = store.read_view(view, Revision::START, Direction::Forwards, Position::END);
            read.map(|event| event.expect("readable")).collect::<Vec<_>>()
        };
        both(view, links(one) == links(other));
        let state = |store: &Store| store.view(view, Position::END).expect("readable");
        assert_eq!(state(one), state(other), "{what}: {view}");
    }
    assert_eq!(one.visible_position(), other.visible_position(), "{what}");
    for store in stores {
        let report = store.verify().expect("verified");
        assert!(report.damage.is_empty(), "{what}: {:?}", report.damage);
    }
}

fn chunk_files(sim: &Sim) -> Vec<(String, Vec<u8>)> {
    let folder = format!("{FOLDER}/log");
    let entries = sim.env().files.read_dir(folder.as_ref()).expect("readable");
    let path = |name: &str| format!("{folder}/{name}");
    entries.into_iter().map(|entry| (entry.name.clone(), sim.read(path(&entry.name)))).collect()
}

/// Reads all events. A caught-up subscription has registered its wake-up.
fn catch_up(subscription: &mut Subscription) {
    while !subscription.try_next_batch(100, 1000).expect("readable").is_caught_up {}
}

/// Files that an open moved into the directory with this number.
fn cut_files(sim: &Sim, number: u64) -> Vec<PathBuf> {
    let folder = format!("{FOLDER}/cut-{number}");
    sim.files().into_iter().filter(|path| path.starts_with(&folder)).collect()
}

/// Asserts that two nodes have the same chunks, byte by byte, and the same reads.
fn assert_same(one: &Node, other: &Node, what: &str) {
    let (first, second) = (chunk_files(&one.sim), chunk_files(&other.sim));
    let names = |files: &[(String, Vec<u8>)]| -> Vec<String> {
        files.iter().map(|(name, _)| name.clone()).collect()
    };
    assert_eq!(names(&first), names(&second), "{what}");
    for ((name, bytes), (_, others)) in first.iter().zip(&second) {
        let at = bytes.iter().zip(others).position(|(one, other)| one != other);
        assert_eq!((at, bytes.len()), (None, others.len()), "{what}: {name}");
    }
    assert_same_reads(&one.store, &other.store, what);
}

#[test]
fn follower_equals_its_leader_after_each_round() {
    let (leader, mut chain) = (Node::new(1), Slots::default());
    let mut follower = Node::new(2);
    let mut subscription =
        follower.store.subscribe(Source::Stream("cart-2".into()), SubscriptionStart::Start);
    let subscription = subscription.as_mut().expect("subscribed");
    catch_up(subscription);
    chain.lead(&leader);
    for round in 0..24 {
        work(&leader, &mut chain, round);
        follower.follow(&chain);
        assert_same(&leader, &follower, &format!("round {round}"));
        assert!(subscription.wakeup().wait(WAIT_TIMEOUT), "round {round}");
        let batch = subscription.try_next_batch(100, 1000).expect("readable");
        assert!(!batch.events.is_empty(), "round {round}");
        catch_up(subscription);
        if round % 7 == 6 {
            let sim = follower.close();
            follower = Node::open(&sim);
            let opened =
                follower.store.subscribe(Source::Stream("cart-2".into()), SubscriptionStart::Start);
            *subscription = opened.expect("subscribed");
            catch_up(subscription);
            assert_same(&leader, &follower, &format!("open after round {round}"));
        }
    }
    assert!(chunk_files(&leader.sim).len() > 3, "several chunks");
    let mut late = Node::new(3);
    late.follow(&chain);
    assert_same(&leader, &late, "a new node");
    let stats = [&leader, &late].map(|node| node.store.stats().expect("open"));
    let [first, second] = stats.map(|stats| {
        (
            stats.position,
            stats.events_appended,
            stats.log_bytes,
            stats.chunks,
            stats.existence.items,
        )
    });
    assert_eq!(first, second);
}

/// Applies all slots until the power is lost.
fn follow_until_crash(sim: &Sim, chain: &Slots) {
    for _ in 0..2 {
        let Ok(mut node) = Node::try_open(sim) else { return };
        for slot in &chain.slots[node.applied()..] {
            if node.applier.apply(slot).is_err() {
                return;
            }
        }
        if node.store.close().is_err() {
            return;
        }
    }
}

#[test]
fn follower_continues_after_a_crash_at_any_call() {
    let (leader, chain) = history(1, 6);
    let sim = Sim::new(5);
    follow_until_crash(&sim, &chain);
    let calls = sim.changing_calls();
    assert!(calls.len() > 100, "{} calls", calls.len());
    for (index, call) in calls.into_iter().enumerate() {
        let sim = Sim::new(5);
        sim.crash_at(call, CrashSide::Before);
        follow_until_crash(&sim, &chain);
        assert!(sim.is_dead(), "call {call}");
        let survival = match index % 3 {
            0 => Survival::None,
            1 => Survival::All,
            _ => Survival::any(call, sim.pending_units()),
        };
        let what = format!("crash at call {call}, {:?}, {survival:?}", sim.site_of(call));
        let image = sim.crash_image(&survival, call);
        let mut node = Node::try_open(&image).unwrap_or_else(|error| panic!("{what}: {error}"));
        let applied = node.applied();
        node.follow(&chain);
        assert_same(&leader, &node, &what);
        assert!(cut_files(&image, 1).is_empty(), "{what}: it never led, at slot {applied}");
    }
}

/// The last slots are applied again after a crash, whether the record has them or not.
#[test]
fn follower_continues_after_a_kill_between_any_two_slots() {
    let (leader, chain) = history(1, 8);
    let mut follower = Node::new(2);
    for slot in &chain.slots {
        follower.applier.apply(slot).expect("applied");
        let image = follower.sim.kill_image();
        let mut node = Node::open(&image);
        assert!(node.applied() <= follower.applied());
        node.follow(&chain);
        assert_same_reads(&leader.store, &node.store, &format!("slot {}", slot.number));
        if slot.number % 5 == 0 {
            follower.applier.record().expect("written");
            let node = Node::open(&follower.sim.crash_image(&Survival::None, slot.number));
            assert_eq!(node.applied(), follower.applied());
            assert_same_reads(&follower.store, &node.store, &format!("slot {}", slot.number));
        }
    }
}

#[test]
fn promoted_follower_goes_on_and_recognises_retries() {
    let (leader, mut chain) = history(1, 9);
    let mut follower = Node::new(2);
    follower.follow(&chain);
    leader.log.end().expect("ended");
    chain.lead(&follower);
    // Events of the last round, one of them of a deleted stream that exists again.
    for (stream, number) in [("cart-0", 80), ("cart-2", 82), ("order-1", 84)] {
        let again = submit(&follower.store, stream, event(number)).wait().expect("acknowledged");
        assert!(again[0].is_retry, "{stream} {number}");
    }
    for round in 9..18 {
        work(&follower, &mut chain, round);
    }
    let late = submit(&follower.store, "cart-0", event(80)).wait().expect("acknowledged");
    assert!(late[0].is_retry);
    let refused = leader.store.append("cart-0", ExpectedVersion::Any, &[event(7)]);
    assert!(refused.is_err());
    let former = leader.sim.clone();
    drop(leader);
    // The former leader and a new node follow.
    for sim in [former, Sim::new(3)] {
        let mut node = Node::open(&sim);
        node.follow(&chain);
        assert_same(&follower, &node, "after the promotion");
        assert!(cut_files(&sim, 1).is_empty(), "all its records are in slots");
    }
    assert!(follower.applier.apply(&chain.next(vec![SlotEntry::Nothing])).is_err(), "it leads");
}

/// A leader with events that no slot has, a chain that goes on without them, and the node that
/// leads now.
fn deposed_leader(rounds: u64, tail: u64) -> (Sim, Slots, Node) {
    let (leader, mut chain) = history(1, rounds);
    let mut follower = Node::new(2);
    follower.follow(&chain);
    for number in 0..tail {
        append_large(&leader.store, "cart-9", 5000 + number);
    }
    leader.log.next_slot(u64::MAX).expect("readable").expect("durable, and in no slot");
    leader.log.end().expect("ended");
    chain.lead(&follower);
    (0..3).for_each(|round| work(&follower, &mut chain, 50 + round));
    (leader.sim, chain, follower)
}

#[test]
fn tail_of_a_deposed_leader_is_moved_aside() {
    // Within a chunk, and into the next one.
    for (rounds, tail) in [(2, 1), (2, 3), (9, 1), (5, 5)] {
        let (sim, chain, follower) = deposed_leader(rounds, tail);
        let (before, what) = (chunk_files(&sim), format!("{rounds} rounds, {tail} events"));
        let mut node = Node::open(&sim);
        assert!(all(&node.store).iter().all(|event| event.stream != "cart-9"), "{what}");
        let cut: Vec<_> =
            before.iter().filter(|(name, _)| sim.has(format!("{FOLDER}/cut-1/{name}"))).collect();
        assert!(!cut.is_empty(), "{what}");
        for (name, bytes) in cut {
            let kept = sim.read(format!("{FOLDER}/cut-1/{name}"));
            let events = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            assert!(kept[..events.min(kept.len())] == bytes[..events], "{what}: {name}");
        }
        node.follow(&chain);
        assert_same(&follower, &node, &what);
        let sim = node.close();
        let node = Node::open(&sim);
        assert_same(&follower, &node, &what);
        assert!(cut_files(&sim, 2).is_empty(), "{what}");
    }
}

#[test]
fn cut_is_finished_after_a_crash_at_any_call() {
    let (before, chain, follower) = deposed_leader(5, 5);
    let run = |sim: &Sim| {
        if let Ok(mut node) = Node::try_open(sim) {
            let _ = node.applier.apply(&chain.slots[node.applied()]);
        }
    };
    let sim = before.clone_disk();
    run(&sim);
    let calls = sim.changing_calls();
    assert!(calls.len() > 10, "{} calls", calls.len());
    for (index, call) in calls.into_iter().enumerate() {
        let sim = before.clone_disk();
        sim.crash_at(call, CrashSide::Before);
        run(&sim);
        let survival = [Survival::None, Survival::All][index % 2];
        let what = format!("crash at call {call}, {:?}, {survival:?}", sim.site_of(call));
        let image = sim.crash_image(&survival, call);
        let mut node = Node::try_open(&image).unwrap_or_else(|error| panic!("{what}: {error}"));
        node.follow(&chain);
        assert_same(&follower, &node, &what);
        assert!(!cut_files(&image, 1).is_empty(), "{what}");
        assert!(cut_files(&image, 2).is_empty(), "{what}");
    }
}

/// The chain up to the slot that has an entry of this kind, and the index of the entry.
fn find_entry(chain: &Slots, wanted: impl Fn(&SlotEntry) -> bool) -> (usize, usize) {
    let found = chain
        .slots
        .iter()
        .enumerate()
        .find_map(|(slot, it)| it.entries.iter().position(&wanted).map(|entry| (slot, entry)));
    found.expect("an entry of this kind")
}

/// A follower with the slots before this one.
fn follower_before(chain: &Slots, slot: usize) -> Node {
    let mut node = Node::new(2);
    for slot in &chain.slots[..slot] {
        node.applier.apply(slot).expect("applied");
    }
    node
}

#[test]
fn other_records_than_those_of_the_leader_are_an_error() {
    let (leader, chain) = history(1, 12);
    let (slot, entry) = find_entry(&chain, |it| matches!(it, SlotEntry::LogEnded { .. }));
    let mut node = follower_before(&chain, slot);
    let mut other = chain.slots[slot].clone();
    if let SlotEntry::LogEnded { running, .. } = &mut other.entries[entry] {
        *running ^= 1;
    }
    let visible = node.store.visible_position();
    let error = node.applier.apply(&other).expect_err("a divergence").to_string();
    let named = format!("slot {} ends chunk 1 with", other.number);
    assert!(error.contains(&named) && error.contains("00000001.chunk"), "{error}");
    assert_eq!((node.store.visible_position(), node.applied()), (visible, slot));
    // Part of the slot can be in the log.
    let error = node.applier.apply(&chain.slots[slot]).expect_err("applied in part");
    assert!(error.to_string().contains("until its event store is opened again"), "{error}");
    let mut node = Node::open(&node.close());
    node.follow(&chain);
    assert_same(&leader, &node, "after the divergence");
}

#[test]
fn records_that_do_not_fit_are_refused() {
    let (_, chain) = history(1, 3);
    let is_later = |it: &SlotEntry| matches!(it, SlotEntry::Bytes { from, .. } if *from > 64);
    let (slot, entry) = find_entry(&chain, is_later);
    let good = &chain.slots[slot];
    let changed = |change: &dyn Fn(&mut LogId, &mut u64, &mut Vec<u8>)| {
        let mut slot = good.clone();
        if let SlotEntry::Bytes { log, from, bytes } = &mut slot.entries[entry] {
            change(log, from, bytes);
        }
        slot
    };
    let ended = LogId { kind: EVENT_LOG_KIND, id: 1 };
    let (end, mark, running) = (8, 0, 0);
    for (bad, reason) in [
        (changed(&|log, _, _| log.id = 77), "this chunk is not the current one"),
        (changed(&|_, from, _| *from += 8), "the records of this chunk end at byte"),
        (changed(&|_, from, _| *from -= 8), "the records of this chunk end at byte"),
        (changed(&|_, _, bytes| bytes[100] ^= 1), "there is no valid record"),
        (changed(&|_, _, bytes| bytes.truncate(bytes.len() - 8)), "there is no valid record"),
        (
            chain_slot(good, vec![SlotEntry::LogEnded { log: ended, end, mark, running }]),
            "this node has records up to",
        ),
        (
            chain_slot(
                good,
                vec![SlotEntry::LogBegins { log: ended, start: 0, capacity: 4096, key: 1 }],
            ),
            "chunk 1 has not ended",
        ),
    ] {
        let mut node = follower_before(&chain, slot);
        let error = node.applier.apply(&bad).expect_err(reason).to_string();
        assert!(
            error.contains(reason) && error.contains(&format!("slot {}", good.number)),
            "{error}"
        );
        let mut node = Node::open(&node.close());
        node.follow(&chain);
    }
}

/// The slot with other entries.
fn chain_slot(slot: &Slot, entries: Vec<SlotEntry>) -> Slot {
    Slot { entries, ..slot.clone() }
}

#[test]
fn unsupported_entries_and_other_slots_change_nothing() {
    let (leader, chain) = history(1, 2);
    let mut node = Node::new(2);
    node.follow(&chain);
    let log = LogId { kind: EVENT_LOG_KIND, id: 1 };
    let other = LogId { kind: 2, id: 1 };
    let name = ObjectName::new("chunks/1").expect("a name");
    let object =
        |content| SlotEntry::Object { log, name: name.clone(), bytes: 8, checksum: 7, content };
    let packed = ObjectContent::Replacement {
        version: 2,
        source_version: 0,
        first_event: 96,
        last_event: 96,
    };
    let derivation = SlotSettings { derivation: 2, ..SlotSettings::default() };
    for (entry, reason) in [
        (object(packed), "the scavenged chunk chunks/1"),
        (object(ObjectContent::Records { from: 72 }), "the long record chunks/1"),
        (SlotEntry::Settings(derivation), "settings with the version 2 of the derivation"),
        (SlotEntry::Bytes { log: other, from: 64, bytes: vec![0; 8] }, "a log of kind 2"),
    ] {
        let error = node.applier.apply(&chain.next(vec![SlotEntry::Nothing, entry]));
        let error = error.expect_err(reason).to_string();
        assert!(error.contains(reason) && error.contains("does not apply yet"), "{error}");
    }
    let next = chain.next(vec![SlotEntry::Nothing]);
    let foreign = SlotIds { store: [1; 16], ..next.ids };
    for bad in [
        Slot { number: next.number + 1, ..next.clone() },
        Slot { previous: [0; 16], ..next.clone() },
        Slot { epoch: 9, ..next.clone() },
        Slot { ids: foreign, ..next.clone() },
        chain.slots.last().expect("a slot").clone(),
    ] {
        assert!(matches!(node.applier.apply(&bad), Err(Error::Invalid(_))), "{bad:?}");
    }
    assert_same(&leader, &node, "nothing changed");
    let settings = SlotSettings { follower_wait_micros: 5, ..SlotSettings::default() };
    let uid = [3; 16];
    let entries = vec![
        SlotEntry::Settings(settings),
        SlotEntry::UploadBegins { uid },
        SlotEntry::Snapshot { number: 1, uid },
        SlotEntry::Resigned,
    ];
    node.applier.apply(&chain.next(entries)).expect("known entries");
    let state = node.applier.chain().expect("open");
    assert_eq!((state.settings, state.end.has_resigned), (settings, true));
    let node = Node::open(&node.close());
    assert_eq!(node.applier.chain().expect("open"), state);
}

#[test]
fn clock_epochs_come_from_slots() {
    let (_, mut chain) = history(1, 2);
    let last = chain.slots.len();
    for (position, start) in [(1 << 20, 5_000_000), (1 << 21, 4_000_000)] {
        chain.push(vec![SlotEntry::ClockEpochBegins { position, start }]);
    }
    let mut node = Node::new(2);
    for slot in &chain.slots[..last] {
        node.applier.apply(slot).expect("applied");
    }
    node.applier.record().expect("written");
    node.follow(&chain);
    let epoch = |node: &Node| {
        let stats = node.store.stats().expect("open");
        (stats.clock_epoch, stats.clock_epoch_start)
    };
    // The first one has no events, and the second one replaces it.
    let expected = (2, Some(Duration::from_millis(400)));
    assert_eq!(epoch(&node), expected);
    // The record lags: the slots are applied again.
    let mut again = Node::open(&node.sim.kill_image());
    assert_eq!(again.applied(), last);
    again.follow(&chain);
    assert_eq!(epoch(&again), expected);
    let bad = chain.next(vec![SlotEntry::ClockEpochBegins { position: 96, start: 1 }]);
    assert!(matches!(node.applier.apply(&bad), Err(Error::Invalid(_))), "before an event");
}

#[test]
fn directory_of_a_replica_is_opened_by_its_cluster_only() {
    let (leader, _) = history(1, 1);
    let sim = leader.close();
    let refusals = [
        Store::open(FOLDER, replica_options(&sim)).map(drop),
        Store::open_read_only(FOLDER, replica_options(&sim)).map(drop),
        Store::open_replicated(FOLDER, replica_options(&sim), Default::default()).map(drop),
        accept_clock(&sim.env(), FOLDER.as_ref(), Duration::ZERO).map(drop),
        umbel_events::repair(&sim.env(), FOLDER.as_ref(), Default::default()).map(drop),
    ];
    for refused in refusals {
        let error = refused.expect_err("a replica").to_string();
        assert!(error.contains("start the node with the options of the cluster"), "{error}");
    }
    for other in [ReplicatedLog { id: [1; 16], ..*LOG }, ReplicatedLog { seed: [1; 16], ..*LOG }] {
        let refused = Store::open_replica(FOLDER, replica_options(&sim), other);
        let error = refused.expect_err("another log").to_string();
        assert!(error.contains("belongs to another replicated log"), "{error}");
    }
    let record = format!("{FOLDER}/REPLICA");
    let damaged = sim.clone_disk();
    damaged.flip(&record, 100, 1);
    let error = Node::try_open(&damaged).err().expect("damage");
    assert!(error.to_string().contains("REPLICA"), "{error}");
    Node::open(&sim).close();

    let alone = Sim::new(3);
    let store = Store::open(FOLDER, replica_options(&alone)).expect("a new store");
    store.append("cart-1", ExpectedVersion::Any, &[event(1)]).expect("appended");
    store.close().expect("closed");
    let refused = Node::try_open(&alone).err().expect("no replica").to_string();
    assert!(refused.contains("is no replica; name an empty directory"), "{refused}");
}
