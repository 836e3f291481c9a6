//! [`AdaptiveLimit`]: rate limit of a backup beside busy writers of the same store.
//!
//! Without a limit, uploads compete with writers for processors, disk and network. With one, a
//! backup that nothing competes with takes longer than needed. So the limit applies only while the
//! store is written much. It is above the rate of the written bytes.

use std::fmt::Debug;
use std::time::Duration;

/// Time between two looks at the writers.
const SAMPLE_TIME: Duration = Duration::from_millis(250);
/// Time after which a look at the writers says nothing about the present. A backup that takes it
/// for one part of an object is slow anyway.
const SAMPLE_AGE_MAX: Duration = Duration::from_secs(2);
/// Writes per second from which on the writers are busy.
const BUSY_WRITES_PER_SECOND: f64 = 200.0;
/// Bytes per second for each processor beside busy writers.
const BYTES_PER_SECOND: u64 = 4 << 20;
/// Bytes that a backup uploads for each written byte, at least.
const BYTES_PER_WRITTEN_BYTE: f64 = 2.0;

/// Totals of the writers since the store was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WriteTotals {
    /// Events or entries.
    pub writes: u64,
    /// Bytes of the log.
    pub bytes: u64,
}

/// The writers of a store that is backed up.
pub trait WriterLoad: Debug + Send + Sync {
    /// Returns the totals so far.
    fn totals(&self) -> WriteTotals;
}

/// Rate limit that depends on the writers.
#[derive(Debug)]
pub struct AdaptiveLimit {
    /// Bytes per second beside writers of few bytes.
    least: u64,
    sample: Option<(Duration, WriteTotals)>,
    bytes_per_second: Option<u64>,
}

impl AdaptiveLimit {
    /// Creates the limit for a machine with this many processors.
    pub fn new(processors: usize) -> AdaptiveLimit {
        let least = BYTES_PER_SECOND.saturating_mul(processors as u64);
        AdaptiveLimit { least, sample: None, bytes_per_second: None }
    }

    /// Returns the limit in bytes per second at the monotonic time `now`; `None` beside writers
    /// that are not busy, and until it can tell.
    pub fn at(&mut self, now: Duration, totals: WriteTotals) -> Option<u64> {
        let elapsed = self.sample.map(|(then, _)| now.saturating_sub(then));
        let (Some((_, before)), Some(elapsed)) = (self.sample, elapsed) else {
            self.sample = Some((now, totals));
            return None;
        };
        if elapsed > SAMPLE_AGE_MAX {
            (self.sample, self.bytes_per_second) = (Some((now, totals)), None);
        } else if elapsed >= SAMPLE_TIME {
            let rate =
                |before: u64, now: u64| now.saturating_sub(before) as f64 / elapsed.as_secs_f64();
            let catch_up = (rate(before.bytes, totals.bytes) * BYTES_PER_WRITTEN_BYTE) as u64;
            let is_busy = rate(before.writes, totals.writes) >= BUSY_WRITES_PER_SECOND
                || catch_up >= self.least;
            self.bytes_per_second = is_busy.then_some(catch_up.max(self.least));
            self.sample = Some((now, totals));
        }
        self.bytes_per_second
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(millis: u64, writes: u64, bytes: u64) -> (Duration, WriteTotals) {
        (Duration::from_millis(millis), WriteTotals { writes, bytes })
    }

    fn limits(samples: &[(Duration, WriteTotals)]) -> Vec<Option<u64>> {
        let mut limit = AdaptiveLimit::new(2);
        samples.iter().map(|(now, totals)| limit.at(*now, *totals)).collect()
    }

    /// Story: appends beside the first backup into a bucket were 0.7 times as fast as alone.
    #[test]
    fn backup_beside_busy_writers_is_limited_until_they_pause() {
        let samples = [
            after(5000, 1000, 0),
            after(5100, 1300, 30_000),
            after(5250, 2000, 100_000),
            after(5400, 2000, 100_000),
            after(5500, 2000, 100_000),
            after(7500, 2900, 190_000),
        ];
        let busy = Some(8 << 20);
        assert_eq!(limits(&samples), [None, None, busy, busy, None, busy]);
    }

    /// A limit below the rate of the writers would let the backup fall behind for ever.
    #[test]
    fn limit_is_twice_the_rate_of_the_written_bytes() {
        let samples = [after(0, 0, 0), after(1000, 50_000, 50 << 20)];
        assert_eq!(limits(&samples), [None, Some(100 << 20)]);
        // Few large writes are work as well.
        assert_eq!(limits(&[after(0, 0, 0), after(1000, 9, 9 << 20)]), [None, Some(18 << 20)]);
    }

    #[test]
    fn few_writes_and_a_clock_that_stands_still_give_no_limit() {
        assert_eq!(limits(&[after(0, 0, 0), after(1000, 199, 3 << 20)]), [None, None]);
        assert_eq!(limits(&[after(7, 0, 0), after(7, 9000, 9000), after(3, 9, 9)]), [None; 3]);
    }

    /// The pause between two runs of a backup says nothing about the writers of the second one.
    #[test]
    fn old_sample_is_not_used() {
        let samples = [after(0, 0, 0), after(2001, 90_000, 0), after(2251, 90_000, 0)];
        assert_eq!(limits(&samples), [None; 3]);
    }
}
