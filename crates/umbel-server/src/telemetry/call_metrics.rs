//! [`CallMetrics`]: counts of calls and failures, and latencies from the request to the end of the
//! response. [`CallTimer`]: the latency of one call.
//!
//! Calls are gRPC calls, and requests to the HTTP API and for actions of the console.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hyper::{Method, StatusCode};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tonic::Code;
use umbel_env::Clock;

use crate::access_control::call_policy;
use crate::telemetry::append_metrics::AppendMetrics;
use crate::telemetry::metric_labels::Labels;

/// The first latency bound in seconds; each next bound is twice as high.
const FIRST_BUCKET_SECONDS: f64 = 0.0001;
const BUCKETS: u16 = 18;
/// Label of all calls to unknown paths.
const UNKNOWN_METHOD: &str = "not served";

/// Counts of calls. Clones share the counts.
#[derive(Debug, Clone)]
pub struct CallMetrics {
    started: Family<Labels, Counter>,
    failed: Family<Labels, Counter>,
    seconds: Family<Labels, Histogram>,
    grpc_totals: Arc<CallTotals>,
    http_totals: Arc<CallTotals>,
    appends: Arc<AppendMetrics>,
}

/// Counts of all gRPC calls, or of all HTTP calls, together.
#[derive(Debug, Default)]
struct CallTotals {
    started: AtomicU64,
    ended: AtomicU64,
    unimplemented: AtomicU64,
    deadline_exceeded: AtomicU64,
    failed: AtomicU64,
    /// Number of calls by latency: for each bound the calls up to it and above the bound before;
    /// last, the calls above all bounds.
    latency_buckets: [AtomicU64; BUCKETS as usize + 1],
}

/// Latency of one call, which is recorded when the timer is dropped: with its status at the end of
/// the response, or as cancelled if the client left before.
#[derive(Debug)]
pub struct CallTimer {
    metrics: CallMetrics,
    totals: Arc<CallTotals>,
    clock: Arc<dyn Clock>,
    began: Duration,
    call: String,
    /// Outcome if the response is sent completely.
    sent_outcome: Code,
    outcome: Code,
}

impl Default for CallMetrics {
    fn default() -> CallMetrics {
        let histogram = || Histogram::new(latency_bounds());
        CallMetrics {
            started: Family::default(),
            failed: Family::default(),
            seconds: Family::new_with_constructor(histogram),
            grpc_totals: Arc::default(),
            http_totals: Arc::default(),
            appends: Arc::default(),
        }
    }
}

impl CallMetrics {
    /// Counts a gRPC call and begins its latency.
    ///
    /// All paths that are not served share one label. Separate labels would take ever more memory.
    pub fn begin(&self, path: &str, clock: Arc<dyn Clock>) -> CallTimer {
        let is_served = call_policy::is_listed(path);
        let call = if is_served { path.trim_start_matches('/') } else { UNKNOWN_METHOD };
        self.begin_call(call.to_string(), &self.grpc_totals, clock)
    }

    /// Counts a request over HTTP and begins its latency. The request's label is its method and the
    /// template of its path, of which there are few.
    pub fn begin_http(&self, method: &Method, path: &str, clock: Arc<dyn Clock>) -> CallTimer {
        self.begin_call(format!("{method} {path}"), &self.http_totals, clock)
    }

    fn begin_call(
        &self,
        call: String,
        totals: &Arc<CallTotals>,
        clock: Arc<dyn Clock>,
    ) -> CallTimer {
        self.started.get_or_create(&vec![("call", call.clone())]).inc();
        totals.started.fetch_add(1, Ordering::Relaxed);
        CallTimer {
            metrics: self.clone(),
            totals: Arc::clone(totals),
            began: clock.now(),
            clock,
            call,
            sent_outcome: Code::Ok,
            outcome: Code::Cancelled,
        }
    }

    /// Latencies of appends.
    pub fn appends(&self) -> &Arc<AppendMetrics> {
        &self.appends
    }

