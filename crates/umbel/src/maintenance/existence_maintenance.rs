//! What is done for existence filters beside gets and puts: opening them, filling and flushing
//! them, taking them out.
//!
//! The position that a filter covers is a sequence number: it has every key that was put into its
//! keyspace with that number or a lower one.
//!
//! INVARIANT:
//! 1. A filter only ever says that it covers a number which is durably taken, by a synced log or
//!    by the manifest. So no number up to it is given to another write after a crash, and what a
//!    file once said of a number stays true, however old the file is.
//! 2. A filter found at an open is believed only if it covers all that is in tables: what came
//!    later is replayed from the log, and inserted again, or is gone. So nothing depends on a flush
//!    of the filter having succeeded, and none of it is kept for the filter's sake.
//! 3. A filter says which open of the store gave the number that it covers, and is believed only
//!    where the manifest says the same: one of a copy of the store that went on by itself has other
//!    keys up to the same number.
//! 4. A filter that is put in later believes no file at all: nobody kept it up meanwhile.
//!
//! A filter that fails is no reason for a store to fail, and none for other filters: it denies what
//! it denied, and what could not be written is written later, or made anew by the next open.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use umbel_base::{Error, Result, SequenceNumber};
use umbel_env::Env;
use umbel_existence::{Covered, ExistenceFilter, ExistenceOptions, Progress, Source};

use crate::advise;
use crate::existence_keys::Keys;
use crate::keyspace_core::KeyspaceCore;
use crate::names;
use crate::options::ExistenceSize;
use crate::shares::CHUNK_BYTES;
use crate::store::Store;
use crate::version::Edit;
use crate::version::edit::{Identity, State};
use crate::version::openings::{Opening, Openings};

/// Hashes in no file above which they are written although nothing is flushed.
const LAG_ITEMS_MAX: u64 = 1 << 16;
/// Bytes that a step reads or writes: as many as a memtable has, within these.
const STEP_BYTES: (u64, u64) = (4 << 10, 4 << 20);
/// How often it is looked whether there is something to do.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// What the filter of a keyspace is opened with, if it has to cover so much to be believed.
fn options(identity: &Identity, core: &KeyspaceCore, covered_min: u64) -> ExistenceOptions {
    let given = core.options_given();
    let (store_id, _) = identity.store_id.split_at(8);
    let store = store_id.iter().fold(0, |sum: u64, byte| sum << 8 | u64::from(*byte));
    ExistenceOptions {
        size: given.existence_filter,
        // A number that follows from the kind of the hash and its secret, and tells neither.
        hash: core.hash(b"existence filter"),
        store: store.wrapping_add(core.id.into()),
        covered_min,
        step_bytes: given.memtable_bytes.clamp(STEP_BYTES.0, STEP_BYTES.1) as usize,
        ..ExistenceOptions::default()
    }
}

/// What a filter of the store with these opens covers that has every key up to a number.
fn covered(openings: &Openings, sequence: SequenceNumber) -> Covered {
    Covered { position: sequence, history: openings.of(sequence).unwrap_or(0) }
}

/// Whether a filter that covers so much is of the store with these opens. One that covers nothing
/// is everybody's. Of a store of an earlier version nothing is known.
fn is_ours(openings: &Openings, Covered { position, history }: Covered) -> bool {
    match openings.of(position) {
        _ if position == 0 => true,
        Some(id) => id == history,
        None => openings.is_empty() && history == 0,
    }
}

/// Opens the filters of keyspaces of which nothing was replayed yet. Where nothing may be written
/// their files are only asked what they say.
///
/// # Errors
/// `Invalid` where a newer version wrote the files of one. Any other failure is tried again later.
pub fn attach(
    env: &Env,
    folder: &Path,
    state: &State,
    keyspaces: &[Arc<KeyspaceCore>],
    read_only: bool,
) -> Result<()> {
    let Some(identity) = state.identity.as_ref() else { return Ok(()) };
    let is_ours = |covered| is_ours(&state.openings, covered);
    for core in keyspaces {
        let size = core.options_given().existence_filter;
        let Some(record) = state.keyspaces.get(&core.id).filter(|_| size != ExistenceSize::Off)
        else {
            continue;
        };
        let in_tables = record.levels.iter().flatten().map(|meta| meta.sequence_max).max();
        let covered_min = record.flushed_through.max(in_tables.unwrap_or(0));
        #[cfg(feature = "canary")]
        let covered_min = match umbel_base::canary::Switch::ExistenceUncoveredBelieved.is_on() {
            true => 0,
            false => covered_min,
        };
        let path = names::existence(folder, core.id);
        let options = options(identity, core, covered_min);
        if read_only {
            let described = ExistenceFilter::describe(env, &path, &options, &is_ours);
            core.existence.note_described(described);
            continue;
        }
        let mut files = core.existence.files();
        match ExistenceFilter::open_checked(env, &path, options, &is_ours) {
            Ok(filter) => {
                core.existence.put(Some(filter));
                (files.size, files.floor) = (size, covered_min);
            }
            Err(error @ Error::Invalid(_)) => return Err(error),
            Err(error) => core.existence.note_problem(Some(error)),
        }
    }
    Ok(())
}

