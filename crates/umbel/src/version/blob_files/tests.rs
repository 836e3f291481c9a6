//! Tests of the files of long values: who holds them and when they go.

use std::path::Path;

use umbel_env::Env;
use umbel_sim::Sim;

use super::*;

const FOLDER: &str = "/store";

fn stage() -> (Env, Arc<Blobs>) {
    let env = Sim::new(1).env();
    env.files.create_dir_all(Path::new(FOLDER)).unwrap();
    let (files, poison) = (Arc::clone(&env.files), Arc::new(Poison::default()));
    let pool = Descriptors::new(Arc::clone(&env.files), 8);
    let lock = env.files.lock(&Path::new(FOLDER).join(names::LOCK)).unwrap();
    let obsolete = ObsoleteFiles::new(Arc::clone(&files), Arc::clone(&poison), Some(lock));
    (env, Blobs::new(FOLDER.into(), files, pool, poison, obsolete))
}

fn is_there(env: &Env, id: u64) -> bool {
    env.files.exists(&names::blob(Path::new(FOLDER), id)).unwrap()
}

#[test]
fn a_file_goes_with_the_last_that_holds_it_once_nothing_points_at_it() {
    let (env, blobs) = stage();
    let (one, two) = (blobs.write(1, b"one").unwrap(), blobs.write(2, b"two").unwrap());
    let (memtable, other) = (blobs.hold(&one), blobs.hold(&two));
    let table = blobs.hold(&one);
    assert!(Arc::ptr_eq(&memtable, &table));
    assert!(blobs.is_held(1) && blobs.is_held(2) && !blobs.is_held(3));
    drop(memtable);
    retire([Arc::clone(&table), other], [&two]);
    assert_eq!(blobs.leaving(), Sum::of([&one]));
    assert_eq!(blobs.read(&one).unwrap(), b"one", "somebody still holds it");
    drop(table);
    assert!(!is_there(&env, 1) && is_there(&env, 2));
    assert!(!blobs.is_held(1) && !blobs.is_held(2));
    assert_eq!(blobs.leaving(), Sum::default());
    let missing = blobs.read(&one).unwrap_err().to_string();
    assert!(missing.contains("000001.blob") && missing.contains("missing"), "{missing}");
}

#[test]
fn nothing_is_removed_once_a_write_has_failed() {
    let (env, blobs) = stage();
    let pointer = blobs.write(1, b"one").unwrap();
    let file = blobs.hold(&pointer);
    blobs.poison.set(Error::Closed);
    file.mark_obsolete();
    drop(file);
    blobs.discard(1);
    assert!(is_there(&env, 1));
}

#[test]
fn a_write_that_fails_leaves_no_file() {
    let (env, blobs) = stage();
    assert!(matches!(blobs.write(1, b""), Err(Error::Invalid(_))));
    assert!(!is_there(&env, 1));
}

#[test]
fn what_is_no_pointer_is_damage() {
    let (_env, blobs) = stage();
    assert!(matches!(blobs.read_at(&[0; 24]), Err(Error::Corruption { .. })));
    assert!(matches!(blobs.read_at(b"short"), Err(Error::Corruption { .. })));
}
