//! [`EventPager`]: a read of events in pages.

use umbel_events::{
    Direction, Error, Position, ResolvedEvent, Source, SourceReader, Store, StreamItem,
    StreamState, ViewState,
};

use crate::access_control::readable_streams::ReadableStreams;
use crate::event_store::event_resolution::{EventResolution, resolved_bytes};
use crate::event_store::page_limits::PageLimits;
use crate::limits::{INLINE_EVENTS_MAX, PAGE_BYTES, PAGE_EVENTS_MAX};

/// An open read.
#[derive(Debug)]
pub struct EventPager {
    range: ReadRange,
    resolution: EventResolution,
    /// Reader of the events; `None` before the first page.
    reader: Option<SourceReader>,
    /// State of a view when the read began.
    view_state: Option<StreamState>,
    /// Whether the read has met hidden events, or may have to search for visible ones.
    is_long: bool,
    /// Whether the next page belongs into the read pool.
    is_pooled: bool,
}

/// The range of events to read.
#[derive(Debug, Clone)]
pub struct ReadRange {
    /// Source of the events.
    pub source: Source,
    /// Direction of the read.
    pub direction: Direction,
    /// The first revision, number or position; inclusive, except for positions of a backward read.
    pub from: u64,
    /// Position after which a view shows no events.
    pub through: Position,
}

/// A page of consecutive events.
#[derive(Debug)]
pub struct EventPage {
    /// The events. If a filter excludes many events, a page can be empty although more events
    /// follow.
    pub events: Vec<ResolvedEvent>,
    /// The pager that continues after this page; `None` after the last page.
    pub pager: Option<EventPager>,
    /// State of the stream or view; `None` for other sources.
    pub state: Option<StreamState>,
}

impl EventPager {
    /// Creates a read of this range.
    pub fn new(range: ReadRange, resolve_links: bool) -> EventPager {
        let hides_streams = range.source.is_by_position();
        let resolution = EventResolution { resolve_links, hides_streams, readable_streams: None };
        EventPager {
            range,
            resolution,
            reader: None,
            view_state: None,
            is_long: false,
            is_pooled: false,
        }
    }

    /// Sets which other streams are shown from now on.
    pub fn set_readable_streams(&mut self, scope: Option<ReadableStreams>) {
        self.resolution.readable_streams = scope;
    }

    /// Whether a page is quick to read from memory: the source is a stream, links are not resolved,
    /// and no hidden events were met.
    pub fn can_run_inline(&self) -> bool {
        let is_stream = matches!(self.range.source, Source::Stream(_));
        is_stream && !self.resolution.resolve_links && !self.is_long
    }

    /// Whether the next page belongs into the read pool: a page that follows others, or hidden
    /// events.
    pub fn is_pooled(&self) -> bool {
        self.is_pooled
    }

    /// Reads a page within these limits and [`PAGE_BYTES`]. With limits for inline reads, a read
    /// that may have to search returns an empty page before the search.
    pub fn next_page(mut self, store: &Store, limits: &PageLimits) -> Result<EventPage, Error> {
        let mut reader = match self.reader.take() {
            Some(reader) => reader,
            None => self.open(store)?,
        };
        let state = reader.stream_state().or(self.view_state);
        let (mut events, mut bytes, mut hidden) = (Vec::new(), 0, 0);
        let mut is_last = false;
        if limits.examined_max <= INLINE_EVENTS_MAX && reader.may_search() {
            (self.is_long, self.reader) = (true, Some(reader));
            return Ok(EventPage { events, pager: Some(self), state });
        }
        let (begun, mut timer) = (reader.examined(), limits.timer());
        while events.len() < limits.events_max && bytes < PAGE_BYTES && hidden < PAGE_EVENTS_MAX {
            let examined = usize::try_from(reader.examined() - begun).unwrap_or(usize::MAX);
            let step = limits.next_step(examined);
            if step == 0 {
                break;
            }
            let event = match reader.next_within(step)? {
                StreamItem::Event(event) => event,
                StreamItem::Skipped => {
                    self.is_long = true;
                    if !limits.has_time_limit() || timer.has_passed() {
                        break;
                    }
                    continue;
                }
                StreamItem::End => {
                    is_last = true;
                    break;
                }
            };
            match self.resolution.resolve(store, event)? {
                Some(event) => {
                    bytes += resolved_bytes(&event);
                    events.push(event);
                }
                None => hidden += 1,
            }
            if timer.has_passed_after_event() {
                break;
            }
        }
        self.is_pooled = limits.examined_max > INLINE_EVENTS_MAX;
        self.reader = Some(reader);
        Ok(EventPage { events, pager: (!is_last).then_some(self), state })
    }

