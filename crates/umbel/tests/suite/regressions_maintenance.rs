//! Regressions in manual and background compaction, in commits and in closing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use umbel::limits::LEVELS;
use umbel::{Db, Durability, Error, Keyspace, KeyspaceOptions, Options};
use umbel_sim::Sim;

use crate::suite::fixture::{
    PATH, again, all, existing, fill, filled, inline, key, live_tables, new_store, threaded, tiny,
    unlogged,
};
use crate::suite::hooked_files::{Hooks, hooked};

/// Gives other threads time to run. Returns `false`, for use in a condition chain.
fn pause(millis: u64) -> bool {
    let (_sender, receiver) = std::sync::mpsc::channel::<()>();
    receiver.recv_timeout(Duration::from_millis(millis)).is_ok()
}

fn entries(keyspace: &Keyspace) -> u64 {
    keyspace.stats().levels.iter().map(|level| level.entries).sum()
}

fn write_into_last_level(keyspace: &Keyspace) -> u64 {
    keyspace.stats().levels[LEVELS - 1].bytes_written
}

/// Story: versions that a merge into the last level kept for a snapshot stayed forever without
/// further writes to those keys. No table arrived with which the last level's table would have been
/// merged.
#[test]
fn compaction_drops_versions_of_past_snapshot() {
    let (sim, db) = new_store();
    let keyspace = db.keyspace("a", tiny()).unwrap();
    fill(&keyspace, 0..600, 1);
    let first = db.snapshot();
    fill(&keyspace, 0..600, 2);
    (0..600).step_by(3).for_each(|index| keyspace.delete(key(index)).unwrap());
    keyspace.delete_range(key(400), key(500)).unwrap();
    let second = db.snapshot();
    keyspace.compact(None, None).unwrap();
    assert!(entries(&keyspace) > 1000);
    // As long as the tables exist, so do the states they hold.
    keyspace.compact(None, None).unwrap();
    assert_eq!(keyspace.get_at(&first, key(450)).unwrap(), Some(filled(450..451, 1)[0].1.clone()));
    assert_eq!(keyspace.get_at(&second, key(451)).unwrap(), None);
    drop((first, second));
    let present = all(&keyspace);
    keyspace.compact(None, None).unwrap();
    assert_eq!((entries(&keyspace), all(&keyspace)), (present.len() as u64, present.clone()));
    let stats = keyspace.stats();
    let deletes = |level: &umbel::LevelStats| level.deletes + level.range_tombstones;
    assert_eq!(stats.levels.iter().map(deletes).sum::<u64>(), 0);
    drop((keyspace, db));
    assert_eq!(all(&existing(&again(&sim), "a")), present);
}

/// Story: old versions that reached the last level in a moved table, without a merge, stayed
/// forever without further writes to their keys.
#[test]
fn compaction_drops_old_versions_in_moved_table() {
    let (_sim, db) = new_store();
    let keyspace = db.keyspace("a", KeyspaceOptions::default()).unwrap();
    fill(&keyspace, 0..50, 1);
    let snapshot = db.snapshot();
    fill(&keyspace, 0..50, 2);
    keyspace.compact(None, None).unwrap();
    assert_eq!(entries(&keyspace), 100);
    drop(snapshot);
    keyspace.compact(None, None).unwrap();
    assert_eq!((entries(&keyspace), all(&keyspace)), (50, filled(0..50, 2)));
    // Then there is nothing left to do.
    let written = write_into_last_level(&keyspace);
    keyspace.compact(None, None).unwrap();
    assert_eq!(write_into_last_level(&keyspace), written);
}

/// Story: a range tombstone stayed in the last level, because a table that begins where the
/// tombstone ends counted as possible data below it.
#[test]
fn range_tombstone_next_to_table_is_dropped() {
    let (_sim, db) = new_store();
    let keyspace = db.keyspace("a", tiny()).unwrap();
    fill(&keyspace, 100..500, 1);
    keyspace.compact(None, None).unwrap();
    let snapshot = db.snapshot();
    fill(&keyspace, 0..20, 1);
    keyspace.delete_range(key(0), key(100)).unwrap();
    let later = db.snapshot();
    keyspace.compact(None, None).unwrap();
    drop((snapshot, later));
    keyspace.compact(None, None).unwrap();
    let tombstones: u64 = keyspace.stats().levels.iter().map(|level| level.range_tombstones).sum();
    assert_eq!((tombstones, entries(&keyspace)), (0, 400));
}

