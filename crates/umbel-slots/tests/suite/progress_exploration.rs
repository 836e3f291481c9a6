//! Explores progress: nodes whose requests take time, and which wait as the state machines say.
//! After a few faults, some node acknowledges slots within a bounded time, with a bounded number of
//! requests. `docs/explanation/replication.md` has the rules L1, L5 and L8 that this checks (M6).
//!
//! All costs of requests, starts of the nodes and places of two faults are combined. A request
//! takes effect when it is sent, and its answer comes after its cost.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Mutex;
use std::time::Duration;

use umbel_env::{
    Clock, Creation, CreationRequest, ListPage, ObjectBytes, ObjectError, ObjectErrorKind,
    ObjectName, ObjectResult, ObjectSource, Objects,
};
use umbel_slots::{
    ChainState, FollowStep, SlotEntry, SlotError, SlotFollower, SlotIds, SlotSnapshot,
    SlotTakeover, SlotTimes, SlotWriter, TakeoverStep, WriteStep,
};

use super::explored_store::{ExploredStore, StoreState};
use super::histories::STORE;

const NODES: usize = 2;
/// Time in milliseconds.
type Millis = u64;
/// Time without a slot after which a follower becomes a candidate, between two polls of the next
/// slot, and between two slots of a leader.
const FOLLOWER_WAIT: Millis = 8_000;
const POLL: Millis = 500;
const HEARTBEAT: Millis = 2_000;
/// Time after which a late request takes effect.
const LATE: Millis = 5_000;
/// Slots that a node must acknowledge, and the limits for that.
const SLOTS: u64 = 5;
const TIME_MAX: Millis = 600_000;
const REQUESTS_MAX: u64 = 700;
/// Requests of a cluster whose store has a cache of missing names, until it is reported.
const CACHED_REQUESTS_MAX: u64 = 400;
/// Creations and lists of which two have faults.
const FAULTS_MAX: u64 = 10;

fn times() -> SlotTimes {
    let seconds = Duration::from_secs;
    SlotTimes { fresh: seconds(60), skew: seconds(15), keep: seconds(7200) }
}

/// Rule that the nodes break.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// L5: callers do not wait before a repetition.
    WaitsNever,
    /// L1: a leader sends no heartbeats while it opens its store.
    OpensSilently,
    /// L8: a candidate forgets that a list took too long.
    ForgetsSlowLists,
}

/// Times of requests.
#[derive(Debug, Clone, Copy)]
struct Costs {
    create: Millis,
    read: Millis,
    list: Millis,
    snapshot: Millis,
    /// Time in which a leader opens its store, before it acknowledges appends.
    open: Millis,
}

/// A case of the exploration.
#[derive(Debug, Clone, Copy)]
struct Case {
    costs: Costs,
    /// Start of the second node.
    start: Millis,
    /// Numbers of creations and lists, and their outcomes.
    faults: [Option<(u64, usize)>; 2],
    /// Whether lists of slots fail.
    fails_lists: bool,
    /// Whether a cache before the store keeps names that were missing.
    caches_missing: bool,
}

/// The store, as one node sees it at a time.
#[derive(Debug)]
struct TimedStore {
    case: Case,
    state: Mutex<StoreState>,
    now: Mutex<Millis>,
    requests: Mutex<u64>,
    /// Number of creations and lists.
    faultable: Mutex<u64>,
    missing: Mutex<BTreeSet<String>>,
}

impl TimedStore {
    /// Sends a request, and lets its cost pass.
    fn send<T>(&self, cost: Millis, outcome: usize, action: impl FnOnce(&ExploredStore) -> T) -> T {
        *self.requests.lock().expect("one thread") += 1;
        let mut state = self.state.lock().expect("one thread");
        let mut now = self.now.lock().expect("one thread");
        state.time = *now / 1000;
        let store = ExploredStore::new(std::mem::take(&mut *state), outcome);
        let done = action(&store);
        *state = store.finish().0;
        *now += cost;
        done
    }
}

impl TimedStore {
    /// The outcome of the next creation or list.
    fn outcome(&self) -> usize {
        let mut number = self.faultable.lock().expect("one thread");
        *number += 1;
        let faults = self.case.faults.iter().flatten();
        faults.into_iter().find(|fault| fault.0 + 1 == *number).map_or(0, |fault| fault.1)
    }
}

