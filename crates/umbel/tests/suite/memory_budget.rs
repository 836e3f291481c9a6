//! Tests of one store with a memory budget and few file descriptors.

use umbel::{Db, Iter, Keyspace, KeyspaceOptions, MemoryStats, Options};
use umbel_sim::Random;

use super::child_process::{self, Watch};

/// Memory of a test process besides the store: code, stacks, and freed memory that the allocator
/// keeps.
const OVERHEAD_BYTES: u64 = 16 << 20;

fn key(number: u64) -> [u8; 16] {
    let mixed = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut key = [0; 16];
    key[..8].copy_from_slice(&(mixed ^ (mixed >> 29)).to_be_bytes());
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

fn value(number: u64, round: u64) -> Vec<u8> {
    Random::new(number ^ (round << 40)).bytes(100)
}

fn check_total(db: &Db) -> MemoryStats {
    let stats = db.stats();
    let memory = stats.memory.clone();
    let parts = memory.memtable_bytes
        + memory.memtable_held_bytes
        + memory.block_bytes
        + memory.spare_bytes
        + memory.table_bytes
        + memory.log_bytes
        + memory.compaction_bytes
        + memory.cursor_bytes;
    assert_eq!(parts, memory.held_bytes);
    let memtables: u64 = stats.keyspaces.iter().map(|keyspace| keyspace.memtable_bytes).sum();
    assert_eq!(memtables, memory.memtable_bytes);
    assert!(memory.block_bytes >= stats.cache_bytes);
    assert!(stats.cache_capacity <= memory.budget_bytes);
    assert!(memory.held_bytes <= memory.budget_bytes / 10 * 11, "{stats}");
    memory
}

fn small(memory_bytes: u64) -> Options {
    Options { memory_bytes: Some(memory_bytes), background_threads: 0, ..Options::default() }
}

fn fill(keyspace: &Keyspace, numbers: std::ops::Range<u64>, round: u64) {
    numbers.for_each(|number| keyspace.put(key(number), value(number, round)).unwrap());
}

fn check(keyspace: &Keyspace, number: u64, round: u64) {
    assert_eq!(keyspace.get(key(number)).unwrap(), Some(value(number, round)), "{number}");
}

#[test]
fn invalid_budget_is_rejected_with_the_minimum() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    for wrong in [0, 1, (6 << 20) - 1] {
        let refused = Db::open(&path, small(wrong)).unwrap_err().to_string();
        assert!(refused.contains(&format!("memory_bytes is {wrong}")), "{refused}");
    }
    let refused = Db::open(&path, small(1 << 20)).unwrap_err().to_string();
    assert!(refused.contains("the least that works is 6291456"), "{refused}");
    let finer = Options { cache_bytes: Some(64 << 20), ..small(32 << 20) };
    let refused = Db::open(&path, finer).unwrap_err().to_string();
    assert!(refused.contains("are part of it, is 73400320"), "{refused}");
    assert!(!path.exists(), "nothing was created");
    let much = Db::open(&path, small(1 << 45)).unwrap();
    assert!(much.stats().memory.exceeds_machine);
    assert!(much.stats().to_string().contains("larger than the"), "{}", much.stats());
    drop(much);
    let least = Db::open(&path, small(6 << 20)).unwrap();
    let keyspace = least.keyspace("k", None).unwrap();
    fill(&keyspace, 0..20_000, 0);
    (0..20_000).step_by(7).for_each(|number| check(&keyspace, number, 0));
    check_total(&least);
}

