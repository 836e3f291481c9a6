//! Tests that blocks that were read stay cached when a compaction moves their entries.

use umbel::{Db, KeyspaceOptions, Options};
use umbel_sim::Sim;

use super::fixture::{PATH, fill, inline, key, tiny, value};

/// Returns the number of blocks that reading a range of keys loads.
fn misses(db: &Db, keyspace: &umbel::Keyspace, range: std::ops::Range<usize>, round: usize) -> u64 {
    let before = db.stats().cache_misses;
    for index in range {
        assert_eq!(keyspace.get(key(index)).unwrap().unwrap(), value(index, round));
    }
    db.stats().cache_misses - before
}

/// Story: each compaction evicted the blocks it moved, so the next read of every hot key went to
/// the file.
#[test]
fn compaction_warms_only_blocks_that_were_read() {
    let sim = Sim::new(1);
    let db = Db::open(PATH, inline(&sim.env())).unwrap();
    let options = KeyspaceOptions { level0_tables: 100, memtable_bytes: 1 << 20, ..tiny() };
    let keyspace = db.keyspace("a", options).unwrap();
    fill(&keyspace, 0..2000, 1);
    keyspace.compact(None, None).unwrap();
    let cold = misses(&db, &keyspace, 0..500, 1);
    assert!(cold > 50, "{cold}");
    // Every tenth key again, across all keys.
    for index in (0..2000).step_by(10) {
        keyspace.put(key(index), value(index, 1)).unwrap();
    }
    keyspace.compact(None, None).unwrap();
    let carried = db.stats().cache_warmed;
    assert!(carried * 10 > cold * 8 && carried < cold * 13 / 10, "{carried} of {cold}");
    let hot = misses(&db, &keyspace, 0..500, 1);
    assert!(hot <= cold / 10, "{hot} of {cold}");
    let rest = misses(&db, &keyspace, 520..1020, 1);
    assert!(rest > cold * 7 / 10, "{rest}: blocks without reads were loaded");
}

/// No block is loaded if no block was read, as in a bulk load.
#[test]
fn bulk_load_warms_nothing() {
    let sim = Sim::new(1);
    let options = Options { cache_bytes: Some(1 << 20), ..inline(&sim.env()) };
    let db = Db::open(PATH, options).unwrap();
    let keyspace = db.keyspace("a", tiny()).unwrap();
    fill(&keyspace, 0..3000, 1);
    fill(&keyspace, 0..3000, 2);
    db.wait_for_compaction().unwrap();
    let stats = db.stats();
    assert!(stats.keyspaces[0].levels.iter().skip(1).any(|level| level.bytes_written > 0));
    assert_eq!((stats.cache_warmed, stats.cache_bytes), (0, 0));
}

/// Story: a single scan of everything evicted blocks that were read repeatedly, and each compaction
/// loaded its inputs. Loading these inputs took a fifth of the time of a bulk load with ten million
/// streams.
#[test]
fn single_scan_leaves_the_cache_unchanged() {
    let sim = Sim::new(1);
    let db = Db::open(PATH, inline(&sim.env())).unwrap();
    let keyspace = db.keyspace("a", tiny()).unwrap();
    fill(&keyspace, 0..2000, 1);
    keyspace.compact(None, None).unwrap();
    misses(&db, &keyspace, 0..100, 1);
    let held = db.stats().cache_bytes;
    assert!(held > 0);
    let scan = |mut cursor: umbel::DbCursor| {
        cursor.seek_to_first().unwrap();
        let mut seen = 0;
        while cursor.valid() {
            assert_eq!(cursor.key(), key(seen));
            assert_eq!(cursor.value().unwrap(), value(seen, 1));
            seen += 1;
            cursor.next().unwrap();
        }
        seen
    };
    assert_eq!(scan(keyspace.cursor_uncached::<&[u8]>(..).unwrap()), 2000);
    assert_eq!(db.stats().cache_bytes, held);
    assert_eq!(scan(keyspace.cursor::<&[u8]>(..).unwrap()), 2000);
    assert!(db.stats().cache_bytes > held * 10);
}
