//! [`Asked`]: what a client sends with a request, up to the end that the client said.
//!
//! Three things are seen to here. A message is held by what reads it while it comes, which may be
//! slow and never end: all that have come in part stay within a budget, and each has its time. A
//! stream of HTTP/2 may end by a reset that names no error, from
//! its client or because the connection is given up; what reads bodies takes that for their end,
//! and the half of an append that had come would be written as all of it. And a request may be
//! answered before all of it was read: clients that are still sending then lose the answer. So what
//! is on its way is taken and left out before the answer goes.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::Request;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use tokio::time::{Instant, Sleep, sleep, timeout_at};
use tonic::Status;
use umbel_proto::limits::MESSAGE_BYTES_MAX;

use crate::budget::{Budget, Share};
use crate::failure;
use crate::limits::{
    MESSAGE_TIME_MORE, RECEIVING_BYTES_FREE, UNASKED_BYTES_MAX, UNASKED_PAUSE, UNASKED_QUIET,
    UNASKED_TIME,
};
use crate::messages::PREFIX_BYTES;
use crate::service::Service;

/// The body of a request. It fails where it breaks off.
#[derive(Debug)]
pub struct Asked {
    /// `None` once it went to the rest.
    body: Option<Incoming>,
    place: Place,
    receiving: Receiving,
    rest: Rest,
}

/// A message that has come in part.
#[derive(Debug)]
struct Receiving {
    budget: Arc<Budget>,
    /// How long one may take.
    time: Duration,
    /// `None` between messages.
    message: Option<Part>,
}

#[derive(Debug)]
struct Part {
    share: Share,
    /// The bytes of the share.
    bytes: usize,
    until: Pin<Box<Sleep>>,
}

/// What nobody reads any more of a request, once its body was dropped.
#[derive(Debug, Clone, Default)]
pub struct Rest(Arc<Mutex<Option<(Incoming, Place)>>>);

/// Where in its messages a body is.
#[derive(Debug, Clone)]
enum Place {
    /// It has none, and its end is known without them: HTTP/1.1 takes care of it.
    Known,
    /// It has none.
    Page,
    /// Of a message of `length` bytes `left` are to come; between messages both are 0, and `come`
    /// bytes of the next prefix came.
    Call { length: usize, left: usize, prefix: [u8; PREFIX_BYTES], come: usize },
}

impl Asked {
    /// A request as it came, of which the rest is left where the second says.
    pub fn of(
        service: &Service,
        request: Request<Incoming>,
        is_call: bool,
    ) -> (Request<Asked>, Rest) {
        let rest = Rest::default();
        let place = match (request.version(), is_call) {
            (hyper::Version::HTTP_2, true) => Place::BEGIN,
            (hyper::Version::HTTP_2, false) => Place::Page,
            _ => Place::Known,
        };
        let time = service.parts_time.saturating_add(MESSAGE_TIME_MORE);
        let receiving = Receiving::new(Arc::clone(&service.receiving), time);
        let known = rest.clone();
        (request.map(|body| Asked { body: Some(body), place, receiving, rest }), known)
    }
}

impl Body for Asked {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let Asked { body: Some(body), place, receiving, .. } = &mut *self else {
            return Poll::Ready(None);
        };
        let Poll::Ready(came) = Pin::new(&mut *body).poll_frame(context) else {
            return receiving.poll_late(context).map(|late| Some(Err(late)));
        };
        Poll::Ready(match came {
            Some(Ok(frame)) => {
                let has_ended = place.note(&frame);
                Some(receiving.note(place.part(), has_ended).map(|()| frame))
            }
            None if body.is_end_stream() || matches!(place, Place::Known) => None,
            Some(Err(_)) | None => Some(Err(failure::broken_off())),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or(SizeHint::with_exact(0), Body::size_hint)
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        if let Some(body) = self.body.take()
            && !matches!(self.place, Place::Known)
            && !body.is_end_stream()
        {
            self.rest.locked(|rest| *rest = Some((body, self.place.clone())));
        }
    }
}

impl Rest {
    /// Takes what the client is sending and leaves it out, up to the limits of that. It returns at
    /// once where all was read or somebody still reads.
    pub async fn leave_out(&self) {
        let Some((mut body, mut place)) = self.locked(Option::take) else { return };
        let (began, mut bytes) = (Instant::now(), 0);
        while !body.is_end_stream() && bytes < UNASKED_BYTES_MAX {
            let until = (Instant::now() + place.quiet()).min(began + UNASKED_TIME);
            let Ok(Some(Ok(frame))) = timeout_at(until, body.frame()).await else { return };
            place.note(&frame);
            bytes += frame.data_ref().map_or(0, Bytes::len);
        }
    }

