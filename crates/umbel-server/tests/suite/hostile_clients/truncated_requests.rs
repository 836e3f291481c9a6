//! Truncated requests, and responses to requests that are still being sent.

use std::net::SocketAddr;
use std::time::Duration;

use prost::Message;
use umbel_proto::limits::MESSAGE_BYTES_MAX;
use umbel_proto::streams::append_req::{Content, Options, ProposedMessage};
use umbel_proto::streams::read_req::RevisionOption;
use umbel_proto::streams::read_resp;
use umbel_proto::v2::streams::AppendRequest;
use umbel_server::Config;
use umbel_server::limits::RECEIVE_BYTES_MAX;

use super::super::client::{ANY, Client, event, name, of_stream, part};
use super::super::v2_client;
use super::raw_connection::{
    DATA, END, END_HEADERS, HEADERS, INITIAL_WINDOW, RESET, Raw, SETTINGS, call, frame, header,
    message,
};
use super::slow_clients::metric;
use super::target_server::Target;

const APPEND: &str = "/event_store.client.streams.Streams/Append";
const SESSION: &str = "/kurrentdb.protocol.v2.streams.StreamsService/AppendSession";
/// HTTP/2 error codes: no error, and cancel.
const NO_ERROR: u32 = 0;
const CANCEL: u32 = 8;
/// Time within which a wrong server would write a truncated append.
const MOMENT: Duration = Duration::from_millis(200);

/// All frames of an append of two events to this stream, except the end of the request.
fn append(stream: &str) -> Vec<u8> {
    let options =
        Options { stream_identifier: Some(name(stream)), expected_stream_revision: Some(ANY) };
    let events = [0, 1].map(|number| Content::ProposedMessage(event(number)));
    let parts = [Content::Options(options)].into_iter().chain(events);
    parts.flat_map(|content| message(&part(content).encode_to_vec())).collect()
}

/// All frames of an append session, except the end of the request.
fn session(stream: &str) -> Vec<u8> {
    let part: AppendRequest = v2_client::part(stream, None, vec![v2_client::record(0)]);
    message(&part.encode_to_vec())
}

/// Whether nothing was written to a stream.
async fn is_missing(address: SocketAddr, stream: &str) -> bool {
    let client = Client::connect(address).await;
    let read = client.read(of_stream(stream, RevisionOption::Start(()))).await.unwrap();
    matches!(&read[..], [read_resp::Content::StreamNotFound(_)])
}

/// Story: an append that the client reset without an error counted as complete: the events received
/// so far were written.
#[test]
fn append_reset_before_its_end_is_not_written() {
    Target::attack(Config::default(), async |address| {
        for (number, reason) in [NO_ERROR, CANCEL].into_iter().enumerate() {
            let mut raw = Raw::http2(address, &[]).await;
            let (one, two) = (format!("append-{number}"), format!("session-{number}"));
            for (stream, path, parts) in [(1, APPEND, append(&one)), (3, SESSION, session(&two))] {
                let head = frame(HEADERS, END_HEADERS, stream, &call(path));
                raw.send(&[head, frame(DATA, 0, stream, &parts)].concat()).await.unwrap();
                tokio::time::sleep(MOMENT).await;
                raw.send(&frame(RESET, 0, stream, &reason.to_be_bytes())).await.unwrap();
            }
            tokio::time::sleep(MOMENT).await;
            assert!(is_missing(address, &one).await, "append, {reason}");
            assert!(is_missing(address, &two).await, "session, {reason}");
        }
    });
}

/// Story: when a client with a cut cable answered no keepalive ping, the received part of its
/// append was written.
#[test]
fn append_of_a_vanished_client_is_not_written() {
    let config =
        Config { keepalive_interval: MOMENT, keepalive_timeout: MOMENT, ..Config::default() };
    Target::attack(config, async |address| {
        let mut raw = Raw::http2(address, &[]).await;
        let head = frame(HEADERS, END_HEADERS, 1, &call(APPEND));
        raw.send(&[head, frame(DATA, 0, 1, &append("cut"))].concat()).await.unwrap();
        // It answers no ping.
        raw.closed().await;
        tokio::time::sleep(MOMENT).await;
        assert!(is_missing(address, "cut").await);
    });
}

/// Reads a stream to its end; returns whether a head, an end and a reset were received.
async fn receive_answer(raw: &mut Raw, stream: u32, timeout: Duration) -> (bool, bool, bool) {
    let (mut head, mut end, mut reset) = (false, false, false);
    while let Ok(Ok(frame)) = tokio::time::timeout(timeout, raw.frame()).await {
        if frame.stream == stream {
            head |= frame.kind == HEADERS;
            end |= frame.flags & END != 0 && frame.kind != RESET;
            reset |= frame.kind == RESET;
        }
    }
    (head, end, reset)
}

fn post(path: &str, content_type: &str) -> Vec<u8> {
    let all = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "localhost"),
        ("content-type", content_type),
    ];
    all.iter().flat_map(|(name, value)| header(name, value)).collect()
}

