//! [`Index`]: the keyspaces that are made of the event log and can be made of it again.
//!
//! They have no log of their own: each flush stores up to which position it holds, and what comes
//! after that is read from the event log at the next open.

use std::path::Path;

use umbel::{
    Batch, Db, Durability, FilterKind, Keyspace, KeyspaceOptions, LevelFilter, Options, limits,
};
use umbel_base::{Error, Result};

use crate::changes::Change;
use crate::event_log::EventLog;
use crate::head::Head;
use crate::index_marker::{IndexMarker, MarkerMaker};
use crate::views::Views;

/// Which events a stream has: stream id and revision, big-endian, to position.
const EVENTS: &str = "events";
/// The head of each stream, by its name.
const HEADS: &str = "heads";
/// The events of each view, by their numbers.
const VIEWS: &str = "views";

/// The filters of the tables. Names that never were do not come here, so that one which is made
/// quickly is worth more than one that lets fewer through.
const FILTER: LevelFilter =
    LevelFilter { kind: FilterKind::Blocked512, bits_per_key: 10, probes: None };

/// How many tables level 0 has when they go down. A flush brings what one chunk of the log has, a
/// tenth of a memtable, and writing these few bytes anew was the most that a fill had to do; names
/// that never were ask none of these tables.
const LEVEL0_TABLES: usize = 8;

/// The keyspaces.
#[derive(Debug)]
pub struct Index {
    db: Db,
    read_only: bool,
    heads: Keyspace,
    events: Keyspace,
    /// The numbers of events in views.
    pub views: Views,
}

/// Changes on their way into the index.
#[derive(Debug)]
pub struct IndexBatch {
    batch: Batch,
    head: Vec<u8>,
    markers: MarkerMaker,
}

fn event_key(id: u64, revision: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&id.to_be_bytes());
    key[8..].copy_from_slice(&revision.to_be_bytes());
    key
}

impl Index {
    /// Opens the index in a folder, of the store with this seed.
    pub fn open(folder: &Path, options: Options, read_only: bool, seed: [u8; 16]) -> Result<Index> {
        let db = match read_only {
            true => Db::open_read_only(folder, options)?,
            false => Db::open(folder, options)?,
        };
        let wanted = KeyspaceOptions {
            log: false,
            level_filters: Some([FILTER; limits::LEVELS]),
            level0_tables: LEVEL0_TABLES,
            ..KeyspaceOptions::default()
        };
        let keyspace = |name: &str| match read_only {
            false => db.keyspace(name, wanted.clone()),
            true => db.existing_keyspace(name)?.ok_or_else(|| {
                Error::invalid(format!("the index has no keyspace '{name}'; open it for writing"))
            }),
        };
        let (mut heads, mut events) = (keyspace(HEADS)?, keyspace(EVENTS)?);
        if marker(&heads)?.position > marker(&events)?.position {
            // An earlier version flushed each by itself. What the heads hold beyond the events is
            // no help then: the event that was a stream's last one is in the former head alone.
            if read_only {
                return Err(Error::invalid(format!(
                    "the index in {} was left by a process that was killed, and lacks events; open \
                     the store for writing once, which makes the index anew",
                    folder.display()
                )));
            }
            for name in [HEADS, EVENTS, VIEWS] {
                if db.existing_keyspace(name)?.is_some() {
                    db.drop_keyspace(name)?;
                }
            }
            (heads, events) = (keyspace(HEADS)?, keyspace(EVENTS)?);
        }
        // The event that was a stream's last one gets its entry with the next head of the stream.
        heads.flush_with(&events);
        let views = keyspace(VIEWS)?;
        let through = marker(&views)?.position;
        let views = Views::new(&db, views, seed, through);
        Ok(Index { db, read_only, heads, events, views })
    }

    /// The position up to which all of it holds what the log has, after a crash too; 0 where it
    /// holds nothing.
    pub fn durable_through(&self) -> Result<u64> {
        Ok(self.streams_through()?.min(self.views_through()?))
    }

    /// The same of what is kept of streams.
    pub fn streams_through(&self) -> Result<u64> {
        Ok(marker(&self.heads)?.position.min(marker(&self.events)?.position))
    }

    /// The same of the views.
    pub fn views_through(&self) -> Result<u64> {
        Ok(marker(self.views.keyspace())?.position)
    }

    /// What each part of it was flushed with.
    pub fn markers(&self) -> Result<[IndexMarker; 3]> {
        Ok([marker(&self.heads)?, marker(&self.events)?, marker(self.views.keyspace())?])
    }

    /// The head of a stream; `None` where it never had an event.
    pub fn head(&self, stream: &str) -> Result<Option<Head>> {
        let found = self.heads.get_with(stream, Head::decode)?;
        match found {
            None => Ok(None),
            Some(Some(head)) => Ok(Some(head)),
            Some(None) => Err(malformed(self.db.path(), "head", stream)),
        }
    }

    /// Positions of events of the stream with this id, from `first` to `last`, both included, in
    /// order; at most `most` of them, from the end where `backwards`.
    pub fn positions(
        &self,
        id: u64,
        (first, last): (u64, u64),
        most: usize,
        backwards: bool,
    ) -> Result<Vec<(u64, u64)>> {
        let range = event_key(id, first)..=event_key(id, last);
        let entry = |entry: Result<(Vec<u8>, Vec<u8>)>| {
            let (key, value) = entry?;
            let read = || {
                let revision = u64::from_be_bytes(*key.last_chunk()?);
                Some((revision, u64::from_le_bytes(value.try_into().ok()?)))
            };
            read().ok_or_else(|| malformed(self.db.path(), "entry", &id.to_string()))
        };
        let found = self.events.range(range);
        match backwards {
            true => found.rev().take(most).map(entry).collect(),
            false => found.take(most).map(entry).collect(),
        }
    }

