//! Malformed messages and frames.

use std::time::Duration;

use umbel_server::Config;
use umbel_server::limits::HEADER_BYTES_MAX;

use super::raw_connection::{
    CONTINUATION, DATA, END, END_HEADERS, HEADERS, PING, PREFACE, RESET, Raw, SETTINGS,
    TABLE_BYTES, WINDOW_UPDATE, call, frame, header, message,
};
use super::target_server::Target;

const STREAMS: &str = "/event_store.client.streams.Streams";

/// Final status of a call that sends these bytes.
async fn status(raw: &mut Raw, stream: u32, path: &str, body: &[u8]) -> u32 {
    let mut sent = frame(HEADERS, END_HEADERS, stream, &call(path));
    let mut parts = body.chunks(16_000).peekable();
    while let Some(part) = parts.next() {
        let end = if parts.peek().is_none() { END } else { 0 };
        sent.extend(frame(DATA, end, stream, part));
    }
    raw.send(&sent).await.unwrap();
    loop {
        let answer = raw.frame().await.unwrap();
        if answer.kind == RESET && answer.stream == stream {
            panic!("{path}: reset without a status: {:?} for {body:?}", answer.payload);
        }
        if answer.kind == HEADERS && answer.stream == stream && answer.flags & END != 0 {
            return code(&answer.payload);
        }
    }
}

/// The status in a header block: `grpc-status` is a literal, with a number as text.
fn code(block: &[u8]) -> u32 {
    let name = b"grpc-status";
    let plain = block.windows(name.len()).position(|window| window == name);
    match plain {
        Some(at) => digits(&block[at + name.len()..]),
        // The name may be Huffman coded.
        None => {
            let coded = [0x9a, 0xca, 0xc8, 0xb2, 0x12, 0x34, 0xda, 0x8f];
            let at = block.windows(coded.len()).position(|window| window == coded);
            let at = at.unwrap_or_else(|| panic!("no status: {block:02x?}"));
            digits(&block[at + coded.len()..])
        }
    }
}

/// A number after its length, plain or Huffman coded: digits below 3 have 5 bits, others 6.
fn digits(value: &[u8]) -> u32 {
    let length = usize::from(value[0] & 0x7f);
    let bytes = &value[1..=length];
    if value[0] & 0x80 == 0 {
        return std::str::from_utf8(bytes).unwrap().parse().unwrap();
    }
    let bits: Vec<u8> =
        bytes.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1)).collect();
    let take = |from: usize, count: usize| {
        bits.get(from..from + count)
            .map(|bits| bits.iter().fold(0_u32, |number, bit| number << 1 | u32::from(*bit)))
    };
    let (mut at, mut number) = (0, 0);
    while let Some(five) = take(at, 5) {
        if five < 3 {
            (at, number) = (at + 5, number * 10 + five);
        } else if let Some(six) = take(at, 6).filter(|six| (0x19..=0x1f).contains(six)) {
            (at, number) = (at + 6, number * 10 + (six - 0x19) + 3);
        } else {
            break;
        }
    }
    number
}

#[test]
fn wrong_lengths_and_malformed_messages() {
    Target::attack(Config::default(), async |address| {
        let mut raw = Raw::http2(address, &[(TABLE_BYTES, 0)]).await;
        let mut stream = 1;
        let lies: [(&str, Vec<u8>); 12] = [
            ("longer than may be", vec![0, 0xff, 0xff, 0xff, 0xff, 1]),
            ("longer than what comes", vec![0, 0, 0, 0, 200, 1, 2]),
            ("half a head", vec![0, 0]),
            (
                "compressed without negotiation",
                message(b"x")
                    .into_iter()
                    .enumerate()
                    .map(|(at, byte)| if at == 0 { 1 } else { byte })
                    .collect(),
            ),
            ("an invalid flag", vec![9, 0, 0, 0, 0]),
            ("a field longer than the message", message(&[0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f])),
            (
                "a number without end",
                message(&[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]),
            ),
            ("a field with the number 0", message(&[0x00, 0x01])),
            ("an unknown frame type", message(&[0x0f])),
            ("groups in groups", message(&[0x0b].repeat(50_000))),
            ("messages in messages", message(&[0x0a, 0x7f].repeat(60))),
            ("text that is not UTF-8", message(&[0x0a, 4, 0x0a, 2, 0xff, 0xfe])),
        ];
        for method in ["Read", "Append", "BatchAppend", "Delete", "Tombstone"] {
            for (what, body) in &lies {
                let path = format!("{STREAMS}/{method}");
                let code = status(&mut raw, stream, &path, body).await;
                assert_ne!(code, 0, "{method}: {what}");
                // The status must not be unknown, internal or data loss.
                assert!(![2, 15].contains(&code), "{method}: {what}: {code}");
                stream += 2;
            }
        }
    });
}

