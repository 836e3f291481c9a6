//! Lineage of positions. Index and existence filter are trusted only if they were derived from this
//! log, not from a diverged copy of the log.

use std::ops::Range;
use std::sync::Arc;
use umbel_base::ignore_poison::IgnorePoison;

use umbel_base::Result;

use super::EventLog;
use crate::event_log::chunk::Chunk;
use crate::event_log::chunk_manifest::legacy_chunk_key;

impl EventLog {
    /// Returns the chunk that has this position.
    pub fn chunk_at(&self, position: u64) -> Option<Arc<Chunk>> {
        let chunks = self.chunks.all();
        let next_index = chunks.partition_point(|chunk| chunk.start <= position);
        let chunk = chunks.get(next_index.checked_sub(1)?)?;
        (position < chunk.start + chunk.capacity).then(|| Arc::clone(chunk))
    }

    /// Returns the range of positions and the key of the chunk that has `position`; an empty range
    /// and 0 if no chunk has it.
    pub fn chunk_range_and_key(&self, position: u64) -> (Range<u64>, u64) {
        let Some(chunk) = self.chunk_at(position) else { return (0..0, 0) };
        (chunk.start..chunk.start + chunk.capacity, chunk.key)
    }

    /// Whether data that was derived from a log up to `position`, in a chunk with this key, was
    /// derived from this log. If this log does not reach the position, the log must have been cut
    /// within that same chunk. The key is `None` in data of an earlier version of Umbel, which
    /// stored no keys.
    pub fn is_lineage_of(&self, position: u64, key: Option<u64>) -> Result<bool> {
        if position == 0 {
            return Ok(true);
        }
        let Some(chunk) = self.chunk_at(position) else { return Ok(false) };
        let known = key.unwrap_or_else(|| {
            legacy_chunk_key(&self.manifest.lock().ignore_poison().seed, chunk.id)
        });
        if chunk.key != known {
            return Ok(false);
        }
        let last = self.last_position().unwrap_or(0);
        Ok(position > last || self.reaches_position(&chunk, position)?)
    }

    /// Whether the chunk has, or had before its rewrite, an event at or after this position. A copy
    /// of a chunk that was still growing may end before the position.
    fn reaches_position(&self, chunk: &Arc<Chunk>, position: u64) -> Result<bool> {
        let ended = chunk.ended.get().map_or(0, |ended| ended.last_event);
        let last = chunk.last_event().unwrap_or(0).max(ended);
        if position <= chunk.start + last {
            return Ok(true);
        }
        let gaps = self.removed_events(chunk)?;
        Ok(gaps.runs.last().is_some_and(|run| position <= run.position))
    }
}
