//! Picks tables of the last level to rewrite in place: tables with garbage that only past readers
//! could see, and small neighbours. All functions are pure, like those of
//! [`crate::compaction::picker`].
//!
//! A merge into the last level keeps entries that an open snapshot may need: older versions,
//! deletes, range tombstones. After the snapshot is dropped, no other compaction reaches these
//! entries unless a writer writes their keys again. A merge into the last level zeroes the sequence
//! number of an entry that every reader sees. So only a table whose greatest sequence number is not
//! zero can hold garbage.
//!
//! INVARIANT: a table is rewritten for its garbage in two cases only, so that it is not picked
//! again for the same garbage.
//! 1. Every reader sees every entry of the table. The rewrite then drops all garbage and zeroes all
//!    sequence numbers (that of a key under a range tombstone one rewrite later).
//! 2. The table holds many versions that only a few snapshots saw, and all these snapshots are
//!    dropped while an older one is open. The rewrite then drops those versions. The store keeps
//!    the list of snapshots for which it wrote a table until it is closed.
//!
//! Between tables that are rewritten together are gaps, into which another compaction could write.
//! A rewrite does not start while a compaction writes into such a gap. While the rewrite runs,
//! [`PickerInput`] gives the gap to no other compaction.

use umbel_base::limits::LEVELS;

use crate::compaction::picker::{Pick, PickerInput, TableInfo, WIDENED_TABLES_MAX};

/// Number of the last level.
pub const LAST_LEVEL: usize = LEVELS - 1;

/// Reason for a rewrite of tables of the last level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RewriteReason<'a> {
    /// The tables hold entries that no reader can see. The sequence numbers are those that readers
    /// can use, ascending.
    Stale(&'a [u64]),
    /// The tables are neighbours that together fit into one table.
    Small,
}

/// Key after which the next search starts: the end of the last picked tables, and whether that end
/// is exclusive.
pub type ResumeKey = Option<(Vec<u8>, bool)>;

/// Next tables of the last level to rewrite.
#[derive(Debug, Clone, PartialEq)]
pub enum BottommostPick {
    /// There is nothing to rewrite.
    Done,
    /// A running compaction reads the tables that could be rewritten.
    Blocked,
    /// The rewrite to run next.
    Run(Pick),
}

/// Result of a background search in the last level.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BottommostRewrite {
    /// The rewrite to run; `None` if there is none now.
    pub pick: Option<Pick>,
    /// If there is no pick: the sequence number that the oldest reader must reach before there can
    /// be one.
    pub oldest_reader_needed: Option<u64>,
    /// If there is no pick: snapshots of which one must be dropped before there can be one.
    pub blocking_snapshots: Vec<u64>,
}

/// Whether a table's metadata proves that it holds entries that no reader can see.
fn is_stale(table: &TableInfo, readers: &[u64]) -> bool {
    let oldest = readers.first().copied().unwrap_or(0);
    let all_see = table.sequence_max > 0 && table.sequence_max <= oldest;
    all_see || table.retained_for.iter().any(|states| within(readers, *states).is_empty())
}

/// Returns the `readers` within a closed interval of sequence numbers.
fn within(readers: &[u64], (first, last): (u64, u64)) -> &[u64] {
    let readers = &readers[readers.partition_point(|&reader| reader < first)..];
    &readers[..readers.partition_point(|&reader| reader <= last)]
}

/// Whether a table has enough garbage for an optional rewrite: many deletes, or entries that not
/// every reader saw when the table was written. A table that was only moved into the last level has
/// few of either kind.
fn is_worthwhile(table: &TableInfo) -> bool {
    let has_some = table.sequence_min == 0 || table.has_many_deletes();
    table.sequence_max > 0 && (has_some || !table.retained_for.is_empty())
}

/// Finds one table with garbage that no reader can see. `readers` are the sequence numbers that
/// readers can use.
pub fn pick_rewrite(view: &PickerInput, readers: &[u64]) -> BottommostRewrite {
    let mut found = BottommostRewrite::default();
    let mut retained_for = Vec::new();
    for table in view.level(LAST_LEVEL).iter().filter(|table| !table.busy && is_worthwhile(table)) {
        if is_stale(table, readers) {
            let pick = Some(rewrite(std::slice::from_ref(table)));
            return BottommostRewrite { pick, ..BottommostRewrite::default() };
        }
        found.oldest_reader_needed =
            Some(found.oldest_reader_needed.unwrap_or(u64::MAX).min(table.sequence_max));
        retained_for.extend_from_slice(table.retained_for);
    }
    found.blocking_snapshots = within_any(readers, retained_for);
    found
}

