//! Events as JSON lines: `{"stream","type","data","metadata"?,"id"?,"expected"?}` going in, the
//! same with revision, position and time coming out. What is no JSON stands in hex under
//! `data_hex` and `metadata_hex`. A line that came out can go in again.

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use umbel_events::{EventId, Expected, NewEvent, RecordedEvent};

use super::args::{self, AppendArgs};
use super::time;
use crate::text;

/// A line as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    stream: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    data: Option<Box<RawValue>>,
    data_hex: Option<String>,
    metadata: Option<Box<RawValue>>,
    metadata_hex: Option<String>,
    id: Option<String>,
    expected: Option<Value>,
    #[serde(rename = "revision")]
    _revision: Option<IgnoredAny>,
    #[serde(rename = "position")]
    _position: Option<IgnoredAny>,
    #[serde(rename = "created")]
    _created: Option<IgnoredAny>,
}

/// An event to be appended.
#[derive(Debug)]
pub struct Line {
    /// Its stream.
    pub stream: String,
    /// What is expected of that.
    pub expected: Expected,
    kind: String,
    id: EventId,
    is_json: bool,
    data: Vec<u8>,
    metadata: Vec<u8>,
}

impl Line {
    /// Reads a line; the error is the reason why it is none.
    pub fn parse(
        line: &[u8],
        args: &AppendArgs,
        new_id: impl FnOnce() -> Result<EventId, umbel_events::Error>,
    ) -> Result<Line, String> {
        let written: Written = serde_json::from_slice(line).map_err(|error| {
            let text = error.to_string();
            // Every line is line 1 to the reader.
            format!("is no event: {}", text.replace("line 1 ", ""))
        })?;
        let lacks = |what: &str, flag: &str| {
            format!("has no \"{what}\"; write one, or give one for all with {flag}")
        };
        let stream = written.stream.or_else(|| args.stream.clone());
        let stream = stream.ok_or_else(|| lacks("stream", "--stream"))?;
        let kind = written.kind.or_else(|| args.kind.clone());
        let kind = kind.ok_or_else(|| lacks("type", "--type"))?;
        let id = match written.id {
            Some(id) => id.parse().map_err(|error: umbel_events::Error| error.to_string())?,
            None => new_id().map_err(|error| error.to_string())?,
        };
        let expected = match written.expected {
            Some(Value::String(text)) => args::expected(&text),
            Some(Value::Number(number)) => args::expected(&number.to_string()),
            Some(other) => Err(format!("{other} is nothing that can be expected")),
            None => Ok(args.expected),
        };
        let expected = expected.map_err(|reason| format!("\"expected\": {reason}"))?;
        let (is_json, data) = bytes("data", written.data, written.data_hex)?
            .ok_or("has no \"data\"; write JSON, or bytes in hex as \"data_hex\"")?;
        let metadata = bytes("metadata", written.metadata, written.metadata_hex)?;
        let metadata = metadata.map(|(_, bytes)| bytes).unwrap_or_default();
        Ok(Line { stream, expected, kind, id, is_json, data, metadata })
    }

    /// The event.
    pub fn event(&self) -> NewEvent<'_> {
        NewEvent {
            id: self.id,
            kind: &self.kind,
            is_json: self.is_json,
            data: &self.data,
            metadata: &self.metadata,
        }
    }

    /// The line as it is acknowledged.
    pub fn acknowledged(&self, revision: u64, position: u64) -> String {
        let event = self.event();
        Shown::new(&self.stream, &event, revision, position, None).to_line()
    }
}

/// What one of the two ways to write bytes says, and whether it is JSON.
fn bytes(
    name: &str,
    json: Option<Box<RawValue>>,
    hex: Option<String>,
) -> Result<Option<(bool, Vec<u8>)>, String> {
    match (json, hex) {
        (Some(_), Some(_)) => Err(format!("has both \"{name}\" and \"{name}_hex\"; write one")),
        (Some(json), None) => Ok(Some((true, json.get().as_bytes().to_vec()))),
        (None, Some(hex)) => match text::parse_hex(hex.as_bytes()) {
            Ok(bytes) => Ok(Some((false, bytes))),
            Err(reason) => Err(format!("\"{name}_hex\" {reason}")),
        },
        (None, None) => Ok(None),
    }
}

/// A line as it is shown.
#[derive(Debug, Serialize)]
struct Shown<'a> {
    stream: &'a str,
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data_hex: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata_hex: Option<String>,
    id: String,
    revision: u64,
    position: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    created: Option<String>,
}

/// JSON that stands on one line, as it is written.
fn as_json(bytes: &[u8]) -> Option<&RawValue> {
    let is_one_line = !bytes.iter().any(|byte| matches!(byte, b'\n' | b'\r'));
    let json: Option<&RawValue> = serde_json::from_slice(bytes).ok();
    json.filter(|json| is_one_line && json.get().len() == bytes.len())
}

impl<'a> Shown<'a> {
    fn new(
        stream: &'a str,
        event: &NewEvent<'a>,
        revision: u64,
        position: u64,
        created: Option<u64>,
    ) -> Shown<'a> {
        let data = Some(event.data).filter(|_| event.is_json).and_then(as_json);
        let metadata = as_json(event.metadata);
        let hex_of = |bytes: &[u8], is_shown: bool| (!is_shown).then(|| text::hex(bytes));
        Shown {
            stream,
            kind: event.kind,
            data,
            data_hex: hex_of(event.data, data.is_some()),
            metadata,
            metadata_hex: hex_of(event.metadata, metadata.is_some() || event.metadata.is_empty()),
            id: event.id.to_string(),
            revision,
            position,
            created: created.map(time::rfc3339),
        }
    }

    fn to_line(&self) -> String {
        // Strings, numbers and checked JSON can always be written.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// An event that was read, as a line.
pub fn of_recorded(event: &RecordedEvent) -> String {
    let new = NewEvent {
        id: event.id,
        kind: &event.kind,
        is_json: event.is_json,
        data: &event.data,
        metadata: &event.metadata,
    };
    let created = Some(event.created);
    Shown::new(&event.stream, &new, event.revision, event.position, created).to_line()
}
