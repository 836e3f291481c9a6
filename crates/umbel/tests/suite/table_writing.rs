//! Tests that tables are written past the page cache, and as rarely as possible.

use std::sync::Arc;
use std::time::Duration;

use umbel::{Db, Env, Error, Keyspace, KeyspaceOptions, Options};
use umbel_env::Resources;
use umbel_sim::{CrashSide, Fault, FaultKind, Sim, Survival};

use crate::suite::fixture::{
    self, PATH, again, all, existing, fill, filled, inline, key, live_tables, threaded,
};

/// Number of keys that make a table of several pieces.
const KEYS: usize = 12_000;

fn large() -> KeyspaceOptions {
    KeyspaceOptions { memtable_bytes: 16 << 20, ..KeyspaceOptions::default() }
}

/// Returns a store whose memtable is about to be flushed to a table of several pieces. All its
/// writes are durable.
fn about_to_flush() -> (Sim, Db, Keyspace) {
    let sim = Sim::new(1);
    let options = Options { direct_writes: Some(true), ..inline(&sim.env()) };
    let db = Db::open(PATH, options).unwrap();
    let keyspace = db.keyspace("a", large()).unwrap();
    fill(&keyspace, 0..KEYS, 1);
    db.sync().unwrap();
    (sim, db, keyspace)
}

fn holds_everything(sim: &Sim) {
    let db = again(sim);
    assert_eq!(all(&existing(&db, "a")), filled(0..KEYS, 1));
    assert_eq!(fixture::files(&sim.env(), ".table") as u64, live_tables(&db));
    db.verify().unwrap();
}

#[test]
fn large_tables_use_direct_writes_if_allowed() {
    for allowed in [true, false] {
        let (sim, db, keyspace) = about_to_flush();
        sim.allow_direct(allowed);
        keyspace.flush().unwrap();
        let stats = db.stats();
        assert_eq!(stats.table_bytes_direct > 1 << 20, allowed);
        assert_eq!(stats.table_bytes_buffered > 1 << 20, !allowed);
        let len = keyspace.stats().levels[0].bytes;
        assert_eq!(stats.table_bytes_direct + stats.table_bytes_buffered, len);
        fill(&keyspace, 0..100, 1);
        keyspace.compact(None, None).unwrap();
        assert_eq!(db.stats().table_bytes_direct > 2 << 20, allowed);
        assert_eq!(all(&keyspace), filled(0..KEYS, 1));
        // No live data is only in the device's cache.
        holds_everything(&sim.crash_image(&Survival::None, 1));
        drop((keyspace, db));
        holds_everything(&sim);
    }
}

/// Tables that fit into the page cache are written through it by default, since they will be read.
#[test]
fn small_store_writes_through_the_page_cache() {
    for (direct_writes, is_direct) in [(None, false), (Some(false), false), (Some(true), true)] {
        let sim = Sim::new(1);
        let db = Db::open(PATH, Options { direct_writes, ..inline(&sim.env()) }).unwrap();
        let keyspace = db.keyspace("a", large()).unwrap();
        fill(&keyspace, 0..KEYS, 1);
        keyspace.flush().unwrap();
        assert_eq!(db.stats().table_bytes_direct > 0, is_direct);
    }
    // A machine with so few pages cannot cache them.
    let sim = Sim::new(1);
    let env = Env { resources: Arc::new(SmallMachine), ..sim.env() };
    let options = Options { memory_bytes: Some(256 << 20), ..inline(&env) };
    let db = Db::open(PATH, options).unwrap();
    let keyspace = db.keyspace("a", large()).unwrap();
    for round in 0..2 {
        fill(&keyspace, 0..KEYS, round);
        keyspace.flush().unwrap();
    }
    assert_eq!(all(&keyspace), filled(0..KEYS, 1));
    assert!(db.stats().table_bytes_direct > 0);
}

#[derive(Debug)]
struct SmallMachine;

impl Resources for SmallMachine {
    fn memory_bytes(&self) -> Option<u64> {
        Some(1 << 16)
    }

    fn open_files_max(&self) -> Option<u64> {
        None
    }
}

#[test]
fn crash_in_direct_write_loses_nothing() {
    let (sim, _db, keyspace) = about_to_flush();
    let begin = sim.calls();
    keyspace.flush().unwrap();
    let calls: Vec<u64> = sim.changing_calls().into_iter().filter(|call| *call > begin).collect();
    let direct = calls.iter().filter_map(|call| sim.site_of(*call));
    assert!(direct.filter(|label| label.starts_with("write_direct")).count() >= 2);
    for call in calls {
        for when in [CrashSide::Before, CrashSide::After] {
            let (sim, _db, keyspace) = about_to_flush();
            assert_eq!(sim.calls(), begin);
            sim.crash_at(call, when);
            // The flush succeeds if the power fails while obsolete segments are recycled.
            let _ = keyspace.flush();
            let policies = [Survival::None, Survival::All, Survival::Garbage(0.7)];
            for (seed, policy) in policies.into_iter().enumerate() {
                holds_everything(&sim.crash_image(&policy, seed as u64));
            }
            let images = sim.crash_images_exhaustive(3);
            images.for_each(|image| holds_everything(&image));
        }
    }
}

#[test]
fn full_disk_in_direct_write_leaves_no_file() {
    for kind in [FaultKind::Enospc, FaultKind::Eio] {
        let (sim, db, keyspace) = about_to_flush();
        // On a full disk the write is retried after the WAL released prepared space.
        let sticky = kind == FaultKind::Enospc;
        sim.fail_site("write_direct", 2, Fault { kind, sticky });
        let refused = keyspace.flush().unwrap_err();
        assert_eq!(
            matches!(refused, Error::DiskFull { .. }),
            kind == FaultKind::Enospc,
            "{refused}"
        );
        assert!(sim.faults_fired() > 0);
        assert_eq!(all(&keyspace), filled(0..KEYS, 1));
        sim.heal();
        drop((keyspace, db));
        holds_everything(&sim);
    }
}

