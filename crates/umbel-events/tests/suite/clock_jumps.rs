//! Jumps of the wall clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use umbel_env::{Clock, Env};
use umbel_events::{
    Direction, Error, ExpectedVersion, ImportedEvent, Position, Revision, Store, StoreOptions,
};
use umbel_sim::Sim;

use super::support::{event, options};

const DAY: u64 = 24 * 60 * 60;
const YEAR: u64 = 365 * DAY;

/// A wall clock in seconds beside a monotonic clock that stands still.
#[derive(Debug, Default)]
struct WallClock(AtomicU64);

impl Clock for WallClock {
    fn now(&self) -> Duration {
        Duration::ZERO
    }

    fn wall_micros(&self) -> u64 {
        self.0.load(Ordering::SeqCst) * 1_000_000
    }
}

struct Fixture {
    sim: Sim,
    clock: Arc<WallClock>,
}

impl Fixture {
    fn new(seconds: u64) -> Fixture {
        Fixture { sim: Sim::new(1), clock: Arc::new(WallClock(AtomicU64::new(seconds))) }
    }

    fn set(&self, seconds: u64) {
        self.clock.0.store(seconds, Ordering::SeqCst);
    }

    fn open(&self, accept_clock: bool) -> Store {
        let env = Env { clock: Arc::<WallClock>::clone(&self.clock), ..self.sim.env() };
        let options = StoreOptions { env, accept_clock, ..options(&self.sim) };
        Store::open("/events", options).expect("opened")
    }
}

fn append(store: &Store, number: u64) -> Result<(), Error> {
    store.append("a", ExpectedVersion::Any, &[event(number)]).map(drop)
}

/// The seconds of the times of all events.
fn times(store: &Store) -> Vec<u64> {
    let events = store.read_all(Position::START, Direction::Forwards);
    events.map(|event| event.expect("read").created / 10_000_000).collect()
}

/// Story: one reading ten years ahead stamped every later event, for good.
#[test]
fn jump_ahead_of_an_open_store_stamps_no_event() {
    let fixture = Fixture::new(50 * YEAR);
    let store = fixture.open(false);
    append(&store, 1).expect("appended");
    fixture.set(60 * YEAR);
    append(&store, 2).expect("appended");
    assert_eq!(store.stats().expect("statistics").clock_rejected.as_secs(), 10 * YEAR);
    fixture.set(50 * YEAR + 60);
    append(&store, 3).expect("appended");
    assert!(store.stats().expect("statistics").clock_rejected.is_zero());
    assert_eq!(times(&store), [50 * YEAR, 50 * YEAR, 50 * YEAR + 60]);
}

/// `$maxAge` hid every event while the clock was wrong, and a scavenge removed them.
#[test]
fn jump_ahead_expires_no_event() {
    let fixture = Fixture::new(50 * YEAR);
    let store = fixture.open(false);
    append(&store, 1).expect("appended");
    let metadata = br#"{"$maxAge":3600}"#;
    let metadata = [umbel_events::NewEvent::json(super::support::id(9), "$metadata", metadata)];
    store.append("$$a", ExpectedVersion::Any, &metadata).expect("appended");
    fixture.set(60 * YEAR);
    let count = || store.read("a", Revision::START, Direction::Forwards).count();
    assert_eq!(count(), 1);
    fixture.set(50 * YEAR + 290);
    assert_eq!(count(), 1);
}

#[test]
fn clock_years_ahead_at_an_open_is_refused_until_it_is_corrected_or_accepted() {
    let fixture = Fixture::new(50 * YEAR);
    let store = fixture.open(false);
    append(&store, 1).expect("appended");
    store.close().expect("closed");
    fixture.set(60 * YEAR);
    let store = fixture.open(false);
    let refused = append(&store, 2).expect_err("the clock is wrong");
    assert!(matches!(refused, Error::ClockRejected { days: 3650 }), "{refused}");
    assert!(refused.to_string().contains("--accept-clock"), "{refused}");
    assert!(store.delete("a", ExpectedVersion::Any).is_err());
    let mut import = store.import().expect("an import");
    let imported = ImportedEvent { stream: "b", revision: None, created: None, event: event(3) };
    assert!(import.add(&imported).is_err());
    drop(import);
    assert_eq!(times(&store), [50 * YEAR]);
    fixture.set(50 * YEAR + DAY);
    append(&store, 2).expect("the clock was corrected");
    store.close().expect("closed");

    fixture.set(60 * YEAR);
    let store = fixture.open(true);
    append(&store, 3).expect("the clock was confirmed");
    store.close().expect("closed");
    let store = fixture.open(false);
    append(&store, 4).expect("the last event has the new time");
    assert_eq!(times(&store), [50 * YEAR, 50 * YEAR + DAY, 60 * YEAR, 60 * YEAR]);
}

#[test]
fn clock_before_1970_gives_the_time_of_the_last_event() {
    let fixture = Fixture::new(50 * YEAR);
    let store = fixture.open(false);
    append(&store, 1).expect("appended");
    store.close().expect("closed");
    fixture.set(0);
    let store = fixture.open(false);
    append(&store, 2).expect("appended");
    assert_eq!(times(&store), [50 * YEAR, 50 * YEAR]);
}
