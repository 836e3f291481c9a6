//! Tests of one memory budget that several stores share.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use umbel::{
    Db, Env, Error, FlushPrecondition, Keyspace, KeyspaceOptions, MemoryBudget, MemoryBudgetStats,
    Options,
};
use umbel_sim::{Fault, FaultKind, Random, Sim};

use super::child_process::{self, Watch};
use super::fixture::{all, fill, filled, key, unlogged, value};

const BUDGET_MIN: u64 = 6 << 20;
const MEBIBYTE: u64 = 1 << 20;

fn sharing(budget: &MemoryBudget, env: &Env, background_threads: usize) -> Options {
    let (memory_budget, env) = (Some(budget.clone()), env.clone());
    Options { memory_budget, env, background_threads, ..Options::default() }
}

fn open(budget: &MemoryBudget, sim: &Sim, name: &str) -> (Db, Keyspace) {
    let db = Db::open(format!("/data/{name}"), sharing(budget, &sim.env(), 0)).unwrap();
    let keyspace = db.keyspace("k", None).unwrap();
    (db, keyspace)
}

fn check_total(budget: &MemoryBudget) -> MemoryBudgetStats {
    let stats = budget.stats();
    let parts = stats.memtable_bytes
        + stats.memtable_held_bytes
        + stats.block_bytes
        + stats.spare_bytes
        + stats.table_bytes
        + stats.log_bytes
        + stats.compaction_bytes
        + stats.cursor_bytes
        + stats.store_bytes;
    assert_eq!(parts, stats.held_bytes);
    assert!(stats.held_bytes <= stats.budget_bytes / 10 * 11, "{stats}");
    stats
}

/// Limit of all memtables of a small budget, before some are frozen.
fn buffers(budget: u64) -> u64 {
    (budget - budget / 4 - 2 * MEBIBYTE) / 8
}

/// Makes the memtables of a store take most of the memtable limit of a 16 MiB budget.
fn fill_memtables(db: &Db) -> ([Keyspace; 2], usize) {
    let keyspaces = ["a", "b"].map(|name| db.keyspace(name, None).unwrap());
    let mut count = 0;
    while db.stats().memory.memtable_bytes < buffers(16 << 20) / 5 * 4 {
        keyspaces.iter().for_each(|keyspace| fill(keyspace, count..count + 10, 0));
        count += 10;
    }
    (keyspaces, count)
}

#[test]
fn options_contradicting_shared_budget_are_rejected() {
    for wrong in [0, 1, BUDGET_MIN - 1, u64::MAX] {
        let refused = MemoryBudget::new(wrong).unwrap_err().to_string();
        assert!(refused.contains(&format!("is {wrong} bytes")), "{refused}");
        assert!(refused.contains("must be 6291456 to"), "{refused}");
    }
    let budget = MemoryBudget::new(BUDGET_MIN).unwrap();
    let sim = Sim::new(1);
    let options = || sharing(&budget, &sim.env(), 0);
    let both = [
        ("memory_bytes", Options { memory_bytes: Some(64 << 20), ..options() }),
        ("cache_bytes", Options { cache_bytes: Some(1 << 20), ..options() }),
    ];
    for (name, options) in both {
        let refused = Db::open("/data/store", options).unwrap_err();
        assert!(matches!(refused, Error::Invalid(_)), "{refused:?}");
        let text = format!("memory_budget and {name} are both given");
        assert!(refused.to_string().contains(&text), "{refused}");
    }
    assert!(!sim.env().files.exists(Path::new("/data/store")).unwrap(), "nothing was created");
    assert_eq!(budget.stats().stores, 0);
    let db = Db::open("/data/store", Options { env: sim.env(), ..Options::default() }).unwrap();
    assert_eq!(db.stats().memory.shared, None, "by default a store has a budget of its own");
}

