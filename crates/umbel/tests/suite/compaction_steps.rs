//! Tests of compactions in steps: each step replaces the tables of the target level in its key
//! range, and the tables of upper levels stay until the last step.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use umbel::{Db, Error, Keyspace, KeyspaceOptions, Options};
use umbel_base::Result;
use umbel_env::{JoinHandle, Threads};
use umbel_sim::{CrashSide, Sim, Survival};

use crate::suite::fixture::{PATH, again, all, existing, fill, inline, key, value};

const KEYS: usize = 1500;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn options() -> KeyspaceOptions {
    KeyspaceOptions {
        memtable_bytes: 64 << 10,
        table_bytes: 8 << 10,
        block_bytes: 512,
        level_bytes_base: 1 << 20,
        level0_tables: 8,
        ..KeyspaceOptions::default()
    }
}

/// A store with a full lower level, and with overwrites, deletes and a range delete above it.
fn store(sim: &Sim) -> (Db, Keyspace, Map) {
    let db = Db::open(PATH, inline(&sim.env())).unwrap();
    let keyspace = db.keyspace("a", options()).unwrap();
    fill(&keyspace, 0..KEYS, 0);
    keyspace.compact(None, None).unwrap();
    let mut map: Map = (0..KEYS).map(|index| (key(index), value(index, 0))).collect();
    for index in (0..KEYS).step_by(3) {
        keyspace.put(key(index), value(index, 1)).unwrap();
        map.insert(key(index), value(index, 1));
    }
    keyspace.flush().unwrap();
    for index in (0..KEYS).step_by(5) {
        keyspace.delete(key(index)).unwrap();
        map.remove(&key(index));
    }
    keyspace.delete_range(key(700), key(900)).unwrap();
    map.retain(|it, _| *it < key(700) || *it >= key(900));
    for index in (710..890).step_by(7) {
        keyspace.put(key(index), value(index, 2)).unwrap();
        map.insert(key(index), value(index, 2));
    }
    keyspace.flush().unwrap();
    (db, keyspace, map)
}

fn check(keyspace: &Keyspace, map: &Map, context: &str) {
    assert_eq!(all(keyspace), map.clone().into_iter().collect::<Vec<_>>(), "{context}");
    for index in 0..KEYS {
        assert_eq!(keyspace.get(key(index)).unwrap().as_ref(), map.get(&key(index)), "{context}");
    }
    let backwards: Vec<_> = keyspace.iter().rev().map(|entry| entry.unwrap()).collect();
    assert!(backwards.iter().map(|(key, _)| key).eq(map.keys().rev()), "{context}");
}

fn disk_bytes(sim: &Sim) -> u64 {
    sim.files().iter().map(|path| sim.read(path).len() as u64).sum()
}

/// Bytes of the WAL's files, of which the stores here use few.
fn prepared_bytes(sim: &Sim) -> u64 {
    let is_log = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "log");
    sim.files().into_iter().filter(is_log).map(|path| sim.read(path).len() as u64).sum()
}

/// Story: a merge of a whole level needed the space of its inputs and of its outputs together.
#[test]
fn replaced_tables_give_their_space_to_later_steps() {
    let sim = Sim::new(1);
    let (db, keyspace, map) = store(&sim);
    let before = keyspace.stats().levels[1..].iter().map(|level| level.bytes).sum::<u64>();
    let tables = keyspace.stats().levels.iter().map(|level| level.tables).sum::<u64>();
    assert!(tables > 16, "{tables} tables");
    // Four ninths of the lower level instead of all of it.
    sim.set_capacity(disk_bytes(&sim) + before * 4 / 9);
    keyspace.compact(None, None).unwrap();
    check(&keyspace, &map, "after the compaction");
    drop(keyspace);
    db.close().unwrap();
}

