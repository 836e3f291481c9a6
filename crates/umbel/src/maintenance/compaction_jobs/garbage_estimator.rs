//! Garbage that no level's size gives away: entries of upper levels that overwrite or delete what
//! lies below them, and what they hide there. It is worth a compaction when nothing else is to do.
//!
//! How much there is, is estimated: some keys of each upper table are looked for in the filters of
//! the tables below.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use umbel_base::{Result, SequenceNumber};
use umbel_table::{FilterKeep, TableFilter, TableRun};

use crate::budget::Claim;
use crate::compact::{self, CompactionJob, Step};
use crate::compaction::last::LAST;
use crate::keyspace_core::KeyspaceCore;
use crate::sources::first_reaching;
use crate::store::{Garbage, Store, WorkState};
use crate::version::{TableFile, Version};
use crate::way::Way;

/// For how long nobody may have written before garbage is compacted unasked.
const QUIET: Duration = Duration::from_secs(2);
/// One part in so many of all entries that is garbage is worth a compaction.
const WORTH: u64 = 12;
/// The same once nobody has written for long.
const WORTH_AT_REST: u64 = 32;
/// A memtable is flushed then that takes one part in so many of what the tables take, and so many
/// bytes: the log that holds it can go, and what it overwrites.
const FLUSHED_AT_REST: (u64, u64) = (32, 1 << 20);
/// How long that is: at least so long, and a second for each so many bytes of tables, so that what
/// is written on and on for little garbage stays little.
const REST: (Duration, u64) = (Duration::from_secs(20), 8 << 20);
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
    /// A memtable to be flushed.
    Freeze(Arc<KeyspaceCore>),
    /// Tables that have to be looked at first.
    Look(Look),
    /// A compaction.
    Job(CompactionJob),
}

/// A keyspace of which is to be found out how much garbage it has. That reads files, so it is done
/// without a lock.
#[derive(Debug)]
pub struct Look(Arc<KeyspaceCore>);

/// Looks for a keyspace whose garbage is worth a compaction. REQUIRES: there is nothing else to do.
pub fn find(store: &Store, keyspaces: &[&Arc<KeyspaceCore>], state: &mut WorkState) -> Found {
    let is_wanted = state.garbage.wanted > 0;
    if !is_wanted && store.options.background_threads == 0 {
        return Found::Nothing;
    }
    let quiet_for = quiet_for(store, &mut state.garbage);
    let mut later: Option<Duration> = None;
    let mut wait_for = |wait: Duration| {
        let left = wait.saturating_sub(quiet_for);
        later = Some(later.map_or(left, |later| later.min(left)));
    };
    for keyspace in keyspaces {
        let version = Arc::clone(&keyspace.view.load().version);
        if !is_wanted && is_much_in_the_log(keyspace, &version) {
            if quiet_for >= rest(&version) {
                return Found::Freeze(Arc::clone(keyspace));
            }
            wait_for(rest(&version));
        }
        for (wait, worth) in [(QUIET, WORTH), (rest(&version), WORTH_AT_REST)] {
            if !is_worth(most(&version), worth, &version) {
                continue;
            }
            if quiet_for < wait && !(is_wanted && worth == WORTH) {
                wait_for(wait);
                continue;
            }
            let Some(found) = known(keyspace, &version, &state.garbage) else {
                return Found::Look(Look(Arc::clone(keyspace)));
            };
            if is_worth(found, worth, &version)
                && let Some(job) = pick(keyspace)
            {
                return Found::Job(job.making_way());
            }
        }
    }
    later.map_or(Found::Nothing, Found::Later)
}

/// For how long nobody writes to a store at rest.
fn rest(version: &Version) -> Duration {
    REST.0.max(Duration::from_secs(bytes(version) / REST.1))
}

fn bytes(version: &Version) -> u64 {
    version.tables().map(|(_, table)| table.meta.file_bytes).sum()
}

