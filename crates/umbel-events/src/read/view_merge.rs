//! [`Candidates`]: the events of several views, merged by their positions.

use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;

use crate::error::Result;
use crate::event::Direction;
use crate::event_log::LogCursor;
use crate::format::Frame;
use crate::shared::Shared;
use crate::view_name::ViewKind;

/// How many entries are held of all views together, and of each at least and at most.
const HELD_ENTRIES: usize = 4096;
const PAGE_MIN: usize = 8;
const PAGE_MAX: usize = 512;

/// The entries of a view between two positions.
#[derive(Debug)]
pub struct Part {
    kind: ViewKind,
    name: String,
    /// The numbers that are left, the last one not included.
    left: (u64, u64),
    /// Positions that were fetched.
    page: VecDeque<u64>,
}

impl Part {
    /// The entries of a view whose events stand at these positions, both included; `None` where
    /// there is none. REQUIRES: the events up to the second one can be seen.
    pub fn new(
        shared: &Shared,
        (kind, name): (ViewKind, String),
        (low, high): (u64, u64),
    ) -> Result<Option<Part>> {
        let views = &shared.index.views;
        let first = match low.checked_sub(1) {
            Some(before) => views.numbers_through(kind, &name, before)?,
            None => 0,
        };
        let end = views.numbers_through(kind, &name, high)?;
        let page = VecDeque::new();
        Ok((first < end).then_some(Part { kind, name, left: (first, end), page }))
    }

    /// How many entries are left, at most.
    pub fn numbers(&self) -> u64 {
        self.left.1 - self.left.0
    }

    /// The next position.
    fn next(&mut self, shared: &Shared, most: usize, backwards: bool) -> Result<Option<u64>> {
        if self.page.is_empty() {
            let (first, end) = self.left;
            if first >= end {
                return Ok(None);
            }
            let from = if backwards { end - 1 } else { first };
            let views = &shared.index.views;
            let page = views.positions(self.kind, &self.name, from, most, backwards)?;
            let page = page.into_iter().filter(|(number, _)| (first..end).contains(number));
            let mut last = None;
            self.page.extend(page.map(|(number, position)| {
                last = Some(number);
                position
            }));
            self.left = match last {
                Some(last) if backwards => (first, last),
                Some(last) => (last + 1, end),
                // What was gone when the view was made anew has numbers and no entries.
                None => (end, end),
            };
        }
        Ok(self.page.pop_front())
    }
}

/// The events of several views between two positions, in order of their positions. An event that
/// was scavenged is met as a position.
#[derive(Debug)]
pub struct Candidates {
    shared: Arc<Shared>,
    cursor: LogCursor,
    parts: Vec<Part>,
    /// The next position of each part that has one, as the heap orders it, the nearest on top.
    nearest: BinaryHeap<(u64, usize)>,
    backwards: bool,
    page_size: usize,
    taken: u64,
}

impl Candidates {
    /// The events of these parts of views, no two of which have one in common.
    pub fn new(shared: &Arc<Shared>, parts: Vec<Part>, direction: Direction) -> Result<Candidates> {
        let mut candidates = Candidates {
            shared: Arc::clone(shared),
            cursor: shared.log.cursor().sparse(),
            nearest: BinaryHeap::with_capacity(parts.len()),
            backwards: direction == Direction::Backwards,
            page_size: (HELD_ENTRIES / parts.len().max(1)).clamp(PAGE_MIN, PAGE_MAX),
            parts,
            taken: 0,
        };
        for index in 0..candidates.parts.len() {
            candidates.advance(index)?;
        }
        Ok(candidates)
    }

    /// How many were taken.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    fn advance(&mut self, index: usize) -> Result<()> {
        let part = &mut self.parts[index];
        if let Some(position) = part.next(&self.shared, self.page_size, self.backwards)? {
            self.nearest.push((self.rank(position), index));
        }
        Ok(())
    }

    /// The heap has the highest on top. What a position becomes here, it also comes back from.
    fn rank(&self, position: u64) -> u64 {
        if self.backwards { position } else { !position }
    }

    /// The next position, and what `look` says of the event there; `None` of one of which nothing
    /// can be read any more.
    pub fn next_with<T>(
        &mut self,
        look: impl FnOnce(Frame<'_>) -> T,
    ) -> Result<Option<(u64, Option<T>)>> {
        self.shared.check_open()?;
        let Some((rank, index)) = self.nearest.pop() else { return Ok(None) };
        let position = self.rank(rank);
        self.advance(index)?;
        self.taken += 1;
        let frame = self.cursor.find(position)?.filter(|frame| !frame.is_stub);
        Ok(Some((position, frame.map(look))))
    }
}
