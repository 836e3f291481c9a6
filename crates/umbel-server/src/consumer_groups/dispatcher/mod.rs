//! [`Consumers`]: which consumer of a group gets which event, and what became of it. It reads
//! nothing, writes nothing and has no clock of its own.
//!
//! INVARIANT: an event is held until it is done: acknowledged, left out, or written to the stream
//! of parked events. The floor is never beyond an event that is held.
//!
//! What an event says may be let go of while it is held. Once it waits or is to be parked it is
//! missing, and is read again.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;

use tokio::time::Instant;
use umbel_events::{EventId, RecordedEvent, ResolvedEvent};

use crate::group_config::{GroupConfig, Strategy};
use crate::planted::{Bug, planted};
use crate::reader::bytes_of;

/// The number of a consumer. Later ones have higher numbers.
pub type ConsumerId = u64;

/// Which event: what was parked and comes again goes first, then by places.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// The event with this revision of the stream of parked events.
    Parked(u64),
    /// The event at this place of what the group is of.
    Source(u64),
}

/// What to do with events that are not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Put them aside, for this reason.
    Park(Arc<str>),
    /// Send them again.
    Retry,
    /// Leave them out.
    Skip,
}

/// An event that is to be parked, and why.
pub type Parking = (Key, Arc<ResolvedEvent>, Arc<str>);

/// An event on its way to a consumer.
#[derive(Debug, Clone)]
pub struct Sending {
    /// Who gets it.
    pub consumer: ConsumerId,
    /// The event.
    pub event: Arc<ResolvedEvent>,
    /// How often it was sent before.
    pub retries: u32,
}

/// What a consumer does.
#[derive(Debug, Clone, Default)]
pub struct Consumer {
    /// How many events may be on the way to it.
    pub room: usize,
    /// How many were sent.
    pub sent: u64,
    in_flight: HashMap<EventId, BTreeSet<Key>>,
    count: usize,
}

impl Consumer {
    /// How many events are on the way.
    pub fn in_flight(&self) -> usize {
        self.count
    }
}

#[derive(Debug)]
struct Held {
    /// `None` where it was let go of.
    event: Option<Arc<ResolvedEvent>>,
    id: EventId,
    bytes: usize,
    pin: u64,
    retries: u32,
    state: State,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    Waiting,
    InFlight(ConsumerId),
    Parking(Arc<str>),
}

/// Which consumer of a group gets which event, and what became of it.
#[derive(Debug)]
pub struct Consumers {
    strategy: Strategy,
    max_retries: u32,
    message_timeout: Option<std::time::Duration>,
    consumers: BTreeMap<ConsumerId, Consumer>,
    /// Who gets the next event where each does in turn.
    turn: ConsumerId,
    next_id: ConsumerId,
    held: BTreeMap<Key, Held>,
    waiting: BTreeSet<Key>,
    parking: BTreeSet<Key>,
    /// Those that wait or are to be parked, and were let go of.
    missing: BTreeSet<Key>,
    /// When those on the way are late, with how often each had been sent before.
    due: VecDeque<(Instant, Key, ConsumerId, u32)>,
    /// Where each pin has events on the way, and how many.
    pinned: HashMap<u64, (ConsumerId, usize)>,
    bytes: usize,
    /// The last place that was taken in,
    last: Option<u64>,
    /// and that behind which reading goes on: before it, where something is missing.
    read: Option<u64>,
    /// The last revision of the stream of parked events that was taken in.
    last_parked: Option<u64>,
    /// How many were done since somebody asked.
    pub done: u64,
    /// How many were sent.
    pub sent: u64,
}

impl Consumers {
    /// Nobody yet. All up to `after` is done.
    pub fn new(config: &GroupConfig, after: Option<u64>) -> Consumers {
        Consumers {
            strategy: config.strategy,
            max_retries: u32::try_from(config.settings.max_retry_count).unwrap_or(0),
            message_timeout: config.message_timeout,
            consumers: BTreeMap::new(),
            turn: 0,
            next_id: 0,
            held: BTreeMap::new(),
            waiting: BTreeSet::new(),
            parking: BTreeSet::new(),
            missing: BTreeSet::new(),
            due: VecDeque::new(),
            pinned: HashMap::new(),
            bytes: 0,
            last: after,
            read: after,
            last_parked: None,
            done: 0,
            sent: 0,
        }
    }

