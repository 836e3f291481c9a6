//! [`Record`]: an event as clients of the second protocol send it. What they say about it besides
//! becomes its metadata, in which clients of the first protocol find it.

use std::collections::BTreeMap;

use prost_types::Value;
use prost_types::value::Kind;
use serde_json::{Map, Number};
use tonic::Status;
use umbel_events::{EventId, NewEvent};
use umbel_proto::v2::streams::{AppendRecord, SchemaFormat, SchemaInfo};

use crate::cut::cut;
use crate::rich_failure::invalid;

/// So many bytes are told of the name of a property.
const PROPERTY_SHOWN: usize = 100;
/// What the server says about an event in its metadata.
const SCHEMA_NAME: &str = "$schema.name";
const SCHEMA_FORMAT: &str = "$schema.format";
const SCHEMA_ID: &str = "$schema.id";

/// Numbers without a fraction are written as whole ones up to here: beyond it not every whole
/// number can be told from its neighbours.
const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;

/// An event to be appended, in memory of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    id: EventId,
    kind: String,
    is_json: bool,
    data: Vec<u8>,
    metadata: Vec<u8>,
}

impl Record {
    /// Reads a message; an error where it is no event. `new_id` makes the identifier where the
    /// client leaves that to the server.
    pub fn read(
        message: AppendRecord,
        new_id: impl FnOnce() -> Result<EventId, Status>,
    ) -> Result<Record, Status> {
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
                    "a record does not say the format of its data; say JSON, PROTOBUF, AVRO or \
                     BYTES",
                ));
            }
            Ok(format) => format,
            Err(_) => {
                return Err(invalid(format!(
                    "{} is no format of data; say JSON (1), PROTOBUF (2), AVRO (3) or BYTES (4)",
                    schema.format
                )));
            }
        };
        if schema.name.is_empty() {
            return Err(invalid("a record has no schema name, which is the event's type"));
        }
        let mut metadata = metadata(message.properties, &schema, format)?;
        let is_json = format == SchemaFormat::Json;
        let (mut kind, mut data) = (schema.name, message.data);
        // What came after a longer one of its kind has the memory of that, and only its own length
        // is counted.
        kind.shrink_to_fit();
        data.shrink_to_fit();
        metadata.shrink_to_fit();
        Ok(Record { id, kind, is_json, data, metadata })
    }

    /// Its identifier.
    pub fn id(&self) -> EventId {
        self.id
    }

    /// The bytes of its data and metadata, which have a limit.
    pub fn event_bytes(&self) -> usize {
        self.data.len() + self.metadata.len()
    }

    /// The bytes it holds.
    pub fn bytes(&self) -> usize {
        self.kind.len() + self.event_bytes()
    }

    /// The event as the store takes it.
    pub fn event(&self) -> NewEvent<'_> {
        NewEvent {
            id: self.id,
            kind: &self.kind,
            is_json: self.is_json,
            data: &self.data,
            metadata: &self.metadata,
        }
    }
}

/// The metadata of an event with these properties.
fn metadata(
    properties: BTreeMap<String, Value>,
    schema: &SchemaInfo,
    format: SchemaFormat,
) -> Result<Vec<u8>, Status> {
    let mut object = Map::new();
    for (key, value) in properties {
        let value = json(value).ok_or_else(|| {
            let name = cut(&key, PROPERTY_SHOWN);
            let name = name.escape_debug();
            invalid(format!("the property '{name}' has a number that is not finite"))
        })?;
        object.insert(key, value);
    }
    let format = match format {
        SchemaFormat::Json => "Json",
        SchemaFormat::Protobuf => "Protobuf",
        SchemaFormat::Avro => "Avro",
        SchemaFormat::Bytes | SchemaFormat::Unspecified => "Bytes",
    };
    object.insert(SCHEMA_NAME.to_string(), schema.name.as_str().into());
    object.insert(SCHEMA_FORMAT.to_string(), format.into());
    if let Some(id) = schema.id.as_deref().filter(|id| !id.is_empty()) {
        object.insert(SCHEMA_ID.to_string(), id.into());
    }
    Ok(serde_json::Value::Object(object).to_string().into_bytes())
}

