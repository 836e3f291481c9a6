//! Early work for hidden entries: finds memtables to flush, and keyspaces to compact, when no other
//! work is due.
//!
//! Garbage is the entries of upper levels that overwrite or delete entries below them, and the
//! entries that they hide. Level sizes do not reveal garbage, so it is
//! [estimated](hidden_entries_estimator), in entries and in bytes.
//!
//! A keyspace is also compacted once cursors stepped through as many hidden entries as its tables
//! have entries: the merge costs as much as these steps did.
//!
//! Little garbage is compacted after some time without writes; much garbage also while writers
//! write.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::compaction::bottommost_picker::LAST_LEVEL;
use crate::maintenance::compaction_jobs::compaction_job::{self, CompactionJob, JobPick};
use crate::maintenance::compaction_jobs::early_flush::{
    self, EarlyFlush, FlushReason, Moment, QUIET_PERIOD, rest_period,
};
use crate::maintenance::compaction_jobs::hidden_entries_estimator;
use crate::maintenance::compaction_jobs::joint_flush::{self, JointFlush, JointMoment};
use crate::maintenance::compaction_jobs::preemption::Preemption;
use crate::maintenance::compaction_jobs::version_sizes::known_sizes;
use crate::state::keyspace_state::KeyspaceState;
use crate::state::store::{GarbageEstimate, GarbageState, SchedulerState, Store, VersionSizes};
use crate::state::write_rate_watch::WriteTotals;
use crate::super_version::SuperVersion;
use crate::version::Version;

/// Smallest share of garbage in all entries that is worth a compaction after [`QUIET_PERIOD`]: one
/// part in this number.
const WORTHWHILE_SHARE: u64 = 12;
/// Smallest share of garbage in all entries that is worth a compaction in a store at rest: one part
/// in this number.
const WORTHWHILE_SHARE_AT_REST: u64 = 32;
/// Smallest share of garbage in all bytes that is worth a compaction while writers write: one part
/// in this number.
const WORTHWHILE_SHARE_BESIDE_WRITES: u64 = 3;
/// Interval of early flushes for hidden bytes, and of estimates of garbage, in a keyspace while
/// writers write: a minimum, plus a second for each given number of table bytes. The interval
/// bounds the share of the disk's bandwidth that rewriting takes.
const BESIDE_WRITES_INTERVAL: (Duration, u32) = (Duration::from_secs(5), 32 << 20);
/// Minimum of the same interval for all keyspaces together.
const BESIDE_WRITES_INTERVAL_OF_STORE: Duration = Duration::from_millis(20);
/// Smallest number of hidden entries for which a keyspace is compacted because cursors stepped
/// through them.
const HIDDEN_PASSED_MIN: u64 = 1 << 16;

/// Result of [`find_task`].
#[derive(Debug)]
pub enum GarbageTask {
    /// There is nothing to do before the next write.
    Nothing,
    /// There is possibly work after this further time without writes.
    Wait(Duration),
    /// Keyspaces whose memtables are flushed.
    Freeze(Vec<Arc<KeyspaceState>>, TaskCharge),
    /// A keyspace whose garbage must be estimated first.
    Probe(GarbageProbe, TaskCharge),
    /// A compaction of garbage to run.
    Compact(CompactionJob, TaskCharge),
}

/// A keyspace whose garbage is to be estimated. The estimate reads files, so it runs without a
/// lock.
#[derive(Debug)]
pub struct GarbageProbe {
    keyspace: Arc<KeyspaceState>,
    is_of_memtable: bool,
}

