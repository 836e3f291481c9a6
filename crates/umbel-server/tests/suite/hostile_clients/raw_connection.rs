//! A connection over which tests write raw bytes.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// First bytes of every HTTP/2 client.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RESET: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;

/// Flag for the end of a stream, or the acknowledgement of settings and pings.
pub const END: u8 = 1;
pub const END_HEADERS: u8 = 4;

/// Setting: bytes of the header table; with 0 each header is a literal.
pub const TABLE_BYTES: u16 = 1;
/// Setting: initial flow-control window of a stream.
pub const INITIAL_WINDOW: u16 = 4;

/// A received frame.
#[derive(Debug)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

/// A raw connection.
#[derive(Debug)]
pub struct Raw {
    stream: TcpStream,
}

impl Raw {
    /// Connects and sends nothing.
    pub async fn silent(address: SocketAddr) -> Raw {
        Raw { stream: TcpStream::connect(address).await.unwrap() }
    }

    /// Connects and sends the preface of HTTP/2 with these settings.
    pub async fn http2(address: SocketAddr, settings: &[(u16, u32)]) -> Raw {
        let mut raw = Raw::silent(address).await;
        let mut sent = PREFACE.to_vec();
        let mut payload = Vec::new();
        for (name, value) in settings {
            payload.extend(name.to_be_bytes());
            payload.extend(value.to_be_bytes());
        }
        sent.extend(frame(SETTINGS, 0, 0, &payload));
        raw.send(&sent).await.unwrap();
        raw
    }

    /// Sends bytes; fails if the server has closed the connection.
    pub async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await
    }

    /// Sends bytes until the server reads no more, because its responses are not read.
    pub fn try_send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.stream.try_write(bytes) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            written => written,
        }
    }

    /// Reads the next frame; fails at the end of the connection.
    pub async fn frame(&mut self) -> io::Result<Frame> {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head).await?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        self.stream.read_exact(&mut payload).await?;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        Ok(Frame { kind: head[3], flags: head[4], stream, payload })
    }

    /// Sends bytes of a request, as far as the windows of the server permit, and reads frames
    /// meanwhile. The call must be the first one of its connection.
    pub async fn send_data(&mut self, stream: u32, mut bytes: &[u8]) -> io::Result<()> {
        let mut windows = [u64::from(u16::MAX); 2];
        while !bytes.is_empty() {
            let window = windows[0].min(windows[1]).min(16_384) as usize;
            if window > 0 {
                let (sent, rest) = bytes.split_at(window.min(bytes.len()));
                self.send(&frame(DATA, 0, stream, sent)).await?;
                windows = windows.map(|window| window - sent.len() as u64);
                bytes = rest;
                continue;
            }
            let Frame { kind, flags, stream: of, payload } = self.frame().await?;
            let number = |at: usize| {
                let bytes: [u8; 4] = payload[at..at + 4].try_into().unwrap();
                u64::from(u32::from_be_bytes(bytes))
            };
            match kind {
                WINDOW_UPDATE => windows[usize::from(of != 0)] += number(0),
                SETTINGS if flags & END == 0 => {
                    for at in (0..payload.len()).step_by(6) {
                        if payload[at..at + 2] == INITIAL_WINDOW.to_be_bytes() {
                            windows[1] += number(at + 2) - u64::from(u16::MAX);
                        }
                    }
                    self.send(&frame(SETTINGS, END, 0, &[])).await?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Reads until the connection ends; returns the server's error code, if it sent one.
    pub async fn closed(mut self) -> Option<u32> {
        let mut reason = None;
        while let Ok(frame) = self.frame().await {
            if frame.kind == GOAWAY {
                let code: [u8; 4] = frame.payload[4..8].try_into().unwrap();
                reason = Some(u32::from_be_bytes(code));
            }
        }
        reason
    }

    /// Reads until the connection ends; returns the bytes as text.
    pub async fn text(mut self) -> String {
        let mut bytes = Vec::new();
        // It may have been closed in the middle.
        let _ = self.stream.read_to_end(&mut bytes).await;
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// Encodes a frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap();
    let mut frame = length.to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// Encodes a header as an HPACK literal without indexing.
pub fn header(name: &str, value: &str) -> Vec<u8> {
    let mut block = vec![0];
    for text in [name, value] {
        match text.len() {
            length @ ..127 => block.push(length as u8),
            length => {
                block.push(127);
                let mut rest = length - 127;
                while rest >= 128 {
                    block.push((rest % 128) as u8 | 128);
                    rest /= 128;
                }
                block.push(rest as u8);
            }
        }
        block.extend(text.as_bytes());
    }
    block
}

/// Encodes the headers of a call.
pub fn call(path: &str) -> Vec<u8> {
    let all = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "localhost"),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
    ];
    all.iter().flat_map(|(name, value)| header(name, value)).collect()
}

/// Frames a message for a call.
pub fn message(bytes: &[u8]) -> Vec<u8> {
    let mut message = vec![0];
    message.extend(u32::try_from(bytes.len()).unwrap().to_be_bytes());
    message.extend(bytes);
    message
}
