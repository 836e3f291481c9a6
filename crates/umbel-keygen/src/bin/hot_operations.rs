//! Measures one hot operation, by time or by the number of instructions:
//!
//! ```text
//! hot_operations fill FOLDER SHAPE KEYS             writes a store: three levels, blocks in order
//! hot_operations time FOLDER SHAPE KEYS [ROUNDS]    ns of each operation, medians of the rounds
//! hot_operations count FOLDER SHAPE KEYS OPERATION OPERATIONS
//! hot_operations advised FOLDER SHAPE KEYS WORKLOAD plain|advised GETS
//! ```
//!
//! `count` warms up and then runs the operation inside [`measured`] only, for `valgrind
//! --tool=callgrind --toggle-collect='*hot*measured*'`. The cost of key generation shows as the
//! operation `nothing`. `advised` runs the gets of a workload for the same tool, as many before
//! [`measured`] as inside, with the advisor off or on. The advisor decides as often as it would in
//! the background.
#![forbid(unsafe_code)]

use std::hint::black_box;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use umbel::{Db, Error, Keyspace, KeyspaceOptions, Options, Result};
use umbel_keygen::keys::{KeySet, KeyShape, Random};
use umbel_keygen::zipfian;

const USAGE: &str = "\
hot_operations fill FOLDER SHAPE KEYS
hot_operations time FOLDER SHAPE KEYS [ROUNDS]
hot_operations count FOLDER SHAPE KEYS OPERATION OPERATIONS
hot_operations advised FOLDER SHAPE KEYS WORKLOAD plain|advised GETS
workloads: uniform zipfian hits misses turning
shapes: random decimal path url category-id
operations: nothing hit missing hot half multi-hit multi-missing seek scan put
            and, counted only, flush compact";

