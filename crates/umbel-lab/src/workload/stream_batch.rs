//! New streams with their first events, made in batches while the clock is stopped.

use umbel_events::{EventId, ExpectedVersion, NewEvent, Store};
use umbel_keygen::keys::{mix, push_decimal, push_random_bytes};

use crate::engine::Result;

/// Bytes of the first event of a stream.
pub const EVENT_BYTES: usize = 100;
/// `customer-` and twenty digits.
const NAME_BYTES: usize = 29;
/// First number of the streams that no writer creates.
const ABSENT_FROM: u64 = 1 << 48;
/// Size of the pool of bytes from which events take their data.
const POOL_BYTES: usize = 1 << 16;

/// A batch of new streams.
pub struct StreamBatch {
    names: String,
    ids: Vec<EventId>,
    first: u64,
    pool: Vec<u8>,
}

impl Default for StreamBatch {
    fn default() -> StreamBatch {
        let mut pool = Vec::new();
        push_random_bytes(1, POOL_BYTES + EVENT_BYTES, &mut pool);
        StreamBatch { names: String::new(), ids: Vec::new(), first: 0, pool }
    }
}

impl StreamBatch {
    /// Replaces the batch by the streams with these numbers.
    pub fn make(&mut self, numbers: std::ops::Range<u64>) {
        self.names.clear();
        self.ids.clear();
        self.first = numbers.start;
        let mut name = Vec::with_capacity(NAME_BYTES);
        for number in numbers {
            name_of(number, &mut name);
            self.names.push_str(&String::from_utf8_lossy(&name));
            let mut id = [0; 16];
            id[..8].copy_from_slice(&mix(number).to_le_bytes());
            id[8..].copy_from_slice(&mix(!number).to_le_bytes());
            self.ids.push(EventId::from_random(id));
        }
    }

    /// Returns the number of streams.
    pub fn count(&self) -> usize {
        self.ids.len()
    }

    /// Returns the name of a stream, by its index in the batch.
    #[inline]
    pub fn name(&self, at: usize) -> &str {
        &self.names[at * NAME_BYTES..(at + 1) * NAME_BYTES]
    }

    /// Returns the data of a stream's first event.
    #[inline]
    pub fn data(&self, at: usize) -> &[u8] {
        let start = (self.first as usize + at) * 64 % POOL_BYTES;
        &self.pool[start..start + EVENT_BYTES]
    }

    /// Returns a stream's first event.
    #[inline]
    pub fn event(&self, at: usize) -> NewEvent<'_> {
        NewEvent::binary(self.ids[at], "created", self.data(at))
    }

    /// Appends the first event of each stream, one by one. There is no expected revision, so that
    /// the window of ids is probed as well.
    ///
    /// # Errors
    /// An error of the store, or an error if a stream existed already.
    pub fn append(&self, store: &Store) -> Result<()> {
        for at in 0..self.count() {
            let done = store.append(self.name(at), ExpectedVersion::Any, &[self.event(at)])?;
            if done.first != Some(0) || done.is_retry {
                return Err(format!("{} is new and was found", self.name(at)).into());
            }
        }
        Ok(())
    }
}

/// Returns names of streams that are never created.
pub fn absent(numbers: std::ops::Range<u64>) -> StreamBatch {
    let mut made = StreamBatch::default();
    made.make(ABSENT_FROM + numbers.start..ABSENT_FROM + numbers.end);
    made
}

/// Writes the name of a stream; numbers are scattered, so that new streams are spread among the
/// old.
fn name_of(number: u64, name: &mut Vec<u8>) {
    name.clear();
    name.extend_from_slice(b"customer-");
    push_decimal(mix(number), 20, name);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_and_ids_are_all_different() {
        let mut made = StreamBatch::default();
        let (mut names, mut ids) = (HashSet::new(), HashSet::new());
        for part in 0..4 {
            made.make(part * 1_000..(part + 1) * 1_000);
            assert_eq!(made.count(), 1_000);
            for at in 0..made.count() {
                assert!(names.insert(made.name(at).to_string()) && ids.insert(made.ids[at]));
                assert_eq!(made.data(at).len(), EVENT_BYTES);
            }
        }
        let absent = absent(0..1_000);
        assert!((0..1_000).all(|at| !names.contains(absent.name(at))));
    }
}
