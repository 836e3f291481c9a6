//! What an answered write survives, and what who watches is told before it does.

use std::future::Future;
use std::path::Path;
use std::sync::Arc;

use tonic::Code;
use umbel::{Env, Options};
use umbel_proto::kv::Entry;
use umbel_sim::{Fault, FaultKind, Sim, Survival};

use super::super::{KeyValues, KvStore};
use super::*;
use crate::budget::Budget;

const FOLDER: &str = "/kv";

fn open(sim: &Sim) -> Db {
    Db::open(Path::new(FOLDER), Options { env: sim.env(), ..Options::default() }).unwrap()
}

/// A store on a crash disk, which syncs every write or those that ask for it.
struct Stage {
    sim: Sim,
    db: Db,
    kv: KvStore,
    budget: Arc<Budget>,
}

impl Stage {
    fn new(sync: bool) -> Stage {
        let sim = Sim::new(7);
        let db = open(&sim);
        let what = KeyValues { sync, ..KeyValues::new(db.clone()) };
        let (kv, _) = KvStore::new(what, &Env::system()).unwrap();
        Stage { sim, db, kv, budget: Arc::default() }
    }

    fn submit(&self, key: &str, sync: bool) -> oneshot::Receiver<Result<u64>> {
        let keyspace = self.kv.keyspace("default").unwrap().unwrap();
        let entry = Entry { key: key.to_string().into(), value: "value".into() };
        let operations = vec![Operation { keyspace, kind: OperationKind::Put(entry) }];
        let share = self.budget.share();
        self.kv.submit(Write { operations, conditions: Vec::new(), sync, share })
    }

    fn put(&self, key: &str, sync: bool) -> u64 {
        wait(self.submit(key, sync)).unwrap().unwrap()
    }

    fn watch(&self) -> Watcher {
        let keyspace = "default".to_string();
        let watched = Watched { keyspace, prefix: Vec::new(), keys_only: false };
        wait(self.kv.watch(watched)).unwrap().unwrap().0
    }

    /// Whether a key is there after a power cut that takes everything it can.
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
fn a_write_that_was_to_survive_power_loss_does_once_it_is_answered() {
    let stage = Stage::new(false);
    for number in 0..20 {
        let (plain, synced) = (format!("plain{number}"), format!("synced{number}"));
        stage.put(&plain, false);
        assert!(!stage.survives(&plain), "nobody asked for it, so the test could not fail");
        stage.put(&synced, true);
        assert!(stage.survives(&synced) && stage.survives(&plain), "{number}");
    }
    let stage = Stage::new(true);
    stage.put("plain", false);
    assert!(stage.survives("plain"), "the server asks for it");
}

#[test]
fn many_writes_at_once_survive_and_have_numbers_in_their_order() {
    let stage = Stage::new(true);
    let waiting: Vec<_> = (0..200).map(|n| stage.submit(&format!("key{n}"), false)).collect();
    let mut last = 0;
    for (number, answer) in waiting.into_iter().enumerate() {
        let sequence = wait(answer).unwrap().unwrap();
        assert!(sequence > last);
        last = sequence;
        assert!(number % 20 > 0 || stage.survives(&format!("key{number}")));
    }
    assert_eq!(stage.db.stats().last_sequence, last);
}

#[test]
fn who_watches_is_told_nothing_that_a_power_cut_could_take() {
    let stage = Stage::new(true);
    let watcher = stage.watch();
    for number in 0..50 {
        let key = format!("key{number}");
        let answer = stage.submit(&key, false);
        let told = wait(watcher.next()).unwrap();
        assert!(stage.survives(&key), "{key}");
        assert_eq!(wait(answer).unwrap().unwrap(), told.sequence);
    }
}

/// A sync that failed is final, and a write that was to survive and may not is told to nobody.
#[test]
fn a_sync_that_fails_fails_the_write_and_ends_every_watch() {
    let stage = Stage::new(true);
    let watcher = stage.watch();
    let first = stage.put("fine", false);
    assert_eq!(wait(watcher.next()).unwrap().sequence, first);
    stage.sim.fail_site("sync *.log", 1, Fault { kind: FaultKind::Eio, sticky: true });
    assert!(wait(stage.submit("lost", false)).unwrap().is_err());
    let ended = wait(watcher.next()).unwrap_err();
    assert!(matches!(ended.code(), Code::Internal | Code::Unavailable), "{ended:?}");
    let refused = wait(stage.submit("late", false)).unwrap().unwrap_err();
    assert!(matches!(refused, umbel::Error::ReadOnly(_)), "{refused:?}");
}