/// Looks at the filters once everything was replayed, with which the store is in `state`.
///
/// # Errors
/// Where a filter of a store that went on further, before this one was put back to an earlier time,
/// could not be told for good that it covers nothing: the numbers it speaks of will be given again.
pub fn after_replay(state: &State, keyspaces: &[Arc<KeyspaceCore>]) -> Result<()> {
    for core in keyspaces {
        let Some(filter) = core.existence.filter() else { continue };
        let mut files = core.existence.files();
        if filter.covered() > state.last_sequence {
            // It is of a store that went on where this one did not; it is made anew.
            filter.truncate(0)?;
            core.existence.put(None);
            files.size = ExistenceSize::Off;
        }
        let flushed = state.keyspaces.get(&core.id).map_or(0, |record| record.flushed_through);
        files.floor = files.floor.max(flushed);
    }
    Ok(())
}

/// Sees to it that filters are seen to, where a keyspace has one or is to have one.
pub fn start(store: &Arc<Store>) -> Result<()> {
    begin_thread(store);
    run_inline(store)
}

/// Begins the thread that sees to filters, where there is something to see to, no such thread, and
/// other threads. Where the system gives none, that is noted of the keyspaces; a background thread
/// calls this again in a while.
pub fn begin_thread(store: &Arc<Store>) {
    if store.options.background_threads == 0 || store.tends_filters.load(Ordering::Acquire) {
        return;
    }
    let due: Vec<_> = store.keyspaces().into_iter().filter(|core| is_due(core)).collect();
    if store.read_only || due.is_empty() || store.tends_filters.swap(true, Ordering::AcqRel) {
        return;
    }
    if let Err(error) = spawn(store) {
        store.tends_filters.store(false, Ordering::Release);
        due.iter().for_each(|core| core.existence.note_problem(Some(error.clone())));
    }
}

fn spawn(store: &Arc<Store>) -> Result<()> {
    // Whoever closes the store says so under this lock before he takes the threads.
    let state = store.work_lock();
    state.check_not_stopped()?;
    let tended = Arc::clone(store);
    let spawner = &store.options.env.threads;
    let thread = spawner.spawn("umbel-existence", Box::new(move || work(&tended)))?;
    store.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
    drop(state);
    Ok(())
}

fn is_due(core: &KeyspaceCore) -> bool {
    core.existence.is_on() || core.options_given().existence_filter != ExistenceSize::Off
}

fn work(store: &Arc<Store>) {
    while !store.work_lock().stop {
        if !guarded(|| Ok(tend_all(store))).unwrap_or(false) {
            store.wait_for_change(LOOK_AGAIN, || false);
        }
    }
}

/// Does the work; a panic in it is an error, so that it ends neither the thread nor the store nor
/// the work on other keyspaces.
fn guarded<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    let panicked = |_| Err(Error::invalid("internal: the upkeep of the existence filter panicked"));
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(panicked)
}

/// Does on the calling thread all there is to do for filters, where no other thread does it.
pub fn run_inline(store: &Arc<Store>) -> Result<()> {
    if store.options.background_threads > 0 || store.read_only {
        return Ok(());
    }
    let Some(_calling) = Calling::begin(store) else { return Ok(()) };
    while tend_all(store) {}
    Ok(())
}

/// A caller's thread that works on filters' files. A close waits for it, as it does for threads of
/// the store: afterwards the files may be another's.
struct Calling<'a>(&'a Store);

impl Calling<'_> {
    /// `None` where the store is being closed.
    fn begin(store: &Store) -> Option<Calling<'_>> {
        let mut state = store.work_lock();
        state.check_not_stopped().ok()?;
        state.tending += 1;
        Some(Calling(store))
    }
}

impl Drop for Calling<'_> {
    fn drop(&mut self) {
        self.0.work_lock().tending -= 1;
        self.0.signal();
    }
}