/// Number of keys that the hot reads cycle through.
const HOT_KEYS: u64 = 10_000;
/// Number of keys of one `multi_get`.
const TOGETHER: usize = 32;
/// Number of tables of one compaction.
const TABLES: usize = 4;
/// Number of operations of a timed round.
const ROUND: u64 = 200_000;
const VALUE_BYTES: usize = 100;
/// Every operation that is timed.
const OPERATIONS: [Operation; 10] = [
    Operation::Nothing,
    Operation::Hit,
    Operation::Missing,
    Operation::Hot,
    Operation::Half,
    Operation::MultiHit,
    Operation::MultiMissing,
    Operation::Seek,
    Operation::Scan,
    Operation::Put,
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    /// Makes the keys: the cost of the harness itself.
    Nothing,
    Hit,
    Missing,
    Hot,
    /// Every other key is missing.
    Half,
    MultiHit,
    MultiMissing,
    /// Seeks with a reused cursor and reads ten entries.
    Seek,
    /// Scans the store; each entry counts as an operation.
    Scan,
    Put,
    /// Writes a memtable into a table; each entry counts as an operation.
    Flush,
    /// Merges overlapping tables of level 0; each entry counts as an operation.
    Compact,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Operation::Nothing => "nothing",
            Operation::Hit => "hit",
            Operation::Missing => "missing",
            Operation::Hot => "hot",
            Operation::Half => "half",
            Operation::MultiHit => "multi-hit",
            Operation::MultiMissing => "multi-missing",
            Operation::Seek => "seek",
            Operation::Scan => "scan",
            Operation::Put => "put",
            Operation::Flush => "flush",
            Operation::Compact => "compact",
        }
    }

    fn parse(name: &str) -> Option<Operation> {
        let all = OPERATIONS.into_iter().chain([Operation::Flush, Operation::Compact]);
        all.into_iter().find(|operation| operation.name() == name)
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let Some(done) = run(&words) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a command; `None` for unknown words.
fn run(words: &[&str]) -> Option<Result<()>> {
    let number = |word: &str| word.parse::<u64>().ok().filter(|number| *number > 0);
    let &[command, folder, shape, num, ref rest @ ..] = words else { return None };
    let keys = match KeySet::new(KeyShape::parse(shape)?, number(num)?, 16, VALUE_BYTES) {
        Ok(keys) => keys,
        Err(message) => return Some(Err(Error::invalid(message))),
    };
    let folder = Path::new(folder);
    match (command, rest) {
        ("fill", []) => Some(fill(folder, keys)),
        ("time", []) => Some(time(folder, keys, 5)),
        ("time", [rounds]) => Some(time(folder, keys, number(rounds)? as usize)),
        ("count", [operation, operations]) => {
            Some(count(folder, keys, Operation::parse(operation)?, number(operations)?))
        }
        ("advised", [workload, setting, gets]) => {
            let is_advised = match *setting {
                "plain" => false,
                "advised" => true,
                _ => return None,
            };
            Some(advised(
                folder,
                keys,
                AdvisorWorkload::parse(workload)?,
                is_advised,
                number(gets)?,
            ))
        }
        _ => None,
    }
}

fn open(folder: &Path) -> Result<(Db, Keyspace)> {
    // The reads of one operation must not influence the filters of the next.
    open_with(folder, false)
}

fn open_with(folder: &Path, advisor: bool) -> Result<(Db, Keyspace)> {
    // Without background threads only the operations are counted.
    let options =
        Options { cache_bytes: Some(4 << 30), background_threads: 0, ..Options::default() };
    let db = Db::open(folder, options)?;
    let shape = KeyspaceOptions {
        advisor,
        memtable_bytes: 16 << 20,
        level_bytes_base: 32 << 20,
        table_bytes: 16 << 20,
        ..KeyspaceOptions::default()
    };
    let keyspace = db.keyspace("default", shape)?;
    Ok((db, keyspace))
}

fn fill(folder: &Path, keys: KeySet) -> Result<()> {
    let (db, keyspace) = open(folder)?;
    let (mut key, mut value) = (Vec::new(), Vec::new());
    for name in keys.shuffled() {
        keys.key(name, &mut key);
        keys.value(name, &mut value);
        keyspace.put(&key, &value)?;
    }
    keyspace.flush()?;
    db.wait_for_compaction()?;
    db.close()
}

/// Reads the whole store once, so that every block is in the cache.
fn warm_up(keyspace: &Keyspace, keys: KeySet) -> Result<()> {
    let mut key = Vec::new();
    for name in keys.sorted() {
        keys.key(name, &mut key);
        keyspace.get_with(&key, |value| black_box(value.len()))?;
    }
    Ok(())
}

fn count(folder: &Path, keys: KeySet, operation: Operation, operations: u64) -> Result<()> {
    let (db, mut keyspace) = open(folder)?;
    let names = names(keys, operation, operations, 1);
    match operation {
        Operation::Flush | Operation::Compact => keyspace = prepare(&db, keys, operation, &names)?,
        _ => warm_up(&keyspace, keys)?,
    }
    let found = measured(&keyspace, keys, operation, &names)?;
    println!("{} operations, {found} found", operation.name());
    db.close()
}

/// Creates a keyspace with memtables to flush, or with four tables to compact into one level.
fn prepare(db: &Db, keys: KeySet, operation: Operation, names: &[u64]) -> Result<Keyspace> {
    if db.existing_keyspace("written")?.is_some() {
        db.drop_keyspace("written")?;
    }
    let options = KeyspaceOptions { level0_tables: 1000, ..KeyspaceOptions::default() };
    let keyspace = db.keyspace("written", options)?;
    let (mut key, mut value) = (Vec::new(), Vec::new());
    for names in names.chunks(names.len().div_ceil(TABLES)) {
        for &name in names {
            keys.key(name, &mut key);
            keys.value(name, &mut value);
            keyspace.put(&key, &value)?;
        }
        if operation == Operation::Compact {
            keyspace.flush()?;
        }
    }
    Ok(keyspace)
}

#[expect(clippy::disallowed_methods, reason = "a measurement reads the real clock")]
fn time(folder: &Path, keys: KeySet, rounds: usize) -> Result<()> {
    let (db, keyspace) = open(folder)?;
    warm_up(&keyspace, keys)?;
    let mut took = [const { Vec::new() }; OPERATIONS.len()];
    for round in 0..rounds {
        for (operation, took) in OPERATIONS.into_iter().zip(&mut took) {
            if operation == Operation::Put && round + 1 < rounds {
                // Puts change the data of the reads, so they come last.
                continue;
            }
            let names = names(keys, operation, ROUND, round as u64);
            let start = Instant::now();
            measured(&keyspace, keys, operation, &names)?;
            took.push(start.elapsed().as_nanos() as f64 / names.len() as f64);
        }
    }
    for (operation, mut took) in OPERATIONS.into_iter().zip(took) {
        took.sort_by(f64::total_cmp);
        if let (Some(middle), Some(least)) = (took.get(took.len() / 2), took.first()) {
            println!("{:14} {middle:9.1} ns (least {least:.1})", operation.name());
        }
    }
    db.close()
}

/// Draws the names of the keys of a round, before the measurement.
fn names(keys: KeySet, operation: Operation, operations: u64, seed: u64) -> Vec<u64> {
    let mut random = Random::new(seed);
    let hot = HOT_KEYS.min(keys.num());
    let name = |index: u64| match operation {
        Operation::Missing | Operation::MultiMissing => keys.absent(random.below(keys.num())),
        Operation::Half if index.is_multiple_of(2) => keys.absent(random.below(keys.num())),
        Operation::Hot => keys.present(random.below(hot) * (keys.num() / hot)),
        Operation::Put | Operation::Flush | Operation::Compact => {
            keys.new_name(random.below(1 << 40))
        }
        _ => keys.present(random.below(keys.num())),
    };
    (0..operations).map(name).collect()
}

/// Runs the operations. Never inlined, so that callgrind can toggle on it.
#[inline(never)]
fn measured(keyspace: &Keyspace, keys: KeySet, operation: Operation, names: &[u64]) -> Result<u64> {
    let mut found = 0;
    let mut key = Vec::new();
    match operation {
        Operation::Nothing => {
            for &name in names {
                keys.key(name, &mut key);
                found += black_box(&key).len() as u64;
            }
        }
        Operation::MultiHit | Operation::MultiMissing => {
            let mut together = vec![Vec::new(); TOGETHER];
            for names in names.chunks(TOGETHER) {
                for (name, key) in names.iter().zip(&mut together) {
                    keys.key(*name, key);
                }
                let values = keyspace.multi_get(&together[..names.len()])?;
                found += values.iter().flatten().map(|value| read(value)).sum::<u64>();
            }
        }
        Operation::Seek => {
            let mut cursor = keyspace.cursor::<&[u8]>(..)?;
            for &name in names {
                keys.key(name, &mut key);
                cursor.seek(&key)?;
                for _ in 0..10 {
                    if !cursor.valid() {
                        break;
                    }
                    found += read(cursor.value()?);
                    cursor.next()?;
                }
            }
        }
        Operation::Scan => {
            let mut cursor = keyspace.cursor::<&[u8]>(..)?;
            cursor.seek_to_first()?;
            for _ in names {
                if !cursor.valid() {
                    cursor.seek_to_first()?;
                }
                found += read(cursor.value()?);
                cursor.next()?;
            }
        }
        Operation::Put => {
            let value = [7; VALUE_BYTES];
            for &name in names {
                keys.key(name, &mut key);
                keyspace.put(&key, value)?;
            }
        }
        Operation::Flush => keyspace.flush()?,
        Operation::Compact => keyspace.compact(None, None)?,
        _ => {
            for &name in names {
                keys.key(name, &mut key);
                found += keyspace.get_with(&key, read)?.unwrap_or(0);
            }
        }
    }
    Ok(found)
}

/// Reads each cache line of a value, as a caller would.
#[inline]
fn read(value: &[u8]) -> u64 {
    value.iter().step_by(64).fold(1, |sum, byte| sum + u64::from(*byte >> 7))
}

/// Gets that the advisor observes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AdvisorWorkload {
    /// Gets of random keys, half of them missing.
    Uniform,
    /// Gets of some keys much more often than of others, a tenth of them missing.
    Zipfian,
    Hits,
    Misses,
    /// Gets of present keys, and from the middle on of missing keys.
    Turning,
}