    /// A consumer joins with room for so many events on the way.
    pub fn connect(&mut self, room: usize) -> ConsumerId {
        self.next_id += 1;
        self.consumers.insert(self.next_id, Consumer { room, ..Consumer::default() });
        self.next_id
    }

    /// A consumer goes away: what was on the way to it is sent to others.
    pub fn disconnect(&mut self, id: ConsumerId) {
        let Some(consumer) = self.consumers.remove(&id) else { return };
        for key in consumer.in_flight.into_values().flatten() {
            self.land(key);
            if planted(Bug::DisconnectForgets) {
                self.finish(key);
            }
            self.wait_again(key);
        }
    }

    /// Those who have joined.
    pub fn consumers(&self) -> &BTreeMap<ConsumerId, Consumer> {
        &self.consumers
    }

    /// Takes in an event. One that is held and not missing, or was done before, is left out: it was
    /// read again together with one that is missing.
    pub fn offer(&mut self, key: Key, event: ResolvedEvent) {
        let is_new = self.is_new(key);
        match key {
            Key::Source(place) => {
                self.last = self.last.max(Some(place));
                if let Some(before) = place.checked_sub(1) {
                    self.looked_at(before);
                }
                self.read = self.read.max(Some(place));
            }
            Key::Parked(revision) => self.last_parked = self.last_parked.max(Some(revision)),
        }
        if is_new {
            let (pin, id, bytes) = (pin(self.strategy, &event), ack_id(&event), bytes_of(&event));
            let event = Some(Arc::new(event));
            self.held
                .insert(key, Held { event, id, bytes, pin, retries: 0, state: State::Waiting });
            self.bytes += bytes;
            self.waiting.insert(key);
        } else if self.missing.remove(&key)
            && let Some(held) = self.held.get_mut(&key)
        {
            self.bytes += held.bytes;
            held.event = Some(Arc::new(event));
            self.turn_up(key);
        }
    }

    /// Whether an event was never taken in.
    pub fn is_new(&self, key: Key) -> bool {
        match key {
            Key::Source(place) => self.last.is_none_or(|last| place > last),
            Key::Parked(revision) => self.last_parked.is_none_or(|last| revision > last),
        }
    }

    /// The next event for somebody who has room.
    pub fn next(&mut self, now: Instant) -> Option<Sending> {
        let is_pinned = matches!(self.strategy, Strategy::Pinned | Strategy::PinnedByCorrelation);
        let (key, id) = if is_pinned {
            if !self.consumers.values().any(has_room) {
                return None;
            }
            let mut waiting = self.waiting.iter();
            waiting.find_map(|key| Some((*key, self.pinned_to(self.held.get(key)?.pin)?)))?
        } else {
            (*self.waiting.first()?, self.free()?)
        };
        self.waiting.remove(&key);
        let held = self.held.get_mut(&key)?;
        let event = Arc::clone(held.event.as_ref()?);
        let consumer = self.consumers.get_mut(&id)?;
        held.state = State::InFlight(id);
        let retries = held.retries;
        consumer.in_flight.entry(held.id).or_default().insert(key);
        consumer.count += 1;
        consumer.sent += 1;
        self.sent += 1;
        self.turn = id;
        self.pinned.entry(held.pin).or_insert((id, 0)).1 += 1;
        let due = self.message_timeout.and_then(|timeout| now.checked_add(timeout));
        if let Some(due) = due {
            self.due.push_back((due, key, id, retries));
        }
        Some(Sending { consumer: id, event, retries })
    }

    /// Who gets the next event where streams do not matter.
    fn free(&self) -> Option<ConsumerId> {
        let mut free = self.consumers.iter().filter(|(_, consumer)| has_room(consumer));
        match self.strategy {
            Strategy::DispatchToSingle if planted(Bug::SingleIsLast) => {
                free.next_back().map(|(id, _)| *id)
            }
            Strategy::DispatchToSingle => free.next().map(|(id, _)| *id),
            _ => {
                let first = free.next().map(|(id, _)| *id)?;
                let mut behind = self.consumers.range(self.turn + 1..);
                let behind = behind.find(|(_, consumer)| has_room(consumer));
                Some(behind.map_or(first, |(id, _)| *id))
            }
        }
    }