impl Clock for TimedStore {
    fn now(&self) -> Duration {
        Duration::from_millis(*self.now.lock().expect("one thread"))
    }

    fn wall_micros(&self) -> u64 {
        *self.now.lock().expect("one thread") * 1000
    }
}

impl Objects for TimedStore {
    fn location(&self) -> &str {
        "timed:"
    }

    fn create(&self, name: &ObjectName, bytes: &[u8]) -> ObjectResult<Creation> {
        self.send(self.case.costs.create, self.outcome(), |store| store.create(name, bytes))
    }

    fn create_concurrently(&self, _: &[CreationRequest]) -> Vec<ObjectResult<Creation>> {
        unreachable!("no state machine creates at the same time")
    }

    fn put(&self, _: &ObjectName, _: &dyn ObjectSource) -> ObjectResult<()> {
        unreachable!("no state machine writes")
    }

    fn read(&self, name: &ObjectName, range: Range<u64>) -> ObjectResult<Option<ObjectBytes>> {
        let costs = self.case.costs;
        let is_snapshot = name.as_str().starts_with("snapshots/");
        let cost = if is_snapshot { costs.snapshot } else { costs.read };
        let mut answer = self.send(cost, 0, |store| store.read(name, range))?;
        if self.case.caches_missing {
            let mut missing = self.missing.lock().expect("one thread");
            if answer.value.is_none() {
                missing.insert(name.as_str().to_owned());
            } else if missing.contains(name.as_str()) {
                answer.value = None;
            }
        }
        Ok(answer)
    }

    fn list(&self, prefix: &str, after: Option<&str>, limit: usize) -> ObjectResult<ListPage> {
        let answer = self
            .send(self.case.costs.list, self.outcome(), |store| store.list(prefix, after, limit));
        match self.case.fails_lists && prefix == "slots/" {
            true => Err(ObjectError::new(ObjectErrorKind::Unavailable, "list", prefix, "slow")),
            false => answer,
        }
    }

    fn delete(&self, _: &ObjectName) -> ObjectResult<()> {
        unreachable!("no node collects")
    }
}

enum Role {
    Following(Box<SlotTakeover>),
    Leading(Box<SlotWriter>),
}

struct Node {
    role: Role,
    /// Time of its next step, and of the last new slot.
    next: Millis,
    seen: Millis,
    /// Time at which the store of a leader is open.
    opened: Millis,
}

/// Result of a case.
#[derive(Debug)]
enum End {
    /// This many slots were acknowledged by one node, one after another.
    Acknowledged,
    /// A node stopped.
    Failed(SlotError),
    /// Nothing of it within the limits.
    Stalled,
}

struct Cluster {
    store: TimedStore,
    fault: Fault,
    nodes: Vec<Node>,
    /// Time at which the late requests take effect.
    late: Cell<Option<Millis>>,
    acknowledged: u64,
    uids: u64,
}

fn following(disk: Option<ChainState>) -> Role {
    let follower = SlotFollower::new(STORE, times(), disk);
    Role::Following(Box::new(SlotTakeover::new(STORE, times(), "node", follower)))
}

impl Cluster {
    fn new(case: Case, fault: Fault) -> Cluster {
        let ids = SlotIds { store: STORE, uid: [1; 16] };
        let first = SlotSnapshot { ids, chain: ChainState::default(), state: Vec::new() };
        let mut state = StoreState::default();
        state.land(first.name().as_str(), &first.encode());
        state.advance(0);
        let node = |start| Node { role: following(None), next: start, seen: start, opened: 0 };
        let store = TimedStore {
            case,
            state: Mutex::new(state),
            now: Mutex::new(0),
            requests: Mutex::new(0),
            faultable: Mutex::new(0),
            missing: Mutex::new(BTreeSet::new()),
        };
        let nodes = [1000, 1000 + case.start].map(node).into();
        Cluster { store, fault, nodes, late: Cell::new(None), acknowledged: 0, uids: 0 }
    }

    fn uid(&mut self) -> [u8; 16] {
        self.uids += 1;
        u128::from(self.uids + 1).to_be_bytes()
    }

