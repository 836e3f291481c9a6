//! [`NewRecord`]: an event as clients of the second protocol send it. The record's properties
//! become event metadata, in which clients of the first protocol find the properties.

use std::collections::BTreeMap;

use prost_types::Value;
use prost_types::value::Kind;
use serde_json::Number;
use tonic::Status;
use umbel_events::{EventId, NewEvent};
use umbel_proto::v2::streams::{AppendRecord, SchemaFormat, SchemaInfo};

use crate::protocol::proto_convert::ProposedEvent;
use crate::protocol::rich_status::invalid;
use crate::protocol::truncate_text::truncate_text;

/// Maximum bytes of a property name in an error message.
const PROPERTY_NAME_BYTES_MAX: usize = 100;
/// Metadata keys that the server sets.
const SCHEMA_NAME: &str = "$schema.name";
const SCHEMA_FORMAT: &str = "$schema.format";
const SCHEMA_ID: &str = "$schema.id";

/// Largest float that is written as an integer: above it, floats cannot represent every integer.
const EXACT_INTEGER_MAX: f64 = 9_007_199_254_740_992.0;

/// An event to be appended, which shares no memory with its message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRecord {
    id: EventId,
    kind: String,
    is_json: bool,
    data: Vec<u8>,
    metadata: Vec<u8>,
}

impl NewRecord {
    /// Reads a message; fails if it is no valid event. `new_id` generates the identifier if the
    /// client sent none.
    pub fn from_message(
        message: AppendRecord,
        new_id: impl FnOnce() -> Result<EventId, Status>,
    ) -> Result<NewRecord, Status> {
        let id = match message.record_id.filter(|id| !id.is_empty()) {
            Some(text) => text
                .parse()
                .map_err(|error: umbel_events::Error| invalid(format!("record_id: {error}")))?,
            None => new_id()?,
        };
        let schema = message.schema.unwrap_or_default();
        let format = match SchemaFormat::try_from(schema.format) {
            Ok(SchemaFormat::Unspecified) => {
                return Err(invalid(
                    "a record has no schema format; set JSON, PROTOBUF, AVRO or BYTES",
                ));
            }
            Ok(format) => format,
            Err(_) => {
                return Err(invalid(format!(
                    "{} is not a schema format; set JSON (1), PROTOBUF (2), AVRO (3) or BYTES (4)",
                    schema.format
                )));
            }
        };
        if schema.name.is_empty() {
            return Err(invalid("a record has no schema name, which is the event's type; set it"));
        }
        let mut metadata = build_metadata(message.properties, &schema, format)?;
        let is_json = format == SchemaFormat::Json;
        let (mut kind, mut data) = (schema.name, message.data);
        // A field that overwrote a longer one keeps its capacity, while only its length is counted.
        kind.shrink_to_fit();
        data.shrink_to_fit();
        metadata.shrink_to_fit();
        Ok(NewRecord { id, kind, is_json, data, metadata })
    }

    /// The event's identifier.
    pub fn id(&self) -> EventId {
        self.id
    }

    /// Bytes of the record's data and metadata that the limit of an event counts.
    pub fn limited_bytes(&self) -> usize {
        let event = NewEvent::binary(self.id, &self.kind, &self.data);
        event.with_metadata(&self.metadata).limited_bytes()
    }

    /// Bytes that the record holds.
    pub fn bytes(&self) -> usize {
        self.kind.len() + self.data.len() + self.metadata.len()
    }

    /// Converts the record into an event without copying its data.
    pub fn into_event(self) -> ProposedEvent {
        let NewRecord { id, kind, is_json, data, metadata } = self;
        let content = (data.into(), metadata.into());
        ProposedEvent::new(id, kind.into_boxed_str(), is_json, content)
    }
}

