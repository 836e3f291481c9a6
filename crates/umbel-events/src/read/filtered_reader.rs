//! [`FilteredReader`]: the events that match a filter, by position.
//!
//! An event is examined in the cursor's buffer; only a matching event is copied. If few events can
//! match, the views supply the positions of these events
//! ([`scan_planner`](crate::read::scan_planner)).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::event_filter::{EventFilter, is_hidden};
use crate::event_log::event_format::Frame;
use crate::limits::FILTER_STEP_MILLIS;
use crate::read::all_reader::{AllReader, AllStep};
use crate::read::link_visibility::LinkVisibility;
use crate::read::scan_planner::{FilterStrategy, ScanPlan, ScanPlanner};
use crate::read::view_merge::ViewMerge;
use crate::shared_store_state::StoreInner;
use crate::types::error::{Error, Result};
use crate::types::event::{Direction, Position, RecordedEvent};

/// Maximum number of types whose filter result is cached.
const CACHED_TYPES_MAX: usize = 1024;
/// Bytes of events that are examined between two checks of the clock.
const CLOCK_CHECK_BYTES: usize = 256 << 10;
/// Maximum number of stubs that a scan skips at once.
const STUBS_MAX: usize = 32;
/// Minimum bytes that are read for a candidate of a view.
const CANDIDATE_READ_BYTES: usize = 4096;
/// Number of candidates of views after which the reader plans again.
const REPLAN_CANDIDATES: u64 = 16_384;

/// Result of one step of a filtered read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FilteredItem {
    /// The next matching event. All events before it were examined.
    Event(RecordedEvent),
    /// This step found no matching event. The value is the position of the last event that was
    /// examined or that the index skipped. A read that begins after this position misses no event.
    Examined(Position),
    /// No more events are visible. A forward read has examined all events up to this position,
    /// which is at most the visible position. A backward read has examined all events. A forward
    /// read can continue later.
    End(Position),
}

/// The events that match a filter, by position. Returned by
/// [`Store::read_filtered`](crate::Store::read_filtered).
///
/// After an error every call returns the same error again: no event is skipped.
#[derive(Debug)]
pub struct FilteredReader {
    shared: Arc<StoreInner>,
    filter: Arc<EventFilter>,
    match_cache: MatchCache,
    source: FilteredSource,
    planner: ScanPlanner,
    direction: Direction,
    /// In a forward read, the lowest position that was not examined; in a backward read, the
    /// position after the highest one not examined.
    frontier: u64,
    /// Position of the last examined event, or position up to which the views had no candidates.
    last: Option<u64>,
    examined: u64,
    failed: Option<Error>,
}

/// Source of the events that the filter examines.
#[derive(Debug)]
enum FilteredSource {
    /// The source is not planned yet.
    Unplanned,
    /// The reader examines every event until the frontier reaches this position.
    Scan(Box<AllReader>, Option<u64>),
    /// The reader takes candidates from views, up to this position.
    Views(Box<ViewMerge>, u64),
}

/// Next candidate of the source.
enum NextCandidate {
    /// The next event to examine.
    Event(ExaminedEvent),
    /// Position of a scavenged event, the last of those skipped.
    Scavenged(u64),
    /// The source has no more candidates.
    Exhausted,
    /// No more events are visible.
    End,
}

/// Result of the examination of an event.
struct ExaminedEvent {
    position: u64,
    bytes: usize,
    /// Whether the filter was evaluated.
    has_evaluated: bool,
    /// Copy of the event, if it matches.
    event: Option<RecordedEvent>,
}

impl FilteredReader {
    pub(crate) fn new(
        shared: &Arc<StoreInner>,
        from: Position,
        direction: Direction,
        filter: Arc<EventFilter>,
    ) -> FilteredReader {
        FilteredReader {
            shared: Arc::clone(shared),
            filter,
            match_cache: MatchCache::default(),
            source: FilteredSource::Unplanned,
            planner: ScanPlanner::default(),
            direction,
            frontier: from.0,
            last: None,
            examined: 0,
            failed: None,
        }
    }

