//! Clients that read nothing, or send one byte at a time.

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::join_all;
use prost::Message;
use tonic::Streaming;
use umbel_proto::kv::{GetRequest, ScanRequest, WatchRequest};
use umbel_proto::streams::ReadResp;
use umbel_proto::streams::read_req::{AllOption, RevisionOption};
use umbel_server::Config;
use umbel_server::limits::{HEADERS_TIME, PAGE_BYTES_MAX, PREFACE_TIME};

use super::super::client::{ANY, Client, event, of_all, of_stream, subscription};
use super::super::kv_client::Kv;
use super::super::test_server::TestServer;
use super::raw_connection::{
    DATA, END, END_HEADERS, HEADERS, INITIAL_WINDOW, Raw, WINDOW_UPDATE, call, frame, message,
};
use super::target_server::{MORE_MAX, Target, resident, serves};
use umbel_testing::server_connection::Connection;

/// Creates a stream of 64 MiB.
async fn large(address: SocketAddr) {
    let client = Client::connect(address).await;
    let mut blob = event(0);
    blob.data = vec![b' '; 1 << 20].into();
    for number in 0..64 {
        blob.id = Some(super::super::client::id(number));
        client.append("large", ANY, std::slice::from_ref(&blob)).await.unwrap();
    }
}

/// Bytes that the server holds for clients that have not taken them, from its metrics.
async fn unread(address: SocketAddr) -> usize {
    metric(address, "umbel_response_buffered_bytes").await
}

