//! [`BoundedReads`]: a connection that yields to other tasks after some received bytes.
//!
//! The task of a connection reads frames until no more bytes have arrived, and starts a task for
//! each request. So the requests that it reads in one poll are limited. What it writes in one poll
//! is not.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::limits::POLL_RECEIVED_BYTES;

/// A stream whose reads are pending once after each [`POLL_RECEIVED_BYTES`] bytes.
#[derive(Debug)]
pub struct BoundedReads<S> {
    stream: S,
    /// Bytes that were read since the last pending read.
    bytes: usize,
}

impl<S> BoundedReads<S> {
    /// Wraps a stream.
    pub fn new(stream: S) -> BoundedReads<S> {
        BoundedReads { stream, bytes: 0 }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for BoundedReads<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.bytes >= POLL_RECEIVED_BYTES {
            self.bytes = 0;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        match polled.is_pending() {
            true => self.bytes = 0,
            false => self.bytes += buffer.filled().len() - before,
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for BoundedReads<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
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
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
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

    /// All requests that had arrived were read in one poll.
    #[test]
    fn reads_of_a_full_connection_yield() {
        let sent = vec![7; 3 * POLL_RECEIVED_BYTES];
        let mut stream = BoundedReads::new(&sent[..]);
        let wakes = Arc::new(Wakes::default());
        let waker = Arc::clone(&wakes).into();
        let mut context = Context::from_waker(&waker);
        let (mut received, mut bytes_of_poll) = (Vec::new(), 0);
        while received.len() < sent.len() {
            let mut part = [0; 1000];
            let mut buffer = ReadBuf::new(&mut part);
            match Pin::new(&mut stream).poll_read(&mut context, &mut buffer) {
                Poll::Ready(read) => {
                    read.unwrap();
                    bytes_of_poll += buffer.filled().len();
                    received.extend_from_slice(buffer.filled());
                }
                Poll::Pending => bytes_of_poll = 0,
            }
            assert!(bytes_of_poll < POLL_RECEIVED_BYTES + 1000, "{bytes_of_poll}");
        }
        assert_eq!(received, sent);
        assert_eq!(wakes.0.load(Ordering::Relaxed), 2, "each pending read wakes its task");
    }
}
