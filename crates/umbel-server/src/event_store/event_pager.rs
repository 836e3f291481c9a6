//! [`EventPager`]: a read of events in pages.

use std::sync::Arc;

use umbel_events::{
    AllReader, Direction, Error, EventFilter, FilteredItem, FilteredReader, Position,
    RecordedEvent, ResolvedEvent, Revision, Store, StreamItem, StreamReader, StreamState,
    ViewReader, ViewState,
};

use crate::access_control::readable_streams::ReadableStreams;
use crate::limits::{EXAMINED_EVENTS_MAX, PAGE_BYTES, RESPONSE_OVERHEAD_BYTES};

/// The events to read.
#[derive(Debug, Clone)]
pub enum EventSource {
    /// Events of a stream, by revision.
    Stream(Arc<str>),
    /// Events of a view up to a position, by number.
    View(Arc<str>, Position),
    /// All events, by position.
    All,
    /// All events that pass a filter, by position.
    Filtered(Arc<EventFilter>),
}

/// An open read.
#[derive(Debug)]
pub struct EventPager {
    state: PagerState,
    /// Whether links are resolved to their targets.
    resolve_links: bool,
    /// The other streams that the reader may see; `None` for all.
    readable_streams: Option<ReadableStreams>,
}

#[derive(Debug)]
enum PagerState {
    /// Before the first page. The start is inclusive except for positions backwards.
    Unopened(EventSource, Direction, u64),
    Stream(Box<StreamReader>),
    View(Box<ViewReader>, StreamState),
    All(Box<AllReader>),
    Filtered(Box<FilteredReader>),
}

/// A page of consecutive events.
#[derive(Debug)]
pub struct EventPage {
    /// The events. A page may be empty although more follow, where a filter excluded many.
    pub events: Vec<ResolvedEvent>,
    /// The pager that continues after them; `None` after the last page.
    pub pager: Option<EventPager>,
    /// State of the stream or view; `None` for other sources.
    pub state: Option<StreamState>,
}

impl EventPager {
    /// A read from a revision or position, inclusive except for positions backwards.
    pub fn new(source: EventSource, direction: Direction, from: u64, resolves: bool) -> EventPager {
        EventPager {
            state: PagerState::Unopened(source, direction, from),
            resolve_links: resolves,
            readable_streams: None,
        }
    }

    /// Restricts from now on the other streams that are shown.
    pub fn set_read_scope(&mut self, scope: Option<ReadableStreams>) {
        self.readable_streams = scope;
    }

    /// Whether a page is quick to read from memory: the source is a stream, and links are not
    /// resolved.
    pub fn can_run_inline(&self) -> bool {
        let is_stream = matches!(
            self.state,
            PagerState::Unopened(EventSource::Stream(_), ..) | PagerState::Stream(_)
        );
        is_stream && !self.resolve_links
    }

    /// A page of a bounded number of events and bytes. A stream's page also ends after a bounded
    /// number of expired events.
    pub fn next_page(
        self,
        store: &Store,
        max_events: usize,
        examined: usize,
    ) -> Result<EventPage, Error> {
        let EventPager { resolve_links: resolves, readable_streams: scope, .. } = &self;
        let (resolves, scope) = (*resolves, scope.clone());
        let is_of_all = self.state.reads_all_streams();
        let mut events = PageBuilder {
            store,
            resolve_links: resolves,
            readable_streams: scope.as_ref(),
            reads_all_streams: is_of_all,
            events_max: max_events,
            bytes: 0,
            hidden: 0,
            events: Vec::new(),
        };
        let mut state = None;
        let (reader_state, is_last) = match self.state.open(store)? {
            PagerState::Stream(mut reader) => {
                state = reader.state();
                let is_last = events.fill(|| {
                    Ok(match reader.next_within(examined)? {
                        StreamItem::Event(event) => Some(Some(event)),
                        StreamItem::Skipped => Some(None),
                        StreamItem::End => None,
                    })
                })?;
                (PagerState::Stream(reader), is_last)
            }
            PagerState::View(mut reader, view) => {
                state = Some(view);
                let mut next = || Ok(reader.next().transpose()?.map(|event| Some(event.link)));
                let is_last = events.fill(&mut next)?;
                (PagerState::View(reader, view), is_last)
            }
            PagerState::All(mut reader) => {
                let is_last = events.fill(|| Ok(reader.next().transpose()?.map(Some)))?;
                (PagerState::All(reader), is_last)
            }
            PagerState::Filtered(mut reader) => {
                let is_last = events.fill(|| {
                    Ok(match reader.next_within(EXAMINED_EVENTS_MAX)? {
                        FilteredItem::Event(event) => Some(Some(event)),
                        FilteredItem::Examined(_) => Some(None),
                        FilteredItem::End(_) => None,
                    })
                })?;
                (PagerState::Filtered(reader), is_last)
            }
            begin @ PagerState::Unopened(..) => (begin, true),
        };
        let events = events.events;
        let reader = (!is_last).then_some(EventPager {
            state: reader_state,
            resolve_links: resolves,
            readable_streams: scope,
        });
        Ok(EventPage { events, pager: reader, state })
    }
}

