//! Floods: too many streams, resets, pings, settings, headers, connections.

use std::time::Duration;

use tonic::Code;
use umbel_proto::streams::read_req::RevisionOption;
use umbel_server::Config;
use umbel_server::limits::{HEADER_BYTES_MAX, PAGES_MAX};

use super::super::client::{Client, of_stream, subscription};
use super::raw_connection::{
    CONTINUATION, END, END_HEADERS, HEADERS, INITIAL_WINDOW, PING, RESET, Raw, SETTINGS,
    WINDOW_UPDATE, call, frame, header,
};
use super::target_server::{Target, serves};

pub const READ: &str = "/event_store.client.streams.Streams/Read";

/// Rapid reset (CVE-2023-44487): each stream is opened and reset at once, so that the limit of open
/// streams is never reached.
#[test]
fn rapid_stream_resets_by_the_client() {
    Target::attack(Config::default(), async |address| {
        let mut raw = Raw::http2(address, &[]).await;
        let block = call(READ);
        for stream in (1..200_000).step_by(2) {
            let mut sent = frame(HEADERS, END_HEADERS, stream, &block);
            sent.extend(frame(RESET, 0, stream, &8_u32.to_be_bytes()));
            if raw.send(&sent).await.is_err() {
                break;
            }
        }
        assert_eq!(raw.closed().await, Some(11), "ENHANCE_YOUR_CALM");
    });
}

/// "MadeYouReset" (CVE-2025-8671): the client sends frames that make the server reset the streams.
#[test]
fn invalid_frames_that_force_server_resets() {
    Target::attack(Config::default(), async |address| {
        let mut raw = Raw::http2(address, &[]).await;
        let block = call(READ);
        for stream in (1..200_000).step_by(2) {
            let mut sent = frame(HEADERS, END_HEADERS, stream, &block);
            // A window increment of 0 is an error of the stream.
            sent.extend(frame(WINDOW_UPDATE, 0, stream, &0_u32.to_be_bytes()));
            if raw.send(&sent).await.is_err() {
                break;
            }
        }
        assert!(raw.closed().await.is_some(), "the connection was not closed with a reason");
    });
}

/// Headers that continue without end in continuation frames.
#[test]
fn endless_header_continuations() {
    Target::attack(Config::default(), async |address| {
        let mut raw = Raw::http2(address, &[]).await;
        raw.send(&frame(HEADERS, 0, 1, &call(READ))).await.unwrap();
        let more = header("x-more", &"v".repeat(16_000));
        let mut sent = 0;
        while raw.send(&frame(CONTINUATION, 0, 1, &more)).await.is_ok() {
            sent += more.len();
            assert!(sent < 64 << 20, "it was taken without end");
        }
        assert!(raw.closed().await.is_some() || sent > HEADER_BYTES_MAX as usize);
    });
}

/// Empty continuation frames, which cost the sender nearly nothing and may never end.
#[test]
fn empty_continuation_frames() {
    Target::attack(Config::default(), async |address| {
        let mut raw = Raw::http2(address, &[]).await;
        raw.send(&frame(HEADERS, 0, 1, &call(READ))).await.unwrap();
        let empty = frame(CONTINUATION, 0, 1, &[]).repeat(1000);
        let mut ended = false;
        for _ in 0..1000 {
            if raw.send(&empty).await.is_err() {
                ended = true;
                break;
            }
        }
        // A million of them had no effect, or the connection was closed.
        if !ended {
            serves(address, 7).await;
        }
    });
}

/// Pings and settings require answers, but the client reads none.
#[test]
fn pings_and_settings_with_unread_responses() {
    Target::attack(Config::default(), async |address| {
        for requests in [frame(PING, 0, 0, &[7; 8]), frame(SETTINGS, 0, 0, &[0, 4, 0, 1, 0, 0])] {
            let mut raw = Raw::http2(address, &[]).await;
            let many = requests.repeat(1000);
            let mut blocked_writes = 0;
            let mut sent = 0_usize;
            // Until the server reads nothing for half a second, or closes the connection.
            while blocked_writes < 50 && sent < 64 << 20 {
                match raw.try_send(&many[sent % requests.len()..]) {
                    Ok(0) => {
                        blocked_writes += 1;
                        tokio::time::sleep(Duration::from_millis(10)).await;
                    }
                    Ok(taken) => (blocked_writes, sent) = (0, sent + taken),
                    Err(_) => break,
                }
            }
            assert!(sent < 64 << 20, "it takes them all and keeps the answers");
            serves(address, 8).await;
        }
    });
}

/// Thousands of connections that only answer keepalive pings.
#[test]
fn idle_connections() {
    let config = Config { connections_max: 50, ..Config::default() };
    Target::attack(config, async |address| {
        let mut idle = Vec::new();
        for number in 0..90 {
            idle.push(Raw::http2(address, &[]).await);
            if number % 30 == 29 {
                serves(address, number).await;
            }
        }
        drop(idle);
    });
}

