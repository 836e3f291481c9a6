//! [`Sieve`]: the body of a call of batches, without the events of messages over the limit.
//!
//! Who reads messages gives up a call at the first that is too long, and one call has the batches
//! of many. So such a message is read here as it goes by, nothing of it is held but what says which
//! batch it belongs to, and that goes on in its place. [`Oversized`] knows which messages these
//! are. A message that cannot be understood goes on as it is, and ends its call.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use hyper::body::{Body, Bytes, Frame};

use crate::messages::PREFIX_BYTES;
use crate::skim::Skim;

/// Which messages of a call come without their events, because they were over the limit.
#[derive(Debug, Clone, Default)]
pub struct Oversized(Arc<Mutex<VecDeque<u64>>>);

impl Oversized {
    fn add(&self, number: u64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push_back(number);
    }

    /// Whether the message with this number, counted from 0, is one of them; asked once for each,
    /// in order.
    pub fn take(&self, number: u64) -> bool {
        let mut numbers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_one = numbers.front() == Some(&number);
        if is_one {
            numbers.pop_front();
        }
        is_one
    }
}

/// The body of a call, without the events of messages over the limit.
#[derive(Debug)]
pub struct Sieve<B> {
    body: B,
    message_bytes_max: usize,
    oversized: Oversized,
    /// How many messages have gone on, the last one perhaps in part.
    messages: u64,
    at: At,
}

/// What the next byte belongs to.
#[derive(Debug)]
enum At {
    /// A message of which so many bytes are to come; or, where none are, the next prefix.
    Message(usize),
    /// A prefix of which these bytes came.
    Prefix(Vec<u8>),
    /// A message over the limit with this prefix, of which so many bytes are to come.
    Oversized([u8; PREFIX_BYTES], usize, Skim),
    /// Something that is not understood here: it goes on as it is.
    Unknown,
}

impl<B> Sieve<B> {
    /// The body, and which of its messages are over the limit once they were met.
    pub fn new(body: B, message_bytes_max: usize) -> (Sieve<B>, Oversized) {
        let oversized = Oversized::default();
        let known = oversized.clone();
        (Sieve { body, message_bytes_max, oversized, messages: 0, at: At::Message(0) }, known)
    }

    /// Whether all of these bytes go on as they are. Then they are counted as having gone.
    fn passes(&mut self, bytes: &[u8]) -> bool {
        let mut left = match &self.at {
            At::Message(left) => *left,
            At::Prefix(came) if came.is_empty() => 0,
            At::Unknown => return true,
            _ => return false,
        };
        let (mut messages, mut rest) = (self.messages, bytes);
        loop {
            let gone = left.min(rest.len());
            (left, rest) = (left - gone, &rest[gone..]);
            if rest.is_empty() {
                break;
            }
            let Some((prefix, behind)) = rest.split_first_chunk() else { return false };
            left = match length(prefix) {
                Some(bytes) if bytes <= self.message_bytes_max => bytes,
                _ => return false,
            };
            (messages, rest) = (messages + 1, behind);
        }
        (self.at, self.messages) = (At::Message(left), messages);
        true
    }

