//! Tests that iterators and snapshots stay unchanged across flushes, compactions, drops and the
//! close of the store.

use umbel::{Db, Keyspace};
use umbel_sim::Sim;

use crate::suite::fixture::{
    self, PATH, again, all, existing, fill, filled, inline, key, new_store, threaded, tiny,
};

type Event = (&'static str, fn(&Db, &Keyspace));

/// Events while an iterator is open.
const EVENTS: [Event; 6] = [
    ("flush", |_, keyspace| keyspace.flush().unwrap()),
    ("compact", |_, keyspace| keyspace.compact(None, None).unwrap()),
    ("overwrite", |_, keyspace| {
        fill(keyspace, 0..200, 9);
        keyspace.compact(None, None).unwrap();
    }),
    ("delete", |_, keyspace| {
        keyspace.delete_range(b"", b"z").unwrap();
        keyspace.compact(None, None).unwrap();
    }),
    ("drop", |db, _| db.drop_keyspace("a").unwrap()),
    ("close", |db, _| db.clone().close().unwrap()),
];

#[test]
fn open_iterators_outlive_drops_and_compactions() {
    for threads in [0, 2] {
        for (name, event) in EVENTS {
            let sim = Sim::new(1);
            let db = Db::open(PATH, threaded(&sim.env(), threads)).unwrap();
            let keyspace = db.keyspace("a", tiny()).unwrap();
            fill(&keyspace, 0..100, 1);
            keyspace.compact(None, None).unwrap();
            fill(&keyspace, 100..200, 1);
            let mut iter = keyspace.iter();
            let mut entries = filled(0..200, 1);
            assert_eq!(iter.next().unwrap().unwrap(), entries.remove(0));
            assert_eq!(iter.next_back().unwrap().unwrap(), entries.pop().unwrap());
            let mut cursor = keyspace.cursor::<&[u8]>(..).unwrap();
            event(&db, &keyspace);
            let left: Vec<_> = iter.map(|entry| entry.unwrap()).collect();
            assert_eq!(left, entries, "{name}");
            for index in [150, 7, 199, 0] {
                cursor.seek(key(index)).unwrap();
                assert_eq!(cursor.value().unwrap(), fixture::value(index, 1), "{name}");
                cursor.seek_for_prev(key(index)).unwrap();
                assert_eq!(cursor.value().unwrap(), fixture::value(index, 1), "{name}");
            }
        }
    }
}

#[test]
fn iterator_created_before_drop_can_start_after_it() {
    let (sim, db) = new_store();
    let keyspace = db.keyspace("a", tiny()).unwrap();
    fill(&keyspace, 0..100, 1);
    keyspace.compact(None, None).unwrap();
    let iter = keyspace.iter();
    let snapshot = db.snapshot();
    db.drop_keyspace("a").unwrap();
    drop(keyspace);
    assert!(iter.map(|entry| entry.unwrap()).eq(filled(0..100, 1)));
    // The last reader's drop removed its files.
    assert_eq!(fixture::files(&sim.env(), ".table"), 0);
    drop(snapshot);
}

#[test]
fn snapshots_keep_their_state_through_compactions() {
    for threads in [0, 2] {
        let sim = Sim::new(1);
        let db = Db::open(PATH, threaded(&sim.env(), threads)).unwrap();
        let keyspace = db.keyspace("a", tiny()).unwrap();
        let mut snapshots = Vec::new();
        for round in 0..12 {
            fill(&keyspace, 0..60, round);
            if round % 3 == 2 {
                keyspace.delete_range(key(20), key(30)).unwrap();
            }
            snapshots.push((round, db.snapshot()));
            if round % 4 == 3 {
                keyspace.compact(None, None).unwrap();
            }
        }
        while !snapshots.is_empty() {
            for (round, snapshot) in &snapshots {
                let mut expected = filled(0..60, *round);
                if round % 3 == 2 {
                    expected.drain(20..30);
                }
                let found: Vec<_> =
                    keyspace.iter_at(snapshot).unwrap().map(|entry| entry.unwrap()).collect();
                assert!(found == expected, "round {round}");
                let backward = keyspace.iter_at(snapshot).unwrap().rev();
                assert!(backward.map(|e| e.unwrap()).eq(expected.into_iter().rev()));
            }
            snapshots.remove(snapshots.len() / 2);
            fill(&keyspace, 0..60, 99);
            keyspace.compact(None, None).unwrap();
        }
        assert_eq!(db.stats().snapshots, 0);
    }
}

#[test]
fn deleted_range_hides_only_older_entries() {
    let (sim, db) = new_store();
    let keyspace = db.keyspace("a", tiny()).unwrap();
    fill(&keyspace, 0..100, 1);
    let before = db.snapshot();
    keyspace.delete_range(key(10), key(90)).unwrap();
    fill(&keyspace, 40..50, 2);
    keyspace.delete_range(key(45), key(46)).unwrap();
    let mut expected = filled(0..10, 1);
    expected.extend(filled(40..45, 2));
    expected.extend(filled(46..50, 2));
    expected.extend(filled(90..100, 1));
    let check = |keyspace: &Keyspace| {
        assert_eq!(all(keyspace), expected);
        assert!(keyspace.iter().rev().map(|e| e.unwrap()).eq(expected.iter().rev().cloned()));
        for index in 0..100 {
            let found = keyspace.get(key(index)).unwrap();
            let entry = expected.iter().find(|(k, _)| *k == key(index));
            assert_eq!(found.as_ref(), entry.map(|(_, v)| v));
        }
    };
    check(&keyspace);
    check(&existing(&again(&sim.kill_image()), "a"));
    keyspace.flush().unwrap();
    check(&keyspace);
    keyspace.compact(Some(&key(30)), Some(&key(60))).unwrap();
    check(&keyspace);
    let seen: Vec<_> = keyspace.iter_at(&before).unwrap().map(|e| e.unwrap()).collect();
    assert_eq!(seen, filled(0..100, 1));
    check(&existing(&again(&sim.kill_image()), "a"));
    drop(before);
    keyspace.compact(None, None).unwrap();
    check(&keyspace);
    drop((keyspace, db));
    check(&existing(&Db::open(PATH, inline(&sim.env())).unwrap(), "a"));
}
