//! Tests that acknowledged writes survive a crash, and that watches see only durable ones.

use std::future::Future;
use std::path::Path;
use std::sync::Arc;

use tonic::Code;
use umbel::{Env, Options};
use umbel_proto::kv::Entry;
use umbel_sim::{Fault, FaultKind, Sim, Survival};

use super::super::{KvConfig, KvStore};
use super::*;
use crate::resources::inbound_quota::InboundQuota;

const FOLDER: &str = "/kv";

fn open(sim: &Sim) -> Db {
    Db::open(Path::new(FOLDER), Options { env: sim.env(), ..Options::default() }).unwrap()
}

/// A store on a crash disk, which syncs every write or those that request it.
struct WriterFixture {
    sim: Sim,
    db: Db,
    kv: KvStore,
    budget: Arc<InboundQuota>,
}

impl WriterFixture {
    fn new(sync: bool) -> WriterFixture {
        let sim = Sim::new(7);
        let db = open(&sim);
        let what = KvConfig { sync, ..KvConfig::new(db.clone()) };
        let (kv, _) = KvStore::new(what, &Env::system()).unwrap();
        WriterFixture { sim, db, kv, budget: Arc::default() }
    }

    fn submit(&self, key: &str, sync: bool) -> oneshot::Receiver<Result<u64>> {
        let keyspace = self.kv.keyspace("default").unwrap().unwrap();
        let entry = Entry { key: key.to_string().into(), value: "value".into() };
        let operations = vec![WriteOperation { keyspace, kind: OperationKind::Put(entry) }];
        let share = self.budget.new_share();
        self.kv.submit(WriteRequest { operations, conditions: Vec::new(), sync, share })
    }

    fn put(&self, key: &str, sync: bool) -> u64 {
        wait(self.submit(key, sync)).unwrap().unwrap()
    }

    fn watch(&self) -> Watcher {
        let keyspace = "default".to_string();
        let watched = WatchFilter { keyspace, prefix: Vec::new(), keys_only: false };
        wait(self.kv.watch(watched)).unwrap().unwrap().0
    }

    /// Whether a key survives a power cut that loses all data that was not synced.
    fn survives(&self, key: &str) -> bool {
        let left = open(&self.sim.crash_image(&Survival::None, 3));
        let keyspace = left.keyspace("default", None).unwrap();
        keyspace.contains(key).unwrap()
    }
}

fn wait<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

#[test]
fn acknowledged_synced_write_survives_power_loss() {
    let fixture = WriterFixture::new(false);
    for number in 0..20 {
        let (plain, synced) = (format!("plain{number}"), format!("synced{number}"));
        fixture.put(&plain, false);
        assert!(!fixture.survives(&plain), "no sync was requested, so the test could not fail");
        fixture.put(&synced, true);
        assert!(fixture.survives(&synced) && fixture.survives(&plain), "{number}");
    }
    let fixture = WriterFixture::new(true);
    fixture.put("plain", false);
    assert!(fixture.survives("plain"), "the server requests the sync");
}

#[test]
fn concurrent_writes_survive_with_ordered_sequence_numbers() {
    let fixture = WriterFixture::new(true);
    let waiting: Vec<_> = (0..200).map(|n| fixture.submit(&format!("key{n}"), false)).collect();
    let mut last = 0;
    for (number, answer) in waiting.into_iter().enumerate() {
        let sequence = wait(answer).unwrap().unwrap();
        assert!(sequence > last);
        last = sequence;
        assert!(number % 20 > 0 || fixture.survives(&format!("key{number}")));
    }
    assert_eq!(fixture.db.stats().last_sequence, last);
}

#[test]
fn watch_publishes_only_durable_writes() {
    let fixture = WriterFixture::new(true);
    let watcher = fixture.watch();
    for number in 0..50 {
        let key = format!("key{number}");
        let answer = fixture.submit(&key, false);
        let update = wait(watcher.next()).unwrap();
        assert!(fixture.survives(&key), "{key}");
        assert_eq!(wait(answer).unwrap().unwrap(), update.sequence);
    }
}

/// A failed sync is final, and a write whose sync failed is never published.
#[test]
fn failed_sync_fails_the_write_and_ends_every_watch() {
    let fixture = WriterFixture::new(true);
    let watcher = fixture.watch();
    let first = fixture.put("fine", false);
    assert_eq!(wait(watcher.next()).unwrap().sequence, first);
    fixture.sim.fail_site("sync *.log", 1, Fault { kind: FaultKind::Eio, sticky: true });
    assert!(wait(fixture.submit("lost", false)).unwrap().is_err());
    let ended = wait(watcher.next()).unwrap_err();
    assert!(matches!(ended.code(), Code::Internal | Code::Unavailable), "{ended:?}");
    let refused = wait(fixture.submit("late", false)).unwrap().unwrap_err();
    assert!(matches!(refused, umbel::Error::ReadOnly(_)), "{refused:?}");
}