/// Story: a response before the end of the request was followed by a reset. `curl` and clients on
/// Node's `http2` that are still sending then show no response at all, and some never end.
#[test]
fn rejected_sender_receives_the_response() {
    Target::attack(Config::default(), async |address| {
        let mut body = message(&[0; 49_995]);
        let rest = body.split_off(10_000);
        for (path, content_type) in [
            ("/ping", "text/plain"),
            ("/console/api/append", "text/plain"),
            ("/nothing", "application/json"),
            ("/nothing", "application/grpc"),
            ("/event_store.client.streams.Streams/Nothing", "application/grpc"),
        ] {
            let mut raw = Raw::http2(address, &[]).await;
            raw.send(&frame(HEADERS, END_HEADERS, 1, &post(path, content_type))).await.unwrap();
            raw.send(&frame(DATA, 0, 1, &body)).await.unwrap();
            for (number, some) in rest.chunks(10_000).enumerate() {
                tokio::time::sleep(MOMENT / 2).await;
                let end = if number == 3 { END } else { 0 };
                raw.send(&frame(DATA, end, 1, some)).await.unwrap();
            }
            let received = receive_answer(&mut raw, 1, MOMENT).await;
            assert_eq!(received, (true, true, false), "{path}, {content_type}: head, end, reset");
        }
    });
}

/// A client that stops sending in the middle of its request still gets the response.
#[test]
fn rejected_idle_sender_is_not_waited_for() {
    Target::attack(Config::default(), async |address| {
        let message = message(&[0; 10]);
        for (content_type, sent) in [
            ("text/plain", &b""[..]),
            ("application/grpc", b""),
            ("application/grpc", &message),
            ("application/grpc", &message[..9]),
        ] {
            let mut raw = Raw::http2(address, &[]).await;
            let head = frame(HEADERS, END_HEADERS, 1, &post("/nothing", content_type));
            raw.send(&[head, frame(DATA, 0, 1, sent)].concat()).await.unwrap();
            let timeout = Duration::from_secs(5);
            let answered = async { while raw.frame().await.unwrap().kind != HEADERS {} };
            tokio::time::timeout(timeout, answered).await.expect("it is answered");
        }
    });
}

/// Story: a client reduced its window to zero while it sent a message. The server then polls the
/// call no more, so neither the memory nor the time of the message had a limit. Fifteen connections
/// filled the quota of received messages, and longer appends of all clients failed for ever.
#[test]
fn messages_of_calls_with_a_zero_window() {
    Target::attack(Config::default(), async |address| {
        let sent = message(&vec![0x0a; MESSAGE_BYTES_MAX]);
        let mut stuck = Vec::new();
        for _ in 0..RECEIVE_BYTES_MAX / MESSAGE_BYTES_MAX {
            let mut raw = Raw::http2(address, &[(INITIAL_WINDOW, 1)]).await;
            let path = call("/event_store.client.streams.Streams/BatchAppend");
            raw.send(&frame(HEADERS, END_HEADERS, 1, &path)).await.unwrap();
            raw.send_data(1, &sent[..sent.len() - 1]).await.unwrap();
            let window = [&INITIAL_WINDOW.to_be_bytes()[..], &[0; 4]].concat();
            raw.send(&frame(SETTINGS, 0, 0, &window)).await.unwrap();
            stuck.push(raw);
        }
        let client = Client::connect(address).await;
        let long = ProposedMessage { data: vec![7; 3_000_000].into(), ..event(1) };
        let held = metric(address, "umbel_receiving_bytes").await;
        assert!(held > RECEIVE_BYTES_MAX - long.data.len(), "only {held} bytes are held");
        let written = async {
            while client.append("long", ANY, std::slice::from_ref(&long)).await.is_err() {
                tokio::time::sleep(MOMENT).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), written).await.expect("it is written");
    });
}

/// Story: the server waited for the end of an incomplete message as long as the client stayed
/// connected.
#[test]
fn messages_without_an_end() {
    let config = Config { partial_append_time: MOMENT, ..Config::default() };
    Target::attack(config, async |address| {
        for method in ["Read", "Delete", "Append", "BatchAppend"] {
            let path = format!("/event_store.client.streams.Streams/{method}");
            let mut raw = Raw::http2(address, &[]).await;
            let half = &message(&[0x0a; 20_000])[..10_000];
            let head = frame(HEADERS, END_HEADERS, 1, &call(&path));
            raw.send(&[head, frame(DATA, 0, 1, half)].concat()).await.unwrap();
            let timeout = Duration::from_secs(10);
            let ended = async {
                loop {
                    let frame = raw.frame().await.unwrap();
                    if frame.kind == HEADERS && frame.flags & END != 0 {
                        return;
                    }
                }
            };
            tokio::time::timeout(timeout, ended).await.expect(method);
        }
    });
}
