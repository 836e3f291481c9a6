//! [`RequestBody`]: the body of a request, which fails where the request is truncated.
//!
//! The body solves three problems:
//!
//! - A client can send a message slowly or never finish it. So each partial message has a deadline.
//!   The decoder counts its bytes.
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

use crate::grpc::message_stream::{PREFIX_BYTES, ReceiveLimits};
use crate::limits::{
    DISCARD_BYTES_MAX, DISCARD_IDLE_TIME, DISCARD_MESSAGE_GAP, DISCARD_TIME, MESSAGE_EXTRA_TIME,
};
use crate::protocol::grpc_status;
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

/// Tracks the deadline of a partial message.
#[derive(Debug)]
struct PartialMessageTracker {
    /// Maximum time for which a message may stay incomplete.
    timeout: Duration,
    /// The deadline of the partial message; `None` between messages.
    deadline: Option<Pin<Box<Sleep>>>,
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
    /// The missing bytes of a message. Between messages this number is 0, and the other fields hold
    /// the received part of the next prefix.
    Framed { left: usize, prefix: [u8; PREFIX_BYTES], come: usize },
}

impl RequestBody {
    /// Wraps a received request, and adds the limits of its messages to its extensions. When the
    /// request's body is dropped, its unread remainder moves to the returned [`UnreadBody`].
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
        let known = rest.clone();
        let mut request = request.map(|body| RequestBody {
            body: Some(body),
            position,
            partial: PartialMessageTracker { timeout: time, deadline: None },
            unread: rest,
        });
        let quota = Arc::clone(&service.receive_quota);
        let places = service.decoding_places.clone();
        request.extensions_mut().insert(ReceiveLimits { quota, places, time });
        (request, known)
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
        let Poll::Ready(polled) = Pin::new(&mut *body).poll_frame(context) else {
            return receiving.poll_timeout(context).map(|late| Some(Err(late)));
        };
        Poll::Ready(match polled {
            Some(Ok(frame)) => {
                let has_ended = position.advance(&frame);
                receiving.record(position.is_within_message(), has_ended);
                Some(Ok(frame))
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
    /// Records whether a message is received in part, and whether the message before it ended.
    fn record(&mut self, is_within_message: bool, has_ended: bool) {
        if has_ended {
            self.deadline = None;
        }
        if is_within_message {
            self.deadline.get_or_insert_with(|| Box::pin(sleep(self.timeout)));
        }
    }

    /// Waits until the deadline of the partial message.
    fn poll_timeout(&mut self, context: &mut Context<'_>) -> Poll<Status> {
        match &mut self.deadline {
            Some(deadline) => {
                deadline.as_mut().poll(context).map(|()| grpc_status::message_timed_out())
            }
            None => Poll::Pending,
        }
    }
}

impl FramePosition {
    /// The position before the first message.
    const START: FramePosition =
        FramePosition::Framed { left: 0, prefix: [0; PREFIX_BYTES], come: 0 };

    /// Advances by a frame; returns whether a message ended within the frame.
    fn advance(&mut self, frame: &Frame<Bytes>) -> bool {
        let FramePosition::Framed { left, prefix, come } = self else { return false };
        let mut bytes = frame.data_ref().map_or(&[][..], |data| &data[..]);
        let mut has_ended = false;
        while !bytes.is_empty() {
            let skipped = bytes.len().min(*left);
            (*left, bytes) = (*left - skipped, &bytes[skipped..]);
            has_ended |= skipped > 0 && *left == 0;
            let begun = bytes.len().min(PREFIX_BYTES - *come);
            prefix[*come..*come + begun].copy_from_slice(&bytes[..begun]);
            (*come, bytes) = (*come + begun, &bytes[begun..]);
            if *come == PREFIX_BYTES {
                let [_, length_bytes @ ..] = *prefix;
                (*left, *come) = (u32::from_be_bytes(length_bytes) as usize, 0);
                has_ended |= *left == 0;
            }
        }
        has_ended
    }

    /// Whether a part of a message was received.
    fn is_within_message(&self) -> bool {
        match self {
            FramePosition::Framed { left, come, .. } => (*left, *come) != (0, 0),
            FramePosition::Delimited | FramePosition::Unframed => false,
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
    fn frame_position_tracks_the_beginning_and_end_of_messages() {
        let mut position = FramePosition::START;
        let mut note = |bytes: &[u8]| {
            let has_ended = position.advance(&Frame::data(Bytes::copy_from_slice(bytes)));
            (position.is_within_message(), has_ended)
        };
        assert_eq!(note(&[0, 0]), (true, false), "a part of a prefix");
        assert_eq!(note(&[0, 0, 4, 7]), (true, false));
        assert_eq!(note(&[7, 7]), (true, false));
        assert_eq!(note(&[7]), (false, true));
        assert_eq!(note(&[0]), (true, false), "nothing of the last one is left");
        assert_eq!(note(&[0, 0, 0, 0]), (false, true), "one without bytes");
        assert_eq!(note(&[0, 0, 0, 0, 1, 7, 0, 0, 0, 0, 9, 7]), (true, true));
        assert_eq!(note(&[7; 8]), (false, true));
    }

    /// Story: a message of 17 MiB whose last byte did not arrive was buffered without a time limit.
    /// A connection can have a thousand such calls.
    #[test]
    fn partial_message_has_a_deadline() {
        run_paused(async {
            let timeout = Duration::from_secs(30);
            let mut partial = PartialMessageTracker { timeout, deadline: None };
            let began = Instant::now();
            partial.record(true, false);
            sleep(timeout / 2).await;
            partial.record(true, false);
            let late = std::future::poll_fn(|context| partial.poll_timeout(context)).await;
            assert_eq!((late.code(), began.elapsed()), (Code::DeadlineExceeded, timeout));
            partial.record(true, true);
            std::future::poll_fn(|context| partial.poll_timeout(context)).await;
            assert_eq!(began.elapsed(), 2 * timeout, "the next message has its own deadline");
            partial.record(false, true);
            assert!(partial.deadline.is_none());
        });
    }
}
