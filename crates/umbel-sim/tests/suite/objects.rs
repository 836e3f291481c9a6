//! The simulated object store: a client can see every fault, and a seed decides everything.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use umbel_env::{
    Creation, CreationRequest, ListPage, ObjectErrorKind, ObjectName, ObjectResult, Objects,
};
use umbel_sim::{
    ConditionMode, FaultRates, ObjectDamage, ObjectFault, ObjectSim, ObjectStoreMode, Random,
    RequestTimes,
};

fn name(text: &str) -> ObjectName {
    ObjectName::new(text).unwrap()
}

fn create(store: &dyn Objects, text: &str, bytes: &[u8]) -> Creation {
    store.create(&name(text), bytes).unwrap().value
}

fn read(store: &dyn Objects, text: &str) -> Option<Vec<u8>> {
    let found = store.read(&name(text), 0..1 << 20).unwrap().value;
    found.map(|found| found.bytes)
}

fn listed(page: ObjectResult<ListPage>) -> Vec<String> {
    let objects = page.unwrap().value.objects;
    objects.into_iter().map(|object| object.name.as_str().to_owned()).collect()
}

fn start(seed: u64) -> (ObjectSim, Arc<dyn Objects>) {
    let sim = ObjectSim::new(seed);
    let client = sim.client(1);
    (sim, client)
}

/// The status in an unknown outcome.
fn unknown(outcome: &Creation) -> &str {
    match outcome {
        Creation::Unknown(error) => &error.cause,
        other => panic!("{other:?}"),
    }
}

#[test]
fn store_without_faults_keeps_the_guarantees() {
    let (sim, store) = start(1);
    assert_eq!(read(&*store, "slots/1"), None);
    let created = store.create(&name("slots/1"), b"first").unwrap();
    assert_eq!(created.value, Creation::Created);
    assert_eq!(create(&*sim.client(2), "slots/1", b"second"), Creation::Exists);
    assert_eq!(read(&*store, "slots/1").unwrap(), b"first");
    let part = store.read(&name("slots/1"), 1..3).unwrap().value.unwrap();
    assert_eq!((part.bytes.as_slice(), part.object_bytes), (&b"ir"[..], 5));
    assert!(store.read(&name("slots/1"), 9..12).unwrap().value.unwrap().bytes.is_empty());
    store.put(&name("chunks/1-a"), &b"chunk".to_vec()).unwrap();
    assert_eq!(listed(store.list("", None, 9)), ["chunks/1-a", "slots/1"]);
    assert_eq!(listed(store.list("slots/", None, 9)), ["slots/1"]);
    let page = store.list("", None, 1).unwrap().value;
    assert_eq!(page.next_after.as_deref(), Some("chunks/1-a"));
    assert_eq!(listed(store.list("", page.next_after.as_deref(), 1)), ["slots/1"]);
    let entry = &store.list("slots/", None, 1).unwrap().value.objects[0];
    assert_eq!((entry.bytes, entry.created_micros), (5, created.store_micros));
    store.delete(&name("slots/1")).unwrap();
    store.delete(&name("slots/1")).unwrap();
    assert_eq!(read(&*store, "slots/1"), None);
    assert_eq!(create(&*store, "slots/1", b"third"), Creation::Created);
    let error = store.create(&name("slots/1/below"), b"x").unwrap_err();
    assert_eq!(error.kind, ObjectErrorKind::Refused);
    assert!(sim.injected().is_empty());
    assert_eq!(sim.request_counts()["create"], 3);
}

#[test]
fn of_concurrent_creations_one_succeeds() {
    for seed in 0..50 {
        let (_, store) = start(seed);
        let request = |number: u8| CreationRequest {
            name: name("race"),
            bytes: vec![number],
            body_delay: Duration::from_millis(u64::from(number) % 3),
        };
        let outcomes = store.create_concurrently(&(0..8).map(request).collect::<Vec<_>>());
        let outcomes: Vec<_> = outcomes.into_iter().map(|o| o.unwrap().value).collect();
        let winners: Vec<_> =
            (0..8).filter(|number| outcomes[*number as usize] == Creation::Created).collect();
        assert_eq!(read(&*store, "race").as_ref(), Some(&winners));
        assert_eq!(winners.len(), 1);
    }
}

