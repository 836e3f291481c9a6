//! [`Messages`]: what a client sends over a call, message by message.
//!
//! Each message has memory of its own, which goes when the message does. What is made for any call
//! keeps the memory of the longest message until its call ends, and a client may leave a thousand
//! calls open that each had a long one: docs/decisions/0037.

use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::Pin;

use hyper::body::{Body as _, Bytes};
use prost::bytes::{Buf, BytesMut};
use tonic::Status;
use tonic::body::Body;
use umbel_proto::limits::MESSAGE_BYTES_MAX;

use crate::failure;
use crate::question::Question;

/// What stands before each message: whether it is compressed, and its length in four bytes.
pub const PREFIX_BYTES: usize = 5;

/// A message of no more bytes shares its memory with those that came along with it.
const SHARED_BYTES: usize = 4 << 10;

/// Room for so much of a longer message is made with its first bytes.
const ROOM_BYTES: usize = 64 << 10;

/// What a client sends over a call.
#[derive(Debug)]
pub struct Messages<Q> {
    body: Body,
    /// What came of the next message, and perhaps of those behind it.
    come: BytesMut,
    /// How long the next one is, once its prefix came.
    length: Option<usize>,
    /// Whether nothing more is read.
    is_over: bool,
    _message: PhantomData<fn() -> Q>,
}

