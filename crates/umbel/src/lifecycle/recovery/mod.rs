//! Recovery: replays the WAL into the memtables, and flushes full memtables to tables.
//!
//! The state after recovery is the effect of a prefix of all writes. A segment whose end the
//! manifest knows must be complete. A segment without a known end can have a torn tail. The records
//! of later segments then come after a hole and do not count. If a later segment proves that the
//! torn segment was synced, the torn segment is damaged, which is an error.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use umbel_base::fail_point;
use umbel_base::{Error, Result, SequenceNumber, limits};
use umbel_env::{Access, Env};
use umbel_log::{ExpectedEnd, HEADER_BYTES, LogReader, ReadOutcome, Seal};

use crate::fs::filenames;
use crate::lifecycle::recovered_wal_copy::{self, RecordRange};
use crate::lifecycle::recovery_flush::RecoveryFlush;
use crate::state::keyspace_state::KeyspaceState;
use crate::state::write_batch::{self, LoggedWrite};
use crate::super_version::SuperVersion;
use crate::version::reserved_space;
use crate::version::version_edit::{ManifestState, encoded_bytes};
use crate::version::{LogState, TableContext};
use crate::wal::{self, OldSegment};

/// Result of replaying the WAL.
#[derive(Debug)]
pub struct ReplayResult {
    /// WAL segments that still hold unflushed writes.
    pub old_segments: Vec<OldSegment>,
    /// Last sequence number in use.
    pub last_sequence: SequenceNumber,
    /// Id of every segment that was read, and the offset at which its valid records end.
    pub segment_ends: Vec<(u64, u64)>,
}

/// Returns the newest sequence number in the tables; 0 without tables.
fn newest_in_tables(keyspaces: &[Arc<KeyspaceState>]) -> SequenceNumber {
    let in_tables = keyspaces.iter().flat_map(|keyspace| {
        let view = keyspace.super_version.acquire();
        view.version.tables().map(|(_, table)| table.meta.sequence_max).max()
    });
    in_tables.max().unwrap_or(0)
}

/// The sequence number after which new writes continue.
fn newest_sequence(stored: SequenceNumber, replayed: SequenceNumber) -> SequenceNumber {
    let newest = stored.max(replayed);
    fail_point!("recovery-reuse-sequence-numbers", |_| newest.saturating_sub(3));
    newest
}

/// Replays every live segment into the memtables of `keyspaces`. Notes in `state` where each
/// segment ends, which segments do not count and which are not needed any more. `recovery_flush`
/// writes entries beyond the memory limit to tables. If the open can write, records that are
/// possibly not durable are copied to a new segment.
pub fn replay(
    env: &Env,
    folder: &Path,
    state: &mut ManifestState,
    keyspaces: &[Arc<KeyspaceState>],
    recovery_flush: &mut RecoveryFlush<'_>,
) -> Result<ReplayResult> {
    let stored_through = newest_in_tables(keyspaces).max(state.last_sequence);
    let mut replayed_through = 0;
    let (mut old, mut ends) = (Vec::new(), Vec::new());
    let mut torn: Option<TornTail> = None;
    let mut unsynced = Vec::new();
    let by_id = keyspaces.iter().map(|it| (it.id, Arc::clone(it))).collect();
    for (id, log) in state.logs.clone() {
        let path = filenames::segment(folder, id);
        if let Some(earlier) = torn.take() {
            let mut target = ReplayTarget::new((keyspaces, &by_id), state, recovery_flush);
            let (still_torn, last) = earlier.at_end_of(env, &path, (id, log), &mut target)?;
            (torn, replayed_through) = (still_torn, replayed_through.max(last));
            if torn.is_some() {
                state.logs.remove(&id);
                ends.push((id, HEADER_BYTES));
                continue;
            }
        }
        let mut target = ReplayTarget::new((keyspaces, &by_id), state, recovery_flush);
        let (segment, reader) = replay_segment(env, &path, id, log, &mut target)?;
        replayed_through = replayed_through.max(segment.last_sequence);
        ends.push((id, segment.outcome.end));
        if log == LogState::Open {
            let ReadOutcome { end, sealed, checksum, durable_max, .. } = segment.outcome;
            if !sealed {
                let last_sequence = segment.last_sequence;
                torn = Some(TornTail { path: path.clone(), end, last_sequence, reader });
            }
            let known = match sealed {
                true => LogState::Sealed(Seal { len: end, checksum }),
                false => LogState::Recovered(end),
            };
            state.logs.insert(id, known);
            if durable_max > HEADER_BYTES {
                // A sync covers older segments first.
                unsynced.clear();
            }
            if segment.needed {
                unsynced.push(RecordRange { id, start: durable_max.max(HEADER_BYTES), end });
            }
        }
        if segment.needed {
            let bytes = segment.outcome.end;
            old.push(OldSegment::recovered(id, segment.last_sequence, bytes));
        } else {
            state.logs.remove(&id);
        }
    }
    let last_sequence = newest_sequence(stored_through, replayed_through);
    state.last_sequence = last_sequence;
    seal_tail((env, folder), state, keyspaces, recovery_flush, (&mut old, unsynced))?;
    Ok(ReplayResult { old_segments: old, last_sequence, segment_ends: ends })
}

