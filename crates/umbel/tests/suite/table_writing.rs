//! How tables are written: past the page cache, and as seldom as possible.

use std::sync::Arc;
use std::time::Duration;

use umbel::{Db, Env, Error, Keyspace, KeyspaceOptions, Options};
use umbel_env::Resources;
use umbel_sim::{Fault, FaultKind, Sim, Survival, When};

use crate::suite::stage::{
    self, PATH, again, all, existing, fill, filled, inline, key, live_tables, threaded,
};

/// As many keys as make a table of several pieces.
const KEYS: usize = 12_000;

fn large() -> KeyspaceOptions {
    KeyspaceOptions { memtable_bytes: 16 << 20, ..KeyspaceOptions::default() }
}

/// A store whose memtable is to be flushed into a table of several pieces; all of it is durable.
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
    assert_eq!(stage::files(&sim.env(), ".table") as u64, live_tables(&db));
    db.verify().unwrap();
}

#[test]
fn large_tables_are_written_past_the_page_cache_where_that_is_allowed() {
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
        // Nothing that counts is only in the device's cache.
        holds_everything(&sim.crash_image(&Survival::None, 1));
        drop((keyspace, db));
        holds_everything(&sim);
    }
}

/// What fits into the page cache goes through it unless it is said otherwise: it will be read.
#[test]
fn a_small_store_leaves_its_tables_in_the_page_cache() {
    for (direct_writes, is_direct) in [(None, false), (Some(false), false), (Some(true), true)] {
        let sim = Sim::new(1);
        let db = Db::open(PATH, Options { direct_writes, ..inline(&sim.env()) }).unwrap();
        let keyspace = db.keyspace("a", large()).unwrap();
        fill(&keyspace, 0..KEYS, 1);
        keyspace.flush().unwrap();
        assert_eq!(db.stats().table_bytes_direct > 0, is_direct);
    }
    // A machine of so few pages has no room for them.
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
fn a_crash_in_a_direct_write_loses_nothing() {
    let (sim, _db, keyspace) = about_to_flush();
    let begin = sim.calls();
    keyspace.flush().unwrap();
    let calls: Vec<u64> = sim.changing_calls().into_iter().filter(|call| *call > begin).collect();
    let direct = calls.iter().filter_map(|call| sim.site_of(*call));
    assert!(direct.filter(|label| label.starts_with("write_direct")).count() >= 2);
    for call in calls {
        for when in [When::Before, When::After] {
            let (sim, _db, keyspace) = about_to_flush();
            assert_eq!(sim.calls(), begin);
            sim.crash_at(call, when);
            // Done before the power goes where that is while obsolete logs are put away.
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
fn a_disk_that_is_full_in_the_middle_of_a_direct_write_is_an_error_and_leaves_nothing() {
    for kind in [FaultKind::Enospc, FaultKind::Eio] {
        let (sim, db, keyspace) = about_to_flush();
        // A full disk is tried once more after the log gave back what lay ready.
        let sticky = kind == FaultKind::Enospc;
        sim.fail_site("write_direct", 2, Fault { kind, sticky });
        let refused = keyspace.flush().unwrap_err();
        assert_eq!(matches!(refused, Error::Full { .. }), kind == FaultKind::Enospc, "{refused}");
        assert!(sim.faults_fired() > 0);
        assert_eq!(all(&keyspace), filled(0..KEYS, 1));
        sim.heal();
        drop((keyspace, db));
        holds_everything(&sim);
    }
}

/// Space is reserved for what a table may become; that there is not so much is no reason to fail.
#[test]
fn a_table_that_fits_is_written_although_its_reservation_does_not() {
    let (sim, db, keyspace) = about_to_flush();
    sim.fail_site("preallocate", 1, Fault { kind: FaultKind::Enospc, sticky: false });
    keyspace.flush().unwrap();
    assert_eq!(sim.faults_fired(), 1);
    assert!(db.stats().table_bytes_direct > 1 << 20);
    drop((keyspace, db));
    holds_everything(&sim);
}

/// Overwrites a tenth of the keys and deletes a twentieth; says how many are left.
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
fn overwritten_and_deleted_keys_go_when_the_store_is_waited_for() {
    let (_sim, db, keyspace) = about_to_flush();
    keyspace.compact(None, None).unwrap();
    let live = live_in(&keyspace);
    assert!(by_level(&keyspace)[0] > 0);
    db.wait_for_compaction().unwrap();
    assert_eq!(by_level(&keyspace), [0, 0, 0, 0, 0, 0, live]);
}

#[test]
fn new_keys_are_no_garbage() {
    let (_sim, db, keyspace) = about_to_flush();
    keyspace.compact(None, None).unwrap();
    fill(&keyspace, KEYS..KEYS + KEYS / 4, 1);
    keyspace.flush().unwrap();
    new_keys_among_the_old_ones_stay_above(&db, &keyspace);
}

fn new_keys_among_the_old_ones_stay_above(db: &Db, keyspace: &Keyspace) {
    for index in 0..KEYS / 4 {
        keyspace.put([key(index).as_slice(), b"+"].concat(), b"new").unwrap();
    }
    keyspace.flush().unwrap();
    let before = by_level(keyspace);
    db.wait_for_compaction().unwrap();
    assert_eq!(by_level(keyspace), before);
}

/// Without a filter below them all keys above looked as if they hid something.
#[test]
fn new_keys_are_no_garbage_where_no_filter_can_tell() {
    let sim = Sim::new(1);
    let db = Db::open(PATH, inline(&sim.env())).unwrap();
    let options = KeyspaceOptions { bloom_bits: 0, ..large() };
    let keyspace = db.keyspace("a", options).unwrap();
    fill(&keyspace, 0..KEYS, 1);
    keyspace.compact(None, None).unwrap();
    new_keys_among_the_old_ones_stay_above(&db, &keyspace);
}

#[test]
fn garbage_goes_by_itself_when_nobody_writes() {
    let sim = Sim::new(1);
    let db = Db::open(PATH, threaded(&sim.env(), 2)).unwrap();
    let keyspace = db.keyspace("a", large()).unwrap();
    fill(&keyspace, 0..KEYS, 1);
    keyspace.compact(None, None).unwrap();
    let live = live_in(&keyspace);
    // The store looks again after a while by the world's clock, and asks the simulated one.
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
    // The tables of level 0 stand in the same order when the store is opened again.
    let killed = sim.kill_image();
    assert_eq!(all(&existing(&again(&killed), "a")), expected);
    drop((keyspace, db));
    let db = again(&sim);
    let keyspace = existing(&db, "a");
    assert_eq!(all(&keyspace), expected);
    keyspace.compact(None, None).unwrap();
    assert_eq!(all(&keyspace), expected);
}