    /// What of these bytes goes on.
    fn sift(&mut self, mut bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes.len());
        let mut some = |most: usize| {
            let (some, rest) = bytes.split_at(most.min(bytes.len()));
            bytes = rest;
            some
        };
        loop {
            let is_done = match &mut self.at {
                At::Unknown => {
                    out.extend_from_slice(some(usize::MAX));
                    true
                }
                At::Message(0) => {
                    self.at = At::Prefix(Vec::with_capacity(PREFIX_BYTES));
                    false
                }
                At::Message(left) => {
                    let gone = some(*left);
                    out.extend_from_slice(gone);
                    *left -= gone.len();
                    gone.is_empty()
                }
                At::Prefix(came) => {
                    let gone = some(PREFIX_BYTES - came.len());
                    came.extend_from_slice(gone);
                    let prefix = came.first_chunk().copied();
                    if let Some(prefix) = prefix {
                        self.begin(prefix, &mut out);
                    }
                    prefix.is_none()
                }
                At::Oversized(prefix, left, skim) => {
                    let gone = some(*left);
                    skim.read(gone);
                    *left -= gone.len();
                    if *left == 0 {
                        let (prefix, kept) = (*prefix, skim.kept().map(<[u8]>::to_vec));
                        self.replace(prefix, kept, &mut out);
                    }
                    gone.is_empty()
                }
            };
            if is_done {
                return out;
            }
        }
    }

    fn begin(&mut self, prefix: [u8; PREFIX_BYTES], out: &mut Vec<u8>) {
        self.at = match length(&prefix) {
            Some(bytes) if bytes > self.message_bytes_max => {
                At::Oversized(prefix, bytes, Skim::default())
            }
            Some(bytes) => {
                self.messages += 1;
                out.extend_from_slice(&prefix);
                At::Message(bytes)
            }
            None => {
                out.extend_from_slice(&prefix);
                At::Unknown
            }
        };
    }

    /// Puts what was kept of a message in its place, or what says that it was too long.
    fn replace(&mut self, prefix: [u8; PREFIX_BYTES], kept: Option<Vec<u8>>, out: &mut Vec<u8>) {
        let Some(kept) = kept else {
            out.extend_from_slice(&prefix);
            self.at = At::Unknown;
            return;
        };
        out.push(0);
        out.extend_from_slice(&(kept.len() as u32).to_be_bytes());
        out.extend_from_slice(&kept);
        self.oversized.add(self.messages);
        self.messages += 1;
        self.at = At::Message(0);
    }

    /// What was held back where the body ends in the middle, so that its reader meets that too.
    fn rest(&mut self) -> Option<Bytes> {
        match std::mem::replace(&mut self.at, At::Unknown) {
            At::Prefix(came) if !came.is_empty() => Some(came.into()),
            At::Oversized(prefix, ..) => Some(Bytes::copy_from_slice(&prefix)),
            _ => None,
        }
    }
}

/// The length of the message behind a prefix; `None` where it is compressed or none of ours.
fn length(&[is_compressed, ref bytes @ ..]: &[u8; PREFIX_BYTES]) -> Option<usize> {
    (is_compressed == 0).then_some(u32::from_be_bytes(*bytes) as usize)
}

impl<B: Body<Data = Bytes> + Unpin> Body for Sieve<B> {
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
                None => return Poll::Ready(self.rest().map(|rest| Ok(Frame::data(rest)))),
            };
            let data = match frame.into_data() {
                Ok(data) if self.passes(&data) => data,
                Ok(data) => Bytes::from(self.sift(&data)),
                Err(other) => return Poll::Ready(Some(Ok(other))),
            };
            if !data.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
        }
    }
}

/// What goes on of bytes that come in pieces; they may end in the middle. For fuzzing only.
pub fn sifted(bytes: &[u8], piece: usize, message_bytes_max: usize) -> Vec<u8> {
    sift_all(bytes, piece, message_bytes_max).0
}

fn sift_all(bytes: &[u8], piece: usize, message_bytes_max: usize) -> (Vec<u8>, Oversized) {
    let (mut sieve, oversized) = Sieve::new((), message_bytes_max);
    let mut out = Vec::new();
    for piece in bytes.chunks(piece) {
        if sieve.passes(piece) {
            out.extend_from_slice(piece);
        } else {
            out.extend(sieve.sift(piece));
        }
    }
    out.extend(sieve.rest().unwrap_or_default());
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

    fn sifted(bytes: &[u8], piece: usize) -> (Vec<u8>, Oversized) {
        sift_all(bytes, piece, MOST)
    }

    #[test]
    fn only_messages_over_the_limit_lose_their_events_however_they_are_cut() {
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
            let (out, oversized) = sifted(&sent, piece);
            assert_eq!(out, wanted, "pieces of {piece}");
            for (number, part) in (0..).zip(&parts) {
                assert_eq!(oversized.take(number), is_over(&part), "{number}");
            }
        }
    }

    #[test]
    fn what_is_cut_off_or_not_understood_ends_the_call_as_it_would_have() {
        let large = framed(&part(1, 400));
        let (cut, oversized) = sifted(&large[..large.len() - 1], 50);
        assert_eq!(cut, large[..PREFIX_BYTES], "its reader sees that it is too long");
        assert!(!oversized.take(0));
        let (cut, _) = sifted(&large[..3], 2);
        assert_eq!(cut, large[..3]);
        let mut compressed = large.clone();
        compressed[0] = 1;
        assert_eq!(sifted(&compressed, 7).0, compressed);
        let mut nonsense = large.clone();
        nonsense[PREFIX_BYTES..].fill(0xff);
        assert_eq!(sifted(&nonsense, 60).0[..PREFIX_BYTES], nonsense[..PREFIX_BYTES]);
    }
}
