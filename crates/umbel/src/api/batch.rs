//! [`Batch`]: writes that are applied together or not at all.

use std::sync::Arc;

use umbel_base::Result;

use crate::api::db_handle::DbHandle;
use crate::api::keyspace::Keyspace;
use crate::api::snapshot::Snapshot;
use crate::options::Durability;
use crate::state::write_batch::{Action, Condition, WriteBatch};
use crate::write::commit;
use crate::write::write_path;

/// Writes to one or several keyspaces of a store that are committed together, in the order of their
/// addition.
///
/// [`Batch::commit`] refuses a key or value over the limits, and then writes nothing.
#[derive(Debug)]
#[must_use = "a batch does nothing until it is committed"]
pub struct Batch {
    handle: Arc<DbHandle>,
    writes: WriteBatch,
    // Keeps the state that a condition refers to until the condition was checked.
    snapshots: Vec<Snapshot>,
    foreign: bool,
}

impl Drop for Batch {
    fn drop(&mut self) {
        if self.handle.store.open.is_forked() {
            // The batch may hold the last reference to a dropped keyspace, with tables to remove.
            std::mem::forget(std::mem::take(&mut self.writes));
        }
    }
}

impl Batch {
    pub(crate) fn new(handle: &Arc<DbHandle>) -> Batch {
        let (handle, writes) = (Arc::clone(handle), WriteBatch::default());
        Batch { handle, writes, snapshots: Vec::new(), foreign: false }
    }

    fn add(&mut self, action: Action, keyspace: &Keyspace, key: &[u8], value: &[u8]) {
        self.foreign |= !keyspace.belongs_to(&self.handle);
        self.writes.push(action, &keyspace.state, key, value);
    }

    /// Sets the value of `key`.
    pub fn put(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        let (key, value) = (key.as_ref(), value.as_ref());
        if value.len() > self.handle.store.options.inline_value_bytes_max {
            self.foreign |= !keyspace.belongs_to(&self.handle);
            self.writes.push_long_value(&keyspace.state, key, value);
        } else {
            self.add(Action::Put, keyspace, key, value);
        }
    }

    /// Deletes `key`.
    pub fn delete(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) {
        self.add(Action::Delete, keyspace, key.as_ref(), &[]);
    }

    /// Deletes the keys from `start` (inclusive) to `end` (exclusive).
    pub fn delete_range(
        &mut self,
        keyspace: &Keyspace,
        start: impl AsRef<[u8]>,
        end: impl AsRef<[u8]>,
    ) {
        if start.as_ref() < end.as_ref() {
            self.add(Action::DeleteRange, keyspace, start.as_ref(), end.as_ref());
        }
    }

    /// Sets the marker that the next flush of a keyspace without a WAL stores with its tables.
    pub fn set_marker(&mut self, keyspace: &Keyspace, marker: impl AsRef<[u8]>) {
        self.foreign |= !keyspace.belongs_to(&self.handle);
        self.writes.set_marker(&keyspace.state, marker.as_ref());
    }

    /// Commits only if `key` was not written since `snapshot` was taken.
    pub fn expect_unchanged(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        snapshot: &Snapshot,
    ) {
        self.foreign |= !snapshot.belongs_to(&self.handle);
        if self.snapshots.last().is_none_or(|last| last.sequence() != snapshot.sequence()) {
            self.snapshots.push(snapshot.clone());
        }
        let condition = Condition::UnchangedSince(snapshot.sequence());
        self.require(keyspace, key.as_ref(), condition);
    }

    /// Commits only if `key` has no value.
    pub fn expect_absent(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) {
        self.require(keyspace, key.as_ref(), Condition::Absent);
    }

    /// Commits only if `key` has this value.
    pub fn expect_value(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) {
        self.require(keyspace, key.as_ref(), Condition::Value(value.as_ref().to_vec(), None));
    }

    fn require(&mut self, keyspace: &Keyspace, key: &[u8], condition: Condition) {
        self.foreign |= !keyspace.belongs_to(&self.handle);
        self.writes.require(&keyspace.state, key, condition);
    }

    /// Number of writes in the batch.
    pub fn len(&self) -> usize {
        self.writes.len()
    }

    /// Whether the batch has no writes.
    pub fn is_empty(&self) -> bool {
        self.writes.len() == 0
    }

    /// Bytes of keys and values in the batch.
    pub fn bytes(&self) -> usize {
        self.writes.bytes_given()
    }

    /// Commits everything or nothing. On success every reader sees all of it, with the durability
    /// that `durability` requests. `None` uses `Options::durability`, which promises nothing for a
    /// keyspace without a WAL.
    ///
    /// # Errors
    /// `Conflict` where a condition does not hold. `Invalid` where a key, a value or the batch is
    /// over a limit, or a keyspace belongs to another store. `Invalid` also where a write to a
    /// keyspace without a WAL requests `Synced`. After `ReadOnly` or `Io` the outcome is known at
    /// the next open.
    ///
    /// The batch is consumed in every case; [`Batch::try_commit`] keeps it.
    pub fn commit(mut self, durability: impl Into<Option<Durability>>) -> Result<()> {
        self.try_commit(durability)
    }

    /// Like [`Batch::commit`], but a refused batch keeps its writes, and the caller may add to it
    /// or commit it again. A committed batch is empty afterwards and can be filled again.
    ///
    /// After a `Conflict` over [`Batch::expect_unchanged`] the same condition never holds again.
    /// Read again, call [`Batch::clear_conditions`] and state the new conditions.
    ///
    /// # Errors
    /// As [`Batch::commit`].
    pub fn try_commit(&mut self, durability: impl Into<Option<Durability>>) -> Result<()> {
        if self.foreign {
            return Err(umbel_base::Error::invalid(
                "the batch names a keyspace or snapshot of another store",
            ));
        }
        write_path::commit_batch(&self.handle.store, &mut self.writes, durability.into())?;
        self.writes.clear();
        self.snapshots.clear();
        Ok(())
    }

    /// Puts the writes, all to keyspaces without a WAL, into the memory of a read-only handle. They
    /// are the writes that the program's own log holds and the tables lack. They are in no file,
    /// and are lost with the handle. Markers and conditions are ignored. Empties the batch.
    ///
    /// # Errors
    /// `Invalid` for a handle that can write, and for a keyspace with a WAL.
    #[doc(hidden)]
    pub fn replay(&mut self) -> Result<()> {
        if self.foreign {
            return Err(umbel_base::Error::invalid("the batch names a keyspace of another store"));
        }
        commit::replay(&self.handle.store, &self.writes)?;
        self.writes.clear();
        Ok(())
    }

    /// Removes every condition; the writes stay.
    pub fn clear_conditions(&mut self) {
        self.writes.clear_conditions();
        self.snapshots.clear();
    }
}
