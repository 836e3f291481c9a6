//! Tests of damaged files: every read of a table returns the right result or a corruption error.

use std::sync::Arc;

use proptest::prelude::*;
use umbel_base::checksum::checksum;
use umbel_base::{Error, RangeTombstone, Result, ValueKind};
use umbel_filter::{FilterKind, KeyPrefix};
use umbel_table::{
    Compression, FilterChoice, FilterResidency, Table, TableBuilder, TableMeta, TableOptions,
};

use crate::fixture::{Model, TABLE_ID, get, hasher, open, options, run, walk};
use umbel_env::memory_file::MemoryFile;

fn small() -> Model {
    let mut model = Model::default();
    for number in 0..14u64 {
        let key = format!("category-{}", number / 2);
        model.put(key.as_bytes(), number + 1, format!("value {number}").as_bytes());
    }
    model.delete(b"category-3", 40);
    model.tombstones = vec![RangeTombstone { start: b"a".into(), end: b"b".into(), sequence: 9 }];
    model
}

fn is_corruption<T>(result: &Result<T>) -> bool {
    matches!(result, Err(Error::Corruption { .. }))
}

/// Reads all entries from a damaged file, and checks the results. Returns `true` if no damage was
/// detected.
fn answers_are_right(model: &Model, bytes: Vec<u8>, meta: &TableMeta) -> bool {
    let mut right = true;
    let table = match open(&MemoryFile::new(bytes), meta, Some(&hasher())) {
        Ok(table) => table,
        Err(error) => {
            assert!(matches!(error, Error::Corruption { .. }), "{error}");
            return false;
        }
    };
    for (key, (sequence, ..)) in model.list() {
        let found = get(&table, &key, sequence);
        assert!(is_corruption(&found) || found.unwrap() == model.get(&key, sequence));
        let absent = get(&table, &[&key[..], b"x"].concat(), sequence);
        assert!(is_corruption(&absent) || absent.unwrap().is_none());
    }
    for fill_cache in [false, true] {
        match walk(&table, fill_cache) {
            Ok(list) => assert!(list == model.list()),
            walked => {
                assert!(is_corruption(&walked));
                right = false;
            }
        }
    }
    match run(&table, None) {
        Ok(list) => assert!(list == model.list()),
        failed => {
            assert!(is_corruption(&failed));
            right = false;
        }
    }
    let hash = |key: &[u8]| hasher().keys.hash(key);
    for keep in
        [FilterResidency::default(), FilterResidency::Plain { factor: 2 }, FilterResidency::Second]
    {
        match table.read_filter(keep) {
            Ok(filter) => {
                let filter = filter.expect("every table of these tests has a filter");
                assert!(model.keys().iter().all(|key| filter.may_contain(hash(key))));
            }
            failed => {
                assert!(is_corruption(&failed));
                right = false;
            }
        }
    }
    match table.read_prefix_filter() {
        Ok(_) => {}
        failed => {
            assert!(is_corruption(&failed));
            right = false;
        }
    }
    let verified = table.verify();
    assert!(verified.is_ok() || is_corruption(&verified));
    right && verified.is_ok()
}

/// Changes each byte in one of three ways; with `UMBEL_EVERY_BIT`, in all of them.
#[test]
fn every_flipped_byte_is_detected() {
    let is_full = std::env::var_os("UMBEL_EVERY_BIT").is_some();
    let model = small();
    let second = |kind, bits_per_key| Some(FilterChoice { kind, bits_per_key });
    for (compression, second_filter) in [
        (Compression::None, None),
        (Compression::Lz4, second(FilterKind::Blocked512, 20.0)),
        (Compression::Zstd, second(FilterKind::Ribbon, 9.0)),
    ] {
        let rule = KeyPrefix::until(b'-', 1).unwrap();
        let rule = (compression != Compression::None).then_some(&rule);
        let options = TableOptions { second_filter, ..options(100, compression) };
        let (file, meta) = model.build_with(options, rule);
        assert_eq!(meta.second_filter.is_some(), second_filter.is_some());
        let bytes = file.bytes();
        assert!(answers_are_right(&model, bytes.clone(), &meta), "the whole file is sound");
        for index in 0..bytes.len() {
            for (number, flip) in [1, 0x80, 0xff].into_iter().enumerate() {
                if !is_full && number != index % 3 {
                    continue;
                }
                let mut flipped = bytes.clone();
                flipped[index] ^= flip;
                let unnoticed = answers_are_right(&model, flipped.clone(), &meta);
                assert!(!unnoticed, "byte {index} is covered by no check");
                let alone = Table::open_standalone(Arc::new(MemoryFile::new(flipped)), TABLE_ID);
                let alone = alone.and_then(|table| table.verify());
                assert!(is_corruption(&alone), "byte {index} of a table alone: {alone:?}");
            }
        }
    }
}

