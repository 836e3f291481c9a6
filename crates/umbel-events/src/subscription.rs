//! [`Subscription`]: delivers every event after a position, existing ones first, then new ones.
//!
//! A subscription has no queue and no thread: each batch is read from the store on request. So a
//! slow subscriber needs no memory, only more time until it has caught up.
//! - No gaps: a batch registers the wake-up first, then reads, and a subscriber waits only after a
//!   batch that has caught up.
//! - No duplicates: a position is stored only once all events before it are in a batch. After an
//!   error, the next batch begins where the failed batch began.

use std::sync::Arc;
use std::time::Duration;
use umbel_base::fail_point;

use crate::limits::{BATCH_BYTES, FILTER_STEP_MILLIS};
use crate::primitives::wakeup::Wakeup;
use crate::read::all_reader::AllReader;
use crate::read::event_source::{Source, SourceReader};
use crate::read::filtered_reader::{FilteredItem, FilteredReader};
use crate::read::stream_reader::{self, StreamItem, StreamReader};
use crate::read::view_reader::{self, ViewReader};
use crate::shared_store_state::StoreInner;
use crate::types::error::{Error, Result};
use crate::types::event::{Direction, Position, RecordedEvent, Revision};
use crate::types::stream_state::StreamState;
use crate::visibility::visible_position::Watch;

/// Maximum number of hidden events that a batch skips before the time limit is checked.
const EXAMINED_MAX: usize = 8192;

/// Place at which a subscription begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubscriptionStart {
    /// At the first event.
    Start,
    /// After the event with this revision of the stream, or at this position among all events.
    After(u64),
    /// After the last event that is visible when the subscription is made.
    End,
}

/// Consecutive events of a subscription, and how far it has examined its source.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SubscriptionBatch {
    /// The events.
    pub events: Vec<RecordedEvent>,
    /// Position of the last event that was examined or that the index skipped, whether or not it
    /// passed the filter. The checkpoint never exceeds the visible position. A subscription that
    /// begins after the checkpoint continues where this subscription is. `None` before the first
    /// event, and for a stream, whose events have revisions.
    pub checkpoint: Option<Position>,
    /// Number of events that were examined for this batch.
    pub examined: u64,
    /// Whether no more events were visible when the batch was read.
    pub is_caught_up: bool,
}

/// Delivers every event after a position, existing ones first, then new ones. Returned by
/// [`Store::subscribe`](crate::Store::subscribe).
#[derive(Debug)]
pub struct Subscription {
    shared: Arc<StoreInner>,
    source: Source,
    /// Revision or position of the last event that was examined.
    position: Option<u64>,
    /// The open reader, if any.
    reader: Option<SourceReader>,
    /// If the source is a view, events after this position are not delivered yet.
    through: Position,
    /// Whether `next_batch` has already reported that the subscription has caught up.
    has_reported_caught_up: bool,
    wakeup: Arc<Wakeup>,
    /// Registration of the wake-up.
    watch: Option<Watch>,
    /// Whether the last batch reached the last visible event.
    was_at_end: bool,
}

impl Subscription {
    pub(crate) fn new(
        shared: &Arc<StoreInner>,
        source: Source,
        since: SubscriptionStart,
    ) -> Result<Subscription> {
        let mut subscription = Subscription {
            shared: Arc::clone(shared),
            source,
            position: None,
            reader: None,
            through: Position::END,
            has_reported_caught_up: false,
            wakeup: Arc::default(),
            watch: None,
            was_at_end: true,
        };
        subscription.register_wakeup();
        subscription.position = match since {
            SubscriptionStart::Start => None,
            SubscriptionStart::After(place) => Some(place),
            SubscriptionStart::End => {
                shared.damage.record(end_of_source(shared, &subscription.source))?
            }
        };
        Ok(subscription)
    }

    /// Limits a view to events up to this position, until another limit is set. Other sources are
    /// not affected.
    pub fn limit_view_to(&mut self, through: Position) {
        if through != self.through {
            self.through = through;
            self.reader = None;
        }
    }

    /// Revision of the last examined event, or its position among all events. Before an event was
    /// examined, the position after which the subscription began; `None` if it began with the first
    /// event.
    pub fn position(&self) -> Option<u64> {
        self.position
    }

    /// Wake-up for events that become visible after the last batch was read, or for the end of the
    /// store. A batch that begins after a wake-up makes the wake-up waitable again. A caller misses
    /// no event if it waits only after a batch that has caught up.
    pub fn wakeup(&self) -> &Arc<Wakeup> {
        &self.wakeup
    }

