//! [`LineLimiter`]: a limit of log lines about events that clients cause.

/// Lines logged and suppressed in the current period, such as a second.
#[derive(Debug, Default)]
pub struct LineLimiter {
    period: u64,
    logged: u32,
    suppressed: u64,
}

impl LineLimiter {
    /// Counts a line in the period with this number. Returns whether the line may be logged, and
    /// the number of lines suppressed in an earlier period.
    pub fn count(&mut self, period: u64, lines_max: u32) -> (bool, u64) {
        let mut suppressed = 0;
        if period != self.period {
            suppressed = self.suppressed;
            *self = LineLimiter { period, ..LineLimiter::default() };
        }
        let may = self.logged < lines_max;
        if may {
            self.logged += 1;
        } else {
            self.suppressed += 1;
        }
        (may, suppressed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_failures_are_rate_limited_and_counted() {
        let mut limiter = LineLimiter::default();
        let logged = (0..107).filter(|_| limiter.count(3, 100).0).count();
        assert_eq!(logged, 100);
        assert_eq!(limiter.count(4, 100), (true, 7));
        assert_eq!(limiter.count(4, 100), (true, 0));
    }
}
