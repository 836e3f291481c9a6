//! [`CallMetrics`]: counts of calls and of failures before the first response message, and
//! latencies until the response head.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tonic::Code;

use crate::access_control::call_policy;

/// Labels of a metric.
pub type Labels = Vec<(&'static str, String)>;

/// The first latency bound in seconds; each next bound is four times as high.
const FIRST_BUCKET_SECONDS: f64 = 0.0001;
const BUCKETS: u16 = 9;
/// Label of all calls to unknown paths.
const UNKNOWN_METHOD: &str = "not served";

/// Counts of calls. Clones share the counts.
#[derive(Debug, Clone)]
pub struct CallMetrics {
    started: Family<Labels, Counter>,
    failed: Family<Labels, Counter>,
    seconds: Family<Labels, Histogram>,
    totals: Arc<CallTotals>,
}

/// Counts of all calls together.
#[derive(Debug, Default)]
struct CallTotals {
    failed: AtomicU64,
    /// Number of calls by latency: for each bound the calls up to it and above the bound before;
    /// last, the calls above all bounds.
    latency_buckets: [AtomicU64; BUCKETS as usize + 1],
}

impl Default for CallMetrics {
    fn default() -> CallMetrics {
        let histogram = || Histogram::new(exponential_buckets(FIRST_BUCKET_SECONDS, 4.0, BUCKETS));
        CallMetrics {
            started: Family::default(),
            failed: Family::default(),
            seconds: Family::new_with_constructor(histogram),
            totals: Arc::default(),
        }
    }
}

impl CallMetrics {
    /// Records a call: its path, its status if the response head has one, and its latency. All
    /// unknown paths share one label, even if authorization refused the call before dispatch.
    /// Separate labels would take ever more memory.
    pub fn record(&self, path: &str, status: Option<Code>, took: Duration) {
        let served = match status {
            // The call was served.
            None | Some(Code::Ok) => true,
            Some(Code::Unimplemented) => false,
            Some(_) => call_policy::is_listed(path),
        };
        let call = if served { path.trim_start_matches('/') } else { UNKNOWN_METHOD };
        let labels = vec![("call", call.to_string())];
        if let Some(code) = status.filter(|code| *code != Code::Ok) {
            let failed = vec![labels[0].clone(), ("code", format!("{code:?}"))];
            self.failed.get_or_create(&failed).inc();
            self.totals.failed.fetch_add(1, Ordering::Relaxed);
        }
        let bounds = exponential_buckets(FIRST_BUCKET_SECONDS, 4.0, BUCKETS);
        let bucket = bounds.take_while(|bound| *bound < took.as_secs_f64()).count();
        self.totals.latency_buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.seconds.get_or_create(&labels).observe(took.as_secs_f64());
        self.started.get_or_create(&labels).inc();
    }

    /// Totals of all calls since the start: failures, and for each latency bound, in seconds, the
    /// calls up to it and above the bound before.
    pub fn totals(&self) -> Value {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let bounds: Vec<f64> = exponential_buckets(FIRST_BUCKET_SECONDS, 4.0, BUCKETS).collect();
        let took: Vec<u64> = self.totals.latency_buckets.iter().map(count).collect();
        json!({ "failed": count(&self.totals.failed), "bounds": bounds, "took": took })
    }

    /// Registers the metrics.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("calls", "Calls received", self.started.clone());
        registry.register(
            "calls_failed",
            "Calls that failed before the first response message",
            self.failed.clone(),
        );
        registry.register(
            "call_seconds",
            "Seconds from a call to its response head",
            self.seconds.clone(),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Story: a server with users refused unknown paths with `PermissionDenied`, and each path got
    /// its own label. So any client could make the server's memory grow.
    #[test]
    fn unserved_paths_share_one_metric_label() {
        let (calls, took) = (CallMetrics::default(), Duration::from_millis(1));
        for number in 0..9 {
            let path = format!("/service.{number}/Call");
            calls.record(&path, Some(Code::PermissionDenied), took);
            calls.record(&path, Some(Code::Unimplemented), took);
        }
        calls.record("/event_store.client.streams.Streams/Read", None, took);
        let taken =
            |call: &str| calls.started.get_or_create(&vec![("call", call.to_string())]).get();
        assert_eq!((taken(UNKNOWN_METHOD), taken("service.1/Call")), (18, 0));
        assert_eq!(taken("event_store.client.streams.Streams/Read"), 1);
    }
}
