//! Regressions in stores whose directory an operator moved, replaced or removed.

use std::path::{Path, PathBuf};

use umbel::{Db, Durability, Error, Options};
use umbel_sim::Sim;

use super::fixture::{inline, tiny};

/// Story: the directory of an open store was removed. Each synced write was still synced to a file
/// without a name and acknowledged. All these writes were lost when the handle closed.
#[test]
fn synced_write_into_removed_directory_fails() {
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

/// Story: a flush, or a sync, of a store whose directory was removed returned `Ok` if all writes
/// were durable already. The flush or sync had no work that would have checked the directory.
#[test]
fn idle_flush_or_sync_reports_removed_directory() {
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

/// Story: a checkpoint checked that its target was empty, and then opened it. In between an
/// operator put another store there. The checkpoint linked files into that store, and when a link
/// failed it removed every file of that store.
#[test]
fn checkpoint_leaves_store_that_replaced_its_target() {
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
        sim.schedule_before_call(sim.calls() + call, |sim| {
            if sim.identity("/copy").is_some() {
                sim.move_path("/copy", "/aside");
            }
            sim.move_path("/other", "/copy");
        });
        let done = db.checkpoint("/copy");
        sim.clear_scheduled();
        assert_eq!(sim.tree_of(directory), tree, "before call {call}: {done:?}");
    }
}

/// Story: an operator put another `CURRENT` into the directory of an open store. The file came
/// after the store's check and before the store renamed its own `CURRENT`. The operator's file was
/// lost, with the state that it names.
#[test]
fn foreign_current_file_is_never_overwritten() {
    for call in 1..80 {
        let sim = Sim::new(call);
        let open = |path| Db::open(path, inline(&sim.env())).unwrap();
        open("/other").close().unwrap();
        let db = open("/data");
        db.keyspace("k", tiny()).unwrap().put("key", "value").unwrap();
        let bytes = sim.tree("/other")[Path::new("CURRENT")].clone();
        sim.schedule_before_call(sim.calls() + call, |sim| {
            sim.remove_tree("/data/CURRENT");
            sim.move_path("/other/CURRENT", "/data/CURRENT");
        });
        let done = db.close();
        if sim.clear_scheduled() == 0 {
            let found = sim.tree("/data").remove(Path::new("CURRENT"));
            assert_eq!(found, Some(bytes), "before call {call}: {done:?}");
        }
    }
}

/// Story: an operator put another `CURRENT` into the directory of a store that was being opened.
/// The open had read the state already, and replaced the operator's file.
#[test]
fn open_does_not_overwrite_foreign_current_file() {
    for call in 1..120 {
        let sim = Sim::new(call);
        let open = |path| Db::open(path, inline(&sim.env()));
        open("/other").unwrap().close().unwrap();
        let db = open("/data").unwrap();
        db.keyspace("k", tiny()).unwrap().put("key", "value").unwrap();
        db.close().unwrap();
        let bytes = sim.tree("/other")[Path::new("CURRENT")].clone();
        sim.schedule_before_call(sim.calls() + call, |sim| {
            sim.remove_tree("/data/CURRENT");
            sim.move_path("/other/CURRENT", "/data/CURRENT");
        });
        let opened = open("/data");
        let is_over = sim.clear_scheduled() == 0;
        let found = sim.tree("/data").remove(Path::new("CURRENT"));
        match opened {
            // The operator's file was found, and is live.
            Ok(_) if is_over && found.as_ref() != Some(&bytes) => assert!(call < 12, "call {call}"),
            Ok(_) => {}
            Err(_) => assert_eq!(found, Some(bytes), "before call {call}"),
        }
    }
}

/// Story: an operator put another table under the name of a table of an open store. When a
/// compaction had made the store's table obsolete, the file of that name was removed.
#[test]
fn foreign_table_under_obsolete_name_is_kept() {
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