    /// Who gets the events of a pin: who has some on the way, else by the highest hash of both, so
    /// that few move when a consumer comes or goes. `None` where there is no room.
    fn pinned_to(&self, pin: u64) -> Option<ConsumerId> {
        if planted(Bug::PinIgnored) {
            return self.free();
        }
        let id = match self.pinned.get(&pin) {
            Some((id, _)) => *id,
            None => *self.consumers.keys().max_by_key(|id| hash((pin, **id)))?,
        };
        self.consumers.get(&id).filter(|consumer| has_room(consumer)).map(|_| id)
    }

    /// Events are done. Those that are not on the way to this consumer are left out.
    pub fn ack(&mut self, consumer: ConsumerId, ids: &[EventId]) {
        for id in ids {
            if let Some(key) = self.take(consumer, id) {
                self.finish(key);
            }
        }
    }

    /// Events are not done. Those that are not on the way to this consumer are left out.
    pub fn nack(&mut self, consumer: ConsumerId, ids: &[EventId], action: &Action) {
        for id in ids {
            let Some(key) = self.take(consumer, id) else { continue };
            match action {
                Action::Park(_) if planted(Bug::ParkSkips) => self.finish(key),
                Action::Retry if planted(Bug::RetrySkips) => self.finish(key),
                Action::Park(reason) => self.park(key, Arc::clone(reason)),
                Action::Retry => self.retry(key),
                Action::Skip => self.finish(key),
            }
        }
    }

    /// Sends again what was sent long ago. REQUIRES: times only grow.
    pub fn tick(&mut self, now: Instant) {
        if planted(Bug::TimeoutForgotten) {
            return;
        }
        while let Some((due, key, id, retries)) = self.due.front().copied() {
            let is_on_the_way = self
                .held
                .get(&key)
                .is_some_and(|held| held.state == State::InFlight(id) && held.retries == retries);
            if is_on_the_way && due > now {
                return;
            }
            // What came back is taken out at once: of a fast group there is a lot.
            self.due.pop_front();
            if is_on_the_way {
                self.land(key);
                self.retry(key);
            }
        }
    }

    /// When the next event is late, at the earliest.
    pub fn due(&self) -> Option<Instant> {
        self.due.front().map(|due| due.0)
    }

    /// Events that are to be parked, with the reasons.
    pub fn to_park(&self, most: usize) -> Vec<Parking> {
        let keys = self.parking.iter().take(most);
        keys.filter_map(|key| match self.held.get(key)? {
            Held { event: Some(event), state: State::Parking(reason), .. } => {
                Some((*key, Arc::clone(event), Arc::clone(reason)))
            }
            _ => None,
        })
        .collect()
    }

    /// An event is done.
    pub fn finish(&mut self, key: Key) {
        self.waiting.remove(&key);
        self.parking.remove(&key);
        self.missing.remove(&key);
        if let Some(held) = self.held.remove(&key) {
            self.bytes -= held.event.map_or(0, |_| held.bytes);
            self.done += 1;
        }
    }

    /// The last place up to which all is done; `None` before the first.
    pub fn floor(&self) -> Option<u64> {
        let mut held = self.held.range(Key::Source(0)..);
        let first = held.find(|(_, held)| {
            !(planted(Bug::FloorIgnoresParking) && matches!(held.state, State::Parking(_)))
        });
        match first {
            _ if planted(Bug::FloorIsLast) => self.last,
            Some((Key::Source(place), _)) if planted(Bug::FloorTooFar) => Some(*place),
            Some((Key::Source(place), _)) => place.checked_sub(1),
            _ => self.last,
        }
    }

    /// The first parked event that comes again and is not done.
    pub fn first_parked(&self) -> Option<u64> {
        match self.held.first_key_value()?.0 {
            Key::Parked(revision) => Some(*revision),
            Key::Source(_) => None,
        }
    }

