//! Who is told what, and who is let go.

use tempfile::TempDir;
use tonic::Code;
use umbel::{Db, Keyspace, Options};

use super::*;

struct Stage {
    feed: Feed,
    keyspace: Keyspace,
    other: Keyspace,
    _folder: TempDir,
}

impl Stage {
    fn new() -> Stage {
        let folder = tempfile::tempdir().unwrap();
        let db = Db::open(folder.path().join("kv"), Options::default()).unwrap();
        let [keyspace, other] = ["default", "other"].map(|name| db.keyspace(name, None).unwrap());
        Stage { feed: Feed::new(Arc::default()), keyspace, other, _folder: folder }
    }

    fn watch(&mut self, prefix: &str) -> Watcher {
        self.try_watch(prefix).unwrap()
    }

    fn try_watch(&mut self, prefix: &str) -> Result<Watcher, Status> {
        let prefix = prefix.as_bytes().to_vec();
        self.feed.begin(Watched { keyspace: "default".to_string(), prefix, keys_only: false })
    }

    fn put(&mut self, sequence: u64, key: &str, bytes: usize) {
        let entry = Entry { key: key.to_string().into(), value: vec![7; bytes].into() };
        self.tell(sequence, vec![OperationKind::Put(entry)]);
    }

    fn tell(&mut self, sequence: u64, kinds: Vec<OperationKind>) {
        let keyspace = &self.keyspace;
        let operation = |kind| Operation { keyspace: keyspace.clone(), kind };
        let operations: Vec<Operation> = kinds.into_iter().map(operation).collect();
        self.feed.tell(sequence, &operations);
    }
}

/// The numbers of the writes that were told, and how it ended where it did.
fn told(watcher: &Watcher) -> (Vec<u64>, Option<Code>) {
    let mut sequences = Vec::new();
    loop {
        match watcher.take() {
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
fn each_is_told_of_his_keys_and_of_no_others() {
    let mut stage = Stage::new();
    let (all, some) = (stage.watch(""), stage.watch("cart-"));
    stage.put(1, "cart-1", 3);
    stage.put(2, "user-1", 3);
    stage.tell(3, vec![OperationKind::Delete(Bytes::from_static(b"cart-1"))]);
    stage.feed.tell(
        4,
        &[Operation {
            keyspace: stage.other.clone(),
            kind: OperationKind::Delete(Bytes::from_static(b"cart-1")),
        }],
    );
    assert_eq!(told(&all), (vec![1, 2, 3], None));
    assert_eq!(told(&some), (vec![1, 3], None));
}

#[test]
fn a_range_concerns_whoever_watches_a_key_in_it() {
    let mut stage = Stage::new();
    let some = stage.watch("b");
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
        stage.tell(sequence, vec![delete_range(start, end)]);
    }
    let concerned = cases.iter().filter(|case| case.3).map(|case| case.0).collect();
    assert_eq!(told(&some), (concerned, None));
}

#[test]
fn a_write_is_told_as_one_with_what_concerns_him() {
    let mut stage = Stage::new();
    let some = stage.watch("a");
    let entry = |key: &'static str| Entry { key: key.into(), value: Bytes::new() };
    let kinds = vec![
        OperationKind::Put(entry("a1")),
        OperationKind::Put(entry("b1")),
        OperationKind::Delete(Bytes::from_static(b"a1")),
        delete_range("a", "b"),
    ];
    stage.tell(9, kinds);
    let changes = some.take().unwrap().unwrap();
    assert_eq!((changes.sequence, changes.changes.len()), (9, 3));
    assert!(matches!(&changes.changes[0].kind, Some(ChangeKind::Put(put)) if put.key == "a1"));
    assert!(matches!(&changes.changes[2].kind, Some(ChangeKind::DeleteRange(_))));
    assert!(some.take().is_none());
}

#[test]
fn who_takes_nothing_is_let_go_and_nothing_of_it_is_kept() {
    let mut stage = Stage::new();
    let (slow, quick) = (stage.watch(""), stage.watch(""));
    let mut seen = Vec::new();
    for sequence in 1..=9 {
        stage.put(sequence, "key", WATCH_BYTES_MAX / 8);
        seen.extend(told(&quick).0);
    }
    assert_eq!(seen, (1..=9).collect::<Vec<u64>>());
    assert_eq!(slow.queue.locked().bytes, 0, "what waited was thrown away");
    assert_eq!(told(&slow), (vec![], Some(Code::Aborted)));
    assert_eq!(stage.feed.queues.len(), 1, "nobody tells him any more");
    let counts = &stage.feed.counts;
    let counted = (counts.watches.load(Ordering::Relaxed), counts.let_go.load(Ordering::Relaxed));
    assert_eq!(counted, (1, 1));
    for sequence in 10..10 + WATCH_WRITES_MAX as u64 + 1 {
        stage.put(sequence, "key", 1);
    }
    assert_eq!(told(&quick), (vec![], Some(Code::Aborted)), "many small ones are too many, too");
}

#[test]
fn one_write_is_told_however_large_it_is() {
    let mut stage = Stage::new();
    let watcher = stage.watch("");
    stage.put(1, "key", 3 * WATCH_BYTES_MAX);
    assert_eq!(told(&watcher), (vec![1], None));
    stage.put(2, "key", 3 * WATCH_BYTES_MAX);
    assert!(watcher.take().unwrap().is_ok());
    // It is on its way to the client, and counts until he asks for what is next.
    stage.put(3, "key", 1);
    assert_eq!(told(&watcher), (vec![], Some(Code::Aborted)));
}

#[test]
fn all_together_hold_no_more_than_they_may_and_who_holds_the_most_goes() {
    let mut stage = Stage::new();
    stage.feed.bytes_max = 10_000;
    let (most, some) = (stage.watch(""), stage.watch("b"));
    stage.put(1, "a", 4000);
    stage.put(2, "b", 2000);
    stage.put(3, "b", 2000);
    assert_eq!(told(&most), (vec![], Some(Code::Aborted)));
    assert_eq!(told(&some), (vec![2, 3], None));
}

#[test]
fn who_left_gives_his_place_to_another() {
    let mut stage = Stage::new();
    stage.feed.watches_max = 2;
    let (one, two) = (stage.watch(""), stage.watch(""));
    let refused = stage.try_watch("").expect_err("two are the most");
    assert_eq!(refused.code(), Code::ResourceExhausted);
    drop(one);
    let three = stage.watch("");
    stage.put(1, "key", 1);
    assert_eq!((told(&two), told(&three)), ((vec![1], None), (vec![1], None)));
}

#[test]
fn a_store_that_fails_ends_every_watch_behind_what_was_told() {
    let mut stage = Stage::new();
    let watcher = stage.watch("");
    stage.feed.fail(&umbel::Error::ReadOnly("a sync failed".to_string()));
    stage.put(1, "key", 1);
    assert_eq!(told(&watcher), (vec![], Some(Code::Unavailable)));
}
