//! [`Keyspace`]: an ordered map of keys to values with options of its own.

use std::ops::RangeBounds;
use std::sync::Arc;

use umbel_base::{Error, Result};

use crate::background;
use crate::by_hand;
use crate::flush_now;
use crate::handle::Handle;
use crate::held_back;
use crate::keyspace_core::KeyspaceCore;
use crate::options::KeyspaceOptions;
use crate::read;
use crate::scan::{DbCursor, Iter, owned_bounds, prefix_bounds};
use crate::snapshot::Snapshot;
use crate::stats::{self, KeyspaceStats};
use crate::writes::Action;

/// A keyspace of an open store. Cloning shares it; it keeps the store open.
///
/// Reads see every write acknowledged before they began. Those with `_at` in their name see the
/// state of a snapshot.
#[derive(Debug, Clone)]
pub struct Keyspace {
    pub(crate) handle: Arc<Handle>,
    pub(crate) core: Arc<KeyspaceCore>,
}

impl Drop for Keyspace {
    fn drop(&mut self) {
        if self.handle.store.open.is_forked() {
            // It may be the last of a keyspace that was dropped, with tables to remove.
            std::mem::forget(Arc::clone(&self.core));
        }
    }
}

impl Keyspace {
    pub(crate) fn new(handle: &Arc<Handle>, core: Arc<KeyspaceCore>) -> Keyspace {
        Keyspace { handle: Arc::clone(handle), core }
    }

    pub(crate) fn belongs_to(&self, handle: &Arc<Handle>) -> bool {
        Arc::ptr_eq(&self.handle, handle)
    }

    fn check_snapshot(&self, snapshot: &Snapshot) -> Result<()> {
        if snapshot.belongs_to(&self.handle) {
            return Ok(());
        }
        Err(Error::invalid("the snapshot was taken from another store"))
    }

    #[inline]
    fn check_readable(&self) -> Result<()> {
        if self.core.open.is_open() { Ok(()) } else { self.check_why_not() }
    }

    #[cold]
    fn check_why_not(&self) -> Result<()> {
        self.handle.store.check_open()?;
        self.core.check_not_dropped()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.core.name
    }

    /// Its options as they stand.
    pub fn options(&self) -> KeyspaceOptions {
        (*self.core.options_given()).clone()
    }

