//! [`RecentEventIds`]: ids of the newest events, which recognise a retry of an append with an
//! unspecific expected version; and the newest deletions of streams, after which they do not.

use umbel_filter::{HashSecret, hash_key};

use crate::append::event_id_table::EventIdTable;
use crate::limits::{WINDOW_BYTES, WINDOW_EVENTS};
use crate::types::event::EventId;

#[derive(Debug, Default)]
struct IdGeneration {
    positions: EventIdTable,
    events: usize,
    /// Bytes of the log that the events take.
    bytes: u64,
}

/// Ids of the newest events, in two generations. The older generation is dropped as a whole. So the
/// ids of at least one full generation are kept, and no single id is removed. All ids of an append
/// are in the same generation.
#[derive(Debug)]
pub struct RecentEventIds {
    secret: HashSecret,
    newer: IdGeneration,
    older: IdGeneration,
    /// Position of the first event of the append that is being added.
    append: u64,
}

impl RecentEventIds {
    /// Creates an empty window.
    pub fn new(secret: HashSecret) -> RecentEventIds {
        RecentEventIds {
            secret,
            newer: IdGeneration::default(),
            older: IdGeneration::default(),
            append: 0,
        }
    }

    fn hash(&self, stream: u64, id: EventId) -> u64 {
        let mut key = [0; 24];
        key[..16].copy_from_slice(&id.0);
        key[16..].copy_from_slice(&stream.to_le_bytes());
        hash_key(&self.secret, &key)
    }

    /// Whether an append expires once this many events and bytes follow it.
    pub fn is_expired(events: usize, bytes: u64) -> bool {
        events > WINDOW_EVENTS || bytes > WINDOW_BYTES
    }

    /// Begins an append whose first event is at `position`.
    pub fn begin_append(&mut self, position: u64) {
        self.append = position;
        if RecentEventIds::is_expired(self.newer.events, self.newer.bytes) {
            std::mem::swap(&mut self.newer, &mut self.older);
            self.newer.positions.clear();
            (self.newer.events, self.newer.bytes) = (0, 0);
        }
    }

    /// Adds an event of the append that was begun; its stream's name has the hash `stream`. The
    /// event takes `bytes` bytes of the log. Of several events of one append with the same id, the
    /// first one counts: a retry is compared from that event on.
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

    /// Adds a deletion of a stream whose name has the hash `stream`; the event that deletes the
    /// stream is at `position`, in the append that was begun.
    pub fn insert_deletion(&mut self, stream: u64, position: u64) {
        let hash = self.deletion_hash(stream);
        self.newer.positions.insert(hash, position);
    }

    /// Position at which the newest deletion of the stream may be. It is known at least as long as
    /// the ids before it.
    pub fn find_deletion(&self, stream: u64) -> Option<u64> {
        let hash = self.deletion_hash(stream);
        self.newer.positions.get(hash).or_else(|| self.older.positions.get(hash))
    }

    /// Hash of a deletion. Its key is shorter than the key of any event id.
    fn deletion_hash(&self, stream: u64) -> u64 {
        hash_key(&self.secret, &stream.to_le_bytes())
    }

    /// Prefetches the slot where an event will be inserted. If a lookup will precede the insertion,
    /// also prefetches the slot in the older generation.
    pub fn prefetch(&self, stream: u64, id: EventId, is_looked_for: bool) {
        let hash = self.hash(stream, id);
        self.newer.positions.prefetch(hash);
        if is_looked_for {
            self.older.positions.prefetch(hash);
        }
    }

    /// Position at which the stream's event with this id may be; the caller must check the log.
    pub fn find(&self, stream: u64, id: EventId) -> Option<u64> {
        let hash = self.hash(stream, id);
        self.newer.positions.get(hash).or_else(|| self.older.positions.get(hash))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_ids_are_kept_and_oldest_expire() {
        let mut window = RecentEventIds::new(HashSecret::from_seed([1; 16]));
        let id = |number: u64| {
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&number.to_le_bytes());
            EventId(bytes)
        };
        let insert = |window: &mut RecentEventIds, stream: u64, number: u64, bytes: u64| {
            let position = number * 8 + 96;
            window.begin_append(position);
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

    /// Only events after the whole append make the append expire, not events after its first event.
    #[test]
    fn ids_of_one_append_expire_together() {
        let mut window = RecentEventIds::new(HashSecret::from_seed([1; 16]));
        let id = |number: u64| EventId(u128::from(number).to_le_bytes());
        let (first, large, last) = (WINDOW_EVENTS as u64, 100_000, WINDOW_EVENTS as u64);
        let mut next = 96;
        for events in std::iter::repeat_n(1, first as usize)
            .chain([large])
            .chain(std::iter::repeat_n(1, last as usize))
        {
            window.begin_append(next);
            for number in next..next + events {
                window.insert(1, id(number), (number, 8));
            }
            next += events;
        }
        assert_eq!(window.find(1, id(96 + first)), Some(96 + first));
    }

    #[test]
    fn duplicate_id_in_one_append_maps_to_its_first_event() {
        let mut window = RecentEventIds::new(HashSecret::from_seed([1; 16]));
        let id = EventId([5; 16]);
        for append in [96, 200] {
            window.begin_append(append);
            window.insert(1, id, (append, 8));
            window.insert(1, id, (append + 8, 8));
            window.insert(1, id, (append + 16, 8));
            assert_eq!(window.find(1, id), Some(append));
        }
    }
}
