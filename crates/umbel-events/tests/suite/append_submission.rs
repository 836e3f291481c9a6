//! Appends that are submitted together but independent of each other (`Store::submit_each`), and
//! appends that must not wait (`Store::try_submit`).

use std::slice;

use umbel_events::{
    AppendRequest, Direction, Durability, ExpectedVersion, NewEvent, PendingAppend, Position,
    Result, Revision, Store, StoreOptions, StreamAppend, WriteResult,
};
use umbel_sim::{CrashSide, Fault, FaultKind, Sim, Survival};

use super::support::{all, id, options, outline};

const DURABILITIES: [Durability; 2] = [Durability::Buffered, Durability::Synced];

/// Append to one stream: its name, the expected version and the number of its event.
type AppendSpec = (String, ExpectedVersion, u64);

/// Method of submitting appends.
#[derive(Debug, Clone, Copy, PartialEq)]
enum SubmitMethod {
    Single,
    Group,
    /// Without waiting, if possible.
    NonBlocking,
}

/// Submits some appends.
fn submit(store: &Store, specs: &[AppendSpec], method: SubmitMethod) -> Vec<Result<PendingAppend>> {
    let events: Vec<_> = specs
        .iter()
        .map(|(_, _, number)| {
            let kind = if number % 3 == 0 { "Opened" } else { "Closed" };
            // Some are as large as a quarter of a chunk, so that groups end within one.
            let data = if number % 17 == 0 { &[7; 16 << 10][..] } else { b"{}" };
            NewEvent::binary(id(*number), kind, data)
        })
        .collect();
    let appends: Vec<_> = specs
        .iter()
        .zip(&events)
        .map(|((stream, expected, _), event)| {
            let (expected, events) = (*expected, slice::from_ref(event));
            StreamAppend { stream, expected, events }
        })
        .collect();
    let request = |append| AppendRequest { appends: slice::from_ref(append), checks: &[] };
    let requests: Vec<_> = appends.iter().map(request).collect();
    let tried = |request| store.try_submit(request).map_or_else(|| store.submit(request), Ok);
    match method {
        SubmitMethod::Single => requests.iter().map(|request| store.submit(request)).collect(),
        SubmitMethod::Group => store.submit_each(&requests),
        SubmitMethod::NonBlocking => requests.iter().map(tried).collect(),
    }
}

/// Result of a pending append.
fn wait_result(ticket: Result<PendingAppend>) -> std::result::Result<Vec<WriteResult>, String> {
    ticket.and_then(PendingAppend::wait).map_err(|error| error.to_string())
}

/// Valid and invalid appends, retries and invalid names, to few streams, so that appends of one
/// group depend on each other.
fn append_specs(seed: u64) -> Vec<AppendSpec> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut below = |limit: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % limit
    };
    (0..400)
        .map(|number| {
            let stream = match below(12) {
                0 => String::new(),
                1 => "$$cart-1".to_string(),
                which => format!("cart-{}", which % 5),
            };
            let expected = match below(5) {
                0 => ExpectedVersion::NoStream,
                1 => ExpectedVersion::Exists,
                2 => ExpectedVersion::Exact(below(30)),
                _ => ExpectedVersion::Any,
            };
            let number = if below(6) == 0 { number / 2 } else { number };
            (stream, expected, number)
        })
        .collect()
}

#[test]
fn submit_each_matches_single_submits() {
    for (durability, seed) in DURABILITIES.into_iter().flat_map(|d| (0..12).map(move |s| (d, s))) {
        let stores =
            [SubmitMethod::Single, SubmitMethod::Group, SubmitMethod::NonBlocking].map(|method| {
                let sim = Sim::new(1);
                let store = Store::open("/events", StoreOptions { durability, ..options(&sim) });
                (method, store.expect("a new store"))
            });
        let specs = append_specs(seed);
        for group in specs.chunks(1 + (seed as usize * 7) % 40) {
            let [alone, together, nonblocking] = stores.each_ref().map(|(method, store)| {
                let tickets = submit(store, group, *method);
                assert_eq!(tickets.len(), group.len());
                if durability == Durability::Buffered {
                    assert!(tickets.iter().flatten().all(PendingAppend::is_acknowledged));
                }
                tickets.into_iter().map(wait_result).collect::<Vec<_>>()
            });
            assert_eq!(alone, together, "{durability:?}, {seed}");
            assert_eq!(alone, nonblocking, "{durability:?}, {seed}");
        }
        let [alone, together, nonblocking] = stores.each_ref().map(|(_, store)| {
            let events = all(store).into_iter();
            events.map(|event| (event.stream.clone(), event.revision, event.id)).collect::<Vec<_>>()
        });
        assert_eq!(alone, together);
        assert_eq!(alone, nonblocking);
        assert!(alone.len() > 100, "{}", alone.len());
        for (_, store) in stores {
            assert!(store.verify().expect("verified").damage.is_empty());
            store.close().expect("closed");
        }
    }
}

/// Story: results of checks in another order than their requests skipped the limits of an append.
#[test]
fn append_with_the_check_of_another_one_is_refused() {
    let sim = Sim::new(1);
    let store = Store::open("/events", options(&sim)).expect("a new store");
    let events = [1, 2].map(|number| NewEvent::binary(id(number), "Opened", b"{}"));
    let expected = ExpectedVersion::Any;
    let appends = ["a", "b"].map(|stream| StreamAppend { stream, expected, events: &events });
    let [first, second] = appends
        .each_ref()
        .map(|append| AppendRequest { appends: slice::from_ref(append), checks: &[] });
    let swapped = vec![(first, second.check()), (second, first.check())];
    for refused in store.submit_each_checked(swapped) {
        let error = wait_result(refused).expect_err("another append was checked");
        assert!(error.contains("that of another append"), "{error}");
    }
    assert!(all(&store).is_empty());
    let paired = vec![(first, first.check()), (second, second.check())];
    for written in store.submit_each_checked(paired) {
        wait_result(written).expect("written");
    }
    assert_eq!(all(&store).len(), 4);
}

