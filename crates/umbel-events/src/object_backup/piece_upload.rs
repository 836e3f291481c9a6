//! Upload of one piece of a chunk, verified before and during the upload.

use std::sync::Arc;

use umbel_backup::{BackupKind, ObjectRequests, Piece, PieceSource};
use umbel_env::{Access, File};
use umbel_log::END_RECORD_BYTES;

use crate::event_log::chunk_manifest::{ChunkEnd, open_error};
use crate::object_backup::object_backup_error::ObjectBackupResult;
use crate::object_backup::object_manifest::{BackedChunk, chunk_file};
use crate::object_backup::piece_names::piece_name;
use crate::object_backup::record_scan::{RangeScan, scan_records, scan_scavenged};
use crate::object_backup::upload_plan::PieceJob;
use crate::shared_store_state::StoreInner;
use crate::types::error::Result;

/// Result of an upload.
#[derive(Debug)]
pub enum UploadOutcome {
    /// The chunk as the backup has it now, the time of its last new event, and the uploaded bytes.
    Uploaded(BackedChunk, Option<u64>, u64),
    /// A scavenge replaced the file meanwhile.
    Replaced,
}

/// Uploads a piece.
///
/// # Errors
/// Damage of the local file, before anything is uploaded, and errors of the requests.
pub fn upload(
    shared: &StoreInner,
    requests: &ObjectRequests,
    backup: &[u8; 16],
    mut job: PieceJob,
) -> ObjectBackupResult<UploadOutcome> {
    requests.check_cancelled()?;
    let path = job.entry.path(&shared.folder);
    let file = match shared.env.files.open(&path, Access::Read) {
        Err(error) if error.is_missing_file() && is_replaced(shared, &job) => {
            return Ok(UploadOutcome::Replaced);
        }
        opened => opened.map_err(|error| open_error(&path, error))?,
    };
    let scan = match (scan(&*file, &job), job.unmerged.take()) {
        (Err(error), Some(kept)) if error.is_damage() => {
            // The copies of the tails are still good, and stay.
            job.from = kept.last().map_or(0, |last| last.to);
            job.kept = kept;
            scan(&*file, &job)?
        }
        (scanned, _) => scanned?,
    };
    let ended = match (job.entry.ended, scan.last_event) {
        (Some(ended), _) => ended,
        (None, Some((last_event, _))) => ChunkEnd { end: job.to, last_event, seal: None },
        (None, None) => {
            let reason = "there is no event in a new part of this chunk";
            return Err(umbel::Error::corruption(&path, job.from, reason).into());
        }
    };
    let mut piece = Piece {
        uid: requests.env.entropy.id()?,
        is_whole: job.from == 0 && job.entry.ended.is_some(),
        from: job.from,
        to: job.to,
        digest: 0,
    };
    let chunk = chunk_file(&job.entry);
    let kind = (BackupKind::Events, backup, chunk);
    let source = PieceSource::new(file, &mut piece, kind, scan.block_checksums);
    requests.put(&piece_name(chunk, &piece), &source)?;
    let mut pieces = job.kept;
    pieces.push(piece);
    let mut entry = job.entry;
    entry.ended = Some(ended);
    let created = scan.last_event.map(|(_, created)| created);
    Ok(UploadOutcome::Uploaded(BackedChunk { entry, pieces }, created, piece.object_bytes()))
}

fn scan(file: &dyn File, job: &PieceJob) -> Result<RangeScan> {
    if let Some(scavenged) = &job.entry.scavenged {
        return scan_scavenged(file, &job.entry, scavenged);
    }
    let scan = scan_records(file, &job.entry, (job.from, job.to))?;
    let expected = job.entry.ended.map(|ended| ended.last_event);
    let is_only_end = job.to - job.from <= END_RECORD_BYTES;
    let found = scan.last_event.map(|(offset, _)| offset);
    if expected.is_some() && found != expected && !(found.is_none() && is_only_end) {
        let reason = "the last event of the chunk is not where the chunk manifest states";
        return Err(umbel::Error::corruption(file.path(), job.to, reason).into());
    }
    Ok(scan)
}

/// Whether the store has another file of the job's chunk now.
fn is_replaced(shared: &StoreInner, job: &PieceJob) -> bool {
    let chunks = shared.log.chunks.all();
    let now = chunks.iter().find(|chunk| chunk.id == job.entry.id);
    now.is_some_and(|chunk| chunk.version() != chunk_file(&job.entry).version)
}

/// A piece upload that owns everything it needs, for another thread.
pub fn task(
    shared: &Arc<StoreInner>,
    requests: &Arc<ObjectRequests>,
    backup: [u8; 16],
    job: PieceJob,
) -> Box<dyn FnOnce() -> ObjectBackupResult<UploadOutcome> + Send> {
    let (shared, requests) = (Arc::clone(shared), Arc::clone(requests));
    Box::new(move || upload(&shared, &requests, &backup, job))
}
