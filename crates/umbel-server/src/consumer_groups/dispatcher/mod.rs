//! [`Dispatcher`]: assigns a group's events to consumers and tracks their state. The dispatcher
//! reads no events, writes none and has no clock of its own.
//!
//! INVARIANT: an event is tracked until it is complete: acknowledged, skipped, or written to the
//! parked stream. The checkpoint never passes a tracked event.
//!
//! The payload of a tracked event may be evicted. An evicted event is read again when it is to be
//! sent or parked.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use umbel_base::fail_point;
use umbel_events::{EventId, RecordedEvent, ResolvedEvent, read_json_keys};

use crate::consumer_groups::ack_times::AckTimes;
use crate::consumer_groups::group_config::{GroupConfig, Strategy};
use crate::event_store::event_resolution::resolved_bytes;
use crate::limits::TIMEOUT_CHECK_TIME;

use pinned_events::PinnedEvents;

/// The number of a consumer; consumers that connect later have higher numbers.
pub type ConsumerId = u64;

/// The identity of an event. Replayed parked events sort first, then events by source position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventKey {
    /// The event with this revision of the parked stream.
    Parked(u64),
    /// The event at this source position: its revision in a stream, or its position among all
    /// events.
    Source(u64),
}

/// The action for events that a consumer has not processed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NackDecision {
    /// Park the events, for this reason.
    Park(Arc<str>),
    /// Send the events again.
    Retry,
    /// Skip the events.
    Skip,
}

/// An event to be parked, with the reason.
pub type ParkRequest = (EventKey, Arc<ResolvedEvent>, Arc<str>);

/// An event to send to a consumer.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// The consumer.
    pub consumer: ConsumerId,
    /// The event.
    pub event: Arc<ResolvedEvent>,
    /// Number of times that the event was sent before.
    pub retries: u32,
}

/// State of a consumer.
#[derive(Debug, Clone, Default)]
pub struct ConsumerState {
    /// Maximum number of events in flight.
    pub capacity: usize,
    /// Number of events sent.
    pub sent: u64,
    /// Times from deliveries to acknowledgements, if the group measures them.
    pub ack_times: AckTimes,
    in_flight: HashMap<EventId, BTreeSet<EventKey>>,
    in_flight_count: usize,
}

impl ConsumerState {
    /// Number of events in flight.
    pub fn in_flight(&self) -> usize {
        self.in_flight_count
    }
}

#[derive(Debug)]
struct TrackedEvent {
    /// Payload of the event; `None` if it was evicted.
    payload: Option<Arc<ResolvedEvent>>,
    id: EventId,
    bytes: usize,
    pin_hash: u64,
    retries: u32,
    state: DeliveryState,
    /// The check that resends it while it is in flight.
    due: Option<Instant>,
    /// Time of the last delivery.
    sent_at: Instant,
}

impl TrackedEvent {
    fn count_retry(&mut self) {
        fail_point!("group-forget-retry-count", |_| ());
        self.retries = self.retries.saturating_add(1);
    }
}

#[derive(Debug, PartialEq, Eq)]
enum DeliveryState {
    Waiting,
    InFlight(ConsumerId),
    Parking(Arc<str>),
}

/// Assigns a group's events to consumers and tracks their state.
#[derive(Debug)]
pub struct Dispatcher {
    strategy: Strategy,
    max_retries: u32,
    message_timeout: Option<Duration>,
    /// The first delivery; timeouts are checked a multiple of [`TIMEOUT_CHECK_TIME`] later.
    checks_from: Option<Instant>,
    /// Whether the time to each acknowledgement is measured.
    measures_acks: bool,
    consumers: BTreeMap<ConsumerId, ConsumerState>,
    /// The consumers with capacity.
    free: BTreeSet<ConsumerId>,
    /// The consumer of the last delivery, after which a round-robin turn starts.
    next_consumer: ConsumerId,
    next_id: ConsumerId,
    events: BTreeMap<EventKey, TrackedEvent>,
    waiting: BTreeSet<EventKey>,
    parking: BTreeSet<EventKey>,
    /// Events that wait or are to be parked and whose payloads were evicted.
    evicted: BTreeSet<EventKey>,
    /// Number of evicted events that are to be parked.
    evicted_to_park: usize,
    /// Timeouts of the events in flight.
    timeouts: BTreeSet<(Instant, EventKey)>,
    /// Waiting events by pin, under strategies with pins.
    pinned: Option<PinnedEvents>,
    bytes: usize,
    /// The last source position that was offered to the dispatcher.
    last_offered: Option<u64>,
    /// The source position after which reading continues. The position is before `last_offered` if
    /// events were evicted.
    read_through: Option<u64>,
    /// The last revision of the parked stream that was offered.
    last_parked_offered: Option<u64>,
    /// Number of events completed.
    pub completed: u64,
    /// Number of events sent.
    pub sent: u64,
}

