//! [`ImportedEvent`]: an event of another store on its way into this one.

use std::cell::Cell;

use crate::event::NewEvent;

/// An event of another store.
#[derive(Debug, Clone, Copy)]
pub struct ImportedEvent<'a> {
    /// Its stream.
    pub stream: &'a str,
    /// Its number in the stream, which it keeps;
    /// [`TOMBSTONE_REVISION`](crate::limits::TOMBSTONE_REVISION) ends the stream for good, and is
    /// for events of the type `$streamDeleted` alone. Without one it becomes the stream's last
    /// event.
    pub revision: Option<u64>,
    /// When it was appended there, in units of 100 ns since 1970; without it, now.
    pub created: Option<u64>,
    /// The event.
    pub event: NewEvent<'a>,
}

/// What came of importing an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Imported {
    /// Its revision.
    pub revision: u64,
    /// Its position.
    pub position: u64,
    /// Whether it had been there before.
    pub was_there: bool,
}

/// An event to be imported, and what is learned on the way.
#[derive(Debug)]
pub struct ImportTask<'a> {
    /// The event.
    pub event: ImportedEvent<'a>,
    /// By how much its time was moved, so that it is not earlier than that of the event before.
    pub moved: Cell<u64>,
    /// How many revisions of its stream before it the source does not have.
    pub missing: Cell<u64>,
}