/// Story: a merge that a crash ended between two steps left two references to the file of a long
/// value, and the store did not open any more.
#[test]
fn long_values_have_one_reference_after_a_crash_between_steps() {
    let run = |sim: &Sim, crash_at: Option<u64>| {
        let long_values = Options { inline_value_bytes_max: 256, ..inline(&sim.env()) };
        let db = Db::open(PATH, long_values).unwrap();
        let keyspace = db.keyspace("a", options()).unwrap();
        fill(&keyspace, 0..KEYS, 0);
        keyspace.compact(None, None).unwrap();
        for index in [3, 400, KEYS - 1] {
            keyspace.put(key(index), vec![index as u8; 1000]).unwrap();
        }
        keyspace.flush().unwrap();
        db.sync().unwrap();
        let before = sim.calls();
        if let Some(call) = crash_at {
            sim.crash_at(call, CrashSide::After);
        }
        let _ = keyspace.compact(None, None);
        before
    };
    let sim = Sim::new(1);
    let before = run(&sim, None);
    let calls = sim.changing_calls().into_iter().filter(|&call| call > before);
    for call in calls.collect::<Vec<_>>() {
        let sim = Sim::new(1);
        run(&sim, Some(call));
        let image = sim.crash_image(&Survival::any(call, sim.pending_units()), call);
        let db = again(&image);
        let keyspace = existing(&db, "a");
        assert_eq!(keyspace.iter().count(), KEYS, "call {call}");
        assert_eq!(keyspace.get(key(400)).unwrap(), Some(vec![400u16 as u8; 1000]));
        keyspace.compact(None, None).unwrap();
        db.verify().unwrap();
    }
}

/// A crash at any call leaves all entries, and a later compaction continues.
#[test]
fn crash_between_steps_loses_nothing() {
    let calls = {
        let sim = Sim::new(1);
        let (_db, keyspace, _) = store(&sim);
        let before = sim.calls();
        keyspace.compact(None, None).unwrap();
        sim.changing_calls().into_iter().filter(|&call| call > before).collect::<Vec<_>>()
    };
    assert!(calls.len() > 40, "{} calls", calls.len());
    for (number, &call) in calls.iter().enumerate() {
        for side in [CrashSide::Before, CrashSide::After] {
            let sim = Sim::new(1);
            let (db, keyspace, map) = store(&sim);
            db.sync().unwrap();
            let moved = sim.calls();
            sim.crash_at(call.max(moved + 1), side);
            let _ = keyspace.compact(None, None);
            drop((keyspace, db));
            let survival = Survival::any(number as u64, sim.pending_units());
            let image = sim.crash_image(&survival, number as u64);
            let context = format!("call {call}, {side:?}");
            let db = again(&image);
            let keyspace = existing(&db, "a");
            check(&keyspace, &map, &context);
            keyspace.compact(None, None).unwrap();
            check(&keyspace, &map, &context);
            db.verify().unwrap();
        }
    }
}

/// A compaction that ends between two steps leaves entries of upper levels with copies below.
/// Reads, snapshots, later writes and later compactions give the same content.
#[test]
fn ended_compaction_leaves_the_content() {
    let mut ended_early = 0;
    for step in 40..60 {
        let sim = Sim::new(1);
        let (db, keyspace, mut map) = store(&sim);
        let seen = map.clone();
        let snapshot = db.snapshot();
        let before = keyspace.stats();
        let lower = before.levels[1..].iter().map(|level| level.bytes).sum::<u64>();
        // The cursor keeps the files that the steps replace.
        let mut cursor = keyspace.iter();
        cursor.next();
        // As much is left for the WAL and the merge after prepared space was freed.
        sim.set_capacity(disk_bytes(&sim) - prepared_bytes(&sim) + lower * step / 16);
        let ended = keyspace.compact(None, None);
        assert!(ended.is_ok() || matches!(ended, Err(Error::DiskFull { .. })), "{ended:?}");
        let levels = keyspace.stats().levels;
        let is_changed = levels[1..].iter().map(|level| level.bytes).sum::<u64>() != lower;
        ended_early += usize::from(levels[0].tables > 0 && is_changed);
        sim.clear_capacity();
        drop(cursor);
        let context = format!("step {step}");
        check(&keyspace, &map, &context);
        for index in (0..KEYS).step_by(4) {
            keyspace.put(key(index), value(index, 3)).unwrap();
            map.insert(key(index), value(index, 3));
        }
        for index in (0..KEYS).step_by(9) {
            keyspace.delete(key(index)).unwrap();
            map.remove(&key(index));
        }
        check(&keyspace, &map, &context);
        let at_snapshot = || {
            let entries = keyspace.iter_at(&snapshot).unwrap().map(|entry| entry.unwrap());
            entries.collect::<Map>()
        };
        assert_eq!(at_snapshot(), seen, "{context}");
        keyspace.compact(None, None).unwrap();
        check(&keyspace, &map, &context);
        assert_eq!(at_snapshot(), seen, "{context}");
        drop(snapshot);
        keyspace.compact(None, None).unwrap();
        check(&keyspace, &map, &context);
        drop(keyspace);
        db.close().unwrap();
        check(&existing(&again(&sim), "a"), &map, &context);
    }
    assert!(ended_early >= 5, "{ended_early} ended between steps");
}