/// A step for each filter. Says whether there is more to do now.
fn tend_all(store: &Store) -> bool {
    let (mut is_more, mut weighs_other) = (false, false);
    for core in store.keyspaces() {
        if !is_due(&core) || store.poison.is_set() || !store.open.is_open() {
            continue;
        }
        let before = core.existence.memory_bytes();
        let tended = guarded(|| tend(store, &core));
        is_more |= tended.as_ref().is_ok_and(|progress| goes_on(*progress));
        core.existence.note_problem(tended.err());
        weighs_other |= before.abs_diff(core.existence.memory_bytes()) >= CHUNK_BYTES;
    }
    if weighs_other {
        // Tables and blocks have to leave room for it, or may take what it left.
        advise::after_work(store);
    }
    is_more
}

/// Whether to go on right after this. A filter whose walk made way did nothing, and is looked at
/// again when there was time: going on would take the processor from those it made way for.
fn goes_on(progress: Progress) -> bool {
    match progress {
        Progress::More | Progress::Ahead => true,
        Progress::MadeWay | Progress::Idle => false,
    }
}

fn tend(store: &Store, core: &KeyspaceCore) -> Result<Progress> {
    if put_in(store, core)? {
        return Ok(Progress::More);
    }
    let files = core.existence.files();
    let Some(filter) = core.existence.filter() else { return Ok(Progress::Idle) };
    let flush = |sequence| filter.flush_briefly(covered_now(store, sequence)?);
    let covered = filter.covered();
    // Where the whole filter has to be written for it, the steps do that first.
    if covered < files.floor {
        // What is in tables is in the filter too, or in what is still to be walked through.
        flush(files.floor)?;
    } else if filter.lag_items() > LAG_ITEMS_MAX {
        flush(covered)?;
    }
    let keys = Keys(core);
    if is_mostly_gone(&filter, &keys) {
        filter.rebuild();
    }
    filter.step(&keys)
}

/// The same of an open store.
fn covered_now(store: &Store, sequence: SequenceNumber) -> Result<Covered> {
    Ok(covered(&store.manifest_lock()?.state().openings, sequence))
}

/// Whether more than half of the keys in a filter are gone, counted as more than they are, and the
/// filter is no longer nearly empty: then it is made anew. So each walk through the keys that there
/// are is paid for by as many new ones, and each writing of the filter by a quarter of its load.
fn is_mostly_gone(filter: &ExistenceFilter, keys: &Keys<'_>) -> bool {
    let Some((items, designed)) = filter.load() else { return false };
    items >= designed / 4 && items / 2 > keys.estimated()
}

/// Puts in the filter that the keyspace's options ask for, or takes it out. Says whether there was
/// something to do.
fn put_in(store: &Store, core: &KeyspaceCore) -> Result<bool> {
    let mut files = core.existence.files();
    let size = core.options_given().existence_filter;
    if files.size == size || core.check_not_dropped().is_err() {
        return Ok(false);
    }
    take_out(store, core);
    files.size = ExistenceSize::Off;
    let opened = {
        let mut manifest = store.manifest_lock()?;
        if size != ExistenceSize::Off && manifest.state().openings.is_empty() {
            // The first filter: from now on copies of the store have to be told apart. Nothing
            // speaks of what came before, so that this open may stand for it.
            let id = store.options.env.entropy.number()?;
            manifest.commit(&[Edit::Opening(Opening { after: 0, id })])?;
        }
        let identity = manifest.state().identity.as_ref();
        identity.map(|identity| options(identity, core, u64::MAX))
    };
    let Some(options) = opened else { return Ok(false) };
    let path = names::existence(&store.folder, core.id);
    let filter = ExistenceFilter::open(&store.options.env, &path, options)?;
    if options.size == ExistenceSize::Off {
        return Ok(true);
    }
    {
        let _commit = store.commit_lock();
        if core.check_not_dropped().is_ok() {
            core.existence.put(Some(filter));
        }
    }
    files.size = options.size;
    let manifest = store.manifest_lock()?;
    let record = manifest.state().keyspaces.get(&core.id);
    files.floor = record.map_or(0, |record| record.flushed_through);
    Ok(true)
}

fn take_out(store: &Store, core: &KeyspaceCore) {
    let _commit = store.commit_lock();
    core.existence.put(None);
}

