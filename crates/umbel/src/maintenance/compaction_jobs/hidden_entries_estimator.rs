//! Garbage estimate: entries of upper levels that overwrite or delete entries below them, and the
//! entries they hide there. Level sizes do not reveal it. It is worth a compaction when there is no
//! other work.
//!
//! The amount is estimated, in entries and in bytes: some keys of each upper table are looked up in
//! the filters of the tables below, and range tombstones are laid over the bounds and indexes of
//! these tables. What a memtable's deletes hide has an upper bound: each hides one entry of the
//! table with the longest ones. A memtable that may hide much is flushed early.
//!
//! Hidden entries that cursors stepped through count as well, once they are as many as the tables'
//! entries: merging costs as much as these steps did.
//!
//! Little garbage is compacted after some time without writes; much of it, beside them.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use umbel_base::{Result, SequenceNumber};
use umbel_table::{FilterResidency, ResidentFilter, SequentialReader};

use crate::compaction::bottommost_picker::LAST_LEVEL;
use crate::maintenance::compaction_jobs::compaction_job::{self, CompactionJob, JobPick};
use crate::maintenance::compaction_jobs::preemption::Preemption;
use crate::state::keyspace_state::KeyspaceState;
use crate::state::store::{GarbageEstimate, GarbageState, SchedulerState, Store, VersionSizes};
use crate::store_budget::MemoryReservation;
use crate::super_version::SuperVersion;
use crate::super_version::sorted_runs::first_reaching;
use crate::version::{LiveTable, Version};

/// Time without writes before garbage is compacted.
const QUIET_PERIOD: Duration = Duration::from_secs(2);
/// Smallest share of garbage in all entries that is worth a compaction, as one part in this number.
const WORTHWHILE_SHARE: u64 = 12;
/// The same after a long time without writes.
const WORTHWHILE_SHARE_AT_REST: u64 = 32;
/// The same while writers write.
const WORTHWHILE_SHARE_BESIDE_WRITES: u64 = 3;
/// Share of all bytes that a memtable's deletes may hide, as one part in this number, from which on
/// it is flushed after [`QUIET_PERIOD`], and beside writes.
const FLUSHED_HIDING: (u64, u64) = (6, 2);
/// Smallest number of bytes that they may hide then.
const FLUSHED_HIDING_BYTES_MIN: u64 = 256 << 10;
/// Interval of such flushes, and of compactions, beside writes: a minimum, plus a second for each
/// number of table bytes. So rewriting takes a bounded part of the disk's bandwidth.
const BESIDE_WRITES_INTERVAL: (Duration, u64) = (Duration::from_secs(5), 32 << 20);
/// Size from which on a memtable is flushed then: one part in this number of the tables' bytes, and
/// a minimum. That frees its WAL and the entries that it overwrites.
const FLUSHED_AT_REST: (u64, u64) = (32, 1 << 20);
/// Time without writes until a store is at rest: a minimum, plus a second for each number of table
/// bytes. So continual rewriting for little garbage stays rare.
const REST: (Duration, u64) = (Duration::from_secs(20), 8 << 20);
/// Smallest number of hidden entries passed by cursors for which garbage is compacted.
const HIDDEN_PASSED_MIN: u64 = 1 << 16;
/// Places of a table where keys are sampled, and keys at each place.
const SAMPLES: usize = 8;
const KEYS_PER_SAMPLE: usize = 32;
/// Number of range tombstones of a table that are laid over the tables below.
const RANGES_MAX: usize = 256;
/// Comparisons of a memtable's range tombstones with tables, above which they count as hiding all.
const COMPARED_MAX: usize = 1 << 16;
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
///
/// The search begins after the keyspace that had the last task, so none waits for ever.
pub fn find_task(
    store: &Store,
    keyspaces: &[&Arc<KeyspaceState>],
    state: &mut SchedulerState,
) -> GarbageTask {
    let last = state.garbage.last_keyspace;
    let first = keyspaces.iter().position(|keyspace| Some(keyspace.id) == last);
    let (before, after) = keyspaces.split_at(first.map_or(0, |first| first + 1));
    let in_turn: Vec<_> = after.iter().chain(before).copied().collect();
    let known = &mut state.garbage.keyspaces;
    if known.len() > keyspaces.len() {
        known.retain(|id, _| keyspaces.iter().any(|keyspace| keyspace.id == *id));
    }
    let task = find_task_in_turn(store, &in_turn, state);
    state.garbage.last_keyspace = match &task {
        GarbageTask::Freeze(keyspace) | GarbageTask::Probe(GarbageProbe(keyspace)) => {
            Some(keyspace.id)
        }
        GarbageTask::Compact(job) => Some(job.keyspace.id),
        GarbageTask::Nothing | GarbageTask::Wait(_) => state.garbage.last_keyspace,
    };
    task
}

