//! Regressions in stores that got the existence filter of a diverged copy.

use umbel::{Db, ExistenceSize, KeyspaceOptions};
use umbel_sim::Sim;

use super::existence::{filter, has_all};
use super::fixture::{existing, fill, inline, tiny};

const STORE: &str = "/store";
const COPY: &str = "/copy";

/// Options with an existence filter of fixed size, since a growing filter can pass any absent key
/// for a while.
fn filtered(options: KeyspaceOptions) -> KeyspaceOptions {
    KeyspaceOptions { existence_filter: ExistenceSize::Fixed { bytes: 64 << 10 }, ..options }
}

fn kinds() -> [KeyspaceOptions; 2] {
    [tiny(), KeyspaceOptions { log: false, ..tiny() }].map(filtered)
}

fn open(sim: &Sim, folder: &str) -> Db {
    Db::open(folder, inline(&sim.env())).unwrap()
}

/// Opens a store, puts these keys into tables, and closes it.
fn write_and_close(sim: &Sim, folder: &str, keys: std::ops::Range<usize>) {
    let db = open(sim, folder);
    let keyspace = existing(&db, "a");
    fill(&keyspace, keys, 1);
    keyspace.flush().unwrap();
    drop(keyspace);
    db.close().unwrap();
}

/// A closed store with a filter and the keys 0 to 150, and a copy of it.
fn copied(sim: &Sim, options: KeyspaceOptions) {
    let db = open(sim, STORE);
    let keyspace = db.keyspace("a", options).unwrap();
    fill(&keyspace, 0..150, 1);
    keyspace.flush().unwrap();
    drop(keyspace);
    db.close().unwrap();
    sim.copy_tree(STORE, COPY);
}

/// Replaces the store's filter with that of the copy.
fn exchange(sim: &Sim) {
    let [own, other] = [STORE, COPY].map(|folder| format!("{folder}/000000.existence"));
    sim.remove_tree(&own);
    sim.copy_tree(other, own);
}

/// Checks that the store has `keys` besides the first keys, and that it rebuilds its filter if the
/// filter was lost.
fn check(sim: &Sim, keys: std::ops::Range<usize>, is_lost: bool, what: &str) {
    let reader = Db::open_read_only(STORE, inline(&sim.env())).unwrap();
    assert_eq!(filter(&existing(&reader, "a")).lost.is_some(), is_lost, "{what}, a reader");
    drop(reader);
    let db = open(sim, STORE);
    let keyspace = existing(&db, "a");
    let lost = filter(&keyspace).lost;
    assert_eq!(lost.is_some(), is_lost, "{what}: {lost:?}");
    has_all(&keyspace, 0..150);
    has_all(&keyspace, keys);
    drop(keyspace);
    db.close().unwrap();
}

/// Story: an operator replaced the store's existence filter with that of a diverged copy. The
/// copy's filter covered the same sequence number, and rejected keys that were put after the copy
/// was made.
#[test]
fn filter_of_diverged_copy_is_not_trusted() {
    for (number, options) in kinds().into_iter().enumerate() {
        for (own, others) in [(40, 40), (40, 10), (10, 40)] {
            let what = format!("kind {number}, {own} and {others}");
            let sim = Sim::new(1);
            copied(&sim, options.clone());
            write_and_close(&sim, STORE, 1000..1000 + own);
            write_and_close(&sim, COPY, 2000..2000 + others);
            exchange(&sim);
            check(&sim, 1000..1000 + own, true, &what);
            check(&sim, 1000..1000 + own, false, &format!("{what}, again"));
        }
    }
}

/// Story: a filter of a copy made while the store was open was trusted. Later writes to the store
/// and to the copy have the same sequence numbers, and the store recorded no new open.
#[test]
fn filter_of_store_copied_while_open_is_not_trusted() {
    for (number, options) in kinds().into_iter().enumerate() {
        for (own, others) in [(40, 40), (10, 40)] {
            let what = format!("kind {number}, {own} and {others}");
            let sim = Sim::new(1);
            let db = open(&sim, COPY);
            let keyspace = db.keyspace("a", options.clone()).unwrap();
            fill(&keyspace, 0..150, 1);
            keyspace.flush().unwrap();
            sim.copy_tree(COPY, STORE);
            fill(&keyspace, 2000..2000 + others, 1);
            keyspace.flush().unwrap();
            drop(keyspace);
            db.close().unwrap();
            write_and_close(&sim, STORE, 1000..1000 + own);
            exchange(&sim);
            check(&sim, 1000..1000 + own, true, &what);
        }
    }
}

/// A filter that covers only writes from before the copy is trusted and continued.
#[test]
fn older_filter_of_common_history_is_trusted() {
    for options in kinds() {
        let sim = Sim::new(1);
        copied(&sim, options);
        // Opens without a write change nothing.
        write_and_close(&sim, STORE, 0..0);
        write_and_close(&sim, STORE, 0..0);
        exchange(&sim);
        check(&sim, 0..150, false, "the filter of the copy");
    }
}

/// A filter is added to both copies after they diverged. Neither filter covers any write at first,
/// and the first coverage distinguishes them.
#[test]
fn filters_added_after_copy_are_distinguished() {
    for options in kinds() {
        let sim = Sim::new(1);
        let without = KeyspaceOptions { existence_filter: ExistenceSize::Off, ..options.clone() };
        copied(&sim, without);
        for (folder, keys) in [(STORE, 1000..1040), (COPY, 2000..2040)] {
            write_and_close(&sim, folder, keys);
            let db = open(&sim, folder);
            let keyspace = db.keyspace("a", options.clone()).unwrap();
            assert!(filter(&keyspace).lost.is_some());
            drop(keyspace);
            db.close().unwrap();
        }
        exchange(&sim);
        check(&sim, 1000..1040, true, "put in later");
    }
}
