//! Scheduler of background work: chooses the next flush or compaction, and runs the threads.
//!
//! With `background_threads` 0 the thread whose write makes work due does the work before the write
//! returns. So every run of a program does the same work at the same points.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;
use umbel_base::ignore_poison::IgnorePoison;

use umbel_base::{Error, Result};

use crate::compaction::write_throttle::{self, CompactionLoad, ThrottleLimits};
use crate::maintenance::advisor_job;
use crate::maintenance::compaction_jobs::compaction_job::{self, CompactionJob};
use crate::maintenance::compaction_jobs::early_compaction::{
    self, GarbageProbe, GarbageTask, TaskCharge,
};
use crate::maintenance::compaction_jobs::picker_input;
use crate::maintenance::compaction_jobs::preemption;
use crate::maintenance::disk_full_retry::back_off_if_full;
use crate::maintenance::existence_maintenance;
use crate::maintenance::flush_job::{self, FlushJob};
use crate::maintenance::job_claim::JobClaim;
use crate::maintenance::memtable_freeze;
use crate::maintenance::memtable_limit;
use crate::maintenance::shared_memtable_limit;
use crate::maintenance::space_reclaim::{self, ReclaimScope};
use crate::maintenance::wal_recycling;
use crate::shared_budget::{JobKind, JobSlot};
use crate::state::disk_full_backoff::Priority;
use crate::state::keyspace_state::KeyspaceState;
use crate::state::snapshot_list::AwaitedRelease;
use crate::state::store::{SchedulerState, Store};

/// Number of old WAL segments above which a clean close, or an open, flushes memtables.
pub const OLD_SEGMENTS_MAX: usize = 4;

/// Interval of checks whether obsolete files are still pinned.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// Delay before work that found no free file descriptor is retried.
const RETRY_DELAY: Duration = Duration::from_millis(20);

/// Work that a thread has claimed.
#[derive(Debug)]
pub enum Job {
    /// Writes frozen memtables of a keyspace to a table.
    Flush(FlushClaim, JobSlot),
    /// Runs a compaction.
    Compact(Arc<CompactionJob>, JobSlot),
    /// Estimates whether garbage is worth a compaction.
    ProbeGarbage(GarbageProbe, JobSlot),
    /// Freezes and flushes memtables early, to free WAL space or hidden entries.
    Freeze(Vec<Arc<KeyspaceState>>),
}

/// A claimed flush.
#[derive(Debug)]
pub struct FlushClaim {
    flush: FlushJob,
    /// Ids of the keyspaces that no other thread flushes meanwhile: this keyspace and its flush
    /// partners.
    pub claimed: Vec<u32>,
}

impl Job {
    fn priority(&self) -> Priority {
        match self {
            Job::Compact(job, _) if !job.is_required() => Priority::Optional,
            _ => Priority::Required,
        }
    }
}

/// Starts the background threads.
pub fn start(store: &Arc<Store>) -> Result<()> {
    if store.read_only {
        return Ok(());
    }
    wal_recycling::start(store)?;
    for number in 0..store.options.background_threads {
        let worker = Arc::clone(store);
        let name = format!("umbel-work-{number}");
        let thread =
            store.options.env.threads.spawn(&name, Box::new(move || run_worker(&worker)))?;
        store.threads.lock().ignore_poison().push(thread);
    }
    Ok(())
}

/// Does all due work on the calling thread, except postponed work.
pub fn run_all_inline(store: &Arc<Store>) -> Result<()> {
    loop {
        match run_next_job(store) {
            Ok(true) => {}
            Ok(false) => return existence_maintenance::run_inline(store),
            // It is postponed, so that it is not found again at once.
            Err(Error::DiskFull { .. }) if !store.fatal_error.is_set() => {}
            Err(error) => return Err(error),
        }
    }
}

/// Does one due job on the calling thread; returns `false` if no job is due. On a full disk the job
/// is postponed, and the store continues.
pub fn run_next_job(store: &Arc<Store>) -> Result<bool> {
    let keyspaces = store.keyspaces();
    let job = claim_job(store, &keyspaces, &mut store.scheduler_lock());
    let Some(job) = job else { return Ok(false) };
    let need = job.priority();
    match run_job(store, job, false) {
        Ok(()) => Ok(true),
        Err(error) if back_off_if_full(store, need, &error) => Err(error),
        Err(error) => Err(store.set_fatal_error(error)),
    }
}

