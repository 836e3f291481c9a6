//! Keeps segments of the log ready ahead of the writers, and gives back what is not needed.
//!
//! A thread of its own does it, so that no long compaction keeps it waiting. With
//! `background_threads` 0 the thread whose write made it necessary does it before it returns.
//!
//! A spare segment is durable and named by the manifest before a writer gets it, so that beginning
//! it takes no system call. The file of a dropped segment is used again in this order: the edit
//! that drops it is durable; the new header is written over the old one and synced; the file gets
//! its new name; the folder is synced; an edit names the new log. A crash in between leaves a file
//! that no edit names, under the old name or the new one, and without a record of the new log.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use umbel_base::{Error, Result};
use umbel_env::Access;
use umbel_log::{HEADER_BYTES, LogOptions, LogWriter, relabel};

use crate::names;
use crate::store::{CommitState, Store};
use crate::version::{Edit, LogState};
use crate::wal::{self, Call, Chore, OldSegment, Reusable, Surplus};

/// How long nothing is written before what is ready beyond need is given back.
const QUIET: Duration = Duration::from_millis(500);
/// The longest pause before that is tried again for which the disk had no room.
const PAUSE_MAX: Duration = Duration::from_secs(256);
/// Of what the tables take, the part that may lie ready for the log where everything was flushed,
/// and the least that may.
const FLUSHED: (u64, u64) = (20, 4 << 20);
/// The same where nobody writes.
const RESTING: (u64, u64) = (64, 1 << 20);

/// Starts the thread.
pub fn start(store: &Arc<Store>) -> Result<()> {
    if store.read_only || store.options.background_threads == 0 {
        return Ok(());
    }
    let worker = Arc::clone(store);
    let work = Box::new(move || work(&worker));
    let thread = store.options.env.threads.spawn("umbel-log", work)?;
    store.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
    Ok(())
}

fn work(store: &Arc<Store>) {
    let (mut limit, mut seen, mut pause) = (None, 0, QUIET);
    loop {
        let done = match store.bell.wait(limit) {
            Call::Over => return,
            Call::Chores => {
                limit = Some(QUIET);
                catch_unwind(AssertUnwindSafe(|| tend(store)))
            }
            Call::Quiet => {
                let last = store.commit_lock().wal.last_sequence();
                let is_quiet = std::mem::replace(&mut seen, last) == last;
                if !is_quiet {
                    (limit, pause) = (Some(QUIET), QUIET);
                    continue;
                }
                let rest = || {
                    let gave_back = give_back(store, true)?;
                    tend(store).map(|()| gave_back)
                };
                let rested = catch_unwind(AssertUnwindSafe(rest));
                pause = (pause * 2).min(PAUSE_MAX);
                limit = matches!(rested, Ok(Ok(false))).then_some(pause);
                rested.map(|rested| rested.map(drop))
            }
        };
        let panicked = |_| Err(Error::invalid("internal: tending the log panicked"));
        if let Err(error) = done.unwrap_or_else(panicked) {
            store.final_error(error);
            store.signal();
        }
    }
}

/// Does the chores of the log, or calls the thread that does.
pub fn see_to(store: &Store) -> Result<()> {
    if store.options.background_threads == 0 {
        return tend(store).map_err(|error| store.final_error(error));
    }
    store.bell.ring();
    Ok(())
}

/// Does the chores of the log there are. An error is final.
pub fn tend(store: &Store) -> Result<()> {
    let _one_at_a_time = store.tending.lock().unwrap_or_else(PoisonError::into_inner);
    // After a failed write nothing is made or removed any more, and once the store is closed the
    // folder may be another's.
    while !store.poison.is_set() && store.check_open().is_ok() {
        let Some(chore) = store.commit_lock().wal.next_chore() else { break };
        match chore {
            // Where it fails, the thread that stores tries again and says so.
            Chore::Populate(pages, end) => drop(pages.populate(end)),
            Chore::WriteBack(file, pages, range) => {
                if let Some(pages) = pages {
                    pages.release(range.clone());
                }
                file.write_back(range);
            }
            Chore::Unmap(mappings) => drop(mappings),
            // A file that stays long is in nobody's way.
            Chore::Cut(file, len) => drop(file.set_len(len)),
            Chore::Make(bytes, file) => make(store, bytes, file)?,
        }
    }
    Ok(())
}

/// Waits for a caller's thread that does chores of the log. REQUIRES: the store is being closed, so
/// that nobody begins any more.
pub fn wait_for_callers(store: &Store) {
    drop(store.tending.lock().unwrap_or_else(PoisonError::into_inner));
}

