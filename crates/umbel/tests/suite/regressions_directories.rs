//! Stories of what happened to stores whose directory an operator moved, replaced or removed.

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
