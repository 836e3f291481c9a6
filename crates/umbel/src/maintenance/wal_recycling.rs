//! Prepares WAL segments before writers need them, and frees surplus segments.
//!
//! These WAL tasks have a thread of their own, so that no long compaction delays them. With
//! `background_threads` 0 the thread whose write makes a task due does the task before the write
//! returns.
//!
//! A spare segment is durable and named by the manifest before a writer gets it, so that a writer
//! begins it without a system call. The file of a dropped segment is reused in this order:
//! 1. The edit that drops it is durable.
//! 2. The new header is written over the old one and synced.
//! 3. The file gets its new name, and the directory is synced.
//! 4. An edit names the new segment.
//!
//! A crash between these steps leaves a file that no edit names, under the old name or the new one.
//! The file has no record of the new segment.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;
use umbel_base::ignore_poison::IgnorePoison;

use umbel_base::{Error, Result};
use umbel_env::Access;
use umbel_log::{HEADER_BYTES, LogOptions, LogWriter, write_recycled_header};

use crate::fs::filenames;
use crate::state::store::{CommitState, Store};
use crate::version::{Edit, LogState};
use crate::wal::{self, OldSegment, ReclaimableSegments, RecyclableSegment, Wakeup, WalTask};

/// Time without writes after which surplus WAL space is freed.
const QUIET_PERIOD: Duration = Duration::from_millis(500);
/// The longest pause before WAL tasks are retried after a full disk.
const PAUSE_MAX: Duration = Duration::from_secs(256);
/// Maximum bytes prepared for the WAL when all memtables are flushed: one part in the first number
/// of the tables' bytes, and at least the second number.
const FLUSHED_ALLOWANCE: (u64, u64) = (20, 4 << 20);
/// Maximum bytes prepared for the WAL when no writer writes: one part in the first number of the
/// tables' bytes, and at least the second number.
const IDLE_ALLOWANCE: (u64, u64) = (64, 1 << 20);

/// Starts the thread of the WAL tasks.
pub fn start(store: &Arc<Store>) -> Result<()> {
    if store.read_only || store.options.background_threads == 0 {
        return Ok(());
    }
    let worker = Arc::clone(store);
    let work = Box::new(move || thread_loop(&worker));
    let thread = store.options.env.threads.spawn("umbel-log", work)?;
    store.threads.lock().ignore_poison().push(thread);
    Ok(())
}

fn thread_loop(store: &Arc<Store>) {
    let (mut limit, mut seen, mut pause) = (None, 0, QUIET_PERIOD);
    loop {
        let done = match store.wal_signal.wait(limit) {
            Wakeup::Shutdown => return,
            Wakeup::Tasks => {
                if limit.is_none() {
                    // The scheduler looks for early work while there are writes, and after them.
                    store.signal();
                }
                limit = Some(QUIET_PERIOD);
                catch_unwind(AssertUnwindSafe(|| run_tasks(store)))
            }
            Wakeup::Idle => {
                let last = store.commit_lock().wal.last_sequence();
                let is_quiet = std::mem::replace(&mut seen, last) == last;
                if !is_quiet {
                    (limit, pause) = (Some(QUIET_PERIOD), QUIET_PERIOD);
                    continue;
                }
                let rest = || {
                    let is_released = release_surplus(store, true)?;
                    run_tasks(store).map(|()| is_released)
                };
                let rested = catch_unwind(AssertUnwindSafe(rest));
                pause = (pause * 2).min(PAUSE_MAX);
                limit = matches!(rested, Ok(Ok(false))).then_some(pause);
                if limit.is_none() && !store.commit_lock().wal.notify_at_append_after(seen) {
                    limit = Some(QUIET_PERIOD);
                }
                rested.map(|rested| rested.map(drop))
            }
        };
        let panicked = |_| Err(Error::invalid("internal: making a log segment panicked"));
        if let Err(error) = done.unwrap_or_else(panicked) {
            store.set_fatal_error(error);
            store.signal();
        }
    }
}

/// Runs the due WAL tasks, or signals their thread if the store has one.
pub fn run_or_signal(store: &Store) -> Result<()> {
    if store.options.background_threads == 0 {
        return run_tasks(store).map_err(|error| store.set_fatal_error(error));
    }
    store.wal_signal.notify();
    Ok(())
}

/// Runs the due WAL tasks. After an error the store refuses writes.
pub fn run_tasks(store: &Store) -> Result<()> {
    let _one_at_a_time = store.wal_task_lock.lock().ignore_poison();
    // After a failed write nothing is made or removed any more. After the close the directory may
    // belong to another store.
    while !store.fatal_error.is_set() && store.check_open().is_ok() {
        let Some(task) = store.commit_lock().wal.next_task() else { break };
        match task {
            // Where it fails, the thread that writes there tries again and reports it.
            WalTask::Populate(pages, end) => drop(pages.prefault(end)),
            WalTask::WriteBack(file, pages, range) => {
                if let Some(pages) = pages {
                    pages.release(range.clone());
                }
                file.write_back(range);
            }
            WalTask::Unmap(mappings) => drop(mappings),
            // A file that stays long does no harm.
            WalTask::Truncate(file, len) => drop(file.set_len(len)),
            WalTask::CreateSpare(bytes, file) => provision(store, bytes, file)?,
        }
    }
    Ok(())
}

