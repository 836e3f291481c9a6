//! `umbel serve --kv`: the key-value store of a server, also after a kill.

use std::sync::{Arc, Mutex};

use futures_util::future::join_all;
use rustix::process::Signal;
use umbel_proto::kv::{
    BatchRequest, BatchResponse, CreateKeyspaceRequest, CreateKeyspaceResponse, Entry, GetRequest,
    GetResponse, Operation, OperationKind, PutRequest, PutResponse, SERVICE, ScanRequest,
    ScanResponse,
};

use super::serve::Serving;
use super::test_binary::Fixture;
use umbel_testing::server_connection::Connection;

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
    let requests = futures_util::stream::iter([request]);
    let mut answers =
        client.streaming::<_, ScanResponse, _>(SERVICE, "Scan", requests).await.unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let mut found = Vec::new();
    while let Some(answer) = answers.message().await.unwrap() {
        found.extend(answer.entries.iter().map(|entry| (text(&entry.key), text(&entry.value))));
    }
    found
}

#[test]
fn served_keys_and_values_survive_restart() {
    let fixture = Fixture::new();
    let serving = Serving::start(&fixture, &["--kv", "--kv-memory", "64MiB"]);
    let first = run(async { put(&connect(&serving).await, "ada", "1815").await });
    let (code, _, notes) = serving.stop(Signal::TERM);
    assert_eq!(code, Some(0), "{notes}");
    assert!(notes.contains("keys and values are in ") && notes.contains("store/kv"), "{notes}");
    // The directory is an ordinary store, and the event store is unaffected.
    let directory = fixture.store().join("kv");
    let directory = directory.to_str().unwrap();
    assert_eq!(fixture.bare(&["--db", directory, "get", "ada"]).succeeds().text().trim(), "1815");
    fixture.run(&["verify"]).succeeds();
    let serving = Serving::with(&fixture, &["--insecure"], &[("UMBEL_KV", "1")]);
    run(async {
        let client = connect(&serving).await;
        assert_eq!(get(&client, "ada").await.unwrap(), b"1815");
        assert!(put(&client, "ada", "1816").await > first, "sequence numbers continue");
    });
    assert_eq!(serving.stop(Signal::INT).0, Some(0));
}

#[test]
fn server_without_kv_creates_no_directory_and_names_flag() {
    let fixture = Fixture::new();
    let serving = Serving::start(&fixture, &[]);
    run(async {
        let request = GetRequest { keyspace: String::new(), key: b"ada".to_vec() };
        let client = connect(&serving).await;
        let refused = client.unary::<_, GetResponse>(SERVICE, "Get", request).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::Unimplemented);
        assert!(refused.message().contains("--kv"), "{refused:?}");
    });
    assert_eq!(serving.stop(Signal::INT).0, Some(0));
    assert!(!fixture.store().join("kv").exists());
}

#[test]
fn locked_kv_directory_is_rejected_and_store_is_closed() {
    let fixture = Fixture::new();
    assert_eq!(Serving::start(&fixture, &["--kv"]).stop(Signal::INT).0, Some(0));
    let db = umbel::Db::open(fixture.store().join("kv"), umbel::Options::default()).unwrap();
    let refused = fixture.run(&["serve", "--insecure", "--listen", "127.0.0.1:0", "--kv"]);
    assert_eq!(refused.code, 5, "{refused:?}");
    assert!(refused.stderr.contains("kv"), "{refused:?}");
    db.close().unwrap();
    assert_eq!(Serving::start(&fixture, &["--kv"]).stop(Signal::INT).0, Some(0));
}

/// Story: no line said that a backup into a directory leaves out keys and values.
#[test]
fn backup_into_a_directory_names_missing_keys_and_values() {
    let fixture = Fixture::new();
    let target = fixture.path("copy");
    let target = target.to_str().unwrap();
    let back_up = |flags: &[&str]| {
        let serving = Serving::start(&fixture, &[flags, &["--backup-dir", target]].concat());
        let run = fixture.bare(&["backup", "--connect", serving.address()]).succeeds();
        let (code, _, log) = serving.stop(Signal::INT);
        assert_eq!(code, Some(0), "{log}");
        (run.stderr, log)
    };
    let (notes, log) = back_up(&[]);
    assert!(!notes.contains("keys and values"), "{notes}");
    assert!(!log.contains("keys and values"), "{log}");
    assert_eq!(fixture.run(&["backup", "--to", target]).succeeds().stderr, "");
    let (notes, log) = back_up(&["--kv"]);
    assert!(notes.contains("the keys and values of the server are not in this backup"), "{notes}");
    assert!(log.contains("the backup leaves out keys and values"), "{log}");
    let run = fixture.run(&["backup", "--to", target]).succeeds();
    assert!(run.stderr.contains("store/kv are not in this backup"), "{run:?}");
    // Story: a server without the option said nothing of the keys of last week.
    let (notes, log) = back_up(&[]);
    assert!(notes.contains("the keys and values of the server are not in this backup"), "{notes}");
    assert!(log.contains("the backup leaves out keys and values"), "{log}");
}

fn both(number: usize, round: usize) -> Vec<Operation> {
    let operation = |keyspace: &str| {
        let key = format!("{number}-{round:06}").into();
        let entry = Entry { key, value: round.to_string().into() };
        Operation { keyspace: keyspace.to_string(), kind: Some(OperationKind::Put(entry)) }
    };
    vec![operation(""), operation("other")]
}

/// Writes until the server has ended, and counts the acknowledged writes.
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

/// Kills a server during writes, and checks the data after the next start.
fn kill(fixture: &Fixture, flags: &[&str], sync: bool, writes_min: usize) {
    let flags: Vec<&str> = ["--kv"].iter().chain(flags).copied().collect();
    let serving = Serving::start(fixture, &flags);
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
        while done.lock().unwrap().iter().any(|count| *count < writes_min) {
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
        serving.stop(Signal::KILL);
        join_all(writers).await;
    });
    let serving = Serving::start(fixture, &flags);
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
fn acknowledged_writes_survive_kill() {
    kill(&Fixture::new(), &[], false, 50);
    kill(&Fixture::new(), &["--durability=synced"], false, 10);
    kill(&Fixture::new(), &[], true, 10);
}
