//! Tests of `Options::before_flush`: what tables of keyspaces without a WAL depend on is durable
//! before the tables are live.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use umbel::{Db, Error, FlushPrecondition, KeyspaceOptions, Options};
use umbel_sim::{Sim, Survival};

use crate::suite::fixture::{PATH, inline, unlogged};

fn gated(sim: &Sim, shut: &Arc<AtomicBool>, passed: &Arc<AtomicU64>) -> Db {
    let (shut, passed) = (Arc::clone(shut), Arc::clone(passed));
    let gate = FlushPrecondition::new(move || {
        passed.fetch_add(1, Ordering::SeqCst);
        match shut.load(Ordering::SeqCst) {
            true => Err(Error::ReadOnly("the gate is shut".to_string())),
            false => Ok(()),
        }
    });
    Db::open(PATH, Options { before_flush: Some(gate), ..inline(&sim.env()) }).unwrap()
}

#[test]
fn closed_gate_blocks_every_flush() {
    let sim = Sim::new(1);
    let (shut, passed) = (Arc::default(), Arc::default());
    let db = gated(&sim, &shut, &passed);
    let logged = db.keyspace("logged", KeyspaceOptions::default()).unwrap();
    logged.put(b"a", b"1").unwrap();
    db.flush().unwrap();
    assert_eq!(passed.load(Ordering::SeqCst), 0, "the store keeps that log itself");
    let without = db.keyspace("without", unlogged()).unwrap();
    without.put(b"a", b"1").unwrap();
    db.flush_all(&[&without], b"one").unwrap();
    assert_eq!(passed.load(Ordering::SeqCst), 1);
    shut.store(true, Ordering::SeqCst);
    without.put(b"a", b"2").unwrap();
    assert!(db.flush_all(&[&without], b"two").is_err());
    assert_eq!(without.get(b"a").unwrap().as_deref(), Some(&b"2"[..]), "memory has it");
    let sim = sim.crash_image(&Survival::All, 1);
    let db = gated(&sim, &Arc::default(), &passed);
    let without = db.keyspace("without", unlogged()).unwrap();
    assert_eq!(without.get(b"a").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(without.marker().as_deref(), Some(&b"one"[..]));
}

/// Story: a flush precondition that panicked in a caller's flush left the keyspace claimed forever.
/// The next flush, a wait for compactions and the close never returned.
#[test]
fn panicking_gate_is_fatal_and_blocks_no_thread() {
    let sim = Sim::new(1);
    let gate = FlushPrecondition::new(|| panic!("the program's own fault"));
    let options = Options { before_flush: Some(gate), ..inline(&sim.env()) };
    let db = Db::open(PATH, options).unwrap();
    let keyspace = db.keyspace("k", unlogged()).unwrap();
    keyspace.put("key", "value").unwrap();
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| db.flush())).unwrap_err();
    let error = db.flush().unwrap_err();
    assert!(error.to_string().contains("a flush panicked"), "{error}");
    assert_eq!(keyspace.get("key").unwrap().as_deref(), Some(&b"value"[..]));
    drop(keyspace);
    db.close().unwrap_err();
}
