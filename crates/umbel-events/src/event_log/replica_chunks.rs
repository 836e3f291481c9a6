//! Chunks of a replica. Their ids, places, capacities and keys come from slots (B5 of
//! `docs/explanation/replication.md`), and the last one goes on after an open (B4). So the files of
//! all nodes have the same bytes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use umbel_base::ignore_poison::IgnorePoison;
use umbel_base::{Error, Result};
use umbel_log::{END_RECORD_BYTES, HEADER_BYTES, LogKind, LogOptions, LogWriter};

use super::{EventLog, UnsyncedChunk, set_chunk_end};
use crate::event_log::chunk::Chunk;
use crate::event_log::chunk_manifest::{ChunkEntry, ChunkManifest, chunk_directory, chunk_path};
use crate::event_log::clock_epochs::ClockEpoch;
use crate::limits::{FILE_BYTES_MAX, POSITION_MAX};

/// Capacities of chunks are multiples of this.
const CAPACITY_ALIGN: u64 = 4096;

/// Beginning of a chunk, as a slot states it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkBeginning {
    /// Id of the chunk.
    pub id: u64,
    /// Position of the first byte of the chunk's file.
    pub start: u64,
    /// Positions from `start + capacity` on belong to later chunks.
    pub capacity: u64,
    /// Random number of the chunk.
    pub key: u64,
}

impl ChunkBeginning {
    /// Returns the reason why the chunk cannot follow the chunks of this manifest.
    fn check_follows(&self, manifest: &ChunkManifest) -> std::result::Result<(), String> {
        let ChunkBeginning { id, start, capacity, .. } = *self;
        let least = HEADER_BYTES + END_RECORD_BYTES;
        if !(least..=FILE_BYTES_MAX).contains(&capacity) || !capacity.is_multiple_of(CAPACITY_ALIGN)
        {
            return Err(format!("a chunk cannot have a capacity of {capacity} bytes"));
        }
        if id > POSITION_MAX || start.checked_add(capacity).is_none_or(|end| end > POSITION_MAX) {
            return Err(format!("no chunk can have this id, or begin at position {start}"));
        }
        match manifest.last() {
            Some(last) if last.id >= id => Err(format!("its id is not above {}", last.id)),
            Some(last) if last.start + last.capacity > start => {
                Err(format!("position {start} belongs to chunk {}", last.id))
            }
            Some(last) if last.ended.is_none() => Err(format!("chunk {} has not ended", last.id)),
            _ => Ok(()),
        }
    }
}

impl EventLog {
    /// Begins the next chunk of a replica.
    ///
    /// # Errors
    /// `Invalid`, with nothing written, if the chunk cannot follow; a failed call.
    pub fn begin_chunk(&self, begins: &ChunkBeginning) -> Result<(Arc<Chunk>, LogWriter)> {
        // The manifest records the chunks before it as ended, so they must be durable first.
        self.sync()?;
        let mut manifest = self.manifest.lock().ignore_poison();
        let mut changed = manifest.clone();
        for chunk in self.chunks.all().iter() {
            set_chunk_end(&mut changed, chunk);
        }
        let refused =
            |reason: String| Error::invalid(format!("chunk {} cannot begin: {reason}", begins.id));
        begins.check_follows(&changed).map_err(refused)?;
        let ChunkBeginning { id, start, capacity, key } = *begins;
        let mut writer = self.create_chunk(id, capacity)?;
        let entry = ChunkEntry { id, start, capacity, key, ended: None, scavenged: None };
        changed.chunks.push(entry);
        changed.next_id = id + 1;
        changed.next_start = changed.next_start.max(start + capacity);
        writer.file().sync()?;
        self.env.files.sync_dir(&chunk_directory(&self.folder))?;
        writer.set_durable(HEADER_BYTES);
        self.publish(&mut manifest, changed)?;
        drop(manifest);
        let chunk = Arc::new(Chunk::with_progress(&self.folder, &entry, writer.progress()));
        self.chunks.add(&chunk);
        self.add_unsynced(&chunk, &writer);
        Ok((chunk, writer))
    }

    /// Continues the last chunk of a replica after its record that ends at `end`, and whose last
    /// event is at the offset `last_event`.
    ///
    /// # Errors
    /// Damage, a file with another name, or a failed call.
    pub fn resume_chunk(
        &self,
        entry: &ChunkEntry,
        (end, last_event): (u64, u64),
    ) -> Result<(Arc<Chunk>, LogWriter)> {
        let options = LogOptions {
            kind: LogKind::Events,
            log_id: entry.id,
            salt: 0,
            segment_bytes: entry.capacity,
        };
        let path = chunk_path(&self.folder, entry.id);
        let writer = LogWriter::resume(&self.env, &path, options, end, self.defers_writes)?;
        let chunk = Arc::new(Chunk::with_progress(&self.folder, entry, writer.progress()));
        chunk.set_end(end, last_event);
        self.chunks.replace(&chunk);
        self.add_unsynced(&chunk, &writer);
        self.durable.store(entry.start + end, Ordering::Release);
        Ok((chunk, writer))
    }

    fn add_unsynced(&self, chunk: &Arc<Chunk>, writer: &LogWriter) {
        let (progress, pages) = (Arc::clone(writer.progress()), writer.prefaulter());
        let written = UnsyncedChunk { chunk: Arc::clone(chunk), progress, pages };
        self.unsynced.lock().ignore_poison().push(written);
    }

    /// Begins a clock epoch of a replica (B6). Does nothing if the log has it already, because its
    /// slot is applied again.
    ///
    /// # Errors
    /// `Invalid` if an event has the epoch's position or a later one; a failed call.
    pub fn begin_epoch(&self, epoch: ClockEpoch) -> Result<()> {
        let mut manifest = self.manifest.lock().ignore_poison();
        if manifest.epochs.last() == Some(epoch) {
            return Ok(());
        }
        let last_event = self.last_position();
        if last_event.is_some_and(|last| last >= epoch.position) || epoch.position > POSITION_MAX {
            return Err(Error::invalid(format!(
                "a clock epoch cannot begin at position {}",
                epoch.position
            )));
        }
        let mut changed = manifest.clone();
        // Epochs of slots that are applied again, too.
        changed.epochs.truncate(epoch.position);
        changed.epochs.begin(epoch, last_event.unwrap_or(0));
        changed.next_start = changed.next_start.max(epoch.position);
        let epochs = changed.epochs.clone();
        self.publish(&mut manifest, changed)?;
        self.epochs.set(epochs);
        Ok(())
    }
}
