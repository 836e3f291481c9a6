//! Checks of a store whose process was killed.

use std::collections::BTreeMap;
use std::path::Path;

use umbel::{Db, Env, Keyspace};

use crate::kv::kill::write_load::{self, KEYS, KEYSPACES, THREADS, ThreadMaps, ThreadProgress};
use crate::support::scratch_directory;

/// An opened store and its measurements.
#[derive(Debug)]
pub struct OpenedStore {
    /// The store, open.
    pub db: Db,
    /// Microseconds the open took.
    pub open_micros: u64,
    /// Number of threads whose operation in flight took effect.
    pub in_flight_there: u64,
    /// Number of tables that the verification read.
    pub tables: u64,
}

/// Opens the store and checks all its promises. Advances `progress` to each thread's last
/// operation: the `acknowledged` one, or one more.
pub fn examine(
    folder: &Path,
    seed: u64,
    progress: &mut [ThreadProgress],
    acknowledged: &[u64],
) -> Result<OpenedStore, String> {
    let clock = Env::system().clock;
    let begun = clock.now();
    let db =
        Db::open(folder, write_load::options(seed)).map_err(|e| format!("does not open: {e}"))?;
    let open_micros = (clock.now() - begun).as_micros() as u64;
    let found = read_all(&db)?;
    let mut in_flight_there = 0;
    for (thread, found) in found.iter().enumerate() {
        in_flight_there +=
            resolve_in_flight(seed, thread, &mut progress[thread], acknowledged[thread], found)?;
    }
    let report = db.verify().map_err(|error| format!("verify failed: {error}"))?;
    if !report.damage.is_empty() {
        return Err(format!("verify found damage: {}", report.damage.join("; ")));
    }
    Ok(OpenedStore { db, open_micros, in_flight_there, tables: report.tables })
}

/// Returns the content of the store, by thread.
fn read_all(db: &Db) -> Result<[ThreadMaps; THREADS], String> {
    let mut found: [ThreadMaps; THREADS] = Default::default();
    for (space, name) in KEYSPACES.iter().enumerate() {
        let describe = |error| format!("keyspace '{name}' cannot be read: {error}");
        let Some(keyspace) = db.existing_keyspace(name).map_err(describe)? else {
            // The kill may have come before its creation, which the comparison checks.
            continue;
        };
        for (key, value) in read(&keyspace)? {
            let thread =
                key.first().map_or(usize::MAX, |byte| usize::from(byte.wrapping_sub(b'a')));
            let Some(maps) = found.get_mut(thread) else {
                return Err(format!("'{name}' has the key {} of no thread", key.escape_ascii()));
            };
            maps[space].insert(key, value);
        }
    }
    Ok(found)
}

/// Opens the folder for reading only, which changes nothing, and checks the content like after any
/// other open. Returns the number of tables that the manifest does not name: they are left from an
/// interrupted flush or compaction.
pub fn open_read_only(
    folder: &Path,
    seed: u64,
    progress: &mut [ThreadProgress],
    acknowledged: &[u64],
) -> Result<u64, String> {
    let db = match Db::open_read_only(folder, write_load::options(seed)) {
        Ok(db) => db,
        // Killed before the store existed.
        Err(umbel::Error::Invalid(_)) if acknowledged.iter().all(|count| *count == 0) => {
            return Ok(0);
        }
        Err(error) => return Err(format!("does not open for reading only: {error}")),
    };
    let found = read_all(&db).map_err(|text| format!("open for reading only: {text}"))?;
    for (thread, found) in found.iter().enumerate() {
        resolve_in_flight(seed, thread, &mut progress[thread], acknowledged[thread], found)
            .map_err(|text| format!("open for reading only: {text}"))?;
    }
    let files =
        scratch_directory::names(folder).iter().filter(|name| name.ends_with(".table")).count();
    let stats = db.stats();
    let levels = stats.keyspaces.iter().flat_map(|keyspace| &keyspace.levels);
    let live: u64 = levels.map(|level| level.tables).sum();
    db.close().map_err(|error| format!("open for reading only, it does not close: {error}"))?;
    (files as u64).checked_sub(live).ok_or_else(|| format!("{files} of {live} tables are there"))
}

