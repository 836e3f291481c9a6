//! Common setup of directed tests: a store in memory, small sizes, simple contents.

use umbel::{Db, Env, Keyspace, KeyspaceOptions, Options};
use umbel_sim::Sim;

/// Directory of the stores of these tests.
pub const PATH: &str = "/data/store";

/// Options of a store without background threads.
pub fn inline(env: &Env) -> Options {
    Options { env: env.clone(), background_threads: 0, ..Options::default() }
}

/// Options of a store with background threads.
pub fn threaded(env: &Env, background_threads: usize) -> Options {
    Options { background_threads, ..inline(env) }
}

/// Options of a keyspace in which little data fills many tables and levels.
pub fn tiny() -> KeyspaceOptions {
    KeyspaceOptions {
        memtable_bytes: 8 << 10,
        table_bytes: 8 << 10,
        block_bytes: 512,
        level_bytes_base: 16 << 10,
        level_ratio: 3,
        level0_tables: 2,
        ..KeyspaceOptions::default()
    }
}

/// Options of a keyspace without WAL that has only manual flushes.
pub fn unlogged() -> KeyspaceOptions {
    KeyspaceOptions { log: false, ..KeyspaceOptions::default() }
}

/// Creates a store in memory without background threads.
pub fn new_store() -> (Sim, Db) {
    let sim = Sim::new(1);
    let db = Db::open(PATH, inline(&sim.env())).unwrap();
    (sim, db)
}

/// Reopens the store of `sim`, without background threads.
pub fn again(sim: &Sim) -> Db {
    Db::open(PATH, inline(&sim.env())).unwrap()
}

/// The keyspace, which must exist.
pub fn existing(db: &Db, name: &str) -> Keyspace {
    db.existing_keyspace(name).unwrap().expect("the keyspace is there")
}

/// Key number `index`.
pub fn key(index: usize) -> Vec<u8> {
    format!("key-{index:06}").into_bytes()
}

/// Puts keys `range` with values that name `round`.
pub fn fill(keyspace: &Keyspace, range: std::ops::Range<usize>, round: usize) {
    for index in range {
        keyspace.put(key(index), value(index, round)).unwrap();
    }
}

/// Returns the value that [`fill`] puts for key `index` in round `round`.
pub fn value(index: usize, round: usize) -> Vec<u8> {
    format!("value {index} of round {round} {}", "x".repeat(60)).into_bytes()
}

/// All entries of a keyspace.
pub fn all(keyspace: &Keyspace) -> Vec<(Vec<u8>, Vec<u8>)> {
    keyspace.iter().map(|entry| entry.unwrap()).collect()
}

/// Expected result of [`all`] after [`fill`].
pub fn filled(range: std::ops::Range<usize>, round: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    range.map(|index| (key(index), value(index, round))).collect()
}

/// Number of files of a kind, such as `.table`, in the store of `env`.
pub fn files(env: &Env, kind: &str) -> usize {
    let entries = env.files.read_dir(PATH.as_ref()).unwrap();
    entries.iter().filter(|entry| entry.name.ends_with(kind)).count()
}

/// Returns the number of tables of all keyspaces.
pub fn live_tables(db: &Db) -> u64 {
    let stats = db.stats();
    stats.keyspaces.iter().flat_map(|keyspace| &keyspace.levels).map(|level| level.tables).sum()
}

/// Writes a store whose level 0 overwrites a third of the `keys` keys of its last level.
pub fn overwrite_a_third(sim: &Sim, keys: usize) {
    let db = Db::open(PATH, inline(&sim.env())).unwrap();
    let options = KeyspaceOptions { memtable_bytes: 16 << 20, ..KeyspaceOptions::default() };
    let keyspace = db.keyspace("a", options).unwrap();
    fill(&keyspace, 0..keys, 1);
    keyspace.compact(None, None).unwrap();
    fill(&keyspace, 0..keys / 3, 2);
    keyspace.flush().unwrap();
}
