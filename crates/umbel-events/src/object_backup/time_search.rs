//! Searches in the pieces of a backup: the last event up to a time, and the first append.

use umbel_backup::{BackupError, ObjectRequests, download};
use umbel_log::{HEADER_BYTES, RecordBinding, record_at, record_bytes};

use crate::event_log::event_format::{FrameLocation, FrameMeta, Frames, RECORD_GAP_BYTES};
use crate::event_log::scavenged_chunk;
use crate::object_backup::object_backup_error::ObjectBackupResult;
use crate::object_backup::object_manifest::{BackedChunk, BackupState, LogContents};
use crate::object_backup::restore_cut::RestoreCut;

/// Returns the position of the last event that a cut keeps; 0 if it keeps none. Reads pieces from
/// the newest one on until it finds the event, and holds one of them in memory.
pub fn last_kept_position(
    requests: &ObjectRequests,
    backup: &[u8; 16],
    state: &BackupState,
    cut: &RestoreCut,
) -> ObjectBackupResult<u64> {
    for chunk in state.chunks.iter().rev() {
        for piece in chunk.pieces.iter().rev() {
            let mut bytes = Vec::new();
            download::<LogContents>(requests, backup, (chunk.file(), piece), |block, _| {
                bytes.extend_from_slice(block);
                Ok(())
            })?;
            let mut last = None;
            each_event(chunk, piece.from, &bytes, |meta| {
                if cut.keeps(meta.position, meta.created) {
                    last = Some(meta.position);
                }
            });
            if let Some(last) = last {
                return Ok(last);
            }
        }
    }
    Ok(0)
}

/// Returns position and time of the last event of the first append of a state; `None` without
/// events. A cut keeps or removes an append as a whole. In a scavenged chunk it is the first event,
/// since a cut there takes each event alone. The download ends with that event.
pub fn first_append_end(
    requests: &ObjectRequests,
    backup: &[u8; 16],
    state: &BackupState,
) -> ObjectBackupResult<Option<(u64, u64)>> {
    for chunk in &state.chunks {
        for piece in &chunk.pieces {
            let (mut bytes, mut found) = (Vec::new(), None);
            let source = (chunk.file(), piece);
            let read = download::<LogContents>(requests, backup, source, |block, _| {
                bytes.extend_from_slice(block);
                found = first_append_end_in(chunk, piece.from, &bytes);
                // The error only ends the download.
                match found {
                    Some(_) => Err(BackupError::Cancelled),
                    None => Ok(()),
                }
            });
            if found.is_some() {
                return Ok(found);
            }
            read?;
        }
    }
    Ok(None)
}

/// Returns position and time of the last event of the first append in the first bytes of a piece
/// that begins at `from`; `None` if the bytes do not have the whole append.
fn first_append_end_in(chunk: &BackedChunk, from: u64, bytes: &[u8]) -> Option<(u64, u64)> {
    let mut found = None;
    each_append(chunk, from, bytes, |frames| {
        found = frames.last().map(|meta| (meta.position, meta.created));
        found.is_none()
    });
    found
}

/// Calls `event` with each event in the bytes of a piece that begins at `from`, in order.
fn each_event(chunk: &BackedChunk, from: u64, bytes: &[u8], mut event: impl FnMut(&FrameMeta)) {
    each_append(chunk, from, bytes, |frames| {
        frames.iter().for_each(&mut event);
        true
    });
}

/// Calls `append` with the events of each append in the bytes of a piece that begins at `from`, in
/// order, while it returns true. An event of a scavenged chunk counts as an append.
fn each_append(
    chunk: &BackedChunk,
    from: u64,
    bytes: &[u8],
    mut append: impl FnMut(&[FrameMeta]) -> bool,
) {
    let id = chunk.entry.id;
    let after = |at: u64| bytes.get((at - from) as usize..).unwrap_or_default();
    if chunk.entry.scavenged.is_some() {
        // Bytes after the frames of a scavenged chunk are no frame.
        for frame in scavenged_chunk::frames(bytes, id).map_while(Result::ok) {
            if !append(&[frame.meta]) {
                break;
            }
        }
        return;
    }
    let binding = RecordBinding { log_id: id, salt: 0 };
    let mut at = from.max(HEADER_BYTES);
    let mut metas = Vec::new();
    while let Some(record) = record_at(binding, at, after(at)) {
        let place = FrameLocation { chunk: id, offset: at + RECORD_GAP_BYTES };
        metas.clear();
        metas.extend(Frames::new(record.payload, place).map_while(Result::ok).map(|it| it.meta));
        if !append(&metas) {
            return;
        }
        at += record_bytes(record.payload.len() as u64);
    }
}
