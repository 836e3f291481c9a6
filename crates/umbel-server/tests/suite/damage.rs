//! A served store with a damaged event: every operation that meets the damage counts.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde_json::json;
use umbel_events::{Direction, ExpectedVersion, NewEvent, Position, Store, StoreOptions};
use umbel_server::Config;

use super::http_client::{send, wait_for};
use super::monitoring::{http_request, metric};
use super::test_server::TestServer;

/// Appends events to seven streams, and damages the third event, the first one of `cart-2`. Its
/// chunk has ended.
pub fn damage_third_event(store: &Store) {
    let data = vec![1; 2000];
    for number in 0..90 {
        let event = NewEvent::binary(store.new_id().unwrap(), "T", &data);
        let stream = format!("cart-{}", number % 7);
        store.append(&stream, ExpectedVersion::Any, &[event]).unwrap();
    }
    let mut events = store.read_all(Position::START, Direction::Forwards);
    let third = events.find(|event| event.as_ref().unwrap().stream == "cart-2").unwrap().unwrap();
    store.sync().unwrap();
    // The first chunk begins at position 0.
    flip(&first_chunk(&store.path().join("log")), third.position + 500);
}

fn first_chunk(log: &Path) -> PathBuf {
    let paths = fs::read_dir(log).unwrap().map(|entry| entry.unwrap().path());
    let is_chunk = |path: &PathBuf| path.extension().is_some_and(|it| it == "chunk");
    paths.filter(is_chunk).min().unwrap()
}

/// Flips a bit of a file.
fn flip(path: &Path, offset: u64) {
    let mut file = File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.seek(SeekFrom::Start(offset)).unwrap();
    file.read_exact(&mut byte).unwrap();
    file.seek(SeekFrom::Start(offset)).unwrap();
    file.write_all(&[byte[0] ^ 1]).unwrap();
}

/// The number in the metrics, which is also in the statistics.
fn damage_errors(address: SocketAddr, store: &str) -> f64 {
    let label = format!("store=\"{store}\"");
    let page = http_request(address, "GET", "/metrics").1;
    let count = metric(&page, "umbel_damage_errors_total", &[&label]);
    let stats = send(address, "GET", "/stats", &[], b"").is(200);
    let member = if store == "events" { "store" } else { store };
    assert_eq!(stats[member]["damageErrors"].as_f64(), Some(count), "{stats}");
    count
}

/// Story: the alert for damaged data saw only gRPC calls. A read over HTTP or a scavenge that met
/// damage raised no alarm.
#[test]
fn damage_met_over_http_and_by_a_scavenge_is_counted() {
    let options = StoreOptions { chunk_bytes: 64 << 10, ..StoreOptions::default() };
    let server = TestServer::with_kv_on(options, Config::default());
    let address = server.address();
    damage_third_event(&server.store);
    assert_eq!(damage_errors(address, "events"), 0.0, "nothing has met the damage");
    let read = |path: &str| send(address, "GET", path, &[], b"").status;
    assert_eq!(read("/streams/cart-1/0/forward/1"), 200);
    assert_eq!(read("/streams/cart-2/0/forward/1"), 500);
    assert_eq!(damage_errors(address, "events"), 1.0);
    let json = ["content-type: application/json"];
    let started = send(address, "POST", "/admin/scavenge", &json, b"{}").is(200);
    let path = started["scavengeLink"].as_str().unwrap();
    let ended = wait_for(|| {
        let shown = send(address, "GET", path, &[], b"").is(200);
        Some(shown).filter(|shown| shown["scavengeResult"] != "InProgress")
    });
    assert_eq!(ended["scavengeResult"], json!("Errored"));
    assert_eq!(damage_errors(address, "events"), 2.0);
    assert_eq!(damage_errors(address, "kv"), 0.0);
    // Story: the console's page Work hid the reason, and its overview showed nothing.
    let page = |name: &str| send(address, "GET", &format!("/console/api/{name}"), &[], b"").is(200);
    let scavenge = page("work")["scavenge"].take();
    assert!(scavenge["error"].is_string(), "{scavenge}");
    assert_eq!((&scavenge["error"], &scavenge["isStopped"]), (&ended["error"], &json!(false)));
    let overview = page("overview");
    assert_eq!(overview["stats"]["store"]["damageErrors"], 2);
    assert_eq!(overview["kv"]["damageErrors"], 0);
}
