//! Committing: sequence number, log, memtable, publication; then, outside every lock, the sync.
//!
//! Whoever gets the commit lock takes along every batch that waits for it, in the order in which
//! they came: it copies them into the log one after the other, puts them into the memtables and
//! publishes them together. The others find their outcome when they get the lock.

use std::array;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, TryLockError};

use umbel_base::{Error, Result, SequenceNumber, limits, varint};

use crate::counters::add_alone;
use crate::keyspace_core::KeyspaceCore;
use crate::options::Durability;
use crate::read;
use crate::segments;
use crate::sharing::{self, BUFFERS_HARD};
use crate::store::{CommitState, Store};
use crate::weigh;
use crate::writes::{
    Action, Committed, Condition, Request, Write, Writes, check_operation, encode_head,
};

/// How often the long values of a batch's conditions are compared outside the commit lock, each
/// time because somebody put the same value again, before they are compared under it.
const COMPARED_UNLOCKED_MAX: u32 = 3;

/// How many operations of a batch are hashed, and their lines of the filter asked for, before the
/// first of them is put into its memtable: as long as a line takes to come from memory.
const HASHED_AHEAD: usize = 8;

/// What a commit left behind for its caller to see to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Aftermath {
    /// Whether a memtable was frozen and waits to be flushed.
    pub frozen: bool,
    /// Whether the log has chores for `segments`.
    pub log_nudged: bool,
}

/// Commits a batch. On success it is visible, and durable as `durability` says or, where that is
/// `None`, as the store's options do. `writes` is as it was afterwards, whatever came of it.
///
/// `aftermath` is to be seen to even where this fails: others may have been taken along.
pub fn commit(
    store: &Store,
    writes: &mut Writes,
    durability: Option<Durability>,
    aftermath: &mut Aftermath,
) -> Result<()> {
    store.check_writable()?;
    writes.check(durability)?;
    let mut times_compared = 0;
    loop {
        let mut request = Request::new(std::mem::take(writes), durability);
        request.compares_locked = times_compared == COMPARED_UNLOCKED_MAX;
        let mut request = Arc::new(request);
        let outcome = queue_up(store, &request, aftermath);
        // Whoever took it along let go of the group before the lock.
        let request =
            Arc::get_mut(&mut request).expect("nobody else holds a request with an outcome");
        *writes = std::mem::take(&mut request.writes);
        if !*request.is_to_compare.get_mut() {
            let committed = outcome.unwrap_or(Err(Error::Closed))?;
            return finish(store, committed, durability);
        }
        // A value that differs, or differed a moment ago, is a conflict even if another one came
        // meanwhile: the commit takes its place in the order of all commits at that moment.
        writes.compare_values(|keyspace, key, value, compared| {
            match read::compare(store, keyspace, key, None, value, compared)? {
                true => Ok(()),
                false => Err(conflict(keyspace, key)),
            }
        })?;
        times_compared += 1;
    }
}

fn conflict(keyspace: &KeyspaceCore, key: &[u8]) -> Error {
    Error::Conflict(format!(
        "key {} of keyspace '{}' is not as it was seen",
        key.escape_ascii(),
        keyspace.name
    ))
}

/// Waits for whoever holds the commit lock to take a request along, or commits it with all others
/// that wait.
fn queue_up(
    store: &Store,
    request: &Arc<Request>,
    aftermath: &mut Aftermath,
) -> Option<Result<Committed>> {
    queue(store).push(Arc::clone(request));
    let mut state = store.commit_lock();
    let outcome = take_outcome(request);
    if outcome.is_some() {
        return outcome;
    }
    let group = std::mem::take(&mut *queue(store));
    let left_behind = commit_group(store, &mut state, &group);
    aftermath.frozen |= left_behind.frozen;
    aftermath.log_nudged |= left_behind.log_nudged;
    drop(group);
    take_outcome(request)
}