#[test]
fn store_over_budget_is_rejected_with_remedy() {
    let (sim, budget) = (Sim::new(1), MemoryBudget::new(BUDGET_MIN).unwrap());
    let limit = budget.stats().stores_max;
    let open = |budget: &MemoryBudget, number: usize| {
        Db::open(format!("/data/{number}"), sharing(budget, &sim.env(), 0))
    };
    let mut stores: Vec<Db> = (0..limit).map(|number| open(&budget, number).unwrap()).collect();
    let refused = open(&budget, limit).unwrap_err();
    assert!(matches!(refused, Error::Invalid(_)), "{refused:?}");
    let text = refused.to_string();
    let expected = format!("{limit} stores are open with a memory_budget of {BUDGET_MIN} bytes");
    assert!(text.contains(&expected) && text.contains("close one of them"), "{text}");
    assert!(!sim.env().files.exists(Path::new(&format!("/data/{limit}"))).unwrap());
    assert_eq!(budget.stats().stores, limit);
    // Either remedy helps.
    stores.pop();
    stores.push(open(&budget, limit).unwrap());
    let (_, needed) = text.split_once("make a budget of ").unwrap();
    let needed: u64 = needed.split(' ').next().unwrap().parse().unwrap();
    assert_eq!(MemoryBudget::new(needed).unwrap().stats().stores_max, limit + 1);
    assert_eq!(MemoryBudget::new(needed - 4).unwrap().stats().stores_max, limit);
    drop(stores);
    assert_eq!(budget.stats().stores, 0);
}

#[test]
fn shares_of_stores_sum_within_the_budget() {
    let (sim, budget) = (Sim::new(1), MemoryBudget::new(8 << 20).unwrap());
    let stores: Vec<_> = (0..5).map(|number| open(&budget, &sim, &number.to_string())).collect();
    let mut random = Random::new(3);
    let mut cursors = Vec::new();
    for step in 0..60_000 {
        let (_, keyspace) = &stores[random.below_usize(stores.len())];
        let number = random.below_usize(20_000);
        match random.below_usize(1000) {
            0 => cursors.push(keyspace.cursor::<&[u8]>(..).unwrap()),
            1..600 => keyspace.put(key(number), value(number, 0)).unwrap(),
            _ => {
                let found = keyspace.get(key(number)).unwrap();
                assert!(found.is_none_or(|found| found == value(number, 0)));
            }
        }
        cursors.truncate(2);
        if step % 500 == 0 {
            let stats = check_total(&budget);
            assert!(stats.memtable_bytes <= 2 * buffers(8 << 20), "{stats}");
            let memory = stores[0].0.stats().memory;
            assert_eq!(memory.budget_bytes, 8 << 20);
            assert_eq!(memory.shared.unwrap().stores, 5);
        }
    }
    let text = stores[0].0.stats().to_string();
    assert!(text.contains("shared by 5 stores"), "{text}");
}

/// Only one writer is busy; another store is idle and holds nearly all memory for memtables.
#[test]
fn idle_store_yields_its_large_memtable() {
    let (sim, budget) = (Sim::new(1), MemoryBudget::new(16 << 20).unwrap());
    let (idle, _) = open(&budget, &sim, "idle");
    let (_busy, busy_keys) = open(&budget, &sim, "busy");
    let (idle_keys, count) = fill_memtables(&idle);
    let frozen = || idle_keys.each_ref().map(|keyspace| keyspace.stats().frozen_memtables);
    assert_eq!(frozen(), [0, 0]);
    fill(&busy_keys, 0..5_000, 0);
    // Without threads they are flushed at the next write.
    assert_eq!(frozen(), [1, 1], "{}", budget.stats());
    fill(&idle_keys[0], 0..1, 0);
    assert_eq!(frozen(), [0, 0], "{}", budget.stats());
    assert!(idle.stats().memory.memtable_bytes < 64 << 10);
    idle_keys.iter().for_each(|keyspace| assert_eq!(all(keyspace), filled(0..count, 0)));
    check_total(&budget);
}

#[test]
fn idle_store_with_threads_flushes_for_others() {
    let (sim, budget) = (Sim::new(1), MemoryBudget::new(16 << 20).unwrap());
    let idle = Db::open("/data/idle", sharing(&budget, &sim.env(), 1)).unwrap();
    let (keyspaces, count) = fill_memtables(&idle);
    let (_busy, busy_keys) = open(&budget, &sim, "busy");
    fill(&busy_keys, 0..5_000, 0);
    idle.wait_for_compaction().unwrap();
    let stats = idle.stats();
    assert!(stats.memory.memtable_bytes < 64 << 10, "{stats}");
    keyspaces.iter().for_each(|keyspace| assert_eq!(all(keyspace), filled(0..count, 0)));
    check_total(&budget);
}

