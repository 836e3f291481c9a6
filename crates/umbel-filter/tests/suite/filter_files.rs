//! Filter files: they probe with the hash of their build, and every damage is detected.

use crate::golden_files;
use umbel_filter::{
    CountingBloom, FilterBuilder, FilterFile, FilterFileError, FilterKind, FilterOptions, HashKind,
    KeyHasher, LEVELDB_SEED, from_leveldb,
};

const SEED: [u8; 16] = *b"sixteen  octets!";

fn file(kind: FilterKind, hash: HashKind, keys: &[&str]) -> Vec<u8> {
    let hash_kind = hash.number();
    let options = FilterOptions { kind, hash_kind, ..FilterOptions::default() };
    let mut builder = FilterBuilder::new(options).expect("it is right");
    let hasher = KeyHasher::new(hash, SEED).expect("it is right");
    keys.iter().for_each(|key| builder.add(hasher.hash(key.as_bytes())));
    FilterFile::encode(hash, SEED, &builder.finish().expect("it is right")).expect("it is one")
}

#[test]
fn file_probes_use_the_hash_of_the_build() {
    let bytes = file(FilterKind::Blocked512, HashKind::Keyed, &["basil", "mint", "sage"]);
    let read = FilterFile::parse(&bytes).expect("it is right");
    for key in ["basil", "mint", "sage"] {
        assert!(read.may_contain(key.as_bytes()));
    }
    let passed = (0..1000).filter(|n| read.may_contain(format!("other {n}").as_bytes())).count();
    assert!(passed < 100, "{passed}");
    assert_eq!((read.seed(), read.hasher().kind()), (SEED, HashKind::Keyed));
    assert_eq!(read.view().keys(), 3);
}

#[test]
fn file_without_keys_passes_everything() {
    let bytes = file(FilterKind::Blocked512, HashKind::Keyed, &[]);
    let read = FilterFile::parse(&bytes).expect("it is right");
    assert!(read.filter_bytes().is_empty());
    assert!(read.may_contain(b"anything"));
}

#[test]
fn every_flip_and_truncation_is_detected() {
    let bytes = file(FilterKind::Standard, HashKind::Keyed, &["basil", "mint", "sage"]);
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << bit;
            assert!(FilterFile::parse(&flipped).is_err(), "byte {at}, bit {bit}");
        }
        assert!(FilterFile::parse(&bytes[..at]).is_err(), "{at} bytes");
    }
    let mut longer = bytes.clone();
    longer.push(0);
    assert!(FilterFile::parse(&longer).is_err());
}

#[test]
fn damage_reason_is_reported() {
    let parse = |bytes: &[u8]| FilterFile::parse(bytes).map(|_| ()).expect_err("it is refused");
    assert_eq!(parse(b""), FilterFileError::NotAFilterFile);
    assert_eq!(parse(b"uFLT and so on"), FilterFileError::NotAFilterFile);
    let bytes = file(FilterKind::Blocked512, HashKind::Keyed, &["basil"]);
    let mut newer = bytes.clone();
    newer[4] = 9;
    assert_eq!(parse(&newer), FilterFileError::Version { version: 9 });
    let malformed = FilterFile::encode(HashKind::Keyed, SEED, &bytes[64..100]);
    let malformed = malformed.expect_err("it is no filter");
    assert!(matches!(malformed, FilterFileError::Filter(_)));
    // Probed with the file's hash, such a filter would deny its keys.
    let other = FilterFile::encode(HashKind::SeaHash, SEED, &bytes[64..]);
    let other = other.expect_err("the filter was made with another hash");
    assert_eq!(other, FilterFileError::HashMismatch { of_filter: 1, of_file: 7 });
    for error in [parse(b""), parse(&newer), malformed, other, parse(&bytes[..70])] {
        let text = error.to_string();
        assert!(text.len() > 20 && !text.ends_with('.'), "{text}");
    }
}

/// A file whose bytes must never change: another version of the code must read it.
#[test]
fn encoded_bytes_are_stable() {
    let bytes = file(FilterKind::Blocked512, HashKind::Keyed, &["basil", "mint", "sage"]);
    golden_files::check("file.ufl", &bytes);
}

/// LevelDB's own filter of `hello` and `world`, probed with the seed of its hash, not with zeros.
#[test]
fn leveldb_filters_are_probed_with_its_seed() {
    if KeyHasher::new(HashKind::LevelDb, LEVELDB_SEED).is_err() {
        println!("SKIPPED: a filter of LevelDB: built without the feature leveldb");
        return;
    }
    let filter = from_leveldb(&[0x11, 0x40, 0, 0x41, 0x44, 0x10, 0x40, 0x10, 6]);
    let filter = filter.expect("it is one");
    let bytes = FilterFile::encode(HashKind::LevelDb, LEVELDB_SEED, &filter).expect("it is one");
    let read = FilterFile::parse(&bytes).expect("it is whole");
    assert!(read.may_contain(b"hello") && read.may_contain(b"world"));
    assert!(!read.may_contain(b"x") && !read.may_contain(b"foo"));
}

/// Two keys of one hash, or one key twice. A counting filter that had counted them once would deny
/// the remaining key after one removal.
#[test]
fn counting_filters_count_equal_hashes_in_a_row() {
    let options = FilterOptions { kind: FilterKind::Counting, ..FilterOptions::default() };
    let mut builder = FilterBuilder::new(options).expect("they are right");
    [7, 7, 8].into_iter().for_each(|hash| builder.add(hash));
    let bytes = builder.finish().expect("it is small");
    let mut filter = CountingBloom::decode(&bytes).expect("it is one");
    assert!(filter.remove(7));
    assert!(filter.view().contains(7), "it was added twice");
    assert!(filter.remove(7));
    assert!(!filter.view().contains(7));
}