/// Appends groups until the disk stops. Returns the number of acknowledged appends of each stream.
fn fill(sim: &Sim, durability: Durability) -> Vec<u64> {
    let mut acknowledged = vec![0; 3];
    let settings = StoreOptions { durability, ..options(sim) };
    let Ok(store) = Store::open("/events", settings) else { return acknowledged };
    let mut next = 0;
    for _ in 0..12 {
        let group: Vec<AppendSpec> = (next..next + 9)
            .map(|number| (format!("cart-{}", number % 3), ExpectedVersion::Any, number + 1))
            .collect();
        let tickets = submit(&store, &group, SubmitMethod::Group);
        for ((_, _, number), ticket) in group.iter().zip(tickets) {
            if let Ok(results) = wait_result(ticket) {
                acknowledged[(number - 1) as usize % 3] =
                    results[0].last.map_or(0, |last| last + 1);
            }
        }
        next += 9;
    }
    let _ = store.close();
    acknowledged
}

#[test]
fn acknowledged_events_survive_any_failed_or_last_call() {
    for durability in DURABILITIES {
        let probe = Sim::new(1);
        assert_eq!(fill(&probe, durability), [36, 36, 36]);
        let calls = probe.calls();
        let mut fired = 0;
        for (call, crashes) in (1..calls).flat_map(|call| [(call, false), (call, true)]) {
            let sim = Sim::new(1);
            match crashes {
                true => sim.crash_at(call, CrashSide::Before),
                false => sim.fail_at(call, Fault { kind: FaultKind::Eio, sticky: false }),
            }
            let acknowledged = fill(&sim, durability);
            fired += sim.faults_fired();
            let sim = if crashes { sim.crash_image(&Survival::All, 1) } else { sim.clone_disk() };
            let what = format!("{durability:?}, call {call} of {calls}, crashes: {crashes}");
            let store = Store::open("/events", StoreOptions { durability, ..options(&sim) });
            let store = store.unwrap_or_else(|error| panic!("{error}: {what}"));
            for (stream, acknowledged) in acknowledged.iter().enumerate() {
                let name = format!("cart-{stream}");
                let read = outline(store.read(&name, Revision::START, Direction::Forwards));
                assert!(
                    read.len() as u64 >= *acknowledged,
                    "{} of {acknowledged}: {what}",
                    read.len()
                );
                let numbers = read.iter().map(|(_, id)| u128::from_le_bytes(id.0));
                assert!(numbers.is_sorted_by(|one, other| one < other), "{what}");
            }
            assert!(
                store.read_all(Position::START, Direction::Forwards).all(|e| e.is_ok()),
                "{what}"
            );
            assert!(store.verify().expect("verified").damage.is_empty(), "{what}");
        }
        assert!(fired > calls / 2, "{fired} of {calls}");
    }
}

#[test]
fn try_submit_returns_none_instead_of_blocking() {
    let sim = Sim::new(1);
    let store = Store::open("/events", StoreOptions { chunk_bytes: 1 << 20, ..options(&sim) });
    let store = store.expect("a new store");
    let try_one = |stream: &str, expected, number, bytes| {
        let data = vec![7; bytes];
        let events = [NewEvent::binary(id(number), "Happened", &data)];
        let appends = [StreamAppend { stream, expected, events: &events }];
        store.try_submit(&AppendRequest { appends: &appends, checks: &[] }).map(|ticket| {
            let results = ticket.wait().expect("appended");
            (results[0].last, results[0].is_retry)
        })
    };
    // There is no chunk yet.
    assert_eq!(try_one("a", ExpectedVersion::NoStream, 1, 8), None);
    super::support::append_large(&store, "large", 9, 8);
    assert_eq!(try_one("a", ExpectedVersion::NoStream, 1, 8), Some((Some(0), false)));
    // Refused, and a retry.
    assert_eq!(try_one("a", ExpectedVersion::NoStream, 2, 8), None);
    assert_eq!(try_one("", ExpectedVersion::Any, 2, 8), None);
    assert_eq!(try_one("a", ExpectedVersion::NoStream, 1, 8), Some((Some(0), true)));
    // Only a call that may wait leaves the chunk.
    let mut number = 10;
    while try_one("large", ExpectedVersion::Any, number, 32 << 10).is_some() {
        number += 1;
    }
    assert!((20..42).contains(&number), "{number}");
    assert_eq!(try_one("large", ExpectedVersion::Any, number, 32 << 10), None);
    for number in number..60 {
        super::support::append_large(&store, "large", number, 32 << 10);
    }
    assert_eq!(try_one("a", ExpectedVersion::Any, 3, 8), Some((Some(1), false)));
    let reader = store.clone();
    store.close().expect("closed");
    let events = [NewEvent::json(id(4), "Happened", b"{}")];
    let appends = [StreamAppend { stream: "a", expected: ExpectedVersion::Any, events: &events }];
    assert!(reader.try_submit(&AppendRequest { appends: &appends, checks: &[] }).is_none());
}
