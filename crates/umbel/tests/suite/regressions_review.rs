//! Regressions found by code review.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use umbel::{Db, Durability, Error, KeyspaceOptions, Options};
use umbel_sim::Sim;

fn small() -> KeyspaceOptions {
    KeyspaceOptions {
        memtable_bytes: 16 << 10,
        table_bytes: 16 << 10,
        level_bytes_base: 64 << 10,
        ..Default::default()
    }
}

fn open(threads: usize) -> Db {
    let options = Options {
        background_threads: threads,
        write_buffer_total_bytes: Some(64 << 10),
        log_segment_bytes: 64 << 10,
        env: Sim::new(1).env(),
        ..Default::default()
    };
    Db::open("/db", options).unwrap()
}

/// Story: a batch kept the number of its condition's snapshot, but not the snapshot. Once the
/// snapshot was dropped a compaction could set a later write's sequence number to zero, and the
/// batch overwrote that write.
#[test]
fn condition_outlives_its_snapshot() {
    let db = open(0);
    let accounts = db.keyspace("accounts", small()).unwrap();
    accounts.put("a", "100").unwrap();
    accounts.compact(None, None).unwrap();
    let mut batch = db.batch();
    {
        let seen = db.snapshot();
        batch.expect_unchanged(&accounts, "a", &seen);
    }
    batch.put(&accounts, "a", "110");
    accounts.put("a", "50").unwrap();
    accounts.compact(None, None).unwrap();
    let refused = batch.commit(Durability::Buffered);
    assert!(matches!(refused, Err(Error::Conflict(_))), "{refused:?}");
    assert_eq!(accounts.get("a").unwrap().as_deref(), Some(&b"50"[..]));
}

/// Story: without background threads only the thread that claimed the work flushed. The other
/// threads continued to write, and memtables accumulated without a limit.
#[test]
fn concurrent_writers_without_threads_bound_memtables() {
    let db = open(0);
    let keyspace = db.keyspace("k", small()).unwrap();
    let max_frozen = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                let keyspace = keyspace.clone();
                scope.spawn(move || {
                    let mut max_frozen = 0;
                    for number in 0..1500u32 {
                        let key = [&[writer as u8][..], &number.to_be_bytes()].concat();
                        keyspace.put(key, [7; 100]).unwrap();
                        max_frozen = max_frozen.max(keyspace.stats().frozen_memtables);
                    }
                    max_frozen
                })
            })
            .collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).max().unwrap()
    });
    // Each of the four may have passed the check when the limit was reached.
    assert!(max_frozen <= 4 + 4, "{max_frozen} memtables waited");
    assert_eq!(keyspace.iter().count(), 6000);
}

/// Story: the keyspace created first got every background compaction as long as it needed any. How
/// far the other keyspace lags depends on the machine, but it must be compacted, too.
#[test]
fn busy_keyspace_does_not_starve_another() {
    let db = open(2);
    let (busy, later) = (db.keyspace("a", small()).unwrap(), db.keyspace("b", small()).unwrap());
    let stop = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut number = 0u32;
            while !stop.load(Ordering::Relaxed) {
                number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                busy.put(number.to_be_bytes(), [1; 200]).unwrap();
            }
        });
        for number in 0..8000u32 {
            later.put(number.wrapping_mul(2_654_435_761).to_be_bytes(), [2; 100]).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
    let below = later.stats().levels.iter().skip(1).map(|level| level.compactions).sum::<u64>();
    assert!(below > 0, "it was never compacted");
}

/// Story: trimming a queue with `delete_range(first, i)` made every iterator split and copy the
/// square of the number of deletes.
#[test]
fn nested_range_deletes_stay_linear() {
    let db = open(0);
    let options = KeyspaceOptions { memtable_bytes: 64 << 20, ..small() };
    let queue = db.keyspace("queue", options).unwrap();
    for number in 0..2000u32 {
        queue.put(number.to_be_bytes(), "job").unwrap();
        queue.delete_range(0u32.to_be_bytes(), number.to_be_bytes()).unwrap();
        if number % 100 == 0 {
            assert_eq!(queue.iter().count(), 1);
        }
    }
    let stats = queue.stats();
    assert!(stats.levels.iter().any(|level| level.compactions > 0), "nothing was flushed");
    assert_eq!(queue.iter().count(), 1);
}

/// Story: a cursor that outlived `Db::close` opened its tables late. The cursor reported corruption
/// for a table that the next owner of the directory had rightly removed.
#[test]
fn cursor_after_close_reports_no_corruption() {
    let sim = Sim::new(1);
    let options = Options { background_threads: 0, env: sim.env(), ..Default::default() };
    let db = Db::open("/db", options.clone()).unwrap();
    let keyspace = db.keyspace("k", small()).unwrap();
    for number in 0..2000u32 {
        keyspace.put(number.to_be_bytes(), [3; 100]).unwrap();
    }
    keyspace.compact(None, None).unwrap();
    drop(keyspace);
    db.close().unwrap();
    let db = Db::open("/db", options.clone()).unwrap();
    let keyspace = db.existing_keyspace("k").unwrap().unwrap();
    let mut cursor = keyspace.cursor::<&[u8]>(..).unwrap();
    cursor.seek_to_first().unwrap();
    db.close().unwrap();
    let db = Db::open("/db", options).unwrap();
    let again = db.existing_keyspace("k").unwrap().unwrap();
    for number in 0..2000u32 {
        again.put(number.to_be_bytes(), [4; 100]).unwrap();
    }
    again.compact(None, None).unwrap();
    let mut seen = 1;
    let ended = loop {
        match cursor.next() {
            Ok(()) if cursor.valid() => seen += 1,
            ended => break ended,
        }
    };
    assert!(matches!(ended, Err(Error::Closed)), "{seen} seen, then {ended:?}");
}

/// Story: the disk space of a dropped keyspace was freed only with its last handle.
#[test]
fn dropped_keyspace_frees_space_at_once() {
    let sim = Sim::new(1);
    let options = Options { background_threads: 0, env: sim.env(), ..Default::default() };
    let db = Db::open("/db", options).unwrap();
    let keyspace = db.keyspace("k", small()).unwrap();
    for number in 0..500u32 {
        keyspace.put(number.to_be_bytes(), [3; 100]).unwrap();
    }
    keyspace.flush().unwrap();
    db.drop_keyspace("k").unwrap();
    let tables = sim.files().into_iter().filter(|p| p.extension().is_some_and(|e| e == "table"));
    assert_eq!(tables.count(), 0);
    assert!(keyspace.get("x").is_err());
}