impl Dispatcher {
    /// Creates a dispatcher without consumers. All events through `after` count as complete.
    pub fn new(config: &GroupConfig, after: Option<u64>) -> Dispatcher {
        let is_pinned = matches!(config.strategy, Strategy::Pinned | Strategy::PinnedByCorrelation);
        Dispatcher {
            strategy: config.strategy,
            max_retries: u32::try_from(config.settings.max_retry_count).unwrap_or(0),
            message_timeout: config.message_timeout,
            checks_from: None,
            measures_acks: config.settings.extra_statistics,
            consumers: BTreeMap::new(),
            free: BTreeSet::new(),
            next_consumer: 0,
            next_id: 0,
            events: BTreeMap::new(),
            waiting: BTreeSet::new(),
            parking: BTreeSet::new(),
            evicted: BTreeSet::new(),
            evicted_to_park: 0,
            timeouts: BTreeSet::new(),
            pinned: is_pinned.then(PinnedEvents::default),
            bytes: 0,
            last_offered: after,
            read_through: after,
            last_parked_offered: None,
            completed: 0,
            sent: 0,
        }
    }

    /// Adds a consumer with this capacity of events in flight.
    pub fn connect(&mut self, capacity: usize) -> ConsumerId {
        self.next_id += 1;
        self.consumers.insert(self.next_id, ConsumerState { capacity, ..ConsumerState::default() });
        if let Some(pinned) = &mut self.pinned {
            pinned.connect(self.next_id);
        }
        self.update_capacity(self.next_id);
        self.next_id
    }

    /// Records whether a consumer has capacity, after that may have changed.
    fn update_capacity(&mut self, id: ConsumerId) {
        let is_free = self.consumers.get(&id).is_some_and(has_capacity);
        match is_free {
            true => self.free.insert(id),
            false => self.free.remove(&id),
        };
        if let Some(pinned) = &mut self.pinned {
            pinned.set_capacity(id, is_free);
        }
    }

    /// Removes a consumer. Returns its events in flight, for [`Dispatcher::reassign`].
    #[must_use]
    pub fn disconnect(&mut self, id: ConsumerId) -> Vec<EventKey> {
        let Some(consumer) = self.consumers.remove(&id) else { return Vec::new() };
        self.update_capacity(id);
        if let Some(pinned) = &mut self.pinned {
            pinned.disconnect(id);
        }
        consumer.in_flight.into_values().flatten().collect()
    }

    /// Makes an event of a disconnected consumer wait for another consumer.
    pub fn reassign(&mut self, key: EventKey) {
        self.release(key);
        fail_point!("group-lose-events-of-disconnected", |_| self.finish(key));
        self.requeue(key);
    }

    /// The connected consumers.
    pub fn consumers(&self) -> &BTreeMap<ConsumerId, ConsumerState> {
        &self.consumers
    }

    /// Adds an event.
    #[cfg(test)]
    pub fn offer(&mut self, key: EventKey, event: ResolvedEvent) {
        let pin = pin_hash(self.strategy, &event);
        self.offer_pinned(key, event, pin);
    }

    /// Adds an event with its [`pin_hash`]. A complete event, or a tracked event with its payload,
    /// is ignored: it was read again only because an evicted event was.
    pub fn offer_pinned(&mut self, key: EventKey, event: ResolvedEvent, pin: u64) {
        let is_new = self.is_new(key);
        match key {
            EventKey::Source(position) => {
                self.last_offered = self.last_offered.max(Some(position));
                if let Some(before) = position.checked_sub(1) {
                    self.mark_examined(before);
                }
                self.read_through = self.read_through.max(Some(position));
            }
            EventKey::Parked(revision) => {
                self.last_parked_offered = self.last_parked_offered.max(Some(revision))
            }
        }
        if is_new {
            let (id, bytes) = (ack_id(&event), resolved_bytes(&event));
            let event = Some(Arc::new(event));
            self.events.insert(
                key,
                TrackedEvent {
                    payload: event,
                    id,
                    bytes,
                    pin_hash: pin,
                    retries: 0,
                    state: DeliveryState::Waiting,
                    due: None,
                    sent_at: Instant::now(),
                },
            );
            self.bytes += bytes;
            self.enqueue(key);
        } else if self.remove_evicted(key)
            && let Some(held) = self.events.get_mut(&key)
        {
            self.bytes += held.bytes;
            held.payload = Some(Arc::new(event));
            self.enqueue(key);
        }
    }