/// Works until the store is closed. After a panic outside of a job the store is read-only: without
/// this thread, writers would wait for ever.
fn run_worker(store: &Arc<Store>) {
    if catch_unwind(AssertUnwindSafe(|| worker_loop(store))).is_err() {
        store.set_fatal_error(Error::invalid("internal: the search for work panicked"));
        store.signal();
    }
}

fn worker_loop(store: &Arc<Store>) {
    loop {
        // A keyspace that appears after this is signalled after it.
        let seen = store.scheduler_lock().ticks;
        store.context.obsolete.sweep();
        let keyspaces = store.keyspaces();
        let mut state = store.scheduler_lock();
        let idle = store.fatal_error.is_set();
        if !idle
            && !state.stop
            && state.advisor_schedule.remaining(store.options.env.clock.now()).is_zero()
        {
            state
                .advisor_schedule
                .begin(store.options.env.clock.now(), advisor_job::total_gets(store));
            drop((state, keyspaces));
            // A panic in it must not end the thread.
            let _ = catch_unwind(AssertUnwindSafe(|| advisor_job::advise(store)));
            existence_maintenance::start_thread(store);
            continue;
        }
        let job = if idle { None } else { claim_job(store, &keyspaces, &mut state) };
        let Some(job) = job else {
            state = wait_for_work(store, state, seen);
            if state.stop {
                return;
            }
            continue;
        };
        drop((state, keyspaces));
        let need = job.priority();
        let done = catch_unwind(AssertUnwindSafe(|| run_job(store, job, false)));
        let panicked = |_| Err(Error::invalid("internal: a flush or compaction panicked"));
        if let Err(error) = done.unwrap_or_else(panicked) {
            if back_off_if_full(store, need, &error) {
                continue;
            }
            let passes = error.is_out_of_descriptors();
            store.set_fatal_error(error);
            store.signal();
            if passes {
                store.wait_for_change(RETRY_DELAY, || !store.open.is_open());
            }
        }
    }
}

/// Waits until the store signals a change after `seen`, or until the next check is due.
fn wait_for_work<'a>(
    store: &'a Store,
    mut state: MutexGuard<'a, SchedulerState>,
    seen: u64,
) -> MutexGuard<'a, SchedulerState> {
    let mut look_again = state.recheck_after.take();
    if !store.fatal_error.is_set() {
        let advise_again = state.advisor_schedule.remaining(store.options.env.clock.now());
        look_again = Some(look_again.unwrap_or(advise_again).min(advise_again));
    }
    let sweep_again = store.context.obsolete.has_kept_files().then_some(SWEEP_INTERVAL);
    look_again = look_again.into_iter().chain(sweep_again).min();
    while state.ticks == seen && !state.stop {
        let Some(limit) = look_again else {
            state = store.changed.wait(state).ignore_poison();
            continue;
        };
        let waited = store.changed.wait_timeout(state, limit);
        return waited.ignore_poison().0;
    }
    state
}

/// Claims the most urgent work in `keyspaces` for the calling thread.
fn claim_job(
    store: &Store,
    keyspaces: &[Arc<KeyspaceState>],
    state: &mut SchedulerState,
) -> Option<Job> {
    let (job, charge) = find_job(store, keyspaces, state)?;
    charge.apply(&mut state.garbage);
    Some(job)
}

