//! [`Batch`]: writes that happen together or not at all.

use std::sync::Arc;

use umbel_base::Result;

use crate::background;
use crate::commit;
use crate::handle::Handle;
use crate::keyspace::Keyspace;
use crate::options::Durability;
use crate::snapshot::Snapshot;
use crate::writes::{Action, Condition, Writes};

/// Writes to one or several keyspaces of a store that are committed together, in the order in
/// which they were added.
///
/// A key or value over the limits is refused by [`Batch::commit`], which then writes nothing.
#[derive(Debug)]
#[must_use = "a batch does nothing until it is committed"]
pub struct Batch {
    handle: Arc<Handle>,
    writes: Writes,
    // The state a condition speaks of has to be kept until the condition was checked.
    snapshots: Vec<Snapshot>,
    foreign: bool,
}

impl Drop for Batch {
    fn drop(&mut self) {
        if self.handle.store.open.is_forked() {
            // It may hold the last of a keyspace that was dropped, with tables to remove.
            std::mem::forget(std::mem::take(&mut self.writes));
        }
    }
}

impl Batch {
    pub(crate) fn new(handle: &Arc<Handle>) -> Batch {
        let (handle, writes) = (Arc::clone(handle), Writes::default());
        Batch { handle, writes, snapshots: Vec::new(), foreign: false }
    }

    fn add(&mut self, action: Action, keyspace: &Keyspace, key: &[u8], value: &[u8]) {
        self.foreign |= !keyspace.belongs_to(&self.handle);
        self.writes.push(action, &keyspace.core, key, value);
    }

    /// Gives `key` a value.
    pub fn put(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        let (key, value) = (key.as_ref(), value.as_ref());
        if value.len() > self.handle.store.options.inline_value_bytes_max {
            self.foreign |= !keyspace.belongs_to(&self.handle);
            self.writes.push_long(&keyspace.core, key, value);
        } else {
            self.add(Action::Put, keyspace, key, value);
        }
    }

    /// Deletes `key`.
    pub fn delete(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) {
        self.add(Action::Delete, keyspace, key.as_ref(), &[]);
    }

    /// Deletes the keys from `start` up to, and without, `end`.
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

    /// Sets the marker that the next flush of a keyspace without a log stores with its tables.
    pub fn set_marker(&mut self, keyspace: &Keyspace, marker: impl AsRef<[u8]>) {
        self.foreign |= !keyspace.belongs_to(&self.handle);
        self.writes.mark(&keyspace.core, marker.as_ref());
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
        self.writes.require(&keyspace.core, key, condition);
    }

    /// How many writes it holds.
    pub fn len(&self) -> usize {
        self.writes.len()
    }

    /// Whether it holds no writes.
    pub fn is_empty(&self) -> bool {
        self.writes.len() == 0
    }

    /// Bytes of keys and values it holds.
    pub fn bytes(&self) -> usize {
        self.writes.bytes_given()
    }

    /// Commits everything or nothing. On success every reader sees all of it, and it survives what
    /// `durability` says. `None` takes what `Options::durability` says, which promises nothing for
    /// a keyspace without a log.
    ///
    /// # Errors
    /// `Conflict` where a condition does not hold, `Invalid` where a key, value or the batch is
    /// over a limit, a keyspace is of another store, or a write to a keyspace without a log is
    /// asked to be `Synced`. After `ReadOnly` or `Io` the outcome is known at the next open.
    ///
    /// The batch is gone whatever comes of it; [`Batch::try_commit`] keeps it.
    pub fn commit(mut self, durability: impl Into<Option<Durability>>) -> Result<()> {
        self.try_commit(durability)
    }

    /// As [`Batch::commit`], but a batch that was refused stays as it was, to be committed again or
    /// added to; one that was committed is empty afterwards and can be filled anew.
    ///
    /// After a `Conflict` over [`Batch::expect_unchanged`] the same condition never holds again:
    /// read anew, call [`Batch::clear_conditions`] and say what is to be expected now.
    ///
    /// # Errors
    /// As [`Batch::commit`].
    pub fn try_commit(&mut self, durability: impl Into<Option<Durability>>) -> Result<()> {
        if self.foreign {
            return Err(umbel_base::Error::invalid(
                "the batch names a keyspace or snapshot of another store",
            ));
        }
        background::commit(&self.handle.store, &mut self.writes, durability.into())?;
        self.writes.clear();
        self.snapshots.clear();
        Ok(())
    }

    /// Puts the writes, all to keyspaces without a log, into the memory of a handle that is open
    /// for reading only: what the program's own log holds and the tables lack. They are in no file
    /// and go with the handle. Markers and conditions do not count. Empties the batch.
    ///
    /// # Errors
    /// `Invalid` for a handle that can write, and for a keyspace with a log.
    #[doc(hidden)]
    pub fn replay(&mut self) -> Result<()> {
        if self.foreign {
            return Err(umbel_base::Error::invalid("the batch names a keyspace of another store"));
        }
        commit::replay(&self.handle.store, &self.writes)?;
        self.writes.clear();
        Ok(())
    }

    /// Forgets every condition; the writes stay.
    pub fn clear_conditions(&mut self) {
        self.writes.clear_conditions();
        self.snapshots.clear();
    }
}
