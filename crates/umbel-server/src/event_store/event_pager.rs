//! [`Reader`]: a read of some events, a page at a time.

use std::sync::Arc;

use umbel_events::{
    AllReader, Direction, Error, EventFilter, FilteredReader, Next, Position, RecordedEvent,
    ResolvedEvent, Revision, Step, Store, StreamReader, StreamState, ViewReader, ViewState,
};

use crate::limits::{ANSWER_BYTES_BESIDE, EXAMINED_MAX, PAGE_BYTES};
use crate::sight::Sight;

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
    /// What is seen of other streams; everything where there is nothing.
    sight: Option<Sight>,
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
        Reader { way: Way::Begin(source, direction, from), resolves, sight: None }
    }

    /// From now on no more than this is shown of other streams than the one that is read.
    pub fn show(&mut self, sight: Option<Sight>) {
        self.sight = sight;
    }

    /// Whether some events are read soon: of a stream, if it lies in memory.
    pub fn is_quick(&self) -> bool {
        let is_stream = matches!(self.way, Way::Begin(Source::Stream(_), ..) | Way::Stream(_));
        is_stream && !self.resolves
    }

    /// At most so many events, no more than fit in memory at a time, and no more of a stream
    /// than are found while `examined` that have expired are stepped over.
    pub fn page(self, store: &Store, most: usize, examined: usize) -> Result<Page, Error> {
        let Reader { resolves, sight, .. } = &self;
        let (resolves, sight) = (*resolves, sight.clone());
        let is_of_all = self.way.is_of_all();
        let mut events = Events {
            store,
            resolves,
            sight: sight.as_ref(),
            is_of_all,
            most,
            bytes: 0,
            hidden: 0,
            taken: Vec::new(),
        };
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
        let events = events.taken;
        let reader = (!is_last).then_some(Reader { way, resolves, sight });
        Ok(Page { events, reader, state })
    }
}

impl Way {
    /// Whether it goes through the events of all streams.
    fn is_of_all(&self) -> bool {
        matches!(
            self,
            Way::All(_) | Way::Filtered(_) | Way::Begin(Source::All | Source::Filtered(_), ..)
        )
    }

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
    sight: Option<&'a Sight>,
    is_of_all: bool,
    most: usize,
    bytes: usize,
    /// How many events were left out.
    hidden: usize,
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
            if self.is_of_all && !is_shown(self.store, self.sight, &event)? {
                self.hidden += 1;
                if self.hidden >= EXAMINED_MAX {
                    return Ok(false);
                }
                continue;
            }
            let event = resolved(self.store, event, self.resolves, self.sight)?;
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
    sight: Option<&Sight>,
) -> Result<ResolvedEvent, Error> {
    if !resolves {
        return Ok(ResolvedEvent { event: Some(event), link: None });
    }
    let mut resolved = store.resolve(event)?;
    if resolved.link.is_some()
        && let Some(target) = &resolved.event
        && !is_shown(store, sight, target)?
    {
        resolved.event = None;
    }
    Ok(resolved)
}

/// Whether the reader may read the stream of this event.
pub fn is_shown(
    store: &Store,
    sight: Option<&Sight>,
    event: &RecordedEvent,
) -> Result<bool, Error> {
    sight.map_or(Ok(true), |sight| sight.shows(store, &event.stream))
}

/// The bytes that an answer holds.
pub fn bytes_of(resolved: &ResolvedEvent) -> usize {
    resolved.event.iter().chain(&resolved.link).map(bytes_of_one).sum()
}

/// The bytes that an event holds with its names.
pub fn bytes_of_one(event: &RecordedEvent) -> usize {
    let names = event.stream.len() + event.kind.len();
    ANSWER_BYTES_BESIDE + names + event.data.len() + event.metadata.len()
}