    /// Gives `key` a value.
    ///
    /// # Errors
    /// `Invalid` for a key or value over the limits or a store opened read-only; `ReadOnly` after
    /// an earlier failure.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        let (store, core) = (&self.handle.store, &self.core);
        background::commit_one(store, core, Action::Put, key.as_ref(), value.as_ref())
    }

    /// Deletes `key`; deleting what is not there is fine.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        background::commit_one(&self.handle.store, &self.core, Action::Delete, key.as_ref(), &[])
    }

    /// Deletes the keys from `start` up to, and without, `end`, at the cost of one write.
    pub fn delete_range(&self, start: impl AsRef<[u8]>, end: impl AsRef<[u8]>) -> Result<()> {
        let (start, end) = (start.as_ref(), end.as_ref());
        if start >= end {
            // Nothing to delete, but whoever could not is told.
            self.handle.store.check_writable()?;
            return self.core.check_not_dropped();
        }
        background::commit_one(&self.handle.store, &self.core, Action::DeleteRange, start, end)
    }

    /// A copy of the value of `key`.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        self.check_readable()?;
        read::get(&self.handle.store, &self.core, key.as_ref(), None)
    }

    /// Hands the value of `key` to `read` where it lies, without copying it.
    ///
    /// `read` is to be short: as long as it runs, no memory is given back that any reader of the
    /// store let go of meanwhile, and tables that were replaced stay on disk. It may call the
    /// store, to write and even to close it: nothing there waits for readers, and the value stays
    /// as it was.
    pub fn get_with<R>(
        &self,
        key: impl AsRef<[u8]>,
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>> {
        self.check_readable()?;
        read::get_with(&self.handle.store, &self.core, key.as_ref(), None, read)
    }

    /// Puts a copy of the value of `key` in `value`, whose room is used again. `false`, and an
    /// empty `value`, where there is none.
    pub fn get_into(&self, key: impl AsRef<[u8]>, value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        let found = self.get_with(key, |bytes| value.extend_from_slice(bytes))?;
        Ok(found.is_some())
    }

    /// Whether `key` has a value.
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.check_readable()?;
        read::contains(&self.handle.store, &self.core, key.as_ref(), None)
    }

    /// What memory alone says: `false` means that `key` has certainly no value, `true` that it may
    /// have one. A table that cannot be asked counts as "may", as does a store that a process
    /// opened which forked this one.
    pub fn may_contain(&self, key: impl AsRef<[u8]>) -> bool {
        if self.handle.store.open.is_forked() {
            return true;
        }
        read::may_contain(&self.handle.store, &self.core, key.as_ref()).unwrap_or(true)
    }

    /// Copies of the values of several keys in one consistent state, in the order of the keys.
    ///
    /// Costs much less than as many gets where memory is what they wait for.
    ///
    /// # Errors
    /// As [`Keyspace::get`] for any of the keys.
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Vec<u8>>>> {
        self.check_readable()?;
        read::multi_get(&self.handle.store, &self.core, keys, None)
    }

    /// Hands the values of several keys, in one consistent state, to `read` where they lie: once
    /// for each key, with its index in `keys`, and `None` where it has no value. The order of the
    /// calls is not that of the keys. `read` is to be short, as that of [`Keyspace::get_with`].
    ///
    /// # Errors
    /// As [`Keyspace::get`] for any of the keys; `read` may have been called for others by then.
    pub fn multi_get_with<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        read: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        self.check_readable()?;
        read::multi_get_with(&self.handle.store, &self.core, keys, None, read)
    }

    /// As [`Keyspace::get`], in the state of `snapshot`.
    pub fn get_at(&self, snapshot: &Snapshot, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        self.check_readable()?;
        self.check_snapshot(snapshot)?;
        read::get(&self.handle.store, &self.core, key.as_ref(), Some(snapshot.sequence()))
    }

    /// As [`Keyspace::get_with`], in the state of `snapshot`.
    pub fn get_with_at<R>(
        &self,
        snapshot: &Snapshot,
        key: impl AsRef<[u8]>,
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>> {
        self.check_readable()?;
        self.check_snapshot(snapshot)?;
        let at = Some(snapshot.sequence());
        read::get_with(&self.handle.store, &self.core, key.as_ref(), at, read)
    }

    /// As [`Keyspace::get_into`], in the state of `snapshot`.
    pub fn get_into_at(
        &self,
        snapshot: &Snapshot,
        key: impl AsRef<[u8]>,
        value: &mut Vec<u8>,
    ) -> Result<bool> {
        value.clear();
        let found = self.get_with_at(snapshot, key, |bytes| value.extend_from_slice(bytes))?;
        Ok(found.is_some())
    }

    /// As [`Keyspace::contains`], in the state of `snapshot`.
    pub fn contains_at(&self, snapshot: &Snapshot, key: impl AsRef<[u8]>) -> Result<bool> {
        self.check_readable()?;
        self.check_snapshot(snapshot)?;
        read::contains(&self.handle.store, &self.core, key.as_ref(), Some(snapshot.sequence()))
    }

    /// As [`Keyspace::multi_get`], in the state of `snapshot`.
    pub fn multi_get_at<K: AsRef<[u8]>>(
        &self,
        snapshot: &Snapshot,
        keys: &[K],
    ) -> Result<Vec<Option<Vec<u8>>>> {
        self.check_readable()?;
        self.check_snapshot(snapshot)?;
        read::multi_get(&self.handle.store, &self.core, keys, Some(snapshot.sequence()))
    }

    /// As [`Keyspace::multi_get_with`], in the state of `snapshot`.
    pub fn multi_get_with_at<K: AsRef<[u8]>>(
        &self,
        snapshot: &Snapshot,
        keys: &[K],
        read: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        self.check_readable()?;
        self.check_snapshot(snapshot)?;
        let at = Some(snapshot.sequence());
        read::multi_get_with(&self.handle.store, &self.core, keys, at, read)
    }

    /// The first key and its value.
    pub fn first(&self) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        self.cursor::<&[u8]>(..)?.into_first()
    }

    /// The last key and its value.
    pub fn last(&self) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        self.cursor::<&[u8]>(..)?.into_last()
    }

    /// As [`Keyspace::first`], in the state of `snapshot`.
    pub fn first_at(&self, snapshot: &Snapshot) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        self.cursor_at::<&[u8]>(snapshot, ..)?.into_first()
    }

    /// As [`Keyspace::last`], in the state of `snapshot`.
    pub fn last_at(&self, snapshot: &Snapshot) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        self.cursor_at::<&[u8]>(snapshot, ..)?.into_last()
    }

    /// Every key and value, in key order; `.rev()` for the reverse.
    pub fn iter(&self) -> Iter {
        self.range::<&[u8]>(..)
    }

    /// The keys and values within a range of keys.
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Iter {
        Iter::new(&self.handle, &self.core, owned_bounds(&range), None)
    }

    /// The keys that begin with `prefix`, and their values.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Iter {
        Iter::new(&self.handle, &self.core, prefix_bounds(prefix.as_ref()), None)
    }

    /// As [`Keyspace::iter`], in the state of `snapshot`.
    pub fn iter_at(&self, snapshot: &Snapshot) -> Result<Iter> {
        self.range_at::<&[u8]>(snapshot, ..)
    }

    /// As [`Keyspace::range`], in the state of `snapshot`.
    pub fn range_at<K: AsRef<[u8]>>(
        &self,
        snapshot: &Snapshot,
        range: impl RangeBounds<K>,
    ) -> Result<Iter> {
        self.check_readable()?;
        self.check_snapshot(snapshot)?;
        Ok(Iter::new(&self.handle, &self.core, owned_bounds(&range), Some(snapshot)))
    }

    /// A cursor that lends the keys and values within a range of keys.
    pub fn cursor<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<DbCursor> {
        self.check_readable()?;
        DbCursor::new(&self.handle, &self.core, owned_bounds(&range), None)
    }

    /// As [`Keyspace::cursor`], for whoever walks over much of the keyspace once: what he reads
    /// does not take the place of anything in the cache.
    pub fn cursor_once<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<DbCursor> {
        self.check_readable()?;
        DbCursor::once(&self.handle, &self.core, owned_bounds(&range))
    }

    /// As [`Keyspace::cursor`], in the state of `snapshot`.
    pub fn cursor_at<K: AsRef<[u8]>>(
        &self,
        snapshot: &Snapshot,
        range: impl RangeBounds<K>,
    ) -> Result<DbCursor> {
        self.check_readable()?;
        self.check_snapshot(snapshot)?;
        DbCursor::new(&self.handle, &self.core, owned_bounds(&range), Some(snapshot))
    }

    /// Flushes, then compacts what overlaps the range down to the last level. `None` is an open
    /// end.
    ///
    /// There, tables with deletes or old versions that nobody can see any more are written again,
    /// as are neighbours that fit into one table. What a snapshot needs stays until a call after
    /// it was dropped; the background sees to it too when it has nothing else to do.
    pub fn compact(&self, start: Option<&[u8]>, end: Option<&[u8]>) -> Result<()> {
        self.core.check_not_dropped()?;
        by_hand::compact_range(&self.handle.store, &self.core, start, end)
    }

    /// Writes its memtables into tables and waits for it.
    pub fn flush(&self) -> Result<()> {
        self.core.check_not_dropped()?;
        let keyspaces = std::slice::from_ref(&self.core);
        flush_now::flush_together(&self.handle.store, keyspaces, None)
    }

    /// From now on `other`, a keyspace of the same store, is flushed whenever this one is, by
    /// background work, too: after a crash it holds all that was written with what this one holds.
    /// For keyspaces without a log, one of which is useless without what the other one says. The
    /// first call counts, until the store is closed.
    pub fn flush_with(&self, other: &Keyspace) {
        self.core.flush_with(&other.core);
    }

    /// The marker stored with the last durable flush; see `Batch::set_marker`. `None` in a forked
    /// child.
    pub fn marker(&self) -> Option<Vec<u8>> {
        self.handle.store.check_process().ok()?;
        self.core.durable_marker()
    }

    /// Whether whoever writes to it now would be held back, because flushes and compactions are
    /// behind. Only a hint: the next moment it may be otherwise.
    pub fn holds_back(&self) -> bool {
        held_back::holds_back(&self.handle.store, &self.core)
    }

    /// What it consists of and what it did so far; its name alone in a forked child.
    pub fn stats(&self) -> KeyspaceStats {
        if self.handle.store.open.is_forked() {
            let name = self.core.name.clone();
            return KeyspaceStats { name, ..KeyspaceStats::default() };
        }
        stats::of_keyspace(&self.core)
    }
}