    /// The position of one event.
    pub fn position(&self, id: u64, revision: u64) -> Result<Option<u64>> {
        Ok(self.positions(id, (revision, revision), 1, false)?.first().map(|(_, at)| *at))
    }

    /// A batch of changes.
    pub fn batch(&self) -> IndexBatch {
        IndexBatch { batch: self.db.batch(), head: Vec::new(), markers: MarkerMaker::default() }
    }

    /// Adds what changed in a stream to a batch.
    pub fn add(&self, batch: &mut IndexBatch, change: &Change<'_>) {
        let IndexBatch { batch, head, .. } = batch;
        for (revision, position) in change.entries {
            let key = event_key(change.head.id, *revision);
            batch.put(&self.events, key, position.to_le_bytes());
        }
        head.clear();
        change.head.encode(head);
        batch.put(&self.heads, change.stream.as_bytes(), head);
    }

    /// Commits a batch that makes the index hold everything of the log up to `position`. Where the
    /// store is open for reading only, the batch is kept in memory.
    pub fn commit(&self, batch: &mut IndexBatch, (log, position): (&EventLog, u64)) -> Result<()> {
        let IndexBatch { batch, markers, .. } = batch;
        if self.read_only {
            return batch.replay();
        }
        let marker = markers.encode(position, log);
        batch.set_marker(&self.heads, marker);
        batch.set_marker(&self.events, marker);
        batch.try_commit(Durability::Buffered)
    }

    /// Whether what is only in memory takes more than half of the memory budget, as it may where
    /// the store is open for reading only.
    pub fn is_too_long_for_memory(&self) -> bool {
        let (bytes, budget) = self.db.memtable_bytes();
        bytes + self.views.bytes() as u64 > budget / 2
    }

    /// Whether a commit would be held back now.
    pub fn holds_back(&self) -> bool {
        self.heads.holds_back() || self.events.holds_back()
    }

    /// Deletes entries of events that are gone, given by the stream's id and their revision.
    pub fn forget(&self, entries: &[(u64, u64)]) -> Result<()> {
        let mut batch = self.db.batch();
        for (id, revision) in entries {
            batch.delete(&self.events, event_key(*id, *revision));
        }
        batch.try_commit(Durability::Buffered)
    }

    /// Makes durable what is in it, which holds everything of the log up to `position` at least.
    /// REQUIRES: nobody else does the same.
    pub fn flush(&self, log: &EventLog, position: u64) -> Result<()> {
        let mut markers = MarkerMaker::default();
        // What goes into the views is in the other keyspaces by then.
        let through = self.views.write(&self.db, &mut |through| markers.encode(through, log))?;
        let through = through.max(position);
        let (marker, views) = (markers.encode(through, log), self.views.keyspace());
        match self.streams_through()? > through {
            // The views of a store that had none are being made.
            true => self.db.flush_all(&[views], &marker),
            false => self.db.flush_all(&[&self.heads, &self.events, views], &marker),
        }
    }

    /// Names of streams that begin with `prefix`, in order, behind the name `after`.
    pub fn names(
        &self,
        prefix: &str,
        after: Option<&str>,
        most: usize,
    ) -> Result<Vec<(String, Head)>> {
        let mut start = after.map_or_else(|| prefix.as_bytes().to_vec(), |a| a.as_bytes().to_vec());
        if after.is_some() {
            start.push(0);
        }
        let mut names = Vec::new();
        for entry in self.heads.range(start..).take(most) {
            let (key, value) = entry?;
            if !key.starts_with(prefix.as_bytes()) {
                break;
            }
            let wrong = || malformed(self.db.path(), "head", &String::from_utf8_lossy(&value));
            let head = Head::decode(&value).ok_or_else(wrong)?;
            names.push((String::from_utf8(key).map_err(|_| wrong())?, head));
        }
        Ok(names)
    }

    /// Hands the names of streams to `visit`, in order, behind the name `after`. Returns the last
    /// of them where there may be more.
    pub fn visit_names(
        &self,
        after: Option<&[u8]>,
        most: usize,
        mut visit: impl FnMut(&[u8]),
    ) -> Result<Option<Vec<u8>>> {
        let mut cursor = self.heads.cursor_once::<&[u8]>(..)?;
        match after {
            Some(after) => {
                cursor.seek(after)?;
                if cursor.valid() && cursor.key() == after {
                    cursor.next()?;
                }
            }
            None => cursor.seek_to_first()?,
        }
        let mut last = None;
        for number in 1..=most {
            if !cursor.valid() {
                return Ok(None);
            }
            visit(cursor.key());
            if number == most {
                last = Some(cursor.key().to_vec());
            }
            cursor.next()?;
        }
        Ok(last)
    }

    /// The store below.
    pub fn db(&self) -> &Db {
        &self.db
    }
}

fn marker(keyspace: &Keyspace) -> Result<IndexMarker> {
    match keyspace.marker() {
        Some(marker) => IndexMarker::decode(&marker, keyspace.name()),
        None => Ok(IndexMarker::default()),
    }
}

fn malformed(folder: &Path, what: &str, of: &str) -> Error {
    let reason = format!(
        "the {what} of stream '{}' is malformed; with this folder removed, the index is made anew \
         from the event log",
        of.escape_debug()
    );
    Error::corruption(folder, 0, reason)
}
