//! Times of single calls.

/// Distribution of the times of single calls, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Latency {
    /// Median.
    pub p50_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.99th percentile.
    pub p9999_ns: u64,
    /// Maximum.
    pub max_ns: u64,
}

/// The times of all calls.
#[derive(Debug, Default)]
pub struct Latencies {
    times_ns: Vec<u32>,
}

impl Latencies {
    /// Reserves memory for `calls` times, so that the measurement allocates nothing.
    pub fn with_capacity(calls: u64) -> Latencies {
        // Written once, so that the pages are mapped.
        let mut times_ns = vec![1; calls as usize];
        times_ns.clear();
        Latencies { times_ns }
    }

    /// Adds the time of a call; more than four seconds count as four.
    #[inline]
    pub fn add(&mut self, time_ns: u64) {
        self.times_ns.push(u32::try_from(time_ns).unwrap_or(u32::MAX));
    }

    /// Returns the distribution of the times.
    pub fn spread(mut self) -> Latency {
        self.times_ns.sort_unstable();
        let last = self.times_ns.len().saturating_sub(1);
        let at = |part: f64| {
            let place = (part * self.times_ns.len() as f64).ceil() as usize;
            self.times_ns.get(place.saturating_sub(1).min(last)).copied().map_or(0, u64::from)
        };
        Latency { p50_ns: at(0.5), p99_ns: at(0.99), p9999_ns: at(0.9999), max_ns: at(1.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_exact() {
        let mut latencies = Latencies::with_capacity(10_000);
        (1..=10_000).rev().for_each(|time| latencies.add(time));
        let expected = Latency { p50_ns: 5000, p99_ns: 9900, p9999_ns: 9999, max_ns: 10_000 };
        assert_eq!(latencies.spread(), expected);
        assert_eq!(Latencies::default().spread(), Latency::default());
    }
}
