//! Background work: who flushes and compacts when, and how writers are held back.
//!
//! With `background_threads` 0 the thread whose write made work necessary does it before it
//! returns, which makes every run of a program the same.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use umbel_base::{BlobPointer, Error, Result};

use crate::advise;
use crate::commit::{self, Aftermath};
use crate::compact::{self, CompactionJob};
use crate::compaction::pressure::{self, Limits, Load};
use crate::existence_upkeep;
use crate::facts;
use crate::flush::{self, FlushJob};
use crate::freeze;
use crate::garbage::{self, Found, Look};
use crate::held_back;
use crate::keyspace_core::KeyspaceCore;
use crate::long_values::{self, NewBlobs};
use crate::memory_budget::{Turn, Work};
use crate::options::Durability;
use crate::put_off::put_off;
use crate::room::{self, Extent};
use crate::segments;
use crate::sharing;
use crate::shortage::Need;
use crate::snapshots::Awaited;
use crate::store::{Store, WorkState};
use crate::way;
use crate::writes::{Action, Writes, check_operation};

/// Old log segments above which a clean close, or an open, flushes.
pub const OLD_LOGS_MAX: usize = 4;

/// After how long to look again whether obsolete files are still pinned.
const SWEEP_AGAIN: Duration = Duration::from_secs(1);
/// How long work waits that could not be done for want of a descriptor.
const TRY_AGAIN: Duration = Duration::from_millis(20);

/// Work that was claimed.
#[derive(Debug)]
pub enum Job {
    /// Writes a memtable into a table.
    Flush(ClaimedFlush, Turn),
    /// Merges tables.
    Compact(Arc<CompactionJob>, Turn),
    /// Finds out whether garbage is worth merging tables.
    Look(Look, Turn),
    /// Has a memtable flushed that nobody writes to.
    Freeze(Arc<KeyspaceCore>),
}

/// A flush that was claimed.
#[derive(Debug)]
pub struct ClaimedFlush {
    flush: FlushJob,
    /// The keyspaces that nobody else flushes meanwhile: that one, and the one that is flushed
    /// whenever it is.
    pub claimed: Vec<u32>,
}

impl Job {
    fn need(&self) -> Need {
        match self {
            Job::Compact(job, _) if !job.is_needed() => Need::Useful,
            _ => Need::Needed,
        }
    }
}

/// Starts the background threads.
pub fn start(store: &Arc<Store>) -> Result<()> {
    if store.read_only {
        return Ok(());
    }
    segments::start(store)?;
    for number in 0..store.options.background_threads {
        let worker = Arc::clone(store);
        let name = format!("umbel-work-{number}");
        let thread = store.options.env.threads.spawn(&name, Box::new(move || work(&worker)))?;
        store.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
    }
    Ok(())
}

/// Commits a batch, held back as far as the background work is behind.
pub fn commit(
    store: &Arc<Store>,
    writes: &mut Writes,
    durability: Option<Durability>,
) -> Result<()> {
    for keyspace in writes.keyspaces() {
        let held_back = hold_back(store, keyspace, writes.bytes());
        held_back.or_else(|error| held_back::let_pass(store, commit::makes_room(writes), error))?;
    }
    let mut blobs = None;
    if writes.has_long_values() {
        writes.check(durability)?;
        blobs = long_values::write(store, writes)?;
    }
    let mut aftermath = Aftermath::default();
    let mut committed = commit::commit(store, writes, durability, &mut aftermath);
    if matches!(committed, Err(Error::Full { .. })) && commit::makes_room(writes) {
        let again = || commit::commit(store, writes, durability, &mut aftermath);
        committed = room::make_and(store, committed, again);
    }
    if let (Some(blobs), Ok(())) = (blobs, &committed) {
        blobs.keep();
    }
    see_to(store, aftermath, committed)
}

/// Commits one write, held back as far as the background work is behind.
pub fn commit_one(
    store: &Arc<Store>,
    keyspace: &Arc<KeyspaceCore>,
    action: Action,
    key: &[u8],
    value: &[u8],
) -> Result<()> {
    if value.len() > store.options.inline_value_bytes_max && action == Action::Put {
        return commit_long(store, keyspace, key, value);
    }
    let held_back = hold_back(store, keyspace, key.len() + value.len());
    if let Err(error) = held_back {
        held_back::let_pass(store, action.makes_room(), error)?;
    }
    let mut aftermath = Aftermath::default();
    let mut committed = commit::commit_one(store, keyspace, action, key, value, &mut aftermath);
    if matches!(committed, Err(Error::Full { .. })) && action.makes_room() {
        let again = || commit::commit_one(store, keyspace, action, key, value, &mut aftermath);
        committed = room::make_and(store, committed, again);
    }
    see_to(store, aftermath, committed)
}

