//! Regressions in the compaction of garbage, in conditions on long values and in closing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use umbel::{Db, Env, Error, Keyspace, KeyspaceOptions, Options};
use umbel_sim::Sim;

use crate::suite::fixture::{
    self, PATH, again, all, existing, fill, filled, inline, key, live_tables, overwrite_a_third,
    threaded, tiny, value,
};
use crate::suite::hooked_files::{Hooks, hooked};

const KEYS: usize = 12_000;
const LAST: usize = 6;

/// Gives other threads time to run.
fn pause(millis: u64) {
    let (_sender, receiver) = mpsc::channel::<()>();
    let _ = receiver.recv_timeout(Duration::from_millis(millis));
}

/// Whether `work` ends on a thread of its own within the time limit.
fn ends_soon(env: &Env, work: impl FnOnce() + Send + 'static) -> bool {
    let (sender, receiver) = mpsc::channel();
    let done = move || {
        work();
        let _ = sender.send(());
    };
    env.threads.spawn("other", Box::new(done)).unwrap();
    receiver.recv_timeout(Duration::from_secs(10)).is_ok()
}

fn by_level(keyspace: &Keyspace) -> Vec<u64> {
    keyspace.stats().levels.iter().map(|level| level.entries).collect()
}

/// A store whose level 0 overwrites a third of its last level, on a disk with hooks.
fn with_garbage(threads: usize) -> (Sim, Env, Hooks, Db, Keyspace) {
    let sim = Sim::new(1);
    overwrite_a_third(&sim, KEYS);
    let (env, hooks) = hooked(&sim.env());
    let db = Db::open(PATH, threaded(&env, threads)).unwrap();
    let keyspace = existing(&db, "a");
    assert_eq!(by_level(&keyspace), [(KEYS / 3) as u64, 0, 0, 0, 0, 0, KEYS as u64]);
    (sim, env, hooks, db, keyspace)
}

fn merged() -> Vec<u64> {
    vec![0, 0, 0, 0, 0, 0, KEYS as u64]
}

/// Story: the garbage estimate opened and read tables under the work lock. Meanwhile no thread
/// could flush, write beyond a full memtable or drop a snapshot.
#[test]
fn garbage_estimate_blocks_no_thread() {
    let (_sim, env, hooks, db, keyspace) = with_garbage(0);
    let free = Arc::new(AtomicBool::new(false));
    let (seen, other) = (Arc::clone(&free), db.clone());
    hooks.before("open *.table", move || {
        let flushes = move || {
            let keyspace = other.keyspace("b", None).unwrap();
            keyspace.put("k", "v").unwrap();
            keyspace.flush().unwrap();
        };
        seen.store(ends_soon(&env, flushes), Ordering::SeqCst);
    });
    db.wait_for_compaction().unwrap();
    assert!(hooks.was_called() && free.load(Ordering::SeqCst));
    // Writes made meanwhile ended the first wait.
    db.wait_for_compaction().unwrap();
    assert_eq!(by_level(&keyspace), merged());
}

/// Story: a close waited until a whole compaction of garbage was done.
#[test]
fn close_stops_garbage_compaction() {
    for threads in [0, 1, 2] {
        let (sim, env, hooks, db, keyspace) = with_garbage(threads);
        let (sender, receiver) = mpsc::channel();
        let other = db.clone();
        hooks.before("create *.table", move || {
            let close = move || drop(sender.send(other.close()));
            env.threads.spawn("close", Box::new(close)).unwrap();
            pause(100);
        });
        let waited = db.wait_for_compaction();
        assert!(matches!(waited, Ok(()) | Err(Error::Closed)), "{waited:?}");
        assert!(hooks.was_called());
        receiver.recv().unwrap().unwrap();
        drop((keyspace, db));
        let db = again(&sim);
        let keyspace = existing(&db, "a");
        assert!(by_level(&keyspace)[0] > 0, "the compaction was not stopped");
        assert_eq!(fixture::files(&sim.env(), ".table") as u64, live_tables(&db));
        let expected = [filled(0..KEYS / 3, 2), filled(KEYS / 3..KEYS, 1)].concat();
        assert_eq!(all(&keyspace), expected);
        db.wait_for_compaction().unwrap();
        assert_eq!(by_level(&keyspace), merged());
    }
}