    fn record_end(&self, call: &str, totals: &CallTotals, code: Code, took: Duration) {
        let labels = vec![("call", call.to_string()), ("code", format!("{code:?}"))];
        self.seconds.get_or_create(&labels).observe(took.as_secs_f64());
        self.appends.record_call(call, code, took);
        totals.ended.fetch_add(1, Ordering::Relaxed);
        match code {
            Code::Unimplemented => totals.unimplemented.fetch_add(1, Ordering::Relaxed),
            Code::DeadlineExceeded => totals.deadline_exceeded.fetch_add(1, Ordering::Relaxed),
            _ => 0,
        };
        // A client may leave a subscription at any time.
        if code == Code::Cancelled {
            return;
        }
        if code != Code::Ok {
            self.failed.get_or_create(&labels).inc();
            totals.failed.fetch_add(1, Ordering::Relaxed);
        }
        let bucket = latency_bounds().take_while(|bound| *bound < took.as_secs_f64()).count();
        totals.latency_buckets[bucket].fetch_add(1, Ordering::Relaxed);
    }

    /// Totals of all ended calls since the start, without cancelled ones: failures, and for each
    /// latency bound, in seconds, the calls up to it and above the bound before.
    pub fn totals(&self) -> Value {
        let bounds: Vec<f64> = latency_bounds().collect();
        let took: Vec<u64> = (0..=usize::from(BUCKETS))
            .map(|bucket| self.count(|totals| &totals.latency_buckets[bucket]))
            .collect();
        json!({ "failed": self.count(|totals| &totals.failed), "bounds": bounds, "took": took })
    }

    /// A count of gRPC and HTTP calls together.
    fn count<'a>(&'a self, of: impl Fn(&'a CallTotals) -> &'a AtomicU64) -> u64 {
        let totals = [&*self.grpc_totals, &*self.http_totals];
        totals.map(|totals| of(totals).load(Ordering::Relaxed)).iter().sum()
    }

    /// Registers the metrics.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("calls", "Calls received", self.started.clone());
        registry.register("calls_failed", "Calls that failed", self.failed.clone());
        registry.register(
            "call_seconds",
            "Seconds from a request to the end of its response",
            self.seconds.clone(),
        );
        let help = "Calls that have begun and not ended";
        registry.register("calls_open", help, ConstGauge::new(self.open_calls()));
        self.appends.register(registry);
    }

    /// Number of calls that have ended.
    pub fn ended_calls(&self) -> u64 {
        self.count(|totals| &totals.ended)
    }

    /// Number of calls that have begun and not ended.
    pub fn open_calls(&self) -> i64 {
        let ended = self.count(|totals| &totals.ended);
        signed(self.count(|totals| &totals.started).saturating_sub(ended))
    }

    /// Registers the metrics of calls under KurrentDB's names, without their prefix.
    pub fn register_kurrent(&self, registry: &mut Registry) {
        let calls: Family<Labels, Counter> = Family::default();
        for (kind, count) in [
            ("total", &self.grpc_totals.started),
            ("failed", &self.grpc_totals.failed),
            ("unimplemented", &self.grpc_totals.unimplemented),
            ("deadline-exceeded", &self.grpc_totals.deadline_exceeded),
        ] {
            let labels = vec![("kind", kind.to_string())];
            calls.get_or_create(&labels).inc_by(count.load(Ordering::Relaxed));
        }
        registry.register("incoming_grpc_calls", "Calls received", calls);
        let help = "Calls that have begun and not ended";
        let ended = self.grpc_totals.ended.load(Ordering::Relaxed);
        let open = self.grpc_totals.started.load(Ordering::Relaxed).saturating_sub(ended);
        registry.register("current_incoming_grpc_calls", help, ConstGauge::new(signed(open)));
        self.appends.register_kurrent(registry);
    }
}

impl CallTimer {
    /// Records the end of the response with this status.
    pub fn end(mut self, code: Code) {
        self.outcome = code;
    }

    /// Sets the outcome of a response over HTTP, which its head has.
    pub fn set_http_status(&mut self, status: StatusCode) {
        self.sent_outcome = http_outcome(status);
    }

    /// Records that the response was sent completely.
    pub fn end_sent(self) {
        let code = self.sent_outcome;
        self.end(code);
    }
}