/// Makes durable what the filters have, before memtables of their keyspaces with writes up to a
/// number each become tables. REQUIRES: the logs are durable up to there.
///
/// A filter of which all would have to be written is left to its upkeep.
///
/// # Errors
/// Those of the manifest. That a filter cannot be written is noted only.
pub fn flush<'a>(
    store: &Store,
    lasts: impl Iterator<Item = (&'a KeyspaceCore, SequenceNumber)>,
) -> Result<()> {
    let lasts: Vec<_> = lasts.filter(|(core, last)| core.existence.is_on() && *last > 0).collect();
    let unlogged = lasts.iter().filter(|(core, _)| !core.logs()).map(|(_, last)| *last).max();
    let is_taken = unlogged.map_or(Ok(true), |last| take_numbers(store, last))?;
    for (core, last) in lasts {
        if !core.logs() && !is_taken {
            continue;
        }
        let mut files = core.existence.files();
        let Some(filter) = core.existence.filter() else { continue };
        files.floor = files.floor.max(last);
        let flushed = guarded(|| filter.flush_briefly(covered_now(store, last)?));
        core.existence.note_problem(flushed.err());
    }
    Ok(())
}

/// Has the manifest say that the numbers up to `last` are taken. `false` where it has no room.
fn take_numbers(store: &Store, last: SequenceNumber) -> Result<bool> {
    let mut manifest = store.manifest_lock()?;
    if manifest.state().last_sequence >= last {
        return Ok(true);
    }
    Ok(manifest.commit_if_room(&[Edit::LastSequence(last)])?.is_none())
}

/// Makes durable what the filters have at the end of a store whose numbers up to `last` are taken,
/// so that the next open has less to insert.
pub fn close(store: &Store, last: SequenceNumber) {
    for core in store.keyspaces() {
        let _files = core.existence.files();
        if let Some(filter) = core.existence.filter() {
            let flushed = guarded(|| filter.flush(covered_now(store, last)?));
            core.existence.note_problem(flushed.err());
        }
    }
}

/// Takes the filter of a keyspace that was dropped out, and removes its files. What cannot be
/// removed now is removed by the next open.
pub fn remove(store: &Store, core: &KeyspaceCore) {
    let Some(_calling) = Calling::begin(store) else { return };
    let mut files = core.existence.files();
    if files.size == ExistenceSize::Off && !core.existence.is_on() {
        return;
    }
    take_out(store, core);
    files.size = ExistenceSize::Off;
    remove_files(&store.options.env, &names::existence(&store.folder, core.id));
}

/// Removes the files of filters that no keyspace has, of the folders with these names. The folders
/// stay.
pub fn remove_orphans<'a>(
    env: &Env,
    folder: &Path,
    names: impl Iterator<Item = &'a str>,
    state: &State,
) {
    let is_live = |id: &u32| {
        let record = state.keyspaces.get(id);
        record.is_some_and(|record| record.options.existence_filter != ExistenceSize::Off)
    };
    for id in names.filter_map(names::existence_of).filter(|id| !is_live(id)) {
        remove_files(env, &names::existence(folder, id));
    }
}

fn remove_files(env: &Env, path: &Path) {
    let off = ExistenceOptions { size: ExistenceSize::Off, ..ExistenceOptions::default() };
    // They are nothing to anybody: a later keyspace has another number.
    let _ = ExistenceFilter::open(env, path, off);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A filter whose history the manifest has forgotten, or never knew, is not believed.
    #[test]
    fn a_filter_is_believed_where_the_manifest_says_the_same() {
        let of = |position, history| Covered { position, history };
        let mut openings = Openings::default();
        assert!(is_ours(&openings, of(0, 9)) && is_ours(&openings, of(5, 0)));
        assert!(!is_ours(&openings, of(5, 9)));
        openings.begin(10, 1).unwrap();
        assert!(is_ours(&openings, of(10, 0)) && is_ours(&openings, of(11, 1)));
        assert!(!is_ours(&openings, of(11, 0)) && !is_ours(&openings, of(10, 1)));
        (2..70).for_each(|open| openings.begin(open * 10, open).unwrap());
        assert!(is_ours(&openings, of(691, 69)) && is_ours(&openings, covered(&openings, 300)));
        let forgotten = covered(&openings, 11);
        assert!(!is_ours(&openings, forgotten) && !is_ours(&openings, of(10, 0)));
    }

    /// Story: the thread stepped without a pause for as long as a compaction ran.
    #[test]
    fn a_walk_that_made_way_is_left_alone_for_a_while() {
        let all = [Progress::More, Progress::Ahead, Progress::MadeWay, Progress::Idle];
        assert_eq!(all.map(goes_on), [true, true, false, false]);
    }
}