    /// Whether an event was never offered before.
    pub fn is_new(&self, key: EventKey) -> bool {
        match key {
            EventKey::Source(position) => self.last_offered.is_none_or(|last| position > last),
            EventKey::Parked(revision) => {
                self.last_parked_offered.is_none_or(|last| revision > last)
            }
        }
    }

    /// The next event to send to a consumer with capacity.
    pub fn next_delivery(&mut self, now: Instant) -> Option<Delivery> {
        let (key, id) = self.next_target()?;
        let held = self.events.get_mut(&key)?;
        let event = Arc::clone(held.payload.as_ref()?);
        let consumer = self.consumers.get_mut(&id)?;
        held.state = DeliveryState::InFlight(id);
        self.checks_from = self.checks_from.or(Some(now));
        let timeout = self.message_timeout;
        held.due = timeout.and_then(|timeout| next_check(self.checks_from?, now, timeout));
        held.sent_at = now;
        self.timeouts.extend(held.due.map(|due| (due, key)));
        let (retries, pin) = (held.retries, held.pin_hash);
        consumer.in_flight.entry(held.id).or_default().insert(key);
        consumer.in_flight_count += 1;
        consumer.sent += 1;
        self.sent += 1;
        self.next_consumer = id;
        if let Some(pinned) = &mut self.pinned {
            pinned.start(pin, id);
        }
        self.remove_waiting(key);
        self.update_capacity(id);
        Some(Delivery { consumer: id, event, retries })
    }

    /// The first waiting event that can be sent, and its consumer.
    fn next_target(&self) -> Option<(EventKey, ConsumerId)> {
        let first_free = || Some((*self.waiting.first()?, self.free_consumer()?));
        fail_point!("group-ignore-pins", |_| first_free());
        match &self.pinned {
            Some(pinned) => pinned.next(),
            None => first_free(),
        }
    }

    /// Chooses the consumer of the next event, under strategies without pins.
    fn free_consumer(&self) -> Option<ConsumerId> {
        match self.strategy {
            Strategy::DispatchToSingle => {
                fail_point!("group-single-is-last", |_| self.free.last().copied());
                self.free.first().copied()
            }
            _ => {
                let mut following = self.free.range(self.next_consumer + 1..);
                following.next().or_else(|| self.free.first()).copied()
            }
        }
    }

    /// Completes an event. An event that is not in flight to this consumer is ignored.
    pub fn ack(&mut self, consumer: ConsumerId, id: &EventId) {
        let now = self.measures_acks.then(Instant::now);
        if let Some(key) = self.take_back(consumer, id) {
            if let (Some(now), Some(held)) = (now, self.events.get(&key))
                && let Some(consumer) = self.consumers.get_mut(&consumer)
            {
                consumer.ack_times.record(now.saturating_duration_since(held.sent_at));
            }
            self.finish(key);
        }
    }

    /// Applies a nack to an event. An event that is not in flight to this consumer is ignored.
    pub fn nack(&mut self, consumer: ConsumerId, id: &EventId, action: &NackDecision) {
        if let Some(key) = self.take_back(consumer, id) {
            self.apply_nack(key, action);
        }
    }

    fn apply_nack(&mut self, key: EventKey, action: &NackDecision) {
        match action {
            NackDecision::Park(reason) => {
                fail_point!("group-drop-events-to-park", |_| self.finish(key));
                self.mark_for_parking(key, Arc::clone(reason));
            }
            NackDecision::Retry => {
                fail_point!("group-drop-events-to-retry", |_| self.finish(key));
                self.retry(key);
            }
            NackDecision::Skip => self.finish(key),
        }
    }