#[test]
fn cut_and_grown_files_are_refused() {
    let model = small();
    let (file, meta) = model.build(options(100, Compression::None));
    let bytes = file.bytes();
    for cut in 0..bytes.len() {
        let table = open(&MemoryFile::new(bytes[..cut].to_vec()), &meta, None);
        assert!(is_corruption(&table), "cut at {cut}");
        let alone = Arc::new(MemoryFile::new(bytes[..cut].to_vec()));
        assert!(is_corruption(&Table::open_standalone(alone, TABLE_ID)), "cut at {cut}");
    }
    let grown = [&bytes[..], b"\0"].concat();
    assert!(is_corruption(&open(&MemoryFile::new(grown), &meta, None)));
    let doubled = [&bytes[..], &bytes[..]].concat();
    let doubled = Arc::new(MemoryFile::new(doubled));
    assert!(is_corruption(&Table::open_standalone(doubled, TABLE_ID)));
}

/// Returns a table of blocks that all have the same length.
fn even(id: u64, salt: u8) -> (MemoryFile, TableMeta) {
    let file = MemoryFile::default();
    let options = TableOptions { bloom_bits: 0, ..options(64, Compression::None) };
    let mut builder = TableBuilder::new(Arc::new(file.clone()), id, hasher(), options);
    for number in 0..20u8 {
        builder.add(&[b'a' + number], 1, ValueKind::Put, &[number ^ salt; 50]).unwrap();
    }
    (file, builder.finish().unwrap())
}

/// Bytes of a block of one group with one entry: count, prefix length, key, three lengths, value,
/// trailer.
const EVEN_BLOCK: usize = 1 + 1 + 1 + 3 + 50 + 13;

#[test]
fn moved_block_is_detected() {
    let (file, meta) = even(7, 0);
    let bytes = file.bytes();
    assert_eq!(meta.blocks, 20);
    let ask = |bytes: Vec<u8>, block: u8| {
        let table = open(&MemoryFile::new(bytes), &meta, Some(&hasher())).unwrap();
        get(&table, &[b'a' + block], 9)
    };
    let at = |block: usize| 32 + block * EVEN_BLOCK..32 + (block + 1) * EVEN_BLOCK;
    assert!(ask(bytes.clone(), 3).unwrap().is_some());
    let mut moved = bytes.clone();
    moved.copy_within(at(3), at(4).start);
    assert!(is_corruption(&ask(moved, 4)), "another offset");
    let (other, _) = even(8, 0);
    let mut strange = bytes.clone();
    strange[at(4)].copy_from_slice(&other.bytes()[at(4)]);
    assert!(is_corruption(&ask(strange, 4)), "another file");
    let (older, _) = even(7, 1);
    let mut mixed = bytes.clone();
    mixed[at(4)].copy_from_slice(&older.bytes()[at(4)]);
    let table = open(&MemoryFile::new(mixed), &meta, None).unwrap();
    assert!(is_corruption(&table.verify()), "another file of the same id, in one block");
    assert!(is_corruption(&open(&older, &meta, None)), "another file of the same id");
    assert!(is_corruption(&open(&other, &meta, None)), "a file of another id");
}

#[test]
fn scan_reports_an_error() {
    let (file, meta) = even(7, 0);
    let mut bytes = file.bytes();
    bytes[32 + 5 * EVEN_BLOCK + 20] ^= 4;
    let table = open(&MemoryFile::new(bytes), &meta, None).unwrap();
    for fill_cache in [false, true] {
        use umbel_base::Cursor;
        let mut cursor = table.cursor(fill_cache);
        cursor.seek_to_first().unwrap();
        for _ in 0..4 {
            cursor.next().unwrap();
        }
        assert!(is_corruption(&cursor.next()) && !cursor.valid());
        cursor.seek(b"h", 9).unwrap();
        assert_eq!(cursor.key(), b"h");
        cursor.prev().unwrap();
        assert!(is_corruption(&cursor.prev()) && !cursor.valid());
    }
}

