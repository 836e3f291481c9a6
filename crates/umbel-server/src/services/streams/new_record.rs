//! [`NewRecord`]: an event as clients of the second protocol send it. The record's properties
//! become event metadata, in which clients of the first protocol find the properties.

use std::io::Write;
use std::num::NonZeroU32;

use hyper::body::Bytes;
use prost::Message;
use serde_json::Number;
use tonic::Status;
use umbel_events::EventId;
use umbel_events::limits::{EVENT_BYTES_MAX, EVENT_SCHEMA_BYTES_MAX};
use umbel_proto::v2::streams::{SchemaFormat, SchemaInfo};

use crate::protocol::proto_convert::{self, EventError, ProposedEvent};
use crate::protocol::rich_status::{self, invalid};
use crate::protocol::truncate_text::truncate_text;
use crate::protocol::wire_reader::{MalformedMessage, WireField, WireReader, WireValue};

/// Maximum bytes of a property name in an error message.
const PROPERTY_NAME_BYTES_MAX: usize = 100;
/// Metadata keys that the server sets.
const SCHEMA_NAME: &str = "$schema.name";
const SCHEMA_FORMAT: &str = "$schema.format";
const SCHEMA_ID: &str = "$schema.id";

/// Largest float that is written as an integer: above it, floats cannot represent every integer.
const EXACT_INTEGER_MAX: f64 = 9_007_199_254_740_992.0;

/// Metadata longer than this is over the limit of an event, even without the schema.
const METADATA_LENGTH_MAX: usize = EVENT_BYTES_MAX + EVENT_SCHEMA_BYTES_MAX;
/// Depth of values in values: each level takes two of the hundred levels of a message.
const VALUE_DEPTH_MAX: usize = 48;

/// An event to be appended, as a record of the second protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRecord {
    /// The identifier; `None` if the client sent none.
    id: Option<EventId>,
    event: ProposedEvent,
}

/// Numbers of the fields of `AppendRecord`.
const RECORD_ID: u32 = 1;
const PROPERTIES: u32 = 2;
const SCHEMA: u32 = 3;
const DATA: u32 = 4;

impl NewRecord {
    /// Number of the field with the stream of a record.
    pub const STREAM: u32 = 5;

    /// Reads the bytes of an `AppendRecord`, which are a part of `message`. Fails if they are
    /// malformed or no valid event.
    pub fn from_wire(message: &Bytes, record: &[u8]) -> Result<NewRecord, EventError> {
        let (mut id, mut schema, mut data) = ("", SchemaInfo::default(), &[][..]);
        for field in WireReader::new(record) {
            let WireField { tag, value } = field?;
            match tag {
                RECORD_ID => id = value.text()?,
                // A second schema adds its fields to the first one.
                SCHEMA => schema
                    .merge(value.bytes()?)
                    .map_err(|_| MalformedMessage("the schema of a record is malformed"))?,
                DATA => data = value.bytes()?,
                _ => {}
            }
        }
        let id = match id {
            "" => None,
            text => Some(text.parse().map_err(|error: umbel_events::Error| {
                EventError::Invalid(invalid(format!("record_id: {error}")))
            })?),
        };
        let format = schema_format(&schema).map_err(EventError::Invalid)?;
        let metadata = build_metadata(record, &schema, format)?;
        let is_json = format == SchemaFormat::Json;
        let content = (proto_convert::detach(message, data), metadata.into_boxed_slice());
        let known_id = id.unwrap_or(EventId([0; 16]));
        let event = ProposedEvent::new(known_id, schema.name.as_str().into(), is_json, content);
        Ok(NewRecord { id, event })
    }

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
    record: &[u8],
    schema: &SchemaInfo,
    format: SchemaFormat,
) -> Result<Vec<u8>, EventError> {
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
    let pairs = JsonMap::read(record, PROPERTIES)?;
    let write = |out: &mut dyn Write| -> Result<(), EventError> {
        let _ = out.write_all(b"{");
        let mut is_first = true;
        for (key, value) in members.clone() {
            write_key(out, key, &mut is_first);
            write_json(out, value);
        }
        for pair in &pairs.pairs {
            let (key, value) = pairs.content(*pair)?;
            if is_reserved(key) {
                continue;
            }
            write_key(out, key, &mut is_first);
            write_value(out, value, 0).map_err(|error| error.of_property(key))?;
        }
        let _ = out.write_all(b"}");
        Ok(())
    };
    // The exact length first, so that no buffer grows.
    let mut length = ByteCounter(0);
    write(&mut length)?;
    if length.0 > METADATA_LENGTH_MAX {
        let id = String::new();
        return Err(EventError::Invalid(rich_status::record_too_large("", id, length.0)));
    }
    let mut text = Vec::with_capacity(length.0);
    write(&mut text)?;
    Ok(text)
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

/// The reason why a value has no JSON.
enum ValueError {
    Malformed(MalformedMessage),
    NotFinite,
}

impl From<MalformedMessage> for ValueError {
    fn from(why: MalformedMessage) -> ValueError {
        ValueError::Malformed(why)
    }
}

impl ValueError {
    fn of_property(self, key: &str) -> EventError {
        match self {
            ValueError::Malformed(why) => EventError::Malformed(why),
            ValueError::NotFinite => {
                let name = truncate_text(key, PROPERTY_NAME_BYTES_MAX);
                let name = name.escape_debug();
                EventError::Invalid(invalid(format!(
                    "the property '{name}' has a number that is not finite"
                )))
            }
        }
    }
}

/// The pairs of a map in a message, by their keys. Of a repeated key, the last pair counts.
struct JsonMap<'a> {
    message: &'a [u8],
    pairs: Vec<JsonPair>,
}

