//! Garbage estimate. Garbage is the entries of upper levels that overwrite or delete entries below
//! them, and the entries that they hide. Level sizes do not reveal garbage. When there is no other
//! work, garbage is worth a compaction.
//!
//! The estimate is in entries and in bytes. Some keys of each upper table are looked up in the
//! filters of the tables below. Range tombstones are compared with the bounds and indexes of the
//! tables below. For a memtable only an upper bound is computed: each delete counts as hiding one
//! entry of the greatest average size. A memtable whose deletes can hide many bytes is flushed
//! early.
//!
//! A keyspace is also compacted once cursors stepped through as many hidden entries as its tables
//! have entries: the merge costs as much as these steps did.
//!
//! Little garbage is compacted after some time without writes; much garbage also while writers
//! write.

use std::collections::{HashSet, VecDeque};
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
/// Smallest share of garbage in all entries that is worth a compaction after [`QUIET_PERIOD`]: one
/// part in this number.
const WORTHWHILE_SHARE: u64 = 12;
/// Smallest share of garbage in all entries that is worth a compaction in a store at rest: one part
/// in this number.
const WORTHWHILE_SHARE_AT_REST: u64 = 32;
/// Smallest share of garbage in all bytes that is worth a compaction while writers write: one part
/// in this number.
const WORTHWHILE_SHARE_BESIDE_WRITES: u64 = 3;
/// A memtable is flushed early if its deletes can hide one part in this number of all bytes: the
/// first number after [`QUIET_PERIOD`], the second while writers write.
const FLUSHED_HIDING: (u64, u64) = (6, 2);
/// A memtable whose deletes can hide fewer bytes than this is not flushed early.
const FLUSHED_HIDING_BYTES_MIN: u64 = 256 << 10;
/// Interval of early flushes, and of compactions of garbage, while writers write: a minimum, plus a
/// second for each given number of table bytes. The interval bounds the share of the disk's
/// bandwidth that rewriting takes.
const BESIDE_WRITES_INTERVAL: (Duration, u64) = (Duration::from_secs(5), 32 << 20);
/// In a store at rest a memtable is flushed from this size on: one part in the first number of the
/// tables' bytes, and at least the second number. The flush frees WAL segments, and lets a
/// compaction drop the entries that the memtable overwrites.
const FLUSHED_AT_REST: (u64, u64) = (32, 1 << 20);
/// At rest a memtable is also flushed if its puts may hide more than this number of bytes in tables
/// for each byte that they take.
const HIDING_PUTS_MIN: u64 = 4;
/// Time without writes until a store is at rest: at least the first value, and a second for each
/// given number of table bytes. The wait keeps rewriting for little garbage rare.
const REST: (Duration, u64) = (Duration::from_secs(8), 8 << 20);
/// Smallest number of hidden entries for which a keyspace is compacted because cursors stepped
/// through them.
const HIDDEN_PASSED_MIN: u64 = 1 << 16;
/// Number of places in a table at which keys are sampled.
const SAMPLES: usize = 8;
const KEYS_PER_SAMPLE: usize = 32;
/// Maximum number of range tombstones of a table that are compared with the tables below.
const RANGES_MAX: usize = 256;
/// If comparing a memtable's range tombstones with tables takes more comparisons than this, the
/// tombstones count as hiding all bytes.
const COMPARED_MAX: usize = 1 << 16;
/// Maximum measured false-positive rate of a filter that the estimate uses.
const RATE_MAX: f64 = 0.05;

/// Result of [`find_task`].
#[derive(Debug)]
pub enum GarbageTask {
    /// There is nothing to do before the next write.
    Nothing,
    /// There is possibly work after this further time without writes.
    Wait(Duration),
    /// A memtable to flush.
    Freeze(Arc<KeyspaceState>),
    /// A keyspace whose garbage must be estimated first.
    Probe(GarbageProbe),
    /// A compaction of garbage to run.
    Compact(CompactionJob),
}

/// A keyspace whose garbage is to be estimated. The estimate reads files, so it runs without a
/// lock.
#[derive(Debug)]
pub struct GarbageProbe(Arc<KeyspaceState>);

/// Finds a keyspace whose garbage is worth a compaction. REQUIRES: no other flush or compaction is
/// due.
pub fn find_task(
    store: &Store,
    keyspaces: &[&Arc<KeyspaceState>],
    state: &mut SchedulerState,
) -> GarbageTask {
    let last = state.garbage.last_keyspace;
    let first = keyspaces.iter().position(|keyspace| Some(keyspace.id) == last);
    let (before, after) = keyspaces.split_at(first.map_or(0, |first| first + 1));
    let in_turn = after.iter().chain(before).copied();
    let known = &mut state.garbage.keyspaces;
    if known.len() > keyspaces.len() {
        let live: HashSet<u32> = keyspaces.iter().map(|keyspace| keyspace.id).collect();
        known.retain(|id, _| live.contains(id));
    }
    let task = find_task_in_turn(store, in_turn, state);
    state.garbage.last_keyspace = match &task {
        GarbageTask::Freeze(keyspace) | GarbageTask::Probe(GarbageProbe(keyspace)) => {
            Some(keyspace.id)
        }
        GarbageTask::Compact(job) => Some(job.keyspace.id),
        GarbageTask::Nothing | GarbageTask::Wait(_) => state.garbage.last_keyspace,
    };
    task
}

