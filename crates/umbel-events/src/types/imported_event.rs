//! [`ImportedEvent`]: an event of another store that is imported into this one.

use std::cell::Cell;

use crate::types::event::NewEvent;

/// An event of another store.
#[derive(Debug, Clone, Copy)]
pub struct ImportedEvent<'a> {
    /// Its stream.
    pub stream: &'a str,
    /// Its revision in the stream, which it keeps. Without one it becomes the stream's last event.
    /// [`TOMBSTONE_REVISION`](crate::limits::TOMBSTONE_REVISION) tombstones the stream, and is only
    /// valid for events of the type `$streamDeleted`.
    pub revision: Option<u64>,
    /// Time of its append there, in units of 100 ns since 1970; without it, now.
    pub created: Option<u64>,
    /// The event.
    pub event: NewEvent<'a>,
}

/// Result of the import of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImportResult {
    /// Its revision.
    pub revision: u64,
    /// Its position.
    pub position: u64,
    /// Whether the store already had it.
    pub is_duplicate: bool,
}

/// Event to import, with results of its import.
#[derive(Debug)]
pub struct ImportTask<'a> {
    /// The event.
    pub event: ImportedEvent<'a>,
    /// Adjustment of its time, so that it is not earlier than that of the previous event.
    pub time_adjustment: Cell<u64>,
    /// Number of earlier revisions of its stream that the source lacks.
    pub missing_revisions: Cell<u64>,
}
