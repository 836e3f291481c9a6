//! Of which history a position is: what the index and the existence filter say of the log up to it
//! is believed only where that is this log's.

use std::ops::Range;
use std::sync::Arc;

use umbel_base::Result;

use super::EventLog;
use crate::chunk::Chunk;
use crate::chunk_table::key_of_old;
use crate::lock::locked;

impl EventLog {
    /// The chunk that has this position.
    pub fn chunk_at(&self, position: u64) -> Option<Arc<Chunk>> {
        let chunks = self.chunks.all();
        let behind = chunks.partition_point(|chunk| chunk.start <= position);
        let chunk = chunks.get(behind.checked_sub(1)?)?;
        (position < chunk.start + chunk.capacity).then(|| Arc::clone(chunk))
    }

    /// The positions of the chunk that has this one, and its key; none and 0 where none has.
    pub fn positions_and_key(&self, position: u64) -> (Range<u64>, u64) {
        let Some(chunk) = self.chunk_at(position) else { return (0..0, 0) };
        (chunk.start..chunk.start + chunk.capacity, chunk.key)
    }

    /// Whether what was derived of a log up to this position, in a chunk with this key, was derived
    /// of this log. A log without the position is only if it was cut inside of that very chunk.
    /// `None` is the key of who knew of none.
    pub fn has_history(&self, position: u64, key: Option<u64>) -> Result<bool> {
        if position == 0 {
            return Ok(true);
        }
        let Some(chunk) = self.chunk_at(position) else { return Ok(false) };
        let known = key.unwrap_or_else(|| key_of_old(&locked(&self.table).seed, chunk.id));
        if chunk.key != known {
            return Ok(false);
        }
        let last = self.last_position().unwrap_or(0);
        Ok(position > last || self.reaches(&chunk, position)?)
    }

    /// Whether the chunk has, or had before it was written anew, an event at this position or
    /// behind it. One that was copied while it grew may have ended before.
    fn reaches(&self, chunk: &Arc<Chunk>, position: u64) -> Result<bool> {
        let ended = chunk.ended.get().map_or(0, |ended| ended.last_event);
        let last = chunk.last_event().unwrap_or(0).max(ended);
        if position <= chunk.start + last {
            return Ok(true);
        }
        let gaps = self.gaps(chunk)?;
        Ok(gaps.runs.last().is_some_and(|run| position <= run.position))
    }
}
