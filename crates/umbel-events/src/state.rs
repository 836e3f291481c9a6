//! [`StreamState`]: what there is of a stream.

use crate::decide::Known;
use crate::limits::TOMBSTONE_REVISION;

/// What there is of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamState {
    /// It never had an event.
    Missing,
    /// It has events.
    Live {
        /// The lowest revision that can be read; higher than `last` where nothing can.
        first: u64,
        /// The revision of the last event.
        last: u64,
    },
    /// It was deleted; the next append creates it again.
    Deleted {
        /// The revision of the last event it had.
        last: u64,
    },
    /// It was tombstoned.
    Tombstoned,
}

impl StreamState {
    pub(crate) fn of(known: &Known) -> StreamState {
        let Some(head) = known.head else { return StreamState::Missing };
        if head.is_tombstoned {
            return StreamState::Tombstoned;
        }
        let last = head.last_revision;
        debug_assert!(last < TOMBSTONE_REVISION, "only a tombstone has it");
        match known.settings {
            Some(settings) if settings.is_deleted() => StreamState::Deleted { last },
            settings => {
                let first = settings.unwrap_or_default().first_revision(last);
                StreamState::Live { first, last }
            }
        }
    }
}
