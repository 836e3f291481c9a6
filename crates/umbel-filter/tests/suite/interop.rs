//! Filters exchanged with LevelDB and with Apache Parquet, byte for byte. The expected bytes were
//! written by LevelDB 1.23 and by Arrow C++ 26 (through pyarrow).

use crate::Numbers;
use crate::kinds::build;
use umbel_filter::{
    FilterError, FilterKind, FilterOptions, FilterSize, FilterView, PARQUET_HASH_KIND,
    ParquetError, Probing, from_leveldb, from_parquet, to_leveldb, to_parquet, widen_hash,
};

fn unhex(text: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("hexadecimal digits");
    (0..text.len()).step_by(2).map(digit).collect()
}

/// One number for bytes too many to be printed here.
fn sum(bytes: &[u8]) -> u64 {
    let next = |sum: u64, byte: &u8| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3).wrapping_add(1)
    };
    bytes.iter().fold(0, next)
}

fn keys(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("key-{number}")).collect()
}

/// LevelDB's hash, as its filters are made of it.
fn leveldb_hash(key: &[u8]) -> u32 {
    let by = 0xc6a4_a793u32;
    let mut state = 0xbc9f_1d34 ^ by.wrapping_mul(key.len() as u32);
    let (words, rest) = key.as_chunks::<4>();
    for word in words {
        state = state.wrapping_add(u32::from_le_bytes(*word)).wrapping_mul(by);
        state ^= state >> 16;
    }
    if !rest.is_empty() {
        let rest = rest.iter().rev().fold(0, |rest, byte| rest << 8 | u32::from(*byte));
        state = state.wrapping_add(rest).wrapping_mul(by);
        state ^= state >> 24;
    }
    state
}

fn leveldb(bits_per_key: f64, keys: &[String]) -> Vec<u8> {
    let hashes: Vec<u64> =
        keys.iter().map(|key| widen_hash(leveldb_hash(key.as_bytes()))).collect();
    let options = FilterOptions {
        kind: FilterKind::Standard,
        probing: Probing::LevelDb,
        size: FilterSize::BitsPerKey(bits_per_key),
        hash_kind: 13,
        ..FilterOptions::default()
    };
    let bytes = build(options, &hashes);
    let view = FilterView::parse(&bytes).expect("it was built just now");
    assert!(hashes.iter().all(|hash| view.contains(*hash)));
    to_leveldb(&view).expect("it is of LevelDB's probing")
}

#[test]
fn leveldb_writes_the_same_filters() {
    let hello = ["hello".to_string(), "world".to_string()];
    assert_eq!(leveldb(10.0, &hello), unhex("114000414410401006"));
    assert_eq!(leveldb(10.0, &keys(1)), unhex("000100010001000106"));
    let of_20 = "2c7ccfd104171674b491056b1b019c3965a54a0c85d315a45d06";
    assert_eq!(leveldb(10.0, &keys(20)), unhex(of_20));
    for (bits_per_key, count, length, expected) in [
        (1.0, 300, 39, 0x1b1b_4b56_d92d_36c6),
        (16.0, 100, 201, 0x89c3_56f4_3f8e_6dfe),
        (50.0, 40, 251, 0x1962_3914_c427_9ce1),
        (3.0, 1_000, 376, 0xfd6e_87e8_aa33_9f65),
    ] {
        let bytes = leveldb(bits_per_key, &keys(count));
        assert_eq!((bytes.len(), sum(&bytes)), (length, expected), "{bits_per_key} bits per key");
    }
    // Also where a key comes twice in a row.
    let twice = ["a".to_string(), "a".to_string()];
    assert_eq!(leveldb(40.0, &twice).len(), 11);
}

