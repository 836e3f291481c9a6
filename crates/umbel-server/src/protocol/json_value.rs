//! [`JsonObject`]: the values in a map of `google.protobuf.Value`, and their JSON.
//!
//! Texts stay in their message. A value takes 16 bytes, and a pair of an object 24 bytes. The
//! number of values is limited, since an empty value has 2 bytes in its message.

use std::io::Write;

use prost::DecodeError;
use prost::bytes::{Buf, Bytes};
use prost::encoding::{self, DecodeContext, WireType};
use serde_json::Number;

use crate::protocol::message_reader::{self, MessageRange, MessageReader};

/// Largest float that is written as an integer: above it, floats cannot represent every integer.
const EXACT_INTEGER_MAX: f64 = 9_007_199_254_740_992.0;

/// Bytes of a key that are compared before the keys themselves.
const PREFIX_BYTES: usize = 8;

/// Number of pairs up to which their keys are compared in the message.
const SHORT_PAIRS_MAX: usize = 32;

/// The pairs of an object.
#[derive(Debug, Default)]
pub struct JsonObject(Vec<JsonPair>);

#[derive(Debug, Default)]
struct JsonPair {
    key: MessageRange,
    value: JsonValue,
}

/// The values of a list.
#[derive(Debug, Default)]
struct JsonList(Vec<JsonValue>);

#[derive(Debug, Default)]
enum JsonValue {
    #[default]
    Null,
    Bool(bool),
    Number(f64),
    Text(MessageRange),
    List(Box<JsonList>),
    Object(Box<JsonObject>),
}

/// The message of values, and the number of values that it may still have.
#[derive(Debug)]
pub struct ValueLimit<'a> {
    message: &'a [u8],
    left: usize,
}

/// A number that JSON cannot represent.
#[derive(Debug)]
pub struct NotFinite;

impl<'a> ValueLimit<'a> {
    /// The limit of values that are parts of this message.
    pub fn new(message: &'a [u8], values_max: usize) -> ValueLimit<'a> {
        ValueLimit { message, left: values_max }
    }

    /// Counts a value.
    fn take(&mut self) -> Result<(), DecodeError> {
        let left = self.left.checked_sub(1);
        self.left = left.ok_or_else(|| {
            message_reader::error("the properties of a record have more than 100000 values")
        })?;
        Ok(())
    }

    fn read_text(
        &self,
        wire_type: WireType,
        bytes: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<MessageRange, DecodeError> {
        let mut text = Bytes::new();
        message_reader::read_text(wire_type, &mut text, bytes, context)?;
        Ok(MessageRange::of(&text, self.message))
    }
}

impl JsonObject {
    /// Reads a pair.
    ///
    /// # Errors
    /// The pair is malformed, or there are too many values.
    pub fn read_pair(
        &mut self,
        limit: &mut ValueLimit<'_>,
        wire_type: WireType,
        bytes: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        limit.take()?;
        let mut pair = JsonPair::default();
        let mut reader = PairReader { pair: &mut pair, limit };
        message_reader::read_nested(wire_type, &mut reader, bytes, context)?;
        self.0.push(pair);
        Ok(())
    }

    /// Sorts the pairs by their keys. Of equal keys, the last pair stays. Must come before the
    /// pairs are written.
    pub fn sort(&mut self, message: &[u8]) {
        let pairs = &mut self.0;
        if pairs.len() <= SHORT_PAIRS_MAX {
            pairs.sort_by_key(|pair| pair.key.bytes(message));
        } else {
            // Keys that differ at their beginning are compared without a look at the message.
            pairs.sort_by_cached_key(|pair| prefix(pair.key.bytes(message)));
            let is_same = |a: &JsonPair, b: &JsonPair| {
                prefix(a.key.bytes(message)) == prefix(b.key.bytes(message))
            };
            for same in pairs.chunk_by_mut(is_same).filter(|same| same.len() > 1) {
                same.sort_by_key(|pair| pair.key.bytes(message));
            }
        }
        pairs.dedup_by(|later, earlier| {
            let is_same = later.key.bytes(message) == earlier.key.bytes(message);
            if is_same {
                std::mem::swap(later, earlier);
            }
            is_same
        });
        pairs.iter_mut().for_each(|pair| pair.value.sort(message));
    }

    /// The pairs, as texts and values.
    pub fn pairs<'a>(
        &'a self,
        message: &'a [u8],
    ) -> impl Iterator<Item = (&'a str, PairValue<'a>)> {
        self.0.iter().map(|pair| (pair.key.text(message), PairValue(&pair.value)))
    }
}

/// The value of a pair.
#[derive(Debug, Clone, Copy)]
pub struct PairValue<'a>(&'a JsonValue);

impl PairValue<'_> {
    /// Writes the value.
    pub fn write(self, out: &mut dyn Write, message: &[u8]) -> Result<(), NotFinite> {
        self.0.write(out, message)
    }
}

/// The first bytes of a key, as a number of the same order.
fn prefix(key: &[u8]) -> u64 {
    let mut first = [0; PREFIX_BYTES];
    let bytes = key.len().min(PREFIX_BYTES);
    first[..bytes].copy_from_slice(&key[..bytes]);
    u64::from_be_bytes(first)
}

/// Writes a comma, unless the object begins, and a key.
pub fn write_key(out: &mut dyn Write, key: &str, is_first: &mut bool) {
    write_comma(out, is_first);
    write_json(out, key);
    write_bytes(out, b":");
}

