//! [`IndexCommit`]: step of an append from the log into the index: keyspaces, then views, then the
//! filter of stream names, and last the visible position.
//!
//! INVARIANT (B1 of `docs/explanation/replication.md`): events reach the index and become visible
//! only here. An unsynced append, the group sync, the close and the catch-up of an open use it.

use crate::index::index_batch::IndexBatch;
use crate::index::index_changes::StreamChange;
use crate::store_components::StoreComponents;
use crate::types::error::{Error, Result};
use crate::visibility::index_gate::CommitPermit;

/// Commit of a part of the log to the index. Its events are visible once it has finished.
#[derive(Debug)]
#[must_use = "events are visible only once the commit has finished"]
pub struct IndexCommit<'a> {
    parts: &'a StoreComponents,
    permit: CommitPermit,
}

impl<'a> IndexCommit<'a> {
    /// Begins a commit of as much of the log as the index may have.
    ///
    /// REQUIRES: one thread commits at a time, and the log has the store's durability up to where
    /// the thread commits.
    ///
    /// # Errors
    /// [`Error::AppendAmbiguous`] after the end of the gate.
    #[inline]
    pub fn begin(parts: &'a StoreComponents) -> Result<IndexCommit<'a>> {
        Ok(IndexCommit { parts, permit: parts.visible.gate.begin_commit()? })
    }

    /// Begins a commit of the records that end at or before `end`.
    ///
    /// REQUIRES: as for [`IndexCommit::begin`].
    ///
    /// # Errors
    /// An error where the index may not have all of them, and those of [`IndexCommit::begin`].
    #[inline]
    pub fn begin_through(parts: &'a StoreComponents, end: u64) -> Result<IndexCommit<'a>> {
        let commit = IndexCommit::begin(parts)?;
        match end <= commit.end() {
            true => Ok(commit),
            false => Err(beyond_permit_error(end)),
        }
    }

    /// Position at or before which the records of this commit end.
    #[inline]
    pub fn end(&self) -> u64 {
        self.permit.end()
    }

    /// Commits the changes of the appends up to `position`.
    ///
    /// After an error, the caller must not use the batch again, since some changes may be in the
    /// keyspaces.
    #[inline]
    pub fn commit_changes<'c>(
        &self,
        batch: &mut IndexBatch,
        changes: impl Iterator<Item = StreamChange<'c>> + Clone,
        position: u64,
    ) -> Result<()> {
        let parts = self.parts;
        for change in changes.clone() {
            batch.add(&parts.index, &change);
        }
        batch.commit(&parts.index, &self.permit, (&parts.log, position))?;
        parts.visible.count_appended(changes.clone().map(|change| change.event_count()).sum());
        self.update_views_and_filter(changes);
        Ok(())
    }

    /// Numbers the events in the views, and adds new streams to the filter. REQUIRES: the events
    /// are in the keyspaces.
    #[inline]
    pub fn update_views_and_filter<'c>(
        &self,
        changes: impl Iterator<Item = StreamChange<'c>> + Clone,
    ) {
        let parts = self.parts;
        let placed = changes.clone().map(|change| (change.stream, change.events()));
        if parts.index.views.add_events(placed) {
            parts.background.request_flush();
        }
        if parts.existence.insert(changes) {
            parts.background.request_existence_step();
        }
    }

    /// Makes the events up to `position` visible. `streams` are the hashes of the streams' names.
    /// The caller must then call
    /// [`VisiblePosition::notify`](crate::visibility::visible_position::VisiblePosition::notify).
    ///
    /// REQUIRES: the index has all events of the permitted part, or those up to a record's end in
    /// a store on one machine.
    ///
    /// # Errors
    /// [`Error::AppendAmbiguous`] after the end of the gate; nothing becomes visible then.
    #[inline]
    pub fn finish(self, position: u64, streams: impl Iterator<Item = u64>) -> Result<()> {
        self.parts.visible.advance(self.permit, position, streams)
    }
}

#[cold]
fn beyond_permit_error(end: u64) -> Error {
    Error::invalid(format!("internal: the index may not have the log up to position {end} yet"))
}
