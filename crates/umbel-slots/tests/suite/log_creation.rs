//! The creation of a replicated log: a crash at each request, lost and late answers, and two
//! creations in one prefix.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use umbel_env::{ObjectName, Objects};
use umbel_sim::{FaultRates, ObjectFault, ObjectSim, Random};
use umbel_slots::{
    ChainState, FollowStep, InitStep, LogInit, STORE_OBJECT_NAME, SlotError, SlotFollower,
    SlotResult, SlotSettings, StoreObject,
};

/// Requests of a creation without faults: a read, a list and two creations.
const REQUESTS: usize = 4;
/// Steps after which a creation with some faults has ended.
const STEPS_MAX: usize = 1000;
/// Histories of each campaign.
const SEEDS: u64 = 300;

fn object(id: u8) -> StoreObject {
    StoreObject::new([id; 16])
}

fn init(id: u8) -> LogInit {
    LogInit::new(object(id)).expect("valid constants")
}

/// Repeats the steps until the creation ends.
fn run(sim: &ObjectSim, client: u64, init: &mut LogInit) -> SlotResult<InitStep> {
    let (objects, clock) = (sim.client(client), sim.env().clock);
    for _ in 0..STEPS_MAX {
        match init.step(&*objects, &*clock) {
            Ok(InitStep::Again) => {}
            Err(error) if error.is_temporary() => {}
            ended => return ended,
        }
    }
    panic!("no end after {STEPS_MAX} steps");
}

fn create(sim: &ObjectSim, id: u8) -> SlotResult<InitStep> {
    run(sim, 100, &mut init(id))
}

fn refusal(result: SlotResult<InitStep>) -> String {
    match result {
        Err(SlotError::Refused(reason)) => reason,
        other => panic!("not refused: {other:?}"),
    }
}

/// The objects of a log without slots.
fn log_objects(id: u8) -> BTreeMap<String, Vec<u8>> {
    let snapshot = object(id).first_snapshot();
    BTreeMap::from([
        (STORE_OBJECT_NAME.to_owned(), object(id).encode()),
        (snapshot.name().as_str().to_owned(), snapshot.encode()),
    ])
}

/// Asserts that nodes find this log, and that its creation can be repeated.
fn assert_exists(sim: &ObjectSim, id: u8, context: &str) {
    assert_eq!(create(sim, id), Ok(InitStep::Existed), "{context}");
    assert_eq!(sim.objects(), log_objects(id), "{context}");
    let (objects, clock) = (sim.client(101), sim.env().clock);
    let found = StoreObject::read(&*objects, &*clock).expect("readable").expect("a log");
    assert_eq!(found, object(id), "{context}");
    let mut follower = SlotFollower::new(found.store, found.times(), None);
    let mut snapshot = None;
    for _ in 0..STEPS_MAX {
        match follower.step(&*objects, &*clock).expect("no fault") {
            FollowStep::Restart(found) => snapshot = Some(found),
            FollowStep::Current(_) => break,
            FollowStep::Again => {}
            step => panic!("a new log has no {step:?}: {context}"),
        }
    }
    assert_eq!(snapshot, Some(object(id).first_snapshot()), "{context}");
    let expected = ChainState { settings: found.settings, ..ChainState::default() };
    assert_eq!(*follower.chain(), expected, "{context}");
}

#[test]
fn empty_prefix_gets_a_log() {
    let sim = ObjectSim::new(1);
    let objects = sim.client(1);
    let probe = ObjectName::new("probe/0a-race-1").expect("a name");
    objects.put(&probe, &b"x".to_vec()).expect("no fault");
    assert_eq!(create(&sim, 7), Ok(InitStep::Created));
    objects.delete(&probe).expect("no fault");
    assert_exists(&sim, 7, "created");
    assert_eq!(sim.request_counts().get("create"), Some(&2), "one request for each object");
}

/// The snapshot exists before `STORE`, at each moment.
#[test]
fn creation_that_ends_early_is_finished_by_the_next_one() {
    let faults = ObjectFault::ALL.into_iter().filter(|fault| fault.is_transient());
    for fault in [None].into_iter().chain(faults.map(Some)) {
        for requests in 0..=REQUESTS + 1 {
            let context = format!("{fault:?} in request {requests}");
            let sim = ObjectSim::new(1);
            let (objects, clock) = (sim.client(1), sim.env().clock);
            let mut first = init(7);
            for number in 0..requests {
                if number + 1 == requests
                    && let Some(fault) = fault
                {
                    sim.plan(fault);
                }
                let _ = first.step(&*objects, &*clock);
                let has = |name: &str| sim.objects().contains_key(name);
                let snapshot = object(7).first_snapshot().name();
                assert!(!has(STORE_OBJECT_NAME) || has(snapshot.as_str()), "{context}");
            }
            sim.kill(1);
            let created = run(&sim, 2, &mut init(7));
            assert!(matches!(created, Ok(InitStep::Created | InitStep::Existed)), "{context}");
            // What is on its way has the same bytes.
            sim.settle();
            sim.set_rates(FaultRates::none());
            assert_exists(&sim, 7, &context);
        }
    }
}

