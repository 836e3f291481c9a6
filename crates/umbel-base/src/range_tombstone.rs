//! [`RangeTombstone`]: "every version of every key in `start..end` older than this is deleted".

use crate::SequenceNumber;

/// One `delete_range`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RangeTombstone {
    /// First key deleted.
    pub start: Vec<u8>,
    /// First key no longer deleted. INVARIANT: `start < end`.
    pub end: Vec<u8>,
    /// Entries below this sequence number are deleted.
    pub sequence: SequenceNumber,
}