/// Commits a put of a value that gets a file of its own.
#[cold]
fn commit_long(
    store: &Arc<Store>,
    keyspace: &Arc<KeyspaceCore>,
    key: &[u8],
    value: &[u8],
) -> Result<()> {
    check_operation(Action::Put, key, value)?;
    hold_back(store, keyspace, key.len() + BlobPointer::BYTES)?;
    keyspace.check_not_dropped()?;
    let mut blobs = NewBlobs::begin(store)?;
    let pointer = blobs.write(value)?.encode();
    blobs.finish()?;
    let (mut aftermath, action) = (Aftermath::default(), Action::PutBlob);
    let committed = commit::commit_one(store, keyspace, action, key, &pointer, &mut aftermath);
    if committed.is_ok() {
        blobs.keep();
    }
    see_to(store, aftermath, committed)
}

/// Sees to what a commit left behind, and answers what came of it. One that was refused may have
/// taken along others that were not; one that was done stays so, whatever fails for good after it.
#[inline]
fn see_to(store: &Arc<Store>, aftermath: Aftermath, committed: Result<()>) -> Result<()> {
    if aftermath == Aftermath::default() {
        return committed;
    }
    match do_what_is_due(store, aftermath) {
        Err(_) if committed.is_ok() && store.poison.is_set() => Ok(()),
        seen_to => committed.and(seen_to),
    }
}

fn do_what_is_due(store: &Arc<Store>, aftermath: Aftermath) -> Result<()> {
    if aftermath.log_nudged {
        segments::see_to(store)?;
    }
    if !aftermath.frozen {
        return Ok(());
    }
    if store.options.background_threads == 0 {
        return match run_inline(store) {
            // The write is done; the work is tried again by the next one.
            Err(error) if error.is_short_of_descriptors() => Ok(()),
            done => done,
        };
    }
    store.signal();
    Ok(())
}

/// Does all work there is on the calling thread, but for what is put off.
pub fn run_inline(store: &Arc<Store>) -> Result<()> {
    loop {
        match run_one(store) {
            Ok(true) => {}
            Ok(false) => return existence_upkeep::run_inline(store),
            // It is put off, so that it is not found again at once.
            Err(Error::Full { .. }) if !store.poison.is_set() => {}
            Err(error) => return Err(error),
        }
    }
}

/// Does one piece of work on the calling thread. `false` where there is none. Where it finds no
/// room it is put off, and the store goes on.
pub fn run_one(store: &Arc<Store>) -> Result<bool> {
    let keyspaces = store.keyspaces();
    let job = find_job(store, &keyspaces, &mut store.work_lock());
    let Some(job) = job else { return Ok(false) };
    let need = job.need();
    match run(store, job, false) {
        Ok(()) => Ok(true),
        Err(error) if put_off(store, need, &error) => Err(error),
        Err(error) => Err(store.final_error(error)),
    }
}

fn work(store: &Arc<Store>) {
    loop {
        // A keyspace that appears after this is signalled after it.
        let seen = store.work_lock().ticks;
        store.context.obsolete.sweep();
        let keyspaces = store.keyspaces();
        let mut state = store.work_lock();
        let idle = store.poison.is_set();
        if !idle && !state.stop && state.advising.left(store.options.env.clock.now()).is_zero() {
            state.advising.claim(store.options.env.clock.now(), advise::gets(store));
            drop((state, keyspaces));
            // A panic in it must not end the thread.
            let _ = catch_unwind(AssertUnwindSafe(|| advise::advise(store)));
            existence_upkeep::begin_thread(store);
            continue;
        }
        let job = if idle { None } else { find_job(store, &keyspaces, &mut state) };
        let Some(job) = job else {
            state = wait_for_work(store, state, seen);
            if state.stop {
                return;
            }
            continue;
        };
        drop((state, keyspaces));
        let need = job.need();
        let done = catch_unwind(AssertUnwindSafe(|| run(store, job, false)));
        let panicked = |_| Err(Error::invalid("internal: a flush or compaction panicked"));
        if let Err(error) = done.unwrap_or_else(panicked) {
            if put_off(store, need, &error) {
                continue;
            }
            let passes = error.is_short_of_descriptors();
            store.final_error(error);
            store.signal();
            if passes {
                store.wait_for_change(TRY_AGAIN, || !store.open.is_open());
            }
        }
    }
}

/// Waits until something changed since `seen`, or until it is time to look again.
fn wait_for_work<'a>(
    store: &'a Store,
    mut state: MutexGuard<'a, WorkState>,
    seen: u64,
) -> MutexGuard<'a, WorkState> {
    let mut look_again = state.look_again.take();
    if !store.poison.is_set() {
        let advise_again = state.advising.left(store.options.env.clock.now());
        look_again = Some(look_again.unwrap_or(advise_again).min(advise_again));
    }
    let sweep_again = store.context.obsolete.has_kept().then_some(SWEEP_AGAIN);
    look_again = look_again.into_iter().chain(sweep_again).min();
    while state.ticks == seen && !state.stop {
        let Some(limit) = look_again else {
            state = store.moved.wait(state).unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        let waited = store.moved.wait_timeout(state, limit);
        return waited.unwrap_or_else(PoisonError::into_inner).0;
    }
    state
}

