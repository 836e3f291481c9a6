//! [`AppendMetrics`]: latencies of appends. [`AppendTimer`]: the latency of one append.
//!
//! A call may have many appends: each batch of a BatchAppend call is one, with its own response.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use tonic::Code;
use umbel_env::Clock;

use crate::telemetry::latency_counts::{self, LatencyCounts};
use crate::telemetry::metric_labels::Labels;

/// Name of the call whose batches are timed one by one.
const BATCH_APPEND: &str = "event_store.client.streams.Streams/BatchAppend";
/// Names of the gRPC calls that are one append each.
const SINGLE_APPENDS: [&str; 3] = [
    "event_store.client.streams.Streams/Append",
    "kurrentdb.protocol.v2.streams.StreamsService/AppendRecords",
    "kurrentdb.protocol.v2.streams.StreamsService/AppendSession",
];
/// Outcomes of appends that the server could not do.
const REFUSALS: [Code; 5] =
    [Code::Unavailable, Code::ResourceExhausted, Code::Internal, Code::Unknown, Code::DataLoss];

/// The first latency bound of KurrentDB's histogram in seconds, and the number of bounds. Each
/// bound is ten times the one before.
const KURRENT_BOUNDS: (f64, u16) = (1e-6, 8);

/// Requests over HTTP that are one append each.
const HTTP_APPENDS: [&str; 3] = [
    "POST /streams/{stream}",
    "POST /streams/{stream}/incoming/{eventId}",
    "POST /console/api/append",
];

/// Latencies of appends by call and outcome.
#[derive(Debug)]
pub struct AppendMetrics {
    seconds: Family<Labels, Histogram>,
    /// Latencies of batches that were appended.
    batches: Histogram,
    /// The same latencies under KurrentDB's name, labels and bounds.
    kurrent: Family<Labels, Histogram>,
    kurrent_batches: Histogram,
    /// The latencies of successful appends, for quantiles of any time span.
    latencies: LatencyCounts,
    /// Number of appends that the server could not do.
    refused: AtomicU64,
}

/// Time of an append's arrival, which is recorded with its outcome.
#[derive(Debug, Clone)]
pub struct AppendTimer {
    metrics: Arc<AppendMetrics>,
    clock: Arc<dyn Clock>,
    began: Duration,
}

impl Default for AppendMetrics {
    fn default() -> AppendMetrics {
        let bounds = || Histogram::new(latency_counts::bounds());
        let seconds: Family<Labels, Histogram> = Family::new_with_constructor(bounds);
        let batches = seconds.get_or_create_owned(&labels(BATCH_APPEND, Code::Ok));
        let bounds =
            || Histogram::new(exponential_buckets(KURRENT_BOUNDS.0, 10.0, KURRENT_BOUNDS.1));
        let kurrent: Family<Labels, Histogram> = Family::new_with_constructor(bounds);
        let kurrent_batches = kurrent.get_or_create_owned(&kurrent_labels(Code::Ok));
        let latencies = LatencyCounts::default();
        let refused = AtomicU64::new(0);
        AppendMetrics { seconds, batches, kurrent, kurrent_batches, latencies, refused }
    }
}

impl AppendMetrics {
    /// Begins the latency of a batch, at the arrival of its first part.
    pub fn begin_batch(self: &Arc<Self>, clock: &Arc<dyn Clock>) -> AppendTimer {
        let (metrics, clock) = (Arc::clone(self), Arc::clone(clock));
        AppendTimer { metrics, began: clock.now(), clock }
    }

    /// Successful appends by latency.
    pub fn latencies(&self) -> &LatencyCounts {
        &self.latencies
    }

    /// Number of appends since the start that the server could not do: its disk is full, its store
    /// is read-only, or a limit of its memory is reached. Errors of clients do not count.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    fn count_refused(&self, code: Code) {
        if REFUSALS.contains(&code) {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Records the end of a call, if the call is one append.
    pub fn record_call(&self, call: &str, code: Code, took: Duration) {
        let is_grpc = SINGLE_APPENDS.contains(&call);
        if !is_grpc && !HTTP_APPENDS.contains(&call) {
            return;
        }
        let seconds = took.as_secs_f64();
        if code == Code::Ok {
            self.latencies.record(took);
        }
        self.count_refused(code);
        self.seconds.get_or_create(&labels(call, code)).observe(seconds);
        if is_grpc {
            self.kurrent.get_or_create(&kurrent_labels(code)).observe(seconds);
        }
    }

    /// Registers the metric.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "append_seconds",
            "Seconds from the arrival of an append, or of its first part, to its response",
            self.seconds.clone(),
        );
    }

    /// Registers the metric under KurrentDB's name, without its prefix.
    pub fn register_kurrent(&self, registry: &mut Registry) {
        let help = "Seconds from the arrival of an append to its response";
        registry.register("grpc_method_duration_seconds", help, self.kurrent.clone());
    }
}