/// Reads a keyspace forward, backward and key by key; all must agree.
fn read(keyspace: &Keyspace) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, String> {
    let name = keyspace.name();
    let describe = |error| format!("keyspace '{name}' cannot be read: {error}");
    let forward: Vec<_> = keyspace.iter().collect::<Result<_, _>>().map_err(describe)?;
    let mut backward: Vec<_> = keyspace.iter().rev().collect::<Result<_, _>>().map_err(describe)?;
    backward.reverse();
    if forward != backward {
        return Err(format!("'{name}' differs between backward and forward reads"));
    }
    let count = forward.len();
    let map: BTreeMap<_, _> = forward.into_iter().collect();
    if map.len() != count {
        return Err(format!("'{name}' returns a key twice"));
    }
    for key in (0..THREADS).flat_map(|t| (0..KEYS).map(move |number| write_load::key(t, number))) {
        let got = keyspace.get(&key).map_err(describe)?;
        if got.as_ref() != map.get(&key) {
            return Err(format!("'{name}' key {}: get and scan disagree", key.escape_ascii()));
        }
    }
    Ok(map)
}

/// Returns 1 if the operation in flight took effect, otherwise 0.
fn resolve_in_flight(
    seed: u64,
    thread: usize,
    progress: &mut ThreadProgress,
    acknowledged: u64,
    found: &ThreadMaps,
) -> Result<u64, String> {
    // An operation in flight at the last kill may have taken effect.
    progress.advance(seed, thread, acknowledged);
    if progress.maps == *found {
        return Ok(0);
    }
    let mut next = progress.clone();
    next.advance(seed, thread, progress.done + 1);
    if next.maps == *found {
        *progress = next;
        return Ok(1);
    }
    let flight = write_load::operation(seed, thread, progress.done);
    Err(format!(
        "thread {thread} had {} operations acknowledged, and the state is neither that nor with \
         the next one ({flight:.200?}): {}; against the next: {}",
        progress.done,
        difference(&progress.maps, found),
        difference(&next.maps, found)
    ))
}

fn difference(expected: &ThreadMaps, found: &ThreadMaps) -> String {
    let mut count = 0;
    let mut first = None;
    for (space, name) in KEYSPACES.iter().enumerate() {
        for key in expected[space].keys().chain(found[space].keys()) {
            let (wanted, got) = (expected[space].get(key), found[space].get(key));
            if wanted != got {
                count += 1;
                first.get_or_insert_with(|| {
                    let (wanted, got) = (abbreviate(wanted), abbreviate(got));
                    format!("'{name}' key {} is {got}, not {wanted}", key.escape_ascii())
                });
            }
        }
    }
    format!("{count} keys differ, the first: {}", first.unwrap_or_default())
}

fn abbreviate(value: Option<&Vec<u8>>) -> String {
    let Some(value) = value else { return "missing".to_string() };
    let head = &value[..value.len().min(16)];
    format!("'{}...' of {} bytes", head.escape_ascii(), value.len())
}

/// Waits for compaction, closes the store and checks that no obsolete file is left.
pub fn close_and_count(db: Db, folder: &Path) -> Result<(), String> {
    db.wait_for_compaction().map_err(|error| format!("waiting failed: {error}"))?;
    let stats = db.stats();
    let tables: u64 = stats.keyspaces.iter().flat_map(|k| &k.levels).map(|l| l.tables).sum();
    db.close().map_err(|error| format!("does not close: {error}"))?;
    // The close may have flushed, which adds at most this many.
    let names = scratch_directory::names(folder);
    let files = |ending| names.iter().filter(|name| name.ends_with(ending)).count() as u64;
    if files(".table") > tables + KEYSPACES.len() as u64 || files(".manifest") != 1 {
        return Err(format!(
            "{} tables and {} manifests lie in the folder after a close with {tables} live tables",
            files(".table"),
            files(".manifest")
        ));
    }
    Ok(())
}