fn find_task_in_turn<'a>(
    store: &Store,
    keyspaces: impl Iterator<Item = &'a Arc<KeyspaceState>>,
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
        let garbage = &mut state.garbage;
        let flush_in =
            (!is_snapshot_held).then(|| garbage.beside_writes_from[0].saturating_sub(now));
        let delay = hiding_flush_delay(&view, &sizes, quiet_for, flush_in);
        match delay.filter(|_| keyspace.uses_wal() && view.frozen.is_empty()) {
            Some(Duration::ZERO) => {
                garbage.beside_writes_from[0] = now + beside_writes_interval(all.bytes);
                return GarbageTask::Freeze(Arc::clone(keyspace));
            }
            Some(delay) => wait_for(quiet_for + delay),
            None => {}
        }
        if !is_snapshot_held
            && let Some(task) = task_for_readers(keyspace, &view, &sizes, now, garbage)
        {
            return task;
        }
        if !is_wanted && keyspace.uses_wal() && is_much_in_the_log(&view, &sizes) {
            match rest_period(&sizes) {
                rest if quiet_for >= rest => return GarbageTask::Freeze(Arc::clone(keyspace)),
                rest => wait_for(rest),
            }
        }
        let wait_longer = |delay| wait_for(quiet_for + delay);
        if !is_snapshot_held
            && sizes.garbage_max.is_byte_share_of(all, WORTHWHILE_SHARE_BESIDE_WRITES)
            && let Some(task) =
                task_beside_writes(keyspace, &version, all, now, garbage, wait_longer)
        {
            return task;
        }
        let quiet = (quiet_for, is_wanted);
        let task = task_after_writes(keyspace, &version, &sizes, quiet, garbage, &mut wait_for);
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

/// Whether the active memtable is large enough to be flushed in a store at rest.
fn is_much_in_the_log(view: &SuperVersion, sizes: &VersionSizes) -> bool {
    let (share, least) = FLUSHED_AT_REST;
    let held = view.active.held_bytes();
    let is_large = held >= least.max(sizes.file_bytes / share);
    // Short values hide many bytes where they overwrite long ones.
    let hidden = view.active.memtable.entries().saturating_mul(sizes.entry_bytes_max);
    let hides = hidden > HIDING_PUTS_MIN.saturating_mul(held)
        && is_worth_flush(hidden, FLUSHED_HIDING.0, sizes);
    is_large || hides
}

/// Whether a memtable that may hide `hidden` bytes in tables hides one part in `share` of all
/// bytes.
fn is_worth_flush(hidden: u64, share: u64, sizes: &VersionSizes) -> bool {
    hidden >= FLUSHED_HIDING_BYTES_MIN && hidden.saturating_mul(share) >= sizes.all.bytes
}

/// Returns for how long no write was observed.
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

/// Returns a compaction of a keyspace for its estimated garbage. The estimate is used up: it does
/// not hold for the result.
fn compact(keyspace: &Arc<KeyspaceState>, garbage: &mut GarbageState) -> Option<GarbageTask> {
    let job = pick(keyspace)?;
    if let Some(known) = garbage.keyspaces.get_mut(&keyspace.id) {
        known.estimate = None;
    }
    Some(GarbageTask::Compact(job.preemptible()))
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
    let content = version.content();
    if !Weak::ptr_eq(&known.content, &content) {
        known.content = content;
        known.sizes = sizes_of(version);
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

/// Average bytes of an entry of a table, its long value included.
fn entry_bytes(table: &LiveTable) -> u64 {
    size_of(table).bytes / table.meta.entries.max(1)
}

/// Returns a compaction of a keyspace if cursors stepped through many of its hidden entries.
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
    if now < garbage.for_readers_from
        || passed.saturating_sub(before) < entries.max(HIDDEN_PASSED_MIN)
    {
        return None;
    }
    let job = pick(keyspace)?;
    garbage.keyspaces.entry(keyspace.id).or_default().hidden_passed = passed;
    garbage.for_readers_from = now + rest_period(sizes);
    Some(GarbageTask::Compact(job.preemptible()))
}

/// Returns a compaction of garbage for a time without writes, or the estimate that it needs first.
/// `quiet_for` is the time without writes so far. `is_wanted` says that a caller requests the
/// compaction without waiting for [`QUIET_PERIOD`].
fn task_after_writes(
    keyspace: &Arc<KeyspaceState>,
    version: &Arc<Version>,
    sizes: &VersionSizes,
    (quiet_for, is_wanted): (Duration, bool),
    garbage: &mut GarbageState,
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
            && let Some(task) = compact(keyspace, garbage)
        {
            return Some(task);
        }
    }
    None
}

