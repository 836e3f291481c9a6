//! Early flush: decides whether an active memtable is flushed before it is full.
//!
//! A flush lets a compaction drop the entries that the memtable hides, and frees WAL segments. What
//! the memtable hides is estimated from samples. Reasons for an early flush:
//! - The memtable hides many bytes in tables.
//! - While writers write: the memtable is large beside the tables, and half of it is garbage or
//!   hides as many bytes. So the WAL of a small store that is often overwritten stays small.
//! - At rest: the memtable is large.
//!
//! Small memtables of many keyspaces are [flushed together](super::joint_flush).

use std::time::Duration;

use crate::maintenance::compaction_jobs::hidden_entries_estimator::{
    is_hidden_whole, is_met, proportion, size_of,
};
use crate::state::store::{KeyspaceGarbage, VersionSizes};
use crate::state::write_rate_watch::QuietTimes;
use crate::super_version::{MemtableSlot, SuperVersion};
use crate::version::LiveTable;

/// Time without writes before a memtable is examined and hidden entries are compacted.
pub const QUIET_PERIOD: Duration = Duration::from_secs(2);
/// A memtable is flushed early if it hides one part in this number of all bytes: the first number
/// after [`QUIET_PERIOD`], the second while writers write.
const HIDING_SHARE: (u64, u64) = (6, 2);
/// A memtable that hides fewer bytes than this is not flushed for them.
const HIDING_BYTES_MIN: u64 = 256 << 10;
/// While writers write, a memtable of much garbage is flushed from this size on: one part in the
/// first number of the tables' bytes, and at least the second number.
const FLUSHED_BESIDE_WRITES: (u64, u64) = (16, 4 << 20);
/// Interval of flushes of memtables of much garbage, for each keyspace.
pub const BESIDE_WRITES_INTERVAL: Duration = Duration::from_secs(2);
/// In a store at rest a memtable is flushed from this size on: one part in the first number of the
/// tables' bytes, and at least the second number. The same limit applies to the gain of a joint
/// flush.
pub const FLUSHED_AT_REST: (u64, u64) = (32, 1 << 20);
/// Time without writes until a store is at rest: at least the first value, and a second for each
/// given number of table bytes. The wait keeps rewriting for little garbage rare.
pub const REST: (Duration, u64) = (Duration::from_secs(8), 8 << 20);
/// If comparing a memtable's range tombstones with tables takes more comparisons than this, the
/// tombstones count as hiding all bytes.
const COMPARED_MAX: usize = 1 << 14;

/// Moment of a decision.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// Time of the store's clock.
    pub now: Duration,
    /// Times without writes so far.
    pub times: QuietTimes,
    /// Earliest time of a flush beside writes for hidden bytes; `None` while an open snapshot can
    /// see these bytes.
    pub flush_from: Option<Duration>,
}

/// Result of [`next_step`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EarlyFlush {
    /// There is nothing to do before the next write.
    No,
    /// The memtable is examined after this further time.
    Later(Duration),
    /// The estimate of what the memtable hides must be made first.
    Estimate,
    /// The memtable is flushed.
    Now(FlushReason),
}

/// Reason of an early flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlushReason {
    /// No writer writes.
    Idle,
    /// The memtable hides many bytes in tables.
    HiddenBytes,
    /// Much of the memtable is garbage.
    OwnGarbage,
}

/// Decides whether the active memtable of a keyspace is flushed.
pub fn next_step(
    view: &SuperVersion,
    sizes: &VersionSizes,
    known: &KeyspaceGarbage,
    moment: Moment,
) -> EarlyFlush {
    let active = &*view.active;
    if active.is_empty() {
        return EarlyFlush::No;
    }
    let QuietTimes { silent_for, quiet_for } = moment.times;
    let is_quiet = quiet_for >= QUIET_PERIOD;
    let garbage = MemtableEstimate::of(active, known, silent_for >= QUIET_PERIOD);
    let ranges = HiddenByRanges::of(view, sizes, &garbage);
    let hidden = garbage.hidden_bytes.saturating_add(ranges.known).min(sizes.all.bytes);
    let rest = rest_period(sizes);
    let is_large = active.held_bytes() >= part_of(sizes.file_bytes, FLUSHED_AT_REST);
    if !is_quiet {
        return beside_writes(view, sizes, known, moment, (garbage, ranges));
    }
    if is_worth_flush(hidden, HIDING_SHARE.0, sizes) || is_large && quiet_for >= rest {
        return EarlyFlush::Now(FlushReason::Idle);
    }
    if garbage.is_stale && sizes.all.entries > 0 {
        return EarlyFlush::Estimate;
    }
    match is_large {
        true => EarlyFlush::Later(rest.saturating_sub(quiet_for)),
        false => EarlyFlush::No,
    }
}

fn beside_writes(
    view: &SuperVersion,
    sizes: &VersionSizes,
    known: &KeyspaceGarbage,
    moment: Moment,
    (garbage, ranges): (MemtableEstimate, HiddenByRanges),
) -> EarlyFlush {
    let (active, all) = (&*view.active, sizes.all.bytes);
    let quiet = QUIET_PERIOD.saturating_sub(moment.times.quiet_for);
    let Some(hiding_from) = moment.flush_from else { return EarlyFlush::Later(quiet) };
    let mut wait = quiet;
    // Without an estimate: as many bytes as the deletes can hide at most.
    let deleted = active.deletes().saturating_mul(sizes.entry_bytes_max);
    let hidden_point = if garbage.is_stale { deleted } else { garbage.hidden_bytes };
    let hidden = hidden_point.saturating_add(ranges.max).min(all);
    let held = active.held_bytes();
    let reasons = [
        (
            hiding_from,
            is_worth_flush(hidden, HIDING_SHARE.1, sizes),
            !garbage.is_stale || is_worth_flush(ranges.known, HIDING_SHARE.1, sizes),
            FlushReason::HiddenBytes,
        ),
        (
            known.flush_from,
            held >= part_of(all, FLUSHED_BESIDE_WRITES)
                && (garbage.is_stale || garbage.is_half_garbage),
            !garbage.is_stale,
            FlushReason::OwnGarbage,
        ),
    ];
    for (from, is_likely, is_known, reason) in reasons {
        match from.saturating_sub(moment.now) {
            _ if !is_likely => {}
            Duration::ZERO if is_known => return EarlyFlush::Now(reason),
            Duration::ZERO => return EarlyFlush::Estimate,
            delay => wait = wait.min(delay),
        }
    }
    EarlyFlush::Later(wait)
}

