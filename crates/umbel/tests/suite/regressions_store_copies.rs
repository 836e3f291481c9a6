//! Stories of what happened to stores that got the existence filter of a copy that went on by
//! itself.

use umbel::{Db, ExistenceSize, KeyspaceOptions};
use umbel_sim::Sim;

use super::existence::{filter, has_all};
use super::stage::{existing, fill, inline, tiny};

const STORE: &str = "/store";
const COPY: &str = "/copy";

/// A filter that grows for a while is never sure of a denial.
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
fn go_on(sim: &Sim, folder: &str, keys: std::ops::Range<usize>) {
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

/// Puts the filter of the copy in the place of that of the store.
fn exchange(sim: &Sim) {
    let [own, other] = [STORE, COPY].map(|folder| format!("{folder}/000000.existence"));
    sim.remove_tree(&own);
    sim.copy_tree(other, own);
}

/// The store has these keys besides the first ones, and makes its filter anew if that was lost.
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

/// An operator put the existence filter of a copy that went on by itself in the place of the
/// store's own. It covered the same sequence number, and denied the keys that were put after the
/// copy was made.
#[test]
fn a_filter_of_a_copy_that_went_on_denies_nothing() {
    for (number, options) in kinds().into_iter().enumerate() {
        for (own, others) in [(40, 40), (40, 10), (10, 40)] {
            let what = format!("kind {number}, {own} and {others}");
            let sim = Sim::new(1);
            copied(&sim, options.clone());
            go_on(&sim, STORE, 1000..1000 + own);
            go_on(&sim, COPY, 2000..2000 + others);
            exchange(&sim);
            check(&sim, 1000..1000 + own, true, &what);
            check(&sim, 1000..1000 + own, false, &format!("{what}, again"));
        }
    }
}

/// As before, where the copy was made while the store was open: what both wrote from then on has
/// the same numbers, and the store that stayed open did not begin anew.
#[test]
fn a_filter_of_a_store_that_was_copied_while_open_denies_nothing() {
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
            go_on(&sim, STORE, 1000..1000 + own);
            exchange(&sim);
            check(&sim, 1000..1000 + own, true, &what);
        }
    }
}

/// A filter that only knows what both have is believed, and gone on from.
#[test]
fn an_older_filter_of_the_same_history_is_believed_where_it_covers_all() {
    for options in kinds() {
        let sim = Sim::new(1);
        copied(&sim, options);
        // Opens without a write change nothing.
        go_on(&sim, STORE, 0..0);
        go_on(&sim, STORE, 0..0);
        exchange(&sim);
        check(&sim, 0..150, false, "the filter of the copy");
    }
}

/// A filter is put into both copies after they went on: neither has covered anything then, and
/// each is told apart from the other by what it covers first.
#[test]
fn filters_that_were_put_in_after_the_copy_are_told_apart() {
    for options in kinds() {
        let sim = Sim::new(1);
        let without = KeyspaceOptions { existence_filter: ExistenceSize::Off, ..options.clone() };
        copied(&sim, without);
        for (folder, keys) in [(STORE, 1000..1040), (COPY, 2000..2040)] {
            go_on(&sim, folder, keys);
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
