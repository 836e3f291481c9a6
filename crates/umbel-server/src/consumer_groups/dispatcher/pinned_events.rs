//! [`PinnedEvents`]: the waiting events of a group with pins, and the consumer of each pin.
//!
//! INVARIANT: the first waiting event of each pin is among the heads of its consumer. The first
//! head of each consumer with capacity is in `next`. So a delivery searches no events of others.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{ConsumerId, EventKey, hash};

/// Waiting events of a group with pins, and the consumer of each pin.
#[derive(Debug, Default)]
pub struct PinnedEvents {
    pins: HashMap<u64, Pin>,
    consumers: BTreeMap<ConsumerId, PinnedConsumer>,
    next: BTreeSet<(EventKey, ConsumerId)>,
    /// Number of changes of heads.
    #[cfg(test)]
    pub head_changes: usize,
}

/// A pin with events that wait or are in flight.
#[derive(Debug, Default)]
struct Pin {
    waiting: BTreeSet<EventKey>,
    in_flight: usize,
    /// The consumer with events of the pin in flight, else the one with the highest hash of both.
    /// Few pins move when a consumer connects or disconnects.
    consumer: Option<ConsumerId>,
}

#[derive(Debug, Default)]
struct PinnedConsumer {
    /// The first waiting event of each of its pins.
    heads: BTreeSet<EventKey>,
    has_capacity: bool,
}

impl PinnedEvents {
    /// Whether no event waits or is in flight.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.pins.is_empty() && self.next.is_empty()
    }

    /// Adds a consumer without capacity. REQUIRES: its number is above all earlier ones.
    pub fn connect(&mut self, id: ConsumerId) {
        self.consumers.insert(id, PinnedConsumer::default());
        let moves = |(pin, state): (&u64, &Pin)| {
            let is_higher = |other: ConsumerId| hash((*pin, id)) >= hash((*pin, other));
            (state.in_flight == 0 && state.consumer.is_none_or(is_higher)).then_some(*pin)
        };
        let moved: Vec<u64> = self.pins.iter().filter_map(moves).collect();
        moved.into_iter().for_each(|pin| self.assign(pin, Some(id)));
    }

    /// Removes a consumer. Its events in flight end afterwards.
    pub fn disconnect(&mut self, id: ConsumerId) {
        self.set_capacity(id, false);
        self.consumers.remove(&id);
        let is_lost = |state: &Pin| state.in_flight == 0 && state.consumer == Some(id);
        let lost = self.pins.iter().filter(|(_, state)| is_lost(state)).map(|(pin, _)| *pin);
        let lost: Vec<u64> = lost.collect();
        lost.into_iter().for_each(|pin| self.assign(pin, self.highest(pin)));
    }

    /// Records whether a consumer has capacity.
    pub fn set_capacity(&mut self, id: ConsumerId, has_capacity: bool) {
        let Some(consumer) = self.consumers.get_mut(&id) else { return };
        let had_capacity = std::mem::replace(&mut consumer.has_capacity, has_capacity);
        if had_capacity != has_capacity
            && let Some(head) = consumer.heads.first()
        {
            match has_capacity {
                true => self.next.insert((*head, id)),
                false => self.next.remove(&(*head, id)),
            };
        }
    }

    /// Adds a waiting event.
    pub fn insert(&mut self, key: EventKey, pin: u64) {
        if !self.pins.contains_key(&pin) {
            let consumer = self.highest(pin);
            self.pins.insert(pin, Pin { consumer, ..Pin::default() });
        }
        self.change_waiting(pin, |waiting| waiting.insert(key));
    }

    /// Removes an event, if it waits.
    pub fn remove(&mut self, key: EventKey, pin: u64) {
        self.change_waiting(pin, |waiting| waiting.remove(&key));
        self.remove_unused(pin);
    }

    /// Counts a waiting event of the pin as in flight to this consumer.
    pub fn start(&mut self, pin: u64, id: ConsumerId) {
        let Some(state) = self.pins.get_mut(&pin) else { return };
        state.in_flight += 1;
        if state.in_flight == 1 {
            self.assign(pin, Some(id));
        }
    }

    /// Counts an event of the pin as no longer in flight.
    pub fn end(&mut self, pin: u64) {
        let Some(state) = self.pins.get_mut(&pin) else { return };
        state.in_flight -= 1;
        if state.in_flight == 0 && !state.waiting.is_empty() {
            self.assign(pin, self.highest(pin));
        }
        self.remove_unused(pin);
    }

    /// The first waiting event whose consumer has capacity, and that consumer.
    pub fn next(&self) -> Option<(EventKey, ConsumerId)> {
        self.next.first().copied()
    }

    fn highest(&self, pin: u64) -> Option<ConsumerId> {
        self.consumers.keys().copied().max_by_key(|id| hash((pin, *id)))
    }

    fn remove_unused(&mut self, pin: u64) {
        if self.pins.get(&pin).is_some_and(|pin| pin.in_flight == 0 && pin.waiting.is_empty()) {
            self.pins.remove(&pin);
        }
    }

    fn change_waiting(&mut self, pin: u64, change: impl FnOnce(&mut BTreeSet<EventKey>) -> bool) {
        let Some(state) = self.pins.get_mut(&pin) else { return };
        let before = state.waiting.first().copied();
        change(&mut state.waiting);
        let (after, consumer) = (state.waiting.first().copied(), state.consumer);
        self.replace_head(consumer, before, after);
    }

    /// Assigns a pin to a consumer.
    fn assign(&mut self, pin: u64, id: Option<ConsumerId>) {
        let Some(state) = self.pins.get_mut(&pin) else { return };
        let head = state.waiting.first().copied();
        let before = std::mem::replace(&mut state.consumer, id);
        if before != id {
            self.replace_head(before, head, None);
            self.replace_head(id, None, head);
        }
    }

    /// Replaces the head of a pin of this consumer, unless the consumer has disconnected.
    fn replace_head(
        &mut self,
        id: Option<ConsumerId>,
        old: Option<EventKey>,
        new: Option<EventKey>,
    ) {
        if old == new {
            return;
        }
        let found = id.and_then(|id| Some((id, self.consumers.get_mut(&id)?)));
        let Some((id, consumer)) = found else { return };
        #[cfg(test)]
        {
            self.head_changes += 1;
        }
        let before = consumer.heads.first().copied();
        if let Some(old) = old {
            consumer.heads.remove(&old);
        }
        consumer.heads.extend(new);
        let after = consumer.heads.first().copied();
        if consumer.has_capacity && before != after {
            if let Some(head) = before {
                self.next.remove(&(head, id));
            }
            self.next.extend(after.map(|head| (head, id)));
        }
    }
}
