//! Queues and time series as sequences of puts and pops.

use umbel_lab::engine::{ReadDigest, Reader, Result};

/// Bytes of a value.
const VALUE_BYTES: usize = 100;

/// A workload: queues of a given length, and how they are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Workload {
    /// Name of the workload.
    pub name: &'static str,
    /// Number of queues in one store, which are used in turn.
    pub queues: u64,
    /// Number of live elements of each queue.
    pub live: u64,
    /// Whether elements are put in front and popped at the end.
    pub is_backward: bool,
    /// Number of entries that are read before each pop.
    pub entries_read: usize,
}

/// A queue of a thousand elements.
const QUEUE: Workload =
    Workload { name: "queue-1k", queues: 1, live: 1_000, is_backward: false, entries_read: 1 };

/// All workloads.
pub const ALL: [Workload; 6] = [
    QUEUE,
    Workload { name: "queue-1k-backward", is_backward: true, ..QUEUE },
    Workload { name: "queue-100k", live: 100_000, ..QUEUE },
    Workload { name: "queue-100k-backward", live: 100_000, is_backward: true, ..QUEUE },
    Workload { name: "16-queues-1k", queues: 16, ..QUEUE },
    Workload { name: "time-series-10k", live: 10_000, entries_read: 100, ..QUEUE },
];

impl Workload {
    /// The key of element `number` of a queue.
    pub fn key(&self, queue: u64, number: u64) -> [u8; 16] {
        let number = if self.is_backward { u64::MAX - number } else { number };
        let mut key = [0; 16];
        key[..8].copy_from_slice(&queue.to_be_bytes());
        key[8..].copy_from_slice(&number.to_be_bytes());
        key
    }

    /// The value of element `number`.
    pub fn value(number: u64) -> [u8; VALUE_BYTES] {
        let mut value = [0; VALUE_BYTES];
        for (at, chunk) in value.chunks_mut(8).enumerate() {
            let word = (number + at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
        value
    }

    /// Reads the oldest element of a queue, and further elements. Returns `false` if the engine
    /// cannot do that.
    ///
    /// # Errors
    /// Errors of the engine, or a wrong answer.
    pub fn read_oldest(&self, reader: &mut dyn Reader, queue: u64, number: u64) -> Result<bool> {
        let (mut found, mut expected) = (ReadDigest::default(), ReadDigest::default());
        if self.is_backward {
            if !reader.last(&mut found)? {
                return Ok(false);
            }
        } else {
            let mut start = self.key(queue, 0);
            start[8..].fill(0);
            reader.seek(&start, self.entries_read, &mut found)?;
        }
        for number in (number..).take(self.entries_read) {
            expected.add_entry(&self.key(queue, number), &Workload::value(number));
        }
        if found != expected {
            return Err(format!("{}: element {number} of queue {queue} is wrong", self.name).into());
        }
        Ok(true)
    }
}