/// The offsets of a pair's fields in the message, which take less memory than references. The
/// fields are found once: a client may hide them among a million other fields of the pair.
#[derive(Clone, Copy)]
struct JsonPair {
    /// The field with the key; `None` if the key is empty.
    key: Option<NonZeroU32>,
    value: Option<NonZeroU32>,
}

impl<'a> JsonMap<'a> {
    /// Reads the map in the field with this number.
    fn read(message: &'a [u8], tag: u32) -> Result<JsonMap<'a>, MalformedMessage> {
        // The last pair with an empty key. There may be millions of them, of two bytes each.
        let mut empty_key = None;
        let mut count = 0;
        for_each_pair(message, tag, |pair| match pair.key {
            Some(_) => count += 1,
            None => empty_key = Some(pair),
        })?;
        let mut pairs = Vec::with_capacity(count + usize::from(empty_key.is_some()));
        pairs.extend(empty_key);
        for_each_pair(message, tag, |pair| pairs.extend(Some(pair).filter(|it| it.key.is_some())))?;
        let mut map = JsonMap { message, pairs: Vec::new() };
        // Of equal keys, the last one comes first.
        pairs.sort_unstable_by(|a, b| map.key(*a).cmp(map.key(*b)).then(b.key.cmp(&a.key)));
        pairs.dedup_by(|removed, kept| map.key(*removed) == map.key(*kept));
        map.pairs = pairs;
        Ok(map)
    }

    /// The key of a pair. Keys are compared as bytes, which have the order of their texts.
    fn key(&self, pair: JsonPair) -> &'a [u8] {
        // Malformed fields were refused before.
        self.field(pair.key).unwrap_or_default()
    }

    /// The key and the bytes of the value of a pair.
    fn content(&self, pair: JsonPair) -> Result<(&'a str, &'a [u8]), MalformedMessage> {
        Ok((WireValue::Bytes(self.key(pair)).text()?, self.field(pair.value)?))
    }

    /// The bytes of the field at an offset.
    fn field(&self, offset: Option<NonZeroU32>) -> Result<&'a [u8], MalformedMessage> {
        let Some(offset) = offset else { return Ok(&[]) };
        match WireReader::new(&self.message[offset.get() as usize..]).next() {
            Some(field) => field?.value.bytes(),
            None => Ok(&[]),
        }
    }
}

/// Hands each pair of the map in the field with this number to `handle`.
fn for_each_pair(
    message: &[u8],
    tag: u32,
    mut handle: impl FnMut(JsonPair),
) -> Result<(), MalformedMessage> {
    let mut reader = WireReader::new(message);
    while let Some(field) = reader.next() {
        let field = field?;
        if field.tag != tag {
            continue;
        }
        let end = message.len() - reader.remaining();
        let mut fields = WireReader::new(field.value.bytes()?);
        let mut pair = JsonPair { key: None, value: None };
        while let Some(field) = fields.next() {
            let field = field?;
            // A message has less than 4 GiB, and no field of a pair begins at offset 0.
            let offset = NonZeroU32::new((end - fields.field_bytes()) as u32);
            match field {
                WireField { tag: 1, value } => {
                    let is_empty = value.text()?.is_empty();
                    pair.key = offset.filter(|_| !is_empty);
                }
                WireField { tag: 2, value } => {
                    value.bytes()?;
                    pair.value = offset;
                }
                _ => {}
            }
        }
        handle(pair);
    }
    Ok(())
}

/// Writes a comma, unless the object begins, and a key.
fn write_key(out: &mut dyn Write, key: &str, is_first: &mut bool) {
    if !std::mem::take(is_first) {
        let _ = out.write_all(b",");
    }
    write_json(out, key);
    let _ = out.write_all(b":");
}

