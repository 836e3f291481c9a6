//! Keys and values that are made before the clock goes: in batches, each while the clock is
//! stopped.
//!
//! A batch is small enough to stay in the processor's own cache, and large enough that reading the
//! clocks around it takes less than a nanosecond for each operation.

use crate::engine::{Result, Source, Write};
use crate::measure::Stopwatch;

/// Entries of a batch at most.
const ENTRIES_MAX: usize = 4096;
/// Bytes of a batch from which on nothing is added to it.
const BYTES_MAX: usize = 256 << 10;

/// A key, and a value where there is one, by where they end in the bytes of their batch.
#[derive(Debug, Clone, Copy)]
struct Ends {
    key: usize,
    value: Option<usize>,
}

/// Entries one behind the other.
#[derive(Debug, Default)]
struct Batch {
    bytes: Vec<u8>,
    entries: Vec<Ends>,
}

impl Batch {
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
        self.entries.push(Ends { key, value });
    }
}

/// The writes of a source, made in batches while the clock is stopped.
pub struct Ahead<'a> {
    source: &'a mut dyn Source,
    watch: &'a Stopwatch,
    batch: Batch,
    /// The next entry of the batch, and where it begins.
    at: usize,
    start: usize,
    ended: bool,
}

impl<'a> Ahead<'a> {
    /// Of a source, by the clock that goes while its writes are taken.
    pub fn new(source: &'a mut dyn Source, watch: &'a Stopwatch) -> Ahead<'a> {
        Ahead { source, watch, batch: Batch::default(), at: 0, start: 0, ended: false }
    }

    fn refill(&mut self) {
        let Ahead { source, watch, batch, at, start, ended } = self;
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

impl Source for Ahead<'_> {
    #[inline]
    fn next(&mut self) -> Option<Write<'_>> {
        if self.at == self.batch.entries.len() && !self.ended {
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

/// Makes so many keys in batches while the clock is stopped, and asks for each while it goes.
///
/// # Errors
/// Those of `make` and `ask`.
pub fn each_key(
    watch: &Stopwatch,
    count: u64,
    mut make: impl FnMut(&mut Vec<u8>) -> Result<()>,
    mut ask: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let (mut batch, mut key, mut left) = (Batch::default(), Vec::new(), count);
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

    /// Numbers as keys; every third one deletes, and values grow long enough to end a batch.
    struct Numbers {
        next: u64,
        key: Vec<u8>,
        value: Vec<u8>,
    }

    const COUNT: u64 = 20_000;

    impl Source for Numbers {
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
    fn a_source_made_ahead_is_the_same_source() {
        let (mut source, watch) = (numbers(), Stopwatch::default());
        let mut ahead = Ahead::new(&mut source, &watch);
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
    fn every_key_is_asked_for_once_and_in_order() {
        let (mut made, mut asked) = (0u64, 0u64);
        let make = |key: &mut Vec<u8>| {
            *key = made.to_be_bytes().to_vec();
            made += 1;
            Ok(())
        };
        let ask = |key: &[u8]| {
            assert_eq!(key, asked.to_be_bytes());
            asked += 1;
            Ok(())
        };
        each_key(&Stopwatch::default(), 10_000, make, ask).expect("done");
        assert_eq!((made, asked), (10_000, 10_000));
    }
}
