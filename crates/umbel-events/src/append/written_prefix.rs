//! [`WrittenPrefix`]: the events of a retry that a stream was found to have before the appender
//! decides about it.

use crate::event_log::EventLog;

/// Number of events at the beginning of an append that a stream has from some revision on.
///
/// INVARIANT: an event keeps its revision, and only a replacement of a chunk removes it. So the
/// events are still there as long as the log has replaced no further chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WrittenPrefix {
    /// Revision of the first event.
    pub first: u64,
    /// Number of events.
    pub events: u64,
    /// Number of replacements of chunks before the comparison.
    pub replacements: u64,
}

impl WrittenPrefix {
    /// Number of events that the stream has from the revision `first` on; 0 if they were compared
    /// from another one, or the log has replaced a chunk since.
    pub fn events_from(&self, log: &EventLog, first: u64) -> u64 {
        let is_current = first == self.first && log.chunks.replacements() == self.replacements;
        if is_current { self.events } else { 0 }
    }
}