/// Commits one put or delete as durable as the store's options say, without a detour where nobody
/// else is writing. `aftermath` is that of [`commit`].
pub fn commit_one(
    store: &Store,
    keyspace: &Arc<KeyspaceCore>,
    action: Action,
    key: &[u8],
    value: &[u8],
    aftermath: &mut Aftermath,
) -> Result<()> {
    check_operation(action, key, value)?;
    let mut state = match store.commit.try_lock() {
        Ok(state) => state,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => {
            let mut writes = Writes::default();
            writes.push(action, keyspace, key, value);
            return commit(store, &mut writes, None, aftermath);
        }
    };
    store.check_writable()?;
    keyspace.check_not_dropped()?;
    let write = Write { action, keyspace, key, value };
    let hash = hash_ahead(&write);
    let committed = log_one(store, &mut state, &write)?;
    let sequence = state.last_sequence + 1;
    let full = apply(store, &write, hash, sequence);
    state.last_sequence = sequence;
    store.snapshots.publish(sequence);
    add_alone(&store.counters.commits, 1);
    add_alone(&store.counters.commit_groups, 1);
    if full {
        keyspace.view.freeze(&keyspace.options());
    }
    let frozen = full | weigh_if_due(store, &mut state, key.len() + value.len());
    *aftermath = Aftermath { frozen, log_nudged: state.wal.take_nudge() };
    drop(state);
    finish(store, committed, None)
}

fn queue(store: &Store) -> std::sync::MutexGuard<'_, Vec<Arc<Request>>> {
    store.queue.lock().unwrap_or_else(PoisonError::into_inner)
}

fn take_outcome(request: &Request) -> Option<Result<Committed>> {
    request.outcome.lock().unwrap_or_else(PoisonError::into_inner).take()
}

fn finish(store: &Store, committed: Committed, durability: Option<Durability>) -> Result<()> {
    // What went to no log has nothing to sync: the store's default promises it nothing.
    if committed.logged_through == 0 {
        return Ok(());
    }
    match durability.unwrap_or(store.options.durability) {
        Durability::Synced => store.sync_through(committed.logged_through),
        Durability::Buffered => Ok(()),
    }
}

fn commit_group(store: &Store, state: &mut CommitState, group: &[Arc<Request>]) -> Aftermath {
    let (mut frozen, mut commits) = (false, 0);
    for request in group {
        let writes = &request.writes;
        let outcome = commit_in_order(store, state, request);
        if outcome.is_ok() {
            commits += 1;
            frozen |= settle(store, state, writes.keyspaces(), writes.bytes());
        }
        *request.outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
    }
    store.snapshots.publish(state.last_sequence);
    add_alone(&store.counters.commits, commits);
    add_alone(&store.counters.commit_groups, u64::from(commits > 0));
    Aftermath { frozen, log_nudged: state.wal.take_nudge() }
}

fn commit_in_order(store: &Store, state: &mut CommitState, request: &Request) -> Result<Committed> {
    let writes = &request.writes;
    store.check_writable()?;
    // Again, because a keyspace may have been dropped, or opened without its log, meanwhile.
    writes.check_keyspaces(request.durability)?;
    check_conditions(store, state.last_sequence, request)?;
    let mut scratch = std::mem::take(&mut state.scratch);
    scratch.clear();
    let logged = writes.encode(&mut scratch);
    let result = log(store, state, logged, &[&scratch], || makes_room(writes));
    state.scratch = scratch;
    let committed = result?;
    let mut sequence = state.last_sequence;
    let mut coming = writes.iter().map(|write| hash_ahead(&write));
    let mut hashes: [u64; HASHED_AHEAD] = array::from_fn(|_| coming.next().unwrap_or_default());
    for (number, write) in writes.iter().enumerate() {
        sequence += 1;
        let next = coming.next().unwrap_or_default();
        let hash = std::mem::replace(&mut hashes[number % HASHED_AHEAD], next);
        apply(store, &write, hash, sequence);
    }
    state.last_sequence = sequence;
    for (keyspace, marker) in writes.markers() {
        keyspace.view.load().active.set_marker(marker);
    }
    Ok(committed)
}

/// Whether a batch deletes and does nothing else, so that a compaction can make room on the disk.
pub fn makes_room(writes: &Writes) -> bool {
    writes.iter().all(|write| write.action.makes_room())
}