/// Makes a spare segment, or does without one where that fails harmlessly: whoever then needs it
/// makes it himself, and gets the error.
fn make(store: &Store, bytes: u64, file: Option<Reusable>) -> Result<()> {
    let files = &store.options.env.files;
    let id = store.ids.fetch_add(1, Ordering::Relaxed);
    let options = wal::log_options(&store.context.hashers.secret, id, bytes);
    let made = match file {
        Some(file) => remake(store, file, options),
        None => make_new(store, options),
    };
    let mut writer = match made {
        Ok(writer) => writer,
        Err(Trouble::Passing) => return Ok(()),
        Err(Trouble::Final(error)) => return Err(error),
    };
    // A header that was durable and is lost later is damage, not a torn creation.
    writer.set_durable(HEADER_BYTES);
    let path = names::log(&store.folder, id);
    let mut manifest = store.manifest_lock()?;
    // Recovery would stop at an empty segment before one that is written to.
    if manifest.state().logs.last_key_value().is_some_and(|(newest, _)| *newest > id) {
        drop(manifest);
        drop(writer);
        let _ = files.remove_file(&path);
        return Ok(());
    }
    let refused = manifest.commit_if_room(&[Edit::Log { id, state: LogState::Open }])?;
    drop(manifest);
    if refused.is_some() {
        // No edit names it, and it takes room that is wanting.
        drop(writer);
        let _ = files.remove_file(&path);
        return Ok(());
    }
    let refused = store.commit_lock().wal.add_spare(writer, file.is_some());
    if let Some(late) = refused {
        let late = Surplus { spares: vec![late], reusable: None };
        store.commit_lock().wal.give_back();
        give_back_these(store, Vec::new(), late)?;
    }
    Ok(())
}

/// Why a segment was not made.
enum Trouble {
    /// There may be one another time.
    Passing,
    /// What is durable is not known any more.
    Final(Error),
}

impl Trouble {
    fn of(error: Error) -> Trouble {
        let passes = error.is_short_of_descriptors() || matches!(error, Error::Full { .. });
        if passes { Trouble::Passing } else { Trouble::Final(error) }
    }
}

fn make_new(store: &Store, options: LogOptions) -> std::result::Result<LogWriter, Trouble> {
    let env = &store.options.env;
    let created = wal::create(env, &store.folder, options);
    let writer = created.map_err(|_| Trouble::Passing)?;
    writer.file().sync().map_err(|error| {
        let _ = env.files.remove_file(&names::log(&store.folder, options.log_id));
        Trouble::of(error)
    })?;
    env.files.sync_dir(&store.folder).map_err(|error| {
        let _ = env.files.remove_file(&names::log(&store.folder, options.log_id));
        Trouble::of(error)
    })?;
    Ok(writer)
}

fn remake(
    store: &Store,
    old: Reusable,
    options: LogOptions,
) -> std::result::Result<LogWriter, Trouble> {
    let files = &store.options.env.files;
    let (source, target) =
        (names::log(&store.folder, old.id), names::log(&store.folder, options.log_id));
    let give_up = |path| {
        // No edit names it. What cannot be removed now is removed at the next open.
        let _ = files.remove_file(path);
        Trouble::Passing
    };
    let relabelled = files.open(&source, Access::ReadWrite);
    let relabelled = relabelled.and_then(|file| match file.has_other_names()? {
        true => Err(Error::invalid("internal: a hard-linked copy of the store holds the file")),
        false => relabel(&*file, options).map(|()| file),
    });
    let file = relabelled.map_err(|_| give_up(&source))?;
    file.sync().map_err(|error| {
        give_up(&source);
        Trouble::of(error)
    })?;
    drop(file);
    files.rename(&source, &target).map_err(|_| give_up(&source))?;
    files.sync_dir(&store.folder).map_err(|error| {
        give_up(&target);
        Trouble::of(error)
    })?;
    LogWriter::reuse(&store.options.env, &target, options).map_err(|_| give_up(&target))
}

/// Goes on in a segment that `payload_bytes` fit in: a spare one, or one made now. What makes room
/// goes on in what is kept for it, where the disk has no room for another. An error leaves
/// everything as it was, unless it poisoned the store.
#[cold]
pub fn advance(
    store: &Store,
    state: &mut CommitState,
    payload_bytes: usize,
    makes_room: bool,
) -> Result<()> {
    match make_current(store, state, payload_bytes, makes_room) {
        Err(Error::Full { .. })
            if makes_room && !store.poison.is_set() && state.wal.fits_in_reserve(payload_bytes) =>
        {
            Ok(())
        }
        advanced => advanced,
    }
}

fn make_current(
    store: &Store,
    state: &mut CommitState,
    payload_bytes: usize,
    makes_room: bool,
) -> Result<()> {
    let manifest = store.manifest()?;
    let taken = state.wal.take_spare(payload_bytes);
    if taken.map_err(|error| final_unless_full(store, &state.wal, error))? {
        return Ok(());
    }
    let mut create = || state.wal.create_segment(payload_bytes, makes_room);
    let writer = match makes_room {
        true => store.with_reserved_segment(create)?,
        false => create()?,
    };
    let started = state.wal.start_segment(writer, manifest);
    started.map_err(|error| match error.is_short_of_descriptors() {
        true => store.final_error(error),
        false => final_unless_full(store, &state.wal, error),
    })
}

/// Keeps `error` as the reason why nothing may be written any more, unless the disk has no room
/// and the log can be written still.
pub fn final_unless_full(store: &Store, wal: &wal::Wal, error: Error) -> Error {
    match error {
        Error::Full { .. } if wal.is_whole() => error,
        error => store.poison.set(error),
    }
}

