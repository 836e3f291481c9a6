//! [`NewRecord`]: an event as clients of the second protocol send it. The record's properties
//! become event metadata, in which clients of the first protocol find the properties.

use std::io::Write;

use hyper::body::Bytes;
use prost::DecodeError;
use prost::bytes::Buf;
use prost::encoding::{self, DecodeContext, WireType};
use tonic::Status;
use umbel_events::EventId;
use umbel_events::limits::{EVENT_BYTES_MAX, EVENT_SCHEMA_BYTES_MAX};
use umbel_proto::v2::streams::{SchemaFormat, SchemaInfo};

use crate::limits::PROPERTY_VALUES_MAX;
use crate::protocol::json_value::{self, JsonObject, NotFinite, ValueLimit};
use crate::protocol::message_reader::{self, MessageReader};
use crate::protocol::proto_convert::{self, ProposedEvent};
use crate::protocol::rich_status::{self, invalid};
use crate::protocol::truncate_text::truncate_text;

/// Maximum bytes of a property name in an error message.
const PROPERTY_NAME_BYTES_MAX: usize = 100;
/// Metadata keys that the server sets.
const SCHEMA_NAME: &str = "$schema.name";
const SCHEMA_FORMAT: &str = "$schema.format";
const SCHEMA_ID: &str = "$schema.id";

/// Metadata longer than this is over the limit of an event, even without the schema.
const METADATA_LENGTH_MAX: usize = EVENT_BYTES_MAX + EVENT_SCHEMA_BYTES_MAX;

/// An event to be appended, as a record of the second protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRecord {
    /// The identifier; `None` if the client sent none.
    id: Option<EventId>,
    event: ProposedEvent,
}

/// Reader of an `AppendRecord`, which is a part of a message.
#[derive(Debug)]
pub struct RecordReader<'a> {
    message: &'a [u8],
    limit: ValueLimit<'a>,
    id: Bytes,
    properties: JsonObject,
    schema: SchemaInfo,
    data: Bytes,
    stream: Bytes,
}

impl MessageReader for RecordReader<'_> {
    fn read_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        bytes: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        match tag {
            1 => message_reader::read_text(wire_type, &mut self.id, bytes, context),
            2 => self.properties.read_pair(&mut self.limit, wire_type, bytes, context),
            3 => encoding::message::merge(wire_type, &mut self.schema, bytes, context),
            4 => encoding::bytes::merge(wire_type, &mut self.data, bytes, context),
            5 => message_reader::read_text(wire_type, &mut self.stream, bytes, context),
            _ => encoding::skip_field(wire_type, tag, bytes, context),
        }
    }
}

impl<'a> RecordReader<'a> {
    /// Creates the reader of a record in this message.
    pub fn new(message: &'a [u8]) -> RecordReader<'a> {
        RecordReader {
            message,
            limit: ValueLimit::new(message, PROPERTY_VALUES_MAX),
            id: Bytes::new(),
            properties: JsonObject::default(),
            schema: SchemaInfo::default(),
            data: Bytes::new(),
            stream: Bytes::new(),
        }
    }

    /// The stream that the record names; empty if it names none.
    pub fn stream(&self) -> &Bytes {
        &self.stream
    }

    /// The record; fails if it is no valid event.
    pub fn into_record(self) -> Result<NewRecord, Status> {
        let id = match message_reader::text_of(&self.id) {
            "" => None,
            text => Some(
                text.parse()
                    .map_err(|error: umbel_events::Error| invalid(format!("record_id: {error}")))?,
            ),
        };
        let RecordReader { message, mut properties, schema, data, .. } = self;
        let format = schema_format(&schema)?;
        properties.sort(message);
        let metadata = build_metadata(&properties, message, &schema, format)?;
        let is_json = format == SchemaFormat::Json;
        let content = (proto_convert::detach(data), metadata.into_boxed_slice());
        let known_id = id.unwrap_or(EventId([0; 16]));
        let event = ProposedEvent::new(known_id, schema.name.as_str().into(), is_json, content);
        Ok(NewRecord { id, event })
    }
}

impl NewRecord {
    /// The event's identifier; `None` if the client sent none.
    pub fn id(&self) -> Option<EventId> {
        self.id
    }

    /// Bytes of the record's data and metadata that the limit of an event counts.
    pub fn limited_bytes(&self) -> usize {
        self.event.as_new_event().limited_bytes()
    }

    /// Bytes that the record holds.
    pub fn bytes(&self) -> usize {
        self.event.bytes()
    }

