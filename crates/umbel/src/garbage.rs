//! Garbage that no level's size gives away: entries of upper levels that overwrite or delete what
//! lies below them, and what they hide there. It is worth a compaction when nothing else is to do.
//!
//! How much there is, is estimated: some keys of each upper table are looked for in the filters of
//! the tables below.

use std::sync::{Arc, Weak};
use std::time::Duration;

use umbel_base::{Result, SequenceNumber};
use umbel_filter::hash_key;
use umbel_table::TableRun;

use crate::compact::{self, CompactionJob, Step};
use crate::compaction::last::LAST;
use crate::keyspace_core::KeyspaceCore;
use crate::sources::first_reaching;
use crate::store::{Garbage, Store, WorkState};
use crate::version::{TableFile, Version};

/// For how long nobody may have written before garbage is compacted unasked.
const QUIET: Duration = Duration::from_secs(2);
/// One part in so many of all entries that is garbage is worth a compaction.
const WORTH: u64 = 12;
/// Places of a table at which keys are looked at, and how many at each.
const PLACES: usize = 8;
const KEYS: usize = 32;
/// A filter that says "maybe" to more of the keys that are not there is not believed.
const RATE_MAX: f64 = 0.05;

/// What [`find`] found.
#[derive(Debug)]
pub enum Found {
    /// Nothing to do before somebody writes.
    Nothing,
    /// Perhaps something, once nobody wrote for so long.
    Later(Duration),
    /// A compaction.
    Job(CompactionJob),
}

/// Looks for a keyspace whose garbage is worth a compaction. REQUIRES: there is nothing else to do.
pub fn find(store: &Store, keyspaces: &[&Arc<KeyspaceCore>], state: &mut WorkState) -> Found {
    let keyspaces = keyspaces.iter().filter(|keyspace| may_be_worth_it(keyspace));
    let keyspaces: Vec<&Arc<KeyspaceCore>> = keyspaces.copied().collect();
    if keyspaces.is_empty() {
        return Found::Nothing;
    }
    if state.garbage.wanted == 0 {
        if store.options.background_threads == 0 {
            return Found::Nothing;
        }
        let quiet_for = quiet_for(store, &mut state.garbage);
        if quiet_for < QUIET {
            return Found::Later(QUIET - quiet_for);
        }
    }
    for keyspace in keyspaces {
        if is_worth_it(store, keyspace, &mut state.garbage)
            && let Some(job) = pick(keyspace)
        {
            return Found::Job(job);
        }
    }
    Found::Nothing
}

/// For how long nobody has written, as far as was seen.
fn quiet_for(store: &Store, garbage: &mut Garbage) -> Duration {
    let (now, visible) = (store.options.env.clock.now(), store.snapshots.visible());
    match garbage.newest {
        Some((newest, since)) if newest == visible => now.saturating_sub(since),
        _ => {
            garbage.newest = Some((visible, now));
            Duration::ZERO
        }
    }
}

/// The compaction of the first upper level that has tables.
fn pick(keyspace: &Arc<KeyspaceCore>) -> Option<CompactionJob> {
    (0..LAST).find_map(|level| match compact::pick_range(keyspace, level, None, None) {
        Step::Run(job) => Some(job),
        Step::Done | Step::Blocked => None,
    })
}

/// The tables above the last level.
fn upper(version: &Version) -> impl Iterator<Item = (usize, &Arc<TableFile>)> {
    version.tables().filter(|(level, _)| *level < LAST)
}

fn is_worth(garbage: u64, version: &Version) -> bool {
    let all: u64 = version.tables().map(|(_, table)| table.meta.entries).sum();
    garbage > 0 && garbage.saturating_mul(WORTH) >= all
}

/// Whether there could be enough garbage, by what the manifest says.
fn may_be_worth_it(keyspace: &KeyspaceCore) -> bool {
    let version = Arc::clone(&keyspace.view.load().version);
    let most = |(_, table): (usize, &Arc<TableFile>)| {
        table.meta.entries + table.meta.deletes + table.meta.range_tombstones
    };
    let ranges = upper(&version).any(|(_, table)| table.meta.range_tombstones > 0);
    ranges || is_worth(upper(&version).map(most).sum(), &version)
}

/// Whether there is enough garbage, by a look at the tables the first time a version is seen.
fn is_worth_it(store: &Store, keyspace: &KeyspaceCore, garbage: &mut Garbage) -> bool {
    let version = Arc::clone(&keyspace.view.load().version);
    if let Some((seen, verdict)) = garbage.verdicts.get(&keyspace.id)
        && Weak::ptr_eq(seen, &Arc::downgrade(&version))
    {
        return *verdict;
    }
    // What cannot be read is whoever reads it next's to say.
    let verdict = look(store, &version).unwrap_or(false);
    garbage.verdicts.insert(keyspace.id, (Arc::downgrade(&version), verdict));
    verdict
}

fn look(store: &Store, version: &Version) -> Result<bool> {
    let mut garbage = 0;
    for (level, table) in upper(version) {
        // What a range tombstone hides is not known.
        if table.meta.range_tombstones > 0 {
            return Ok(true);
        }
        let (looked_at, hiding) = sample(store, version, level, table)?;
        let hidden = table.meta.entries * hiding / looked_at.max(1);
        garbage += hidden + table.meta.deletes;
    }
    Ok(is_worth(garbage, version))
}

/// How many keys of a table were looked at, and how many of them may also lie below it.
fn sample(
    store: &Store,
    version: &Version,
    level: usize,
    table: &Arc<TableFile>,
) -> Result<(u64, u64)> {
    let reader = table.reader()?;
    let places: Vec<&[u8]> = reader.block_separators().map(|(key, _)| key).collect();
    let step = places.len().div_ceil(PLACES).max(1);
    let (mut looked_at, mut hiding) = (0, 0);
    let mut run = TableRun::default();
    let starts = [table.meta.smallest.as_slice()];
    for key in starts.into_iter().chain(places.into_iter().step_by(step)) {
        run.seek(reader, key, SequenceNumber::MAX)?;
        for _ in 0..KEYS {
            if !run.valid() {
                break;
            }
            looked_at += 1;
            hiding += u64::from(lies_below(store, version, level, table, run.key())?);
            run.next(reader)?;
        }
    }
    Ok((looked_at, hiding))
}

/// Whether a table has a key with this hash, as far as its filter can tell. One that says "maybe"
/// to many would make garbage of all that is above it.
fn has(table: &TableFile, hash: u64) -> Result<bool> {
    let reader = table.reader()?;
    let can_tell = reader.has_filter() && reader.designed_rate() <= RATE_MAX;
    Ok(can_tell && reader.may_contain(hash))
}

/// Whether `key`, which `table` has, may lie in an older table too.
fn lies_below(
    store: &Store,
    version: &Version,
    level: usize,
    table: &TableFile,
    key: &[u8],
) -> Result<bool> {
    let hash = hash_key(&store.context.hasher.secret, key);
    if level == 0 {
        let older = version.levels[0].iter().skip_while(|other| other.meta.id != table.meta.id);
        for other in older.skip(1).filter(|other| other.meta.smallest.as_slice() <= key) {
            if other.reaches(key) && has(other, hash)? {
                return Ok(true);
            }
        }
    }
    for tables in version.levels.iter().skip(level.max(1) + usize::from(level > 0)) {
        if let Some(other) = tables.get(first_reaching(tables, key))
            && other.meta.smallest.as_slice() <= key
            && has(other, hash)?
        {
            return Ok(true);
        }
    }
    Ok(false)
}
