//! [`MetricHistory`]: samples of the server's metrics for the plots of the console, in bounded
//! memory.

use std::collections::VecDeque;
use std::sync::Mutex;
use umbel_base::ignore_poison::IgnorePoison;

use serde_json::{Map, Value, json};

use crate::telemetry::latency_counts::{self, BucketCounts};

/// Interval of the recent samples in seconds, and their number: 15 minutes.
pub const RECENT_SECONDS: u64 = 5;
const RECENT_SAMPLES: usize = 180;
/// Interval of the older samples in recent samples, and their number: 24 hours.
const RECENT_PER_OLD: u64 = 12;
const OLD_SAMPLES: usize = 1440;
const MICROS: f64 = 1e6;

/// Names of the rates, which follow from two readings.
const RATES: [&str; 8] = [
    "eventsAppended",
    "bytesAppended",
    "eventsRead",
    "calls",
    "appendP50",
    "appendP99",
    "appendP999",
    "appendsRefused",
];
/// Names of the gauges of a reading.
const GAUGES: [&str; 9] = [
    "connections",
    "diskAvailable",
    "logBytes",
    "indexMemory",
    "existenceFilterMemory",
    "requestsBuffered",
    "responsesBuffered",
    "groupsBuffered",
    "residentMemory",
];
const SERIES: usize = RATES.len() + GAUGES.len();
/// Quantiles of the latency of appends.
const QUANTILES: [f64; 3] = [0.5, 0.99, 0.999];

/// The server's counters and gauges at one time.
#[derive(Debug, Clone)]
pub struct MetricReading {
    /// Microseconds since 1970.
    pub wall_micros: u64,
    /// Monotonic time in microseconds.
    pub monotonic_micros: u64,
    /// Events appended since the start.
    pub events_appended: u64,
    /// Bytes of the event log. Positions have gaps and say nothing about bytes.
    pub log_bytes: u64,
    /// Events read for clients since the start.
    pub events_read: u64,
    /// Calls that ended since the start.
    pub calls: u64,
    /// Appends since the start, by latency.
    pub append_latencies: BucketCounts,
    /// Appends since the start that the server could not do.
    pub appends_refused: u64,
    /// The gauges in the order of [`GAUGES`]; not a number where a value is unknown.
    pub gauges: [f64; GAUGES.len()],
}

/// Values at one time.
#[derive(Debug, Clone, Copy)]
struct Sample {
    wall_micros: u64,
    values: [f32; SERIES],
}

/// Samples of the last 24 hours, about 110 KiB.
#[derive(Debug, Default)]
pub struct MetricHistory(Mutex<Samples>);

#[derive(Debug, Default)]
struct Samples {
    recent: VecDeque<Sample>,
    old: VecDeque<Sample>,
    last: Option<Box<MetricReading>>,
    last_old: Option<Box<MetricReading>>,
    readings: u64,
}

impl MetricHistory {
    /// Adds a reading.
    pub fn add(&self, reading: MetricReading) {
        let mut samples = self.0.lock().ignore_poison();
        let reading = Box::new(reading);
        if let Some(last) = &samples.last {
            let sample = sample(last, &reading);
            push(&mut samples.recent, sample, RECENT_SAMPLES);
        }
        if samples.readings.is_multiple_of(RECENT_PER_OLD) {
            if let Some(last) = &samples.last_old {
                let sample = sample(last, &reading);
                push(&mut samples.old, sample, OLD_SAMPLES);
            }
            samples.last_old = Some(reading.clone());
        }
        samples.readings += 1;
        samples.last = Some(reading);
    }

    /// The samples of the last minutes: times in seconds since 1970, and a list for each series.
    pub fn last_minutes(&self, minutes: u64) -> Value {
        let samples = self.0.lock().ignore_poison();
        let is_recent = minutes * 60 <= RECENT_SECONDS * RECENT_SAMPLES as u64;
        let (of, seconds) = match is_recent {
            true => (&samples.recent, RECENT_SECONDS),
            false => (&samples.old, RECENT_SECONDS * RECENT_PER_OLD),
        };
        let count = usize::try_from(minutes * 60 / seconds).unwrap_or(usize::MAX);
        let shown = || of.iter().skip(of.len().saturating_sub(count));
        let mut series = Map::new();
        for (index, name) in RATES.iter().chain(&GAUGES).enumerate() {
            // JSON has no number for an unknown value; the value becomes null.
            let values: Vec<f32> = shown().map(|sample| sample.values[index]).collect();
            series.insert((*name).to_string(), json!(values));
        }
        let times: Vec<f64> = shown().map(|sample| sample.wall_micros as f64 / MICROS).collect();
        json!({ "seconds": seconds, "times": times, "series": series })
    }
}

fn push(samples: &mut VecDeque<Sample>, sample: Sample, samples_max: usize) {
    if samples.len() == samples_max {
        samples.pop_front();
    }
    samples.push_back(sample);
}

fn sample(last: &MetricReading, now: &MetricReading) -> Sample {
    let micros = now.monotonic_micros.saturating_sub(last.monotonic_micros).max(1);
    let rate = |now: u64, last: u64| now.saturating_sub(last) as f64 / (micros as f64 / MICROS);
    let latencies = QUANTILES.map(|share| {
        latency_counts::quantile(&last.append_latencies, &now.append_latencies, share)
            .unwrap_or(f64::NAN)
    });
    let rates = [
        rate(now.events_appended, last.events_appended),
        rate(now.log_bytes, last.log_bytes),
        rate(now.events_read, last.events_read),
        rate(now.calls, last.calls),
        latencies[0],
        latencies[1],
        latencies[2],
        rate(now.appends_refused, last.appends_refused),
    ];
    let mut values = [f32::NAN; SERIES];
    for (value, source) in values.iter_mut().zip(rates.iter().chain(&now.gauges)) {
        *value = *source as f32;
    }
    Sample { wall_micros: now.wall_micros, values }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(number: u64) -> MetricReading {
        let seconds = number * RECENT_SECONDS;
        MetricReading {
            wall_micros: seconds * 1_000_000,
            monotonic_micros: seconds * 1_000_000,
            appends_refused: number * 10,
            events_appended: number * 50,
            log_bytes: number * 5_000,
            events_read: 0,
            calls: number,
            append_latencies: latency_counts::LatencyCounts::default().counts(),
            gauges: [f64::NAN; GAUGES.len()],
        }
    }

    #[test]
    fn history_is_bounded_and_has_rates() {
        let history = MetricHistory::default();
        for number in 0..=20_000 {
            history.add(reading(number));
        }
        for (minutes, samples, seconds) in [(15, 180, 5), (60, 60, 60), (1440, 1440, 60)] {
            let shown = history.last_minutes(minutes);
            assert_eq!(shown["seconds"], seconds);
            assert_eq!(shown["times"].as_array().unwrap().len(), samples, "{minutes}");
            let rate = |name: &str| shown["series"][name][samples - 1].as_f64().unwrap();
            assert_eq!((rate("eventsAppended"), rate("bytesAppended")), (10.0, 1000.0));
            assert_eq!(rate("appendsRefused"), 2.0);
            assert_eq!(shown["series"]["appendP99"][0], Value::Null, "no append");
            assert_eq!(shown["series"]["diskAvailable"][0], Value::Null, "unknown");
        }
        assert_eq!(history.last_minutes(u64::MAX / 60)["times"].as_array().unwrap().len(), 1440);
    }
}
