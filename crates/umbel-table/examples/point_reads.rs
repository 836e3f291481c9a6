//! Point reads of one table whose blocks are all cached, on keys of several shapes. A tool counts
//! their instructions, or the program times them:
//!
//! ```text
//! point_reads random 550000 200000
//! valgrind --tool=callgrind --toggle-collect='*point_reads*counted*' point_reads url 300000 20000
//! ```

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Instant;

use umbel_base::{Result, ValueKind};
use umbel_env::memory_file::MemoryFile;
use umbel_table::{Table, TableBuilder, TableHasher, TableOptions, UnboundedCache};

fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ (mixed >> 31)
}

fn key(shape: &str, number: u64) -> Vec<u8> {
    let mixed = mix(number);
    let mut text = String::new();
    let written = match shape {
        "decimal" => write!(text, "{:016}", number * 2),
        "path" => write!(
            text,
            "/home/user{}/projects/project-{}/src/module_{}/file_{}.rs",
            mixed % 7,
            (mixed >> 8) % 50,
            (mixed >> 20) % 40,
            number
        ),
        "url" => write!(
            text,
            "https://www.example{}.org/articles/{}/{:08x}?page={}",
            mixed % 300,
            (mixed >> 9) % 1000,
            mixed >> 32,
            number % 10
        ),
        "category" => write!(
            text,
            "{}-{:010}",
            ["customer", "invoice", "order", "shipment", "cart"][(mixed % 5) as usize],
            number
        ),
        _ => return (u128::from(mixed) << 64 | u128::from(mix(!number))).to_be_bytes().to_vec(),
    };
    written.expect("a string takes everything");
    text.into_bytes()
}

#[expect(clippy::disallowed_methods, reason = "an example measures real time")]
fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, usual| words.get(at).and_then(|w| w.parse().ok()).unwrap_or(usual);
    let shape = words.first().map_or("random", String::as_str);
    let (count, reads) = (number(1, 550_000u64), number(2, 200_000u64));
    let mut keys: Vec<Vec<u8>> = (0..count).map(|number| key(shape, number)).collect();
    keys.sort_unstable();
    keys.dedup();
    let file = MemoryFile::default();
    let hasher = TableHasher::keyed([1; 16], 1);
    let options = TableOptions::default();
    let mut builder = TableBuilder::new(Arc::new(file.clone()), 1, hasher, options);
    for (number, key) in keys.iter().enumerate() {
        builder.add(key, mix(number as u64) >> 40, ValueKind::Put, &[number as u8; 100])?;
    }
    let meta = builder.finish()?;
    let table =
        Arc::new(Table::open(Arc::new(file), &meta, Some(&hasher), Arc::new(UnboundedCache))?);
    // In an order of its own, so that blocks do not lie in memory as they do in the file.
    let mut order: Vec<&Vec<u8>> = keys.iter().collect();
    order.sort_by_cached_key(|key| hasher.keys.hash(key));
    let all = order.iter().map(|key| (hasher.keys.hash(key), *key)).collect::<Vec<_>>();
    measured(&table, &all)?;
    let picked: Vec<(u64, &Vec<u8>)> =
        (0..reads).map(|n| all[(mix(n + 7) % all.len() as u64) as usize]).collect();
    let mut best = (f64::MAX, 0);
    for _ in 0..if reads < 100_000 { 1 } else { 7 } {
        let start = Instant::now();
        let sum = counted(&table, &picked)?;
        best = (best.0.min(start.elapsed().as_nanos() as f64 / reads as f64), sum);
    }
    println!(
        "{shape} {count} keys, {} blocks: {:.1} ns, {:.2} pinned and {:.2} cached bytes each, {}",
        meta.blocks,
        best.0,
        table.pinned_bytes() as f64 / count as f64,
        table.slots().resident_bytes() as f64 / count as f64,
        best.1
    );
    Ok(())
}

/// Measured code: never inlined, so that counting can begin and end with it.
#[inline(never)]
fn counted(table: &Table, keys: &[(u64, &Vec<u8>)]) -> Result<usize> {
    measured(table, keys)
}

fn measured(table: &Table, keys: &[(u64, &Vec<u8>)]) -> Result<usize> {
    let mut found = 0;
    for (hash, key) in keys {
        let value = table.get_with(key, *hash, u64::MAX, |_, _, value| usize::from(value[99]))?;
        found += value.unwrap_or(0);
    }
    Ok(std::hint::black_box(found))
}
