//! Opening a store and reading all of it, every way there is to read.

use std::collections::{BTreeMap, BTreeSet};

use umbel::{Db, Env, Error, Options};

use crate::model::{Found, FoundKeyspace, Map};
use crate::script::Script;

/// The least memory that a store works with.
const MEMORY_LEAST: u64 = 6 << 20;

/// The fewest files of tables that it works with.
const FILES_LEAST: u64 = 4;

/// The options with which a script's store is opened again.
pub fn options_later(script: &Script, env: Env) -> Options {
    let later = script.write_buffer_bytes_later.filter(|_| !script.least);
    let options = options(script, env);
    Options { write_buffer_total_bytes: later.or(options.write_buffer_total_bytes), ..options }
}

/// The options with which a script's store is opened first.
pub fn options(script: &Script, env: Env) -> Options {
    let least = script.least;
    Options {
        create_if_missing: true,
        error_if_exists: false,
        durability: script.durability,
        cache_bytes: (!least).then_some(1 << 20),
        memory_bytes: least.then_some(MEMORY_LEAST),
        memory_budget: None,
        open_tables_max: least.then_some(FILES_LEAST),
        // Half of the scripts have each way.
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

/// Why a store could not be read.
#[derive(Debug)]
pub enum Trouble {
    /// The engine said so.
    Said(Error),
    /// Two ways to read do not agree.
    Wrong(String),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Trouble {
        Trouble::Said(error)
    }
}

impl Trouble {
    /// As a sentence.
    pub fn text(&self) -> String {
        match self {
            Trouble::Said(error) => format!("reading failed: {error}"),
            Trouble::Wrong(text) => text.clone(),
        }
    }
}

/// Reads every keyspace: forward, backward, and each of `keys` by itself.
pub fn read_all(
    db: &Db,
    keys: &BTreeMap<&'static str, BTreeSet<Vec<u8>>>,
) -> Result<Found, Trouble> {
    let mut found = Found::new();
    for name in db.keyspaces() {
        let keyspace = db.existing_keyspace(&name)?.ok_or_else(|| {
            Trouble::Wrong(format!("keyspace '{name}' is listed and cannot be opened"))
        })?;
        let mut map = Map::new();
        let mut count = 0usize;
        for entry in keyspace.iter() {
            let (key, value) = entry?;
            if map.last_key_value().is_some_and(|(last, _)| *last >= key) {
                return Err(Trouble::Wrong(format!("keyspace '{name}' is out of order")));
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
                return Err(Trouble::Wrong(text));
            }
            count -= 1;
        }
        if count != 0 {
            let text = format!("keyspace '{name}': backward misses {count} keys");
            return Err(Trouble::Wrong(text));
        }
        let none = BTreeSet::new();
        for key in keys.get(name.as_str()).unwrap_or(&none).iter().chain(map.keys()) {
            let got = keyspace.get(key)?;
            if got.as_ref() != map.get(key) {
                let key = key.escape_ascii();
                let text = format!("keyspace '{name}': get of {key} differs from the iterator");
                return Err(Trouble::Wrong(text));
            }
        }
        found.insert(name, FoundKeyspace { map, marker: keyspace.marker() });
    }
    Ok(found)
}

/// An error where `verify` finds damage or cannot be done.
pub fn verify(db: &Db) -> Result<(), String> {
    let report = db.verify().map_err(|error| format!("verify failed: {error}"))?;
    match report.damage.first() {
        None => Ok(()),
        Some(damage) => Err(format!("verify found damage: {damage}")),
    }
}