/// Story: background compaction, too, ignored tables of the last level with versions for a dropped
/// snapshot. Background compaction must rewrite such tables after the snapshot is dropped, without
/// a write that would wake it.
#[test]
fn background_drops_versions_of_past_snapshot() {
    for threads in [0, 1, 2] {
        let sim = Sim::new(1);
        let db = Db::open(PATH, threaded(&sim.env(), threads)).unwrap();
        let keyspace = db.keyspace("a", tiny()).unwrap();
        fill(&keyspace, 0..500, 1);
        keyspace.compact(None, None).unwrap();
        let snapshot = db.snapshot();
        fill(&keyspace, 0..500, 2);
        (0..500).step_by(2).for_each(|index| keyspace.delete(key(index)).unwrap());
        keyspace.compact(None, None).unwrap();
        db.wait_for_compaction().unwrap();
        assert!(entries(&keyspace) >= 1000);
        let written = write_into_last_level(&keyspace);
        drop(snapshot);
        if threads == 0 {
            db.wait_for_compaction().unwrap();
        }
        let is_dropped = (0..2000).any(|_| entries(&keyspace) == 250 || pause(5));
        assert!(is_dropped, "with {threads} threads");
        db.wait_for_compaction().unwrap();
        let rewritten = write_into_last_level(&keyspace) - written;
        assert!(rewritten <= written, "{rewritten} bytes for {written}: more than once");
    }
}

/// Story: each manual compaction left a new small table in the last level. A queue with occasional
/// compactions ended as thousands of tables of a few entries.
#[test]
fn compaction_joins_small_neighbours() {
    let (sim, db) = new_store();
    let keyspace = db.keyspace("a", tiny()).unwrap();
    for index in 0..300 {
        fill(&keyspace, index..index + 1, 1);
        keyspace.compact(Some(&key(index)), None).unwrap();
    }
    keyspace.compact(None, None).unwrap();
    let last = keyspace.stats().levels[LEVELS - 1].clone();
    // About 90 bytes an entry and 8 KiB a table; of two neighbours one is more than half full.
    assert_eq!(live_tables(&db), last.tables);
    assert!(
        last.tables <= last.bytes.div_ceil(4 << 10),
        "{} in {} tables",
        last.bytes,
        last.tables
    );
    assert_eq!(all(&keyspace), filled(0..300, 1));
    drop((keyspace, db));
    assert_eq!(all(&existing(&again(&sim), "a")), filled(0..300, 1));
}

/// Fills another memtable whenever a table is written, as a writer without pauses does.
fn keep_busy(hooks: &Hooks, keyspace: &Keyspace, count: &Arc<AtomicUsize>) {
    let (again, keyspace, count) = (hooks.clone(), keyspace.clone(), Arc::clone(count));
    hooks.before("create *.table", move || {
        let number = count.fetch_add(1, Ordering::Relaxed);
        if number >= 1000 {
            return;
        }
        let stats = keyspace.stats();
        // The hook runs on the thread that a stalled writer would wait for.
        if stats.frozen_memtables < 2 && stats.levels[0].tables < 5 {
            let mut index = number * 1000;
            while keyspace.stats().frozen_memtables == stats.frozen_memtables {
                fill(&keyspace, index..index + 1, number);
                index += 1;
            }
        }
        keep_busy(&again, &keyspace, &count);
    });
}