/// Drops the segments whose writes are all in tables, and makes the `unsynced` records of the other
/// segments durable.
fn seal_tail(
    (env, folder): (&Env, &Path),
    state: &mut ManifestState,
    keyspaces: &[Arc<KeyspaceState>],
    recovery_flush: &mut RecoveryFlush<'_>,
    (old, mut unsynced): (&mut Vec<OldSegment>, Vec<RecordRange>),
) -> Result<()> {
    let (context, ids) = (recovery_flush.context(), recovery_flush.ids());
    if recovery_flush.add_to_state(state)? {
        // A segment all of whose writes are in tables is not needed any more.
        let first = keyspaces.iter().filter_map(|keyspace| keyspace.first_unflushed()).min();
        old.retain(|log| first.is_some_and(|first| log.last_sequence >= first));
        state.logs.retain(|id, _| old.iter().any(|log| log.id == *id));
        unsynced.retain(|stretch| state.logs.contains_key(&stretch.id));
    }
    unsynced.retain(|stretch| stretch.start < stretch.end);
    if let (Some(ids), false) = (ids, unsynced.is_empty()) {
        old.extend(rewrite_tail(env, folder, ids, context, &unsynced, state)?);
    }
    Ok(())
}

/// Truncates the segments after their valid records. The segment that was in use when a process
/// died has preallocated space after its records. The next open reads the same records.
pub fn truncate_segments(env: &Env, folder: &Path, ends: &[(u64, u64)]) -> Result<()> {
    for (id, end) in ends {
        let file = env.files.open(&filenames::segment(folder, *id), Access::ReadWrite)?;
        if file.len()? > *end && !file.has_other_names()? {
            file.set_len(*end)?;
        }
    }
    Ok(())
}