fn find_task_in_turn(
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
    let now = store.options.env.clock.now();
    // It may keep what deletes hide, so that nothing would be freed beside writes.
    let is_snapshot_held = store.snapshots.summary().0 > 0;
    for keyspace in keyspaces {
        let view = keyspace.super_version.acquire();
        let version = Arc::clone(&view.version);
        let sizes = known_sizes(keyspace, &version, &mut state.garbage);
        let all = sizes.all;
        let [flush_in, compact_in] = state
            .garbage
            .beside_writes_at
            .map(|last| (!is_snapshot_held).then(|| beside_writes_delay(last, now, all.bytes)));
        let delay = hiding_flush_delay(&view, &sizes, quiet_for, flush_in);
        match delay.filter(|_| keyspace.uses_wal() && view.frozen.is_empty()) {
            Some(Duration::ZERO) => return GarbageTask::Freeze(Arc::clone(keyspace)),
            Some(delay) => wait_for(quiet_for + delay),
            None => {}
        }
        if !is_snapshot_held
            && let Some(task) = task_for_readers(keyspace, &view, &sizes, now, &mut state.garbage)
        {
            return task;
        }
        if !is_wanted && is_much_in_the_log(keyspace, &sizes) {
            match rest_period(&sizes) {
                rest if quiet_for >= rest => return GarbageTask::Freeze(Arc::clone(keyspace)),
                rest => wait_for(rest),
            }
        }
        let limit = sizes.garbage_max;
        match compact_in.filter(|_| limit.is_byte_share_of(all, WORTHWHILE_SHARE_BESIDE_WRITES)) {
            Some(delay) if !delay.is_zero() => wait_for(quiet_for + delay),
            Some(_) => {
                let task = task_beside_writes(keyspace, &version, all, now, &mut state.garbage);
                if let Some(task) = task {
                    return task;
                }
            }
            None => {}
        }
        let quiet = (quiet_for, is_wanted);
        let task =
            task_after_writes(keyspace, &version, &sizes, quiet, &state.garbage, &mut wait_for);
        if let Some(task) = task {
            return task;
        }
    }
    later.map_or(GarbageTask::Nothing, GarbageTask::Wait)
}

/// Time without writes after which a store is at rest.
fn rest_period(sizes: &VersionSizes) -> Duration {
    REST.0.max(Duration::from_secs(sizes.file_bytes / REST.1))
}

