//! [`ImportedEvent`]: an event of another store that is imported into this one.

use std::cell::Cell;

use crate::types::event::NewEvent;
use crate::types::stream_metadata::RetentionRules;

/// An event of another store.
#[derive(Debug, Clone, Copy)]
pub struct ImportedEvent<'a> {
    /// Stream of the event.
    pub stream: &'a str,
    /// Revision of the event in its stream, which the import keeps. An event without a revision
    /// becomes the stream's last event. [`TOMBSTONE_REVISION`](crate::limits::TOMBSTONE_REVISION)
    /// tombstones the stream, and is only valid for events of the type `$streamDeleted`.
    pub revision: Option<u64>,
    /// Time of the append to the source store, in units of 100 ns since 1970; `None` means now.
    pub created: Option<u64>,
    /// The event.
    pub event: NewEvent<'a>,
}

/// Result of the import of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImportResult {
    /// Revision of the event.
    pub revision: u64,
    /// Position of the event in this store.
    pub position: u64,
    /// Whether the store already had the event.
    pub is_duplicate: bool,
}

/// Event to import, with details of its import for the report.
#[derive(Debug)]
pub struct ImportTask<'a> {
    /// The event.
    pub event: ImportedEvent<'a>,
    /// Retention rules in the event, if its stream holds the metadata of another.
    pub retention: Option<RetentionRules>,
    /// Increase of the event's time, so that it is not earlier than the previous event's time.
    pub time_adjustment: Cell<u64>,
    /// Number of revisions before this event in its stream that the source lacks.
    pub missing_revisions: Cell<u64>,
}
