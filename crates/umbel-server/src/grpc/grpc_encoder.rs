//! [`GrpcEncoder`]: the body of a response with any number of messages.
//!
//! Messages that are ready at the same time share a frame, until the frame is full. After a number
//! of messages or bytes, the encoder yields to other tasks: one poll of a connection could
//! otherwise build and encode whole pages, and delay all other calls of its worker. The encoder
//! keeps no memory of a sent frame. In contrast, tonic's encoder keeps the memory of the longest
//! message until the call ends, uncounted by any quota: docs/decisions/0037.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::Stream;
use hyper::HeaderMap;
use hyper::body::{Body, Bytes, Frame};
use prost::Message;
use prost::bytes::{BufMut, BytesMut};
use tonic::Status;
use umbel_proto::limits::MESSAGE_BYTES_MAX;

use crate::grpc::message_stream::PREFIX_BYTES;
use crate::limits::{POLL_BYTES, POLL_MESSAGES};
use crate::protocol::grpc_status;

/// A frame with this many bytes is full.
const FRAME_BYTES: usize = 32 << 10;

/// The body of a response with any number of messages, which ends with the call's status.
#[derive(Debug)]
pub struct GrpcEncoder<S> {
    /// The messages of the response; `None` after the last one.
    messages: Option<S>,
    /// The messages of the next frame.
    frame: BytesMut,
    /// The status of the call, until the trailers with it are sent.
    final_status: Option<Status>,
    /// Number of messages, and their bytes, since the encoder yielded.
    encoded: (usize, usize),
}

impl<S> GrpcEncoder<S> {
    /// Creates a response body with these messages.
    pub fn new(answers: S) -> GrpcEncoder<S> {
        GrpcEncoder {
            messages: Some(answers),
            frame: BytesMut::new(),
            final_status: None,
            encoded: (0, 0),
        }
    }

    /// Ends the messages with this status.
    fn finish(&mut self, status: Status) {
        (self.messages, self.final_status) = (None, Some(grpc_status::truncate_status(status)));
    }
}

