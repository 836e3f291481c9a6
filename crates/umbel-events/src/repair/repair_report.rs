//! Findings and actions of a repair, for the caller and as text for the operator.

use std::fmt;
use std::time::Duration;

use crate::limits::TOMBSTONE_REVISION;
use crate::types::event::Position;

/// Options of a repair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RepairOptions {
    /// Reports the planned actions, and changes nothing.
    pub dry_run: bool,
    /// Also keeps appends that look whole but that nothing proves to have been appended. What looks
    /// like an append can be a copy that a client put into the data of an event.
    pub accept_unproven: bool,
    /// Maximum wait while another process or handle has the store open, like
    /// [`StoreOptions::lock_wait`](crate::StoreOptions::lock_wait).
    pub lock_wait: Duration,
}

/// Findings of a repair, with its actual or planned actions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RepairReport {
    /// Chunks of the event log that were damaged or missing.
    pub chunks: Vec<ChunkRepair>,
    /// Known lost revisions of streams, by stream.
    pub streams: Vec<LostRevisions>,
    /// Reason why the chunk manifest was rebuilt from the chunks; `None` if the manifest was not
    /// rebuilt.
    pub manifest: Option<String>,
    /// Reason why the index is rebuilt by the next open, which reads the whole log; `None` if it is
    /// not.
    pub index: Option<String>,
    /// The old index knows the events up to this position. Of losses after this position, `streams`
    /// lists only gaps between remaining events; lost revisions after a stream's last remaining
    /// event are assigned again. `None` if there was no readable index.
    pub index_through: Option<Position>,
    /// Whether chunks may be missing after the last existing chunk. This possibility counts as a
    /// loss.
    pub is_end_unknown: bool,
    /// Files in the log's directory that belong to no chunk.
    pub unrelated_files: Vec<String>,
    /// Unrelated files with readable events that may have belonged to this store; these events
    /// count as lost.
    pub unplaced: Vec<UnplacedChunk>,
    /// Damage of the existence filter's directory that keeps the store from opening.
    pub existence: Option<String>,
    /// Directory of the store with the damaged files; `None` if nothing was moved.
    pub folder: Option<String>,
    /// Whether this call finished an interrupted repair. The interrupted repair's findings are in
    /// the file `report.txt` in [`folder`](RepairReport::folder).
    pub is_resumed: bool,
    /// Whether the interrupted repair, which this call finished, could not salvage everything.
    pub is_resumed_loss: bool,
    /// Whether the directory could not be locked, for example because it is read-only. Another
    /// process may have changed the store during the survey. Set only with
    /// [`RepairOptions::dry_run`].
    pub is_unlocked: bool,
}

/// Chunk that was damaged or missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkRepair {
    /// The chunk's id.
    pub id: u64,
    /// Description of the damage, with file and offset.
    pub reason: String,
    /// Number of salvaged events.
    pub events_saved: u64,
    /// Lost positions.
    pub lost: Vec<LostRange>,
}

/// File with readable events that fits nowhere in the event log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnplacedChunk {
    /// Name of the file in the folder of the log.
    pub name: String,
    /// Id of the chunk in the file's header.
    pub id: u64,
    /// Number of readable events in the file.
    pub events: u64,
    /// Position at which the file's chunk begins.
    pub from: Position,
    /// Position after the file's last event.
    pub to: Position,
}

/// Range of lost positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LostRange {
    /// The first lost position.
    pub from: Position,
    /// End of the last lost event; no event of the range is at or after this position.
    pub to: Position,
    /// Number of bytes of the range in the chunk's file.
    pub bytes: u64,
    /// Number of appends in the range that look whole, but that nothing proves to have been
    /// appended.
    pub unproven: u64,
}

/// Lost revisions of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostRevisions {
    /// The stream.
    pub stream: String,
    /// The first lost revision.
    pub first: u64,
    /// The last lost revision.
    pub last: u64,
    /// Whether the index knew the lost revisions. If not, a gap between remaining events is the
    /// evidence, and some of the revisions may have been scavenged before.
    pub is_certain: bool,
}

