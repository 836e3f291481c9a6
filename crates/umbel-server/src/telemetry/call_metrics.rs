//! [`Calls`]: how many calls came, how many of them failed at once, and how long they waited for
//! the head of their answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tonic::Code;

use crate::policy;

/// Labels of a metric.
pub type Labels = Vec<(&'static str, String)>;

/// The first bound of the times, in seconds; each next one is four times as high.
const FIRST_BOUND: f64 = 0.0001;
const BOUNDS: u16 = 9;
/// What a call that is not served is counted as, whatever its path.
const NOT_SERVED: &str = "not served";

/// Counts of calls. Cloning shares them.
#[derive(Debug, Clone)]
pub struct Calls {
    taken: Family<Labels, Counter>,
    failed: Family<Labels, Counter>,
    seconds: Family<Labels, Histogram>,
    totals: Arc<Totals>,
}

/// All calls together.
#[derive(Debug, Default)]
struct Totals {
    failed: AtomicU64,
    /// How many took no longer than each bound, and longer than the one before; last, longer than
    /// all of them.
    took: [AtomicU64; BOUNDS as usize + 1],
}

impl Default for Calls {
    fn default() -> Calls {
        let histogram = || Histogram::new(exponential_buckets(FIRST_BOUND, 4.0, BOUNDS));
        Calls {
            taken: Family::default(),
            failed: Family::default(),
            seconds: Family::new_with_constructor(histogram),
            totals: Arc::default(),
        }
    }
}

impl Calls {
    /// Notes a call: its path, its status where the head of the answer says one, and how long that
    /// took. All paths that are not served count as one, also where the call was refused before
    /// anybody looked for who serves it: each would take memory for ever.
    pub fn note(&self, path: &str, status: Option<Code>, took: Duration) {
        let served = match status {
            // Somebody served it.
            None | Some(Code::Ok) => true,
            Some(Code::Unimplemented) => false,
            Some(_) => policy::is_listed(path),
        };
        let call = if served { path.trim_start_matches('/') } else { NOT_SERVED };
        let labels = vec![("call", call.to_string())];
        if let Some(code) = status.filter(|code| *code != Code::Ok) {
            let failed = vec![labels[0].clone(), ("code", format!("{code:?}"))];
            self.failed.get_or_create(&failed).inc();
            self.totals.failed.fetch_add(1, Ordering::Relaxed);
        }
        let bounds = exponential_buckets(FIRST_BOUND, 4.0, BOUNDS);
        let place = bounds.take_while(|bound| *bound < took.as_secs_f64()).count();
        self.totals.took[place].fetch_add(1, Ordering::Relaxed);
        self.seconds.get_or_create(&labels).observe(took.as_secs_f64());
        self.taken.get_or_create(&labels).inc();
    }

    /// All calls since the start: how many failed, and for each bound of time, in seconds, how many
    /// took no longer than it and longer than the one before.
    pub fn totals(&self) -> Value {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let bounds: Vec<f64> = exponential_buckets(FIRST_BOUND, 4.0, BOUNDS).collect();
        let took: Vec<u64> = self.totals.took.iter().map(count).collect();
        json!({ "failed": count(&self.totals.failed), "bounds": bounds, "took": took })
    }

    /// Shows the counts.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("calls", "Calls that came", self.taken.clone());
        registry.register(
            "calls_failed",
            "Calls that were refused or failed before the first message of their answer",
            self.failed.clone(),
        );
        registry.register(
            "call_seconds",
            "Time from a call to the head of its answer",
            self.seconds.clone(),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where users are asked for, paths that nobody serves were refused with `PermissionDenied`,
    /// and each was a label of its own: memory that anybody could have grow.
    #[test]
    fn paths_that_are_not_served_count_as_one_whatever_they_are_refused_for() {
        let (calls, took) = (Calls::default(), Duration::from_millis(1));
        for number in 0..9 {
            let path = format!("/service.{number}/Call");
            calls.note(&path, Some(Code::PermissionDenied), took);
            calls.note(&path, Some(Code::Unimplemented), took);
        }
        calls.note("/event_store.client.streams.Streams/Read", None, took);
        let taken = |call: &str| calls.taken.get_or_create(&vec![("call", call.to_string())]).get();
        assert_eq!((taken(NOT_SERVED), taken("service.1/Call")), (18, 0));
        assert_eq!(taken("event_store.client.streams.Streams/Read"), 1);
    }
}
