//! [`Encoded`]: the body of an answer of many messages.
//!
//! Messages that are there at the same time go in one frame, up to some bytes; a long one goes in a
//! frame of its own. Nothing of a frame is kept behind it: what is made for any call keeps the
//! memory of the longest message until the call ends, which may be never, and nobody counts it:
//! docs/decisions/0037.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::Stream;
use hyper::HeaderMap;
use hyper::body::{Body, Bytes, Frame};
use prost::Message;
use prost::bytes::{BufMut, BytesMut};
use tonic::Status;
use umbel_proto::limits::MESSAGE_BYTES_MAX;

use crate::messages::PREFIX_BYTES;

/// A frame is full once it has so many bytes.
const FRAME_BYTES: usize = 32 << 10;

/// The body of an answer of many messages, whose end tells what the call came to.
#[derive(Debug)]
pub struct Encoded<S> {
    /// `None` behind the last one.
    answers: Option<S>,
    /// Those that go in the next frame.
    made: BytesMut,
    /// What the call came to, until that is told.
    end: Option<Status>,
}

impl<S> Encoded<S> {
    /// The body of these answers.
    pub fn new(answers: S) -> Encoded<S> {
        Encoded { answers: Some(answers), made: BytesMut::new(), end: None }
    }

    /// There are no more answers.
    fn ends(&mut self, status: Status) {
        (self.answers, self.end) = (None, Some(status));
    }
}

impl<A, S> Encoded<S>
where
    A: Message,
    S: Stream<Item = Result<A, Status>> + Unpin,
{
    /// Takes answers until there is a frame of them or none is there.
    fn poll_made(&mut self, context: &mut Context<'_>) -> Poll<()> {
        while let Some(answers) = &mut self.answers {
            match Pin::new(answers).poll_next(context) {
                Poll::Pending if self.made.is_empty() => return Poll::Pending,
                Poll::Pending => break,
                Poll::Ready(Some(Ok(answer))) => match encode(&answer, &mut self.made) {
                    Ok(()) if self.made.len() < FRAME_BYTES => {}
                    Ok(()) => break,
                    Err(status) => self.ends(status),
                },
                Poll::Ready(Some(Err(status))) => self.ends(status),
                Poll::Ready(None) => self.ends(Status::ok("")),
            }
        }
        Poll::Ready(())
    }
}

/// Adds a message to a frame.
fn encode(answer: &impl Message, made: &mut BytesMut) -> Result<(), Status> {
    let bytes = answer.encoded_len();
    if bytes > MESSAGE_BYTES_MAX {
        return Err(Status::out_of_range(format!(
            "an answer has {bytes} bytes, but may have {MESSAGE_BYTES_MAX}"
        )));
    }
    made.reserve(PREFIX_BYTES + bytes);
    made.put_u8(0);
    made.put_u32(bytes as u32);
    answer.encode(made).map_err(|error| Status::internal(error.to_string()))
}

impl<A, S> Body for Encoded<S>
where
    A: Message,
    S: Stream<Item = Result<A, Status>> + Unpin,
{
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.poll_made(context).is_pending() {
            return Poll::Pending;
        }
        if !self.made.is_empty() {
            let made = std::mem::take(&mut self.made).freeze();
            return Poll::Ready(Some(Ok(Frame::data(made))));
        }
        Poll::Ready(self.end.take().map(|status| {
            let mut trailers = HeaderMap::new();
            status.add_header(&mut trailers)?;
            Ok(Frame::trailers(trailers))
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.answers.is_none() && self.made.is_empty() && self.end.is_none()
    }
}
