//! [`ReadItem`]: what one step of a read returns.

use crate::types::error::Result;

/// Next item of a read.
#[derive(Debug)]
pub enum ReadItem<T> {
    /// A readable event.
    Event(T),
    /// The requested maximum of events was skipped: these events have expired, were scavenged, or
    /// do not pass the filter.
    Skipped,
    /// No more events can be read.
    End,
}

impl<T> ReadItem<T> {
    /// Calls `step`, which skips at most the given number of events, until there is an event.
    /// Returns `None` at the end.
    pub fn next_event(mut step: impl FnMut(usize) -> Result<ReadItem<T>>) -> Option<Result<T>> {
        loop {
            match step(usize::MAX) {
                Ok(ReadItem::Event(event)) => return Some(Ok(event)),
                Ok(ReadItem::Skipped) => {}
                Ok(ReadItem::End) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
    }
}