    /// Registers the wake-up, unless it is registered and unused. A forked child, where every read
    /// is an error, takes no lock.
    fn register_wakeup(&mut self) {
        if self.is_registered() || self.shared.check_process().is_err() {
            return;
        }
        self.wakeup.reset();
        let stream = self.source.watched_stream(&self.shared);
        self.watch = Some(self.shared.visible.watch(stream, Arc::clone(&self.wakeup)));
    }

    fn is_registered(&self) -> bool {
        self.watch.is_some() && !self.wakeup.is_woken()
    }

    /// Returns the available events without waiting: at most `events_max`, after examining at most
    /// `examined_max`. If a filter excludes many events, the batch can be empty although more
    /// events follow.
    ///
    /// # Errors
    /// `StreamDeleted` where the stream was tombstoned, `RegexTooExpensive` where a filter takes
    /// too long, and errors of reads.
    pub fn try_next_batch(
        &mut self,
        events_max: usize,
        examined_max: usize,
    ) -> Result<SubscriptionBatch> {
        // While existing events follow, a wake-up that was used need not be registered again.
        if self.was_at_end {
            self.register_wakeup();
        }
        let is_registered = self.is_registered();
        let (events_max, examined_max) = (events_max.max(1), examined_max.max(1));
        let mut batch = SubscriptionBatch::default();
        let place = match &self.source {
            Source::Stream(_) => self.read_stream(events_max, examined_max, &mut batch)?,
            Source::All => self.read_all(events_max, examined_max, &mut batch)?,
            Source::Filtered(_) => self.read_filtered(events_max, examined_max, &mut batch)?,
            Source::View(_) => self.read_view(events_max, examined_max, &mut batch)?,
        };
        self.position = place;
        self.was_at_end = batch.is_caught_up;
        // The next batch registers the wake-up, then reads what came meanwhile.
        batch.is_caught_up &= is_registered;
        if !matches!(self.source, Source::Stream(_) | Source::View(_)) {
            batch.checkpoint = place.map(Position);
        }
        Ok(batch)
    }

    /// Waits for the next events. After `timeout`, returns a batch without events that says how far
    /// the subscription has read. Also returns when the subscription has just caught up.
    ///
    /// # Errors
    /// The errors of [`Subscription::try_next_batch`]; `Closed` once the store is closed.
    pub fn next_batch(
        &mut self,
        events_max: usize,
        timeout: Duration,
    ) -> Result<SubscriptionBatch> {
        let clock = Arc::clone(&self.shared.env.clock);
        let until = clock.now().saturating_add(timeout);
        loop {
            let batch = self.try_next_batch(events_max, EXAMINED_MAX)?;
            let is_news = batch.is_caught_up && !self.has_reported_caught_up;
            let left = until.saturating_sub(clock.now());
            if !batch.events.is_empty() || is_news || left.is_zero() {
                self.has_reported_caught_up = batch.is_caught_up;
                return Ok(batch);
            }
            if batch.is_caught_up && !self.wakeup.wait(left) {
                return Ok(batch);
            }
        }
    }

