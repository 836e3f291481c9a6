//! Tests which watches receive which changes, and which are evicted.

use tempfile::TempDir;
use tonic::Code;
use umbel::{Db, Keyspace, Options};

use super::*;

struct HubFixture {
    feed: WatchHub,
    keyspace: Keyspace,
    other: Keyspace,
    db: Db,
    _directory: TempDir,
}

impl HubFixture {
    fn new() -> HubFixture {
        let directory = tempfile::tempdir().unwrap();
        let db = Db::open(directory.path().join("kv"), Options::default()).unwrap();
        let [keyspace, other] = ["default", "other"].map(|name| db.keyspace(name, None).unwrap());
        HubFixture {
            feed: WatchHub::new(Arc::default()),
            keyspace,
            other,
            db,
            _directory: directory,
        }
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

/// Whether a watch receives an operation, by the definition.
fn is_watched(filter: &WatchFilter, operation: &WriteOperation) -> bool {
    if operation.keyspace.name() != filter.keyspace {
        return false;
    }
    match &operation.kind {
        OperationKind::Put(entry) => entry.key.starts_with(&filter.prefix),
        OperationKind::Delete(key) => key.starts_with(&filter.prefix),
        OperationKind::DeleteRange(range) => {
            // Some key with this prefix is at or after the start and before the end.
            let begins_before =
                range.start.starts_with(&filter.prefix) || range.start[..] <= filter.prefix[..];
            begins_before && range.end[..] > filter.prefix[..]
        }
    }
}

/// Pseudo-random numbers below a limit.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) % limit
    }

    fn key(&mut self) -> Vec<u8> {
        let bytes = self.below(5);
        (0..bytes).map(|_| b'a' + self.below(2) as u8 * 0x9e).collect()
    }
}

#[test]
fn watches_receive_what_a_search_finds() {
    let mut fixture = HubFixture::new();
    let mut dice = Dice(5);
    let mut watchers: Vec<Watcher> = Vec::new();
    for sequence in 0..3000 {
        if watchers.len() < 25 && dice.below(3) == 0 {
            let keyspace = ["default", "other"][dice.below(2) as usize].to_string();
            let filter = WatchFilter { keyspace, prefix: dice.key(), keys_only: false };
            watchers.push(fixture.feed.subscribe(filter).unwrap());
        } else if dice.below(9) == 0 && !watchers.is_empty() {
            watchers.swap_remove(dice.below(watchers.len() as u64) as usize);
        }
        let operations: Vec<WriteOperation> = (0..1 + dice.below(6))
            .map(|_| {
                let keyspace = match dice.below(2) {
                    0 => fixture.keyspace.clone(),
                    _ => fixture.other.clone(),
                };
                let kind = match dice.below(3) {
                    0 => {
                        let value = Bytes::new();
                        OperationKind::Put(Entry { key: dice.key().into(), value })
                    }
                    1 => OperationKind::Delete(dice.key().into()),
                    _ => {
                        let (start, end) = (dice.key().into(), dice.key().into());
                        OperationKind::DeleteRange(KeyRange { start, end })
                    }
                };
                WriteOperation { keyspace, kind }
            })
            .collect();
        fixture.feed.publish(sequence, &operations);
        for watcher in &watchers {
            let filter = &watcher.queue.filter;
            let watched = operations.iter().filter(|operation| is_watched(filter, operation));
            let expected: Vec<ChangeKind> =
                watched.map(|operation| to_change(&operation.kind)).collect();
            let received = watcher.try_next().map_or(Vec::new(), |changes| {
                changes.unwrap().changes.into_iter().filter_map(|change| change.kind).collect()
            });
            assert_eq!(received, expected, "{filter:?}");
            assert!(watcher.try_next().is_none());
        }
        let sum: usize = fixture.feed.queues.values().map(|queue| queue.locked().bytes).sum();
        assert_eq!(fixture.feed.totals.bytes.load(Ordering::Relaxed), sum);
    }
    drop(watchers);
    fixture.feed.remove_ended();
    assert_eq!(fixture.feed.totals.bytes.load(Ordering::Relaxed), 0);
}