impl RepairReport {
    /// Whether there was nothing to repair.
    pub fn is_undamaged(&self) -> bool {
        let is_log_whole = self.chunks.is_empty() && self.manifest.is_none();
        let is_rest_whole = self.index.is_none() && self.existence.is_none();
        is_log_whole && is_rest_whole && self.unrelated_files.is_empty() && !self.is_resumed
    }

    /// Whether anything is lost.
    pub fn has_loss(&self) -> bool {
        self.is_resumed_loss
            || !self.streams.is_empty()
            || !self.unplaced.is_empty()
            || self.is_end_unknown
            || self.chunks.iter().any(|chunk| !chunk.lost.is_empty())
    }

    /// Number of lost bytes of the log.
    pub fn bytes_lost(&self) -> u64 {
        self.chunks.iter().flat_map(|chunk| &chunk.lost).map(|range| range.bytes).sum()
    }
}

/// One sentence per line, without the directory of the store.
impl fmt::Display for RepairReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(reason) = &self.manifest {
            writeln!(f, "the chunk manifest is rebuilt from the chunks: {reason}")?;
        }
        for chunk in &self.chunks {
            writeln!(
                f,
                "chunk {}: {}; {} events saved",
                chunk.id, chunk.reason, chunk.events_saved
            )?;
            for LostRange { from, to, bytes, unproven } in &chunk.lost {
                write!(f, "  lost: positions {} up to {}, {bytes} bytes", from.0, to.0)?;
                match unproven {
                    0 => writeln!(f)?,
                    _ => writeln!(
                        f,
                        "; {unproven} appends in this range look whole, but may be the data of \
                         another event"
                    )?,
                }
            }
        }
        for lost in &self.streams {
            lost.fmt(f)?;
        }
        if self.bytes_lost() > 0 {
            match self.index_through {
                None => writeln!(
                    f,
                    "the index could not be read: streams whose last events are lost are not \
                     known, and new events get the revisions of the lost events"
                )?,
                Some(position) => writeln!(
                    f,
                    "the index knew the events up to position {}: for losses after that position, \
                     the last revisions of streams are not known, and new events get these \
                     revisions again",
                    position.0
                )?,
            }
        }
        if self.is_end_unknown {
            writeln!(
                f,
                "without chunk manifest and index it is not known whether chunks followed the \
                 last chunk: compare the last events with a backup, or with the source of the \
                 events"
            )?;
        }
        for name in &self.unrelated_files {
            writeln!(f, "log/{name} belongs to no chunk of this store")?;
        }
        for UnplacedChunk { name, id, events, from, to } in &self.unplaced {
            writeln!(
                f,
                "log/{name} is chunk {id} by its header and holds {events} events, positions {} up \
                 to {}, but fits nowhere in the event log: its events are lost, unless the file \
                 belongs to another store",
                from.0, to.0
            )?;
        }
        if let Some(reason) = &self.existence {
            writeln!(f, "the existence filter is rebuilt when the store is opened: {reason}")?;
        }
        if let Some(reason) = &self.index {
            writeln!(f, "the index is rebuilt when the store is opened: {reason}")?;
        }
        Ok(())
    }
}

impl fmt::Display for LostRevisions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LostRevisions { stream, first, last, is_certain } = self;
        write!(f, "stream '{}': ", stream.escape_debug())?;
        match (first, last) {
            (&TOMBSTONE_REVISION, _) => {
                write!(f, "the tombstone is lost; the stream stays tombstoned")?;
            }
            _ if first == last => write!(f, "revision {first} is lost")?,
            _ => write!(f, "revisions {first} to {last} are lost")?,
        }
        if !is_certain {
            write!(f, ", or scavenged before")?;
        }
        if stream.starts_with("$$") {
            write!(f, "; check the stream's metadata, and write it again")?;
        }
        writeln!(f)
    }
}
