//! Verification of every record and every event of the log, and of the index against the log.

use std::collections::HashSet;
use std::sync::Arc;

use umbel_log::ExpectedEnd;

use crate::event_log::chunk::Chunk;
use crate::event_log::chunk_manifest::{ChunkEnd, ChunkEntry, chunk_path, removed_file_error};
use crate::event_log::chunk_scan::{ChunkScan, scan_chunk};
use crate::event_log::event_format::Frame;
use crate::event_log::scavenged_chunk;
use crate::limits::TOMBSTONE_REVISION;
use crate::shared_store_state::StoreInner;
use crate::types::error::{Error, Result};
use crate::verify::view_verify::ViewVerifier;

pub mod view_verify;

/// Result of a verification.
#[derive(Debug, Clone)]
pub struct VerifyReport {
    /// Number of events read.
    pub events: u64,
    /// Bytes of the log read.
    pub bytes: u64,
    /// Damage found: file, offset and description.
    pub damage: Vec<Error>,
    /// Result for the key-value store that holds the index.
    pub index: umbel::VerifyReport,
}

/// The report so far, with each damage once: a check of a view meets the damage of one event again
/// at each of its links.
struct Findings {
    report: VerifyReport,
    texts: HashSet<String>,
}

impl Findings {
    /// Records the result of a check: damage is added to the report, but an unreadable file does
    /// not count as damaged.
    fn record(&mut self, checked: Result<()>) -> Result<()> {
        if let Err(error) = &checked
            && error.is_damage()
            && !self.texts.insert(error.message_without_advice())
        {
            return Ok(());
        }
        record_damage(&mut self.report.damage, checked)
    }
}

/// Records the result of a check: damage is added to the list, any other error is returned.
pub fn record_damage(damage: &mut Vec<Error>, checked: Result<()>) -> Result<()> {
    match checked {
        Err(error) if error.is_damage() => damage.push(error),
        checked => return checked,
    }
    Ok(())
}

/// Verifies the store. Returns an error if the operating system refuses a read.
pub fn verify(shared: &StoreInner) -> Result<VerifyReport> {
    let report = VerifyReport {
        events: 0,
        bytes: 0,
        damage: Vec::new(),
        index: shared.index.db().verify()?,
    };
    let mut findings = Findings { report, texts: HashSet::new() };
    let (visible, mut views) = (shared.visible.position(), ViewVerifier::default());
    for chunk in shared.log.chunks.all().iter() {
        if chunk.last_event().is_none() && chunk.scavenged.is_none() {
            continue;
        }
        findings.record(check_file(shared, chunk))?;
        check_events(shared, chunk, &mut views, &mut findings)?;
    }
    // Views hold scavenged events until they are rebuilt.
    let is_whole = shared.log.chunks.all().iter().all(|chunk| chunk.scavenged.is_none());
    if findings.report.damage.is_empty() && is_whole {
        findings.record(views.check_counts(shared, visible))?;
    }
    Ok(findings.report)
}

/// Reads the events of a chunk in order.
fn check_events(
    shared: &StoreInner,
    chunk: &Arc<Chunk>,
    views: &mut ViewVerifier,
    findings: &mut Findings,
) -> Result<()> {
    let mut cursor = shared.log.cursor();
    let visible = shared.visible.position();
    let mut offset = chunk.first_offset();
    let mut next_position = chunk.start;
    loop {
        let walked = cursor.frame_and_next(chunk, offset);
        let (frame, next) = match walked {
            Ok(Some(walked)) => walked,
            Ok(None) => return Ok(()),
            // If an event is not readable, the start of the next one is unknown.
            Err(error) => {
                views.skip(next_position..chunk.start + chunk.capacity);
                return findings.record(Err(error.into()));
            }
        };
        let position = frame.meta.position;
        if position > visible {
            return Ok(());
        }
        findings.report.events += u64::from(!frame.is_stub);
        findings.report.bytes += next - offset;
        (offset, next_position) = (next, position + 1);
        let mut found: Vec<Error> = check_indexed(shared, &frame).err().into_iter().collect();
        views.check(shared, &frame, &mut found);
        // It may be scavenged meanwhile, and its index entry deleted.
        if found.is_empty() || matches!(shared.log.cursor().find_event(position), Ok(None)) {
            continue;
        }
        for error in found {
            findings.record(Err(error))?;
        }
    }
}