/// Story: the number of parallel parts of a step was chosen by the bytes of all steps, so that a
/// merge with several threads wrote many small tables.
#[test]
fn parallel_merges_in_steps_write_whole_tables() {
    let table_bytes = 64 << 10;
    let sim = Sim::new(1);
    let system = sim.env();
    let threads = Arc::new(Parallel { inner: Arc::clone(&system.threads), processors: 8 });
    let env = umbel::Env { threads, ..system };
    let db = Db::open(PATH, Options { background_threads: 8, ..inline(&env) }).unwrap();
    let options = KeyspaceOptions {
        memtable_bytes: 4 << 20,
        table_bytes,
        level_bytes_base: 16 << 20,
        ..options()
    };
    let keyspace = db.keyspace("a", options).unwrap();
    let keys = 30_000;
    fill(&keyspace, 0..keys, 0);
    keyspace.compact(None, None).unwrap();
    for round in 1..5 {
        for index in (0..keys).step_by(10) {
            keyspace.put(key(index), value(index, round)).unwrap();
        }
        keyspace.compact(None, None).unwrap();
        let levels = keyspace.stats().levels;
        let last = levels.last().unwrap();
        let average = last.bytes / last.tables;
        assert!(average >= table_bytes * 4 / 5, "round {round}: {average} bytes a table");
    }
    drop(keyspace);
    db.close().unwrap();
}

/// Threads of an environment on a machine with a number of processors.
#[derive(Debug)]
struct Parallel {
    inner: Arc<dyn Threads>,
    processors: usize,
}

impl Threads for Parallel {
    fn spawn(&self, name: &str, work: Box<dyn FnOnce() + Send>) -> Result<Box<dyn JoinHandle>> {
        self.inner.spawn(name, work)
    }

    fn parallelism(&self) -> usize {
        self.processors
    }
}

/// Story: a merge that found the disk full between two steps was run again after space prepared for
/// the WAL was freed. It began with the first key again, and the store refused writes.
#[test]
fn merge_that_is_run_again_continues_after_its_last_step() {
    for sixteenths in 1..24 {
        let sim = Sim::new(1);
        let (db, keyspace, map) = store(&sim);
        let lower = keyspace.stats().levels[1..].iter().map(|level| level.bytes).sum::<u64>();
        // The cursor keeps the replaced files, so that each step needs more space.
        let mut cursor = keyspace.iter();
        cursor.next();
        sim.set_capacity(disk_bytes(&sim) + lower * sixteenths / 16);
        let ended = keyspace.compact(None, None);
        assert!(ended.is_ok() || matches!(ended, Err(Error::DiskFull { .. })), "{ended:?}");
        sim.clear_capacity();
        drop(cursor);
        check(&keyspace, &map, "after the full disk");
        keyspace.put("later", "write").unwrap();
        keyspace.delete("later").unwrap();
        keyspace.compact(None, None).unwrap();
        check(&keyspace, &map, "after the second compaction");
        drop(keyspace);
        db.close().unwrap();
    }
}

