//! Requests of a backup each ten seconds, and their price: at most what
//! `docs/how-to/backup-to-object-store.md` states, for an idle, a quiet and a busy server.

use std::collections::BTreeMap;
use std::time::Duration;

use umbel_events::{ObjectBackup, Store, StoreOptions};
use umbel_sim::{FaultRates, ObjectSim};

use super::object_backups::{Fixture, backup_options, options_in};
use super::support::append_large;

/// Time between two runs.
const INTERVAL: Duration = Duration::from_secs(10);
const DAY: Duration = Duration::from_secs(24 * 3600);
/// Dollars for a request that writes or lists; S3 Standard in us-east-1, 2026-11.
const WRITE_PRICE: f64 = 0.005 / 1000.0;
/// Dollars for a request that reads.
const READ_PRICE: f64 = 0.0004 / 1000.0;

/// Requests of a server.
struct Measured {
    fixture: Fixture,
    backup: ObjectBackup,
    runs: u32,
    requests: BTreeMap<&'static str, u64>,
}

impl Measured {
    /// A server with one event of history and chunks of a common size, after its first run.
    fn new(chunk_bytes: u64) -> Measured {
        let objects = ObjectSim::new(1);
        objects.set_rates(FaultRates::none());
        let env = objects.env();
        let options = StoreOptions { chunk_bytes, ..options_in(&env) };
        let store = Store::open("/events", options).expect("a new store");
        let fixture = Fixture { objects, env, store };
        append_large(&fixture.store, "a", 1_000_000, 300);
        let backup = fixture.store.object_backup(fixture.client(), backup_options());
        let backup = backup.expect("opened");
        backup.run_once().expect("backed up");
        Measured { fixture, backup, runs: 0, requests: BTreeMap::new() }
    }

    /// Appends for one interval, then backs up.
    fn run(&mut self, append: impl FnOnce(&Store, u64)) {
        append(&self.fixture.store, u64::from(self.runs));
        self.fixture.objects.advance(INTERVAL);
        let report = self.backup.run_once().expect("backed up");
        for (verb, count) in report.requests {
            *self.requests.entry(verb).or_default() += count;
        }
        self.runs += 1;
    }

    /// Requests that write or list, those that read, and dollars, of a day at this rate.
    fn per_day(&self) -> (u64, u64, f64) {
        let share = DAY.as_secs_f64() / (INTERVAL * self.runs).as_secs_f64();
        let is_read = |verb: &str| matches!(verb, "read" | "delete");
        let sum = |wants_reads: bool| {
            let of_kind = self.requests.iter().filter(|(verb, _)| is_read(verb) == wants_reads);
            of_kind.map(|(_, count)| *count).sum::<u64>() as f64 * share
        };
        let (writes, reads) = (sum(false), sum(true));
        (writes as u64, reads as u64, writes * WRITE_PRICE + reads * READ_PRICE)
    }
}

#[test]
fn idle_server_makes_no_requests() {
    let mut server = Measured::new(1 << 20);
    (0..200).for_each(|_| server.run(|_, _| ()));
    assert_eq!(server.per_day(), (0, 0, 0.0), "{:?}", server.requests);
}

#[test]
fn quiet_server_makes_four_requests_a_run() {
    let mut server = Measured::new(1 << 20);
    for _ in 0..200 {
        server.run(|store, run| {
            (0..100).for_each(|event| append_large(store, "a", run * 100 + event, 300));
        });
    }
    let (writes, reads, dollars) = server.per_day();
    assert!((25_920..26_640).contains(&writes), "{writes}: a tail, a manifest and a list a run");
    assert!((8_640..8_740).contains(&reads), "{reads}: the manifest before {:?}", server.requests);
    assert!(dollars <= 0.137, "{dollars}");
}

#[test]
fn busy_server_makes_requests_for_its_bytes() {
    let mut server = Measured::new(32 << 20);
    let run_bytes: u64 = 10 << 20;
    for _ in 0..12 {
        server.run(|store, run| {
            (0..10).for_each(|event| {
                append_large(store, "a", run * 10 + event, (run_bytes / 10) as usize);
            });
        });
    }
    let (writes, reads, dollars) = server.per_day();
    // A piece of at most one chunk, a manifest after 16 MiB, and a list of the floors.
    assert!((25_920..35_640).contains(&writes), "{writes} {:?}", server.requests);
    assert!(reads <= 9_640 && dollars <= 0.182, "{reads} {dollars} {:?}", server.requests);
}
