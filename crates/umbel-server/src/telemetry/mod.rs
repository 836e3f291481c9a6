//! Access log, failed logins, metrics of calls and appends, trace context, spans, the export of
//! telemetry, and what ends with a response.

pub mod access_log;
pub mod append_metrics;
pub mod call_metrics;
pub mod call_span;
pub mod failed_logins;
pub mod latency_counts;
pub mod line_limiter;
pub mod metric_history;
pub mod metric_labels;
pub mod otlp;
pub mod response_end;
pub mod trace_context;