#[test]
fn newer_versions_and_unknown_features_are_named() {
    let (file, meta) = even(7, 0);
    let bytes = file.bytes();
    let reseal = |at_from_end: usize, flip: u8| {
        let mut bytes = bytes.clone();
        let len = bytes.len();
        bytes[len - at_from_end] ^= flip;
        let footer = len - 192;
        let sum = checksum(TABLE_ID, footer as u64, &bytes[footer..len - 16]);
        bytes[len - 16..len - 8].copy_from_slice(&sum.to_le_bytes());
        open(&MemoryFile::new(bytes), &meta, None).map(drop)
    };
    for (at, flip, word) in [(20, 2, "format version 3"), (192 - 32, 0x08, "features")] {
        match reseal(at, flip) {
            Err(Error::Invalid(reason)) => assert!(reason.contains(word), "{reason}"),
            other => panic!("{other:?}"),
        }
    }
    assert!(is_corruption(&reseal(192 - 37, 1)), "an unknown comparator");
}

#[test]
fn invalid_entries_are_refused_by_the_writer() {
    let builder = || {
        let file = Arc::new(MemoryFile::default());
        TableBuilder::new(file, TABLE_ID, hasher(), TableOptions::default())
    };
    let invalid = |result: Result<()>| matches!(result, Err(Error::Invalid(_)));
    let mut table = builder();
    table.add(b"b", 5, ValueKind::Put, b"").unwrap();
    assert!(invalid(table.add(b"b", 5, ValueKind::Put, b"")), "the same version");
    assert!(invalid(table.finish().map(drop)), "a failed table cannot be finished");
    for (key, sequence) in [(b"b", 6), (b"a", 1)] {
        let mut table = builder();
        table.add(b"b", 5, ValueKind::Put, b"").unwrap();
        assert!(invalid(table.add(key, sequence, ValueKind::Put, b"")));
        assert!(invalid(table.add(b"c", 1, ValueKind::Put, b"")), "after an error");
    }
    assert!(invalid(builder().add(&[0; 64 * 1024 + 1], 1, ValueKind::Put, b"")));
    assert!(invalid(builder().add(b"a", 1 << 56, ValueKind::Put, b"")));
    assert!(invalid(builder().finish().map(drop)), "an empty table");
    let tombstone = |end: usize, sequence| {
        let mut table = builder();
        table.add_tombstone(&RangeTombstone { start: vec![], end: vec![1; end], sequence });
        table.finish().map(drop)
    };
    assert!(tombstone(64 * 1024 + 1, (1 << 56) - 1).is_ok());
    assert!(invalid(tombstone(64 * 1024 + 2, 1)) && invalid(tombstone(1, 1 << 56)));
}

#[test]
fn output_is_written_in_large_pieces() {
    let file = MemoryFile::default();
    let options = options(4096, Compression::None);
    let mut builder = TableBuilder::new(Arc::new(file.clone()), TABLE_ID, hasher(), options);
    for number in 0..30_000u64 {
        let len = if number == 700 { 900_000 } else { 40 };
        builder.add(&number.to_be_bytes(), 1, ValueKind::Put, &vec![7; len]).unwrap();
    }
    let meta = builder.finish().unwrap();
    let writes = file.writes();
    let small = writes.iter().filter(|&&len| len < 256 * 1024).count();
    assert!(writes.len() >= 5 && small <= 2, "{writes:?}");
    open(&file, &meta, Some(&hasher())).unwrap().verify().unwrap();
}

