//! [`ViewMerge`]: the events of several views, merged by their positions.

use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;

use crate::event_log::LogCursor;
use crate::event_log::event_format::Frame;
use crate::shared_store_state::StoreInner;
use crate::types::error::Result;
use crate::types::event::Direction;
use crate::types::view_kind::ViewKind;

/// Number of entries that are buffered for all views together, and the minimum and maximum for each
/// view.
const BUFFERED_ENTRIES_MAX: usize = 4096;
const PAGE_MIN: usize = 8;
const PAGE_MAX: usize = 512;

/// The entries of a view between two positions.
#[derive(Debug)]
pub struct ViewRange {
    kind: ViewKind,
    name: String,
    /// First (inclusive) and last (exclusive) of the remaining numbers.
    remaining: (u64, u64),
    /// Positions that were fetched and not returned yet.
    page: VecDeque<u64>,
}

impl ViewRange {
    /// Creates the range of entries whose events are between these positions, both inclusive;
    /// `None` if the range is empty. REQUIRES: the events up to the second position are visible.
    pub fn new(
        shared: &StoreInner,
        (kind, name): (ViewKind, String),
        (low, high): (u64, u64),
    ) -> Result<Option<ViewRange>> {
        let views = &shared.index.views;
        let first = match low.checked_sub(1) {
            Some(before) => views.count_through(kind, &name, before)?,
            None => 0,
        };
        let end = views.count_through(kind, &name, high)?;
        let page = VecDeque::new();
        Ok((first < end).then_some(ViewRange { kind, name, remaining: (first, end), page }))
    }

    /// Maximum number of remaining entries.
    pub fn remaining_count(&self) -> u64 {
        self.remaining.1 - self.remaining.0
    }

    /// Returns the next position.
    fn next_position(
        &mut self,
        shared: &StoreInner,
        limit: usize,
        backwards: bool,
    ) -> Result<Option<u64>> {
        if self.page.is_empty() {
            let (first, end) = self.remaining;
            if first >= end {
                return Ok(None);
            }
            let from = if backwards { end - 1 } else { first };
            let views = &shared.index.views;
            let page = views.positions(self.kind, &self.name, from, limit, backwards)?;
            let page = page.into_iter().filter(|(number, _)| (first..end).contains(number));
            let mut last = None;
            self.page.extend(page.map(|(number, position)| {
                last = Some(number);
                position
            }));
            self.remaining = match last {
                Some(last) if backwards => (first, last),
                Some(last) => (last + 1, end),
                // Events that were scavenged before a view was rebuilt have numbers and no entries.
                None => (end, end),
            };
        }
        Ok(self.page.pop_front())
    }
}

/// The events of several views between two positions, in order of their positions. A scavenged
/// event is returned as a position only.
#[derive(Debug)]
pub struct ViewMerge {
    shared: Arc<StoreInner>,
    cursor: LogCursor,
    ranges: Vec<ViewRange>,
    /// Heap key of the next position of each nonempty range; the nearest position is on top.
    next_positions: BinaryHeap<(u64, usize)>,
    backwards: bool,
    page_size: usize,
    taken_count: u64,
}

impl ViewMerge {
    /// Merges ranges of views that have no event in common.
    pub fn new(
        shared: &Arc<StoreInner>,
        parts: Vec<ViewRange>,
        direction: Direction,
    ) -> Result<ViewMerge> {
        let mut candidates = ViewMerge {
            shared: Arc::clone(shared),
            cursor: shared.log.cursor().with_sparse_reads(),
            next_positions: BinaryHeap::with_capacity(parts.len()),
            backwards: direction == Direction::Backwards,
            page_size: (BUFFERED_ENTRIES_MAX / parts.len().max(1)).clamp(PAGE_MIN, PAGE_MAX),
            ranges: parts,
            taken_count: 0,
        };
        for index in 0..candidates.ranges.len() {
            candidates.advance(index)?;
        }
        Ok(candidates)
    }

    /// Number of entries that were taken.
    pub fn taken_count(&self) -> u64 {
        self.taken_count
    }

    fn advance(&mut self, index: usize) -> Result<()> {
        let part = &mut self.ranges[index];
        if let Some(position) = part.next_position(&self.shared, self.page_size, self.backwards)? {
            self.next_positions.push((self.heap_key(position), index));
        }
        Ok(())
    }

    /// Converts a position to its heap key, or a heap key to its position. The heap has the highest
    /// key on top.
    fn heap_key(&self, position: u64) -> u64 {
        if self.backwards { position } else { !position }
    }

    /// Returns the next position, and the result of `visit` for the event there; `None` for a
    /// scavenged event.
    pub fn next_with<T>(
        &mut self,
        visit: impl FnOnce(Frame<'_>) -> T,
    ) -> Result<Option<(u64, Option<T>)>> {
        self.shared.check_open()?;
        let Some((rank, index)) = self.next_positions.pop() else { return Ok(None) };
        let position = self.heap_key(rank);
        self.advance(index)?;
        self.taken_count += 1;
        let frame = self.cursor.find_event(position)?.filter(|frame| !frame.is_stub);
        Ok(Some((position, frame.map(visit))))
    }
}