impl AppendTimer {
    /// Records the batch's response with this outcome.
    pub fn end(self, code: Code) {
        let took = self.clock.now().saturating_sub(self.began);
        let seconds = took.as_secs_f64();
        if code == Code::Ok {
            self.metrics.latencies.record(took);
            self.metrics.batches.observe(seconds);
            self.metrics.kurrent_batches.observe(seconds);
        } else {
            self.metrics.count_refused(code);
            let labels = labels(BATCH_APPEND, code);
            self.metrics.seconds.get_or_create(&labels).observe(seconds);
            self.metrics.kurrent.get_or_create(&kurrent_labels(code)).observe(seconds);
        }
    }
}

fn labels(call: &str, code: Code) -> Labels {
    vec![("call", call.to_string()), ("code", format!("{code:?}"))]
}

fn kurrent_labels(code: Code) -> Labels {
    let status = if code == Code::Ok { "successful" } else { "failed" };
    vec![("activity", "append".to_string()), ("status", status.to_string())]
}

#[cfg(test)]
mod tests {
    use umbel_sim::Sim;

    use super::*;
    use crate::access_control::call_policy;
    use crate::http::api::route_table::{Operation, ROUTES};
    use crate::http::console::console_actions::ACTIONS;

    #[test]
    fn every_timed_call_is_served() {
        for call in [&[BATCH_APPEND], &SINGLE_APPENDS[..]].concat() {
            assert!(call_policy::is_listed(&format!("/{call}")), "{call}");
        }
    }

    /// Story: appends over HTTP and those of the console were in no latency.
    #[test]
    fn every_http_request_that_appends_is_timed() {
        let appends = ROUTES.iter().filter(|route| route.operation == Operation::Append);
        let mut timed: Vec<_> = appends.map(|it| format!("{} {}", it.method, it.path)).collect();
        assert!(ACTIONS.contains(&"append"));
        timed.push("POST /console/api/append".to_string());
        timed.iter().for_each(|call| assert!(HTTP_APPENDS.contains(&&**call), "{call}"));
        assert_eq!(timed.len(), HTTP_APPENDS.len());
        let metrics = AppendMetrics::default();
        for call in HTTP_APPENDS {
            metrics.record_call(call, Code::Ok, Duration::from_millis(1));
        }
        assert_eq!(metrics.latencies.counts().iter().sum::<u64>(), 3);
    }

    #[test]
    fn latency_of_a_batch_is_in_its_outcome_and_its_bucket() {
        let (metrics, sim) = (Arc::new(AppendMetrics::default()), Sim::new(1));
        let clock = sim.env().clock;
        for (code, millis) in
            [(Code::Ok, 50), (Code::AlreadyExists, 20), (Code::ResourceExhausted, 30)]
        {
            let timer = metrics.begin_batch(&clock);
            sim.advance(Duration::from_millis(millis));
            timer.end(code);
        }
        metrics.record_call(SINGLE_APPENDS[0], Code::Ok, Duration::from_millis(1));
        metrics.record_call(SINGLE_APPENDS[0], Code::Unavailable, Duration::from_millis(1));
        assert_eq!(metrics.refused(), 2, "a conflict is no refusal");
        metrics.record_call("another call", Code::Ok, Duration::from_millis(1));
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for (call, code, sum) in [
            (BATCH_APPEND, "Ok", "0.05"),
            (BATCH_APPEND, "AlreadyExists", "0.02"),
            (SINGLE_APPENDS[0], "Ok", "0.001"),
        ] {
            let line = format!("append_seconds_sum{{call=\"{call}\",code=\"{code}\"}} {sum}");
            assert!(text.contains(&line), "{line}: {text}");
        }
        assert_eq!(text.matches("_sum").count(), 5, "{text}");
        // Bounds around 50 ms are less than 5 ms apart.
        let bounds: Vec<f64> = latency_counts::bounds().collect();
        let above = bounds.iter().position(|bound| *bound >= 0.05).unwrap();
        assert!(bounds[above] - bounds[above - 1] < 0.005, "{bounds:?}");
        assert!((bounds[bounds.len() - 1] - 13.1072).abs() < 1e-6, "{bounds:?}");
    }
}
