//! Tests of keyspaces without a WAL: markers, flushes of several keyspaces at once, their state
//! after a crash.

use umbel::{Db, Durability, Error, KeyspaceOptions};
use umbel_sim::{CrashSide, Sim, Survival};

use crate::suite::fixture::{
    PATH, again, all, existing, fill, filled, inline, new_store, unlogged,
};

#[test]
fn flush_stores_newest_marker_with_data() {
    let (sim, db) = new_store();
    let keyspace = db.keyspace("a", unlogged()).unwrap();
    assert_eq!(keyspace.marker(), None);
    for round in 1..4 {
        for part in 0..3 {
            let mut batch = db.batch();
            batch.put(&keyspace, b"round", format!("{round} {part}"));
            batch.set_marker(&keyspace, format!("{round} {part}"));
            batch.commit(Durability::Buffered).unwrap();
        }
        keyspace.flush().unwrap();
        assert_eq!(keyspace.marker().unwrap(), format!("{round} 2").into_bytes());
    }
    let mut lost = db.batch();
    lost.put(&keyspace, b"round", b"lost");
    lost.set_marker(&keyspace, b"lost");
    lost.commit(Durability::Buffered).unwrap();
    assert_eq!(keyspace.marker().unwrap(), b"3 2", "not before it is flushed");
    let crashed = again(&sim.crash_image(&Survival::None, 1));
    let keyspace = existing(&crashed, "a");
    assert_eq!(keyspace.marker().unwrap(), b"3 2");
    assert_eq!(keyspace.get(b"round").unwrap().unwrap(), b"3 2");
}

#[test]
fn marker_needs_no_writes() {
    let (sim, db) = new_store();
    let keyspace = db.keyspace("a", unlogged()).unwrap();
    fill(&keyspace, 0..5, 1);
    keyspace.flush().unwrap();
    let mut batch = db.batch();
    batch.set_marker(&keyspace, b"alone");
    batch.commit(Durability::Buffered).unwrap();
    keyspace.flush().unwrap();
    assert_eq!(keyspace.marker().unwrap(), b"alone");
    db.flush_all(&[&keyspace, &keyspace], b"together").unwrap();
    db.flush_all(&[], b"unused").unwrap();
    let crashed = again(&sim.kill_image());
    assert_eq!(existing(&crashed, "a").marker().unwrap(), b"together");
    assert_eq!(all(&existing(&crashed, "a")), filled(0..5, 1));
}

#[test]
fn clean_close_keeps_all_writes() {
    let (sim, db) = new_store();
    let keyspace = db.keyspace("a", unlogged()).unwrap();
    fill(&keyspace, 0..50, 1);
    drop((keyspace, db));
    assert_eq!(all(&existing(&again(&sim), "a")), filled(0..50, 1));
}

#[test]
fn keyspace_without_wal_cannot_be_synced() {
    let (_sim, db) = new_store();
    let without = db.keyspace("without", unlogged()).unwrap();
    let with = db.keyspace("with", KeyspaceOptions::default()).unwrap();
    let mut batch = db.batch();
    batch.put(&with, b"k", b"v");
    batch.put(&without, b"k", b"v");
    let refused = batch.commit(Durability::Synced).unwrap_err().to_string();
    assert!(refused.contains("'without' has no log"), "{refused}");
    assert!(!with.contains(b"k").unwrap() && !without.contains(b"k").unwrap());
    let mut batch = db.batch();
    batch.set_marker(&with, b"m");
    let refused = batch.commit(Durability::Buffered).unwrap_err().to_string();
    assert!(refused.contains("markers are for keyspaces opened with log: false"), "{refused}");
    let refused = db.flush_all(&[&with], b"m").unwrap_err().to_string();
    assert!(refused.contains("markers are for"), "{refused}");
    let mut batch = db.batch();
    batch.set_marker(&without, vec![0; umbel::limits::MARKER_BYTES_MAX + 1]);
    assert!(matches!(batch.commit(Durability::Buffered), Err(Error::Invalid(_))));
}

#[test]
fn wal_option_changes_only_when_all_is_flushed() {
    let (sim, db) = new_store();
    let keyspace = db.keyspace("a", unlogged()).unwrap();
    fill(&keyspace, 0..5, 1);
    let refused = db.keyspace("a", KeyspaceOptions::default()).unwrap_err().to_string();
    assert!(refused.contains("flush it before"), "{refused}");
    keyspace.flush().unwrap();
    db.keyspace("a", KeyspaceOptions::default()).unwrap();
    fill(&keyspace, 5..10, 1);
    let crashed = again(&sim.kill_image());
    assert_eq!(all(&existing(&crashed, "a")), filled(0..10, 1));
}

/// The power fails at every call of a flush of three keyspaces. Afterwards all three keyspaces have
/// the new state and its marker, or all three have the old state.
#[test]
fn flush_of_several_keyspaces_is_atomic() {
    let prepare = || {
        let sim = Sim::new(5);
        let db = Db::open(PATH, inline(&sim.env())).unwrap();
        let spaces: Vec<_> =
            ["a", "b", "c"].map(|name| db.keyspace(name, unlogged()).unwrap()).into();
        spaces.iter().for_each(|keyspace| fill(keyspace, 0..10, 1));
        db.flush_all(&spaces.iter().collect::<Vec<_>>(), b"old").unwrap();
        spaces.iter().for_each(|keyspace| fill(keyspace, 0..10, 2));
        (sim, db, spaces)
    };
    let (sim, db, spaces) = prepare();
    let first = sim.calls() + 1;
    db.flush_all(&spaces.iter().collect::<Vec<_>>(), b"new").unwrap();
    let last = sim.calls();
    let (mut old, mut new) = (0, 0);
    for call in first..=last {
        let (sim, db, spaces) = prepare();
        sim.crash_at(call, CrashSide::After);
        let _ = db.flush_all(&spaces.iter().collect::<Vec<_>>(), b"new");
        for (number, policy) in [Survival::None, Survival::All].iter().enumerate() {
            let crashed = again(&sim.crash_image(policy, number as u64));
            let marker = existing(&crashed, "a").marker().unwrap();
            let round = if marker == b"new" { 2 } else { 1 };
            *(if round == 2 { &mut new } else { &mut old }) += 1;
            for name in ["a", "b", "c"] {
                let keyspace = existing(&crashed, name);
                assert_eq!(keyspace.marker().unwrap(), marker, "call {call}");
                assert_eq!(all(&keyspace), filled(0..10, round), "call {call}");
            }
        }
    }
    assert!(old > 0 && new > 0, "{old} old, {new} new");
}
