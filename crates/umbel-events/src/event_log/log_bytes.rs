//! [`LogBytes`]: the sizes of the chunks of the log, for many questions about distances.

use crate::event_log::EventLog;
use crate::types::event::Position;

/// Sizes of the chunks of the event log at one moment. Returned by
/// [`Store::log_bytes`](crate::Store::log_bytes).
#[derive(Debug)]
pub struct LogBytes {
    /// The chunks, by position.
    chunks: Vec<ChunkBytes>,
}

/// Size of a chunk.
#[derive(Debug)]
struct ChunkBytes {
    start: u64,
    /// Position after the last append.
    end: u64,
    file_bytes: u64,
    /// Bytes of the chunks before this one.
    before: u64,
}

impl ChunkBytes {
    /// Bytes of the chunk after one position, up to another one.
    fn between(&self, after: u64, through: u64) -> u64 {
        let bytes = through.min(self.end).saturating_sub(after.max(self.start));
        bytes.min(self.file_bytes)
    }
}

impl LogBytes {
    /// Reads the sizes.
    pub(crate) fn new(log: &EventLog) -> LogBytes {
        let mut before = 0;
        let chunks = log.chunks.all();
        let sizes = chunks.iter().map(|chunk| {
            let end = chunk.end();
            let file_bytes = chunk.scavenged.map_or(end, |scavenged| scavenged.file_bytes);
            let size =
                ChunkBytes { start: chunk.start, end: chunk.start + end, file_bytes, before };
            before += size.between(0, u64::MAX);
            size
        });
        LogBytes { chunks: sizes.collect() }
    }

    /// Returns the bytes of the log after one position, up to another one, like
    /// [`Store::log_bytes_between`](crate::Store::log_bytes_between). Searches for the chunks of
    /// the positions, and does not visit the chunks between them.
    pub fn between(&self, after: Position, through: Position) -> u64 {
        let (after, through) = (after.0, through.0);
        let first = self.chunks.partition_point(|chunk| chunk.start <= after).saturating_sub(1);
        let end = self.chunks.partition_point(|chunk| chunk.start < through);
        match self.chunks.get(first..end) {
            None | Some([]) => 0,
            Some([only]) => only.between(after, through),
            // Only positions after the first chunk are in the others.
            Some([oldest, later @ .., newest]) => {
                let later = later.first().map_or(0, |next| newest.before - next.before);
                oldest.between(after, through) + later + newest.between(after, through)
            }
        }
    }
}
