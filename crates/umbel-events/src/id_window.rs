//! [`IdWindow`]: the ids of the newest events, by which an append that expects nothing in
//! particular is known to be a retry.

use umbel_filter::{HashSecret, hash_key};

use crate::by_name::ByHash;
use crate::event::EventId;
use crate::limits::{WINDOW_BYTES, WINDOW_EVENTS};

#[derive(Debug, Default)]
struct Part {
    positions: ByHash<u64>,
    events: usize,
    /// The position of its first event.
    start: u64,
}

/// The ids of the newest events. Two parts, of which the older one goes as a whole: so there are
/// always at least as many as one part holds, and nothing is taken out one by one.
#[derive(Debug)]
pub struct IdWindow {
    secret: HashSecret,
    newer: Part,
    older: Part,
}

impl IdWindow {
    /// An empty one.
    pub fn new(secret: HashSecret) -> IdWindow {
        IdWindow { secret, newer: Part::default(), older: Part::default() }
    }

    fn hash(&self, stream: u64, id: EventId) -> u64 {
        let mut key = [0; 24];
        key[..16].copy_from_slice(&id.0);
        key[16..].copy_from_slice(&stream.to_le_bytes());
        hash_key(&self.secret, &key)
    }

    /// Takes in an event of the stream whose name has the hash `stream`.
    pub fn insert(&mut self, stream: u64, id: EventId, position: u64) {
        let is_full = self.newer.events >= WINDOW_EVENTS
            || position.saturating_sub(self.newer.start) >= WINDOW_BYTES;
        if self.newer.events == 0 {
            self.newer.start = position;
        } else if is_full {
            std::mem::swap(&mut self.newer, &mut self.older);
            self.newer.positions.clear();
            (self.newer.events, self.newer.start) = (0, position);
        }
        self.newer.events += 1;
        let hash = self.hash(stream, id);
        self.newer.positions.insert(hash, position);
    }

    /// Where an event of this stream with this id may stand. The log has the last word.
    pub fn find(&self, stream: u64, id: EventId) -> Option<u64> {
        let hash = self.hash(stream, id);
        let found = self.newer.positions.get(&hash).or_else(|| self.older.positions.get(&hash));
        found.copied()
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
        let count = 3 * WINDOW_EVENTS as u64 + 17;
        for number in 0..count {
            window.insert(number % 3, id(number), number * 8 + 96);
        }
        for number in count - WINDOW_EVENTS as u64..count {
            assert_eq!(window.find(number % 3, id(number)), Some(number * 8 + 96));
        }
        assert_eq!(window.find(0, id(0)), None, "long gone");
        assert_eq!(window.find(7, id(count - 1)), None, "of another stream");
        window.insert(0, id(0), (count + 2) * 8 + WINDOW_BYTES);
        window.insert(0, id(1), (count + 2) * 8 + 2 * WINDOW_BYTES);
        assert_eq!(window.find((count - 1) % 3, id(count - 1)), None, "too many bytes ago");
    }
}