/// Whether the memtable is worth a table.
fn is_much_in_the_log(keyspace: &KeyspaceCore, version: &Version) -> bool {
    let (share, least) = FLUSHED_AT_REST;
    let held = keyspace.view.load().active.memtable.bytes() as u64;
    keyspace.logs() && held >= least.max(bytes(version) / share)
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

fn is_worth(garbage: u64, worth: u64, version: &Version) -> bool {
    let all: u64 = version.tables().map(|(_, table)| table.meta.entries).sum();
    garbage > 0 && garbage.saturating_mul(worth) >= all
}

/// How much garbage there is at most, by what the manifest says. What a range tombstone hides is
/// not known.
fn most(version: &Version) -> u64 {
    upper(version).fold(0, |sum: u64, (_, table)| {
        let ranges = if table.meta.range_tombstones > 0 { u64::MAX } else { 0 };
        sum.saturating_add(table.meta.entries + table.meta.deletes).saturating_add(ranges)
    })
}

/// How much garbage there is in a version, where that was looked at.
fn known(keyspace: &KeyspaceCore, version: &Arc<Version>, garbage: &Garbage) -> Option<u64> {
    let (seen, found) = garbage.found.get(&keyspace.id)?;
    Weak::ptr_eq(seen, &Arc::downgrade(version)).then_some(*found)
}

impl Look {
    /// Looks at the tables and notes what is found, unless something waits that is needed more.
    pub fn run(&self, store: &Store) {
        let version = Arc::clone(&self.0.view.load().version);
        let way = Way::default();
        // What cannot be read is whoever reads it next's to say.
        let found = look(store, &version, || way.is_wanted(store, &self.0)).unwrap_or(Some(0));
        let Some(found) = found else { return };
        let found = (Arc::downgrade(&version), found);
        store.work_lock().garbage.found.insert(self.0.id, found);
    }
}

/// How much garbage there is, about; `None` once `gives_up` says yes.
fn look(store: &Store, version: &Version, gives_up: impl Fn() -> bool) -> Result<Option<u64>> {
    let mut garbage = 0;
    if most(version) == u64::MAX {
        return Ok(Some(u64::MAX));
    }
    for (level, table) in upper(version) {
        store.check_open()?;
        if gives_up() {
            return Ok(None);
        }
        let (looked_at, hiding) = sample(store, version, level, table)?;
        let hidden = table.meta.entries * hiding / looked_at.max(1);
        garbage += hidden + table.meta.deletes;
    }
    Ok(Some(garbage))
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
    let mut let_go = LetGo::new(version);
    let mut run = TableRun::default();
    let starts = [table.meta.smallest.as_slice()];
    for key in starts.into_iter().chain(places.into_iter().step_by(step)) {
        run.seek(reader, key, SequenceNumber::MAX)?;
        for _ in 0..KEYS {
            if !run.valid() {
                break;
            }
            looked_at += 1;
            let lies_below = lies_below(store, version, level, table, run.key(), &mut let_go)?;
            hiding += u64::from(lies_below);
            run.next(reader)?;
        }
    }
    Ok((looked_at, hiding))
}

/// Filters that the advisor let go of, read again for as long as keys are looked for in them, those
/// that were asked last in front.
#[derive(Debug)]
struct LetGo {
    most: usize,
    filters: VecDeque<(u64, Option<TableFilter>, Claim)>,
}

impl LetGo {
    fn new(version: &Version) -> LetGo {
        LetGo { most: version.sources(), filters: VecDeque::new() }
    }

    /// Whether a table has a key with this hash, as far as its filter can tell. One that says
    /// "maybe" to many would make garbage of all that is above it.
    fn has(&mut self, store: &Store, table: &TableFile, hash: u64) -> Result<bool> {
        let open = table.open()?;
        if !open.was_let_go() {
            let can_tell = open.has_filter() && open.designed_rate() <= RATE_MAX;
            return Ok(can_tell && open.may_contain(hash));
        }
        let id = table.meta.id;
        match self.filters.iter().position(|(known, ..)| *known == id) {
            Some(0) => {}
            Some(place) => self.filters.swap(0, place),
            None => {
                self.filters.truncate(self.most.saturating_sub(1));
                let filter = open.table().read_filter(FilterKeep::default())?;
                let filter = filter.filter(|filter| filter.designed_rate() <= RATE_MAX);
                let claim = store.budget.claim(table.meta.plain_filter_bytes());
                self.filters.push_front((id, filter, claim));
            }
        }
        let asked = self.filters.front().and_then(|(_, filter, _)| filter.as_ref());
        Ok(asked.is_some_and(|filter| filter.may_contain(hash)))
    }
}

/// Whether `key`, which `table` has, may lie in an older table too.
fn lies_below(
    store: &Store,
    version: &Version,
    level: usize,
    table: &TableFile,
    key: &[u8],
    let_go: &mut LetGo,
) -> Result<bool> {
    let hash = table.hash(key);
    if level == 0 {
        let older = version.levels[0].iter().skip_while(|other| other.meta.id != table.meta.id);
        for other in older.skip(1).filter(|other| other.meta.smallest.as_slice() <= key) {
            if other.reaches(key) && let_go.has(store, other, hash)? {
                return Ok(true);
            }
        }
    }
    for tables in version.levels.iter().skip(level.max(1) + usize::from(level > 0)) {
        if let Some(other) = tables.get(first_reaching(tables, key))
            && other.meta.smallest.as_slice() <= key
            && let_go.has(store, other, hash)?
        {
            return Ok(true);
        }
    }
    Ok(false)
}
