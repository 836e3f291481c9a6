//! `umbel serve --kv`: keys and values in the folder of the store, and what a killed server keeps.

use std::sync::{Arc, Mutex};

use futures_util::future::join_all;
use rustix::process::Signal;
use umbel_proto::kv::{
    BatchRequest, BatchResponse, CreateKeyspaceRequest, CreateKeyspaceResponse, Entry, GetRequest,
    GetResponse, Operation, OperationKind, PutRequest, PutResponse, SERVICE, ScanRequest,
    ScanResponse,
};

use super::connection::Connection;
use super::harness::Ground;
use super::serve::Serving;

const WRITERS: usize = 6;

fn run<F: Future>(work: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(work)
}

async fn connect(serving: &Serving) -> Connection {
    Connection::to(serving.address().parse().unwrap()).await.unwrap()
}

async fn put(client: &Connection, key: &str, value: &str) -> u64 {
    let (keyspace, key, value) = (String::new(), key.into(), value.into());
    let request = PutRequest { keyspace, key, value, sync: false };
    let answer: PutResponse = client.unary(SERVICE, "Put", request).await.unwrap();
    answer.sequence
}

async fn get(client: &Connection, key: &str) -> Option<Vec<u8>> {
    let request = GetRequest { keyspace: String::new(), key: key.into() };
    let answer: GetResponse = client.unary(SERVICE, "Get", request).await.unwrap();
    answer.value.map(Vec::from)
}

async fn scan(client: &Connection, keyspace: &str) -> Vec<(String, String)> {
    let request = ScanRequest { keyspace: keyspace.to_string(), ..ScanRequest::default() };
    let asked = futures_util::stream::iter([request]);
    let mut answers = client.streaming::<_, ScanResponse, _>(SERVICE, "Scan", asked).await.unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let mut found = Vec::new();
    while let Some(answer) = answers.message().await.unwrap() {
        found.extend(answer.entries.iter().map(|entry| (text(&entry.key), text(&entry.value))));
    }
    found
}

#[test]
fn keys_and_values_lie_beside_the_events_and_stay() {
    let ground = Ground::new();
    let serving = Serving::start(&ground, &["--kv", "--kv-memory", "64MiB"]);
    let first = run(async { put(&connect(&serving).await, "ada", "1815").await });
    let (code, _, notes) = serving.stop(Signal::TERM);
    assert_eq!(code, Some(0), "{notes}");
    assert!(notes.contains("keys and values are in ") && notes.contains("store/kv"), "{notes}");
    // The folder is a store like any other, and the events are none the worse for it.
    let folder = ground.store().join("kv");
    let folder = folder.to_str().unwrap();
    assert_eq!(ground.bare(&["--db", folder, "get", "ada"]).succeeds().text().trim(), "1815");
    ground.run(&["verify"]).succeeds();
    let serving = Serving::with(&ground, &["--insecure"], &[("UMBEL_KV", "1")]);
    run(async {
        let client = connect(&serving).await;
        assert_eq!(get(&client, "ada").await.unwrap(), b"1815");
        assert!(put(&client, "ada", "1816").await > first, "numbers go on");
    });
    assert_eq!(serving.stop(Signal::INT).0, Some(0));
}

#[test]
fn a_server_without_the_flag_makes_no_folder_and_says_how_to_have_one() {
    let ground = Ground::new();
    let serving = Serving::start(&ground, &[]);
    run(async {
        let request = GetRequest { keyspace: String::new(), key: b"ada".to_vec() };
        let client = connect(&serving).await;
        let refused = client.unary::<_, GetResponse>(SERVICE, "Get", request).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::Unimplemented);
        assert!(refused.message().contains("--kv"), "{refused:?}");
    });
    assert_eq!(serving.stop(Signal::INT).0, Some(0));
    assert!(!ground.store().join("kv").exists());
}

#[test]
fn a_folder_that_somebody_has_open_is_refused_and_the_store_is_closed() {
    let ground = Ground::new();
    assert_eq!(Serving::start(&ground, &["--kv"]).stop(Signal::INT).0, Some(0));
    let db = umbel::Db::open(ground.store().join("kv"), umbel::Options::default()).unwrap();
    let refused = ground.run(&["serve", "--insecure", "--listen", "127.0.0.1:0", "--kv"]);
    assert_eq!(refused.code, 5, "{refused:?}");
    assert!(refused.stderr.contains("kv"), "{refused:?}");
    db.close().unwrap();
    assert_eq!(Serving::start(&ground, &["--kv"]).stop(Signal::INT).0, Some(0));
}

fn both(number: usize, round: usize) -> Vec<Operation> {
    let operation = |keyspace: &str| {
        let key = format!("{number}-{round:06}").into();
        let entry = Entry { key, value: round.to_string().into() };
        Operation { keyspace: keyspace.to_string(), kind: Some(OperationKind::Put(entry)) }
    };
    vec![operation(""), operation("other")]
}

/// Writes until the server is gone; how many were acknowledged.
async fn write(client: Connection, number: usize, sync: bool, done: Arc<Mutex<Vec<usize>>>) {
    for round in 0.. {
        let operations = both(number, round);
        let request = BatchRequest { operations, conditions: Vec::new(), sync };
        match client.unary::<_, BatchResponse>(SERVICE, "Batch", request).await {
            Ok(_) => done.lock().unwrap()[number] = round + 1,
            Err(_) => return,
        }
    }
}

/// Kills a server among its writes, and looks at what the next one finds.
fn kill(ground: &Ground, flags: &[&str], sync: bool, least: usize) {
    let flags: Vec<&str> = ["--kv"].iter().chain(flags).copied().collect();
    let serving = Serving::start(ground, &flags);
    let done = Arc::new(Mutex::new(vec![0; WRITERS]));
    run(async {
        let client = connect(&serving).await;
        let request = CreateKeyspaceRequest { name: "other".to_string() };
        let _: CreateKeyspaceResponse =
            client.unary(SERVICE, "CreateKeyspace", request).await.unwrap();
        let mut writers = Vec::new();
        for number in 0..WRITERS {
            let client = connect(&serving).await;
            writers.push(tokio::spawn(write(client, number, sync, Arc::clone(&done))));
        }
        while done.lock().unwrap().iter().any(|count| *count < least) {
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
        serving.stop(Signal::KILL);
        join_all(writers).await;
    });
    let serving = Serving::start(ground, &flags);
    let (found, other) = run(async {
        let client = connect(&serving).await;
        (scan(&client, "").await, scan(&client, "other").await)
    });
    assert_eq!(found, other, "a batch is there whole or not at all");
    for (number, count) in done.lock().unwrap().iter().enumerate() {
        let prefix = format!("{number}-");
        let there = found.iter().filter(|(key, _)| key.starts_with(&prefix)).count();
        assert!(there == *count || there == count + 1, "{there} of {count} acknowledged");
        let last = found.iter().rfind(|(key, _)| key.starts_with(&prefix)).unwrap();
        assert_eq!(last.1, (there - 1).to_string(), "no hole");
    }
    assert_eq!(serving.stop(Signal::INT).0, Some(0));
}

#[test]
fn what_was_acknowledged_survives_a_kill() {
    kill(&Ground::new(), &[], false, 50);
    kill(&Ground::new(), &["--sync"], false, 10);
    kill(&Ground::new(), &[], true, 10);
}