fn check_conditions(store: &Store, present: SequenceNumber, request: &Request) -> Result<()> {
    for (keyspace, key, condition) in request.writes.conditions() {
        let holds = match condition {
            Condition::UnchangedSince(seen) => read::newest_write(keyspace, key)? <= *seen,
            Condition::Absent => !read::contains(store, keyspace, key, Some(present))?,
            Condition::Value(value, compared) => {
                let mut holds = read::is_value(store, keyspace, key, present, value, *compared)?;
                if holds.is_none() && request.compares_locked {
                    let at = Some(present);
                    holds = Some(read::compare(store, keyspace, key, at, value, &mut None)?);
                }
                request.is_to_compare.fetch_or(holds.is_none(), Ordering::Relaxed);
                holds == Some(true)
            }
        };
        if !holds {
            return Err(conflict(keyspace, key));
        }
    }
    Ok(())
}

fn log_one(store: &Store, state: &mut CommitState, write: &Write<'_>) -> Result<Committed> {
    if !write.keyspace.logs() {
        return log(store, state, 0, &[], || false);
    }
    let mut scratch = std::mem::take(&mut state.scratch);
    scratch.clear();
    varint::put_u64(&mut scratch, 1);
    encode_head(write.action, write.keyspace.id, write.key, write.value.len(), &mut scratch);
    let result = log(store, state, 1, &[&scratch, write.value], || write.action.makes_room());
    state.scratch = scratch;
    result
}

/// Puts one record with `count` operations into the log. An error leaves everything as it was,
/// unless it poisoned the store.
fn log(
    store: &Store,
    state: &mut CommitState,
    count: u64,
    payload: &[&[u8]],
    makes_room: impl Fn() -> bool,
) -> Result<Committed> {
    if state.last_sequence + limits::BATCH_OPERATIONS_MAX as u64 > limits::SEQUENCE_MAX {
        return Err(Error::invalid("the store has used up its sequence numbers"));
    }
    if count == 0 {
        return Ok(Committed { logged_through: 0 });
    }
    let payload_bytes = payload.iter().map(|part| part.len()).sum();
    if state.wal.needs_segment(payload_bytes) {
        segments::advance(store, state, payload_bytes, makes_room())?;
    }
    let (first, last) = (state.last_sequence + 1, state.last_sequence + count);
    let written = state.wal.append(first, last, payload);
    let bytes = written.map_err(|error| segments::final_unless_full(store, &state.wal, error))?;
    add_alone(&store.counters.log_bytes, bytes);
    Ok(Committed { logged_through: last })
}

/// Puts writes to keyspaces without a log into the memtables of a store that is open for reading
/// only, as recovery does with those of the log. No file holds them, and no flush will.
pub fn replay(store: &Store, writes: &Writes) -> Result<()> {
    store.check_open()?;
    writes.check(None)?;
    let mut keyspaces = writes.keyspaces().iter();
    if !store.read_only || keyspaces.any(|keyspace| keyspace.logs()) {
        return Err(Error::invalid(
            "internal: only what no log holds is replayed, and only into a store that is open for \
             reading",
        ));
    }
    let mut state = store.commit_lock();
    // Checks that there are sequence numbers left, and writes nothing.
    log(store, &mut state, 0, &[], || false)?;
    for write in writes.iter() {
        state.last_sequence += 1;
        let hash = hash_ahead(&write);
        if apply(store, &write, hash, state.last_sequence) {
            write.keyspace.view.freeze(&write.keyspace.options());
        }
    }
    store.snapshots.publish(state.last_sequence);
    state.bytes_unweighed += writes.bytes() as u64;
    if state.bytes_unweighed > store.budget.sizes.buffers / 64 {
        state.bytes_unweighed = 0;
        weigh::settle_cache(store, &weigh::parts(store, state.wal.mapped_bytes()));
    }
    Ok(())
}

/// The hash of a write's key, with its line of the memtable's filter on the way. Of a range it
/// says nothing.
#[inline]
fn hash_ahead(write: &Write<'_>) -> u64 {
    let hash = write.keyspace.hash(write.key);
    write.keyspace.view.load().active.memtable.prefetch(hash);
    hash
}

