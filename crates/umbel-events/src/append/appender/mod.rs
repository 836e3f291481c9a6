//! [`Appender`]: checks streams, decides about appends, and writes the log; the thread that holds
//! the appender appends.
//!
//! A task enters by [`Appender::try_execute`]. An append of existing streams goes through these
//! files in one direction; a delete, and an append that undeletes, look up metadata once more:
//!
//! 1. `append_events`, `delete` or `import_event`: the kind of the task;
//! 2. `stream_lookup`: states of the streams, then the decision;
//! 3. `undelete`, only where the append ends the deletion of a stream: the stream's metadata;
//! 4. `log_commit`: the log, then the index or the queue of appends for the index.
//!
//! A replica that follows executes no task. `followed_records` writes the records of slots instead.

use umbel_arena::PREFETCHES;
use umbel_existence::ExistenceReader;

use crate::append::append_request::{AppendRequest, CheckedMetadata, StreamAppend, WriteResult};
use crate::append::index_queue::IndexQueue;
use crate::append::log_quota::LogQuota;
use crate::append::pending_heads::PendingHeads;
use crate::append::recent_event_ids::RecentEventIds;
use crate::event_log::{ChunkWriter, LogCursor};
use crate::index::index_batch::IndexBatch;
use crate::index::index_changes::IndexChanges;
use crate::primitives::store_clock::UnknownTime;
use crate::store_components::StoreComponents;
use crate::types::error::{Error, Result};
use crate::types::expected_version::ExpectedVersion;
use crate::types::imported_event::ImportTask;

mod append_events;
mod delete;
mod followed_records;
mod import_event;
mod log_commit;
mod stream_lookup;
mod undelete;

pub use followed_records::FollowedRecords;

/// State that an appending thread needs.
#[derive(Debug)]
pub struct Appender {
    /// Write position of the log.
    pub chunk_writer: ChunkWriter,
    /// Limit of the log's bytes.
    quota: LogQuota,
    /// Ids of the newest events.
    pub recent_ids: RecentEventIds,
    /// Appends that are in the log but not in the index, in order.
    pub queue: IndexQueue,
    /// Creation time of the newest event.
    pub last_created: u64,
    /// Whether appends stay queued until a thread applies the queue, even in a store that does not
    /// sync.
    pub defers_indexing: bool,
    /// Heads of the streams with queued appends.
    pub pending_heads: PendingHeads,
    existence: ExistenceReader,
    buffer: Vec<u8>,
    /// Index changes of one append that is indexed at once.
    changes: IndexChanges,
    /// Positions of the events of the newest append.
    positions: Vec<u64>,
    metadata_name: String,
    batch: IndexBatch,
    cursor: LogCursor,
}

/// Outcome of an attempt to execute a [`WriteTask`].
#[derive(Debug)]
pub enum TaskOutcome {
    /// The events are in the log, perhaps from an earlier append. The position must become visible
    /// before the result is returned.
    Done(Vec<WriteResult>, u64),
    /// The chunk or memory is full. Earlier appends must be indexed first.
    NeedsFlush,
}

/// A task of the appender.
#[derive(Debug, Clone, Copy)]
pub enum WriteTask<'a> {
    /// Appends events.
    Append(AppendRequest<'a>, &'a CheckedMetadata),
    /// Deletes a stream, which may be created again.
    Delete(&'a str, ExpectedVersion),
    /// Deletes a stream for good.
    Tombstone(&'a str, ExpectedVersion),
    /// Appends an event of another store with its original id, time and revision.
    Import(&'a ImportTask<'a>),
}

impl Appender {
    /// Creates an appender at the end of a log that is completely indexed.
    pub fn new(parts: &StoreComponents, window: RecentEventIds, last_created: u64) -> Appender {
        Appender {
            chunk_writer: ChunkWriter::default(),
            quota: LogQuota::new(parts.log_quota_bytes),
            recent_ids: window,
            queue: IndexQueue::default(),
            last_created,
            defers_indexing: false,
            pending_heads: PendingHeads::default(),
            existence: parts.existence.reader(),
            buffer: Vec::new(),
            changes: IndexChanges::default(),
            positions: Vec::new(),
            metadata_name: String::new(),
            batch: IndexBatch::new(&parts.index),
            cursor: parts.log.cursor(),
        }
    }

    /// Executes the task up to the log write.
    pub fn try_execute(
        &mut self,
        parts: &StoreComponents,
        task: &WriteTask<'_>,
    ) -> Result<TaskOutcome> {
        parts.visible.gate.check_leads()?;
        match task {
            WriteTask::Append(request, metadata) => self.append(parts, request, metadata),
            WriteTask::Delete(stream, expected) => self.delete(parts, stream, *expected),
            WriteTask::Tombstone(stream, expected) => self.tombstone(parts, stream, *expected),
            WriteTask::Import(task) => self.import(parts, task),
        }
    }

    /// Creation time of an event that is appended now, in ticks of 100 ns.
    fn created_now(&self, parts: &StoreComponents) -> Result<u64> {
        match parts.clock().stamp() {
            Ok(now) => Ok(now.max(self.last_created)),
            Err(UnknownTime { days }) => {
                Err(Error::ClockRejected { directory: parts.folder.clone(), days })
            }
        }
    }

    /// Prefetches the slots of the appends' ids in the window of recent ids.
    pub fn prefetch(&self, parts: &StoreComponents, request: &AppendRequest<'_>) {
        for append in request.appends_to_prefetch() {
            self.prefetch_id(append, || parts.existence.hash(append.stream));
        }
    }

    fn prefetch_id(&self, append: &StreamAppend<'_>, hash: impl FnOnce() -> u64) {
        let is_looked_for =
            matches!(append.expected, ExpectedVersion::Any | ExpectedVersion::Exists);
        if let Some(first) = append.events.first().filter(|_| PREFETCHES) {
            self.recent_ids.prefetch(hash(), first.id, is_looked_for);
        }
    }
}

fn write_result(first: u64, last: u64, is_retry: bool) -> WriteResult {
    WriteResult { first: Some(first), last: Some(last), position: None, is_retry }
}
