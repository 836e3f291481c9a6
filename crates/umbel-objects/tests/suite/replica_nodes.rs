//! Nodes of a replicated log over a directory: the leader, a follower, and a promotion.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tempfile::TempDir;
use umbel_env::{
    Creation, Env, ListPage, ObjectBytes, ObjectError, ObjectErrorKind, ObjectName, ObjectResult,
    Objects,
};
use umbel_events::{
    Direction, Durability, Error, ExpectedVersion, LeaderEnd, NewEvent, NodeRole, Position,
    RecordedEvent, ReplicaNode, ReplicaNodeOptions, ReplicatedLog, SlotLeaderOptions, Store,
    StoreOptions,
};
use umbel_objects::DirectoryObjects;
use umbel_slots::{InitStep, LogInit, StoreObject};

/// Upper bound of a wait, which is exceeded only if a node does not go on.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

/// A directory with a replicated log, and with the directories of its nodes.
struct Log {
    folder: TempDir,
    object: StoreObject,
}

/// An object store to which the connection of one node can be cut.
#[derive(Debug)]
struct CutObjects {
    inner: Arc<dyn Objects>,
    is_cut: Arc<AtomicBool>,
}

impl CutObjects {
    fn check<T>(
        &self,
        verb: &'static str,
        answer: impl FnOnce() -> ObjectResult<T>,
    ) -> ObjectResult<T> {
        let error = || {
            let object = self.inner.location().to_owned();
            ObjectError::new(ObjectErrorKind::Unavailable, verb, object, "the connection is cut")
        };
        match self.is_cut.load(Ordering::Acquire) {
            true => Err(error()),
            false => answer(),
        }
    }
}

impl Objects for CutObjects {
    umbel_env::delegate_object_calls!(inner: location create_concurrently put time_micros delete);

    fn create(&self, name: &ObjectName, bytes: &[u8]) -> ObjectResult<Creation> {
        self.check("create", || self.inner.create(name, bytes))
    }

    fn read(&self, name: &ObjectName, range: Range<u64>) -> ObjectResult<Option<ObjectBytes>> {
        self.check("read", || self.inner.read(name, range))
    }

    fn list(&self, prefix: &str, after: Option<&str>, max: usize) -> ObjectResult<ListPage> {
        self.check("list", || self.inner.list(prefix, after, max))
    }
}

/// An open node.
struct Node {
    store: Store,
    node: ReplicaNode,
}

impl Log {
    fn new() -> Log {
        // Longer than a busy machine stops a leader.
        Log::with_follower_wait(30)
    }

    /// A log whose followers become candidates after this number of seconds without a slot.
    fn with_follower_wait(seconds: u64) -> Log {
        let folder = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(folder.path().join("objects")).expect("created");
        let mut object = StoreObject::new([7; 16]);
        // The first settings of a log are those of its STORE, not those of the binary.
        object.settings.follower_wait_micros = seconds * 1_000_000;
        let log = Log { folder, object };
        let (objects, clock) = (log.objects(), Env::system().clock);
        let mut init = LogInit::new(log.object).expect("valid constants");
        while init.step(&*objects, &*clock).expect("no fault") == InitStep::Again {}
        log
    }

    fn objects(&self) -> Arc<dyn Objects> {
        let path = self.folder.path().join("objects");
        Arc::new(DirectoryObjects::open(&Env::system(), &path).expect("opened"))
    }

    /// Opens a node, which is ready then.
    fn open(&self, name: &str, is_read_only: bool) -> Node {
        self.open_over(self.objects(), name, is_read_only)
    }

    fn open_over(&self, objects: Arc<dyn Objects>, name: &str, is_read_only: bool) -> Node {
        let options = StoreOptions {
            durability: Durability::Synced,
            // The thread of a dropped node may still close the store.
            lock_wait: WAIT_TIMEOUT,
            ..StoreOptions::default()
        };
        let (path, log) = (self.folder.path().join(name), ReplicatedLog::new(&self.object));
        let (store, replication, applier) =
            Store::open_replica(path, options, log).expect("opened");
        let leader = SlotLeaderOptions::new(name, format!("{name}.example"), 2113);
        let options = ReplicaNodeOptions { is_read_only, ..ReplicaNodeOptions::new(leader) };
        let parts = (replication, applier);
        let node = ReplicaNode::start(&Env::system(), parts, self.object, objects, options);
        let node = node.expect("started");
        assert_eq!(node.wait_ready(WAIT_TIMEOUT), Ok(true), "{:?}", node.status());
        Node { store, node }
    }
}