impl<Q: Question> Messages<Q> {
    /// The messages in the body of a request.
    pub fn new<B>(body: B) -> Messages<Q>
    where
        B: hyper::body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (body, come) = (Body::new(body), BytesMut::new());
        Messages { body, come, length: None, is_over: false, _message: PhantomData }
    }

    /// The next message; nothing behind the last one. Nothing is lost where nobody waits to the
    /// end.
    ///
    /// # Errors
    /// Where the request breaks off, and where something is no message of this call: behind that
    /// there is nothing more.
    pub async fn message(&mut self) -> Result<Option<Q>, Status> {
        if self.is_over {
            return Ok(None);
        }
        let next = self.next().await;
        self.is_over = !matches!(next, Ok(Some(_)));
        next
    }

    async fn next(&mut self) -> Result<Option<Q>, Status> {
        loop {
            if let Some(message) = self.whole()? {
                return Ok(Some(message));
            }
            match poll_fn(|context| Pin::new(&mut self.body).poll_frame(context)).await {
                // Behind trailers comes the end.
                Some(frame) => {
                    let data = frame?.into_data().unwrap_or_default();
                    self.take(&data);
                }
                None if self.come.is_empty() && self.length.is_none() => return Ok(None),
                None => return Err(failure::no_message("the request ends within a message")),
            }
        }
    }

    /// Adds what came. Room grows with it: a length that is said costs nothing. It does not grow
    /// beyond the message, which may stay in it for long.
    fn take(&mut self, data: &[u8]) {
        let (come, room) = (self.come.len() + data.len(), self.come.capacity());
        if let Some(length) = self.length.filter(|_| come > room) {
            let grown = (2 * room).clamp(ROOM_BYTES, length.max(ROOM_BYTES));
            let mut larger = BytesMut::with_capacity(come.max(grown.min(length)));
            larger.extend_from_slice(&self.come);
            self.come = larger;
        }
        self.come.extend_from_slice(data);
    }

    /// The next message where all of it came.
    fn whole(&mut self) -> Result<Option<Q>, Status> {
        let length = match self.length {
            Some(length) => length,
            None if self.come.len() < PREFIX_BYTES => return Ok(None),
            None => self.begin()?,
        };
        if self.come.len() < length {
            return Ok(None);
        }
        self.length = None;
        let message = self.come.split_to(length).freeze();
        // What is left must not keep the memory of what went before, where that is much.
        if self.come.is_empty() || length > SHARED_BYTES {
            self.come = BytesMut::from(&self.come[..]);
        }
        Q::refuse_parts(&message).map_err(|why| failure::no_message(&why))?;
        let decoded = Q::decode(message);
        decoded.map(Some).map_err(|error| failure::no_message(&error.to_string()))
    }

    /// Reads a prefix: how long the message is.
    fn begin(&mut self) -> Result<usize, Status> {
        let (is_compressed, length) = (self.come.get_u8(), self.come.get_u32() as usize);
        if is_compressed != 0 {
            return Err(failure::no_message("a message is compressed, which nobody announced"));
        }
        Q::refuse_length(length).map_err(|why| failure::no_message(&why))?;
        if length > MESSAGE_BYTES_MAX {
            return Err(Status::out_of_range(format!(
                "a message has {length} bytes, but may have {MESSAGE_BYTES_MAX}"
            )));
        }
        self.length = Some(length);
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::stream;
    use http_body_util::StreamBody;
    use hyper::body::Frame;
    use tonic::Code;
    use umbel_proto::kv::{GetRequest, PutRequest};

    use super::*;
    use crate::stage::{framed, run};

    fn of<Q: Question>(pieces: Vec<Vec<u8>>) -> Messages<Q> {
        let frames =
            pieces.into_iter().map(|piece| Ok::<_, Infallible>(Frame::data(Bytes::from(piece))));
        Messages::new(StreamBody::new(stream::iter(frames)))
    }

    fn put(bytes: usize) -> PutRequest {
        PutRequest { key: vec![1; 7], value: vec![2; bytes], ..PutRequest::default() }
    }

    #[test]
    fn messages_are_the_same_however_they_are_cut() {
        let puts = [0, 3, 70_000, 1, 0].map(put);
        let sent: Vec<u8> = puts.iter().flat_map(framed).collect();
        for piece in [1, 2, 5, 6, 100, 16_384, 70_010, sent.len()] {
            run(async {
                let mut messages = of(sent.chunks(piece).map(<[u8]>::to_vec).collect());
                for put in &puts {
                    assert_eq!(messages.message().await.unwrap().as_ref(), Some(put), "{piece}");
                }
                assert_eq!(messages.message().await.unwrap(), None);
                assert_eq!(messages.message().await.unwrap(), None);
            });
        }
    }

    #[test]
    fn what_is_no_message_is_refused_and_ends_the_call() {
        let compressed = [&[1][..], &framed(&put(9))[1..]].concat();
        let nonsense = [&[0, 0, 0, 0, 3][..], &[0xff; 3]].concat();
        let next = framed(&put(1)).to_vec();
        for (pieces, code) in [
            (vec![framed(&put(9))[..10].to_vec()], Code::InvalidArgument),
            (vec![vec![0, 0]], Code::InvalidArgument),
            (vec![compressed, next.clone()], Code::InvalidArgument),
            (vec![nonsense, next.clone()], Code::InvalidArgument),
            (vec![vec![0, 0xff, 0, 0, 0], next], Code::OutOfRange),
        ] {
            run(async {
                let mut messages = of::<PutRequest>(pieces.clone());
                let refused = messages.message().await.unwrap_err();
                assert_eq!(refused.code(), code, "{pieces:?}: {refused:?}");
                assert_eq!(messages.message().await.unwrap(), None);
            });
        }
    }

    /// Story: what read the messages of a call kept the memory of the longest one until the call
    /// ended. A client with a thousand calls that had each sent 16 MiB held 16 GiB with nothing.
    #[test]
    fn nothing_is_kept_of_a_message_that_was_taken() {
        run(async {
            let pieces = vec![framed(&put(1 << 20)).to_vec(), framed(&put(5)).to_vec()];
            let mut messages = of::<PutRequest>(pieces);
            let long = messages.message().await.unwrap().unwrap();
            assert_eq!((long.value.len(), messages.come.capacity()), (1 << 20, 0));
            messages.message().await.unwrap().unwrap();
            assert!(messages.come.capacity() < 100, "{}", messages.come.capacity());
        });
    }

    #[test]
    fn one_that_was_waited_for_in_vain_is_not_lost() {
        run(async {
            let (sender, mut messages) = crate::stage::sent::<GetRequest>();
            let waited = tokio::time::timeout(std::time::Duration::from_secs(1), async {
                messages.message().await
            });
            assert!(waited.await.is_err());
            sender.send(GetRequest::default()).unwrap();
            assert_eq!(messages.message().await.unwrap(), Some(GetRequest::default()));
        });
    }
}
