//! [`LatencyCounts`]: number of operations by latency. Quantiles of any time span follow from it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The first bound in seconds.
const FIRST_BOUND_SECONDS: f64 = 0.0001;
/// Number of bounds between a latency and twice that latency.
const BOUNDS_PER_DOUBLING: f64 = 8.0;
/// Number of bounds. The last one is 2^17 times the first one, 13 s.
const BOUNDS: usize = 8 * 17 + 1;

/// The upper bounds of the latencies in seconds. So a quantile that is interpolated between two
/// bounds is within a few percent.
pub fn bounds() -> impl Iterator<Item = f64> {
    (0..BOUNDS).map(bound)
}

/// Number of operations up to each bound and above the bound before; last, those above all bounds.
pub type BucketCounts = [u64; BOUNDS + 1];

/// Number of operations by latency since the start.
#[derive(Debug)]
pub struct LatencyCounts([AtomicU64; BOUNDS + 1]);

impl Default for LatencyCounts {
    fn default() -> LatencyCounts {
        LatencyCounts(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl LatencyCounts {
    /// Counts an operation.
    pub fn record(&self, latency: Duration) {
        self.0[bucket(latency.as_secs_f64())].fetch_add(1, Ordering::Relaxed);
    }

    /// The counts since the start.
    pub fn counts(&self) -> BucketCounts {
        std::array::from_fn(|index| self.0[index].load(Ordering::Relaxed))
    }
}

fn bucket(seconds: f64) -> usize {
    let doublings = (seconds / FIRST_BOUND_SECONDS).log2();
    // Also 0 for the logarithm of 0, which is negative.
    let above = (doublings * BOUNDS_PER_DOUBLING - 1e-9).ceil().max(0.0);
    (above as usize).min(BOUNDS)
}

fn bound(index: usize) -> f64 {
    FIRST_BOUND_SECONDS * (index as f64 / BOUNDS_PER_DOUBLING).exp2()
}

/// The latency in seconds that this share of the operations between two counts did not exceed,
/// interpolated between two bounds; `None` without operations.
pub fn quantile(earlier: &BucketCounts, later: &BucketCounts, share: f64) -> Option<f64> {
    let counts: Vec<u64> =
        later.iter().zip(earlier).map(|(later, earlier)| later.saturating_sub(*earlier)).collect();
    let all: u64 = counts.iter().sum();
    let mut left = all as f64 * share;
    for (index, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        let count = *count as f64;
        if left <= count {
            let low = if index == 0 { 0.0 } else { bound(index - 1) };
            let high = bound(index.min(BOUNDS - 1));
            return Some(low + (high - low).max(0.0) * (left / count));
        }
        left -= count;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_nine_percent() {
        let latencies = LatencyCounts::default();
        let before = latencies.counts();
        assert_eq!(quantile(&before, &latencies.counts(), 0.5), None);
        for millis in 1..=1000 {
            latencies.record(Duration::from_millis(millis));
        }
        let after = latencies.counts();
        for (share, wanted) in [(0.5, 0.5), (0.99, 0.99), (0.999, 0.999)] {
            let found = quantile(&before, &after, share).unwrap();
            assert!((found / wanted - 1.0).abs() < 0.09, "{share}: {found}");
        }
        // Only the operations since the earlier counts.
        latencies.record(Duration::from_secs(2));
        let found = quantile(&after, &latencies.counts(), 0.5).unwrap();
        assert!((found / 2.0 - 1.0).abs() < 0.09, "{found}");
    }

    #[test]
    fn extreme_latencies_have_a_bucket() {
        assert_eq!(bucket(0.0), 0);
        assert_eq!(bucket(FIRST_BOUND_SECONDS), 0);
        assert_eq!(bucket(bound(BOUNDS - 1)), BOUNDS - 1);
        assert_eq!(bucket(1e9), BOUNDS);
        for index in 1..BOUNDS {
            assert_eq!(bucket(bound(index)), index);
            assert_eq!(bucket(bound(index) * 1.001), index + 1);
        }
    }
}