/// Value of one of the server's metrics.
pub async fn metric(address: SocketAddr, name: &str) -> usize {
    let mut raw = Raw::silent(address).await;
    raw.send(b"GET /metrics HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await.unwrap();
    let text = raw.text().await;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{text}")).trim().parse::<f64>().unwrap() as usize
}

/// Bytes of a request to read the large stream.
fn request_frame() -> Vec<u8> {
    let options = Some(of_stream("large", RevisionOption::Start(())));
    message(&umbel_proto::streams::ReadReq { options }.encode_to_vec())
}

/// With a flow-control window of zero, the server may send no byte of the response, which stays in
/// its memory.
#[test]
fn reads_with_a_zero_window() {
    let budget = 3 * PAGE_BYTES_MAX;
    let config = Config { outbound_bytes_max: budget, ..Config::default() };
    Target::attack(config, async |address| {
        large(address).await;
        let mut stuck = Vec::new();
        for window in [0, 0, 1] {
            let mut raw = Raw::http2(address, &[(INITIAL_WINDOW, window)]).await;
            for stream in (1..600).step_by(2) {
                let mut sent = frame(HEADERS, END_HEADERS, stream, &call(super::floods::READ));
                sent.extend(frame(DATA, END, stream, &request_frame()));
                raw.send(&sent).await.unwrap();
            }
            stuck.push(raw);
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        let held = unread(address).await;
        assert!(held <= budget, "{held} bytes of {budget}");
        // A client that reads normally is served: connections of the others end.
        serves(address, 5).await;
        let ended = stuck.into_iter().map(|raw| tokio::time::timeout(TEST_TIMEOUT, raw.closed()));
        let ended = join_all(ended).await;
        assert!(ended.iter().any(Result::is_ok), "no connection was closed");
    });
}

/// Subscriptions whose client does not even read the confirmation. Story: each such subscription
/// had reserved quota for its first page, and never continued to read it. No other client could
/// read any more.
#[test]
fn subscriptions_with_a_zero_window() {
    let config = Config { outbound_bytes_max: 3 * PAGE_BYTES_MAX, ..Config::default() };
    Target::attack(config, async |address| {
        large(address).await;
        let options = Some(subscription(of_stream("large", RevisionOption::Start(()))));
        let request_frame = message(&umbel_proto::streams::ReadReq { options }.encode_to_vec());
        let mut raw = Raw::http2(address, &[(INITIAL_WINDOW, 0)]).await;
        for stream in (1..80).step_by(2) {
            let mut sent = frame(HEADERS, END_HEADERS, stream, &call(super::floods::READ));
            sent.extend(frame(DATA, END, stream, &request_frame));
            raw.send(&sent).await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        let served = tokio::time::timeout(TEST_TIMEOUT, serves(address, 5)).await;
        served.expect("others are served");
    });
}

/// Story: subscriptions with a window of zero waited for quota, and got it when earlier
/// subscriptions ended. The quota was untracked, so the server could not end these subscriptions,
/// and no other client could read.
#[test]
fn zero_window_subscriptions_waiting_for_quota() {
    let config = Config { outbound_bytes_max: 3 * PAGE_BYTES_MAX, ..Config::default() };
    Target::attack(config, async |address| {
        large(address).await;
        let options = Some(subscription(of_stream("large", RevisionOption::Start(()))));
        let request_frame = message(&umbel_proto::streams::ReadReq { options }.encode_to_vec());
        let mut stuck = Vec::new();
        for calls in [3, 1, 1, 1] {
            let mut raw = Raw::http2(address, &[(INITIAL_WINDOW, 0)]).await;
            for stream in (1..2 * calls).step_by(2) {
                let mut sent = frame(HEADERS, END_HEADERS, stream, &call(super::floods::READ));
                sent.extend(frame(DATA, END, stream, &request_frame));
                raw.send(&sent).await.unwrap();
            }
            stuck.push(raw);
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        drop(stuck.remove(0));
        let served = tokio::time::timeout(TEST_TIMEOUT, serves(address, 8)).await;
        assert!(served.is_ok(), "no client is served any more");
    });
}

/// A client with maximum flow-control windows reads nothing from its socket. Story: each of a
/// thousand streams had a page in the connection, and the server read next pages as if those had
/// been sent.
#[test]
fn reads_with_unread_frames() {
    let budget = 3 * PAGE_BYTES_MAX;
    let config = Config { outbound_bytes_max: budget, ..Config::default() };
    Target::attack(config, async |address| {
        large(address).await;
        let before = resident();
        let _stuck = stuck_calls(address, (20, 50), (super::floods::READ, &request_frame())).await;
        let peak_bytes = peak_bytes_beyond(before).await;
        assert!(peak_bytes < MORE_MAX, "{} MiB are held", peak_bytes >> 20);
        let held = unread(address).await;
        assert!(held > 0 && held <= budget, "{held} bytes of {budget}");
        // It waits for one round of them, not for one of each connection.
        let began = tokio::time::Instant::now();
        serves(address, 5).await;
        assert!(began.elapsed() < TEST_TIMEOUT, "the client waited {:?}", began.elapsed());
    });
}

/// Time limit within which the server must end an attack by itself.
const TEST_TIMEOUT: Duration = Duration::from_secs(30);

/// The client grants one byte of flow-control window at a time.
#[test]
fn reads_with_one_byte_windows() {
    Target::attack(Config::default(), async |address| {
        large(address).await;
        let mut raw = Raw::http2(address, &[(INITIAL_WINDOW, 1)]).await;
        let mut sent = frame(HEADERS, END_HEADERS, 1, &call(super::floods::READ));
        sent.extend(frame(DATA, END, 1, &request_frame()));
        raw.send(&sent).await.unwrap();
        let mut taken = 0;
        while taken < 500 {
            let frame_of = raw.frame().await.unwrap();
            if frame_of.kind == DATA {
                taken += frame_of.payload.len();
                let more = frame(WINDOW_UPDATE, 0, 1, &1_u32.to_be_bytes());
                raw.send(&more).await.unwrap();
            }
        }
        serves(address, 6).await;
    });
}

/// Many subscribers that read nothing, while many events are appended.
#[test]
fn stuck_subscribers() {
    let budget = 3 * PAGE_BYTES_MAX;
    let config = Config { outbound_bytes_max: budget, ..Config::default() };
    Target::attack(config, async |address| {
        let mut stuck: Vec<(Client, Vec<Streaming<ReadResp>>)> = Vec::new();
        for _ in 0..10 {
            let client = Client::connect(address).await;
            let mut open = Vec::new();
            for _ in 0..100 {
                let request = subscription(of_all(AllOption::Start(())));
                open.push(client.subscribe(request).await.unwrap());
            }
            stuck.push((client, open));
        }
        large(address).await;
        let held = unread(address).await;
        assert!(held <= budget, "{held} bytes of {budget}");
        serves(address, 6).await;
    });
}

/// Opens connections with maximum windows, each with several calls, and reads nothing from their
/// sockets.
async fn stuck_calls(
    address: SocketAddr,
    (connections, calls): (usize, u32),
    (path, request): (&str, &[u8]),
) -> Vec<Raw> {
    let mut stuck = Vec::new();
    for _ in 0..connections {
        let mut raw = Raw::http2(address, &[(INITIAL_WINDOW, 0x7fff_ffff)]).await;
        let more = 0x7fff_ffff - 65_535_u32;
        raw.send(&frame(WINDOW_UPDATE, 0, 0, &more.to_be_bytes())).await.unwrap();
        for stream in (1..2 * calls).step_by(2) {
            let mut sent = frame(HEADERS, END_HEADERS, stream, &call(path));
            sent.extend(frame(DATA, END, stream, request));
            raw.send(&sent).await.unwrap();
        }
        stuck.push(raw);
    }
    stuck
}

/// Maximum memory during two seconds, less the memory before.
async fn peak_bytes_beyond(before: usize) -> usize {
    let mut peak_bytes = 0;
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        peak_bytes = peak_bytes.max(resident().saturating_sub(before));
    }
    peak_bytes
}

/// Story: the value of a response counted only until its frames were made. So a thousand calls
/// whose client read nothing held a value each.
#[test]
fn unread_kv_values() {
    let budget = 3 * PAGE_BYTES_MAX;
    let config = Config { outbound_bytes_max: budget, ..Config::default() };
    Target::attack_on(
        || TestServer::with_kv_and(config),
        async |address| {
            let kv = Kv::new(&Connection::to(address).await.unwrap());
            kv.put(b"large", &[7; 4 << 20]).await.unwrap();
            for (path, request) in [
                (
                    "Get",
                    GetRequest { key: b"large".to_vec(), ..GetRequest::default() }.encode_to_vec(),
                ),
                (
                    "Scan",
                    ScanRequest { prefix: b"l".to_vec(), ..ScanRequest::default() }.encode_to_vec(),
                ),
            ] {
                let before = resident();
                let path = format!("/umbel.kv.v1.KeyValue/{path}");
                let stuck = stuck_calls(address, (10, 50), (&path, &message(&request))).await;
                let peak_bytes = peak_bytes_beyond(before).await;
                assert!(peak_bytes < MORE_MAX, "{path}: {} MiB are held", peak_bytes >> 20);
                let held = unread(address).await;
                assert!(held > 0 && held <= budget, "{path}: {held} bytes of {budget}");
                drop(stuck);
                assert_eq!(kv.get(b"large").await.unwrap().unwrap().len(), 4 << 20);
            }
        },
    );
}

/// Story: changes for a watch counted while they were queued, but not while they were sent to a
/// client that reads nothing.
#[test]
fn stuck_watches() {
    let budget = 3 * PAGE_BYTES_MAX;
    let config = Config { outbound_bytes_max: budget, ..Config::default() };
    Target::attack_on(
        || TestServer::with_kv_and(config),
        async |address| {
            let kv = Kv::new(&Connection::to(address).await.unwrap());
            let before = resident();
            let request = message(&WatchRequest::default().encode_to_vec());
            let path = "/umbel.kv.v1.KeyValue/Watch";
            let _stuck = stuck_calls(address, (10, 60), (path, &request)).await;
            let began = tokio::time::Instant::now();
            while metric(address, "umbel_kv_watches").await < 600 {
                assert!(began.elapsed() < TEST_TIMEOUT, "they do not begin");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            kv.put(b"large", &[7; 3 << 20]).await.unwrap();
            let peak_bytes = peak_bytes_beyond(before).await;
            assert!(peak_bytes < MORE_MAX, "{} MiB are held", peak_bytes >> 20);
            let held = unread(address).await;
            assert!(held > 0 && held <= budget, "{held} bytes of {budget}");
            serves(address, 7).await;
        },
    );
}

/// Slowloris: a head that arrives byte by byte and never ends.
#[test]
fn request_heads_sent_byte_by_byte() {
    Target::attack(Config::default(), async |address| {
        let mut raw = Raw::silent(address).await;
        raw.send(b"GET /ping HTTP/1.1\r\nx: ").await.unwrap();
        let began = tokio::time::Instant::now();
        while raw.send(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(100)).await;
            assert!(began.elapsed() < HEADERS_TIME + TEST_TIMEOUT, "it was never ended");
        }
    });
}

/// Connections that send half of the HTTP/2 preface, or nothing at all.
#[test]
fn connections_with_an_incomplete_preface() {
    Target::attack(Config::default(), async |address| {
        let mut silent = Vec::new();
        for preface in [&b""[..], b"P", b"PRI * HTTP/2.0\r\n"] {
            let mut raw = Raw::silent(address).await;
            raw.send(preface).await.unwrap();
            silent.push(raw);
        }
        for raw in silent {
            let ended = tokio::time::timeout(PREFACE_TIME + TEST_TIMEOUT, raw.text()).await;
            ended.expect("it is ended");
        }
    });
}

/// Requests whose announced body does not arrive.
#[test]
fn announced_bodies_that_never_arrive() {
    Target::attack(Config::default(), async |address| {
        for path in ["/ping", "/event_store.client.streams.Streams/Append", "/nothing"] {
            let mut raw = Raw::silent(address).await;
            let head = format!(
                "POST {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\
                 content-length: 9999999999999\r\n\r\nx"
            );
            raw.send(head.as_bytes()).await.unwrap();
            let answer =
                tokio::time::timeout(TEST_TIMEOUT, raw.text()).await.expect("it is answered");
            assert!(answer.starts_with("HTTP/1.1 4"), "{path}: {answer}");
        }
    });
}

/// Appends whose parts stop arriving.
#[test]
fn appends_without_an_end() {
    let config = Config { partial_append_time: Duration::from_millis(300), ..Config::default() };
    Target::attack(config, async |address| {
        let mut raw = Raw::http2(address, &[]).await;
        let path = "/event_store.client.streams.Streams/Append";
        for stream in (1..200).step_by(2) {
            let mut sent = frame(HEADERS, END_HEADERS, stream, &call(path));
            // Half of the prefix of a message.
            sent.extend(frame(DATA, 0, stream, &[0, 0, 0]));
            raw.send(&sent).await.unwrap();
        }
        let mut answered = 0;
        while answered < 100 {
            let answer =
                tokio::time::timeout(TEST_TIMEOUT, raw.frame()).await.expect("it is answered");
            let answer = answer.unwrap();
            answered += usize::from(answer.kind == HEADERS && answer.flags & END != 0);
        }
    });
}