/// Claims the most urgent work there is in `keyspaces`, which were read before the work lock.
pub fn find_job(
    store: &Store,
    keyspaces: &[Arc<KeyspaceCore>],
    state: &mut WorkState,
) -> Option<Job> {
    state.waits_for_turn = false;
    if state.stop || waits_for_room(store, state, Need::Needed) {
        return None;
    }
    let all = keyspaces;
    let live = |keyspace: &&Arc<KeyspaceCore>| !keyspace.dropped.load(Ordering::Acquire);
    let keyspaces: Vec<&Arc<KeyspaceCore>> = keyspaces.iter().filter(live).collect();
    // The oldest writes first: no keyspace waits behind another for ever, and the log gets shorter.
    let oldest = |keyspace: &&Arc<KeyspaceCore>| {
        let buffer = keyspace.view.load().frozen.last().cloned()?;
        Some((buffer.first_sequence(), Arc::clone(*keyspace), buffer))
    };
    let is_idle = |keyspace: &KeyspaceCore| !state.flushing.contains(&keyspace.id);
    let idle = keyspaces.iter().filter(|keyspace| {
        is_idle(keyspace) && keyspace.flushed_with().is_none_or(|other| is_idle(&other))
    });
    if let Some((_, keyspace, buffer)) =
        idle.copied().filter_map(|keyspace| oldest(&keyspace)).min_by_key(|(first, ..)| *first)
    {
        let turn = sharing::turn(store, state, Work::Flush, true)?;
        let other = keyspace.flushed_with().map(|other| other.id);
        let claimed: Vec<u32> = [keyspace.id].into_iter().chain(other).collect();
        state.flushing.extend(&claimed);
        let flush = FlushJob { keyspace, buffers: vec![buffer], marker: None };
        return Some(Job::Flush(ClaimedFlush { flush, claimed }, turn));
    }
    if !way::has_room(store, state.compactions) {
        return None;
    }
    let urgency =
        |keyspace: &&Arc<KeyspaceCore>| Some((compact::urgency(keyspace)?, Arc::clone(*keyspace)));
    let urgent = keyspaces.iter().filter_map(urgency).max_by(|a, b| a.0.total_cmp(&b.0));
    let job = match urgent {
        Some((_, keyspace)) => {
            let turn = sharing::turn(store, state, Work::Compaction, true)?;
            Job::Compact(Arc::new(compact::pick_most_urgent(&keyspace)?), turn)
        }
        None if waits_for_room(store, state, Need::Useful) => return None,
        None => find_useful(store, &keyspaces, all, state)?,
    };
    state.compactions += 1;
    Some(job)
}

/// Where nothing is needed: what is of use.
fn find_useful(
    store: &Store,
    keyspaces: &[&Arc<KeyspaceCore>],
    all: &[Arc<KeyspaceCore>],
    state: &mut WorkState,
) -> Option<Job> {
    let mut job = match find_leftovers(store, keyspaces) {
        Some(job) => Job::Compact(Arc::new(job), Turn::default()),
        // What is owed may wait for a compaction that a caller runs.
        None if way::owing(all).next().is_some() => return None,
        None => find_garbage(store, keyspaces, state)?,
    };
    // Only a store that found something waits for its turn.
    if let Job::Compact(_, turn) | Job::Look(_, turn) = &mut job {
        *turn = sharing::turn(store, state, Work::Compaction, false)?;
    }
    Some(job)
}

/// Whether work was put off and is to wait longer.
fn waits_for_room(store: &Store, state: &mut WorkState, need: Need) -> bool {
    let moment = (store.options.env.clock.now(), store.snapshots.visible());
    let left = state.shortage.left(need, moment);
    if left.is_some() {
        state.look_again = left;
    }
    left.is_some()
}

/// Where there are not even leftovers: a compaction of what hides much of what lies below it.
fn find_garbage(
    store: &Store,
    keyspaces: &[&Arc<KeyspaceCore>],
    state: &mut WorkState,
) -> Option<Job> {
    // A single one, so that all threads stay free for what comes next.
    if state.compactions > 0 {
        return None;
    }
    match garbage::find(store, keyspaces, state) {
        Found::Job(job) => Some(Job::Compact(Arc::new(job), Turn::default())),
        Found::Look(look) => Some(Job::Look(look, Turn::default())),
        Found::Freeze(keyspace) => Some(Job::Freeze(keyspace)),
        Found::Later(wait) => {
            state.look_again = Some(wait);
            None
        }
        Found::Nothing => None,
    }
}

