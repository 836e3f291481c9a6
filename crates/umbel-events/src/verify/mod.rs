//! Verifying: every record of the log, every event in it, and whether the index says the same.

use std::sync::Arc;

use umbel_log::Expectation;

use crate::chunk::Chunk;
use crate::chunk_read::{ChunkRead, read_chunk};
use crate::chunk_table::{ChunkEntry, Ended, chunk_path, removed_since};
use crate::error::{Error, Result};
use crate::format::Frame;
use crate::limits::TOMBSTONE_REVISION;
use crate::packed;
use crate::shared::Shared;
use crate::view_verify::ViewChecks;

/// What verifying found.
#[derive(Debug, Clone)]
pub struct VerifyReport {
    /// Events read.
    pub events: u64,
    /// Bytes of the log read.
    pub bytes: u64,
    /// What is damaged: file, place, and what is wrong there.
    pub damage: Vec<Error>,
    /// What was found in the store that the index is.
    pub index: umbel::VerifyReport,
}

impl VerifyReport {
    /// Notes what came of a check: damage is to be reported, but what could not be read is not
    /// known to be damaged.
    fn note(&mut self, checked: Result<()>) -> Result<()> {
        note(&mut self.damage, checked)
    }
}

/// Notes what came of a check: damage goes to the rest of it, anything else is the caller's.
pub fn note(damage: &mut Vec<Error>, checked: Result<()>) -> Result<()> {
    match checked {
        Err(error) if error.is_damage() => damage.push(error),
        checked => return checked,
    }
    Ok(())
}

/// Reads everything. Ends with an error where the system refuses to read.
pub fn verify(shared: &Shared) -> Result<VerifyReport> {
    let mut report = VerifyReport {
        events: 0,
        bytes: 0,
        damage: Vec::new(),
        index: shared.index.db().verify()?,
    };
    let (visible, mut views) = (shared.visible.position(), ViewChecks::default());
    for chunk in shared.log.chunks.all().iter() {
        if chunk.last_event().is_none() && chunk.packed.is_none() {
            continue;
        }
        report.note(check_file(shared, chunk))?;
        check_events(shared, chunk, &mut views, &mut report)?;
    }
    // Views hold what was scavenged until they are made anew.
    let is_whole = shared.log.chunks.all().iter().all(|chunk| chunk.packed.is_none());
    if report.damage.is_empty() && is_whole {
        report.note(views.check_counts(shared, visible))?;
    }
    Ok(report)
}

/// Reads the events of a chunk one after the other.
fn check_events(
    shared: &Shared,
    chunk: &Arc<Chunk>,
    views: &mut ViewChecks,
    report: &mut VerifyReport,
) -> Result<()> {
    let mut cursor = shared.log.cursor();
    let visible = shared.visible.position();
    let mut offset = chunk.first_offset();
    loop {
        let walked = cursor.walk(chunk, offset);
        let (frame, next) = match walked {
            Ok(Some(walked)) => walked,
            Ok(None) => return Ok(()),
            // Where one event is not readable, nothing says where the next begins.
            Err(error) => return report.note(Err(error.into())),
        };
        let position = frame.stamp.position;
        if position > visible {
            return Ok(());
        }
        report.events += u64::from(!frame.is_stub);
        report.bytes += next - offset;
        offset = next;
        // It may be scavenged meanwhile, and the index forget it.
        if let Err(error) = compare(shared, &frame).and(views.check(shared, &frame))
            && !matches!(shared.log.cursor().find(position), Ok(None))
        {
            report.note(Err(error))?;
        }
    }
}

/// Compares the file of a chunk that has ended with the table of chunks.
fn check_file(shared: &Shared, chunk: &Arc<Chunk>) -> Result<()> {
    let Some(packed) = &chunk.packed else {
        let Some(ended) = chunk.ended.get() else { return check_growing(shared, chunk) };
        let (id, start, capacity, key) = (chunk.id, chunk.start, chunk.capacity, chunk.key);
        let entry = ChunkEntry { id, start, capacity, key, ended: Some(*ended), packed: None };
        let checked = check_records(shared, &entry, ended);
        let checked = checked.map_err(|error| of_reader(shared, chunk, error));
        // Its file is gone where it was scavenged meanwhile.
        let is_there = shared.log.chunks.all().iter().any(|other| Arc::ptr_eq(other, chunk));
        return if is_there { checked } else { Ok(()) };
    };
    let file = shared.log.chunks.file(chunk)?;
    packed::check(&*file, chunk.id, packed)?;
    shared.log.gaps(chunk)?;
    Ok(())
}

/// Checks that the records of a chunk that a writer of another process may have open are there, as
/// far as this reader has them. Of a chunk that this process writes the events alone are checked.
fn check_growing(shared: &Shared, chunk: &Arc<Chunk>) -> Result<()> {
    if !shared.read_only {
        return Ok(());
    }
    let (id, start, capacity, key) = (chunk.id, chunk.start, chunk.capacity, chunk.key);
    let entry = ChunkEntry { id, start, capacity, key, ended: None, packed: None };
    let read = read_chunk(&shared.env, &shared.folder, &entry, Expectation::Open);
    let outcome = read.map_err(|error| of_reader(shared, chunk, error))?.outcome;
    if outcome.end >= chunk.end() {
        return Ok(());
    }
    let reason = format!("the chunk ends here, but had records up to byte {}", chunk.end());
    Err(umbel::Error::corruption(&chunk.path, outcome.end, reason).into())
}

/// The error that a reader of a chunk's file met: one that the writer has removed is not damaged.
fn of_reader(shared: &Shared, chunk: &Chunk, error: Error) -> Error {
    let is_gone = || matches!(shared.env.files.exists(&chunk.path), Ok(false));
    if shared.read_only && error.is_damage() && is_gone() {
        let removed = removed_since(&shared.env, &chunk.path).map(Error::from);
        return removed.unwrap_or(error);
    }
    error
}

fn check_records(shared: &Shared, entry: &ChunkEntry, ended: &Ended) -> Result<()> {
    let expectation = ended.sealed.map_or(Expectation::Open, Expectation::Sealed);
    let read = read_chunk(&shared.env, &shared.folder, entry, expectation)?;
    let ChunkRead { outcome, last_event, .. } = read;
    let end = ended.file_bytes();
    if (outcome.end, last_event) == (end, ended.last_event) {
        return Ok(());
    }
    let path = chunk_path(&shared.folder, entry.id);
    let reason = format!("the chunk ends here, but the table of chunks says at byte {end}");
    Err(umbel::Error::corruption(&path, outcome.end, reason).into())
}

fn compare(shared: &Shared, frame: &Frame<'_>) -> Result<()> {
    let (revision, position) = (frame.stamp.revision, frame.stamp.position);
    let wrong = |what: String| -> Result<()> {
        let name = frame.stream.escape_debug();
        let reason = format!("stream '{name}': {what}");
        Err(umbel::Error::corruption(&shared.folder.join("index"), 0, reason).into())
    };
    let Some(head) = shared.index.head(frame.stream)? else {
        return wrong(format!("it has an event at position {position}, but the index has none"));
    };
    let indexed = match revision {
        TOMBSTONE_REVISION if head.is_tombstoned => Some(head.last_position),
        _ if revision == head.last_revision && !head.is_tombstoned => Some(head.last_position),
        _ => shared.index.position(head.id, revision)?,
    };
    if indexed == Some(position) {
        return Ok(());
    }
    wrong(format!(
        "revision {revision} stands at position {position}, but the index says {indexed:?}"
    ))
}