    /// Returns the next matching event, or the position up to which events were examined. Each call
    /// examines at least one and at most `examined_max` events, and takes little longer than
    /// `FILTER_STEP_MILLIS`.
    ///
    /// # Errors
    /// `RegexTooExpensive` if the expression takes too long on a name, and the errors of reads.
    pub fn next_within(&mut self, examined_max: usize) -> Result<FilteredItem> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let step = self.examine_next(examined_max.max(1));
        let step = self.shared.damage.record(step);
        if let Err(error) = &step {
            self.failed = Some(error.clone());
        }
        step
    }

    /// Number of events that were examined so far, without those that the index skipped.
    pub fn examined(&self) -> u64 {
        self.examined
    }

    /// Forces a strategy regardless of its cost. For tests only.
    #[doc(hidden)]
    pub fn force_strategy(&mut self, strategy: FilterStrategy) {
        self.planner.forced = Some(strategy);
        self.source = FilteredSource::Unplanned;
    }

    /// Current strategy; `None` before the first plan. For tests only.
    #[doc(hidden)]
    pub fn strategy(&self) -> Option<FilterStrategy> {
        match self.source {
            FilteredSource::Unplanned => None,
            FilteredSource::Scan(..) => Some(FilterStrategy::Scan),
            FilteredSource::Views(..) => Some(FilterStrategy::Views),
        }
    }

    fn examine_next(&mut self, examined_max: usize) -> Result<FilteredItem> {
        self.shared.check_process()?;
        let began = self.shared.env.clock.now();
        let limit = Duration::from_millis(FILTER_STEP_MILLIS);
        let (mut left, mut bytes) = (examined_max, 0);
        while left > 0 {
            // Read before the next event is searched for, so that the examined range is never
            // overstated.
            let visible = self.shared.visible.position();
            self.plan_next(visible)?;
            let mut has_thought = false;
            let candidate = self.find_next()?;
            left -= usize::from(!matches!(candidate, NextCandidate::Exhausted));
            match candidate {
                NextCandidate::Event(seen) => {
                    self.mark_examined(seen.position);
                    self.examined += 1;
                    if let Some(event) = seen.event {
                        return Ok(FilteredItem::Event(event));
                    }
                    (bytes, has_thought) = (bytes + seen.bytes, seen.has_evaluated);
                }
                NextCandidate::Scavenged(position) => {
                    self.mark_examined(position);
                    bytes += CANDIDATE_READ_BYTES;
                }
                NextCandidate::Exhausted => continue,
                NextCandidate::End => return Ok(FilteredItem::End(self.end(visible))),
            }
            if matches!(self.source, FilteredSource::Views(..)) {
                bytes += CANDIDATE_READ_BYTES;
            }
            if has_thought || bytes >= CLOCK_CHECK_BYTES {
                bytes = 0;
                if self.shared.env.clock.now().saturating_sub(began) >= limit {
                    break;
                }
            }
        }
        Ok(FilteredItem::Examined(Position(self.last.unwrap_or(0))))
    }

    /// Plans the next source if none is planned.
    fn plan_next(&mut self, visible: u64) -> Result<()> {
        let backwards = self.direction == Direction::Backwards;
        match &self.source {
            FilteredSource::Views(candidates, _)
                if candidates.taken_count() < REPLAN_CANDIDATES =>
            {
                return Ok(());
            }
            FilteredSource::Scan(_, None) => return Ok(()),
            FilteredSource::Scan(_, Some(until)) if backwards && self.frontier > *until => {
                return Ok(());
            }
            FilteredSource::Scan(_, Some(until)) if !backwards && self.frontier < *until => {
                return Ok(());
            }
            _ => {}
        }
        let range = match (self.direction, self.frontier.min(visible.saturating_add(1))) {
            (Direction::Forwards, _) => (self.frontier, visible),
            // No position is before 0.
            (Direction::Backwards, 0) => (1, 0),
            (Direction::Backwards, edge) => (0, edge - 1),
        };
        let choice = self.planner.plan(&self.shared, &self.filter, range, self.direction)?;
        let far = if backwards { range.0 } else { range.1 };
        self.source = match (choice, std::mem::replace(&mut self.source, FilteredSource::Unplanned))
        {
            (ScanPlan::Views(candidates), _) => FilteredSource::Views(candidates, far),
            (ScanPlan::Scan(bytes), strategy) => {
                let all = match strategy {
                    FilteredSource::Scan(all, _) => all,
                    _ => {
                        let from = Position(self.frontier);
                        Box::new(AllReader::new(&self.shared, from, self.direction))
                    }
                };
                let edge = if backwards { range.1 } else { self.frontier };
                let until = bytes.map(|bytes| match backwards {
                    true => edge.saturating_sub(bytes),
                    false => edge.saturating_add(bytes),
                });
                FilteredSource::Scan(all, until)
            }
        };
        Ok(())
    }

    fn find_next(&mut self) -> Result<NextCandidate> {
        let (filter, cache, shared) = (&*self.filter, &mut self.match_cache, &*self.shared);
        match &mut self.source {
            FilteredSource::Unplanned => Ok(NextCandidate::Exhausted),
            FilteredSource::Scan(all, _) => {
                match all.next_with(STUBS_MAX, |frame| cache.examine(shared, filter, frame))? {
                    AllStep::Event(seen) => Ok(NextCandidate::Event(seen?)),
                    AllStep::Skipped(position) => Ok(NextCandidate::Scavenged(position)),
                    AllStep::End => Ok(NextCandidate::End),
                }
            }
            FilteredSource::Views(candidates, far) => {
                let far = *far;
                match candidates.next_with(|frame| cache.examine(shared, filter, frame))? {
                    Some((_, Some(seen))) => Ok(NextCandidate::Event(seen?)),
                    Some((position, None)) => Ok(NextCandidate::Scavenged(position)),
                    None => self.skip_to(far),
                }
            }
        }
    }

    /// Records that the views have no more candidates up to this position.
    fn skip_to(&mut self, far: u64) -> Result<NextCandidate> {
        self.source = FilteredSource::Unplanned;
        match self.direction {
            Direction::Forwards => self.mark_examined(far),
            Direction::Backwards => {
                // The lower of both: the last position is that of an event, and of a visible one.
                let end = self.frontier.min(self.shared.visible.position().saturating_add(1));
                let first = self.shared.log.cursor().seek(far)?;
                if let Some(first) = first.filter(|first| *first < end) {
                    self.mark_examined(first);
                }
                self.frontier = far;
            }
        }
        Ok(NextCandidate::Exhausted)
    }

    fn mark_examined(&mut self, position: u64) {
        self.last = Some(position);
        self.frontier = match self.direction {
            Direction::Forwards => position.saturating_add(1),
            Direction::Backwards => position,
        };
    }

    fn end(&self, visible: u64) -> Position {
        let last = self.last.unwrap_or(0);
        match self.direction {
            Direction::Forwards => Position(last.max(visible)),
            Direction::Backwards => Position(last),
        }
    }
}

