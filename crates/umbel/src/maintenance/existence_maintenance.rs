//! Maintenance of existence filters while the store reads and writes: opens, fills, flushes and
//! removes them.
//!
//! The position that a filter covers is a sequence number. The filter has every key that was put
//! into its keyspace with that sequence number or a lower one.
//!
//! INVARIANT:
//! 1. A filter covers only a sequence number whose use is durable, in a synced WAL or in the
//!    manifest. So after a crash no other write gets a covered number, and a filter's file never
//!    becomes wrong, however old it is.
//! 2. A filter found at an open is trusted only if it covers all entries in tables. Later writes
//!    are replayed from the WAL and inserted again, or are lost. So a failed flush of a filter
//!    harms nothing, and no WAL segment is kept for a filter.
//! 3. A filter says which open of the store assigned the sequence number that it covers, and is
//!    trusted only if the manifest says the same. Otherwise a filter from a copy of the store would
//!    be trusted, although the copy has other keys up to the same number.
//! 4. When the options add a filter to an existing keyspace, files of an earlier filter are not
//!    trusted, since writes meanwhile did not update them.
//!
//! A failure of a filter's files affects neither the store nor other filters, and the filter in
//! memory stays correct. Failed file writes are repeated later, or the next open makes a new
//! filter.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use umbel_base::fail_point;
use umbel_base::ignore_poison::IgnorePoison;

use umbel_base::{Error, Result, SequenceNumber};
use umbel_env::Env;
use umbel_existence::{Coverage, ExistenceFilter, ExistenceOptions, HashSource, StepProgress};

use crate::fs::filenames;
use crate::maintenance::advisor_job;
use crate::maintenance::existence_key_scan::KeyspaceKeys;
use crate::options::ExistenceSize;
use crate::shared_budget::memory_use_limits::CHUNK_BYTES;
use crate::state::keyspace_state::KeyspaceState;
use crate::state::store::Store;
use crate::version::Edit;
use crate::version::sequence_lineage::{OpenRecord, SequenceLineage};
use crate::version::store_identity::Identity;
use crate::version::version_edit::{KeyspaceRecord, ManifestState};

/// Above this number of hashes that are in no file, the hashes are written even without a flush of
/// the keyspace.
const LAG_ITEMS_MAX: u64 = 1 << 16;
/// Minimum and maximum bytes of one step of the maintenance; within these limits a step has the
/// size of a memtable.
const STEP_BYTES: (u64, u64) = (4 << 10, 4 << 20);
/// Interval at which the maintenance thread checks for due work.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Returns the options with which a keyspace's filter is opened. The filter is trusted only if it
/// covers sequence number `covered_min`.
fn filter_options(identity: &Identity, core: &KeyspaceState, covered_min: u64) -> ExistenceOptions {
    let given = core.configured_options();
    let (store_id, _) = identity.store_id.split_at(8);
    let store = store_id.iter().fold(0, |sum: u64, byte| sum << 8 | u64::from(*byte));
    ExistenceOptions {
        size: given.existence_filter,
        // A number derived from the kind of the hash and its secret, which reveals neither.
        hash: core.hash(b"existence filter"),
        store: store.wrapping_add(core.id.into()),
        covered_min,
        step_bytes: given.memtable_bytes.clamp(STEP_BYTES.0, STEP_BYTES.1) as usize,
        ..ExistenceOptions::default()
    }
}

/// Returns the coverage of a filter that has every key put up to `sequence`, in a store with the
/// opens `openings`.
fn covered_position(openings: &SequenceLineage, sequence: SequenceNumber) -> Coverage {
    Coverage { position: sequence, history: openings.open_at(sequence).unwrap_or(0) }
}

/// Whether a filter with this coverage belongs to the store with the opens `openings`. A filter
/// that covers no write belongs to every store. Stores of earlier versions have no sequence
/// lineage.
fn is_of_this_history(
    openings: &SequenceLineage,
    Coverage { position, history }: Coverage,
) -> bool {
    match openings.open_at(position) {
        _ if position == 0 => true,
        Some(id) => id == history,
        None => openings.is_empty() && history == 0,
    }
}

