//! Random operations against a `BTreeMap`, over key shapes, option sets, snapshots, iterators,
//! reopenings and crashes of the process.
//!
//! A seed decides everything. `UMBEL_MODEL_SEEDS` and `UMBEL_MODEL_OPS` run a campaign,
//! `UMBEL_MODEL_FIRST` skips seeds that were run before, `UMBEL_MODEL_SEED` replays one.

mod check;
mod lifecycle;
mod maintenance;
mod oracle;
mod read;
mod scan;
mod write;

use std::collections::BTreeMap;
use std::path::Path;

use umbel::Env;
use umbel_sim::Sim;

use oracle::ModelStore;

type Operation = fn(&mut ModelStore);

/// Every operation and its weight.
const OPERATIONS: &[(&str, usize, Operation)] = &[
    ("put", 300, write::put),
    ("delete", 80, write::delete),
    ("delete_range", 30, write::delete_range),
    ("batch", 80, write::batch),
    ("batch whose conditions hold", 25, write::conditional_holds),
    ("batch with a conflict", 15, write::conditional_conflicts),
    ("get", 60, read::get),
    ("get_with", 20, read::get_with),
    ("get_into", 20, read::get_into),
    ("contains", 20, read::contains),
    ("may_contain", 15, read::may_contain),
    ("multi_get", 20, read::multi_get),
    ("iterate forward", 6, scan::forward),
    ("iterate backward", 6, scan::backward),
    ("iterate from both ends", 6, scan::both_ends),
    ("range", 30, scan::range),
    ("prefix", 20, scan::prefix),
    ("cursor", 40, scan::cursor),
    ("open an iterator", 12, scan::open_iter),
    ("continue an iterator", 25, scan::advance_iter),
    ("take a snapshot", 15, maintenance::take_snapshot),
    ("read a snapshot", 40, maintenance::read_snapshot),
    ("drop a snapshot", 12, maintenance::drop_snapshot),
    ("flush", 8, maintenance::flush),
    ("flush together", 5, maintenance::flush_all),
    ("compact", 6, maintenance::compact),
    ("wait", 4, maintenance::wait),
    ("sync", 6, maintenance::sync),
    ("keyspaces", 8, maintenance::keyspaces),
    ("close and reopen", 2, lifecycle::reopen_closed),
    ("drop and reopen", 2, lifecycle::reopen_dropped),
    ("kill and reopen", 4, lifecycle::reopen_killed),
    ("checkpoint", 2, lifecycle::checkpoint),
    ("verify", 3, check::verify),
    ("stats", 5, check::stats),
];

fn number(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name} is no number: {value}")))
}

/// Default number of seeds that run in memory.
const SEEDS: u64 = 64;

/// The seeds to run, one for each `part` seeds of the plain test, and the number of operations of
/// each.
fn plan(first: u64, part: u64) -> (std::ops::Range<u64>, u64) {
    let operations = number("UMBEL_MODEL_OPS").unwrap_or(700);
    if let Some(seed) = number("UMBEL_MODEL_SEED") {
        return (seed..seed + 1, operations);
    }
    let seeds = number("UMBEL_MODEL_SEEDS").unwrap_or(SEEDS);
    let skipped = number("UMBEL_MODEL_FIRST").unwrap_or(0);
    let first = first + skipped;
    (first..first + seeds.div_ceil(part), operations)
}

/// Runs one seed and counts the operations done.
fn run(mut model: ModelStore, operations: u64, done: &mut BTreeMap<&'static str, u64>) {
    let all: usize = OPERATIONS.iter().map(|(_, weight, _)| weight).sum();
    for _ in 0..operations {
        let mut chosen = model.random.below_usize(all);
        for &(name, weight, operation) in OPERATIONS {
            if chosen < weight {
                operation(&mut model);
                *done.entry(name).or_default() += 1;
                break;
            }
            chosen -= weight;
        }
    }
    model.note("the end");
    check::everything(&model);
    check::stats(&mut model);
    check::verify(&mut model);
    lifecycle::reopen_dropped(&mut model);
    // The open may have started compactions.
    model.db().wait_for_compaction().unwrap();
    check::files(&model);
}

fn replay(test: &str, seed: u64, operations: u64) -> String {
    let variables = format!("UMBEL_MODEL_SEED={seed} UMBEL_MODEL_OPS={operations}");
    format!("{variables} cargo test -p umbel --test suite {test}")
}

/// The test runs in memory and without background threads, so that every run of a seed is the same.
#[test]
fn equals_a_map_in_memory() {
    let (seeds, operations) = plan(0, 1);
    let mut done = BTreeMap::new();
    for seed in seeds.clone() {
        let sim = Sim::new(seed);
        let env = sim.env();
        let mut model = ModelStore::new(seed, Some(sim), env, "/data/store".into(), &[0]);
        model.replay = replay("equals_a_map_in_memory", seed, operations);
        run(model, operations, &mut done);
    }
    if seeds.end - seeds.start > 50 {
        let missing: Vec<_> = OPERATIONS.iter().filter(|o| !done.contains_key(o.0)).collect();
        assert!(missing.is_empty(), "never done: {missing:?}");
    }
}

/// The test runs in memory, with concurrent background work.
#[test]
fn equals_a_map_with_background_threads() {
    let (seeds, operations) = plan(1_000_000, 4);
    for seed in seeds {
        let sim = Sim::new(seed);
        let env = sim.env();
        let mut model = ModelStore::new(seed, Some(sim), env, "/data/store".into(), &[1, 2, 3]);
        model.replay = replay("equals_a_map_with_background_threads", seed, operations);
        run(model, operations, &mut BTreeMap::new());
    }
}

/// The test runs on the real file system.
#[test]
fn equals_a_map_on_the_real_file_system() {
    let (seeds, operations) = plan(2_000_000, 8);
    for seed in seeds {
        // Syncs cost nothing in memory; one seed pays for them.
        let in_memory = Path::new("/dev/shm");
        let folder = match in_memory.is_dir() && seed % 8 > 0 {
            true => tempfile::tempdir_in(in_memory).unwrap(),
            false => tempfile::tempdir().unwrap(),
        };
        let path = folder.path().join("store");
        let mut model = ModelStore::new(seed, None, Env::system(), path, &[0, 1, 2]);
        model.replay = replay("equals_a_map_on_the_real_file_system", seed, operations);
        run(model, operations, &mut BTreeMap::new());
    }
}