/// Claims the most urgent work in `keyspaces`, a list that was read before the work lock was taken.
/// A caller that does the work applies the charge.
pub fn find_job(
    store: &Store,
    keyspaces: &[Arc<KeyspaceState>],
    state: &mut SchedulerState,
) -> Option<(Job, TaskCharge)> {
    state.waits_for_slot = false;
    if state.stop || is_backing_off(store, state, Priority::Required) {
        return None;
    }
    let all = keyspaces;
    let live = |keyspace: &&Arc<KeyspaceState>| !keyspace.dropped.load(Ordering::Acquire);
    let keyspaces: Vec<&Arc<KeyspaceState>> = keyspaces.iter().filter(live).collect();
    // The oldest writes first: no keyspace waits for another forever, and the WAL gets shorter.
    let oldest = |keyspace: &&Arc<KeyspaceState>| {
        let buffer = keyspace.super_version.load().frozen.last().cloned()?;
        Some((buffer.first_sequence(), Arc::clone(*keyspace), buffer))
    };
    let is_idle = |keyspace: &KeyspaceState| !state.flushing.contains(&keyspace.id);
    let idle = keyspaces.iter().filter(|keyspace| {
        is_idle(keyspace) && keyspace.flush_partner().is_none_or(|other| is_idle(&other))
    });
    if let Some((_, keyspace, buffer)) =
        idle.copied().filter_map(|keyspace| oldest(&keyspace)).min_by_key(|(first, ..)| *first)
    {
        let turn = shared_memtable_limit::take_slot(store, state, JobKind::Flush, true)?;
        let other = keyspace.flush_partner().map(|other| other.id);
        let claimed: Vec<u32> = [keyspace.id].into_iter().chain(other).collect();
        state.flushing.extend(&claimed);
        let flush = FlushJob { keyspace, memtables: vec![buffer], marker: None };
        return Some((Job::Flush(FlushClaim { flush, claimed }, turn), TaskCharge::None));
    }
    if !preemption::has_free_thread(store, state.compactions) {
        return None;
    }
    let urgency = |keyspace: &&Arc<KeyspaceState>| {
        Some((compaction_job::urgency(keyspace)?, Arc::clone(*keyspace)))
    };
    let urgent = keyspaces.iter().filter_map(urgency).max_by(|a, b| a.0.total_cmp(&b.0));
    let (job, charge) = match urgent {
        Some((_, keyspace)) => {
            let turn = shared_memtable_limit::take_slot(store, state, JobKind::Compaction, true)?;
            let job = Arc::new(compaction_job::pick_most_urgent(&keyspace)?);
            (Job::Compact(job, turn), TaskCharge::None)
        }
        None if is_backing_off(store, state, Priority::Optional) => return None,
        None => find_optional_job(store, &keyspaces, all, state)?,
    };
    state.compactions += 1;
    Some((job, charge))
}

/// Claims optional work. REQUIRES: no required work is due.
fn find_optional_job(
    store: &Store,
    keyspaces: &[&Arc<KeyspaceState>],
    all: &[Arc<KeyspaceState>],
    state: &mut SchedulerState,
) -> Option<(Job, TaskCharge)> {
    let (mut job, charge) = match find_bottommost_rewrite(store, keyspaces) {
        Some(job) => (Job::Compact(Arc::new(job), JobSlot::default()), TaskCharge::None),
        // A level over its target may wait for a compaction that a caller runs.
        None if preemption::keyspaces_with_debt(all).next().is_some() => return None,
        None => find_garbage(store, keyspaces, state)?,
    };
    // Only a store with a job waits for its slot.
    if let Job::Compact(_, turn) | Job::ProbeGarbage(_, turn) = &mut job {
        *turn = shared_memtable_limit::take_slot(store, state, JobKind::Compaction, false)?;
    }
    Some((job, charge))
}

/// Whether work of priority `need` was postponed and must wait longer.
fn is_backing_off(store: &Store, state: &mut SchedulerState, need: Priority) -> bool {
    let moment = (store.options.env.clock.now(), store.snapshots.visible());
    let left = state.disk_full_backoff.remaining(need, moment);
    if left.is_some() {
        state.recheck_after = left;
    }
    left.is_some()
}

/// Claims a compaction of tables that hide many entries below them, or work that prepares it, if no
/// compaction runs.
fn find_garbage(
    store: &Store,
    keyspaces: &[&Arc<KeyspaceState>],
    state: &mut SchedulerState,
) -> Option<(Job, TaskCharge)> {
    // A single one, so that all threads stay free for later work.
    if state.compactions > 0 {
        return None;
    }
    match early_compaction::find_task(store, keyspaces, state) {
        GarbageTask::Compact(job, charge) => {
            Some((Job::Compact(Arc::new(job), JobSlot::default()), charge))
        }
        GarbageTask::Probe(probe, charge) => {
            Some((Job::ProbeGarbage(probe, JobSlot::default()), charge))
        }
        GarbageTask::Freeze(keyspaces, charge) => Some((Job::Freeze(keyspaces), charge)),
        GarbageTask::Wait(wait) => {
            state.recheck_after = Some(wait);
            None
        }
        GarbageTask::Nothing => None,
    }
}

