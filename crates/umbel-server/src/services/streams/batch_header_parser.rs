//! [`BatchHeaderParser`]: extracts the fields of a batch message other than its events, from a
//! stream of bytes.

use prost::encoding::encode_varint;

/// Tags of the kept fields: the batch's identifier, its options, and the flag of its last part.
const CORRELATION_ID: u64 = 1 << 3 | WIRE_LENGTH;
const OPTIONS: u64 = 2 << 3 | WIRE_LENGTH;
const IS_FINAL: u64 = 4 << 3 | WIRE_VARINT;
/// Wire types of protobuf, which say what follows a tag.
const WIRE_VARINT: u64 = 0;
const WIRE_FIXED64: u64 = 1;
const WIRE_LENGTH: u64 = 2;
const WIRE_FIXED32: u64 = 5;
/// Maximum bits of a varint.
const VARINT_BITS: u32 = 64;
/// Maximum bytes that are kept. A stream's name has at most 1,024 bytes, an identifier 36.
const BATCH_HEADER_BYTES_MAX: usize = 4 << 10;

/// Collects the fields of a message other than its events.
#[derive(Debug, Default)]
pub struct BatchHeaderParser {
    state: ParserState,
    /// The varint that is being read, and the number of its bits so far.
    varint: u64,
    varint_bits: u32,
    header: Vec<u8>,
}

/// Parser state: the field that the next byte belongs to; `true` if the field is kept.
#[derive(Debug, Clone, Copy, Default)]
enum ParserState {
    #[default]
    Tag,
    Varint(bool),
    Length(bool),
    Bytes(u64, bool),
    /// The message is malformed.
    Malformed,
}

impl BatchHeaderParser {
    /// Parses more bytes.
    pub fn feed(&mut self, mut bytes: &[u8]) {
        while let Some((first, rest)) = bytes.split_first() {
            match self.state {
                ParserState::Malformed => return,
                ParserState::Bytes(left, is_kept) => {
                    let taken = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                    if is_kept {
                        self.header.extend_from_slice(&bytes[..taken]);
                    }
                    self.skip(left - taken as u64, is_kept);
                    bytes = &bytes[taken..];
                }
                ParserState::Tag | ParserState::Varint(_) | ParserState::Length(_) => {
                    self.read_digit(*first);
                    bytes = rest;
                }
            }
        }
    }

    /// Returns the kept fields as a message; `None` if the received message is malformed or the
    /// fields are too long.
    pub fn header(&self) -> Option<&[u8]> {
        let is_complete = matches!(self.state, ParserState::Tag) && self.varint_bits == 0;
        is_complete.then_some(&self.header[..])
    }

    fn skip(&mut self, bytes: u64, is_kept: bool) {
        self.state = if bytes == 0 { ParserState::Tag } else { ParserState::Bytes(bytes, is_kept) };
    }

    fn read_digit(&mut self, digit: u8) {
        if self.varint_bits >= VARINT_BITS {
            self.state = ParserState::Malformed;
            return;
        }
        self.varint |= u64::from(digit & 0x7f) << self.varint_bits;
        self.varint_bits += 7;
        if digit & 0x80 == 0 {
            self.varint_bits = 0;
            let number = std::mem::take(&mut self.varint);
            self.accept_varint(number);
        }
    }

    fn accept_varint(&mut self, number: u64) {
        match self.state {
            ParserState::Tag => {
                let is_kept = matches!(number, CORRELATION_ID | OPTIONS | IS_FINAL);
                self.keep_varint(number, is_kept);
                match number & 7 {
                    WIRE_VARINT => self.state = ParserState::Varint(is_kept),
                    WIRE_LENGTH => self.state = ParserState::Length(is_kept),
                    WIRE_FIXED64 => self.skip(8, false),
                    WIRE_FIXED32 => self.skip(4, false),
                    _ => self.state = ParserState::Malformed,
                }
            }
            ParserState::Varint(is_kept) => {
                self.keep_varint(number, is_kept);
                self.state = ParserState::Tag;
            }
            ParserState::Length(is_kept) => {
                self.keep_varint(number, is_kept);
                self.skip(number, is_kept);
            }
            ParserState::Bytes(..) | ParserState::Malformed => {}
        }
        let coming = match self.state {
            ParserState::Bytes(bytes, true) => bytes,
            _ => 0,
        };
        if coming.saturating_add(self.header.len() as u64) > BATCH_HEADER_BYTES_MAX as u64 {
            self.state = ParserState::Malformed;
        }
    }

