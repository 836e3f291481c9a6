//! [`RateMeter`]: the rate at which a group or one of its consumers is sent events.

use tokio::time::Instant;

/// Rate at which a group or consumer is sent events, since its start and since the last report.
#[derive(Debug)]
pub struct RateMeter {
    began: Instant,
    /// Number of events sent at the last report.
    last_reported: u64,
}

/// The rate of sent events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SendRate {
    /// Average events per second since the start.
    pub per_second: i32,
    /// Events since the last report.
    pub since_last_report: i64,
}

impl RateMeter {
    /// Creates a meter that starts now.
    pub fn new(now: Instant) -> RateMeter {
        RateMeter { began: now, last_reported: 0 }
    }

    /// Returns the rate so far, given the total number of sent events.
    pub fn measure(&mut self, sent: u64, now: Instant) -> SendRate {
        let seconds = now.saturating_duration_since(self.began).as_secs();
        let per_second = sent.checked_div(seconds).unwrap_or(sent);
        let since_report = sent.saturating_sub(self.last_reported);
        self.last_reported = sent;
        SendRate {
            per_second: i32::try_from(per_second).unwrap_or(i32::MAX),
            since_last_report: i64::try_from(since_report).unwrap_or(i64::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn meter_reports_total_and_recent_rate() {
        let begun = Instant::now();
        let mut meter = RateMeter::new(begun);
        let mut at = |seconds, sent| meter.measure(sent, begun + Duration::from_secs(seconds));
        assert_eq!(
            at(0, 7),
            SendRate { per_second: 7, since_last_report: 7 },
            "within the first second"
        );
        assert_eq!(at(10, 50), SendRate { per_second: 5, since_last_report: 43 });
        assert_eq!(at(20, 50), SendRate { per_second: 2, since_last_report: 0 });
        assert_eq!(at(20, u64::MAX).per_second, i32::MAX);
    }
}
