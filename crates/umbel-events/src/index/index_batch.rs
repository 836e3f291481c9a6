//! [`IndexBatch`]: changes of several streams that reach the index together.

use umbel::{Batch, Durability};
use umbel_base::Result;

use crate::event_log::EventLog;
use crate::index::index_changes::StreamChange;
use crate::index::index_marker::MarkerEncoder;
use crate::visibility::index_gate::CommitPermit;

use super::{Index, event_key};

/// A batch of index changes.
#[derive(Debug)]
pub struct IndexBatch {
    batch: Batch,
    head: Vec<u8>,
    markers: MarkerEncoder,
}

impl IndexBatch {
    /// Creates an empty batch.
    pub fn new(index: &Index) -> IndexBatch {
        IndexBatch { batch: index.db.batch(), head: Vec::new(), markers: MarkerEncoder::default() }
    }

    /// Adds a stream's change.
    pub fn add(&mut self, index: &Index, change: &StreamChange<'_>) {
        let IndexBatch { batch, head, .. } = self;
        for (revision, position) in change.entries {
            let key = event_key(change.head.id, *revision);
            batch.put(&index.events, key, position.to_le_bytes());
        }
        head.clear();
        change.head.encode(head);
        batch.put(&index.heads, change.stream.as_bytes(), head);
    }

    /// Commits the batch; from then on the index holds all of the log up to `position`, which the
    /// permit covers. Where the store is open for reading only, the changes stay in memory.
    pub fn commit(
        &mut self,
        index: &Index,
        _permit: &CommitPermit,
        (log, position): (&EventLog, u64),
    ) -> Result<()> {
        let IndexBatch { batch, markers, .. } = self;
        if index.read_only {
            return batch.replay();
        }
        let marker = markers.encode(position, log);
        batch.set_marker(&index.heads, marker);
        batch.set_marker(&index.events, marker);
        batch.try_commit(Durability::Buffered)
    }
}