#[test]
fn idle_store_yields_its_open_tables() {
    let (sim, budget) = (Sim::new(1), MemoryBudget::new(BUDGET_MIN).unwrap());
    let options = KeyspaceOptions {
        // Indexes as large as those of a far larger store.
        block_bytes: 128,
        bloom_bits: 100,
        table_bytes: 64 << 10,
        ..KeyspaceOptions::default()
    };
    let [idle, busy] = ["idle", "busy"].map(|name| {
        let db = Db::open(format!("/data/{name}"), sharing(&budget, &sim.env(), 0)).unwrap();
        let keyspace = db.keyspace("k", options.clone()).unwrap();
        fill(&keyspace, 0..40_000, 0);
        db.flush().unwrap();
        (db, keyspace)
    });
    let read = |keyspace: &Keyspace| {
        for number in (0..40_000).step_by(7) {
            assert_eq!(keyspace.get(key(number)).unwrap(), Some(value(number, 0)));
        }
    };
    read(&idle.1);
    let before = idle.0.stats().memory;
    read(&busy.1);
    let after = idle.0.stats().memory;
    assert!(after.tables_closed > before.tables_closed, "{before}\n{after}");
    let stats = check_total(&budget);
    assert!(stats.table_bytes < BUDGET_MIN / 2, "{stats}");
    read(&idle.1);
    check_total(&budget);
}

#[test]
fn shared_budget_keeps_limits_of_own_options() {
    let (sim, budget) = (Sim::new(1), MemoryBudget::new(64 << 20).unwrap());
    let bounded =
        Options { write_buffer_total_bytes: Some(256 << 10), ..sharing(&budget, &sim.env(), 0) };
    let db = Db::open("/data/bounded", bounded).unwrap();
    let keyspace = db.keyspace("k", None).unwrap();
    let mut max_bytes = 0;
    for number in 0..5_000 {
        fill(&keyspace, number..number + 1, 0);
        max_bytes = max_bytes.max(db.stats().memory.memtable_bytes);
    }
    assert!((200 << 10..520 << 10).contains(&max_bytes), "{max_bytes}");
}

/// Many threads write concurrently to stores of the smallest budget, with a large memtable in each.
#[test]
fn writers_in_many_stores_do_not_deadlock() {
    let folder = tempfile::tempdir().unwrap();
    let budget = MemoryBudget::new(BUDGET_MIN).unwrap();
    std::thread::scope(|scope| {
        for store in 0..8 {
            let (path, budget) = (folder.path().join(store.to_string()), &budget);
            scope.spawn(move || {
                let options = sharing(budget, &Env::system(), store % 3);
                let db = Db::open(path, options).unwrap();
                let keyspace = db.keyspace("k", None).unwrap();
                for round in 0..3 {
                    fill(&keyspace, 0..6_000, round);
                    db.wait_for_compaction().unwrap();
                }
                assert_eq!(all(&keyspace), filled(0..6_000, 2));
                db.close().unwrap();
            });
        }
    });
    let stats = budget.stats();
    assert_eq!((stats.stores, stats.memtable_bytes, stats.compaction_bytes), (0, 0, 0), "{stats}");
}

#[test]
fn closed_store_has_no_share_but_its_handles_count() {
    let (sim, budget) = (Sim::new(1), MemoryBudget::new(64 << 20).unwrap());
    let before = budget.stats();
    assert_eq!((before.stores, before.held_bytes), (0, 0));
    let (db, keyspace) = open(&budget, &sim, "closed");
    fill(&keyspace, 0..20_000, 0);
    db.flush().unwrap();
    fill(&keyspace, 0..5_000, 1);
    (0..20_000).step_by(9).for_each(|number| drop(keyspace.get(key(number)).unwrap()));
    let open_stats = check_total(&budget);
    assert!(open_stats.memtable_bytes > 500 << 10 && open_stats.block_bytes > 0, "{open_stats}");
    db.clone().close().unwrap();
    let closed = check_total(&budget);
    assert_eq!((closed.stores, closed.memtable_bytes, closed.log_bytes), (0, 0, 0), "{closed}");
    assert!(closed.memtable_held_bytes > 500 << 10, "the handle keeps them: {closed}");
    assert!(closed.table_bytes < open_stats.table_bytes, "{closed}");
    // Another store has all of the budget.
    let (other, keys) = open(&budget, &sim, "other");
    fill(&keys, 0..2_000, 0);
    assert_eq!(keys.stats().frozen_memtables + keys.stats().levels[0].tables as usize, 0);
    drop((db, keyspace, other, keys));
    let after_drop = budget.stats();
    assert_eq!(MemoryBudgetStats { spare_bytes: 0, held_bytes: 0, ..after_drop.clone() }, before);
    assert!(after_drop.spare_bytes <= 4 * MEBIBYTE, "{after_drop}");
}

