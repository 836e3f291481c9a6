//! Keys and values that are made in batches while the clock is stopped.
//!
//! A batch is small enough for the processor's cache, and so large that reading the clocks takes
//! less than a nanosecond for each operation.

use crate::engine::{Result, Write, WriteSource};
use crate::measure::Stopwatch;

/// Maximum number of entries in a batch.
const ENTRIES_MAX: usize = 4096;
/// Number of bytes at which a batch is full.
const BYTES_MAX: usize = 256 << 10;

/// A key and an optional value, as end offsets in the bytes of their batch.
#[derive(Debug, Clone, Copy)]
struct EntryEnds {
    key: usize,
    value: Option<usize>,
}

/// Consecutive entries.
#[derive(Debug, Default)]
struct PreparedBatch {
    bytes: Vec<u8>,
    entries: Vec<EntryEnds>,
}

impl PreparedBatch {
    fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
    }

    fn is_full(&self) -> bool {
        self.entries.len() >= ENTRIES_MAX || self.bytes.len() >= BYTES_MAX
    }

    fn add(&mut self, key: &[u8], value: Option<&[u8]>) {
        self.bytes.extend_from_slice(key);
        let key = self.bytes.len();
        let value = value.map(|value| {
            self.bytes.extend_from_slice(value);
            self.bytes.len()
        });
        self.entries.push(EntryEnds { key, value });
    }
}

/// The writes of a source, made in batches while the clock is stopped.
pub struct PreparedWrites<'a> {
    source: &'a mut dyn WriteSource,
    watch: &'a Stopwatch,
    batch: PreparedBatch,
    /// Index of the next entry of the batch, and the entry's start in the bytes.
    at: usize,
    start: usize,
    is_exhausted: bool,
}

impl<'a> PreparedWrites<'a> {
    /// Prepares the writes of a source; `watch` is the clock of the measurement.
    pub fn new(source: &'a mut dyn WriteSource, watch: &'a Stopwatch) -> PreparedWrites<'a> {
        PreparedWrites {
            source,
            watch,
            batch: PreparedBatch::default(),
            at: 0,
            start: 0,
            is_exhausted: false,
        }
    }

    fn refill(&mut self) {
        let PreparedWrites { source, watch, batch, at, start, is_exhausted: ended } = self;
        (*at, *start) = (0, 0);
        watch.untimed(|| {
            batch.clear();
            while !batch.is_full() && !*ended {
                match source.next() {
                    Some((key, value)) => batch.add(key, value),
                    None => *ended = true,
                }
            }
        });
    }
}

impl WriteSource for PreparedWrites<'_> {
    #[inline]
    fn next(&mut self) -> Option<Write<'_>> {
        if self.at == self.batch.entries.len() && !self.is_exhausted {
            self.refill();
        }
        let ends = *self.batch.entries.get(self.at)?;
        let key = &self.batch.bytes[self.start..ends.key];
        let value = ends.value.map(|end| &self.batch.bytes[ends.key..end]);
        self.at += 1;
        self.start = ends.value.unwrap_or(ends.key);
        Some((key, value))
    }
}

/// Makes the given number of keys in batches while the clock is stopped, and calls `ask` for each
/// key while the clock runs.
///
/// # Errors
/// The errors of `make` and `ask`.
pub fn for_each_key(
    watch: &Stopwatch,
    count: u64,
    mut make: impl FnMut(&mut Vec<u8>) -> Result<()>,
    mut ask: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let (mut batch, mut key, mut left) = (PreparedBatch::default(), Vec::new(), count);
    while left > 0 {
        watch.untimed(|| {
            batch.clear();
            while left > 0 && !batch.is_full() {
                make(&mut key)?;
                batch.add(&key, None);
                left -= 1;
            }
            Result::Ok(())
        })?;
        let mut start = 0;
        for ends in &batch.entries {
            ask(&batch.bytes[start..ends.key])?;
            start = ends.key;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers as keys; every third one is a delete, and values grow until they fill a batch.
    struct Numbers {
        next: u64,
        key: Vec<u8>,
        value: Vec<u8>,
    }

    const COUNT: u64 = 20_000;

    impl WriteSource for Numbers {
        fn next(&mut self) -> Option<Write<'_>> {
            if self.next == COUNT {
                return None;
            }
            self.key = self.next.to_be_bytes()[..(self.next % 9) as usize].to_vec();
            self.value = vec![self.next as u8; (self.next % 300) as usize];
            self.next += 1;
            Some((&self.key, (!self.next.is_multiple_of(3)).then_some(&self.value)))
        }
    }

    fn numbers() -> Numbers {
        Numbers { next: 0, key: Vec::new(), value: Vec::new() }
    }

    #[test]
    fn prepared_source_equals_the_original() {
        let (mut source, watch) = (numbers(), Stopwatch::default());
        let mut ahead = PreparedWrites::new(&mut source, &watch);
        let mut plain = numbers();
        let mut count = 0;
        while let Some(expected) = plain.next() {
            assert_eq!(ahead.next(), Some(expected), "write {count}");
            assert!(ahead.batch.bytes.len() < BYTES_MAX + 308);
            count += 1;
        }
        assert_eq!(ahead.next(), None);
        assert_eq!((ahead.next(), count), (None, COUNT));
    }

    #[test]
    fn every_key_is_requested_once_and_in_order() {
        let (mut made, mut requested) = (0u64, 0u64);
        let make = |key: &mut Vec<u8>| {
            *key = made.to_be_bytes().to_vec();
            made += 1;
            Ok(())
        };
        let ask = |key: &[u8]| {
            assert_eq!(key, requested.to_be_bytes());
            requested += 1;
            Ok(())
        };
        for_each_key(&Stopwatch::default(), 10_000, make, ask).expect("done");
        assert_eq!((made, requested), (10_000, 10_000));
    }
}
