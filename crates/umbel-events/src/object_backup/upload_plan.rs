//! [`UploadPlan`]: the parts of the event log that a backup lacks.

use std::collections::HashSet;

use umbel_backup::{ChainWriter, Piece};
use umbel_base::ignore_poison::IgnorePoison;

use crate::event_log::chunk_manifest::{ChunkEntry, ChunkManifest};
use crate::event_log::durable_chunks::DurableChunks;
use crate::object_backup::object_backup_error::{ObjectBackupError, ObjectBackupResult};
use crate::object_backup::object_manifest::{BackedChunk, LogContents, chunk_file};
use crate::shared_store_state::StoreInner;

/// A tail of fewer bytes is merged with its neighbours when there are many.
pub const SMALL_TAIL_BYTES: u64 = 1 << 20;

/// Upload of a part of a chunk's file.
#[derive(Debug, Clone)]
pub struct PieceJob {
    /// The chunk. Its end is known if the copy will reach it.
    pub entry: ChunkEntry,
    /// Pieces that stay, from the beginning of the file.
    pub kept: Vec<Piece>,
    /// Offset of the first byte to upload.
    pub from: u64,
    /// Offset after the last byte to upload.
    pub to: u64,
    /// Pieces that stay if the merge of small tails fails.
    pub unmerged: Option<Vec<Piece>>,
}

/// The parts of the event log that a backup lacks.
#[derive(Debug)]
pub struct UploadPlan {
    /// The store's chunk manifest without its chunks.
    pub head: ChunkManifest,
    /// Uploads that extend the backup, in the order of the log.
    pub extensions: Vec<PieceJob>,
    /// Number of the first extensions after each of which the backup is consistent. The others
    /// count together only: they replace a chunk by a scavenged file, and later events can be the
    /// reason why events are missing in it.
    pub separable: usize,
    /// Uploads of scavenged files that replace chunks of the backup, and of chunks with lost
    /// pieces.
    pub replacements: Vec<PieceJob>,
}

/// Number of small tails at the end of a chunk's pieces.
fn small_tails(pieces: &[Piece]) -> usize {
    let is_small = |piece: &&Piece| piece.to - piece.from < SMALL_TAIL_BYTES;
    pieces.iter().rev().take_while(is_small).count()
}

impl UploadPlan {
    /// Compares the durable log with the backup. Of more than `tails_max` small tails, one is made.
    /// A chunk with lost pieces is uploaded again.
    ///
    /// # Errors
    /// [`ObjectBackupError::Refused`] if the backup has bytes that the store lacks.
    pub fn new(
        shared: &StoreInner,
        chain: &ChainWriter<LogContents>,
        tails_max: usize,
        location: &str,
    ) -> ObjectBackupResult<UploadPlan> {
        let state = chain.state();
        let DurableChunks { manifest, chunks: found } = {
            // A swap of a chunk waits for this lock.
            let _copying = shared.log.copy_lock.lock().ignore_poison();
            shared.log.durable_chunks()
        };
        let head = ChunkManifest { chunks: Vec::new(), root: None, ..manifest };
        let ids: HashSet<u64> = found.iter().map(|(entry, _)| entry.id).collect();
        let backed = state.map_or(&[][..], |state| &state.chunks);
        if let Some(chunk) = backed.iter().find(|chunk| !ids.contains(&chunk.entry.id)) {
            return Err(diverged(location, &format!("it lacks chunk {}", chunk.entry.id)));
        }
        let mut plan = UploadPlan {
            head,
            extensions: Vec::new(),
            separable: usize::MAX,
            replacements: Vec::new(),
        };
        for (entry, len) in found {
            let old = state.and_then(|state| state.chunk(entry.id));
            let is_lost = old
                .is_some_and(|old| old.pieces.iter().any(|piece| chain.is_lost(old.file(), piece)));
            plan.add_chunk(entry, len, (old, is_lost), (tails_max, location))?;
        }
        plan.separable = plan.separable.min(plan.extensions.len());
        Ok(plan)
    }

    fn add_chunk(
        &mut self,
        entry: ChunkEntry,
        len: u64,
        (old, is_lost): (Option<&BackedChunk>, bool),
        (tails_max, location): (usize, &str),
    ) -> ObjectBackupResult<()> {
        let whole = PieceJob { entry, kept: Vec::new(), from: 0, to: len, unmerged: None };
        let Some(old) = old else {
            self.extensions.push(whole);
            return Ok(());
        };
        let place = |entry: &ChunkEntry| (entry.id, entry.start, entry.capacity, entry.key);
        if place(&old.entry) != place(&entry) {
            return Err(diverged(location, &format!("it has another chunk {}", entry.id)));
        }
        let version = |entry: &ChunkEntry| chunk_file(entry).version;
        if version(&old.entry) > version(&entry) {
            let what = format!("the backup has a later scavenge of chunk {}", entry.id);
            return Err(diverged(location, &what));
        }
        if version(&old.entry) < version(&entry) {
            let ends = |entry: &ChunkEntry| entry.ended.map(|ended| ended.last_event);
            if ends(&old.entry) == ends(&entry) {
                self.replacements.push(whole);
            } else {
                self.separable = self.separable.min(self.extensions.len());
                self.extensions.push(whole);
            }
            return Ok(());
        }
        let backed = old.file_bytes();
        let is_other = entry.scavenged != old.entry.scavenged
            || backed > len
            || (backed == len && entry.ended.is_some() && entry.ended != old.entry.ended)
            || (backed < len && old.entry.ended.is_some_and(|ended| ended.seal.is_some()));
        if is_other {
            return Err(diverged(location, &format!("it has another end of chunk {}", entry.id)));
        }
        if is_lost && backed == len {
            self.replacements.push(whole);
        } else if is_lost {
            self.extensions.push(whole);
        } else if backed < len {
            let (mut kept, mut unmerged, mut from) = (old.pieces.clone(), None, backed);
            let small = small_tails(&kept);
            if small >= tails_max {
                unmerged = Some(kept.clone());
                kept.truncate(kept.len() - small);
                from = kept.last().map_or(0, |last| last.to);
            }
            self.extensions.push(PieceJob { entry, kept, from, to: len, unmerged });
        }
        Ok(())
    }
}

/// Returns the error for a backup that this store does not continue.
fn diverged(location: &str, what: &str) -> ObjectBackupError {
    ObjectBackupError::refused(format!(
        "{location} holds the backup of another copy of this store, or of a later state ({what}); \
         if this store was set back to an earlier state, back it up to another prefix"
    ))
}
