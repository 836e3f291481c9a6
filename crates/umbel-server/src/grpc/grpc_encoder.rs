//! [`Encoded`]: the body of an answer of many messages.
//!
//! Messages that are there at the same time go in one frame, until it is full. Nothing of a frame
//! is kept behind it: what is made for any call keeps the memory of the longest message until the
//! call ends, which may be never, and nobody counts it: docs/decisions/0037.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::Stream;
use hyper::HeaderMap;
use hyper::body::{Body, Bytes, Frame};
use prost::Message;
use prost::bytes::{BufMut, BytesMut};
use tonic::Status;
use umbel_proto::limits::MESSAGE_BYTES_MAX;

use crate::failure;
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
        (self.answers, self.end) = (None, Some(failure::short(status)));
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

#[cfg(test)]
mod tests {
    use futures_util::{StreamExt, stream};
    use http_body_util::BodyExt;
    use umbel_proto::kv::GetResponse;

    use super::*;
    use crate::stage::{framed, run};

    fn answer(bytes: usize) -> GetResponse {
        GetResponse { value: Some(vec![7; bytes].into()) }
    }

    /// The frames of a body, and its trailers.
    async fn frames(
        mut body: impl Body<Data = Bytes, Error = Status> + Unpin,
    ) -> (Vec<Bytes>, Status) {
        let mut frames = Vec::new();
        loop {
            assert!(!body.is_end_stream());
            match body.frame().await.expect("trailers come").unwrap().into_data() {
                Ok(data) => frames.push(data),
                Err(frame) => {
                    assert!(body.is_end_stream() && body.frame().await.is_none());
                    let trailers = frame.into_trailers().expect("the last frame");
                    return (frames, Status::from_header_map(&trailers).expect("how it ended"));
                }
            }
        }
    }

    #[test]
    fn answers_that_are_there_go_together_and_in_order() {
        run(async {
            let sizes = [1, 0, 20 << 10, 20 << 10, 5, 3 << 20, 7];
            let answers = sizes.map(|bytes| Ok(answer(bytes)));
            let (made, end) = frames(Encoded::new(stream::iter(answers))).await;
            assert_eq!(end.code(), tonic::Code::Ok);
            let wanted: Vec<Bytes> = sizes.iter().map(|bytes| framed(&answer(*bytes))).collect();
            assert_eq!(made.concat(), wanted.concat());
            let lengths: Vec<usize> = made.iter().map(|frame| frame.len() >> 10).collect();
            assert_eq!(lengths, [40, 3 << 10, 0]);
        });
    }

    #[test]
    fn what_was_said_before_a_failure_is_sent_and_the_failure_tells_all() {
        run(async {
            let failed = Status::with_details(tonic::Code::Aborted, "no – not now", vec![1].into());
            let answers = [Ok(answer(3)), Err(failed), Ok(answer(4))];
            let (made, end) = frames(Encoded::new(stream::iter(answers))).await;
            assert_eq!(made, [framed(&answer(3))]);
            assert_eq!((end.code(), end.message()), (tonic::Code::Aborted, "no – not now"));
            assert_eq!(end.details(), [1]);
            let answers = [Ok(answer(3)), Ok(answer(MESSAGE_BYTES_MAX))];
            let (made, end) = frames(Encoded::new(stream::iter(answers))).await;
            assert_eq!((made.len(), end.code()), (1, tonic::Code::OutOfRange));
        });
    }

    /// Story: what put answers together kept the memory of the longest one until the call ended: a
    /// thousand subscriptions to streams whose last event had 8 MB held 16 GB with nothing.
    #[test]
    fn nothing_is_kept_of_answers_that_were_taken() {
        run(async {
            let answers = stream::iter([Ok(answer(1 << 20))]).chain(stream::pending());
            let mut body = Encoded::new(answers);
            let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
            assert_eq!((frame.len() >> 20, body.made.capacity()), (1, 0));
            let rest = tokio::time::timeout(std::time::Duration::from_secs(1), body.frame());
            assert!(rest.await.is_err());
            assert_eq!(body.made.capacity(), 0);
        });
    }
}
