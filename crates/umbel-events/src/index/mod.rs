//! [`Index`]: keyspaces that are derived from the event log and can be rebuilt from it.
//!
//! The keyspaces of the index have no WAL. Each flush stores the position up to which the keyspaces
//! hold the log. The next open reads later events from the event log.

use std::path::Path;

use umbel::{Db, Durability, FilterKind, Keyspace, KeyspaceOptions, LevelFilter, Options, limits};
use umbel_base::{Error, Result};

use crate::event_log::EventLog;
use crate::index::index_marker::{IndexMarker, MarkerEncoder};
use crate::index::stream_head::StreamHead;
use crate::index::views::Views;

pub mod index_batch;
pub mod index_changes;
pub mod index_marker;
pub mod stream_existence;
pub mod stream_head;
pub mod unflushed_views;
pub mod view_block;
pub mod views;

/// Positions of a stream's events. The key is stream id and revision, big-endian.
const EVENTS: &str = "events";
/// Head of each stream, by its name.
const HEADS: &str = "heads";
/// Events of each view, by their numbers.
const VIEWS: &str = "views";

/// Filter of the tables. The existence filter keeps most lookups of absent names away from the
/// tables. So fast construction of the table filter matters more than a low false-positive rate.
const FILTER: LevelFilter =
    LevelFilter { kind: FilterKind::Blocked512, bits_per_key: 10, probes: None };

/// Number of level-0 tables that starts their compaction. A flush writes the events of one chunk, a
/// tenth of a memtable. With fewer level-0 tables, rewriting so few bytes was the largest cost of
/// filling a store. Lookups of absent names probe none of the level-0 tables.
const LEVEL0_TABLES_MAX: usize = 8;

#[cfg(test)]
thread_local! {
    /// Number of range seeks of this thread for positions of streams, for tests of the work of a
    /// call.
    pub static POSITION_SEEKS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// The keyspaces of the index.
#[derive(Debug)]
pub struct Index {
    db: Db,
    read_only: bool,
    heads: Keyspace,
    events: Keyspace,
    /// Numbers of events in views.
    pub views: Views,
}

fn event_key(id: u64, revision: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&id.to_be_bytes());
    key[8..].copy_from_slice(&revision.to_be_bytes());
    key
}