/// Where nothing else is to be done: a table of a last level with what a snapshot kept. Whoever
/// drops the snapshot that is still in the way signals.
fn find_leftovers(store: &Store, keyspaces: &[&Arc<KeyspaceCore>]) -> Option<CompactionJob> {
    loop {
        let readers = store.snapshots.boundaries();
        let mut awaited = Awaited::default();
        for keyspace in keyspaces {
            let (job, waits_for) = compact::pick_leftovers(keyspace, &readers);
            if job.is_some() {
                return job;
            }
            awaited.add(waits_for);
        }
        // Where it came to pass in between: look again.
        if store.snapshots.wait_for(awaited) {
            return None;
        }
    }
}

/// A claim on work, given back even where the work panics.
struct Claim<'a> {
    store: &'a Store,
    /// The keyspaces being flushed; none for a compaction.
    flushing: Vec<u32>,
    /// Whether a caller's thread does the work, which leaves the background threads theirs.
    by_caller: bool,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        {
            let mut state = self.store.work_lock();
            match self.by_caller {
                _ if !self.flushing.is_empty() => {
                    state.flushing.retain(|id| !self.flushing.contains(id));
                }
                true => state.callers -= 1,
                false => state.compactions -= 1,
            }
        }
        self.store.signal();
    }
}

/// Does the work and gives the claim on it back: the caller's own, or one of [`find_job`].
pub fn run(store: &Arc<Store>, job: Job, by_caller: bool) -> Result<()> {
    let need = job.need();
    let result = run_claimed(store, job, by_caller);
    if result.is_ok() {
        store.note_put_off(None);
        store.work_lock().shortage.done(need);
    }
    store.note_time();
    advise::after_work(store);
    result
}

fn run_claimed(store: &Arc<Store>, job: Job, by_caller: bool) -> Result<()> {
    match job {
        Job::Flush(job, _turn) => {
            let ClaimedFlush { flush: job, claimed: flushing } = job;
            let (keyspace, is_alone) = (Arc::clone(&job.keyspace), flushing.len() == 1);
            let _claim = Claim { store, flushing, by_caller };
            let jobs = match is_alone {
                true => vec![job],
                // As both are at one moment.
                false => {
                    let both = freeze::with_companions(std::slice::from_ref(&keyspace));
                    freeze::freeze_all(store, &both, None)
                }
            };
            let result = room::with_room(store, Extent::Spare, || flush::flush(store, &jobs));
            commit::weigh_buffers(store);
            jobs.iter().for_each(|job| update_pressure(store, &job.keyspace));
            result
        }
        Job::Compact(job, _turn) => {
            let _claim = Claim { store, flushing: Vec::new(), by_caller };
            let keyspace = Arc::clone(&job.keyspace);
            let extent = if by_caller { Extent::All } else { Extent::Spare };
            let result = room::with_room(store, extent, || compact::run(store, &job));
            let files = job.files();
            {
                // Whoever picks next sees the inputs busy or a version without them, never neither.
                let _work = store.work_lock();
                drop(job);
            }
            // Removing files has no place under a lock, but is part of the work.
            drop(files);
            update_pressure(store, &keyspace);
            result
        }
        Job::Look(look, _turn) => {
            let _claim = Claim { store, flushing: Vec::new(), by_caller };
            look.run(store);
            Ok(())
        }
        Job::Freeze(keyspace) => {
            let _claim = Claim { store, flushing: Vec::new(), by_caller };
            let _commit = store.commit_lock();
            if !keyspace.view.load().active.is_empty() {
                keyspace.view.freeze(&keyspace.options());
            }
            Ok(())
        }
    }
}

/// Weighs how far the work on a keyspace is behind.
pub fn update_pressure(store: &Store, keyspace: &KeyspaceCore) {
    // One after the other, so that what is said last is what was seen last.
    let _work = store.work_lock();
    let (options, view) = (keyspace.options(), keyspace.view.hold());
    let load = Load {
        level0_tables: view.version.levels[0].len(),
        debt_bytes: facts::debt_bytes(keyspace),
        immutable_memtables: view.frozen.len(),
    };
    let limits = Limits::new(options.level0_tables, options.base_bytes());
    keyspace.set_delay_per_byte_ns(pressure::delay_per_byte_ns(&load, &limits));
    keyspace.stopped.store(pressure::must_wait(&load, &limits), Ordering::Release);
}

/// Holds a writer back in proportion to what it writes.
fn hold_back(store: &Arc<Store>, keyspace: &KeyspaceCore, bytes: usize) -> Result<()> {
    held_back::hold_back(store, keyspace, bytes, || run_inline(store))
}