/// Returns the `readers` within any of the closed intervals, ascending, each once.
fn within_any(readers: &[u64], mut intervals: Vec<(u64, u64)>) -> Vec<u64> {
    intervals.sort_unstable();
    let mut held = Vec::new();
    for (first, last) in intervals {
        let after_held = held.last().map_or(first, |newest: &u64| first.max(newest + 1));
        held.extend_from_slice(within(readers, (after_held, last)));
    }
    held
}

/// Returns the first tables within `start..end` and after `resume_after` that are to be rewritten
/// for the reason `wanted`.
pub fn pick_in_range(
    view: &PickerInput,
    wanted: RewriteReason<'_>,
    (start, end): (Option<&[u8]>, Option<&[u8]>),
    resume_after: &ResumeKey,
) -> BottommostPick {
    let is_after = |table: &TableInfo| match resume_after {
        None => true,
        Some((key, true)) => table.smallest >= key.as_slice(),
        Some((key, false)) => table.smallest > key.as_slice(),
    };
    let tables = view.level(LAST_LEVEL);
    let within = |table: &TableInfo| table.span().is_within(start, end) && is_after(table);
    let first = tables.iter().position(within).unwrap_or(tables.len());
    let count = tables[first..].iter().take_while(|table| within(table)).count();
    let tables = &tables[first..first + count];
    let mut at = 0;
    while at < tables.len() {
        let group = group(&tables[at..], wanted, view.options.table_bytes);
        match group {
            [] => at += 1,
            _ if is_busy(view, group) => return BottommostPick::Blocked,
            _ => return BottommostPick::Run(rewrite(group)),
        }
    }
    BottommostPick::Done
}

/// Returns the longest prefix of `tables` to rewrite together; empty if the first table is not to
/// be rewritten.
fn group<'v, 'a>(
    tables: &'v [TableInfo<'a>],
    wanted: RewriteReason<'_>,
    table_bytes: u64,
) -> &'v [TableInfo<'a>] {
    let (tables_min, bytes_max) = match wanted {
        RewriteReason::Stale(_) => (1, table_bytes.saturating_mul(WIDENED_TABLES_MAX)),
        RewriteReason::Small => (2, table_bytes),
    };
    let is_wanted = |table: &TableInfo| match wanted {
        RewriteReason::Stale(readers) => is_stale(table, readers),
        RewriteReason::Small => true,
    };
    let (mut bytes, mut count) = (0u64, 0);
    for table in tables {
        bytes = bytes.saturating_add(table.bytes);
        if !is_wanted(table) || count > 0 && bytes > bytes_max {
            break;
        }
        count += 1;
    }
    if count < tables_min { &[] } else { &tables[..count] }
}

/// Whether a running compaction reads a table of `group` or can write between two tables of
/// `group`.
fn is_busy(view: &PickerInput, group: &[TableInfo]) -> bool {
    if group.iter().any(|table| table.busy) {
        return true;
    }
    let [first, .., last] = group else { return false };
    let span = first.span().union(last.span());
    let above = (0..LAST_LEVEL).flat_map(|level| view.level(level));
    above.filter(|table| table.busy).any(|table| table.span().overlaps(&span))
}

fn rewrite(tables: &[TableInfo]) -> Pick {
    let ids = tables.iter().map(|table| table.id).collect();
    let inputs = vec![(LAST_LEVEL, ids)];
    Pick { level: LAST_LEVEL, target_level: LAST_LEVEL, inputs, trivial_move: false, score: 0.0 }
}

/// Returns the end of a group, after which the next search starts.
pub fn resume_key_of(largest: &[u8], largest_is_exclusive: bool) -> ResumeKey {
    Some((largest.to_vec(), largest_is_exclusive))
}

#[cfg(test)]
mod tests;