/// An estimate of what a memtable hides, for its present number of entries.
#[derive(Debug, Clone, Copy)]
pub struct MemtableEstimate {
    /// Bytes of entries in tables that the memtable's entries hide.
    pub hidden_bytes: u64,
    /// Bytes of long values that newer entries of the memtable hide.
    pub own_long_bytes: u64,
    /// Bytes of entries that newer entries of the memtable hide, without long values.
    pub own_bytes: u64,
    /// Bytes of the other entries, without long values.
    pub visible_bytes: u64,
    /// Bytes that range tombstones hide in tables that they hide in part.
    partly_hidden_bytes: u64,
    /// Whether half of the memtable is garbage or hides as much in tables.
    is_half_garbage: bool,
    /// Whether the memtable has many writes that the estimate does not cover; without writers, any.
    pub is_stale: bool,
}

impl MemtableEstimate {
    /// Returns the estimate from what is known of the keyspace. `is_silent` says that no writer
    /// writes.
    pub fn of(active: &MemtableSlot, known: &KeyspaceGarbage, is_silent: bool) -> MemtableEstimate {
        let (entries, ranges) = (active.memtable.entries(), active.range_deletes());
        let known = known.memtable.filter(|it| it.first_sequence == active.first_sequence());
        let is_missing = known.is_none();
        let known = known.unwrap_or_default();
        let is_outgrown =
            |now: u64, then: u64| now > if is_silent { then } else { then + then / 2 };
        let scaled = |bytes| proportion(bytes, entries, known.entries);
        MemtableEstimate {
            hidden_bytes: scaled(known.hidden_bytes),
            own_long_bytes: scaled(known.own_long_bytes),
            own_bytes: scaled(known.own_bytes),
            visible_bytes: scaled(known.visible_bytes),
            partly_hidden_bytes: proportion(known.partly_hidden_bytes, ranges, known.range_deletes),
            is_half_garbage: known.is_half_garbage,
            is_stale: is_missing && (entries > 0 || ranges > 0)
                || is_outgrown(entries, known.entries)
                || !is_missing && is_outgrown(ranges, known.range_deletes),
        }
    }
}

/// Time without writes after which a store is at rest.
pub fn rest_period(sizes: &VersionSizes) -> Duration {
    REST.0.max(Duration::from_secs(sizes.file_bytes / REST.1))
}

/// Returns one part in `share` of `bytes`, and at least `least`.
pub fn part_of(bytes: u64, (share, least): (u64, u64)) -> u64 {
    least.max(bytes / share)
}

/// Whether a memtable that hides `hidden` bytes in tables hides one part in `share` of all bytes.
fn is_worth_flush(hidden: u64, share: u64, sizes: &VersionSizes) -> bool {
    hidden >= HIDING_BYTES_MIN && hidden.saturating_mul(share) >= sizes.all.bytes
}

/// Bytes in tables that the active memtable's range tombstones hide.
#[derive(Debug, Clone, Copy, Default)]
pub struct HiddenByRanges {
    /// Bytes of tables that one range tombstone hides whole, and an estimate for the others, if it
    /// was made.
    pub known: u64,
    /// Upper bound; the same as `known` unless the estimate is stale.
    pub max: u64,
}

impl HiddenByRanges {
    /// Compares the range tombstones with the bounds of the tables.
    pub fn of(
        view: &SuperVersion,
        sizes: &VersionSizes,
        estimate: &MemtableEstimate,
    ) -> HiddenByRanges {
        let memtable = &view.active.memtable;
        if !memtable.has_tombstones() {
            return HiddenByRanges::default();
        }
        let tombstones_max = COMPARED_MAX / view.version.tables().count().max(1);
        if memtable.range_tombstones().nth(tombstones_max).is_some() {
            return HiddenByRanges { known: sizes.all.bytes, max: sizes.all.bytes };
        }
        let (mut whole, mut part) = (0u64, 0u64);
        for (_, table) in view.version.tables() {
            let bytes = size_of(table).bytes;
            match Overlap::of(&view.active, table) {
                Overlap::None => {}
                Overlap::Part => part = part.saturating_add(bytes),
                Overlap::Whole => whole = whole.saturating_add(bytes),
            }
        }
        let estimated = whole.saturating_add(part.min(estimate.partly_hidden_bytes));
        let max = if estimate.is_stale { whole.saturating_add(part) } else { estimated };
        HiddenByRanges { known: estimated, max }
    }
}

/// Overlap of a table with a memtable's range tombstones.
enum Overlap {
    None,
    Part,
    /// One range tombstone hides all keys of the table.
    Whole,
}

impl Overlap {
    fn of(active: &MemtableSlot, table: &LiveTable) -> Overlap {
        let mut overlap = Overlap::None;
        for range in active.memtable.range_tombstones() {
            if is_hidden_whole(table, range.start, range.end) {
                return Overlap::Whole;
            }
            if is_met(table, range.start, range.end) {
                overlap = Overlap::Part;
            }
        }
        overlap
    }
}
