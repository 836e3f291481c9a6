//! Garbage estimate: entries of upper levels that overwrite or delete entries below them, and the
//! entries they hide there. Level sizes do not reveal it. It is worth a compaction when there is no
//! other work.
//!
//! The amount is estimated: some keys of each upper table are looked up in the filters of the
//! tables below.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use umbel_base::{Result, SequenceNumber};
use umbel_table::{FilterResidency, ResidentFilter, SequentialReader};

use crate::compaction::bottommost_picker::LAST_LEVEL;
use crate::maintenance::compaction_jobs::compaction_job::{self, CompactionJob, JobPick};
use crate::maintenance::compaction_jobs::preemption::Preemption;
use crate::state::keyspace_state::KeyspaceState;
use crate::state::store::{GarbageState, SchedulerState, Store};
use crate::store_budget::MemoryReservation;
use crate::super_version::sorted_runs::first_reaching;
use crate::version::{TableFile, Version};

/// Time without writes before garbage is compacted.
const QUIET_PERIOD: Duration = Duration::from_secs(2);
/// Smallest share of garbage in all entries that is worth a compaction, as one part in this number.
const WORTHWHILE_SHARE: u64 = 12;
/// The same after a long time without writes.
const WORTHWHILE_SHARE_AT_REST: u64 = 32;
/// Size from which on a memtable is flushed then: one part in this number of the tables' bytes, and
/// a minimum. That frees its WAL and the entries that it overwrites.
const FLUSHED_AT_REST: (u64, u64) = (32, 1 << 20);
/// Time without writes until a store is at rest: a minimum, plus a second for each number of table
/// bytes. So continual rewriting for little garbage stays rare.
const REST: (Duration, u64) = (Duration::from_secs(20), 8 << 20);
/// Places of a table where keys are sampled, and keys at each place.
const SAMPLES: usize = 8;
const KEYS_PER_SAMPLE: usize = 32;
/// Maximum measured false-positive rate of a filter whose answers are used.
const RATE_MAX: f64 = 0.05;

/// Result of [`find_task`].
#[derive(Debug)]
pub enum GarbageTask {
    /// Nothing to do before the next write.
    Nothing,
    /// Possibly work, after this time without writes.
    Wait(Duration),
    /// A memtable to flush.
    Freeze(Arc<KeyspaceState>),
    /// Tables to estimate first.
    Probe(GarbageProbe),
    /// A compaction.
    Compact(CompactionJob),
}

/// A keyspace whose garbage is to be estimated. That reads files, so it runs without a lock.
#[derive(Debug)]
pub struct GarbageProbe(Arc<KeyspaceState>);

/// Finds a keyspace whose garbage is worth a compaction. REQUIRES: there is nothing else to do.
pub fn find_task(
    store: &Store,
    keyspaces: &[&Arc<KeyspaceState>],
    state: &mut SchedulerState,
) -> GarbageTask {
    let is_wanted = state.garbage.drain_requests > 0;
    if !is_wanted && store.options.background_threads == 0 {
        return GarbageTask::Nothing;
    }
    let quiet_for = remaining_quiet_period(store, &mut state.garbage);
    let mut later: Option<Duration> = None;
    let mut wait_for = |wait: Duration| {
        let left = wait.saturating_sub(quiet_for);
        later = Some(later.map_or(left, |later| later.min(left)));
    };
    for keyspace in keyspaces {
        let version = Arc::clone(&keyspace.super_version.load().version);
        if !is_wanted && is_much_in_the_log(keyspace, &version) {
            if quiet_for >= rest_period(&version) {
                return GarbageTask::Freeze(Arc::clone(keyspace));
            }
            wait_for(rest_period(&version));
        }
        for (wait, worth) in
            [(QUIET_PERIOD, WORTHWHILE_SHARE), (rest_period(&version), WORTHWHILE_SHARE_AT_REST)]
        {
            if !is_worthwhile(garbage_max(&version), worth, &version) {
                continue;
            }
            if quiet_for < wait && !(is_wanted && worth == WORTHWHILE_SHARE) {
                wait_for(wait);
                continue;
            }
            let Some(found) = known_estimate(keyspace, &version, &state.garbage) else {
                return GarbageTask::Probe(GarbageProbe(Arc::clone(keyspace)));
            };
            if is_worthwhile(found, worth, &version)
                && let Some(job) = pick(keyspace)
            {
                return GarbageTask::Compact(job.preemptible());
            }
        }
    }
    later.map_or(GarbageTask::Nothing, GarbageTask::Wait)
}

