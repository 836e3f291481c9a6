//! What the index knows of the events of damaged chunks: where they begin, and which revisions of
//! which streams they are. It is asked before it is made anew.

use std::collections::HashMap;
use std::path::Path;

use umbel::Options;
use umbel_env::Env;

use crate::error::{Error, Result};
use crate::head::Head;
use crate::index::Index;
use crate::limits::TOMBSTONE_REVISION;
use crate::view_name::ViewKind;

/// How many names or entries are fetched at a time.
const PAGE: usize = 1024;

/// The index that was found.
#[derive(Debug)]
pub struct OldIndex {
    index: Index,
    /// It knows the events up to this position.
    pub through: u64,
}

/// An event that the index knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownEvent {
    /// Its position.
    pub position: u64,
    /// Its stream, by its number in [`KnownEvents::streams`].
    pub stream: usize,
    /// Its revision.
    pub revision: u64,
    /// Whether it is the last of its stream.
    pub is_last: bool,
    /// Its type, where the views know it.
    pub kind: Option<String>,
}

/// The events that the index knows in some ranges of positions.
#[derive(Debug, Default)]
pub struct KnownEvents {
    /// Names of streams.
    pub streams: Vec<String>,
    /// The events, by position.
    pub events: Vec<KnownEvent>,
}

impl KnownEvents {
    /// Those with positions from the first up to, and without, the second.
    pub fn between(&self, (from, to): (u64, u64)) -> &[KnownEvent] {
        let first = self.events.partition_point(|event| event.position < from);
        let end = self.events.partition_point(|event| event.position < to);
        &self.events[first..end.max(first)]
    }
}

impl OldIndex {
    /// The index of the store in `folder`, or why it cannot be believed; `None` where there is
    /// none.
    ///
    /// # Errors
    /// What the system refuses to read: nobody knows whether that is damaged.
    pub fn find(
        env: &Env,
        folder: &Path,
        seed: [u8; 16],
    ) -> Result<Option<core::result::Result<OldIndex, String>>> {
        let is_there = env.files.exists(&folder.join("index"))?;
        if !is_there {
            return Ok(None);
        }
        Ok(Some(match OldIndex::open(env, folder, seed) {
            Ok(opened) => opened,
            Err(error @ Error::Invalid(_)) => Err(error.to_string()),
            Err(error) if error.is_damage() => Err(error.without_remedy()),
            Err(error) => return Err(error),
        }))
    }

    /// Opens the index of the store in `folder` and checks all of it. In it stands why it cannot be
    /// believed, as text, where the check found that.
    fn open(
        env: &Env,
        folder: &Path,
        seed: [u8; 16],
    ) -> Result<core::result::Result<OldIndex, String>> {
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
        Ok(Ok(OldIndex { index, through }))
    }

    /// The position up to which any part of it holds what the log had.
    pub fn furthest(&self) -> Result<u64> {
        Ok(self.through.max(self.index.views_through()?))
    }

    /// Whether it has this event at this position.
    pub fn knows(&self, stream: &str, revision: u64, position: u64) -> Result<bool> {
        let Some(head) = self.index.head(stream)? else { return Ok(false) };
        let is_last = (head.last_revision, head.last_position) == (revision, position);
        Ok(is_last || self.index.position(head.id, revision)? == Some(position))
    }

    /// Streams and their heads, in order, behind the name `after`.
    pub fn heads(&self, after: Option<&str>) -> Result<Vec<(String, Head)>> {
        Ok(self.index.names("", after, PAGE)?)
    }

    /// The events in these ranges of positions, which rise.
    pub fn events(&self, ranges: &[(u64, u64)]) -> Result<KnownEvents> {
        let mut known = self.places(ranges)?;
        self.add_kinds(&mut known, ranges)?;
        Ok(known)
    }

    /// The same without their types.
    pub fn places(&self, ranges: &[(u64, u64)]) -> Result<KnownEvents> {
        let mut known = KnownEvents::default();
        let is_inside = |position: u64| {
            let behind = ranges.partition_point(|range| range.0 <= position);
            behind.checked_sub(1).is_some_and(|index| position < ranges[index].1)
        };
        let mut after: Option<String> = None;
        loop {
            let names = self.index.names("", after.as_deref(), PAGE)?;
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
                        let event = KnownEvent { position, stream, revision, is_last, kind: None };
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

    /// Adds the types of the events, which their views know.
    fn add_kinds(&self, known: &mut KnownEvents, ranges: &[(u64, u64)]) -> Result<()> {
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
                    Some(before) => views.numbers_through(ViewKind::Type, name, before)?,
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