/// Story: compactions checked the limits of keys and sequence numbers only at the first entry of
/// each group.
#[test]
fn entries_over_a_limit_are_detected_everywhere() {
    let forge = |sequence: u64, change: &dyn Fn(&mut [u8], usize, usize)| {
        let file = MemoryFile::default();
        let options = TableOptions { bloom_bits: 0, ..options(256 << 10, Compression::None) };
        let mut builder = TableBuilder::new(Arc::new(file.clone()), TABLE_ID, hasher(), options);
        let last = vec![0xee; 70_000];
        for (key, value) in [(b"a", &b"VALUE"[..]), (b"b", b"VALUE"), (b"c", &last)] {
            builder.add(key, sequence, ValueKind::Put, value).unwrap();
        }
        let meta = builder.finish().unwrap();
        assert_eq!(meta.blocks, 1);
        let mut bytes = file.bytes();
        let second = bytes.windows(6).position(|window| window == b"bVALUE").unwrap();
        let end = bytes.windows(8).rposition(|window| window == [0xee; 8]).unwrap() + 8;
        change(&mut bytes, second, end);
        // Kind, length and checksum of the only block.
        let sum = checksum(TABLE_ID, 32, &bytes[32..end + 5]);
        bytes[end + 5..end + 13].copy_from_slice(&sum.to_le_bytes());
        let table = open(&MemoryFile::new(bytes), &meta, Some(&hasher())).unwrap();
        run(&table, None)
    };
    assert_eq!(forge(1, &|_, _, _| ()).unwrap().len(), 3);
    // The second key takes all that is left of the block.
    let longer = forge(1, &|bytes, second, end| {
        let (at, trailer) = (second - 3, bytes[second - 1]);
        assert_eq!(bytes[at..at + 2], [1, 5]);
        let len = end - (at + 5);
        let low = |shift: usize| (len >> shift) as u8 | 0x80;
        bytes[at..at + 5].copy_from_slice(&[low(0), low(7), (len >> 14) as u8, 0, trailer]);
    });
    assert!(is_corruption(&longer), "{:?}", longer.map(|entries| entries.len()));
    // The trailer of nine bytes ends with the highest bits of the number.
    let later = forge((1 << 56) - 1, &|bytes, second, _| bytes[second - 1] |= 0x40);
    assert!(is_corruption(&later), "{:?}", later.map(|entries| entries.len()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_bytes_never_panic(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..400),
        sealed: bool,
    ) {
        if sealed && bytes.len() >= 192 {
            seal_footer(&mut bytes);
        }
        let table = Table::open_standalone(Arc::new(MemoryFile::new(bytes)), TABLE_ID);
        prop_assert!(table.and_then(|table| table.verify()).is_err());
    }

    /// Forged checksums can give wrong results, but must not crash the process.
    #[test]
    fn forged_payloads_never_panic(at in 0usize..2000, flips: [u8; 3], compression in 0u8..3) {
        let model = small();
        let compression = Compression::from_u8(compression).unwrap();
        let (file, meta) = model.build(options(300, compression));
        let mut bytes = file.bytes();
        let end = bytes.len() - 192;
        for (index, flip) in flips.into_iter().enumerate() {
            bytes[32 + (at + index) % (end - 32)] ^= flip;
        }
        reseal_all(&mut bytes);
        seal_footer(&mut bytes);
        let meta = TableMeta { footer_checksum: footer_checksum(&bytes), ..meta };
        for hasher in [Some(hasher()), None] {
            let Ok(table) = open(&MemoryFile::new(bytes.clone()), &meta, hasher.as_ref()) else {
                continue;
            };
            for (key, (sequence, ..)) in model.list() {
                let hash = crate::fixture::hasher().keys.hash(&key);
                table.get_with(&key, hash, sequence, |_, _, value| value.len()).ok();
            }
            use umbel_base::Cursor;
            let mut cursor = table.cursor(false);
            for start in [&b"category-4"[..], b"", b"zz"] {
                let mut steps = 0;
                let mut moved = cursor.seek(start, 3);
                while moved.is_ok() && cursor.valid() && steps < 100 {
                    steps += 1;
                    moved = if steps % 3 == 0 { cursor.prev() } else { cursor.next() };
                }
                cursor.seek_before(start).ok();
            }
            table.verify().ok();
        }
    }
}

fn footer_checksum(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[bytes.len() - 16..][..8].try_into().unwrap())
}

/// Gives the last 192 bytes, a footer, the right checksum.
fn seal_footer(bytes: &mut [u8]) {
    let len = bytes.len();
    let footer = len - 192;
    bytes[footer..footer + 8].copy_from_slice(&TABLE_ID.to_le_bytes());
    bytes[footer + 8..footer + 16].copy_from_slice(&(len as u64).to_le_bytes());
    bytes[len - 24..len - 20].copy_from_slice(&192u32.to_le_bytes());
    bytes[len - 20..len - 16].copy_from_slice(&1u32.to_le_bytes());
    let sum = checksum(TABLE_ID, footer as u64, &bytes[footer..len - 16]);
    bytes[len - 16..len - 8].copy_from_slice(&sum.to_le_bytes());
    bytes[len - 8..].copy_from_slice(b"UMBELTBL");
}

/// Finds the blocks from the end by the lengths in their trailers, as long as these are plausible,
/// and writes the right checksum of each block, also into the footer.
fn reseal_all(bytes: &mut [u8]) {
    let footer = bytes.len() - 192;
    let mut end = footer;
    while end > 32 + 13 {
        let len = u32::from_le_bytes(bytes[end - 12..end - 8].try_into().unwrap()) as usize;
        let Some(start) = (end - 13).checked_sub(len).filter(|&start| start >= 32) else { return };
        let sum = checksum(TABLE_ID, start as u64, &bytes[start..end - 8]);
        bytes[end - 8..end].copy_from_slice(&sum.to_le_bytes());
        for region in 0..5 {
            let at = footer + 48 + region * 24;
            let offset = u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
            if offset == start as u64 && region > 0 {
                bytes[at + 16..at + 24].copy_from_slice(&sum.to_le_bytes());
            }
        }
        end = start;
    }
}