/// A flush failed fatally: the memtables of that store stay in memory for as long as it is open.
#[test]
fn failed_store_has_no_share_and_blocks_no_other() {
    for threads in [0, 1] {
        let (sim, budget) = (Sim::new(1), MemoryBudget::new(16 << 20).unwrap());
        let db = Db::open("/data/failed", sharing(&budget, &sim.env(), threads)).unwrap();
        let (failed, count) = fill_memtables(&db);
        sim.fail_site("write *.table", 1, Fault { kind: FaultKind::Eio, sticky: false });
        assert!(db.flush().is_err());
        assert!(db.stats().read_only_reason.is_some());
        let (_other, keys) = open(&budget, &sim, "other");
        for round in 0..3 {
            fill(&keys, 0..10_000, round);
        }
        assert_eq!(all(&keys), filled(0..10_000, 2));
        let stats = check_total(&budget);
        assert!(stats.memtable_held_bytes > buffers(16 << 20) / 2, "{stats}");
        assert!(failed[0].put(b"a", b"b").is_err());
        assert_eq!(all(&failed[1]), filled(0..count, 0), "it can be read");
    }
}

/// The device of one store hangs in a flush that has the only slot.
#[test]
fn hanging_flush_blocks_no_other_store() {
    let (sim, budget) = (Sim::new(1), MemoryBudget::new(BUDGET_MIN).unwrap());
    let (release, hangs) = mpsc::channel::<()>();
    let (hangs, is_in_it) = (Mutex::new(hangs), Arc::new(AtomicBool::new(false)));
    let seen = Arc::clone(&is_in_it);
    let gate = FlushPrecondition::new(move || {
        seen.store(true, Ordering::SeqCst);
        // It ends when the sender is dropped.
        let _ = hangs.lock().unwrap().recv();
        Ok(())
    });
    let options = Options { before_flush: Some(gate), ..sharing(&budget, &sim.env(), 1) };
    let hanging = Db::open("/data/stuck", options).unwrap();
    let options = KeyspaceOptions { memtable_bytes: 32 << 10, ..unlogged() };
    let hanging_keys = hanging.keyspace("k", options).unwrap();
    let mut count = 0;
    while !is_in_it.load(Ordering::SeqCst) {
        // Not enough to stall its own writers.
        if hanging_keys.stats().frozen_memtables < 2 {
            fill(&hanging_keys, count..count + 1, 0);
            count += 1;
        }
    }
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let db = Db::open("/data/other", sharing(&budget, &sim.env(), 2)).unwrap();
            let keyspace = db.keyspace("k", None).unwrap();
            fill(&keyspace, 0..20_000, 0);
            db.wait_for_compaction().unwrap();
            assert_eq!(all(&keyspace), filled(0..20_000, 0));
            is_done.store(true, Ordering::SeqCst);
        });
        while !is_done.load(Ordering::SeqCst) {
            sim.advance(Duration::from_millis(100));
            std::thread::yield_now();
        }
    });
    drop(release);
    hanging.wait_for_compaction().unwrap();
    assert_eq!(all(&hanging_keys), filled(0..count, 0));
}

/// Stores that were killed with large WALs are opened together.
#[test]
fn replay_of_several_stores_stays_within_budget() {
    let sim = Sim::new(1);
    for store in 0..4 {
        let options = Options { background_threads: 0, env: sim.env(), ..Options::default() };
        let db = Db::open(format!("/data/{store}"), options).unwrap();
        fill(&db.keyspace("k", None).unwrap(), 0..10_000, store);
        std::mem::forget(db);
    }
    let sim = sim.kill_image();
    let budget = MemoryBudget::new(8 << 20).unwrap();
    let stores: Vec<_> =
        (0..4).map(|store: usize| open(&budget, &sim, &store.to_string())).collect();
    let stats = check_total(&budget);
    assert!(stats.memtable_bytes <= 2 * buffers(8 << 20), "{stats}");
    for (store, (_, keyspace)) in stores.iter().enumerate() {
        assert_eq!(all(keyspace), filled(0..10_000, store));
    }
    check_total(&budget);
}

#[test]
#[cfg(target_os = "linux")]
fn forked_child_cannot_use_the_budget() {
    use umbel_env::test_processes::{in_forked_child, in_own_process};
    let name = "suite::shared_budget::forked_child_cannot_use_the_budget";
    in_own_process(name, || {
        let folder = tempfile::tempdir().unwrap();
        let budget = MemoryBudget::new(BUDGET_MIN).unwrap();
        let _db = Db::open(folder.path().join("a"), sharing(&budget, &Env::system(), 1)).unwrap();
        in_forked_child(|| {
            assert_eq!(budget.stats(), MemoryBudgetStats::default());
            let options = sharing(&budget, &Env::system(), 0);
            let refused = Db::open(folder.path().join("b"), options).unwrap_err().to_string();
            assert!(refused.contains("MemoryBudget::new after the fork"), "{refused}");
        });
        assert_eq!(budget.stats().stores, 1);
    });
}