/// The gRPC status that means the same as an HTTP status, so that outcomes have one set of names.
fn http_outcome(status: StatusCode) -> Code {
    match status.as_u16() {
        ..=399 => Code::Ok,
        401 => Code::Unauthenticated,
        403 => Code::PermissionDenied,
        404 => Code::NotFound,
        405 | 501 => Code::Unimplemented,
        408 => Code::DeadlineExceeded,
        409 | 410 => Code::FailedPrecondition,
        429 | 507 => Code::ResourceExhausted,
        503 => Code::Unavailable,
        500.. => Code::Internal,
        _ => Code::InvalidArgument,
    }
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

impl Drop for CallTimer {
    fn drop(&mut self) {
        let took = self.clock.now().saturating_sub(self.began);
        self.metrics.record_end(&self.call, &self.totals, self.outcome, took);
    }
}

/// The bounds of the latencies in seconds.
fn latency_bounds() -> impl Iterator<Item = f64> {
    exponential_buckets(FIRST_BUCKET_SECONDS, 2.0, BUCKETS)
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use umbel_env::Env;
    use umbel_sim::Sim;

    use super::*;

    const READ: &str = "/event_store.client.streams.Streams/Read";

    /// Story: a server with users refused unknown paths with `PermissionDenied`, and each path got
    /// its own label. So any client could make the server's memory grow.
    #[test]
    fn unserved_paths_share_one_metric_label() {
        let calls = CallMetrics::default();
        let clock = Env::system().clock;
        let begin = |path: &str| calls.begin(path, Arc::clone(&clock));
        for number in 0..9 {
            let path = format!("/service.{number}/Call");
            begin(&path).end(Code::PermissionDenied);
            begin(&path).end(Code::Unimplemented);
        }
        begin(READ).end(Code::Ok);
        let taken =
            |call: &str| calls.started.get_or_create(&vec![("call", call.to_string())]).get();
        assert_eq!((taken(UNKNOWN_METHOD), taken("service.1/Call")), (18, 0));
        assert_eq!(taken(READ.trim_start_matches('/')), 1);
    }

    /// Story: requests of the HTTP API were in no metric.
    #[test]
    fn http_requests_are_timed_with_the_outcome_of_their_head() {
        let (calls, sim) = (CallMetrics::default(), Sim::new(1));
        let clock = sim.env().clock;
        for (status, is_sent) in [(201, true), (409, true), (201, false)] {
            let mut timer =
                calls.begin_http(&Method::POST, "/streams/{stream}", Arc::clone(&clock));
            sim.advance(Duration::from_millis(50));
            assert_eq!(calls.open_calls(), 1);
            timer.set_http_status(StatusCode::from_u16(status).unwrap());
            if is_sent {
                timer.end_sent();
            }
        }
        let mut registry = Registry::default();
        calls.register(&mut registry);
        calls.register_kurrent(registry.sub_registry_with_prefix("kurrentdb"));
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        for name in ["call", "append"] {
            for code in ["Ok", "FailedPrecondition", "Cancelled"] {
                let labels = format!("{{call=\"POST /streams/{{stream}}\",code=\"{code}\"}}");
                let line = format!("{name}_seconds_sum{labels} 0.05");
                assert!(text.contains(&line), "{line}: {text}");
            }
        }
        let total = "kurrentdb_incoming_grpc_calls_total{kind=\"total\"} 0";
        assert!(text.contains(total) && calls.ended_calls() == 3, "{text}");
        assert_eq!(calls.totals()["failed"], 1);
    }

    /// Story: latencies ended at the head of the response, which precedes the commit of an append.
    /// The metric said 12 µs where clients saw 1.2 ms.
    #[test]
    fn calls_are_timed_until_the_end_of_their_response() {
        let (calls, sim) = (CallMetrics::default(), Sim::new(1));
        let clock = sim.env().clock;
        for code in [Some(Code::Ok), Some(Code::DeadlineExceeded), None] {
            let timer = calls.begin(READ, Arc::clone(&clock));
            sim.advance(Duration::from_millis(50));
            match code {
                Some(code) => timer.end(code),
                None => drop(timer),
            }
        }
        let mut registry = Registry::default();
        calls.register(&mut registry);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        let call = "call=\"event_store.client.streams.Streams/Read\"";
        for code in ["Ok", "DeadlineExceeded", "Cancelled"] {
            let line = format!("call_seconds_sum{{{call},code=\"{code}\"}} 0.05");
            assert!(text.contains(&line), "{line}: {text}");
        }
        assert!(!text.contains(
            "calls_failed_total{call=\"event_store.client.streams.Streams/Read\",code=\"Cancelled\""
        ));
        let totals = calls.totals();
        assert_eq!((&totals["failed"], &totals["took"][9]), (&json!(1), &json!(2)), "{totals}");
    }
}
