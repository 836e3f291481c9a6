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
