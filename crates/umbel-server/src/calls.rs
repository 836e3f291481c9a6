//! [`Calls`]: how many calls came, how many of them failed at once, and how long they waited for
//! the head of their answer.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use tonic::Code;

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
}

impl Default for Calls {
    fn default() -> Calls {
        let histogram = || Histogram::new(exponential_buckets(FIRST_BOUND, 4.0, BOUNDS));
        Calls {
            taken: Family::default(),
            failed: Family::default(),
            seconds: Family::new_with_constructor(histogram),
        }
    }
}

impl Calls {
    /// Notes a call: its path, its status where the head of the answer says one, and how long that
    /// took. `served` says whether anything answers this path.
    pub fn note(&self, path: &str, status: Option<Code>, took: Duration) {
        let served = status != Some(Code::Unimplemented);
        let call = if served { path.trim_start_matches('/') } else { NOT_SERVED };
        let labels = vec![("call", call.to_string())];
        if let Some(code) = status.filter(|code| *code != Code::Ok) {
            let failed = vec![labels[0].clone(), ("code", format!("{code:?}"))];
            self.failed.get_or_create(&failed).inc();
        }
        self.seconds.get_or_create(&labels).observe(took.as_secs_f64());
        self.taken.get_or_create(&labels).inc();
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
