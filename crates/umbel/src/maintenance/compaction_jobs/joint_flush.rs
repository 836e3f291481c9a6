//! Joint flush: decides which keyspaces' active memtables are flushed together, because together
//! they keep much space.
//!
//! Memtables keep space in three ways:
//! - All keyspaces share the WAL. Its oldest segments stay until the keyspaces with the oldest
//!   unflushed writes are flushed.
//! - Entries in tables that a memtable hides stay until a flush of it and a compaction.
//! - Long values that newer entries of the same memtable hide stay until it is flushed.
//!
//! A flush writes the visible entries, and a table for each keyspace. The keyspaces are chosen so
//! that the flush frees the most beside what it writes. What a memtable hides is an estimate from
//! samples. It is made only if the keyspace would be chosen without it.

use std::sync::Arc;
use std::time::Duration;

use umbel_base::SequenceNumber;

use crate::maintenance::compaction_jobs::early_flush::{
    FLUSHED_AT_REST, HiddenByRanges, MemtableEstimate, QUIET_PERIOD, REST, part_of,
};
use crate::maintenance::compaction_jobs::version_sizes::known_sizes;
use crate::state::keyspace_state::KeyspaceState;
use crate::state::store::{GarbageState, Store, VersionSizes};
use crate::state::write_rate_watch::QuietTimes;
use crate::super_version::SuperVersion;

/// While writers write, a joint flush gains at least this number of bytes: one part in the first
/// number of the tables' bytes, and at least the second number.
const GAIN_BESIDE_WRITES: (u64, u64) = (8, 8 << 20);
/// Space that is worth as much as the table of a keyspace, which a flush writes and syncs: bytes at
/// rest, and bytes while writers write.
const TABLE_COST: (u64, u64) = (8 << 10, 32 << 10);

/// Moment of a decision.
#[derive(Debug, Clone, Copy)]
pub struct JointMoment {
    /// Time of the store's clock.
    pub now: Duration,
    /// Times without writes so far.
    pub times: QuietTimes,
    /// Whether a snapshot is open. It may see all hidden entries, so that a flush frees only WAL
    /// space.
    pub is_snapshot_held: bool,
}

/// Result of [`next_step`].
#[derive(Debug)]
pub enum JointFlush {
    /// There is nothing to do before the next write.
    None,
    /// The memtables are examined after this further time.
    Later(Duration),
    /// The estimate of what the active memtable of this keyspace hides must be made first.
    Estimate(Arc<KeyspaceState>),
    /// Keyspaces to flush together.
    Flush(Vec<Arc<KeyspaceState>>),
}

/// Decides which keyspaces are flushed together. While writers write, the flush writes at most half
/// of what it frees.
pub fn next_step(
    store: &Store,
    keyspaces: &[&Arc<KeyspaceState>],
    garbage: &mut GarbageState,
    moment: JointMoment,
) -> JointFlush {
    // A writer that holds the lock writes: the next search is soon.
    let Some(state) = store.try_commit_lock() else { return JointFlush::Later(QUIET_PERIOD) };
    let wal = WalSizes { old: state.wal.old_sizes().collect(), live_bytes: state.wal.live_bytes() };
    drop(state);
    let (mut candidates, mut table_bytes) = (Vec::new(), 0u64);
    for keyspace in keyspaces {
        let view = keyspace.super_version.acquire();
        let sizes = known_sizes(keyspace, &view.version, garbage);
        table_bytes = table_bytes.saturating_add(sizes.all.bytes);
        if !keyspace.uses_wal() {
            continue;
        }
        if !view.frozen.is_empty() {
            return JointFlush::None;
        }
        if !view.active.is_empty() {
            candidates.push(Candidate::of(keyspace, &view, &sizes, garbage, moment));
        }
    }
    let is_at_rest = moment.times.quiet_for >= REST.0;
    let gain_min =
        part_of(table_bytes, if is_at_rest { FLUSHED_AT_REST } else { GAIN_BESIDE_WRITES });
    let writes_max = |freed: u64| if is_at_rest { freed } else { freed / 2 };
    candidates.sort_unstable_by_key(|candidate| candidate.first_sequence);
    let chosen = choose(&candidates, &wal, gain_min, writes_max);
    let mut chosen = chosen.iter().filter_map(|index| candidates.get(*index)).peekable();
    if chosen.peek().is_none() {
        // At rest less gain is enough.
        return match is_at_rest {
            true => JointFlush::None,
            false => JointFlush::Later(REST.0 - moment.times.quiet_for),
        };
    }
    match chosen.clone().find(|candidate| candidate.is_stale) {
        Some(unknown) => JointFlush::Estimate(Arc::clone(&unknown.keyspace)),
        None => JointFlush::Flush(chosen.map(|it| Arc::clone(&it.keyspace)).collect()),
    }
}