/// Returns the last sequence number of the keyspace's entries in tables, which a trusted filter has
/// to cover.
fn flushed_through(record: &KeyspaceRecord) -> SequenceNumber {
    fail_point!("existence-trust-uncovered-filter", |_| 0);
    let in_tables = record.levels.iter().flatten().map(|meta| meta.sequence_max).max();
    record.flushed_through.max(in_tables.unwrap_or(0))
}

/// Opens the existence filters of keyspaces, before the WAL is replayed. A read-only open reads
/// only the statistics in the filters' files.
///
/// # Errors
/// `Invalid` if a newer version of Umbel wrote the files of a filter. Other failures are retried
/// later.
pub fn attach(
    env: &Env,
    folder: &Path,
    state: &ManifestState,
    keyspaces: &[Arc<KeyspaceState>],
    read_only: bool,
) -> Result<()> {
    let Some(identity) = state.identity.as_ref() else { return Ok(()) };
    let is_own_history = |covered| is_of_this_history(&state.sequence_lineage, covered);
    for core in keyspaces {
        let size = core.configured_options().existence_filter;
        let Some(record) = state.keyspaces.get(&core.id).filter(|_| size != ExistenceSize::Off)
        else {
            continue;
        };
        let covered_min = flushed_through(record);
        let path = filenames::existence(folder, core.id);
        let options = filter_options(identity, core, covered_min);
        if read_only {
            let described = ExistenceFilter::describe(env, &path, &options, &is_own_history);
            core.existence.set_stats_on_disk(described);
            continue;
        }
        let mut files = core.existence.files();
        match ExistenceFilter::open_checked(env, &path, options, &is_own_history) {
            Ok(filter) => {
                core.existence.set_filter(Some(filter));
                (files.size, files.floor) = (size, covered_min);
            }
            Err(error @ Error::Invalid(_)) => return Err(error),
            Err(error) => core.existence.note_problem(Some(error)),
        }
    }
    Ok(())
}

/// Checks the existence filters after the replay of the WAL, which left the store in `state`.
///
/// # Errors
/// Returned if a filter of a later state of the store cannot be durably marked as covering no
/// write. The store was restored to an earlier state, so sequence numbers that the filter covers
/// will be assigned again.
pub fn after_replay(state: &ManifestState, keyspaces: &[Arc<KeyspaceState>]) -> Result<()> {
    for core in keyspaces {
        let Some(filter) = core.existence.filter() else { continue };
        let mut files = core.existence.files();
        if filter.covered() > state.last_sequence {
            // It belongs to a store that continued where this one did not, and is rebuilt.
            filter.truncate(0)?;
            core.existence.set_filter(None);
            files.size = ExistenceSize::Off;
        }
        let flushed = state.keyspaces.get(&core.id).map_or(0, |record| record.flushed_through);
        files.floor = files.floor.max(flushed);
    }
    Ok(())
}

/// Starts the maintenance if a keyspace has an existence filter or its options request one.
pub fn start(store: &Arc<Store>) -> Result<()> {
    start_thread(store);
    run_inline(store)
}

/// Starts the maintenance thread if there is work, the thread does not run and the options allow
/// background threads. If the system refuses a thread, the keyspaces record the error, and a
/// background thread calls this function again later.
pub fn start_thread(store: &Arc<Store>) {
    if store.options.background_threads == 0 || store.has_existence_thread.load(Ordering::Acquire) {
        return;
    }
    let due: Vec<_> = store.keyspaces().into_iter().filter(|core| is_due(core)).collect();
    if store.read_only || due.is_empty() || store.has_existence_thread.swap(true, Ordering::AcqRel)
    {
        return;
    }
    if let Err(error) = spawn(store) {
        store.has_existence_thread.store(false, Ordering::Release);
        due.iter().for_each(|core| core.existence.note_problem(Some(error.clone())));
    }
}

