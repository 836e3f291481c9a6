//! Tests that each invalid input or state gives an error of the right kind with a clear message.

use umbel::{Db, Durability, Error, KeyspaceOptions, Options};
use umbel_base::checksum::checksum;
use umbel_env::Access;
use umbel_sim::{Fault, FaultKind, Sim};

use crate::suite::fixture::{PATH, again, all, existing, fill, filled, inline, new_store, tiny};

fn open_error(sim: &Sim, options: impl FnOnce(Options) -> Options) -> Error {
    Db::open(PATH, options(inline(&sim.env()))).unwrap_err()
}

#[test]
fn second_handle_is_rejected_while_first_is_open() {
    let (sim, db) = new_store();
    let keyspace = db.keyspace("a", KeyspaceOptions::default()).unwrap();
    for _ in 0..2 {
        assert!(matches!(open_error(&sim, |o| o), Error::Locked(_)));
        // A read-only handle is not.
        Db::open_read_only(PATH, inline(&sim.env())).unwrap();
    }
    drop(db);
    // Any handle keeps it open.
    assert!(matches!(open_error(&sim, |o| o), Error::Locked(_)));
    let iter = keyspace.iter();
    drop(keyspace);
    assert!(matches!(open_error(&sim, |o| o), Error::Locked(_)));
    drop(iter);
    again(&sim);
}

/// Story: an empty path, as an unset variable yields, gave "could not create : No such file or
/// directory". A checkpoint put files into the current directory.
#[test]
fn empty_path_is_rejected_before_any_file_call() {
    let (sim, db) = new_store();
    let before = sim.calls();
    let errors = [
        ("the store", open_at(&sim, Db::open)),
        ("the store", open_at(&sim, Db::open_read_only)),
        ("the checkpoint", db.checkpoint("").unwrap_err()),
    ];
    for (what, error) in errors {
        assert!(matches!(error, Error::Invalid(_)), "{error:?}");
        let message = format!("the path of {what} is empty; ");
        assert!(error.to_string().starts_with(&message), "{error}");
    }
    assert_eq!(sim.calls(), before, "no file call was made");
}

