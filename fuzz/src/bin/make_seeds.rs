//! Writes small valid inputs for every fuzz target, made by the engine's own writers, to `seeds/`.
#![forbid(unsafe_code)]

use std::path::Path;
use std::sync::Arc;

use umbel_base::{RangeTombstone, ValueKind};
use umbel_env::File;
use umbel_filter::{
    BloomBuilder, FilterBuilder, FilterFile, FilterKind, FilterOptions, FilterView, FuseArity,
    FuseBuilder, HashKind, HashSecret, KeyPrefix, PARQUET_HASH_KIND, PrefixFilterBuilder,
    PrefixHasher, Probing, RibbonBuilder, hash_key, to_leveldb, to_parquet,
};
use umbel_fuzz::log_file::MARK_HERE;
use umbel_fuzz::memory_env::MemoryFile;
use umbel_fuzz::structured_input::put_part;
use umbel_fuzz::table_file::{FILE_ID, assemble, disassemble};
use umbel_fuzz::template_store::template;
use umbel_table::{Compression, FilterChoice, TableBuilder, TableHasher, TableOptions};

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    filters()?;
    tables()?;
    blobs()?;
    existence()?;
    let (manifest, log) = template().payloads();
    logs("log_reader", &[0], &log)?;
    logs("write_batch", &[], &log)?;
    logs("manifest_edit", &[1], &manifest)?;
    let mut bytes = vec![0];
    // Saying again that there is a keyspace changes nothing.
    if let Some(keyspace) = manifest.get(1) {
        put_part(&mut bytes, keyspace);
    }
    write("manifest_edit", "behind", &bytes)?;
    let raw = |path: &str| template().image().iter().find(|(name, _)| name.ends_with(path));
    if let Some((_, current)) = raw("CURRENT") {
        write("current", "whole", &[&[1], &current[..]].concat())?;
        write("current", "fixed", &[&[0], &current[..56]].concat())?;
    }
    Ok(())
}

fn write(target: &str, name: &str, input: &[u8]) -> Result<(), Failure> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(target);
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join(name), input)?;
    Ok(())
}

/// Records of these payloads as `log_file::assemble` reads them, open and with an end.
fn logs(target: &str, first: &[u8], payloads: &[Vec<u8>]) -> Result<(), Failure> {
    let mut input = first.to_vec();
    for payload in payloads {
        input.extend_from_slice(&[1, 1, 0, 0]);
        put_part(&mut input, payload);
    }
    write(target, "open", &input)?;
    input.extend_from_slice(&[0x81, 1, 0, 0]);
    put_part(&mut input, b"damaged");
    write(target, "torn", &input)?;
    // A mark that says the damage had been durable.
    input.extend_from_slice(&[1, 1]);
    input.extend_from_slice(&(MARK_HERE as u16).to_le_bytes());
    put_part(&mut input, b"behind");
    write(target, "damaged", &input)?;
    let mut last = first.to_vec();
    last.push(0x41);
    last.extend_from_slice(&(u64::MAX - 1).to_le_bytes());
    last.extend_from_slice(&[0, 0]);
    put_part(&mut last, payloads.last().map_or(&b""[..], Vec::as_slice));
    write(target, "last-sequence", &last)
}

fn blobs() -> Result<(), Failure> {
    let value: Vec<u8> = (0..70_000u32).map(|at| (at / 3) as u8).collect();
    for (name, value) in [("short", &value[..30]), ("two-chunks", &value[..])] {
        let file = MemoryFile::alone("/000007.blob", Vec::new());
        umbel_blob::write(&*file, umbel_fuzz::blob_file::FILE_ID, value)?;
        write("blob_open", &format!("raw-{name}"), &[&[1], &file.bytes()[..]].concat())?;
    }
    // Thirteen bytes of nothing unusual, then a value.
    write("blob_open", "parts-short", &[&[0; 14], &b"a value"[..]].concat())?;
    let mut repeated = vec![0; 12];
    repeated.extend_from_slice(&10_000u16.to_le_bytes());
    repeated.extend_from_slice(b"a long value");
    write("blob_open", "parts-two-chunks", &repeated)?;
    let wrong_sum = [&[0; 10][..], &[1, 0, 0, 0], b"a value"].concat();
    write("blob_open", "wrong-sum", &wrong_sum)?;
    let newer = [&[0, 3][..], &[0; 12], b"a value"].concat();
    write("blob_open", "newer", &newer)
}

