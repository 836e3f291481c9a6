//! Events as JSON lines: `{"stream","type","data","metadata"?,"id"?,"expected"?}` as input, and the
//! same fields with revision, position and time as output. Data and metadata that are no JSON are
//! in `data_hex` and `metadata_hex`. An event that is declared as JSON but whose data is not has
//! `"json":true`. A parked event also has the time and the reason of its parking. Output lines are
//! valid input lines.

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use umbel_events::{EventId, ExpectedVersion, ImportedEvent, NewEvent, RecordedEvent};

use crate::events::event_args;
use crate::events::timestamps;
use crate::text::escaping;

/// Fields of an input line.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EventInput {
    stream: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    data: Option<Box<RawValue>>,
    data_hex: Option<String>,
    json: Option<bool>,
    metadata: Option<Box<RawValue>>,
    metadata_hex: Option<String>,
    id: Option<String>,
    expected: Option<Value>,
    revision: Option<Value>,
    #[serde(rename = "position")]
    _position: Option<IgnoredAny>,
    created: Option<Value>,
    #[serde(rename = "parked")]
    _parked: Option<IgnoredAny>,
    #[serde(rename = "parked_reason")]
    _parked_reason: Option<IgnoredAny>,
}

/// Defaults for fields that an input line lacks.
#[derive(Debug)]
pub struct LineDefaults<'a> {
    /// Default stream of the events.
    pub stream: Option<&'a str>,
    /// Default type of the events.
    pub kind: Option<&'a str>,
    /// Default expected revision of the streams.
    pub expected: ExpectedVersion,
    /// Whether the command has flags for these defaults.
    pub has_flags: bool,
}

impl LineDefaults<'_> {
    /// No defaults: each line must have all required fields.
    pub const NONE: LineDefaults<'static> =
        LineDefaults { stream: None, kind: None, expected: ExpectedVersion::Any, has_flags: false };
}

/// An event to be appended.
#[derive(Debug)]
pub struct EventLine {
    /// Stream of the event.
    pub stream: String,
    /// Expected revision of the stream.
    pub expected: ExpectedVersion,
    revision: Option<Value>,
    created: Option<Value>,
    has_expected: bool,
    kind: String,
    id: EventId,
    is_json: bool,
    data: Vec<u8>,
    metadata: Vec<u8>,
}

impl EventLine {
    /// Parses a line; the error is the reason why it is invalid.
    pub fn parse(
        line: &[u8],
        defaults: &LineDefaults<'_>,
        new_id: impl FnOnce() -> Result<EventId, umbel_events::Error>,
    ) -> Result<EventLine, String> {
        if line.trim_ascii_start().starts_with(b"[") {
            // It would be taken for the values of the fields, in their order.
            return Err(
                "is not an event: the line is a JSON array, but must be an object".to_string()
            );
        }
        let written: EventInput = serde_json::from_slice(line).map_err(|error| {
            let text = error.to_string();
            // Every line is line 1 to the reader.
            format!("is not an event: {}", text.replace("line 1 ", ""))
        })?;
        let lacks = |what: &str, flag: &str| match defaults.has_flags {
            true => format!("has no \"{what}\"; add it, or set it for all lines with {flag}"),
            false => format!("has no \"{what}\"; add it"),
        };
        let says_expected = written.expected.is_some();
        let stream = written.stream.or_else(|| defaults.stream.map(str::to_string));
        let stream = stream.ok_or_else(|| lacks("stream", "--stream"))?;
        let kind = written.kind.or_else(|| defaults.kind.map(str::to_string));
        let kind = kind.ok_or_else(|| lacks("type", "--type"))?;
        let id = match written.id {
            Some(id) => id.parse().map_err(|error: umbel_events::Error| error.to_string())?,
            None => new_id().map_err(|error| error.to_string())?,
        };
        let expected = match written.expected {
            Some(Value::String(text)) => event_args::parse_expected(&text),
            Some(Value::Number(number)) => event_args::parse_expected(&number.to_string()),
            Some(other) => Err(format!("{other} is not an expected revision")),
            None => Ok(defaults.expected),
        };
        let expected = expected.map_err(|reason| format!("\"expected\": {reason}"))?;
        let (is_written_as_json, data) = decode_bytes("data", written.data, written.data_hex)?
            .ok_or("has no \"data\"; write JSON, or bytes in hex as \"data_hex\"")?;
        if is_written_as_json && written.json == Some(false) {
            return Err("has \"data\" and \"json\":false; write \"data_hex\"".to_string());
        }
        let is_json = written.json.unwrap_or(is_written_as_json);
        let metadata = decode_bytes("metadata", written.metadata, written.metadata_hex)?;
        let metadata = metadata.map(|(_, bytes)| bytes).unwrap_or_default();
        let (revision, created) = (written.revision, written.created);
        Ok(EventLine {
            stream,
            expected,
            revision,
            created,
            has_expected: says_expected,
            kind,
            id,
            is_json,
            data,
            metadata,
        })
    }

