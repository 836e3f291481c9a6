//! Metrics of the export to an OpenTelemetry collector.

use crate::http::metrics::metric_set::{Counters, Gauges, MetricSet};
use crate::telemetry::otlp::signal::Signal;
use crate::telemetry::otlp::telemetry_hub::{ExportOutcome, TelemetryHub};

/// Adds the metrics, of the exported signals only.
pub fn add(set: &mut MetricSet, hub: &TelemetryHub) {
    let (exports, dropped, queued) = (Counters::default(), Counters::default(), Gauges::default());
    for signal in Signal::ALL.into_iter().filter(|signal| hub.exports(*signal)) {
        let name = || ("signal", signal.name().to_string());
        for outcome in ExportOutcome::ALL {
            let labels = vec![name(), ("outcome", outcome.name().to_string())];
            exports.get_or_create(&labels).inc_by(hub.export_count(signal, outcome));
        }
        dropped.get_or_create(&vec![name()]).inc_by(hub.dropped(signal));
        let size = match signal {
            Signal::Metrics => continue,
            Signal::Logs => hub.logs.size(),
            Signal::Traces => hub.spans.size(),
        };
        queued.get_or_create(&vec![name()]).set(size.0 as f64);
    }
    let help = "Exports to the OpenTelemetry collector";
    set.add("otlp_exports", help, || exports.clone());
    let help = "Spans, log lines and values of metrics that the collector did not get";
    set.add("otlp_dropped", help, || dropped.clone());
    let help = "Spans and log lines that wait for their export";
    set.add("otlp_queued_records", help, || queued.clone());
}
