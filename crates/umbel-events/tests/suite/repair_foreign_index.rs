//! Repairs of stores with an index of another store, or with an own index that only looks like
//! another store's.

use umbel_events::{ExpectedVersion, RepairReport, Store};
use umbel_sim::Sim;

use super::repair::{FOLDER, check, chunk, fill, repair_store, specimen};
use super::repair_swapped_files::{MANIFEST, last_chunk};
use super::repair_unexpected_files::{files, put};
use super::scavenge;
use super::support::{all, append, append_large, options};

/// Removes from the index the events before a position, except last events of streams.
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

/// Replaces the index of one store by that of the other.
fn with_index_of(sim: &Sim, other: &Sim) {
    for (path, _) in files(sim, "/events/index") {
        sim.remove(path);
    }
    for (path, bytes) in files(other, "/events/index") {
        put(sim, path, &bytes);
    }
}

/// Regression: no stream of another store's index ended in a whole chunk. So nothing contradicted
/// that index, and the repair trusted it. The store did not pass `verify` after its repair.
#[test]
fn index_without_contradiction_is_not_trusted() {
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
            // All of its streams end after the end of this store's log.
            assert!(all(&store).len() > 2 * before.len(), "{what}");
        }
        store.close().expect("closed");
        let mixed = sim.clone_disk();
        with_index_of(&mixed, &other);
        damaged.iter().for_each(|id| mixed.flip(chunk(*id), 20_000, 1));
        let report: RepairReport = repair_store(&mixed);
        let reason = report.index.as_deref().unwrap_or_default();
        assert!(reason.contains("another store"), "{what}: {report}");
        check(&mixed, &before, &report, &what);
        all_lost.push(report.bytes_lost());
    }
    assert_eq!(all_lost[0], 0, "nothing was damaged");
}

/// Regression: opened with the index of another store, which no open does any more, a store put its
/// own later events into it. The index then agreed with later chunks and knew nothing of the first
/// ones. The first chunks match the manifest to the bit, but the repair took them for another
/// store's.
#[test]
fn partly_foreign_index_loses_no_event() {
    let (sim, _) = specimen(83);
    let store = Store::open(FOLDER, options(&sim)).expect("opened");
    store.delete("cart-2", ExpectedVersion::Any).expect("deleted");
    store.scavenge(&scavenge::all()).expect("scavenged");
    let before = all(&store);
    store.close().expect("closed");
    forget_before(&sim, before[before.len() / 2].position);
    for has_manifest in [true, false] {
        let mixed = sim.clone_disk();
        if !has_manifest {
            mixed.remove(MANIFEST);
        }
        let report = repair_store(&mixed);
        let what = format!("manifest: {has_manifest}");
        assert!(report.index.is_some() && !report.has_loss(), "{what}: {report}");
        let after = all(&Store::open(FOLDER, options(&mixed)).expect("opened"));
        assert_eq!(after, before, "{what}");
    }
}

/// Regression: a whole chunk of another store replaced the chunk without a recorded end, which no
/// seal identifies. The repair rejected the index because of this chunk, and the other store's
/// events became this store's.
#[test]
fn index_that_matches_one_chunk_rejects_a_foreign_chunk() {
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
    let report = repair_store(&killed);
    assert!(report.has_loss(), "{report}");
    check(&killed, &before, &report, "another store's open chunk");
}

/// Regression: the index keeps the only event of a stream with the stream and not among its events.
/// A store with many such streams looked as if its index knew none of its events.
#[test]
fn single_event_streams_identify_their_index() {
    let sim = Sim::new(86);
    let store = Store::open(FOLDER, options(&sim)).expect("a new store");
    for number in 0..300 {
        append(&store, &format!("order-{number}"), number * 10..number * 10 + 1);
    }
    let before = all(&store);
    store.close().expect("closed");
    let report = repair_store(&sim);
    assert!(report.is_undamaged(), "{report}");
    sim.flip(chunk(1), 20_000, 1);
    let report = repair_store(&sim);
    assert!(report.index_through.is_some() && report.streams.len() == 1, "{report}");
    check(&sim, &before, &report, "one damaged event");
}
