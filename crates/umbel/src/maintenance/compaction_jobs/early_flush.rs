//! Early flush: decides whether an active memtable is flushed before it is full.
//!
//! A flush lets a compaction drop the entries that the memtable hides, and frees WAL segments. What
//! the memtable hides is estimated from samples. Reasons for an early flush:
//! - The memtable hides many bytes in tables.
//! - While writers write: the memtable is large beside the tables, and half of it is garbage or
//!   hides as many bytes. So the WAL of a small store that is often overwritten stays small.
//! - At rest: the memtable is large, or small memtables keep large WAL segments.

use std::sync::Arc;
use std::time::Duration;

use crate::maintenance::compaction_jobs::hidden_entries_estimator::{proportion, size_of};
use crate::state::keyspace_state::KeyspaceState;
use crate::state::store::{KeyspaceGarbage, Store, VersionSizes};
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
/// tables' bytes, and at least the second number. The same limit applies to WAL space that only
/// small memtables keep.
const FLUSHED_AT_REST: (u64, u64) = (32, 1 << 20);
/// While writers write, memtables that keep WAL space are flushed from this number of bytes on: one
/// part in the first number of the tables' bytes, and at least the second number.
const WAL_BESIDE_WRITES: (u64, u64) = (8, 8 << 20);
/// Time without writes until a store is at rest: at least the first value, and a second for each
/// given number of table bytes. The wait keeps rewriting for little garbage rare.
const REST: (Duration, u64) = (Duration::from_secs(8), 8 << 20);
/// If comparing a memtable's range tombstones with tables takes more comparisons than this, the
/// tombstones count as hiding all bytes.
const COMPARED_MAX: usize = 1 << 14;
/// WAL space that is worth as much as the table of one keyspace that a flush writes, in bytes.
const TABLE_COST: u64 = 64 << 10;

/// Moment of a decision.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// Time of the store's clock.
    pub now: Duration,
    /// Time without writes so far.
    pub quiet_for: Duration,
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
    let garbage = MemtableEstimate::of(active, known);
    let ranges = hidden_by_ranges_max(view, sizes);
    let hidden = garbage.hidden_bytes.saturating_add(ranges).min(sizes.all.bytes);
    let rest = rest_period(sizes);
    let is_large = active.held_bytes() >= part_of(sizes.file_bytes, FLUSHED_AT_REST);
    if moment.quiet_for < QUIET_PERIOD {
        return beside_writes(view, sizes, known, moment, (garbage, ranges));
    }
    if is_worth_flush(hidden, HIDING_SHARE.0, sizes) || is_large && moment.quiet_for >= rest {
        return EarlyFlush::Now(FlushReason::Idle);
    }
    if garbage.is_stale && sizes.all.entries > 0 {
        return EarlyFlush::Estimate;
    }
    match is_large {
        true => EarlyFlush::Later(rest.saturating_sub(moment.quiet_for)),
        false => EarlyFlush::No,
    }
}

