//! [`Keyspace`]: an ordered map of keys to values with its own options.

use std::ops::RangeBounds;
use std::sync::Arc;

use umbel_base::{Error, Result};

use crate::api::db_handle::DbHandle;
use crate::api::iterator::{DbCursor, Iter, owned_bounds, prefix_bounds};
use crate::api::snapshot::Snapshot;
use crate::api::stats::{self, KeyspaceStats};
use crate::maintenance::manual_compaction;
use crate::maintenance::manual_flush;
use crate::options::KeyspaceOptions;
use crate::read;
use crate::state::keyspace_state::KeyspaceState;
use crate::state::write_batch::Action;
use crate::write::write_path;
use crate::write::write_stall;

/// A keyspace of an open store. A clone of the handle shares the keyspace; every handle keeps the
/// store open.
///
/// Reads see every write acknowledged before they began. Methods with `_at` in their name read the
/// state at a snapshot.
#[derive(Debug, Clone)]
pub struct Keyspace {
    pub(crate) handle: Arc<DbHandle>,
    pub(crate) state: Arc<KeyspaceState>,
}

impl Drop for Keyspace {
    fn drop(&mut self) {
        if self.handle.store.open.is_forked() {
            // This may be the last reference to a dropped keyspace, with tables to remove.
            std::mem::forget(Arc::clone(&self.state));
        }
    }
}

impl Keyspace {
    pub(crate) fn new(handle: &Arc<DbHandle>, core: Arc<KeyspaceState>) -> Keyspace {
        Keyspace { handle: Arc::clone(handle), state: core }
    }

    pub(crate) fn belongs_to(&self, handle: &Arc<DbHandle>) -> bool {
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
        if self.state.open.is_open() { Ok(()) } else { self.unreadable_error() }
    }

    #[cold]
    fn unreadable_error(&self) -> Result<()> {
        self.handle.store.check_open()?;
        self.state.check_not_dropped()
    }

    /// Returns the keyspace's name.
    pub fn name(&self) -> &str {
        &self.state.name
    }

    /// Returns the keyspace's current options.
    pub fn options(&self) -> KeyspaceOptions {
        (*self.state.configured_options()).clone()
    }

