//! Backups of an event store, and a replicated log, in a bucket of an S3 server.
//!
//! The test command starts the server and names it in `UMBEL_TEST_S3` and the variables below it.
//! Without them each test says that it is skipped.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::ops::Range;

use rustix::process::Signal;
use serde_json::Value;
use umbel_env::Env;
use umbel_env::skipped_test::print_skipped;

use super::serve::Serving;
use super::test_binary::{Fixture, Run, numbered_events};

/// An event store, and an own prefix in the bucket of a server.
struct Bucket {
    fixture: Fixture,
    url: String,
    endpoint: String,
    access_key: (String, String),
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap()
}

fn key(id: &str, secret: &str) -> (String, String) {
    (variable(id), variable(secret))
}

/// Returns a prefix in the server's bucket; `None` without a server.
fn bucket(test: &str) -> Option<Bucket> {
    let Ok(endpoint) = std::env::var("UMBEL_TEST_S3") else {
        print_skipped(&format!("{test} in an S3 server"), "UMBEL_TEST_S3 names no server");
        return None;
    };
    let id = u64::from_le_bytes(Env::system().entropy.id().unwrap()[..8].try_into().unwrap());
    let url = format!("s3://{}/umbel-cli/{id:016x}", variable("UMBEL_TEST_S3_BUCKET"));
    let access_key = key("UMBEL_TEST_S3_ID", "UMBEL_TEST_S3_SECRET");
    Some(Bucket { fixture: Fixture::new(), url, endpoint, access_key })
}

impl Bucket {
    fn umbel(&self, arguments: &[&str]) -> Run {
        self.umbel_as(&self.endpoint, &self.access_key, arguments)
    }

    fn umbel_as(&self, endpoint: &str, (id, secret): &(String, String), arguments: &[&str]) -> Run {
        let mut command = self.fixture.command();
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("AWS_") {
                command.env_remove(name);
            }
        }
        command.env("AWS_ENDPOINT_URL", endpoint);
        command.env("AWS_ACCESS_KEY_ID", id).env("AWS_SECRET_ACCESS_KEY", secret);
        Run::of(command.args(arguments))
    }

    fn append(&self, numbers: Range<u64>) {
        self.fixture.feed(&["append"], numbered_events(numbers).as_bytes()).succeeds();
    }

    fn path(&self, name: &str) -> String {
        self.fixture.path(name).to_str().unwrap().to_owned()
    }

    fn back_up(&self) -> Value {
        let store = self.path("store");
        self.umbel(&["--db", &store, "backup", "--to", &self.url, "--json"]).succeeds().json()
    }

    fn read_all(&self, store: &str) -> String {
        self.fixture.bare(&["--db", &self.path(store), "read", "--all"]).succeeds().text()
    }
}

#[test]
fn backup_in_a_bucket_restores_every_event() {
    let Some(bucket) = bucket("backup") else { return };
    bucket.append(0..500);
    let first = bucket.back_up();
    assert_eq!(first["manifest"], 1, "{first}");
    bucket.append(500..510);
    let second = bucket.back_up();
    assert!(second["uploaded_bytes"].as_u64() < Some(5_000), "{second}");
    let third = bucket.back_up();
    assert_eq!((&third["manifest"], &third["uploaded_bytes"]), (&2.into(), &0.into()));
    let report = bucket.umbel(&["verify", "--from", &bucket.url]).succeeds().text();
    assert!(report.contains("is undamaged") && report.contains("can be restored"), "{report}");
    let all = bucket.read_all("store");
    let restore = |name: &str, end: &[&str]| {
        let target = bucket.path(name);
        let restore = ["restore", "--from", &bucket.url, "--db", &target];
        bucket.umbel(&[&restore, end].concat()).succeeds();
        bucket.read_all(name)
    };
    assert_eq!(restore("latest", &[]), all);
    let last: Value = serde_json::from_str(all.lines().nth(499).unwrap()).unwrap();
    let position = last["position"].to_string();
    let events: Vec<&str> = all.lines().collect();
    assert_eq!(restore("early", &["--to-position", &position]), events[..500].join("\n") + "\n");
}

#[test]
fn probe_of_a_bucket_passes() {
    let Some(bucket) = bucket("probe") else { return };
    let report = bucket.umbel(&["store", "probe", &bucket.url, "--json"]).succeeds().json();
    assert_eq!(report["verdict"], "suitable", "{report}");
    assert_eq!(report["store"], bucket.url.as_str());
    assert!(report["clock_difference_seconds"].as_f64().unwrap().abs() < 60.0, "{report}");
}

