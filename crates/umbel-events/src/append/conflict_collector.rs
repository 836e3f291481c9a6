//! [`ConflictCollector`]: collects the version conflicts of a request.

use crate::append::append_decision::StreamSnapshot;
use crate::types::error::{Error, Result};
use crate::types::expected_version::ExpectedVersion;
use crate::types::stream_state::StreamState;
use crate::types::version_conflict::{RequestItem, VersionConflict};

/// Version conflicts of a request.
#[derive(Debug, Default)]
pub struct ConflictCollector(Vec<VersionConflict>);

impl ConflictCollector {
    /// Whether there is no conflict.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a conflict.
    pub fn add(
        &mut self,
        part: RequestItem,
        stream: &str,
        expected: ExpectedVersion,
        known: &StreamSnapshot,
    ) {
        let (stream, state) = (stream.to_string(), StreamState::from_snapshot(known));
        self.0.push(VersionConflict { item: part, stream, expected, state });
    }

    /// Returns a decision; adds it and returns `None` where it is a version conflict.
    pub fn collect<T>(
        &mut self,
        decided: Result<T>,
        part: RequestItem,
        expected: ExpectedVersion,
        known: &StreamSnapshot,
    ) -> Result<Option<T>> {
        match decided {
            Ok(decision) => Ok(Some(decision)),
            Err(Error::WrongExpectedVersion { stream, .. } | Error::StreamDeleted { stream }) => {
                self.add(part, &stream, expected, known);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns an error where there is a conflict.
    pub fn finish(self) -> Result<()> {
        if self.0.is_empty() { Ok(()) } else { Err(Error::VersionConflicts(self.0)) }
    }
}
