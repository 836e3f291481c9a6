//! Search for the last event up to a time in the pieces of a backup.

use umbel_backup::{ObjectRequests, download};
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

/// Returns position and time of the first event of a state; `None` if it has none.
pub fn first_event(
    requests: &ObjectRequests,
    backup: &[u8; 16],
    state: &BackupState,
) -> ObjectBackupResult<Option<(u64, u64)>> {
    for chunk in &state.chunks {
        for piece in &chunk.pieces {
            let mut bytes = Vec::new();
            download::<LogContents>(requests, backup, (chunk.file(), piece), |block, _| {
                bytes.extend_from_slice(block);
                Ok(())
            })?;
            let mut first = None;
            each_event(chunk, piece.from, &bytes, |meta| {
                first.get_or_insert((meta.position, meta.created));
            });
            if first.is_some() {
                return Ok(first);
            }
        }
    }
    Ok(None)
}

/// Calls `event` with each event in the bytes of a piece that begins at `from`, in order.
fn each_event(chunk: &BackedChunk, from: u64, bytes: &[u8], mut event: impl FnMut(&FrameMeta)) {
    let id = chunk.entry.id;
    let after = |at: u64| bytes.get((at - from) as usize..).unwrap_or_default();
    if chunk.entry.scavenged.is_some() {
        // Bytes after the frames of a scavenged chunk are no frame.
        scavenged_chunk::frames(bytes, id).map_while(Result::ok).for_each(|it| event(&it.meta));
        return;
    }
    let binding = RecordBinding { log_id: id, salt: 0 };
    let mut at = from.max(HEADER_BYTES);
    while let Some(record) = record_at(binding, at, after(at)) {
        let place = FrameLocation { chunk: id, offset: at + RECORD_GAP_BYTES };
        Frames::new(record.payload, place).map_while(Result::ok).for_each(|it| event(&it.meta));
        at += record_bytes(record.payload.len() as u64);
    }
}