/// Drops segments whose every write is in tables, and where nothing is left to flush what lies
/// ready beyond need.
pub fn drop_obsolete(store: &Store) -> Result<()> {
    let gave_back = give_back(store, false)?;
    see_to_the_rest(store, gave_back)
}

/// Sees to the chores that came up, and to it that what was not given back is another time.
fn see_to_the_rest(store: &Store, gave_back: bool) -> Result<()> {
    let is_nudged = store.commit_lock().wal.take_nudge();
    if !gave_back && store.options.background_threads > 0 {
        store.bell.ring();
    }
    if is_nudged { see_to(store) } else { Ok(()) }
}

/// What may lie ready for the log, in bytes.
fn allowance(store: &Store, small: u64, (share, least): (u64, u64)) -> u64 {
    let live = |keyspace: &Arc<crate::keyspace_core::KeyspaceCore>| {
        let view = keyspace.view.load();
        view.version.tables().map(|(_, table)| table.meta.file_bytes).sum::<u64>()
    };
    least.min(small).max(store.keyspaces().iter().map(live).sum::<u64>() / share)
}

/// Gives back what lies ready beyond need, because nobody writes at this moment.
pub fn rest(store: &Store) -> Result<()> {
    let gave_back = {
        // So that a close waits for it.
        let _tending = store.tending.lock().unwrap_or_else(PoisonError::into_inner);
        store.check_open()?;
        give_back(store, true)?
    };
    see_to_the_rest(store, gave_back)
}

/// `false` where the disk has no room for it.
fn give_back(store: &Store, is_quiet: bool) -> Result<bool> {
    // After a failed write nothing is removed any more.
    store.poison.check()?;
    let (obsolete, surplus) = {
        let mut state = store.commit_lock();
        let taken = take(store, &mut state, is_quiet)?;
        state.wal.give_back();
        taken
    };
    give_back_these(store, obsolete, surplus)
}

/// Drops these from the manifest and removes them; `false`, and another time, on a disk without
/// room for that. REQUIRES: [`wal::Wal::give_back`].
fn give_back_these(store: &Store, obsolete: Vec<OldSegment>, surplus: Surplus) -> Result<bool> {
    if !drop_from_manifest(store, &obsolete, &surplus)? {
        store.commit_lock().wal.keep(obsolete, surplus);
        return Ok(false);
    }
    store.commit_lock().wal.gave_back(&obsolete);
    remove_files(store, &obsolete, surplus);
    Ok(true)
}

/// `false` where the disk has no room for it.
fn drop_from_manifest(store: &Store, obsolete: &[OldSegment], surplus: &Surplus) -> Result<bool> {
    let edits = obsolete.iter().map(|segment| segment.id);
    let edits = edits.chain(surplus.spares.iter().map(LogWriter::log_id)).map(Edit::DropLog);
    let mut manifest = store.manifest_lock()?;
    // A spare may have been dropped meanwhile by whoever made a segment beyond it.
    let edits: Vec<_> = edits.filter(|edit| manifest.state().is_news(edit)).collect();
    Ok(edits.is_empty() || manifest.commit_if_room(&edits)?.is_none())
}

/// Uses again or removes what no edit names any more.
fn remove_files(store: &Store, obsolete: &[OldSegment], surplus: Surplus) {
    let mut useless = Vec::new();
    let reuses = !store.context.obsolete.is_pinned();
    for segment in obsolete {
        if !reuses || !store.commit_lock().wal.offer(segment) {
            useless.push(segment.id);
        }
    }
    remove(store, surplus);
    for id in useless {
        store.context.obsolete.remove(&names::log(&store.folder, id));
    }
}

/// Removes what no edit names any more.
pub fn remove(store: &Store, surplus: Surplus) {
    let obsolete = &store.context.obsolete;
    for spare in surplus.spares {
        let path = names::log(&store.folder, spare.log_id());
        drop(spare);
        obsolete.remove(&path);
    }
    if let Some(file) = surplus.reusable {
        obsolete.remove(&names::log(&store.folder, file.id));
    }
}

fn take(
    store: &Store,
    state: &mut MutexGuard<'_, CommitState>,
    is_quiet: bool,
) -> Result<(Vec<OldSegment>, Surplus)> {
    // Under the commit lock, so that no keyspace with writes of its own is missing.
    let keyspaces = store.keyspaces();
    let logged = keyspaces.iter().filter(|keyspace| keyspace.logs());
    let first_needed = logged.filter_map(|keyspace| keyspace.first_unflushed()).min();
    let mut surplus = Surplus::default();
    if is_quiet || first_needed.is_none() {
        let sizes = if is_quiet { RESTING } else { FLUSHED };
        let allowance = allowance(store, state.wal.small_bytes(), sizes);
        surplus = state.wal.rest(allowance).map_err(|error| store.poison.set(error))?;
    }
    let through = first_needed.map_or(u64::MAX, |first| first.saturating_sub(1));
    Ok((state.wal.take_obsolete(through), surplus))
}
