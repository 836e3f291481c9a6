//! [`RangeTombstone`]: "every version of every key in `start..end` older than this is deleted".

use crate::SequenceNumber;

/// The tombstone of one `delete_range`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RangeTombstone {
    /// First key that is deleted.
    pub start: Vec<u8>,
    /// First key after the deleted range. INVARIANT: `start < end`.
    pub end: Vec<u8>,
    /// Entries with a lower sequence number are deleted.
    pub sequence: SequenceNumber,
}

/// The tombstone of one `delete_range`, with borrowed keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RangeTombstoneRef<'a> {
    /// First key that is deleted.
    pub start: &'a [u8],
    /// First key after the deleted range.
    pub end: &'a [u8],
    /// Entries with a lower sequence number are deleted.
    pub sequence: SequenceNumber,
}

impl<'a> From<&'a RangeTombstone> for RangeTombstoneRef<'a> {
    fn from(tombstone: &'a RangeTombstone) -> RangeTombstoneRef<'a> {
        let RangeTombstone { start, end, sequence } = tombstone;
        RangeTombstoneRef { start, end, sequence: *sequence }
    }
}

impl RangeTombstoneRef<'_> {
    /// Returns a range tombstone with copies of the keys.
    pub fn to_owned(self) -> RangeTombstone {
        let RangeTombstoneRef { start, end, sequence } = self;
        RangeTombstone { start: start.to_vec(), end: end.to_vec(), sequence }
    }
}