    fn requests(&self) -> u64 {
        *self.store.requests.lock().expect("one thread")
    }

    /// Lets late requests take effect in time.
    fn land_late(&self, now: Millis) {
        let mut state = self.store.state.lock().expect("one thread");
        match self.late.get() {
            None if !state.late.is_empty() => self.late.set(Some(now + LATE)),
            Some(at) if at <= now => {
                state.land_late(0);
                self.late.set(None);
            }
            _ => {}
        }
    }

    fn run(&mut self, requests_max: u64) -> End {
        loop {
            let next = (0..NODES).min_by_key(|node| self.nodes[*node].next).expect("nodes");
            let now = self.nodes[next].next;
            if now > TIME_MAX || self.requests() > requests_max {
                return End::Stalled;
            }
            self.land_late(now);
            *self.store.now.lock().expect("one thread") = now;
            match self.step(next, now) {
                Ok(wait) => {
                    let answered = *self.store.now.lock().expect("one thread");
                    self.nodes[next].next = answered + wait;
                }
                Err(error) => return End::Failed(error),
            }
            if self.acknowledged >= SLOTS {
                return End::Acknowledged;
            }
        }
    }

    fn wait(&self, wait: Duration) -> Millis {
        match self.fault {
            Fault::WaitsNever => 0,
            _ => wait.as_millis() as u64,
        }
    }

    /// Lets a node take a step. Returns the time that it waits after it.
    fn step(&mut self, node: usize, now: Millis) -> Result<Millis, SlotError> {
        let uid = self.uid();
        let Node { role, seen, opened, .. } = &mut self.nodes[node];
        let mut next = None;
        let wait = match role {
            Role::Following(takeover) if takeover.is_at_end() => {
                if now < *seen + FOLLOWER_WAIT {
                    takeover.keep_following();
                    return Ok(POLL);
                }
                let begins = SlotEntry::EpochBegins { host: "h".into(), port: 1 };
                takeover.begin_epoch(uid, 0, vec![begins])?;
                takeover.wait()
            }
            Role::Following(takeover) => {
                match permanent(takeover.step(&self.store, &self.store))? {
                    Some(TakeoverStep::Followed(FollowStep::Applied(_))) => *seen = now,
                    Some(TakeoverStep::Followed(FollowStep::Restart(_))) => *seen = now,
                    Some(TakeoverStep::Overtaken) => {
                        *seen = now;
                        let chain = takeover.follower().chain().clone();
                        let forgets = self.fault == Fault::ForgetsSlowLists;
                        next = forgets.then(|| following(Some(chain)));
                    }
                    Some(TakeoverStep::Leading(writer, _)) => {
                        *opened = now + self.store.case.costs.open;
                        next = Some(Role::Leading(writer));
                    }
                    _ => {}
                }
                takeover.wait()
            }
            Role::Leading(writer) if !writer.is_busy() => {
                let mut due = *seen + HEARTBEAT;
                if self.fault == Fault::OpensSilently {
                    due = due.max(*opened);
                }
                if now < due {
                    return Ok(due - now);
                }
                *seen = now;
                writer.propose(uid, 0, vec![SlotEntry::Nothing])?;
                Duration::ZERO
            }
            Role::Leading(writer) => {
                match permanent(writer.step(&self.store, &self.store))? {
                    Some(WriteStep::Acknowledged(_)) => {
                        self.acknowledged += u64::from(now >= *opened);
                    }
                    Some(WriteStep::Deposed) => {
                        self.acknowledged = 0;
                        next = Some(following(Some(writer.chain().clone())));
                        *seen = now;
                    }
                    _ => {}
                }
                writer.wait()
            }
        };
        if let Some(next) = next {
            *role = next;
        }
        Ok(self.wait(wait))
    }
}

/// The result of a step; `None` if its request failed for now.
fn permanent<T>(step: Result<T, SlotError>) -> Result<Option<T>, SlotError> {
    match step {
        Ok(step) => Ok(Some(step)),
        Err(error) if error.is_temporary() => Ok(None),
        Err(error) => Err(error),
    }
}