/// Story: each operation was compared with each watch, and each write looked at each queue. 1000
/// watches made a write of 100,000 operations 100 million comparisons.
#[test]
fn write_costs_no_search_of_all_watches() {
    // Three times the logarithm of the depth.
    const STEPS_MAX: usize = 27;
    let mut fixture = HubFixture::new();
    // Prefixes of each other, and prefixes without a common part.
    let nested = (1..500).map(|length| "a".repeat(length));
    let distinct = (0..500).map(|number| format!("w-{number:04}"));
    let watchers: Vec<Watcher> = nested.chain(distinct).map(|name| fixture.watch(&name)).collect();
    let operation = |key: String| {
        let kind = OperationKind::Delete(key.into_bytes().into());
        WriteOperation { keyspace: fixture.keyspace.clone(), kind }
    };
    let visited = |keys: Vec<String>, watched: usize| {
        let operations: Vec<_> = keys.into_iter().map(operation).collect();
        let before = fixture.feed.index.visited.get();
        assert_eq!(fixture.feed.index.watches_of(&operations).len(), watched);
        fixture.feed.index.visited.get() - before
    };
    assert!(visited(vec!["b".to_string()], 0) <= STEPS_MAX);
    assert!(visited(vec!["x".to_string()], 0) <= STEPS_MAX);
    assert!(visited(vec![format!("{}b", "a".repeat(7))], 7) <= 7 + STEPS_MAX);
    assert!(visited(vec!["w-0042-1".to_string()], 1) <= 1 + STEPS_MAX);
    let keys = (0..10_000).map(|number| format!("{}b{number}", "a".repeat(number % 499)));
    let visits = visited(keys.collect(), 498);
    assert!(visits <= 10_000 * STEPS_MAX + 499, "{visits}");
    let filter = &watchers[498 + 7].queue.filter;
    let kinds = (0..10_000).map(|number| match number % 2 {
        0 => delete_range(&format!("w-{number:04}"), &format!("w-{number:04}x")),
        _ => OperationKind::Delete(format!("w-{number:04}").into_bytes().into()),
    });
    let keyspace = &fixture.keyspace;
    let operations: Vec<WriteOperation> =
        kinds.map(|kind| WriteOperation { keyspace: keyspace.clone(), kind }).collect();
    let mut indexes = OperationIndexes::new(&operations);
    let index = indexes.of("default").unwrap();
    let expected: Vec<usize> =
        (0..10_000).filter(|number| is_watched(filter, &operations[*number])).collect();
    assert_eq!(index.matching(filter), expected);
    assert!(index.visited.get() <= (expected.len() + 1) * 30, "{}", index.visited.get());
}

/// Story: each removed watch linked all nodes of its keyspace. A connection with 1000 watches that
/// ended made a million links in the writer's thread.
#[test]
fn ended_watches_link_each_keyspace_once() {
    let mut fixture = HubFixture::new();
    let mut watchers: Vec<Watcher> =
        (0..900).map(|number| fixture.watch(&format!("w-{number:04}"))).collect();
    let kept = watchers.split_off(800);
    drop(watchers);
    let before = fixture.feed.index.linked;
    fixture.feed.remove_ended();
    // The nodes of the remaining watches, and the node of the empty prefix.
    assert_eq!(fixture.feed.index.linked - before, 101);
    fixture.put(1, "w-0799", 1);
    fixture.put(2, "w-0899", 1);
    assert_eq!(drain_updates(&kept[99]), (vec![2], None));
    drop(kept);
    fixture.feed.remove_ended();
    assert_eq!(fixture.feed.index.linked - before, 101, "the keyspace is removed");
}

/// Story: the index of each watched keyspace examined all operations of a write. 1000 watched
/// keyspaces made a write of 100,000 operations 100 million comparisons of names.
#[test]
fn operations_are_grouped_by_keyspace_once() {
    const KEYSPACES: usize = 1000;
    let mut fixture = HubFixture::new();
    let names: Vec<String> = (0..KEYSPACES).map(|number| format!("k-{number:04}")).collect();
    let operations: Vec<WriteOperation> = names
        .iter()
        .flat_map(|name| {
            let keyspace = fixture.db.keyspace(name, None).unwrap();
            ["a", "b"].map(|key| WriteOperation {
                keyspace: keyspace.clone(),
                kind: OperationKind::Delete(key.into()),
            })
        })
        .collect();
    let watchers = names.iter().map(|name| {
        let (keyspace, prefix) = (name.clone(), b"b".to_vec());
        fixture.feed.subscribe(WatchFilter { keyspace, prefix, keys_only: false }).unwrap()
    });
    let watchers: Vec<Watcher> = watchers.collect();
    let mut indexes = OperationIndexes::new(&operations);
    for (number, watcher) in watchers.iter().enumerate() {
        let filter = &watcher.queue.filter;
        for _ in 0..3 {
            let index = indexes.of(&filter.keyspace).unwrap();
            assert_eq!(index.matching(filter), [2 * number + 1]);
        }
    }
    assert!(indexes.of("other").is_none());
    assert_eq!(indexes.examined, 2 * operations.len(), "once to group, once to sort");
    fixture.feed.publish(7, &operations);
    for watcher in &watchers {
        let received = watcher.try_next().unwrap().unwrap();
        assert_eq!((received.sequence, received.changes.len()), (7, 1));
    }
}