fn beside_writes(
    view: &SuperVersion,
    sizes: &VersionSizes,
    known: &KeyspaceGarbage,
    moment: Moment,
    (garbage, ranges): (MemtableEstimate, u64),
) -> EarlyFlush {
    let (active, all) = (&*view.active, sizes.all.bytes);
    let quiet = QUIET_PERIOD.saturating_sub(moment.quiet_for);
    let Some(hiding_from) = moment.flush_from else { return EarlyFlush::Later(quiet) };
    let mut wait = quiet;
    // Without an estimate: as many bytes as the deletes can hide at most.
    let deleted = active.deletes().saturating_mul(sizes.entry_bytes_max);
    let hidden_point = if garbage.is_stale { deleted } else { garbage.hidden_bytes };
    let hidden = hidden_point.saturating_add(ranges).min(all);
    let held = active.held_bytes();
    let reasons = [
        (
            hiding_from,
            is_worth_flush(hidden, HIDING_SHARE.1, sizes),
            !garbage.is_stale || is_worth_flush(ranges, HIDING_SHARE.1, sizes),
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
struct MemtableEstimate {
    hidden_bytes: u64,
    is_half_garbage: bool,
    /// Whether the memtable has many entries that the estimate does not cover.
    is_stale: bool,
}

impl MemtableEstimate {
    fn of(active: &MemtableSlot, known: &KeyspaceGarbage) -> MemtableEstimate {
        let entries = active.memtable.entries();
        let known = known.memtable.filter(|it| it.first_sequence == active.first_sequence());
        let Some(known) = known else {
            let is_stale = entries > 0;
            return MemtableEstimate { hidden_bytes: 0, is_half_garbage: false, is_stale };
        };
        MemtableEstimate {
            hidden_bytes: proportion(known.hidden_bytes, entries, known.entries),
            is_half_garbage: known.is_half_garbage,
            is_stale: entries > known.entries + known.entries / 2,
        }
    }
}

/// Time without writes after which a store is at rest.
pub fn rest_period(sizes: &VersionSizes) -> Duration {
    REST.0.max(Duration::from_secs(sizes.file_bytes / REST.1))
}

fn part_of(bytes: u64, (share, least): (u64, u64)) -> u64 {
    least.max(bytes / share)
}

/// Whether a memtable that hides `hidden` bytes in tables hides one part in `share` of all bytes.
fn is_worth_flush(hidden: u64, share: u64, sizes: &VersionSizes) -> bool {
    hidden >= HIDING_BYTES_MIN && hidden.saturating_mul(share) >= sizes.all.bytes
}

/// Upper bound of the bytes in tables that the active memtable's range tombstones hide.
fn hidden_by_ranges_max(view: &SuperVersion, sizes: &VersionSizes) -> u64 {
    let memtable = &view.active.memtable;
    if !memtable.has_tombstones() {
        return 0;
    }
    let tombstones_max = COMPARED_MAX / view.version.tables().count().max(1);
    if memtable.range_tombstones().nth(tombstones_max).is_some() {
        return sizes.all.bytes;
    }
    let is_met = |table: &LiveTable| {
        memtable.range_tombstones().any(|range| {
            range.start <= table.meta.largest.as_slice()
                && table.meta.smallest.as_slice() < range.end
        })
    };
    let met = view.version.tables().filter(|(_, table)| is_met(table));
    met.fold(0u64, |sum, (_, table)| sum.saturating_add(size_of(table).bytes))
}

/// Result of [`wal_holders`].
#[derive(Debug)]
pub enum WalHolders {
    /// There is nothing to do before the next write.
    None,
    /// The WAL is examined after this further time.
    Later(Duration),
    /// Keyspaces to flush together.
    Flush(Vec<Arc<KeyspaceState>>),
}

/// Finds keyspaces whose memtables keep much WAL space although they have little data.
///
/// These are the keyspaces with the oldest unflushed writes. Their number is chosen so that the
/// flush frees the most, beside what it writes. While writers write, it writes at most half of what
/// it frees. `file_bytes` returns the bytes of all tables.
pub fn wal_holders(
    store: &Store,
    keyspaces: &[&Arc<KeyspaceState>],
    file_bytes: impl FnOnce() -> u64,
    quiet_for: Duration,
) -> WalHolders {
    // A writer that holds the lock writes: the next search is soon.
    let Some(state) = store.try_commit_lock() else { return WalHolders::Later(QUIET_PERIOD) };
    let (old, live): (Vec<_>, u64) = (state.wal.old_sizes().collect(), state.wal.live_bytes());
    drop(state);
    if live < FLUSHED_AT_REST.1 {
        return WalHolders::None;
    }
    let mut unflushed = Vec::new();
    for keyspace in keyspaces.iter().filter(|keyspace| keyspace.uses_wal()) {
        let view = keyspace.super_version.acquire();
        if !view.frozen.is_empty() {
            return WalHolders::None;
        }
        if !view.active.is_empty() {
            let cost = view.active.memtable.bytes() as u64 + TABLE_COST;
            unflushed.push((view.active.first_sequence(), cost, Arc::clone(keyspace)));
        }
    }
    let is_at_rest = quiet_for >= REST.0;
    let gain_min =
        part_of(file_bytes(), if is_at_rest { FLUSHED_AT_REST } else { WAL_BESIDE_WRITES });
    unflushed.sort_unstable_by_key(|(first, ..)| *first);
    let mut segments = old.into_iter().peekable();
    let (mut freed, mut cost, mut best) = (0, 0, (0, 0));
    for (index, (_, bytes, _)) in unflushed.iter().enumerate() {
        cost += bytes;
        let next_needed = unflushed.get(index + 1).map(|(first, ..)| *first);
        while let Some((_, bytes)) =
            segments.next_if(|(last, _)| next_needed.is_none_or(|needed| *last < needed))
        {
            freed += bytes;
        }
        // After a flush of all, the current segment is freed, too.
        freed = if next_needed.is_none() { live } else { freed };
        let is_cheap = is_at_rest || cost <= freed / 2;
        let gain = if is_cheap { freed.saturating_sub(cost) } else { 0 };
        best = best.max((gain, index + 1));
    }
    if best.0 < gain_min {
        return if is_at_rest { WalHolders::None } else { WalHolders::Later(REST.0 - quiet_for) };
    }
    unflushed.truncate(best.1);
    WalHolders::Flush(unflushed.into_iter().map(|(.., keyspace)| keyspace).collect())
}
