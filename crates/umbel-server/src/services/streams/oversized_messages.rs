//! [`OversizeFilter`]: the body of a batch call without the events of oversized messages.
//!
//! The decoder fails a call at the first oversized message, but one call contains many batches. So
//! [`OversizeFilter`] parses an oversized message as a stream. The filter keeps only the fields
//! that identify the batch, and passes on a message with these fields instead.
//! [`OversizedMessages`] says which messages were replaced. A message that cannot be parsed passes
//! unchanged, and fails its call.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use umbel_base::ignore_poison::IgnorePoison;

use hyper::body::{Body, Bytes, Frame};

use crate::grpc::message_stream::PREFIX_BYTES;
use crate::services::streams::batch_header_parser::BatchHeaderParser;

/// Numbers of the messages that arrive without their events, because they exceeded the limit.
#[derive(Debug, Clone, Default)]
pub struct OversizedMessages(Arc<Mutex<VecDeque<u64>>>);

impl OversizedMessages {
    fn add(&self, number: u64) {
        self.0.lock().ignore_poison().push_back(number);
    }

    /// Whether the message with this number, counted from 0, is oversized; the caller calls this
    /// once for each message, in order.
    pub fn take(&self, number: u64) -> bool {
        let mut numbers = self.0.lock().ignore_poison();
        let is_one = numbers.front() == Some(&number);
        if is_one {
            numbers.pop_front();
        }
        is_one
    }
}

/// Body of a call without the events of oversized messages.
#[derive(Debug)]
pub struct OversizeFilter<B> {
    body: B,
    message_bytes_max: usize,
    oversized: OversizedMessages,
    /// Number of messages passed on, including one that is passed in part.
    messages_passed: u64,
    position: ParsePosition,
}

/// Parser state: the part of the stream that the next byte belongs to.
#[derive(Debug)]
enum ParsePosition {
    /// A message of which this many bytes remain; 0 means the next prefix.
    Message(usize),
    /// A prefix of which these bytes have arrived.
    Prefix(Vec<u8>),
    /// An oversized message with this prefix, of which this many bytes remain.
    Oversized([u8; PREFIX_BYTES], usize, BatchHeaderParser),
    /// Unparsable bytes, which pass unchanged.
    Unknown,
}

impl<B> OversizeFilter<B> {
    /// Wraps a body; returns the filter and the numbers of the oversized messages as they occur.
    pub fn new(body: B, message_bytes_max: usize) -> (OversizeFilter<B>, OversizedMessages) {
        let oversized = OversizedMessages::default();
        let known = oversized.clone();
        (
            OversizeFilter {
                body,
                message_bytes_max,
                oversized,
                messages_passed: 0,
                position: ParsePosition::Message(0),
            },
            known,
        )
    }

    /// Whether all of these bytes pass unchanged. If so, records the bytes as passed.
    fn try_pass(&mut self, bytes: &[u8]) -> bool {
        let mut left = match &self.position {
            ParsePosition::Message(left) => *left,
            ParsePosition::Prefix(prefix_bytes) if prefix_bytes.is_empty() => 0,
            ParsePosition::Unknown => return true,
            _ => return false,
        };
        let (mut messages, mut rest) = (self.messages_passed, bytes);
        loop {
            let taken = left.min(rest.len());
            (left, rest) = (left - taken, &rest[taken..]);
            if rest.is_empty() {
                break;
            }
            let Some((prefix, after_prefix)) = rest.split_first_chunk() else { return false };
            left = match length(prefix) {
                Some(bytes) if bytes <= self.message_bytes_max => bytes,
                _ => return false,
            };
            (messages, rest) = (messages + 1, after_prefix);
        }
        (self.position, self.messages_passed) = (ParsePosition::Message(left), messages);
        true
    }