/// Disk space is reserved for the maximum size of a table; a failed reservation is no error.
#[test]
fn table_is_written_after_failed_reservation() {
    let (sim, db, keyspace) = about_to_flush();
    sim.fail_site("preallocate", 1, Fault { kind: FaultKind::Enospc, sticky: false });
    keyspace.flush().unwrap();
    assert_eq!(sim.faults_fired(), 1);
    assert!(db.stats().table_bytes_direct > 1 << 20);
    drop((keyspace, db));
    holds_everything(&sim);
}

/// Overwrites a tenth of the keys and deletes a twentieth; returns the number of live keys.
fn live_in(keyspace: &Keyspace) -> u64 {
    for index in (0..KEYS).step_by(10) {
        fill(keyspace, index..index + 1, 2);
    }
    (5..KEYS).step_by(20).for_each(|index| keyspace.delete(key(index)).unwrap());
    keyspace.flush().unwrap();
    (KEYS - KEYS / 20) as u64
}

fn by_level(keyspace: &Keyspace) -> Vec<u64> {
    keyspace.stats().levels.iter().map(|level| level.entries).collect()
}

#[test]
fn wait_for_compaction_drops_garbage() {
    let (_sim, db, keyspace) = about_to_flush();
    keyspace.compact(None, None).unwrap();
    let live = live_in(&keyspace);
    assert!(by_level(&keyspace)[0] > 0);
    db.wait_for_compaction().unwrap();
    assert_eq!(by_level(&keyspace), [0, 0, 0, 0, 0, 0, live]);
}

#[test]
fn new_keys_are_not_garbage() {
    let (_sim, db, keyspace) = about_to_flush();
    keyspace.compact(None, None).unwrap();
    fill(&keyspace, KEYS..KEYS + KEYS / 4, 1);
    keyspace.flush().unwrap();
    check_new_keys_stay_above(&db, &keyspace);
}

fn check_new_keys_stay_above(db: &Db, keyspace: &Keyspace) {
    for index in 0..KEYS / 4 {
        keyspace.put([key(index).as_slice(), b"+"].concat(), b"new").unwrap();
    }
    keyspace.flush().unwrap();
    let before = by_level(keyspace);
    db.wait_for_compaction().unwrap();
    assert_eq!(by_level(keyspace), before);
}

/// Story: without filters in lower levels all entries of upper levels seemed to hide entries.
#[test]
fn new_keys_are_not_garbage_without_filters() {
    let sim = Sim::new(1);
    let db = Db::open(PATH, inline(&sim.env())).unwrap();
    let options = KeyspaceOptions { bloom_bits: 0, ..large() };
    let keyspace = db.keyspace("a", options).unwrap();
    fill(&keyspace, 0..KEYS, 1);
    keyspace.compact(None, None).unwrap();
    check_new_keys_stay_above(&db, &keyspace);
}

#[test]
fn garbage_is_dropped_without_writes() {
    let sim = Sim::new(1);
    let db = Db::open(PATH, threaded(&sim.env(), 2)).unwrap();
    let keyspace = db.keyspace("a", large()).unwrap();
    fill(&keyspace, 0..KEYS, 1);
    keyspace.compact(None, None).unwrap();
    let live = live_in(&keyspace);
    // The store checks again after a while by the real clock, and reads the simulated one.
    for _ in 0..600 {
        if by_level(&keyspace)[LAST] == live {
            break;
        }
        sim.advance(Duration::from_secs(1));
        std::thread::park_timeout(Duration::from_millis(50));
    }
    assert_eq!(by_level(&keyspace), [0, 0, 0, 0, 0, 0, live]);
}

const LAST: usize = 6;

#[test]
fn small_flushes_do_not_rewrite_a_large_level() {
    let sim = Sim::new(1);
    let db = Db::open(PATH, inline(&sim.env())).unwrap();
    let options = KeyspaceOptions {
        memtable_bytes: 1 << 20,
        level_bytes_base: 4 << 20,
        level0_tables: 4,
        ..KeyspaceOptions::default()
    };
    let keyspace = db.keyspace("a", options).unwrap();
    fill(&keyspace, 0..KEYS, 1);
    keyspace.compact(None, None).unwrap();
    let written = || keyspace.stats().levels[LAST].bytes_written;
    let before = written();
    let mut expected = filled(0..KEYS, 1);
    for round in 0..40 {
        let index = round * 37;
        fill(&keyspace, index..index + 3, 2 + round);
        fill(&keyspace, 7..8, 2 + round);
        expected[index..index + 3].clone_from_slice(&filled(index..index + 3, 2 + round));
        expected[7] = filled(7..8, 2 + round).remove(0);
        keyspace.flush().unwrap();
        assert!(keyspace.stats().levels[0].tables < 4);
    }
    assert_eq!(written(), before);
    assert_eq!(all(&keyspace), expected);
    // The tables of level 0 have the same order when the store is opened again.
    let killed = sim.kill_image();
    assert_eq!(all(&existing(&again(&killed), "a")), expected);
    drop((keyspace, db));
    let db = again(&sim);
    let keyspace = existing(&db, "a");
    assert_eq!(all(&keyspace), expected);
    keyspace.compact(None, None).unwrap();
    assert_eq!(all(&keyspace), expected);
}
