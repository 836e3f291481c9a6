//! [`Opening`]: a connection whose first bytes must come in time.
//!
//! Whether a client speaks HTTP/1.1 or HTTP/2 is known once its first bytes differ from the preface
//! of HTTP/2 or are all of it. The limits of either begin only then; until then there is this one.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// What every HTTP/2 client says first.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A stream whose reads fail where its first bytes do not come in time.
#[derive(Debug)]
pub struct Opening<S> {
    stream: S,
    /// Until when they must have come; `None` once they have.
    until: Option<Pin<Box<Sleep>>>,
    /// How much of the preface has come.
    come: usize,
}

impl<S> Opening<S> {
    /// A stream whose first bytes must come within `time`.
    pub fn new(stream: S, time: Duration) -> Opening<S> {
        Opening { stream, until: Some(Box::pin(sleep(time))), come: 0 }
    }

    /// Takes note of what was read.
    fn note(&mut self, read: &[u8]) {
        let rest = &PREFACE[self.come..];
        let compared = read.len().min(rest.len());
        self.come += compared;
        if self.come == PREFACE.len() || read[..compared] != rest[..compared] {
            self.until = None;
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Opening<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        if polled.is_ready() && self.until.is_some() {
            self.note(&buffer.filled()[before..]);
        }
        match &mut self.until {
            Some(until) if polled.is_pending() => until.as_mut().poll(context).map(|()| {
                let why = "neither a request nor the preface of HTTP/2 came in time";
                Err(io::Error::new(io::ErrorKind::TimedOut, why))
            }),
            _ => polled,
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Opening<S> {
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

    /// Whether no time limits a connection any more once this was read.
    fn is_open_after(reads: &[&[u8]]) -> bool {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let _inside = runtime.enter();
        let mut opening = Opening::new((), Duration::ZERO);
        for read in reads {
            if opening.until.is_some() {
                opening.note(read);
            }
        }
        opening.until.is_none()
    }

    #[test]
    fn a_connection_is_open_once_it_is_known_what_it_speaks() {
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
