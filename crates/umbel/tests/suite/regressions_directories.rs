//! Stories of what happened to stores whose directory an operator moved, replaced or removed.

use std::path::{Path, PathBuf};

use umbel::{Db, Durability, Error, Options};
use umbel_sim::Sim;

use super::stage::{inline, tiny};

/// The directory of an open store was removed. Each synced write went on to be synced to a file
/// without a name and was acknowledged: all of them were gone with the handle.
#[test]
fn a_synced_write_into_a_removed_directory_is_refused() {
    for by_sync in [false, true] {
        let sim = Sim::new(1);
        let options = Options { log_segment_bytes: 16 << 10, ..inline(&sim.env()) };
        let db = Db::open("/data/store", options).unwrap();
        let keyspace = db.keyspace("k", tiny()).unwrap();
        let write = || {
            let mut batch = db.batch();
            batch.put(&keyspace, "key", "value");
            match by_sync {
                false => batch.commit(Durability::Synced),
                true => batch.commit(Durability::Buffered).and_then(|()| db.sync()),
            }
        };
        write().unwrap();
        sim.move_path("/data/store", "/data/moved");
        write().expect("a directory that was renamed is still there");
        sim.remove_tree("/data/moved");
        let error = write().unwrap_err();
        assert!(matches!(error, Error::Replaced { .. }), "{error}");
        assert!(error.to_string().contains("the directory was removed"), "{error}");
        assert!(matches!(write(), Err(Error::ReadOnly(_))));
    }
}

/// A flush, or a sync, of a store whose directory was removed answered `Ok` where everything was
/// durable already, because there was nothing to do that would have looked at the directory.
#[test]
fn a_flush_or_sync_with_nothing_to_do_tells_that_the_directory_was_removed() {
    for by_sync in [false, true] {
        let sim = Sim::new(1);
        let db = Db::open("/data/store", inline(&sim.env())).unwrap();
        db.keyspace("k", tiny()).unwrap().put("key", "value").unwrap();
        let call = || if by_sync { db.sync() } else { db.flush() };
        call().unwrap();
        call().expect("nothing to do");
        sim.remove_tree("/data/store");
        let error = call().unwrap_err();
        assert!(error.to_string().contains("the directory was removed"), "{error}");
        assert!(matches!(call(), Err(Error::ReadOnly(_))));
    }
}

/// A checkpoint looked whether its target was empty, and then opened it. An operator put another
/// store there in between: files were linked into that store, and when that failed the checkpoint
/// removed every file of it.
#[test]
fn a_checkpoint_leaves_a_store_alone_that_takes_the_place_of_its_target() {
    for call in 1..60 {
        let sim = Sim::new(call);
        let open = |path| Db::open(path, inline(&sim.env())).unwrap();
        let other = open("/other");
        other.keyspace("k", tiny()).unwrap().put("key", "other").unwrap();
        other.close().unwrap();
        let tree = sim.tree("/other");
        let (db, directory) = (open("/data"), sim.identity("/other").unwrap());
        db.keyspace("k", tiny()).unwrap().put("key", "value").unwrap();
        sim.make_dir("/copy");
        sim.before_call(sim.calls() + call, |sim| {
            if sim.identity("/copy").is_some() {
                sim.move_path("/copy", "/aside");
            }
            sim.move_path("/other", "/copy");
        });
        let done = db.checkpoint("/copy");
        sim.forget_moves();
        assert_eq!(sim.tree_of(directory), tree, "before call {call}: {done:?}");
    }
}

/// An operator put another `CURRENT` into the directory of an open store, after the store had
/// looked at it and before it renamed its own over it: that of the operator was lost, and what it
/// names with it.
#[test]
fn another_current_is_never_written_over() {
    for call in 1..80 {
        let sim = Sim::new(call);
        let open = |path| Db::open(path, inline(&sim.env())).unwrap();
        open("/other").close().unwrap();
        let db = open("/data");
        db.keyspace("k", tiny()).unwrap().put("key", "value").unwrap();
        let bytes = sim.tree("/other")[Path::new("CURRENT")].clone();
        sim.before_call(sim.calls() + call, |sim| {
            sim.remove_tree("/data/CURRENT");
            sim.move_path("/other/CURRENT", "/data/CURRENT");
        });
        let done = db.close();
        if sim.forget_moves() == 0 {
            let found = sim.tree("/data").remove(Path::new("CURRENT"));
            assert_eq!(found, Some(bytes), "before call {call}: {done:?}");
        }
    }
}

/// The same while a store was being opened: the state had been read, and the new manifest counted.
#[test]
fn another_current_is_not_written_over_by_an_open() {
    for call in 1..120 {
        let sim = Sim::new(call);
        let open = |path| Db::open(path, inline(&sim.env()));
        open("/other").unwrap().close().unwrap();
        let db = open("/data").unwrap();
        db.keyspace("k", tiny()).unwrap().put("key", "value").unwrap();
        db.close().unwrap();
        let bytes = sim.tree("/other")[Path::new("CURRENT")].clone();
        sim.before_call(sim.calls() + call, |sim| {
            sim.remove_tree("/data/CURRENT");
            sim.move_path("/other/CURRENT", "/data/CURRENT");
        });
        let opened = open("/data");
        let is_over = sim.forget_moves() == 0;
        let found = sim.tree("/data").remove(Path::new("CURRENT"));
        match opened {
            // The one that the operator put there was found, and counted.
            Ok(_) if is_over && found.as_ref() != Some(&bytes) => assert!(call < 12, "call {call}"),
            Ok(_) => {}
            Err(_) => assert_eq!(found, Some(bytes), "before call {call}"),
        }
    }
}

/// An operator put another table under the name of one of an open store. When a compaction had
/// made that one obsolete, the file that had its name was removed.
#[test]
fn another_table_under_the_name_of_an_obsolete_one_stays() {
    let sim = Sim::new(1);
    let db = Db::open("/data", inline(&sim.env())).unwrap();
    let keyspace = db.keyspace("k", tiny()).unwrap();
    for key in ["a", "b"] {
        keyspace.put(key, "value").unwrap();
        keyspace.flush().unwrap();
    }
    let is_table = |name: &&PathBuf| name.extension().is_some_and(|found| found == "table");
    let tables: Vec<PathBuf> = sim.tree("/data").keys().filter(is_table).cloned().collect();
    assert!(tables.len() >= 2, "{tables:?}");
    let path = Path::new("/data").join(&tables[0]);
    sim.copy_tree("/data", "/copy");
    sim.remove_tree(&path);
    sim.move_path(Path::new("/copy").join(&tables[1]), &path);
    let bytes = sim.tree("/data").remove(&tables[0]);
    keyspace.compact(None, None).unwrap();
    assert_eq!(keyspace.get("a").unwrap().as_deref(), Some(&b"value"[..]));
    drop(keyspace);
    db.close().unwrap();
    let left = sim.tree("/data");
    assert!(!left.contains_key(&tables[1]), "the store's own table is removed");
    assert_eq!(left.get(&tables[0]), bytes.as_ref());
}