    /// How many events are held, and the bytes of what they say.
    pub fn held(&self) -> (usize, usize) {
        (self.held.len(), self.bytes)
    }

    /// How many events wait for the first time, wait again, and are on the way.
    pub fn counts(&self) -> (usize, usize, usize) {
        let again = |key: &&Key| {
            matches!(key, Key::Parked(_)) || self.held.get(key).is_some_and(|held| held.retries > 0)
        };
        let waiting = self.waiting.len() + self.missing.len();
        let again = self.waiting.iter().chain(&self.missing).filter(again).count();
        let on_the_way = self.consumers.values().map(Consumer::in_flight).sum();
        (waiting - again, again, on_the_way)
    }

    /// Takes an event back from a consumer.
    fn take(&mut self, consumer: ConsumerId, id: &EventId) -> Option<Key> {
        let mut others = self.consumers.iter().filter(|_| planted(Bug::AckOfOthers));
        let other = others.find(|(_, other)| other.in_flight.contains_key(id));
        let consumer = other.map_or(consumer, |(other, _)| *other);
        let keys = self.consumers.get(&consumer)?.in_flight.get(id)?;
        let key = *keys.first()?;
        self.land(key);
        Some(key)
    }

    /// An event is no longer on the way.
    fn land(&mut self, key: Key) {
        let Some(held) = self.held.get_mut(&key) else { return };
        let State::InFlight(id) = held.state else { return };
        held.state = State::Waiting;
        if let Some((_, count)) = self.pinned.get_mut(&held.pin) {
            *count -= 1;
            if *count == 0 {
                self.pinned.remove(&held.pin);
            }
        }
        let Some(consumer) = self.consumers.get_mut(&id) else { return };
        if let Some(keys) = consumer.in_flight.get_mut(&held.id) {
            keys.remove(&key);
            if keys.is_empty() {
                consumer.in_flight.remove(&held.id);
            }
        }
        consumer.count -= 1;
    }

    fn retry(&mut self, key: Key) {
        match self.held.get(&key) {
            Some(held)
                if held.retries >= self.max_retries + u32::from(planted(Bug::RetryOnceMore)) =>
            {
                self.park(key, format!("Reached retry count of {}", self.max_retries).into());
            }
            _ => self.wait_again(key),
        }
    }

    fn wait_again(&mut self, key: Key) {
        if let Some(held) = self.held.get_mut(&key) {
            held.retries = held.retries.saturating_add(u32::from(!planted(Bug::RetryNotCounted)));
            held.state = State::Waiting;
            self.turn_up(key);
        }
    }

    fn park(&mut self, key: Key, reason: Arc<str>) {
        if let Some(held) = self.held.get_mut(&key) {
            held.state = State::Parking(reason);
            self.turn_up(key);
        }
    }
}

fn has_room(consumer: &Consumer) -> bool {
    consumer.count < consumer.room + usize::from(planted(Bug::RoomIgnored))
}

/// The event as its place names it: the link, where it came through one.
pub fn original(event: &ResolvedEvent) -> Option<&RecordedEvent> {
    event.link.as_ref().or(event.event.as_ref())
}

/// The identifier by which clients say what became of an event.
fn ack_id(event: &ResolvedEvent) -> EventId {
    original(event).map_or(EventId([0; 16]), |event| event.id)
}

/// What keeps events with one consumer.
fn pin(strategy: Strategy, resolved: &ResolvedEvent) -> u64 {
    let Some(event) = resolved.event.as_ref().or(resolved.link.as_ref()) else { return 0 };
    match strategy {
        Strategy::Pinned => hash(&event.stream),
        Strategy::PinnedByCorrelation => {
            let metadata: Option<serde_json::Value> = serde_json::from_slice(&event.metadata).ok();
            let id = metadata.as_ref().and_then(|all| all.get("$correlationId")?.as_str());
            hash(id.unwrap_or(&event.stream))
        }
        Strategy::DispatchToSingle | Strategy::RoundRobin => 0,
    }
}

/// The same for the same value in every process.
fn hash(value: impl std::hash::Hash) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(value)
}

#[path = "consumers_missing.rs"]
mod missing;
#[cfg(test)]
#[path = "consumers_tests.rs"]
mod tests;
