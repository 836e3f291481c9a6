//! Export to an OpenTelemetry collector with OTLP: settings, queues of records, and the exporter.

pub mod export_health;
pub mod otlp_config;
pub mod record_queue;
pub mod sampler;
pub mod signal;
pub mod telemetry_hub;
pub mod telemetry_record;

#[cfg(feature = "otlp")]
pub mod collector_client;
#[cfg(feature = "otlp")]
pub mod metric_messages;
#[cfg(feature = "otlp")]
pub mod record_exporter;
#[cfg(feature = "otlp")]
pub mod record_messages;