/// Copies the `unsynced` records, which are possibly not durable, into a new segment and returns
/// it. Notes in `state` that the original segments count only up to the first copied record.
fn rewrite_tail(
    env: &Env,
    folder: &Path,
    ids: &AtomicU64,
    context: &TableContext,
    unsynced: &[RecordRange],
    state: &mut ManifestState,
) -> Result<Option<OldSegment>> {
    // The copy must not take the space of the manifest, without which there is no open.
    let reserved = reserved_space::reserve_for(env, folder, encoded_bytes(&state.to_edits()));
    let copy =
        || recovered_wal_copy::copy_records(env, folder, ids, &context.hashers.secret, unsynced);
    let copy = match reserved.and_then(|()| copy()) {
        Ok(copy) => copy,
        // A store that cannot be opened for lack of disk space could never free any. A sync in
        // place is as good as the copy, unless a sync of these very files failed before.
        Err(Error::DiskFull { .. }) => {
            sync_in_place(env, folder, unsynced)?;
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    for stretch in unsynced {
        state.logs.insert(stretch.id, LogState::Recovered(stretch.start));
    }
    state.logs.insert(copy.id, LogState::Sealed(copy.sealed));
    Ok(Some(OldSegment::recovered(copy.id, state.last_sequence, copy.sealed.len)))
}

fn sync_in_place(env: &Env, folder: &Path, logs: &[RecordRange]) -> Result<()> {
    logs.iter().try_for_each(|log| {
        env.files.open(&filenames::segment(folder, log.id), Access::ReadWrite)?.sync()
    })
}

/// All keyspaces, as a list and by id.
type KeyspaceLists<'a> = (&'a [Arc<KeyspaceState>], &'a HashMap<u32, Arc<KeyspaceState>>);

struct ReplayTarget<'a, 'b> {
    keyspaces: &'a [Arc<KeyspaceState>],
    keyspaces_by_id: &'a HashMap<u32, Arc<KeyspaceState>>,
    /// Ids of the keyspaces whose memtables the current record filled.
    full: BTreeSet<u32>,
    state: &'a ManifestState,
    context: &'a TableContext,
    recovery_flush: &'a mut RecoveryFlush<'b>,
}

/// A segment that had no end record when it was read.
struct TornTail {
    path: PathBuf,
    end: u64,
    last_sequence: SequenceNumber,
    reader: LogReader,
}

impl TornTail {
    /// Decides by the next segment, at `path`, whether this segment is really torn. If so, returns
    /// this segment, and the next one does not count. Otherwise a writer of another process ended
    /// this segment meanwhile, and the result is its last sequence number.
    fn at_end_of(
        self,
        env: &Env,
        path: &Path,
        (id, log): (u64, LogState),
        target: &mut ReplayTarget<'_, '_>,
    ) -> Result<(Option<TornTail>, SequenceNumber)> {
        let reader = open_segment(env, path, id, log, target.context)?;
        match check_never_synced(reader, path, log, &self) {
            Ok(()) => Ok((Some(self), 0)),
            Err(damage) if target.recovery_flush.ids().is_some() => Err(damage),
            Err(damage) => Ok((None, self.check_tail(damage, target)?)),
        }
    }

    /// Replays records that a writer of another process has appended to this segment meanwhile. A
    /// writer ends a segment before it begins the next, and the next segment exists. So this
    /// segment has an end record now, or the `damage` is real. Returns the segment's last sequence
    /// number.
    fn check_tail(
        mut self,
        damage: Error,
        target: &mut ReplayTarget<'_, '_>,
    ) -> Result<SequenceNumber> {
        if !self.reader.resume()? {
            return Err(damage);
        }
        let (path, last) = (&self.path, self.last_sequence);
        let segment = read_records(&mut self.reader, path, LogState::Open, last, target)?;
        if segment.outcome.sealed { Ok(segment.last_sequence) } else { Err(damage) }
    }
}

struct SegmentReplay {
    outcome: ReadOutcome,
    last_sequence: SequenceNumber,
    needed: bool,
}

fn open_segment(
    env: &Env,
    path: &Path,
    id: u64,
    log: LogState,
    context: &TableContext,
) -> Result<LogReader> {
    if !env.files.exists(path)? {
        let reason = "the manifest names this log, but the file is missing";
        return Err(Error::corruption(path, 0, reason));
    }
    let expectation = match log {
        LogState::Sealed(sealed) => ExpectedEnd::Sealed(sealed),
        LogState::Open | LogState::Recovered(_) => ExpectedEnd::Open,
    };
    wal::read(env, path, &context.hashers.secret, id, expectation)
}

fn replay_segment(
    env: &Env,
    path: &Path,
    id: u64,
    log: LogState,
    target: &mut ReplayTarget<'_, '_>,
) -> Result<(SegmentReplay, LogReader)> {
    let mut reader = open_segment(env, path, id, log, target.context)?;
    let segment = read_records(&mut reader, path, log, 0, target)?;
    Ok((segment, reader))
}

/// Replays the records from the reader's position on. `last_sequence` is the sequence number of the
/// last record before that position.
fn read_records(
    reader: &mut LogReader,
    path: &Path,
    log: LogState,
    mut last_sequence: SequenceNumber,
    target: &mut ReplayTarget<'_, '_>,
) -> Result<SegmentReplay> {
    let until = match log {
        LogState::Recovered(end) => end,
        LogState::Open | LogState::Sealed(_) => u64::MAX,
    };
    let mut needed = false;
    while let Some(record) = reader.next()? {
        if record.offset >= until {
            break;
        }
        if recovered_wal_copy::begins_copy(&record) {
            continue;
        }
        let (offset, first) = (record.offset, record.sequence);
        let writes = write_batch::decode(record.payload).map_err(|at| {
            let reason = format!(
                "byte {at} of this record's payload is not the start of a known \
                                  operation"
            );
            Error::corruption(path, offset, reason)
        })?;
        let last = first.saturating_add(writes.len() as u64 - 1);
        if first <= last_sequence || last > limits::SEQUENCE_MAX {
            let reason = "the record's sequence numbers are used already or over the limit";
            return Err(Error::corruption(path, offset, reason));
        }
        for (sequence, write) in (first..=last).zip(&writes) {
            needed |= target.apply(sequence, write)?;
            last_sequence = sequence;
        }
        target.freeze_full_memtables();
    }
    let mut outcome = reader.outcome();
    if let LogState::Recovered(end) = log {
        if outcome.end < end {
            let reason = format!("the log ends here, but was read up to {end} by an earlier open");
            return Err(Error::corruption(path, outcome.end, reason));
        }
        outcome.end = end;
    }
    Ok(SegmentReplay { outcome, last_sequence, needed })
}

impl<'a, 'b> ReplayTarget<'a, 'b> {
    fn new(
        (keyspaces, keyspaces_by_id): KeyspaceLists<'a>,
        state: &'a ManifestState,
        recovery_flush: &'a mut RecoveryFlush<'b>,
    ) -> ReplayTarget<'a, 'b> {
        let (context, full) = (recovery_flush.context(), BTreeSet::new());
        ReplayTarget { keyspaces, keyspaces_by_id, full, state, context, recovery_flush }
    }

    /// Puts a write into its memtable; `false` where it is in a table already or its keyspace was
    /// dropped.
    fn apply(&mut self, sequence: SequenceNumber, write: &LoggedWrite<'_>) -> Result<bool> {
        let Some(record) = self.state.keyspaces.get(&write.keyspace) else { return Ok(false) };
        if sequence <= record.flushed_through {
            return Ok(false);
        }
        let Some(keyspace) = self.keyspaces_by_id.get(&write.keyspace) else { return Ok(false) };
        let view = keyspace.super_version.load();
        self.insert(keyspace, &view, sequence, write);
        if view.active.is_full(keyspace.memtable_bytes_max()) {
            self.full.insert(write.keyspace);
        }
        drop(view);
        self.recovery_flush.note(
            self.state,
            self.keyspaces,
            sequence,
            write.key.len() + write.value.len(),
        )?;
        Ok(true)
    }

    /// Freezes the memtables that the last record filled. A record is one batch, which a commit
    /// does not spread over several memtables either.
    fn freeze_full_memtables(&mut self) {
        for id in std::mem::take(&mut self.full) {
            let Some(keyspace) = self.keyspaces_by_id.get(&id) else { continue };
            if keyspace.has_full_memtable() {
                keyspace.super_version.freeze(&keyspace.options());
            }
        }
    }

    fn insert(
        &self,
        keyspace: &KeyspaceState,
        view: &SuperVersion,
        sequence: SequenceNumber,
        write: &LoggedWrite<'_>,
    ) {
        match write.action.kind() {
            Some(kind) => {
                if let Some(pointer) = write.blob() {
                    view.active.add_blob(self.context.blobs.acquire(&pointer));
                }
                let hash = keyspace.hash(write.key);
                view.active.insert(write.key, sequence, kind, write.value, hash);
                keyspace.existence.note_replayed(sequence, kind, hash);
            }
            None => view.active.delete_range(write.key, write.value, sequence),
        }
    }
}

/// Returns an error if the segment at `path`, which follows the torn segment `earlier`, was synced.
/// A sync covers older segments first, so the torn segment was complete once and is damaged.
fn check_never_synced(
    mut reader: LogReader,
    path: &Path,
    log: LogState,
    earlier: &TornTail,
) -> Result<()> {
    while reader.next()?.is_some() {}
    let outcome = reader.outcome();
    if log == LogState::Open && outcome.durable_max <= HEADER_BYTES {
        return Ok(());
    }
    let reason = format!(
        "the log is truncated here, although the later log {} was synced, which happens only after \
         this one",
        path.display()
    );
    Err(Error::corruption(&earlier.path, earlier.end, reason))
}

#[cfg(test)]
mod tests;
