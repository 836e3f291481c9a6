//! [`Subscription`]: every event behind a place, those there are first, then those that come.
//!
//! There is no queue and no thread: each batch is read from the store when it is asked for, so that
//! a slow subscriber costs nothing but the time until it has caught up. What keeps gaps out is an
//! order: whoever waits makes a watch first, then reads, and waits only behind a batch that says
//! that nothing more could be seen. What keeps repetitions out is that a place is kept only once
//! what lies before it is in a batch: after an error the next batch begins where this one did.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

#[cfg(feature = "canary")]
use umbel_base::canary::Switch;

use crate::error::{Error, Result};
use crate::event::{Direction, Position, RecordedEvent, Revision};
use crate::event_filter::EventFilter;
use crate::filtered::{FilteredReader, Step};
use crate::limits::{BATCH_BYTES, FILTER_STEP_MILLIS};
use crate::lock::locked;
use crate::read::{self, AllReader, Next, StreamReader};
use crate::shared::Shared;
use crate::state::StreamState;
use crate::view_reader::{self, ViewReader};
use crate::visible::Watch;

/// Which events a subscription is to.
#[derive(Debug, Clone)]
pub enum Subscribed {
    /// Those of a stream, which may come only later.
    Stream(String),
    /// All of the store.
    All,
    /// All of the store that pass a filter.
    Filtered(Arc<EventFilter>),
    /// The links of a view, by their numbers in it. What was scavenged before has none.
    View(String),
}

/// Behind which place a subscription begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Since {
    /// With the first event.
    Start,
    /// Behind the event with this revision of the stream, or at this position among all.
    After(u64),
    /// Behind the last event that can be seen when the subscription is made.
    End,
}

/// Events that follow each other.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Batch {
    /// The events.
    pub events: Vec<RecordedEvent>,
    /// The position of the last event that was looked at or that the index passed over, whether or
    /// not it passed; never beyond what can be seen. A subscription behind it goes on where this
    /// one is. `None` for a stream, whose events say their revisions, and where there is nothing
    /// yet.
    pub checkpoint: Option<Position>,
    /// How many events were looked at for this batch.
    pub examined: u64,
    /// Whether no more could be seen when the batch was read.
    pub is_caught_up: bool,
}

/// Every event behind a place, those there are first, then those that come. Made by
/// [`Store::subscribe`](crate::Store::subscribe).
#[derive(Debug)]
pub struct Subscription {
    shared: Arc<Shared>,
    what: Subscribed,
    /// The revision or position of the last event that was looked at.
    place: Option<u64>,
    open: Open,
    /// Of a view, what lies behind this position is not there yet.
    through: Position,
    /// Whether who waits for batches knows that it has caught up.
    has_told: bool,
}

/// What is read at the moment.
#[derive(Debug, Default)]
enum Open {
    #[default]
    Nothing,
    Stream(Box<StreamReader>),
    All(Box<AllReader>),
    Filtered(Box<FilteredReader>),
    View(Box<ViewReader>),
}

impl Subscription {
    pub(crate) fn new(
        shared: &Arc<Shared>,
        what: Subscribed,
        since: Since,
    ) -> Result<Subscription> {
        let place = match since {
            Since::Start => None,
            Since::After(place) => Some(place),
            Since::End => end(shared, &what)?,
        };
        let (shared, through) = (Arc::clone(shared), Position::END);
        Ok(Subscription { shared, what, place, open: Open::Nothing, through, has_told: false })
    }

    /// From now on nothing of a view is taken that lies behind this position, until another one is
    /// given. Who subscribes to anything else is not concerned.
    pub fn show_through(&mut self, through: Position) {
        if through != self.through {
            self.through = through;
            self.open = Open::Nothing;
        }
    }

    /// The revision, or among all events the position, of the last event that was looked at, or
    /// behind which it began; `None` before the first one.
    pub fn place(&self) -> Option<u64> {
        self.place
    }

    /// Calls `callback` once when there may be more than can be read now; as
    /// [`Store::watch`](crate::Store::watch) does. Nothing is missed by who makes the watch first,
    /// then takes, and waits only behind a batch that has caught up.
    pub fn watch(&self, callback: impl FnOnce(Position) + Send + 'static) -> Watch {
        let stream = match &self.what {
            Subscribed::Stream(name) => Some(self.shared.existence.hash(name)),
            Subscribed::All | Subscribed::Filtered(_) | Subscribed::View(_) => None,
        };
        self.shared.visible.watch(stream, Box::new(move |at| callback(Position(at))))
    }

