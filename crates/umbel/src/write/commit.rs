//! Commit: conditions, sequence numbers, WAL, memtables and publication, under the commit lock.
//!
//! The thread that gets the commit lock commits every waiting batch in arrival order. This thread
//! copies the batches into the WAL, inserts them into the memtables and publishes them together.
//! The other threads find the outcome of their batch when they get the lock.
//! [`post_commit`](crate::write::post_commit), which gets the lock as a value, does the sync and
//! the work that became due.

use std::array;
use std::sync::atomic::Ordering;
use std::sync::{Arc, TryLockError};
use umbel_base::ignore_poison::IgnorePoison;

use umbel_base::{Error, Result, SequenceNumber, limits, varint};

use crate::maintenance::memory_enforcement;
use crate::options::Durability;
use crate::read;
use crate::state::keyspace_state::KeyspaceState;
use crate::state::store::{CommitState, Store};
use crate::state::write_batch::{
    Action, CommitOutcome, CommitRequest, Condition, WriteBatch, WriteOperation, check_operation,
    encode_head,
};
use crate::thread_counters::add_exclusive;
use crate::write::post_commit::PostCommit;

/// Maximum number of times that a batch's conditions on long values are compared outside the commit
/// lock. A comparison is repeated if another writer put the same value again. Further comparisons
/// are under the commit lock.
const UNLOCKED_COMPARES_MAX: u32 = 3;

/// Number of operations of a batch that are hashed, and whose filter lines are prefetched, before
/// the first operation is inserted. The number matches the latency of a cache line from memory.
const PREFETCH_DISTANCE: usize = 8;

/// Commits a batch. After success the batch is visible to readers. The call does not change
/// `writes`, even on an error.
///
/// The caller must finish `post_commit` even after an error, since the call can have committed
/// other batches. REQUIRES: the thread does not hold the commit lock.
pub fn commit<'a>(
    store: &'a Store,
    writes: &mut WriteBatch,
    durability: Option<Durability>,
    post_commit: &mut PostCommit<'a>,
) -> Result<CommitOutcome> {
    debug_assert!(post_commit.state.is_none());
    store.check_writable()?;
    writes.check(durability)?;
    let mut times_compared = 0;
    loop {
        let mut request = CommitRequest::new(std::mem::take(writes), durability);
        request.compares_under_lock = times_compared == UNLOCKED_COMPARES_MAX;
        let mut request = Arc::new(request);
        let outcome = enqueue(store, &request, post_commit);
        // The thread that committed it released the group before the lock.
        let request = Arc::get_mut(&mut request).expect("a request with an outcome has one owner");
        *writes = std::mem::take(&mut request.writes);
        if !*request.needs_compare.get_mut() {
            return outcome.unwrap_or(Err(Error::Closed));
        }
        post_commit.release_lock(store);
        // A value that differs, or differed a moment ago, is a conflict even if another one came
        // meanwhile. The commit's place in the order of all commits is that moment.
        writes.compare_values(|keyspace, key, value, compared| {
            match read::compare_value(store, keyspace, key, None, value, compared)? {
                true => Ok(()),
                false => Err(conflict(keyspace, key)),
            }
        })?;
        times_compared += 1;
    }
}

fn conflict(keyspace: &KeyspaceState, key: &[u8]) -> Error {
    Error::Conflict(format!(
        "key {} of keyspace '{}' does not match its condition",
        key.escape_ascii(),
        keyspace.name
    ))
}

/// Waits until the holder of the commit lock commits a request, or commits it with all other
/// waiting requests.
fn enqueue<'a>(
    store: &'a Store,
    request: &Arc<CommitRequest>,
    post_commit: &mut PostCommit<'a>,
) -> Option<Result<CommitOutcome>> {
    lock_queue(store).push(Arc::clone(request));
    let mut state = store.commit_lock();
    let outcome = take_outcome(request);
    if outcome.is_some() {
        return outcome;
    }
    let group = std::mem::take(&mut *lock_queue(store));
    commit_group(store, &mut state, &group, post_commit);
    drop(group);
    post_commit.state = Some(state);
    take_outcome(request)
}

