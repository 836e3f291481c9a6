//! What a repair found and did, for the caller and, as text, for people.

use std::fmt;
use std::time::Duration;

use crate::event::Position;
use crate::limits::TOMBSTONE_REVISION;

/// How a repair is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RepairOptions {
    /// Say what would be done, and change nothing.
    pub dry_run: bool,
    /// Take appends along that look whole but that nothing proves to have been appended: whoever
    /// wrote events can have put the image of one into the data of another.
    pub accept_unproven: bool,
    /// How long to wait while another process or handle has the store open, as
    /// [`StoreOptions::lock_wait`](crate::StoreOptions::lock_wait).
    pub lock_wait: Duration,
}

/// What a repair found, and did or would do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RepairReport {
    /// The chunks of the event log that were damaged or missing.
    pub chunks: Vec<ChunkRepair>,
    /// Revisions of streams that are lost, by stream, as far as anything tells.
    pub streams: Vec<LostRevisions>,
    /// Why the table of chunks was made anew from the chunks, where it was.
    pub table: Option<String>,
    /// Why the index was made anew, where it was: opening the store next reads all of the log.
    pub index: Option<String>,
    /// Events up to this position are known by the index that was there: of what is lost behind
    /// it, `streams` tells only gaps in what is left, and revisions of streams whose last events
    /// are lost are given again. `None` where there was no index that could be read.
    pub index_through: Option<Position>,
    /// Whether nothing tells if there were chunks behind the last one that is there: it counts as a
    /// loss, as nobody can say that there is none.
    pub is_end_unknown: bool,
    /// Files in the folder of the log that belong to no chunk.
    pub strangers: Vec<String>,
    /// Those of them in which events can be read that may have been this store's: they count as
    /// lost.
    pub unplaced: Vec<Unplaced>,
    /// What is wrong with the existence filter's folder, where it keeps the store from being
    /// opened.
    pub existence: Option<String>,
    /// The folder in the store that has the damaged files now; `None` where nothing was moved.
    pub folder: Option<String>,
    /// Whether it brought a repair to its end that had been interrupted. What that found is in the
    /// file `report.txt` of the folder.
    pub is_resumed: bool,
    /// Whether that repair could not save everything.
    pub is_resumed_loss: bool,
    /// Whether the folder could not be locked, as where nobody may write: then somebody may have
    /// changed it while it was looked at. Only for [`RepairOptions::dry_run`].
    pub is_unlocked: bool,
}

/// A chunk that was damaged or missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkRepair {
    /// The chunk's id.
    pub id: u64,
    /// What is wrong with it, with file and offset.
    pub reason: String,
    /// How many events of it were saved.
    pub events_saved: u64,
    /// The positions that are lost.
    pub lost: Vec<LostRange>,
}

/// A file whose events can be read and fit nowhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unplaced {
    /// Its name in the folder of the log.
    pub name: String,
    /// The id of the chunk that it says it is.
    pub id: u64,
    /// How many events can be read in it.
    pub events: u64,
    /// The position at which it begins.
    pub from: Position,
    /// The position behind its last event.
    pub to: Position,
}

/// Positions that are lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LostRange {
    /// The first of them.
    pub from: Position,
    /// The last one's end: no event that was lost stood here or behind.
    pub to: Position,
    /// How many bytes of the chunk's file that is.
    pub bytes: u64,
    /// How many appends stand there that look whole, but that nothing proves to have been appended.
    pub unproven: u64,
}

/// Revisions of a stream that are lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostRevisions {
    /// The stream.
    pub stream: String,
    /// The first of them.
    pub first: u64,
    /// The last of them.
    pub last: u64,
    /// Whether the index knew them. Otherwise the events around them tell, and some of them may
    /// have been scavenged before.
    pub is_certain: bool,
}

impl RepairReport {
    /// Whether there was nothing to repair.
    pub fn is_whole(&self) -> bool {
        let is_log_whole = self.chunks.is_empty() && self.table.is_none();
        let is_rest_whole = self.index.is_none() && self.existence.is_none();
        is_log_whole && is_rest_whole && self.strangers.is_empty() && !self.is_resumed
    }

    /// Whether anything is lost.
    pub fn is_loss(&self) -> bool {
        self.is_resumed_loss
            || !self.streams.is_empty()
            || !self.unplaced.is_empty()
            || self.is_end_unknown
            || self.chunks.iter().any(|chunk| !chunk.lost.is_empty())
    }

    /// Bytes of the log that are lost.
    pub fn bytes_lost(&self) -> u64 {
        self.chunks.iter().flat_map(|chunk| &chunk.lost).map(|range| range.bytes).sum()
    }
}

/// One sentence a line, without the folder of the store.
impl fmt::Display for RepairReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(reason) = &self.table {
            writeln!(f, "the table of chunks is made anew from the chunks: {reason}")?;
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
                        "; {unproven} appends in there look whole, but nothing proves that they \
                         are not the content of an event"
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
                    "the index could not be asked: which streams had their last events where \
                     something is lost is not known, and their revisions are given again"
                )?,
                Some(position) => writeln!(
                    f,
                    "the index knew the events up to position {}: of what is lost behind it, \
                     revisions at the ends of streams are not known, and are given again",
                    position.0
                )?,
            }
        }
        if self.is_end_unknown {
            writeln!(
                f,
                "without table and index nothing tells whether there were chunks behind the last \
                 one that is there: compare the last events with a backup, or with where they came \
                 from"
            )?;
        }
        for name in &self.strangers {
            writeln!(f, "log/{name} belongs to no chunk of this store")?;
        }
        for Unplaced { name, id, events, from, to } in &self.unplaced {
            writeln!(
                f,
                "log/{name} says that it is chunk {id} and holds {events} events, positions {} up \
                 to {}, but fits nowhere: they are lost, unless it is another store's",
                from.0, to.0
            )?;
        }
        if let Some(reason) = &self.existence {
            writeln!(f, "the existence filter is made anew when the store is opened: {reason}")?;
        }
        if let Some(reason) = &self.index {
            writeln!(f, "the index is made anew when the store is opened: {reason}")?;
        }
        Ok(())
    }
}

impl fmt::Display for LostRevisions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LostRevisions { stream, first, last, is_certain } = self;
        write!(f, "stream '{}': ", stream.escape_debug())?;
        match (first, last) {
            (&TOMBSTONE_REVISION, _) => write!(f, "the tombstone is lost; the stream stays ended")?,
            _ if first == last => write!(f, "revision {first} is lost")?,
            _ => write!(f, "revisions {first} to {last} are lost")?,
        }
        if !is_certain {
            write!(f, ", or were scavenged before")?;
        }
        if stream.starts_with("$$") {
            write!(f, "; look at the stream's metadata, and write it again")?;
        }
        writeln!(f)
    }
}
