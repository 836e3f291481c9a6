//! [`Counted`]: the body of an answer, and what is kept until it was written.
//!
//! A connection takes the frames of an answer before its client has room for them. So what they are
//! made of, and the place that they take, go along with their bytes, a piece after the other: while
//! its client takes pieces of a long frame, he takes something.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::Response;
use hyper::body::{Bytes, Frame, SizeHint};
use tonic::Status;
use tonic::body::Body;

use crate::call_log::CallLine;
use crate::peers::{Call, PagePlace};
use crate::unread::{Carrier, Unread, Unsent};

/// So many bytes are handed to the connection at once.
const PIECE_BYTES: usize = 64 << 10;

/// The body of an answer, with the call it is of.
#[derive(Debug)]
pub struct Counted {
    body: Body,
    line: Option<CallLine>,
    unread: Arc<Unread>,
    /// What it is made of, where that took room.
    unsent: Option<Unsent>,
    place: Option<PagePlace>,
    call: Call,
    /// What is left of a frame, and what holds it.
    rest: Option<(Bytes, Option<Carrier>)>,
}

/// Bytes of a page on their way.
#[derive(Debug)]
struct Placed {
    bytes: Bytes,
    _place: PagePlace,
}

impl Counted {
    /// An answer, until whose end the call is open, and at whose end the log is told of it.
    pub fn of(
        call: Call,
        unread: Arc<Unread>,
        answer: Response<Body>,
        line: Option<CallLine>,
    ) -> Response<Counted> {
        let unsent = answer.extensions().get::<Unsent>().cloned();
        let place = answer.extensions().get::<PagePlace>().cloned();
        answer.map(|body| Counted { body, line, unread, unsent, place, call, rest: None })
    }

    /// What holds the bytes of a frame.
    fn carrier(&self, bytes: &Bytes) -> Option<Carrier> {
        match &self.unsent {
            Some(unsent) => unsent.carrier().filter(|_| !bytes.is_empty()),
            None => self.unread.beside(bytes, &self.call.peer()),
        }
    }

    /// The first piece of these bytes; the rest follows.
    fn piece(&mut self, mut bytes: Bytes, carrier: Option<Carrier>) -> Bytes {
        let piece = bytes.split_to(bytes.len().min(PIECE_BYTES));
        let carried = match &carrier {
            Some(carrier) => carrier.carry(piece),
            None => piece,
        };
        self.rest = (!bytes.is_empty()).then_some((bytes, carrier));
        match &self.place {
            Some(place) => Bytes::from_owner(Placed { bytes: carried, _place: place.clone() }),
            None => carried,
        }
    }
}

impl hyper::body::Body for Counted {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Some((bytes, carrier)) = self.rest.take() {
            return Poll::Ready(Some(Ok(Frame::data(self.piece(bytes, carrier)))));
        }
        let mut polled = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &mut polled
            && let Some(trailers) = frame.trailers_mut()
            && let Some(line) = self.line.take()
        {
            line.end(trailers);
        }
        polled.map_ok(|frame| {
            frame.map_data(|bytes| {
                let carrier = self.carrier(&bytes);
                self.piece(bytes, carrier)
            })
        })
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.rest.as_ref().map_or(0, |(bytes, _)| bytes.len() as u64);
        let (body, mut hint) = (self.body.size_hint(), SizeHint::new());
        if let Some(upper) = body.upper() {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(body.lower() + rest);
        hint
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
            line.over(hyper::body::Body::is_end_stream(&*self));
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt, Full};

    use super::*;
    use crate::peers::Peers;
    use crate::stage::run;

    /// The story: a long frame was one piece until its last byte was written, so that who took it
    /// slowly was taken for one who takes nothing.
    #[test]
    fn a_long_frame_goes_in_pieces_and_counts_until_the_last_one_is_gone() {
        run(async {
            let peers = Arc::new(Peers::default());
            let place = peers.place(None);
            let unread = Arc::new(Unread::new(0));
            let bytes: Vec<u8> = (0..3 * PIECE_BYTES + 5).map(|at| at as u8).collect();
            let body = Body::new(Full::new(Bytes::from(bytes.clone())));
            let answer = Response::new(body);
            let answer = Counted::of(place.peer.call(), Arc::clone(&unread), answer, None);
            let (mut body, mut pieces) = (answer.into_body(), Vec::new());
            while let Some(frame) = body.frame().await {
                pieces.push(frame.unwrap().into_data().unwrap());
                let left = bytes.len() - pieces.iter().map(Bytes::len).sum::<usize>();
                assert_eq!(hyper::body::Body::size_hint(&body).exact(), Some(left as u64));
                assert_eq!(hyper::body::Body::is_end_stream(&body), left == 0);
            }
            assert_eq!((pieces.len(), pieces.concat()), (4, bytes));
            pieces.truncate(1);
            assert_eq!(unread.bytes(), 3 * PIECE_BYTES, "a piece holds the frame");
            pieces.clear();
            assert_eq!(unread.bytes(), 0);
        });
    }
}