impl Node {
    fn append(&self, count: u64) {
        for _ in 0..count {
            self.try_append().expect("appended");
        }
    }

    fn try_append(&self) -> Result<(), Error> {
        let event = NewEvent::binary(self.store.new_id()?, "Counted", b"1");
        self.store.append("s", ExpectedVersion::Any, &[event]).map(drop)
    }

    fn all(&self) -> Vec<RecordedEvent> {
        let events = self.store.read_all(Position::START, Direction::Forwards);
        events.map(|event| event.expect("readable")).collect()
    }

    fn wait_until_leading(&self) {
        wait_until(|| self.role() == NodeRole::Leader);
    }

    /// Ends the node as a kill does: without a resignation.
    fn kill(self) {
        drop(self.node);
        self.store.close().expect("closed");
    }

    fn role(&self) -> NodeRole {
        self.node.status().role
    }

    /// Ends the node as a server does. A leader gives up its epoch.
    fn stop(self) -> LeaderEnd {
        self.node.resign(WAIT_TIMEOUT);
        self.store.close().expect("closed");
        self.node.end().expect("it has ended")
    }
}

fn pause(time: Duration) {
    Env::system().threads.pause(time);
}

fn wait_until(mut condition: impl FnMut() -> bool) {
    let clock = Env::system().clock;
    let start = clock.now();
    while !condition() {
        assert!(clock.now().saturating_sub(start) < WAIT_TIMEOUT, "the nodes do not go on");
        pause(Duration::from_millis(10));
    }
}

#[test]
fn promoted_follower_has_every_acknowledged_event_and_fences_the_leader() {
    let log = Log::new();
    let leader = log.open("a", false);
    assert_eq!(leader.role(), NodeRole::Leader);
    leader.append(6);
    let follower = log.open("b", true);
    assert_eq!(follower.role(), NodeRole::Follower);
    assert_eq!(follower.all(), leader.all());
    let status = follower.node.status();
    let known = status.leader.expect("it read the first slot of the epoch");
    assert_eq!((&*known.node, &*known.host, known.port), ("a", "a.example", 2113));
    assert!(matches!(follower.try_append(), Err(Error::NotLeader)));
    leader.append(5);
    let before = leader.all();
    assert_eq!(follower.node.promote(WAIT_TIMEOUT), Ok(2));
    assert_eq!(follower.node.promote(WAIT_TIMEOUT), Ok(2), "it leads already");
    assert_eq!(follower.all(), before);
    follower.append(5);
    assert_eq!(leader.stop(), LeaderEnd::Deposed);
    let after = follower.all();
    let earlier = log.open("a", false);
    assert_eq!((earlier.role(), earlier.all()), (NodeRole::Follower, after));
    assert_eq!(earlier.stop(), LeaderEnd::Resigned);
    assert_eq!(follower.stop(), LeaderEnd::Resigned);
}

#[test]
fn node_that_led_last_leads_again_unless_it_only_follows() {
    let log = Log::new();
    let first = log.open("a", false);
    first.append(3);
    let events = first.all();
    assert_eq!(first.stop(), LeaderEnd::Resigned);
    let second = log.open("a", false);
    assert_eq!((second.role(), second.node.status().epoch), (NodeRole::Leader, 2));
    assert_eq!(second.all(), events);
    second.append(1);
    second.kill();
    let third = log.open("a", true);
    assert_eq!((third.role(), third.all().len()), (NodeRole::Follower, 4));
    assert_eq!(third.node.promote(WAIT_TIMEOUT), Ok(3));
    third.append(1);
    assert_eq!(third.stop(), LeaderEnd::Resigned);
}

