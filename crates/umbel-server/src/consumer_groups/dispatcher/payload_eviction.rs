//! Eviction of event payloads that a group tracks, which frees memory for other groups. Evicted
//! events are read again when needed.

use super::{ConsumerId, DeliveryState, Dispatcher, EventKey};

impl Dispatcher {
    /// Marks the source as examined from the read position through this position.
    pub fn advance(&mut self, position: u64) {
        self.last_offered = self.last_offered.max(Some(position));
        self.mark_examined(position);
    }

    /// Completes the event at this source position without a delivery: its link leads to no event.
    pub fn skip(&mut self, position: u64) {
        let is_new = self.is_new(EventKey::Source(position));
        self.advance(position);
        self.completed += u64::from(is_new);
    }

    /// Completes evicted events between the read position and this one: the source no longer has
    /// them.
    pub(super) fn mark_examined(&mut self, position: u64) {
        let first = self.read_through.map_or(0, |read| read.saturating_add(1));
        if first <= position {
            self.complete_evicted(EventKey::Source(first), EventKey::Source(position));
            self.read_through = Some(position);
        }
    }

    /// Marks the parked stream as examined through this revision.
    pub fn advance_parked(&mut self, revision: u64) {
        self.complete_evicted(EventKey::Parked(0), EventKey::Parked(revision));
    }

    fn complete_evicted(&mut self, first: EventKey, last: EventKey) {
        while let Some(key) = self.evicted.range(first..=last).next().copied() {
            self.finish(key);
        }
    }

    /// Evicts payloads of events in flight to these consumers and, if requested, of all waiting
    /// events. The events keep their state and are read again when they are needed.
    pub fn evict(&mut self, of_waiting: bool, of_consumer: impl Fn(ConsumerId) -> bool) {
        let mut missing = Vec::new();
        for (key, held) in &mut self.events {
            let goes = match held.state {
                DeliveryState::InFlight(id) => of_consumer(id),
                DeliveryState::Waiting => of_waiting,
                // It is parked as soon as possible.
                DeliveryState::Parking(_) => false,
            };
            if goes && held.payload.take().is_some() {
                self.bytes -= held.bytes;
                missing.push(*key);
            }
        }
        for key in missing {
            self.remove_waiting(key);
            self.enqueue(key);
        }
    }

    /// Adds an event to the set that fits its state: waiting, parking or evicted.
    pub(super) fn enqueue(&mut self, key: EventKey) {
        let Some(held) = self.events.get(&key) else { return };
        match held.state {
            DeliveryState::InFlight(_) => {}
            _ if held.payload.is_none() => {
                let is_to_park = matches!(held.state, DeliveryState::Parking(_));
                let is_new = self.evicted.insert(key);
                self.evicted_to_park += usize::from(is_new && is_to_park);
            }
            DeliveryState::Waiting => {
                let pin = held.pin_hash;
                self.waiting.insert(key);
                if let Some(pinned) = &mut self.pinned {
                    pinned.insert(key, pin);
                }
            }
            DeliveryState::Parking(_) => {
                self.parking.insert(key);
            }
        }
    }

    /// Removes an event from those that wait.
    pub(super) fn remove_waiting(&mut self, key: EventKey) {
        if self.waiting.remove(&key)
            && let Some(pinned) = &mut self.pinned
            && let Some(held) = self.events.get(&key)
        {
            pinned.remove(key, held.pin_hash);
        }
    }

    /// Removes an event from the evicted ones; whether it was one.
    pub(super) fn remove_evicted(&mut self, key: EventKey) -> bool {
        let was_evicted = self.evicted.remove(&key);
        let held = self.events.get(&key).filter(|_| was_evicted);
        let is_to_park = held.is_some_and(|held| matches!(held.state, DeliveryState::Parking(_)));
        self.evicted_to_park -= usize::from(is_to_park);
        was_evicted
    }

    /// The source position of the first evicted event.
    pub fn first_evicted(&self) -> Option<u64> {
        match self.evicted.range(EventKey::Source(0)..).next() {
            Some(EventKey::Source(position)) => Some(*position),
            _ => None,
        }
    }

    /// The range of evicted revisions of the parked stream, without its end.
    pub fn evicted_parked_range(&self) -> Option<(u64, u64)> {
        let mut parked = self.evicted.range(..EventKey::Source(0));
        let revision = |key: &EventKey| match key {
            EventKey::Parked(revision) | EventKey::Source(revision) => *revision,
        };
        let first = parked.next().map(revision)?;
        Some((first, parked.next_back().map_or(first, revision) + 1))
    }

    /// Whether an evicted event is needed: a consumer has capacity, or the event is to be parked.
    pub fn needs_evicted(&self) -> bool {
        self.evicted_to_park > 0 || (!self.evicted.is_empty() && !self.free.is_empty())
    }

    /// Whether an evicted event lies before the read position.
    pub fn has_read_past_evicted(&self) -> bool {
        self.first_evicted().is_some_and(|first| self.read_through >= Some(first))
    }

    /// If the read position is past the first evicted event, moves it back to before that event.
    /// Returns whether it was moved.
    pub fn rewind_to_evicted(&mut self) -> bool {
        let first = self.first_evicted().filter(|_| self.has_read_past_evicted());
        if let Some(first) = first {
            self.read_through = first.checked_sub(1);
        }
        first.is_some()
    }

    /// The read position: the source position after which reading continues.
    pub fn read_through(&self) -> Option<u64> {
        self.read_through
    }
}
