//! [`Subscription`]: delivers every event after a position, existing ones first, then new ones.
//!
//! There is no queue and no thread: each batch is read from the store when it is requested. So a
//! slow subscriber costs nothing but the time until it has caught up.
//! - No gaps: a waiting subscriber registers a watch first, then reads, and waits only after a
//!   batch that has caught up.
//! - No duplicates: a position is stored only once all events before it are in a batch. After an
//!   error, the next batch begins where the failed one did.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use umbel_base::fail_point;
use umbel_base::ignore_poison::IgnorePoison;

use crate::append::store_inner::StoreInner;
use crate::event_filter::EventFilter;
use crate::limits::{BATCH_BYTES, FILTER_STEP_MILLIS};
use crate::read::all_reader::AllReader;
use crate::read::filtered_reader::{FilteredItem, FilteredReader};
use crate::read::stream_reader::{self, StreamItem, StreamReader};
use crate::read::view_reader::{self, ViewReader};
use crate::types::error::{Error, Result};
use crate::types::event::{Direction, Position, RecordedEvent, Revision};
use crate::types::stream_state::StreamState;
use crate::visibility::visible_position::Watch;

/// Events that a subscription delivers.
#[derive(Debug, Clone)]
pub enum SubscriptionSource {
    /// Events of a stream, which may be created later.
    Stream(String),
    /// All events of the store.
    All,
    /// All events of the store that pass a filter.
    Filtered(Arc<EventFilter>),
    /// Links of a view, by their numbers in it. Events that were scavenged before have none.
    View(String),
}

/// Position after which a subscription begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubscriptionStart {
    /// At the first event.
    Start,
    /// After the event with this revision of the stream, or at this position among all events.
    After(u64),
    /// After the last event that is visible when the subscription is made.
    End,
}

/// Consecutive events.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SubscriptionBatch {
    /// The events.
    pub events: Vec<RecordedEvent>,
    /// Position of the last event that was examined or that the index skipped, whether or not it
    /// passed. It never exceeds the visible position. A subscription that begins after it continues
    /// where this one is. `None` for a stream, whose events have their revisions, and before the
    /// first event.
    pub checkpoint: Option<Position>,
    /// Number of events that were examined for this batch.
    pub examined: u64,
    /// Whether no more events were visible when the batch was read.
    pub is_caught_up: bool,
}

/// Delivers every event after a position, existing ones first, then new ones. Made by
/// [`Store::subscribe`](crate::Store::subscribe).
#[derive(Debug)]
pub struct Subscription {
    shared: Arc<StoreInner>,
    source: SubscriptionSource,
    /// Revision or position of the last event that was examined.
    position: Option<u64>,
    open: OpenReader,
    /// Of a view, events after this position are not delivered yet.
    through: Position,
    /// Whether a caller that waits for batches knows that it has caught up.
    has_reported_caught_up: bool,
}

/// The open reader.
#[derive(Debug, Default)]
enum OpenReader {
    #[default]
    Closed,
    Stream(Box<StreamReader>),
    All(Box<AllReader>),
    Filtered(Box<FilteredReader>),
    View(Box<ViewReader>),
}

impl Subscription {
    pub(crate) fn new(
        shared: &Arc<StoreInner>,
        what: SubscriptionSource,
        since: SubscriptionStart,
    ) -> Result<Subscription> {
        let place = match since {
            SubscriptionStart::Start => None,
            SubscriptionStart::After(place) => Some(place),
            SubscriptionStart::End => end_of_source(shared, &what)?,
        };
        let (shared, through) = (Arc::clone(shared), Position::END);
        Ok(Subscription {
            shared,
            source: what,
            position: place,
            open: OpenReader::Closed,
            through,
            has_reported_caught_up: false,
        })
    }

    /// Limits a view to events up to this position, until another limit is set. Other sources are
    /// not affected.
    pub fn limit_view_to(&mut self, through: Position) {
        if through != self.through {
            self.through = through;
            self.open = OpenReader::Closed;
        }
    }

