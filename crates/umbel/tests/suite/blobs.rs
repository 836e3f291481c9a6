//! Long values with files of their own: reads, the life of the files, and survival of crashes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use umbel::limits::{INLINE_VALUE_BYTES_MAX, VALUE_BYTES_MAX};
use umbel::{Db, Durability, Error, Keyspace, Options};
use umbel_env::Env;
use umbel_sim::{Fault, FaultKind, Sim, Survival};

use crate::suite::fixture::{PATH, all, existing, files, inline, key, tiny, unlogged};

/// A long value, identified by a letter.
fn long(letter: u8) -> Vec<u8> {
    (0..300u32).map(|at| letter ^ (at / 7) as u8).collect()
}

/// Options of a store in which values over 100 bytes get files of their own.
fn options(env: &Env) -> Options {
    Options { inline_value_bytes_max: 100, ..inline(env) }
}

fn open(sim: &Sim) -> Db {
    Db::open(PATH, options(&sim.env())).unwrap()
}

fn new_store() -> (Sim, Db, Keyspace) {
    let sim = Sim::new(1);
    let db = open(&sim);
    let keyspace = db.keyspace("a", tiny()).unwrap();
    (sim, db, keyspace)
}

fn blobs(sim: &Sim) -> usize {
    files(&sim.env(), ".blob")
}

fn blob_paths(sim: &Sim) -> Vec<PathBuf> {
    let mut paths = sim.files();
    paths.retain(|path| path.extension().is_some_and(|kind| kind == "blob"));
    paths
}

/// Reads all entries by every kind of read, and compares them with `expected`.
fn assert_holds(keyspace: &Keyspace, expected: &[(Vec<u8>, Vec<u8>)]) {
    assert!(all(keyspace) == expected);
    let backward: Vec<_> = keyspace.iter().rev().map(|entry| entry.unwrap()).collect();
    assert!(backward.iter().rev().eq(expected));
    let keys: Vec<_> = expected.iter().map(|(key, _)| key.clone()).collect();
    let together = keyspace.multi_get(&keys).unwrap();
    let mut cursor = keyspace.cursor::<&[u8]>(..).unwrap();
    cursor.seek_to_first().unwrap();
    for ((key, value), several) in expected.iter().zip(together) {
        assert!(keyspace.get(key).unwrap().as_ref() == Some(value));
        assert!(several.as_ref() == Some(value));
        assert_eq!(keyspace.get_with(key, <[u8]>::len).unwrap(), Some(value.len()));
        let mut into = Vec::new();
        assert!(keyspace.get_into(key, &mut into).unwrap() && into == *value);
        assert!(keyspace.contains(key).unwrap());
        assert!(cursor.key() == key && cursor.value().unwrap() == &value[..]);
        assert!(cursor.value().unwrap() == &value[..], "twice");
        cursor.next().unwrap();
    }
    assert!(!cursor.valid());
}

#[test]
fn long_and_short_values_read_alike_everywhere() {
    let (sim, db, keyspace) = new_store();
    let mut expected = Vec::new();
    for index in 0..40 {
        let value = if index % 3 == 0 { long(index as u8) } else { vec![index as u8; 90] };
        keyspace.put(key(index), &value).unwrap();
        expected.push((key(index), value));
    }
    assert_holds(&keyspace, &expected);
    keyspace.flush().unwrap();
    assert_holds(&keyspace, &expected);
    keyspace.compact(None, None).unwrap();
    assert_holds(&keyspace, &expected);
    let stats = db.stats();
    assert_eq!((stats.blobs.files, stats.keyspaces[0].blobs, blobs(&sim)), (14, 14, 14));
    assert_eq!(stats.blobs.bytes, 14 * (64 + 8 + 300));
    assert!(stats.write_amplification > 1.0);
    assert!(stats.to_string().contains("long values: 14 files"), "{stats}");
    keyspace.put(key(3), long(200)).unwrap();
    expected[3].1 = long(200);
    drop((keyspace, db));
    let db = open(&sim);
    assert_holds(&existing(&db, "a"), &expected);
    let report = db.verify().unwrap();
    assert_eq!((report.blobs, report.damage.len()), (15, 0));
}

