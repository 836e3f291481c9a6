//! [`AckTimes`]: the times that a consumer takes to acknowledge events.

use std::collections::VecDeque;
use std::time::Duration;

use umbel_proto::persistent::Measurement;

use crate::limits::ACK_TIMES_MAX;

/// Keys of the percentiles in per mille, as in KurrentDB.
const PERCENTILES: [(&str, usize); 10] = [
    ("Quintile 1", 200),
    ("Quintile 2", 400),
    ("Quintile 3", 600),
    ("Quintile 4", 800),
    ("Quintile 5", 1000),
    ("90%", 900),
    ("95%", 950),
    ("99%", 990),
    ("99.5%", 995),
    ("99.9%", 999),
];

/// Times from deliveries to acknowledgements of the newest events, in milliseconds.
#[derive(Debug, Clone, Default)]
pub struct AckTimes(VecDeque<u32>);

impl AckTimes {
    /// Adds a time; the oldest one is forgotten where there are too many.
    pub fn record(&mut self, time: Duration) {
        if self.0.len() == ACK_TIMES_MAX {
            self.0.pop_front();
        }
        self.0.push_back(u32::try_from(time.as_millis()).unwrap_or(u32::MAX));
    }

    /// The measurements in the client protocol; none without an acknowledgement.
    pub fn measurements(&self) -> Vec<Measurement> {
        let mut times: Vec<u32> = self.0.iter().copied().collect();
        times.sort_unstable();
        let (Some(fastest), Some(highest)) = (times.first(), times.last()) else {
            return Vec::new();
        };
        let measured = |key: &str, value: u64| Measurement {
            key: key.to_string(),
            value: i64::try_from(value).unwrap_or(i64::MAX),
        };
        let at = |per_mille: usize| {
            let rank = (times.len() * per_mille).div_ceil(1000).max(1);
            times.get(rank - 1).copied().unwrap_or(*highest)
        };
        let sum: u64 = times.iter().map(|time| u64::from(*time)).sum();
        let mut all = vec![
            measured("Mean", sum / times.len() as u64),
            measured("Median", at(500).into()),
            measured("Fastest", (*fastest).into()),
        ];
        let percentiles = PERCENTILES.iter();
        all.extend(percentiles.map(|(key, per_mille)| measured(key, at(*per_mille).into())));
        all.push(measured("Highest", (*highest).into()));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measurements_are_those_of_the_newest_acknowledgements() {
        let mut times = AckTimes::default();
        assert!(times.measurements().is_empty());
        for millis in 0..10 + ACK_TIMES_MAX as u64 {
            times.record(Duration::from_millis(millis));
        }
        let named = |key: &str| {
            let measured = times.measurements();
            measured.iter().find(|one| one.key == key).map(|one| one.value)
        };
        assert_eq!(times.measurements().len(), 14);
        assert_eq!((named("Fastest"), named("Highest")), (Some(10), Some(1009)));
        assert_eq!((named("Mean"), named("Median")), (Some(509), Some(509)));
        assert_eq!((named("Quintile 1"), named("Quintile 5")), (Some(209), Some(1009)));
        assert_eq!((named("90%"), named("99.9%")), (Some(909), Some(1008)));
    }
}
