//! [`EventPager`]: a read of events in pages.

use umbel_events::{
    Direction, Error, Position, ResolvedEvent, Source, SourceReader, Store, StreamItem,
    StreamState, ViewState,
};

use crate::access_control::readable_streams::ReadableStreams;
use crate::event_store::event_resolution::{EventResolution, resolved_bytes};
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
        EventPager { range, resolution, reader: None, view_state: None, is_long: false }
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

    /// Reads a page with a bounded number of events and bytes. A page also ends after a bounded
    /// number of hidden events. With an `examined_max` for inline reads, a read that may have to
    /// search returns an empty page before the search.
    pub fn next_page(
        mut self,
        store: &Store,
        events_max: usize,
        examined_max: usize,
    ) -> Result<EventPage, Error> {
        let mut reader = match self.reader.take() {
            Some(reader) => reader,
            None => self.open(store)?,
        };
        let state = reader.stream_state().or(self.view_state);
        let (mut events, mut bytes, mut hidden) = (Vec::new(), 0, 0);
        let mut is_last = false;
        if examined_max <= INLINE_EVENTS_MAX && reader.may_search() {
            (self.is_long, self.reader) = (true, Some(reader));
            return Ok(EventPage { events, pager: Some(self), state });
        }
        let begun = reader.examined();
        while events.len() < events_max && bytes < PAGE_BYTES && hidden < PAGE_EVENTS_MAX {
            let examined = usize::try_from(reader.examined() - begun).unwrap_or(usize::MAX);
            if examined >= examined_max {
                break;
            }
            let event = match reader.next_within(examined_max - examined)? {
                StreamItem::Event(event) => event,
                StreamItem::Skipped => {
                    self.is_long = true;
                    break;
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
        }
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