/// Commits one put or delete, on a short path if no other thread is writing. The caller must finish
/// `post_commit`, as with [`commit`].
pub fn commit_one<'a>(
    store: &'a Store,
    keyspace: &Arc<KeyspaceState>,
    action: Action,
    key: &[u8],
    value: &[u8],
    post_commit: &mut PostCommit<'a>,
) -> Result<CommitOutcome> {
    check_operation(action, key, value)?;
    let mut state = match store.commit.try_lock() {
        Ok(state) => state,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => {
            let mut writes = WriteBatch::default();
            writes.push(action, keyspace, key, value);
            return commit(store, &mut writes, None, post_commit);
        }
    };
    store.check_writable()?;
    keyspace.check_not_dropped()?;
    let write = WriteOperation { action, keyspace, key, value };
    let hash = hash_and_prefetch(&write);
    let committed = append_one(store, &mut state, &write)?;
    let sequence = state.last_sequence + 1;
    if insert_into_memtable(store, &write, hash, sequence) {
        state.full.push(Arc::clone(keyspace));
    }
    state.last_sequence = sequence;
    state.bytes_since_check += (key.len() + value.len()) as u64;
    store.snapshots.publish(sequence);
    add_exclusive(&store.counters.commits, 1);
    add_exclusive(&store.counters.commit_groups, 1);
    post_commit.state = Some(state);
    Ok(committed)
}

fn lock_queue(store: &Store) -> std::sync::MutexGuard<'_, Vec<Arc<CommitRequest>>> {
    store.commit_queue.lock().ignore_poison()
}

fn take_outcome(request: &CommitRequest) -> Option<Result<CommitOutcome>> {
    request.outcome.lock().ignore_poison().take()
}

fn commit_group(
    store: &Store,
    state: &mut CommitState,
    group: &[Arc<CommitRequest>],
    post_commit: &mut PostCommit<'_>,
) {
    let mut commits = 0;
    for (number, request) in group.iter().enumerate() {
        // A group has no limit, but each memtable has one.
        if number > 0 {
            post_commit.freeze(store, state);
        }
        let writes = &request.writes;
        let outcome = commit_in_order(store, state, request);
        if outcome.is_ok() {
            commits += 1;
            state.bytes_since_check += writes.bytes() as u64;
            let full = writes.keyspaces().iter().filter(|it| it.has_full_memtable());
            state.full.extend(full.cloned());
        }
        *request.outcome.lock().ignore_poison() = Some(outcome);
    }
    store.snapshots.publish(state.last_sequence);
    add_exclusive(&store.counters.commits, commits);
    add_exclusive(&store.counters.commit_groups, u64::from(commits > 0));
}

fn commit_in_order(
    store: &Store,
    state: &mut CommitState,
    request: &CommitRequest,
) -> Result<CommitOutcome> {
    let writes = &request.writes;
    store.check_writable()?;
    // Again, because a keyspace may have been dropped, or reopened without WAL, meanwhile.
    writes.check_keyspaces(request.durability)?;
    check_conditions(store, state.last_sequence, request)?;
    let mut scratch = std::mem::take(&mut state.scratch);
    scratch.clear();
    let logged = writes.encode(&mut scratch);
    let result = append_batch(store, state, logged, &[&scratch], || writes.frees_space());
    state.scratch = scratch;
    let committed = result?;
    let mut sequence = state.last_sequence;
    let mut hashed = writes.iter().map(|write| hash_and_prefetch(&write));
    let mut hashes: [u64; PREFETCH_DISTANCE] =
        array::from_fn(|_| hashed.next().unwrap_or_default());
    for (number, write) in writes.iter().enumerate() {
        sequence += 1;
        let next = hashed.next().unwrap_or_default();
        let hash = std::mem::replace(&mut hashes[number % PREFETCH_DISTANCE], next);
        insert_into_memtable(store, &write, hash, sequence);
    }
    state.last_sequence = sequence;
    for (keyspace, marker) in writes.markers() {
        keyspace.super_version.load().active.set_marker(marker);
    }
    Ok(committed)
}

fn check_conditions(store: &Store, present: SequenceNumber, request: &CommitRequest) -> Result<()> {
    for (keyspace, key, condition) in request.writes.conditions() {
        let holds = match condition {
            Condition::UnchangedSince(seen) => read::newest_write(keyspace, key)? <= *seen,
            Condition::Absent => !read::contains(store, keyspace, key, Some(present))?,
            Condition::Value(value, compared) => {
                let mut holds = read::is_value(store, keyspace, key, present, value, *compared)?;
                if holds.is_none() && request.compares_under_lock {
                    let at = Some(present);
                    holds = Some(read::compare_value(store, keyspace, key, at, value, &mut None)?);
                }
                request.needs_compare.fetch_or(holds.is_none(), Ordering::Relaxed);
                holds == Some(true)
            }
        };
        if !holds {
            return Err(conflict(keyspace, key));
        }
    }
    Ok(())
}

