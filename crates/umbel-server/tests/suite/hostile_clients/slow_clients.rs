//! Clients that take nothing, or say things one byte at a time.

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::join_all;
use prost::Message;
use tonic::Streaming;
use umbel_proto::kv::{GetRequest, ScanRequest, WatchRequest};
use umbel_proto::streams::ReadResp;
use umbel_proto::streams::read_req::{AllOption, RevisionOption};
use umbel_server::Config;
use umbel_server::limits::{HEADERS_TIME, OPENING_TIME, UNREAD_PAGE_BYTES};

use super::super::client::{ANY, Client, event, of_all, of_stream, subscription};
use super::super::connection::Connection;
use super::super::ground::Ground;
use super::super::kv_client::Kv;
use super::raw::{
    DATA, END, END_HEADERS, HEADERS, INITIAL_WINDOW, Raw, WINDOW_UPDATE, call, frame, message,
};
use super::target::{MORE_MAX, Target, resident, serves};

/// A stream of 64 MiB.
async fn large(address: SocketAddr) {
    let client = Client::connect(address).await;
    let mut blob = event(0);
    blob.data = vec![b' '; 1 << 20].into();
    for number in 0..64 {
        blob.id = Some(super::super::client::id(number));
        client.append("large", ANY, std::slice::from_ref(&blob)).await.unwrap();
    }
}

/// What the server says it holds for clients that have not taken it.
async fn unread(address: SocketAddr) -> usize {
    metric(address, "umbel_unread_bytes").await
}

