//! [`RequestBody`]: the body of a request, which fails where the request is truncated.
//!
//! The body solves three problems:
//!
//! - The decoder buffers a message while it arrives; a client can send it slowly or never finish
//!   it. All partial messages together stay within a quota, and each has a deadline.
//! - An HTTP/2 stream may end with a reset without an error, sent by the client or because the
//!   connection closes. Decoders take such a reset for the end of the body, and would write half of
//!   an append as all of it. [`RequestBody`] reports an error instead.
//! - A server can respond before it has read all of the request, and a client that is still sending
//!   then loses the response. So the server reads and discards the remaining bytes before it ends
//!   the response.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;
use umbel_base::ignore_poison::IgnorePoison;

use http_body_util::BodyExt;
use hyper::Request;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use tokio::time::{Instant, Sleep, sleep, timeout_at};
use tonic::Status;
use umbel_proto::limits::MESSAGE_BYTES_MAX;

use crate::grpc::grpc_decoder::PREFIX_BYTES;
use crate::limits::{
    DISCARD_BYTES_MAX, DISCARD_IDLE_TIME, DISCARD_MESSAGE_GAP, DISCARD_TIME, MESSAGE_EXTRA_TIME,
    RECEIVE_BYTES_FREE,
};
use crate::protocol::grpc_status;
use crate::resources::inbound_quota::{InboundQuota, QuotaShare};
use crate::server_context::ServerContext;

/// The body of a request. Reading the body fails if the request is truncated.
#[derive(Debug)]
pub struct RequestBody {
    /// The received body; `None` once it has moved to [`UnreadBody`].
    body: Option<Incoming>,
    position: FramePosition,
    partial: PartialMessageTracker,
    unread: UnreadBody,
}

/// Tracks the quota and deadline of a partial message.
#[derive(Debug)]
struct PartialMessageTracker {
    quota: Arc<InboundQuota>,
    /// Maximum time for which a message may stay incomplete.
    timeout: Duration,
    /// The partial message; `None` between messages.
    message: Option<PartialMessage>,
    /// The quota share of the last complete message. Until the next poll, the message is decoded.
    complete: Option<QuotaShare>,
}

#[derive(Debug)]
struct PartialMessage {
    share: QuotaShare,
    /// The bytes of the share.
    bytes: usize,
    deadline: Pin<Box<Sleep>>,
}

/// The unread remainder of a request whose [`RequestBody`] was dropped.
#[derive(Debug, Clone, Default)]
pub struct UnreadBody(Arc<Mutex<Option<(Incoming, FramePosition)>>>);

/// The position of a body within its messages.
#[derive(Debug, Clone)]
enum FramePosition {
    /// A body without gRPC messages whose end HTTP/1.1 shows.
    Delimited,
    /// A body without gRPC messages.
    Unframed,
    /// The length of a message and its missing bytes. Between messages these two fields are 0, and
    /// the other fields hold the received part of the next prefix.
    Framed { length: usize, left: usize, prefix: [u8; PREFIX_BYTES], come: usize },
}