/// Puts a write into its memtable. `hash` is that of its key. Answers whether the memtable is full
/// now.
fn apply(store: &Store, write: &Write<'_>, hash: u64, sequence: SequenceNumber) -> bool {
    let view = write.keyspace.view.load();
    let memtable = &view.active.memtable;
    match write.action.kind() {
        Some(kind) => {
            if let Some(pointer) = write.blob() {
                view.active.hold_blob(store.context.blobs.hold(&pointer));
                add_alone(&write.keyspace.counters.user_bytes, pointer.value_bytes);
            }
            memtable.insert(write.key, sequence, kind, write.value, hash);
            if write.keyspace.existence.is_on() {
                write.keyspace.existence.note_write(kind, hash);
            }
        }
        None => {
            memtable.delete_range(write.key, write.value, sequence);
            view.active.note_range_delete();
        }
    }
    view.active.note(sequence);
    let bytes = (write.key.len() + write.value.len()) as u64;
    add_alone(&write.keyspace.counters.user_bytes, bytes);
    view.active.is_full(write.keyspace.buffer_bytes_max())
}

/// Freezes what has become too large. Answers whether anything was frozen.
fn settle(
    store: &Store,
    state: &mut CommitState,
    keyspaces: &[Arc<KeyspaceCore>],
    bytes: usize,
) -> bool {
    let mut frozen = false;
    for keyspace in keyspaces {
        let full = keyspace.view.load().active.is_full(keyspace.buffer_bytes_max());
        if full {
            keyspace.view.freeze(&keyspace.options());
            frozen = true;
        }
    }
    frozen | weigh_if_due(store, state, bytes)
}

/// Weighs all memtables together where enough was written since that was done last. Answers
/// whether anything was frozen.
#[inline]
fn weigh_if_due(store: &Store, state: &mut CommitState, bytes: usize) -> bool {
    state.bytes_unweighed += bytes as u64;
    state.bytes_unweighed > state.weighing_bytes && weigh_all(store, state)
}

#[cold]
fn weigh_all(store: &Store, state: &mut CommitState) -> bool {
    let total = store.budget.sizes.buffers;
    state.bytes_unweighed = 0;
    let mut frozen = match store.budget.membership() {
        Some(membership) => sharing::weigh_memtables(store, membership),
        None => freeze_fullest(store, total),
    };
    frozen |= freeze_idle(store, state, total);
    weigh::settle_cache(store, &weigh::parts(store, state.wal.mapped_bytes()));
    state.weighing_bytes = store.budget.weighing_bytes();
    frozen
}

/// Weighs all memtables now. Answers whether one was frozen.
pub fn weigh_now(store: &Store) -> bool {
    weigh_all(store, &mut store.commit_lock())
}

/// Freezes the fullest memtables where all together are over `total`, until what is left to write
/// to is half of that; where even that came too late, writers have to wait.
fn freeze_fullest(store: &Store, total: u64) -> bool {
    let bytes = memtable_bytes(store);
    if bytes <= total {
        return false;
    }
    let frozen = weigh::freeze_fullest(store, total / 2);
    match bytes > total * BUFFERS_HARD {
        true => sharing::hold_writers(store, || memtable_bytes(store) > total * BUFFERS_HARD),
        false => store.buffers_full.store(false, Ordering::Release),
    }
    frozen
}

fn memtable_bytes(store: &Store) -> u64 {
    store.keyspaces().iter().map(|keyspace| keyspace.memtable_bytes()).sum()
}

/// Freezes keyspaces whose old entries alone keep old log segments from being dropped.
fn freeze_idle(store: &Store, state: &CommitState, total: u64) -> bool {
    let (_, bytes, Some(oldest)) = state.wal.old_summary() else { return false };
    if bytes <= total {
        return false;
    }
    let mut frozen = false;
    for keyspace in store.keyspaces() {
        let view = keyspace.view.load();
        let holds = keyspace.logs() && view.active.first_sequence() <= oldest;
        if holds && !keyspace.dropped.load(Ordering::Relaxed) {
            keyspace.view.freeze(&keyspace.options());
            frozen = true;
        }
    }
    frozen
}

/// Lets writers go on once the memtables are within bounds again.
pub fn weigh_buffers(store: &Store) {
    let must_wait = match store.budget.membership() {
        Some(membership) => sharing::must_wait(store, membership),
        None => memtable_bytes(store) > store.budget.sizes.buffers * BUFFERS_HARD,
    };
    if !must_wait {
        store.buffers_full.store(false, Ordering::Release);
    }
}