/// Builds the metadata of an event with these properties. The schema comes first, because the limit
/// of an event leaves it out there.
fn build_metadata(
    properties: BTreeMap<String, Value>,
    schema: &SchemaInfo,
    format: SchemaFormat,
) -> Result<Vec<u8>, Status> {
    let format = match format {
        SchemaFormat::Json => "Json",
        SchemaFormat::Protobuf => "Protobuf",
        SchemaFormat::Avro => "Avro",
        SchemaFormat::Bytes | SchemaFormat::Unspecified => "Bytes",
    };
    let id = schema.id.as_deref().filter(|id| !id.is_empty());
    let members =
        [(SCHEMA_FORMAT, Some(format)), (SCHEMA_ID, id), (SCHEMA_NAME, Some(&schema.name))];
    let mut text = vec![b'{'];
    for (key, value) in members {
        if let Some(value) = value {
            write_key(&mut text, key);
            write_json(&mut text, &value);
        }
    }
    for (key, value) in properties {
        if key == SCHEMA_FORMAT || key == SCHEMA_NAME || (key == SCHEMA_ID && id.is_some()) {
            continue;
        }
        write_key(&mut text, &key);
        write_value(&mut text, value).ok_or_else(|| {
            let name = truncate_text(&key, PROPERTY_NAME_BYTES_MAX);
            let name = name.escape_debug();
            invalid(format!("the property '{name}' has a number that is not finite"))
        })?;
    }
    text.push(b'}');
    Ok(text)
}

/// Writes a comma, unless the object begins, and a key.
fn write_key(out: &mut Vec<u8>, key: &str) {
    if out.last() != Some(&b'{') {
        out.push(b',');
    }
    write_json(out, key);
    out.push(b':');
}

/// Writes a text or number.
fn write_json(out: &mut Vec<u8>, value: &(impl serde::Serialize + ?Sized)) {
    // Writing to memory does not fail.
    let _ = serde_json::to_writer(out, value);
}

