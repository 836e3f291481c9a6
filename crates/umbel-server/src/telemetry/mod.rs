//! Access log, call metrics, trace context.

pub mod access_log;
pub mod call_metrics;
pub mod trace_context;