#[test]
fn every_fault_of_a_creation_is_seen() {
    use ObjectFault as F;
    // The status that the client sees, and whether the object exists afterwards.
    let cases = [
        (F::LostRequest, "no answer", false),
        (F::LostAnswer, "no answer", true),
        (F::Conflict { commits: false }, "status 409", false),
        (F::Conflict { commits: true }, "status 409", true),
        (F::ServerError { commits: false }, "status 500", false),
        (F::ServerError { commits: true }, "status 500", true),
        (F::SlowDown { commits: false }, "status 503", false),
        (F::SlowDown { commits: true }, "status 503", true),
    ];
    for seed in 0..20 {
        for (fault, status, exists) in cases {
            let (sim, store) = start(seed);
            sim.plan(fault);
            let outcome = create(&*store, "a", b"x");
            assert!(unknown(&outcome).contains(status), "{fault:?}: {outcome:?}");
            sim.settle();
            assert_eq!(read(&*store, "a").is_some(), exists, "{fault:?}");
            assert_eq!(sim.injected(), [(fault, 1)].into());
        }
        for commits in [false, true] {
            let (sim, store) = start(seed);
            sim.plan(F::Precondition { commits });
            assert_eq!(create(&*store, "a", b"x"), Creation::Exists);
            assert_eq!(read(&*store, "a").is_some(), commits);
        }
        let (sim, store) = start(seed);
        sim.plan(F::Denied);
        let error = store.create(&name("a"), b"x").unwrap_err();
        assert_eq!(error.kind, ObjectErrorKind::Denied);
        assert!(sim.objects().is_empty());
    }
}

#[test]
fn late_request_lands_after_the_death_of_its_sender() {
    let mut takes_long = 0;
    for seed in 0..50 {
        let (sim, store) = start(seed);
        sim.plan(ObjectFault::LateLanding);
        assert!(unknown(&create(&*store, "slots/1", b"late")).contains("no answer"));
        sim.kill(1);
        assert!(store.read(&name("slots/1"), 0..1).is_err(), "the client is dead");
        let other = sim.client(2);
        let early = read(&*other, "slots/1");
        sim.advance(Duration::from_secs(60));
        takes_long += u64::from(read(&*other, "slots/1").is_none());
        sim.settle();
        assert_eq!(early, None);
        assert_eq!(read(&*other, "slots/1").unwrap(), b"late");
        assert_eq!(sim.client(1).location(), other.location());
        assert!(read(&*sim.client(1), "slots/1").is_some(), "a new process");
    }
    assert!(takes_long > 5, "{takes_long}");
}

/// A deleted name that a late request creates again is the fault that other stores had.
#[test]
fn late_request_recreates_a_deleted_name() {
    let (sim, store) = start(1);
    sim.plan(ObjectFault::LateLanding);
    create(&*store, "slots/1", b"late");
    assert_eq!(create(&*store, "slots/1", b"again"), Creation::Created);
    store.delete(&name("slots/1")).unwrap();
    sim.settle();
    assert_eq!(read(&*store, "slots/1").unwrap(), b"late");
}

