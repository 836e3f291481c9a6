//! Stories of what happened to event stores whose directory an operator moved or removed.

use std::path::Path;

use umbel_events::{CopyOptions, Durability, Expected, NewEvent, Store, StoreOptions, restore};
use umbel_sim::Sim;

use super::support::{append, id, options};

/// The directory of an open event store was removed. Appends to it were synced to a file without a
/// name and acknowledged: all of them were gone with the handle.
#[test]
fn a_synced_append_into_a_removed_directory_is_refused() {
    let sim = Sim::new(1);
    let settings = StoreOptions { durability: Durability::Synced, ..options(&sim) };
    let store = Store::open("/data/events", settings).expect("a new store");
    let append = |number| {
        store.append("a", Expected::Any, &[NewEvent::binary(id(number), "Happened", b"bytes")])
    };
    append(1).expect("appended");
    sim.move_path("/data/events", "/data/moved");
    append(2).expect("a directory that was renamed is still there");
    sim.remove_tree("/data/moved");
    let error = append(3).expect_err("nothing can be kept there");
    assert!(error.to_string().contains("the directory was removed"), "{error}");
    append(4).expect_err("the store is read-only from then on");
    store.sync().expect_err("nor is anything synced");
}

/// A flush, or a sync, of an event store whose directory was removed answered `Ok` where everything
/// was durable already.
#[test]
fn a_flush_or_sync_with_nothing_to_do_tells_that_the_directory_was_removed() {
    for by_sync in [false, true] {
        let sim = Sim::new(1);
        let mut store = Store::open("/data/events", options(&sim)).expect("a new store");
        append(&store, "a", 1..10);
        let call = || if by_sync { store.sync() } else { store.flush() };
        call().expect("done");
        call().expect("nothing to do");
        if by_sync {
            // A store that was just opened has no chunk that it writes to.
            store.close().expect("closed");
            store = Store::open("/data/events", options(&sim)).expect("opened");
        }
        let call = || if by_sync { store.sync() } else { store.flush() };
        sim.remove_tree("/data/events");
        let error = call().expect_err("nothing is kept there");
        assert!(error.to_string().contains("the directory was removed"), "{error}");
    }
}

/// A backup, and a restore, looked whether its target was empty, and then opened it. Where an
/// operator put another store there in between, chunks of that store were written over.
#[test]
fn a_copy_leaves_a_store_alone_that_takes_the_place_of_its_target() {
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
        sim.before_call(sim.calls() + call, |sim| {
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
        sim.forget_moves();
        let mut found = sim.tree_of(directory);
        found.retain(|name, _| tree.contains_key(name));
        assert_eq!(found, tree, "before call {call}, restore: {is_restore}");
    }
}

/// An operator put another `CHUNKS` into the directory of an open event store, after the store had
/// looked at it and before it renamed its own over it, or one of the same generation: that of the
/// operator was lost, and with it the names of its chunks.
#[test]
fn another_table_of_chunks_is_never_written_over() {
    for call in 1..120 {
        let sim = Sim::new(call);
        let store = Store::open("/events", options(&sim)).expect("a store");
        append(&store, "a", 1..3);
        store.backup("/backup", CopyOptions::default()).expect("backed up");
        let (from, to) = ("/backup".as_ref(), "/other".as_ref());
        restore(&sim.env(), from, to, CopyOptions::default()).expect("restored");
        let bytes = sim.tree("/other")[Path::new("CHUNKS")].clone();
        sim.before_call(sim.calls() + call, |sim| {
            sim.remove_tree("/events/CHUNKS");
            sim.move_path("/other/CHUNKS", "/events/CHUNKS");
        });
        // More than fits in what is left of the chunk, so that the next one is made.
        let events = (10..200).map(|number| NewEvent::binary(id(number), "Happened", &[7; 400]));
        let events: Vec<_> = events.collect();
        let done = store.append("b", Expected::Any, &events).map(drop).and_then(|()| store.flush());
        drop(store);
        if sim.forget_moves() == 0 {
            let found = sim.tree("/events").remove(Path::new("CHUNKS"));
            assert_eq!(found, Some(bytes), "before call {call}: {done:?}");
        }
    }
}

/// While an event store was being opened, an operator put another directory in the place of its
/// own. One call found no table of chunks, the next one found chunks: the error said damage.
#[test]
fn a_directory_that_is_swapped_while_it_is_opened_is_not_damaged() {
    for call in 1..60 {
        let sim = Sim::new(call);
        let other = Store::open("/other", options(&sim)).expect("a store");
        append(&other, "a", 1..3);
        other.close().expect("closed");
        sim.before_call(sim.calls() + call, |sim| {
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
