//! Point reads: memtables, then level 0 newest first, then one table a level.

mod batch;
mod look;

use umbel_base::{BlobPointer, Result, SequenceNumber};

use crate::advise;
use crate::counters::TableAnswer;
use crate::keyspace_core::KeyspaceCore;
use crate::store::Store;
use crate::writes::Compared;
use look::{Aside, Look};

pub use batch::multi_get_with;

/// Looks up `key` in the present state, or in that of `at`, and hands its value to `read`.
#[inline]
pub fn get_with<R>(
    store: &Store,
    keyspace: &KeyspaceCore,
    key: &[u8],
    at: Option<SequenceNumber>,
    read: impl FnOnce(&[u8]) -> R,
) -> Result<Option<R>> {
    look_up(store, keyspace, key, at, read, |pointer, read| {
        let blobs = &store.context.blobs;
        blobs.read(&blobs.found(pointer)?).map(|value| read(&value))
    })
}

/// A copy of the value of `key` in the present state, or in that of `at`.
#[inline]
pub fn get(
    store: &Store,
    keyspace: &KeyspaceCore,
    key: &[u8],
    at: Option<SequenceNumber>,
) -> Result<Option<Vec<u8>>> {
    look_up(store, keyspace, key, at, <[u8]>::to_vec, |pointer, _| {
        let blobs = &store.context.blobs;
        blobs.read(&blobs.found(pointer)?)
    })
}

/// Whether `key` has a value in the present state, or in that of `at`. A value that lies in a file
/// of its own is not read.
pub fn contains(
    store: &Store,
    keyspace: &KeyspaceCore,
    key: &[u8],
    at: Option<SequenceNumber>,
) -> Result<bool> {
    let found = look_up(store, keyspace, key, at, |_| (), |_, _| Ok(()))?;
    Ok(found.is_some())
}

/// Whether the value of `key` in the state of `at` is `value`; `None` where it is a long one that
/// has to be [compared](compare) first, because it is not the one that was.
pub fn is_value(
    store: &Store,
    keyspace: &KeyspaceCore,
    key: &[u8],
    at: SequenceNumber,
    value: &[u8],
    compared: Compared,
) -> Result<Option<bool>> {
    let same = |found: &[u8]| Some(found == value);
    let found = look_up(store, keyspace, key, Some(at), same, |pointer, _| {
        let pointer = store.context.blobs.found(pointer)?;
        if pointer.value_bytes != value.len() as u64 {
            return Ok(Some(false));
        }
        Ok((compared == Some(pointer)).then_some(true))
    })?;
    Ok(found.unwrap_or(Some(false)))
}