    /// What there is, without waiting: at most so many events, and after looking at no more than
    /// so many. It may be empty although there is more, where a filter left much out.
    ///
    /// # Errors
    /// `Deleted` where the stream was tombstoned, `Runaway` where a filter takes too long, and what
    /// reading meets.
    pub fn take(&mut self, most: usize, most_examined: usize) -> Result<Batch> {
        let (most, most_examined) = (most.max(1), most_examined.max(1));
        let mut batch = Batch::default();
        let place = match &self.what {
            Subscribed::Stream(_) => self.take_of_stream(most, most_examined, &mut batch)?,
            Subscribed::All => self.take_of_all(most, &mut batch)?,
            Subscribed::Filtered(_) => self.take_filtered(most, most_examined, &mut batch)?,
            Subscribed::View(_) => self.take_of_view(most, &mut batch)?,
        };
        #[cfg(feature = "canary")]
        let place = match Switch::SubscriptionAhead.is_on() && batch.is_caught_up {
            true if matches!(self.what, Subscribed::All) => self.shared.log.last_position(),
            _ => place,
        };
        self.place = place;
        if !matches!(self.what, Subscribed::Stream(_) | Subscribed::View(_)) {
            batch.checkpoint = place.map(Position);
        }
        Ok(batch)
    }

    /// The next events, or what there is to say once `patience` is over: how far it looked, and
    /// whether it has caught up. It also returns when it has just caught up.
    ///
    /// # Errors
    /// As [`Subscription::take`]; `Closed` once the store is closed.
    pub fn next_batch(&mut self, most: usize, patience: Duration) -> Result<Batch> {
        let clock = Arc::clone(&self.shared.env.clock);
        let until = clock.now().saturating_add(patience);
        loop {
            let signal = Arc::new(Signal::default());
            let caller = Arc::clone(&signal);
            let watch = self.watch(move |_| caller.give());
            let batch = self.take(most, usize::MAX)?;
            let is_news = batch.is_caught_up && !self.has_told;
            let left = until.saturating_sub(clock.now());
            if !batch.events.is_empty() || is_news || left.is_zero() {
                self.has_told = batch.is_caught_up;
                return Ok(batch);
            }
            if batch.is_caught_up && !signal.wait(left) {
                return Ok(batch);
            }
            drop(watch);
        }
    }

    /// The number of the next event, at least.
    fn next(&self) -> u64 {
        #[cfg(feature = "canary")]
        if Switch::SubscriptionRepeats.is_on() {
            return self.place.unwrap_or(0);
        }
        self.place.map_or(0, |place| place.saturating_add(1))
    }

    fn take_of_stream(
        &mut self,
        most: usize,
        most_examined: usize,
        batch: &mut Batch,
    ) -> Result<Option<u64>> {
        let Subscribed::Stream(name) = &self.what else { return Ok(self.place) };
        loop {
            // A stream is read as it was when reading began: only who began now has seen its end.
            let (mut reader, is_new) = match std::mem::take(&mut self.open) {
                Open::Stream(reader) => (reader, false),
                _ => {
                    let (from, direction) = (Revision(self.next()), Direction::Forwards);
                    (Box::new(StreamReader::new(&self.shared, name, from, direction)), true)
                }
            };
            let mut is_long = false;
            let mut events = std::iter::from_fn(|| match reader.next_within(most_examined) {
                Ok(Next::Event(event)) => Some(Ok(event)),
                Ok(Next::SteppedOver) => {
                    is_long = true;
                    None
                }
                Ok(Next::End) => None,
                Err(error) => Some(Err(error)),
            });
            let has_ended = fill(batch, &mut events, most)? && !is_long;
            batch.examined = batch.events.len() as u64;
            let place = batch.events.last().map_or(self.place, |last| Some(last.revision));
            if !has_ended {
                self.open = Open::Stream(reader);
                return Ok(place);
            }
            batch.is_caught_up = is_new;
            if is_new || !batch.events.is_empty() {
                return Ok(place);
            }
        }
    }

    fn take_of_view(&mut self, most: usize, batch: &mut Batch) -> Result<Option<u64>> {
        let Subscribed::View(view) = &self.what else { return Ok(self.place) };
        loop {
            // As a stream, a view is read as it was when reading began.
            let (mut reader, is_new) = match std::mem::take(&mut self.open) {
                Open::View(reader) => (reader, false),
                _ => {
                    let (from, direction) = (Revision(self.next()), Direction::Forwards);
                    #[cfg(feature = "canary")]
                    let from = match Switch::ViewResumesLate.is_on() && self.place.is_some() {
                        true => Revision(from.0 + 1),
                        false => from,
                    };
                    let reader = ViewReader::new(&self.shared, view, from, direction, self.through);
                    (Box::new(reader), true)
                }
            };
            let mut links = std::iter::from_fn(|| Some(reader.next()?.map(|event| event.link)));
            let has_ended = fill(batch, &mut links, most)?;
            batch.examined = batch.events.len() as u64;
            let place = batch.events.last().map_or(self.place, |last| Some(last.revision));
            if !has_ended {
                self.open = Open::View(reader);
                return Ok(place);
            }
            batch.is_caught_up = is_new;
            if is_new || !batch.events.is_empty() {
                return Ok(place);
            }
        }
    }