/// Compares the file of an ended chunk with the chunk manifest.
fn check_file(shared: &StoreInner, chunk: &Arc<Chunk>) -> Result<()> {
    let Some(scavenged) = &chunk.scavenged else {
        let Some(ended) = chunk.ended.get() else { return check_live_chunk(shared, chunk) };
        let (id, start, capacity, key) = (chunk.id, chunk.start, chunk.capacity, chunk.key);
        let entry = ChunkEntry { id, start, capacity, key, ended: Some(*ended), scavenged: None };
        let checked = check_records(shared, &entry, ended);
        let checked = checked.map_err(|error| reader_error(shared, chunk, error));
        // Its file is gone if it was scavenged meanwhile.
        let current = shared.log.chunks.find(chunk.start);
        let is_there = current.is_some_and(|current| Arc::ptr_eq(&current, chunk));
        return if is_there { checked } else { Ok(()) };
    };
    let file = shared.log.chunks.file(chunk)?;
    scavenged_chunk::verify_file(&*file, chunk.id, scavenged)?;
    shared.log.removed_events(chunk)?;
    Ok(())
}

/// Checks the records of a chunk that a writer of another process may have open, up to the end that
/// this reader sees. In a chunk that this process writes, only the events are checked.
fn check_live_chunk(shared: &StoreInner, chunk: &Arc<Chunk>) -> Result<()> {
    if !shared.read_only {
        return Ok(());
    }
    let (id, start, capacity, key) = (chunk.id, chunk.start, chunk.capacity, chunk.key);
    let entry = ChunkEntry { id, start, capacity, key, ended: None, scavenged: None };
    let read = scan_chunk(&shared.env, &shared.folder, &entry, ExpectedEnd::Open);
    let outcome = read.map_err(|error| reader_error(shared, chunk, error))?.outcome;
    if outcome.end >= chunk.end() {
        return Ok(());
    }
    let reason = format!("the chunk ends here, but had records up to byte {}", chunk.end());
    Err(umbel::Error::corruption(&chunk.path, outcome.end, reason).into())
}

/// Classifies the error of a reader of a chunk's file: a file that the writer removed does not
/// count as damaged.
fn reader_error(shared: &StoreInner, chunk: &Chunk, error: Error) -> Error {
    let is_gone = || matches!(shared.env.files.exists(&chunk.path), Ok(false));
    if shared.read_only && error.is_damage() && is_gone() {
        let removed = removed_file_error(&shared.env, &chunk.path).map(Error::from);
        return removed.unwrap_or(error);
    }
    error
}

fn check_records(shared: &StoreInner, entry: &ChunkEntry, ended: &ChunkEnd) -> Result<()> {
    let expectation = ended.seal.map_or(ExpectedEnd::Open, ExpectedEnd::Sealed);
    let read = scan_chunk(&shared.env, &shared.folder, entry, expectation)?;
    let ChunkScan { outcome, last_event, .. } = read;
    let end = ended.file_bytes();
    if (outcome.end, last_event) == (end, ended.last_event) {
        return Ok(());
    }
    let path = chunk_path(&shared.folder, entry.id);
    let reason = format!("the chunk ends here, but should end at byte {end} by the chunk manifest");
    Err(umbel::Error::corruption(&path, outcome.end, reason).into())
}

fn check_indexed(shared: &StoreInner, frame: &Frame<'_>) -> Result<()> {
    let (revision, position) = (frame.meta.revision, frame.meta.position);
    let wrong = |what: String| -> Result<()> {
        let name = frame.stream.escape_debug();
        let reason = format!("stream '{name}': {what}");
        Err(umbel::Error::corruption(&shared.folder.join("index"), 0, reason).into())
    };
    let Some(head) = shared.index.head(frame.stream)? else {
        return wrong(format!(
            "the stream has an event at position {position}, but the index has no event there"
        ));
    };
    let indexed = match revision {
        TOMBSTONE_REVISION if head.is_tombstoned => Some(head.last_position),
        _ if revision == head.last_revision && !head.is_tombstoned => Some(head.last_position),
        _ => shared.index.position(head.id, revision)?,
    };
    if indexed == Some(position) {
        return Ok(());
    }
    wrong(format!("revision {revision} is at position {position}, but the index has {indexed:?}"))
}
