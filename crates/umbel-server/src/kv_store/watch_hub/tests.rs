//! Tests which watches receive which changes, and which are evicted.

use tempfile::TempDir;
use tonic::Code;
use umbel::{Db, Keyspace, Options};

use super::*;

struct HubFixture {
    feed: WatchHub,
    keyspace: Keyspace,
    other: Keyspace,
    _directory: TempDir,
}

impl HubFixture {
    fn new() -> HubFixture {
        let directory = tempfile::tempdir().unwrap();
        let db = Db::open(directory.path().join("kv"), Options::default()).unwrap();
        let [keyspace, other] = ["default", "other"].map(|name| db.keyspace(name, None).unwrap());
        HubFixture { feed: WatchHub::new(Arc::default()), keyspace, other, _directory: directory }
    }

    fn watch(&mut self, prefix: &str) -> Watcher {
        self.try_watch(prefix).unwrap()
    }

    fn try_watch(&mut self, prefix: &str) -> Result<Watcher, Status> {
        let prefix = prefix.as_bytes().to_vec();
        self.feed.subscribe(WatchFilter {
            keyspace: "default".to_string(),
            prefix,
            keys_only: false,
        })
    }

    fn put(&mut self, sequence: u64, key: &str, bytes: usize) {
        let entry = Entry { key: key.to_string().into(), value: vec![7; bytes].into() };
        self.publish(sequence, vec![OperationKind::Put(entry)]);
    }

    fn publish(&mut self, sequence: u64, kinds: Vec<OperationKind>) {
        let keyspace = &self.keyspace;
        let operation = |kind| WriteOperation { keyspace: keyspace.clone(), kind };
        let operations: Vec<WriteOperation> = kinds.into_iter().map(operation).collect();
        self.feed.publish(sequence, &operations);
    }
}

/// Returns the sequence numbers of the queued writes, and the status code if the watch ended.
fn drain_updates(watcher: &Watcher) -> (Vec<u64>, Option<Code>) {
    let mut sequences = Vec::new();
    loop {
        match watcher.try_next() {
            Some(Ok(changes)) => sequences.push(changes.sequence),
            Some(Err(status)) => return (sequences, Some(status.code())),
            None => return (sequences, None),
        }
    }
}

fn delete_range(start: &str, end: &str) -> OperationKind {
    let (start, end) = (start.to_string().into(), end.to_string().into());
    OperationKind::DeleteRange(KeyRange { start, end })
}

#[test]
fn watch_receives_only_its_keys() {
    let mut fixture = HubFixture::new();
    let (all, some) = (fixture.watch(""), fixture.watch("cart-"));
    fixture.put(1, "cart-1", 3);
    fixture.put(2, "user-1", 3);
    fixture.publish(3, vec![OperationKind::Delete(Bytes::from_static(b"cart-1"))]);
    fixture.feed.publish(
        4,
        &[WriteOperation {
            keyspace: fixture.other.clone(),
            kind: OperationKind::Delete(Bytes::from_static(b"cart-1")),
        }],
    );
    assert_eq!(drain_updates(&all), (vec![1, 2, 3], None));
    assert_eq!(drain_updates(&some), (vec![1, 3], None));
}

#[test]
fn range_delete_reaches_watches_of_keys_in_it() {
    let mut fixture = HubFixture::new();
    let some = fixture.watch("b");
    let cases = [
        (1, "a", "b", false),
        (2, "a", "b\0", true),
        (3, "a", "z", true),
        (4, "b", "b\0", true),
        (5, "bx", "z", true),
        (6, "c", "z", false),
        (7, "", "a", false),
    ];
    for (sequence, start, end, _) in cases {
        fixture.publish(sequence, vec![delete_range(start, end)]);
    }
    let concerned = cases.iter().filter(|case| case.3).map(|case| case.0).collect();
    assert_eq!(drain_updates(&some), (concerned, None));
}