    /// Revision of the last event that was examined, or its position among all events. Before that,
    /// the position after which the subscription began; `None` if it began with the first event.
    pub fn position(&self) -> Option<u64> {
        self.position
    }

    /// Calls `callback` once when more events may be readable than now, like
    /// [`Store::watch`](crate::Store::watch). A caller misses nothing if it registers the watch
    /// first, then reads, and waits only after a batch that has caught up.
    pub fn watch(&self, callback: impl FnOnce(Position) + Send + 'static) -> Watch {
        let stream = match &self.source {
            SubscriptionSource::Stream(name) => Some(self.shared.existence.hash(name)),
            SubscriptionSource::All
            | SubscriptionSource::Filtered(_)
            | SubscriptionSource::View(_) => None,
        };
        self.shared.visible.watch(stream, Box::new(move |at| callback(Position(at))))
    }

    /// Returns the available events without waiting: at most `events_max`, after examining at most
    /// `examined_max`. The batch may be empty although there are more events, where a filter
    /// excludes many.
    ///
    /// # Errors
    /// `StreamDeleted` where the stream was tombstoned, `RegexTooExpensive` where a filter takes
    /// too long, and errors of reads.
    pub fn try_next_batch(
        &mut self,
        events_max: usize,
        examined_max: usize,
    ) -> Result<SubscriptionBatch> {
        let (events_max, examined_max) = (events_max.max(1), examined_max.max(1));
        let mut batch = SubscriptionBatch::default();
        let place = match &self.source {
            SubscriptionSource::Stream(_) => {
                self.read_stream(events_max, examined_max, &mut batch)?
            }
            SubscriptionSource::All => self.read_all(events_max, &mut batch)?,
            SubscriptionSource::Filtered(_) => {
                self.read_filtered(events_max, examined_max, &mut batch)?
            }
            SubscriptionSource::View(_) => self.read_view(events_max, &mut batch)?,
        };
        self.position = place;
        if !matches!(self.source, SubscriptionSource::Stream(_) | SubscriptionSource::View(_)) {
            batch.checkpoint = place.map(Position);
        }
        Ok(batch)
    }

    /// Waits for the next events. After `timeout`, returns how far it read and whether it has
    /// caught up. Also returns when it has just caught up.
    ///
    /// # Errors
    /// As [`Subscription::try_next_batch`]; `Closed` once the store is closed.
    pub fn next_batch(
        &mut self,
        events_max: usize,
        timeout: Duration,
    ) -> Result<SubscriptionBatch> {
        let clock = Arc::clone(&self.shared.env.clock);
        let until = clock.now().saturating_add(timeout);
        loop {
            let signal = Arc::new(Signal::default());
            let caller = Arc::clone(&signal);
            let watch = self.watch(move |_| caller.set());
            let batch = self.try_next_batch(events_max, usize::MAX)?;
            let is_news = batch.is_caught_up && !self.has_reported_caught_up;
            let left = until.saturating_sub(clock.now());
            if !batch.events.is_empty() || is_news || left.is_zero() {
                self.has_reported_caught_up = batch.is_caught_up;
                return Ok(batch);
            }
            if batch.is_caught_up && !signal.wait(left) {
                return Ok(batch);
            }
            drop(watch);
        }
    }

    /// Returns the minimum number of the next event.
    fn next_number(&self) -> u64 {
        fail_point!("subscription-repeat-event", |_| self.position.unwrap_or(0));
        self.position.map_or(0, |place| place.saturating_add(1))
    }

    /// Returns the number of the next entry of a view.
    fn next_entry(&self) -> Revision {
        let next = Revision(self.next_number());
        fail_point!("view-resume-late", self.position.is_some(), |_| Revision(next.0 + 1));
        next
    }