/// Writes a value as JSON; `None` if JSON cannot represent it. The limit on the depth of messages
/// also bounds the recursion of this function.
fn write_value(out: &mut Vec<u8>, value: Value) -> Option<()> {
    match value.kind {
        None | Some(Kind::NullValue(_)) => out.extend_from_slice(b"null"),
        Some(Kind::BoolValue(value)) => write_json(out, &value),
        Some(Kind::StringValue(text)) => write_json(out, &text),
        Some(Kind::NumberValue(number))
            if number.fract() == 0.0 && number.abs() <= EXACT_INTEGER_MAX =>
        {
            write_json(out, &(number as i64));
        }
        Some(Kind::NumberValue(number)) => write_json(out, &Number::from_f64(number)?),
        Some(Kind::ListValue(list)) => {
            out.push(b'[');
            for (index, value) in list.values.into_iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write_value(out, value)?;
            }
            out.push(b']');
        }
        Some(Kind::StructValue(fields)) => {
            out.push(b'{');
            for (key, value) in fields.fields {
                write_key(out, &key);
                write_value(out, value)?;
            }
            out.push(b'}');
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use prost_types::{ListValue, Struct};
    use tonic::Code;

    use super::*;

    fn value(kind: Kind) -> Value {
        Value { kind: Some(kind) }
    }

    fn number(number: f64) -> Value {
        value(Kind::NumberValue(number))
    }

    fn message(format: i32) -> AppendRecord {
        AppendRecord {
            record_id: Some("00000000-0000-1234-0000-000000000003".to_string()),
            schema: Some(SchemaInfo { format, name: "Opened".to_string(), id: None }),
            data: b"{}".to_vec(),
            ..AppendRecord::default()
        }
    }

    fn read(message: AppendRecord) -> Result<NewRecord, Status> {
        NewRecord::from_message(message, || Ok(EventId([7; 16])))
    }

    fn metadata_of(message: AppendRecord) -> String {
        String::from_utf8(read(message).unwrap().metadata).unwrap()
    }

    #[test]
    fn properties_and_schema_become_metadata() {
        let fields = [("deep".to_string(), number(-0.5))].into();
        let list = vec![value(Kind::NullValue(0)), value(Kind::BoolValue(true)), Value::default()];
        let properties = [
            ("text", value(Kind::StringValue("käse \"7\"\n".to_string()))),
            ("whole", number(3.0)),
            ("large", number(1e300)),
            ("list", value(Kind::ListValue(ListValue { values: list }))),
            ("object", value(Kind::StructValue(Struct { fields }))),
            ("$schema.name", value(Kind::StringValue("forged".to_string()))),
        ];
        let properties =
            properties.into_iter().map(|(key, value)| (key.to_string(), value)).collect();
        let metadata = metadata_of(AppendRecord { properties, ..message(1) });
        let wanted = concat!(
            r#"{"$schema.format":"Json","$schema.name":"Opened","large":1e+300,"#,
            r#""list":[null,true,null],"object":{"deep":-0.5},"text":"käse \"7\"\n","whole":3}"#
        );
        assert_eq!(metadata, wanted);
        let schema = SchemaInfo { id: Some("v7".to_string()), ..message(4).schema.unwrap() };
        let metadata = metadata_of(AppendRecord { schema: Some(schema), ..message(4) });
        let wanted = r#"{"$schema.format":"Bytes","$schema.id":"v7","$schema.name":"Opened"}"#;
        assert_eq!(metadata, wanted);
    }

    #[test]
    fn every_format_is_json_or_bytes_to_older_clients() {
        for (format, name) in [(1, "Json"), (2, "Protobuf"), (3, "Avro"), (4, "Bytes")] {
            let record = read(message(format)).unwrap();
            let event = record.into_event();
            assert_eq!(
                (event.as_new_event().kind, event.as_new_event().is_json),
                ("Opened", format == 1)
            );
            assert!(metadata_of(message(format)).contains(&format!("\"{name}\"")));
        }
    }

    /// Story: a message may contain a field twice; the second value kept the memory capacity of the
    /// first.
    #[test]
    fn record_keeps_no_capacity_of_repeated_fields() {
        let long = || "x".repeat(1 << 20);
        let schema = SchemaInfo { format: 1, name: long(), id: None };
        let before = AppendRecord { schema: Some(schema), data: long().into_bytes(), ..message(1) };
        let bytes = [before.encode_to_vec(), message(1).encode_to_vec()].concat();
        let twice = AppendRecord::decode(&bytes[..]).unwrap();
        assert!(twice == message(1) && twice.data.capacity() >= 1 << 20);
        let record = read(twice).unwrap();
        let capacities = [record.kind.capacity(), record.data.capacity()];
        assert!(capacities.iter().all(|capacity| *capacity < 1000), "{capacities:?}");
    }

    #[test]
    fn invalid_record_is_rejected_with_a_reason() {
        let not_finite = [("n".to_string(), number(f64::NAN))].into();
        let cases = [
            (AppendRecord { schema: None, ..message(1) }, "format"),
            (message(0), "format"),
            (message(5), "5 is not a schema format"),
            (message(-1), "-1 is not a schema format"),
            (
                AppendRecord { record_id: Some("7".to_string()), ..message(1) },
                "'7' is not an event id",
            ),
            (AppendRecord { properties: not_finite, ..message(1) }, "not finite"),
            (
                AppendRecord {
                    schema: Some(SchemaInfo { format: 1, ..SchemaInfo::default() }),
                    ..message(1)
                },
                "schema name",
            ),
        ];
        for (message, why) in cases {
            let status = read(message).unwrap_err();
            assert_eq!(status.code(), Code::InvalidArgument);
            assert!(status.message().contains(why), "{status:?}");
        }
    }

    #[test]
    fn missing_record_id_is_generated() {
        for record_id in [None, Some(String::new())] {
            let record = read(AppendRecord { record_id, ..message(1) }).unwrap();
            assert_eq!(record.id(), EventId([7; 16]));
        }
        assert_ne!(read(message(1)).unwrap().id(), EventId([7; 16]));
    }
}