/// Bytes of the WAL's segments.
#[derive(Debug)]
struct WalSizes {
    /// Newest sequence number and bytes of each old segment, oldest first.
    old: Vec<(SequenceNumber, u64)>,
    /// Bytes of all segments with unflushed writes.
    live_bytes: u64,
}

/// A keyspace with unflushed writes.
#[derive(Debug)]
struct Candidate<K> {
    keyspace: K,
    first_sequence: SequenceNumber,
    /// Bytes that a flush writes, and the cost of its table.
    written: u64,
    /// Bytes that a flush frees outside of the WAL, with the compaction after it.
    freed: u64,
    /// Whether the estimate is missing: `written` is at least, and `freed` at most the value here.
    is_stale: bool,
}

impl Candidate<Arc<KeyspaceState>> {
    fn of(
        keyspace: &Arc<KeyspaceState>,
        view: &SuperVersion,
        sizes: &VersionSizes,
        garbage: &mut GarbageState,
        moment: JointMoment,
    ) -> Candidate<Arc<KeyspaceState>> {
        let active = &*view.active;
        let is_silent = moment.times.silent_for >= QUIET_PERIOD;
        let is_at_rest = moment.times.quiet_for >= REST.0;
        let known = garbage.keyspaces.entry(keyspace.id).or_default();
        let estimate = MemtableEstimate::of(active, known, is_silent);
        let table_cost = if is_at_rest { TABLE_COST.0 } else { TABLE_COST.1 };
        let (visible, hidden, long) = match estimate.is_stale {
            false => (estimate.visible_bytes, estimate.hidden_bytes, estimate.own_long_bytes),
            true => {
                // Writers overwrite about as much as they write; deletes may hide more.
                let hiding = if is_silent { active.memtable.entries() } else { active.deletes() };
                (0, hiding.saturating_mul(sizes.entry_bytes_max), active.long_bytes())
            }
        };
        // A compaction must follow, for which there is a minimum interval while writers write.
        let is_early = !is_at_rest && moment.now < known.beside_writes_from.hidden_flush;
        let (kept, freed) = match (moment.is_snapshot_held, is_early) {
            (true, _) => (estimate.own_bytes, 0),
            (false, true) => (0, long),
            (false, false) => {
                let ranges = HiddenByRanges::of(view, sizes, &estimate).max;
                let hidden = hidden.saturating_add(ranges).min(sizes.all.bytes);
                (0, hidden.saturating_add(long))
            }
        };
        Candidate {
            keyspace: Arc::clone(keyspace),
            first_sequence: active.first_sequence(),
            written: visible.saturating_add(kept).saturating_add(table_cost),
            freed,
            is_stale: estimate.is_stale,
        }
    }
}

