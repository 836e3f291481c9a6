//! [`Skim`]: what a part of a batch says of itself, read as it goes by and without its events.

use prost::encoding::encode_varint;

/// The tags of what is kept: the batch's identifier and options, and whether this is its last part.
const CORRELATION_ID: u64 = 1 << 3 | LENGTH;
const OPTIONS: u64 = 2 << 3 | LENGTH;
const IS_FINAL: u64 = 4 << 3 | NUMBER;
/// What a tag says of the bytes behind it.
const NUMBER: u64 = 0;
const EIGHT_BYTES: u64 = 1;
const LENGTH: u64 = 2;
const FOUR_BYTES: u64 = 5;
/// No number has more bits.
const NUMBER_BITS: u32 = 64;
/// Most bytes that are kept. A stream's name has 1,024 at most, an identifier 36.
const KEPT_BYTES_MAX: usize = 4 << 10;

/// A message of which the fields are kept that are not its events.
#[derive(Debug, Default)]
pub struct Skim {
    next: Next,
    /// The number that is being read, and how many bits of it are there.
    number: u64,
    bits: u32,
    kept: Vec<u8>,
}

/// What comes next. `true` where it is kept.
#[derive(Debug, Clone, Copy, Default)]
enum Next {
    #[default]
    Tag,
    Number(bool),
    Length(bool),
    Bytes(u64, bool),
    /// Nobody knows.
    Lost,
}

impl Skim {
    /// Reads on.
    pub fn read(&mut self, mut bytes: &[u8]) {
        while let Some((first, behind)) = bytes.split_first() {
            match self.next {
                Next::Lost => return,
                Next::Bytes(left, is_kept) => {
                    let gone = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                    if is_kept {
                        self.kept.extend_from_slice(&bytes[..gone]);
                    }
                    self.skip(left - gone as u64, is_kept);
                    bytes = &bytes[gone..];
                }
                Next::Tag | Next::Number(_) | Next::Length(_) => {
                    self.read_digit(*first);
                    bytes = behind;
                }
            }
        }
    }

    /// The fields that are kept, as a message; `None` where this is none or they are too long.
    pub fn kept(&self) -> Option<&[u8]> {
        let is_whole = matches!(self.next, Next::Tag) && self.bits == 0;
        is_whole.then_some(&self.kept[..])
    }

    fn skip(&mut self, bytes: u64, is_kept: bool) {
        self.next = if bytes == 0 { Next::Tag } else { Next::Bytes(bytes, is_kept) };
    }

    fn read_digit(&mut self, digit: u8) {
        if self.bits >= NUMBER_BITS {
            self.next = Next::Lost;
            return;
        }
        self.number |= u64::from(digit & 0x7f) << self.bits;
        self.bits += 7;
        if digit & 0x80 == 0 {
            self.bits = 0;
            let number = std::mem::take(&mut self.number);
            self.take(number);
        }
    }

    fn take(&mut self, number: u64) {
        match self.next {
            Next::Tag => {
                let is_kept = matches!(number, CORRELATION_ID | OPTIONS | IS_FINAL);
                self.keep(number, is_kept);
                match number & 7 {
                    NUMBER => self.next = Next::Number(is_kept),
                    LENGTH => self.next = Next::Length(is_kept),
                    EIGHT_BYTES => self.skip(8, false),
                    FOUR_BYTES => self.skip(4, false),
                    _ => self.next = Next::Lost,
                }
            }
            Next::Number(is_kept) => {
                self.keep(number, is_kept);
                self.next = Next::Tag;
            }
            Next::Length(is_kept) => {
                self.keep(number, is_kept);
                self.skip(number, is_kept);
            }
            Next::Bytes(..) | Next::Lost => {}
        }
        let coming = match self.next {
            Next::Bytes(bytes, true) => bytes,
            _ => 0,
        };
        if coming.saturating_add(self.kept.len() as u64) > KEPT_BYTES_MAX as u64 {
            self.next = Next::Lost;
        }
    }

    fn keep(&mut self, number: u64, is_kept: bool) {
        if is_kept {
            encode_varint(number, &mut self.kept);
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
    use crate::convert;

    fn skimmed(bytes: &[u8], piece: usize) -> Option<Vec<u8>> {
        let mut skim = Skim::default();
        bytes.chunks(piece).for_each(|piece| skim.read(piece));
        skim.kept().map(<[u8]>::to_vec)
    }

    fn part(name: &str) -> BatchAppendReq {
        let duration = prost_types::Duration { seconds: i64::MAX, nanos: 999 };
        let event = ProposedMessage { data: vec![0x12; 300].into(), ..ProposedMessage::default() };
        BatchAppendReq {
            correlation_id: Some(Uuid { value: Some(uuid::Value::String("1234".to_string())) }),
            options: Some(Options {
                stream_identifier: Some(convert::identifier(name)),
                expected_stream_position: None,
                deadline_option: Some(DeadlineOption::Duration(duration)),
            }),
            proposed_messages: vec![event; 3],
            is_final: true,
        }
    }

    #[test]
    fn a_part_loses_its_events_and_nothing_else_in_whatever_order_it_is_written() {
        let part = part("cart");
        let wanted = BatchAppendReq { proposed_messages: Vec::new(), ..part.clone() };
        let (mut last, mut first) = (part.clone(), BatchAppendReq::default());
        std::mem::swap(&mut last.proposed_messages, &mut first.proposed_messages);
        let unknown = [&[0x39][..], &[1; 8], &[0x45], &[2; 4], &[0x4a, 2, 0x20, 1]].concat();
        let reversed = [first.encode_to_vec(), unknown, last.encode_to_vec()].concat();
        for bytes in [part.encode_to_vec(), reversed] {
            for piece in (1..20).chain([bytes.len()]) {
                let kept = skimmed(&bytes, piece).expect("a message");
                assert_eq!(BatchAppendReq::decode(&kept[..]).expect("a part"), wanted);
            }
        }
    }

    /// A fuzz target found it: a length near the highest number made the sum of what is kept small
    /// again, and all of a message of up to 4 GiB was held in memory.
    #[test]
    fn a_length_without_end_keeps_nothing() {
        for tag in [CORRELATION_ID, OPTIONS] {
            for length in [u64::MAX, u64::MAX - 9, 1 << 63] {
                let mut skim = Skim::default();
                let mut bytes = Vec::new();
                encode_varint(tag, &mut bytes);
                encode_varint(length, &mut bytes);
                skim.read(&bytes);
                (0..100).for_each(|_| skim.read(&[7; 1000]));
                assert!(skim.kept.len() <= KEPT_BYTES_MAX + 10, "{}", skim.kept.len());
                assert_eq!(skim.kept(), None);
            }
        }
    }

    #[test]
    fn what_is_no_message_or_would_hold_much_is_not_kept() {
        let long = part(&"n".repeat(KEPT_BYTES_MAX)).encode_to_vec();
        let whole = part("cart").encode_to_vec();
        let many = [0x20, 1].repeat(KEPT_BYTES_MAX);
        let cases: [&[u8]; 6] =
            [&long, &whole[..whole.len() - 1], &many, &[0xff; 20], &[0x0b], &[0x0a, 5, 1]];
        for bytes in cases {
            assert_eq!(skimmed(bytes, 3), None, "{:?}", &bytes[..bytes.len().min(20)]);
            let mut skim = Skim::default();
            skim.read(bytes);
            assert!(skim.kept.len() <= KEPT_BYTES_MAX + 10);
        }
        assert_eq!(skimmed(&[], 1), Some(Vec::new()));
    }
}