    /// Sends an event again whose timeout had passed at a check. Returns whether there was one.
    /// REQUIRES: the time never decreases from call to call.
    pub fn expire_timeout(&mut self, now: Instant) -> bool {
        fail_point!("group-ignore-timeouts", |_| false);
        match self.timeouts.first().copied() {
            Some((due, key)) if due <= now => {
                // Removes the timeout.
                self.release(key);
                self.retry(key);
                true
            }
            _ => false,
        }
    }

    /// The check at which the timeout of an event that was sent at this time has passed.
    #[cfg(test)]
    pub fn check_after(&self, sent_at: Instant, timeout: Duration) -> Option<Instant> {
        next_check(self.checks_from?, sent_at, timeout)
    }

    /// Earliest check at which a timeout has passed.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.timeouts.first().map(|(due, _)| *due)
    }

    /// The first events to be parked, with their reasons; at most `limit` of them.
    pub fn events_to_park(&self, limit: usize) -> Vec<ParkRequest> {
        let keys = self.parking.iter().take(limit);
        keys.filter_map(|key| match self.events.get(key)? {
            TrackedEvent {
                payload: Some(event), state: DeliveryState::Parking(reason), ..
            } => Some((*key, Arc::clone(event), Arc::clone(reason))),
            _ => None,
        })
        .collect()
    }

    /// Completes an event.
    pub fn finish(&mut self, key: EventKey) {
        self.remove_waiting(key);
        self.parking.remove(&key);
        self.remove_evicted(key);
        if let Some(held) = self.events.remove(&key) {
            self.bytes -= held.payload.map_or(0, |_| held.bytes);
            self.completed += 1;
        }
    }

    /// Completes a replayed event whose parked stream was tombstoned. Returns whether there was
    /// one. Another stream replaces the parked stream, and its revisions begin at 0.
    pub fn forget_parked_event(&mut self) -> bool {
        match self.events.first_key_value() {
            Some((&key @ EventKey::Parked(_), _)) => {
                self.release(key);
                self.finish(key);
                true
            }
            _ => {
                self.last_parked_offered = None;
                false
            }
        }
    }

    /// The last source position through which all events are complete; `None` before the first
    /// complete event.
    pub fn completed_through(&self) -> Option<u64> {
        fail_point!("group-checkpoint-last-offered", |_| self.last_offered);
        match self.first_incomplete() {
            Some(EventKey::Source(position)) => {
                fail_point!("group-checkpoint-too-far", |_| Some(*position));
                position.checked_sub(1)
            }
            _ => self.last_offered,
        }
    }

    /// The first event of the source that is not complete.
    fn first_incomplete(&self) -> Option<&EventKey> {
        let mut held = self.events.range(EventKey::Source(0)..);
        fail_point!("group-checkpoint-ignore-parking", |_| {
            let is_parking = |held: &TrackedEvent| matches!(held.state, DeliveryState::Parking(_));
            held.find(|(_, held)| !is_parking(held)).map(|(key, _)| key)
        });
        held.next().map(|(key, _)| key)
    }

    /// The first replayed event that is not complete.
    pub fn first_replayed(&self) -> Option<u64> {
        match self.events.first_key_value()?.0 {
            EventKey::Parked(revision) => Some(*revision),
            EventKey::Source(_) => None,
        }
    }

    /// Number of tracked events, and the bytes of their payloads.
    pub fn tracked(&self) -> (usize, usize) {
        (self.events.len(), self.bytes)
    }

    /// Numbers of events that wait for a first delivery, of events that wait for a further
    /// delivery, and of events in flight.
    pub fn event_counts(&self) -> (usize, usize, usize) {
        let again = |key: &&EventKey| {
            matches!(key, EventKey::Parked(_))
                || self.events.get(key).is_some_and(|held| held.retries > 0)
        };
        let waiting = self.waiting.len() + self.evicted.len();
        let again = self.waiting.iter().chain(&self.evicted).filter(again).count();
        let on_the_way = self.consumers.values().map(ConsumerState::in_flight).sum();
        (waiting - again, again, on_the_way)
    }

    /// Takes an event back from a consumer.
    fn take_back(&mut self, consumer: ConsumerId, id: &EventId) -> Option<EventKey> {
        let key = self.first_in_flight(consumer, id)?;
        self.release(key);
        Some(key)
    }

    fn first_in_flight(&self, consumer: ConsumerId, id: &EventId) -> Option<EventKey> {
        fail_point!("group-accept-acks-of-others", |_| {
            self.consumers.values().find_map(|other| other.in_flight.get(id)?.first().copied())
        });
        self.consumers.get(&consumer)?.in_flight.get(id)?.first().copied()
    }

    /// Removes an event from the events in flight.
    fn release(&mut self, key: EventKey) {
        let Some(held) = self.events.get_mut(&key) else { return };
        let DeliveryState::InFlight(id) = held.state else { return };
        held.state = DeliveryState::Waiting;
        if let Some(due) = held.due.take() {
            self.timeouts.remove(&(due, key));
        }
        if let Some(pinned) = &mut self.pinned {
            pinned.end(held.pin_hash);
        }
        let Some(consumer) = self.consumers.get_mut(&id) else { return };
        if let Some(keys) = consumer.in_flight.get_mut(&held.id) {
            keys.remove(&key);
            if keys.is_empty() {
                consumer.in_flight.remove(&held.id);
            }
        }
        consumer.in_flight_count -= 1;
        self.update_capacity(id);
    }

    fn retry(&mut self, key: EventKey) {
        let retries = self.events.get(&key).map(|held| held.retries);
        if retries.is_some_and(|retries| self.is_last_retry(retries)) {
            let reason = format!("Reached retry count of {}", self.max_retries);
            self.mark_for_parking(key, reason.into());
        } else {
            self.requeue(key);
        }
    }

    fn is_last_retry(&self, retries: u32) -> bool {
        fail_point!("group-retry-once-more", |_| retries > self.max_retries);
        retries >= self.max_retries
    }

    fn requeue(&mut self, key: EventKey) {
        if let Some(held) = self.events.get_mut(&key) {
            held.count_retry();
            held.state = DeliveryState::Waiting;
            self.enqueue(key);
        }
    }

    fn mark_for_parking(&mut self, key: EventKey, reason: Arc<str>) {
        if let Some(held) = self.events.get_mut(&key) {
            held.state = DeliveryState::Parking(reason);
            self.enqueue(key);
        }
    }
}