/// Number of gets between two decisions of the advisor; in the background the advisor decides once
/// a second.
const DECIDE: usize = 10_000;

impl AdvisorWorkload {
    fn parse(name: &str) -> Option<AdvisorWorkload> {
        Some(match name {
            "uniform" => AdvisorWorkload::Uniform,
            "zipfian" => AdvisorWorkload::Zipfian,
            "hits" => AdvisorWorkload::Hits,
            "misses" => AdvisorWorkload::Misses,
            "turning" => AdvisorWorkload::Turning,
            _ => return None,
        })
    }

    fn names(self, keys: KeySet, gets: u64, seed: u64) -> Vec<u64> {
        let mut random = Random::new(seed);
        let name = |at: u64| {
            let index = match self {
                AdvisorWorkload::Zipfian => zipfian(&mut random, keys.num()),
                _ => random.below(keys.num()),
            };
            let is_there = match self {
                AdvisorWorkload::Uniform => random.below(2) == 0,
                AdvisorWorkload::Zipfian => random.below(10) > 0,
                AdvisorWorkload::Hits => true,
                AdvisorWorkload::Misses => false,
                AdvisorWorkload::Turning => at * 2 < gets,
            };
            if is_there { keys.present(index) } else { keys.absent(index) }
        };
        (0..gets).map(name).collect()
    }
}

/// Draws the index of a key; its rank is scattered over the keys.
fn zipfian(random: &mut Random, num: u64) -> u64 {
    zipfian::rank(random.below(1 << 53), num).wrapping_mul(0x9e37_79b9_7f4a_7c15) % num
}

fn advised(
    folder: &Path,
    keys: KeySet,
    workload: AdvisorWorkload,
    is_advised: bool,
    gets: u64,
) -> Result<()> {
    let (db, keyspace) = open_with(folder, is_advised)?;
    warm_up(&keyspace, keys)?;
    // Before the measurement, `Turning` is still in its first half.
    let before =
        if workload == AdvisorWorkload::Turning { AdvisorWorkload::Hits } else { workload };
    measured_workload(&db, &keyspace, keys, &before.names(keys, gets, 1))?;
    let names = workload.names(keys, gets, 2);
    let found = measured_workload(&db, &keyspace, keys, &names)?;
    let memory: u64 =
        keyspace.stats().levels.iter().map(|level| level.filter_bytes_in_memory).sum();
    println!("{found} found, {memory} bytes of filters in memory");
    db.close()
}

/// Runs the gets as [`measured`] does, including the advisor's decisions.
#[inline(never)]
fn measured_workload(db: &Db, keyspace: &Keyspace, keys: KeySet, names: &[u64]) -> Result<u64> {
    let (mut found, mut key) = (0, Vec::new());
    for names in names.chunks(DECIDE) {
        for &name in names {
            keys.key(name, &mut key);
            found += keyspace.get_with(&key, read)?.unwrap_or(0);
        }
        black_box(db.advice().len());
    }
    Ok(found)
}
