//! [`WriteRateWatch`]: for how long a store has had no writes, and for how long only a few.
//!
//! A program with one write each few seconds leaves its store as idle as a program without writes.
//! So a store with few writes counts as quiet. The watch is a token bucket: writes fill it, time
//! empties it, and an overflow ends the quiet time.

use std::time::Duration;

use umbel_base::SequenceNumber;

/// Writes in a second that leave a store quiet.
const WRITES_PER_SECOND: u64 = 10;
/// Bytes that count as one write.
const WRITE_BYTES: u64 = 4 << 10;
/// Writes at once that leave a store quiet.
const BURST: u64 = 16;
/// Microseconds in a second: one write counts as many.
const UNIT: u64 = 1_000_000;

/// Watch of the writes of a store.
#[derive(Debug, Default)]
pub struct WriteRateWatch {
    /// The last observation, and its time.
    seen: Option<(WriteTotals, Duration)>,
    silent_since: Duration,
    quiet_since: Duration,
    /// Writes above the permitted rate, in millionths.
    excess: u64,
}

/// Writes of a store so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteTotals {
    /// Sequence number of the newest write.
    pub newest: SequenceNumber,
    /// Bytes of all writes.
    pub bytes: u64,
}

/// Times without writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuietTimes {
    /// Time without any write.
    pub silent_for: Duration,
    /// Time with at most a few writes.
    pub quiet_for: Duration,
}

impl WriteRateWatch {
    /// Observes at `now` that the store has had `totals` writes so far.
    pub fn observe(&mut self, now: Duration, totals: WriteTotals) -> QuietTimes {
        let Some((before, then)) = self.seen.replace((totals, now)) else {
            (self.silent_since, self.quiet_since) = (now, now);
            return QuietTimes { silent_for: Duration::ZERO, quiet_for: Duration::ZERO };
        };
        let bytes = totals.bytes.saturating_sub(before.bytes);
        let writes = totals.newest.saturating_sub(before.newest).max(bytes / WRITE_BYTES);
        if totals.newest != before.newest {
            self.silent_since = now;
        }
        let elapsed = now.saturating_sub(then).as_micros();
        let drained = u64::try_from(elapsed).unwrap_or(u64::MAX).saturating_mul(WRITES_PER_SECOND);
        // The writes are anywhere in the time, so they are added first.
        self.excess =
            self.excess.saturating_add(writes.saturating_mul(UNIT)).saturating_sub(drained);
        if self.excess > BURST * UNIT {
            self.excess = BURST * UNIT;
            self.quiet_since = now;
        }
        QuietTimes {
            silent_for: now.saturating_sub(self.silent_since),
            quiet_for: now.saturating_sub(self.quiet_since),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Returns the times after a minute with `writes` writes of `bytes` bytes each `interval`.
    fn after_a_minute(writes: u64, bytes: u64, interval: Duration) -> QuietTimes {
        let mut watch = WriteRateWatch::default();
        let mut totals = WriteTotals { newest: 1000, bytes: 0 };
        let mut now = Duration::ZERO;
        let mut times = watch.observe(now, totals);
        while now < 60 * SECOND {
            now += interval;
            totals.newest += writes;
            totals.bytes += writes * bytes;
            times = watch.observe(now, totals);
        }
        times
    }

    /// Story: a store with a write each three seconds never came to rest, so 64 MiB of deleted
    /// values stayed.
    #[test]
    fn few_writes_leave_a_store_quiet() {
        // The last ones in long times without an observation.
        for (writes, interval) in
            [(1, 3 * SECOND), (1, SECOND), (10, SECOND), (20, 2 * SECOND), (90, 10 * SECOND)]
        {
            let times = after_a_minute(writes, 100, interval);
            assert!(times.quiet_for >= 60 * SECOND, "{writes} each {interval:?}: {times:?}");
            assert_eq!(times.silent_for, Duration::ZERO);
        }
    }

    #[test]
    fn many_writes_or_large_ones_end_the_quiet_time() {
        for (writes, bytes) in [(12, 100), (100, 10), (1, 1 << 20), (3, 32 << 10)] {
            let times = after_a_minute(writes, bytes, SECOND);
            assert!(times.quiet_for <= SECOND, "{writes} of {bytes}: {times:?}");
        }
        let often = after_a_minute(1, 100, SECOND / 20);
        assert!(often.quiet_for <= SECOND, "{often:?}");
    }

    #[test]
    fn quiet_time_begins_after_the_last_busy_moment() {
        let mut watch = WriteRateWatch::default();
        let mut at = |seconds: u32, newest| {
            let times = watch.observe(seconds * SECOND, WriteTotals { newest, bytes: 0 });
            (times.silent_for.as_secs(), times.quiet_for.as_secs())
        };
        assert_eq!(at(5, 1), (0, 0));
        assert_eq!(at(7, 1), (2, 2));
        assert_eq!(at(8, 1_000_000), (0, 0));
        assert_eq!(at(10, 1_000_000), (2, 2));
        assert_eq!(at(11, 1_000_001), (0, 3));
        assert_eq!(at(12, 1_000_001), (1, 4));
    }
}