/// Story: with a single background thread a full memtable and its writers waited for an optional
/// compaction.
#[test]
fn garbage_compaction_is_preempted_by_flush() {
    let (_sim, _env, hooks, db, keyspace) = with_garbage(1);
    let busy = db.keyspace("b", tiny()).unwrap();
    let (sender, receiver) = mpsc::channel();
    let (garbage, then) = (keyspace.clone(), hooks.clone());
    hooks.before("create *.table", move || {
        fill(&busy, 0..200, 1);
        then.before("create *.table", move || {
            sender.send(by_level(&garbage)[0] > 0).unwrap();
        });
    });
    db.wait_for_compaction().unwrap();
    assert!(receiver.recv().unwrap(), "the flush came last");
    db.wait_for_compaction().unwrap();
    assert_eq!(by_level(&keyspace), merged());
    assert_eq!(existing(&db, "b").get(key(7)).unwrap(), Some(value(7, 1)));
}

/// Story: with a single background thread a full memtable and its writers waited for a garbage
/// estimate, even of many tables.
#[test]
fn garbage_estimate_is_preempted_by_flush() {
    let sim = Sim::new(1);
    {
        let db = Db::open(PATH, inline(&sim.env())).unwrap();
        let options = KeyspaceOptions { memtable_bytes: 16 << 20, ..KeyspaceOptions::default() };
        let keyspace = db.keyspace("a", options).unwrap();
        fill(&keyspace, 0..3000, 1);
        keyspace.compact(None, None).unwrap();
        for start in [0, 1000, 2000] {
            fill(&keyspace, start..start + 300, 2);
            keyspace.flush().unwrap();
        }
        assert_eq!(by_level(&keyspace), [900, 0, 0, 0, 0, 0, 3000]);
    }
    let (env, hooks) = hooked(&sim.env());
    let db = Db::open(PATH, threaded(&env, 1)).unwrap();
    let busy = db.keyspace("b", tiny()).unwrap();
    let machine = sim.clone();
    let opens = move || machine.sites().get("open *.table").copied().unwrap_or(0);
    let (sender, receiver) = mpsc::channel();
    let (before, then) = (opens(), hooks.clone());
    hooks.before("open *.table", move || {
        fill(&busy, 0..200, 1);
        then.before("create *.table", move || sender.send(opens()).unwrap());
    });
    db.wait_for_compaction().unwrap();
    let opened = receiver.recv().unwrap() - before;
    assert!(opened <= 2, "{opened} tables came first");
    db.wait_for_compaction().unwrap();
    assert_eq!(by_level(&existing(&db, "a")), [0, 0, 0, 0, 0, 0, 3000]);
}

/// Story: versions that the last level kept for a dropped snapshot stayed as long as an older
/// snapshot was open.
#[test]
fn versions_of_dropped_newer_snapshot_are_removed() {
    let entries = |keyspace: &Keyspace| by_level(keyspace).iter().sum::<u64>();
    for (threads, is_manual) in [(0, true), (0, false), (1, false), (2, false)] {
        let sim = Sim::new(1);
        let db = Db::open(PATH, threaded(&sim.env(), threads)).unwrap();
        let keyspace = db.keyspace("a", tiny()).unwrap();
        let mut snapshots = Vec::new();
        for round in 1..4 {
            fill(&keyspace, 0..500, round);
            keyspace.compact(None, None).unwrap();
            snapshots.push(db.snapshot());
        }
        db.wait_for_compaction().unwrap();
        assert_eq!(entries(&keyspace), 1500);
        drop(snapshots.remove(1));
        match (is_manual, threads) {
            (true, _) => keyspace.compact(None, None).unwrap(),
            (_, 0) => db.wait_for_compaction().unwrap(),
            _ => {}
        }
        for _ in 0..2000 {
            if entries(&keyspace) != 1000 {
                pause(5);
            }
        }
        assert_eq!(entries(&keyspace), 1000, "with {threads} threads");
        let first = keyspace.get_at(&snapshots[0], key(7)).unwrap();
        assert_eq!(first, Some(value(7, 1)));
        assert_eq!(all(&keyspace), filled(0..500, 3));
        // After that no table is rewritten repeatedly.
        let written = || keyspace.stats().levels[LAST].bytes_written;
        let before = written();
        db.wait_for_compaction().unwrap();
        assert_eq!(written(), before);
        drop(snapshots);
        db.wait_for_compaction().unwrap();
        assert_eq!(entries(&keyspace), 500);
    }
}