/// Story: `wait_for_compaction` waited for a moment with no pending work, which never came beside a
/// steady writer.
#[test]
fn wait_for_compaction_ends_beside_steady_writer() {
    let (env, hooks) = hooked(&Sim::new(1).env());
    let db = Db::open(PATH, threaded(&env, 1)).unwrap();
    let keyspace = db.keyspace("a", tiny()).unwrap();
    let count = Arc::new(AtomicUsize::new(0));
    fill(&keyspace, 0..1000, 1);
    db.wait_for_compaction().unwrap();
    keep_busy(&hooks, &keyspace, &count);
    // From here on no other thread writes: the writer in the hook would wait for flushes of the
    // thread that it runs on.
    fill(&keyspace, 0..1, 2);
    keyspace.flush().unwrap();
    let before = count.load(Ordering::Relaxed);
    db.wait_for_compaction().unwrap();
    let tables = count.swap(1000, Ordering::Relaxed) - before;
    assert!(before < 500 && tables < 500, "it waited for {tables} tables after {before}");
    // Without the writer the call waits for all work.
    db.wait_for_compaction().unwrap();
    let stats = keyspace.stats();
    assert_eq!(stats.frozen_memtables, 0);
    assert!(stats.levels[0].tables < 2);
}

/// Story: a batch lost all its operations after a conflict: a retry had to build it again.
#[test]
fn batch_keeps_operations_after_conflict() {
    let (_sim, db) = new_store();
    let keyspace = db.keyspace("a", tiny()).unwrap();
    keyspace.put("balance", "1").unwrap();
    let mut batch = db.batch();
    batch.put(&keyspace, "balance", "3");
    batch.put(&keyspace, "log", "x");
    batch.expect_value(&keyspace, "balance", "2");
    let before = db.stats();
    for _ in 0..2 {
        let refused = batch.try_commit(Durability::Buffered);
        assert!(matches!(refused, Err(Error::Conflict(_))), "{refused:?}");
        assert_eq!(batch.len(), 2);
    }
    // It was counted as committed, too.
    let after = db.stats();
    assert_eq!(after.commits, before.commits);
    assert_eq!(after.commit_groups, before.commit_groups);
    let mut unconditional = db.batch();
    keyspace.put("balance", "2").unwrap();
    batch.try_commit(None).unwrap();
    assert_eq!(keyspace.get("balance").unwrap().as_deref(), Some(&b"3"[..]));
    assert_eq!((batch.len(), batch.bytes()), (0, 0));
    // Committed operations are not committed again, and their conditions are not checked again.
    batch.put(&keyspace, "log", "y");
    batch.try_commit(None).unwrap();
    unconditional.expect_absent(&keyspace, "log");
    unconditional.put(&keyspace, "log", "z");
    assert!(unconditional.try_commit(None).is_err());
    unconditional.clear_conditions();
    unconditional.try_commit(None).unwrap();
    assert_eq!(keyspace.get("log").unwrap().as_deref(), Some(&b"z"[..]));
    // A batch that can never be committed stays rejected, and is not committed without its invalid
    // part.
    batch.put(&keyspace, "good", "1");
    batch.put(&keyspace, vec![0; umbel::limits::KEY_BYTES_MAX + 1], "1");
    for _ in 0..2 {
        assert!(matches!(batch.try_commit(None), Err(Error::Invalid(_))));
    }
    assert_eq!(keyspace.get("good").unwrap(), None);
}

/// Story: `Options::durability` applied to single writes only; a batch could not request it.
#[test]
fn batch_can_use_durability_of_options() {
    let sim = Sim::new(1);
    let open = |durability| Db::open(PATH, Options { durability, ..inline(&sim.env()) }).unwrap();
    for (durability, synced) in [(Durability::Buffered, 0), (Durability::Synced, 1)] {
        let db = open(durability);
        let keyspace = db.keyspace("a", tiny()).unwrap();
        let unlogged = db.keyspace("b", unlogged()).unwrap();
        let before = db.stats().log_syncs;
        let mut batch = db.batch();
        batch.put(&keyspace, "a", "1");
        // The default promises it nothing, so it is no error.
        batch.put(&unlogged, "a", "1");
        batch.commit(None).unwrap();
        assert_eq!(db.stats().log_syncs - before, synced, "{durability:?}");
    }
}