/// Returns the indexes of the candidates whose flush gains the most, and at least `gain_min`; none
/// without such a flush. `writes_max` returns how much it may write for what it frees. REQUIRES:
/// the candidates are in the order of their first writes.
fn choose<K>(
    candidates: &[Candidate<K>],
    wal: &WalSizes,
    gain_min: u64,
    writes_max: impl Fn(u64) -> u64,
) -> Vec<usize> {
    // Some are worth a flush without the WAL.
    let (mut chosen, others): (Vec<_>, Vec<_>) =
        candidates.iter().enumerate().partition(|(_, it)| it.freed > it.written);
    let sum = |bytes: fn(&Candidate<K>) -> u64| {
        chosen.iter().map(|(_, it)| bytes(it)).fold(0, u64::saturating_add)
    };
    let (mut written, mut freed) = (sum(|it| it.written), sum(|it| it.freed));
    let mut segments = wal.old.iter().peekable();
    let mut of_wal = 0;
    let mut best: Option<(u64, usize)> = None;
    for count in 0..=others.len() {
        if let Some((_, last)) = count.checked_sub(1).and_then(|last| others.get(last)) {
            written = written.saturating_add(last.written);
            freed = freed.saturating_add(last.freed);
        }
        // The other keyspaces still need the segments with their writes.
        let needed = others.get(count).map(|(_, next)| next.first_sequence);
        while let Some((_, bytes)) =
            segments.next_if(|(last, _)| needed.is_none_or(|needed| *last < needed))
        {
            of_wal += bytes;
        }
        // After a flush of all, the current segment is freed, too.
        of_wal = if needed.is_none() { wal.live_bytes } else { of_wal };
        let all = freed.saturating_add(of_wal);
        let gain = all.saturating_sub(written);
        let is_best = best.is_none_or(|(best, _)| gain > best);
        if written <= writes_max(all) && gain >= gain_min && is_best {
            best = Some((gain, count));
        }
    }
    let Some((_, count)) = best else { return Vec::new() };
    chosen.extend(others.into_iter().take(count));
    chosen.into_iter().map(|(index, _)| index).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;

    fn candidate(first_sequence: u64, written: u64, freed: u64) -> Candidate<()> {
        Candidate { keyspace: (), first_sequence, written, freed, is_stale: false }
    }

    /// Three old segments of 4 MiB with 100 writes each, and a current one of 2 MiB.
    fn wal() -> WalSizes {
        WalSizes { old: vec![(100, 4 * MIB), (200, 4 * MIB), (300, 4 * MIB)], live_bytes: 14 * MIB }
    }

    #[test]
    fn keyspaces_with_the_oldest_writes_are_chosen() {
        let table = 8 * KIB;
        let mut candidates = vec![candidate(1, table, 0), candidate(150, table, 0)];
        assert_eq!(choose(&candidates, &wal(), MIB, |freed| freed), [0, 1], "all free all");
        candidates.extend((0..400).map(|at| candidate(310 + at, table, 0)));
        assert_eq!(choose(&candidates, &wal(), MIB, |freed| freed), [0, 1], "new writes stay");
        assert_eq!(choose(&candidates, &wal(), 13 * MIB, |freed| freed), [0; 0]);
        let costly = [candidate(1, 13 * MIB, 0)];
        assert_eq!(choose(&costly, &wal(), MIB, |freed| freed), [0]);
        assert_eq!(choose(&costly, &wal(), MIB, |freed| freed / 2), [0; 0]);
    }

    /// Story: each of a thousand keyspaces was flushed at rest to free a MiB of WAL.
    #[test]
    fn many_keyspaces_are_not_flushed_for_little_wal_space() {
        let many: Vec<_> = (0..1000).map(|at| candidate(1 + at, 8 * KIB, 0)).collect();
        let wal = WalSizes { old: Vec::new(), live_bytes: 8 * MIB };
        assert_eq!(choose(&many, &wal, MIB, |freed| freed), [0; 0]);
    }

    /// Story: each keyspace hid less than was worth a flush; together they hid many bytes.
    #[test]
    fn keyspaces_that_hide_more_than_they_write_are_chosen_together() {
        let hiding: Vec<_> = (0..20).map(|at| candidate(400 + at, 8 * KIB, 100 * KIB)).collect();
        let mut candidates = vec![candidate(1, 20 * MIB, 0)];
        candidates.extend(hiding);
        assert_eq!(choose(&candidates, &wal(), MIB, |freed| freed), Vec::from_iter(1..=20));
        assert_eq!(choose(&candidates, &wal(), 2 * MIB, |freed| freed), [0; 0]);
    }

    #[test]
    fn nothing_is_chosen_without_candidates_or_gain() {
        assert_eq!(choose::<()>(&[], &wal(), MIB, |freed| freed), [0; 0]);
        assert_eq!(choose(&[candidate(1, 0, MIB)], &wal(), 16 * MIB, |freed| freed), [0; 0]);
    }
}
