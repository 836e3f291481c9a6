//! [`MetricSet`]: the metrics of one response, with the former names of renamed metrics.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::{Metric, Registry};

use crate::telemetry::metric_labels::Labels;

/// Gauges with labels.
pub type Gauges = Family<Labels, Gauge<f64, AtomicU64>>;
/// Counters with labels.
pub type Counters = Family<Labels, Counter<u64>>;

/// Present and former names of renamed metrics, without their prefix. The former names go with the
/// next release.
const RENAMED: [(&str, &str); 24] = [
    ("append_buffered_bytes", "appends_bytes"),
    ("request_buffered_bytes", "receiving_bytes"),
    ("response_buffered_bytes", "unread_bytes"),
    ("group_buffered_bytes", "groups_bytes"),
    ("clock_epoch_start_timestamp_seconds", "clock_epoch_start_seconds"),
    ("existence_enabled", "existence_is_on"),
    ("existence_designed_false_positive_ratio", "existence_designed_rate"),
    ("existence_estimated_false_positive_ratio", "existence_estimated_rate"),
    ("existence_measured_false_positive_ratio", "existence_measured_rate"),
    ("existence_unflushed_items", "existence_lag_items"),
    ("existence_negatives", "existence_denied"),
    ("existence_positives", "existence_maybe"),
    ("existence_false_positives", "existence_in_vain"),
    ("existence_written_bytes", "existence_bytes_written"),
    ("existence_rebuilt_lines", "existence_healed_lines"),
    ("index_write_amplification_ratio", "index_write_amplification"),
    ("index_write_stalls", "index_stalls"),
    ("level_filter_memory_bytes", "level_filter_bytes_in_memory"),
    ("level_filter_designed_false_positive_ratio", "level_filter_designed_rate"),
    ("level_filter_negatives", "level_filter_denied"),
    ("level_written_bytes", "level_bytes_written"),
    ("kv_watches_evicted", "kv_watches_let_go"),
    ("kv_last_sequence", "kv_sequence"),
    ("log_position", "position"),
];

/// The metrics of one response.
#[derive(Debug, Default)]
pub struct MetricSet {
    /// Whether renamed metrics appear under their former names, too.
    pub has_former_names: bool,
    /// The registry, for metrics that other systems name.
    pub registry: Registry,
}

impl MetricSet {
    /// Adds a metric under its name with the prefix `umbel_`, and under its former name.
    pub fn add<M: Metric>(&mut self, name: &str, help: &str, metric: impl Fn() -> M) {
        let mut renamed = RENAMED.iter().filter(|_| self.has_former_names);
        if let Some((_, former)) = renamed.find(|(present, _)| *present == name) {
            let help = format!("Deprecated name of umbel_{name}");
            self.registry.register(format!("umbel_{former}"), help, metric());
        }
        self.registry.register(format!("umbel_{name}"), help, metric());
    }

    /// Adds a gauge.
    pub fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.add(name, help, || ConstGauge::new(value));
    }

    /// Adds a counter.
    pub fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.add(name, help, || ConstCounter::new(value));
    }

    /// Adds a counter of seconds.
    pub fn seconds_counter(&mut self, name: &str, help: &str, value: f64) {
        self.add(name, help, || ConstCounter::new(value));
    }
}