#[test]
fn filters_of_leveldb_are_read() {
    let theirs = leveldb(10.0, &keys(1_000));
    let bytes = from_leveldb(&theirs).expect("LevelDB wrote it");
    let view = FilterView::parse(&bytes).expect("it was converted just now");
    assert_eq!((view.kind(), view.hash_kind()), (Some(FilterKind::Standard), 13));
    assert!((950..=1_050).contains(&view.keys()), "{}", view.keys());
    let asks = |key: &str| view.contains(widen_hash(leveldb_hash(key.as_bytes())));
    assert!(keys(1_000).iter().all(|key| asks(key)));
    let passed = (0..10_000).filter(|number| asks(&format!("other-{number}"))).count();
    assert!((50..=200).contains(&passed), "{passed}");
    assert_eq!(to_leveldb(&view), Some(theirs));

    for short in [&[][..], &[6][..]] {
        assert!(matches!(from_leveldb(short), Err(FilterError::Malformed { .. })));
    }
    for probes in [0, 31, 255] {
        let error = from_leveldb(&[0, 0, probes]).expect_err("LevelDB takes it for a match");
        assert!(error.means_maybe());
    }
    let full = from_leveldb(&[255, 30]).expect("a full filter");
    assert_eq!(FilterView::parse(&full).map(|view| view.contains(9)), Ok(true));
    let other = build(FilterOptions::default(), &[1]);
    assert_eq!(to_leveldb(&FilterView::parse(&other).expect("a filter")), None);
    assert_eq!(to_leveldb(&FilterView::MAYBE), None);
}

/// XXH64 with the seed 0 of less than 32 bytes.
fn xxh64(key: &[u8]) -> u64 {
    const P: [u64; 5] = [
        0x9e37_79b1_85eb_ca87,
        0xc2b2_ae3d_27d4_eb4f,
        0x1656_67b1_9e37_79f9,
        0x85eb_ca77_c2b2_ae63,
        0x27d4_eb2f_1656_67c5,
    ];
    assert!(key.len() < 32);
    let mut state = P[4].wrapping_add(key.len() as u64);
    let (words, rest) = key.as_chunks::<8>();
    for word in words {
        let mixed = u64::from_le_bytes(*word).wrapping_mul(P[1]).rotate_left(31);
        state ^= mixed.wrapping_mul(P[0]);
        state = state.rotate_left(27).wrapping_mul(P[0]).wrapping_add(P[3]);
    }
    let (halves, rest) = rest.as_chunks::<4>();
    for half in halves {
        state ^= u64::from(u32::from_le_bytes(*half)).wrapping_mul(P[0]);
        state = state.rotate_left(23).wrapping_mul(P[1]).wrapping_add(P[2]);
    }
    for byte in rest {
        state ^= u64::from(*byte).wrapping_mul(P[4]);
        state = state.rotate_left(11).wrapping_mul(P[0]);
    }
    state = (state ^ state >> 33).wrapping_mul(P[1]);
    state = (state ^ state >> 29).wrapping_mul(P[2]);
    state ^ state >> 32
}

fn split(bytes: u64, keys: &[String]) -> Vec<u8> {
    let hashes: Vec<u64> = keys.iter().map(|key| xxh64(key.as_bytes())).collect();
    let options = FilterOptions {
        kind: FilterKind::SplitBlock,
        size: FilterSize::BitsPerKey((bytes * 8 - 1) as f64 / keys.len() as f64),
        hash_kind: PARQUET_HASH_KIND,
        ..FilterOptions::default()
    };
    build(options, &hashes)
}

const OF_12_KEYS: &str = "15401c1c00001c1c00001c1c0000004510372140\
                          56c0c0a14418288a4441a1a210048f205404ae00a10549034c1160";