/// Waits until no caller's thread runs WAL tasks.
/// REQUIRES: the store is being closed, so that no other thread begins WAL tasks.
pub fn wait_for_callers(store: &Store) {
    drop(store.wal_task_lock.lock().ignore_poison());
}

/// Makes a spare segment; a failure that loses no data is ignored. A writer that then needs a
/// segment makes it itself and gets the error.
fn provision(store: &Store, bytes: u64, file: Option<RecyclableSegment>) -> Result<()> {
    let files = &store.options.env.files;
    let id = store.ids.fetch_add(1, Ordering::Relaxed);
    let options = wal::log_options(&store.context.hashers.secret, id, bytes);
    let made = match file {
        Some(file) => recycle(store, file, options),
        None => create_spare(store, options),
    };
    let mut writer = match made {
        Ok(writer) => writer,
        Err(SegmentError::Transient) => return Ok(()),
        Err(SegmentError::Fatal(error)) => return Err(error),
    };
    // A durable header that is lost later is damage, not a torn creation.
    writer.set_durable(HEADER_BYTES);
    let path = filenames::segment(&store.folder, id);
    let mut manifest = store.manifest_lock()?;
    // Recovery would stop at an empty segment before one that is written to.
    if manifest.state().logs.last_key_value().is_some_and(|(newest, _)| *newest > id) {
        drop(manifest);
        drop(writer);
        let _ = files.remove_file(&path);
        return Ok(());
    }
    let refused = manifest.commit_unless_full(&[Edit::Log { id, state: LogState::Open }])?;
    drop(manifest);
    if refused.is_some() {
        // No edit names it, and it takes scarce disk space.
        drop(writer);
        let _ = files.remove_file(&path);
        return Ok(());
    }
    let refused = store.commit_lock().wal.add_spare(writer, file.is_some());
    if let Some(late) = refused {
        let late = ReclaimableSegments { spares: vec![late], reusable: None };
        store.commit_lock().wal.begin_release();
        release_segments(store, Vec::new(), late)?;
    }
    Ok(())
}

/// Reason why a spare segment was not made.
enum SegmentError {
    /// The attempt failed, but a later one can succeed.
    Transient,
    /// The store no longer knows which data is durable.
    Fatal(Error),
}

impl SegmentError {
    fn of(error: Error) -> SegmentError {
        let passes = error.is_out_of_descriptors() || matches!(error, Error::DiskFull { .. });
        if passes { SegmentError::Transient } else { SegmentError::Fatal(error) }
    }
}

fn create_spare(
    store: &Store,
    options: LogOptions,
) -> std::result::Result<LogWriter, SegmentError> {
    let env = &store.options.env;
    let created = wal::create(env, &store.folder, options);
    let writer = created.map_err(|_| SegmentError::Transient)?;
    writer.file().sync().map_err(|error| {
        let _ = env.files.remove_file(&filenames::segment(&store.folder, options.log_id));
        SegmentError::of(error)
    })?;
    env.files.sync_dir(&store.folder).map_err(|error| {
        let _ = env.files.remove_file(&filenames::segment(&store.folder, options.log_id));
        SegmentError::of(error)
    })?;
    Ok(writer)
}

fn recycle(
    store: &Store,
    old: RecyclableSegment,
    options: LogOptions,
) -> std::result::Result<LogWriter, SegmentError> {
    let files = &store.options.env.files;
    let (source, target) = (
        filenames::segment(&store.folder, old.id),
        filenames::segment(&store.folder, options.log_id),
    );
    let remove_file = |path| {
        // No edit names it. A file that cannot be removed now is removed at the next open.
        let _ = files.remove_file(path);
        SegmentError::Transient
    };
    let relabelled = files.open(&source, Access::ReadWrite);
    let relabelled = relabelled.and_then(|file| match file.has_other_names()? {
        true => Err(Error::invalid("internal: a hard-linked copy of the store holds the file")),
        false => write_recycled_header(&*file, options).map(|()| file),
    });
    let file = relabelled.map_err(|_| remove_file(&source))?;
    file.sync().map_err(|error| {
        remove_file(&source);
        SegmentError::of(error)
    })?;
    drop(file);
    files.rename(&source, &target).map_err(|_| remove_file(&source))?;
    files.sync_dir(&store.folder).map_err(|error| {
        remove_file(&target);
        SegmentError::of(error)
    })?;
    LogWriter::reuse(&store.options.env, &target, options).map_err(|_| remove_file(&target))
}

/// Drops WAL segments whose writes are all in tables. If no memtable is left to flush, also frees
/// surplus WAL space.
pub fn drop_obsolete(store: &Store) -> Result<()> {
    let is_released = release_surplus(store, false)?;
    run_remaining(store, is_released)
}

