//! Golden files: stores written once stay readable, and the same writes give the same bytes.
//!
//! `tests/golden/v2` holds three stores, and `v1` the stores of the version before, whose manifests
//! have no instance id. `killed` is a store of a killed process: open and sealed WAL segments,
//! tables of several levels, a manifest that grew. `closed` is the same store after a clean close.
//! `compressed` has tables in every compression; it is only read, because another release of a
//! compressor can write other bytes.
//!
//! An intended change of format raises the version in the format's page and adds a directory beside
//! `v2`. `UMBEL_GOLDEN=write cargo test -p umbel golden` fills the new directory. The change keeps
//! the stores in old directories readable, or CHANGELOG.md says that they are not.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use umbel::{Compression, CompressionPlan, Db, Durability, Env, KeyspaceOptions, Options};
use umbel_sim::Sim;

use crate::suite::fixture::{PATH, all, existing, fill, inline, key, tiny, unlogged, value};

type Files = BTreeMap<String, Vec<u8>>;

/// The versions whose stores are kept; `UMBEL_GOLDEN=write` writes the last one.
const VERSIONS: [&str; 2] = ["v1", "v2"];

fn folder(version: &str, store: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(version).join(store)
}

/// Returns every file in a directory that has content, so neither the lock file nor the reserved
/// space.
fn files(env: &Env, folder: &Path) -> Files {
    let mut files = Files::new();
    for entry in env.files.read_dir(folder).unwrap() {
        if entry.is_directory || ["LOCK", "RESERVED"].contains(&&*entry.name) {
            continue;
        }
        let file = env.files.open(&folder.join(&entry.name), umbel_env::Access::Read).unwrap();
        let mut bytes = vec![0; entry.len as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        files.insert(entry.name, bytes);
    }
    files
}

fn place(env: &Env, folder: &Path, files: &Files) {
    env.files.create_dir_all(folder).unwrap();
    for (name, bytes) in files {
        env.files.create(&folder.join(name)).unwrap().write_all_at(bytes, 0).unwrap();
    }
}

fn options(sim: &Sim) -> Options {
    Options { log_segment_bytes: 16 << 10, ..inline(&sim.env()) }
}

/// A store that uses every feature.
fn written(sim: &Sim) -> Db {
    let db = Db::open(PATH, options(sim)).unwrap();
    let plain = db.keyspace("plain", tiny()).unwrap();
    let bare = KeyspaceOptions { bloom_bits: 0, ..tiny() };
    let unfiltered = db.keyspace("unfiltered", bare).unwrap();
    let unlogged = db.keyspace("unlogged", unlogged()).unwrap();
    fill(&plain, 0..300, 1);
    fill(&plain, 100..200, 2);
    fill(&unfiltered, 0..50, 1);
    for index in (0..300).step_by(7) {
        plain.delete(key(index)).unwrap();
    }
    plain.delete_range(key(250), key(260)).unwrap();
    let mut batch = db.batch();
    batch.put(&unlogged, b"where", b"here");
    batch.set_marker(&unlogged, b"marked");
    batch.commit(Durability::Buffered).unwrap();
    unlogged.flush().unwrap();
    plain.flush().unwrap();
    // Entries that stay in the WAL.
    let mut batch = db.batch();
    batch.put(&plain, b"", b"the empty key");
    batch.put(&unfiltered, key(1), b"");
    batch.delete(&unfiltered, key(2));
    batch.delete_range(&unfiltered, key(10), key(20));
    batch.commit(Durability::Synced).unwrap();
    plain.put(b"last", vec![b'l'; 3000]).unwrap();
    db
}

/// Checks the expected content of [`written`].
fn check(db: &Db) {
    let mut expected = BTreeMap::new();
    for index in 0..300 {
        let round = if (100..200).contains(&index) { 2 } else { 1 };
        expected.insert(key(index), value(index, round));
    }
    expected.retain(|key, _| {
        let index: usize = std::str::from_utf8(&key[4..]).unwrap().parse().unwrap();
        !index.is_multiple_of(7) && !(250..260).contains(&index)
    });
    expected.insert(Vec::new(), b"the empty key".to_vec());
    expected.insert(b"last".to_vec(), vec![b'l'; 3000]);
    let plain = existing(db, "plain");
    assert_eq!(all(&plain), expected.into_iter().collect::<Vec<_>>());
    for index in 0..300 {
        let found = plain.get(key(index)).unwrap();
        let there = !index.is_multiple_of(7) && !(250..260).contains(&index);
        assert_eq!(found.is_some(), there, "key {index}");
    }
    let mut expected: BTreeMap<_, _> = (0..50).map(|index| (key(index), value(index, 1))).collect();
    expected.retain(|name, _| *name != key(2) && !(key(10)..key(20)).contains(name));
    expected.insert(key(1), Vec::new());
    assert_eq!(all(&existing(db, "unfiltered")), expected.into_iter().collect::<Vec<_>>());
    let unlogged = existing(db, "unlogged");
    assert_eq!(unlogged.get(b"where").unwrap().unwrap(), b"here");
    assert_eq!(unlogged.marker().unwrap(), b"marked");
}

/// A store with tables in every compression.
fn compressed(sim: &Sim) -> Db {
    let db = Db::open(PATH, options(sim)).unwrap();
    for (name, compression) in compressions() {
        let compression = CompressionPlan::all(compression);
        let keyspace = db.keyspace(name, KeyspaceOptions { compression, ..tiny() }).unwrap();
        fill(&keyspace, 0..200, 1);
        keyspace.flush().unwrap();
    }
    db
}

fn compressions() -> [(&'static str, Compression); 3] {
    [("none", Compression::None), ("lz4", Compression::Lz4), ("zstd", Compression::Zstd)]
}

/// The files of the three stores as this release writes them.
fn as_written_now() -> BTreeMap<&'static str, Files> {
    let path = Path::new(PATH);
    let sim = Sim::new(2026);
    let db = written(&sim);
    let killed = files(&sim.env(), path);
    db.close().unwrap();
    let closed = files(&sim.env(), path);
    let sim = Sim::new(2027);
    compressed(&sim).close().unwrap();
    let compressed = files(&sim.env(), path);
    BTreeMap::from([("killed", killed), ("closed", closed), ("compressed", compressed)])
}

/// The golden store, on a machine of its own.
fn kept(version: &str, store: &str) -> Sim {
    let sim = Sim::new(1);
    let folder = folder(version, store);
    let kept = files(&Env::system(), &folder);
    assert!(!kept.is_empty(), "{} is empty", folder.display());
    place(&sim.env(), Path::new(PATH), &kept);
    sim
}

#[test]
fn golden_files_are_read() {
    VERSIONS.iter().for_each(|version| is_read(version));
}

fn is_read(version: &str) {
    for store in ["killed", "closed"] {
        let sim = kept(version, store);
        let db = Db::open(PATH, options(&sim)).unwrap();
        check(&db);
        db.verify().unwrap();
        db.close().unwrap();
        check(&Db::open(PATH, options(&sim)).unwrap());
    }
    let sim = kept(version, "compressed");
    let db = Db::open(PATH, options(&sim)).unwrap();
    for (name, _) in compressions() {
        assert_eq!(all(&existing(&db, name)), crate::suite::fixture::filled(0..200, 1), "{name}");
    }
    db.verify().unwrap();
}

#[test]
fn written_files_match_golden_files() {
    let now = as_written_now();
    if std::env::var_os("UMBEL_GOLDEN").is_some_and(|mode| mode == "write") {
        for (store, files) in &now {
            let folder = folder(VERSIONS[VERSIONS.len() - 1], store);
            let env = Env::system();
            env.files.create_dir_all(&folder).unwrap();
            for entry in env.files.read_dir(&folder).unwrap() {
                env.files.remove_file(&folder.join(&entry.name)).unwrap();
            }
            place(&env, &folder, files);
        }
        return;
    }
    for store in ["killed", "closed"] {
        let kept = files(&Env::system(), &folder(VERSIONS[VERSIONS.len() - 1], store));
        let names = |files: &Files| files.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&now[store]), names(&kept), "the files of {store}");
        for (name, bytes) in &kept {
            let written = &now[store][name];
            let same = written.iter().zip(bytes).take_while(|(a, b)| a == b).count();
            assert!(
                written == bytes,
                "{store}/{name} is written otherwise from byte {same} on ({} bytes, {} before): if \
                 the format is meant to change, do as this file's first lines say",
                written.len(),
                bytes.len()
            );
        }
    }
}
