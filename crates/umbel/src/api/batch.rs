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

/// Writes to one or several keyspaces of a store, committed together in the order in which they
/// were added.
///
/// [`Batch::commit`] writes nothing and fails if a key or value in the batch is over the limits.
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

    /// Adds the condition that no write touched `key` since `snapshot` was taken.
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

    /// Adds the condition that `key` has no value when the batch commits.
    pub fn expect_absent(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) {
        self.require(keyspace, key.as_ref(), Condition::Absent);
    }

    /// Adds the condition that `key` has the value `value` when the batch commits.
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

    /// Commits all writes of the batch or none. After success every reader sees all writes, and
    /// they have the durability that `durability` requests. `None` uses `Options::durability`; for
    /// a keyspace without a WAL no durability is promised then.
    ///
    /// # Errors
    /// `Conflict` if a condition of the batch does not hold. `Invalid` if a key, a value or the
    /// batch is over a limit, or a keyspace belongs to another store. `Invalid` also if a batch
    /// with a write to a keyspace without a WAL requests `Synced`. After `ReadOnly` or `Io` only
    /// the next open shows whether the batch was committed.
    ///
    /// The call consumes the batch even on an error; [`Batch::try_commit`] keeps the batch.
    pub fn commit(mut self, durability: impl Into<Option<Durability>>) -> Result<()> {
        self.try_commit(durability)
    }

    /// Like [`Batch::commit`], but a refused batch keeps its writes, so that the caller can add
    /// writes or commit the batch again. A committed batch is empty afterwards and can be filled
    /// again.
    ///
    /// After a `Conflict` over [`Batch::expect_unchanged`] the same condition never holds again.
    /// After such a conflict, read the keys again, call [`Batch::clear_conditions`] and add new
    /// conditions.
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

    /// Applies the batch to the memory of a read-only handle and empties the batch. All its writes
    /// are to keyspaces without a WAL. The caller uses it for writes that its own log holds and the
    /// tables lack. The writes are in no file and are lost when the handle closes. Markers and
    /// conditions are ignored.
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

    /// Removes all conditions from the batch; its writes stay.
    pub fn clear_conditions(&mut self) {
        self.writes.clear_conditions();
        self.snapshots.clear();
    }
}
