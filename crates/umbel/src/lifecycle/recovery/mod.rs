//! Replaying the write-ahead log into the memtables, and into tables where these are full.
//!
//! The state after recovery is the effect of a prefix of all writes. A segment whose end is known
//! must be whole. Of the others the last may have a torn tail; a torn segment with a successor
//! means that the successor's records come after a hole and do not count, unless one of them shows
//! that the segment before it had been durable: then it was damaged, which is an error.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use umbel_base::{Error, Result, SequenceNumber, limits};
use umbel_env::{Access, Env};
use umbel_log::{Expectation, HEADER_BYTES, LogReader, Outcome, Sealed};

use crate::keyspace_core::KeyspaceCore;
use crate::memory::View;
use crate::names;
use crate::relog::{self, Stretch};
use crate::reserved_space;
use crate::spill::Spill;
use crate::version::edit::{State, encoded_bytes};
use crate::version::{LogState, TableContext};
use crate::wal::{self, OldSegment};
use crate::writes::{self, Logged};

/// What the logs came to.
#[derive(Debug)]
pub struct Replayed {
    /// Segments that still hold unflushed writes.
    pub old: Vec<OldSegment>,
    /// The last sequence number taken.
    pub last_sequence: SequenceNumber,
    /// Every log that was read, by its id, and where the records end that count.
    pub ends: Vec<(u64, u64)>,
}

/// The newest sequence number in the tables; 0 where there is none.
fn newest_in_tables(keyspaces: &[Arc<KeyspaceCore>]) -> SequenceNumber {
    let in_tables = keyspaces.iter().flat_map(|keyspace| {
        let view = keyspace.view.hold();
        view.version.tables().map(|(_, table)| table.meta.sequence_max).max()
    });
    in_tables.max().unwrap_or(0)
}

/// Replays every live log into the memtables of `keyspaces` and notes in `state` where the logs
/// ended, which ones do not count and which ones are no longer needed. What does not fit into
/// memory goes to tables through `spill`. Where that may write, what may not be durable is written
/// to a new log.
pub fn replay(
    env: &Env,
    folder: &Path,
    state: &mut State,
    keyspaces: &[Arc<KeyspaceCore>],
    spill: &mut Spill<'_>,
) -> Result<Replayed> {
    let context = spill.context();
    let mut last_sequence = newest_in_tables(keyspaces).max(state.last_sequence);
    let (mut old, mut ends) = (Vec::new(), Vec::new());
    let mut torn: Option<Torn> = None;
    let mut doubtful = Vec::new();
    for (id, log) in state.logs.clone() {
        let path = names::log(folder, id);
        if let Some(earlier) = torn.take() {
            let mut target = Target { keyspaces, state, context, spill };
            let (still_torn, last) = earlier.before(env, &path, (id, log), &mut target)?;
            (torn, last_sequence) = (still_torn, last_sequence.max(last));
            if torn.is_some() {
                state.logs.remove(&id);
                ends.push((id, HEADER_BYTES));
                continue;
            }
        }
        let mut target = Target { keyspaces, state, context, spill };
        let (segment, reader) = replay_one(env, &path, id, log, &mut target)?;
        last_sequence = last_sequence.max(segment.last_sequence);
        ends.push((id, segment.outcome.end));
        if log == LogState::Open {
            let Outcome { end, sealed, checksum, durable_max, .. } = segment.outcome;
            if !sealed {
                let last_sequence = segment.last_sequence;
                torn = Some(Torn { path: path.clone(), end, last_sequence, reader });
            }
            let known = match sealed {
                true => LogState::Sealed(Sealed { len: end, checksum }),
                false => LogState::Recovered(end),
            };
            state.logs.insert(id, known);
            if durable_max > HEADER_BYTES {
                // A sync covers older logs first.
                doubtful.clear();
            }
            if segment.needed {
                doubtful.push(Stretch { id, start: durable_max.max(HEADER_BYTES), end });
            }
        }
        if segment.needed {
            let bytes = segment.outcome.end;
            old.push(OldSegment::recovered(id, segment.last_sequence, bytes));
        } else {
            state.logs.remove(&id);
        }
    }
    #[cfg(feature = "canary")]
    if umbel_base::canary::Switch::ReusedSequence.is_on() {
        last_sequence = last_sequence.saturating_sub(3);
    }
    state.last_sequence = last_sequence;
    settle((env, folder), state, keyspaces, spill, (&mut old, doubtful))?;
    Ok(Replayed { old, last_sequence, ends })
}