fn spawn(store: &Arc<Store>) -> Result<()> {
    // A close sets its flag under this lock before it takes the threads.
    let state = store.scheduler_lock();
    state.check_not_stopped()?;
    let tended = Arc::clone(store);
    let spawner = &store.options.env.threads;
    let thread = spawner.spawn("umbel-existence", Box::new(move || thread_loop(&tended)))?;
    store.threads.lock().ignore_poison().push(thread);
    drop(state);
    Ok(())
}

fn is_due(core: &KeyspaceState) -> bool {
    core.existence.is_on() || core.configured_options().existence_filter != ExistenceSize::Off
}

fn thread_loop(store: &Arc<Store>) {
    while !store.scheduler_lock().stop {
        if !catch_panic(|| Ok(maintain_all(store))).unwrap_or(false) {
            store.wait_for_change(CHECK_INTERVAL, || false);
        }
    }
}

/// Calls `work`, and turns a panic in it into an error. So a panic ends neither the thread nor the
/// store nor the work on other keyspaces.
fn catch_panic<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    let panicked = |_| {
        Err(Error::invalid(
            "internal: maintenance of the existence filter \
                                           panicked",
        ))
    };
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(panicked)
}

/// Does all filter maintenance on the calling thread, if the store has no background threads.
pub fn run_inline(store: &Arc<Store>) -> Result<()> {
    if store.options.background_threads > 0 || store.read_only {
        return Ok(());
    }
    let Some(_calling) = InlineGuard::begin(store) else { return Ok(()) };
    while maintain_all(store) {}
    Ok(())
}

/// Guard of a caller's thread that works on files of existence filters. A close of the store waits
/// for the guard's drop: after the close the files can belong to another store.
struct InlineGuard<'a>(&'a Store);

impl InlineGuard<'_> {
    /// Registers the calling thread. Returns `None` if the store is being closed.
    fn begin(store: &Store) -> Option<InlineGuard<'_>> {
        let mut state = store.scheduler_lock();
        state.check_not_stopped().ok()?;
        state.existence_callers += 1;
        Some(InlineGuard(store))
    }
}

impl Drop for InlineGuard<'_> {
    fn drop(&mut self) {
        self.0.scheduler_lock().existence_callers -= 1;
        self.0.signal();
    }
}

/// Runs one step of the maintenance for each filter, and returns whether there is more to do now.
fn maintain_all(store: &Store) -> bool {
    let (mut is_more, mut memory_changed) = (false, false);
    for core in store.keyspaces() {
        if !is_due(&core) || store.fatal_error.is_set() || !store.open.is_open() {
            continue;
        }
        let before = core.existence.memory_bytes();
        let tended = catch_panic(|| maintain(store, &core));
        is_more |= tended.as_ref().is_ok_and(|progress| has_more(*progress));
        core.existence.note_problem(tended.err());
        memory_changed |= before.abs_diff(core.existence.memory_bytes()) >= CHUNK_BYTES;
    }
    if memory_changed {
        // Tables and blocks must be evicted for it, or may use the memory that it freed.
        advisor_job::advise_after_job(store);
    }
    is_more
}

/// Whether the maintenance continues at once. After a preempted rebuild it pauses, since continuing
/// would take the processor from the work that preempted the rebuild.
fn has_more(progress: StepProgress) -> bool {
    match progress {
        StepProgress::More | StepProgress::Ahead => true,
        StepProgress::Yielded | StepProgress::Idle => false,
    }
}

fn maintain(store: &Store, core: &KeyspaceState) -> Result<StepProgress> {
    if create_filter(store, core)? {
        return Ok(StepProgress::More);
    }
    let files = core.existence.files();
    let Some(filter) = core.existence.filter() else { return Ok(StepProgress::Idle) };
    let flush = |sequence| filter.flush_journal_only(current_position(store, sequence)?);
    let covered = filter.covered();
    // Where the whole filter has to be written for it, the steps do that first.
    if covered < files.floor {
        // Keys in tables are in the filter too, or in the rest of the rebuild.
        flush(files.floor)?;
    } else if filter.lag_items() > LAG_ITEMS_MAX {
        flush(covered)?;
    }
    let keys = KeyspaceKeys(core);
    if is_mostly_deleted(&filter, &keys) {
        filter.rebuild();
    }
    filter.step(&keys)
}