    fn locked<T>(&self, work: impl FnOnce(&mut Option<(Incoming, Place)>) -> T) -> T {
        // Nothing here can leave it half changed.
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Receiving {
    fn new(budget: Arc<Budget>, time: Duration) -> Receiving {
        Receiving { budget, time, message: None }
    }

    /// Takes note of how many bytes there are of a message that is not whole, and whether the one
    /// before it ended. An error where there is no room for them.
    fn note(&mut self, part: Option<usize>, has_ended: bool) -> Result<(), Status> {
        if has_ended {
            self.message = None;
        }
        let Some(bytes) = part else { return Ok(()) };
        let message = self.message.get_or_insert_with(|| Part {
            share: self.budget.share(),
            bytes: 0,
            until: Box::pin(sleep(self.time)),
        });
        let more = bytes.saturating_sub(RECEIVING_BYTES_FREE).saturating_sub(message.bytes);
        message.bytes += more;
        if message.share.grow(more) { Ok(()) } else { Err(failure::no_room_for_messages()) }
    }

    /// Waits until the message has taken too long.
    fn poll_late(&mut self, context: &mut Context<'_>) -> Poll<Status> {
        match &mut self.message {
            Some(message) => message.until.as_mut().poll(context).map(|()| failure::message_late()),
            None => Poll::Pending,
        }
    }
}

impl Place {
    /// In front of the first message.
    const BEGIN: Place = Place::Call { length: 0, left: 0, prefix: [0; PREFIX_BYTES], come: 0 };

    /// Takes note of what came; whether a message ended with it.
    fn note(&mut self, frame: &Frame<Bytes>) -> bool {
        let Place::Call { length, left, prefix, come } = self else { return false };
        let mut bytes = frame.data_ref().map_or(&[][..], |data| &data[..]);
        let mut has_ended = false;
        while !bytes.is_empty() {
            let gone = bytes.len().min(*left);
            (*left, bytes) = (*left - gone, &bytes[gone..]);
            if gone > 0 && *left == 0 {
                (*length, has_ended) = (0, true);
            }
            let begun = bytes.len().min(PREFIX_BYTES - *come);
            prefix[*come..*come + begun].copy_from_slice(&bytes[..begun]);
            (*come, bytes) = (*come + begun, &bytes[begun..]);
            if *come == PREFIX_BYTES {
                let [_, said @ ..] = *prefix;
                *length = u32::from_be_bytes(said) as usize;
                (*left, *come) = (*length, 0);
                has_ended |= *length == 0;
            }
        }
        has_ended
    }

    /// How many bytes came of a message that is not whole, without those of one that is too long:
    /// nobody keeps it. `None` between messages.
    fn part(&self) -> Option<usize> {
        match *self {
            Place::Call { left: 0, come: 0, .. } | Place::Known | Place::Page => None,
            Place::Call { length, left, .. } if length <= MESSAGE_BYTES_MAX => Some(length - left),
            Place::Call { .. } => Some(0),
        }
    }

    /// How long nothing may come until the client is not taken for one that is sending: between
    /// messages it may never send another.
    fn quiet(&self) -> Duration {
        match self {
            Place::Call { left: 0, come: 0, .. } => UNASKED_PAUSE,
            _ => UNASKED_QUIET,
        }
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;
    use crate::stage::run;

    /// How long is waited for more after this has come.
    fn waited(parts: &[&[u8]]) -> Duration {
        let mut place = Place::BEGIN;
        for part in parts {
            place.note(&Frame::data(Bytes::copy_from_slice(part)));
        }
        place.quiet()
    }

    #[test]
    fn who_is_in_the_middle_of_a_message_is_waited_for() {
        let between: [&[&[u8]]; 6] = [
            &[],
            &[b""],
            &[&[0, 0, 0, 0, 2, 7, 7]],
            &[&[0, 0, 0, 0, 2], &[7], &[7]],
            &[&[0, 0], &[0, 0, 0]],
            &[&[0, 0, 0, 0, 1, 7, 0, 0, 0, 0, 0], &[0, 0, 0, 0, 3, 1, 1, 1]],
        ];
        for between in between {
            assert_eq!(waited(between), UNASKED_PAUSE, "{between:?}");
        }
        let inside: [&[&[u8]]; 5] = [
            &[&[0]],
            &[&[0, 0, 0, 0, 2]],
            &[&[0, 0, 0, 0, 2, 7]],
            &[&[0, 0, 0, 0, 1, 7, 0]],
            &[&[9, 0xff, 0xff, 0xff, 0xff, 1]],
        ];
        for inside in inside {
            assert_eq!(waited(inside), UNASKED_QUIET, "{inside:?}");
        }
    }

    #[test]
    fn it_is_known_how_much_of_a_message_came_and_when_it_ends() {
        let mut place = Place::BEGIN;
        let mut note = |bytes: &[u8]| {
            let has_ended = place.note(&Frame::data(Bytes::copy_from_slice(bytes)));
            (place.part(), has_ended)
        };
        assert_eq!(note(&[0, 0]), (Some(0), false), "a part of a prefix");
        assert_eq!(note(&[0, 0, 4, 7]), (Some(1), false));
        assert_eq!(note(&[7, 7]), (Some(3), false));
        assert_eq!(note(&[7]), (None, true));
        assert_eq!(note(&[0]), (Some(0), false), "nothing of the last one is left");
        assert_eq!(note(&[0, 0, 0, 0]), (None, true), "one without bytes");
        assert_eq!(note(&[0, 0, 0, 0, 1, 7, 0, 0, 0, 0, 9, 7]), (Some(1), true));
        assert_eq!(note(&[7; 8]), (None, true));
        assert_eq!(note(&[0, 0xff, 0, 0, 0, 1, 2]), (Some(0), false), "nobody keeps it");
    }

    /// A message of 17 MiB whose last byte did not come was held for as long as its client liked,
    /// and a connection may have a thousand calls.
    #[test]
    fn messages_that_have_come_in_part_stay_within_a_budget_and_have_their_time() {
        run(async {
            let budget = Arc::new(Budget::new(100));
            let time = Duration::from_secs(30);
            let [mut one, mut two] = [(); 2].map(|()| Receiving::new(Arc::clone(&budget), time));
            one.note(Some(RECEIVING_BYTES_FREE), false).unwrap();
            assert_eq!(budget.bytes(), 0);
            one.note(Some(RECEIVING_BYTES_FREE + 70), false).unwrap();
            let refused = two.note(Some(RECEIVING_BYTES_FREE + 31), false).unwrap_err();
            assert_eq!((refused.code(), budget.bytes()), (Code::ResourceExhausted, 70));
            // Who sends little is not refused.
            let mut three = Receiving::new(Arc::clone(&budget), time);
            three.note(Some(RECEIVING_BYTES_FREE), false).unwrap();
            let began = Instant::now();
            let late = std::future::poll_fn(|context| one.poll_late(context)).await;
            assert_eq!((late.code(), began.elapsed() >= time), (Code::DeadlineExceeded, true));
            one.note(None, true).unwrap();
            assert_eq!(budget.bytes(), 0);
        });
    }
}