    /// The record as an event.
    pub fn into_event(self) -> ProposedEvent {
        self.event
    }
}

fn schema_format(schema: &SchemaInfo) -> Result<SchemaFormat, Status> {
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
    Ok(format)
}

/// Builds the metadata of a record's properties. The schema comes first, because the limit of an
/// event leaves it out there.
fn build_metadata(
    properties: &JsonObject,
    message: &[u8],
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
    let members = members.iter().filter_map(|(key, value)| Some((*key, (*value)?)));
    let is_reserved = |key: &str| {
        key == SCHEMA_FORMAT || key == SCHEMA_NAME || (key == SCHEMA_ID && id.is_some())
    };
    let write = |out: &mut dyn Write| -> Result<(), Status> {
        let _ = out.write_all(b"{");
        let mut is_first = true;
        for (key, value) in members.clone() {
            json_value::write_key(out, key, &mut is_first);
            json_value::write_json(out, value);
        }
        for (key, value) in properties.pairs(message).filter(|(key, _)| !is_reserved(key)) {
            json_value::write_key(out, key, &mut is_first);
            value.write(out, message).map_err(|NotFinite| not_finite(key))?;
        }
        let _ = out.write_all(b"}");
        Ok(())
    };
    // The exact length first, so that no buffer grows.
    let mut length = ByteCounter(0);
    write(&mut length)?;
    if length.0 > METADATA_LENGTH_MAX {
        let id = String::new();
        return Err(rich_status::record_too_large("", id, length.0));
    }
    let mut text = Vec::with_capacity(length.0);
    write(&mut text)?;
    Ok(text)
}

fn not_finite(key: &str) -> Status {
    let name = truncate_text(key, PROPERTY_NAME_BYTES_MAX);
    let name = name.escape_debug();
    invalid(format!("the property '{name}' has a number that is not finite"))
}

/// Counts the bytes that are written.
struct ByteCounter(usize);

impl Write for ByteCounter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use prost_types::value::Kind;
    use prost_types::{ListValue, Struct, Value};
    use tonic::Code;
    use umbel_proto::v2::streams::AppendRecord;

    use super::*;

