//! Tests that the disk space of deleted entries is freed without a manual compaction, even if the
//! deletes themselves take little space.

use std::path::PathBuf;
use std::time::Duration;

use umbel::{Db, Durability, Keyspace, KeyspaceOptions, Options};
use umbel_env::Access;
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
    filled_with(sim, options())
}

fn filled_with(sim: &Sim, options: KeyspaceOptions) -> (Db, Keyspace) {
    let db = Db::open(PATH, threaded(&sim.env(), 2)).unwrap();
    let keyspace = db.keyspace("a", options).unwrap();
    for index in 0..KEYS {
        keyspace.put(key(index), vec![index as u8; VALUE]).unwrap();
    }
    keyspace.compact(None, None).unwrap();
    (db, keyspace)
}

fn small_keyspaces(db: &Db, count: usize) -> Vec<Keyspace> {
    let open = |number| db.keyspace(&format!("small-{number}"), options()).unwrap();
    (0..count).map(open).collect()
}

fn table_bytes(keyspace: &Keyspace) -> u64 {
    keyspace.stats().levels.iter().map(|level| level.bytes).sum()
}

/// Bytes of all files, or only of the WAL's files.
fn file_bytes(sim: &Sim, is_counted: impl Fn(&PathBuf) -> bool) -> u64 {
    let files = sim.env().files;
    // The store may remove a file meanwhile.
    let bytes = |path: PathBuf| files.open(&path, Access::Read).and_then(|file| file.len());
    sim.files().into_iter().filter(is_counted).map(|path| bytes(path).unwrap_or(0)).sum()
}

