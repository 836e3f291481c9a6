//! Point reads: search the memtables, then the tables of level 0 newest first, then one table of
//! each deeper level.

mod lookup;
mod multi_get;

use std::cell::Cell;

use umbel_base::{BlobPointer, Result, SequenceNumber};

use crate::maintenance::advisor_job;
use crate::state::keyspace_state::KeyspaceState;
use crate::state::store::Store;
use crate::state::write_batch::ComparedPointer;
use crate::thread_counters::ProbeOutcome;
use lookup::{Lookup, PointerCell};

pub use multi_get::multi_get_with;

/// Looks up `key` in the present state, or in the state at sequence number `at`, and passes its
/// value to `read`.
#[inline]
pub fn get_with<R>(
    store: &Store,
    keyspace: &KeyspaceState,
    key: &[u8],
    at: Option<SequenceNumber>,
    read: impl FnOnce(&[u8]) -> R,
) -> Result<Option<R>> {
    run_lookup(store, keyspace, key, at, read, |pointer, read| {
        let blobs = &store.context.blobs;
        blobs.read(&blobs.require_pointer(pointer)?).map(|value| read(&value))
    })
}

/// Returns a copy of the value of `key` in the present state, or in the state at sequence number
/// `at`.
#[inline]
pub fn get(
    store: &Store,
    keyspace: &KeyspaceState,
    key: &[u8],
    at: Option<SequenceNumber>,
) -> Result<Option<Vec<u8>>> {
    run_lookup(store, keyspace, key, at, <[u8]>::to_vec, |pointer, _| {
        let blobs = &store.context.blobs;
        blobs.read(&blobs.require_pointer(pointer)?)
    })
}

/// Whether `key` has a value in the present state, or in the state at sequence number `at`. Does
/// not read a long value.
pub fn contains(
    store: &Store,
    keyspace: &KeyspaceState,
    key: &[u8],
    at: Option<SequenceNumber>,
) -> Result<bool> {
    let found = run_lookup(store, keyspace, key, at, |_| (), |_, _| Ok(()))?;
    Ok(found.is_some())
}

/// Whether the value of `key` in the state at sequence number `at` is `value`. `None` if that value
/// is a long one of the same length that was not compared yet: the caller then calls
/// [`compare_value`].
pub fn is_value(
    store: &Store,
    keyspace: &KeyspaceState,
    key: &[u8],
    at: SequenceNumber,
    value: &[u8],
    compared: ComparedPointer,
) -> Result<Option<bool>> {
    let same = |found: &[u8]| Some(found == value);
    let found = run_lookup(store, keyspace, key, Some(at), same, |pointer, _| {
        let pointer = store.context.blobs.require_pointer(pointer)?;
        if pointer.value_bytes != value.len() as u64 {
            return Ok(Some(false));
        }
        Ok((compared == Some(pointer)).then_some(true))
    })?;
    Ok(found.unwrap_or(Some(false)))
}

/// Whether the value of `key` in the present state, or in the state at sequence number `at`, is
/// `value`. Reads a long value unless its pointer is in `compared`, and stores the pointer there if
/// the values are equal.
pub fn compare_value(
    store: &Store,
    keyspace: &KeyspaceState,
    key: &[u8],
    at: Option<SequenceNumber>,
    value: &[u8],
    compared: &mut ComparedPointer,
) -> Result<bool> {
    let same = |found: &[u8]| found == value;
    let found = run_lookup(store, keyspace, key, at, same, |pointer, _| {
        let blobs = &store.context.blobs;
        let pointer = blobs.require_pointer(pointer)?;
        if pointer.value_bytes != value.len() as u64 {
            return Ok(false);
        }
        if *compared == Some(pointer) {
            return Ok(true);
        }
        let is_same = blobs.read(&pointer)? == value;
        *compared = is_same.then_some(pointer);
        Ok(is_same)
    })?;
    Ok(found.unwrap_or(false))
}

/// Looks up `key` in the present state, or in the state at sequence number `at`, and passes its
/// value to `read`. For a long value, passes the pointer and `read` to `fetch`.
#[inline]
fn run_lookup<R, F: FnOnce(&[u8]) -> R>(
    store: &Store,
    keyspace: &KeyspaceState,
    key: &[u8],
    at: Option<SequenceNumber>,
    read: F,
    fetch: impl FnOnce(Option<BlobPointer>, F) -> Result<R>,
) -> Result<Option<R>> {
    if keyspace.existence.is_on() && is_denied(keyspace, key) {
        return Ok(None);
    }
    // The super version first, the number second: see the invariant of `SuperVersion`.
    let view = keyspace.super_version.load();
    let sequence = at.unwrap_or_else(|| store.snapshots.visible());
    let counters = keyspace.reads.for_thread();
    counters.count_gets(1);
    let (head, hash, aside) = (view.version.head(key), keyspace.hash(key), PointerCell::default());
    let look = Lookup {
        key,
        head,
        hash,
        sequence,
        counters,
        pointer: aside,
        has_skipped_tombstones: Cell::new(false),
    };
    let found = look.run(&view, read, fetch)?;
    if found.is_none() && keyspace.existence.is_on() {
        keyspace.existence.note_false_positives(1);
    }
    Ok(found)
}

