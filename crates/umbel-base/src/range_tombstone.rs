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

/// One `delete_range` whose keys are elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RangeTombstoneRef<'a> {
    /// First key deleted.
    pub start: &'a [u8],
    /// First key no longer deleted.
    pub end: &'a [u8],
    /// Entries below this sequence number are deleted.
    pub sequence: SequenceNumber,
}

impl<'a> From<&'a RangeTombstone> for RangeTombstoneRef<'a> {
    fn from(tombstone: &'a RangeTombstone) -> RangeTombstoneRef<'a> {
        let RangeTombstone { start, end, sequence } = tombstone;
        RangeTombstoneRef { start, end, sequence: *sequence }
    }
}

impl RangeTombstoneRef<'_> {
    /// Copies the keys.
    pub fn to_owned(self) -> RangeTombstone {
        let RangeTombstoneRef { start, end, sequence } = self;
        RangeTombstone { start: start.to_vec(), end: end.to_vec(), sequence }
    }
}
