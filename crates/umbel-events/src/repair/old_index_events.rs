//! Events of damaged chunks that the index knows: their positions, streams and revisions. A repair
//! reads these entries before the index is rebuilt.

use std::collections::HashMap;
use std::path::Path;

use umbel::Options;
use umbel_env::Env;

use crate::index::Index;
use crate::index::stream_head::StreamHead;
use crate::limits::TOMBSTONE_REVISION;
use crate::types::error::{Error, Result};
use crate::types::view_kind::ViewKind;

/// Number of names or entries that are fetched at a time.
const PAGE: usize = 1024;

/// Index of the store before the repair.
#[derive(Debug)]
pub struct OldIndexEvents {
    index: Index,
    /// The index knows the events up to this position.
    pub through: u64,
}

/// Event that the index knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OldIndexEntry {
    /// Position of the event.
    pub position: u64,
    /// Stream of the event, as an index into [`OldIndexEntries::streams`].
    pub stream: usize,
    /// Revision of the event.
    pub revision: u64,
    /// Whether the event is the last of its stream.
    pub is_last: bool,
    /// Type of the event, if the views know it.
    pub kind: Option<String>,
}

/// Events that the index knows in some ranges of positions.
#[derive(Debug, Default)]
pub struct OldIndexEntries {
    /// Names of streams.
    pub streams: Vec<String>,
    /// The events, by position.
    pub events: Vec<OldIndexEntry>,
}

impl OldIndexEntries {
    /// Events with positions from the first up to the second, exclusive.
    pub fn between(&self, (from, to): (u64, u64)) -> &[OldIndexEntry] {
        let first = self.events.partition_point(|event| event.position < from);
        let end = self.events.partition_point(|event| event.position < to);
        &self.events[first..end.max(first)]
    }
}

impl OldIndexEvents {
    /// Loads the index of the store in `folder`, or the reason why the index cannot be trusted;
    /// `None` if the store has no index.
    ///
    /// # Errors
    /// Reads that the operating system refuses, since the files that it does not let us read may be
    /// undamaged.
    pub fn load(
        env: &Env,
        folder: &Path,
        seed: [u8; 16],
    ) -> Result<Option<core::result::Result<OldIndexEvents, String>>> {
        let is_there = env.files.exists(&folder.join("index"))?;
        if !is_there {
            return Ok(None);
        }
        Ok(Some(match OldIndexEvents::open(env, folder, seed) {
            Ok(opened) => opened,
            Err(error @ Error::Invalid(_)) => Err(error.to_string()),
            Err(error) if error.is_damage() => Err(error.message_without_advice()),
            Err(error) => return Err(error),
        }))
    }

    /// Opens the index of the store in `folder` and checks the whole index. The inner error is the
    /// first damage that the check found, as text. The outer error says that the index could not be
    /// opened or read.
    fn open(
        env: &Env,
        folder: &Path,
        seed: [u8; 16],
    ) -> Result<core::result::Result<OldIndexEvents, String>> {
        let options = Options {
            env: env.clone(),
            memory_bytes: Some(8 << 20),
            background_threads: 0,
            ..Options::default()
        };
        let path = folder.join("index");
        let index = Index::open(&path, options, true, seed)?;
        let report = index.db().verify()?;
        if let Some(damage) = report.damage.into_iter().next() {
            return Ok(Err(damage));
        }
        let through = index.streams_through()?;
        Ok(Ok(OldIndexEvents { index, through }))
    }

    /// Highest position that any part of the index has indexed.
    pub fn last_indexed_position(&self) -> Result<u64> {
        Ok(self.through.max(self.index.views_through()?))
    }

    /// Whether the index has this event at this position.
    pub fn contains(&self, stream: &str, revision: u64, position: u64) -> Result<bool> {
        let Some(head) = self.index.head(stream)? else { return Ok(false) };
        let is_last = (head.last_revision, head.last_position) == (revision, position);
        Ok(is_last || self.index.position(head.id, revision)? == Some(position))
    }

    /// Streams and their heads, in order, after the name `after`.
    pub fn heads(&self, after: Option<&str>) -> Result<Vec<(String, StreamHead)>> {
        Ok(self.index.stream_names("", after, PAGE)?)
    }

    /// Events in these ranges of positions, which are in ascending order.
    pub fn events(&self, ranges: &[(u64, u64)]) -> Result<OldIndexEntries> {
        let mut known = self.events_without_types(ranges)?;
        self.add_types(&mut known, ranges)?;
        Ok(known)
    }

    /// Events in these ranges, without their types.
    pub fn events_without_types(&self, ranges: &[(u64, u64)]) -> Result<OldIndexEntries> {
        let mut known = OldIndexEntries::default();
        let is_inside = |position: u64| {
            let next_index = ranges.partition_point(|range| range.0 <= position);
            next_index.checked_sub(1).is_some_and(|index| position < ranges[index].1)
        };
        let mut after: Option<String> = None;
        loop {
            let names = self.index.stream_names("", after.as_deref(), PAGE)?;
            let Some((name, _)) = names.last() else { break };
            after = Some(name.clone());
            for (name, head) in names {
                // Its id is the position of its first event.
                let next = ranges.partition_point(|range| range.1 <= head.id);
                if ranges.get(next).is_none_or(|range| head.last_position < range.0) {
                    continue;
                }
                let stream = known.streams.len();
                let before = known.events.len();
                let mut add = |revision: u64, position: u64, is_last: bool| {
                    if is_inside(position) {
                        let event =
                            OldIndexEntry { position, stream, revision, is_last, kind: None };
                        known.events.push(event);
                    }
                };
                let (last, at) = (head.last_revision, head.last_position);
                add(if head.is_tombstoned { TOMBSTONE_REVISION } else { last }, at, true);
                let mut from = 0;
                while from <= last {
                    let page = self.index.positions(head.id, (from, last), PAGE, false)?;
                    let Some((newest, _)) = page.last() else { break };
                    from = newest + 1;
                    page.iter().filter(|entry| entry.1 != at).for_each(|e| add(e.0, e.1, false));
                }
                if known.events.len() > before {
                    known.streams.push(name);
                }
            }
        }
        known.events.sort_unstable_by_key(|event| event.position);
        Ok(known)
    }

    /// Adds the types of the events from their views.
    fn add_types(&self, known: &mut OldIndexEntries, ranges: &[(u64, u64)]) -> Result<()> {
        let places = known.events.iter().enumerate();
        let places: HashMap<u64, usize> = places.map(|(at, event)| (event.position, at)).collect();
        let views = &self.index.views;
        let mut after: Option<String> = None;
        loop {
            let names = views.list(ViewKind::Type, "", after.as_deref(), PAGE)?;
            let Some((name, _)) = names.last() else { return Ok(()) };
            after = Some(name.clone());
            for (name, range) in
                names.iter().flat_map(|(name, _)| ranges.iter().map(move |r| (name, r)))
            {
                let mut number = match range.0.checked_sub(1) {
                    Some(before) => views.count_through(ViewKind::Type, name, before)?,
                    None => 0,
                };
                loop {
                    let page = views.positions(ViewKind::Type, name, number, PAGE, false)?;
                    for place in page.iter().filter_map(|(_, at)| places.get(at)) {
                        known.events[*place].kind = Some(name.clone());
                    }
                    match page.last() {
                        Some((newest, at)) if *at < range.1 => number = newest + 1,
                        _ => break,
                    }
                }
            }
        }
    }
}