#[test]
fn value_of_limit_length_is_inline_and_longer_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let db = Db::open(folder.path().join("store"), Options::default()).unwrap();
    let keyspace = db.keyspace("a", None).unwrap();
    let value = vec![7; INLINE_VALUE_BYTES_MAX + 1];
    keyspace.put("inline", &value[1..]).unwrap();
    assert_eq!(db.stats().blobs.files, 0);
    let before = db.stats().log_bytes_written;
    keyspace.put("long", &value).unwrap();
    let stats = db.stats();
    assert_eq!(stats.blobs.files, 1);
    assert!(stats.log_bytes_written - before < 200);
    assert!(stats.keyspaces[0].memtable_bytes < 4 << 20);
    assert!(keyspace.get("long").unwrap() == Some(value.clone()));
    assert!(keyspace.get("inline").unwrap().is_some_and(|found| found == value[1..]));
    let over = vec![0; VALUE_BYTES_MAX + 1];
    assert!(matches!(keyspace.put("over", &over), Err(Error::Invalid(_))));
    let mut batch = db.batch();
    batch.put(&keyspace, "over", &over);
    assert!(matches!(batch.commit(None), Err(Error::Invalid(_))));
    assert_eq!(db.stats().blobs.bytes_written, stats.blobs.bytes_written);
    db.close().unwrap();
}

#[test]
fn option_is_validated_and_applies_to_later_writes() {
    let sim = Sim::new(1);
    for wrong in [0, 63, VALUE_BYTES_MAX + 1] {
        let options = Options { inline_value_bytes_max: wrong, ..options(&sim.env()) };
        let message = Db::open(PATH, options).unwrap_err().to_string();
        assert!(message.contains("inline_value_bytes_max"), "{message}");
    }
    let db = open(&sim);
    db.keyspace("a", None).unwrap().put("k", long(1)).unwrap();
    db.close().unwrap();
    let db = Db::open(PATH, inline(&sim.env())).unwrap();
    let keyspace = existing(&db, "a");
    keyspace.put("l", long(2)).unwrap();
    assert_eq!(blobs(&sim), 1);
    assert_holds(&keyspace, &[(b"k".to_vec(), long(1)), (b"l".to_vec(), long(2))]);
}

#[test]
fn batch_stores_all_long_values_or_none() {
    let (sim, db, keyspace) = new_store();
    let other = db.keyspace("b", unlogged()).unwrap();
    let mut batch = db.batch();
    batch.put(&keyspace, "one", long(1));
    batch.put(&other, "two", long(2));
    batch.put(&keyspace, "short", "s");
    batch.put(&keyspace, "one", long(3));
    batch.expect_absent(&keyspace, "short");
    assert_eq!(batch.bytes(), 3 + 3 + 5 + 3 + 3 * 300 + 1);
    batch.try_commit(Durability::Buffered).unwrap();
    assert_eq!(blobs(&sim), 3);
    assert!(keyspace.get("one").unwrap() == Some(long(3)));
    assert!(other.get("two").unwrap() == Some(long(2)));
    // Rejected: no file is left, and the batch can be committed again.
    batch.put(&keyspace, "four", long(4));
    batch.expect_absent(&keyspace, "one");
    assert!(matches!(batch.try_commit(None), Err(Error::Conflict(_))));
    assert_eq!((blobs(&sim), keyspace.get("four").unwrap()), (3, None));
    batch.clear_conditions();
    batch.try_commit(Durability::Synced).unwrap();
    assert!(keyspace.get("four").unwrap() == Some(long(4)));
    assert_eq!(blobs(&sim), 4);
    let mut batch = db.batch();
    batch.put(&keyspace, "one", "short again");
    batch.expect_value(&keyspace, "one", long(3));
    batch.expect_value(&keyspace, "four", long(4));
    batch.commit(None).unwrap();
    let mut batch = db.batch();
    batch.put(&keyspace, "one", "x");
    batch.expect_value(&keyspace, "four", long(5));
    assert!(matches!(batch.commit(None), Err(Error::Conflict(_))));
}

