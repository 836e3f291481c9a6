//! [`ExpirySearch`]: binary search for the first entry of a stream or view that has not
//! expired under `$maxAge`.

use crate::event_log::LogCursor;
use crate::types::error::Result;
use crate::types::event::Direction;

/// Search of a read that met an expired entry.
#[derive(Debug, Clone, Copy)]
pub struct ExpirySearch {
    /// Entries that were created before this time have expired.
    pub since: u64,
    /// Last number to search, inclusive. The caller reads later entries in any case.
    pub until: u64,
}

impl ExpirySearch {
    /// Returns first and last of the `remaining` numbers that can still be read, both inclusive.
    /// `entry_at` is the one of [`first_created_since`].
    pub fn remaining(
        self,
        cursor: &mut LogCursor,
        direction: Direction,
        (first, last): (u64, u64),
        entry_at: impl FnMut(u64) -> Result<Option<(u64, u64)>>,
    ) -> Result<(u64, u64)> {
        if direction == Direction::Backwards || first > last {
            // All entries before an expired one have expired.
            return Ok((1, 0));
        }
        let found = first_created_since(cursor, (first, self.until), self.since, entry_at)?;
        Ok((found, last))
    }
}

/// Returns the lowest of the numbers from `first` to `last`, both inclusive, at or after which no
/// entry was created before `since`; `last + 1` if each entry was created before. `entry_at`
/// returns number and position of the first entry at or after a number, if there is one.
///
/// Times are [ordered times](crate::event_log::EventLog::ordered_time), which never decrease in the
/// log, across clock epochs as well.
///
/// An entry whose event was scavenged counts as created with the next event in the log. A reader
/// skips the entry in any case, and the next event bounds its time.
fn first_created_since(
    cursor: &mut LogCursor,
    (first, last): (u64, u64),
    since: u64,
    mut entry_at: impl FnMut(u64) -> Result<Option<(u64, u64)>>,
) -> Result<u64> {
    let (mut low, mut end) = (first, last.saturating_add(1));
    while low < end {
        let middle = low + (end - low) / 2;
        match entry_at(middle)?.filter(|(number, _)| *number < end) {
            Some((number, position)) if is_created_before(cursor, position, since)? => {
                low = number.saturating_add(1);
            }
            // Entries from `end` on were not created before.
            _ => end = middle,
        }
    }
    Ok(low)
}

/// Whether the first event at or after a position was created before `since`.
fn is_created_before(cursor: &mut LogCursor, position: u64, since: u64) -> Result<bool> {
    Ok(cursor.ordered_time_from(position)?.is_some_and(|created| created < since))
}