fn existence() -> Result<(), Failure> {
    use umbel_fuzz::existence_files::assemble;
    write("existence_open", "nothing-unusual", &[])?;
    // A journal of two records, the second damaged, and a bit of a line of the filter flipped.
    let mut mixed = vec![0; 13];
    mixed.extend_from_slice(&[2, 0, 5, 0, 0, 0, 3, 0, 0]);
    mixed.extend_from_slice(&[1, 140, 0, 4, 2, 0x40, 0x10, 1]);
    write("existence_open", "mixed", &mixed)?;
    let files = assemble(umbel_fuzz::structured_input::Parts::new(&[]));
    for (mode, name) in [(1u8, "CHECKPOINT"), (2, "000003.journal"), (3, "000004.filter")] {
        let found = files.iter().find(|(path, _)| path.ends_with(name));
        let (_, bytes) = found.ok_or("the file is not there")?;
        let raw = [&[mode], &bytes[..]].concat();
        write("existence_open", &format!("raw-{}", name.to_lowercase()), &raw)?;
    }
    Ok(())
}

fn filters() -> Result<(), Failure> {
    write("filter_decode", "none", &[])?;
    for bits in [1, 10, 100] {
        let secret = HashSecret::from_seed([7; 16]);
        let mut builder = BloomBuilder::new(bits);
        for key in 0..20u32 {
            builder.add(hash_key(&secret, &key.to_le_bytes()));
        }
        write("filter_decode", &format!("bits-{bits}"), &builder.finish())?;
    }
    let kinds = [
        (FilterKind::Blocked256, Probing::Multiplied),
        (FilterKind::Standard, Probing::Multiplied),
        (FilterKind::Standard, Probing::Enhanced),
        (FilterKind::Standard, Probing::LevelDb),
        (FilterKind::SplitBlock, Probing::Multiplied),
        (FilterKind::Counting, Probing::Multiplied),
    ];
    for (kind, probing) in kinds {
        let hash_kind = match (kind, probing) {
            (FilterKind::SplitBlock, _) => PARQUET_HASH_KIND,
            (_, Probing::LevelDb) => HashKind::LevelDb.number(),
            _ => HashKind::Keyed.number(),
        };
        let options = FilterOptions { kind, probing, hash_kind, ..FilterOptions::default() };
        let mut builder = FilterBuilder::new(options)?;
        let secret = HashSecret::from_seed([7; 16]);
        (0..20u32).for_each(|key| builder.add(hash_key(&secret, &key.to_le_bytes())));
        let bytes = builder.finish()?;
        write("filter_decode", &format!("{kind}-{}", probing.number()), &bytes)?;
        let view = FilterView::parse(&bytes)?;
        if let Ok(parquet) = to_parquet(&view) {
            write("filter_decode", "parquet", &parquet)?;
        }
        if let Some(leveldb) = to_leveldb(&view) {
            write("filter_decode", "leveldb", &leveldb)?;
        }
    }
    let kept = FilterFile::encode(HashKind::Keyed, [7; 16], &BloomBuilder::new(10).finish())?;
    write("filter_file", "none", &kept)?;
    prefix_filters()?;
    static_filters()
}