/// Change of the search's state by a task. It is applied only when a thread has claimed the task
/// and its job slot: otherwise the search would count work that was not done.
#[derive(Debug, Clone, Copy)]
pub enum TaskCharge {
    /// No change.
    None,
    /// The next flush beside writes for hidden bytes begins at these times or later.
    HiddenBytesFrom(u32, BesideWritesInterval),
    /// The next flush beside writes for much garbage in this keyspace begins at this time or later.
    OwnGarbageFrom(u32, Duration),
    /// The next estimate beside writes begins at these times or later.
    EstimateFrom(u32, BesideWritesInterval),
    /// The estimate of this keyspace's garbage is used up: it does not hold for the result.
    Estimate(u32),
    /// Hidden entries that cursors passed are used up.
    HiddenPassed {
        /// Id of the keyspace.
        keyspace: u32,
        /// Number of hidden entries that cursors have passed so far.
        passed: u64,
        /// Earliest time of the next compaction for hidden entries that cursors passed.
        next_from: Duration,
    },
}

/// Ends of the interval after an early flush, or after an estimate, of a keyspace, until there may
/// be another while writers write.
#[derive(Debug, Clone, Copy)]
pub struct BesideWritesInterval {
    /// End for the same keyspace.
    of_keyspace: Duration,
    /// End for any keyspace.
    of_store: Duration,
}

impl BesideWritesInterval {
    /// The interval after work at `now` in a keyspace with tables of these bytes.
    fn after(now: Duration, bytes: u64) -> BesideWritesInterval {
        let of_bytes = now + Duration::from_secs(bytes) / BESIDE_WRITES_INTERVAL.1;
        BesideWritesInterval {
            of_keyspace: of_bytes + BESIDE_WRITES_INTERVAL.0,
            of_store: of_bytes + BESIDE_WRITES_INTERVAL_OF_STORE,
        }
    }
}

impl TaskCharge {
    /// Applies the change.
    pub fn apply(self, garbage: &mut GarbageState) {
        match self {
            TaskCharge::None => {}
            TaskCharge::HiddenBytesFrom(id, ends) => {
                garbage.beside_writes_from.hidden_flush = ends.of_store;
                garbage.keyspaces.entry(id).or_default().beside_writes_from.hidden_flush =
                    ends.of_keyspace;
            }
            TaskCharge::OwnGarbageFrom(id, from) => {
                garbage.keyspaces.entry(id).or_default().flush_from = from;
            }
            TaskCharge::EstimateFrom(id, ends) => {
                garbage.beside_writes_from.estimate = ends.of_store;
                garbage.keyspaces.entry(id).or_default().beside_writes_from.estimate =
                    ends.of_keyspace;
            }
            TaskCharge::Estimate(id) => {
                garbage.keyspaces.entry(id).or_default().estimate = None;
            }
            TaskCharge::HiddenPassed { keyspace, passed, next_from } => {
                garbage.keyspaces.entry(keyspace).or_default().hidden_passed = passed;
                garbage.for_readers_from = next_from;
            }
        }
    }
}

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
    let task = find_task_in_turn(store, keyspaces, in_turn, state);
    state.garbage.last_keyspace = match &task {
        GarbageTask::Freeze(frozen, _) => frozen.last().map(|keyspace| keyspace.id),
        GarbageTask::Probe(probe, _) => Some(probe.keyspace.id),
        GarbageTask::Compact(job, _) => Some(job.keyspace.id),
        GarbageTask::Nothing | GarbageTask::Wait(_) => state.garbage.last_keyspace,
    };
    task
}