#[test]
fn write_is_one_update_with_the_matching_changes() {
    let mut fixture = HubFixture::new();
    let some = fixture.watch("a");
    let entry = |key: &'static str| Entry { key: key.into(), value: Bytes::new() };
    let kinds = vec![
        OperationKind::Put(entry("a1")),
        OperationKind::Put(entry("b1")),
        OperationKind::Delete(Bytes::from_static(b"a1")),
        delete_range("a", "b"),
    ];
    fixture.publish(9, kinds);
    let changes = some.try_next().unwrap().unwrap();
    assert_eq!((changes.sequence, changes.changes.len()), (9, 3));
    assert!(matches!(&changes.changes[0].kind, Some(ChangeKind::Put(put)) if put.key == "a1"));
    assert!(matches!(&changes.changes[2].kind, Some(ChangeKind::DeleteRange(_))));
    assert!(some.try_next().is_none());
}

#[test]
fn slow_watch_is_evicted_and_its_queue_freed() {
    let mut fixture = HubFixture::new();
    let (slow, quick) = (fixture.watch(""), fixture.watch(""));
    let mut seen = Vec::new();
    for sequence in 1..=9 {
        fixture.put(sequence, "key", WATCH_BYTES_MAX / 8);
        seen.extend(drain_updates(&quick).0);
    }
    assert_eq!(seen, (1..=9).collect::<Vec<u64>>());
    assert_eq!(slow.queue.locked().bytes, 0, "the queue was dropped");
    assert_eq!(drain_updates(&slow), (vec![], Some(Code::Aborted)));
    assert_eq!(fixture.feed.queues.len(), 1, "the hub sends nothing to it");
    let counts = &fixture.feed.counts;
    let counted = (counts.watches.load(Ordering::Relaxed), counts.evicted.load(Ordering::Relaxed));
    assert_eq!(counted, (1, 1));
    for sequence in 10..10 + WATCH_WRITES_MAX as u64 + 1 {
        fixture.put(sequence, "key", 1);
    }
    assert_eq!(
        drain_updates(&quick),
        (vec![], Some(Code::Aborted)),
        "many small updates exceed the limit, too"
    );
}

#[test]
fn oversized_single_write_is_delivered() {
    let mut fixture = HubFixture::new();
    let watcher = fixture.watch("");
    fixture.put(1, "key", 3 * WATCH_BYTES_MAX);
    assert_eq!(drain_updates(&watcher), (vec![1], None));
    fixture.put(2, "key", 3 * WATCH_BYTES_MAX);
    assert!(watcher.try_next().unwrap().is_ok());
    // It is being sent to the client, and counts until the watcher takes the next.
    fixture.put(3, "key", 1);
    assert_eq!(drain_updates(&watcher), (vec![], Some(Code::Aborted)));
}

#[test]
fn total_queue_limit_evicts_the_largest_watch() {
    let mut fixture = HubFixture::new();
    fixture.feed.bytes_max = 10_000;
    let (all, some) = (fixture.watch(""), fixture.watch("b"));
    fixture.put(1, "a", 4000);
    fixture.put(2, "b", 2000);
    fixture.put(3, "b", 2000);
    assert_eq!(drain_updates(&all), (vec![], Some(Code::Aborted)));
    assert_eq!(drain_updates(&some), (vec![2, 3], None));
}

#[test]
fn closed_watch_frees_its_slot() {
    let mut fixture = HubFixture::new();
    fixture.feed.watches_max = 2;
    let (one, two) = (fixture.watch(""), fixture.watch(""));
    let refused = fixture.try_watch("").expect_err("two watches are the limit");
    assert_eq!(refused.code(), Code::ResourceExhausted);
    drop(one);
    let three = fixture.watch("");
    fixture.put(1, "key", 1);
    assert_eq!((drain_updates(&two), drain_updates(&three)), ((vec![1], None), (vec![1], None)));
}

#[test]
fn store_failure_ends_watches_after_queued_updates() {
    let mut fixture = HubFixture::new();
    let watcher = fixture.watch("");
    fixture.feed.fail(&umbel::Error::ReadOnly("a sync failed".to_string()));
    fixture.put(1, "key", 1);
    assert_eq!(drain_updates(&watcher), (vec![], Some(Code::Unavailable)));
}