/// Whether the memtable is worth a table.
fn is_much_in_the_log(keyspace: &KeyspaceState, sizes: &VersionSizes) -> bool {
    let (share, least) = FLUSHED_AT_REST;
    let held = keyspace.super_version.load().active.memtable.bytes() as u64;
    keyspace.uses_wal() && held >= least.max(sizes.file_bytes / share)
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
fn tables_above_last_level(version: &Version) -> impl Iterator<Item = (usize, &Arc<LiveTable>)> {
    version.tables().filter(|(level, _)| *level < LAST_LEVEL)
}

/// Returns the sizes of a version, which are computed once.
fn known_sizes(
    keyspace: &KeyspaceState,
    version: &Arc<Version>,
    garbage: &mut GarbageState,
) -> VersionSizes {
    let known = garbage.keyspaces.entry(keyspace.id).or_default();
    let seen = Arc::downgrade(version);
    if !Weak::ptr_eq(&known.version, &seen) {
        known.version = seen;
        known.sizes = sizes_of(version);
        known.estimate = None;
    }
    known.sizes
}

fn sizes_of(version: &Version) -> VersionSizes {
    let mut all = GarbageEstimate::default();
    for (_, table) in version.tables() {
        all.add(size_of(table));
    }
    let entry_bytes_max = version.tables().map(|(_, table)| entry_bytes(table)).max().unwrap_or(0);
    let garbage_max = garbage_max(version, entry_bytes_max);
    let file_bytes = version.tables().map(|(_, table)| table.meta.file_bytes).sum();
    VersionSizes { all, file_bytes, garbage_max, entry_bytes_max }
}

fn size_of(table: &LiveTable) -> GarbageEstimate {
    let blobs: u64 = table.meta.blobs.iter().map(|blob| blob.value_bytes).sum();
    GarbageEstimate { entries: table.meta.entries, bytes: table.meta.file_bytes + blobs }
}

/// Bytes of an entry of a table, on average.
fn entry_bytes(table: &LiveTable) -> u64 {
    size_of(table).bytes / table.meta.entries.max(1)
}

/// Returns work that spares readers the hidden entries of a keyspace, if they passed many.
fn task_for_readers(
    keyspace: &Arc<KeyspaceState>,
    view: &SuperVersion,
    sizes: &VersionSizes,
    now: Duration,
    garbage: &mut GarbageState,
) -> Option<GarbageTask> {
    let passed = view.skip_spans.hidden_passed();
    let before = garbage.keyspaces.get(&keyspace.id).map_or(0, |known| known.hidden_passed);
    let entries = sizes.all.entries + view.active.memtable.entries();
    let is_soon =
        garbage.for_readers_at.is_some_and(|last| now.saturating_sub(last) < rest_period(sizes));
    if is_soon || passed.saturating_sub(before) < entries.max(HIDDEN_PASSED_MIN) {
        return None;
    }
    garbage.keyspaces.entry(keyspace.id).or_default().hidden_passed = passed;
    garbage.for_readers_at = Some(now);
    pick(keyspace).map(|job| GarbageTask::Compact(job.preemptible()))
}

/// Returns a compaction of garbage after some time without writes, or the estimate that it needs
/// first. `quiet` is that time, and whether a caller waits for no more of it.
fn task_after_writes(
    keyspace: &Arc<KeyspaceState>,
    version: &Arc<Version>,
    sizes: &VersionSizes,
    (quiet_for, is_wanted): (Duration, bool),
    garbage: &GarbageState,
    wait_for: &mut impl FnMut(Duration),
) -> Option<GarbageTask> {
    for (wait, worth) in
        [(QUIET_PERIOD, WORTHWHILE_SHARE), (rest_period(sizes), WORTHWHILE_SHARE_AT_REST)]
    {
        if !sizes.garbage_max.is_share_of(sizes.all, worth) {
            continue;
        }
        if quiet_for < wait && !(is_wanted && worth == WORTHWHILE_SHARE) {
            wait_for(wait);
            continue;
        }
        let Some(found) = known_estimate(keyspace, version, garbage) else {
            return Some(GarbageTask::Probe(GarbageProbe(Arc::clone(keyspace))));
        };
        if found.is_share_of(sizes.all, worth)
            && let Some(job) = pick(keyspace)
        {
            return Some(GarbageTask::Compact(job.preemptible()));
        }
    }
    None
}

/// Returns a compaction of much garbage beside writes, or the estimate that it needs first.
fn task_beside_writes(
    keyspace: &Arc<KeyspaceState>,
    version: &Arc<Version>,
    all: GarbageEstimate,
    now: Duration,
    garbage: &mut GarbageState,
) -> Option<GarbageTask> {
    let Some(found) = known_estimate(keyspace, version, garbage) else {
        return Some(GarbageTask::Probe(GarbageProbe(Arc::clone(keyspace))));
    };
    garbage.beside_writes_at[1] = Some(now);
    garbage.last_keyspace = Some(keyspace.id);
    if !found.is_byte_share_of(all, WORTHWHILE_SHARE_BESIDE_WRITES) {
        return None;
    }
    pick(keyspace).map(|job| GarbageTask::Compact(job.preemptible()))
}

/// Time until there may be another flush, or compaction, beside writes.
fn beside_writes_delay(last: Option<Duration>, now: Duration, bytes: u64) -> Duration {
    let interval = BESIDE_WRITES_INTERVAL.0 + Duration::from_secs(bytes / BESIDE_WRITES_INTERVAL.1);
    last.map_or(Duration::ZERO, |last| interval.saturating_sub(now.saturating_sub(last)))
}

/// Time until the active memtable is to be flushed for what its deletes may hide. `None` if they
/// hide little.
fn hiding_flush_delay(
    view: &SuperVersion,
    sizes: &VersionSizes,
    quiet_for: Duration,
    beside_writes: Option<Duration>,
) -> Option<Duration> {
    let hidden = hidden_by_memtable_max(view, sizes).min(sizes.all.bytes);
    let reaches = |share: u64| hidden.saturating_mul(share) >= sizes.all.bytes;
    if hidden < FLUSHED_HIDING_BYTES_MIN || !reaches(FLUSHED_HIDING.0) {
        return None;
    }
    let quiet = QUIET_PERIOD.saturating_sub(quiet_for);
    let beside_writes = beside_writes.filter(|_| reaches(FLUSHED_HIDING.1));
    Some(beside_writes.map_or(quiet, |delay| quiet.min(delay)))
}

/// Upper bound of the bytes in tables that the active memtable's deletes hide.
fn hidden_by_memtable_max(view: &SuperVersion, sizes: &VersionSizes) -> u64 {
    let memtable = &view.active.memtable;
    let deletes = view.active.deletes().saturating_mul(sizes.entry_bytes_max);
    if !memtable.has_tombstones() {
        return deletes;
    }
    let tables = view.version.tables().count();
    if memtable.range_tombstones().count().saturating_mul(tables) > COMPARED_MAX {
        return sizes.all.bytes;
    }
    let is_met = |table: &LiveTable| {
        memtable.range_tombstones().any(|range| {
            range.start <= table.meta.largest.as_slice()
                && table.meta.smallest.as_slice() < range.end
        })
    };
    let met = view.version.tables().filter(|(_, table)| is_met(table));
    met.fold(deletes, |sum, (_, table)| sum.saturating_add(size_of(table).bytes))
}

/// Upper bound of the garbage by the manifest. Entries that a range tombstone hides are not known.
fn garbage_max(version: &Version, entry_bytes_max: u64) -> GarbageEstimate {
    let mut sum = GarbageEstimate::default();
    for (_, table) in tables_above_last_level(version) {
        if table.meta.range_tombstones > 0 {
            return GarbageEstimate::MAX;
        }
        sum.add(GarbageEstimate {
            entries: table.meta.entries + table.meta.deletes,
            bytes: table.meta.entries.saturating_mul(entry_bytes_max),
        });
    }
    sum
}

/// Returns the estimated garbage of a version, where there is an estimate.
fn known_estimate(
    keyspace: &KeyspaceState,
    version: &Arc<Version>,
    garbage: &GarbageState,
) -> Option<GarbageEstimate> {
    let known = garbage.keyspaces.get(&keyspace.id)?;
    known.estimate.filter(|_| Weak::ptr_eq(&known.version, &Arc::downgrade(version)))
}

impl GarbageProbe {
    /// Estimates the garbage and stores the result, unless required work preempts it.
    pub fn run(&self, store: &Store) {
        let version = Arc::clone(&self.0.super_version.load().version);
        let preemption = Preemption::default();
        // Errors are left to the next reader to report.
        let found = estimate(store, &version, || preemption.should_preempt(store, &self.0))
            .unwrap_or(Some(GarbageEstimate::default()));
        let Some(found) = found else { return };
        let mut state = store.scheduler_lock();
        let Some(known) = state.garbage.keyspaces.get_mut(&self.0.id) else { return };
        if Weak::ptr_eq(&known.version, &Arc::downgrade(&version)) {
            known.estimate = Some(found);
        }
    }
}

/// Estimates the garbage; `None` once `should_preempt` returns `true`.
fn estimate(
    store: &Store,
    version: &Version,
    should_preempt: impl Fn() -> bool,
) -> Result<Option<GarbageEstimate>> {
    let mut garbage = GarbageEstimate::default();
    for (level, table) in tables_above_last_level(version) {
        store.check_open()?;
        if should_preempt() {
            return Ok(None);
        }
        let sampled = sample(store, version, level, table)?;
        let scaled = |part: u64| part.saturating_mul(table.meta.entries) / sampled.keys.max(1);
        // A few samples that meet long entries say little about their share.
        let bytes_max = tables_below(version, level, table).map(|other| size_of(other).bytes).sum();
        garbage.add(GarbageEstimate {
            entries: scaled(sampled.hiding) + table.meta.deletes,
            bytes: scaled(sampled.hidden_bytes).min(bytes_max),
        });
        if table.meta.range_tombstones > 0 {
            garbage.add(hidden_by_ranges(version, level, table)?);
        }
    }
    Ok(Some(garbage))
}

/// Estimates what the range tombstones of a table hide in the tables below it.
fn hidden_by_ranges(version: &Version, level: usize, table: &LiveTable) -> Result<GarbageEstimate> {
    let tombstones = table.reader()?.tombstones();
    let fragments = (0..tombstones.len()).filter(|&fragment| !tombstones.is_gap(fragment));
    let step = fragments.clone().count().div_ceil(RANGES_MAX).max(1);
    let sampled: Vec<usize> = fragments.step_by(step).collect();
    let mut garbage =
        GarbageEstimate { entries: table.meta.range_tombstones, bytes: table.meta.file_bytes };
    for other in tables_below(version, level, table) {
        let mut covered = 0;
        for &fragment in &sampled {
            let (start, end) = (tombstones.start(fragment), tombstones.end(fragment));
            covered += covered_bytes(other, start, end)?;
        }
        let size = size_of(other);
        let bytes = covered.saturating_mul(step as u64).min(size.bytes);
        let entries = u128::from(size.entries) * u128::from(bytes) / u128::from(size.bytes.max(1));
        garbage.add(GarbageEstimate { entries: entries as u64, bytes });
    }
    Ok(garbage)
}

/// Approximate bytes of a table between two keys.
fn covered_bytes(table: &LiveTable, start: &[u8], end: &[u8]) -> Result<u64> {
    let meta = &table.meta;
    if end <= meta.smallest.as_slice() || meta.largest.as_slice() < start {
        return Ok(0);
    }
    let (is_from_start, is_to_end) =
        (start <= meta.smallest.as_slice(), meta.largest.as_slice() < end);
    if is_from_start && is_to_end {
        return Ok(size_of(table).bytes);
    }
    // Each part of the index that the range meets counts whole.
    let (mut from, mut to, mut previous) = (0, 0, None);
    for (split, offset) in table.reader()?.block_separators() {
        if split < start {
            from = offset;
        }
        if is_to_end || previous.is_none_or(|previous| previous < end) {
            to = offset;
        }
        previous = Some(split);
    }
    let covered = u128::from(to.saturating_sub(from)) * u128::from(size_of(table).bytes);
    Ok((covered / u128::from(meta.file_bytes.max(1))) as u64)
}

/// Tables that are older than `table` of `level`, or lie below that level.
fn tables_below<'a>(
    version: &'a Version,
    level: usize,
    table: &'a LiveTable,
) -> impl Iterator<Item = &'a Arc<LiveTable>> {
    let older = version.levels[0].iter().skip_while(|other| other.meta.id != table.meta.id);
    let older = older.skip(1).filter(move |_| level == 0);
    older.chain(version.levels.iter().skip(level + 1).flatten())
}

