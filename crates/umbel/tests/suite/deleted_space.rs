//! Tests that the disk space of deleted entries is freed without a manual compaction, even if the
//! deletes themselves take little space.

use std::path::PathBuf;
use std::time::Duration;

use umbel::{Db, Keyspace, KeyspaceOptions, Options};
use umbel_sim::Sim;

use crate::suite::fixture::{PATH, all, existing, key, threaded};

const KEYS: usize = 1000;
const VALUE: usize = 8 << 10;

fn options() -> KeyspaceOptions {
    KeyspaceOptions {
        table_bytes: 1 << 20,
        level_bytes_base: 4 << 20,
        ..KeyspaceOptions::default()
    }
}

/// A store with a thousand long values in tables.
fn filled(sim: &Sim) -> (Db, Keyspace) {
    let db = Db::open(PATH, threaded(&sim.env(), 2)).unwrap();
    let keyspace = db.keyspace("a", options()).unwrap();
    for index in 0..KEYS {
        keyspace.put(key(index), vec![index as u8; VALUE]).unwrap();
    }
    keyspace.compact(None, None).unwrap();
    (db, keyspace)
}

fn table_bytes(keyspace: &Keyspace) -> u64 {
    keyspace.stats().levels.iter().map(|level| level.bytes).sum()
}

/// Calls `work` and lets a second of the simulated clock pass, for at most `seconds` seconds, until
/// `is_reached` holds.
fn wait_for(sim: &Sim, seconds: usize, mut work: impl FnMut(), is_reached: impl Fn() -> bool) {
    for _ in 0..seconds {
        // The store checks again after a while by the real clock, and reads the simulated one.
        for _ in 0..20 {
            if is_reached() {
                return;
            }
            work();
            std::thread::park_timeout(Duration::from_millis(50));
        }
        sim.advance(Duration::from_secs(1));
    }
    panic!("the space did not come back in {seconds} s");
}

/// Waits until the tables have at most 1.3 times the bytes of the hundred keys that are left, and
/// closes the store.
fn check_freed(sim: &Sim, db: Db, keyspace: Keyspace) {
    let live = (100 * VALUE) as u64;
    wait_for(sim, 20, || {}, || table_bytes(&keyspace) <= live + live * 3 / 10);
    assert_eq!(all(&keyspace).len(), 100);
    drop(keyspace);
    db.close().unwrap();
}

/// Story: a thousand deletes of long values stayed in the memtable, and nothing was freed.
#[test]
fn few_deletes_of_long_values_free_their_space() {
    let sim = Sim::new(1);
    let (db, keyspace) = filled(&sim);
    for index in 0..KEYS - 100 {
        keyspace.delete(key(index)).unwrap();
    }
    check_freed(&sim, db, keyspace);
}

/// Story: short values that overwrote long ones stayed in the memtable, and nothing was freed.
#[test]
fn short_values_over_long_ones_free_their_space() {
    let sim = Sim::new(1);
    let (db, keyspace) = filled(&sim);
    for index in 0..KEYS - 100 {
        keyspace.put(key(index), b"tiny").unwrap();
    }
    let live = (100 * VALUE) as u64;
    wait_for(&sim, 20, || {}, || table_bytes(&keyspace) <= live + live * 3 / 10);
    assert_eq!(all(&keyspace).len(), KEYS);
    drop(keyspace);
    db.close().unwrap();
}

/// Story: deleted long values in files of their own stayed while their puts were in a memtable.
#[test]
fn deletes_of_unflushed_long_values_free_their_files() {
    let sim = Sim::new(1);
    let long_values = Options { inline_value_bytes_max: 1024, ..threaded(&sim.env(), 2) };
    let db = Db::open(PATH, long_values).unwrap();
    let keyspace = db.keyspace("a", options()).unwrap();
    for index in 0..KEYS {
        keyspace.put(key(index), vec![index as u8; VALUE]).unwrap();
    }
    for index in 0..KEYS - 100 {
        keyspace.delete(key(index)).unwrap();
    }
    let live = 100 * VALUE;
    let bytes = || sim.files().into_iter().map(|path| sim.read(&path).len()).sum::<usize>();
    assert!(bytes() > 5 * live, "{} bytes", bytes());
    // The WAL keeps up to 4 MiB prepared.
    wait_for(&sim, 20, || {}, || bytes() <= live + live * 3 / 10 + (4 << 20));
    assert_eq!(all(&keyspace).len(), 100);
    drop(keyspace);
    db.close().unwrap();
}

/// Story: one range delete over everything freed nothing, not even after the store was opened
/// again.
#[test]
fn a_range_delete_frees_its_space_also_after_a_reopen() {
    let sim = Sim::new(1);
    let (db, keyspace) = filled(&sim);
    keyspace.delete_range(key(0), key(KEYS - 100)).unwrap();
    drop(keyspace);
    db.close().unwrap();
    let db = Db::open(PATH, threaded(&sim.env(), 2)).unwrap();
    let keyspace = existing(&db, "a");
    check_freed(&sim, db, keyspace);
}