#[test]
fn files_of_invisible_values_are_removed() {
    let (sim, db, _) = new_store();
    // Compacted only on request.
    let options = umbel::KeyspaceOptions { level0_tables: 4, ..tiny() };
    let keyspace = db.keyspace("a", options).unwrap();
    (0..4).for_each(|index| keyspace.put(key(index), long(index as u8)).unwrap());
    // Overwritten in the memtable: the flush removes it.
    keyspace.put(key(0), long(9)).unwrap();
    assert_eq!(blobs(&sim), 5);
    keyspace.flush().unwrap();
    assert_eq!(blobs(&sim), 4);
    // Overwritten, deleted, and deleted by a range, in tables.
    keyspace.put(key(0), "short").unwrap();
    keyspace.delete(key(1)).unwrap();
    keyspace.delete_range(key(2), key(3)).unwrap();
    keyspace.flush().unwrap();
    assert_eq!(blobs(&sim), 4);
    keyspace.compact(None, None).unwrap();
    assert_eq!(blobs(&sim), 1);
    let expected = [(key(0), b"short".to_vec()), (key(3), long(3))];
    assert_holds(&keyspace, &expected);
    drop((keyspace, db));
    assert_holds(&existing(&open(&sim), "a"), &expected);
}

#[test]
fn snapshots_and_cursors_pin_their_files() {
    let (sim, db, keyspace) = new_store();
    keyspace.put("k", long(1)).unwrap();
    let snapshot = db.snapshot();
    let mut cursor = keyspace.cursor::<&[u8]>(..).unwrap();
    let mut in_tables = keyspace.iter();
    cursor.seek_to_first().unwrap();
    keyspace.put("k", long(2)).unwrap();
    keyspace.compact(None, None).unwrap();
    assert_eq!(blobs(&sim), 2);
    assert!(keyspace.get_at(&snapshot, "k").unwrap() == Some(long(1)));
    let multi = keyspace.multi_get_at(&snapshot, &["k"]).unwrap();
    assert!(multi[0] == Some(long(1)));
    drop(snapshot);
    keyspace.compact(None, None).unwrap();
    // No entry points at it any more, except one in the cursor's memtable.
    assert_eq!((blobs(&sim), db.stats().blobs.held_files), (2, 1));
    assert!(cursor.value().unwrap() == long(1));
    assert!(in_tables.next().unwrap().unwrap().1 == long(1));
    drop((cursor, in_tables));
    assert_eq!((blobs(&sim), db.stats().blobs.held_files), (1, 0));
    assert!(keyspace.get("k").unwrap() == Some(long(2)));
}

#[test]
fn files_are_removed_with_their_keyspace() {
    let (sim, db, keyspace) = new_store();
    keyspace.put("table", long(1)).unwrap();
    keyspace.flush().unwrap();
    keyspace.put("memtable", long(2)).unwrap();
    let mut held = keyspace.cursor::<&[u8]>(..).unwrap();
    held.seek_to_first().unwrap();
    db.drop_keyspace("a").unwrap();
    assert!(held.value().unwrap() == long(2));
    assert_eq!(blobs(&sim), 2);
    drop((held, keyspace));
    assert_eq!(blobs(&sim), 0);
}

#[test]
fn overwriting_one_key_does_not_fill_the_disk() {
    let (sim, db, _) = new_store();
    let keyspace = db.keyspace("roomy", None).unwrap();
    let sized = db.keyspace("sized", umbel::KeyspaceOptions { memtable_bytes: 4096, ..tiny() });
    let sized = sized.unwrap();
    for index in 0..500u32 {
        sized.put("k", long(index as u8)).unwrap();
    }
    assert!(blobs(&sim) < 120, "{} files", blobs(&sim));
    keyspace.put("k", long(1)).unwrap();
    assert!(sized.get("k").unwrap() == Some(long(499u32 as u8)));
}

#[test]
fn key_scans_read_no_blob_file() {
    let (sim, db, keyspace) = new_store();
    (0..20).for_each(|index| keyspace.put(key(index), long(index as u8)).unwrap());
    keyspace.compact(None, None).unwrap();
    let reads = || sim.sites().get("read *.blob").copied().unwrap_or(0);
    let before = reads();
    let mut cursor = keyspace.cursor::<&[u8]>(..).unwrap();
    cursor.seek_to_first().unwrap();
    let mut seen = 0;
    while cursor.valid() {
        seen += cursor.key().len();
        cursor.next().unwrap();
    }
    cursor.seek_to_last().unwrap();
    cursor.prev().unwrap();
    assert!(seen > 0 && keyspace.contains(key(3)).unwrap() && keyspace.may_contain(key(3)));
    let mut batch = db.batch();
    batch.put(&keyspace, "x", "y");
    batch.expect_value(&keyspace, key(1), "of another length");
    assert!(matches!(batch.commit(None), Err(Error::Conflict(_))));
    assert_eq!(reads(), before);
    cursor.value().unwrap();
    assert!(reads() > before);
}