/// Leaves out the logs whose writes are all in tables, and makes durable what of the others may not
/// be.
fn settle(
    (env, folder): (&Env, &Path),
    state: &mut State,
    keyspaces: &[Arc<KeyspaceCore>],
    spill: &mut Spill<'_>,
    (old, mut doubtful): (&mut Vec<OldSegment>, Vec<Stretch>),
) -> Result<()> {
    let (context, ids) = (spill.context(), spill.ids());
    if spill.note_in(state)? {
        // Nobody needs a log any more all of whose writes are in the tables.
        let first = keyspaces.iter().filter_map(|keyspace| keyspace.first_unflushed()).min();
        old.retain(|log| first.is_some_and(|first| log.last_sequence >= first));
        state.logs.retain(|id, _| old.iter().any(|log| log.id == *id));
        doubtful.retain(|stretch| state.logs.contains_key(&stretch.id));
    }
    doubtful.retain(|stretch| stretch.start < stretch.end);
    if let (Some(ids), false) = (ids, doubtful.is_empty()) {
        old.extend(write_again(env, folder, ids, context, &doubtful, state)?);
    }
    Ok(())
}

/// Cuts the logs that were read behind the records that count: a log that was written when the
/// process died has the room there that was reserved for it. The next open reads the same of them.
pub fn cut_logs(env: &Env, folder: &Path, ends: &[(u64, u64)]) -> Result<()> {
    for (id, end) in ends {
        let file = env.files.open(&names::log(folder, *id), Access::ReadWrite)?;
        if file.len()? > *end && !file.has_other_names()? {
            file.set_len(*end)?;
        }
    }
    Ok(())
}

