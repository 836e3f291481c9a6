//! [`IdWindow`]: the ids of the newest events, by which an append that expects nothing in
//! particular is known to be a retry.

use umbel_filter::{HashSecret, hash_key};

use crate::event::EventId;
use crate::id_table::IdTable;
use crate::limits::{WINDOW_BYTES, WINDOW_EVENTS};

#[derive(Debug, Default)]
struct Part {
    positions: IdTable,
    events: usize,
    /// Bytes of the log that they take.
    bytes: u64,
}

/// The ids of the newest events. Two parts, of which the older one goes as a whole: so there are
/// always at least as many as one part holds, and nothing is taken out one by one. An append is in
/// one of them as a whole.
#[derive(Debug)]
pub struct IdWindow {
    secret: HashSecret,
    newer: Part,
    older: Part,
    /// The position of the first event of the append that is being taken in.
    append: u64,
}

impl IdWindow {
    /// An empty one.
    pub fn new(secret: HashSecret) -> IdWindow {
        IdWindow { secret, newer: Part::default(), older: Part::default(), append: 0 }
    }

    fn hash(&self, stream: u64, id: EventId) -> u64 {
        let mut key = [0; 24];
        key[..16].copy_from_slice(&id.0);
        key[16..].copy_from_slice(&stream.to_le_bytes());
        hash_key(&self.secret, &key)
    }

    /// Whether so many events and bytes that came behind an append make it be forgotten.
    pub fn is_past(events: usize, bytes: u64) -> bool {
        events > WINDOW_EVENTS || bytes > WINDOW_BYTES
    }

    /// Begins an append, whose first event stands at `position`.
    pub fn begin(&mut self, position: u64) {
        self.append = position;
        if IdWindow::is_past(self.newer.events, self.newer.bytes) {
            std::mem::swap(&mut self.newer, &mut self.older);
            self.newer.positions.clear();
            (self.newer.events, self.newer.bytes) = (0, 0);
        }
    }

    /// Takes in an event of the append that was begun, of the stream whose name has the hash
    /// `stream`; it takes so many bytes of the log. Of events of one append with the same id the
    /// first one counts, as a retry is compared from there on.
    pub fn insert(&mut self, stream: u64, id: EventId, (position, bytes): (u64, u64)) {
        self.newer.events += 1;
        self.newer.bytes += bytes;
        let hash = self.hash(stream, id);
        let is_first = position == self.append
            || self.newer.positions.get(hash).is_none_or(|other| other < self.append);
        if is_first {
            self.newer.positions.insert(hash, position);
        }
    }

    /// Has the place where an event will be put fetched from memory, and, where it is looked for
    /// first, that where it would be otherwise.
    pub fn prefetch(&self, stream: u64, id: EventId, is_looked_for: bool) {
        let hash = self.hash(stream, id);
        self.newer.positions.prefetch(hash);
        if is_looked_for {
            self.older.positions.prefetch(hash);
        }
    }

    /// Where an event of this stream with this id may stand. The log has the last word.
    pub fn find(&self, stream: u64, id: EventId) -> Option<u64> {
        let hash = self.hash(stream, id);
        self.newer.positions.get(hash).or_else(|| self.older.positions.get(hash))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_events_are_known_and_old_ones_forgotten() {
        let mut window = IdWindow::new(HashSecret::from_seed([1; 16]));
        let id = |number: u64| {
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&number.to_le_bytes());
            EventId(bytes)
        };
        let insert = |window: &mut IdWindow, stream: u64, number: u64, bytes: u64| {
            let position = number * 8 + 96;
            window.begin(position);
            window.insert(stream, id(number), (position, bytes));
        };
        let count = 3 * WINDOW_EVENTS as u64 + 17;
        for number in 0..count {
            insert(&mut window, number % 3, number, 8);
        }
        for number in count - WINDOW_EVENTS as u64..count {
            assert_eq!(window.find(number % 3, id(number)), Some(number * 8 + 96));
        }
        assert_eq!(window.find(0, id(0)), None, "long gone");
        assert_eq!(window.find(7, id(count - 1)), None, "of another stream");
        insert(&mut window, 0, count + 1, WINDOW_BYTES + 1);
        insert(&mut window, 0, count + 2, WINDOW_BYTES + 1);
        insert(&mut window, 0, count + 3, WINDOW_BYTES + 1);
        assert_eq!(window.find((count - 1) % 3, id(count - 1)), None, "too many bytes ago");
    }

    /// An append is forgotten by what came behind it, not by what came behind its first event.
    #[test]
    fn an_append_is_known_as_a_whole() {
        let mut window = IdWindow::new(HashSecret::from_seed([1; 16]));
        let id = |number: u64| EventId(u128::from(number).to_le_bytes());
        let (first, large, behind) = (WINDOW_EVENTS as u64, 100_000, WINDOW_EVENTS as u64);
        let mut next = 96;
        for events in std::iter::repeat_n(1, first as usize)
            .chain([large])
            .chain(std::iter::repeat_n(1, behind as usize))
        {
            window.begin(next);
            for number in next..next + events {
                window.insert(1, id(number), (number, 8));
            }
            next += events;
        }
        assert_eq!(window.find(1, id(96 + first)), Some(96 + first));
    }

    #[test]
    fn of_an_id_that_an_append_has_twice_the_first_place_counts() {
        let mut window = IdWindow::new(HashSecret::from_seed([1; 16]));
        let id = EventId([5; 16]);
        for append in [96, 200] {
            window.begin(append);
            window.insert(1, id, (append, 8));
            window.insert(1, id, (append + 8, 8));
            window.insert(1, id, (append + 16, 8));
            assert_eq!(window.find(1, id), Some(append));
        }
    }
}