/// Cached filter results of names.
#[derive(Debug, Default)]
struct MatchCache {
    last: Option<(String, bool)>,
    types: HashMap<Box<str>, bool>,
    /// Visibility of events in their streams, for an index.
    visibility: LinkVisibility,
}

impl MatchCache {
    fn examine(
        &mut self,
        shared: &StoreInner,
        filter: &EventFilter,
        frame: Frame<'_>,
    ) -> Result<ExaminedEvent> {
        let (mut passes, has_thought) = self.is_match(filter, frame.stream, frame.event.kind)?;
        if passes && filter.is_index() {
            passes = self.visibility.is_visible(shared, &frame)?;
        }
        Ok(ExaminedEvent {
            position: frame.meta.position,
            bytes: frame.bytes,
            has_evaluated: has_thought,
            event: passes.then(|| frame.to_recorded()),
        })
    }

    /// Whether an event matches, and whether the filter was evaluated for it.
    fn is_match(&mut self, filter: &EventFilter, stream: &str, kind: &str) -> Result<(bool, bool)> {
        if is_hidden(stream) {
            return Ok((false, false));
        }
        let name = filter.subject_of(stream, kind);
        if filter.is_cheap() {
            return Ok((filter.matches(name)?, false));
        }
        if let Some((last, passes)) = &self.last
            && last == name
        {
            return Ok((*passes, false));
        }
        if let Some(passes) = self.types.get(name) {
            return Ok((*passes, false));
        }
        let passes = filter.matches(name)?;
        if filter.is_by_type() {
            if self.types.len() >= CACHED_TYPES_MAX {
                self.types.clear();
            }
            self.types.insert(name.into(), passes);
        } else {
            let (last, last_passes) = self.last.get_or_insert_default();
            last.clear();
            last.push_str(name);
            *last_passes = passes;
        }
        Ok((passes, true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filter_results_are_cached_and_evicted() {
        let (mut of_types, mut of_streams) = (MatchCache::default(), MatchCache::default());
        let types = EventFilter::type_regex("7$").expect("good");
        let streams = EventFilter::stream_regex("7$").expect("good");
        for turn in 0..3 {
            for number in 0..2 * CACHED_TYPES_MAX {
                let name = number.to_string();
                let wanted = name.ends_with('7');
                let (passes, _) = of_types.is_match(&types, "s", &name).expect("in time");
                let (again, has_thought) = of_types.is_match(&types, "t", &name).expect("in time");
                assert_eq!((passes, again, has_thought), (wanted, wanted, false), "turn {turn}");
                let (passes, has_thought) =
                    of_streams.is_match(&streams, &name, "k").expect("in time");
                assert_eq!((passes, has_thought), (wanted, true));
                let (passes, has_thought) =
                    of_streams.is_match(&streams, &name, "l").expect("in time");
                assert_eq!((passes, has_thought), (wanted, false));
            }
            assert!(of_types.types.len() <= CACHED_TYPES_MAX);
        }
    }
}
