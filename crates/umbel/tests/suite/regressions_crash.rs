//! Stories of what the crash and fault campaigns found, each with the bug it tells of.

use umbel::{Db, Durability, Env, Keyspace, Options};
use umbel_sim::{Fault, FaultKind, Sim, Survival, When};

use super::stage::{inline, tiny};

fn small(env: &Env) -> Options {
    Options { log_segment_bytes: 16 << 10, ..inline(env) }
}

fn synced_put(db: &Db, keyspace: &Keyspace, key: &str) {
    let mut batch = db.batch();
    batch.put(keyspace, key, "value");
    batch.commit(Durability::Synced).unwrap();
}

/// What `key` has in keyspace "k" of the store at `path`, after a power loss that keeps nothing
/// that was not synced.
fn after_power_loss(sim: &Sim, path: &str, key: &str) -> Option<Vec<u8>> {
    let image = sim.crash_image(&Survival::None, 1);
    let db = Db::open(path, small(&image.env())).unwrap();
    let keyspace = db.keyspace("k", tiny()).unwrap();
    keyspace.get(key).unwrap()
}

/// A process died between creating the store's folder and syncing the folder above. The next one
/// found the folder and never made its name durable: a power loss took it with every synced write.
#[test]
fn a_folder_whose_creator_died_gets_a_durable_name() {
    for path in ["/store", "/data/store", "/one/two/store"] {
        for call in 1.. {
            let first = Sim::new(call);
            first.crash_at(call, When::After);
            if Db::open(path, small(&first.env())).is_ok() && !first.is_dead() {
                break;
            }
            let sim = first.kill_image();
            let db = Db::open(path, small(&sim.env())).unwrap();
            let keyspace = db.keyspace("k", tiny()).unwrap();
            synced_put(&db, &keyspace, "a");
            let found = after_power_loss(&sim, path, "a");
            assert_eq!(found.as_deref(), Some(&b"value"[..]), "{path}, killed after call {call}");
        }
    }
}

/// Of the folders above a checkpoint only the last name was synced; a copy two folders deep was an
/// empty store after a power loss.
#[test]
fn a_checkpoint_in_new_folders_survives() {
    let sim = Sim::new(1);
    let db = Db::open("/data/store", small(&sim.env())).unwrap();
    let keyspace = db.keyspace("k", tiny()).unwrap();
    keyspace.put("a", "value").unwrap();
    db.checkpoint("/data/copies/today/copy").unwrap();
    let found = after_power_loss(&sim, "/data/copies/today/copy", "a");
    assert_eq!(found.as_deref(), Some(&b"value"[..]));
}

/// A sync of the log failed. The store was opened again and read, from the page cache, what had not
/// reached the disk; its own sync wrote nothing of it, and it said "read up to here". After the
/// next power loss the log ended before that, and the folder did not open.
#[test]
fn what_a_failed_sync_gave_up_is_written_again() {
    for nth in 1..6 {
        let sim = Sim::new(nth);
        let db = Db::open("/data/store", small(&sim.env())).unwrap();
        let keyspace = db.keyspace("k", tiny()).unwrap();
        sim.fail_site("sync *.log", nth, Fault { kind: FaultKind::Eio, sticky: false });
        let mut failed = None;
        for number in 0..8 {
            keyspace.put(format!("buffered {number}"), "value").unwrap_or_default();
            let mut batch = db.batch();
            batch.put(&keyspace, format!("synced {number}"), "value");
            if batch.commit(Durability::Synced).is_err() {
                failed = Some(number);
                break;
            }
        }
        let failed = failed.expect("a sync fails");
        drop((keyspace, db));
        let db = Db::open("/data/store", small(&sim.env())).unwrap();
        let keyspace = db.keyspace("k", tiny()).unwrap();
        synced_put(&db, &keyspace, "after");
        for number in 0..failed {
            let key = format!("synced {number}");
            let found = after_power_loss(&sim, "/data/store", &key);
            assert_eq!(found.as_deref(), Some(&b"value"[..]), "{key} of {failed}");
        }
        let found = after_power_loss(&sim, "/data/store", "after");
        assert_eq!(found.as_deref(), Some(&b"value"[..]), "the write after the failed sync");
    }
}