fn append_one(
    store: &Store,
    state: &mut CommitState,
    write: &WriteOperation<'_>,
) -> Result<CommitOutcome> {
    if !write.keyspace.uses_wal() {
        return append_batch(store, state, 0, &[], || false);
    }
    let mut scratch = std::mem::take(&mut state.scratch);
    scratch.clear();
    varint::put_u64(&mut scratch, 1);
    encode_head(write.action, write.keyspace.id, write.key, write.value.len(), &mut scratch);
    let result =
        append_batch(store, state, 1, &[&scratch, write.value], || write.action.frees_space());
    state.scratch = scratch;
    result
}

/// Appends one record with `count` operations to the WAL. An error that is not fatal for the store
/// leaves the WAL as it was.
fn append_batch(
    store: &Store,
    state: &mut CommitState,
    count: u64,
    payload: &[&[u8]],
    frees_space: impl Fn() -> bool,
) -> Result<CommitOutcome> {
    if state.last_sequence + limits::BATCH_OPERATIONS_MAX as u64 > limits::SEQUENCE_MAX {
        return Err(Error::invalid("the store has used up its sequence numbers"));
    }
    if count == 0 {
        return Ok(CommitOutcome { logged_through: 0 });
    }
    let (first, last) = (state.last_sequence + 1, state.last_sequence + count);
    let bytes = state.wal.append((first, last), payload, store.manifest()?, frees_space)?;
    add_exclusive(&store.counters.log_bytes, bytes);
    Ok(CommitOutcome { logged_through: last })
}

/// Inserts writes to keyspaces without a WAL into the memtables of a store opened read-only, as
/// recovery inserts the writes of the WAL. No file holds these writes, and no flush writes them.
pub fn replay(store: &Store, writes: &WriteBatch) -> Result<()> {
    store.check_open()?;
    writes.check(None)?;
    let mut keyspaces = writes.keyspaces().iter();
    if !store.read_only || keyspaces.any(|keyspace| keyspace.uses_wal()) {
        return Err(Error::invalid(
            "internal: replay needs writes without a log and a store that is open for reading only",
        ));
    }
    let mut state = store.commit_lock();
    // Checks that sequence numbers are left, and writes nothing.
    append_batch(store, &mut state, 0, &[], || false)?;
    for write in writes.iter() {
        state.last_sequence += 1;
        let hash = hash_and_prefetch(&write);
        insert_into_memtable(store, &write, hash, state.last_sequence);
    }
    for keyspace in writes.keyspaces().iter().filter(|keyspace| keyspace.has_full_memtable()) {
        keyspace.super_version.freeze(&keyspace.options());
    }
    store.snapshots.publish(state.last_sequence);
    state.bytes_since_check += writes.bytes() as u64;
    if state.bytes_since_check > store.budget.sizes.buffers / 64 {
        state.bytes_since_check = 0;
        memory_enforcement::resize_cache(
            store,
            &memory_enforcement::measure(store, state.wal.mapped_bytes()),
        );
    }
    Ok(())
}

/// Returns the hash of a write's key, and prefetches the key's line of the memtable's filter. For a
/// range delete the result has no meaning.
#[inline]
fn hash_and_prefetch(write: &WriteOperation<'_>) -> u64 {
    let hash = write.keyspace.hash(write.key);
    write.keyspace.super_version.load().active.memtable.prefetch(hash);
    hash
}

/// Inserts a write into its memtable. `hash` is the hash of its key. Returns whether the memtable
/// is full now.
fn insert_into_memtable(
    store: &Store,
    write: &WriteOperation<'_>,
    hash: u64,
    sequence: SequenceNumber,
) -> bool {
    let view = write.keyspace.super_version.load();
    match write.action.kind() {
        Some(kind) => {
            if let Some(pointer) = write.blob() {
                view.active.add_blob(store.context.blobs.acquire(&pointer));
                add_exclusive(&write.keyspace.counters.user_bytes, pointer.value_bytes);
            }
            view.active.insert(write.key, sequence, kind, write.value, hash);
            if view.skip_spans.is_active() {
                view.skip_spans.note_write(write.key, kind, sequence);
            }
            if write.keyspace.existence.is_on() {
                write.keyspace.existence.note_write(kind, hash);
            }
        }
        None => view.active.delete_range(write.key, write.value, sequence),
    }
    let bytes = (write.key.len() + write.value.len()) as u64;
    add_exclusive(&write.keyspace.counters.user_bytes, bytes);
    view.active.is_full(write.keyspace.memtable_bytes_max())
}