/// Whether the value of `key` in the present state, or in that of `at`, is `value`. A long one is
/// read, unless it is the one `compared`, and noted there where it is the same.
pub fn compare(
    store: &Store,
    keyspace: &KeyspaceCore,
    key: &[u8],
    at: Option<SequenceNumber>,
    value: &[u8],
    compared: &mut Compared,
) -> Result<bool> {
    let same = |found: &[u8]| found == value;
    let found = look_up(store, keyspace, key, at, same, |pointer, _| {
        let blobs = &store.context.blobs;
        let pointer = blobs.found(pointer)?;
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

/// Looks up `key` in the present state, or in that of `at`. Hands its value to `read`; where it
/// lies in a file of its own, what points at it and `read` to `fetch`.
#[inline]
fn look_up<R, F: FnOnce(&[u8]) -> R>(
    store: &Store,
    keyspace: &KeyspaceCore,
    key: &[u8],
    at: Option<SequenceNumber>,
    read: F,
    fetch: impl FnOnce(Option<BlobPointer>, F) -> Result<R>,
) -> Result<Option<R>> {
    if keyspace.existence.is_on() && is_denied(keyspace, key) {
        return Ok(None);
    }
    // The view first, the number second: see the invariant of `View`.
    let view = keyspace.view.load();
    let sequence = at.unwrap_or_else(|| store.snapshots.visible());
    let counters = keyspace.reads.own();
    counters.count_gets(1);
    let (head, hash, aside) = (view.version.head(key), keyspace.hash(key), Aside::default());
    let look = Look { key, head, hash, sequence, counters, aside };
    let found = look.up(&view, read, fetch)?;
    if found.is_none() && keyspace.existence.is_on() {
        keyspace.existence.note_in_vain(1);
    }
    Ok(found)
}

/// Whether the existence filter denies the key. Apart, so that keyspaces without one do not pay for
/// it.
#[cold]
#[inline(never)]
fn is_denied(keyspace: &KeyspaceCore, key: &[u8]) -> bool {
    let is_denied = keyspace.existence.denies(keyspace.hash(key));
    if is_denied {
        keyspace.reads.own().count_gets(1);
    }
    is_denied
}

/// Copies of the values of several keys in one consistent state, in the order of the keys.
pub fn multi_get<K: AsRef<[u8]>>(
    store: &Store,
    keyspace: &KeyspaceCore,
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

/// Whether `key` may have a value: `false` is certain, `true` is what filters say. Reads nothing
/// from disk but a table's filter when it is first needed.
pub fn may_contain(store: &Store, keyspace: &KeyspaceCore, key: &[u8]) -> Result<bool> {
    match may_contain_now(keyspace, key)? {
        Some(answer) => Ok(answer),
        None => {
            // Whoever asks filters wants them, whatever gets say.
            advise::bring_back(store, keyspace);
            Ok(may_contain_now(keyspace, key)?.unwrap_or(true))
        }
    }
}

/// `None` where a filter that could say no was let go of.
fn may_contain_now(keyspace: &KeyspaceCore, key: &[u8]) -> Result<Option<bool>> {
    let hash = keyspace.hash(key);
    if keyspace.existence.is_on() && keyspace.existence.denies(hash) {
        return Ok(Some(false));
    }
    let view = keyspace.view.load();
    for buffer in std::iter::once(&view.active).chain(&view.frozen) {
        if buffer.memtable.may_contain(hash) && buffer.memtable.get(key, u64::MAX).is_some() {
            return Ok(Some(true));
        }
    }
    for (_, table) in view.version.holding(key, view.version.head(key)) {
        let open = table.open()?;
        if open.was_let_go() {
            return Ok(None);
        }
        if open.may_contain(hash) {
            return Ok(Some(true));
        }
    }
    Ok(Some(false))
}

/// The sequence number of the newest write to `key`, deletes and range deletes included; 0 where
/// nothing is known of one.
pub fn newest_write(keyspace: &KeyspaceCore, key: &[u8]) -> Result<SequenceNumber> {
    let view = keyspace.view.load();
    let hash = keyspace.hash(key);
    for buffer in std::iter::once(&view.active).chain(&view.frozen) {
        let memtable = &buffer.memtable;
        let range = match memtable.has_tombstones() {
            true => memtable.tombstones().covering(key, u64::MAX).unwrap_or(0),
            false => 0,
        };
        let point = match memtable.may_contain(hash) {
            true => memtable.get(key, u64::MAX).map_or(0, |found| found.sequence),
            false => 0,
        };
        if range.max(point) > 0 {
            return Ok(range.max(point));
        }
    }
    let counters = keyspace.reads.own();
    for (level, table) in view.version.holding(key, view.version.head(key)) {
        let open = table.open()?;
        let reader = open.table();
        let range = reader.tombstones().covering(key, u64::MAX).unwrap_or(0);
        let point = match open.may_contain(hash) {
            true => {
                let found = reader.get_with(key, hash, u64::MAX, |sequence, _, _| sequence)?;
                let answered = TableAnswer::of_search(found.is_some(), open.has_filter());
                counters.count(level, answered, 1);
                if found.is_none() {
                    open.note_miss();
                }
                found
            }
            false => {
                counters.count(level, TableAnswer::Refused, 1);
                None
            }
        };
        if range > 0 || point.is_some() {
            return Ok(range.max(point.unwrap_or(0)));
        }
    }
    Ok(0)
}
