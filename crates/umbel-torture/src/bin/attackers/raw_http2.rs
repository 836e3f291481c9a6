//! [`RawHttp2`]: an HTTP/2 connection over which an attacker writes frames of its own.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const SETTINGS: u8 = 4;
/// Flags: end of a stream, end of the headers.
pub const END: u8 = 1;
pub const END_HEADERS: u8 = 4;
/// Setting: initial flow-control window of a stream.
pub const INITIAL_WINDOW: u16 = 4;

/// A connection after its preface.
#[derive(Debug)]
pub struct RawHttp2 {
    stream: TcpStream,
}

impl RawHttp2 {
    /// Connects with these settings.
    pub async fn connect(
        address: SocketAddr,
        settings: &[(u16, u32)],
    ) -> std::io::Result<RawHttp2> {
        let mut stream = TcpStream::connect(address).await?;
        let mut payload = Vec::new();
        for (name, value) in settings {
            payload.extend(name.to_be_bytes());
            payload.extend(value.to_be_bytes());
        }
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        stream.write_all(&[&preface[..], &frame(SETTINGS, 0, 0, &payload)].concat()).await?;
        Ok(RawHttp2 { stream })
    }

    /// Sends bytes; fails if the server has closed the connection.
    pub async fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes).await
    }

    /// Reads and drops what has arrived; fails at the end of the connection.
    pub fn drain(&mut self) -> std::io::Result<()> {
        let mut bytes = [0; 4096];
        loop {
            match self.stream.try_read(&mut bytes) {
                Ok(0) => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads and drops until the connection ends.
    pub async fn read_to_end(&mut self) {
        let mut bytes = [0; 4096];
        while matches!(self.stream.read(&mut bytes).await, Ok(1..)) {}
    }
}

/// Encodes a frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// Encodes a header as an HPACK literal; `indexing` is 0 without an index, 0x40 with one.
pub fn header(indexing: u8, name: &str, value: &str) -> Vec<u8> {
    let mut block = vec![indexing];
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

/// Encodes the headers of a call of a user.
pub fn call(path: &str, authorization: &str) -> Vec<u8> {
    let all = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "localhost"),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
        ("authorization", authorization),
    ];
    all.iter().flat_map(|(name, value)| header(0, name, value)).collect()
}

/// Frames a message for a call.
pub fn message(bytes: &[u8]) -> Vec<u8> {
    let mut message = vec![0];
    message.extend((bytes.len() as u32).to_be_bytes());
    message.extend(bytes);
    message
}
