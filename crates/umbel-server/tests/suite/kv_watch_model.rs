//! Model test of watches and scans beside many writers. A snapshot is exactly the result of the
//! writes up to its sequence number. A watch receives each later write once, in order.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tonic::Code;
use umbel_proto::kv::*;

use super::client::Client;
use super::kv_client::{Kv, condition, delete_of, delete_range_of, event, put_of, shown};
use super::test_server::TestServer;

type Map = BTreeMap<String, String>;

const WRITERS: u64 = 6;
const WRITES: u64 = 150;
const WATCHERS: u64 = 8;
const KEYS: u64 = 24;
const PREFIX: &str = "b";

/// Pseudo-random numbers, the same in each run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    fn key(&mut self) -> String {
        let number = self.below(KEYS);
        format!("{}{}", ["a", "b", "bc"][(number % 3) as usize], number / 3)
    }
}

/// Acknowledged writes by sequence number.
type Written = Arc<Mutex<BTreeMap<u64, Vec<Operation>>>>;

async fn write(kv: Kv, number: u64, written: Written) {
    let mut dice = Dice(0x9e37_79b9 * (number + 1));
    for round in 0..WRITES {
        let value = format!("{number}-{round}");
        let operations = match dice.below(10) {
            0..5 => vec![put_of("", &dice.key(), &value)],
            5..7 => vec![delete_of("", &dice.key())],
            7 => {
                let (one, other) = (dice.key(), dice.key());
                if one == other {
                    continue;
                }
                vec![delete_range_of("", (&one).min(&other), (&one).max(&other))]
            }
            _ => {
                let first = put_of("", &dice.key(), &value);
                vec![first, delete_of("", &dice.key()), put_of("other", &dice.key(), &value)]
            }
        };
        // Some fail, and must leave no trace.
        let conditions = match dice.below(4) {
            0 => vec![condition("a-key-that-is-never-there", Some("x"))],
            _ => vec![],
        };
        let is_refused = !conditions.is_empty();
        match kv.batch(operations.clone(), conditions).await {
            Ok(sequence) => {
                assert!(!is_refused);
                let before = written.lock().unwrap().insert(sequence, operations);
                assert!(before.is_none(), "{sequence} was given twice");
            }
            Err(status) => assert!(is_refused && status.code() == Code::Aborted, "{status:?}"),
        }
    }
}

fn do_to(map: &mut Map, kind: &ChangeKind) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    match kind {
        ChangeKind::Put(entry) => {
            let (key, value) = shown(entry);
            map.insert(key, value);
        }
        ChangeKind::Delete(key) => {
            map.remove(&text(key));
        }
        ChangeKind::DeleteRange(range) => {
            let (start, end) = (text(&range.start), text(&range.end));
            map.retain(|key, _| *key < start || *key >= end);
        }
    }
}

fn as_change(operation: &Operation) -> ChangeKind {
    match operation.kind.clone().unwrap() {
        OperationKind::Put(entry) => ChangeKind::Put(entry),
        OperationKind::Delete(key) => ChangeKind::Delete(key),
        OperationKind::DeleteRange(range) => ChangeKind::DeleteRange(range),
    }
}

/// State of the watched keyspace after the writes up to `through`, limited to `prefix`.
fn state(written: &BTreeMap<u64, Vec<Operation>>, through: u64, prefix: &str) -> Map {
    let mut map = Map::new();
    for operations in written.range(..=through).map(|(_, operations)| operations) {
        for operation in operations.iter().filter(|operation| operation.keyspace.is_empty()) {
            do_to(&mut map, &as_change(operation));
        }
    }
    map.retain(|key, _| key.starts_with(prefix));
    map
}

/// Sequence numbers of the writes after `after` that a watch of the prefix must receive.
fn expected(written: &BTreeMap<u64, Vec<Operation>>, after: u64) -> Vec<u64> {
    let concerns = |operation: &Operation| match as_change(operation) {
        _ if !operation.keyspace.is_empty() => false,
        ChangeKind::Put(entry) => entry.key.starts_with(PREFIX.as_bytes()),
        ChangeKind::Delete(key) => key.starts_with(PREFIX.as_bytes()),
        // All keys begin with a, b or bc, and ranges end at keys.
        ChangeKind::DeleteRange(range) => range.end > PREFIX.as_bytes(),
    };
    let reported =
        written.range(after + 1..).filter(|(_, operations)| operations.iter().any(concerns));
    reported.map(|(sequence, _)| *sequence).collect()
}