/// Claims a rewrite of a table of a last level with versions that a dropped snapshot kept. If open
/// snapshots keep such versions, the drop of one of them signals the scheduler.
fn find_bottommost_rewrite(
    store: &Store,
    keyspaces: &[&Arc<KeyspaceState>],
) -> Option<CompactionJob> {
    loop {
        let readers = store.snapshots.boundaries();
        let mut awaited = AwaitedRelease::default();
        for keyspace in keyspaces {
            let (job, waits_for) = compaction_job::pick_bottommost_rewrite(keyspace, &readers);
            if job.is_some() {
                return job;
            }
            awaited.add(waits_for);
        }
        // Where a snapshot was dropped in between: search again.
        if store.snapshots.await_release(awaited) {
            return None;
        }
    }
}

/// Does the work of `job` and releases the claim on it, which the caller or [`find_job`] made.
pub fn run_job(store: &Arc<Store>, job: Job, by_caller: bool) -> Result<()> {
    let need = job.priority();
    let result = run_claimed_job(store, job, by_caller);
    if result.is_ok() {
        store.fatal_error.note_postponed(None);
        store.scheduler_lock().disk_full_backoff.note_success(need);
    }
    store.note_time();
    advisor_job::advise_after_job(store);
    result
}

fn run_claimed_job(store: &Arc<Store>, job: Job, by_caller: bool) -> Result<()> {
    match job {
        Job::Flush(job, _turn) => {
            let FlushClaim { flush: job, claimed: flushing } = job;
            let (keyspace, is_alone) = (Arc::clone(&job.keyspace), flushing.len() == 1);
            let _claim = JobClaim { store, flushing, by_caller };
            let jobs = match is_alone {
                true => vec![job],
                // Both at one moment.
                false => {
                    let both =
                        memtable_freeze::with_flush_partners(std::slice::from_ref(&keyspace));
                    memtable_freeze::freeze_all(store, &both, None)
                }
            };
            let extent = ReclaimScope::SpareAndReserve;
            let result =
                space_reclaim::retry_after_reclaim(store, extent, || flush_job::run(store, &jobs));
            memtable_limit::release_writers(store);
            jobs.iter().for_each(|job| update_write_throttle(store, &job.keyspace));
            result
        }
        Job::Compact(job, _turn) => {
            let _claim = JobClaim { store, flushing: Vec::new(), by_caller };
            let keyspace = Arc::clone(&job.keyspace);
            let extent = if by_caller { ReclaimScope::All } else { ReclaimScope::Spare };
            let result = space_reclaim::retry_after_reclaim(store, extent, || {
                compaction_job::run(store, &job)
            });
            let files = job.files();
            {
                // The next pick sees the inputs busy or a version without them, never neither.
                let _work = store.scheduler_lock();
                drop(job);
            }
            // Removing files must not happen under a lock, but is part of the work.
            drop(files);
            update_write_throttle(store, &keyspace);
            result
        }
        Job::ProbeGarbage(look, _turn) => {
            let _claim = JobClaim { store, flushing: Vec::new(), by_caller };
            look.run(store);
            Ok(())
        }
        Job::Freeze(keyspaces) => {
            let _claim = JobClaim { store, flushing: Vec::new(), by_caller };
            memtable_freeze::freeze_early(store, &keyspaces);
            Ok(())
        }
    }
}

/// Updates the write throttle of a keyspace from its load.
pub fn update_write_throttle(store: &Store, keyspace: &KeyspaceState) {
    // One after the other, so that the last stored value is the last measured one.
    let _work = store.scheduler_lock();
    let (options, view) = (keyspace.options(), keyspace.super_version.acquire());
    let load = CompactionLoad {
        level0_tables: view.version.levels[0].len(),
        debt_bytes: picker_input::debt_bytes(keyspace),
        frozen_memtables: view.frozen.len(),
    };
    let limits = ThrottleLimits::new(options.level0_tables, options.base_bytes());
    keyspace.set_delay_per_byte_ns(write_throttle::delay_per_byte_ns(&load, &limits));
    keyspace.is_stalled.store(write_throttle::must_stall(&load, &limits), Ordering::Release);
}
