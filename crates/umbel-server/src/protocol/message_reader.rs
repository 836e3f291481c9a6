//! [`MessageReader`]: the fields of a protobuf message, handled one after another.
//!
//! A decoded tree of a message takes up to 150 times its bytes, since each element of a repeated
//! field has a fixed overhead. A reader turns each element into what the store needs at once.
//!
//! The decoder of prost calls the reader. So lengths, wire types, unknown fields, groups and the
//! depth of messages have the rules of every other message. Each message is read in one pass.

use std::ops::Range;

use prost::bytes::{Buf, BufMut, Bytes};
use prost::encoding::{self, DecodeContext, WireType};
use prost::{DecodeError, Message};
use tonic::Status;

use crate::protocol::grpc_status;

/// A reader of the fields of one message.
pub trait MessageReader: Send + Sync {
    /// Reads the content of the field with this number.
    ///
    /// # Errors
    /// The content is malformed.
    fn read_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        bytes: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError>;
}

#[cfg(test)]
thread_local! {
    static FIELDS_READ: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Number of fields that readers on this thread have read.
#[cfg(test)]
pub fn fields_read() -> usize {
    FIELDS_READ.get()
}

/// A reader in the form that the decoder takes.
struct Decoded<'a, R>(&'a mut R);

impl<R: MessageReader> Message for Decoded<'_, R> {
    fn encode_raw(&self, _: &mut impl BufMut) {}

    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        bytes: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        #[cfg(test)]
        FIELDS_READ.set(FIELDS_READ.get() + 1);
        self.0.read_field(tag, wire_type, bytes, context)
    }

    fn encoded_len(&self) -> usize {
        0
    }

    fn clear(&mut self) {}
}

/// Hands each field of a message to its reader.
///
/// # Errors
/// The message is malformed.
pub fn read_message(message: Bytes, reader: &mut impl MessageReader) -> Result<(), Status> {
    Decoded(reader).merge(message).map_err(malformed)
}

/// The status of a malformed message.
pub fn malformed(error: DecodeError) -> Status {
    grpc_status::malformed_message(&error.to_string())
}

/// Hands each field of a nested message to its reader. The same reader merges several messages.
///
/// # Errors
/// The nested message is malformed.
pub fn read_nested(
    wire_type: WireType,
    reader: &mut impl MessageReader,
    bytes: &mut impl Buf,
    context: DecodeContext,
) -> Result<(), DecodeError> {
    encoding::message::merge(wire_type, &mut Decoded(reader), bytes, context)
}

/// Skips a nested message.
///
/// # Errors
/// The field is no message.
pub fn skip_nested(
    tag: u32,
    wire_type: WireType,
    bytes: &mut impl Buf,
    context: DecodeContext,
) -> Result<(), DecodeError> {
    encoding::check_wire_type(WireType::LengthDelimited, wire_type)?;
    encoding::skip_field(wire_type, tag, bytes, context)
}

/// Reads a text without copying it out of its message.
///
/// # Errors
/// The text is not UTF-8.
pub fn read_text(
    wire_type: WireType,
    text: &mut Bytes,
    bytes: &mut impl Buf,
    context: DecodeContext,
) -> Result<(), DecodeError> {
    encoding::bytes::merge(wire_type, text, bytes, context)?;
    match std::str::from_utf8(text) {
        Ok(_) => Ok(()),
        Err(_) => Err(error("a text is not UTF-8")),
    }
}

/// A text that [`read_text`] has read.
pub fn text_of(text: &[u8]) -> &str {
    std::str::from_utf8(text).unwrap_or_default()
}

/// Length of the field that comes next, as the message states it.
pub fn next_length(bytes: &impl Buf) -> usize {
    // The bytes of a whole message are in one piece.
    let length = encoding::decode_varint(&mut bytes.chunk()).unwrap_or(0);
    usize::try_from(length).unwrap_or(usize::MAX)
}

/// An error of the decoder with this reason.
#[expect(deprecated, reason = "the decoder has no other error for implementations of messages")]
pub fn error(reason: &'static str) -> DecodeError {
    DecodeError::new(reason)
}

/// Number of fields with this number in a message, of those before the first malformed one.
pub fn count_fields(mut message: &[u8], tag: u32) -> usize {
    let mut count = 0;
    while let Ok((field, wire_type)) = encoding::decode_key(&mut message) {
        let context = DecodeContext::default();
        if encoding::skip_field(wire_type, field, &mut message, context).is_err() {
            break;
        }
        count += usize::from(field == tag);
    }
    count
}

/// Offsets of a part of a message, which take less memory than a reference.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MessageRange {
    start: u32,
    end: u32,
}

impl MessageRange {
    /// The offsets of a part of a message.
    pub fn of(part: &[u8], message: &[u8]) -> MessageRange {
        if part.is_empty() {
            return MessageRange::default();
        }
        // A message has less than 4 GiB.
        let start = (part.as_ptr() as usize).wrapping_sub(message.as_ptr() as usize) as u32;
        MessageRange { start, end: start.wrapping_add(part.len() as u32) }
    }

    /// The part of the message.
    pub fn bytes(self, message: &[u8]) -> &[u8] {
        let range: Range<usize> = self.start as usize..self.end as usize;
        message.get(range).unwrap_or_default()
    }

    /// The part of the message as a text that [`read_text`] has read.
    pub fn text(self, message: &[u8]) -> &str {
        text_of(self.bytes(message))
    }
}