fn has_capacity(consumer: &ConsumerState) -> bool {
    fail_point!("group-exceed-capacity", |_| consumer.in_flight_count <= consumer.capacity);
    consumer.in_flight_count < consumer.capacity
}

/// The event at the source position: the link, if the event was read through a link.
pub fn link_or_event(event: &ResolvedEvent) -> Option<&RecordedEvent> {
    event.link.as_ref().or(event.event.as_ref())
}

/// The identifier with which clients ack or nack an event.
fn ack_id(event: &ResolvedEvent) -> EventId {
    link_or_event(event).map_or(EventId([0; 16]), |event| event.id)
}

/// The first check at which the timeout of an event that is sent now has passed. KurrentDB checks
/// timeouts once a second, so clients acknowledge later than a timeout of less without effect.
fn next_check(checks_from: Instant, now: Instant, timeout: Duration) -> Option<Instant> {
    let passed = now.checked_add(timeout)?.saturating_duration_since(checks_from);
    let checks = passed.as_nanos().div_ceil(TIMEOUT_CHECK_TIME.as_nanos());
    checks_from.checked_add(TIMEOUT_CHECK_TIME.checked_mul(u32::try_from(checks).ok()?)?)
}

/// The hash that pins events to one consumer. Finding a correlation id reads all of the metadata,
/// so no asynchronous worker calls this for such groups.
pub fn pin_hash(strategy: Strategy, resolved: &ResolvedEvent) -> u64 {
    let Some(event) = resolved.event.as_ref().or(resolved.link.as_ref()) else { return 0 };
    match strategy {
        Strategy::Pinned => hash(&event.stream),
        Strategy::PinnedByCorrelation => correlation_hash(&event.metadata, &event.stream),
        Strategy::DispatchToSingle | Strategy::RoundRobin => 0,
    }
}

/// The hash of the correlation id in an event's metadata; of the stream without an id.
pub fn correlation_hash(metadata: &[u8], stream: &str) -> u64 {
    let id = read_json_keys(metadata, ["$correlationId"]).ok();
    let id = id.and_then(|[id]| serde_json::from_str::<String>(id?).ok());
    hash(id.as_deref().unwrap_or(stream))
}

/// Hash of a value that is the same in every process.
fn hash(value: impl std::hash::Hash) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(value)
}

mod payload_eviction;
mod pinned_events;

#[cfg(test)]
mod tests;
