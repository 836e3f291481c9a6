//! [`Counted`]: the body of an answer, and what is kept until it was written.
//!
//! A connection takes the frames of an answer before its client has room for them. So what they are
//! made of, and the place that they take, go along with their bytes.

use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::Response;
use hyper::body::{Bytes, Frame, SizeHint};
use tonic::Status;
use tonic::body::Body;

use crate::call_log::CallLine;
use crate::peers::{Call, PagePlace};
use crate::unread::Unsent;

/// The body of an answer, with the call it is of.
#[derive(Debug)]
pub struct Counted {
    body: Body,
    line: Option<CallLine>,
    /// What it is made of, where that is counted.
    unsent: Option<Unsent>,
    place: Option<PagePlace>,
    _call: Call,
}

/// Bytes of a page on their way.
#[derive(Debug)]
struct Placed {
    bytes: Bytes,
    _place: PagePlace,
}

impl Counted {
    /// An answer, until whose end the call is open, and at whose end the log is told of it.
    pub fn of(call: Call, answer: Response<Body>, line: Option<CallLine>) -> Response<Counted> {
        let unsent = answer.extensions().get::<Unsent>().cloned();
        let place = answer.extensions().get::<PagePlace>().cloned();
        answer.map(|body| Counted { body, line, unsent, place, _call: call })
    }
}

impl hyper::body::Body for Counted {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let mut polled = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &mut polled
            && let Some(trailers) = frame.trailers_mut()
            && let Some(line) = self.line.take()
        {
            line.end(trailers);
        }
        let carry = |bytes: Bytes| {
            let bytes = match &self.unsent {
                Some(unsent) => unsent.carry(bytes),
                None => bytes,
            };
            match &self.place {
                Some(place) => Bytes::from_owner(Placed { bytes, _place: place.clone() }),
                None => bytes,
            }
        };
        polled.map_ok(|frame| frame.map_data(carry))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl AsRef<[u8]> for Placed {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if let Some(line) = self.line.take() {
            line.over(hyper::body::Body::is_end_stream(&self.body));
        }
    }
}