/// Runs the WAL tasks that became due meanwhile. Schedules a retry unless the surplus space was
/// released.
fn run_remaining(store: &Store, is_released: bool) -> Result<()> {
    let is_task_due = store.commit_lock().wal.take_task_due();
    if !is_released && store.options.background_threads > 0 {
        store.wal_signal.notify();
    }
    if is_task_due { run_or_signal(store) } else { Ok(()) }
}

/// Maximum space prepared for the WAL, in bytes.
fn spare_allowance(store: &Store, small: u64, (share, least): (u64, u64)) -> u64 {
    least.min(small).max(store.table_file_bytes() / share)
}

/// Frees surplus WAL space, because there are no writes at this moment.
pub fn release_idle(store: &Store) -> Result<()> {
    let is_released = {
        // The lock makes a close wait for it.
        let _wal_tasks = store.wal_task_lock.lock().ignore_poison();
        store.check_open()?;
        release_surplus(store, true)?
    };
    run_remaining(store, is_released)
}

/// Frees surplus WAL space and obsolete segments. Returns `false` if the disk has no space for the
/// edit.
fn release_surplus(store: &Store, is_quiet: bool) -> Result<bool> {
    // After a failed write nothing is removed any more.
    store.fatal_error.check()?;
    let (obsolete, surplus) = {
        let mut state = store.commit_lock();
        let taken = take_surplus(store, &mut state, is_quiet)?;
        state.wal.begin_release();
        taken
    };
    release_segments(store, obsolete, surplus)
}

/// Drops `obsolete` and `surplus` segments from the manifest, and removes their files. Returns
/// `false` if the disk has no space for the edit; a retry comes later.
/// REQUIRES: [`wal::Wal::begin_release`] was called.
fn release_segments(
    store: &Store,
    obsolete: Vec<OldSegment>,
    surplus: ReclaimableSegments,
) -> Result<bool> {
    if !drop_from_manifest(store, &obsolete, &surplus)? {
        store.commit_lock().wal.cancel_release(obsolete, surplus);
        return Ok(false);
    }
    store.commit_lock().wal.note_released(&obsolete);
    remove_files(store, &obsolete, surplus);
    Ok(true)
}

/// Drops `obsolete` and `surplus` segments from the manifest. Returns `false` if the disk has no
/// space for the edit.
fn drop_from_manifest(
    store: &Store,
    obsolete: &[OldSegment],
    surplus: &ReclaimableSegments,
) -> Result<bool> {
    let edits = obsolete.iter().map(|segment| segment.id);
    let edits = edits.chain(surplus.spares.iter().map(LogWriter::log_id)).map(Edit::DropLog);
    let mut manifest = store.manifest_lock()?;
    // A writer that made a segment beyond a spare may have dropped the spare meanwhile.
    let edits: Vec<_> = edits.filter(|edit| manifest.state().is_change(edit)).collect();
    Ok(edits.is_empty() || manifest.commit_unless_full(&edits)?.is_none())
}

/// Reuses or removes files that no edit names any more.
fn remove_files(store: &Store, obsolete: &[OldSegment], surplus: ReclaimableSegments) {
    let mut useless = Vec::new();
    let reuses = !store.context.obsolete.is_pinned();
    for segment in obsolete {
        match reuses {
            true => useless.extend(store.commit_lock().wal.offer_for_reuse(segment)),
            false => useless.push(segment.id),
        }
    }
    remove(store, surplus);
    for id in useless {
        store.context.obsolete.remove(&filenames::segment(&store.folder, id));
    }
}

/// Removes files that no edit names any more.
pub fn remove(store: &Store, surplus: ReclaimableSegments) {
    let obsolete = &store.context.obsolete;
    for spare in surplus.spares {
        let path = filenames::segment(&store.folder, spare.log_id());
        drop(spare);
        obsolete.remove(&path);
    }
    if let Some(file) = surplus.reusable {
        obsolete.remove(&filenames::segment(&store.folder, file.id));
    }
}

fn take_surplus(
    store: &Store,
    state: &mut MutexGuard<'_, CommitState>,
    is_quiet: bool,
) -> Result<(Vec<OldSegment>, ReclaimableSegments)> {
    // Under the commit lock, so that no keyspace with own writes is missing.
    let keyspaces = store.keyspaces();
    let logged = keyspaces.iter().filter(|keyspace| keyspace.uses_wal());
    let first_needed = logged.filter_map(|keyspace| keyspace.first_unflushed()).min();
    let mut surplus = ReclaimableSegments::default();
    if let Some(allowance) = state.wal.excess_allowance() {
        let released = state.wal.release_idle(allowance, true);
        surplus = released.map_err(|error| store.fatal_error.set(error))?;
    } else if is_quiet || first_needed.is_none() {
        let sizes = if is_quiet { IDLE_ALLOWANCE } else { FLUSHED_ALLOWANCE };
        let allowance = spare_allowance(store, state.wal.small_bytes(), sizes);
        let released = state.wal.release_idle(allowance, first_needed.is_none());
        surplus = released.map_err(|error| store.fatal_error.set(error))?;
    }
    let through = first_needed.map_or(u64::MAX, |first| first.saturating_sub(1));
    Ok((state.wal.take_obsolete(through), surplus))
}
