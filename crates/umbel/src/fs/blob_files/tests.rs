//! Tests of the references to files of long values, and of the files' removal.

use std::path::Path;

use umbel_env::Env;
use umbel_sim::Sim;

use super::*;

const FOLDER: &str = "/store";

fn fixture() -> (Env, Arc<BlobFiles>) {
    let env = Sim::new(1).env();
    env.files.create_dir_all(Path::new(FOLDER)).unwrap();
    let (files, poison) = (Arc::clone(&env.files), Arc::new(FatalError::default()));
    let pool = FileCache::new(Arc::clone(&env.files), 8);
    let lock = env.files.lock(&Path::new(FOLDER).join(filenames::LOCK)).unwrap();
    let obsolete = ObsoleteFiles::new(Arc::clone(&files), Arc::clone(&poison), Some(lock));
    (env, BlobFiles::new(FOLDER.into(), files, pool, poison, obsolete))
}

fn is_there(env: &Env, id: u64) -> bool {
    env.files.exists(&filenames::blob(Path::new(FOLDER), id)).unwrap()
}

#[test]
fn unreferenced_file_is_removed_with_its_last_reader() {
    let (env, blobs) = fixture();
    let (one, two) = (blobs.write(1, b"one").unwrap(), blobs.write(2, b"two").unwrap());
    let (memtable, other) = (blobs.acquire(&one), blobs.acquire(&two));
    let table = blobs.acquire(&one);
    assert!(Arc::ptr_eq(&memtable, &table));
    assert!(blobs.is_live(1) && blobs.is_live(2) && !blobs.is_live(3));
    drop(memtable);
    mark_dropped([Arc::clone(&table), other], [&two]);
    assert_eq!(blobs.obsolete_totals(), BlobTotals::of([&one]));
    assert_eq!(blobs.read(&one).unwrap(), b"one", "a reader still pins it");
    drop(table);
    assert!(!is_there(&env, 1) && is_there(&env, 2));
    assert!(!blobs.is_live(1) && !blobs.is_live(2));
    assert_eq!(blobs.obsolete_totals(), BlobTotals::default());
    let missing = blobs.read(&one).unwrap_err().to_string();
    assert!(missing.contains("000001.blob") && missing.contains("missing"), "{missing}");
}

#[test]
fn no_file_is_removed_after_a_failed_write() {
    let (env, blobs) = fixture();
    let pointer = blobs.write(1, b"one").unwrap();
    let file = blobs.acquire(&pointer);
    blobs.poison.set(Error::Closed);
    file.mark_obsolete();
    drop(file);
    blobs.remove_unreferenced(1);
    assert!(is_there(&env, 1));
}

#[test]
fn failed_write_leaves_no_file() {
    let (env, blobs) = fixture();
    assert!(matches!(blobs.write(1, b""), Err(Error::Invalid(_))));
    assert!(!is_there(&env, 1));
}

#[test]
fn invalid_pointer_is_damage() {
    let (_env, blobs) = fixture();
    assert!(matches!(blobs.read_at(&[0; 24]), Err(Error::Corruption { .. })));
    assert!(matches!(blobs.read_at(b"short"), Err(Error::Corruption { .. })));
}
