//! [`DurableChunks`]: the durable part of the log, for copies of it.

use std::collections::HashMap;

use umbel_base::ignore_poison::IgnorePoison;

use crate::event_log::EventLog;
use crate::event_log::chunk::FIRST_EVENT_OFFSET;
use crate::event_log::chunk_manifest::{ChunkEntry, ChunkManifest};

/// The durable part of the log.
#[derive(Debug)]
pub struct DurableChunks {
    /// The chunk manifest, with all its chunks.
    pub manifest: ChunkManifest,
    /// Entry of each chunk with events, and the length of the durable part of its file. The entry
    /// has an end if all of the chunk is durable.
    pub chunks: Vec<(ChunkEntry, u64)>,
}

impl EventLog {
    /// Returns the durable part of the log. REQUIRES: the caller holds `copy_lock`, so that no
    /// chunk is replaced.
    pub fn durable_chunks(&self) -> DurableChunks {
        // In this order: events that are the reason of a scavenge are durable before the manifest
        // names the scavenged file, and a chunk has ended before later bytes are durable.
        let manifest = self.manifest.lock().ignore_poison().clone();
        let end = self.durable();
        let open = self.chunks.all();
        let by_id: HashMap<u64, _> = open.iter().map(|chunk| (chunk.id, chunk)).collect();
        let mut chunks = Vec::new();
        for entry in &manifest.chunks {
            let Some(chunk) = by_id.get(&entry.id) else { continue };
            let reached = end.saturating_sub(entry.start);
            let ended = chunk.ended.get().copied().filter(|ended| ended.file_bytes() <= reached);
            let len = ended.map_or(reached.min(entry.capacity), |ended| ended.file_bytes());
            let has_events = ended.map_or(len > FIRST_EVENT_OFFSET, |ended| ended.last_event > 0);
            let len = entry.scavenged.map_or(len, |scavenged| scavenged.file_bytes);
            // The file of a scavenged chunk records the scavenge, even if nothing else is left.
            if has_events || entry.scavenged.is_some() {
                chunks.push((ChunkEntry { ended, ..*entry }, len));
            }
            if ended.is_none() {
                // Later bytes are not durable before all of this chunk is.
                break;
            }
        }
        DurableChunks { manifest, chunks }
    }
}