/// Writes what is doubtful into a log of its own, which is answered with, and notes in `state` that
/// the originals count only up to there.
fn write_again(
    env: &Env,
    folder: &Path,
    ids: &AtomicU64,
    context: &TableContext,
    doubtful: &[Stretch],
    state: &mut State,
) -> Result<Option<OldSegment>> {
    // The copy must not take the space of the manifest, without which there is no open.
    let reserved = reserved_space::keep_for(env, folder, encoded_bytes(&state.to_edits()));
    let copy = || relog::copy(env, folder, ids, &context.hashers.secret, doubtful);
    let copy = match reserved.and_then(|()| copy()) {
        Ok(copy) => copy,
        // A store that cannot be opened for want of room could never make any. A sync in place is
        // as good as the copy unless a sync of these very files had failed before.
        Err(Error::Full { .. }) => {
            sync_in_place(env, folder, doubtful)?;
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    for stretch in doubtful {
        state.logs.insert(stretch.id, LogState::Recovered(stretch.start));
    }
    state.logs.insert(copy.id, LogState::Sealed(copy.sealed));
    Ok(Some(OldSegment::recovered(copy.id, state.last_sequence, copy.sealed.len)))
}

fn sync_in_place(env: &Env, folder: &Path, logs: &[Stretch]) -> Result<()> {
    logs.iter()
        .try_for_each(|log| env.files.open(&names::log(folder, log.id), Access::ReadWrite)?.sync())
}

struct Target<'a, 'b> {
    keyspaces: &'a [Arc<KeyspaceCore>],
    state: &'a State,
    context: &'a TableContext,
    spill: &'a mut Spill<'b>,
}

/// A log that ended without an end record when it was read.
struct Torn {
    path: PathBuf,
    end: u64,
    last_sequence: SequenceNumber,
    reader: LogReader,
}

impl Torn {
    /// Judges it by the log after it, which does not count while this one is returned. Otherwise a
    /// writer of another process had ended this one meanwhile: its last sequence number.
    fn before(
        self,
        env: &Env,
        path: &Path,
        (id, log): (u64, LogState),
        target: &mut Target<'_, '_>,
    ) -> Result<(Option<Torn>, SequenceNumber)> {
        let reader = open_log(env, path, id, log, target.context)?;
        match check_never_synced(reader, path, log, &self) {
            Ok(()) => Ok((Some(self), 0)),
            Err(damage) if target.spill.ids().is_some() => Err(damage),
            Err(damage) => Ok((None, self.read_on(damage, target)?)),
        }
    }

    /// Replays what a writer of another process has stored since. A writer ends a log before it
    /// begins the next one, which has shown that it was begun: so the log has an end record now,
    /// or the `damage` is there. Returns the last sequence number.
    fn read_on(mut self, damage: Error, target: &mut Target<'_, '_>) -> Result<SequenceNumber> {
        if !self.reader.resume()? {
            return Err(damage);
        }
        let (path, last) = (&self.path, self.last_sequence);
        let segment = read_records(&mut self.reader, path, LogState::Open, last, target)?;
        if segment.outcome.sealed { Ok(segment.last_sequence) } else { Err(damage) }
    }
}

struct Segment {
    outcome: Outcome,
    last_sequence: SequenceNumber,
    needed: bool,
}

fn open_log(
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
        LogState::Sealed(sealed) => Expectation::Sealed(sealed),
        LogState::Open | LogState::Recovered(_) => Expectation::Open,
    };
    wal::read(env, path, &context.hashers.secret, id, expectation)
}

fn replay_one(
    env: &Env,
    path: &Path,
    id: u64,
    log: LogState,
    target: &mut Target<'_, '_>,
) -> Result<(Segment, LogReader)> {
    let mut reader = open_log(env, path, id, log, target.context)?;
    let segment = read_records(&mut reader, path, log, 0, target)?;
    Ok((segment, reader))
}

/// Replays the records from where the reader is. `last_sequence` is the last one before.
fn read_records(
    reader: &mut LogReader,
    path: &Path,
    log: LogState,
    mut last_sequence: SequenceNumber,
    target: &mut Target<'_, '_>,
) -> Result<Segment> {
    let until = match log {
        LogState::Recovered(end) => end,
        LogState::Open | LogState::Sealed(_) => u64::MAX,
    };
    let mut needed = false;
    while let Some(record) = reader.next()? {
        if record.offset >= until {
            break;
        }
        if relog::begins_copy(&record) {
            continue;
        }
        let (offset, first) = (record.offset, record.sequence);
        let writes = writes::decode(record.payload).map_err(|at| {
            let reason = format!("byte {at} of this record's payload begins no known operation");
            Error::corruption(path, offset, reason)
        })?;
        let last = first.saturating_add(writes.len() as u64 - 1);
        if first <= last_sequence || last > limits::SEQUENCE_MAX {
            let reason = "the record's sequence numbers are taken or over the limit";
            return Err(Error::corruption(path, offset, reason));
        }
        for (sequence, write) in (first..=last).zip(&writes) {
            needed |= target.apply(sequence, write)?;
            last_sequence = sequence;
        }
    }
    let mut outcome = reader.outcome();
    if let LogState::Recovered(end) = log {
        if outcome.end < end {
            let reason = format!("the log ends here, but was read up to {end} by an earlier open");
            return Err(Error::corruption(path, outcome.end, reason));
        }
        outcome.end = end;
    }
    Ok(Segment { outcome, last_sequence, needed })
}

impl Target<'_, '_> {
    /// Puts a write into its memtable; `false` where it is in a table already or its keyspace was
    /// dropped.
    fn apply(&mut self, sequence: SequenceNumber, write: &Logged<'_>) -> Result<bool> {
        let Some(record) = self.state.keyspaces.get(&write.keyspace) else { return Ok(false) };
        if sequence <= record.flushed_through {
            return Ok(false);
        }
        let Some(keyspace) = self.keyspaces.iter().find(|k| k.id == write.keyspace) else {
            return Ok(false);
        };
        let view = keyspace.view.load();
        self.insert(keyspace, &view, sequence, write);
        if view.active.is_full(keyspace.buffer_bytes_max()) {
            keyspace.view.freeze(&keyspace.options());
        }
        drop(view);
        self.spill.note(
            self.state,
            self.keyspaces,
            sequence,
            write.key.len() + write.value.len(),
        )?;
        Ok(true)
    }

    fn insert(
        &self,
        keyspace: &KeyspaceCore,
        view: &View,
        sequence: SequenceNumber,
        write: &Logged<'_>,
    ) {
        let memtable = &view.active.memtable;
        match write.action.kind() {
            Some(kind) => {
                if let Some(pointer) = write.blob() {
                    view.active.hold_blob(self.context.blobs.hold(&pointer));
                }
                let hash = keyspace.hash(write.key);
                memtable.insert(write.key, sequence, kind, write.value, hash);
                keyspace.existence.note_replayed(sequence, kind, hash);
            }
            None => {
                memtable.delete_range(write.key, write.value, sequence);
                view.active.note_range_delete();
            }
        }
        view.active.note(sequence);
    }
}

/// An error where the log, which follows a torn one, shows that it had been synced: a sync covers
/// older segments first, so the torn one must have been whole.
fn check_never_synced(
    mut reader: LogReader,
    path: &Path,
    log: LogState,
    earlier: &Torn,
) -> Result<()> {
    while reader.next()?.is_some() {}
    let outcome = reader.outcome();
    if log == LogState::Open && outcome.durable_max <= HEADER_BYTES {
        return Ok(());
    }
    let reason = format!(
        "the log breaks off here, but the later log {} had been synced, which never happens before \
         this one is",
        path.display()
    );
    Err(Error::corruption(&earlier.path, earlier.end, reason))
}

#[cfg(test)]
#[path = "recovery_tests.rs"]
mod tests;