impl Index {
    /// Opens the index in a folder, for the store with this seed.
    pub fn open(folder: &Path, options: Options, read_only: bool, seed: [u8; 16]) -> Result<Index> {
        let db = match read_only {
            true => Db::open_read_only(folder, options)?,
            false => Db::open(folder, options)?,
        };
        let wanted = KeyspaceOptions {
            log: false,
            level_filters: Some([FILTER; limits::LEVELS]),
            level0_tables: LEVEL0_TABLES_MAX,
            ..KeyspaceOptions::default()
        };
        let keyspace = |name: &str| match read_only {
            false => db.keyspace(name, wanted.clone()),
            true => db.existing_keyspace(name)?.ok_or_else(|| {
                Error::invalid(format!(
                    "the index has no keyspace '{name}'; open the event store for writing once"
                ))
            }),
        };
        let (mut heads, mut events) = (keyspace(HEADS)?, keyspace(EVENTS)?);
        if read_marker(&heads)?.position > read_marker(&events)?.position {
            // An earlier version flushed each keyspace by itself. Heads beyond the events are
            // useless then: only the former head had the position of the stream's last event.
            if read_only {
                return Err(Error::invalid(format!(
                    "the index in {} lacks events, because its writer was killed; open the store \
                     for writing once, which rebuilds the index",
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
        // The entry of a stream's last event is written with the stream's next head.
        heads.flush_with(&events);
        let views = keyspace(VIEWS)?;
        let through = read_marker(&views)?.position;
        let views = Views::new(&db, views, seed, through);
        Ok(Index { db, read_only, heads, events, views })
    }

    /// Position up to which all keyspaces durably hold the log; 0 if they are empty.
    pub fn durable_through(&self) -> Result<u64> {
        Ok(self.streams_through()?.min(self.views_through()?))
    }

    /// Position up to which the stream keyspaces durably hold the log.
    pub fn streams_through(&self) -> Result<u64> {
        Ok(read_marker(&self.heads)?.position.min(read_marker(&self.events)?.position))
    }

    /// Position up to which the views' keyspace durably holds the log.
    pub fn views_through(&self) -> Result<u64> {
        Ok(read_marker(self.views.keyspace())?.position)
    }

    /// Markers of the keyspaces' last flushes.
    pub fn markers(&self) -> Result<[IndexMarker; 3]> {
        Ok([
            read_marker(&self.heads)?,
            read_marker(&self.events)?,
            read_marker(self.views.keyspace())?,
        ])
    }

    /// Returns the head of a stream; `None` where it never had an event.
    pub fn head(&self, stream: &str) -> Result<Option<StreamHead>> {
        let found = self.heads.get_with(stream, StreamHead::decode)?;
        match found {
            None => Ok(None),
            Some(Some(head)) => Ok(Some(head)),
            Some(None) => Err(corruption(self.db.path(), "head", stream)),
        }
    }

    /// Returns positions of events of the stream with this id, from `first` to `last`, both
    /// included, in order. Returns at most `limit` positions, from the end if `backwards`.
    pub fn positions(
        &self,
        id: u64,
        (first, last): (u64, u64),
        limit: usize,
        backwards: bool,
    ) -> Result<Vec<(u64, u64)>> {
        #[cfg(test)]
        POSITION_SEEKS.set(POSITION_SEEKS.get() + 1);
        let range = event_key(id, first)..=event_key(id, last);
        let entry = |entry: Result<(Vec<u8>, Vec<u8>)>| {
            let (key, value) = entry?;
            let read = || {
                let revision = u64::from_be_bytes(*key.last_chunk()?);
                Some((revision, u64::from_le_bytes(value.try_into().ok()?)))
            };
            read().ok_or_else(|| corruption(self.db.path(), "entry", &id.to_string()))
        };
        let found = self.events.range(range);
        match backwards {
            true => found.rev().take(limit).map(entry).collect(),
            false => found.take(limit).map(entry).collect(),
        }
    }

    /// Returns the position of one event.
    pub fn position(&self, id: u64, revision: u64) -> Result<Option<u64>> {
        Ok(self.positions(id, (revision, revision), 1, false)?.first().map(|(_, at)| *at))
    }

    /// Whether data that is only in memory takes more than half of the memory budget. This can
    /// happen only in a store that is open for reading only.
    pub fn exceeds_memory(&self) -> bool {
        let (bytes, budget) = self.db.memtable_bytes();
        bytes + self.views.bytes() as u64 > budget / 2
    }

    /// Whether a commit would meet a write stall now.
    pub fn is_write_stalled(&self) -> bool {
        self.heads.is_write_stalled() || self.events.is_write_stalled()
    }

    /// Deletes the entries of removed events, each given by the id of its stream and its revision.
    pub fn delete_entries(&self, entries: &[(u64, u64)]) -> Result<()> {
        let mut batch = self.db.batch();
        for (id, revision) in entries {
            batch.delete(&self.events, event_key(*id, *revision));
        }
        batch.try_commit(Durability::Buffered)
    }

    /// Makes the index durable, which holds at least everything of the log up to `position`.
    /// REQUIRES: no other thread flushes the index.
    pub fn flush(&self, log: &EventLog, position: u64) -> Result<()> {
        let mut markers = MarkerEncoder::default();
        // Entries that go into the views are already in the other keyspaces.
        let through = self.views.flush(&self.db, &mut |through| markers.encode(through, log))?;
        let through = through.max(position);
        let (marker, views) = (markers.encode(through, log), self.views.keyspace());
        match self.streams_through()? > through {
            // The views of a store that had none are being built.
            true => self.db.flush_all(&[views], &marker),
            false => self.db.flush_all(&[&self.heads, &self.events, views], &marker),
        }
    }

    /// Returns names of streams that begin with `prefix`, in order, after the name `after`.
    pub fn stream_names(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, StreamHead)>> {
        let mut start = after.map_or_else(|| prefix.as_bytes().to_vec(), |a| a.as_bytes().to_vec());
        if after.is_some() {
            start.push(0);
        }
        let mut names = Vec::new();
        for entry in self.heads.range(start..).take(limit) {
            let (key, value) = entry?;
            if !key.starts_with(prefix.as_bytes()) {
                break;
            }
            let wrong = || corruption(self.db.path(), "head", &String::from_utf8_lossy(&value));
            let head = StreamHead::decode(&value).ok_or_else(wrong)?;
            names.push((String::from_utf8(key).map_err(|_| wrong())?, head));
        }
        Ok(names)
    }

    /// Passes the names of streams to `visit`, in order, after the name `after`. Returns the last
    /// visited name if more names may follow.
    pub fn visit_stream_names(
        &self,
        after: Option<&[u8]>,
        limit: usize,
        mut visit: impl FnMut(&[u8]),
    ) -> Result<Option<Vec<u8>>> {
        let mut cursor = self.heads.cursor_uncached::<&[u8]>(..)?;
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
        for number in 1..=limit {
            if !cursor.valid() {
                return Ok(None);
            }
            visit(cursor.key());
            if number == limit {
                last = Some(cursor.key().to_vec());
            }
            cursor.next()?;
        }
        Ok(last)
    }

    /// Returns the underlying key-value store.
    pub fn db(&self) -> &Db {
        &self.db
    }
}

fn read_marker(keyspace: &Keyspace) -> Result<IndexMarker> {
    match keyspace.marker() {
        Some(marker) => IndexMarker::decode(&marker, keyspace.name()),
        None => Ok(IndexMarker::default()),
    }
}

fn corruption(folder: &Path, what: &str, of: &str) -> Error {
    let reason = format!(
        "the {what} of stream '{}' is malformed; remove this directory, and the next open \
         rebuilds the index from the event log",
        of.escape_debug()
    );
    Error::corruption(folder, 0, reason)
}