fn logs(sim: &Sim) -> u64 {
    file_bytes(sim, |path| path.extension().is_some_and(|extension| extension == "log"))
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

/// Story: the estimate trusted only good filters, so a keyspace without filters, or with weak ones,
/// freed nothing.
#[test]
fn deletes_free_their_space_without_filters() {
    for bits in [0, 4] {
        for is_flushed in [false, true] {
            let sim = Sim::new(1);
            let weak = KeyspaceOptions { bloom_bits: bits, ..options() };
            let (db, keyspace) = filled_with(&sim, weak);
            for index in 0..KEYS - 100 {
                keyspace.delete(key(index)).unwrap();
            }
            if is_flushed {
                keyspace.flush().unwrap();
            }
            check_freed(&sim, db, keyspace);
        }
    }
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

/// Story: the estimate took the average entry of a table. A few deleted long values among very many
/// short ones freed nothing, although they had nine tenths of the bytes.
#[test]
fn deletes_of_few_long_values_among_short_ones_free_their_space() {
    for is_flushed in [false, true] {
        let sim = Sim::new(1);
        let db = Db::open(PATH, threaded(&sim.env(), 2)).unwrap();
        let keyspace = db.keyspace("a", options()).unwrap();
        let is_long = |index: usize| index.is_multiple_of(300);
        for index in 0..30_000 {
            let bytes = if is_long(index) { 90_000 } else { 30 };
            keyspace.put(key(index), vec![index as u8; bytes]).unwrap();
        }
        keyspace.compact(None, None).unwrap();
        for index in (0..30_000).filter(|&index| is_long(index)) {
            keyspace.delete(key(index)).unwrap();
        }
        if is_flushed {
            keyspace.flush().unwrap();
        }
        let live = 30_000 * 60;
        wait_for(&sim, 20, || {}, || table_bytes(&keyspace) <= live);
        assert_eq!(all(&keyspace).len(), 29_900);
        drop(keyspace);
        db.close().unwrap();
    }
}

/// Story: a store that was idle for long noticed deletes after up to a minute.
#[test]
fn deletes_after_a_long_pause_free_their_space() {
    let sim = Sim::new(1);
    let (db, keyspace) = filled(&sim);
    for _ in 0..40 {
        sim.advance(Duration::from_secs(10));
        std::thread::park_timeout(Duration::from_millis(50));
    }
    for index in 0..KEYS - 100 {
        keyspace.delete(key(index)).unwrap();
    }
    check_freed(&sim, db, keyspace);
}

/// Story: one entry in a memtable kept all WAL segments that were begun after it.
#[test]
fn wal_that_small_memtables_keep_is_freed() {
    for is_beside_writes in [false, true] {
        let sim = Sim::new(1);
        let db = Db::open(PATH, threaded(&sim.env(), 2)).unwrap();
        let keyspace = db.keyspace("a", options()).unwrap();
        let small = small_keyspaces(&db, 50);
        for keyspace in &small {
            keyspace.put("key", "value").unwrap();
        }
        for index in 0..8 * KEYS {
            keyspace.put(key(index % KEYS), vec![index as u8; VALUE]).unwrap();
        }
        keyspace.flush().unwrap();
        let mut number = 0u64;
        let write = || {
            number += 1;
            if is_beside_writes {
                small[0].put(b"key", number.to_be_bytes()).unwrap();
            }
        };
        // While writers write, up to four prepared segments of 4 MiB may be left.
        let limit = if is_beside_writes { 20 << 20 } else { 5 << 20 };
        wait_for(&sim, 20, write, || logs(&sim) <= limit);
        assert!(small.iter().all(|keyspace| keyspace.get("key").unwrap().is_some()));
        drop((keyspace, small));
        db.close().unwrap();
    }
}

/// Story: the tables of many keyspaces with recent writes counted as the cost of a flush for WAL
/// space, although one keyspace with an old write kept the space.
#[test]
fn wal_that_one_of_many_keyspaces_keeps_is_freed() {
    let sim = Sim::new(1);
    let db = Db::open(PATH, threaded(&sim.env(), 2)).unwrap();
    let small = small_keyspaces(&db, 200);
    small[0].put("key", "value").unwrap();
    let keyspace = db.keyspace("a", options()).unwrap();
    for index in 0..3 * KEYS / 2 {
        keyspace.put(key(index % KEYS), vec![index as u8; VALUE]).unwrap();
    }
    for keyspace in &small[1..] {
        keyspace.put("key", "value").unwrap();
    }
    keyspace.flush().unwrap();
    wait_for(&sim, 20, || {}, || logs(&sim) <= 5 << 20);
    assert!(small[1..].iter().all(|keyspace| table_bytes(keyspace) == 0));
    drop((keyspace, small));
    db.close().unwrap();
}

/// Story: a store with 8 MiB of live data that was overwritten all the time kept 128 MiB of
/// memtable and as much WAL, and twice as much during a flush.
#[test]
fn wal_of_a_store_that_is_overwritten_stays_small() {
    let sim = Sim::new(1);
    let (db, keyspace) = filled(&sim);
    let put = |second: usize| {
        for index in 0..KEYS / 4 {
            keyspace.put(key(index * 4 + second % 4), vec![second as u8; VALUE]).unwrap();
        }
    };
    check_size_in_a_minute(&sim, &keyspace, put, 64 << 20);
    assert_eq!(all(&keyspace).len(), KEYS);
    drop(keyspace);
    db.close().unwrap();
}

/// Story: garbage in bytes of values was compared with the memory of the nodes around it. Values of
/// a few bytes that were overwritten all the time were never flushed early.
#[test]
fn wal_of_a_store_of_short_values_that_is_overwritten_stays_small() {
    const SHORT_KEYS: usize = 100_000;
    let sim = Sim::new(1);
    let db = Db::open(PATH, threaded(&sim.env(), 2)).unwrap();
    let keyspace = db.keyspace("a", KeyspaceOptions::default()).unwrap();
    let put = |second: usize| {
        for index in 0..SHORT_KEYS * 3 / 8 {
            keyspace.put(key(index), second.to_be_bytes()).unwrap();
        }
    };
    for index in 0..SHORT_KEYS {
        keyspace.put(key(index), 0u64.to_be_bytes()).unwrap();
    }
    keyspace.compact(None, None).unwrap();
    check_size_in_a_minute(&sim, &keyspace, put, 40 << 20);
    assert_eq!(keyspace.iter().count(), SHORT_KEYS);
    drop(keyspace);
    db.close().unwrap();
}

/// Story: garbage in memtables of less than a MiB stayed in the WAL at rest. 300 keyspaces with 2
/// MiB of live data kept 212 MiB.
#[test]
fn garbage_of_many_small_memtables_is_freed_at_rest() {
    const PUTS: usize = 80;
    type Delete = fn(&Keyspace);
    let over_all: Delete = |keyspace| keyspace.delete_range(key(0), key(PUTS)).unwrap();
    let singly: Delete = |keyspace| (0..PUTS).for_each(|at| keyspace.delete(key(at)).unwrap());
    let overwrite: Delete = |keyspace| keyspace.put(key(0), b"short").unwrap();
    // Number of keys, bytes of a value, whether the puts are flushed.
    for (delete, keys, value, is_flushed) in [
        (over_all, PUTS, VALUE, false),
        (singly, PUTS, VALUE, false),
        (overwrite, 1, VALUE, false),
        (over_all, PUTS, VALUE / 4, true),
        (singly, PUTS, VALUE / 4, true),
        // In files of their own.
        (over_all, 8, 64 << 10, false),
        (overwrite, 1, 64 << 10, false),
    ] {
        let sim = Sim::new(1);
        let db = Db::open(PATH, threaded(&sim.env(), 2)).unwrap();
        let small = small_keyspaces(&db, 30);
        for keyspace in &small {
            let puts = PUTS * VALUE / value.max(VALUE);
            (0..puts).for_each(|put| keyspace.put(key(put % keys), vec![7; value]).unwrap());
        }
        if is_flushed {
            db.flush().unwrap();
        }
        small.iter().for_each(delete);
        wait_for(&sim, 20, || {}, || file_bytes(&sim, |_| true) <= 2 << 20);
        drop(small);
        db.close().unwrap();
    }
}

/// Story: a write each three seconds kept a store from coming to rest, and so 64 MiB of deleted
/// values in the WAL of many keyspaces.
#[test]
fn few_writes_do_not_keep_deleted_space() {
    let sim = Sim::new(1);
    let db = Db::open(PATH, threaded(&sim.env(), 2)).unwrap();
    let small = small_keyspaces(&db, 30);
    for keyspace in &small {
        (0..80).for_each(|at| keyspace.put(key(at), vec![7; VALUE]).unwrap());
        keyspace.delete_range(key(0), key(80)).unwrap();
    }
    let mut calls = 0;
    let write = || {
        calls += 1;
        // Of twenty calls in a second.
        if calls % 20 < 3 {
            small[calls % 30].put(key(100), b"short").unwrap();
        }
    };
    wait_for(&sim, 30, write, || file_bytes(&sim, |_| true) <= 2 << 20);
    drop(small);
    db.close().unwrap();
}

/// Story: range deletes of absent keys, one a second, wrote 400 MiB: each counted as hiding the
/// whole table that it met.
#[test]
fn range_deletes_of_little_rewrite_no_tables() {
    let sim = Sim::new(1);
    let (db, keyspace) = filled(&sim);
    let written = || keyspace.stats().levels.iter().map(|it| it.bytes_written).sum::<u64>();
    let before = written();
    for second in 0..20 {
        let start = [key(second * 40), b"-".to_vec()].concat();
        let end = [start.clone(), b"-".to_vec()].concat();
        keyspace.delete_range(start, end).unwrap();
        pass_a_second(&sim);
    }
    let more = written() - before;
    assert!(more < 1 << 20, "{more} bytes");
    assert_eq!(all(&keyspace).len(), KEYS);
    drop(keyspace);
    db.close().unwrap();
}

/// Range tombstones that are too many to compare with the tables count as hiding everything.
#[test]
fn many_range_deletes_over_everything_free_its_space() {
    let sim = Sim::new(1);
    let (db, keyspace) = filled(&sim);
    let mut batch = db.batch();
    for _ in 0..3000 {
        batch.delete_range(&keyspace, key(0), key(KEYS - 100));
    }
    batch.commit(Durability::Buffered).unwrap();
    check_freed(&sim, db, keyspace);
}

/// Story: beside writes, a memtable of garbage was flushed from 4 MiB on in each keyspace. Many
/// keyspaces that were overwritten all the time kept 200 MiB of WAL.
#[test]
fn wal_of_many_keyspaces_that_are_overwritten_stays_small() {
    let sim = Sim::new(1);
    let db = Db::open(PATH, threaded(&sim.env(), 2)).unwrap();
    let small = small_keyspaces(&db, 50);
    let put = |second: usize| {
        for keyspace in &small {
            (0..10).for_each(|at| keyspace.put(key(at), vec![second as u8; VALUE]).unwrap());
        }
    };
    check_size_in_a_minute(&sim, &small[0], put, 48 << 20);
    assert!(small.iter().all(|keyspace| all(keyspace).len() == 10));
    drop(small);
    db.close().unwrap();
}

/// Lets a second of the simulated clock pass, and less of the real clock, by which the store checks
/// again after two seconds.
fn pass_a_second(sim: &Sim) {
    for _ in 0..8 {
        std::thread::park_timeout(Duration::from_millis(25));
    }
    sim.advance(Duration::from_secs(1));
}

/// Calls `put` once in each second of a simulated minute. After the first twenty seconds, WAL and
/// tables have at most `bytes_max` bytes in each, once the threads had real time for their work.
fn check_size_in_a_minute(sim: &Sim, keyspace: &Keyspace, put: impl Fn(usize), bytes_max: u64) {
    let size = || logs(sim) + table_bytes(keyspace);
    for second in 0..60 {
        put(second);
        pass_a_second(sim);
        if second > 20 {
            let mut pauses = 0;
            while size() > bytes_max && pauses < 400 {
                std::thread::park_timeout(Duration::from_millis(25));
                pauses += 1;
            }
            assert!(size() <= bytes_max, "{} bytes in second {second}", size());
        }
    }
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
    let live = (100 * VALUE) as u64;
    let bytes = || file_bytes(&sim, |_| true);
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
    assert!(logs(&sim) > 11 << 20, "{} bytes", logs(&sim));
    keyspace.delete_range(key(0), key(1400)).unwrap();
    keyspace.flush().unwrap();
    wait_for(&sim, 20, || {}, || table_bytes(&keyspace) == 0 && logs(&sim) <= 4 << 20);
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