fn find_task_in_turn<'a>(
    store: &Store,
    all: &[&Arc<KeyspaceState>],
    in_turn: impl Iterator<Item = &'a Arc<KeyspaceState>>,
    state: &mut SchedulerState,
) -> GarbageTask {
    let is_wanted = state.garbage.drain_requests > 0;
    if !is_wanted && store.options.background_threads == 0 {
        return GarbageTask::Nothing;
    }
    let now = store.options.env.clock.now();
    let times = state.garbage.write_rate.observe(now, write_totals(store, all));
    let quiet_for = times.quiet_for;
    let mut later: Option<Duration> = None;
    let mut wait_for = |wait: Duration| {
        let left = wait.saturating_sub(quiet_for);
        later = Some(later.map_or(left, |later| later.min(left)));
    };
    if let Some(left) = QUIET_PERIOD.checked_sub(times.silent_for) {
        wait_for(quiet_for + left);
    }
    // It may keep what deletes hide, so that nothing would be freed beside writes.
    let is_snapshot_held = store.snapshots.summary().0 > 0;
    if !is_wanted {
        let moment = JointMoment { now, times, is_snapshot_held };
        match joint_flush::next_step(store, all, &mut state.garbage, moment) {
            JointFlush::Flush(keyspaces) => {
                note_joint_flush(&keyspaces, now, &mut state.garbage);
                return GarbageTask::Freeze(keyspaces, TaskCharge::None);
            }
            JointFlush::Estimate(keyspace) => return memtable_probe(&keyspace),
            JointFlush::Later(wait) => wait_for(quiet_for + wait),
            JointFlush::None => {}
        }
    }
    for keyspace in in_turn {
        let view = keyspace.super_version.acquire();
        let version = Arc::clone(&view.version);
        let sizes = known_sizes(keyspace, &version, &mut state.garbage);
        let garbage = &mut state.garbage;
        let own = garbage.keyspaces.entry(keyspace.id).or_default().beside_writes_from;
        let flush_from = own.hidden_flush.max(garbage.beside_writes_from.hidden_flush);
        let flush_from = (!is_snapshot_held).then_some(flush_from);
        let moment = Moment { now, times, flush_from };
        match task_of_memtable(keyspace, &view, &sizes, moment, garbage) {
            GarbageTask::Wait(delay) => wait_for(quiet_for + delay),
            GarbageTask::Nothing => {}
            task => return task,
        }
        if !is_snapshot_held
            && let Some(task) = task_for_readers(keyspace, &view, &sizes, now, garbage)
        {
            return task;
        }
        let wait_longer = |delay| wait_for(quiet_for + delay);
        if !is_snapshot_held
            && sizes.garbage_max.is_byte_share_of(sizes.all, WORTHWHILE_SHARE_BESIDE_WRITES)
            && let Some(task) =
                task_beside_writes(keyspace, &version, sizes.all, now, garbage, wait_longer)
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

/// Begins the interval after a joint flush of these keyspaces until the next for hidden bytes.
fn note_joint_flush(keyspaces: &[Arc<KeyspaceState>], now: Duration, garbage: &mut GarbageState) {
    for keyspace in keyspaces {
        let known = garbage.keyspaces.entry(keyspace.id).or_default();
        let ends = BesideWritesInterval::after(now, known.sizes.all.bytes);
        known.beside_writes_from.hidden_flush = ends.of_keyspace;
    }
}

/// Returns the early flush of a keyspace's active memtable, or the estimate that it needs first.
fn task_of_memtable(
    keyspace: &Arc<KeyspaceState>,
    view: &SuperVersion,
    sizes: &VersionSizes,
    moment: Moment,
    garbage: &mut GarbageState,
) -> GarbageTask {
    if !keyspace.uses_wal() || !view.frozen.is_empty() {
        return GarbageTask::Nothing;
    }
    let known = garbage.keyspaces.entry(keyspace.id).or_default();
    match early_flush::next_step(view, sizes, known, moment) {
        EarlyFlush::No => GarbageTask::Nothing,
        EarlyFlush::Later(delay) => GarbageTask::Wait(delay),
        EarlyFlush::Estimate => memtable_probe(keyspace),
        EarlyFlush::Now(reason) => {
            let charge = match reason {
                FlushReason::Idle => TaskCharge::None,
                FlushReason::HiddenBytes => {
                    let ends = BesideWritesInterval::after(moment.now, sizes.all.bytes);
                    TaskCharge::HiddenBytesFrom(keyspace.id, ends)
                }
                FlushReason::OwnGarbage => {
                    let from = moment.now + early_flush::BESIDE_WRITES_INTERVAL;
                    TaskCharge::OwnGarbageFrom(keyspace.id, from)
                }
            };
            GarbageTask::Freeze(vec![Arc::clone(keyspace)], charge)
        }
    }
}

/// Returns the estimate of what an active memtable hides, to be made first.
fn memtable_probe(keyspace: &Arc<KeyspaceState>) -> GarbageTask {
    let keyspace = Arc::clone(keyspace);
    GarbageTask::Probe(GarbageProbe { keyspace, is_of_memtable: true }, TaskCharge::None)
}

/// Returns the writes of a store with these keyspaces so far.
fn write_totals(store: &Store, keyspaces: &[&Arc<KeyspaceState>]) -> WriteTotals {
    let bytes =
        |keyspace: &&Arc<KeyspaceState>| keyspace.counters.user_bytes.load(Ordering::Relaxed);
    let bytes = keyspaces.iter().map(bytes).fold(0, u64::wrapping_add);
    WriteTotals { newest: store.snapshots.visible(), bytes }
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

/// Returns a compaction of a keyspace for its estimated garbage.
fn compact(keyspace: &Arc<KeyspaceState>) -> Option<GarbageTask> {
    let job = pick(keyspace)?;
    Some(GarbageTask::Compact(job.preemptible(), TaskCharge::Estimate(keyspace.id)))
}

/// Returns the estimate of the garbage in a keyspace's tables, to be made first.
fn probe(keyspace: &Arc<KeyspaceState>, charge: TaskCharge) -> GarbageTask {
    let keyspace = Arc::clone(keyspace);
    GarbageTask::Probe(GarbageProbe { keyspace, is_of_memtable: false }, charge)
}

/// Returns a compaction of a keyspace if cursors stepped through many of its hidden entries.
fn task_for_readers(
    keyspace: &Arc<KeyspaceState>,
    view: &SuperVersion,
    sizes: &VersionSizes,
    now: Duration,
    garbage: &GarbageState,
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
    let next_from = now + rest_period(sizes);
    let charge = TaskCharge::HiddenPassed { keyspace: keyspace.id, passed, next_from };
    Some(GarbageTask::Compact(job.preemptible(), charge))
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
        if sizes.garbage_max == GarbageEstimate::default() {
            continue;
        }
        if quiet_for < wait && !(is_wanted && worth == WORTHWHILE_SHARE) {
            wait_for(wait);
            continue;
        }
        let Some(found) = known_estimate(keyspace, version, garbage) else {
            return Some(probe(keyspace, TaskCharge::None));
        };
        if found.is_share_of(sizes.all, worth)
            && let Some(task) = compact(keyspace)
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
        return compact(keyspace);
    }
    if is_current {
        return None;
    }
    let own = garbage.keyspaces.entry(keyspace.id).or_default().beside_writes_from.estimate;
    match own.max(garbage.beside_writes_from.estimate).saturating_sub(now) {
        Duration::ZERO => {
            let ends = BesideWritesInterval::after(now, all.bytes);
            Some(probe(keyspace, TaskCharge::EstimateFrom(keyspace.id, ends)))
        }
        delay => {
            wait_longer(delay);
            None
        }
    }
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
        // Errors are left to the next reader to report.
        let preemption = Preemption::default();
        let should_preempt = || preemption.should_preempt(store, &self.keyspace);
        if self.is_of_memtable {
            let view = self.keyspace.super_version.acquire();
            let empty = hidden_entries_estimator::no_garbage(&view);
            let found = hidden_entries_estimator::estimate_memtable(store, &view, should_preempt);
            let Some(found) = found.unwrap_or(Some(empty)) else { return };
            let mut state = store.scheduler_lock();
            if let Some(known) = state.garbage.keyspaces.get_mut(&self.keyspace.id) {
                known.memtable = Some(found);
            }
            return;
        }
        let version = Arc::clone(&self.keyspace.super_version.load().version);
        let found = hidden_entries_estimator::estimate(store, &version, should_preempt)
            .unwrap_or(Some(GarbageEstimate::default()));
        let Some(found) = found else { return };
        let mut state = store.scheduler_lock();
        let Some(known) = state.garbage.keyspaces.get_mut(&self.keyspace.id) else { return };
        known.estimate = Some((version.content(), found));
    }
}
