//! Result lines with exactly the text of LevelDB's and RocksDB's db_bench, so that programs that
//! parse db_bench output can parse Umbel's.

use crate::bench::bench_flags::LineFormat;
use crate::bench::thread_stats::BenchmarkTotals;

/// Returns the result of one run of a benchmark as text, with histograms and line breaks.
pub fn result_text(format: LineFormat, name: &str, counted: &BenchmarkTotals) -> String {
    let mut text = match format {
        LineFormat::Leveldb => leveldb_line(name, counted),
        LineFormat::Rocksdb => rocksdb_line(name, counted),
    };
    for latency in &counted.latencies {
        let kind = match format {
            LineFormat::Leveldb => "op",
            LineFormat::Rocksdb => latency.name,
        };
        text.push_str(&format!("Microseconds per {kind}:\n{}\n", latency.micros.text()));
    }
    text
}

/// Benchmarks whose bytes LevelDB does not count.
const LEVELDB_WITHOUT_RATE: [&str; 6] =
    ["readrandom", "readrandomsmall", "readmissing", "readhot", "readwhilewriting", "seekrandom"];

/// Returns the text after the numbers of a result line: the rate in bytes, then the message.
fn rate_and_message(counted: &BenchmarkTotals, has_rate: bool) -> String {
    let rate = counted.megabytes_per_second().filter(|_| has_rate);
    let rate = rate.map(|rate| format!("{rate:6.1} MB/s"));
    let message = (!counted.message.is_empty()).then(|| counted.message.clone());
    let parts: Vec<String> = rate.into_iter().chain(message).collect();
    if parts.is_empty() { String::new() } else { format!(" {}", parts.join(" ")) }
}

fn leveldb_line(name: &str, counted: &BenchmarkTotals) -> String {
    let extra = rate_and_message(counted, !LEVELDB_WITHOUT_RATE.contains(&name));
    format!("{name:<12} : {:11.3} micros/op;{extra}\n", counted.micros_per_operation())
}

fn rocksdb_line(name: &str, counted: &BenchmarkTotals) -> String {
    format!(
        "{name:<12} : {:11.3} micros/op {} ops/sec {:.3} seconds {} operations;{}\n",
        counted.micros_per_operation(),
        counted.operations_per_second() as u64,
        counted.elapsed(),
        counted.operations(),
        rate_and_message(counted, true)
    )
}

/// Line for a benchmark that is skipped because it needs a fresh store but must not create one.
pub fn skipped_line(name: &str) -> String {
    format!("{name:<12} : skipped (--use_existing_db is true)\n")
}

/// Message with the number of found keys in the format of the engine. RocksDB's message ends with a
/// line break.
pub fn found_message(format: LineFormat, found: u64, lookups: u64, num: u64) -> String {
    match format {
        LineFormat::Leveldb => format!("({found} of {num} found)"),
        LineFormat::Rocksdb => format!("({found} of {lookups} found)\n"),
    }
}

/// The runs of a repeated benchmark.
#[derive(Debug, Default)]
pub struct RepeatStats {
    operations: Vec<f64>,
    megabytes: Vec<f64>,
}

impl RepeatStats {
    /// Adds a run.
    pub fn add(&mut self, counted: &BenchmarkTotals) {
        self.operations.push(counted.operations_per_second());
        self.megabytes.extend(counted.megabytes_per_second());
    }

    fn has_megabytes(&self) -> bool {
        self.megabytes.len() == self.operations.len()
    }

    /// Line after each run of a repeated benchmark; `None` after the first run.
    pub fn progress_line(&self, name: &str, interval_only: bool) -> Option<String> {
        let runs = self.operations.len();
        if runs < 2 {
            return None;
        }
        let (rate, margin) = (mean(&self.operations), confidence(&self.operations));
        let (bytes, bytes_margin) = (mean(&self.megabytes), confidence(&self.megabytes));
        let (rate, margin) = (rate as i64, margin as i64);
        let text = if interval_only {
            let (low, high) = (rate - margin, rate + margin);
            let line = format!("{name} [CI95 {runs} runs] : ({low}, {high}) ops/sec");
            let (low, high) = (bytes - bytes_margin, bytes + bytes_margin);
            (line, format!("; ({low:.1}, {high:.1}) MB/sec"))
        } else {
            let line = format!("{name} [AVG {runs} runs] : {rate} (\u{b1} {margin}) ops/sec");
            (line, format!("; {bytes:6.1} (\u{b1} {bytes_margin:.1}) MB/sec"))
        };
        let (line, bytes) = text;
        Some(if self.has_megabytes() { format!("{line}{bytes}\n") } else { format!("{line}\n") })
    }

