//! Appends that are submitted together, each for itself: `Store::submit_each`; and those that must
//! not wait: `Store::try_submit`.

use std::slice;

use umbel_events::{
    Appended, Direction, Durability, Expected, NewEvent, Position, Request, Result, Revision,
    Store, StoreOptions, StreamAppend, Ticket,
};
use umbel_sim::{Fault, FaultKind, Sim, Survival, When};

use super::support::{all, id, options, outline};

const DURABILITIES: [Durability; 2] = [Durability::Buffered, Durability::Synced];

/// An append to one stream: its name, what is expected and the number of its event.
type Asked = (String, Expected, u64);

/// How appends are submitted.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Way {
    Alone,
    Together,
    /// Without waiting, as far as that goes.
    Trying,
}

/// Submits some appends.
fn submit(store: &Store, asked: &[Asked], way: Way) -> Vec<Result<Ticket>> {
    let events: Vec<_> = asked
        .iter()
        .map(|(_, _, number)| {
            let kind = if number % 3 == 0 { "Opened" } else { "Closed" };
            // Some are as large as a quarter of a chunk, so that groups end within one.
            let data = if number % 17 == 0 { &[7; 16 << 10][..] } else { b"{}" };
            NewEvent::binary(id(*number), kind, data)
        })
        .collect();
    let appends: Vec<_> = asked
        .iter()
        .zip(&events)
        .map(|((stream, expected, _), event)| {
            let (expected, events) = (*expected, slice::from_ref(event));
            StreamAppend { stream, expected, events }
        })
        .collect();
    let request = |append| Request { appends: slice::from_ref(append), checks: &[] };
    let requests: Vec<_> = appends.iter().map(request).collect();
    let tried = |request| store.try_submit(request).map_or_else(|| store.submit(request), Ok);
    match way {
        Way::Alone => requests.iter().map(|request| store.submit(request)).collect(),
        Way::Together => store.submit_each(&requests),
        Way::Trying => requests.iter().map(tried).collect(),
    }
}

/// What it came to.
fn told(ticket: Result<Ticket>) -> std::result::Result<Vec<Appended>, String> {
    ticket.and_then(Ticket::wait).map_err(|error| error.to_string())
}

/// Right and wrong ones, retries and names that cannot be, to few streams, so that appends of one
/// group build on each other.
fn asked(seed: u64) -> Vec<Asked> {
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
                0 => Expected::NoStream,
                1 => Expected::Exists,
                2 => Expected::Exact(below(30)),
                _ => Expected::Any,
            };
            let number = if below(6) == 0 { number / 2 } else { number };
            (stream, expected, number)
        })
        .collect()
}

#[test]
fn each_comes_to_what_it_comes_to_by_itself() {
    for (durability, seed) in DURABILITIES.into_iter().flat_map(|d| (0..12).map(move |s| (d, s))) {
        let stores = [Way::Alone, Way::Together, Way::Trying].map(|way| {
            let sim = Sim::new(1);
            let store = Store::open("/events", StoreOptions { durability, ..options(&sim) });
            (way, store.expect("a new store"))
        });
        let asked = asked(seed);
        for group in asked.chunks(1 + (seed as usize * 7) % 40) {
            let [alone, together, trying] = stores.each_ref().map(|(way, store)| {
                let tickets = submit(store, group, *way);
                assert_eq!(tickets.len(), group.len());
                if durability == Durability::Buffered {
                    assert!(tickets.iter().flatten().all(Ticket::is_done));
                }
                tickets.into_iter().map(told).collect::<Vec<_>>()
            });
            assert_eq!(alone, together, "{durability:?}, {seed}");
            assert_eq!(alone, trying, "{durability:?}, {seed}");
        }
        let [alone, together, trying] = stores.each_ref().map(|(_, store)| {
            let events = all(store).into_iter();
            events.map(|event| (event.stream.clone(), event.revision, event.id)).collect::<Vec<_>>()
        });
        assert_eq!(alone, together);
        assert_eq!(alone, trying);
        assert!(alone.len() > 100, "{}", alone.len());
        for (_, store) in stores {
            assert!(store.verify().expect("verified").damage.is_empty());
            store.close().expect("closed");
        }
    }
}

/// Appends groups until the world has ended. Returns how many of each stream were acknowledged.
fn fill(sim: &Sim, durability: Durability) -> Vec<u64> {
    let mut acknowledged = vec![0; 3];
    let settings = StoreOptions { durability, ..options(sim) };
    let Ok(store) = Store::open("/events", settings) else { return acknowledged };
    let mut next = 0;
    for _ in 0..12 {
        let group: Vec<Asked> = (next..next + 9)
            .map(|number| (format!("cart-{}", number % 3), Expected::Any, number + 1))
            .collect();
        let tickets = submit(&store, &group, Way::Together);
        for ((_, _, number), ticket) in group.iter().zip(tickets) {
            if let Ok(answers) = told(ticket) {
                acknowledged[(number - 1) as usize % 3] =
                    answers[0].last.map_or(0, |last| last + 1);
            }
        }
        next += 9;
    }
    let _ = store.close();
    acknowledged
}

#[test]
fn what_was_acknowledged_is_there_whichever_call_fails_or_is_the_last() {
    for durability in DURABILITIES {
        let probe = Sim::new(1);
        assert_eq!(fill(&probe, durability), [36, 36, 36]);
        let calls = probe.calls();
        let mut fired = 0;
        for (call, crashes) in (1..calls).flat_map(|call| [(call, false), (call, true)]) {
            let sim = Sim::new(1);
            match crashes {
                true => sim.crash_at(call, When::Before),
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
fn who_must_not_wait_is_told_nothing_where_he_would_have_to() {
    let sim = Sim::new(1);
    let store = Store::open("/events", StoreOptions { chunk_bytes: 1 << 20, ..options(&sim) });
    let store = store.expect("a new store");
    let try_one = |stream: &str, expected, number, bytes| {
        let data = vec![7; bytes];
        let events = [NewEvent::binary(id(number), "Happened", &data)];
        let appends = [StreamAppend { stream, expected, events: &events }];
        store.try_submit(&Request { appends: &appends, checks: &[] }).map(|ticket| {
            let answers = ticket.wait().expect("appended");
            (answers[0].last, answers[0].was_there)
        })
    };
    // There is no chunk yet.
    assert_eq!(try_one("a", Expected::NoStream, 1, 8), None);
    super::support::append_large(&store, "large", 9, 8);
    assert_eq!(try_one("a", Expected::NoStream, 1, 8), Some((Some(0), false)));
    // Refused, and known from before.
    assert_eq!(try_one("a", Expected::NoStream, 2, 8), None);
    assert_eq!(try_one("", Expected::Any, 2, 8), None);
    assert_eq!(try_one("a", Expected::NoStream, 1, 8), Some((Some(0), true)));
    // The chunk is left by who may wait.
    let mut number = 10;
    while try_one("large", Expected::Any, number, 32 << 10).is_some() {
        number += 1;
    }
    assert!((20..42).contains(&number), "{number}");
    assert_eq!(try_one("large", Expected::Any, number, 32 << 10), None);
    for number in number..60 {
        super::support::append_large(&store, "large", number, 32 << 10);
    }
    assert_eq!(try_one("a", Expected::Any, 3, 8), Some((Some(1), false)));
    let reader = store.clone();
    store.close().expect("closed");
    let events = [NewEvent::json(id(4), "Happened", b"{}")];
    let appends = [StreamAppend { stream: "a", expected: Expected::Any, events: &events }];
    assert!(reader.try_submit(&Request { appends: &appends, checks: &[] }).is_none());
}