    fn take_of_all(&mut self, most: usize, batch: &mut Batch) -> Result<Option<u64>> {
        let mut reader = match std::mem::take(&mut self.open) {
            Open::All(reader) => reader,
            _ => {
                let from = Position(self.next());
                Box::new(AllReader::new(&self.shared, from, Direction::Forwards))
            }
        };
        batch.is_caught_up = fill(batch, &mut reader, most)?;
        batch.examined = batch.events.len() as u64;
        self.open = Open::All(reader);
        Ok(batch.events.last().map_or(self.place, |last| Some(last.position)))
    }

    fn take_filtered(
        &mut self,
        most: usize,
        most_examined: usize,
        batch: &mut Batch,
    ) -> Result<Option<u64>> {
        let Subscribed::Filtered(filter) = &self.what else { return Ok(self.place) };
        let mut reader = match std::mem::take(&mut self.open) {
            Open::Filtered(reader) => reader,
            _ => {
                let (from, filter) = (Position(self.next()), Arc::clone(filter));
                Box::new(FilteredReader::new(&self.shared, from, Direction::Forwards, filter))
            }
        };
        let clock = &self.shared.env.clock;
        let (began, before) = (clock.now(), reader.examined());
        let limit = Duration::from_millis(FILTER_STEP_MILLIS);
        let (mut place, mut bytes) = (self.place, 0);
        while batch.events.len() < most && bytes < BATCH_BYTES {
            let left = most_examined - batch.examined as usize;
            let step = reader.next_within(left)?;
            batch.examined = reader.examined() - before;
            match step {
                Step::Event(event) => {
                    (place, bytes) = (Some(event.position), bytes + bytes_of(&event));
                    #[cfg(feature = "canary")]
                    if Switch::FilterDropsLast.is_on() && batch.examined as usize >= most_examined {
                        break;
                    }
                    batch.events.push(event);
                    let is_long = clock.now().saturating_sub(began) >= limit;
                    if is_long || batch.examined as usize >= most_examined {
                        break;
                    }
                }
                Step::Examined(at) => {
                    #[cfg(feature = "canary")]
                    let at = match Switch::FilterExaminedTooFar.is_on() {
                        true => Position(self.shared.visible.position()),
                        false => at,
                    };
                    place = Some(at.0);
                    break;
                }
                Step::End(at) => {
                    // It may have begun further on than can be seen.
                    place = place.max(Some(at.0).filter(|at| *at > 0));
                    batch.is_caught_up = true;
                    break;
                }
            }
        }
        self.open = Open::Filtered(reader);
        Ok(place)
    }
}

/// Behind which place somebody begins who wants what comes.
fn end(shared: &Shared, what: &Subscribed) -> Result<Option<u64>> {
    shared.check_open()?;
    if let Subscribed::View(view) = what {
        return Ok(view_reader::state(shared, view, Position::END)?.map(|state| state.last));
    }
    let Subscribed::Stream(stream) = what else {
        return Ok(Some(shared.visible.position()).filter(|position| *position > 0));
    };
    match StreamState::of(&read::known(shared, stream)?) {
        StreamState::Missing => Ok(None),
        StreamState::Live { last, .. } | StreamState::Deleted { last } => Ok(Some(last)),
        StreamState::Tombstoned => Err(Error::Deleted { stream: stream.clone() }),
    }
}

/// Takes some events; whether there were no more.
fn fill(
    batch: &mut Batch,
    reader: &mut impl Iterator<Item = Result<RecordedEvent>>,
    most: usize,
) -> Result<bool> {
    let mut bytes = 0;
    while batch.events.len() < most && bytes < BATCH_BYTES {
        let Some(event) = reader.next() else { return Ok(true) };
        let event = event?;
        bytes += bytes_of(&event);
        batch.events.push(event);
    }
    #[cfg(feature = "canary")]
    if Switch::SubscriptionSkips.is_on() {
        return Ok(reader.next().is_none());
    }
    Ok(false)
}

fn bytes_of(event: &RecordedEvent) -> usize {
    event.data.len() + event.metadata.len()
}

/// Given once, and waited for.
#[derive(Debug, Default)]
struct Signal {
    is_given: Mutex<bool>,
    changed: Condvar,
}

impl Signal {
    fn give(&self) {
        *locked(&self.is_given) = true;
        self.changed.notify_all();
    }

    /// Whether it was given in time.
    fn wait(&self, most: Duration) -> bool {
        let is_given = locked(&self.is_given);
        let waited = self.changed.wait_timeout_while(is_given, most, |is| !*is);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}