/// Malformed frames end only the connection on which they arrive.
#[test]
fn malformed_http2_frames() {
    Target::attack(Config::default(), async |address| {
        let head = || frame(HEADERS, END_HEADERS, 1, &call(&format!("{STREAMS}/Read")));
        let odd: [(&str, Vec<u8>); 14] = [
            ("a frame that is too long", frame(DATA, 0, 1, &vec![0; 20_000])),
            ("data for a stream that is not there", frame(DATA, 0, 9, b"x")),
            ("headers for stream 0", frame(HEADERS, END_HEADERS, 0, &call("/"))),
            ("headers of a stream of the server", frame(HEADERS, END_HEADERS, 2, &call("/"))),
            ("a continuation of nothing", frame(CONTINUATION, END_HEADERS, 1, b"")),
            ("a ping of three bytes", frame(PING, 0, 0, b"abc")),
            ("a ping on a stream", frame(PING, 0, 1, &[0; 8])),
            ("settings of partial length", frame(SETTINGS, 0, 0, b"abc")),
            ("a window that is too large", frame(WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0xff, 0xff])),
            ("a frame size that may not be", frame(SETTINGS, 0, 0, &[0, 5, 0, 0, 0, 1])),
            ("a block that is no block", frame(HEADERS, END_HEADERS, 1, &[0xff; 50])),
            (
                "a table that is too large",
                frame(HEADERS, END_HEADERS, 1, &[0x3f, 0xff, 0xff, 0x7f]),
            ),
            (
                "frames between headers and their end",
                [frame(HEADERS, 0, 1, &call("/")), frame(PING, 0, 0, &[0; 8])].concat(),
            ),
            (
                "padding that is longer than the frame",
                [head(), frame(DATA, 8, 1, &[200, 1])].concat(),
            ),
        ];
        for (what, bytes) in odd {
            let mut raw = Raw::http2(address, &[]).await;
            raw.send(&bytes).await.unwrap();
            assert!(
                raw.closed().await.is_some(),
                "{what}: the connection was not closed with a reason"
            );
        }
    });
}