impl RequestBody {
    /// Wraps a received request. When the request's body is dropped, its unread remainder moves to
    /// the returned [`UnreadBody`].
    pub fn wrap(
        service: &ServerContext,
        request: Request<Incoming>,
        is_call: bool,
    ) -> (Request<RequestBody>, UnreadBody) {
        let rest = UnreadBody::default();
        let position = match (request.version(), is_call) {
            (hyper::Version::HTTP_2, true) => FramePosition::START,
            (hyper::Version::HTTP_2, false) => FramePosition::Unframed,
            _ => FramePosition::Delimited,
        };
        let time = service.partial_append_time.saturating_add(MESSAGE_EXTRA_TIME);
        let receiving = PartialMessageTracker::new(Arc::clone(&service.receive_quota), time);
        let known = rest.clone();
        (
            request.map(|body| RequestBody {
                body: Some(body),
                position,
                partial: receiving,
                unread: rest,
            }),
            known,
        )
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let RequestBody { body: Some(body), position, partial: receiving, .. } = &mut *self else {
            return Poll::Ready(None);
        };
        receiving.complete = None;
        let Poll::Ready(polled) = Pin::new(&mut *body).poll_frame(context) else {
            return receiving.poll_timeout(context).map(|late| Some(Err(late)));
        };
        Poll::Ready(match polled {
            Some(Ok(frame)) => {
                let has_ended = position.advance(&frame);
                Some(receiving.record(position.partial_bytes(), has_ended).map(|()| frame))
            }
            None if body.is_end_stream() || matches!(position, FramePosition::Delimited) => None,
            Some(Err(_)) | None => Some(Err(grpc_status::truncated_request())),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or(SizeHint::with_exact(0), Body::size_hint)
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        if let Some(body) = self.body.take()
            && !matches!(self.position, FramePosition::Delimited)
            && !body.is_end_stream()
        {
            self.unread.locked(|rest| *rest = Some((body, self.position.clone())));
        }
    }
}

impl UnreadBody {
    /// Reads and discards what the client sends, within limits of bytes and time. Returns at once
    /// if the whole body was read or is still in use.
    pub async fn drain(&self) {
        let Some((mut body, mut position)) = self.locked(Option::take) else { return };
        let (began, mut bytes) = (Instant::now(), 0);
        while !body.is_end_stream() && bytes < DISCARD_BYTES_MAX {
            let until = (Instant::now() + position.idle_timeout()).min(began + DISCARD_TIME);
            let Ok(Some(Ok(frame))) = timeout_at(until, body.frame()).await else { return };
            position.advance(&frame);
            bytes += frame.data_ref().map_or(0, Bytes::len);
        }
    }

    fn locked<T>(&self, work: impl FnOnce(&mut Option<(Incoming, FramePosition)>) -> T) -> T {
        // No code here can leave the value half changed.
        work(&mut self.0.lock().ignore_poison())
    }
}

impl PartialMessageTracker {
    fn new(budget: Arc<InboundQuota>, time: Duration) -> PartialMessageTracker {
        PartialMessageTracker { quota: budget, timeout: time, message: None, complete: None }
    }

    /// Records the bytes of a partial message, and whether the message before it ended. An error if
    /// the quota is exhausted.
    fn record(&mut self, part: Option<usize>, has_ended: bool) -> Result<(), Status> {
        if has_ended {
            self.complete = self.message.take().map(|message| message.share);
        }
        let Some(bytes) = part else { return Ok(()) };
        let message = self.message.get_or_insert_with(|| PartialMessage {
            share: self.quota.new_share(),
            bytes: 0,
            deadline: Box::pin(sleep(self.timeout)),
        });
        let more = bytes.saturating_sub(RECEIVE_BYTES_FREE).saturating_sub(message.bytes);
        message.bytes += more;
        if message.share.grow(more) { Ok(()) } else { Err(grpc_status::receive_quota_exhausted()) }
    }

    /// Waits until the deadline of the partial message.
    fn poll_timeout(&mut self, context: &mut Context<'_>) -> Poll<Status> {
        match &mut self.message {
            Some(message) => {
                message.deadline.as_mut().poll(context).map(|()| grpc_status::message_timed_out())
            }
            None => Poll::Pending,
        }
    }
}

impl FramePosition {
    /// The position before the first message.
    const START: FramePosition =
        FramePosition::Framed { length: 0, left: 0, prefix: [0; PREFIX_BYTES], come: 0 };

    /// Advances by a frame; returns whether a message ended within the frame.
    fn advance(&mut self, frame: &Frame<Bytes>) -> bool {
        let FramePosition::Framed { length, left, prefix, come } = self else { return false };
        let mut bytes = frame.data_ref().map_or(&[][..], |data| &data[..]);
        let mut has_ended = false;
        while !bytes.is_empty() {
            let skipped = bytes.len().min(*left);
            (*left, bytes) = (*left - skipped, &bytes[skipped..]);
            if skipped > 0 && *left == 0 {
                (*length, has_ended) = (0, true);
            }
            let begun = bytes.len().min(PREFIX_BYTES - *come);
            prefix[*come..*come + begun].copy_from_slice(&bytes[..begun]);
            (*come, bytes) = (*come + begun, &bytes[begun..]);
            if *come == PREFIX_BYTES {
                let [_, length_bytes @ ..] = *prefix;
                *length = u32::from_be_bytes(length_bytes) as usize;
                (*left, *come) = (*length, 0);
                has_ended |= *length == 0;
            }
        }
        has_ended
    }

    /// Bytes received of a partial message; 0 for a message over the limit, which is not buffered.
    /// `None` between messages.
    fn partial_bytes(&self) -> Option<usize> {
        match *self {
            FramePosition::Framed { left: 0, come: 0, .. }
            | FramePosition::Delimited
            | FramePosition::Unframed => None,
            FramePosition::Framed { length, left, .. } if length <= MESSAGE_BYTES_MAX => {
                Some(length - left)
            }
            FramePosition::Framed { .. } => Some(0),
        }
    }

    /// Longest pause after which the client counts as still sending. The pause is shorter between
    /// messages, since perhaps no further message follows.
    fn idle_timeout(&self) -> Duration {
        match self {
            FramePosition::Framed { left: 0, come: 0, .. } => DISCARD_MESSAGE_GAP,
            _ => DISCARD_IDLE_TIME,
        }
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;
    use crate::test_support::test_service::run_paused;

    /// Returns the idle timeout after these bytes.
    fn waited(parts: &[&[u8]]) -> Duration {
        let mut position = FramePosition::START;
        for part in parts {
            position.advance(&Frame::data(Bytes::copy_from_slice(part)));
        }
        position.idle_timeout()
    }

    #[test]
    fn discard_waits_longer_inside_a_message() {
        let between: [&[&[u8]]; 6] = [
            &[],
            &[b""],
            &[&[0, 0, 0, 0, 2, 7, 7]],
            &[&[0, 0, 0, 0, 2], &[7], &[7]],
            &[&[0, 0], &[0, 0, 0]],
            &[&[0, 0, 0, 0, 1, 7, 0, 0, 0, 0, 0], &[0, 0, 0, 0, 3, 1, 1, 1]],
        ];
        for between in between {
            assert_eq!(waited(between), DISCARD_MESSAGE_GAP, "{between:?}");
        }
        let inside: [&[&[u8]]; 5] = [
            &[&[0]],
            &[&[0, 0, 0, 0, 2]],
            &[&[0, 0, 0, 0, 2, 7]],
            &[&[0, 0, 0, 0, 1, 7, 0]],
            &[&[9, 0xff, 0xff, 0xff, 0xff, 1]],
        ];
        for inside in inside {
            assert_eq!(waited(inside), DISCARD_IDLE_TIME, "{inside:?}");
        }
    }

    #[test]
    fn frame_position_tracks_partial_bytes_and_message_end() {
        let mut position = FramePosition::START;
        let mut note = |bytes: &[u8]| {
            let has_ended = position.advance(&Frame::data(Bytes::copy_from_slice(bytes)));
            (position.partial_bytes(), has_ended)
        };
        assert_eq!(note(&[0, 0]), (Some(0), false), "a part of a prefix");
        assert_eq!(note(&[0, 0, 4, 7]), (Some(1), false));
        assert_eq!(note(&[7, 7]), (Some(3), false));
        assert_eq!(note(&[7]), (None, true));
        assert_eq!(note(&[0]), (Some(0), false), "nothing of the last one is left");
        assert_eq!(note(&[0, 0, 0, 0]), (None, true), "one without bytes");
        assert_eq!(note(&[0, 0, 0, 0, 1, 7, 0, 0, 0, 0, 9, 7]), (Some(1), true));
        assert_eq!(note(&[7; 8]), (None, true));
        assert_eq!(
            note(&[0, 0xff, 0, 0, 0, 1, 2]),
            (Some(0), false),
            "the partial message is not kept"
        );
    }

    /// Story: a message of 17 MiB whose last byte did not arrive was buffered without a time limit.
    /// A connection can have a thousand such calls.
    #[test]
    fn partial_messages_are_bounded_by_quota_and_timeout() {
        run_paused(async {
            let budget = Arc::new(InboundQuota::new(100));
            let time = Duration::from_secs(30);
            let [mut one, mut two] =
                [(); 2].map(|()| PartialMessageTracker::new(Arc::clone(&budget), time));
            one.record(Some(RECEIVE_BYTES_FREE), false).unwrap();
            assert_eq!(budget.used_bytes(), 0);
            one.record(Some(RECEIVE_BYTES_FREE + 70), false).unwrap();
            let refused = two.record(Some(RECEIVE_BYTES_FREE + 31), false).unwrap_err();
            assert_eq!((refused.code(), budget.used_bytes()), (Code::ResourceExhausted, 70));
            // A client that sends little is not refused.
            let mut three = PartialMessageTracker::new(Arc::clone(&budget), time);
            three.record(Some(RECEIVE_BYTES_FREE), false).unwrap();
            let began = Instant::now();
            let late = std::future::poll_fn(|context| one.poll_timeout(context)).await;
            assert_eq!((late.code(), began.elapsed() >= time), (Code::DeadlineExceeded, true));
            one.record(None, true).unwrap();
            assert_eq!(budget.used_bytes(), 70, "it is counted while it is decoded");
            one.complete = None;
            assert_eq!(budget.used_bytes(), 0);
        });
    }
}