/// Story: with several snapshots of the same state, the last level was rewritten, with nothing
/// dropped, each time one of them was dropped.
#[test]
fn no_rewrite_while_an_equal_snapshot_remains() {
    let sim = Sim::new(1);
    let db = Db::open(PATH, inline(&sim.env())).unwrap();
    let keyspace = db.keyspace("a", tiny()).unwrap();
    fill(&keyspace, 0..500, 1);
    let oldest = db.snapshot();
    fill(&keyspace, 0..500, 2);
    let mut short: Vec<_> = (0..5)
        .map(|index| {
            fill(&keyspace, 900 + index..901 + index, 1);
            db.snapshot()
        })
        .collect();
    fill(&keyspace, 0..500, 3);
    keyspace.compact(None, None).unwrap();
    db.wait_for_compaction().unwrap();
    let last = || keyspace.stats().levels[LAST].clone();
    let before = last();
    assert_eq!(before.entries, 1505);
    while short.len() > 1 {
        short.remove(short.len() / 2);
        db.wait_for_compaction().unwrap();
        assert_eq!(last().bytes_written, before.bytes_written, "{} are left", short.len());
    }
    drop(short);
    db.wait_for_compaction().unwrap();
    assert_eq!(last().entries, 1005);
    assert!(last().bytes_written > before.bytes_written);
    assert_eq!(keyspace.get_at(&oldest, key(7)).unwrap(), Some(value(7, 1)));
}

/// Returns a store in which values over 100 bytes get files of their own, with one such value.
fn with_long_value(first: &[u8]) -> (Env, Hooks, Db, Keyspace) {
    let sim = Sim::new(1);
    let (env, hooks) = hooked(&sim.env());
    let options = Options { inline_value_bytes_max: 100, ..inline(&env) };
    let db = Db::open(PATH, options).unwrap();
    let keyspace = db.keyspace("a", None).unwrap();
    keyspace.put("long", first).unwrap();
    (env, hooks, db, keyspace)
}

/// Story: to compare a long value its file was read under the commit lock, and every writer waited
/// for the read.
#[test]
fn comparing_a_long_value_blocks_no_writer() {
    let (env, hooks, db, keyspace) = with_long_value(&[1; 300]);
    let free = Arc::new(AtomicBool::new(false));
    let (seen, other) = (Arc::clone(&free), keyspace.clone());
    hooks.before("open *.blob", move || {
        let writes = move || other.put("short", "value").unwrap();
        seen.store(ends_soon(&env, writes), Ordering::SeqCst);
    });
    let mut batch = db.batch();
    batch.expect_value(&keyspace, "long", [1; 300]);
    batch.put(&keyspace, "long", [2; 300]);
    batch.commit(None).unwrap();
    assert!(hooks.was_called() && free.load(Ordering::SeqCst));
    assert_eq!(keyspace.get("long").unwrap().unwrap(), [2; 300]);
}

#[test]
fn replaced_long_value_is_compared_again() {
    for (second, holds) in [([1; 300], true), ([3; 300], false)] {
        let (_env, hooks, db, keyspace) = with_long_value(&[1; 300]);
        let other = keyspace.clone();
        hooks.before("open *.blob", move || other.put("long", second).unwrap());
        let mut batch = db.batch();
        batch.expect_value(&keyspace, "long", [1; 300]);
        batch.put(&keyspace, "short", "value");
        let committed = batch.commit(None);
        assert!(hooks.was_called());
        assert_eq!(committed.is_ok(), holds, "{committed:?}");
        assert!(holds || matches!(committed, Err(Error::Conflict(_))));
        assert_eq!(keyspace.contains("short").unwrap(), holds);
    }
}

/// Puts `replacement` before each of the next `times` reads of a file of a long value, as long as
/// no thread holds the commit lock. Returns the number of reads.
fn replace_at_each_read(
    (env, hooks): (&Env, &Hooks),
    keyspace: &Keyspace,
    replacement: [u8; 300],
    times: usize,
) -> Arc<AtomicUsize> {
    let reads = Arc::new(AtomicUsize::new(0));
    rearm(env.clone(), hooks.clone(), keyspace.clone(), replacement, times, Arc::clone(&reads));
    reads
}

fn rearm(
    env: Env,
    hooks: Hooks,
    keyspace: Keyspace,
    replacement: [u8; 300],
    times: usize,
    reads: Arc<AtomicUsize>,
) {
    let then = hooks.clone();
    hooks.before("open *.blob", move || {
        reads.fetch_add(1, Ordering::SeqCst);
        let (sender, receiver) = mpsc::channel();
        let other = keyspace.clone();
        let put = move || {
            other.put("long", replacement).unwrap();
            let _ = sender.send(());
        };
        env.threads.spawn("other", Box::new(put)).unwrap();
        // Under the commit lock the put happens afterwards.
        let _ = receiver.recv_timeout(Duration::from_millis(300));
        if times > 1 {
            rearm(env, then, keyspace, replacement, times - 1, reads);
        }
    });
}