/// Time without writes after which a store is at rest.
fn rest_period(version: &Version) -> Duration {
    REST.0.max(Duration::from_secs(bytes(version) / REST.1))
}

fn bytes(version: &Version) -> u64 {
    version.tables().map(|(_, table)| table.meta.file_bytes).sum()
}

/// Whether the memtable is worth a table.
fn is_much_in_the_log(keyspace: &KeyspaceState, version: &Version) -> bool {
    let (share, least) = FLUSHED_AT_REST;
    let held = keyspace.super_version.load().active.memtable.bytes() as u64;
    keyspace.uses_wal() && held >= least.max(bytes(version) / share)
}

/// Observed time without writes.
fn remaining_quiet_period(store: &Store, garbage: &mut GarbageState) -> Duration {
    let (now, visible) = (store.options.env.clock.now(), store.snapshots.visible());
    match garbage.newest {
        Some((newest, since)) if newest == visible => now.saturating_sub(since),
        _ => {
            garbage.newest = Some((visible, now));
            Duration::ZERO
        }
    }
}

/// Picks a compaction of the first upper level that has tables.
fn pick(keyspace: &Arc<KeyspaceState>) -> Option<CompactionJob> {
    (0..LAST_LEVEL).find_map(|level| {
        match compaction_job::pick_range(keyspace, level, None, None) {
            JobPick::Run(job) => Some(job),
            JobPick::Done | JobPick::Blocked => None,
        }
    })
}

/// Returns the tables above the last level.
fn tables_above_last_level(version: &Version) -> impl Iterator<Item = (usize, &Arc<TableFile>)> {
    version.tables().filter(|(level, _)| *level < LAST_LEVEL)
}

fn is_worthwhile(garbage: u64, worth: u64, version: &Version) -> bool {
    let all: u64 = version.tables().map(|(_, table)| table.meta.entries).sum();
    garbage > 0 && garbage.saturating_mul(worth) >= all
}

/// Upper bound of the garbage by the manifest. Entries that a range tombstone hides are not known.
fn garbage_max(version: &Version) -> u64 {
    tables_above_last_level(version).fold(0, |sum: u64, (_, table)| {
        let ranges = if table.meta.range_tombstones > 0 { u64::MAX } else { 0 };
        sum.saturating_add(table.meta.entries + table.meta.deletes).saturating_add(ranges)
    })
}

/// Returns the estimated garbage of a version, where there is an estimate.
fn known_estimate(
    keyspace: &KeyspaceState,
    version: &Arc<Version>,
    garbage: &GarbageState,
) -> Option<u64> {
    let (seen, found) = garbage.estimates.get(&keyspace.id)?;
    Weak::ptr_eq(seen, &Arc::downgrade(version)).then_some(*found)
}

impl GarbageProbe {
    /// Estimates the garbage and stores the result, unless required work preempts it.
    pub fn run(&self, store: &Store) {
        let version = Arc::clone(&self.0.super_version.load().version);
        let preemption = Preemption::default();
        // Errors are left to the next reader to report.
        let found = estimate(store, &version, || preemption.should_preempt(store, &self.0))
            .unwrap_or(Some(0));
        let Some(found) = found else { return };
        let found = (Arc::downgrade(&version), found);
        store.scheduler_lock().garbage.estimates.insert(self.0.id, found);
    }
}

