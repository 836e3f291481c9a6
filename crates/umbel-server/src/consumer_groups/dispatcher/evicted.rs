//! What a group holds and has let go of, so that others have room: it is missing, and read again.

use super::{ConsumerId, Consumers, Key, State, has_room};

impl Consumers {
    /// Everything up to this place was looked at, from where reading went on.
    pub fn pass(&mut self, place: u64) {
        self.last = self.last.max(Some(place));
        self.looked_at(place);
    }

    /// What is missing on the way from where reading went on to this place is not there any more.
    pub(super) fn looked_at(&mut self, place: u64) {
        let first = self.read.map_or(0, |read| read.saturating_add(1));
        if first <= place {
            self.give_up(Key::Source(first), Key::Source(place));
            self.read = Some(place);
        }
    }

    /// Everything up to this revision of the stream of parked events was looked at.
    pub fn pass_parked(&mut self, revision: u64) {
        self.give_up(Key::Parked(0), Key::Parked(revision));
    }

    fn give_up(&mut self, first: Key, last: Key) {
        while let Some(key) = self.missing.range(first..=last).next().copied() {
            self.finish(key);
        }
    }

    /// Lets go of what events say that are on the way to these consumers, and of all that wait
    /// where that is asked for. They stay what they are, and are read again when somebody needs
    /// them.
    pub fn let_go(&mut self, of_waiting: bool, of_consumer: impl Fn(ConsumerId) -> bool) {
        let mut missing = Vec::new();
        for (key, held) in &mut self.held {
            let goes = match held.state {
                State::InFlight(id) => of_consumer(id),
                State::Waiting => of_waiting,
                // It is written as soon as can be.
                State::Parking(_) => false,
            };
            if goes && held.event.take().is_some() {
                self.bytes -= held.bytes;
                missing.push(*key);
            }
        }
        for key in missing {
            self.waiting.remove(&key);
            self.turn_up(key);
        }
    }

    /// Puts an event to those like it: they wait, are to be parked, or miss what they say.
    pub(super) fn turn_up(&mut self, key: Key) {
        let Some(held) = self.held.get(&key) else { return };
        match held.state {
            State::InFlight(_) => false,
            _ if held.event.is_none() => self.missing.insert(key),
            State::Waiting => self.waiting.insert(key),
            State::Parking(_) => self.parking.insert(key),
        };
    }

    /// The first place of which something is missing.
    pub fn first_missing(&self) -> Option<u64> {
        match self.missing.range(Key::Source(0)..).next() {
            Some(Key::Source(place)) => Some(*place),
            _ => None,
        }
    }

    /// Which revisions of the stream of parked events are missing: from, to before.
    pub fn missing_parked(&self) -> Option<(u64, u64)> {
        let mut parked = self.missing.range(..Key::Source(0));
        let revision = |key: &Key| match key {
            Key::Parked(revision) | Key::Source(revision) => *revision,
        };
        let first = parked.next().map(revision)?;
        Some((first, parked.next_back().map_or(first, revision) + 1))
    }

    /// Whether something that is missing is needed: somebody has room for it, or it is to be
    /// parked.
    pub fn needs_missing(&self) -> bool {
        let is_parking = |key: &Key| {
            let held = self.held.get(key);
            held.is_some_and(|held| matches!(held.state, State::Parking(_)))
        };
        let has_free = || self.consumers.values().any(has_room);
        !self.missing.is_empty() && (has_free() || self.missing.iter().any(is_parking))
    }

    /// Whether something is missing that lies before where reading goes on.
    pub fn is_beyond_missing(&self) -> bool {
        self.first_missing().is_some_and(|first| self.read >= Some(first))
    }

    /// Reading is to go on before what is missing, where it is beyond that: whether it is so.
    pub fn go_back(&mut self) -> bool {
        let first = self.first_missing().filter(|_| self.is_beyond_missing());
        if let Some(first) = first {
            self.read = first.checked_sub(1);
        }
        first.is_some()
    }

    /// The place behind which reading goes on.
    pub fn read(&self) -> Option<u64> {
        self.read
    }
}