/// Writes a text or number.
fn write_json(out: &mut dyn Write, value: &(impl serde::Serialize + ?Sized)) {
    // Writing to memory does not fail.
    let _ = serde_json::to_writer(out, value);
}

/// Writes the bytes of a `google.protobuf.Value` as JSON. Of several kinds the last one counts.
fn write_value(out: &mut dyn Write, value: &[u8], depth: usize) -> Result<(), ValueError> {
    if depth > VALUE_DEPTH_MAX {
        return Err(MalformedMessage("a property is nested too deeply").into());
    }
    let kind = WireReader::new(value).try_fold(None, |kind, field| {
        let field = field?;
        Ok::<_, MalformedMessage>(if (1..=6).contains(&field.tag) { Some(field) } else { kind })
    })?;
    match kind {
        None | Some(WireField { tag: 1, value: WireValue::Varint(_) }) => write_bytes(out, b"null"),
        Some(WireField { tag: 2, value }) => write_number(out, value.float()?)?,
        Some(WireField { tag: 3, value }) => write_json(out, value.text()?),
        Some(WireField { tag: 4, value }) => write_json(out, &(value.varint()? != 0)),
        Some(WireField { tag: 5, value }) => write_struct(out, value.bytes()?, depth)?,
        Some(WireField { value, .. }) => write_list(out, value.bytes()?, depth)?,
    }
    Ok(())
}

fn write_bytes(out: &mut dyn Write, bytes: &[u8]) {
    let _ = out.write_all(bytes);
}

fn write_number(out: &mut dyn Write, number: f64) -> Result<(), ValueError> {
    if number.fract() == 0.0 && number.abs() <= EXACT_INTEGER_MAX {
        write_json(out, &(number as i64));
    } else {
        write_json(out, &Number::from_f64(number).ok_or(ValueError::NotFinite)?);
    }
    Ok(())
}

fn write_struct(out: &mut dyn Write, fields: &[u8], depth: usize) -> Result<(), ValueError> {
    let pairs = JsonMap::read(fields, 1)?;
    write_bytes(out, b"{");
    let mut is_first = true;
    for pair in &pairs.pairs {
        let (key, value) = pairs.content(*pair)?;
        write_key(out, key, &mut is_first);
        write_value(out, value, depth + 1)?;
    }
    write_bytes(out, b"}");
    Ok(())
}

fn write_list(out: &mut dyn Write, list: &[u8], depth: usize) -> Result<(), ValueError> {
    write_bytes(out, b"[");
    let mut is_first = true;
    for field in WireReader::new(list) {
        if let WireField { tag: 1, value } = field? {
            if !std::mem::take(&mut is_first) {
                write_bytes(out, b",");
            }
            write_value(out, value.bytes()?, depth + 1)?;
        }
    }
    write_bytes(out, b"]");
    Ok(())
}

#[cfg(test)]
mod tests {
    use prost_types::value::Kind;
    use prost_types::{ListValue, Struct, Value};
    use tonic::Code;
    use umbel_proto::v2::streams::AppendRecord;

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
        read_bytes(message.encode_to_vec())
    }

    fn read_bytes(message: Vec<u8>) -> Result<NewRecord, Status> {
        let message = Bytes::from(message);
        NewRecord::from_wire(&message, &message).map_err(|error| match error {
            EventError::Invalid(status) => status,
            EventError::Malformed(why) => panic!("{why:?}"),
        })
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

    /// Story: lists in lists take two levels of a message each, of which a decoder follows 100.
    #[test]
    fn deeply_nested_property_is_refused() {
        let nested = |depth: usize| {
            let inner = (0..depth).fold(Value::default(), |inner, _| {
                value(Kind::ListValue(ListValue { values: vec![inner] }))
            });
            AppendRecord { properties: [("p".to_string(), inner)].into(), ..message(1) }
        };
        assert!(read(nested(VALUE_DEPTH_MAX)).is_ok());
        let bytes = Bytes::from(nested(VALUE_DEPTH_MAX + 1).encode_to_vec());
        assert!(matches!(NewRecord::from_wire(&bytes, &bytes), Err(EventError::Malformed(_))));
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
        prost::encoding::encode_key(tag, prost::encoding::WireType::LengthDelimited, out);
        prost::encoding::encode_varint(content.len() as u64, out);
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
        let before = crate::protocol::wire_reader::fields_read();
        let event = read_bytes(record).unwrap().into_event();
        let read = crate::protocol::wire_reader::fields_read() - before;
        // Twelve comparisons of each key, and four passes.
        assert!(read < 4 * OTHER_FIELDS + 60 * PAIRS, "{read}");
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