/// Story: a range delete over everything removed all tables. A segment of the WAL that was nearly
/// full stayed, although all its writes were in tables.
#[test]
fn wal_of_flushed_writes_is_freed() {
    let sim = Sim::new(1);
    let db = Db::open(PATH, threaded(&sim.env(), 2)).unwrap();
    let keyspace = db.keyspace("a", options()).unwrap();
    // The first segment has 4 MiB and the second one 8 MiB.
    for index in 0..1400 {
        keyspace.put(key(index), vec![index as u8; VALUE]).unwrap();
    }
    let logs = || {
        let is_log = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "log");
        sim.files().into_iter().filter(is_log).map(|path| sim.read(&path).len()).sum::<usize>()
    };
    assert!(logs() > 11 << 20, "{} bytes", logs());
    keyspace.delete_range(key(0), key(1400)).unwrap();
    keyspace.flush().unwrap();
    wait_for(&sim, 20, || {}, || table_bytes(&keyspace) == 0 && logs() <= 4 << 20);
    keyspace.put("after", "it").unwrap();
    drop(keyspace);
    db.close().unwrap();
    let db = Db::open(PATH, threaded(&sim.env(), 2)).unwrap();
    assert_eq!(all(&existing(&db, "a")).len(), 1);
}

/// Writers that never pause keep no deleted space.
#[test]
fn deletes_free_their_space_beside_steady_writes() {
    for is_range in [false, true] {
        let sim = Sim::new(1);
        let (db, keyspace) = filled(&sim);
        if is_range {
            keyspace.delete_range(key(0), key(KEYS - 100)).unwrap();
        } else {
            (0..KEYS - 100).for_each(|index| keyspace.delete(key(index)).unwrap());
        }
        let live = (100 * VALUE) as u64;
        let mut number = 0u64;
        let write = || {
            number += 1;
            keyspace.put(b"zzz", number.to_be_bytes()).unwrap();
        };
        wait_for(&sim, 20, write, || table_bytes(&keyspace) <= 2 * live);
        assert_eq!(all(&keyspace).len(), 101);
        drop(keyspace);
        db.close().unwrap();
    }
}

/// A snapshot keeps the entries that it sees; their space is freed after the snapshot is dropped.
#[test]
fn a_snapshot_keeps_the_space_of_what_it_shows() {
    let sim = Sim::new(1);
    let (db, keyspace) = filled(&sim);
    let snapshot = db.snapshot();
    keyspace.delete_range(key(0), key(KEYS - 100)).unwrap();
    for _ in 0..10 {
        sim.advance(Duration::from_secs(1));
        std::thread::park_timeout(Duration::from_millis(20));
    }
    assert_eq!(keyspace.iter_at(&snapshot).unwrap().count(), KEYS);
    drop(snapshot);
    check_freed(&sim, db, keyspace);
}

/// Story: the first keyspace made garbage without pause and took each flush and compaction that
/// there may be beside writes. The deleted entries of the second one stayed.
#[test]
fn a_keyspace_with_new_garbage_does_not_starve_another() {
    check_beside_garbage(KEYS);
}

/// Story: a large keyspace had to wait for longer after each flush than a small one that made
/// garbage. The small one was always earlier.
#[test]
fn a_small_keyspace_with_new_garbage_does_not_starve_a_large_one() {
    check_beside_garbage(10 * KEYS);
}

/// Checks that deleted space of a keyspace with `keys` entries comes back beside another keyspace
/// that makes garbage without pause.
fn check_beside_garbage(keys: usize) {
    let sim = Sim::new(1);
    let (db, busy) = filled(&sim);
    let keyspace = db.keyspace("b", options()).unwrap();
    for index in 0..keys {
        keyspace.put(key(index), vec![index as u8; VALUE]).unwrap();
    }
    keyspace.compact(None, None).unwrap();
    keyspace.delete_range(key(0), key(keys - 100)).unwrap();
    let live = (100 * VALUE) as u64;
    let mut seconds = 0;
    while table_bytes(&keyspace) > 2 * live {
        assert!(seconds < 40, "{} bytes are left", table_bytes(&keyspace));
        for index in 0..100 {
            busy.put(key(index), vec![seconds as u8; VALUE]).unwrap();
        }
        busy.flush().unwrap();
        busy.delete_range(key(0), key(KEYS)).unwrap();
        for _ in 0..10 {
            busy.put(b"zzz", b"steady").unwrap();
            std::thread::park_timeout(Duration::from_millis(20));
        }
        sim.advance(Duration::from_secs(1));
        seconds += 1;
    }
    assert_eq!(all(&keyspace).len(), 100);
    drop((busy, keyspace));
    db.close().unwrap();
}