/// Returns the coverage of a filter that has every key put up to `sequence`, in an open store.
fn current_position(store: &Store, sequence: SequenceNumber) -> Result<Coverage> {
    Ok(covered_position(&store.manifest_lock()?.state().sequence_lineage, sequence))
}

/// Whether a filter is to be rebuilt because, by an upper estimate of the keyspace's keys, more
/// than half of its keys are gone. A filter below a quarter of its designed load is not rebuilt. So
/// at least as many puts as the rebuild's scan has keys come before each rebuild.
fn is_mostly_deleted(filter: &ExistenceFilter, keys: &KeyspaceKeys<'_>) -> bool {
    let Some((items, designed)) = filter.load() else { return false };
    items >= designed / 4 && items / 2 > keys.estimated()
}

/// Creates the filter that the keyspace's options request, or removes a filter that they do not
/// request. Returns whether there was something to do.
fn create_filter(store: &Store, core: &KeyspaceState) -> Result<bool> {
    let mut files = core.existence.files();
    let size = core.configured_options().existence_filter;
    if files.size == size || core.check_not_dropped().is_err() {
        return Ok(false);
    }
    drop_filter(store, core);
    files.size = ExistenceSize::Off;
    let opened = {
        let mut manifest = store.manifest_lock()?;
        if size != ExistenceSize::Off && manifest.state().sequence_lineage.is_empty() {
            // The first filter: from now on copies of the store must be distinguishable. No filter
            // refers to earlier numbers, so this open may stand for them.
            let id = store.options.env.entropy.number()?;
            manifest.commit(&[Edit::OpenRecord(OpenRecord { after: 0, id })])?;
        }
        let identity = manifest.state().identity.as_ref();
        identity.map(|identity| filter_options(identity, core, u64::MAX))
    };
    let Some(options) = opened else { return Ok(false) };
    let path = filenames::existence(&store.folder, core.id);
    let filter = ExistenceFilter::open(&store.options.env, &path, options)?;
    if options.size == ExistenceSize::Off {
        return Ok(true);
    }
    {
        let _commit = store.commit_lock();
        if core.check_not_dropped().is_ok() {
            core.existence.set_filter(Some(filter));
        }
    }
    files.size = options.size;
    let manifest = store.manifest_lock()?;
    let record = manifest.state().keyspaces.get(&core.id);
    files.floor = record.map_or(0, |record| record.flushed_through);
    Ok(true)
}

fn drop_filter(store: &Store, core: &KeyspaceState) {
    let _commit = store.commit_lock();
    core.existence.set_filter(None);
}

/// Syncs the existence filters of keyspaces before memtables of these keyspaces become tables.
/// `lasts` are the keyspaces and the last sequence numbers in the memtables.
/// REQUIRES: the WAL is durable up to these sequence numbers.
///
/// A filter that would have to be written completely is not written by this call, but by its
/// maintenance.
///
/// # Errors
/// Only errors of the manifest. An error of a filter's files is recorded in the keyspace's
/// statistics.
pub fn flush<'a>(
    store: &Store,
    lasts: impl Iterator<Item = (&'a KeyspaceState, SequenceNumber)>,
) -> Result<()> {
    let lasts: Vec<_> = lasts.filter(|(core, last)| core.existence.is_on() && *last > 0).collect();
    let unlogged = lasts.iter().filter(|(core, _)| !core.uses_wal()).map(|(_, last)| *last).max();
    let is_taken = unlogged.map_or(Ok(true), |last| reserve_sequences(store, last))?;
    for (core, last) in lasts {
        if !core.uses_wal() && !is_taken {
            continue;
        }
        let mut files = core.existence.files();
        let Some(filter) = core.existence.filter() else { continue };
        files.floor = files.floor.max(last);
        let flushed = catch_panic(|| filter.flush_journal_only(current_position(store, last)?));
        core.existence.note_problem(flushed.err());
    }
    Ok(())
}

