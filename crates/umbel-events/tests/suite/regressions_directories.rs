//! Regressions of event stores whose directory an operator moved or removed.

use std::path::Path;

use umbel_events::{
    CopyOptions, Durability, ExpectedVersion, NewEvent, Store, StoreOptions, restore,
};
use umbel_sim::Sim;

use super::support::{append, id, options};

/// Regression: the directory of an open event store was removed. Later appends were synced to a
/// file without a name and acknowledged: all of them were lost when the handle was closed.
#[test]
fn synced_append_into_removed_directory_fails() {
    let sim = Sim::new(1);
    let settings = StoreOptions { durability: Durability::Synced, ..options(&sim) };
    let store = Store::open("/data/events", settings).expect("a new store");
    let append = |number| {
        store.append(
            "a",
            ExpectedVersion::Any,
            &[NewEvent::binary(id(number), "Happened", b"bytes")],
        )
    };
    append(1).expect("appended");
    sim.move_path("/data/events", "/data/moved");
    append(2).expect("a directory that was renamed is still there");
    sim.remove_tree("/data/moved");
    let error = append(3).expect_err("writes there are lost");
    assert!(error.to_string().contains("the directory was removed"), "{error}");
    append(4).expect_err("the store is read-only from then on");
    store.sync().expect_err("nor is anything synced");
}

/// Regression: a flush or a sync of an event store whose directory was removed returned `Ok` if
/// everything was durable already.
#[test]
fn idle_flush_or_sync_reports_removed_directory() {
    for by_sync in [false, true] {
        let sim = Sim::new(1);
        let mut store = Store::open("/data/events", options(&sim)).expect("a new store");
        append(&store, "a", 1..10);
        let call = || if by_sync { store.sync() } else { store.flush() };
        call().expect("done");
        call().expect("nothing to do");
        if by_sync {
            // A freshly opened store has no active chunk.
            store.close().expect("closed");
            store = Store::open("/data/events", options(&sim)).expect("opened");
        }
        let call = || if by_sync { store.sync() } else { store.flush() };
        sim.remove_tree("/data/events");
        let error = call().expect_err("writes there are lost");
        assert!(error.to_string().contains("the directory was removed"), "{error}");
    }
}

/// Regression: a backup, and a restore, checked that its target was empty, and then opened the
/// target. If an operator put another store there in between, chunks of that store were
/// overwritten.
#[test]
fn copy_does_not_overwrite_a_store_at_its_target() {
    for (is_restore, call) in (1..40).flat_map(|call| [(false, call), (true, call)]) {
        let sim = Sim::new(call);
        let open = |path| Store::open(path, options(&sim)).expect("a store");
        let other = open("/other");
        append(&other, "a", 100..110);
        other.close().expect("closed");
        let (directory, tree) = (sim.identity("/other").expect("there"), sim.tree("/other"));
        let store = open("/events");
        append(&store, "a", 1..10);
        store.backup("/backup", CopyOptions::default()).expect("backed up");
        sim.schedule_before_call(sim.calls() + call, |sim| {
            if sim.identity("/copy").is_some() {
                sim.move_path("/copy", "/aside");
            }
            sim.move_path("/other", "/copy");
        });
        let _ = match is_restore {
            false => store.backup("/copy", CopyOptions::default()).map(drop),
            true => {
                let (from, to) = ("/backup".as_ref(), "/copy".as_ref());
                restore(&sim.env(), from, to, CopyOptions::default()).map(drop)
            }
        };
        sim.clear_scheduled();
        let mut found = sim.tree_of(directory);
        found.retain(|name, _| tree.contains_key(name));
        assert_eq!(found, tree, "before call {call}, restore: {is_restore}");
    }
}

/// Regression: an operator put another `CHUNKS` into the directory of an open event store. The
/// store did not notice the file if it came between the check and the rename, or had the same
/// generation. The operator's file was lost, and with it the names of its chunks.
#[test]
fn replaced_chunk_manifest_is_not_overwritten() {
    for call in 1..120 {
        let sim = Sim::new(call);
        let store = Store::open("/events", options(&sim)).expect("a store");
        append(&store, "a", 1..3);
        store.backup("/backup", CopyOptions::default()).expect("backed up");
        let (from, to) = ("/backup".as_ref(), "/other".as_ref());
        restore(&sim.env(), from, to, CopyOptions::default()).expect("restored");
        let bytes = sim.tree("/other")[Path::new("CHUNKS")].clone();
        sim.schedule_before_call(sim.calls() + call, |sim| {
            sim.remove_tree("/events/CHUNKS");
            sim.move_path("/other/CHUNKS", "/events/CHUNKS");
        });
        // Exceeds the remaining space of the chunk, so that the next one is created.
        let events = (10..200).map(|number| NewEvent::binary(id(number), "Happened", &[7; 400]));
        let events: Vec<_> = events.collect();
        let done =
            store.append("b", ExpectedVersion::Any, &events).map(drop).and_then(|()| store.flush());
        drop(store);
        if sim.clear_scheduled() == 0 {
            let found = sim.tree("/events").remove(Path::new("CHUNKS"));
            assert_eq!(found, Some(bytes), "before call {call}: {done:?}");
        }
    }
}

/// Regression: while an event store was being opened, an operator replaced its directory. One call
/// found no chunk manifest, the next one found chunks: the error reported damage.
#[test]
fn directory_swapped_during_open_is_not_damage() {
    for call in 1..60 {
        let sim = Sim::new(call);
        let other = Store::open("/other", options(&sim)).expect("a store");
        append(&other, "a", 1..3);
        other.close().expect("closed");
        sim.schedule_before_call(sim.calls() + call, |sim| {
            if sim.identity("/events").is_some() {
                sim.move_path("/events", "/aside");
            }
            sim.move_path("/other", "/events");
        });
        if let Err(error) = Store::open("/events", options(&sim)) {
            assert!(!error.to_string().contains("corruption"), "before call {call}: {error}");
        }
    }
}