/// Writes a text or number.
pub fn write_json(out: &mut dyn Write, value: &(impl serde::Serialize + ?Sized)) {
    // Writing to memory does not fail.
    let _ = serde_json::to_writer(out, value);
}

fn write_comma(out: &mut dyn Write, is_first: &mut bool) {
    if !std::mem::take(is_first) {
        write_bytes(out, b",");
    }
}

fn write_bytes(out: &mut dyn Write, bytes: &[u8]) {
    let _ = out.write_all(bytes);
}

impl JsonValue {
    fn sort(&mut self, message: &[u8]) {
        match self {
            JsonValue::List(list) => list.0.iter_mut().for_each(|value| value.sort(message)),
            JsonValue::Object(object) => object.sort(message),
            _ => {}
        }
    }

    /// Writes the value. The limit on the depth of messages also bounds this recursion.
    fn write(&self, out: &mut dyn Write, message: &[u8]) -> Result<(), NotFinite> {
        match self {
            JsonValue::Null => write_bytes(out, b"null"),
            JsonValue::Bool(value) => write_json(out, value),
            JsonValue::Text(text) => write_json(out, text.text(message)),
            JsonValue::Number(number)
                if number.fract() == 0.0 && number.abs() <= EXACT_INTEGER_MAX =>
            {
                write_json(out, &(*number as i64));
            }
            JsonValue::Number(number) => {
                write_json(out, &Number::from_f64(*number).ok_or(NotFinite)?);
            }
            JsonValue::List(list) => {
                write_bytes(out, b"[");
                let mut is_first = true;
                for value in &list.0 {
                    write_comma(out, &mut is_first);
                    value.write(out, message)?;
                }
                write_bytes(out, b"]");
            }
            JsonValue::Object(object) => {
                write_bytes(out, b"{");
                let mut is_first = true;
                for (key, value) in object.pairs(message) {
                    write_key(out, key, &mut is_first);
                    value.write(out, message)?;
                }
                write_bytes(out, b"}");
            }
        }
        Ok(())
    }
}

/// Reader of a pair of a map of values.
struct PairReader<'a, 'b> {
    pair: &'a mut JsonPair,
    limit: &'a mut ValueLimit<'b>,
}

impl MessageReader for PairReader<'_, '_> {
    fn read_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        bytes: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        let PairReader { pair, limit } = self;
        match tag {
            1 => pair.key = limit.read_text(wire_type, bytes, context)?,
            2 => {
                let mut reader = ValueReader { value: &mut pair.value, limit };
                message_reader::read_nested(wire_type, &mut reader, bytes, context)?;
            }
            _ => encoding::skip_field(wire_type, tag, bytes, context)?,
        }
        Ok(())
    }
}

/// Reader of a `google.protobuf.Value`. Of several kinds the last one counts; several objects or
/// lists in a row are merged.
struct ValueReader<'a, 'b> {
    value: &'a mut JsonValue,
    limit: &'a mut ValueLimit<'b>,
}

impl MessageReader for ValueReader<'_, '_> {
    fn read_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        bytes: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        let ValueReader { value, limit } = self;
        match tag {
            1 => {
                encoding::int32::merge(wire_type, &mut 0, bytes, context)?;
                **value = JsonValue::Null;
            }
            2 => {
                let mut number = 0.0;
                encoding::double::merge(wire_type, &mut number, bytes, context)?;
                **value = JsonValue::Number(number);
            }
            3 => **value = JsonValue::Text(limit.read_text(wire_type, bytes, context)?),
            4 => {
                let mut is_true = false;
                encoding::bool::merge(wire_type, &mut is_true, bytes, context)?;
                **value = JsonValue::Bool(is_true);
            }
            5 => {
                if !matches!(value, JsonValue::Object(_)) {
                    **value = JsonValue::Object(Box::default());
                }
                if let JsonValue::Object(object) = value {
                    let mut reader = ObjectReader { object, limit };
                    message_reader::read_nested(wire_type, &mut reader, bytes, context)?;
                }
            }
            6 => {
                if !matches!(value, JsonValue::List(_)) {
                    **value = JsonValue::List(Box::default());
                }
                if let JsonValue::List(list) = value {
                    let mut reader = ListReader { list, limit };
                    message_reader::read_nested(wire_type, &mut reader, bytes, context)?;
                }
            }
            _ => encoding::skip_field(wire_type, tag, bytes, context)?,
        }
        Ok(())
    }
}

/// Reader of a `google.protobuf.Struct`.
struct ObjectReader<'a, 'b> {
    object: &'a mut JsonObject,
    limit: &'a mut ValueLimit<'b>,
}

impl MessageReader for ObjectReader<'_, '_> {
    fn read_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        bytes: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        match tag {
            1 => self.object.read_pair(self.limit, wire_type, bytes, context),
            _ => encoding::skip_field(wire_type, tag, bytes, context),
        }
    }
}

/// Reader of a `google.protobuf.ListValue`.
struct ListReader<'a, 'b> {
    list: &'a mut JsonList,
    limit: &'a mut ValueLimit<'b>,
}

impl MessageReader for ListReader<'_, '_> {
    fn read_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        bytes: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        if tag != 1 {
            return encoding::skip_field(wire_type, tag, bytes, context);
        }
        self.limit.take()?;
        let mut value = JsonValue::Null;
        let mut reader = ValueReader { value: &mut value, limit: self.limit };
        message_reader::read_nested(wire_type, &mut reader, bytes, context)?;
        self.list.0.push(value);
        Ok(())
    }
}
