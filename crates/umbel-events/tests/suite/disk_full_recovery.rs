//! Full disks: the handle of an event store continues once there is space, and while the disk is
//! full it accepts events that hide others.

use umbel_events::{
    Direction, Durability, Error, ExpectedVersion, NewEvent, Revision, ScavengeOptions, Store,
    StoreOptions,
};
use umbel_sim::{Fault, FaultKind, Sim};

use super::backups::bytes_in;
use super::support::{append, id, options, outline};

const FULL: Fault = Fault { kind: FaultKind::Enospc, sticky: false };

fn is_full<T: std::fmt::Debug>(result: &Result<T, Error>) -> bool {
    matches!(result, Err(Error::Store(umbel::Error::DiskFull { .. })))
}

fn settings(sim: &Sim, durability: Durability) -> StoreOptions {
    StoreOptions { durability, ..options(sim) }
}

/// Regression: the first write of an event log to a full disk ended writing for good. This happened
/// if the log's file could not be mapped, or if events stay in memory until they are synced.
#[test]
fn log_resumes_after_disk_full() {
    for durability in [Durability::Buffered, Durability::Synced] {
        for (mapping, seed) in [false, true].into_iter().flat_map(|m| (0..10).map(move |s| (m, s)))
        {
            let sim = Sim::new(seed);
            sim.allow_mapping(mapping);
            sim.allow_direct(false);
            let store = Store::open("/events", settings(&sim, durability)).expect("a new store");
            append(&store, "a", 0..5);
            sim.fail_site("write *.chunk", 1, FULL);
            let data = vec![0; 3000];
            let event = NewEvent::binary(id(5), "Large", &data);
            let refused = store.append("a", ExpectedVersion::Any, &[event]);
            if sim.faults_fired() > 0 {
                assert!(is_full(&refused), "{durability:?} {mapping}: {refused:?}");
            }
            sim.heal();
            store.append("a", ExpectedVersion::Any, &[event]).expect("the same handle works again");
            append(&store, "a", 6..20);
            let read = outline(store.read("a", Revision::START, Direction::Forwards));
            assert!(read.iter().map(|(_, id)| *id).eq((0..20).map(id)), "{durability:?} {seed}");
            assert!(store.verify().expect("verified").damage.is_empty());
            if durability == Durability::Synced {
                let image = sim.crash_image(&umbel_sim::Survival::None, seed);
                let store = Store::open("/events", settings(&image, durability)).expect("opened");
                let read = outline(store.read("a", Revision::START, Direction::Forwards));
                assert!(read.iter().map(|(_, id)| *id).eq((0..20).map(id)), "after a crash");
            }
            store.close().expect("closed");
        }
    }
}

/// Regression: a flush of the index on a full disk made the index read-only until the store was
/// opened again.
#[test]
fn index_flush_resumes_after_disk_full() {
    for site in ["create *.table", "write *.table", "write *.manifest"] {
        let sim = Sim::new(1);
        let store = Store::open("/events", options(&sim)).expect("a new store");
        append(&store, "a", 0..50);
        sim.fail_site(site, 1, Fault { sticky: true, ..FULL });
        let refused = store.flush();
        assert!(is_full(&refused), "{site}: {refused:?}");
        append(&store, "a", 50..60);
        sim.heal();
        store.flush().expect("flushed");
        append(&store, "a", 60..70);
        let read = outline(store.read("a", Revision::START, Direction::Forwards));
        assert!(read.iter().map(|(_, id)| *id).eq((0..70).map(id)), "{site}");
        assert!(store.verify().expect("verified").damage.is_empty());
    }
}

/// Regression: if the log was full to its last byte, a stream could not be deleted, so that a
/// scavenge could free nothing. A scavenge on a full disk made the index read-only.
#[test]
fn full_disk_allows_delete_and_scavenge() {
    for kilobytes in [900, 1400, 2100] {
        let sim = Sim::new(kilobytes);
        let store = Store::open("/events", options(&sim)).expect("a new store");
        append(&store, "kept", 5000..5010);
        sim.set_capacity(kilobytes << 10);
        let data = vec![7; 3000];
        let mut acknowledged = 0;
        loop {
            let event = NewEvent::binary(id(acknowledged), "Large", &data);
            match store.append("a", ExpectedVersion::Any, &[event]) {
                Ok(_) => acknowledged += 1,
                refused => {
                    assert!(is_full(&refused), "{refused:?}");
                    break;
                }
            }
        }
        store.delete("a", ExpectedVersion::Any).expect("a full disk takes a delete");
        let before = bytes_in(&sim, "/events/log");
        // A scavenge needs some disk space: for the index in memory, and for the remaining events.
        let refused = store.scavenge(&ScavengeOptions::default());
        assert!(refused.is_ok() || is_full(&refused), "{refused:?}");
        sim.set_capacity((kilobytes + 400) << 10);
        let scavenged = ScavengeOptions { retry_bytes: 0, ..ScavengeOptions::default() };
        let report = store.scavenge(&scavenged).expect("scavenged");
        let given_back = before - bytes_in(&sim, "/events/log");
        assert!(given_back > 100 << 10, "{kilobytes}: {given_back} bytes, {report:?}");
        append(&store, "kept", 5010..5020);
        sim.clear_capacity();
        append(&store, "kept", 5020..5030);
        let read = outline(store.read("kept", Revision::START, Direction::Forwards));
        assert!(read.iter().map(|(_, id)| *id).eq((5000..5030).map(id)));
        assert!(store.verify().expect("verified").damage.is_empty());
        store.close().expect("closed");
        let store = Store::open("/events", options(&sim)).expect("opened again");
        let read = outline(store.read("kept", Revision::START, Direction::Forwards));
        assert!(read.iter().map(|(_, id)| *id).eq((5000..5030).map(id)));
    }
}

