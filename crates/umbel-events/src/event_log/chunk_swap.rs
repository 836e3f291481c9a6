//! A chunk that was written anew takes the place of the one it was made of.

use std::path::PathBuf;
use std::sync::Arc;

use umbel_base::{Error, Result};

use super::{EventLog, note_end};
use crate::chunk::Chunk;
use crate::chunk_table::{ChunkEntry, Packed, version_path};
use crate::lock::locked;
use crate::packed::{self, Gaps};

impl EventLog {
    /// Where a scavenge that did not end goes on; 0 where none did.
    pub fn scavenge_from(&self) -> u64 {
        locked(&self.table).scavenge_from
    }

    /// Notes where a scavenge that has not ended goes on, or 0 where it has.
    pub fn set_scavenge_from(&self, position: u64) -> Result<()> {
        let mut table = locked(&self.table);
        if table.scavenge_from == position {
            return Ok(());
        }
        let mut changed = table.clone();
        changed.scavenge_from = position;
        self.publish(&mut table, changed)
    }

    /// A file of a chunk.
    pub fn path(&self, chunk: u64, version: u64) -> PathBuf {
        version_path(&self.folder, chunk, version)
    }

    /// Puts a file that was made of a chunk in its place, and returns the chunk as it is then. The
    /// scavenge goes on at `next`.
    ///
    /// REQUIRES: the chunk has ended, it and those before it are durable, and so are the file and
    /// its name.
    pub fn swap(&self, chunk: &Chunk, packed: Packed, next: u64) -> Result<Arc<Chunk>> {
        let _copying = locked(&self.copying);
        let mut table = locked(&self.table);
        let mut changed = table.clone();
        // None that has ended stands behind one that has not.
        for before in self.chunks.all().iter().filter(|before| before.id <= chunk.id) {
            note_end(&mut changed, before);
        }
        let entry = changed.chunks.iter_mut().find(|entry| entry.id == chunk.id);
        let Some(entry) = entry.filter(|entry| entry.ended.is_some()) else {
            return Err(Error::invalid("internal: only a chunk that has ended is written anew"));
        };
        entry.packed = Some(packed);
        let entry = *entry;
        changed.scavenge_from = next;
        self.publish(&mut table, changed)?;
        drop(table);
        let chunk = Arc::new(Chunk::new(&self.folder, &entry));
        self.chunks.replace(&chunk);
        Ok(chunk)
    }

    /// The chunk as it was before it was written anew for the last time.
    pub fn made_of(&self, chunk: &Chunk) -> Option<Arc<Chunk>> {
        let packed = chunk.packed?;
        // Of a file that no table names any more only its own header tells the rest.
        let before = Packed { version: packed.made_of, made_of: 0, file_bytes: 0, ..packed };
        let entry = ChunkEntry {
            id: chunk.id,
            start: chunk.start,
            capacity: chunk.capacity,
            key: chunk.key,
            ended: chunk.ended.get().copied(),
            packed: Some(before).filter(|before| before.version > 0),
        };
        Some(Arc::new(Chunk::new(&self.folder, &entry)))
    }

    /// What was left out of a chunk.
    pub fn gaps(&self, chunk: &Arc<Chunk>) -> Result<Gaps> {
        if chunk.packed.is_none() {
            return Ok(Gaps::default());
        }
        let points = self.chunks.points(chunk)?;
        let range = (chunk.start, chunk.start + chunk.capacity);
        packed::read_gaps(&*self.chunks.file(chunk)?, chunk.id, &points, range)
    }

    /// Where the last run of events began that were left out of the last chunk that has events, or
    /// of those behind it; 0 where there is none.
    pub fn last_gap(&self) -> Result<u64> {
        for chunk in self.chunks.all().iter().rev() {
            if let Some(run) = self.gaps(chunk)?.runs.last() {
                return Ok(run.position);
            }
            if chunk.last_event().is_some() {
                break;
            }
        }
        Ok(0)
    }
}
