//! Verifying: every record of the log, every event in it, and whether the index says the same.

use umbel_log::Expectation;

use crate::chunk::FIRST_EVENT_AT;
use crate::chunk_table::{ChunkEntry, Ended, chunk_path};
use crate::error::{Error, Result};
use crate::event_log::LogCursor;
use crate::format::Frame;
use crate::limits::TOMBSTONE_REVISION;
use crate::open::read_chunk;
use crate::shared::Shared;

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

/// Reads everything.
pub fn verify(shared: &Shared) -> Result<VerifyReport> {
    let mut report = VerifyReport {
        events: 0,
        bytes: 0,
        damage: Vec::new(),
        index: shared.index.db().verify()?,
    };
    for chunk in shared.log.chunks.all().iter() {
        if chunk.last_event().is_none() {
            continue;
        }
        if let Some(ended) = chunk.ended.get() {
            let (id, start, capacity) = (chunk.id, chunk.start, chunk.capacity);
            let entry = ChunkEntry { id, start, capacity, ended: Some(*ended) };
            report.damage.extend(check_records(shared, &entry, ended).err());
        }
        let mut cursor = shared.log.cursor();
        let mut next = Some(chunk.start + FIRST_EVENT_AT);
        let visible = shared.visible.position();
        while let Some(position) =
            next.filter(|at| *at <= visible && *at - chunk.start < chunk.end())
        {
            match check_event(shared, &mut cursor, position) {
                Ok((step, damage)) => {
                    report.events += 1;
                    report.bytes += step;
                    report.damage.extend(damage);
                    next = cursor.next_position(position, step);
                }
                Err(error) => {
                    report.damage.push(error);
                    // Where one event is not readable, nothing says where the next begins.
                    next = None;
                }
            }
        }
    }
    Ok(report)
}

fn check_records(shared: &Shared, entry: &ChunkEntry, ended: &Ended) -> Result<()> {
    let expectation = ended.sealed.map_or(Expectation::Open, Expectation::Sealed);
    let (outcome, last_event) = read_chunk(&shared.env, &shared.folder, entry, expectation)?;
    let end = ended.file_bytes();
    if (outcome.end, last_event) == (end, ended.last_event) {
        return Ok(());
    }
    let path = chunk_path(&shared.folder, entry.id);
    let reason = format!("the chunk ends here, but the table of chunks says at byte {end}");
    Err(umbel::Error::corruption(&path, outcome.end, reason).into())
}

/// Reads one event and compares it with the index. Returns how far away the next one is.
fn check_event(
    shared: &Shared,
    cursor: &mut LogCursor,
    position: u64,
) -> Result<(u64, Option<Error>)> {
    let frame = cursor.at(position)?;
    let step = frame.step();
    Ok((step, compare(shared, &frame).err()))
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