    /// Returns the event as it was in another store; the error is the reason why the line is
    /// invalid.
    pub fn imported(&self) -> Result<ImportedEvent<'_>, String> {
        if self.has_expected {
            return Err(
                "has \"expected\", which an import ignores; write the \"revision\" of the \
                 event, or use `umbel append`"
                    .to_string(),
            );
        }
        let revision = match &self.revision {
            Some(value) => Some(value.as_u64().ok_or_else(|| {
                format!(
                    "\"revision\" is {value}, but must be the number of the event in its stream"
                )
            })?),
            None => None,
        };
        let created = match &self.created {
            Some(value) => Some(value.as_str().and_then(timestamps::parse).ok_or_else(|| {
                format!(
                    "\"created\" is {value}, but must be a time in UTC such as \
                     \"2026-11-23T08:00:00Z\""
                )
            })?),
            None => None,
        };
        Ok(ImportedEvent { stream: &self.stream, revision, created, event: self.event() })
    }

    /// Returns the event to append.
    pub fn event(&self) -> NewEvent<'_> {
        NewEvent {
            id: self.id,
            kind: &self.kind,
            is_json: self.is_json,
            data: &self.data,
            metadata: &self.metadata,
        }
    }

    /// Returns the output line that acknowledges the append.
    pub fn acknowledgement(&self, revision: u64, position: u64) -> String {
        let event = self.event();
        EventOutput::new(&self.stream, &event, revision, position, None).to_line()
    }
}

/// Decodes bytes from JSON or hex, and returns whether they are JSON.
fn decode_bytes(
    name: &str,
    json: Option<Box<RawValue>>,
    hex: Option<String>,
) -> Result<Option<(bool, Vec<u8>)>, String> {
    match (json, hex) {
        (Some(_), Some(_)) => Err(format!("has both \"{name}\" and \"{name}_hex\"; write one")),
        (Some(json), None) => Ok(Some((true, json.get().as_bytes().to_vec()))),
        (None, Some(hex)) => match escaping::parse_hex(hex.as_bytes()) {
            Ok(bytes) => Ok(Some((false, bytes))),
            Err(reason) => Err(format!("\"{name}_hex\" {reason}")),
        },
        (None, None) => Ok(None),
    }
}

/// Fields of an output line.
#[derive(Debug, Serialize)]
struct EventOutput<'a> {
    stream: &'a str,
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data_hex: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    json: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata_hex: Option<String>,
    id: String,
    revision: u64,
    position: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    created: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parked: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parked_reason: Option<&'a str>,
}

/// Returns JSON text unchanged if it is on one line.
fn raw_json(bytes: &[u8]) -> Option<&RawValue> {
    let is_one_line = !bytes.iter().any(|byte| matches!(byte, b'\n' | b'\r'));
    let json: Option<&RawValue> = serde_json::from_slice(bytes).ok();
    json.filter(|json| is_one_line && json.get().len() == bytes.len())
}

impl<'a> EventOutput<'a> {
    fn new(
        stream: &'a str,
        event: &NewEvent<'a>,
        revision: u64,
        position: u64,
        created: Option<u64>,
    ) -> EventOutput<'a> {
        let data = Some(event.data).filter(|_| event.is_json).and_then(raw_json);
        let metadata = raw_json(event.metadata);
        let hex_of = |bytes: &[u8], is_shown: bool| (!is_shown).then(|| escaping::hex(bytes));
        EventOutput {
            stream,
            kind: event.kind,
            data,
            data_hex: hex_of(event.data, data.is_some()),
            json: event.is_json && data.is_none(),
            metadata,
            metadata_hex: hex_of(event.metadata, metadata.is_some() || event.metadata.is_empty()),
            id: event.id.to_string(),
            revision,
            position,
            created: created.map(timestamps::rfc3339),
            parked: None,
            parked_reason: None,
        }
    }

    /// The fields of an event that was read.
    fn of(event: &'a RecordedEvent) -> EventOutput<'a> {
        let new = NewEvent {
            id: event.id,
            kind: &event.kind,
            is_json: event.is_json,
            data: &event.data,
            metadata: &event.metadata,
        };
        let created = Some(event.created);
        EventOutput::new(&event.stream, &new, event.revision, event.position, created)
    }

    fn to_line(&self) -> String {
        // Strings, numbers and checked JSON can always be written.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// Returns the output line of an event that was read.
pub fn recorded_json(event: &RecordedEvent) -> String {
    EventOutput::of(event).to_line()
}

/// Returns the output line of a parked event. The time of its parking is in units of 100 ns since
/// 1970.
pub fn parked_json(event: &RecordedEvent, parked: u64, parked_reason: Option<&str>) -> String {
    let parked = Some(timestamps::rfc3339(parked));
    EventOutput { parked, parked_reason, ..EventOutput::of(event) }.to_line()
}