/// Estimates the garbage; `None` once `should_preempt` returns `true`.
fn estimate(
    store: &Store,
    version: &Version,
    should_preempt: impl Fn() -> bool,
) -> Result<Option<u64>> {
    let mut garbage = 0;
    if garbage_max(version) == u64::MAX {
        return Ok(Some(u64::MAX));
    }
    for (level, table) in tables_above_last_level(version) {
        store.check_open()?;
        if should_preempt() {
            return Ok(None);
        }
        let (looked_at, hiding) = sample(store, version, level, table)?;
        let hidden = table.meta.entries * hiding / looked_at.max(1);
        garbage += hidden + table.meta.deletes;
    }
    Ok(Some(garbage))
}

/// Returns the number of sampled keys of a table, and the number of those that may also be in
/// tables below it.
fn sample(
    store: &Store,
    version: &Version,
    level: usize,
    table: &Arc<TableFile>,
) -> Result<(u64, u64)> {
    let reader = table.reader()?;
    let places: Vec<&[u8]> = reader.block_separators().map(|(key, _)| key).collect();
    let step = places.len().div_ceil(SAMPLES).max(1);
    let (mut looked_at, mut hiding) = (0, 0);
    let mut loader = FilterLoader::new(version);
    let mut run = SequentialReader::default();
    let starts = [table.meta.smallest.as_slice()];
    for key in starts.into_iter().chain(places.into_iter().step_by(step)) {
        run.seek(reader, key, SequenceNumber::MAX)?;
        for _ in 0..KEYS_PER_SAMPLE {
            if !run.valid() {
                break;
            }
            looked_at += 1;
            let lies_below = is_below(store, version, level, table, run.key(), &mut loader)?;
            hiding += u64::from(lies_below);
            run.next(reader)?;
        }
    }
    Ok((looked_at, hiding))
}

/// Loads filters that the advisor released, for the duration of an estimate, most recently probed
/// ones first.
#[derive(Debug)]
struct FilterLoader {
    filters_max: usize,
    filters: VecDeque<(u64, Option<ResidentFilter>, MemoryReservation)>,
}

impl FilterLoader {
    fn new(version: &Version) -> FilterLoader {
        FilterLoader { filters_max: version.sources(), filters: VecDeque::new() }
    }

    /// Whether a table has a key with this hash, as far as its filter says. A filter with many
    /// false positives would make garbage of everything above it.
    fn may_contain(&mut self, store: &Store, table: &TableFile, hash: u64) -> Result<bool> {
        let open = table.open()?;
        if !open.is_filter_omitted() {
            let can_tell = open.has_filter() && open.designed_rate() <= RATE_MAX;
            return Ok(can_tell && open.may_contain(hash));
        }
        let id = table.meta.id;
        match self.filters.iter().position(|(known, ..)| *known == id) {
            Some(0) => {}
            Some(place) => self.filters.swap(0, place),
            None => {
                self.filters.truncate(self.filters_max.saturating_sub(1));
                let filter = open.table().read_filter(FilterResidency::default())?;
                let filter = filter.filter(|filter| filter.designed_rate() <= RATE_MAX);
                let claim = store.budget.reserve(table.meta.plain_filter_bytes());
                self.filters.push_front((id, filter, claim));
            }
        }
        let cached = self.filters.front().and_then(|(_, filter, _)| filter.as_ref());
        Ok(cached.is_some_and(|filter| filter.may_contain(hash)))
    }
}

/// Whether `key`, which `table` has, may be in an older table too.
fn is_below(
    store: &Store,
    version: &Version,
    level: usize,
    table: &TableFile,
    key: &[u8],
    loader: &mut FilterLoader,
) -> Result<bool> {
    let hash = table.hash(key);
    if level == 0 {
        let older = version.levels[0].iter().skip_while(|other| other.meta.id != table.meta.id);
        for other in older.skip(1).filter(|other| other.meta.smallest.as_slice() <= key) {
            if other.reaches(key) && loader.may_contain(store, other, hash)? {
                return Ok(true);
            }
        }
    }
    for tables in version.levels.iter().skip(level.max(1) + usize::from(level > 0)) {
        if let Some(other) = tables.get(first_reaching(tables, key))
            && other.meta.smallest.as_slice() <= key
            && loader.may_contain(store, other, hash)?
        {
            return Ok(true);
        }
    }
    Ok(false)
}