/// Story: a snapshot was dropped while a merge waited for disk space between two steps. Run again,
/// the merge removed a table whose first entries it had counted, and the store refused writes.
#[test]
fn merge_that_is_run_again_counts_a_newly_hidden_table_once() {
    let mut continued = 0;
    for at in (10..400).step_by(6) {
        let sim = Sim::new(1);
        let db = Db::open(PATH, inline(&sim.env())).unwrap();
        let large = KeyspaceOptions { memtable_bytes: 4 << 20, ..options() };
        let keyspace = db.keyspace("a", large).unwrap();
        fill(&keyspace, 0..KEYS, 0);
        keyspace.compact(None, None).unwrap();
        fill(&keyspace, 300..1400, 1);
        keyspace.flush().unwrap();
        let snapshot = Mutex::new(Some(db.snapshot()));
        keyspace.delete_range(key(299), key(1401)).unwrap();
        keyspace.flush().unwrap();
        let calls = sim.calls();
        sim.schedule_before_call(calls + at, |sim| sim.set_capacity(disk_bytes(sim)));
        sim.schedule_before_call(calls + at + 4, move |sim| {
            sim.clear_capacity();
            snapshot.lock().unwrap().take();
        });
        let ended = keyspace.compact(None, None);
        assert!(ended.is_ok() || matches!(ended, Err(Error::DiskFull { .. })), "{at}: {ended:?}");
        continued += usize::from(ended.is_ok() && sim.calls() > calls + at + 4);
        sim.clear_scheduled();
        sim.clear_capacity();
        keyspace.compact(None, None).unwrap();
        let left = (0..299).chain(1401..KEYS);
        check(&keyspace, &left.map(|at| (key(at), value(at, 0))).collect(), &at.to_string());
        drop(keyspace);
        db.close().unwrap();
    }
    assert!(continued > 0);
}

/// Story: a merge read all entries that a range delete hid, and removed their tables only after it
/// had written what was left before them. On a full disk there was no space for that.
#[test]
fn tables_that_a_range_delete_hides_are_removed_without_being_read() {
    for is_snapshot_held in [false, true] {
        let sim = Sim::new(1);
        let db = Db::open(PATH, inline(&sim.env())).unwrap();
        let keyspace = db.keyspace("a", options()).unwrap();
        fill(&keyspace, 0..KEYS, 0);
        keyspace.compact(None, None).unwrap();
        let snapshot = is_snapshot_held.then(|| db.snapshot());
        keyspace.delete_range(key(KEYS / 3), key(KEYS - 10)).unwrap();
        // In the middle of the range, so that one table is not hidden as a whole.
        keyspace.put(key(KEYS / 2), value(0, 1)).unwrap();
        keyspace.flush().unwrap();
        let mut map: Map = (0..KEYS).map(|index| (key(index), value(index, 0))).collect();
        let before = map.clone();
        map.retain(|it, _| *it < key(KEYS / 3) || *it >= key(KEYS - 10));
        map.insert(key(KEYS / 2), value(0, 1));
        let read =
            || keyspace.stats().levels.iter().map(|it| it.bytes_read_compaction).sum::<u64>();
        let (read_before, bytes) = (read(), table_bytes(&keyspace));
        keyspace.compact(None, None).unwrap();
        check(&keyspace, &map, "merged");
        let part = (read() - read_before) as f64 / bytes as f64;
        match snapshot {
            None => assert!(part < 0.5, "{part} of the bytes were read"),
            Some(snapshot) => {
                let seen: Map = keyspace.iter_at(&snapshot).unwrap().map(Result::unwrap).collect();
                assert_eq!(seen, before);
            }
        }
        check(&existing(&again(&sim.kill_image()), "a"), &map, "killed");
    }
}

fn table_bytes(keyspace: &Keyspace) -> u64 {
    keyspace.stats().levels.iter().map(|level| level.bytes).sum()
}