    fn read_stream(
        &mut self,
        events_max: usize,
        examined_max: usize,
        batch: &mut SubscriptionBatch,
    ) -> Result<Option<u64>> {
        let SubscriptionSource::Stream(name) = &self.source else { return Ok(self.position) };
        loop {
            // A stream is read as of the beginning of the read: only a new reader has seen its
            // current end.
            let (mut reader, is_new) = match std::mem::take(&mut self.open) {
                OpenReader::Stream(reader) => (reader, false),
                _ => {
                    let (from, direction) = (Revision(self.next_number()), Direction::Forwards);
                    (Box::new(StreamReader::new(&self.shared, name, from, direction)), true)
                }
            };
            let mut is_long = false;
            let mut events = std::iter::from_fn(|| match reader.next_within(examined_max) {
                Ok(StreamItem::Event(event)) => Some(Ok(event)),
                Ok(StreamItem::Skipped) => {
                    is_long = true;
                    None
                }
                Ok(StreamItem::End) => None,
                Err(error) => Some(Err(error)),
            });
            let has_ended = fill_batch(batch, &mut events, events_max)? && !is_long;
            batch.examined = batch.events.len() as u64;
            let place = batch.events.last().map_or(self.position, |last| Some(last.revision));
            if !has_ended {
                self.open = OpenReader::Stream(reader);
                return Ok(place);
            }
            batch.is_caught_up = is_new;
            if is_new || !batch.events.is_empty() {
                return Ok(place);
            }
        }
    }

    fn read_view(
        &mut self,
        events_max: usize,
        batch: &mut SubscriptionBatch,
    ) -> Result<Option<u64>> {
        let SubscriptionSource::View(view) = &self.source else { return Ok(self.position) };
        loop {
            // Like a stream, a view is read as of the beginning of the read.
            let (mut reader, is_new) = match std::mem::take(&mut self.open) {
                OpenReader::View(reader) => (reader, false),
                _ => {
                    let (from, direction) = (self.next_entry(), Direction::Forwards);
                    let reader = ViewReader::new(&self.shared, view, from, direction, self.through);
                    (Box::new(reader), true)
                }
            };
            let mut links = std::iter::from_fn(|| Some(reader.next()?.map(|event| event.link)));
            let has_ended = fill_batch(batch, &mut links, events_max)?;
            batch.examined = batch.events.len() as u64;
            let place = batch.events.last().map_or(self.position, |last| Some(last.revision));
            if !has_ended {
                self.open = OpenReader::View(reader);
                return Ok(place);
            }
            batch.is_caught_up = is_new;
            if is_new || !batch.events.is_empty() {
                return Ok(place);
            }
        }
    }

    fn read_all(
        &mut self,
        events_max: usize,
        batch: &mut SubscriptionBatch,
    ) -> Result<Option<u64>> {
        let mut reader = match std::mem::take(&mut self.open) {
            OpenReader::All(reader) => reader,
            _ => {
                let from = Position(self.next_number());
                Box::new(AllReader::new(&self.shared, from, Direction::Forwards))
            }
        };
        batch.is_caught_up = fill_batch(batch, &mut reader, events_max)?;
        batch.examined = batch.events.len() as u64;
        fail_point!("subscription-skip-to-end", batch.is_caught_up, |_| {
            Ok(Some(self.shared.visible.position()))
        });
        self.open = OpenReader::All(reader);
        fail_point!("subscription-checkpoint-too-far", batch.is_caught_up, |_| {
            Ok(self.shared.log.last_position())
        });
        Ok(batch.events.last().map_or(self.position, |last| Some(last.position)))
    }

    fn read_filtered(
        &mut self,
        events_max: usize,
        examined_max: usize,
        batch: &mut SubscriptionBatch,
    ) -> Result<Option<u64>> {
        let SubscriptionSource::Filtered(filter) = &self.source else { return Ok(self.position) };
        let mut reader = match std::mem::take(&mut self.open) {
            OpenReader::Filtered(reader) => reader,
            _ => {
                let (from, filter) = (Position(self.next_number()), Arc::clone(filter));
                Box::new(FilteredReader::new(&self.shared, from, Direction::Forwards, filter))
            }
        };
        let place = self.fill_filtered(&mut reader, (events_max, examined_max), batch)?;
        self.open = OpenReader::Filtered(reader);
        Ok(place)
    }

