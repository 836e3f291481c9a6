//! Tests of gets beside range deletes in several sources.

use std::ops::Range;

use umbel::{Db, Keyspace, KeyspaceOptions, LevelStats};
use umbel_sim::Sim;

use crate::suite::fixture::{PATH, inline, key};

const KEYS: usize = 1_000;
// A block has so few of these that its tags show which keys it does not have.
const OLD: [u8; 100] = [b'o'; 100];
const NEW: [u8; 100] = [b'n'; 100];

/// Story: a get leaves out the range tombstones of a table whose block has no tag of the key. It
/// must search them once a deeper table has the key.
#[test]
fn tombstones_of_a_table_without_the_key_hide_the_key_of_an_older_table() {
    let sim = Sim::new(1);
    let db = Db::open(PATH, inline(&sim.env())).unwrap();
    // So weak a filter passes many keys that its table does not have. The advisor would remove it.
    let options = KeyspaceOptions {
        bloom_bits: 2,
        advisor: false,
        level0_tables: 100,
        ..KeyspaceOptions::default()
    };
    let keyspace = db.keyspace("keys", options).unwrap();
    (0..KEYS).for_each(|index| keyspace.put(key(index), OLD).unwrap());
    keyspace.flush().unwrap();
    // A compaction could not free the hidden keys.
    let snapshot = db.snapshot();
    keyspace.delete_range(key(400), key(600)).unwrap();
    (0..KEYS).filter(|index| index % 2 == 0).for_each(|index| {
        keyspace.put(key(index), NEW).unwrap();
    });
    keyspace.flush().unwrap();
    assert_eq!(keyspace.stats().levels[0].tables, 2);
    check_gets(&keyspace, 400..600, 0..0);
    // These tombstones are in the memtable, whose filter has none of the keys.
    keyspace.delete_range(key(900), key(902)).unwrap();
    check_gets(&keyspace, 400..600, 900..902);
    let false_positives = |level: &LevelStats| level.filter_false_positives;
    assert!(keyspace.stats().levels.iter().map(false_positives).sum::<u64>() > 100);
    drop((snapshot, keyspace));
    db.close().unwrap();
}

/// Checks the gets of all keys. `old` were deleted before the even keys became new, `newest` after.
fn check_gets(keyspace: &Keyspace, old: Range<usize>, newest: Range<usize>) {
    let expected = |index: usize| match index {
        _ if newest.contains(&index) => None,
        _ if index.is_multiple_of(2) => Some(NEW.to_vec()),
        _ if old.contains(&index) => None,
        _ => Some(OLD.to_vec()),
    };
    // Blocks are in memory only at the second get of a key.
    for _ in 0..3 {
        for index in 0..KEYS {
            assert_eq!(keyspace.get(key(index)).unwrap(), expected(index), "{index}");
        }
        let keys: Vec<_> = (0..KEYS).map(key).collect();
        let found = keyspace.multi_get(&keys).unwrap();
        assert!((0..KEYS).all(|index| found[index] == expected(index)));
    }
}

/// Story: a table of range tombstones alone needs no filter and rejects each key. Its tombstones
/// hide keys of older tables, and its rejections are no probes of a filter.
#[test]
fn table_of_range_tombstones_alone_hides_keys_of_older_tables() {
    let sim = Sim::new(1);
    let db = Db::open(PATH, inline(&sim.env())).unwrap();
    let options = KeyspaceOptions { level0_tables: 100, ..KeyspaceOptions::default() };
    let keyspace = db.keyspace("keys", options).unwrap();
    (0..KEYS).step_by(2).for_each(|index| keyspace.put(key(index), OLD).unwrap());
    keyspace.flush().unwrap();
    // A compaction could not free the hidden keys.
    let snapshot = db.snapshot();
    keyspace.delete_range(key(400), key(600)).unwrap();
    keyspace.flush().unwrap();
    assert_eq!(keyspace.stats().levels[0].tables, 2);
    let expected =
        |index: usize| (index.is_multiple_of(2) && !(400..600).contains(&index)).then_some(OLD);
    let probes = || keyspace.stats().levels.iter().map(|level| level.filter_probes).sum::<u64>();
    let before = probes();
    for index in 0..KEYS {
        let found = keyspace.get(key(index)).unwrap();
        assert_eq!(found.as_deref(), expected(index).as_ref().map(|value| &value[..]), "{index}");
    }
    let of_gets = probes() - before;
    assert!(of_gets <= KEYS as u64, "the table without a filter was counted");
    let keys: Vec<_> = (0..KEYS).map(key).collect();
    let found = keyspace.multi_get(&keys).unwrap();
    for (index, found) in found.iter().enumerate() {
        assert_eq!(found.as_deref(), expected(index).as_ref().map(|value| &value[..]), "{index}");
    }
    assert_eq!(probes() - before, 2 * of_gets, "the table without a filter was counted");
    assert!(!keyspace.may_contain(key(1)));
    drop((snapshot, keyspace));
    db.close().unwrap();
}
