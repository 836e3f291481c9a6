//! The worked examples of `docs/formats/event-log.md` and `event-backup.md` match the bytes that
//! the code writes.

use std::sync::Arc;
use std::time::Duration;

use umbel_env::{Access, Clock, Env};
use umbel_events::{
    CopyOptions, EventId, ExpectedVersion, NewEvent, Store, StoreOptions, accept_clock,
};
use umbel_sim::Sim;

use super::support::options;

const LOG_PAGE: &str = include_str!("../../../../docs/formats/event-log.md");
const BACKUP_PAGE: &str = include_str!("../../../../docs/formats/event-backup.md");
const FIRST_RECORD: u64 = 64;

/// The bytes of an example: on each line, those between the offset with two spaces and the next two
/// spaces.
fn example(page: &str, name: &str) -> Vec<u8> {
    let (_, tail) =
        page.split_once(&format!("```example {name}\n")).expect("the page has the example");
    let (block, _) = tail.split_once("```").expect("the example ends");
    let mut bytes = Vec::new();
    for line in block.lines() {
        let Some((_, rest)) = line.split_once("  ") else { continue };
        let shown = rest.split("  ").next().expect("something");
        let pairs = shown.split_whitespace();
        bytes.extend(pairs.map(|pair| u8::from_str_radix(pair, 16).expect("a byte")));
    }
    bytes
}

/// Stopped clock, so that the example is deterministic, with its microseconds since 1970.
#[derive(Debug)]
struct FixedClock(u64);

const NOON: FixedClock = FixedClock(1_735_732_800_000_000);
const AN_HOUR_BEFORE: FixedClock = FixedClock(NOON.0 - 3_600_000_000);

impl Clock for FixedClock {
    fn now(&self) -> Duration {
        Duration::from_micros(1)
    }

    fn wall_micros(&self) -> u64 {
        self.0
    }

    fn boot_id(&self) -> Option<[u8; 16]> {
        Some([0xcd; 16])
    }
}

/// An open store with the first append of the examples.
fn store(sim: &Sim) -> Store {
    let env = Env { clock: Arc::new(NOON), ..sim.env() };
    let options = StoreOptions { env, ..options(sim) };
    let store = Store::open("/events", options).expect("a new store");
    let event = NewEvent::json(EventId([0xab; 16]), "Opened", b"{}").with_metadata(b"by ada");
    store.append("cart-42", ExpectedVersion::NoStream, &[event]).expect("appended");
    store
}

fn rows(bytes: &[u8]) -> String {
    let text: Vec<_> = bytes.chunks(8).map(|row| format!("{row:02x?}")).collect();
    text.join("\n")
}

#[test]
fn event_log_page_shows_the_stored_bytes() {
    let sim = Sim::new(7);
    store(&sim).close().expect("closed");
    let file = sim.env().files.open("/events/log/00000001.chunk".as_ref(), Access::Read);
    let file = file.expect("the first chunk");
    let shown = example(LOG_PAGE, "record");
    let mut written = vec![0; shown.len().max(128)];
    file.read_exact_at(&mut written, FIRST_RECORD).expect("the first record");
    let record = u32::from_le_bytes(written[8..12].try_into().expect("four bytes"));
    written.truncate(32 + record as usize);
    assert!(shown == written, "the example should be\n{}", rows(&written));
}

#[test]
fn event_log_page_shows_a_manifest_with_a_clock_epoch() {
    let sim = Sim::new(7);
    store(&sim).close().expect("closed");
    let env = Env { clock: Arc::new(AN_HOUR_BEFORE), ..sim.env() };
    accept_clock(&env, "/events".as_ref(), Duration::ZERO).expect("a new epoch");
    let written = sim.read("/events/CHUNKS");
    let shown = example(LOG_PAGE, "manifest");
    assert!(shown == written, "the example should be\n{}", rows(&written));
}

#[test]
fn backup_page_shows_the_stored_bytes() {
    let sim = Sim::new(7);
    store(&sim).backup("/backup", CopyOptions::default()).expect("backed up");
    let written = sim.read("/backup/BACKUP");
    let shown = example(BACKUP_PAGE, "manifest");
    assert!(shown == written, "the example should be\n{}", rows(&written));
}
