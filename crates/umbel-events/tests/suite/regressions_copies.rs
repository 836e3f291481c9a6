//! Stories of what happened to event stores that got the index or the existence filter of another
//! store, or of a copy that went on by itself.

use std::path::Path;

use umbel_events::{Direction, Error, Expected, RepairOptions, Size, Store, StoreOptions, repair};
use umbel_sim::Sim;

use super::support::{all, append, event, options};

const FOLDER: &str = "/events";
const COPY: &str = "/copy";

fn open(sim: &Sim, folder: &str) -> Store {
    Store::open(folder, settings(sim)).unwrap_or_else(|error| panic!("{folder}: {error}"))
}

/// A filter that grows for a while is never sure of a denial.
fn settings(sim: &Sim) -> StoreOptions {
    StoreOptions { existence: Size::Fixed { bytes: 64 << 10 }, ..options(sim) }
}

/// A closed store with the streams `early` and `a-1`, and a copy of it.
fn copied(sim: &Sim) {
    let store = open(sim, FOLDER);
    append(&store, "early", 1..10);
    append(&store, "a-1", 10..30);
    store.flush().expect("flushed");
    store.close().expect("closed");
    sim.copy_tree(FOLDER, COPY);
}

/// How many appends of one event the store and its copy get after the copy was made, to streams
/// whose names are as long.
const GROWTHS: [(u64, u64); 3] = [(4, 4), (4, 2), (2, 4)];

/// The store and its copy go on by themselves.
fn go_on(sim: &Sim, (own, others): (u64, u64)) {
    for (folder, letter, count) in [(FOLDER, 'b', own), (COPY, 'c', others)] {
        let store = open(sim, folder);
        grow(&store, letter, count);
        store.close().expect("closed");
    }
}

/// Appends, and lets the filter be made to its end: one that is being made denies nothing.
fn grow(store: &Store, letter: char, count: u64) {
    for number in 0..count {
        append(store, &format!("{letter}-{number}"), 100 + number..101 + number);
    }
    store.flush().expect("flushed");
}

/// Puts a folder of another store in the place of that of the store.
fn exchange(sim: &Sim, name: &str, other: &str) {
    sim.remove_tree(Path::new(FOLDER).join(name));
    sim.copy_tree(Path::new(other).join(name), Path::new(FOLDER).join(name));
}

/// Everything that was appended is there, and no first revision is given again.
fn check_whole(store: &Store, letter: char, count: u64, what: &str) {
    let mut streams = vec![("early".to_string(), 9), ("a-1".to_string(), 20)];
    streams.extend((0..count).map(|number| (format!("{letter}-{number}"), 1)));
    for (stream, events) in streams {
        let found = store.read(&stream, umbel_events::Revision(0), Direction::Forwards);
        assert_eq!(found.count(), events, "{what}: {stream}");
        let again = store.append(&stream, Expected::NoStream, &[event(999)]);
        let error = again.expect_err("there is such a stream");
        assert!(matches!(error, Error::WrongExpected { .. }), "{what}: {stream}: {error}");
    }
    assert_eq!(all(store).len() as u64, 29 + count, "{what}");
    let report = store.verify().expect("verified");
    assert!(report.damage.is_empty(), "{what}: {:?}", report.damage);
}

/// Neither a writer nor a reader opens the store with this index; once it was moved away the store
/// is whole.
fn check_refused(sim: &Sim, (letter, count): (char, u64), what: &str) {
    let opened = Store::open(FOLDER, settings(sim)).map(drop);
    let read = Store::open_read_only(FOLDER, settings(sim)).map(drop);
    for error in [opened, read].map(|opened| opened.expect_err(what)) {
        let text = error.to_string();
        assert!(text.contains("corrupt") && text.contains("/events/index"), "{what}: {text}");
        let is_told =
            text.contains("not of this event log") || text.contains("the log is an older");
        assert!(is_told && text.contains("made anew"), "{what}: {text}");
    }
    sim.move_path("/events/index", "/aside");
    let store = open(sim, FOLDER);
    check_whole(&store, letter, count, what);
    store.close().expect("closed");
    sim.remove_tree("/aside");
}