#[test]
fn memory_parts_always_sum_to_the_total() {
    let folder = tempfile::tempdir().unwrap();
    let db = Db::open(folder.path(), small(8 << 20)).unwrap();
    let names = ["a", "b", "c"];
    let keyspaces = names.map(|name| db.keyspace(name, None).unwrap());
    let mut random = Random::new(7);
    let mut cursors = Vec::new();
    let mut snapshots = Vec::new();
    for step in 0..60_000 {
        let keyspace = &keyspaces[random.below_usize(3)];
        let number = random.next() % 30_000;
        match random.below_usize(1000) {
            0 => cursors.push(keyspace.cursor::<&[u8]>(..).unwrap()),
            1 => snapshots.push(db.snapshot()),
            2 if !cursors.is_empty() => drop(cursors.swap_remove(0)),
            3 => snapshots.clear(),
            4 => keyspace.delete_range(key(number), key(number + 1)).unwrap_or_default(),
            5..500 => keyspace.put(key(number), value(number, step)).unwrap(),
            _ => drop(keyspace.get(key(number)).unwrap()),
        }
        cursors.truncate(2);
        if step % 500 == 0 {
            let memory = check_total(&db);
            let held = db.stats().readers.held_memtable_bytes;
            assert_eq!(held, memory.memtable_held_bytes);
        }
    }
    drop((cursors, snapshots));
    let stats = db.stats();
    let readers = &stats.readers;
    let held = (readers.cursors_behind, readers.held_memtable_bytes, readers.held_tables);
    assert_eq!(held, (0, 0, 0), "no reader holds memory");
    assert_eq!(stats.memory.compaction_bytes, 0);
    db.flush().unwrap();
    assert!(db.stats().memory.memtable_bytes < 64 << 10);
}

/// Story: each of a thousand iterators kept one block of every level in memory. These blocks took
/// 17 MB in addition to a budget of 16 MiB, and no statistic counted them.
#[test]
fn thousand_iterators_stay_within_budget_and_correct() {
    let folder = tempfile::tempdir().unwrap();
    let db = Db::open(folder.path(), small(16 << 20)).unwrap();
    let keyspace = db.keyspace("k", None).unwrap();
    // Several times the budget, so that the current blocks of iterators are evicted.
    (0..8).for_each(|round| fill(&keyspace, round * 40_000..(round + 2) * 40_000, round));
    let mut keys: Vec<_> = (0..360_000).map(key).collect();
    keys.sort_unstable();
    let places: Vec<_> = (0..1000).map(|number| number * 359).collect();
    let mut iterators: Vec<_> = places.iter().map(|at| keyspace.range(keys[*at]..)).collect();
    let ends: Vec<_> = places.iter().map(|at| keyspace.range(..keys[at + 1])).collect();
    let open = |iterator: &mut Iter, at: usize| {
        let (found, _) = iterator.next().unwrap().unwrap();
        assert_eq!(found, keys[at]);
    };
    for (iterator, at) in iterators.iter_mut().zip(&places) {
        open(iterator, *at);
    }
    let memory = check_total(&db);
    assert!(memory.cursors_park, "{memory}");
    assert!(memory.cursor_bytes > 1000 * 1000, "each is counted: {memory}");
    // Blocks take an eighth of the budget at most, plus the iterators themselves.
    assert!(memory.cursor_bytes < 8 << 20, "they park: {memory}");
    for (mut end, at) in ends.into_iter().zip(&places) {
        for step in 0..3.min(at + 1) {
            let (found, _) = end.next_back().unwrap().unwrap();
            assert_eq!(found, keys[at - step]);
        }
    }
    // Concurrent writes are acknowledged and not visible.
    fill(&keyspace, 0..40_000, 9);
    check_total(&db);
    for (iterator, at) in iterators.iter_mut().zip(&places) {
        for step in 1..4 {
            let (found, held) = iterator.next().unwrap().unwrap();
            assert_eq!(found, keys[at + step]);
            let number = u64::from_be_bytes(*held_number(&found));
            assert_ne!(held, value(number, 9), "it was written later");
        }
    }
    check_total(&db);
    drop(iterators);
    let memory = check_total(&db);
    assert!(!memory.cursors_park && memory.cursor_bytes < 64 << 10, "{memory}");
    (0..40_000).step_by(97).for_each(|number| check(&keyspace, number, 9));
}

fn held_number(key: &[u8]) -> &[u8; 8] {
    key.last_chunk().expect("a key of 16 bytes")
}

