//! Which tables of the last level to write again where they stand: those with what only readers
//! that are gone could see, and neighbours that are small. Pure functions, like [`super::pick`].
//!
//! A merge into the last level keeps what an open snapshot may need: older versions, deletes, range
//! tombstones. Once the snapshot is gone nothing comes down to meet them where nobody writes to
//! those keys again. What every reader sees has lost its sequence number there, so a table whose
//! greatest number is not zero may hold such leftovers.
//!
//! INVARIANT: a table is written again for its leftovers in two cases only, so that it is not
//! picked again for the same. Where its every entry is as old as the oldest reader, all of them go,
//! all sequence numbers with them (that of a key under a range tombstone one rewrite later). Where
//! it holds many versions that only a few states saw, all of which are held no more while an older
//! one is, those go; which states it was written for is known until the store is closed.
//!
//! Tables written together leave gaps between them, into which another compaction could write. It
//! is not begun where one does, and while it runs [`LevelsView`] lends nobody the gap.

use umbel_base::limits::LEVELS;

use super::pick::{LevelsView, Pick, TableFact, WIDENED_TABLES_MAX};

/// The last level.
pub const LAST: usize = LEVELS - 1;

/// What is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted<'a> {
    /// Tables with what no reader can see, by the sequence numbers somebody may read at, ascending.
    Stale(&'a [u64]),
    /// Neighbours that fit into one table together.
    Small,
}

/// The key behind which to look: the end of the last tables picked, and whether it is exclusive.
pub type Behind = Option<(Vec<u8>, bool)>;

/// The next tables of the last level to write again.
#[derive(Debug, Clone, PartialEq)]
pub enum LastPick {
    /// There are none.
    Done,
    /// A running compaction holds them.
    Blocked,
    /// These.
    Run(Pick),
}

/// What the background finds in the last level.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Leftovers {
    /// A table to write again.
    pub pick: Option<Pick>,
    /// Where there is none: the sequence number that the oldest reader must have reached before
    /// there is one.
    pub waits_for: Option<u64>,
    /// States of which one must be held no more before there is one.
    pub waits_for_end_of: Vec<u64>,
}

/// Whether a table holds what no reader can see, for what is known without reading it.
fn is_stale(table: &TableFact, readers: &[u64]) -> bool {
    let oldest = readers.first().copied().unwrap_or(0);
    let all_see = table.sequence_max > 0 && table.sequence_max <= oldest;
    all_see || table.kept_for.iter().any(|states| within(readers, *states).is_empty())
}

/// Those of `readers` from the first of two states to the second.
fn within(readers: &[u64], (first, last): (u64, u64)) -> &[u64] {
    let readers = &readers[readers.partition_point(|&reader| reader < first)..];
    &readers[..readers.partition_point(|&reader| reader <= last)]
}

/// A table worth writing again unasked: many deletes, or versions newer than what every reader saw
/// when it was written. A table that was only moved here has few of either.
fn is_worth_it(table: &TableFact) -> bool {
    let has_some = table.sequence_min == 0 || table.is_rich_in_deletes();
    table.sequence_max > 0 && (has_some || !table.kept_for.is_empty())
}

/// Looks for one table with leftovers that `readers`, the sequence numbers somebody may read at,
/// let go.
pub fn leftovers(view: &LevelsView, readers: &[u64]) -> Leftovers {
    let mut found = Leftovers::default();
    for table in view.level(LAST).iter().filter(|table| !table.busy && is_worth_it(table)) {
        if is_stale(table, readers) {
            let pick = Some(rewrite(std::slice::from_ref(table)));
            return Leftovers { pick, ..Leftovers::default() };
        }
        found.waits_for = Some(found.waits_for.unwrap_or(u64::MAX).min(table.sequence_max));
        let held = table.kept_for.iter().flat_map(|states| within(readers, *states));
        found.waits_for_end_of.extend(held);
    }
    found
}

/// The first tables within `start..end` and behind `behind` that are wanted.
pub fn pick_last(
    view: &LevelsView,
    wanted: Wanted<'_>,
    (start, end): (Option<&[u8]>, Option<&[u8]>),
    behind: &Behind,
) -> LastPick {
    let is_behind = |table: &TableFact| match behind {
        None => true,
        Some((key, true)) => table.smallest >= key.as_slice(),
        Some((key, false)) => table.smallest > key.as_slice(),
    };
    let tables = view.level(LAST);
    let within = |table: &TableFact| table.span().is_within(start, end) && is_behind(table);
    let first = tables.iter().position(within).unwrap_or(tables.len());
    let count = tables[first..].iter().take_while(|table| within(table)).count();
    let tables = &tables[first..first + count];
    let mut at = 0;
    while at < tables.len() {
        let group = group(&tables[at..], wanted, view.options.table_bytes);
        match group {
            [] => at += 1,
            _ if is_held(view, group) => return LastPick::Blocked,
            _ => return LastPick::Run(rewrite(group)),
        }
    }
    LastPick::Done
}

/// Of `tables` the first few that are wanted together; none where the first one is not.
fn group<'v, 'a>(
    tables: &'v [TableFact<'a>],
    wanted: Wanted<'_>,
    table_bytes: u64,
) -> &'v [TableFact<'a>] {
    let (least, bytes_max) = match wanted {
        Wanted::Stale(_) => (1, table_bytes.saturating_mul(WIDENED_TABLES_MAX)),
        Wanted::Small => (2, table_bytes),
    };
    let is_wanted = |table: &TableFact| match wanted {
        Wanted::Stale(readers) => is_stale(table, readers),
        Wanted::Small => true,
    };
    let (mut bytes, mut count) = (0u64, 0);
    for table in tables {
        bytes = bytes.saturating_add(table.bytes);
        if !is_wanted(table) || count > 0 && bytes > bytes_max {
            break;
        }
        count += 1;
    }
    if count < least { &[] } else { &tables[..count] }
}

/// Whether a running compaction reads one of `group` or may write between two of them.
fn is_held(view: &LevelsView, group: &[TableFact]) -> bool {
    if group.iter().any(|table| table.busy) {
        return true;
    }
    let [first, .., last] = group else { return false };
    let whole = first.span().joined(last.span());
    let above = (0..LAST).flat_map(|level| view.level(level));
    above.filter(|table| table.busy).any(|table| table.span().overlaps(&whole))
}

fn rewrite(tables: &[TableFact]) -> Pick {
    let ids = tables.iter().map(|table| table.id).collect();
    let inputs = vec![(LAST, ids)];
    Pick { level: LAST, target_level: LAST, inputs, trivial_move: false, score: 0.0 }
}

/// Where a group ends, to go on behind it.
pub fn end_of(largest: &[u8], largest_is_exclusive: bool) -> Behind {
    Some((largest.to_vec(), largest_is_exclusive))
}

#[cfg(test)]
#[path = "last_tests.rs"]
mod tests;
