//! [`Queued`]: an append that is in the log and not in the index.

use crate::index::Change;

/// An append that is in the log and not in the index.
#[derive(Debug)]
pub struct Queued {
    /// The log must be durable below this position before anybody sees it.
    pub end: u64,
    /// The position of its last event.
    pub position: u64,
    /// What it changes in the index.
    pub changes: Vec<Change<'static>>,
}