#[test]
fn large_tables_close_readers_and_fold_filters() {
    let folder = tempfile::tempdir().unwrap();
    let db = Db::open(folder.path(), small(6 << 20)).unwrap();
    // Small blocks make indexes as large as those of a far larger store.
    let options = KeyspaceOptions { block_bytes: 128, bloom_bits: 200, ..Default::default() };
    let keyspace = db.keyspace("k", options).unwrap();
    fill(&keyspace, 0..80_000, 0);
    let snapshot = db.snapshot();
    let mut cursor = keyspace.cursor::<&[u8]>(..).unwrap();
    fill(&keyspace, 0..10_000, 1);
    let mut random = Random::new(3);
    for _ in 0..3_000 {
        let number = random.next() % 80_000;
        check(&keyspace, number, u64::from(number < 10_000));
        assert_eq!(keyspace.get(key(number + 80_000)).unwrap(), None);
        assert_eq!(keyspace.get_at(&snapshot, key(number)).unwrap(), Some(value(number, 0)));
    }
    let stats = db.stats();
    assert!(stats.memory.tables_closed > 0, "{stats}");
    assert!(stats.memory.indexes_paged > 0, "{stats}");
    assert!(stats.memory.filters_folded + stats.memory.filters_left_out > 0, "{stats}");
    assert_eq!((stats.readers.snapshots, stats.readers.cursors_behind > 0), (1, true), "{stats}");
    assert!(stats.readers.held_table_bytes > 0, "{stats}");
    // The cursor sees its original state.
    let mut seen = 0;
    cursor.seek_to_first().unwrap();
    while cursor.valid() {
        seen += 1;
        cursor.next().unwrap();
    }
    assert_eq!(seen, 80_000);
    drop((cursor, snapshot));
    keyspace.compact(None, None).unwrap();
    (0..80_000).step_by(11).for_each(|number| check(&keyspace, number, u64::from(number < 10_000)));
    check_total(&db);
}

#[test]
fn few_table_files_stay_open() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options { open_tables_max: Some(4), ..small(64 << 20) };
    let db = Db::open(folder.path(), options).unwrap();
    let options = KeyspaceOptions {
        memtable_bytes: 32 << 10,
        table_bytes: 32 << 10,
        level_bytes_base: 128 << 10,
        ..Default::default()
    };
    let keyspace = db.keyspace("k", options).unwrap();
    for round in 0..3 {
        fill(&keyspace, 0..8_000, round);
        (0..8_000).step_by(3).for_each(|number| check(&keyspace, number, round));
        assert!(db.stats().descriptors.open_tables <= 4);
    }
    let tables: u64 = db.stats().keyspaces[0].levels.iter().map(|level| level.tables).sum();
    assert!(tables > 12, "{tables}");
    assert!(db.stats().descriptors.reopened > 10, "{}", db.stats());
}

/// Fills a store with a budget until it holds far more data, reads all of it, and measures the
/// process.
#[test]
#[ignore = "runs in a process of its own"]
fn resident_memory_in_a_child() {
    let Some(argument) = child_process::argument() else { return };
    let numbers: Vec<u64> = argument.split(' ').map(|word| word.parse().unwrap()).collect();
    let [mebibytes, keys, threads, gets] = numbers[..] else { panic!("{argument}") };
    let folder = tempfile::tempdir().unwrap();
    let watch = Watch::start();
    let options = Options {
        memory_bytes: Some(mebibytes << 20),
        background_threads: threads as usize,
        ..Options::default()
    };
    let db = Db::open(folder.path(), options).unwrap();
    let keyspace = db.keyspace("k", None).unwrap();
    let mut counted = 0;
    for number in 0..keys {
        keyspace.put(key(number), value(number, 0)).unwrap();
        if number % 20_000 == 0 {
            counted = counted.max(db.stats().memory.held_bytes);
        }
    }
    let filled = watch.max_bytes();
    db.wait_for_compaction().unwrap();
    let mut random = Random::new(5);
    for number in 0..gets {
        let wanted = random.next() % keys;
        check(&keyspace, wanted, 0);
        assert_eq!(keyspace.get(key(keys + wanted)).unwrap(), None);
        if number % 5_000 == 0 {
            counted = counted.max(db.stats().memory.held_bytes);
        }
    }
    let mut cursor = keyspace.cursor::<&[u8]>(..).unwrap();
    let mut seen = 0;
    cursor.seek_to_first().unwrap();
    while cursor.valid() {
        seen += 1;
        cursor.next().unwrap();
    }
    assert_eq!(seen, keys);
    drop(cursor);
    counted = counted.max(db.stats().memory.held_bytes);
    let (budget, resident) = (mebibytes << 20, watch.max_bytes());
    println!("{}", db.stats());
    println!(
        "budget {mebibytes} MiB, {keys} keys: counted {:.1} MiB, resident {:.1} MiB while filled, \
         {:.1} MiB in all",
        counted as f64 / 1048576.0,
        filled as f64 / 1048576.0,
        resident as f64 / 1048576.0
    );
    assert!(counted <= budget / 10 * 11, "{counted} were counted");
    assert!(resident <= budget / 10 * 11 + OVERHEAD_BYTES, "{resident} are resident");
}

