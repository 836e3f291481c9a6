//! Regressions of event stores that got the index or the existence filter of another store, or of a
//! diverged copy.

use std::path::Path;

use umbel_events::{
    Direction, Error, ExistenceSize, ExpectedVersion, RepairOptions, Store, StoreOptions, repair,
};
use umbel_sim::Sim;

use super::support::{all, append, event, options};

const FOLDER: &str = "/events";
const COPY: &str = "/copy";

fn open(sim: &Sim, folder: &str) -> Store {
    Store::open(folder, settings(sim)).unwrap_or_else(|error| panic!("{folder}: {error}"))
}

/// Settings with a fixed size of the existence filter: a filter that is growing cannot exclude a
/// stream.
fn settings(sim: &Sim) -> StoreOptions {
    StoreOptions { existence: ExistenceSize::Fixed { bytes: 64 << 10 }, ..options(sim) }
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

/// Numbers of single-event appends to the store and to its copy after the copy was made. The names
/// of the new streams in store and copy have the same length.
const GROWTHS: [(u64, u64); 3] = [(4, 4), (4, 2), (2, 4)];

/// The store and its copy diverge.
fn go_on(sim: &Sim, (own, others): (u64, u64)) {
    for (folder, letter, count) in [(FOLDER, 'b', own), (COPY, 'c', others)] {
        let store = open(sim, folder);
        grow(&store, letter, count);
        store.close().expect("closed");
    }
}

/// Appends, and waits until the filter is complete: an incomplete filter excludes nothing.
fn grow(store: &Store, letter: char, count: u64) {
    for number in 0..count {
        append(store, &format!("{letter}-{number}"), 100 + number..101 + number);
    }
    store.flush().expect("flushed");
}

/// Replaces a directory of the store by the same directory of another store.
fn exchange(sim: &Sim, name: &str, other: &str) {
    sim.remove_tree(Path::new(FOLDER).join(name));
    sim.copy_tree(Path::new(other).join(name), Path::new(FOLDER).join(name));
}

/// Checks that the store has every append, and that no first revision is assigned again.
fn check_whole(store: &Store, letter: char, count: u64, what: &str) {
    let mut streams = vec![("early".to_string(), 9), ("a-1".to_string(), 20)];
    streams.extend((0..count).map(|number| (format!("{letter}-{number}"), 1)));
    for (stream, events) in streams {
        let found = store.read(&stream, umbel_events::Revision(0), Direction::Forwards);
        assert_eq!(found.count(), events, "{what}: {stream}");
        let again = store.append(&stream, ExpectedVersion::NoStream, &[event(999)]);
        let error = again.expect_err("there is such a stream");
        assert!(matches!(error, Error::WrongExpectedVersion { .. }), "{what}: {stream}: {error}");
    }
    assert_eq!(all(store).len() as u64, 29 + count, "{what}");
    let report = store.verify().expect("verified");
    assert!(report.damage.is_empty(), "{what}: {:?}", report.damage);
}

/// Checks that neither a writer nor a reader opens the store with this index, and that the store is
/// whole without it.
fn check_refused(sim: &Sim, (letter, count): (char, u64), what: &str) {
    let opened = Store::open(FOLDER, settings(sim)).map(drop);
    let read = Store::open_read_only(FOLDER, settings(sim)).map(drop);
    for error in [opened, read].map(|opened| opened.expect_err(what)) {
        let text = error.to_string();
        assert!(text.contains("corrupt") && text.contains("/events/index"), "{what}: {text}");
        let is_expected = text.contains("does not belong to this event log")
            || text.contains("the event log is an older");
        assert!(
            is_expected && text.contains("the next open then rebuilds the index"),
            "{what}: {text}"
        );
    }
    sim.move_path("/events/index", "/aside");
    let store = open(sim, FOLDER);
    check_whole(&store, letter, count, what);
    store.close().expect("closed");
    sim.remove_tree("/aside");
}

/// Regression: an operator replaced the store's index by the index of another, shorter store, as
/// when two volumes are mounted in the wrong folders. The store opened, but existing streams had no
/// events. An append that expected no stream was acknowledged, so that revision 0 was assigned
/// twice.
#[test]
fn index_of_another_store_is_rejected() {
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

/// Regression: an operator replaced the store's index by the index of a diverged copy. The open
/// accepted it, since only the position of the last event was compared.
#[test]
fn index_of_diverged_copy_is_rejected() {
    for growth in GROWTHS {
        let sim = Sim::new(1);
        copied(&sim);
        go_on(&sim, growth);
        exchange(&sim, "index", COPY);
        check_refused(&sim, ('b', growth.0), &format!("{growth:?}"));
    }
}

/// The index of a copy that was made while the store was open is refused, too. Store and copy both
/// have the chunk that was active, but the copy has less of it.
#[test]
fn index_of_copy_of_open_store_is_rejected() {
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

/// An index is trusted for the common prefix of copy and store, whichever store it comes from. A
/// trusted index can be an older one of the same store, or one that the copy had before it
/// diverged.
#[test]
fn older_index_and_filter_catch_up() {
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

/// Regression: an operator replaced the store's existence filter by the filter of a diverged copy.
/// The copy's filter covered the same position, and excluded the streams that the store had created
/// after the copy. These streams seemed to have no events, and revision 0 was assigned twice. The
/// filter of a longer copy was cut to the end of the log, and excluded the same streams.
#[test]
fn existence_filter_of_diverged_copy_denies_no_stream() {
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

/// A repair looks up in the index the events that it can read. So the repair distinguishes a copy's
/// index from the store's own, and loses no event through the existence filter of a copy.
#[test]
fn repair_moves_aside_the_index_of_a_copy() {
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
