//! A disk without room: the handle of an event store goes on once there is some, and what hides
//! events is taken meanwhile.

use umbel_events::{
    Direction, Durability, Error, Expected, NewEvent, Revision, ScavengeOptions, Store,
    StoreOptions,
};
use umbel_sim::{Fault, FaultKind, Sim};

use super::backups::bytes_in;
use super::support::{append, id, options, outline};

const FULL: Fault = Fault { kind: FaultKind::Enospc, sticky: false };

fn is_full<T: std::fmt::Debug>(result: &Result<T, Error>) -> bool {
    matches!(result, Err(Error::Store(umbel::Error::Full { .. })))
}

fn settings(sim: &Sim, durability: Durability) -> StoreOptions {
    StoreOptions { durability, ..options(sim) }
}

/// The first write of an event log that found no room ended writing for good, where its file could
/// not be mapped and where events are held until they are synced.
#[test]
fn a_log_that_finds_no_room_goes_on_once_there_is_some() {
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
            let refused = store.append("a", Expected::Any, &[event]);
            if sim.faults_fired() > 0 {
                assert!(is_full(&refused), "{durability:?} {mapping}: {refused:?}");
            }
            sim.heal();
            store.append("a", Expected::Any, &[event]).expect("the same handle goes on");
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

/// A flush of the index that found no room made the index read-only until the store was opened
/// again.
#[test]
fn an_index_that_finds_no_room_is_flushed_once_there_is_some() {
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

/// Where the log was full to its last byte a stream could not be deleted, so that a scavenge had
/// nothing to give back; one that found no room made the index read-only.
#[test]
fn streams_are_deleted_and_scavenged_on_a_full_disk() {
    for kilobytes in [900, 1400, 2100] {
        let sim = Sim::new(kilobytes);
        let store = Store::open("/events", options(&sim)).expect("a new store");
        append(&store, "kept", 5000..5010);
        sim.set_capacity(kilobytes << 10);
        let data = vec![7; 3000];
        let mut acknowledged = 0;
        loop {
            let event = NewEvent::binary(id(acknowledged), "Large", &data);
            match store.append("a", Expected::Any, &[event]) {
                Ok(_) => acknowledged += 1,
                refused => {
                    assert!(is_full(&refused), "{refused:?}");
                    break;
                }
            }
        }
        store.delete("a", Expected::Any).expect("a full disk takes a delete");
        let before = bytes_in(&sim, "/events/log");
        // A scavenge needs some room: for what the index has in memory, and for what stays.
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

/// Settings with which a chunk of the usual size finds no space on the disks here.
fn large_chunks(sim: &Sim, durability: Durability) -> StoreOptions {
    StoreOptions { chunk_bytes: 32 << 20, ..settings(sim, durability) }
}

/// Appends events with so many bytes of data until the disk is full.
fn fill_up(store: &Store, bytes: usize) {
    let data = vec![7; bytes];
    let is_appended = |number| {
        let event = NewEvent::binary(id(number), "Large", &data);
        store.append("filler", Expected::Any, &[event]).is_ok()
    };
    let _ = (1000..).find(|number| !is_appended(*number));
}

/// Leaves the disk just the pages that its files have.
fn leave_no_free_page(sim: &Sim) {
    let files = sim.tree("/");
    let taken: usize = files.values().map(|bytes| bytes.len().next_multiple_of(4096)).sum();
    sim.set_capacity(taken as u64);
}

/// After a kill without a free page an event store opened, or on some file systems did not, and
/// took no delete: the chunk with the room that is kept for those was ended by the open, and the
/// next one was to be as large as usual.
#[test]
fn after_a_kill_without_a_free_page_streams_are_deleted() {
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
                    .delete(&format!("stream-{number}"), Expected::Any)
                    .unwrap_or_else(|error| panic!("{durability:?} {seed}, {number}: {error}"));
            }
            store.delete("filler", Expected::Any).expect("deleted");
            killed.clear_capacity();
            append(&store, "after", 0..3);
            assert!(store.verify().expect("verified").damage.is_empty());
        }
    }
}

/// Story: a store that was closed on a full disk, or killed there a second time, opened and refused
/// each delete: there was no space for a chunk, and none for what the index had to flush before a
/// third one.
#[test]
fn deletes_pass_in_each_of_several_opens_on_a_full_disk() {
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
        // What each close writes of the index takes as much as a segment of its log.
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
                let deleted = opened.delete(&format!("stream-{stream}"), Expected::Any);
                deleted.unwrap_or_else(|error| panic!("{what}: {error}"));
            }
            let tombstoned = opened.tombstone(&format!("stream-{}", 4 * round + 2), Expected::Any);
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
                2 => assert!(matches!(read[..], [Err(Error::Deleted { .. })]), "{name}: {read:?}"),
                3 => assert_eq!(read.iter().filter(|event| event.is_ok()).count(), 3, "{name}"),
                _ => assert!(read.is_empty(), "{name}: {read:?}"),
            }
        }
    }
}
