//! Much of what is allowed once: streams, resets, pings, settings, headers, connections.

use std::time::Duration;

use tonic::Code;
use umbel_proto::streams::read_req::RevisionOption;
use umbel_server::Config;
use umbel_server::limits::{HEADER_BYTES_MAX, PAGES_MAX};

use super::super::client::{Client, of_stream, subscription};
use super::raw::{
    CONTINUATION, END, END_HEADERS, HEADERS, INITIAL_WINDOW, PING, RESET, Raw, SETTINGS,
    WINDOW_UPDATE, call, frame, header,
};
use super::target::{Target, serves};

pub const READ: &str = "/event_store.client.streams.Streams/Read";

/// Rapid reset (CVE-2023-44487): each stream is begun and reset at once, so that no limit of open
/// ones is reached.
#[test]
fn streams_that_are_reset_as_they_begin() {
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
        assert_eq!(raw.ended().await, Some(11), "ENHANCE_YOUR_CALM");
    });
}

/// "MadeYouReset" (CVE-2025-8671): the client sends what makes the server reset the streams itself.
#[test]
fn streams_that_the_server_has_to_reset() {
    Target::attack(Config::default(), async |address| {
        let mut raw = Raw::http2(address, &[]).await;
        let block = call(READ);
        for stream in (1..200_000).step_by(2) {
            let mut sent = frame(HEADERS, END_HEADERS, stream, &block);
            // A window that grows by nothing is an error of the stream.
            sent.extend(frame(WINDOW_UPDATE, 0, stream, &0_u32.to_be_bytes()));
            if raw.send(&sent).await.is_err() {
                break;
            }
        }
        assert!(raw.ended().await.is_some(), "the connection was ended with a reason");
    });
}

/// Headers that go on and on in continuations.
#[test]
fn headers_that_never_end() {
    Target::attack(Config::default(), async |address| {
        let mut raw = Raw::http2(address, &[]).await;
        raw.send(&frame(HEADERS, 0, 1, &call(READ))).await.unwrap();
        let more = header("x-more", &"v".repeat(16_000));
        let mut sent = 0;
        while raw.send(&frame(CONTINUATION, 0, 1, &more)).await.is_ok() {
            sent += more.len();
            assert!(sent < 64 << 20, "it was taken without end");
        }
        assert!(raw.ended().await.is_some() || sent > HEADER_BYTES_MAX as usize);
    });
}

/// Continuations without bytes cost the sender nearly nothing, and may never end either.
#[test]
fn continuations_that_are_empty() {
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
        // A million of them came to nothing, or to the end of the connection.
        if !ended {
            serves(address, 7).await;
        }
    });
}

/// Pings and settings want answers; nobody reads them.
#[test]
fn questions_whose_answers_nobody_reads() {
    Target::attack(Config::default(), async |address| {
        for asked in [frame(PING, 0, 0, &[7; 8]), frame(SETTINGS, 0, 0, &[0, 4, 0, 1, 0, 0])] {
            let mut raw = Raw::http2(address, &[]).await;
            let many = asked.repeat(1000);
            let mut quiet = 0;
            let mut sent = 0_usize;
            // Until nothing more is taken for half a second, or the connection is ended.
            while quiet < 50 && sent < 64 << 20 {
                match raw.stuff(&many[sent % asked.len()..]) {
                    Ok(0) => {
                        quiet += 1;
                        tokio::time::sleep(Duration::from_millis(10)).await;
                    }
                    Ok(taken) => (quiet, sent) = (0, sent + taken),
                    Err(_) => break,
                }
            }
            assert!(sent < 64 << 20, "it takes them all and keeps the answers");
            serves(address, 8).await;
        }
    });
}

/// Thousands of connections that say nothing but that they are there.
#[test]
fn connections_that_stay_and_do_nothing() {
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

/// Connections that went away without a word, as when a cable is cut: nothing comes from them.
#[test]
fn connections_whose_client_is_gone() {
    let short = Duration::from_millis(200);
    let config = Config { ask_after: short, ask_time: short, ..Config::default() };
    Target::attack(config, async |address| {
        let mut gone = Vec::new();
        for _ in 0..20 {
            // It answers no ping.
            gone.push(Raw::http2(address, &[]).await);
        }
        for raw in gone {
            raw.ended().await;
        }
    });
}

/// Requests one behind the other whose answers nobody reads.
#[test]
fn pages_that_are_asked_for_and_not_read() {
    Target::attack(Config::default(), async |address| {
        let mut raw = Raw::silent(address).await;
        let asked = b"GET /metrics HTTP/1.1\r\nhost: a\r\n\r\n".repeat(100);
        let (mut quiet, mut sent) = (0, 0_usize);
        while quiet < 50 && sent < 64 << 20 {
            match raw.stuff(&asked) {
                Ok(0) => {
                    quiet += 1;
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                Ok(taken) => (quiet, sent) = (0, sent + taken),
                Err(_) => break,
            }
        }
        assert!(sent < 64 << 20, "it takes them all");
        serves(address, 9).await;
    });
}

/// The same over HTTP/2, where a connection has many at once: a window of nothing takes none of
/// them, and each was made and kept.
#[test]
fn pages_of_many_streams_that_are_not_read() {
    Target::attack(Config::default(), async |address| {
        let mut raw = Raw::http2(address, &[(INITIAL_WINDOW, 0)]).await;
        let asked: Vec<u32> = (1..200).step_by(2).collect();
        let block: Vec<u8> =
            [(":method", "GET"), (":scheme", "http"), (":path", "/stats"), (":authority", "a")]
                .iter()
                .flat_map(|(name, value)| header(name, value))
                .collect();
        for stream in &asked {
            raw.send(&frame(HEADERS, END_HEADERS | END, *stream, &block)).await.unwrap();
        }
        let moment = Duration::from_millis(500);
        let mut answered = 0;
        while let Ok(frame) = tokio::time::timeout(moment, raw.frame()).await {
            answered += usize::from(frame.unwrap().kind == HEADERS);
        }
        assert_eq!(answered, PAGES_MAX, "the others wait");
        serves(address, 10).await;
        // Who takes them gets all.
        let [high, low] = INITIAL_WINDOW.to_be_bytes();
        raw.send(&frame(SETTINGS, 0, 0, &[high, low, 0, 1, 0, 0])).await.unwrap();
        raw.send(&frame(WINDOW_UPDATE, 0, 0, &(1_u32 << 24).to_be_bytes())).await.unwrap();
        while answered < asked.len() {
            answered += usize::from(raw.frame().await.unwrap().kind == HEADERS);
        }
    });
}

/// A call of every path there may be, so that what counts them grows without end.
#[test]
fn calls_with_names_without_end() {
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
            // Each is answered.
            while raw.frame().await.unwrap().stream != stream {}
        }
    });
}

/// Story: each connection could have 1,024 calls open, and nothing limited those of all together. A
/// hundred thousand of them took 2 GiB.
#[test]
fn more_calls_than_there_may_be() {
    let config = Config { calls_max: 50, ..Config::default() };
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