    /// Returns the bytes that pass on.
    fn filter(&mut self, mut bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes.len());
        let mut some = |max_bytes: usize| {
            let (some, rest) = bytes.split_at(max_bytes.min(bytes.len()));
            bytes = rest;
            some
        };
        loop {
            let is_done = match &mut self.position {
                ParsePosition::Unknown => {
                    out.extend_from_slice(some(usize::MAX));
                    true
                }
                ParsePosition::Message(0) => {
                    self.position = ParsePosition::Prefix(Vec::with_capacity(PREFIX_BYTES));
                    false
                }
                ParsePosition::Message(left) => {
                    let taken = some(*left);
                    out.extend_from_slice(taken);
                    *left -= taken.len();
                    taken.is_empty()
                }
                ParsePosition::Prefix(prefix_bytes) => {
                    let taken = some(PREFIX_BYTES - prefix_bytes.len());
                    prefix_bytes.extend_from_slice(taken);
                    let prefix = prefix_bytes.first_chunk().copied();
                    if let Some(prefix) = prefix {
                        self.begin_message(prefix, &mut out);
                    }
                    prefix.is_none()
                }
                ParsePosition::Oversized(prefix, left, parser) => {
                    let taken = some(*left);
                    parser.feed(taken);
                    *left -= taken.len();
                    if *left == 0 {
                        let (prefix, kept) = (*prefix, parser.header().map(<[u8]>::to_vec));
                        self.replace_message(prefix, kept, &mut out);
                    }
                    taken.is_empty()
                }
            };
            if is_done {
                return out;
            }
        }
    }

    fn begin_message(&mut self, prefix: [u8; PREFIX_BYTES], out: &mut Vec<u8>) {
        self.position = match length(&prefix) {
            Some(bytes) if bytes > self.message_bytes_max => {
                ParsePosition::Oversized(prefix, bytes, BatchHeaderParser::default())
            }
            Some(bytes) => {
                self.messages_passed += 1;
                out.extend_from_slice(&prefix);
                ParsePosition::Message(bytes)
            }
            None => {
                out.extend_from_slice(&prefix);
                ParsePosition::Unknown
            }
        };
    }

    /// Emits the kept fields of an oversized message, or a message that fails as too long.
    fn replace_message(
        &mut self,
        prefix: [u8; PREFIX_BYTES],
        kept: Option<Vec<u8>>,
        out: &mut Vec<u8>,
    ) {
        let Some(kept) = kept else {
            out.extend_from_slice(&prefix);
            self.position = ParsePosition::Unknown;
            return;
        };
        out.push(0);
        out.extend_from_slice(&(kept.len() as u32).to_be_bytes());
        out.extend_from_slice(&kept);
        self.oversized.add(self.messages_passed);
        self.messages_passed += 1;
        self.position = ParsePosition::Message(0);
    }

    /// Returns the withheld bytes of a body that ends early, so that the decoder also notices the
    /// early end.
    fn finish(&mut self) -> Option<Bytes> {
        match std::mem::replace(&mut self.position, ParsePosition::Unknown) {
            ParsePosition::Prefix(prefix_bytes) if !prefix_bytes.is_empty() => {
                Some(prefix_bytes.into())
            }
            ParsePosition::Oversized(prefix, ..) => Some(Bytes::copy_from_slice(&prefix)),
            _ => None,
        }
    }
}

/// Length of the message after a prefix; `None` if the message is compressed or the prefix is
/// malformed.
fn length(&[is_compressed, ref bytes @ ..]: &[u8; PREFIX_BYTES]) -> Option<usize> {
    (is_compressed == 0).then_some(u32::from_be_bytes(*bytes) as usize)
}

impl<B: Body<Data = Bytes> + Unpin> Body for OversizeFilter<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        loop {
            let frame = match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => frame,
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(self.finish().map(|rest| Ok(Frame::data(rest)))),
            };
            let data = match frame.into_data() {
                Ok(data) if self.try_pass(&data) => data,
                Ok(data) => Bytes::from(self.filter(&data)),
                Err(other) => return Poll::Ready(Some(Ok(other))),
            };
            if !data.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
        }
    }
}

