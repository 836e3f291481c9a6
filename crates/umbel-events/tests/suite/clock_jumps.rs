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

pub const DAY: u64 = 24 * 60 * 60;
pub const YEAR: u64 = 365 * DAY;

/// A wall clock in seconds beside a monotonic clock, which only the tests advance.
#[derive(Debug, Default)]
pub struct WallClock {
    seconds: AtomicU64,
    /// Seconds of the monotonic clock.
    uptime: AtomicU64,
    /// Number of the machine's start; 0 if the system does not know it.
    boot: AtomicU64,
}

impl Clock for WallClock {
    fn now(&self) -> Duration {
        Duration::from_secs(self.uptime.load(Ordering::SeqCst))
    }

    fn wall_micros(&self) -> u64 {
        self.seconds.load(Ordering::SeqCst) * 1_000_000
    }

    fn boot_id(&self) -> Option<[u8; 16]> {
        let boot = self.boot.load(Ordering::SeqCst);
        (boot > 0).then_some([boot as u8; 16])
    }
}

pub struct Fixture {
    pub sim: Sim,
    clock: Arc<WallClock>,
}

impl Fixture {
    pub fn new(seconds: u64) -> Fixture {
        let fixture = Fixture { sim: Sim::new(1), clock: Arc::default() };
        fixture.set(seconds);
        fixture
    }

    /// The same clock with another disk.
    pub fn with_disk(&self, sim: Sim) -> Fixture {
        Fixture { sim, clock: Arc::clone(&self.clock) }
    }

    pub fn set(&self, seconds: u64) {
        self.clock.seconds.store(seconds, Ordering::SeqCst);
    }

    /// Advances both clocks.
    pub fn pass(&self, seconds: u64) {
        self.clock.seconds.fetch_add(seconds, Ordering::SeqCst);
        self.clock.uptime.fetch_add(seconds, Ordering::SeqCst);
    }

    pub fn seconds(&self) -> u64 {
        self.clock.seconds.load(Ordering::SeqCst)
    }

    /// Sets the monotonic clock, and the number of the machine's start.
    fn set_uptime(&self, boot: u64, seconds: u64) {
        self.clock.boot.store(boot, Ordering::SeqCst);
        self.clock.uptime.store(seconds, Ordering::SeqCst);
    }

    pub fn env(&self) -> Env {
        self.env_of(&self.sim)
    }

    /// This clock, and a disk.
    pub fn env_of(&self, sim: &Sim) -> Env {
        Env { clock: Arc::<WallClock>::clone(&self.clock), ..sim.env() }
    }

    pub fn open(&self, accept_clock: bool) -> Store {
        let env = self.env();
        let options = StoreOptions { env, accept_clock, ..options(&self.sim) };
        Store::open("/events", options).expect("opened")
    }
}

pub fn append(store: &Store, number: u64) -> Result<(), Error> {
    store.append("a", ExpectedVersion::Any, &[event(number)]).map(drop)
}

/// The seconds of the times of all events.
pub fn times(store: &Store) -> Vec<u64> {
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
    assert!(matches!(refused, Error::ClockRejected { days: 3650, .. }), "{refused}");
    // Story: the command had the word DIR, although the store knows its directory.
    let command = format!("`umbel doctor --accept-clock --db {}`", store.path().display());
    assert!(refused.to_string().contains(&command), "{refused}");
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

/// Story: a store with imported events only refused appends at every open, since its last event was
/// years old.
#[test]
fn old_imported_events_do_not_reject_the_clock() {
    let fixture = Fixture::new(50 * YEAR);
    let store = fixture.open(false);
    let mut import = store.import().expect("an import");
    let created = Some(40 * YEAR * 10_000_000);
    import.add(&ImportedEvent { stream: "b", revision: None, created, event: event(3) }).unwrap();
    import.finish().expect("imported");
    // Both after a close and after a crash.
    let crashed = fixture.with_disk(fixture.sim.kill_image());
    store.close().expect("closed");
    fixture.set(50 * YEAR + 30 * DAY);
    for fixture in [&crashed, &fixture] {
        let store = fixture.open(false);
        append(&store, 1).expect("the import ran a month ago");
        assert_eq!(times(&store), [40 * YEAR, 50 * YEAR + 30 * DAY]);
    }
    fixture.set(54 * YEAR);
    let store = fixture.open(false);
    append(&store, 2).expect_err("four years later the clock is not believed");
}

/// A clock that jumps while the store is closed is compared with the monotonic clock.
#[test]
fn jump_while_the_store_is_closed_is_not_believed() {
    let fixture = Fixture::new(50 * YEAR);
    fixture.set_uptime(1, 1000);
    let store = fixture.open(false);
    append(&store, 1).expect("appended");
    store.close().expect("closed");
    fixture.set(51 * YEAR);
    fixture.set_uptime(1, 1000 + DAY);
    let store = fixture.open(false);
    append(&store, 2).expect("the time is known");
    assert_eq!(store.stats().expect("statistics").clock_rejected.as_secs(), YEAR - DAY);
    store.close().expect("closed");
    // The rejection outlasts another open.
    let store = fixture.open(false);
    append(&store, 3).expect("the time is known");
    store.close().expect("closed");
    // Ordinary downtime, and a machine that was started meanwhile.
    fixture.set(50 * YEAR + 30 * DAY);
    fixture.set_uptime(1, 1000 + 30 * DAY);
    let store = fixture.open(false);
    append(&store, 4).expect("appended");
    assert!(store.stats().expect("statistics").clock_rejected.is_zero());
    store.close().expect("closed");
    fixture.set(50 * YEAR + 90 * DAY);
    fixture.set_uptime(2, 60);
    let store = fixture.open(false);
    append(&store, 5).expect("appended");
    let days = [0, 1, 1, 30, 90].map(|days| 50 * YEAR + days * DAY);
    assert_eq!(times(&store), days);
}
