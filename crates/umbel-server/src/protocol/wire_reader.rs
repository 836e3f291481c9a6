//! [`WireReader`]: the fields of a protobuf message, read one after another.
//!
//! A decoded tree of a message takes up to 150 times its bytes, since each element of a repeated
//! field has a fixed overhead. Messages with many elements are therefore read from their bytes, and
//! each element becomes what the store needs at once.

use prost::bytes::Buf;
use prost::encoding::{self, DecodeContext, WireType};

/// The reason why bytes are no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MalformedMessage(pub &'static str);

/// The fields of a message. Unknown groups are skipped.
#[derive(Debug, Clone)]
pub struct WireReader<'a> {
    rest: &'a [u8],
    /// Number of bytes from the beginning of the last field to the end of the message.
    field_bytes: usize,
}

/// A field of a message.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WireField<'a> {
    /// The number of the field in its definition.
    pub tag: u32,
    /// The content of the field.
    pub value: WireValue<'a>,
}

/// The content of a field.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum WireValue<'a> {
    /// An integer, a truth value or an enumerator.
    Varint(u64),
    /// Eight bytes.
    Fixed64(u64),
    /// Four bytes.
    Fixed32,
    /// A text, bytes, or a message.
    Bytes(&'a [u8]),
}

#[cfg(test)]
thread_local! {
    static FIELDS_READ: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Number of fields that this thread has read.
#[cfg(test)]
pub fn fields_read() -> usize {
    FIELDS_READ.get()
}

impl<'a> WireReader<'a> {
    /// Reads this message.
    pub fn new(message: &'a [u8]) -> WireReader<'a> {
        WireReader { rest: message, field_bytes: message.len() }
    }

    /// Number of bytes that were not read yet.
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Number of bytes from the beginning of the last field to the end of the message.
    pub fn field_bytes(&self) -> usize {
        self.field_bytes
    }

    fn read(&mut self) -> Result<Option<WireField<'a>>, MalformedMessage> {
        while !self.rest.is_empty() {
            #[cfg(test)]
            FIELDS_READ.set(FIELDS_READ.get() + 1);
            self.field_bytes = self.rest.len();
            let wrong = |_| MalformedMessage("a field has an invalid number, type or length");
            let (tag, wire_type) = encoding::decode_key(&mut self.rest).map_err(wrong)?;
            if self.rest.is_empty() {
                return Err(ENDS_WITHIN);
            }
            let value = match wire_type {
                WireType::Varint => {
                    WireValue::Varint(encoding::decode_varint(&mut self.rest).map_err(wrong)?)
                }
                WireType::LengthDelimited => {
                    let length = encoding::decode_varint(&mut self.rest).map_err(wrong)?;
                    WireValue::Bytes(self.take(length)?)
                }
                WireType::SixtyFourBit => WireValue::Fixed64(self.take(8)?.get_u64_le()),
                WireType::ThirtyTwoBit => {
                    self.take(4)?;
                    WireValue::Fixed32
                }
                WireType::StartGroup | WireType::EndGroup => {
                    let context = DecodeContext::default();
                    encoding::skip_field(wire_type, tag, &mut self.rest, context)
                        .map_err(|_| MalformedMessage("a group does not end"))?;
                    continue;
                }
            };
            return Ok(Some(WireField { tag, value }));
        }
        Ok(None)
    }

    fn take(&mut self, bytes: u64) -> Result<&'a [u8], MalformedMessage> {
        let parts = usize::try_from(bytes).ok().and_then(|bytes| self.rest.split_at_checked(bytes));
        let (taken, rest) = parts.ok_or(ENDS_WITHIN)?;
        self.rest = rest;
        Ok(taken)
    }
}

impl<'a> Iterator for WireReader<'a> {
    type Item = Result<WireField<'a>, MalformedMessage>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.read();
        if next.is_err() {
            self.rest = &[];
        }
        next.transpose()
    }
}

