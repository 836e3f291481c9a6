//! Regressions that the crash and fault campaigns found.

use umbel::{Db, Durability, Env, Keyspace, Options};
use umbel_sim::{CrashSide, Fault, FaultKind, Sim, Survival};

use super::fixture::{inline, tiny};

fn small(env: &Env) -> Options {
    Options { log_segment_bytes: 16 << 10, ..inline(env) }
}

fn synced_put(db: &Db, keyspace: &Keyspace, key: &str) {
    let mut batch = db.batch();
    batch.put(keyspace, key, "value");
    batch.commit(Durability::Synced).unwrap();
}

/// Returns the value of `key` in keyspace "k" of the store at `path`, after a power loss that keeps
/// only synced data.
fn after_power_loss(sim: &Sim, path: &str, key: &str) -> Option<Vec<u8>> {
    let image = sim.crash_image(&Survival::None, 1);
    let db = Db::open(path, small(&image.env())).unwrap();
    let keyspace = db.keyspace("k", tiny()).unwrap();
    keyspace.get(key).unwrap()
}

/// Story: a process died between creating the store's directory and syncing its parent. The next
/// process found the directory and never synced its name. A power loss removed the directory with
/// every synced write.
#[test]
fn directory_of_killed_creator_gets_durable_name() {
    for path in ["/store", "/data/store", "/one/two/store"] {
        for call in 1.. {
            let first = Sim::new(call);
            first.crash_at(call, CrashSide::After);
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

/// Story: of the new directories above a checkpoint only the last one's name was synced. So a
/// checkpoint two directories deep was lost after a power loss.
#[test]
fn checkpoint_in_new_directories_is_durable() {
    let sim = Sim::new(1);
    let db = Db::open("/data/store", small(&sim.env())).unwrap();
    let keyspace = db.keyspace("k", tiny()).unwrap();
    keyspace.put("a", "value").unwrap();
    db.checkpoint("/data/copies/today/copy").unwrap();
    let found = after_power_loss(&sim, "/data/copies/today/copy", "a");
    assert_eq!(found.as_deref(), Some(&b"value"[..]));
}

/// Story: a sync of the WAL failed. The reopened store read, from the page cache, data that had not
/// reached the disk. The sync of the reopened store wrote none of this data, but its manifest
/// recorded up to where it had read. After the next power loss the WAL ended before that offset,
/// and the store did not open.
#[test]
fn writes_of_failed_sync_are_rewritten_on_reopen() {
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