/// Records in the manifest that the sequence numbers up to `last` are used. Returns `false` if the
/// disk is full.
fn reserve_sequences(store: &Store, last: SequenceNumber) -> Result<bool> {
    let mut manifest = store.manifest_lock()?;
    if manifest.state().last_sequence >= last {
        return Ok(true);
    }
    Ok(manifest.commit_unless_full(&[Edit::LastSequence(last)])?.is_none())
}

/// Syncs the existence filters at the close of a store, so that the next open has fewer keys to
/// insert. `last` is the last sequence number in use.
pub fn close(store: &Store, last: SequenceNumber) {
    for core in store.keyspaces() {
        let _files = core.existence.files();
        if let Some(filter) = core.existence.filter() {
            let flushed = catch_panic(|| filter.flush(current_position(store, last)?));
            core.existence.note_problem(flushed.err());
        }
    }
}

/// Removes the existence filter of a dropped keyspace, with its files. The next open removes files
/// that cannot be removed now.
pub fn remove(store: &Store, core: &KeyspaceState) {
    let Some(_calling) = InlineGuard::begin(store) else { return };
    let mut files = core.existence.files();
    if files.size == ExistenceSize::Off && !core.existence.is_on() {
        return;
    }
    drop_filter(store, core);
    files.size = ExistenceSize::Off;
    remove_files(&store.options.env, &filenames::existence(&store.folder, core.id));
}

/// Removes the files of existence filters whose keyspace does not exist. The directories of these
/// filters stay.
pub fn remove_orphans<'a>(
    env: &Env,
    folder: &Path,
    names: impl Iterator<Item = &'a str>,
    state: &ManifestState,
) {
    let is_live = |id: &u32| {
        let record = state.keyspaces.get(id);
        record.is_some_and(|record| record.options.existence_filter != ExistenceSize::Off)
    };
    for id in names.filter_map(filenames::parse_existence).filter(|id| !is_live(id)) {
        remove_files(env, &filenames::existence(folder, id));
    }
}

fn remove_files(env: &Env, path: &Path) {
    let off = ExistenceOptions { size: ExistenceSize::Off, ..ExistenceOptions::default() };
    // An error does no harm: a later keyspace has another number.
    let _ = ExistenceFilter::open(env, path, off);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A filter whose open the manifest does not know, or does not know any more, is not trusted.
    #[test]
    fn filter_is_trusted_only_if_manifest_agrees() {
        let of = |position, history| Coverage { position, history };
        let mut openings = SequenceLineage::default();
        assert!(is_of_this_history(&openings, of(0, 9)) && is_of_this_history(&openings, of(5, 0)));
        assert!(!is_of_this_history(&openings, of(5, 9)));
        openings.record_open(10, 1).unwrap();
        assert!(
            is_of_this_history(&openings, of(10, 0)) && is_of_this_history(&openings, of(11, 1))
        );
        assert!(
            !is_of_this_history(&openings, of(11, 0)) && !is_of_this_history(&openings, of(10, 1))
        );
        (2..70).for_each(|open| openings.record_open(open * 10, open).unwrap());
        assert!(
            is_of_this_history(&openings, of(691, 69))
                && is_of_this_history(&openings, covered_position(&openings, 300))
        );
        let dropped_open = covered_position(&openings, 11);
        assert!(
            !is_of_this_history(&openings, dropped_open)
                && !is_of_this_history(&openings, of(10, 0))
        );
    }

    /// The maintenance thread stepped without a pause while a compaction preempted its rebuild.
    #[test]
    fn preempted_rebuild_pauses_before_next_step() {
        let all =
            [StepProgress::More, StepProgress::Ahead, StepProgress::Yielded, StepProgress::Idle];
        assert_eq!(all.map(has_more), [true, true, false, false]);
    }
}