/// A number that the server tells of itself.
async fn metric(address: SocketAddr, name: &str) -> usize {
    let mut raw = Raw::silent(address).await;
    raw.send(b"GET /metrics HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await.unwrap();
    let text = raw.text().await;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{text}")).trim().parse::<f64>().unwrap() as usize
}

/// The bytes of a request to read the large stream.
fn asks() -> Vec<u8> {
    let options = Some(of_stream("large", RevisionOption::Start(())));
    message(&umbel_proto::streams::ReadReq { options }.encode_to_vec())
}

/// A window of nothing: the server may send no byte of what was asked for, and holds it.
#[test]
fn reads_that_take_nothing() {
    let budget = 3 * UNREAD_PAGE_BYTES;
    let config = Config { unread_bytes_max: budget, ..Config::default() };
    Target::attack(config, async |address| {
        large(address).await;
        let mut stuck = Vec::new();
        for window in [0, 0, 1] {
            let mut raw = Raw::http2(address, &[(INITIAL_WINDOW, window)]).await;
            for stream in (1..600).step_by(2) {
                let mut sent = frame(HEADERS, END_HEADERS, stream, &call(super::floods::READ));
                sent.extend(frame(DATA, END, stream, &asks()));
                raw.send(&sent).await.unwrap();
            }
            stuck.push(raw);
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        let held = unread(address).await;
        assert!(held <= budget, "{held} bytes of {budget}");
        // Who reads as one should is served: those who take nothing make room.
        serves(address, 5).await;
        let ended = stuck.into_iter().map(|raw| tokio::time::timeout(TAKES, raw.ended()));
        let ended = join_all(ended).await;
        assert!(ended.iter().any(Result::is_ok), "nobody was ended");
    });
}

/// Subscriptions whose client does not even take that they began: each had taken room for its first
/// page, and never went on to read it. Nobody else could read any more.
#[test]
fn subscriptions_that_take_nothing() {
    let config = Config { unread_bytes_max: 3 * UNREAD_PAGE_BYTES, ..Config::default() };
    Target::attack(config, async |address| {
        large(address).await;
        let options = Some(subscription(of_stream("large", RevisionOption::Start(()))));
        let asks = message(&umbel_proto::streams::ReadReq { options }.encode_to_vec());
        let mut raw = Raw::http2(address, &[(INITIAL_WINDOW, 0)]).await;
        for stream in (1..80).step_by(2) {
            let mut sent = frame(HEADERS, END_HEADERS, stream, &call(super::floods::READ));
            sent.extend(frame(DATA, END, stream, &asks));
            raw.send(&sent).await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        let served = tokio::time::timeout(TAKES, serves(address, 5)).await;
        served.expect("others are served");
    });
}

/// The story: subscriptions with a window of nothing that waited for room got it when those before
/// them went away, without anybody who could end them knowing of it. Nobody else could read.
#[test]
fn subscriptions_that_wait_for_room_and_take_nothing() {
    let config = Config { unread_bytes_max: 3 * UNREAD_PAGE_BYTES, ..Config::default() };
    Target::attack(config, async |address| {
        large(address).await;
        let options = Some(subscription(of_stream("large", RevisionOption::Start(()))));
        let asks = message(&umbel_proto::streams::ReadReq { options }.encode_to_vec());
        let mut stuck = Vec::new();
        for calls in [3, 1, 1, 1] {
            let mut raw = Raw::http2(address, &[(INITIAL_WINDOW, 0)]).await;
            for stream in (1..2 * calls).step_by(2) {
                let mut sent = frame(HEADERS, END_HEADERS, stream, &call(super::floods::READ));
                sent.extend(frame(DATA, END, stream, &asks));
                raw.send(&sent).await.unwrap();
            }
            stuck.push(raw);
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        drop(stuck.remove(0));
        let served = tokio::time::timeout(TAKES, serves(address, 8)).await;
        assert!(served.is_ok(), "nobody is served any more");
    });
}

/// Windows as large as can be, and a client that takes nothing off the wire: each of a thousand
/// streams had a page with the connection, and the pages behind it were read as if it had gone.
#[test]
fn reads_whose_frames_nobody_takes() {
    let budget = 3 * UNREAD_PAGE_BYTES;
    let config = Config { unread_bytes_max: budget, ..Config::default() };
    Target::attack(config, async |address| {
        large(address).await;
        let before = resident();
        let _stuck = all_ask(address, (20, 50), (super::floods::READ, &asks())).await;
        let most = most_beyond(before).await;
        assert!(most < MORE_MAX, "{} MiB are held", most >> 20);
        let held = unread(address).await;
        assert!(held > 0 && held <= budget, "{held} bytes of {budget}");
        // He waits for a round of theirs, not for one of each connection.
        let began = tokio::time::Instant::now();
        serves(address, 5).await;
        assert!(began.elapsed() < TAKES, "he waited {:?}", began.elapsed());
    });
}

/// Nothing that the server ends by itself takes longer.
const TAKES: Duration = Duration::from_secs(30);

/// A byte of window at a time.
#[test]
fn reads_that_are_taken_byte_by_byte() {
    Target::attack(Config::default(), async |address| {
        large(address).await;
        let mut raw = Raw::http2(address, &[(INITIAL_WINDOW, 1)]).await;
        let mut sent = frame(HEADERS, END_HEADERS, 1, &call(super::floods::READ));
        sent.extend(frame(DATA, END, 1, &asks()));
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

/// Many subscribers that read nothing, while much is appended.
#[test]
fn subscribers_that_are_stuck() {
    let budget = 3 * UNREAD_PAGE_BYTES;
    let config = Config { unread_bytes_max: budget, ..Config::default() };
    Target::attack(config, async |address| {
        let mut stuck: Vec<(Client, Vec<Streaming<ReadResp>>)> = Vec::new();
        for _ in 0..10 {
            let client = Client::connect(address).await;
            let mut open = Vec::new();
            for _ in 0..100 {
                let asked = subscription(of_all(AllOption::Start(())));
                open.push(client.subscribe(asked).await.unwrap());
            }
            stuck.push((client, open));
        }
        large(address).await;
        let held = unread(address).await;
        assert!(held <= budget, "{held} bytes of {budget}");
        serves(address, 6).await;
    });
}

/// Connections with windows as large as can be, on each of which so many calls ask and nothing is
/// taken off the wire.
async fn all_ask(
    address: SocketAddr,
    (connections, calls): (usize, u32),
    (path, asked): (&str, &[u8]),
) -> Vec<Raw> {
    let mut stuck = Vec::new();
    for _ in 0..connections {
        let mut raw = Raw::http2(address, &[(INITIAL_WINDOW, 0x7fff_ffff)]).await;
        let more = 0x7fff_ffff - 65_535_u32;
        raw.send(&frame(WINDOW_UPDATE, 0, 0, &more.to_be_bytes())).await.unwrap();
        for stream in (1..2 * calls).step_by(2) {
            let mut sent = frame(HEADERS, END_HEADERS, stream, &call(path));
            sent.extend(frame(DATA, END, stream, asked));
            raw.send(&sent).await.unwrap();
        }
        stuck.push(raw);
    }
    stuck
}

/// The most memory of two seconds, beyond what there was before.
async fn most_beyond(before: usize) -> usize {
    let mut most = 0;
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        most = most.max(resident().saturating_sub(before));
    }
    most
}

/// The story: what a value's answer was made of counted only until it had been made into frames, so
/// that a thousand calls that took nothing held a value each.
#[test]
fn values_that_nobody_takes() {
    let budget = 3 * UNREAD_PAGE_BYTES;
    let config = Config { unread_bytes_max: budget, ..Config::default() };
    Target::attack_on(
        || Ground::with_kv_and(config),
        async |address| {
            let kv = Kv::new(&Connection::to(address).await.unwrap());
            kv.put(b"large", &[7; 4 << 20]).await.unwrap();
            for (path, asked) in [
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
                let stuck = all_ask(address, (10, 50), (&path, &message(&asked))).await;
                let most = most_beyond(before).await;
                assert!(most < MORE_MAX, "{path}: {} MiB are held", most >> 20);
                let held = unread(address).await;
                assert!(held > 0 && held <= budget, "{path}: {held} bytes of {budget}");
                drop(stuck);
                assert_eq!(kv.get(b"large").await.unwrap().unwrap().len(), 4 << 20);
            }
        },
    );
}

/// The story: what a watch was told counted as long as it waited, and no longer once it was on its
/// way to a client that takes nothing.
#[test]
fn watches_that_are_stuck() {
    let budget = 3 * UNREAD_PAGE_BYTES;
    let config = Config { unread_bytes_max: budget, ..Config::default() };
    Target::attack_on(
        || Ground::with_kv_and(config),
        async |address| {
            let kv = Kv::new(&Connection::to(address).await.unwrap());
            let before = resident();
            let asked = message(&WatchRequest::default().encode_to_vec());
            let path = "/umbel.kv.v1.KeyValue/Watch";
            let _stuck = all_ask(address, (10, 60), (path, &asked)).await;
            let began = tokio::time::Instant::now();
            while metric(address, "umbel_kv_watches").await < 600 {
                assert!(began.elapsed() < TAKES, "they do not begin");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            kv.put(b"large", &[7; 3 << 20]).await.unwrap();
            let most = most_beyond(before).await;
            assert!(most < MORE_MAX, "{} MiB are held", most >> 20);
            let held = unread(address).await;
            assert!(held > 0 && held <= budget, "{held} bytes of {budget}");
            serves(address, 7).await;
        },
    );
}

/// Slowloris: a head that comes byte by byte and never ends.
#[test]
fn heads_that_come_byte_by_byte() {
    Target::attack(Config::default(), async |address| {
        let mut raw = Raw::silent(address).await;
        raw.send(b"GET /ping HTTP/1.1\r\nx: ").await.unwrap();
        let began = tokio::time::Instant::now();
        while raw.send(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(100)).await;
            assert!(began.elapsed() < HEADERS_TIME + TAKES, "it was never ended");
        }
    });
}

/// Half of how HTTP/2 begins, and nothing at all.
#[test]
fn connections_that_do_not_say_what_they_speak() {
    Target::attack(Config::default(), async |address| {
        let mut silent = Vec::new();
        for said in [&b""[..], b"P", b"PRI * HTTP/2.0\r\n"] {
            let mut raw = Raw::silent(address).await;
            raw.send(said).await.unwrap();
            silent.push(raw);
        }
        for raw in silent {
            let ended = tokio::time::timeout(OPENING_TIME + TAKES, raw.text()).await;
            ended.expect("it is ended");
        }
    });
}

/// A body that is promised and does not come.
#[test]
fn bodies_that_do_not_come() {
    Target::attack(Config::default(), async |address| {
        for path in ["/ping", "/event_store.client.streams.Streams/Append", "/nothing"] {
            let mut raw = Raw::silent(address).await;
            let head = format!(
                "POST {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\
                 content-length: 9999999999999\r\n\r\nx"
            );
            raw.send(head.as_bytes()).await.unwrap();
            let answer = tokio::time::timeout(TAKES, raw.text()).await.expect("it is answered");
            assert!(answer.starts_with("HTTP/1.1 4"), "{path}: {answer}");
        }
    });
}

/// An append whose parts stop coming.
#[test]
fn appends_that_never_end() {
    let config = Config { parts_time: Duration::from_millis(300), ..Config::default() };
    Target::attack(config, async |address| {
        let mut raw = Raw::http2(address, &[]).await;
        let path = "/event_store.client.streams.Streams/Append";
        for stream in (1..200).step_by(2) {
            let mut sent = frame(HEADERS, END_HEADERS, stream, &call(path));
            // Half of the head of a message.
            sent.extend(frame(DATA, 0, stream, &[0, 0, 0]));
            raw.send(&sent).await.unwrap();
        }
        let mut answered = 0;
        while answered < 100 {
            let came = tokio::time::timeout(TAKES, raw.frame()).await.expect("it is answered");
            let came = came.unwrap();
            answered += usize::from(came.kind == HEADERS && came.flags & END != 0);
        }
    });
}
