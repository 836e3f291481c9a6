//! Messages of OTLP for spans, log lines and the server itself.

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::logs::v1::{
    LogRecord as LogMessage, ResourceLogs, ScopeLogs, SeverityNumber,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, SpanFlags, Status};
use tracing::Level;

use crate::telemetry::otlp::telemetry_record::{AttributeValue, Attributes, LogRecord, SpanRecord};

/// Names and values as attributes.
pub fn text_attributes<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<KeyValue> {
    let pairs = pairs.into_iter();
    pairs.map(|(name, value)| attribute(name, Value::StringValue(value.to_string()))).collect()
}

/// The server as the source of all records.
pub fn resource(pairs: &[(String, String)]) -> Resource {
    let pairs = pairs.iter().map(|(name, value)| (&name[..], &value[..]));
    Resource { attributes: text_attributes(pairs), ..Resource::default() }
}

/// The part of the server that creates records.
pub fn scope() -> InstrumentationScope {
    InstrumentationScope {
        name: "umbel".to_string(),
        version: env!("CARGO_PKG_VERSION").to_string(),
        ..InstrumentationScope::default()
    }
}

/// The request that exports these spans.
pub fn spans(resource: Resource, spans: &[SpanRecord]) -> ExportTraceServiceRequest {
    let scope_spans = ScopeSpans {
        scope: Some(scope()),
        spans: spans.iter().map(span).collect(),
        ..ScopeSpans::default()
    };
    let resource_spans = ResourceSpans {
        resource: Some(resource),
        scope_spans: vec![scope_spans],
        ..ResourceSpans::default()
    };
    ExportTraceServiceRequest { resource_spans: vec![resource_spans] }
}

/// The request that exports these log lines.
pub fn logs(resource: Resource, lines: &[LogRecord]) -> ExportLogsServiceRequest {
    let scope_logs = ScopeLogs {
        scope: Some(scope()),
        log_records: lines.iter().map(log_line).collect(),
        ..ScopeLogs::default()
    };
    let resource_logs = ResourceLogs {
        resource: Some(resource),
        scope_logs: vec![scope_logs],
        ..ResourceLogs::default()
    };
    ExportLogsServiceRequest { resource_logs: vec![resource_logs] }
}

fn span(span: &SpanRecord) -> Span {
    let status =
        span.is_error.then(|| Status { code: StatusCode::Error as i32, ..Status::default() });
    let is_remote =
        SpanFlags::ContextHasIsRemoteMask as u32 | SpanFlags::ContextIsRemoteMask as u32;
    let remote = if span.parent.is_some() { is_remote } else { 0 };
    Span {
        trace_id: span.trace.0.to_be_bytes().to_vec(),
        span_id: span.span.0.to_be_bytes().to_vec(),
        trace_state: span.trace_state.clone(),
        parent_span_id: span.parent.map_or(Vec::new(), |parent| parent.0.to_be_bytes().to_vec()),
        // A span that is exported is sampled.
        flags: 1 | remote,
        name: span.name.clone(),
        kind: SpanKind::Server as i32,
        start_time_unix_nano: span.start_nanos,
        end_time_unix_nano: span.end_nanos,
        attributes: attributes(&span.attributes),
        status,
        ..Span::default()
    }
}

fn log_line(line: &LogRecord) -> LogMessage {
    let severity = match line.level {
        Level::ERROR => SeverityNumber::Error,
        Level::WARN => SeverityNumber::Warn,
        Level::INFO => SeverityNumber::Info,
        Level::DEBUG => SeverityNumber::Debug,
        _ => SeverityNumber::Trace,
    };
    let nanos = line.wall_micros.saturating_mul(1000);
    LogMessage {
        time_unix_nano: nanos,
        observed_time_unix_nano: nanos,
        severity_number: severity as i32,
        severity_text: line.level.to_string(),
        body: Some(AnyValue { value: Some(Value::StringValue(line.message.clone())) }),
        attributes: attributes(&line.attributes),
        trace_id: line.trace.map_or(Vec::new(), |trace| trace.0.to_be_bytes().to_vec()),
        ..LogMessage::default()
    }
}

fn attributes(attributes: &Attributes) -> Vec<KeyValue> {
    let attributes = attributes.iter().map(|(name, value)| {
        let value = match value {
            AttributeValue::Text(text) => Value::StringValue(text.clone()),
            AttributeValue::Integer(number) => Value::IntValue(*number),
            AttributeValue::Float(number) => Value::DoubleValue(*number),
            AttributeValue::Bool(flag) => Value::BoolValue(*flag),
        };
        attribute(name, value)
    });
    attributes.collect()
}

fn attribute(name: &str, value: Value) -> KeyValue {
    let value = Some(AnyValue { value: Some(value) });
    KeyValue { key: name.to_string(), value, ..KeyValue::default() }
}