/// Counts of sampled keys of a table.
#[derive(Debug, Default)]
struct SampleCounts {
    keys: u64,
    /// Keys that may also be in tables below.
    hiding: u64,
    /// Bytes that these take there.
    hidden_bytes: u64,
}

/// Samples keys of a table.
fn sample(
    store: &Store,
    version: &Version,
    level: usize,
    table: &Arc<LiveTable>,
) -> Result<SampleCounts> {
    let reader = table.reader()?;
    let places: Vec<&[u8]> = reader.block_separators().map(|(key, _)| key).collect();
    let step = places.len().div_ceil(SAMPLES).max(1);
    let mut counts = SampleCounts::default();
    let mut loader = FilterLoader::new(version);
    let mut run = SequentialReader::default();
    let starts = [table.meta.smallest.as_slice()];
    for key in starts.into_iter().chain(places.into_iter().step_by(step)) {
        run.seek(reader, key, SequenceNumber::MAX)?;
        for _ in 0..KEYS_PER_SAMPLE {
            if !run.valid() {
                break;
            }
            counts.keys += 1;
            if let Some(other) = find_below(store, version, level, table, run.key(), &mut loader)? {
                counts.hiding += 1;
                counts.hidden_bytes += entry_bytes(other);
            }
            run.next(reader)?;
        }
    }
    Ok(counts)
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
    fn may_contain(&mut self, store: &Store, table: &LiveTable, hash: u64) -> Result<bool> {
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

/// The next older table that may have `key` too, which `table` has.
fn find_below<'a>(
    store: &Store,
    version: &'a Version,
    level: usize,
    table: &LiveTable,
    key: &[u8],
    loader: &mut FilterLoader,
) -> Result<Option<&'a LiveTable>> {
    let hash = table.hash(key);
    if level == 0 {
        let older = version.levels[0].iter().skip_while(|other| other.meta.id != table.meta.id);
        for other in older.skip(1).filter(|other| other.meta.smallest.as_slice() <= key) {
            if other.reaches(key) && loader.may_contain(store, other, hash)? {
                return Ok(Some(other));
            }
        }
    }
    for tables in version.levels.iter().skip(level.max(1) + usize::from(level > 0)) {
        if let Some(other) = tables.get(first_reaching(tables, key))
            && other.meta.smallest.as_slice() <= key
            && loader.may_contain(store, other, hash)?
        {
            return Ok(Some(other));
        }
    }
    Ok(None)
}