/// Story: a condition that did not hold was compared with one long value after the other, while
/// other writers put new values of its length.
#[test]
fn differing_long_value_is_a_conflict() {
    let (env, hooks, db, keyspace) = with_long_value(&[1; 300]);
    let reads = replace_at_each_read((&env, &hooks), &keyspace, [3; 300], 20);
    let mut batch = db.batch();
    batch.expect_value(&keyspace, "long", [2; 300]);
    batch.put(&keyspace, "short", "value");
    assert!(matches!(batch.commit(None), Err(Error::Conflict(_))));
    assert_eq!(reads.load(Ordering::SeqCst), 1);
    assert!(!keyspace.contains("short").unwrap());
}

/// Story: a condition that did hold was compared endlessly as long as other writers put the same
/// value.
#[test]
fn commit_ends_despite_concurrent_equal_puts() {
    let (env, hooks, db, keyspace) = with_long_value(&[1; 300]);
    let reads = replace_at_each_read((&env, &hooks), &keyspace, [1; 300], 20);
    let mut batch = db.batch();
    batch.expect_value(&keyspace, "long", [1; 300]);
    batch.put(&keyspace, "short", "value");
    batch.commit(None).unwrap();
    assert_eq!(reads.load(Ordering::SeqCst), 4, "three times, and once under the lock");
    assert!(keyspace.contains("short").unwrap());
}

/// Story: the long values of all conditions of a batch were read again if one of them had been
/// replaced.
#[test]
fn unreplaced_long_value_is_read_once() {
    let (env, hooks, db, keyspace) = with_long_value(&[1; 300]);
    keyspace.put("another", [5; 300]).unwrap();
    let mut batch = db.batch();
    batch.expect_value(&keyspace, "another", [5; 300]);
    batch.expect_value(&keyspace, "long", [1; 300]);
    batch.put(&keyspace, "short", "value");
    let reads = replace_at_each_read((&env, &hooks), &keyspace, [1; 300], 20);
    batch.commit(None).unwrap();
    // "another", then "long", which was replaced meanwhile, three times, and once under the lock.
    assert_eq!(reads.load(Ordering::SeqCst), 5);
}

/// Story: without background threads a caller makes WAL segments after its write. A close did not
/// wait for that caller, which continued in a directory that the store did not own any more.
#[test]
fn close_waits_for_caller_making_wal_segments() {
    let sim = Sim::new(1);
    let (env, hooks) = hooked(&sim.env());
    let options = Options { log_segment_bytes: 16 << 10, ..inline(&env) };
    let db = Db::open(PATH, options).unwrap();
    let keyspace = db.keyspace("a", None).unwrap();
    fill(&keyspace, 0..1, 1);
    let (sender, receiver) = mpsc::channel();
    let ended = Arc::new(AtomicBool::new(false));
    let (other, flag) = (db.clone(), Arc::clone(&ended));
    hooks.before("create *.log", move || {
        let close = move || sender.send((other.close(), flag.load(Ordering::SeqCst))).unwrap();
        env.threads.spawn("close", Box::new(close)).unwrap();
        pause(100);
        ended.store(true, Ordering::SeqCst);
    });
    let mut written = 1;
    while !hooks.was_called() {
        fill(&keyspace, written..written + 1, 1);
        written += 1;
    }
    let (closed, ended) = receiver.recv().unwrap();
    assert!(ended, "it was closed under way");
    closed.unwrap();
    drop((keyspace, db));
    assert_eq!(all(&existing(&again(&sim), "a")), filled(0..written, 1));
}

/// Story: it was undocumented whether a callback that reads a lent value may call the store.
#[test]
fn value_callback_may_call_the_store() {
    for threads in [0, 2] {
        let sim = Sim::new(1);
        let db = Db::open(PATH, threaded(&sim.env(), threads)).unwrap();
        let keyspace = db.keyspace("a", tiny()).unwrap();
        fill(&keyspace, 0..500, 1);
        let mut calls = 0;
        let mut call = |found: &[u8], index: usize| {
            fill(&keyspace, 0..200, 2 + calls);
            keyspace.flush().unwrap();
            keyspace.compact(None, None).unwrap();
            keyspace.delete_range(key(450), key(460)).unwrap();
            db.wait_for_compaction().unwrap();
            drop(db.snapshot());
            assert_eq!(keyspace.get_with(key(499), <[u8]>::len).unwrap(), Some(found.len()));
            assert_eq!(all(&keyspace).len(), 490);
            assert_eq!(found, value(index, 1));
            calls += 1;
        };
        keyspace.get_with(key(300), |found| call(found, 300)).unwrap().unwrap();
        let keys = [key(301), key(302)];
        let each = |index: usize, found: Option<&[u8]>| call(found.unwrap(), 301 + index);
        keyspace.multi_get_with(&keys, each).unwrap();
        assert_eq!(calls, 3);
        keyspace.get_with(key(300), |_| db.close().unwrap()).unwrap().unwrap();
    }
}