/// Whether the existence filter rejects the key. The probe is a separate function, so that
/// keyspaces without an existence filter do not pay for it.
#[cold]
#[inline(never)]
fn is_denied(keyspace: &KeyspaceState, key: &[u8]) -> bool {
    let is_denied = keyspace.existence.denies(keyspace.hash(key));
    if is_denied {
        keyspace.reads.for_thread().count_gets(1);
    }
    is_denied
}

/// Returns copies of the values of several keys in one consistent state, in the order of the keys.
pub fn multi_get<K: AsRef<[u8]>>(
    store: &Store,
    keyspace: &KeyspaceState,
    keys: &[K],
    at: Option<SequenceNumber>,
) -> Result<Vec<Option<Vec<u8>>>> {
    let mut values = vec![None; keys.len()];
    multi_get_with(store, keyspace, keys, at, |index, value| {
        if let Some(value) = value {
            values[index] = Some(value.to_vec());
        }
    })?;
    Ok(values)
}

/// Whether `key` possibly has a value: `false` is certain, `true` can be a false positive. Reads no
/// block from disk; a filter or table that is not in memory is loaded.
pub fn may_contain(store: &Store, keyspace: &KeyspaceState, key: &[u8]) -> Result<bool> {
    match try_may_contain(keyspace, key)? {
        Some(answer) => Ok(answer),
        None => {
            // A caller that probes filters wants them in memory, whatever gets need.
            advisor_job::restore_plain_filters(store, keyspace);
            Ok(try_may_contain(keyspace, key)?.unwrap_or(true))
        }
    }
}

/// Like [`may_contain`], but returns `None` if a filter that could reject the key was released.
fn try_may_contain(keyspace: &KeyspaceState, key: &[u8]) -> Result<Option<bool>> {
    let hash = keyspace.hash(key);
    if keyspace.existence.is_on() && keyspace.existence.denies(hash) {
        return Ok(Some(false));
    }
    let view = keyspace.super_version.load();
    for buffer in std::iter::once(&view.active).chain(&view.frozen) {
        if buffer.memtable.may_contain(hash) && buffer.memtable.get(key, u64::MAX).is_some() {
            return Ok(Some(true));
        }
    }
    for (_, table) in view.version.candidates(key, view.version.head(key)) {
        let open = table.open()?;
        if open.is_filter_omitted() {
            return Ok(None);
        }
        if open.may_contain(hash) {
            return Ok(Some(true));
        }
    }
    Ok(Some(false))
}

/// Returns the sequence number of the newest write to `key`, deletes and range deletes included; 0
/// if no write is found.
pub fn newest_write(keyspace: &KeyspaceState, key: &[u8]) -> Result<SequenceNumber> {
    let view = keyspace.super_version.load();
    let hash = keyspace.hash(key);
    for buffer in std::iter::once(&view.active).chain(&view.frozen) {
        let memtable = &buffer.memtable;
        let range = memtable.covering(key, u64::MAX).unwrap_or(0);
        let point = match memtable.may_contain(hash) {
            true => memtable.get(key, u64::MAX).map_or(0, |found| found.sequence),
            false => 0,
        };
        if range.max(point) > 0 {
            return Ok(range.max(point));
        }
    }
    let counters = keyspace.reads.for_thread();
    for (level, table) in view.version.candidates(key, view.version.head(key)) {
        let open = table.open()?;
        let reader = open.table();
        let range = reader.tombstones().covering(key, u64::MAX).unwrap_or(0);
        let point = match open.may_contain(hash) {
            true => {
                let found = reader.get_with(key, hash, u64::MAX, |sequence, _, _| sequence)?;
                let answered = ProbeOutcome::of_search(found.is_some(), open.has_filter());
                counters.count(level, answered, 1);
                if found.is_none() {
                    open.note_miss();
                }
                found
            }
            false => {
                counters.count(level, ProbeOutcome::FilterNegative, u64::from(open.has_filter()));
                None
            }
        };
        if range > 0 || point.is_some() {
            return Ok(range.max(point.unwrap_or(0)));
        }
    }
    Ok(0)
}
