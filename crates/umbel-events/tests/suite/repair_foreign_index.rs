//! Repairs of stores with an index of another store, or with one that only looks like that.

use umbel_events::{Expected, RepairReport, Store};
use umbel_sim::Sim;

use super::repairs::{FOLDER, check, chunk, fill, fix, specimen};
use super::repairs_exchanged::{TABLE, last_chunk};
use super::repairs_misled::{files, put};
use super::scavenging;
use super::support::{all, append, append_large, options};

/// Has the index know nothing of the events before a position, but where they are the last ones.
fn forget_before(sim: &Sim, position: u64) {
    let options = umbel::Options { env: sim.env(), background_threads: 0, ..Default::default() };
    let db = umbel::Db::open("/events/index", options).expect("the index");
    let events = db.existing_keyspace("events").expect("read").expect("it is there");
    let marker = events.marker().expect("it was flushed");
    let mut forgotten = 0;
    for entry in events.iter() {
        let (key, value) = entry.expect("readable");
        if u64::from_le_bytes(value.try_into().expect("a position")) < position {
            events.delete(key).expect("deleted");
            forgotten += 1;
        }
    }
    assert!(forgotten > 50, "{forgotten} are forgotten");
    db.flush_all(&[&events], &marker).expect("flushed");
    drop(events);
    db.close().expect("closed");
}

/// The index of one store is put into the other.
fn with_index_of(sim: &Sim, other: &Sim) {
    for (path, _) in files(sim, "/events/index") {
        sim.remove(path);
    }
    for (path, bytes) in files(other, "/events/index") {
        put(sim, path, &bytes);
    }
}

/// No stream of the other store's index ended in a chunk that was whole: nothing spoke against it,
/// and it was believed. The store did not pass `verify` after its repair.
#[test]
fn an_index_is_not_believed_because_nothing_speaks_against_it() {
    let (sim, before) = specimen(70);
    let (last, mut all_lost) = (last_chunk(&sim, &before), Vec::new());
    for (others, damaged) in [(220..900, vec![]), (0..30, vec![1]), (0..30, (1..=last).collect())] {
        let what = format!("another store with {others:?}, damaged: {damaged:?}");
        let other = Sim::new(71);
        let store = Store::open(FOLDER, options(&other)).expect("a new store");
        let (first, end) = (others.start, others.end);
        append_large(&store, "first", 1, 900);
        fill(&store, 0..end);
        if first > 0 {
            // All of its streams end behind the end of this store's log.
            assert!(all(&store).len() > 2 * before.len(), "{what}");
        }
        store.close().expect("closed");
        let mixed = sim.clone_disk();
        with_index_of(&mixed, &other);
        damaged.iter().for_each(|id| mixed.flip(chunk(*id), 20_000, 1));
        let report: RepairReport = fix(&mixed);
        let reason = report.index.as_deref().unwrap_or_default();
        assert!(reason.contains("another store"), "{what}: {report}");
        check(&mixed, &before, &report, &what);
        all_lost.push(report.bytes_lost());
    }
    assert_eq!(all_lost[0], 0, "nothing was damaged");
}

/// Opened with the index of another store, which no open does any more, a store put its own later
/// events into that. The index agreed with later chunks then and knew nothing of the first, which
/// are to the bit what the table says, and these were given up for another store's.
#[test]
fn an_index_that_is_partly_anothers_costs_no_event() {
    let (sim, _) = specimen(83);
    let store = Store::open(FOLDER, options(&sim)).expect("opened");
    store.delete("cart-2", Expected::Any).expect("deleted");
    store.scavenge(&scavenging::all()).expect("scavenged");
    let before = all(&store);
    store.close().expect("closed");
    forget_before(&sim, before[before.len() / 2].position);
    for has_table in [true, false] {
        let mixed = sim.clone_disk();
        if !has_table {
            mixed.remove(TABLE);
        }
        let report = fix(&mixed);
        let what = format!("table: {has_table}");
        assert!(report.index.is_some() && !report.is_loss(), "{what}: {report}");
        let after = all(&Store::open(FOLDER, options(&mixed)).expect("opened"));
        assert_eq!(after, before, "{what}");
    }
}

/// A whole chunk of another store in the place of the one that nobody ended, which no seal tells
/// apart: the index was rejected for it, and the other store's events were this store's.
#[test]
fn an_index_that_agrees_with_one_chunk_denies_another_stores() {
    let sim = Sim::new(77);
    let store = Store::open(FOLDER, options(&sim)).expect("a new store");
    fill(&store, 0..90);
    store.flush().expect("flushed");
    let before = all(&store);
    let killed = sim.kill_image();
    let last = last_chunk(&killed, &before);
    assert!(last > 1, "chunk {last}");
    let other = Sim::new(78);
    let store = Store::open(FOLDER, options(&other)).expect("a new store");
    append_large(&store, "first", 1, 7_000);
    fill(&store, 0..90);
    killed.replace(chunk(last), &other.kill_image().read(chunk(last)));
    let report = fix(&killed);
    assert!(report.is_loss(), "{report}");
    check(&killed, &before, &report, "another store's open chunk");
}

/// The index has the only event of a stream with the stream and not among its events: a store with
/// many such streams looked as if its index knew none of its events.
#[test]
fn streams_of_one_event_are_known_to_their_index() {
    let sim = Sim::new(86);
    let store = Store::open(FOLDER, options(&sim)).expect("a new store");
    for number in 0..300 {
        append(&store, &format!("order-{number}"), number * 10..number * 10 + 1);
    }
    let before = all(&store);
    store.close().expect("closed");
    let report = fix(&sim);
    assert!(report.is_whole(), "{report}");
    sim.flip(chunk(1), 20_000, 1);
    let report = fix(&sim);
    assert!(report.index_through.is_some() && report.streams.len() == 1, "{report}");
    check(&sim, &before, &report, "one damaged event");
}