#[test]
fn new_log_is_led_by_no_read_only_replica() {
    let log = Log::new();
    let follower = log.open("b", true);
    let status = follower.node.status();
    assert_eq!((status.role, status.epoch, status.leader), (NodeRole::Follower, 0, None));
    assert!(!status.is_leader_alive, "there is none");
    let leader = log.open("a", false);
    leader.append(1);
    assert_eq!(follower.stop(), LeaderEnd::Resigned);
    assert_eq!(log.open("b", true).all(), leader.all());
    assert_eq!(leader.stop(), LeaderEnd::Resigned);
}

#[test]
fn follower_leads_once_the_leader_is_gone() {
    let log = Log::with_follower_wait(1);
    let leader = log.open("a", false);
    leader.append(4);
    let events = leader.all();
    let follower = log.open("b", false);
    let read_only = log.open("c", true);
    leader.kill();
    follower.wait_until_leading();
    assert_eq!(follower.all(), events);
    follower.append(3);
    let after = follower.all();
    assert_eq!(after.len(), 7);
    assert_eq!(read_only.role(), NodeRole::Follower, "it leads only after a promotion");
    assert_eq!(read_only.stop(), LeaderEnd::Resigned);
    assert_eq!(follower.stop(), LeaderEnd::Resigned);
    assert_eq!(log.open("a", true).all(), after);
}

#[test]
fn follower_leads_at_once_after_a_resignation() {
    let log = Log::with_follower_wait(2 * WAIT_TIMEOUT.as_secs());
    let leader = log.open("a", false);
    leader.append(2);
    let events = leader.all();
    let follower = log.open("b", false);
    assert_eq!(follower.role(), NodeRole::Follower);
    assert_eq!(leader.stop(), LeaderEnd::Resigned);
    // The time that followers wait is longer than this test does.
    follower.wait_until_leading();
    assert_eq!(follower.all(), events);
    // A node that begins meanwhile is a follower.
    let earlier = log.open("a", false);
    assert_eq!(earlier.role(), NodeRole::Follower);
    follower.append(1);
    follower.kill();
    assert_eq!(earlier.stop(), LeaderEnd::Resigned);
}

/// Each failover of a row is to another node, and no acknowledged event is lost or moved.
#[test]
fn each_of_three_nodes_replaces_the_one_before() {
    let log = Log::with_follower_wait(3);
    let names = ["a", "b", "c"];
    let mut nodes: Vec<Node> = vec![log.open("a", false)];
    nodes[0].append(1);
    nodes.extend([log.open("b", false), log.open("c", false)]);
    let mut acknowledged = nodes[0].all();
    for round in 0..6 {
        let leader = nodes.remove(0);
        let name = leader.node.name().to_owned();
        match round % 2 {
            0 => leader.kill(),
            _ => drop(leader.stop()),
        }
        let leading = wait_for_leader(&nodes);
        nodes.swap(0, leading);
        let events = nodes[0].all();
        assert!(events.starts_with(&acknowledged), "round {round}");
        acknowledged = events;
        // A later failover may replace the leader at any time, since the test waits for nothing.
        if nodes[0].try_append().is_ok() {
            acknowledged = nodes[0].all();
        }
        let name = names.into_iter().find(|it| *it == name).expect("a node");
        nodes.push(log.open(name, false));
    }
}

/// Returns the index of a node that leads.
fn wait_for_leader(nodes: &[Node]) -> usize {
    let leading = || nodes.iter().position(|node| node.role() == NodeRole::Leader);
    wait_until(|| leading().is_some());
    leading().expect("a leader that nothing replaces so soon")
}

/// A leader that is cut off from the object store answers no reads that require the leader, before
/// another node can lead, and acknowledges nothing once another one does.
#[test]
fn leader_without_answers_loses_its_lease_before_another_node_leads() {
    let log = Log::with_follower_wait(4);
    let is_cut = Arc::new(AtomicBool::new(false));
    let objects = CutObjects { inner: log.objects(), is_cut: Arc::clone(&is_cut) };
    let leader = log.open_over(Arc::new(objects), "a", false);
    leader.append(3);
    let follower = log.open("b", false);
    assert!(leader.node.has_lease() && !follower.node.has_lease());
    let before = leader.all();
    is_cut.store(true, Ordering::Release);
    wait_until(|| {
        // At each moment: the lease ends long before a follower becomes a candidate.
        let had_lease = leader.node.has_lease();
        assert!(!(follower.node.has_lease() && had_lease), "two nodes have a lease");
        follower.role() == NodeRole::Leader
    });
    assert!(!leader.node.has_lease() && follower.node.has_lease());
    assert_eq!(leader.role(), NodeRole::Leader, "it does not know of the other one yet");
    std::thread::scope(|threads| {
        let append = threads.spawn(|| leader.try_append());
        pause(Duration::from_millis(300));
        assert!(!append.is_finished(), "no slot has it");
        is_cut.store(false, Ordering::Release);
        append.join().expect("no panic").expect_err("it is not acknowledged");
    });
    assert_eq!(leader.stop(), LeaderEnd::Deposed);
    assert_eq!(follower.all(), before);
    assert_eq!(follower.stop(), LeaderEnd::Resigned);
}