    /// Sets the value of `key`.
    ///
    /// # Errors
    /// `Invalid` if the key or value is over the limits or the store is open read-only; `ReadOnly`
    /// after an earlier failure.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        let (store, core) = (&self.handle.store, &self.state);
        write_path::commit_write(store, core, Action::Put, key.as_ref(), value.as_ref())
    }

    /// Deletes `key`, which need not exist.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        write_path::commit_write(&self.handle.store, &self.state, Action::Delete, key.as_ref(), &[])
    }

    /// Deletes the keys from `start` (inclusive) to `end` (exclusive), at the cost of one write.
    pub fn delete_range(&self, start: impl AsRef<[u8]>, end: impl AsRef<[u8]>) -> Result<()> {
        let (start, end) = (start.as_ref(), end.as_ref());
        if start >= end {
            // Nothing to delete, but a store that refuses writes still returns its error.
            self.handle.store.check_writable()?;
            return self.state.check_not_dropped();
        }
        write_path::commit_write(&self.handle.store, &self.state, Action::DeleteRange, start, end)
    }

    /// Returns a copy of the value of `key`.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        self.check_readable()?;
        read::get(&self.handle.store, &self.state, key.as_ref(), None)
    }

    /// Lends the value of `key` to `read` without copying it.
    ///
    /// `read` should return soon: until then the store frees no memory that readers release, and
    /// replaced tables stay on disk. `read` can call the store, even to write or to close it,
    /// without a deadlock or a change of the value.
    pub fn get_with<R>(
        &self,
        key: impl AsRef<[u8]>,
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>> {
        self.check_readable()?;
        read::get_with(&self.handle.store, &self.state, key.as_ref(), None, read)
    }

    /// Copies the value of `key` to `value`, reusing the allocation of `value`. Returns `false` and
    /// empties `value` if `key` has no value.
    pub fn get_into(&self, key: impl AsRef<[u8]>, value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        let found = self.get_with(key, |bytes| value.extend_from_slice(bytes))?;
        Ok(found.is_some())
    }

    /// Whether `key` has a value.
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.check_readable()?;
        read::contains(&self.handle.store, &self.state, key.as_ref(), None)
    }

    /// Checks `key` in memtables and filters alone: `false` means that `key` has no value, `true`
    /// that `key` possibly has a value. The result is also `true` if a table cannot be checked, and
    /// in a forked child.
    pub fn may_contain(&self, key: impl AsRef<[u8]>) -> bool {
        if self.handle.store.open.is_forked() {
            return true;
        }
        read::may_contain(&self.handle.store, &self.state, key.as_ref()).unwrap_or(true)
    }

    /// Returns copies of the values of several keys, read in one consistent state, in the order of
    /// `keys`.
    ///
    /// One call costs much less than separate gets whose data is not in the CPU's caches.
    ///
    /// # Errors
    /// As [`Keyspace::get`] for any of the keys.
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Vec<u8>>>> {
        self.check_readable()?;
        read::multi_get(&self.handle.store, &self.state, keys, None)
    }

    /// Lends the values of several keys, in one consistent state, to `read`. `read` is called once
    /// for each key, with the key's index in `keys` and its value, `None` if absent. The calls are
    /// in any order. `read` should return soon, as in [`Keyspace::get_with`].
    ///
    /// # Errors
    /// As [`Keyspace::get`] for any of the keys; `read` may have been called for other keys before
    /// the error.
    pub fn multi_get_with<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        read: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        self.check_readable()?;
        read::multi_get_with(&self.handle.store, &self.state, keys, None, read)
    }

    /// Like [`Keyspace::get`], in the state of `snapshot`.
    pub fn get_at(&self, snapshot: &Snapshot, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        self.check_readable()?;
        self.check_snapshot(snapshot)?;
        read::get(&self.handle.store, &self.state, key.as_ref(), Some(snapshot.sequence()))
    }

    /// Like [`Keyspace::get_with`], in the state of `snapshot`.
    pub fn get_with_at<R>(
        &self,
        snapshot: &Snapshot,
        key: impl AsRef<[u8]>,
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>> {
        self.check_readable()?;
        self.check_snapshot(snapshot)?;
        let at = Some(snapshot.sequence());
        read::get_with(&self.handle.store, &self.state, key.as_ref(), at, read)
    }

    /// Like [`Keyspace::get_into`], in the state of `snapshot`.
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

    /// Like [`Keyspace::contains`], in the state of `snapshot`.
    pub fn contains_at(&self, snapshot: &Snapshot, key: impl AsRef<[u8]>) -> Result<bool> {
        self.check_readable()?;
        self.check_snapshot(snapshot)?;
        read::contains(&self.handle.store, &self.state, key.as_ref(), Some(snapshot.sequence()))
    }

    /// Like [`Keyspace::multi_get`], in the state of `snapshot`.
    pub fn multi_get_at<K: AsRef<[u8]>>(
        &self,
        snapshot: &Snapshot,
        keys: &[K],
    ) -> Result<Vec<Option<Vec<u8>>>> {
        self.check_readable()?;
        self.check_snapshot(snapshot)?;
        read::multi_get(&self.handle.store, &self.state, keys, Some(snapshot.sequence()))
    }

    /// Like [`Keyspace::multi_get_with`], in the state of `snapshot`.
    pub fn multi_get_with_at<K: AsRef<[u8]>>(
        &self,
        snapshot: &Snapshot,
        keys: &[K],
        read: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        self.check_readable()?;
        self.check_snapshot(snapshot)?;
        let at = Some(snapshot.sequence());
        read::multi_get_with(&self.handle.store, &self.state, keys, at, read)
    }

    /// Returns the first key and its value.
    pub fn first(&self) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        self.cursor::<&[u8]>(..)?.into_first()
    }

    /// Returns the last key and its value.
    pub fn last(&self) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        self.cursor::<&[u8]>(..)?.into_last()
    }

    /// Like [`Keyspace::first`], in the state of `snapshot`.
    pub fn first_at(&self, snapshot: &Snapshot) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        self.cursor_at::<&[u8]>(snapshot, ..)?.into_first()
    }

    /// Like [`Keyspace::last`], in the state of `snapshot`.
    pub fn last_at(&self, snapshot: &Snapshot) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        self.cursor_at::<&[u8]>(snapshot, ..)?.into_last()
    }

    /// Iterates over all keys and values in key order; `.rev()` reverses it.
    pub fn iter(&self) -> Iter {
        self.range::<&[u8]>(..)
    }

    /// Iterates over the keys and values within a range of keys.
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Iter {
        Iter::new(&self.handle, &self.state, owned_bounds(&range), None)
    }

    /// Iterates over the keys that begin with `prefix`, and their values.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Iter {
        Iter::new(&self.handle, &self.state, prefix_bounds(prefix.as_ref()), None)
    }

    /// Like [`Keyspace::iter`], in the state of `snapshot`.
    pub fn iter_at(&self, snapshot: &Snapshot) -> Result<Iter> {
        self.range_at::<&[u8]>(snapshot, ..)
    }

    /// Like [`Keyspace::range`], in the state of `snapshot`.
    pub fn range_at<K: AsRef<[u8]>>(
        &self,
        snapshot: &Snapshot,
        range: impl RangeBounds<K>,
    ) -> Result<Iter> {
        self.check_readable()?;
        self.check_snapshot(snapshot)?;
        Ok(Iter::new(&self.handle, &self.state, owned_bounds(&range), Some(snapshot)))
    }

    /// Creates a cursor that lends the keys and values within a range of keys.
    pub fn cursor<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<DbCursor> {
        self.check_readable()?;
        DbCursor::new(&self.handle, &self.state, owned_bounds(&range), None)
    }

    /// Like [`Keyspace::cursor`], for one scan of much of the keyspace. The cursor's blocks evict
    /// nothing from the block cache.
    pub fn cursor_uncached<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<DbCursor> {
        self.check_readable()?;
        DbCursor::new_uncached(&self.handle, &self.state, owned_bounds(&range))
    }

    /// Like [`Keyspace::cursor`], in the state of `snapshot`.
    pub fn cursor_at<K: AsRef<[u8]>>(
        &self,
        snapshot: &Snapshot,
        range: impl RangeBounds<K>,
    ) -> Result<DbCursor> {
        self.check_readable()?;
        self.check_snapshot(snapshot)?;
        DbCursor::new(&self.handle, &self.state, owned_bounds(&range), Some(snapshot))
    }

    /// Flushes, then compacts all tables that overlap the range from `start` to `end` down to the
    /// last level. `None` leaves that end of the range open.
    ///
    /// In the last level the call rewrites tables with deletes or old versions that no reader can
    /// see any more. Neighbouring tables that fit into one table are joined. Versions that a
    /// snapshot needs stay; later calls or idle background threads drop them after the snapshot is
    /// dropped.
    pub fn compact(&self, start: Option<&[u8]>, end: Option<&[u8]>) -> Result<()> {
        self.state.check_not_dropped()?;
        manual_compaction::compact_range(&self.handle.store, &self.state, start, end)
    }

    /// Writes the keyspace's memtables to tables, and returns after the tables are written.
    pub fn flush(&self) -> Result<()> {
        self.state.check_not_dropped()?;
        let keyspaces = std::slice::from_ref(&self.state);
        manual_flush::flush_together(&self.handle.store, keyspaces, None)
    }

    /// Makes every later flush of this keyspace, background flushes included, also flush `other`, a
    /// keyspace of the same store. After a crash `other` then has every write that preceded the
    /// writes that this keyspace still has. Use it for keyspaces without a WAL whose data is
    /// useless without the data of `other`. Only the first call on a keyspace has an effect, until
    /// the store is closed.
    pub fn flush_with(&self, other: &Keyspace) {
        self.state.flush_with(&other.state);
    }

    /// Returns the marker that the last durable flush stored (see `Batch::set_marker`); `None` in a
    /// forked child.
    pub fn marker(&self) -> Option<Vec<u8>> {
        self.handle.store.check_process().ok()?;
        self.state.durable_marker()
    }

    /// Whether a write to the keyspace would stall now and wait for flushes or compactions. The
    /// result is a hint and can be outdated at once.
    pub fn is_write_stalled(&self) -> bool {
        write_stall::is_delayed(&self.handle.store, &self.state)
    }

    /// Returns the keyspace's statistics; in a forked child they consist of the name alone.
    pub fn stats(&self) -> KeyspaceStats {
        if self.handle.store.open.is_forked() {
            let name = self.state.name.clone();
            return KeyspaceStats { name, ..KeyspaceStats::default() };
        }
        stats::of_keyspace(&self.state)
    }
}