    fn open(&mut self, store: &Store) -> Result<SourceReader, Error> {
        let ReadRange { source, direction, from, through } = &self.range;
        if let Source::View(view) = source {
            self.view_state = Some(match store.view(view, *through)? {
                Some(ViewState { first, last }) => StreamState::Live { first, last },
                None => StreamState::Missing,
            });
        }
        Ok(store.read_source(source, *from, *direction, *through))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

    use umbel_env::Clock;
    use umbel_events::{ExpectedVersion, NewEvent, ScavengeOptions};

    use super::*;
    use crate::event_store::page_limits::tests::BusyClock;
    use crate::limits::HIDDEN_EVENTS_MAX;
    use crate::test_support::test_service::TestService;

    /// Story: eight readers of ten events behind 100,000 scavenged ones kept both processors busy
    /// with pages of 20 ms, and the p99 of appends beside them was 20 times its usual value.
    #[test]
    fn search_is_short_first_and_then_bounded_by_processor_time() {
        let fixture = TestService::new();
        let store = &fixture.store;
        let append = |stream: &str, count: usize| {
            let ids: Vec<_> = (0..count).map(|_| store.new_id().unwrap()).collect();
            let events: Vec<_> = ids.iter().map(|id| NewEvent::json(*id, "Kind", b"{}")).collect();
            store.append(stream, ExpectedVersion::Any, &events).unwrap();
        };
        append("gone", 4000);
        store.delete("gone", ExpectedVersion::Any).unwrap();
        append("shown", 1);
        store.scavenge(&ScavengeOptions::default()).unwrap();
        let range = ReadRange {
            source: Source::All,
            direction: Direction::Forwards,
            from: 0,
            through: Position::END,
        };
        let examined = |page: &EventPage| {
            page.pager.as_ref().and_then(|pager| pager.reader.as_ref()).unwrap().examined()
        };
        let pager = EventPager::new(range, false);
        assert!(!pager.is_pooled());
        let page = pager.next_page(store, &PageLimits::first(10)).unwrap();
        let mut before = examined(&page);
        assert!(before <= 10 + HIDDEN_EVENTS_MAX as u64, "{before} events in the first page");
        let (mut pages, mut next) = (1, page.pager);
        let mut events = page.events;
        while let Some(pager) = next {
            assert!(pager.is_pooled());
            let clock = BusyClock {
                cpu_micros: Some(AtomicU64::new(0)),
                step_micros: 500,
                ..BusyClock::default()
            };
            let clock: Arc<dyn Clock> = Arc::new(clock);
            let page = pager.next_page(store, &PageLimits::pooled(10, &clock)).unwrap();
            if page.pager.is_some() {
                let now = examined(&page);
                assert!((1..=256).contains(&(now - before)), "{} events", now - before);
                before = now;
            }
            (pages, next) = (pages + 1, page.pager);
            events.extend(page.events);
        }
        assert!(pages >= 4000 / 256, "{pages} pages");
        let shown = events.iter().filter_map(|shown| shown.event.as_ref());
        assert_eq!(shown.filter(|event| event.stream == "shown").count(), 1);
    }
}
