//! [`AdaptiveLimit`]: rate limit of a backup beside busy writers of the same store.
//!
//! Without a limit, uploads compete with writers for processors, disk and network. With one, a
//! backup that nothing competes with takes longer than needed. So the limit applies only while much
//! is written to the store. It is above the rate of the written bytes.
//!
//! The limit begins after the first busy sample, and ends after a second without one. So it stays
//! beside writers of bursts, and beside writers that the backup itself delays. A sample is the mean
//! since the one before it, however old that is. So a backup that runs each 10 s has the limit from
//! its first byte.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::time::Duration;

/// Minimum length of a sample.
const SAMPLE_TIME: Duration = Duration::from_millis(250);
/// Time without a busy sample after which the limit ends.
const IDLE_TIME: Duration = Duration::from_secs(1);
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
    /// Written bytes, without gaps between positions.
    pub bytes: u64,
}

/// The writers of a store that is backed up.
pub trait WriterLoad: Debug + Send + Sync {
    /// Returns the totals so far.
    fn totals(&self) -> WriteTotals;
}

/// Limit from a busy sample.
#[derive(Debug, Clone, Copy)]
struct BusyLimit {
    bytes_per_second: u64,
    /// End of the sample.
    at: Duration,
}

/// Rate limit that depends on the writers.
#[derive(Debug)]
pub struct AdaptiveLimit {
    /// Bytes per second beside writers of few bytes.
    least: u64,
    /// End of the last sample.
    sample: Option<(Duration, WriteTotals)>,
    /// Limits from busy samples, oldest first. Each is larger than the next one, which replaces it
    /// a second after its sample. The first one applies; the last one is from the last busy sample.
    limits: VecDeque<BusyLimit>,
}

impl AdaptiveLimit {
    /// Creates the limit for a machine with this many processors.
    pub fn new(processors: usize) -> AdaptiveLimit {
        let least = BYTES_PER_SECOND.saturating_mul(processors as u64);
        AdaptiveLimit { least, sample: None, limits: VecDeque::new() }
    }

    /// Returns the limit in bytes per second at the monotonic time `now`; `None` beside writers
    /// that are not busy, and until it can tell.
    pub fn at(&mut self, now: Duration, totals: WriteTotals) -> Option<u64> {
        let Some((then, before)) = self.sample else {
            self.sample = Some((now, totals));
            return None;
        };
        let elapsed = now.saturating_sub(then);
        if elapsed >= SAMPLE_TIME {
            let rate =
                |before: u64, now: u64| now.saturating_sub(before) as f64 / elapsed.as_secs_f64();
            let catch_up = (rate(before.bytes, totals.bytes) * BYTES_PER_WRITTEN_BYTE) as u64;
            let is_busy = rate(before.writes, totals.writes) >= BUSY_WRITES_PER_SECOND
                || catch_up >= self.least;
            if is_busy {
                self.add_busy(now, catch_up.max(self.least));
            } else if self.limits.back().is_some_and(|last| is_old(last, now)) {
                self.limits.clear();
            }
            self.sample = Some((now, totals));
        }
        self.limits.front().map(|limit| limit.bytes_per_second)
    }

    /// Adds the limit from a busy sample. The largest one of the last second applies: the sample
    /// with the end of a burst has few bytes, and a limit from it alone could never catch up.
    fn add_busy(&mut self, now: Duration, bytes_per_second: u64) {
        while self.limits.front().is_some_and(|limit| is_old(limit, now)) {
            self.limits.pop_front();
        }
        while self.limits.back().is_some_and(|limit| limit.bytes_per_second <= bytes_per_second) {
            self.limits.pop_back();
        }
        self.limits.push_back(BusyLimit { bytes_per_second, at: now });
    }
}

/// Whether the sample of a limit ended a second ago.
fn is_old(limit: &BusyLimit, now: Duration) -> bool {
    now.saturating_sub(limit.at) >= IDLE_TIME
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
            after(6249, 2000, 100_000),
            after(6499, 2000, 100_000),
            after(8500, 2900, 190_000),
        ];
        let busy = Some(8 << 20);
        assert_eq!(limits(&samples), [None, None, busy, busy, busy, busy, None, busy]);
    }

    /// Story: each 250 ms without a write ended the limit, so it applied for a quarter of the time
    /// beside 1,000 writes once a second.
    #[test]
    fn bursts_of_writes_keep_the_limit() {
        let burst = |number: u64| number.div_ceil(4);
        let samples: Vec<_> =
            (0..40).map(|number| after(250 * number, 1000 * burst(number), 0)).collect();
        let limits = limits(&samples);
        assert_eq!(limits[0], None);
        assert!(limits[1..].iter().all(|limit| *limit == Some(8 << 20)), "{limits:?}");
        // The limit ends with the bursts.
        let mut limit = AdaptiveLimit::new(2);
        let ends =
            [after(0, 0, 0), after(250, 1000, 0), after(1249, 1000, 0), after(1499, 1000, 0)];
        let ends = ends.map(|(now, totals)| limit.at(now, totals));
        assert_eq!(ends, [None, Some(8 << 20), Some(8 << 20), None]);
    }

    /// The sample with the end of a burst is busy, but has few of its bytes.
    #[test]
    fn limit_beside_bursts_is_the_largest_one_of_a_second() {
        let samples = [
            after(0, 0, 0),
            after(250, 900, 9 << 20),
            after(500, 1000, 10 << 20),
            after(750, 1000, 10 << 20),
            after(1250, 1100, 11 << 20),
        ];
        let (large, small) = (Some(72 << 20), Some(8 << 20));
        assert_eq!(limits(&samples), [None, large, large, large, small]);
    }

    /// Story: bursts came a little early. The sample with the end of the second one replaced the
    /// limit of the first one, and the backup fell behind for most of a second.
    #[test]
    fn second_largest_limit_of_a_second_follows_the_largest() {
        let samples = [
            after(0, 0, 0),
            after(250, 900, 9 << 20),
            after(500, 900, 9 << 20),
            after(750, 900, 9 << 20),
            after(1000, 1800, 17 << 20),
            after(1250, 1900, 17 << 20),
            after(2000, 2800, 17 << 20),
        ];
        let (first, second, tail) = (Some(72 << 20), Some(64 << 20), Some(8 << 20));
        let expected = [None, first, first, first, first, second, tail];
        assert_eq!(limits(&samples), expected);
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

    /// Story: the mean over the pause between two runs was dropped, so each run of a continuous
    /// backup began without a limit. Most uploaded all their bytes before there was one.
    #[test]
    fn mean_over_the_pause_between_two_runs_limits_the_first_read() {
        let samples = [after(0, 0, 0), after(10_000, 2000, 400_000)];
        assert_eq!(limits(&samples), [None, Some(8 << 20)]);
        let hours =
            [after(0, 0, 0), after(7_200_000, 1_440_000, 0), after(7_201_000, 1_440_000, 0)];
        assert_eq!(limits(&hours), [None, Some(8 << 20), None], "wrong for a second at most");
    }

    #[test]
    fn idle_pause_between_two_runs_ends_the_limit() {
        let samples = [
            after(0, 0, 0),
            after(250, 1000, 0),
            after(10_250, 2900, 0),
            after(10_499, 9000, 0),
            after(10_500, 9000, 0),
        ];
        let busy = Some(8 << 20);
        assert_eq!(limits(&samples), [None, busy, None, None, busy]);
    }
}