#[test]
fn creation_survives_every_answer() {
    for seed in 0..SEEDS {
        let sim = ObjectSim::new(seed);
        sim.keep_history(false);
        sim.set_rates(FaultRates::transient(30));
        let mut random = Random::new(seed);
        for client in 1..=3 {
            let (objects, clock) = (sim.client(client), sim.env().clock);
            let mut started = init(7);
            for _ in 0..random.below(8) {
                let _ = started.step(&*objects, &*clock);
                sim.advance(Duration::from_secs(random.below(60)));
            }
            sim.kill(client);
        }
        let created = run(&sim, 4, &mut init(7));
        assert!(matches!(created, Ok(InitStep::Created | InitStep::Existed)), "seed {seed}");
        sim.set_rates(FaultRates::none());
        sim.settle();
        assert_exists(&sim, 7, &format!("seed {seed}"));
    }
}

/// One of two logs wins the prefix, and the other one is refused by the name of the winner.
#[test]
fn prefix_has_one_log() {
    let mut races = 0;
    for seed in 0..SEEDS {
        let sim = ObjectSim::new(seed);
        let mut random = Random::new(seed);
        let clock = sim.env().clock;
        let mut inits = [init(7), init(8)];
        let clients: [Arc<dyn Objects>; 2] = [sim.client(1), sim.client(2)];
        let mut ended: [Option<SlotResult<InitStep>>; 2] = [None, None];
        while ended.iter().any(Option::is_none) {
            let node = random.below_usize(2);
            if ended[node].is_some() {
                continue;
            }
            match inits[node].step(&*clients[node], &*clock) {
                Ok(InitStep::Again) => {}
                result => ended[node] = Some(result),
            }
        }
        let [first, second] = ended.map(|result| result.expect("both ended"));
        let has_won = |result: &SlotResult<InitStep>| *result == Ok(InitStep::Created);
        assert!(has_won(&first) != has_won(&second), "seed {seed}: {first:?}, {second:?}");
        let (winner, lost) = if has_won(&first) { (7, second) } else { (8, first) };
        let reason = refusal(lost);
        assert!(reason.contains(&object(winner).id_text()), "seed {seed}: {reason}");
        races += u64::from(sim.request_counts().contains_key("delete"));
        assert_exists(&sim, winner, &format!("seed {seed}"));
        assert!(refusal(create(&sim, 9)).contains(&object(winner).id_text()), "seed {seed}");
        assert_eq!(sim.objects(), log_objects(winner), "a refusal changes nothing");
    }
    assert!(races > 0, "no race for the object");
}

#[test]
fn prefixes_with_other_objects_are_refused() {
    for (name, part) in [
        ("backups/1", "it has backups/1"),
        ("slots/00000000000000000001", "it has slots/00000000000000000001"),
        ("STORED", "it has STORED"),
        ("snapshots/00000000000000000001-07070707070707070707070707070707", "is not empty"),
        (
            "snapshots/00000000000000000000-08080808080808080808080808080808",
            "the beginning of the replicated log 08080808080808080808080808080808",
        ),
    ] {
        let sim = ObjectSim::new(1);
        let other = ObjectName::new(name).expect("a name");
        sim.client(1).put(&other, &b"x".to_vec()).expect("no fault");
        let reason = refusal(create(&sim, 7));
        assert!(reason.contains(part), "{reason}");
        assert_eq!(sim.objects().len(), 1, "nothing was created: {name}");
    }
}

#[test]
fn constants_of_a_log_never_change() {
    let settings = SlotSettings { derivation: 2, ..SlotSettings::default() };
    let other = StoreObject { settings, ..object(7) };
    // With the first snapshot only, and with both objects.
    for requests in [3, REQUESTS] {
        let sim = ObjectSim::new(1);
        let (objects, clock) = (sim.client(1), sim.env().clock);
        let mut first = init(7);
        for _ in 0..requests {
            first.step(&*objects, &*clock).expect("no fault");
        }
        let mut second = LogInit::new(other).expect("valid constants");
        let reason = refusal(run(&sim, 2, &mut second));
        assert!(reason.contains("with other constants"), "{reason}");
        assert!(matches!(create(&sim, 7), Ok(InitStep::Created | InitStep::Existed)));
        assert_exists(&sim, 7, "the first constants");
    }
    let short = SlotSettings { keep_micros: 1, ..SlotSettings::default() };
    let refused = LogInit::new(StoreObject { settings: short, ..object(7) });
    assert!(matches!(refused, Err(SlotError::Refused(_))), "{refused:?}");
}

#[test]
fn object_that_is_no_store_is_damage() {
    let sim = ObjectSim::new(1);
    assert_eq!(create(&sim, 7), Ok(InitStep::Created));
    let mut bytes = object(7).encode();
    bytes[30] ^= 1;
    let objects = sim.client(1);
    objects.put(&StoreObject::name(), &bytes).expect("no fault");
    let damaged = create(&sim, 7);
    assert!(matches!(damaged, Err(SlotError::Damaged { .. })), "{damaged:?}");
    let newer = StoreObject { node_version_min: 2, ..object(7) };
    objects.put(&StoreObject::name(), &newer.encode()).expect("no fault");
    let reason = refusal(create(&sim, 7));
    assert!(reason.contains("a newer Umbel wrote it"), "{reason}");
}
