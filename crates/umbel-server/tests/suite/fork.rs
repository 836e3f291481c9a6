//! Tests of servers and forks: a server runs in the process that started it, and a forked child can
//! start its own server.

use std::cell::Cell;
use std::path::Path;

use umbel::{Db, KeyspaceOptions, Options};
use umbel_env::test_processes::{in_forked_child, in_own_process};
use umbel_events::{Direction, Error, ExpectedVersion, NewEvent, Revision, Store, StoreOptions};
use umbel_server::{Config, KvConfig, Running, Server};

use super::client::{ANY, Client, events};

fn config(db: &Db) -> Config {
    let listen = "127.0.0.1:0".parse().unwrap();
    Config { listen, kv: Some(KvConfig::new(db.clone())), ..Config::default() }
}

fn open(directory: &Path) -> (Store, Db) {
    let store = Store::open(directory.join("events"), StoreOptions::default()).unwrap();
    (store, Db::open(directory.join("kv"), Options::default()).unwrap())
}

/// Appends events to the server through a client.
fn append(running: &Running, numbers: std::ops::Range<u64>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = Client::connect(running.address()).await;
        let done = client.append("cart-1", ANY, &events(numbers)).await;
        done.expect("the server appends");
    });
}

fn count(store: &Store) -> usize {
    store.read("cart-1", Revision::START, Direction::Forwards).map(Result::unwrap).count()
}

/// Story: the child of a program with a server waited for the server's threads, and its copies of
/// the stores overwrote the parent's files.
#[test]
fn program_with_a_server_may_fork() {
    in_own_process("suite::fork::program_with_a_server_may_fork", || {
        let directory = tempfile::tempdir().unwrap();
        let (store, db) = open(directory.path());
        let keys = db.keyspace("keys", KeyspaceOptions::default()).unwrap();
        let running = Server::start(store.clone(), config(&db)).unwrap();
        let interrupts = Cell::new(Some(running.interrupts().unwrap()));
        append(&running, 0..10);
        let running = Cell::new(Some(running));
        let handles = Cell::new(Some((store.clone(), db.clone(), keys.clone())));
        for is_shut_down in [false, true] {
            in_forked_child(|| {
                let (inherited, store) = (running.take().unwrap(), handles.take().unwrap());
                assert!(inherited.interrupts().is_err() && inherited.tasks() == 0);
                let (store, db, keys) = store;
                let event = NewEvent::json(store.new_id().unwrap(), "Added", b"{}");
                let appended = store.append("cart-1", ExpectedVersion::Any, &[event]);
                assert!(matches!(appended, Err(Error::Store(umbel::Error::Forked(_)))));
                assert!(matches!(keys.put(b"a", b"b"), Err(umbel::Error::Forked(_))));
                interrupts.take().unwrap().wait();
                match is_shut_down {
                    true => inherited.shutdown(),
                    false => drop(inherited),
                }
                assert!(store.close().is_err() && db.close().is_err());
            });
        }
        let running = running.take().unwrap();
        append(&running, 10..20);
        drop(interrupts.take());
        running.shutdown();
        drop(handles.take());
        assert_eq!(count(&store), 20);
        keys.put(b"a", b"c").unwrap();
        drop(keys);
        store.close().unwrap();
        db.close().unwrap();
        let (store, db) = open(directory.path());
        assert_eq!(count(&store), 20);
        assert!(store.verify().unwrap().damage.is_empty());
        assert!(db.verify().unwrap().damage.is_empty());
    });
}

/// Story: a program that bound the address and then daemonized by a fork had a server without
/// threads, which never responded.
#[test]
fn server_must_start_in_the_process_that_prepared_it() {
    in_own_process("suite::fork::server_must_start_in_the_process_that_prepared_it", || {
        let directory = tempfile::tempdir().unwrap();
        let listen = "127.0.0.1:0".parse().unwrap();
        let config = || Config { listen, ..Config::default() };
        let prepared = Cell::new(Some(Server::prepare(&config()).unwrap()));
        in_forked_child(|| {
            let (store, _db) = open(directory.path());
            let refused = prepared.take().unwrap().start(store, config());
            let message = refused.map(drop).unwrap_err().to_string();
            assert!(message.contains("forked"), "{message}");
        });
        in_forked_child(|| drop(prepared.take()));
        drop(prepared.take());
    });
}

/// A process forks, and its child opens the store and serves it, like a daemon.
#[test]
fn forked_child_serves_a_store_it_opened() {
    in_own_process("suite::fork::forked_child_serves_a_store_it_opened", || {
        let directory = tempfile::tempdir().unwrap();
        let serve = |numbers: std::ops::Range<u64>| {
            let (store, db) = open(directory.path());
            let running = Server::start(store.clone(), config(&db)).unwrap();
            append(&running, numbers);
            running.shutdown();
            store.close().unwrap();
            db.close().unwrap();
        };
        serve(0..10);
        in_forked_child(|| serve(10..20));
        let (store, _db) = open(directory.path());
        in_forked_child(|| {
            let refused = Store::open(directory.path().join("events"), StoreOptions::default());
            assert!(matches!(refused, Err(Error::Store(umbel::Error::Locked(_)))));
        });
        assert_eq!(count(&store), 20);
        store.close().unwrap();
    });
}
