//! Tests of mapped files. If files of the temporary directory cannot be mapped, the tests are
//! skipped.

use std::path::Path;

use umbel_base::Error;
use umbel_env::skipped_test::print_skipped;
use umbel_env::{Access, Env, File, Mapping};

fn mapped(file: &dyn File, len: u64) -> Option<Box<dyn Mapping>> {
    file.preallocate(len).unwrap();
    let mapping = file.map(len).unwrap();
    if mapping.is_none() {
        let reason = format!("{} is where files cannot be mapped", file.path().display());
        print_skipped("mapped files", reason);
    }
    mapping
}

fn bytes_of(env: &Env, path: &Path) -> Vec<u8> {
    let file = env.files.open(path, Access::Read).unwrap();
    let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

#[test]
fn mapped_stores_are_seen_by_other_handles() {
    let folder = tempfile::tempdir().unwrap();
    let env = Env::system();
    let path = folder.path().join("a");
    let file = env.files.create(&path).unwrap();
    let Some(mut mapping) = mapped(&*file, 10_000) else { return };
    assert_eq!(mapping.len(), 10_000);
    assert!(!mapping.is_empty());
    mapping.write_at(b"first", 0).unwrap();
    mapping.write_at(b"last", 9_996).unwrap();
    file.sync().unwrap();
    let bytes = bytes_of(&env, &path);
    assert_eq!((&bytes[..5], &bytes[9_996..]), (&b"first"[..], &b"last"[..]));
    drop(file);
    mapping.write_at(b"F", 0).unwrap();
    assert_eq!(&bytes_of(&env, &path)[..5], b"First");
}

#[test]
fn stores_outside_the_mapping_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let env = Env::system();
    let file = env.files.create(&folder.path().join("a")).unwrap();
    let Some(mut mapping) = mapped(&*file, 4096) else { return };
    for offset in [4093, 4096, u64::MAX - 2, u64::MAX] {
        let error = mapping.write_at(b"abcd", offset).unwrap_err();
        assert!(matches!(&error, Error::Invalid(_)), "{error}");
    }
    mapping.write_at(b"abcd", 4092).unwrap();
    mapping.write_at(b"", 4096).unwrap();
}

#[test]
fn a_mapped_file_is_not_cut_by_its_handle() {
    let folder = tempfile::tempdir().unwrap();
    let env = Env::system();
    let file = env.files.create(&folder.path().join("a")).unwrap();
    let Some(mapping) = mapped(&*file, 8192) else { return };
    assert!(matches!(file.set_len(4096), Err(Error::Invalid(_))));
    file.set_len(20_000).unwrap();
    drop(mapping);
    file.set_len(4096).unwrap();
}

#[test]
fn mapping_beyond_the_file_end_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let env = Env::system();
    let file = env.files.create(&folder.path().join("a")).unwrap();
    file.preallocate(100).unwrap();
    assert!(matches!(file.map(101), Err(Error::Invalid(_))));
    assert!(file.map(0).unwrap().is_none());
}

/// Released and written-back pages keep their bytes, and accept new stores.
#[test]
fn released_pages_keep_their_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let env = Env::system();
    let path = folder.path().join("f");
    let file = env.files.create(&path).unwrap();
    let bytes: Vec<u8> = (0..300_000_u32).map(|i| (i % 251) as u8).collect();
    let Some(mut mapping) = mapped(&*file, bytes.len() as u64) else { return };
    mapping.write_at(&bytes, 0).unwrap();
    let pages = mapping.prefaulter().unwrap();
    // Ends within pages, after the end, and an empty range.
    for range in [0..70_001, 70_001..200_000, 5..6, 290_000..900_000, 10..10, u64::MAX..u64::MAX] {
        pages.release(range.clone());
        file.write_back(range);
    }
    assert_eq!(bytes_of(&env, &path), bytes);
    mapping.write_at(b"later", 4095).unwrap();
    file.sync().unwrap();
    let mut expected = bytes;
    expected[4095..4100].copy_from_slice(b"later");
    assert_eq!(bytes_of(&env, &path), expected);
}