/// One fault, or two.
fn pairs_of_faults() -> impl Iterator<Item = [Option<(u64, usize)>; 2]> {
    let all = || (0..FAULTS_MAX).flat_map(|number| [(number, 1), (number, 2)]);
    all().flat_map(move |first| {
        let later = all().filter(move |second| second.0 > first.0).map(Some);
        [None].into_iter().chain(later).map(move |second| [Some(first), second])
    })
}

/// All cases of a store without a cache.
fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    for create in [0, 900, 2_500] {
        for read in [0, 900, 2_500] {
            for list in [0, 3_000, 20_000, 70_000] {
                for (snapshot, open) in [(0, 0), (20_000, 0), (0, 30_000)] {
                    let costs = Costs { create, read, list, snapshot, open };
                    for start in [0, 200, 9_000] {
                        let faults = [None, None];
                        let case = Case {
                            costs,
                            start,
                            faults,
                            fails_lists: false,
                            caches_missing: false,
                        };
                        all.push(case);
                        all.extend(pairs_of_faults().map(|faults| Case { faults, ..case }));
                    }
                }
            }
        }
    }
    all
}

/// The first case that stalls with a fault of the nodes.
fn first_stall(fault: Fault) -> Option<Case> {
    cases()
        .into_iter()
        .find(|case| !matches!(Cluster::new(*case, fault).run(REQUESTS_MAX), End::Acknowledged))
}

#[test]
fn some_node_acknowledges_slots_with_all_costs_of_requests() {
    let (mut longest, mut most) = (0, 0);
    for case in cases() {
        let mut cluster = Cluster::new(case, Fault::None);
        let end = cluster.run(REQUESTS_MAX);
        let (now, requests) = (*cluster.store.now.lock().expect("one"), cluster.requests());
        assert!(matches!(end, End::Acknowledged), "{end:?} after {now} ms, {requests}: {case:?}");
        (longest, most) = (longest.max(now), most.max(requests));
    }
    println!("within {longest} ms and {most} requests");
}

/// Story: the lists of slots failed for hours. Each candidate repeated its list until the next one
/// deposed it.
#[test]
fn candidates_lead_while_lists_of_slots_fail() {
    for case in cases() {
        let case = Case { fails_lists: true, ..case };
        let mut cluster = Cluster::new(case, Fault::None);
        let end = cluster.run(REQUESTS_MAX);
        assert!(matches!(end, End::Acknowledged), "{end:?} {}: {case:?}", cluster.requests());
    }
}

#[test]
fn candidates_that_forget_slow_lists_are_found() {
    let found = first_stall(Fault::ForgetsSlowLists);
    assert!(found.is_some_and(|case| case.costs.list > 60_000), "{found:?}");
}

#[test]
fn leaders_that_open_silently_are_found() {
    let found = first_stall(Fault::OpensSilently);
    assert!(found.is_some_and(|case| case.costs.open > FOLLOWER_WAIT), "{found:?}");
}

/// Story: a cache before the object store kept missing names. A leader whose answer was lost sent
/// its slot again and again, and paid for each request.
#[test]
fn cache_of_missing_names_is_reported_within_some_requests() {
    let (mut reported, mut ignored) = (0, 0);
    for read in [0, 900] {
        let costs = Costs { create: 100, read, list: 100, snapshot: 100, open: 0 };
        for fault in (0..FAULTS_MAX).map(|it| (it, 1)) {
            let faults = [Some(fault), None];
            let (fails_lists, caches_missing) = (false, true);
            let case = Case { costs, start: 200, faults, fails_lists, caches_missing };
            let mut cluster = Cluster::new(case, Fault::None);
            match cluster.run(CACHED_REQUESTS_MAX) {
                End::Failed(SlotError::Refused(reason)) => {
                    assert!(reason.contains("remove the cache"), "{reason}");
                    reported += 1;
                }
                // No answer about a creation was lost.
                End::Acknowledged => {}
                other => panic!("{other:?} after {} requests: {case:?}", cluster.requests()),
            }
            let mut hasty = Cluster::new(case, Fault::WaitsNever);
            ignored += u64::from(matches!(hasty.run(CACHED_REQUESTS_MAX), End::Stalled));
        }
    }
    assert!(reported > 0, "no cache is reported");
    assert!(ignored > 0, "nodes that do not wait are not found");
}
