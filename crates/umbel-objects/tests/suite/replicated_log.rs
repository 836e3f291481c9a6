//! The replicated log in a directory, on a machine that pauses without showing it.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use umbel_env::{Clock, ObjectName, Objects};
use umbel_objects::DirectoryObjects;
use umbel_sim::Sim;
use umbel_slots::{
    ChainState, FollowStep, SlotEntry, SlotError, SlotFollower, SlotIds, SlotSnapshot,
    SlotTakeover, SlotTimes, SlotWriter, TakeoverStep, WriteStep,
};

const ROOT: &str = "/objects";
const STORE: [u8; 16] = [7; 16];
/// Less than the time for which a read of floors counts.
const PAUSE: Duration = Duration::from_secs(20 * 60);
/// Requests within which a node reaches the end.
const STEPS_MAX: usize = 20;

/// A machine with a directory that has a new replicated log.
fn machine() -> Sim {
    let sim = Sim::new(1);
    sim.env().files.create_dir_all(Path::new(ROOT)).unwrap();
    let ids = SlotIds { store: STORE, uid: [1; 16] };
    let first = SlotSnapshot { ids, chain: ChainState::default(), state: Vec::new() };
    open(&sim).put(&first.name(), &first.encode()).unwrap();
    sim
}

fn open(sim: &Sim) -> DirectoryObjects {
    DirectoryObjects::open(&sim.env(), Path::new(ROOT)).unwrap()
}

/// The clocks of a node, which show no pause.
#[derive(Debug)]
struct NodeClock {
    base: Arc<dyn Clock>,
    paused_secs: Arc<AtomicU64>,
}

impl NodeClock {
    fn new(sim: &Sim) -> NodeClock {
        NodeClock { base: sim.env().clock, paused_secs: Arc::default() }
    }
}

impl Clock for NodeClock {
    fn now(&self) -> Duration {
        self.base.now() - Duration::from_secs(self.paused_secs.load(Ordering::Relaxed))
    }

    fn wall_micros(&self) -> u64 {
        self.base.wall_micros() - self.paused_secs.load(Ordering::Relaxed) * 1_000_000
    }
}

fn lead(objects: &dyn Objects, clock: &dyn Clock) -> SlotWriter {
    let follower = SlotFollower::new(STORE, SlotTimes::default(), None);
    let mut takeover = SlotTakeover::new(STORE, SlotTimes::default(), "node", follower);
    for _ in 0..STEPS_MAX {
        match takeover.step(objects, clock).unwrap() {
            TakeoverStep::AtEnd => {
                let begins = SlotEntry::EpochBegins { host: "h".into(), port: 1 };
                assert!(takeover.begin_epoch([2; 16], 0, vec![begins]).unwrap());
            }
            TakeoverStep::Leading(writer, _) => return *writer,
            _ => {}
        }
    }
    panic!("the node does not lead");
}

/// Follows until there is no later slot.
fn follow(follower: &mut SlotFollower, objects: &dyn Objects, clock: &dyn Clock) {
    for _ in 0..STEPS_MAX {
        if let FollowStep::Current(_) = follower.step(objects, clock).unwrap() {
            return;
        }
    }
    panic!("the node does not reach the end");
}

/// Story: a follower refused each directory, since its reads and lists had no time.
#[test]
fn nodes_lead_and_follow_in_a_directory() {
    let sim = machine();
    let (objects, clock) = (open(&sim), sim.env().clock);
    let mut writer = lead(&objects, &*clock);
    for uid in 3..6 {
        writer.propose([uid; 16], 0, vec![SlotEntry::Nothing]).unwrap();
        let step = writer.step(&objects, &*clock).unwrap();
        assert!(matches!(step, WriteStep::Acknowledged(_)), "{step:?}");
    }
    let mut follower = SlotFollower::new(STORE, SlotTimes::default(), None);
    follow(&mut follower, &open(&sim), &*clock);
    assert_eq!((follower.end(), writer.end().number), (writer.end(), 4));
    let temporary = sim.env().files.read_dir(&Path::new(ROOT).join(".temporary")).unwrap();
    assert!(temporary.is_empty(), "{temporary:?}");
}

/// The machine pauses before each call of a read that finds no slot. The contact of the read is not
/// after a slot that was created meanwhile.
#[test]
fn contact_of_a_missing_slot_is_not_after_its_creation() {
    let (mut before_effect, mut after_effect) = (0, 0);
    for call in 1.. {
        let sim = machine();
        let (objects, clock) = (open(&sim), NodeClock::new(&sim));
        let mut follower = SlotFollower::new(STORE, SlotTimes::default(), None);
        follow(&mut follower, &objects, &clock);
        sim.advance(Duration::from_secs(2));
        let created: Arc<Mutex<Option<u64>>> = Arc::default();
        let (at, paused_secs) = (Arc::clone(&created), Arc::clone(&clock.paused_secs));
        sim.schedule_before_call(sim.calls() + call, move |sim| {
            let name = ObjectName::new("slots/00000000000000000001").unwrap();
            let answer = open(sim).create(&name, b"no slot").unwrap();
            *at.lock().unwrap() = answer.store_micros;
            sim.advance(PAUSE);
            paused_secs.store(PAUSE.as_secs(), Ordering::Relaxed);
        });
        let step = follower.step(&objects, &clock);
        if sim.clear_scheduled() > 0 {
            break;
        }
        match step {
            // The pause, and the creation, were before the read.
            Err(SlotError::Damaged { .. }) | Ok(FollowStep::Again) => before_effect += 1,
            Ok(FollowStep::Current(Some(contact))) => {
                after_effect += 1;
                let created = created.lock().unwrap().unwrap();
                assert!(contact.store_micros <= created, "call {call}");
            }
            other => panic!("call {call}: {other:?}"),
        }
    }
    assert!(before_effect > 0 && after_effect > 1, "{before_effect} before, {after_effect} after");
}