impl<A, S> GrpcEncoder<S>
where
    A: Message,
    S: Stream<Item = Result<A, Status>> + Unpin,
{
    /// Encodes messages until a frame is full or no message is ready.
    fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<()> {
        while let Some(answers) = &mut self.messages {
            if self.encoded.0 >= POLL_MESSAGES || self.encoded.1 >= POLL_BYTES {
                self.encoded = (0, 0);
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            match Pin::new(answers).poll_next(context) {
                Poll::Pending => {
                    self.encoded = (0, 0);
                    if self.frame.is_empty() {
                        return Poll::Pending;
                    }
                    break;
                }
                Poll::Ready(Some(Ok(answer))) => match encode(&answer, &mut self.frame) {
                    Ok(bytes) => {
                        self.encoded = (self.encoded.0 + 1, self.encoded.1 + bytes);
                        if self.frame.len() >= FRAME_BYTES {
                            break;
                        }
                    }
                    Err(status) => self.finish(status),
                },
                Poll::Ready(Some(Err(status))) => self.finish(status),
                Poll::Ready(None) => self.finish(Status::ok("")),
            }
        }
        Poll::Ready(())
    }
}

/// Appends a message with its gRPC length prefix to `made`, the next HTTP/2 DATA frame. Returns the
/// bytes of the message.
fn encode(answer: &impl Message, made: &mut BytesMut) -> Result<usize, Status> {
    let bytes = answer.encoded_len();
    if bytes > MESSAGE_BYTES_MAX {
        return Err(Status::out_of_range(format!(
            "a response message has {bytes} bytes; the limit is {MESSAGE_BYTES_MAX}"
        )));
    }
    made.reserve(PREFIX_BYTES + bytes);
    made.put_u8(0);
    made.put_u32(bytes as u32);
    answer.encode(made).map_err(|error| Status::internal(error.to_string()))?;
    Ok(bytes)
}

impl<A, S> Body for GrpcEncoder<S>
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
        if self.poll_fill(context).is_pending() {
            return Poll::Pending;
        }
        if !self.frame.is_empty() {
            let made = std::mem::take(&mut self.frame).freeze();
            return Poll::Ready(Some(Ok(Frame::data(made))));
        }
        Poll::Ready(self.final_status.take().map(|status| {
            let mut trailers = HeaderMap::new();
            status.add_header(&mut trailers)?;
            Ok(Frame::trailers(trailers))
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.messages.is_none() && self.frame.is_empty() && self.final_status.is_none()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{StreamExt, stream};
    use http_body_util::BodyExt;
    use umbel_proto::kv::GetResponse;

    use super::*;
    use crate::test_support::test_service::{framed, run_paused};

    fn answer(bytes: usize) -> GetResponse {
        GetResponse { value: Some(vec![7; bytes].into()) }
    }

    /// The frames and the status of a body.
    async fn frames(
        mut body: impl Body<Data = Bytes, Error = Status> + Unpin,
    ) -> (Vec<Bytes>, Status) {
        let mut frames = Vec::new();
        loop {
            assert!(!body.is_end_stream());
            match body.frame().await.expect("trailers follow the frames").unwrap().into_data() {
                Ok(data) => frames.push(data),
                Err(frame) => {
                    assert!(body.is_end_stream() && body.frame().await.is_none());
                    let trailers = frame.into_trailers().expect("the last frame");
                    return (
                        frames,
                        Status::from_header_map(&trailers).expect("trailers contain a status"),
                    );
                }
            }
        }
    }

    #[test]
    fn ready_responses_share_a_frame_in_order() {
        run_paused(async {
            let sizes = [1, 0, 20 << 10, 20 << 10, 5, 3 << 20, 7];
            let answers = sizes.map(|bytes| Ok(answer(bytes)));
            let (made, end) = frames(GrpcEncoder::new(stream::iter(answers))).await;
            assert_eq!(end.code(), tonic::Code::Ok);
            let wanted: Vec<Bytes> = sizes.iter().map(|bytes| framed(&answer(*bytes))).collect();
            assert_eq!(made.concat(), wanted.concat());
            let lengths: Vec<usize> = made.iter().map(|frame| frame.len() >> 10).collect();
            assert_eq!(lengths, [40, 3 << 10, 0]);
        });
    }

    #[test]
    fn responses_before_an_error_are_sent_with_full_status() {
        run_paused(async {
            let failed = Status::with_details(tonic::Code::Aborted, "no – not now", vec![1].into());
            let answers = [Ok(answer(3)), Err(failed), Ok(answer(4))];
            let (made, end) = frames(GrpcEncoder::new(stream::iter(answers))).await;
            assert_eq!(made, [framed(&answer(3))]);
            assert_eq!((end.code(), end.message()), (tonic::Code::Aborted, "no – not now"));
            assert_eq!(end.details(), [1]);
            let answers = [Ok(answer(3)), Ok(answer(MESSAGE_BYTES_MAX))];
            let (made, end) = frames(GrpcEncoder::new(stream::iter(answers))).await;
            assert_eq!((made.len(), end.code()), (1, tonic::Code::OutOfRange));
        });
    }

    /// Story: a page of 512 events was built and encoded in one poll, which took up to 5 ms.
    #[test]
    fn poll_encodes_a_bounded_number_of_messages_and_bytes() {
        for (bytes, messages_max) in [(0, POLL_MESSAGES), (10 << 10, 26), (300 << 10, 1)] {
            let built = std::cell::Cell::new(0);
            let answers = (0..3 * POLL_MESSAGES).map(|_| {
                built.set(built.get() + 1);
                Ok(answer(bytes))
            });
            let mut body = GrpcEncoder::new(stream::iter(answers));
            let mut context = Context::from_waker(futures_util::task::noop_waker_ref());
            let (mut yields, mut built_before, mut sent) = (0, 0, 0);
            loop {
                match Pin::new(&mut body).poll_frame(&mut context) {
                    Poll::Ready(Some(Ok(frame))) if frame.is_trailers() => break,
                    Poll::Ready(Some(Ok(frame))) => sent += frame.into_data().unwrap().len(),
                    Poll::Ready(other) => panic!("{other:?}"),
                    Poll::Pending => {
                        let in_this_poll =
                            built.get() - std::mem::replace(&mut built_before, built.get());
                        assert_eq!(in_this_poll, messages_max, "of {bytes} bytes");
                        yields += 1;
                    }
                }
            }
            assert_eq!(yields, 3 * POLL_MESSAGES / messages_max);
            assert_eq!(sent, 3 * POLL_MESSAGES * framed(&answer(bytes)).len());
        }
    }

    /// A body that yields is polled again, with the messages before in its frame.
    #[test]
    fn body_that_yields_wakes_its_task() {
        run_paused(async {
            let answers = (0..5 * POLL_MESSAGES).map(|_| Ok(answer(1)));
            let (made, end) = frames(GrpcEncoder::new(stream::iter(answers))).await;
            assert_eq!(end.code(), tonic::Code::Ok);
            assert_eq!(made, [framed(&answer(1)).repeat(5 * POLL_MESSAGES)]);
        });
    }

    /// Story: the encoder kept the memory of the longest message until the call ended. A thousand
    /// idle subscriptions to streams whose last event had 8 MB made the server keep 16 GB.
    #[test]
    fn buffer_is_freed_after_frames_are_taken() {
        run_paused(async {
            let answers = stream::iter([Ok(answer(1 << 20))]).chain(stream::pending());
            let mut body = GrpcEncoder::new(answers);
            let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
            assert_eq!((frame.len() >> 20, body.frame.capacity()), (1, 0));
            let rest = tokio::time::timeout(std::time::Duration::from_secs(1), body.frame());
            assert!(rest.await.is_err());
            assert_eq!(body.frame.capacity(), 0);
        });
    }
}
