//! [`Reader`]: a read of some events, a page at a time.

use std::sync::Arc;

use umbel_events::{
    AllReader, Direction, Error, EventFilter, FilteredReader, Next, Position, RecordedEvent,
    ResolvedEvent, Revision, Step, Store, StreamReader, StreamState, ViewReader, ViewState,
};

use crate::limits::{EXAMINED_MAX, PAGE_BYTES};

/// Which events.
#[derive(Debug, Clone)]
pub enum Source {
    /// Those of a stream, by their revisions.
    Stream(Arc<str>),
    /// Those of a view up to a position, by their numbers.
    View(Arc<str>, Position),
    /// All, by their positions.
    All,
    /// All that pass, by their positions.
    Filtered(Arc<EventFilter>),
}

/// A read on its way.
#[derive(Debug)]
pub struct Reader {
    way: Way,
    /// Whether links are answered with what they point to.
    resolves: bool,
}

#[derive(Debug)]
enum Way {
    /// Nothing was read yet. The number counts as well, but for positions backwards.
    Begin(Source, Direction, u64),
    Stream(Box<StreamReader>),
    View(Box<ViewReader>, StreamState),
    All(Box<AllReader>),
    Filtered(Box<FilteredReader>),
}

/// Some events that follow each other.
#[derive(Debug)]
pub struct Page {
    /// The events. There may be none although more come, where a filter left much out.
    pub events: Vec<ResolvedEvent>,
    /// Goes on behind them; `None` where these were the last ones.
    pub reader: Option<Reader>,
    /// What there was of the stream, where they are of one.
    pub state: Option<StreamState>,
}

impl Reader {
    /// Reads from a revision or a position on. It counts as well, but for positions backwards.
    pub fn new(source: Source, direction: Direction, from: u64, resolves: bool) -> Reader {
        Reader { way: Way::Begin(source, direction, from), resolves }
    }

    /// Whether some events are read soon: of a stream, if it lies in memory.
    pub fn is_quick(&self) -> bool {
        let is_stream = matches!(self.way, Way::Begin(Source::Stream(_), ..) | Way::Stream(_));
        is_stream && !self.resolves
    }

    /// At most so many events, no more than fit in memory at a time, and no more of a stream
    /// than are found while `examined` that have expired are stepped over.
    pub fn page(self, store: &Store, most: usize, examined: usize) -> Result<Page, Error> {
        let resolves = self.resolves;
        let mut events = Events { store, resolves, most, bytes: 0, taken: Vec::new() };
        let mut state = None;
        let (way, is_last) = match self.way.opened(store)? {
            Way::Stream(mut reader) => {
                state = reader.state();
                let is_last = events.fill(|| {
                    Ok(match reader.next_within(examined)? {
                        Next::Event(event) => Some(Some(event)),
                        Next::SteppedOver => Some(None),
                        Next::End => None,
                    })
                })?;
                (Way::Stream(reader), is_last)
            }
            Way::View(mut reader, view) => {
                state = Some(view);
                let mut next = || Ok(reader.next().transpose()?.map(|event| Some(event.link)));
                let is_last = events.fill(&mut next)?;
                (Way::View(reader, view), is_last)
            }
            Way::All(mut reader) => {
                let is_last = events.fill(|| Ok(reader.next().transpose()?.map(Some)))?;
                (Way::All(reader), is_last)
            }
            Way::Filtered(mut reader) => {
                let is_last = events.fill(|| {
                    Ok(match reader.next_within(EXAMINED_MAX)? {
                        Step::Event(event) => Some(Some(event)),
                        Step::Examined(_) => Some(None),
                        Step::End(_) => None,
                    })
                })?;
                (Way::Filtered(reader), is_last)
            }
            begin @ Way::Begin(..) => (begin, true),
        };
        let reader = (!is_last).then_some(Reader { way, resolves });
        Ok(Page { events: events.taken, reader, state })
    }
}

impl Way {
    fn opened(self, store: &Store) -> Result<Way, Error> {
        Ok(match self {
            Way::Begin(Source::Stream(name), direction, from) => {
                Way::Stream(Box::new(store.read(&name, Revision(from), direction)))
            }
            Way::Begin(Source::View(view, through), direction, from) => {
                let state = match store.view(&view, through)? {
                    Some(ViewState { first, last }) => StreamState::Live { first, last },
                    None => StreamState::Missing,
                };
                let reader = store.read_view(&view, Revision(from), direction, through);
                Way::View(Box::new(reader), state)
            }
            Way::Begin(Source::All, direction, from) => {
                Way::All(Box::new(store.read_all(Position(from), direction)))
            }
            Way::Begin(Source::Filtered(filter), direction, from) => {
                Way::Filtered(Box::new(store.read_filtered(Position(from), direction, filter)))
            }
            open => open,
        })
    }
}

/// Events on their way into a page.
struct Events<'a> {
    store: &'a Store,
    resolves: bool,
    most: usize,
    bytes: usize,
    taken: Vec<ResolvedEvent>,
}

impl Events<'_> {
    /// Takes what `next` brings: an event, a pause, or the end, which is true.
    fn fill(
        &mut self,
        mut next: impl FnMut() -> Result<Option<Option<RecordedEvent>>, Error>,
    ) -> Result<bool, Error> {
        while self.taken.len() < self.most && self.bytes < PAGE_BYTES {
            let event = match next()? {
                Some(Some(event)) => event,
                Some(None) => return Ok(false),
                None => return Ok(true),
            };
            let event = resolved(self.store, event, self.resolves)?;
            self.bytes += bytes_of(&event);
            self.taken.push(event);
        }
        Ok(false)
    }
}

/// An event as it is answered.
pub fn resolved(
    store: &Store,
    event: RecordedEvent,
    resolves: bool,
) -> Result<ResolvedEvent, Error> {
    match resolves {
        true => store.resolve(event),
        false => Ok(ResolvedEvent { event: Some(event), link: None }),
    }
}

/// The bytes that an answer holds.
pub fn bytes_of(resolved: &ResolvedEvent) -> usize {
    let bytes = |event: &RecordedEvent| event.data.len() + event.metadata.len();
    resolved.event.iter().chain(&resolved.link).map(bytes).sum()
}