#[test]
fn malformed_http_requests() {
    Target::attack(Config::default(), async |address| {
        let long = format!("GET /{} HTTP/1.1\r\nhost: a\r\n\r\n", "x".repeat(200_000));
        let many = format!("GET /ping HTTP/1.1\r\n{}\r\n", "x: y\r\n".repeat(1000));
        let head = |bytes: u32| {
            let value = "x".repeat(bytes as usize);
            format!("GET /ping HTTP/1.1\r\nhost: a\r\nconnection: close\r\nx: {value}\r\n\r\n")
        };
        let long_head = head(HEADER_BYTES_MAX);
        let mut raw = Raw::silent(address).await;
        raw.send(head(HEADER_BYTES_MAX - 100).as_bytes()).await.unwrap();
        let answer = raw.text().await;
        assert!(
            answer.starts_with("HTTP/1.1 200"),
            "a request of the maximum length is served: {answer}"
        );
        for (what, sent) in [
            ("no HTTP", "hello\r\n\r\n"),
            ("another version", "GET / HTTP/3.7\r\n\r\n"),
            (
                "a path that climbs",
                "GET /../../etc/passwd HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n",
            ),
            (
                "a path in code",
                "GET /%2e%2e/%2e%2e/etc/passwd HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n",
            ),
            ("an unknown method", "BREW /ping HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"),
            ("a tunnel", "CONNECT a:80 HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"),
            (
                "two lengths",
                "POST /ping HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nx",
            ),
            (
                "a length and chunks",
                "POST /ping HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\
              transfer-encoding: chunked\r\nconnection: close\r\n\r\n0\r\n\r\n",
            ),
            (
                "a chunk without end",
                "POST /ping HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\
              connection: close\r\n\r\nffffffffffffffffff\r\n",
            ),
            ("a header without a name", "GET /ping HTTP/1.1\r\n: x\r\n\r\n"),
            ("no host", "GET /ping HTTP/1.1\r\nconnection: close\r\n\r\n"),
            ("two hosts", "GET /ping HTTP/1.1\r\nhost: a\r\nhost: b\r\nconnection: close\r\n\r\n"),
            ("an invalid host", "GET /ping HTTP/1.1\r\nhost: a b\r\nconnection: close\r\n\r\n"),
            ("a head over the limit", &long_head),
            ("a line in a header", "GET /ping HTTP/1.1\r\nhost: a\0b\r\n\r\n"),
            ("a path without end", &long),
            ("headers without end", &many),
        ] {
            let mut raw = Raw::silent(address).await;
            // It may be closed before all was sent.
            let _ = raw.send(sent.as_bytes()).await;
            let answer = raw.text().await;
            let refused = answer.is_empty() || answer.starts_with("HTTP/1.1 4");
            assert!(refused, "{what}: {answer}");
        }
    });
}

/// Another way to begin HTTP/2, and invalid prefaces.
#[test]
fn invalid_http2_prefaces() {
    Target::attack(Config::default(), async |address| {
        let upgrade =
            b"GET /ping HTTP/1.1\r\nhost: a\r\nconnection: upgrade, http2-settings, close\r\n\
            upgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__\r\n\r\n";
        let mut raw = Raw::silent(address).await;
        raw.send(upgrade).await.unwrap();
        let answer = raw.text().await;
        assert!(answer.starts_with("HTTP/1.1 200"), "the server serves as before: {answer}");
        for sent in [
            [PREFACE, b"GET / HTTP/1.1\r\n\r\n"].concat(),
            [PREFACE, &frame(PING, 0, 0, &[0; 8])[..]].concat(),
            [PREFACE, &frame(SETTINGS, END, 0, &[])[..]].concat(),
            [PREFACE, &[0xff; 4000][..]].concat(),
        ] {
            let mut raw = Raw::silent(address).await;
            raw.send(&sent).await.unwrap();
            // Some of them are valid so far, and the server waits for more.
            let _ = tokio::time::timeout(Duration::from_secs(1), raw.closed()).await;
        }
        // Invalid pseudo headers end the call or its connection.
        for block in [
            header(":method", "POST"),
            [call("/ping"), header(":path", "/other")].concat(),
            [call("/ping"), header("Upper", "x")].concat(),
            [header("x", "y"), call("/ping")].concat(),
            [call("/ping"), header("connection", "close")].concat(),
        ] {
            let mut raw = Raw::http2(address, &[(TABLE_BYTES, 0)]).await;
            raw.send(&frame(HEADERS, END_HEADERS | END, 1, &block)).await.unwrap();
            let ended = loop {
                match raw.frame().await {
                    Err(_) => break true,
                    Ok(answer) if answer.kind == RESET && answer.stream == 1 => break false,
                    Ok(answer) => assert_ne!(answer.kind, HEADERS, "it was taken for a call"),
                }
            };
            if !ended {
                let path = format!("{STREAMS}/Read");
                assert_eq!(status(&mut raw, 3, &path, &message(b"")).await, 3, "the next one");
            }
        }
    });
}