fn prefix_filters() -> Result<(), Failure> {
    let keys = ["a/b/c", "a/b/d", "a/c", "b", "berlin/1", "berlin/2"];
    let names = ["fixed:3", "capped:4", "until:/", "until:/:2", "until:0x00"];
    for (number, name) in names.into_iter().enumerate() {
        let hasher = PrefixHasher::new(HashKind::Keyed, [7; 16])?;
        let mut builder = PrefixFilterBuilder::new(name.parse::<KeyPrefix>()?, hasher)?;
        keys.iter().for_each(|key| builder.add(key.as_bytes()));
        write("filter_prefix", &format!("filter-{number}"), &builder.finish(10, 1))?;
        let mut input = b"?".to_vec();
        put_part(&mut input, name.as_bytes());
        keys.iter().for_each(|key| put_part(&mut input, key.as_bytes()));
        write("filter_prefix", &format!("rule-{number}"), &input)?;
    }
    Ok(())
}

fn static_filters() -> Result<(), Failure> {
    let spread = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let hashes: Vec<u64> = (1..20).map(spread).collect();
    let raw: Vec<u8> = hashes.iter().flat_map(|hash| hash.to_le_bytes()).collect();
    let marked = |mode: u8, bytes: &[u8]| [&[mode], bytes].concat();
    for (name, bits, arity) in [("three", 8, FuseArity::Three), ("four", 5, FuseArity::Four)] {
        let bytes = FuseBuilder::from_hashes(bits, hashes.clone()).with_arity(arity).finish()?;
        write("filter_fuse", name, &marked(0, &bytes))?;
        let mode = 8 * bits as u8 + arity.slots() as u8 % 2;
        write("filter_fuse", &format!("hashes-{name}"), &marked(mode, &raw))?;
    }
    for (name, rate) in [("one-column", 0.5), ("mixed", 0.01), ("many", 1e-4)] {
        let bytes = RibbonBuilder::from_hashes(rate, hashes.clone()).finish();
        write("filter_ribbon", name, &marked(0, &bytes))?;
    }
    write("filter_ribbon", "hashes", &marked(40, &raw))
}

fn tables() -> Result<(), Failure> {
    let second = |kind, bits_per_key| Some(FilterChoice { kind, bits_per_key });
    for (name, compression, second_filter) in [
        ("none", Compression::None, None),
        ("lz4", Compression::Lz4, None),
        ("zstd", Compression::Zstd, None),
        ("second-blocked", Compression::None, second(FilterKind::Blocked512, 20.0)),
        ("second-ribbon", Compression::None, second(FilterKind::Ribbon, 12.0)),
    ] {
        let file = MemoryFile::alone("000007.table", Vec::new());
        let hasher = TableHasher::keyed([7; 16], 1);
        let options = TableOptions {
            block_bytes: 256,
            compression,
            second_filter,
            ..TableOptions::default()
        };
        let output = Arc::clone(&file) as Arc<dyn File>;
        let mut builder = TableBuilder::new(output, FILE_ID, hasher, options);
        for number in 0..24u64 {
            let key = format!("fruit/{number:04}");
            let value = [number as u8; 17];
            if number % 5 == 0 {
                builder.add(key.as_bytes(), 100 + number, ValueKind::Delete, b"")?;
            }
            builder.add(key.as_bytes(), 50 + number, ValueKind::Put, &value)?;
        }
        builder.add_tombstone(&RangeTombstone {
            start: b"fruit/0003".to_vec(),
            end: b"fruit/0007".to_vec(),
            sequence: 70,
        });
        builder.finish()?;
        let table = file.bytes();
        let parts = disassemble(&table).ok_or("the table cannot be taken apart")?;
        if assemble(umbel_fuzz::structured_input::Parts::new(&parts)) != table {
            return Err("a table taken apart and put together is another one".into());
        }
        write("table_open", &format!("parts-{name}"), &[&[0], &parts[..]].concat())?;
        write("table_open", &format!("raw-{name}"), &[&[1], &table[..]].concat())?;
    }
    Ok(())
}