#[test]
fn reads_and_verify_name_the_damaged_file() {
    let (sim, db, keyspace) = new_store();
    keyspace.put("a", long(1)).unwrap();
    keyspace.put("b", long(2)).unwrap();
    keyspace.flush().unwrap();
    keyspace.put("c", long(3)).unwrap();
    drop((keyspace, db));
    let paths = blob_paths(&sim);
    type Damage<'a> = &'a dyn Fn(&Sim, &Path);
    let damages: [(&str, Damage<'_>); 4] = [
        ("flipped", &|sim, path| sim.flip(path, 200, 1)),
        ("cut", &|sim, path| sim.truncate(path, 100)),
        ("missing", &|sim, path| sim.remove(path)),
        ("swapped", &|sim, path| sim.swap_files(path, &paths[(path == paths[0]) as usize])),
    ];
    for (what, damage) in damages {
        for (path, name) in paths.iter().zip(["a", "b", "c"]) {
            let sim = sim.clone_disk();
            damage(&sim, path);
            let db = open(&sim);
            let keyspace = existing(&db, "a");
            let check_error = |error: Error| {
                // A scan meets the other one of two swapped files.
                let expected = |file: &PathBuf| file == path || what == "swapped";
                let matches = matches!(&error, Error::Corruption { file, .. } if expected(file));
                assert!(matches, "{what} {name}: {error}");
            };
            check_error(keyspace.get(name).unwrap_err());
            check_error(keyspace.get_with(name, |_| ()).unwrap_err());
            check_error(keyspace.multi_get(&[name]).unwrap_err());
            check_error(keyspace.iter().find_map(Result::err).expect("the walk meets it"));
            let mut cursor = keyspace.cursor::<&[u8]>(..).unwrap();
            cursor.seek(name).unwrap();
            assert_eq!(cursor.key(), name.as_bytes());
            if what != "swapped" {
                check_error(cursor.value().unwrap_err());
                check_error(cursor.value().unwrap_err());
                cursor.next().unwrap();
            }
            let report = db.verify().unwrap();
            let file = path.display().to_string();
            assert!(report.damage.iter().any(|line| line.contains(&file)), "{what} {report:?}");
        }
    }
}

#[test]
fn checkpoints_contain_files_and_outlive_the_store() {
    let (sim, db, keyspace) = new_store();
    keyspace.put("k", long(1)).unwrap();
    db.checkpoint("/data/copy").unwrap();
    keyspace.delete("k").unwrap();
    keyspace.compact(None, None).unwrap();
    assert_eq!(blobs(&sim), 0);
    let copy = Db::open("/data/copy", options(&sim.env())).unwrap();
    assert!(existing(&copy, "a").get("k").unwrap() == Some(long(1)));
    assert_eq!(copy.verify().unwrap().damage.len(), 0);
}

#[test]
fn read_only_store_reads_blobs_and_removes_nothing() {
    let (sim, db, keyspace) = new_store();
    keyspace.put("table", long(1)).unwrap();
    keyspace.flush().unwrap();
    keyspace.put("log", long(2)).unwrap();
    sim.crash_now();
    drop((keyspace, db));
    let sim = sim.kill_image();
    let left = sim.env().files.create(&Path::new(PATH).join("000900.blob")).unwrap();
    drop(left);
    let db = Db::open_read_only(PATH, options(&sim.env())).unwrap();
    let expected = [(b"log".to_vec(), long(2)), (b"table".to_vec(), long(1))];
    assert_holds(&existing(&db, "a"), &expected);
    assert!(matches!(existing(&db, "a").put("x", long(1)), Err(Error::Invalid(_))));
    drop(db);
    assert_eq!(blobs(&sim), 3);
    // An open for writing removes orphans, and nothing else.
    assert_holds(&existing(&open(&sim), "a"), &expected);
    assert_eq!(blobs(&sim), 2);
}

#[test]
fn power_loss_leaves_no_dangling_pointer() {
    let (sim, _db, keyspace) = new_store();
    keyspace.put("a", long(1)).unwrap();
    keyspace.put("b", "short").unwrap();
    keyspace.put("c", long(2)).unwrap();
    for seed in 0..40 {
        let image = sim.crash_image(&Survival::any(seed, sim.pending_units()), seed);
        let db = open(&image);
        let Some(keyspace) = db.existing_keyspace("a").unwrap() else { continue };
        let found = all(&keyspace);
        let expected = [
            (b"a".to_vec(), long(1)),
            (b"b".to_vec(), b"short".to_vec()),
            (b"c".to_vec(), long(2)),
        ];
        assert!(expected.starts_with(&found), "{seed}");
        assert_eq!(blobs(&image), found.iter().filter(|(_, value)| value.len() > 100).count());
        assert_eq!(db.verify().unwrap().damage, [] as [String; 0]);
    }
}

#[test]
fn unlogged_keyspace_keeps_flushed_values_after_crash() {
    let sim = Sim::new(1);
    let db = open(&sim);
    let keyspace = db.keyspace("n", unlogged()).unwrap();
    keyspace.put("flushed", long(1)).unwrap();
    keyspace.flush().unwrap();
    keyspace.put("lost", long(2)).unwrap();
    let image = sim.crash_image(&Survival::None, 1);
    let db = open(&image);
    assert_holds(&existing(&db, "n"), &[(b"flushed".to_vec(), long(1))]);
    assert_eq!(blobs(&image), 1);
}

#[test]
fn full_disk_rejects_only_the_value() {
    let (sim, db, keyspace) = new_store();
    keyspace.put("before", long(1)).unwrap();
    let used: u64 = sim.files().iter().map(|path| sim.read(path).len() as u64).sum();
    sim.set_capacity(used + (64 << 10));
    let huge = vec![5; 1 << 20];
    assert!(matches!(keyspace.put("huge", &huge), Err(Error::DiskFull { .. })));
    let mut batch = db.batch();
    batch.put(&keyspace, "fits", long(2));
    batch.put(&keyspace, "huge", &huge);
    assert!(matches!(batch.try_commit(None), Err(Error::DiskFull { .. })));
    assert_eq!(blobs(&sim), 1);
    sim.clear_capacity();
    batch.try_commit(Durability::Synced).unwrap();
    keyspace.put("after", long(3)).unwrap();
    let keys: BTreeSet<Vec<u8>> = all(&keyspace).into_iter().map(|(key, _)| key).collect();
    assert_eq!(keys.len(), 4);
    assert!(keyspace.get("huge").unwrap() == Some(huge));
}

#[test]
fn failed_blob_file_rejects_the_write_without_trace() {
    let fails = |site: &str, kind| {
        let (sim, db, keyspace) = new_store();
        keyspace.put("before", long(1)).unwrap();
        sim.fail_site(site, 1, Fault { kind, sticky: false });
        let error = keyspace.put("k", long(2)).unwrap_err();
        assert!(keyspace.get("k").unwrap().is_none(), "{site}");
        assert!(keyspace.get("before").unwrap() == Some(long(1)));
        let goes_on = keyspace.put("after", long(3)).is_ok();
        let there = blobs(&sim);
        drop((keyspace, db));
        let sim = sim.kill_image();
        let keyspace = existing(&open(&sim), "a");
        assert!(keyspace.get("before").unwrap() == Some(long(1)));
        assert!(keyspace.get("k").unwrap().is_none());
        assert_eq!(blobs(&sim), 1 + usize::from(goes_on), "{site}: {error}");
        (goes_on, there)
    };
    for site in ["create *.blob", "preallocate *.blob", "write *.blob", "sync *.blob"] {
        assert_eq!(fails(site, FaultKind::Eio), (true, 2), "{site}");
        assert_eq!(fails(site, FaultKind::Enospc), (true, 2), "{site}");
    }
    // Names of other files may have been lost with it.
    assert_eq!(fails("sync_dir directory", FaultKind::Eio), (false, 2));
}

#[test]
fn cursor_reads_no_files_after_close() {
    let (_sim, db, keyspace) = new_store();
    keyspace.put("k", long(1)).unwrap();
    keyspace.flush().unwrap();
    let mut cursor = keyspace.cursor::<&[u8]>(..).unwrap();
    cursor.seek_to_first().unwrap();
    db.close().unwrap();
    assert!(matches!(cursor.value(), Err(Error::Closed)));
    assert!(matches!(keyspace.put("k", long(1)), Err(Error::Closed)));
}