impl PagerState {
    /// Whether the source is the events of all streams.
    fn reads_all_streams(&self) -> bool {
        matches!(
            self,
            PagerState::All(_)
                | PagerState::Filtered(_)
                | PagerState::Unopened(EventSource::All | EventSource::Filtered(_), ..)
        )
    }

    fn open(self, store: &Store) -> Result<PagerState, Error> {
        Ok(match self {
            PagerState::Unopened(EventSource::Stream(name), direction, from) => {
                PagerState::Stream(Box::new(store.read(&name, Revision(from), direction)))
            }
            PagerState::Unopened(EventSource::View(view, through), direction, from) => {
                let state = match store.view(&view, through)? {
                    Some(ViewState { first, last }) => StreamState::Live { first, last },
                    None => StreamState::Missing,
                };
                let reader = store.read_view(&view, Revision(from), direction, through);
                PagerState::View(Box::new(reader), state)
            }
            PagerState::Unopened(EventSource::All, direction, from) => {
                PagerState::All(Box::new(store.read_all(Position(from), direction)))
            }
            PagerState::Unopened(EventSource::Filtered(filter), direction, from) => {
                PagerState::Filtered(Box::new(store.read_filtered(
                    Position(from),
                    direction,
                    filter,
                )))
            }
            open => open,
        })
    }
}

/// A page under construction.
struct PageBuilder<'a> {
    store: &'a Store,
    resolve_links: bool,
    readable_streams: Option<&'a ReadableStreams>,
    reads_all_streams: bool,
    events_max: usize,
    bytes: usize,
    /// Number of events hidden from the reader.
    hidden: usize,
    events: Vec<ResolvedEvent>,
}

impl PageBuilder<'_> {
    /// Adds events until the page is full or the source pauses; true at the end of the source.
    fn fill(
        &mut self,
        mut next: impl FnMut() -> Result<Option<Option<RecordedEvent>>, Error>,
    ) -> Result<bool, Error> {
        while self.events.len() < self.events_max && self.bytes < PAGE_BYTES {
            let event = match next()? {
                Some(Some(event)) => event,
                Some(None) => return Ok(false),
                None => return Ok(true),
            };
            if self.reads_all_streams && !is_visible(self.store, self.readable_streams, &event)? {
                self.hidden += 1;
                if self.hidden >= EXAMINED_EVENTS_MAX {
                    return Ok(false);
                }
                continue;
            }
            let event = resolve(self.store, event, self.resolve_links, self.readable_streams)?;
            self.bytes += resolved_bytes(&event);
            self.events.push(event);
        }
        Ok(false)
    }
}

/// The event, or the link with its target, as sent to the client.
pub fn resolve(
    store: &Store,
    event: RecordedEvent,
    resolves: bool,
    scope: Option<&ReadableStreams>,
) -> Result<ResolvedEvent, Error> {
    if !resolves {
        return Ok(ResolvedEvent { event: Some(event), link: None });
    }
    let mut resolved = store.resolve(event)?;
    if resolved.link.is_some()
        && let Some(target) = &resolved.event
        && !is_visible(store, scope, target)?
    {
        resolved.event = None;
    }
    Ok(resolved)
}

/// Whether the reader may read the stream of this event.
pub fn is_visible(
    store: &Store,
    scope: Option<&ReadableStreams>,
    event: &RecordedEvent,
) -> Result<bool, Error> {
    scope.map_or(Ok(true), |scope| scope.allows(store, &event.stream))
}

/// The bytes of a resolved event in a response.
pub fn resolved_bytes(resolved: &ResolvedEvent) -> usize {
    resolved.event.iter().chain(&resolved.link).map(recorded_bytes).sum()
}

/// The bytes of an event with its names in a response.
pub fn recorded_bytes(event: &RecordedEvent) -> usize {
    let names = event.stream.len() + event.kind.len();
    RESPONSE_OVERHEAD_BYTES + names + event.data.len() + event.metadata.len()
}
