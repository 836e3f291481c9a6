//! What must hold of a store whose process was killed.

use std::collections::BTreeMap;
use std::path::Path;

use umbel::{Db, Env, Keyspace};

use super::load::{self, KEYS, Maps, Progress, SPACES, THREADS};
use crate::scratch;

/// What the opened store was like.
#[derive(Debug)]
pub struct Seen {
    /// The store, open.
    pub db: Db,
    /// Microseconds the open took.
    pub open_micros: u64,
    /// Threads whose operation in flight was there.
    pub in_flight_there: u64,
    /// Tables read by the verification.
    pub tables: u64,
}

/// Opens the store and checks everything it promises. `progress` goes to where each thread's
/// operations are found to end: `acknowledged`, or one more.
pub fn examine(
    folder: &Path,
    seed: u64,
    progress: &mut [Progress],
    acknowledged: &[u64],
) -> Result<Seen, String> {
    let clock = Env::system().clock;
    let begun = clock.now();
    let db = Db::open(folder, load::options(seed)).map_err(|e| format!("does not open: {e}"))?;
    let open_micros = (clock.now() - begun).as_micros() as u64;
    let found = read_all(&db)?;
    let mut in_flight_there = 0;
    for (thread, found) in found.iter().enumerate() {
        in_flight_there +=
            settle(seed, thread, &mut progress[thread], acknowledged[thread], found)?;
    }
    let report = db.verify().map_err(|error| format!("verify failed: {error}"))?;
    if !report.damage.is_empty() {
        return Err(format!("verify found damage: {}", report.damage.join("; ")));
    }
    Ok(Seen { db, open_micros, in_flight_there, tables: report.tables })
}

/// What the store holds, by thread.
fn read_all(db: &Db) -> Result<[Maps; THREADS], String> {
    let mut found: [Maps; THREADS] = Default::default();
    for (space, name) in SPACES.iter().enumerate() {
        let said = |error| format!("keyspace '{name}' cannot be read: {error}");
        let Some(keyspace) = db.existing_keyspace(name).map_err(said)? else {
            // Nothing may have been acknowledged then, which the comparison sees.
            continue;
        };
        for (key, value) in read(&keyspace)? {
            let thread =
                key.first().map_or(usize::MAX, |byte| usize::from(byte.wrapping_sub(b'a')));
            let Some(maps) = found.get_mut(thread) else {
                return Err(format!("'{name}' has the key {} of nobody", key.escape_ascii()));
            };
            maps[space].insert(key, value);
        }
    }
    Ok(found)
}

/// Tables in a folder that its manifest does not name, which a flush or a compaction was about to
/// add or had not yet removed; found by opening the folder for reading only, which changes nothing.
/// What is read then is compared with what is acknowledged as after any other open.
pub fn look_only(
    folder: &Path,
    seed: u64,
    progress: &mut [Progress],
    acknowledged: &[u64],
) -> Result<u64, String> {
    let db = match Db::open_read_only(folder, load::options(seed)) {
        Ok(db) => db,
        // Killed before there was a store.
        Err(umbel::Error::Invalid(_)) if acknowledged.iter().all(|count| *count == 0) => {
            return Ok(0);
        }
        Err(error) => return Err(format!("does not open for reading only: {error}")),
    };
    let found = read_all(&db).map_err(|text| format!("open for reading only: {text}"))?;
    for (thread, found) in found.iter().enumerate() {
        settle(seed, thread, &mut progress[thread], acknowledged[thread], found)
            .map_err(|text| format!("open for reading only: {text}"))?;
    }
    let files = scratch::names(folder).iter().filter(|name| name.ends_with(".table")).count();
    let stats = db.stats();
    let levels = stats.keyspaces.iter().flat_map(|keyspace| &keyspace.levels);
    let live: u64 = levels.map(|level| level.tables).sum();
    db.close().map_err(|error| format!("open for reading only, it does not close: {error}"))?;
    (files as u64).checked_sub(live).ok_or_else(|| format!("{files} of {live} tables are there"))
}

/// Reads a keyspace forward, backward and key by key; all must agree.
fn read(keyspace: &Keyspace) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, String> {
    let name = keyspace.name();
    let said = |error| format!("keyspace '{name}' cannot be read: {error}");
    let forward: Vec<_> = keyspace.iter().collect::<Result<_, _>>().map_err(said)?;
    let mut backward: Vec<_> = keyspace.iter().rev().collect::<Result<_, _>>().map_err(said)?;
    backward.reverse();
    if forward != backward {
        return Err(format!("'{name}' reads otherwise backward than forward"));
    }
    let count = forward.len();
    let map: BTreeMap<_, _> = forward.into_iter().collect();
    if map.len() != count {
        return Err(format!("'{name}' gives a key twice"));
    }
    for key in (0..THREADS).flat_map(|t| (0..KEYS).map(move |number| load::key(t, number))) {
        let got = keyspace.get(&key).map_err(said)?;
        if got.as_ref() != map.get(&key) {
            return Err(format!("'{name}' key {}: get and scan disagree", key.escape_ascii()));
        }
    }
    Ok(map)
}

/// Finds out whether the operation in flight is there; 1 where it is.
fn settle(
    seed: u64,
    thread: usize,
    progress: &mut Progress,
    acknowledged: u64,
    found: &Maps,
) -> Result<u64, String> {
    // The start may lie beyond: an operation in flight at the last kill that was found there.
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
    let flight = load::operation(seed, thread, progress.done);
    Err(format!(
        "thread {thread} had {} operations acknowledged, and the state is neither that nor with \
         the next one ({flight:.200?}): {}; against the next: {}",
        progress.done,
        difference(&progress.maps, found),
        difference(&next.maps, found)
    ))
}

fn difference(expected: &Maps, found: &Maps) -> String {
    let mut count = 0;
    let mut first = None;
    for (space, name) in SPACES.iter().enumerate() {
        for key in expected[space].keys().chain(found[space].keys()) {
            let (wanted, got) = (expected[space].get(key), found[space].get(key));
            if wanted != got {
                count += 1;
                first.get_or_insert_with(|| {
                    let (wanted, got) = (short(wanted), short(got));
                    format!("'{name}' key {} is {got}, not {wanted}", key.escape_ascii())
                });
            }
        }
    }
    format!("{count} keys differ, the first: {}", first.unwrap_or_default())
}

fn short(value: Option<&Vec<u8>>) -> String {
    let Some(value) = value else { return "missing".to_string() };
    let head = &value[..value.len().min(16)];
    format!("'{}...' of {} bytes", head.escape_ascii(), value.len())
}

/// Lets the store come to rest, closes it and checks that no file is left that nothing needs.
pub fn close_and_count(db: Db, folder: &Path) -> Result<(), String> {
    db.wait_for_compaction().map_err(|error| format!("waiting failed: {error}"))?;
    let stats = db.stats();
    let tables: u64 = stats.keyspaces.iter().flat_map(|k| &k.levels).map(|l| l.tables).sum();
    db.close().map_err(|error| format!("does not close: {error}"))?;
    // The close may have flushed, so that there are more, but never by more than that.
    let names = scratch::names(folder);
    let files = |ending| names.iter().filter(|name| name.ends_with(ending)).count() as u64;
    if files(".table") > tables + SPACES.len() as u64 || files(".manifest") != 1 {
        return Err(format!(
            "{} tables and {} manifests lie in the folder after a close with {tables} live tables",
            files(".table"),
            files(".manifest")
        ));
    }
    Ok(())
}