    /// Adds matching events to the batch. Returns the position up to which it has examined events.
    fn fill_filtered(
        &self,
        reader: &mut FilteredReader,
        (events_max, examined_max): (usize, usize),
        batch: &mut SubscriptionBatch,
    ) -> Result<Option<u64>> {
        let clock = &self.shared.env.clock;
        let (began, before) = (clock.now(), reader.examined());
        let limit = Duration::from_millis(FILTER_STEP_MILLIS);
        let (mut place, mut bytes) = (self.position, 0);
        while batch.events.len() < events_max && bytes < BATCH_BYTES {
            let left = examined_max - batch.examined as usize;
            let step = reader.next_within(left)?;
            batch.examined = reader.examined() - before;
            match step {
                FilteredItem::Event(event) => {
                    (place, bytes) = (Some(event.position), bytes + event_bytes(&event));
                    let is_last = batch.examined as usize >= examined_max;
                    fail_point!("filter-drop-last-match", is_last, |_| Ok(place));
                    batch.events.push(event);
                    if is_last || clock.now().saturating_sub(began) >= limit {
                        break;
                    }
                }
                FilteredItem::Examined(at) => {
                    fail_point!("filter-claim-too-much-examined", |_| {
                        Ok(Some(self.shared.visible.position()))
                    });
                    return Ok(Some(at.0));
                }
                FilteredItem::End(at) => {
                    // It may have begun after the visible position.
                    place = place.max(Some(at.0).filter(|at| *at > 0));
                    batch.is_caught_up = true;
                    break;
                }
            }
        }
        Ok(place)
    }
}

/// Returns the position after which a subscription to new events begins.
fn end_of_source(shared: &StoreInner, what: &SubscriptionSource) -> Result<Option<u64>> {
    shared.check_open()?;
    if let SubscriptionSource::View(view) = what {
        return Ok(view_reader::view_state(shared, view, Position::END)?.map(|state| state.last));
    }
    let SubscriptionSource::Stream(stream) = what else {
        return Ok(Some(shared.visible.position()).filter(|position| *position > 0));
    };
    match StreamState::from_snapshot(&stream_reader::stream_snapshot(shared, stream)?) {
        StreamState::Missing => Ok(None),
        StreamState::Live { last, .. } | StreamState::Deleted { last } => Ok(Some(last)),
        StreamState::Tombstoned => Err(Error::StreamDeleted { stream: stream.clone() }),
    }
}

/// Adds events to the batch; returns whether there were no more.
fn fill_batch(
    batch: &mut SubscriptionBatch,
    reader: &mut impl Iterator<Item = Result<RecordedEvent>>,
    events_max: usize,
) -> Result<bool> {
    let mut bytes = 0;
    while batch.events.len() < events_max && bytes < BATCH_BYTES {
        let Some(event) = reader.next() else { return Ok(true) };
        let event = event?;
        bytes += event_bytes(&event);
        batch.events.push(event);
    }
    fail_point!("subscription-skip-event", |_| Ok(reader.next().is_none()));
    Ok(false)
}

fn event_bytes(event: &RecordedEvent) -> usize {
    event.data.len() + event.metadata.len()
}

/// Signal that is set once and waited for.
#[derive(Debug, Default)]
struct Signal {
    is_set: Mutex<bool>,
    changed: Condvar,
}

impl Signal {
    fn set(&self) {
        *self.is_set.lock().ignore_poison() = true;
        self.changed.notify_all();
    }

    /// Whether the signal is set in time.
    fn wait(&self, timeout: Duration) -> bool {
        let is_given = self.is_set.lock().ignore_poison();
        let waited = self.changed.wait_timeout_while(is_given, timeout, |is| !*is);
        *waited.ignore_poison().0
    }
}