#[test]
fn duplicate_is_refused_its_own_name_or_lands_late() {
    let (mut refused, mut resurrected) = (0, 0);
    for seed in 0..60 {
        let (sim, store) = start(seed);
        sim.plan(ObjectFault::Duplicate);
        match create(&*store, "a", b"x") {
            Creation::Exists => refused += 1,
            Creation::Created => {
                store.delete(&name("a")).unwrap();
                sim.settle();
                resurrected += u64::from(read(&*store, "a").is_some());
                continue;
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(read(&*store, "a").unwrap(), b"x");
        // A deletion can land twice, too.
        sim.plan(ObjectFault::Duplicate);
        store.delete(&name("a")).unwrap();
        create(&*store, "a", b"y");
        sim.settle();
    }
    assert!(refused > 10 && resurrected > 10, "{refused} {resurrected}");
}

#[test]
fn every_fault_of_a_read_is_seen() {
    use ObjectFault as F;
    for seed in 0..20 {
        let (sim, store) = start(seed);
        let bytes = Random::new(seed).bytes(500);
        create(&*store, "a", &bytes);
        create(&*store, "b", b"other");
        let whole = |store: &dyn Objects| store.read(&name("a"), 0..1 << 20);
        let statuses = [
            (F::LostRequest, "no answer"),
            (F::ServerError { commits: false }, "status 500"),
            (F::SlowDown { commits: false }, "status 503"),
            (F::CutBody, "within the body"),
        ];
        for (fault, status) in statuses {
            sim.plan(fault);
            let error = whole(&*store).unwrap_err();
            assert!(error.is_temporary() && error.cause.contains(status), "{error}");
        }
        sim.plan(F::Denied);
        assert_eq!(whole(&*store).unwrap_err().kind, ObjectErrorKind::Denied);
        sim.plan(F::ShortBody);
        let short = whole(&*store).unwrap().value.unwrap();
        assert!(short.bytes.len() < 500 && bytes.starts_with(&short.bytes));
        assert_eq!(short.object_bytes, short.bytes.len() as u64);
        sim.plan(F::WrongBody);
        let wrong = whole(&*store).unwrap().value.unwrap().bytes;
        assert_eq!(wrong.iter().zip(&bytes).filter(|(a, b)| a != b).count(), 1);
        sim.plan(F::OtherBody);
        assert_eq!(whole(&*store).unwrap().value.unwrap().bytes, b"other");
        assert_eq!(whole(&*store).unwrap().value.unwrap().bytes, bytes);
    }
}

#[test]
fn stale_answers_are_bounded() {
    let (mut stale_reads, mut stale_lists) = (0, 0);
    for seed in 0..100 {
        let (sim, store) = start(seed);
        sim.set_staleness(Duration::from_secs(2));
        create(&*store, "a", b"x");
        sim.advance(Duration::from_secs(1));
        sim.plan(ObjectFault::StaleRead);
        stale_reads += u64::from(read(&*store, "a").is_none());
        sim.plan(ObjectFault::StaleList);
        stale_lists += u64::from(listed(store.list("", None, 9)).is_empty());
        sim.advance(Duration::from_secs(2));
        sim.plan(ObjectFault::StaleRead);
        assert!(read(&*store, "a").is_some());
        sim.plan(ObjectFault::StaleList);
        assert_eq!(listed(store.list("", None, 9)), ["a"]);
    }
    assert!((20..80).contains(&stale_reads) && (20..80).contains(&stale_lists));
}

#[test]
fn pages_break_and_are_short() {
    let (sim, store) = start(4);
    for number in 0..9 {
        create(&*store, &format!("a/{number}"), b"x");
    }
    sim.plan(ObjectFault::BrokenPage);
    let page = store.list("a/", None, 4).unwrap().value;
    assert_eq!(page.objects.len(), 4);
    sim.plan(ObjectFault::BrokenPage);
    let error = store.list("a/", page.next_after.as_deref(), 4).unwrap_err();
    assert!(error.is_temporary() && error.object.ends_with("a/"), "{error}");
    let mut lengths = BTreeSet::new();
    for _ in 0..20 {
        sim.plan(ObjectFault::ShortPage);
        let page = store.list("a/", None, 4).unwrap().value;
        assert!(page.next_after.is_some());
        lengths.insert(page.objects.len());
    }
    assert_eq!(lengths, [1, 2, 3, 4].into());
}

#[test]
fn puts_and_deletions_have_faults() {
    let (sim, store) = start(5);
    let bytes = b"chunk".to_vec();
    for (fault, lands) in [
        (ObjectFault::LostRequest, false),
        (ObjectFault::LostAnswer, true),
        (ObjectFault::LateLanding, true),
        (ObjectFault::ServerError { commits: true }, true),
        (ObjectFault::SlowDown { commits: false }, false),
    ] {
        sim.plan(fault);
        assert!(store.put(&name("c"), &bytes).unwrap_err().is_temporary());
        sim.settle();
        assert_eq!(read(&*store, "c").is_some(), lands, "{fault:?}");
        store.put(&name("c"), &bytes).unwrap();
        sim.plan(fault);
        assert!(store.delete(&name("c")).unwrap_err().is_temporary());
        sim.settle();
        assert_eq!(read(&*store, "c").is_none(), lands, "{fault:?}");
        store.delete(&name("c")).unwrap();
    }
}

#[test]
fn expired_credentials_refuse_every_request() {
    let (sim, store) = start(6);
    create(&*store, "a", b"x");
    sim.expire_credentials(true);
    let errors = [
        store.create(&name("b"), b"x").unwrap_err(),
        store.put(&name("b"), &b"x".to_vec()).unwrap_err(),
        store.read(&name("a"), 0..1).unwrap_err(),
        store.list("", None, 9).unwrap_err(),
        store.delete(&name("a")).unwrap_err(),
    ];
    assert!(errors.iter().all(|error| error.kind == ObjectErrorKind::Denied), "{errors:?}");
    sim.expire_credentials(false);
    assert_eq!(read(&*store, "a").unwrap(), b"x");
    assert_eq!(read(&*store, "b"), None);
}

#[test]
fn objects_are_damaged_on_request() {
    for position in 0..40 {
        let (sim, store) = start(7);
        create(&*store, "a", b"first");
        store.delete(&name("a")).unwrap();
        create(&*store, "a", b"second");
        create(&*store, "b", b"only");
        create(&*store, "empty", b"");
        assert!(sim.damage("a", ObjectDamage::Old, position));
        assert_eq!(read(&*store, "a").unwrap(), b"first");
        assert!(!sim.damage("b", ObjectDamage::Old, position));
        assert!(!sim.damage("empty", ObjectDamage::Flip, position));
        assert!(!sim.damage("none", ObjectDamage::Missing, position));
        assert!(sim.damage("b", ObjectDamage::Flip, position));
        let flipped = read(&*store, "b").unwrap();
        let bits: u32 = flipped.iter().zip(b"only").map(|(a, b)| (a ^ b).count_ones()).sum();
        assert_eq!((flipped.len(), bits), (4, 1));
        assert!(sim.damage("b", ObjectDamage::Cut, position));
        let cut = read(&*store, "b").unwrap();
        assert!(cut.len() < 4 && flipped.starts_with(&cut));
        assert!(sim.damage("a", ObjectDamage::Missing, position));
        assert_eq!(read(&*store, "a"), None);
    }
}

#[test]
fn stores_that_break_guarantees_do_so() {
    let mode = |mode: ObjectStoreMode| {
        let (sim, store) = start(8);
        sim.set_mode(mode);
        (sim, store)
    };
    let usual = ObjectStoreMode::default;
    let (_, store) = mode(ObjectStoreMode { conditions: ConditionMode::Ignored, ..usual() });
    assert_eq!(create(&*store, "a", b"1"), Creation::Created);
    assert_eq!(create(&*store, "a", b"2"), Creation::Created);
    assert_eq!(read(&*store, "a").unwrap(), b"2");
    let (_, store) = mode(ObjectStoreMode { conditions: ConditionMode::OnlyIfMatch, ..usual() });
    let error = store.create(&name("a"), b"1").unwrap_err();
    assert!(error.kind == ObjectErrorKind::Refused && error.cause.contains("501"), "{error}");
    let (_, store) = mode(ObjectStoreMode { conditions: ConditionMode::JudgedAtStart, ..usual() });
    assert_eq!(create(&*store, "a", b"1"), Creation::Created);
    assert_eq!(create(&*store, "a", b"2"), Creation::Exists);
    let slow = |bytes: &[u8], millis| CreationRequest {
        name: name("b"),
        bytes: bytes.to_vec(),
        body_delay: Duration::from_millis(millis),
    };
    let outcomes = store.create_concurrently(&[slow(b"slow", 500), slow(b"fast", 0)]);
    assert!(outcomes.iter().all(|o| o.as_ref().unwrap().value == Creation::Created));
    assert_eq!(read(&*store, "b").unwrap(), b"slow");
    let racing = ConditionMode::Racing(Duration::from_secs(1));
    let (_, store) = mode(ObjectStoreMode { conditions: racing, ..usual() });
    let outcomes = store.create_concurrently(&[slow(b"1", 0), slow(b"2", 0)]);
    assert!(outcomes.iter().all(|o| o.as_ref().unwrap().value == Creation::Created));
    let lag = Duration::from_secs(10);
    let (sim, store) = mode(ObjectStoreMode { read_lag: lag, list_lag: lag, ..usual() });
    create(&*store, "a", b"1");
    assert!(read(&*store, "a").is_none() && listed(store.list("", None, 9)).is_empty());
    sim.advance(lag);
    assert!(read(&*store, "a").is_some() && listed(store.list("", None, 9)) == ["a"]);
    let (_, store) = mode(ObjectStoreMode { times_creations_only: true, ..usual() });
    let created = store.create(&name("a"), b"1").unwrap().store_micros.unwrap();
    assert_eq!(store.read(&name("a"), 0..1).unwrap().store_micros, None);
    assert_eq!(store.list("", None, 9).unwrap().store_micros, None);
    assert!(store.time_micros(Duration::ZERO).unwrap().unwrap() > created);
    let (_, store) = mode(ObjectStoreMode {
        reports_time: false,
        ignores_ranges: true,
        keeps_deleted: true,
        hides_absence: true,
        recodes: true,
        ignores_prefix: true,
        ..usual()
    });
    assert_eq!(store.create(&name("a"), b"1\r2").unwrap().store_micros, None);
    assert_eq!(store.time_micros(Duration::ZERO).unwrap(), None);
    assert_eq!(read(&*store, "a").unwrap(), b"12");
    assert_eq!(store.read(&name("a"), 0..1).unwrap_err().kind, ObjectErrorKind::Damaged);
    store.delete(&name("a")).unwrap();
    assert_eq!(read(&*store, "a").unwrap(), b"12");
    assert_eq!(store.read(&name("b"), 0..1).unwrap_err().kind, ObjectErrorKind::Denied);
    assert_eq!(listed(store.list("zzz", None, 9)), ["a"]);
}

#[test]
fn moments_and_clocks_can_be_set() {
    let (sim, store) = start(9);
    let seconds = |n| Some(Duration::from_secs(n));
    let clock = sim.env().clock;
    let before = clock.now();
    sim.plan_times(RequestTimes { taken: seconds(1), committed: seconds(2), answered: seconds(3) });
    assert_eq!(create(&*store, "a", b"x"), Creation::Created);
    assert_eq!(clock.now() - before, Duration::from_secs(6));
    sim.plan_times(RequestTimes { taken: seconds(1), committed: None, answered: seconds(1) });
    assert!(unknown(&create(&*store, "b", b"x")).contains("status 500"));
    sim.plan_times(RequestTimes { taken: None, committed: seconds(1), answered: seconds(1) });
    assert!(unknown(&create(&*store, "b", b"x")).contains("no answer"));
    sim.settle();
    assert_eq!(read(&*store, "b"), None);
    let first = store.create(&name("c"), b"x").unwrap().store_micros.unwrap();
    assert!(first.abs_diff(clock.wall_micros()) < 60_000_000);
    sim.shift_store_clock(3_600_000_000);
    let second = store.create(&name("d"), b"x").unwrap().store_micros.unwrap();
    assert!(second > first + 3_600_000_000);
    assert!(clock.wall_micros() < first + 60_000_000);
    sim.env().threads.pause(Duration::from_secs(60));
    assert!(clock.wall_micros() >= first + 60_000_000);
}

/// The hash, the history and the objects of a run.
type Run = (u64, Vec<String>, BTreeMap<String, Vec<u8>>);

/// Runs a workload of three clients with faults.
fn history(seed: u64) -> Run {
    let sim = ObjectSim::new(seed);
    sim.set_rates(FaultRates::all(20));
    let mut random = Random::new(seed);
    for step in 0..200u64 {
        let number = random.below(3);
        let store = sim.client(number);
        let object = name(&format!("o/{}", random.below(12)));
        match random.below(8) {
            0..=2 => drop(store.create(&object, &random.bytes(20))),
            3 => drop(store.put(&object, &random.bytes(20))),
            4 => drop(store.delete(&object)),
            5 => drop(store.list("o/", None, 5)),
            6 if random.percent(10) => sim.kill(number),
            _ => drop(store.read(&object, 0..step)),
        }
    }
    sim.settle();
    (sim.trace_hash(), sim.history(), sim.objects())
}

#[test]
fn same_seed_has_the_same_history() {
    let mut hashes = BTreeSet::new();
    let mut faults = BTreeSet::new();
    for seed in 0..60 {
        let first = history(seed);
        assert_eq!(first, history(seed));
        hashes.insert(first.0);
        faults
            .extend(first.1.iter().filter_map(|line| Some(line.split_once("with ")?.1.to_owned())));
    }
    assert_eq!(hashes.len(), 60);
    let all: BTreeSet<_> = ObjectFault::ALL.iter().map(|fault| format!("{fault:?}")).collect();
    assert_eq!(faults, all);
}

#[test]
fn history_names_each_moment() {
    let (sim, store) = start(10);
    create(&*store, "a", b"x");
    let history = sim.history();
    for (line, end) in history.iter().zip(["sent", "taken", "committed", "answered"]) {
        assert!(line.contains("create a: ") && line.contains(end), "{line}");
    }
    assert_eq!(history.len(), 4);
    sim.keep_history(false);
    let hash = sim.trace_hash();
    create(&*store, "b", b"x");
    assert!(sim.history().len() == 4 && sim.trace_hash() != hash);
}