/// Opens, fills and reads many stores of one budget, and measures the process.
#[test]
#[ignore = "runs in a process of its own"]
fn many_stores_in_a_child() {
    let Some(argument) = child_process::argument() else { return };
    let numbers: Vec<u64> = argument.split(' ').map(|word| word.parse().unwrap()).collect();
    let [mebibytes, count, threads, keys] = numbers[..] else { panic!("{argument}") };
    let folder = tempfile::tempdir().unwrap();
    let before = child_process::resident_bytes();
    let watch = Watch::start();
    let budget = MemoryBudget::new(mebibytes << 20).unwrap();
    let open = |number: u64| {
        let options = sharing(&budget, &Env::system(), threads as usize);
        let db = Db::open(folder.path().join(number.to_string()), options).unwrap();
        let keyspace = db.keyspace("k", None).unwrap();
        (db, keyspace)
    };
    let stores: Vec<_> = (0..count).map(open).collect();
    let opened = child_process::resident_bytes();
    let (keys, mut counted) = (keys as usize, 0);
    for part in 0..8 {
        for (_, keyspace) in &stores {
            fill(keyspace, keys * part / 8..keys * (part + 1) / 8, 0);
        }
        counted = counted.max(budget.stats().held_bytes);
    }
    // And one of them far more than the others.
    fill(&stores[0].1, 0..keys * 50, 1);
    let filled_bytes = watch.max_bytes();
    counted = counted.max(budget.stats().held_bytes);
    let mut random = Random::new(5);
    for number in 0..50_000 {
        let store = random.below_usize(stores.len());
        let wanted = random.below_usize(keys);
        let round = usize::from(store == 0);
        assert_eq!(stores[store].1.get(key(wanted)).unwrap(), Some(value(wanted, round)));
        if number % 5_000 == 0 {
            counted = counted.max(budget.stats().held_bytes);
        }
    }
    let mib = |bytes: u64| bytes as f64 / MEBIBYTE as f64;
    println!("{}", budget.stats());
    println!(
        "{mebibytes} MiB, {count} stores of {threads} threads, {keys} keys each: counted {:.1} \
         MiB; resident {:.1} MiB before, {:.1} opened ({:.1} KiB a store), {:.1} filled, {:.1} in \
         all",
        mib(counted),
        mib(before),
        mib(opened),
        (opened - before) as f64 / 1024.0 / count as f64,
        mib(filled_bytes),
        mib(watch.max_bytes())
    );
    let limit = (mebibytes << 20) / 10 * 11;
    assert!(counted <= limit, "{counted} were counted");
    assert!(watch.max_bytes() <= limit + (16 << 20), "{} are resident", watch.max_bytes());
}

#[test]
fn hundreds_of_stores_stay_within_one_small_budget() {
    if cfg!(target_os = "linux") {
        let name = "suite::shared_budget::many_stores_in_a_child";
        print!("{}", child_process::run(name, "64 160 2 400", ""));
    }
}

/// Compactions of one store wait for their slot while other stores are written to without a pause.
#[test]
fn wait_for_compaction_ends_while_others_compact() {
    let folder = tempfile::tempdir().unwrap();
    let budget = MemoryBudget::new(BUDGET_MIN).unwrap();
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let open = |name: &str| {
            let options = sharing(&budget, &Env::system(), 2);
            let db = Db::open(folder.path().join(name), options).unwrap();
            let keyspace = db.keyspace("k", None).unwrap();
            (db, keyspace)
        };
        for name in ["a", "b", "c"] {
            let (_db, keyspace) = open(name);
            let ends = &ends;
            scope.spawn(move || {
                let mut round = 0;
                while !ends.load(Ordering::Relaxed) {
                    fill(&keyspace, 0..1_000, round);
                    round += 1;
                }
                drop(_db);
            });
        }
        let (db, keyspace) = open("waits");
        for round in 0..3 {
            fill(&keyspace, 0..4_000, round);
            db.wait_for_compaction().unwrap();
        }
        ends.store(true, Ordering::Relaxed);
        assert_eq!(all(&keyspace), filled(0..4_000, 2));
    });
}
