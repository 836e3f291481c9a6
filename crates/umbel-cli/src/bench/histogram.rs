//! Histograms in LevelDB's and RocksDB's buckets, and the text that both print.

use std::fmt::Write;
use std::sync::OnceLock;

/// Engine whose buckets and text are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// LevelDB's 154 bucket limits; a limit belongs to the bucket above it.
    Leveldb,
    /// RocksDB's bucket limits: 1, 2, then each 1.5 times the one before, rounded to two digits; a
    /// limit belongs to the bucket below it.
    Rocksdb,
}

impl Layout {
    fn limits(self) -> &'static [f64] {
        static LEVELDB: OnceLock<Vec<f64>> = OnceLock::new();
        static ROCKSDB: OnceLock<Vec<f64>> = OnceLock::new();
        match self {
            Layout::Leveldb => LEVELDB.get_or_init(leveldb_limits),
            Layout::Rocksdb => ROCKSDB.get_or_init(rocksdb_limits),
        }
    }
}

fn leveldb_limits() -> Vec<f64> {
    let steps = [12, 14, 16, 18, 20, 25, 30, 35, 40, 45, 50, 60, 70, 80, 90, 100];
    let mut limits: Vec<f64> = (1..=10).map(f64::from).collect();
    for power in 0..9 {
        limits.extend(steps.iter().map(|step| f64::from(*step) * 10f64.powi(power)));
    }
    // The last limit below infinity is 9e9, and not 1e10.
    limits.pop();
    limits.push(1e200);
    limits
}

fn rocksdb_limits() -> Vec<f64> {
    let mut limits: Vec<u64> = vec![1, 2];
    let mut next = 2.0f64;
    loop {
        next *= 1.5;
        if next > u64::MAX as f64 {
            return limits.into_iter().map(|limit| limit as f64).collect();
        }
        let (mut digits, mut power) = (next as u64, 1u64);
        while digits / 10 > 10 {
            digits /= 10;
            power *= 10;
        }
        limits.push(digits * power);
    }
}

/// A histogram of durations, in the unit of the added values.
#[derive(Debug, Clone)]
pub struct Histogram {
    layout: Layout,
    counts: Vec<u64>,
    count: u64,
    sum: f64,
    sum_of_squares: f64,
    value_min: f64,
    value_max: f64,
}

impl Histogram {
    /// An empty histogram.
    pub fn new(layout: Layout) -> Histogram {
        let counts = vec![0; layout.limits().len()];
        let value_min = f64::INFINITY;
        Histogram {
            layout,
            counts,
            count: 0,
            sum: 0.0,
            sum_of_squares: 0.0,
            value_min,
            value_max: 0.0,
        }
    }

    /// Adds a value.
    pub fn add(&mut self, value: f64) {
        let limits = self.layout.limits();
        let bucket = match self.layout {
            Layout::Leveldb => limits.partition_point(|limit| *limit <= value),
            Layout::Rocksdb => limits.partition_point(|limit| *limit < value),
        };
        self.counts[bucket.min(limits.len() - 1)] += 1;
        self.count += 1;
        self.sum += value;
        self.sum_of_squares += value * value;
        self.value_min = self.value_min.min(value);
        self.value_max = self.value_max.max(value);
    }

