//! [`Pace`]: how many events a group or one of its consumers is sent in a second.

use tokio::time::Instant;

/// How many events a group or one of its consumers is sent in a second, since it began and since
/// somebody asked last.
#[derive(Debug)]
pub struct Pace {
    began: Instant,
    /// How many there were when somebody asked last.
    told: u64,
}

/// What it was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sent {
    /// In a second, on the average since it began.
    pub per_second: i32,
    /// Since somebody asked last.
    pub since_told: i64,
}

impl Pace {
    /// Of what begins now.
    pub fn new(now: Instant) -> Pace {
        Pace { began: now, told: 0 }
    }

    /// Of what was `sent` so much by now.
    pub fn measure(&mut self, sent: u64, now: Instant) -> Sent {
        let seconds = now.saturating_duration_since(self.began).as_secs();
        let per_second = sent.checked_div(seconds).unwrap_or(sent);
        let since_told = sent.saturating_sub(self.told);
        self.told = sent;
        Sent {
            per_second: i32::try_from(per_second).unwrap_or(i32::MAX),
            since_told: i64::try_from(since_told).unwrap_or(i64::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_was_sent_counts_from_the_beginning_and_since_somebody_asked() {
        let begun = Instant::now();
        let mut pace = Pace::new(begun);
        let mut at = |seconds, sent| pace.measure(sent, begun + Duration::from_secs(seconds));
        assert_eq!(at(0, 7), Sent { per_second: 7, since_told: 7 }, "within the first second");
        assert_eq!(at(10, 50), Sent { per_second: 5, since_told: 43 });
        assert_eq!(at(20, 50), Sent { per_second: 2, since_told: 0 });
        assert_eq!(at(20, u64::MAX).per_second, i32::MAX);
    }
}