/// An operator put the index of another, shorter store in the place of the store's own, as with two
/// volumes that are mounted in the wrong folders. The store opened: streams that were there had no
/// events, and an append that expected none was acknowledged, so that revision 0 was given twice.
#[test]
fn an_index_of_another_store_is_not_believed() {
    for count in [1, 200] {
        let sim = Sim::new(1);
        let other = open(&sim, "/other");
        append(&other, "q", 1..1 + count);
        other.close().expect("closed");
        copied(&sim);
        go_on(&sim, (4, 4));
        exchange(&sim, "index", "/other");
        check_refused(&sim, ('b', 4), &format!("an index of {count} events"));
    }
}

/// The same with the index of a copy of the store that went on by itself: up to where the copy was
/// made both knew the same, and only the positions of their last events were compared.
#[test]
fn an_index_of_a_copy_that_went_on_is_not_believed() {
    for growth in GROWTHS {
        let sim = Sim::new(1);
        copied(&sim);
        go_on(&sim, growth);
        exchange(&sim, "index", COPY);
        check_refused(&sim, ('b', growth.0), &format!("{growth:?}"));
    }
}

/// As before, where the copy was made while the store was open: both have the chunk that was
/// written then, and the copy has less of it.
#[test]
fn an_index_of_a_store_that_was_copied_while_open_is_not_believed() {
    for growth in GROWTHS {
        let sim = Sim::new(1);
        let store = open(&sim, COPY);
        append(&store, "early", 1..10);
        append(&store, "a-1", 10..30);
        store.flush().expect("flushed");
        sim.copy_tree(COPY, FOLDER);
        grow(&store, 'c', growth.1);
        store.close().expect("closed");
        let store = open(&sim, FOLDER);
        grow(&store, 'b', growth.0);
        store.close().expect("closed");
        exchange(&sim, "index", COPY);
        check_refused(&sim, ('b', growth.0), &format!("{growth:?}"));
    }
}

/// Of what the copy and the store have in common an index is believed, whose ever it is: an older
/// one of the same store, or that of the copy before it went on.
#[test]
fn an_older_index_and_an_older_filter_of_the_store_are_gone_on_from() {
    for name in ["index", "existence"] {
        let sim = Sim::new(1);
        copied(&sim);
        let store = open(&sim, FOLDER);
        grow(&store, 'b', 4);
        store.close().expect("closed");
        exchange(&sim, name, COPY);
        let store = open(&sim, FOLDER);
        assert_eq!(store.stats().expect("stats").existence.lost, None);
        check_whole(&store, 'b', 4, name);
    }
}

/// An operator put the existence filter of a copy that went on by itself in the place of the
/// store's own. It covered the same position, and denied the streams that came after the copy: they
/// had no events, and revision 0 was given twice. That of a longer copy was cut to the end of the
/// log, and denied as much.
#[test]
fn an_existence_filter_of_a_copy_that_went_on_denies_nothing() {
    for growth in GROWTHS {
        let sim = Sim::new(1);
        copied(&sim);
        go_on(&sim, growth);
        exchange(&sim, "existence", COPY);
        let store = open(&sim, FOLDER);
        check_whole(&store, 'b', growth.0, &format!("{growth:?}"));
        let lost = store.stats().expect("stats").existence.lost;
        assert!(lost.is_some_and(|why| why.contains("history")), "{growth:?}");
        store.close().expect("closed");
        let store = open(&sim, FOLDER);
        assert_eq!(store.stats().expect("stats").existence.lost, None, "it is the store's own now");
        check_whole(&store, 'b', growth.0, &format!("{growth:?}, again"));
    }
}

/// A repair asks an index for the events that it can read, so it tells that of a copy from the
/// store's own, and loses nothing by the filter of a copy.
#[test]
fn a_repair_moves_the_index_of_a_copy_away() {
    for growth in GROWTHS {
        let sim = Sim::new(1);
        copied(&sim);
        go_on(&sim, growth);
        exchange(&sim, "index", COPY);
        exchange(&sim, "existence", COPY);
        let report = repair(&sim.env(), FOLDER.as_ref(), RepairOptions::default()).expect("done");
        assert!(report.index.is_some(), "{growth:?}: {report}");
        let store = open(&sim, FOLDER);
        check_whole(&store, 'b', growth.0, &format!("{growth:?}: {report}"));
    }
}