    /// Lines after the last run of a repeated benchmark; `None` if it ran only once.
    pub fn summary_lines(&self, name: &str) -> Option<String> {
        let runs = self.operations.len();
        if runs < 2 {
            return None;
        }
        let rate = mean(&self.operations);
        let (whole, margin) = (rate as i64, confidence(&self.operations) as i64);
        let millis = if rate > 0.0 { 1000.0 / rate } else { 0.0 };
        let median_rate = median(&self.operations) as i64;
        let mut average = format!(
            "{name} [AVG    {runs} runs] : {whole} (\u{b1} {margin}) ops/sec; {millis:.3} ms/op"
        );
        let mut median_line = format!("{name} [MEDIAN {runs} runs] : {median_rate} ops/sec");
        if self.has_megabytes() {
            let (bytes, margin) = (mean(&self.megabytes), confidence(&self.megabytes));
            average.push_str(&format!("; {bytes:6.1} (\u{b1} {margin:.1}) MB/sec"));
            median_line.push_str(&format!("; {:6.1} MB/sec", median(&self.megabytes)));
        }
        Some(format!("\n{average}\n{median_line}\n"))
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Half of the 95 % confidence interval of the mean.
fn confidence(values: &[f64]) -> f64 {
    if values.len() < 2 {
        return 0.0;
    }
    let mean = mean(values);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let deviation = (squares / (values.len() - 1) as f64).sqrt();
    1.959964 * deviation / (values.len() as f64).sqrt()
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => 0.0,
        len if len.is_multiple_of(2) => (sorted[middle - 1] + sorted[middle]) / 2.0,
        _ => sorted[middle],
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn counted() -> BenchmarkTotals {
        BenchmarkTotals {
            done: 2000,
            bytes: 2 << 20,
            seconds: 0.5,
            start: Duration::from_secs(1),
            end: Duration::from_millis(1250),
            ..BenchmarkTotals::default()
        }
    }

    #[test]
    fn leveldb_result_lines_match_exactly() {
        let format = LineFormat::Leveldb;
        assert_eq!(
            result_text(format, "fillseq", &counted()),
            "fillseq      :     250.000 micros/op;    8.0 MB/s\n"
        );
        let message = found_message(format, 632, 1000, 2000);
        let counted = BenchmarkTotals { message, ..counted() };
        for (name, column) in [
            ("readrandom", "readrandom   "),
            ("readwhilewriting", "readwhilewriting "),
            ("seekrandom", "seekrandom   "),
        ] {
            let line = format!("{column}:     250.000 micros/op; (632 of 2000 found)\n");
            assert_eq!(result_text(format, name, &counted), line);
        }
        let counted = BenchmarkTotals { bytes: 0, message: String::new(), ..counted };
        assert_eq!(
            result_text(format, "multireadrandom", &counted),
            "multireadrandom :     250.000 micros/op;\n"
        );
    }

    #[test]
    fn rocksdb_result_lines_match_exactly() {
        let format = LineFormat::Rocksdb;
        let message = found_message(format, 632, 1000, 2000);
        let whole = BenchmarkTotals { message, ..counted() };
        for (name, column) in
            [("readrandom", "readrandom   "), ("readwhilewriting", "readwhilewriting ")]
        {
            let line = format!(
                "{column}:     250.000 micros/op 8000 ops/sec 0.250 seconds 2000 operations;    \
                 8.0 MB/s (632 of 1000 found)\n\n"
            );
            assert_eq!(result_text(format, name, &whole), line);
        }
        // Without --seek_nexts no bytes are read.
        assert_eq!(
            result_text(format, "seekrandom", &BenchmarkTotals { bytes: 0, ..whole }),
            "seekrandom   :     250.000 micros/op 8000 ops/sec 0.250 seconds 2000 operations; (632 \
             of 1000 found)\n\n"
        );
        assert_eq!(
            result_text(format, "compact", &BenchmarkTotals { done: 0, bytes: 0, ..counted() }),
            "compact      :  500000.000 micros/op 4 ops/sec 0.250 seconds 1 operations;\n"
        );
        assert_eq!(skipped_line("fillseq"), "fillseq      : skipped (--use_existing_db is true)\n");
    }

    #[test]
    fn repeats_are_summarized_as_in_rocksdb() {
        let mut repeats = RepeatStats::default();
        repeats.add(&counted());
        assert_eq!(repeats.progress_line("readseq", false), None);
        assert_eq!(repeats.summary_lines("readseq"), None);
        repeats.add(&BenchmarkTotals { done: 1000, ..counted() });
        assert_eq!(
            repeats.progress_line("readseq", false).unwrap(),
            "readseq [AVG 2 runs] : 6000 (± 3919) ops/sec;    8.0 (± 0.0) MB/sec\n"
        );
        assert_eq!(
            repeats.progress_line("readseq", true).unwrap(),
            "readseq [CI95 2 runs] : (2081, 9919) ops/sec; (8.0, 8.0) MB/sec\n"
        );
        assert_eq!(
            repeats.summary_lines("readseq").unwrap(),
            "\nreadseq [AVG    2 runs] : 6000 (± 3919) ops/sec; 0.167 ms/op;    8.0 (± 0.0) \
             MB/sec\nreadseq [MEDIAN 2 runs] : 6000 ops/sec;    8.0 MB/sec\n"
        );
        let mut repeats = RepeatStats::default();
        for _ in 0..3 {
            repeats.add(&BenchmarkTotals { bytes: 0, ..counted() });
        }
        assert_eq!(
            repeats.progress_line("compact", false).unwrap(),
            "compact [AVG 3 runs] : 8000 (± 0) ops/sec\n"
        );
    }
}
