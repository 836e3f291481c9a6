//! Measures the cost of writing, reading and scanning a table in memory: for orientation, not for
//! claims.
//!
//! `cargo run --release -p umbel-table --example table_speed [entries] [compression]`

use std::sync::Arc;
use std::time::Instant;

use umbel_base::{Cursor, Result, ValueKind};
use umbel_env::memory_file::MemoryFile;
use umbel_table::{Compression, Table, TableBuilder, TableHasher, TableOptions, UnboundedCache};

#[expect(clippy::disallowed_methods, reason = "an example measures real time")]
fn timed<T>(what: &str, per: usize, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = work();
    println!("{what:<44} {:>8.1} ns", start.elapsed().as_nanos() as f64 / per as f64);
    result
}

fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ (mixed >> 31)
}

fn key(number: u64) -> [u8; 16] {
    (u128::from(mix(number)) << 64 | u128::from(mix(!number))).to_be_bytes()
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let count: usize = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(100_000);
    let compression = match arguments.next().as_deref() {
        Some("lz4") => Compression::Lz4,
        Some("zstd") => Compression::Zstd,
        _ => Compression::None,
    };
    let mut keys: Vec<[u8; 16]> = (0..count as u64).map(key).collect();
    keys.sort_unstable();
    let file = MemoryFile::default();
    let hasher = TableHasher::keyed([1; 16], 1);
    let options = TableOptions { compression, ..TableOptions::default() };
    let meta = timed("build, per entry", count, || {
        let mut builder = TableBuilder::new(Arc::new(file.clone()), 1, hasher, options);
        for (number, key) in keys.iter().enumerate() {
            builder.add(key, mix(number as u64) >> 40, ValueKind::Put, &[number as u8; 100])?;
        }
        builder.finish()
    })?;
    let overhead = meta.file_bytes as f64 / count as f64 - 116.0;
    println!("{:<44} {overhead:>8.2} bytes", "file, more than key and value, per entry");
    let cache = Arc::new(UnboundedCache);
    let table = Arc::new(Table::open(Arc::new(file), &meta, Some(&hasher), cache)?);
    println!(
        "{:<44} {:>8.2} bytes",
        "pinned, per entry",
        table.pinned_bytes() as f64 / count as f64
    );
    timed("walk without cache, per entry", count, || walk(&table, false))?;
    timed("first get of each key in order", count, || gets(&table, &hasher, &keys))?;
    let resident = table.slots().resident_bytes() as f64 / count as f64;
    println!("{:<44} {:>8.2} bytes", "cached blocks, per entry", resident);
    timed("walk in cache, per entry", count, || walk(&table, true))?;
    let mut order: Vec<[u8; 16]> =
        (0..count as u64).map(|n| keys[mix(n) as usize % count]).collect();
    for _ in 0..3 {
        timed("get, random, in cache", count, || gets(&table, &hasher, &order))?;
    }
    timed("seek, random, in cache", count, || {
        let mut cursor = table.cursor(true);
        order.iter().try_for_each(|key| cursor.seek(key, u64::MAX))
    })?;
    order.iter_mut().for_each(|key| key[15] ^= 1);
    timed("get of missing keys, filter not probed", count, || gets(&table, &hasher, &order))?;
    Ok(())
}

fn gets(table: &Table, hasher: &TableHasher, keys: &[[u8; 16]]) -> Result<usize> {
    let mut found = 0;
    for key in keys {
        let hash = hasher.keys.hash(key);
        let value = table.get_with(key, hash, u64::MAX, |_, _, value| usize::from(value[0]))?;
        found += value.unwrap_or(0);
    }
    Ok(std::hint::black_box(found))
}

fn walk(table: &Arc<Table>, fill_cache: bool) -> Result<usize> {
    let mut cursor = table.cursor(fill_cache);
    let mut sum = 0;
    cursor.seek_to_first()?;
    while cursor.valid() {
        sum += cursor.value().len() + usize::from(cursor.key()[15]);
        cursor.next()?;
    }
    Ok(std::hint::black_box(sum))
}
