//! [`ConnectionStream`]: the stream of a connection, whose first bytes must arrive in time, and
//! which yields to other tasks.
//!
//! The protocol is known once the first bytes differ from the preface of HTTP/2 (HTTP/1.1) or are
//! the whole preface (HTTP/2). The time limits of either protocol begin only then; that of the
//! stream applies before.
//!
//! The task of a connection reads frames until no more bytes have arrived, starts a task for each
//! request, and writes the frames of all responses that are ready. Each [`POLL_STREAM_BYTES`] bytes
//! end a poll of the task.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use crate::limits::POLL_STREAM_BYTES;

/// First bytes of every HTTP/2 client.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A stream whose reads fail if its first bytes do not arrive in time. Reads and writes are pending
/// once after each [`POLL_STREAM_BYTES`] bytes.
#[derive(Debug)]
pub struct ConnectionStream<S> {
    stream: S,
    /// Deadline of the first bytes; `None` once they have arrived.
    deadline: Option<Pin<Box<Sleep>>>,
    /// Received bytes of the preface.
    preface_bytes: usize,
    reads: ByteBudget,
    writes: ByteBudget,
}

impl<S> ConnectionStream<S> {
    /// Wraps a stream whose first bytes must arrive within `time`.
    pub fn new(stream: S, time: Duration) -> ConnectionStream<S> {
        ConnectionStream { deadline: Some(Box::pin(sleep(time))), ..Self::without_deadline(stream) }
    }

    fn without_deadline(stream: S) -> ConnectionStream<S> {
        let [reads, writes] = [ByteBudget::default(); 2];
        ConnectionStream { stream, deadline: None, preface_bytes: 0, reads, writes }
    }

    /// Records the bytes that were read.
    fn advance(&mut self, read: &[u8]) {
        let rest = &PREFACE[self.preface_bytes..];
        let compared = read.len().min(rest.len());
        self.preface_bytes += compared;
        if self.preface_bytes == PREFACE.len() || read[..compared] != rest[..compared] {
            self.deadline = None;
        }
    }
}

/// Counts bytes of one direction until a poll ends.
#[derive(Debug, Clone, Copy, Default)]
struct ByteBudget {
    /// Bytes since the last pending call.
    bytes: usize,
}

impl ByteBudget {
    /// Is pending once after [`POLL_STREAM_BYTES`] bytes, and wakes the task.
    fn poll(&mut self, context: &Context<'_>) -> Poll<()> {
        if self.bytes < POLL_STREAM_BYTES {
            return Poll::Ready(());
        }
        self.bytes = 0;
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Records the result of a call that moved `bytes`, if it was not pending.
    fn record<T>(&mut self, polled: &Poll<T>, bytes: usize) {
        self.bytes = if polled.is_pending() { 0 } else { self.bytes + bytes };
    }

    /// Records the result of a write.
    fn record_write(&mut self, polled: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        let bytes = if let Poll::Ready(Ok(bytes)) = polled { bytes } else { 0 };
        self.record(&polled, bytes);
        polled
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ConnectionStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        std::task::ready!(self.reads.poll(context));
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.reads.record(&polled, buffer.filled().len() - before);
        if polled.is_ready() && self.deadline.is_some() {
            self.advance(&buffer.filled()[before..]);
        }
        match &mut self.deadline {
            Some(until) if polled.is_pending() => until.as_mut().poll(context).map(|()| {
                let why = "neither a request nor the HTTP/2 preface arrived in time";
                Err(io::Error::new(io::ErrorKind::TimedOut, why))
            }),
            _ => polled,
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ConnectionStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        std::task::ready!(self.writes.poll(context));
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.writes.record_write(polled)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        std::task::ready!(self.writes.poll(context));
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.writes.record_write(polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Moves bytes by `call` until it has moved `total`, and checks what each poll moves. Every
    /// pending call must wake the task.
    fn move_all(total: usize, mut call: impl FnMut(&mut Context<'_>) -> Poll<usize>) {
        let wakes = Arc::new(Wakes::default());
        let waker = Arc::clone(&wakes).into();
        let mut context = Context::from_waker(&waker);
        let (mut moved, mut bytes_of_poll, mut pending) = (0, 0, 0);
        while moved < total {
            match call(&mut context) {
                Poll::Ready(bytes) => {
                    (moved, bytes_of_poll) = (moved + bytes, bytes_of_poll + bytes)
                }
                Poll::Pending => (pending, bytes_of_poll) = (pending + 1, 0),
            }
            assert!(bytes_of_poll < POLL_STREAM_BYTES + 1000, "{bytes_of_poll}");
        }
        assert_eq!((pending, wakes.0.load(Ordering::Relaxed)), (2, 2));
    }

    /// All requests that had arrived were read in one poll.
    #[test]
    fn reads_of_a_full_connection_yield() {
        let sent = vec![7; 3 * POLL_STREAM_BYTES];
        let mut stream = ConnectionStream::without_deadline(&sent[..]);
        move_all(sent.len(), |context| {
            let mut part = [0; 1000];
            let mut buffer = ReadBuf::new(&mut part);
            Pin::new(&mut stream).poll_read(context, &mut buffer).map(|read| {
                read.unwrap();
                buffer.filled().len()
            })
        });
    }

    /// All responses that were ready were written in one poll.
    #[test]
    fn writes_of_many_responses_yield() {
        let mut stream = ConnectionStream::without_deadline(Vec::new());
        let total = 3 * POLL_STREAM_BYTES;
        move_all(total, |context| {
            Pin::new(&mut stream).poll_write(context, &[7; 1000]).map(Result::unwrap)
        });
        let mut stream = ConnectionStream::without_deadline(Vec::new());
        move_all(total, |context| {
            let slices = [io::IoSlice::new(&[7; 1000])];
            Pin::new(&mut stream).poll_write_vectored(context, &slices).map(Result::unwrap)
        });
    }

    /// Whether the time limit is off after these reads.
    fn is_open_after(reads: &[&[u8]]) -> bool {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let _inside = runtime.enter();
        let mut opening = ConnectionStream::new((), Duration::ZERO);
        for read in reads {
            if opening.deadline.is_some() {
                opening.advance(read);
            }
        }
        opening.deadline.is_none()
    }

    #[test]
    fn preface_timeout_ends_once_the_protocol_is_known() {
        assert!(is_open_after(&[PREFACE]));
        assert!(is_open_after(&[&PREFACE[..1], &PREFACE[1..23], &PREFACE[23..]]));
        assert!(is_open_after(&[PREFACE, b"frames"]));
        assert!(is_open_after(&[b"G"]));
        assert!(is_open_after(&[b"PRI", b"NT / HTTP/1.1"]));
        for cut in 0..PREFACE.len() {
            assert!(!is_open_after(&[&PREFACE[..cut]]), "{cut}");
        }
    }
}
