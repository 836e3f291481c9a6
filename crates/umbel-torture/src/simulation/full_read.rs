//! Opens a store and reads its whole content, by every kind of read.

use std::collections::{BTreeMap, BTreeSet};

use umbel::{Db, Env, Error, Options};

use crate::simulation::oracle::{KeyspaceContents, KeyspaceMap, StoreContents};
use crate::simulation::script::Script;

/// Least memory of a store.
const MEMORY_BYTES_MIN: u64 = 6 << 20;

/// Least number of open table files.
const FILES_MIN: u64 = 4;

/// Returns the options for a later open of a script's store.
pub fn reopen_options(script: &Script, env: Env) -> Options {
    let later = script.write_buffer_bytes_later.filter(|_| !script.uses_minimum_memory);
    let options = first_options(script, env);
    Options { write_buffer_total_bytes: later.or(options.write_buffer_total_bytes), ..options }
}

/// Returns the options for the first open of a script's store.
pub fn first_options(script: &Script, env: Env) -> Options {
    let least = script.uses_minimum_memory;
    Options {
        create_if_missing: true,
        error_if_exists: false,
        durability: script.durability,
        cache_bytes: (!least).then_some(1 << 20),
        memory_bytes: least.then_some(MEMORY_BYTES_MIN),
        memory_budget: None,
        open_tables_max: least.then_some(FILES_MIN),
        // Half of the scripts use direct writes.
        direct_writes: Some(script.ops.len().is_multiple_of(2)),
        before_flush: None,
        lock_wait: std::time::Duration::ZERO,
        background_threads: 0,
        log_segment_bytes: script.log_segment_bytes,
        inline_value_bytes_max: script.inline_value_bytes_max,
        write_buffer_total_bytes: (!least).then_some(script.write_buffer_bytes),
        env,
    }
}

/// Reason why a store could not be read.
#[derive(Debug)]
pub enum ReadError {
    /// An error of the engine.
    Engine(Error),
    /// Two kinds of read disagree.
    Wrong(String),
}

impl From<Error> for ReadError {
    fn from(error: Error) -> ReadError {
        ReadError::Engine(error)
    }
}

impl ReadError {
    /// Returns the error as a sentence.
    pub fn text(&self) -> String {
        match self {
            ReadError::Engine(error) => format!("reading failed: {error}"),
            ReadError::Wrong(text) => text.clone(),
        }
    }
}

/// Reads every keyspace: forward, backward, and each of `keys` by a get.
pub fn read_all(
    db: &Db,
    keys: &BTreeMap<&'static str, BTreeSet<Vec<u8>>>,
) -> Result<StoreContents, ReadError> {
    let mut found = StoreContents::new();
    for name in db.keyspaces() {
        let keyspace = db.existing_keyspace(&name)?.ok_or_else(|| {
            ReadError::Wrong(format!("keyspace '{name}' is listed and cannot be opened"))
        })?;
        let mut map = KeyspaceMap::new();
        let mut count = 0usize;
        for entry in keyspace.iter() {
            let (key, value) = entry?;
            if map.last_key_value().is_some_and(|(last, _)| *last >= key) {
                return Err(ReadError::Wrong(format!("keyspace '{name}' is out of order")));
            }
            map.insert(key, value);
            count += 1;
        }
        let mut forward = map.iter().rev();
        for entry in keyspace.iter().rev() {
            let (key, value) = entry?;
            if forward.next() != Some((&key, &value)) {
                let key = key.escape_ascii();
                let text = format!("keyspace '{name}': backward differs from forward at {key}");
                return Err(ReadError::Wrong(text));
            }
            count -= 1;
        }
        if count != 0 {
            let text = format!("keyspace '{name}': backward misses {count} keys");
            return Err(ReadError::Wrong(text));
        }
        let none = BTreeSet::new();
        for key in keys.get(name.as_str()).unwrap_or(&none).iter().chain(map.keys()) {
            let got = keyspace.get(key)?;
            if got.as_ref() != map.get(key) {
                let key = key.escape_ascii();
                let text = format!("keyspace '{name}': get of {key} differs from the iterator");
                return Err(ReadError::Wrong(text));
            }
        }
        found.insert(name, KeyspaceContents { map, marker: keyspace.marker() });
    }
    Ok(found)
}

/// Verifies the store; fails on damage or an error.
pub fn verify(db: &Db) -> Result<(), String> {
    let report = db.verify().map_err(|error| format!("verify failed: {error}"))?;
    match report.damage.first() {
        None => Ok(()),
        Some(damage) => Err(format!("verify found damage: {damage}")),
    }
}