    /// Returns the lowest revision or number that the next event can have.
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
        let Source::Stream(name) = &self.source else { return Ok(self.position) };
        loop {
            // A stream is read as of the beginning of the read: only a new reader has seen its
            // current end.
            let (mut reader, is_new) = match self.reader.take() {
                Some(SourceReader::Stream(reader)) => (reader, false),
                _ => {
                    let (from, direction) = (Revision(self.next_number()), Direction::Forwards);
                    (Box::new(StreamReader::new(&self.shared, name, from, direction)), true)
                }
            };
            let steps = (StreamReader::next_within, StreamReader::examined);
            let has_ended = fill_batch(batch, &mut *reader, steps, (events_max, examined_max))?;
            let place = batch.events.last().map_or(self.position, |last| Some(last.revision));
            // A reader that begins later must not skip the same events again.
            let place = place.max(reader.next_revision().and_then(|next| next.checked_sub(1)));
            if !has_ended {
                self.reader = Some(SourceReader::Stream(reader));
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
        examined_max: usize,
        batch: &mut SubscriptionBatch,
    ) -> Result<Option<u64>> {
        let Source::View(view) = &self.source else { return Ok(self.position) };
        loop {
            // Like a stream, a view is read as of the beginning of the read.
            let (mut reader, is_new) = match self.reader.take() {
                Some(SourceReader::View(reader)) => (reader, false),
                _ => {
                    let (from, direction) = (self.next_entry(), Direction::Forwards);
                    let reader = ViewReader::new(&self.shared, view, from, direction, self.through);
                    (Box::new(reader), true)
                }
            };
            let steps = (ViewReader::next_link, ViewReader::examined);
            let has_ended = fill_batch(batch, &mut *reader, steps, (events_max, examined_max))?;
            let place = batch.events.last().map_or(self.position, |last| Some(last.revision));
            let place = place.max(reader.next_number().and_then(|next| next.checked_sub(1)));
            if !has_ended {
                self.reader = Some(SourceReader::View(reader));
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
        examined_max: usize,
        batch: &mut SubscriptionBatch,
    ) -> Result<Option<u64>> {
        let mut reader = match self.reader.take() {
            Some(SourceReader::All(reader)) => reader,
            _ => {
                let from = Position(self.next_number());
                Box::new(AllReader::new(&self.shared, from, Direction::Forwards))
            }
        };
        let steps = (AllReader::next_within, AllReader::examined);
        batch.is_caught_up = fill_batch(batch, &mut *reader, steps, (events_max, examined_max))?;
        fail_point!("subscription-skip-to-end", batch.is_caught_up, |_| {
            Ok(Some(self.shared.visible.position()))
        });
        self.reader = Some(SourceReader::All(reader));
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
        let Source::Filtered(filter) = &self.source else { return Ok(self.position) };
        let mut reader = match self.reader.take() {
            Some(SourceReader::Filtered(reader)) => reader,
            _ => {
                let (from, filter) = (Position(self.next_number()), Arc::clone(filter));
                Box::new(FilteredReader::new(&self.shared, from, Direction::Forwards, filter))
            }
        };
        let place = self.fill_filtered(&mut reader, (events_max, examined_max), batch)?;
        self.reader = Some(SourceReader::Filtered(reader));
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
fn end_of_source(shared: &StoreInner, source: &Source) -> Result<Option<u64>> {
    shared.check_open()?;
    if let Source::View(view) = source {
        return Ok(view_reader::view_state(shared, view, Position::END)?.map(|state| state.last));
    }
    let Source::Stream(stream) = source else {
        return Ok(Some(shared.visible.position()).filter(|position| *position > 0));
    };
    match StreamState::from_snapshot(&stream_reader::stream_snapshot(shared, stream)?) {
        StreamState::Missing => Ok(None),
        StreamState::Live { last, .. } | StreamState::Deleted { last } => Ok(Some(last)),
        StreamState::Tombstoned => Err(Error::StreamDeleted { stream: stream.to_string() }),
    }
}

/// Adds events of a reader to the batch, until it has `events_max` events or the reader has
/// examined `examined_max` more. Returns whether the last visible event was reached. `next` reads
/// an event and skips at most a number of others. `examined` is the number examined so far.
fn fill_batch<R>(
    batch: &mut SubscriptionBatch,
    reader: &mut R,
    (next, examined): (impl Fn(&mut R, usize) -> Result<StreamItem>, impl Fn(&R) -> u64),
    (events_max, examined_max): (usize, usize),
) -> Result<bool> {
    let before = examined(reader);
    let step = || {
        let so_far = usize::try_from(examined(reader) - before).unwrap_or(usize::MAX);
        match examined_max.saturating_sub(so_far) {
            0 => Ok(StreamItem::Skipped),
            left => next(reader, left),
        }
    };
    let has_ended = add_events(batch, step, events_max)?;
    batch.examined += examined(reader) - before;
    Ok(has_ended)
}

/// Adds events to the batch until `next` has skipped its maximum; returns whether the last visible
/// event was reached.
fn add_events(
    batch: &mut SubscriptionBatch,
    mut next: impl FnMut() -> Result<StreamItem>,
    events_max: usize,
) -> Result<bool> {
    let mut bytes = 0;
    while batch.events.len() < events_max && bytes < BATCH_BYTES {
        match next()? {
            StreamItem::Event(event) => {
                bytes += event_bytes(&event);
                batch.events.push(event);
            }
            StreamItem::Skipped => return Ok(false),
            StreamItem::End => return Ok(true),
        }
    }
    fail_point!("subscription-skip-event", |_| Ok(matches!(next()?, StreamItem::End)));
    Ok(false)
}

fn event_bytes(event: &RecordedEvent) -> usize {
    event.data.len() + event.metadata.len()
}