/// Filters bytes that arrive in pieces and may end early. For fuzzing only.
pub fn filter_bytes(bytes: &[u8], piece: usize, message_bytes_max: usize) -> Vec<u8> {
    filter_all(bytes, piece, message_bytes_max).0
}

fn filter_all(
    bytes: &[u8],
    piece: usize,
    message_bytes_max: usize,
) -> (Vec<u8>, OversizedMessages) {
    let (mut oversize_filter, oversized) = OversizeFilter::new((), message_bytes_max);
    let mut out = Vec::new();
    for piece in bytes.chunks(piece) {
        if oversize_filter.try_pass(piece) {
            out.extend_from_slice(piece);
        } else {
            out.extend(oversize_filter.filter(piece));
        }
    }
    out.extend(oversize_filter.finish().unwrap_or_default());
    (out, oversized)
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use umbel_proto::shared::{Uuid, uuid};
    use umbel_proto::streams::BatchAppendReq;
    use umbel_proto::streams::append_req::ProposedMessage;

    use super::*;

    const MOST: usize = 200;

    fn part(number: usize, bytes: usize) -> BatchAppendReq {
        let event = ProposedMessage { data: vec![7; bytes].into(), ..ProposedMessage::default() };
        BatchAppendReq {
            correlation_id: Some(Uuid { value: Some(uuid::Value::String(number.to_string())) }),
            proposed_messages: vec![event; 2],
            is_final: number.is_multiple_of(2),
            ..BatchAppendReq::default()
        }
    }

    fn framed(message: &BatchAppendReq) -> Vec<u8> {
        let bytes = message.encode_to_vec();
        [&[0][..], &(bytes.len() as u32).to_be_bytes(), &bytes].concat()
    }

    fn filtered(bytes: &[u8], piece: usize) -> (Vec<u8>, OversizedMessages) {
        filter_all(bytes, piece, MOST)
    }

    #[test]
    fn only_oversized_messages_lose_their_events() {
        let sizes = [0, 10, 100, 80, 3000, 90, 101, 5];
        let parts: Vec<_> = (0..).zip(sizes).map(|(number, size)| part(number, size)).collect();
        let is_over = |part: &&BatchAppendReq| part.encoded_len() > MOST;
        assert_eq!(parts.iter().filter(is_over).count(), 3, "100 and 101 among them");
        let sent: Vec<u8> = parts.iter().flat_map(framed).collect();
        let kept = |part: &BatchAppendReq| match is_over(&part) {
            true => BatchAppendReq { proposed_messages: Vec::new(), ..part.clone() },
            false => part.clone(),
        };
        let wanted: Vec<u8> = parts.iter().map(kept).flat_map(|part| framed(&part)).collect();
        for piece in (1..40).chain([199, 200, 201, 700, sent.len()]) {
            let (out, oversized) = filtered(&sent, piece);
            assert_eq!(out, wanted, "pieces of {piece}");
            for (number, part) in (0..).zip(&parts) {
                assert_eq!(oversized.take(number), is_over(&part), "{number}");
            }
        }
    }

    #[test]
    fn truncated_and_malformed_messages_pass_through() {
        let large = framed(&part(1, 400));
        let (cut, oversized) = filtered(&large[..large.len() - 1], 50);
        assert_eq!(cut, large[..PREFIX_BYTES], "the decoder sees that it is too long");
        assert!(!oversized.take(0));
        let (cut, _) = filtered(&large[..3], 2);
        assert_eq!(cut, large[..3]);
        let mut compressed = large.clone();
        compressed[0] = 1;
        assert_eq!(filtered(&compressed, 7).0, compressed);
        let mut nonsense = large.clone();
        nonsense[PREFIX_BYTES..].fill(0xff);
        assert_eq!(filtered(&nonsense, 60).0[..PREFIX_BYTES], nonsense[..PREFIX_BYTES]);
    }
}
