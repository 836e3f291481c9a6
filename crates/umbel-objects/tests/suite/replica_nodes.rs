//! Nodes of a replicated log over a directory: the leader, a follower, and a promotion.

use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use umbel_env::{Env, Objects};
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

/// An open node.
struct Node {
    store: Store,
    node: ReplicaNode,
}

impl Log {
    fn new() -> Log {
        let folder = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(folder.path().join("objects")).expect("created");
        let mut object = StoreObject::new([7; 16]);
        // The first settings of a log are those of its STORE, not those of the binary.
        object.settings.follower_wait_micros = 6_000_000;
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
        let node = ReplicaNode::start(&Env::system(), parts, self.object, self.objects(), options);
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
    // As a kill leaves it: without a resignation.
    drop(second.node);
    second.store.close().expect("closed");
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