const RESIDENT: &str = "suite::memory_budget::resident_memory_in_a_child";

#[test]
fn resident_memory_stays_within_a_small_budget() {
    if cfg!(target_os = "linux") {
        print!("{}", child_process::run(RESIDENT, "8 250000 2 20000", ""));
    }
}

#[test]
#[ignore = "takes long"]
fn resident_memory_stays_within_larger_budgets() {
    for argument in ["8 2000000 2 100000", "64 5000000 2 200000", "512 10000000 2 500000"] {
        print!("{}", child_process::run(RESIDENT, argument, ""));
    }
}

/// A store in a process that may open few files.
#[test]
#[ignore = "runs in a process of its own"]
fn few_descriptors_in_a_child() {
    let Some(_) = child_process::argument() else { return };
    let folder = tempfile::tempdir().unwrap();
    let db = Db::open(folder.path(), Options::default()).unwrap();
    let options = KeyspaceOptions {
        memtable_bytes: 64 << 10,
        table_bytes: 16 << 10,
        level_bytes_base: 64 << 10,
        ..Default::default()
    };
    let keyspace = db.keyspace("k", options).unwrap();
    let mut taken = Vec::new();
    for round in 0..3 {
        for number in 0..12_000 {
            // Occasionally the program around the store takes every descriptor.
            if number % 4_000 == 2_000 {
                while let Ok(file) = std::fs::File::open("/dev/null") {
                    taken.push(file);
                }
            }
            if number % 4_000 == 2_400 {
                taken.clear();
            }
            // A failed write is not lost: it was not acknowledged, and may be retried.
            while let Err(error) = keyspace.put(key(number), value(number, round)) {
                assert!(error.is_out_of_descriptors(), "{error}");
                taken.pop();
            }
        }
        taken.clear();
        (0..12_000).for_each(|number| check(&keyspace, number, round));
    }
    db.flush().unwrap();
    db.wait_for_compaction().unwrap();
    let stats = db.stats();
    let tables: u64 = stats.keyspaces[0].levels.iter().map(|level| level.tables).sum();
    println!("{tables} tables\n{stats}");
    assert!(tables > 60, "{stats}");
    assert_eq!(stats.read_only_reason, None);
    assert_eq!(stats.descriptors.postponed_work, None);
    assert!(stats.descriptors.reopened > 0, "{stats}");
    db.close().unwrap();
    let db = Db::open(folder.path(), Options::default()).unwrap();
    let keyspace = db.keyspace("k", None).unwrap();
    (0..12_000).for_each(|number| check(&keyspace, number, 2));
}

#[test]
fn works_with_few_descriptors() {
    let name = "suite::memory_budget::few_descriptors_in_a_child";
    print!("{}", child_process::run(name, "few", "ulimit -n 48"));
}

#[test]
fn versions_kept_by_snapshots_only_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let db = Db::open(folder.path(), small(64 << 20)).unwrap();
    let keyspace = db.keyspace("k", None).unwrap();
    let kept = |db: &Db| {
        let readers = db.stats().readers;
        (readers.versions_kept, readers.version_bytes_kept)
    };
    fill(&keyspace, 0..300, 0);
    fill(&keyspace, 0..100, 1);
    db.flush().unwrap();
    assert_eq!(kept(&db), (0, 0), "no reader needs the older versions");
    let snapshot = db.snapshot();
    fill(&keyspace, 0..100, 2);
    keyspace.compact(None, None).unwrap();
    assert_eq!(kept(&db), (100, 100 * 116));
    let stats = db.stats();
    let levels = &stats.keyspaces[0].levels;
    assert_eq!(levels.iter().map(|level| level.compaction_versions_kept).sum::<u64>(), 100);
    assert!(stats.to_string().contains("100 older versions of 0.0 MiB"), "{stats}");
    drop(snapshot);
    keyspace.compact(None, None).unwrap();
    assert_eq!(kept(&db), (100, 100 * 116), "none more");
    let says_so = stats.to_string().contains("no huge pages");
    assert_eq!(says_so, stats.memory.huge_pages == Some(false));
}