    fn keep_varint(&mut self, number: u64, is_kept: bool) {
        if is_kept {
            encode_varint(number, &mut self.header);
        }
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use umbel_proto::shared::{Uuid, uuid};
    use umbel_proto::streams::BatchAppendReq;
    use umbel_proto::streams::append_req::ProposedMessage;
    use umbel_proto::streams::batch_append_req::{DeadlineOption, Options};

    use super::*;
    use crate::protocol::proto_convert;

    fn parsed_header(bytes: &[u8], piece: usize) -> Option<Vec<u8>> {
        let mut parser = BatchHeaderParser::default();
        bytes.chunks(piece).for_each(|piece| parser.feed(piece));
        parser.header().map(<[u8]>::to_vec)
    }

    fn part(name: &str) -> BatchAppendReq {
        let duration = prost_types::Duration { seconds: i64::MAX, nanos: 999 };
        let event = ProposedMessage { data: vec![0x12; 300].into(), ..ProposedMessage::default() };
        BatchAppendReq {
            correlation_id: Some(Uuid { value: Some(uuid::Value::String("1234".to_string())) }),
            options: Some(Options {
                stream_identifier: Some(proto_convert::stream_identifier(name)),
                expected_stream_position: None,
                deadline_option: Some(DeadlineOption::Deadline(duration)),
            }),
            proposed_messages: vec![event; 3],
            is_final: true,
        }
    }

    #[test]
    fn parser_drops_only_events_in_any_field_order() {
        let part = part("cart");
        let wanted = BatchAppendReq { proposed_messages: Vec::new(), ..part.clone() };
        let (mut last, mut first) = (part.clone(), BatchAppendReq::default());
        std::mem::swap(&mut last.proposed_messages, &mut first.proposed_messages);
        let unknown = [&[0x39][..], &[1; 8], &[0x45], &[2; 4], &[0x4a, 2, 0x20, 1]].concat();
        let reversed = [first.encode_to_vec(), unknown, last.encode_to_vec()].concat();
        for bytes in [part.encode_to_vec(), reversed] {
            for piece in (1..20).chain([bytes.len()]) {
                let kept = parsed_header(&bytes, piece).expect("a message");
                assert_eq!(BatchAppendReq::decode(&kept[..]).expect("a part"), wanted);
            }
        }
    }

    /// Found by a fuzz target: a length near the highest number overflowed the sum of the kept
    /// bytes. Because of the overflow, a message of up to 4 GiB was held in memory.
    #[test]
    fn overflowing_length_keeps_no_bytes() {
        for tag in [CORRELATION_ID, OPTIONS] {
            for length in [u64::MAX, u64::MAX - 9, 1 << 63] {
                let mut parser = BatchHeaderParser::default();
                let mut bytes = Vec::new();
                encode_varint(tag, &mut bytes);
                encode_varint(length, &mut bytes);
                parser.feed(&bytes);
                (0..100).for_each(|_| parser.feed(&[7; 1000]));
                assert!(
                    parser.header.len() <= BATCH_HEADER_BYTES_MAX + 10,
                    "{}",
                    parser.header.len()
                );
                assert_eq!(parser.header(), None);
            }
        }
    }

    #[test]
    fn malformed_or_large_headers_are_not_kept() {
        let long = part(&"n".repeat(BATCH_HEADER_BYTES_MAX)).encode_to_vec();
        let complete = part("cart").encode_to_vec();
        let many = [0x20, 1].repeat(BATCH_HEADER_BYTES_MAX);
        let cases: [&[u8]; 6] =
            [&long, &complete[..complete.len() - 1], &many, &[0xff; 20], &[0x0b], &[0x0a, 5, 1]];
        for bytes in cases {
            assert_eq!(parsed_header(bytes, 3), None, "{:?}", &bytes[..bytes.len().min(20)]);
            let mut parser = BatchHeaderParser::default();
            parser.feed(bytes);
            assert!(parser.header.len() <= BATCH_HEADER_BYTES_MAX + 10);
        }
        assert_eq!(parsed_header(&[], 1), Some(Vec::new()));
    }
}