/// Observations of a watch: its state after each event.
struct Seen {
    started: u64,
    states: Vec<(u64, Map)>,
}

/// Watches until the final write.
async fn watch(kv: Kv, is_over: impl Fn(&Map) -> bool) -> Seen {
    let request = WatchRequest {
        prefix: PREFIX.as_bytes().to_vec(),
        with_entries: true,
        ..WatchRequest::default()
    };
    let mut answers = kv.watch(request).await.unwrap();
    let (mut map, mut seen) = (Map::new(), None);
    while !is_over(&map) {
        match event(&mut answers).await.unwrap() {
            WatchEvent::Entries(entries) => {
                assert!(seen.is_none(), "entries come before everything else");
                map.extend(entries.entries.iter().map(shown));
            }
            WatchEvent::Started(Started { sequence }) => {
                assert!(seen.is_none(), "it starts once");
                seen = Some(Seen { started: sequence, states: vec![(sequence, map.clone())] });
            }
            WatchEvent::Changes(changes) => {
                for change in &changes.changes {
                    do_to(&mut map, change.kind.as_ref().unwrap());
                    map.retain(|key, _| key.starts_with(PREFIX));
                }
                let seen = seen.as_mut().expect("changes come after the start");
                seen.states.push((changes.sequence, map.clone()));
            }
        }
    }
    seen.expect("it has started")
}

/// Scans until all writers are done.
async fn scan(kv: Kv, is_done: Arc<AtomicBool>) -> Vec<(u64, Map)> {
    let mut states = Vec::new();
    while !is_done.load(Ordering::SeqCst) {
        let (sequence, entries) = kv.scan(ScanRequest::default()).await.unwrap();
        states.push((sequence, entries.into_iter().collect()));
    }
    states
}

fn check(written: &BTreeMap<u64, Vec<Operation>>, seen: &Seen) {
    let reported: Vec<u64> = seen.states[1..].iter().map(|(sequence, _)| *sequence).collect();
    assert_eq!(reported, expected(written, seen.started), "each once, in order, after the start");
    for (sequence, map) in &seen.states {
        assert_eq!(*map, state(written, *sequence, PREFIX), "at {sequence}");
    }
}

#[test]
fn each_write_is_in_the_entries_or_an_update_not_both() {
    TestServer::with_kv().run(async |client, server| {
        let kv = Kv::new(&client);
        kv.create("other").await.unwrap();
        let written = Written::default();
        let is_done = Arc::new(AtomicBool::new(false));
        let mut tasks = Vec::new();
        for number in 0..WRITERS {
            let kv = Kv::new(&Client::connect(server.address()).await.0);
            tasks.push(tokio::spawn(write(kv, number, Arc::clone(&written))));
        }
        let scans = tokio::spawn(scan(kv.clone(), Arc::clone(&is_done)));
        let mut watches = Vec::new();
        for number in 0..WATCHERS {
            // They begin at times spread over the writes.
            while (written.lock().unwrap().len() as u64) < number * 60 {
                tokio::task::yield_now().await;
            }
            let is_over = |map: &Map| map.contains_key("b-the-end");
            watches.push(tokio::spawn(watch(kv.clone(), is_over)));
        }
        for task in tasks {
            task.await.unwrap();
        }
        let last = vec![put_of("", "b-the-end", "")];
        let sequence = kv.batch(last.clone(), vec![]).await.unwrap();
        written.lock().unwrap().insert(sequence, last);
        is_done.store(true, Ordering::SeqCst);
        let (mut late, mut seen) = (0, Vec::new());
        for watch in watches {
            seen.push(watch.await.unwrap());
        }
        let scans = scans.await.unwrap();
        let written = written.lock().unwrap();
        for seen in &seen {
            check(&written, seen);
            late += u64::from(seen.started > 0 && seen.states.len() > 1);
        }
        assert!(late > WATCHERS / 2, "most begin while others write: {late}");
        assert!(scans.len() > 3, "{}", scans.len());
        for (sequence, map) in &scans {
            assert_eq!(*map, state(&written, *sequence, ""), "a scan at {sequence}");
        }
    });
}
