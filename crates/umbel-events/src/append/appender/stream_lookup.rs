//! States of streams as the appender sees them, with the appends that are not indexed yet.

use umbel_base::fail_point;

use crate::append::expected_version_check::StreamSnapshot;
use crate::index::stream_head::StreamHead;
use crate::store_components::StoreComponents;
use crate::types::error::Result;
use crate::types::expected_version::ExpectedVersion;
use crate::types::stream_names;

use super::Appender;

impl Appender {
    pub(super) fn head(
        &mut self,
        parts: &StoreComponents,
        stream: &str,
    ) -> Result<Option<StreamHead>> {
        self.head_with_hash(parts, stream, parts.existence.hash(stream))
    }

    pub(super) fn head_with_hash(
        &mut self,
        parts: &StoreComponents,
        stream: &str,
        hash: u64,
    ) -> Result<Option<StreamHead>> {
        let ahead = self.pending_head(hash, stream);
        if ahead.is_some() {
            return Ok(ahead);
        }
        match self.existence.may_contain(hash) {
            true => Ok(parts.head_past_filter(stream)?),
            false => Ok(None),
        }
    }

    /// Returns the head that the stream gets from appends which the index lacks.
    #[inline]
    fn pending_head(&self, hash: u64, stream: &str) -> Option<StreamHead> {
        fail_point!("events-forget-pending-heads", |_| None);
        self.pending_heads.head(&self.queue, hash, stream)
    }

    /// Returns the hash of the stream's name and the state that its expected version is checked
    /// against.
    pub(super) fn snapshot(
        &mut self,
        parts: &StoreComponents,
        stream: &str,
        expected: ExpectedVersion,
    ) -> Result<(u64, StreamSnapshot)> {
        let hash = parts.existence.hash(stream);
        Ok((hash, self.snapshot_with_hash(parts, stream, hash, expected)?))
    }

    /// Returns the state of the stream whose name has this hash.
    pub(super) fn snapshot_with_hash(
        &mut self,
        parts: &StoreComponents,
        stream: &str,
        hash: u64,
        expected: ExpectedVersion,
    ) -> Result<StreamSnapshot> {
        let head = self.head_with_hash(parts, stream, hash)?;
        let rests_on = head.map_or(0, |head| head.last_position);
        let known = StreamSnapshot { head, retention: None, depends_on: rests_on };
        if let Some(subject) = stream_names::metadata_subject(stream) {
            if let Some(other) = self.head(parts, subject)? {
                StreamSnapshot { head: Some(other), ..known }.check_not_tombstoned(stream)?;
            }
            return Ok(known);
        }
        if head.is_none() && expected != ExpectedVersion::Exists {
            // Metadata that hides events does not affect a stream without events.
            return Ok(known);
        }
        let mut name = std::mem::take(&mut self.metadata_name);
        stream_names::write_metadata_stream(stream, &mut name);
        let metadata = self.head(parts, &name);
        self.metadata_name = name;
        let Some(metadata) = metadata? else { return Ok(known) };
        let rests_on = rests_on.max(metadata.last_position);
        Ok(StreamSnapshot { head, retention: metadata.retention_of(head), depends_on: rests_on })
    }

    /// Position of the last queued append to this stream, its metadata stream or the stream whose
    /// metadata it holds; `None` without one.
    pub fn last_pending_position(&self, parts: &StoreComponents, stream: &str) -> Option<u64> {
        let head =
            |name: &str| self.pending_heads.head(&self.queue, parts.existence.hash(name), name);
        let is_ahead = |name: &str| head(name).is_some();
        let is_concerned = is_ahead(stream)
            || is_ahead(&stream_names::metadata_stream(stream))
            || stream_names::metadata_subject(stream).is_some_and(is_ahead);
        self.queue.groups().next_back().filter(|_| is_concerned).map(|last| last.position)
    }
}