/// Returns a compaction of much garbage while writers write, or the estimate that it needs first.
fn task_beside_writes(
    keyspace: &Arc<KeyspaceState>,
    version: &Arc<Version>,
    all: GarbageEstimate,
    now: Duration,
    garbage: &mut GarbageState,
    mut wait_longer: impl FnMut(Duration),
) -> Option<GarbageTask> {
    let is_current = known_estimate(keyspace, version, garbage).is_some();
    // Flushes since an estimate only add garbage, so they must not delay its compaction for ever.
    let estimate = garbage.keyspaces.get(&keyspace.id).and_then(|known| known.estimate.as_ref());
    let found = estimate.map(|(_, found)| *found);
    if found.is_some_and(|it| it.is_byte_share_of(all, WORTHWHILE_SHARE_BESIDE_WRITES)) {
        return compact(keyspace, garbage);
    }
    if is_current {
        return None;
    }
    match garbage.beside_writes_from[1].saturating_sub(now) {
        Duration::ZERO => {
            garbage.beside_writes_from[1] = now + beside_writes_interval(all.bytes);
            Some(GarbageTask::Probe(GarbageProbe(Arc::clone(keyspace))))
        }
        delay => {
            wait_longer(delay);
            None
        }
    }
}

/// Time after an early flush, or after an estimate, of a keyspace with tables of these bytes until
/// there may be another while writers write.
fn beside_writes_interval(bytes: u64) -> Duration {
    BESIDE_WRITES_INTERVAL.0 + Duration::from_secs(bytes / BESIDE_WRITES_INTERVAL.1)
}

/// Time until the active memtable is flushed early because its deletes can hide many bytes. `None`
/// if they hide few.
fn hiding_flush_delay(
    view: &SuperVersion,
    sizes: &VersionSizes,
    quiet_for: Duration,
    beside_writes: Option<Duration>,
) -> Option<Duration> {
    let hidden = hidden_by_memtable_max(view, sizes).min(sizes.all.bytes);
    if !is_worth_flush(hidden, FLUSHED_HIDING.0, sizes) {
        return None;
    }
    let quiet = QUIET_PERIOD.saturating_sub(quiet_for);
    let beside_writes = beside_writes.filter(|_| is_worth_flush(hidden, FLUSHED_HIDING.1, sizes));
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

/// Upper bound of the garbage, from the tables' metadata. It is unlimited with range tombstones,
/// since the metadata does not say how many entries they hide.
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

/// Returns the estimated garbage of a version; `None` if there is no estimate for it.
fn known_estimate(
    keyspace: &KeyspaceState,
    version: &Arc<Version>,
    garbage: &GarbageState,
) -> Option<GarbageEstimate> {
    let (content, found) = garbage.keyspaces.get(&keyspace.id)?.estimate.as_ref()?;
    Weak::ptr_eq(content, &version.content()).then_some(*found)
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
        known.estimate = Some((version.content(), found));
    }
}

/// Estimates the garbage; `None` once `should_preempt` returns `true`.
fn estimate(
    store: &Store,
    version: &Version,
    should_preempt: impl Fn() -> bool,
) -> Result<Option<GarbageEstimate>> {
    let mut garbage = GarbageEstimate::default();
    let bytes_max = version.tables().map(|(_, table)| size_of(table).bytes).sum();
    for (level, table) in tables_above_last_level(version) {
        store.check_open()?;
        if should_preempt() {
            return Ok(None);
        }
        let sampled = sample(store, version, level, table)?;
        let scaled = |part: u64| part.saturating_mul(table.meta.entries) / sampled.keys.max(1);
        // A few samples that meet long entries say little about their share.
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

/// Estimates the entries and bytes that the range tombstones of a table hide in the tables below
/// it.
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

/// Counts of the sampled keys of a table.
#[derive(Debug, Default)]
struct SampleCounts {
    keys: u64,
    /// Number of sampled keys that tables below possibly have, too.
    hiding: u64,
    /// Estimated bytes that the keys counted in `hiding` hide in tables below: for each key, an
    /// average entry of the next table below.
    hidden_bytes: u64,
}

/// Samples keys of a table, and counts the keys that tables below possibly have.
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

/// Loads, for the duration of an estimate, filters that the advisor released. The most recently
/// probed filters are first.
#[derive(Debug)]
struct FilterLoader {
    filters_max: usize,
    filters: VecDeque<(u64, Option<ResidentFilter>, MemoryReservation)>,
}

impl FilterLoader {
    fn new(version: &Version) -> FilterLoader {
        FilterLoader { filters_max: version.sources(), filters: VecDeque::new() }
    }

    /// Whether the table's filter passes a key with this hash. A filter with many false positives
    /// is not used, since it would make all entries above its table look like garbage.
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

/// Returns the next older table that possibly has `key`, a key of `table`, too.
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