fn open_at(sim: &Sim, open: fn(&'static str, Options) -> umbel::Result<Db>) -> Error {
    open("", inline(&sim.env())).unwrap_err()
}

#[test]
fn closed_store_reports_closed() {
    let (sim, db) = new_store();
    let keyspace = db.keyspace("a", KeyspaceOptions::default()).unwrap();
    fill(&keyspace, 0..10, 1);
    let (snapshot, batch) = (db.snapshot(), db.batch());
    db.clone().close().unwrap();
    // Another caller may open it although old handles exist.
    let other = again(&sim);
    let closed = |result: umbel::Result<()>| assert!(matches!(result, Err(Error::Closed)));
    closed(keyspace.get(b"k").map(drop));
    closed(keyspace.multi_get(&[b"k"]).map(drop));
    closed(keyspace.get_at(&snapshot, b"k").map(drop));
    closed(keyspace.iter().next().unwrap().map(drop));
    closed(keyspace.cursor::<&[u8]>(..).map(drop));
    closed(keyspace.put(b"k", b"v"));
    closed(keyspace.delete(b"k"));
    closed(keyspace.delete_range(b"a", b"z"));
    closed(keyspace.flush());
    closed(keyspace.compact(None, None));
    closed(batch.commit(Durability::Buffered));
    closed(db.sync());
    closed(db.flush());
    closed(db.verify().map(drop));
    closed(db.checkpoint("/data/copy").map(drop));
    closed(db.wait_for_compaction());
    closed(db.keyspace("a", KeyspaceOptions::default()).map(drop));
    closed(db.existing_keyspace("a").map(drop));
    closed(db.drop_keyspace("a"));
    let _ = db.stats().to_string();
    db.clone().close().unwrap();
    drop((db, keyspace, snapshot));
    assert_eq!(all(&existing(&other, "a")), filled(0..10, 1));
    assert!(other.verify().unwrap().damage.is_empty());
}

#[test]
fn read_only_store_rejects_every_write() {
    let (sim, db) = new_store();
    let keyspace = db.keyspace("a", KeyspaceOptions::default()).unwrap();
    fill(&keyspace, 0..10, 1);
    drop((keyspace, db));
    let db = Db::open_read_only(PATH, inline(&sim.env())).unwrap();
    let keyspace = existing(&db, "a");
    assert_eq!(all(&keyspace), filled(0..10, 1));
    let refused = |result: umbel::Result<()>| {
        let message = result.unwrap_err().to_string();
        assert!(message.contains("opened read-only; open it with Db::open to write"), "{message}");
    };
    refused(keyspace.put(b"k", b"v"));
    refused(keyspace.delete(b"k"));
    refused(keyspace.delete_range(b"a", b"z"));
    refused(keyspace.flush());
    refused(keyspace.compact(None, None));
    let mut batch = db.batch();
    batch.put(&keyspace, b"k", b"v");
    refused(batch.commit(Durability::Synced));
    refused(db.batch().commit(Durability::Buffered));
    refused(db.sync());
    refused(db.flush());
    refused(db.checkpoint("/data/copy").map(drop));
    refused(db.wait_for_compaction());
    refused(db.keyspace("b", KeyspaceOptions::default()).map(drop));
    refused(db.drop_keyspace("a"));
    assert_eq!(keyspace.get(b"k").unwrap(), None);
    assert_eq!(db.keyspaces(), ["a"]);
    db.close().unwrap();
}

#[test]
fn handles_of_another_store_are_rejected() {
    let (_first, db) = new_store();
    let (_second, other) = new_store();
    let own = db.keyspace("a", KeyspaceOptions::default()).unwrap();
    let foreign = other.keyspace("a", KeyspaceOptions::default()).unwrap();
    let snapshot = other.snapshot();
    let refused = |result: umbel::Result<()>| {
        let message = result.unwrap_err().to_string();
        assert!(message.contains("another store"), "{message}");
    };
    refused(own.get_at(&snapshot, b"k").map(drop));
    refused(own.multi_get_at(&snapshot, &[b"k"]).map(drop));
    refused(own.iter_at(&snapshot).map(drop));
    refused(own.cursor_at::<&[u8]>(&snapshot, ..).map(drop));
    refused(db.flush_all(&[&foreign], b"m"));
    let mut batch = db.batch();
    batch.put(&foreign, b"k", b"v");
    refused(batch.commit(Durability::Buffered));
    let mut batch = db.batch();
    batch.expect_unchanged(&own, b"k", &snapshot);
    refused(batch.commit(Durability::Buffered));
    let mut batch = db.batch();
    batch.expect_absent(&foreign, b"k");
    refused(batch.commit(Durability::Buffered));
    assert_eq!((all(&own), all(&foreign)), (vec![], vec![]));
}

#[test]
fn dropped_keyspace_reports_dropped() {
    let (sim, db) = new_store();
    let keyspace = db.keyspace("a", KeyspaceOptions::default()).unwrap();
    let other = db.keyspace("b", KeyspaceOptions::default()).unwrap();
    fill(&keyspace, 0..10, 1);
    let snapshot = db.snapshot();
    db.drop_keyspace("a").unwrap();
    let refused = |result: umbel::Result<()>| {
        let message = result.unwrap_err().to_string();
        assert!(message.contains("keyspace 'a' was dropped"), "{message}");
    };
    refused(keyspace.get(b"k").map(drop));
    refused(keyspace.get_at(&snapshot, b"k").map(drop));
    refused(keyspace.iter().next().unwrap().map(drop));
    refused(keyspace.iter_at(&snapshot).map(drop));
    refused(keyspace.cursor::<&[u8]>(..).map(drop));
    refused(keyspace.put(b"k", b"v"));
    refused(keyspace.delete_range(b"a", b"z"));
    refused(keyspace.flush());
    refused(keyspace.compact(None, None));
    let mut batch = db.batch();
    batch.put(&other, b"k", b"v");
    batch.put(&keyspace, b"k", b"v");
    refused(batch.commit(Durability::Buffered));
    assert_eq!(all(&other), []);
    let missing = db.drop_keyspace("a").unwrap_err().to_string();
    assert!(missing.contains("there is no keyspace 'a'"), "{missing}");
    // Its name is free, and none of its data returns.
    let recreated = db.keyspace("a", KeyspaceOptions::default()).unwrap();
    assert_eq!(all(&recreated), []);
    drop((keyspace, recreated, other, snapshot, db));
    assert_eq!(all(&existing(&again(&sim), "a")), []);
}

#[test]
fn open_missing_or_existing_store_is_rejected() {
    let sim = Sim::new(1);
    let missing = open_error(&sim, |o| Options { create_if_missing: false, ..o }).to_string();
    assert!(missing.contains("there is no store in /data/store"), "{missing}");
    let missing = Db::open_read_only(PATH, inline(&sim.env())).unwrap_err().to_string();
    assert!(missing.contains("there is no store in /data/store"), "{missing}");
    sim.env().files.create_dir_all(PATH.as_ref()).unwrap();
    let missing = open_error(&sim, |o| Options { create_if_missing: false, ..o }).to_string();
    assert!(missing.contains("has no CURRENT"), "{missing}");
    Db::open(PATH, Options { error_if_exists: true, ..inline(&sim.env()) }).unwrap();
    let exists = open_error(&sim, |o| Options { error_if_exists: true, ..o });
    assert!(matches!(&exists, Error::Invalid(m) if m.contains("already")), "{exists}");
    Db::open(PATH, Options { create_if_missing: false, ..inline(&sim.env()) }).unwrap();
}

#[test]
fn directory_with_other_files_is_rejected_unchanged() {
    let sim = Sim::new(1);
    let files = sim.env().files;
    files.create_dir_all(PATH.as_ref()).unwrap();
    files.create("/data/store/thesis.txt".as_ref()).unwrap();
    let refused = open_error(&sim, |o| o).to_string();
    assert!(refused.contains("is not a store") && refused.contains("thesis.txt"), "{refused}");
    let names = files.read_dir(PATH.as_ref()).unwrap();
    let names: Vec<_> = names.iter().map(|e| &e.name[..]).filter(|n| *n != "LOCK").collect();
    assert_eq!(names, ["thesis.txt"]);
}

/// A well-formed `CURRENT` with the version number of a newer Umbel is rejected with an error that
/// names the version, and stays unchanged.
#[test]
fn newer_format_is_rejected() {
    let (sim, db) = new_store();
    drop(db);
    let path = "/data/store/CURRENT".as_ref();
    let file = sim.env().files.open(path, Access::ReadWrite).unwrap();
    let mut bytes = [0; 64];
    file.read_exact_at(&mut bytes, 0).unwrap();
    let (old, mut newer) = (bytes, bytes);
    newer[8..12].copy_from_slice(&2u32.to_le_bytes());
    let sum = checksum(u64::MAX, 0, &newer[..56]);
    newer[56..].copy_from_slice(&sum.to_le_bytes());
    file.write_all_at(&newer, 0).unwrap();
    let before = sim.env().files.read_dir(PATH.as_ref()).unwrap();
    for _ in 0..2 {
        let refused = open_error(&sim, |o| o);
        assert!(matches!(refused, Error::Invalid(_)));
        assert!(refused.to_string().contains("newer Umbel"), "{refused}");
        let refused = Db::open_read_only(PATH, inline(&sim.env())).unwrap_err();
        assert!(refused.to_string().contains("newer Umbel"), "{refused}");
    }
    assert_eq!(sim.env().files.read_dir(PATH.as_ref()).unwrap(), before);
    file.write_all_at(&old, 0).unwrap();
    again(&sim);
}

#[test]
fn checkpoint_requires_an_empty_directory() {
    let (sim, db) = new_store();
    let refused = db.checkpoint(PATH).unwrap_err();
    assert!(matches!(&refused, Error::Invalid(m) if m.contains("not empty")), "{refused}");
    sim.env().files.create_dir_all("/data/empty".as_ref()).unwrap();
    db.checkpoint("/data/empty").unwrap();
    db.checkpoint("/data/new/deep").unwrap();
    let refused = db.checkpoint("/data/empty").unwrap_err();
    assert!(matches!(&refused, Error::Invalid(m) if m.contains("not empty")), "{refused}");
    Db::open("/data/new/deep", inline(&sim.env())).unwrap();
}

/// Story: a checkpoint that ran out of descriptors left its lock file and tables, because their
/// removal began with a directory listing, which needs a descriptor. The path could not be used
/// again.
#[test]
fn checkpoint_without_descriptors_leaves_no_files() {
    let mut refused = 0;
    for call in 1..200 {
        let (sim, db) = new_store();
        let keyspace = db.keyspace("a", tiny()).unwrap();
        fill(&keyspace, 0..100, 1);
        keyspace.flush().unwrap();
        let fault = Fault { kind: FaultKind::Emfile, sticky: true };
        sim.fail_at(sim.calls() + call, fault);
        if db.checkpoint("/data/copy").is_ok() {
            // The call needs no descriptor, or comes after the checkpoint.
            continue;
        }
        refused += 1;
        sim.heal();
        let left: Vec<_> =
            sim.files().into_iter().filter(|path| path.starts_with("/data/copy")).collect();
        assert!(left.is_empty(), "call {call}: {left:?}");
        db.checkpoint("/data/copy").unwrap_or_else(|error| panic!("call {call}: {error}"));
    }
    assert!(refused > 10, "{refused}");
}
