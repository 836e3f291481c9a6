//! [`AdaptiveLimit`]: rate limit of a backup beside busy writers of the same store.
//!
//! Without a limit, uploads compete with writers for processors, disk and network. With one, a
//! backup that nothing competes with takes longer than needed. So the limit applies only while the
//! store has many writes, and is above the rate of the written bytes, so that the backup catches
//! up.

use std::fmt::Debug;
use std::time::Duration;

/// Time between two looks at the writers.
const SAMPLE_TIME: Duration = Duration::from_millis(250);
/// Writes per second from which on the writers are busy.
const BUSY_WRITES_PER_SECOND: f64 = 200.0;
/// Bytes per second for each processor beside busy writers.
const BYTES_PER_SECOND: u64 = 4 << 20;
/// Bytes that a backup uploads for each written byte, at least.
const BYTES_PER_WRITTEN_BYTE: f64 = 2.0;

/// What writers wrote since the store was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Written {
    /// Events or entries.
    pub writes: u64,
    /// Bytes of the log.
    pub bytes: u64,
}

/// The writers of a store that is backed up.
pub trait WriterLoad: Debug + Send + Sync {
    /// Returns what was written so far.
    fn written(&self) -> Written;
}

/// Rate limit that depends on the writers.
#[derive(Debug, Default)]
pub struct AdaptiveLimit {
    sample: Option<(Duration, Written)>,
    bytes_per_second: Option<u64>,
}

impl AdaptiveLimit {
    /// Returns the limit in bytes per second at the monotonic time `now`; `None` beside writers
    /// that are not busy, and until it can tell.
    pub fn at(&mut self, now: Duration, written: Written, processors: usize) -> Option<u64> {
        let Some((then, before)) = self.sample else {
            self.sample = Some((now, written));
            return None;
        };
        let elapsed = now.saturating_sub(then);
        if elapsed >= SAMPLE_TIME {
            let rate =
                |before: u64, now: u64| now.saturating_sub(before) as f64 / elapsed.as_secs_f64();
            let catch_up = rate(before.bytes, written.bytes) * BYTES_PER_WRITTEN_BYTE;
            let is_busy = rate(before.writes, written.writes) >= BUSY_WRITES_PER_SECOND;
            let limit = (catch_up as u64).max(BYTES_PER_SECOND * processors as u64);
            self.bytes_per_second = is_busy.then_some(limit);
            self.sample = Some((now, written));
        }
        self.bytes_per_second
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(millis: u64, writes: u64, bytes: u64) -> (Duration, Written) {
        (Duration::from_millis(millis), Written { writes, bytes })
    }

    fn limits(samples: &[(Duration, Written)]) -> Vec<Option<u64>> {
        let mut limit = AdaptiveLimit::default();
        samples.iter().map(|(now, written)| limit.at(*now, *written, 2)).collect()
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
            after(9500, 2900, 190_000),
        ];
        let busy = Some(8 << 20);
        assert_eq!(limits(&samples), [None, None, busy, busy, None, busy]);
    }

    /// A limit below the rate of the writers would let the backup fall behind for ever.
    #[test]
    fn limit_is_twice_the_rate_of_the_written_bytes() {
        let samples = [after(0, 0, 0), after(1000, 50_000, 50 << 20)];
        assert_eq!(limits(&samples), [None, Some(100 << 20)]);
    }

    #[test]
    fn few_writes_and_a_clock_that_stands_still_give_no_limit() {
        assert_eq!(limits(&[after(0, 0, 0), after(1000, 199, 90 << 20)]), [None, None]);
        assert_eq!(limits(&[after(7, 0, 0), after(7, 9000, 9000), after(3, 9, 9)]), [None; 3]);
    }
}
