//! [`PrefaceTimeout`]: a connection whose first bytes must arrive in time.
//!
//! The protocol is known once the first bytes differ from the preface of HTTP/2 (HTTP/1.1) or are
//! the whole preface (HTTP/2). The time limits of either protocol begin only then;
//! [`PrefaceTimeout`] applies before.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// First bytes of every HTTP/2 client.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A stream whose reads fail if its first bytes do not arrive in time.
#[derive(Debug)]
pub struct PrefaceTimeout<S> {
    stream: S,
    /// Deadline of the first bytes; `None` once they have arrived.
    deadline: Option<Pin<Box<Sleep>>>,
    /// Received bytes of the preface.
    preface_bytes: usize,
}

impl<S> PrefaceTimeout<S> {
    /// Wraps a stream whose first bytes must arrive within `time`.
    pub fn new(stream: S, time: Duration) -> PrefaceTimeout<S> {
        PrefaceTimeout { stream, deadline: Some(Box::pin(sleep(time))), preface_bytes: 0 }
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

impl<S: AsyncRead + Unpin> AsyncRead for PrefaceTimeout<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
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

impl<S: AsyncWrite + Unpin> AsyncWrite for PrefaceTimeout<S> {
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
    use super::*;

    /// Whether the time limit is off after these reads.
    fn is_open_after(reads: &[&[u8]]) -> bool {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let _inside = runtime.enter();
        let mut opening = PrefaceTimeout::new((), Duration::ZERO);
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
