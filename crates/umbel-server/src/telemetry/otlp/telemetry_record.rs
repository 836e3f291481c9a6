//! [`SpanRecord`] and [`LogRecord`]: records that wait for their export.

use tracing::Level;

use crate::telemetry::trace_context::{SpanId, TraceId};

/// Memory of a record or an attribute beside its texts, in bytes: an upper estimate.
const RECORD_BYTES: usize = 256;
const ATTRIBUTE_BYTES: usize = 64;

/// Value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub enum AttributeValue {
    /// Text.
    Text(String),
    /// Whole number.
    Integer(i64),
    /// Floating-point number.
    Float(f64),
    /// Flag.
    Bool(bool),
}

/// Names and values of a record's attributes.
pub type Attributes = Vec<(&'static str, AttributeValue)>;

/// Span of one call.
#[derive(Debug, Default)]
pub struct SpanRecord {
    /// Name of the call.
    pub name: String,
    /// The trace.
    pub trace: TraceId,
    /// The span.
    pub span: SpanId,
    /// The client's span.
    pub parent: Option<SpanId>,
    /// The header `tracestate` of the client.
    pub trace_state: String,
    /// Start in nanoseconds since 1970.
    pub start_nanos: u64,
    /// End in nanoseconds since 1970.
    pub end_nanos: u64,
    /// Attributes.
    pub attributes: Attributes,
    /// Whether the call failed because of the server.
    pub is_error: bool,
}

/// Line of the log.
#[derive(Debug)]
pub struct LogRecord {
    /// Time in microseconds since 1970.
    pub wall_micros: u64,
    /// Level of the line.
    pub level: Level,
    /// Message.
    pub message: String,
    /// Attributes.
    pub attributes: Attributes,
    /// The trace of the call that the line is about.
    pub trace: Option<TraceId>,
}

/// A record with an estimate of its memory.
pub trait QueuedRecord {
    /// Bytes of memory.
    fn memory_bytes(&self) -> usize;
}

impl QueuedRecord for SpanRecord {
    fn memory_bytes(&self) -> usize {
        RECORD_BYTES + self.name.len() + self.trace_state.len() + attribute_bytes(&self.attributes)
    }
}

impl QueuedRecord for LogRecord {
    fn memory_bytes(&self) -> usize {
        RECORD_BYTES + self.message.len() + attribute_bytes(&self.attributes)
    }
}

fn attribute_bytes(attributes: &Attributes) -> usize {
    let bytes = attributes.iter().map(|(_, value)| match value {
        AttributeValue::Text(text) => ATTRIBUTE_BYTES + text.len(),
        _ => ATTRIBUTE_BYTES,
    });
    bytes.sum()
}