impl<'a> WireValue<'a> {
    /// The bytes of a field that has a length.
    pub fn bytes(self) -> Result<&'a [u8], MalformedMessage> {
        match self {
            WireValue::Bytes(bytes) => Ok(bytes),
            _ => Err(OTHER_TYPE),
        }
    }

    /// The text of a field.
    pub fn text(self) -> Result<&'a str, MalformedMessage> {
        std::str::from_utf8(self.bytes()?).map_err(|_| MalformedMessage("a text is not UTF-8"))
    }

    /// The integer of a field.
    pub fn varint(self) -> Result<u64, MalformedMessage> {
        match self {
            WireValue::Varint(number) => Ok(number),
            _ => Err(OTHER_TYPE),
        }
    }

    /// The float of a field.
    pub fn float(self) -> Result<f64, MalformedMessage> {
        match self {
            WireValue::Fixed64(bits) => Ok(f64::from_bits(bits)),
            _ => Err(OTHER_TYPE),
        }
    }
}

const ENDS_WITHIN: MalformedMessage = MalformedMessage("the message ends within a field");
const OTHER_TYPE: MalformedMessage =
    MalformedMessage("a field has another type than its definition");

/// The fields of a message that have one of these numbers, as a message of its own. Fails if they
/// take more than `bytes_max` bytes.
pub fn select_fields(
    message: &[u8],
    tags: &[u32],
    bytes_max: usize,
) -> Result<Vec<u8>, MalformedMessage> {
    let mut selected = Vec::new();
    let mut reader = WireReader::new(message);
    while let Some(field) = reader.next() {
        if tags.contains(&field?.tag) {
            let begin = message.len() - reader.field_bytes();
            let field = &message[begin..message.len() - reader.remaining()];
            if selected.len() + field.len() > bytes_max {
                return Err(MalformedMessage(
                    "the fields of a message besides its events exceed 1 MiB",
                ));
            }
            selected.extend_from_slice(field);
        }
    }
    Ok(selected)
}

/// Number of the fields of a message with this number.
pub fn count_fields(message: &[u8], tag: u32) -> Result<usize, MalformedMessage> {
    let mut count = 0;
    for field in WireReader::new(message) {
        count += usize::from(field?.tag == tag);
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tags(message: &[u8]) -> Result<Vec<u32>, MalformedMessage> {
        WireReader::new(message).map(|field| field.map(|field| field.tag)).collect()
    }

    #[test]
    fn fields_of_every_type_are_read() {
        let message = [
            &[0x08, 0x96, 0x01, 0x12, 2, b'a', b'b'][..],
            &[0x19, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f, 0x25, 1, 2, 3, 4],
            // A group with a field.
            &[0x2b, 0x08, 1, 0x2c],
            &[0x30, 0],
        ]
        .concat();
        let fields: Vec<_> = WireReader::new(&message).map(Result::unwrap).collect();
        assert_eq!(fields[0].value.varint(), Ok(150));
        assert_eq!(fields[1].value.text(), Ok("ab"));
        assert_eq!(fields[2].value.float(), Ok(1.0));
        assert_eq!(fields.iter().map(|field| field.tag).collect::<Vec<_>>(), [1, 2, 3, 4, 6]);
        assert!(fields[0].value.bytes().is_err() && fields[1].value.varint().is_err());
        assert_eq!(select_fields(&message, &[1, 6], 9).unwrap(), [0x08, 0x96, 0x01, 0x30, 0]);
        assert!(select_fields(&message, &[1, 6], 4).is_err());
        assert_eq!(count_fields(&message, 2), Ok(1));
    }

    #[test]
    fn malformed_field_ends_the_message() {
        for wrong in [&[0x0a][..], &[0x0a, 9, 1], &[0x07], &[0, 1], &[0xff; 20], &[0x2b], &[0x2c]] {
            let message = [&[0x08, 1], wrong].concat();
            assert!(tags(&message).is_err(), "{wrong:?}");
            assert_eq!(WireReader::new(&message).count(), 2, "{wrong:?}");
        }
    }
}