/// Connections whose client vanished without a close, as after a cut cable.
#[test]
fn connections_of_vanished_clients() {
    let short = Duration::from_millis(200);
    let config =
        Config { keepalive_interval: short, keepalive_timeout: short, ..Config::default() };
    Target::attack(config, async |address| {
        let mut vanished = Vec::new();
        for _ in 0..20 {
            // It answers no ping.
            vanished.push(Raw::http2(address, &[]).await);
        }
        for raw in vanished {
            raw.closed().await;
        }
    });
}

/// Pipelined requests whose responses the client does not read.
#[test]
fn pipelined_requests_with_unread_responses() {
    Target::attack(Config::default(), async |address| {
        let mut raw = Raw::silent(address).await;
        let requests = b"GET /metrics HTTP/1.1\r\nhost: a\r\n\r\n".repeat(100);
        let (mut blocked_writes, mut sent) = (0, 0_usize);
        while blocked_writes < 50 && sent < 64 << 20 {
            match raw.try_send(&requests) {
                Ok(0) => {
                    blocked_writes += 1;
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                Ok(taken) => (blocked_writes, sent) = (0, sent + taken),
                Err(_) => break,
            }
        }
        assert!(sent < 64 << 20, "it takes them all");
        serves(address, 9).await;
    });
}

/// HTTP/2 requests whose responses the client does not read; a connection has many at once. Story:
/// with a flow-control window of zero the client takes no response, but the server produced and
/// kept each one.
#[test]
fn http2_requests_with_unread_responses() {
    Target::attack(Config::default(), async |address| {
        let mut raw = Raw::http2(address, &[(INITIAL_WINDOW, 0)]).await;
        let requests: Vec<u32> = (1..200).step_by(2).collect();
        let block: Vec<u8> =
            [(":method", "GET"), (":scheme", "http"), (":path", "/stats"), (":authority", "a")]
                .iter()
                .flat_map(|(name, value)| header(name, value))
                .collect();
        for stream in &requests {
            raw.send(&frame(HEADERS, END_HEADERS | END, *stream, &block)).await.unwrap();
        }
        let moment = Duration::from_millis(500);
        let mut answered = 0;
        while let Ok(frame) = tokio::time::timeout(moment, raw.frame()).await {
            answered += usize::from(frame.unwrap().kind == HEADERS);
        }
        assert_eq!(answered, PAGES_MAX, "the others wait");
        serves(address, 10).await;
        // A client that reads them gets all.
        let [high, low] = INITIAL_WINDOW.to_be_bytes();
        raw.send(&frame(SETTINGS, 0, 0, &[high, low, 0, 1, 0, 0])).await.unwrap();
        raw.send(&frame(WINDOW_UPDATE, 0, 0, &(1_u32 << 24).to_be_bytes())).await.unwrap();
        while answered < requests.len() {
            answered += usize::from(raw.frame().await.unwrap().kind == HEADERS);
        }
    });
}

/// Calls to ever new paths, which must not make the metrics grow without bound.
#[test]
fn calls_of_unlimited_distinct_paths() {
    Target::attack(Config::default(), async |address| {
        let mut raw = Raw::http2(address, &[]).await;
        let long = "x".repeat(20_000);
        for stream in (1..4_000).step_by(2) {
            let path = format!("/event_store.client.streams.Streams/{stream}{long}");
            let sent = frame(HEADERS, END_HEADERS | END, stream, &call(&path)[..]);
            if sent.len() > 16_384 + 9 {
                // A frame has 16 KiB at most.
                let block = call(&path);
                let (first, rest) = block.split_at(16_000);
                let mut parts = frame(HEADERS, END, stream, first);
                parts.extend(frame(CONTINUATION, END_HEADERS, stream, rest));
                raw.send(&parts).await.unwrap();
            } else {
                raw.send(&sent).await.unwrap();
            }
            // Each gets a response.
            while raw.frame().await.unwrap().stream != stream {}
        }
    });
}

/// Story: each connection could have 1,024 open calls, without a limit on all connections together.
/// A hundred thousand open calls took 2 GiB.
#[test]
fn calls_over_the_server_limit() {
    let config = Config { open_calls_max: 50, ..Config::default() };
    Target::attack(config, async |address| {
        let all = || subscription(of_stream("none", RevisionOption::Start(())));
        let many = Client::connect(address).await;
        let mut held = Vec::new();
        for _ in 0..50 {
            held.push(many.subscribe(all()).await.unwrap());
        }
        let other = Client::connect(address).await;
        let mut refused = 0;
        let mut stays = loop {
            match other.subscribe(all()).await {
                Ok(answers) => break answers,
                Err(status) => {
                    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
                    assert!(status.message().contains("50 calls are open"), "{status:?}");
                    refused += 1;
                }
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        assert!(refused > 0 && stays.message().await.unwrap().is_some());
        for answers in &mut held {
            while let Ok(Some(_)) = answers.message().await {}
        }
        assert!(many.subscribe(all()).await.is_err(), "its connection has ended");
    });
}