/// A value as JSON; `None` where JSON has no word for it. How deep it may be is bounded by how
/// deep a message may be.
fn json(value: Value) -> Option<serde_json::Value> {
    Some(match value.kind {
        None | Some(Kind::NullValue(_)) => serde_json::Value::Null,
        Some(Kind::BoolValue(value)) => value.into(),
        Some(Kind::StringValue(text)) => text.into(),
        Some(Kind::NumberValue(number)) if number.fract() == 0.0 && number.abs() <= WHOLE_MAX => {
            (number as i64).into()
        }
        Some(Kind::NumberValue(number)) => Number::from_f64(number)?.into(),
        Some(Kind::ListValue(list)) => {
            list.values.into_iter().map(json).collect::<Option<Vec<_>>>()?.into()
        }
        Some(Kind::StructValue(fields)) => {
            let fields = fields.fields.into_iter();
            let object: Option<Map<_, _>> =
                fields.map(|(key, value)| Some((key, json(value)?))).collect();
            object?.into()
        }
    })
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

    fn read(message: AppendRecord) -> Result<Record, Status> {
        Record::read(message, || Ok(EventId([7; 16])))
    }

    fn metadata_of(message: AppendRecord) -> String {
        String::from_utf8(read(message).unwrap().metadata).unwrap()
    }

    #[test]
    fn properties_become_metadata_beside_the_schema() {
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
        let said = metadata_of(AppendRecord { properties, ..message(1) });
        let wanted = concat!(
            r#"{"$schema.format":"Json","$schema.name":"Opened","large":1e+300,"#,
            r#""list":[null,true,null],"object":{"deep":-0.5},"text":"käse \"7\"\n","whole":3}"#
        );
        assert_eq!(said, wanted);
        let schema = SchemaInfo { id: Some("v7".to_string()), ..message(4).schema.unwrap() };
        let said = metadata_of(AppendRecord { schema: Some(schema), ..message(4) });
        let wanted = r#"{"$schema.format":"Bytes","$schema.id":"v7","$schema.name":"Opened"}"#;
        assert_eq!(said, wanted);
    }

    #[test]
    fn every_format_is_json_or_bytes_to_older_clients() {
        for (format, name) in [(1, "Json"), (2, "Protobuf"), (3, "Avro"), (4, "Bytes")] {
            let record = read(message(format)).unwrap();
            assert_eq!((record.event().kind, record.event().is_json), ("Opened", format == 1));
            assert!(metadata_of(message(format)).contains(&format!("\"{name}\"")));
        }
    }

    /// A message may have a field twice; the second one had the memory of the first.
    #[test]
    fn a_record_keeps_nothing_of_what_came_before_its_fields() {
        let long = || "x".repeat(1 << 20);
        let schema = SchemaInfo { format: 1, name: long(), id: None };
        let before = AppendRecord { schema: Some(schema), data: long().into_bytes(), ..message(1) };
        let came = [before.encode_to_vec(), message(1).encode_to_vec()].concat();
        let twice = AppendRecord::decode(&came[..]).unwrap();
        assert!(twice == message(1) && twice.data.capacity() >= 1 << 20);
        let record = read(twice).unwrap();
        let capacities = [record.kind.capacity(), record.data.capacity()];
        assert!(capacities.iter().all(|capacity| *capacity < 1000), "{capacities:?}");
    }

    #[test]
    fn what_is_no_event_is_refused_with_a_reason() {
        let not_finite = [("n".to_string(), number(f64::NAN))].into();
        let cases = [
            (AppendRecord { schema: None, ..message(1) }, "format"),
            (message(0), "format"),
            (message(5), "5 is no format"),
            (message(-1), "-1 is no format"),
            (AppendRecord { record_id: Some("7".to_string()), ..message(1) }, "'7' is no event id"),
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
    fn an_identifier_that_is_left_out_is_made() {
        for record_id in [None, Some(String::new())] {
            let record = read(AppendRecord { record_id, ..message(1) }).unwrap();
            assert_eq!(record.id(), EventId([7; 16]));
        }
        assert_ne!(read(message(1)).unwrap().id(), EventId([7; 16]));
    }
}