    const PROPERTIES: u32 = 2;

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
        read_bytes(message.encode_to_vec())
    }

    fn read_bytes(message: Vec<u8>) -> Result<NewRecord, Status> {
        let message = Bytes::from(message);
        let mut reader = RecordReader::new(&message);
        message_reader::read_message(message.clone(), &mut reader)?;
        reader.into_record()
    }

    fn metadata_of(message: AppendRecord) -> String {
        let event = read(message).unwrap().into_event();
        String::from_utf8(event.as_new_event().metadata.to_vec()).unwrap()
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

    /// Story: a message may contain a field twice. The last value counts, as for other readers.
    #[test]
    fn last_value_of_a_repeated_field_counts() {
        let schema = SchemaInfo { format: 4, name: "Other".to_string(), id: None };
        let property = |number: f64| [("n".to_string(), self::number(number))].into();
        let before = AppendRecord {
            schema: Some(schema),
            data: vec![1; 9],
            properties: property(1.0),
            ..message(1)
        };
        let after = AppendRecord { properties: property(2.0), ..message(1) };
        let bytes = [before.encode_to_vec(), after.encode_to_vec()].concat();
        assert_eq!(read_bytes(bytes).unwrap(), read(after).unwrap());
    }

    /// Story: an own limit of the depth refused values that the decoder of Protobuf accepts.
    #[test]
    fn nested_property_has_the_depth_of_any_message() {
        let nested = |depth: usize| {
            let inner = (0..depth).fold(Value::default(), |inner, _| {
                value(Kind::ListValue(ListValue { values: vec![inner] }))
            });
            AppendRecord { properties: [("p".to_string(), inner)].into(), ..message(1) }
        };
        for depth in 40..60 {
            let message = nested(depth);
            let is_decoded = AppendRecord::decode(&message.encode_to_vec()[..]).is_ok();
            assert_eq!(read(message).is_ok(), is_decoded, "{depth}");
        }
        assert!(read(nested(40)).is_ok() && read(nested(59)).is_err());
    }

    /// Story: a list of 8 million empty values has 16 MiB, and a thousand times as many bytes in
    /// a tree.
    #[test]
    fn values_of_a_record_are_limited() {
        let list = |count: usize| {
            let values = vec![Value::default(); count];
            let value = value(Kind::ListValue(ListValue { values }));
            AppendRecord { properties: [("p".to_string(), value)].into(), ..message(1) }
        };
        assert!(read(list(PROPERTY_VALUES_MAX - 1)).is_ok());
        let status = read(list(PROPERTY_VALUES_MAX)).unwrap_err();
        assert!(status.message().ends_with("more than 100000 values"), "{status:?}");
        // Pairs with the same key count, too.
        let repeated = |count: usize| {
            let mut record = message(1).encode_to_vec();
            (0..count).for_each(|_| field(&mut record, PROPERTIES, &[]));
            read_bytes(record)
        };
        assert!(repeated(PROPERTY_VALUES_MAX).is_ok());
        assert!(repeated(PROPERTY_VALUES_MAX + 1).is_err());
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
    fn missing_record_id_is_recognized() {
        for record_id in [None, Some(String::new())] {
            let record = read(AppendRecord { record_id, ..message(1) }).unwrap();
            assert_eq!(record.id(), None);
        }
        assert!(read(message(1)).unwrap().id().is_some());
    }

    /// Appends a field with a length.
    fn field(out: &mut Vec<u8>, tag: u32, content: &[u8]) {
        encoding::encode_key(tag, WireType::LengthDelimited, out);
        encoding::encode_varint(content.len() as u64, out);
        out.extend_from_slice(content);
    }

    fn pair(fields: &[(u32, &[u8])]) -> Vec<u8> {
        let mut pair = Vec::new();
        fields.iter().for_each(|(tag, content)| field(&mut pair, *tag, content));
        pair
    }

    fn number_of(number: f64) -> Vec<u8> {
        self::number(number).encode_to_vec()
    }

    /// Story: each comparison of two keys read all fields of their pairs. A message of 8 MiB with a
    /// pair of two million other fields kept a thread busy for hours.
    #[test]
    fn keys_are_found_once() {
        const PAIRS: usize = 4000;
        const OTHER_FIELDS: usize = 100_000;
        let mut long = pair(&[(1, b"k-2000-long"), (2, &number_of(1.0))]);
        (0..OTHER_FIELDS).for_each(|_| field(&mut long, 3, &[]));
        let mut record = message(1).encode_to_vec();
        for number in 0..PAIRS {
            // Neighbours in the message are no neighbours in the order.
            let key = format!("k-{:04}", number * 1009 % PAIRS);
            field(&mut record, PROPERTIES, &pair(&[(1, key.as_bytes()), (2, &number_of(2.0))]));
            if number == PAIRS / 2 {
                field(&mut record, PROPERTIES, &long);
            }
        }
        let before = message_reader::fields_read();
        let event = read_bytes(record).unwrap().into_event();
        let read = message_reader::fields_read() - before;
        // Each field once: the pair, its key, its value, and the number in the value.
        assert!(read < OTHER_FIELDS + 4 * PAIRS + 20, "{read}");
        let metadata: serde_json::Map<String, serde_json::Value> =
            serde_json::from_slice(event.as_new_event().metadata).unwrap();
        assert_eq!(metadata.len(), PAIRS + 3);
        assert_eq!(metadata["k-2000-long"], 1);
    }

    /// Story: a long key among many short ones was checked to be UTF-8 at each comparison. Only the
    /// common bytes of two keys are compared, and of equal keys the last one counts.
    #[test]
    fn last_pair_of_each_key_counts() {
        let long = "k".repeat(100_000);
        let mut record = message(4).encode_to_vec();
        let pairs: [&[(u32, &[u8])]; 9] = [
            &[],
            &[(1, b"b"), (2, &number_of(1.0))],
            &[(1, b""), (2, &number_of(2.0))],
            &[(1, long.as_bytes()), (2, &number_of(3.0))],
            &[(2, &number_of(4.0))],
            // The last key and the last value of a pair count.
            &[(1, b"x"), (2, &number_of(5.0)), (3, b"?"), (1, b"b"), (2, &number_of(6.0))],
            &[(1, b"x"), (1, b""), (2, &number_of(7.0))],
            &[(1, long.as_bytes()), (2, &number_of(8.0))],
            &[(1, b"a")],
        ];
        pairs.iter().for_each(|fields| field(&mut record, PROPERTIES, &pair(fields)));
        let event = read_bytes(record).unwrap().into_event();
        let wanted = format!(
            r#"{{"$schema.format":"Bytes","$schema.name":"Opened","":7,"a":null,"b":6,"{long}":8}}"#
        );
        assert_eq!(std::str::from_utf8(event.as_new_event().metadata).unwrap(), wanted);
    }
}