/// Story: a node took the slots before a lost one for all of them, and a promotion wrote into the
/// gap.
#[test]
fn lost_slot_is_named_and_its_number_is_never_used_again() {
    let log = Log::with_follower_wait(1);
    let leader = log.open("a", false);
    leader.append(6);
    let events = leader.all();
    let slot = log.folder.path().join("objects/slots/00000000000000000003");
    let kept = log.folder.path().join("kept");
    std::fs::rename(&slot, &kept).expect("the store loses a slot");
    let node = log.open("b", false);
    // Longer than a follower waits, and than a promotion takes.
    let refusal = node.node.promote(Duration::from_secs(3)).expect_err("the slots have a gap");
    for part in ["slots/00000000000000000003", "is missing", "restore"] {
        assert!(refusal.contains(part), "{refusal}");
    }
    assert_eq!(node.role(), NodeRole::Follower);
    assert_eq!(node.node.status().failure.map(|it| it.contains("is missing")), Some(true));
    assert!(!slot.exists(), "no node writes into the gap");
    std::fs::rename(&kept, &slot).expect("an operator restores it");
    wait_until(|| node.all() == events);
    assert_eq!(node.node.status().failure, None);
    assert_eq!(node.stop(), LeaderEnd::Resigned);
    assert_eq!(leader.stop(), LeaderEnd::Resigned);
}

/// Story: a leader went on in a bucket that was empty after an outage, and acknowledged appends.
#[test]
fn leader_of_an_emptied_object_store_acknowledges_nothing() {
    let log = Log::new();
    let is_cut = Arc::new(AtomicBool::new(false));
    let objects = CutObjects { inner: log.objects(), is_cut: Arc::clone(&is_cut) };
    let leader = log.open_over(Arc::new(objects), "a", false);
    leader.append(3);
    is_cut.store(true, Ordering::Release);
    std::thread::scope(|threads| {
        let append = threads.spawn(|| leader.try_append());
        wait_until(|| leader.node.status().failure.is_some());
        let slots = std::fs::read_dir(log.folder.path().join("objects/slots"));
        for slot in slots.expect("listed") {
            std::fs::remove_file(slot.expect("listed").path()).expect("removed");
        }
        is_cut.store(false, Ordering::Release);
        append.join().expect("no panic").expect_err("the store has no slot before it");
    });
    wait_until(|| leader.node.end().is_some());
    let end = leader.node.end().expect("it has ended").to_string();
    assert!(end.contains("is missing") && end.contains("restore"), "{end}");
}

/// Story: a promotion that had failed made the node the leader when the object store was back.
#[test]
fn promotion_that_ends_without_success_has_no_later_effect() {
    let log = Log::new();
    let leader = log.open("a", false);
    leader.append(2);
    let is_cut = Arc::new(AtomicBool::new(false));
    let objects = CutObjects { inner: log.objects(), is_cut: Arc::clone(&is_cut) };
    let follower = log.open_over(Arc::new(objects), "b", false);
    is_cut.store(true, Ordering::Release);
    let refusal = follower.node.promote(Duration::from_secs(1)).expect_err("no answer");
    assert!(refusal.contains("the connection is cut"), "{refusal}");
    is_cut.store(false, Ordering::Release);
    wait_until(|| follower.node.status().failure.is_none());
    leader.append(3);
    wait_until(|| follower.all() == leader.all());
    assert_eq!(follower.role(), NodeRole::Follower);
    assert_eq!(leader.role(), NodeRole::Leader);
}