/// Each error names the object, the cause and the remedy, and a backup that failed leaves nothing.
#[test]
fn wrong_buckets_and_credentials_are_refused() {
    let Some(bucket) = bucket("wrong credentials") else { return };
    bucket.append(0..9);
    let store = bucket.path("store");
    let (id, secret) = bucket.access_key.clone();
    let reader = key("UMBEL_TEST_S3_READER_ID", "UMBEL_TEST_S3_READER_SECRET");
    let backup = ["--db", &store, "backup", "--to"];
    let to = |url: &str, access_key: &(String, String)| {
        bucket.umbel_as(&bucket.endpoint, access_key, &[&backup[..], &[url]].concat())
    };
    to("s3://no-such-bucket/p", &bucket.access_key)
        .fails(2, &["s3://no-such-bucket/p", "NoSuchBucket", "create the bucket"]);
    to(&bucket.url, &(id, "wrong".into()))
        .fails(2, &["SignatureDoesNotMatch", "AWS_SECRET_ACCESS_KEY"]);
    to(&bucket.url, &("AKIAUNKNOWN".into(), secret))
        .fails(2, &["InvalidAccessKeyId", "AWS_ACCESS_KEY_ID"]);
    to(&bucket.url, &reader).fails(2, &["AccessDenied", "grant the rights"]);
    let probe = bucket.umbel_as(&bucket.endpoint, &reader, &["store", "probe", &bucket.url]);
    assert!(probe.text().contains("grant the rights"), "{}", probe.text());
    bucket.umbel(&["verify", "--from", &bucket.url]).fails(2, &["no backup"]);
    bucket.back_up();
    // Who may read can restore, and cannot write.
    let target = bucket.path("restored");
    let restore = ["restore", "--from", &bucket.url, "--db", &target];
    bucket.umbel_as(&bucket.endpoint, &reader, &restore).succeeds();
    assert_eq!(bucket.read_all("restored"), bucket.read_all("store"));
    bucket.append(9..12);
    to(&bucket.url, &reader).fails(2, &["AccessDenied", "grant the rights"]);
}

#[test]
fn endpoint_without_s3_is_refused() {
    let Some(bucket) = bucket("endpoint without S3") else { return };
    bucket.append(0..9);
    let store = bucket.path("store");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let answers = [
        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>",
        "HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\n\r\nnot found",
        "SSH-2.0-OpenSSH_9.2\r\n",
    ];
    let expected = [(2, "not that of an S3 store"), (2, "status 404"), (4, "HTTP")];
    for (answer, (code, reason)) in answers.into_iter().zip(expected) {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().unwrap();
                let _ = stream.read(&mut [0; 4096]).unwrap();
                stream.write_all(answer.as_bytes()).unwrap();
            });
            let backup = ["--db", &store, "backup", "--to", &bucket.url];
            let run = bucket.umbel_as(&endpoint, &bucket.access_key, &backup);
            run.fails(code, &[&bucket.url, reason]);
        });
    }
    drop(listener);
    let restore = ["restore", "--from", &bucket.url, "--db", &bucket.path("restored")];
    bucket.umbel_as(&endpoint, &bucket.access_key, &restore).fails(4, &["refused"]);
    assert!(!bucket.fixture.path("restored").exists());
}

#[test]
fn promoted_follower_over_a_bucket_has_every_acknowledged_event() {
    let Some(bucket) = bucket("replicated log") else { return };
    let log = bucket.umbel(&["store", "init", &bucket.url, "--json"]).succeeds().json();
    let id = log["log"].as_str().unwrap().to_owned();
    let variables = [
        ("AWS_ENDPOINT_URL", &*bucket.endpoint),
        ("AWS_ACCESS_KEY_ID", &*bucket.access_key.0),
        ("AWS_SECRET_ACCESS_KEY", &*bucket.access_key.1),
    ];
    let node = |fixture: &Fixture, node: &str, more: &[&str]| {
        let flags = ["--insecure", "--durability", "synced", "--store", &bucket.url];
        let flags = [&flags[..], &["--node", node], more].concat();
        Serving::with(fixture, &flags, &variables)
    };
    let read_all = |serving: &Serving| {
        let all = ["subscribe", "--all", "--until-caught-up", "--connect", serving.connection()];
        bucket.fixture.bare(&all).succeeds().text()
    };
    let leader = node(&bucket.fixture, "a", &[]);
    let append = |serving: &Serving, numbers: Range<u64>| {
        let connect = ["append", "--connect", serving.connection()];
        bucket.fixture.feed(&connect, numbered_events(numbers).as_bytes()).succeeds();
    };
    append(&leader, 0..20);
    let all = read_all(&leader);
    assert_eq!(leader.stop(Signal::KILL).0, None);
    let of_follower = Fixture::new();
    let follower = node(&of_follower, "b", &["--join", &id, "--read-only-replica"]);
    assert_eq!(read_all(&follower), all);
    bucket.fixture.bare(&["promote", "--connect", follower.connection()]).succeeds();
    append(&follower, 20..25);
    assert_eq!(read_all(&follower).lines().filter(|line| line.contains("Counted")).count(), 25);
    assert_eq!(follower.stop(Signal::TERM).0, Some(0));
}
