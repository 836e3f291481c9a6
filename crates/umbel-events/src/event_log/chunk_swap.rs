//! Replaces a chunk by its rewritten file.

use std::path::PathBuf;
use std::sync::Arc;
use umbel_base::ignore_poison::IgnorePoison;

use umbel_base::{Error, Result};

use super::{EventLog, set_chunk_end};
use crate::event_log::chunk::Chunk;
use crate::event_log::chunk_manifest::{ChunkEntry, ScavengedFile, chunk_version_path};
use crate::event_log::scavenged_chunk::{self, RemovedEvents};

impl EventLog {
    /// Position at which an unfinished scavenge resumes; 0 without one.
    pub fn scavenge_from(&self) -> u64 {
        self.manifest.lock().ignore_poison().scavenge_from
    }

    /// Records the position at which an unfinished scavenge resumes, or 0 after its end.
    pub fn set_scavenge_from(&self, position: u64) -> Result<()> {
        let mut manifest = self.manifest.lock().ignore_poison();
        if manifest.scavenge_from == position {
            return Ok(());
        }
        let mut changed = manifest.clone();
        changed.scavenge_from = position;
        self.publish(&mut manifest, changed)
    }

    /// Returns the path of a chunk's file.
    pub fn path(&self, chunk: u64, version: u64) -> PathBuf {
        chunk_version_path(&self.folder, chunk, version)
    }

    /// Replaces a chunk's file by a rewritten one, and returns the new chunk. The scavenge resumes
    /// at `next`.
    ///
    /// REQUIRES: the chunk has ended; this chunk, all earlier chunks, the rewritten file and its
    /// name are durable.
    pub fn swap_chunk(
        &self,
        chunk: &Chunk,
        scavenged: ScavengedFile,
        next: u64,
    ) -> Result<Arc<Chunk>> {
        let _copying = self.copy_lock.lock().ignore_poison();
        let mut manifest = self.manifest.lock().ignore_poison();
        let mut changed = manifest.clone();
        // A chunk that has ended never follows one that has not.
        for before in self.chunks.all().iter().filter(|before| before.id <= chunk.id) {
            set_chunk_end(&mut changed, before);
        }
        let entry = changed.entry_mut(chunk.id);
        let Some(entry) = entry.filter(|entry| entry.ended.is_some()) else {
            return Err(Error::invalid("internal: only a chunk that has ended is rewritten"));
        };
        entry.scavenged = Some(scavenged);
        let entry = *entry;
        changed.scavenge_from = next;
        self.publish(&mut manifest, changed)?;
        drop(manifest);
        let chunk = Arc::new(Chunk::new(&self.folder, &entry));
        self.chunks.replace(&chunk);
        Ok(chunk)
    }

    /// Returns the chunk as it was before its last rewrite.
    pub fn source_chunk(&self, chunk: &Chunk) -> Option<Arc<Chunk>> {
        let scavenged = chunk.scavenged?;
        // No manifest names that file any more; only its own header has the rest.
        let before = ScavengedFile {
            version: scavenged.source_version,
            source_version: 0,
            file_bytes: 0,
            ..scavenged
        };
        let entry = ChunkEntry {
            id: chunk.id,
            start: chunk.start,
            capacity: chunk.capacity,
            key: chunk.key,
            ended: chunk.ended.get().copied(),
            scavenged: Some(before).filter(|before| before.version > 0),
        };
        Some(Arc::new(Chunk::new(&self.folder, &entry)))
    }

    /// Returns the events that were removed from a chunk.
    pub fn removed_events(&self, chunk: &Arc<Chunk>) -> Result<RemovedEvents> {
        if chunk.scavenged.is_none() {
            return Ok(RemovedEvents::default());
        }
        let points = self.chunks.position_map(chunk)?;
        let range = (chunk.start, chunk.start + chunk.capacity);
        scavenged_chunk::read_removed_events(&*self.chunks.file(chunk)?, chunk.id, &points, range)
    }

    /// Returns the position of the last run of removed events in the last chunk with events, or in
    /// later chunks; 0 without such a run.
    pub fn last_removed_run(&self) -> Result<u64> {
        for chunk in self.chunks.all().iter().rev() {
            if let Some(run) = self.removed_events(chunk)?.runs.last() {
                return Ok(run.position);
            }
            if chunk.last_event().is_some() {
                break;
            }
        }
        Ok(0)
    }
}
