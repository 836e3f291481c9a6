//! Golden files of encoded filters: every version reads them, and writes the same
//! bytes.
//!
//! `tests/golden_kinds` holds one filter of each kind, and the filters for LevelDB and Parquet. An
//! intended change of format raises the version, and gets files of its own from
//! `UMBEL_GOLDEN=write cargo test -p umbel-filter golden_kinds`. It keeps the old ones readable, or
//! CHANGELOG.md says that they are not.

use crate::kind_oracle::every_kind;
use crate::kinds::build;
use std::path::{Path, PathBuf};
use umbel_filter::{
    FilterKind, FilterOptions, FilterSize, FilterView, HashKind, HashSecret, PARQUET_HASH_KIND,
    Probing, from_leveldb, from_parquet, hash_key, to_leveldb, to_parquet,
};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden_kinds")
}

fn hashes(keys: std::ops::Range<u32>) -> Vec<u64> {
    let secret = HashSecret::from_seed(std::array::from_fn(|index| index as u8));
    keys.map(|number| hash_key(&secret, format!("key-{number}").as_bytes())).collect()
}

/// The options of every file that contains an encoded filter, by name.
fn filters() -> Vec<(String, FilterOptions)> {
    let name = |options: &FilterOptions| match (options.kind, options.probing) {
        (FilterKind::Standard, Probing::Enhanced) => "standard-enhanced".to_string(),
        (FilterKind::Standard, Probing::LevelDb) => "standard-leveldb".to_string(),
        (kind, _) => kind.to_string(),
    };
    let with_size =
        |options, bits| FilterOptions { size: FilterSize::BitsPerKey(bits), seed_id: 7, ..options };
    let many_probes = [FilterKind::Blocked512, FilterKind::Blocked256].map(|kind| {
        let options = with_size(FilterOptions { kind, ..FilterOptions::default() }, 100.0);
        (format!("{kind}-many-probes"), options)
    });
    let kinds = every_kind().into_iter().map(|options| (name(&options), with_size(options, 9.5)));
    kinds.chain(many_probes).collect()
}

/// Every file and its content.
fn files() -> Vec<(String, Vec<u8>)> {
    let hashes = hashes(0..100);
    let mut files: Vec<(String, Vec<u8>)> = filters()
        .into_iter()
        .map(|(name, options)| (format!("{name}.filter"), build(options, &hashes)))
        .collect();
    let kind = FilterKind::SplitBlock;
    let of_parquet = FilterOptions { kind, hash_kind: PARQUET_HASH_KIND, ..Default::default() };
    let bytes = build(of_parquet, &hashes);
    let view = FilterView::parse(&bytes).expect("it was built just now");
    files.push(("parquet.bloom".to_string(), to_parquet(&view).expect("a split-block filter")));
    let of_leveldb = FilterOptions {
        kind: FilterKind::Standard,
        probing: Probing::LevelDb,
        hash_kind: HashKind::LevelDb.number(),
        size: FilterSize::BitsPerKey(9.5),
        ..FilterOptions::default()
    };
    let bytes = build(of_leveldb, &hashes);
    let view = FilterView::parse(&bytes).expect("it was built just now");
    files.push(("leveldb.block".to_string(), to_leveldb(&view).expect("LevelDB's probing")));
    files
}

/// FORMAT: these bytes are in existing files. If this test fails, the format has changed and needs
/// a new version number.
#[test]
fn golden_filters_are_reproduced() {
    let write = std::env::var("UMBEL_GOLDEN").is_ok_and(|word| word == "write");
    for (name, bytes) in files() {
        let path = folder().join(&name);
        if write {
            std::fs::create_dir_all(folder()).expect("the folder can be made");
            std::fs::write(&path, &bytes).expect("the file can be written");
        }
        let golden = std::fs::read(&path).expect("the golden file is there");
        assert!(golden == bytes, "{name}");
    }
    let there = std::fs::read_dir(folder()).expect("the folder is there").count();
    assert_eq!(there, files().len());
}

#[test]
fn golden_filters_are_read() {
    let (keys, others) = (hashes(0..100), hashes(100..10_100));
    let passed = |view: &FilterView<'_>| {
        assert!(keys.iter().all(|hash| view.contains(*hash)));
        others.iter().filter(|hash| view.contains(**hash)).count()
    };
    // The number of passing keys, of ten thousand others, is part of the format.
    for (name, expected) in [
        ("blocked-512", 80),
        ("blocked-256", 72),
        ("standard", 125),
        ("standard-enhanced", 92),
        ("standard-leveldb", 145),
        ("split-block", 101),
        ("counting", 125),
        ("blocked-512-many-probes", 0),
        ("blocked-256-many-probes", 0),
    ] {
        let golden = std::fs::read(folder().join(format!("{name}.filter"))).expect("it is there");
        let view = FilterView::parse(&golden).expect("it is good");
        assert_eq!((view.keys(), view.seed_id(), view.hash_kind()), (100, 7, 1));
        assert_eq!(passed(&view), expected, "{name}");
    }
    let bloom = std::fs::read(folder().join("parquet.bloom")).expect("it is there");
    let (filter, length) = from_parquet(&bloom).expect("it is good");
    assert_eq!(length, bloom.len());
    assert_eq!(passed(&FilterView::parse(&filter).expect("it is good")), 101);
    let block = std::fs::read(folder().join("leveldb.block")).expect("it is there");
    let filter = from_leveldb(&block).expect("it is good");
    assert_eq!(passed(&FilterView::parse(&filter).expect("it is good")), 145);
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        text.chars().filter_map(|digit| digit.to_digit(16)).map(|digit| digit as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// The examples of the format page: basil, mint and sage at 10 bits per key.
#[test]
fn examples_of_the_format_page_match() {
    let secret = HashSecret::from_seed(std::array::from_fn(|index| index as u8));
    let herbs = ["basil", "mint", "sage"].map(|key| hash_key(&secret, key.as_bytes()));
    for (kind, probing, probes, expected) in [
        (
            FilterKind::Blocked256,
            Probing::Multiplied,
            6,
            "00000010 00000000 04202000 00000000 \
            20060400 01908900 00000a00 10000100",
        ),
        (FilterKind::Standard, Probing::Multiplied, 7, "9c585298 10e00202"),
        (FilterKind::Standard, Probing::Enhanced, 7, "701d0493 03e00402"),
        (
            FilterKind::SplitBlock,
            Probing::Multiplied,
            8,
            "40000800 20000012 00100410 08110000 \
            00050080 80008080 10000480 00001240",
        ),
        (
            FilterKind::Counting,
            Probing::Multiplied,
            7,
            "00110210 00100101 10000101 00100110 \
            00000100 00002011 10000000 10000000",
        ),
    ] {
        let bytes = build(FilterOptions { kind, probing, ..Default::default() }, &herbs);
        assert_eq!(u32::from(bytes[7]), probes);
        assert_eq!(bytes[64..], unhex(expected), "{kind}");
    }
}