#[test]
fn parquet_writes_the_same_filters() {
    for (count, length, expected) in [
        (12, 32, 0xf169_7e2a_e870_abb6),
        (300, 512, 0xb973_fd5a_83a3_5031),
        (3_000, 8_192, 0xd4c6_ddc8_9b69_e148),
    ] {
        let bytes = split(length, &keys(count));
        let view = FilterView::parse(&bytes).expect("it was built just now");
        let theirs = to_parquet(&view).expect("split blocks of XXH64");
        assert_eq!(sum(&theirs), expected, "{count} keys");
        let mut longer = theirs.clone();
        longer.extend([7; 9]);
        let (again, length) = from_parquet(&longer).expect("Parquet wrote it");
        assert_eq!((length, &again[64..]), (theirs.len(), &bytes[64..]));
        let again = FilterView::parse(&again).expect("it was converted just now");
        assert!(keys(count).iter().all(|key| again.contains(xxh64(key.as_bytes()))));
        let error = (again.keys() as f64 / count as f64 - 1.0).abs();
        assert!(error < 0.2, "{count} keys: {}", again.keys());
    }
    let bytes = split(32, &keys(12));
    let view = FilterView::parse(&bytes).expect("it was built just now");
    assert_eq!(to_parquet(&view), Ok(unhex(OF_12_KEYS)));
    // Any number of blocks, not only powers of two.
    assert_eq!(split(7 * 32, &keys(50)).len(), 64 + 7 * 32);
}

#[test]
fn only_split_block_filters_export_to_parquet() {
    let of = |options| to_parquet(&FilterView::parse(&build(options, &[1, 2])).expect("a filter"));
    let kind = FilterKind::SplitBlock;
    assert_eq!(
        of(FilterOptions { kind, ..FilterOptions::default() }),
        Err(ParquetError::HashKind { hash_kind: 1 })
    );
    assert_eq!(
        of(FilterOptions::default()),
        Err(ParquetError::Kind { kind: Some(FilterKind::Blocked512) })
    );
    assert_eq!(to_parquet(&FilterView::MAYBE), Err(ParquetError::Kind { kind: None }));
}

#[test]
fn inconsistent_parquet_headers_are_refused() {
    let whole = unhex(OF_12_KEYS);
    for cut in 0..whole.len() {
        let error = from_parquet(&whole[..cut]).expect_err("it is cut off");
        assert!(matches!(error, ParquetError::Header | ParquetError::Length { .. }), "{error}");
    }
    for at in 0..15 {
        for value in 0..=255 {
            let mut bytes = whole.clone();
            bytes[at] = value;
            if let Ok((filter, length)) = from_parquet(&bytes) {
                assert!(filter.len() <= 64 + bytes.len() && length <= bytes.len());
                assert!(FilterView::parse(&filter).is_ok_and(|view| view.kind().is_some()));
            }
        }
    }
    let with_length = |varint: &[u8]| {
        let bytes = [&[0x15], varint, &whole[2..]].concat();
        from_parquet(&bytes).map(drop)
    };
    assert_eq!(with_length(&[0x40]), Ok(()));
    // Nothing, half a block, a block too many, minus one, 2^31 - 32, and more than 32 bits.
    for varint in [
        &[0][..],
        &[0x20],
        &[0x80, 1],
        &[1],
        &[0xc0, 0xff, 0xff, 0xff, 0x0f],
        &[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1],
    ] {
        assert!(matches!(with_length(varint), Err(ParquetError::Length { left: 32, .. })));
    }
    // Another algorithm, a union without an alternative, no compression at all.
    for (at, bytes) in [(2, &[0x1c, 0x2c, 0, 0][..]), (2, &[0x1c, 0]), (10, &[])] {
        let end = if at == 2 { 6 } else { 14 };
        let other = [&whole[..at], bytes, &whole[end..]].concat();
        assert_eq!(from_parquet(&other).map(drop), Err(ParquetError::Unknown), "{at}");
    }
    // A field of a later version is passed over.
    let later = [&whole[..14], &[0x18, 3, b'n', b'e', b'w'], &whole[14..]].concat();
    assert_eq!(from_parquet(&later).map(|(_, length)| length), Ok(later.len()));
}

#[test]
fn hashes_of_32_bits_are_distinguished() {
    let mut numbers = Numbers(4);
    let mut seen: Vec<u64> = (0..10_000).map(|_| widen_hash(numbers.draw() as u32)).collect();
    seen.sort_unstable();
    let lines: std::collections::BTreeSet<u64> = seen.iter().map(|hash| hash >> 58).collect();
    assert_eq!(lines.len(), 64);
}