/// Story: the keyspace's WAL option was read before the commit lock. If the keyspace was reopened
/// without WAL in between, a batch was acknowledged as synced that was only in memory.
#[test]
fn synced_batch_fails_after_wal_was_turned_off() {
    let sim = Sim::new(1);
    let (env, hooks) = hooked(&sim.env());
    let db = Db::open(PATH, threaded(&env, 1)).unwrap();
    let other = db.keyspace("other", None).unwrap();
    let keyspace = db.keyspace("a", None).unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    let (in_hook, toggled, threads) = (db.clone(), keyspace.clone(), Arc::clone(&env.threads));
    // The first write of all creates a segment, and holds the commit lock.
    hooks.before("create *.log", move || {
        let db = in_hook.clone();
        let toggle = Box::new(move || drop(db.keyspace("a", unlogged())));
        let toggle = threads.spawn("toggle", toggle).unwrap();
        pause(50);
        let commit = move || {
            let mut batch = in_hook.batch();
            batch.put(&toggled, "k", "v");
            sender.send(batch.commit(Durability::Synced)).unwrap();
            toggle.join();
        };
        threads.spawn("commit", Box::new(commit)).unwrap();
        pause(50);
    });
    other.put("k", "v").unwrap();
    assert!(hooks.was_called());
    match receiver.recv().unwrap() {
        Ok(()) => assert!(keyspace.options().log, "it was acknowledged as synced without a WAL"),
        Err(error) => {
            assert!(error.to_string().contains("has no log"), "{error}");
            assert_eq!(keyspace.get("k").unwrap(), None);
        }
    }
}

/// Story: the second of two concurrent closes returned Ok at once, before anything was durable and
/// while the directory was still locked.
#[test]
fn concurrent_second_close_waits_for_the_first() {
    let sim = Sim::new(1);
    let (env, hooks) = hooked(&sim.env());
    let db = Db::open(PATH, inline(&env)).unwrap();
    // Without WAL, so that closing has to write a table.
    let keyspace = db.keyspace("a", unlogged()).unwrap();
    keyspace.put("k", "v").unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    let ended = Arc::new(AtomicBool::new(false));
    let (second, flag, threads) = (db.clone(), Arc::clone(&ended), Arc::clone(&env.threads));
    hooks.before("create *.table", move || {
        let close = move || sender.send((second.close(), flag.load(Ordering::SeqCst))).unwrap();
        threads.spawn("second", Box::new(close)).unwrap();
        pause(100);
        ended.store(true, Ordering::SeqCst);
    });
    db.close().unwrap();
    assert!(hooks.was_called());
    let (result, ended) = receiver.recv().unwrap();
    assert!(ended, "the second was done before the first");
    result.unwrap();
    drop(keyspace);
    assert_eq!(all(&existing(&again(&sim), "a")), [(b"k".to_vec(), b"v".to_vec())]);
}

/// Story: deleting an empty range returned Ok on a closed store.
#[test]
fn empty_range_delete_fails_on_closed_store() {
    let (_sim, db) = new_store();
    let keyspace = db.keyspace("a", None).unwrap();
    keyspace.delete_range("b", "a").unwrap();
    let dropped = db.keyspace("b", None).unwrap();
    db.drop_keyspace("b").unwrap();
    assert!(matches!(dropped.delete_range("b", "a"), Err(Error::Invalid(_))));
    db.close().unwrap();
    assert!(matches!(keyspace.delete_range("b", "a"), Err(Error::Closed)));
}

/// Story: the current segment was not counted as live, so a store with one WAL segment had no live
/// WAL at all.
#[test]
fn current_segment_counts_as_live() {
    let (_sim, db) = new_store();
    let keyspace = db.keyspace("a", None).unwrap();
    fill(&keyspace, 0..100, 1);
    let stats = db.stats();
    assert!(stats.log_bytes_written > 0);
    assert!(stats.log_bytes_live >= stats.log_bytes_written, "{}", stats.log_bytes_live);
}

/// Story: opening a keyspace without options gave it the default options.
#[test]
fn keyspace_opened_without_options_keeps_its_own() {
    let (sim, db) = new_store();
    drop(db.keyspace("a", tiny()).unwrap());
    assert_eq!(db.keyspace("a", None).unwrap().options(), tiny());
    drop(db);
    let db = again(&sim);
    assert_eq!(db.keyspace("a", None).unwrap().options(), tiny());
    assert_eq!(db.keyspace("b", None).unwrap().options(), KeyspaceOptions::default());
    let other = KeyspaceOptions { bloom_bits: 3, ..tiny() };
    assert_eq!(db.keyspace("a", other.clone()).unwrap().options(), other);
}
