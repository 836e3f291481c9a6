//! [`TelemetryLayer`]: passes the lines of the log on to the export.

use std::fmt::{Debug, Write};
use std::sync::Arc;

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use umbel_env::Env;
use umbel_server::limits::OTLP_MESSAGE_BYTES_MAX;
use umbel_server::{AttributeValue, LogRecord, TelemetryHub, TraceId};

/// Passes the lines of the log on to the export.
#[derive(Debug)]
pub struct TelemetryLayer {
    hub: Arc<TelemetryHub>,
    env: Env,
}

impl TelemetryLayer {
    /// Creates a layer for an export.
    pub fn new(hub: Arc<TelemetryHub>) -> TelemetryLayer {
        TelemetryLayer { hub, env: Env::system() }
    }

    fn add(&self, level: Level, mut fields: LineFields) {
        truncate(&mut fields.message);
        self.hub.add_log(LogRecord {
            wall_micros: self.env.clock.wall_micros(),
            level,
            message: fields.message,
            attributes: fields.attributes,
            trace: fields.trace,
        });
    }
}

impl<S: Subscriber> Layer<S> for TelemetryLayer {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let mut fields = LineFields::default();
        event.record(&mut fields);
        self.add(*event.metadata().level(), fields);
    }
}

/// Fields of a line.
#[derive(Debug, Default)]
struct LineFields {
    message: String,
    attributes: Vec<(&'static str, AttributeValue)>,
    trace: Option<TraceId>,
}

impl LineFields {
    fn add(&mut self, field: &Field, value: AttributeValue) {
        self.attributes.push((field.name(), value));
    }

    fn add_text(&mut self, field: &Field, mut text: String) {
        match field.name() {
            "message" => self.message = text,
            "trace_id" => self.trace = TraceId::from_hex(&text),
            _ => {
                truncate(&mut text);
                self.add(field, AttributeValue::Text(text));
            }
        }
    }
}

impl Visit for LineFields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let mut text = String::new();
        // Writing to a text cannot fail, unless the value's own formatting does.
        let _ = write!(text, "{value:?}");
        self.add_text(field, text);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add_text(field, value.to_string());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, AttributeValue::Integer(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        let value = i64::try_from(value)
            .map_or_else(|_| AttributeValue::Text(value.to_string()), AttributeValue::Integer);
        self.add(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, AttributeValue::Float(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, AttributeValue::Bool(value));
    }
}

/// Shortens a text to the limit, at the begin of a character.
fn truncate(text: &mut String) {
    if text.len() > OTLP_MESSAGE_BYTES_MAX {
        text.truncate(text.floor_char_boundary(OTLP_MESSAGE_BYTES_MAX));
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt;
    use umbel_server::{CollectorEndpoint, OtlpConfig, Sampler, Signal};

    use super::*;

    fn hub() -> Arc<TelemetryHub> {
        let second = std::time::Duration::from_secs(1);
        let config = OtlpConfig {
            endpoint: CollectorEndpoint::parse("http://127.0.0.1:4318").unwrap(),
            signals: vec![Signal::Logs],
            headers: Vec::new(),
            resource: Vec::new(),
            sampler: Sampler::from_name("always_off", 0.0).unwrap(),
            metric_interval: second,
            timeout: second,
            tls: None,
        };
        TelemetryHub::new(config).unwrap()
    }

    #[test]
    fn log_lines_keep_level_fields_and_trace() {
        let hub = hub();
        let registry = tracing_subscriber::registry().with(TelemetryLayer::new(Arc::clone(&hub)));
        let long = "é".repeat(OTLP_MESSAGE_BYTES_MAX);
        tracing::subscriber::with_default(registry, || {
            let trace_id = "4bf92f3577b34da6a3ce929d0e0e4736";
            let reason: Option<&str> = None;
            tracing::warn!(%trace_id, calls = 7u64, took = 1.5, reason, "a call {}", "failed");
            tracing::info!("{long}");
        });
        let lines = hub.logs.take_batch();
        let (first, second) = (&lines[0], &lines[1]);
        assert_eq!((first.level, &first.message[..]), (Level::WARN, "a call failed"));
        let wanted = [("calls", AttributeValue::Integer(7)), ("took", AttributeValue::Float(1.5))];
        assert_eq!(first.attributes, wanted);
        assert_eq!(first.trace.map(|trace| trace.0 >> 124), Some(4));
        assert_eq!(second.message.len(), OTLP_MESSAGE_BYTES_MAX);
    }
}