    /// Adds another histogram's values. REQUIRES: both have the same layout.
    pub fn merge(&mut self, other: &Histogram) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.count += other.count;
        self.sum += other.sum;
        self.sum_of_squares += other.sum_of_squares;
        self.value_min = self.value_min.min(other.value_min);
        self.value_max = self.value_max.max(other.value_max);
    }

    /// Number of values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Mean of the values; 0 without values.
    pub fn average(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum / self.count as f64 }
    }

    /// Largest value; 0 without values.
    pub fn max(&self) -> f64 {
        self.value_max
    }

    /// Smallest value; 0 without values.
    pub fn min(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.value_min }
    }

    /// Returns the value that `percent` percent of all values do not exceed, interpolated within
    /// its bucket.
    pub fn percentile(&self, percent: f64) -> f64 {
        let threshold = self.count as f64 * (percent / 100.0);
        let limits = self.layout.limits();
        let mut sum = 0.0;
        for (bucket, count) in self.counts.iter().enumerate() {
            let before = sum;
            sum += *count as f64;
            if sum < threshold || *count == 0 {
                continue;
            }
            let left = if bucket == 0 { 0.0 } else { limits[bucket - 1] };
            let position = (threshold - before) / *count as f64;
            let value = left + (limits[bucket] - left) * position;
            return value.clamp(self.min(), self.value_max);
        }
        self.value_max
    }

    fn standard_deviation(&self) -> f64 {
        if self.count == 0 {
            return 0.0;
        }
        let count = self.count as f64;
        let variance = (self.sum_of_squares * count - self.sum * self.sum) / (count * count);
        variance.max(0.0).sqrt()
    }

    /// The text as the engine of the layout prints it, line breaks included.
    pub fn text(&self) -> String {
        let mut text = match self.layout {
            Layout::Leveldb => format!(
                "Count: {}  Average: {:.4}  StdDev: {:.2}\nMin: {:.4}  Median: {:.4}  Max: {:.4}\n",
                self.count,
                self.average(),
                self.standard_deviation(),
                self.min(),
                self.percentile(50.0),
                self.value_max
            ),
            Layout::Rocksdb => format!(
                "Count: {} Average: {:.4}  StdDev: {:.2}\nMin: {:.0}  Median: {:.4}  Max: {:.0}\n\
                 Percentiles: P50: {:.2} P75: {:.2} P99: {:.2} P99.9: {:.2} P99.99: {:.2}\n",
                self.count,
                self.average(),
                self.standard_deviation(),
                self.min().floor(),
                self.percentile(50.0),
                self.value_max.floor(),
                self.percentile(50.0),
                self.percentile(75.0),
                self.percentile(99.0),
                self.percentile(99.9),
                self.percentile(99.99)
            ),
        };
        text.push_str("------------------------------------------------------\n");
        self.write_buckets(&mut text);
        text
    }

    fn write_buckets(&self, text: &mut String) {
        let limits = self.layout.limits();
        let mut sum = 0;
        for (bucket, count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            sum += count;
            let left = if bucket == 0 { 0.0 } else { limits[bucket - 1] };
            let right = limits[bucket];
            let share = 100.0 * *count as f64 / self.count as f64;
            let up_to = 100.0 * sum as f64 / self.count as f64;
            // Writing to a string cannot fail.
            let _ = match self.layout {
                Layout::Leveldb => {
                    write!(text, "[ {left:7.0}, {right:7.0} ) {count:7} {share:7.3}% {up_to:7.3}% ")
                }
                Layout::Rocksdb => write!(
                    text,
                    "{} {left:7.0}, {right:7.0} ] {count:8} {share:7.3}% {up_to:7.3}% ",
                    if bucket == 0 { '[' } else { '(' }
                ),
            };
            let marks = (share / 5.0 + 0.5) as usize;
            text.extend(std::iter::repeat_n('#', marks));
            text.push('\n');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leveldb_histogram_has_154_buckets() {
        let limits = Layout::Leveldb.limits();
        assert_eq!(limits.len(), 154);
        assert_eq!(limits[..12], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 12.0, 14.0]);
        assert_eq!(limits[152..], [9e9, 1e200]);
    }

    #[test]
    fn rocksdb_bucket_limits_grow_by_half() {
        let limits = Layout::Rocksdb.limits();
        let expected = [1, 2, 3, 4, 6, 10, 15, 22, 34, 51, 76, 110, 170, 250, 380, 580, 870, 1300];
        assert_eq!(limits[..18], expected.map(f64::from));
        assert_eq!(limits.len(), 109);
    }

    #[test]
    fn leveldb_histogram_matches_exactly() {
        let mut histogram = Histogram::new(Layout::Leveldb);
        for value in [0.5, 1.0, 1.5, 11.0] {
            histogram.add(value);
        }
        assert_eq!(
            histogram.text(),
            "Count: 4  Average: 3.5000  StdDev: 4.34\n\
             Min: 0.5000  Median: 1.5000  Max: 11.0000\n\
             ------------------------------------------------------\n\
             [       0,       1 )       1  25.000%  25.000% #####\n\
             [       1,       2 )       2  50.000%  75.000% ##########\n\
             [      10,      12 )       1  25.000% 100.000% #####\n"
        );
    }

    #[test]
    fn rocksdb_histogram_matches_exactly() {
        let mut histogram = Histogram::new(Layout::Rocksdb);
        for value in [0.0, 1.0, 2.0, 300.0] {
            histogram.add(value);
        }
        assert_eq!(
            histogram.text(),
            "Count: 4 Average: 75.7500  StdDev: 129.47\n\
             Min: 0  Median: 1.0000  Max: 300\n\
             Percentiles: P50: 1.00 P75: 2.00 P99: 300.00 P99.9: 300.00 P99.99: 300.00\n\
             ------------------------------------------------------\n\
             [       0,       1 ]        2  50.000%  50.000% ##########\n\
             (       1,       2 ]        1  25.000%  75.000% #####\n\
             (     250,     380 ]        1  25.000% 100.000% #####\n"
        );
    }

    #[test]
    fn empty_histograms_are_all_zero() {
        for layout in [Layout::Leveldb, Layout::Rocksdb] {
            let text = Histogram::new(layout).text();
            assert!(!text.contains("inf") && !text.contains("NaN"), "{text}");
            assert_eq!(text.lines().last(), Some(&*"-".repeat(54)));
        }
    }

    #[test]
    fn merged_histogram_equals_adding_all() {
        let (mut left, mut right) =
            (Histogram::new(Layout::Rocksdb), Histogram::new(Layout::Rocksdb));
        let mut all = Histogram::new(Layout::Rocksdb);
        for value in 0..1000u32 {
            let value = f64::from(value * value % 997);
            if value > 500.0 {
                left.add(value)
            } else {
                right.add(value)
            }
            all.add(value);
        }
        left.merge(&right);
        assert_eq!(left.text(), all.text());
    }
}