/// Options with which a chunk of the usual size does not fit on the disks of these tests.
fn large_chunks(sim: &Sim, durability: Durability) -> StoreOptions {
    StoreOptions { chunk_bytes: 32 << 20, ..settings(sim, durability) }
}

/// Appends events with this many bytes of data until the disk is full.
fn fill_up(store: &Store, bytes: usize) {
    let data = vec![7; bytes];
    let is_appended = |number| {
        let event = NewEvent::binary(id(number), "Large", &data);
        store.append("filler", ExpectedVersion::Any, &[event]).is_ok()
    };
    let _ = (1000..).find(|number| !is_appended(*number));
}

/// Reduces the disk to the pages of its files.
fn leave_no_free_page(sim: &Sim) {
    let files = sim.tree("/");
    let taken: usize = files.values().map(|bytes| bytes.len().next_multiple_of(4096)).sum();
    sim.set_capacity(taken as u64);
}

/// Regression: after a kill on a disk without a free page, an event store accepted no delete, and
/// on some file systems did not open. The open ended the chunk with the space reserved for deletes,
/// and the next chunk was to be as large as usual.
#[test]
fn delete_succeeds_after_kill_on_full_disk() {
    for durability in [Durability::Buffered, Durability::Synced] {
        for seed in 0..4 {
            let sim = Sim::new(seed);
            let store =
                Store::open("/events", large_chunks(&sim, durability)).expect("a new store");
            for number in 0..10 {
                append(&store, &format!("stream-{number}"), number * 10..number * 10 + 3);
            }
            store.sync().expect("synced");
            sim.set_capacity(5 << 20);
            fill_up(&store, 1000 + 300 * seed as usize);
            let killed = sim.kill_image();
            drop(store);
            leave_no_free_page(&killed);
            let store = Store::open("/events", large_chunks(&killed, durability))
                .unwrap_or_else(|error| panic!("{durability:?} {seed}: {error}"));
            for number in 0..10 {
                store
                    .delete(&format!("stream-{number}"), ExpectedVersion::Any)
                    .unwrap_or_else(|error| panic!("{durability:?} {seed}, {number}: {error}"));
            }
            store.delete("filler", ExpectedVersion::Any).expect("deleted");
            killed.clear_capacity();
            append(&store, "after", 0..3);
            assert!(store.verify().expect("verified").damage.is_empty());
        }
    }
}

/// Regression: a store that was closed on a full disk, or killed there a second time, opened and
/// refused each delete. The disk had no space for a chunk, and none for the flush of the index
/// before a third chunk.
#[test]
fn deletes_succeed_in_repeated_opens_on_full_disk() {
    for (durability, is_killed) in [
        (Durability::Buffered, false),
        (Durability::Buffered, true),
        (Durability::Synced, false),
        (Durability::Synced, true),
    ] {
        let mut sim = Sim::new(7);
        let store = Store::open("/events", large_chunks(&sim, durability)).expect("a new store");
        for number in 0..40 {
            append(&store, &format!("stream-{number}"), number * 10..number * 10 + 3);
        }
        store.sync().expect("synced");
        sim.set_capacity(6 << 20);
        fill_up(&store, 1000);
        let mut store = Some(store);
        // Each close writes as much of the index as a segment of its log.
        let opens = if is_killed { 6 } else { 4 };
        for round in 0..opens {
            let what = format!("{durability:?}, killed: {is_killed}, open {round}");
            let last = store.take().expect("opened");
            if is_killed {
                sim = sim.kill_image();
                drop(last);
            } else if let Err(error) = last.close() {
                assert!(is_full::<()>(&Err(error)), "{what}");
            }
            leave_no_free_page(&sim);
            let opened = Store::open("/events", large_chunks(&sim, durability));
            let opened = opened.unwrap_or_else(|error| panic!("{what}: {error}"));
            for stream in [4 * round, 4 * round + 1] {
                let deleted = opened.delete(&format!("stream-{stream}"), ExpectedVersion::Any);
                deleted.unwrap_or_else(|error| panic!("{what}: {error}"));
            }
            let tombstoned =
                opened.tombstone(&format!("stream-{}", 4 * round + 2), ExpectedVersion::Any);
            tombstoned.unwrap_or_else(|error| panic!("{what}: {error}"));
            store = Some(opened);
        }
        let store = store.expect("opened");
        sim.clear_capacity();
        append(&store, "after", 0..3);
        assert!(store.verify().expect("verified").damage.is_empty());
        for stream in 0..4 * opens {
            let name = format!("stream-{stream}");
            let read: Vec<_> = store.read(&name, Revision::START, Direction::Forwards).collect();
            match stream % 4 {
                2 => assert!(
                    matches!(read[..], [Err(Error::StreamDeleted { .. })]),
                    "{name}: {read:?}"
                ),
                3 => assert_eq!(read.iter().filter(|event| event.is_ok()).count(), 3, "{name}"),
                _ => assert!(read.is_empty(), "{name}: {read:?}"),
            }
        }
    }
}
