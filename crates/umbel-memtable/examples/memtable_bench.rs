//! Times the memtable and `BTreeMap` on keys of several shapes, in nanoseconds per entry. The time
//! is processor time if the system reports it.
//!
//! `cargo run --release -p umbel-memtable --example memtable_bench [entries] [rounds] [shape]`
//!
//! `BTreeMap` has no versions and permits no concurrent readers, and its values are copies in
//! separate boxes. It serves as a point of reference.
#![expect(
    clippy::disallowed_methods,
    reason = "a benchmark measures the machine's own time, not a clock that tests own"
)]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;
use umbel_base::{Cursor, ValueKind};
use umbel_memtable::{Memtable, MemtableOptions};

type MakeKey = fn(u64) -> Vec<u8>;

const SHAPES: [(&str, MakeKey); 6] = [
    ("random", |n| [mix(n).to_be_bytes(), mix(!n).to_be_bytes()].concat()),
    ("decimal", |n| format!("{:016}", mix(n) % 10_000_000_000).into_bytes()),
    ("path", |n| {
        let (user, folder) = (mix(n) % 17, mix(n) / 17 % 211);
        format!(
            "/home/user{user}/projects/folder-{folder}/src/module_{}.rs",
            mix(!n) % 1_000_000_000
        )
        .into_bytes()
    }),
    ("url", |n| {
        let (host, section) = (mix(n) % 5, mix(n) / 5 % 97);
        let page = mix(!n) % 1_000_000_000;
        format!("https://www.example{host}.org/en/articles/{section}/page-{page}.html").into_bytes()
    }),
    ("category-id", |n| {
        let category = ["account", "cart", "customer", "invoice", "order"][(mix(n) % 5) as usize];
        format!("{category}-{:016x}", mix(!n)).into_bytes()
    }),
    ("ascending", |n| format!("{n:016}").into_bytes()),
];

/// A number that looks random (SplitMix64).
fn mix(n: u64) -> u64 {
    let mut mixed = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Returns the processor time of this thread in nanoseconds if Linux reports it, which other
/// processes affect less; otherwise the time since `start`.
fn now_ns(start: Instant) -> f64 {
    let statistics = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let run = statistics.and_then(|text| text.split(' ').next()?.parse().ok());
    run.unwrap_or_else(|| start.elapsed().as_nanos() as f64)
}

/// Runs `work` and returns nanoseconds per entry.
fn time<R>(entries: usize, work: impl FnOnce() -> R) -> (f64, R) {
    let start = Instant::now();
    let begin = now_ns(start);
    let result = black_box(work());
    ((now_ns(start) - begin) / entries as f64, result)
}

/// Times insert, get, missing get and scan of a memtable, and returns also its bytes per entry.
fn memtable(keys: &[Vec<u8>], order: &[usize], missing: &[Vec<u8>], value: &[u8]) -> [f64; 5] {
    let options = MemtableOptions { capacity_bytes: 128 << 20, bloom_bits: -1 };
    let memtable = Arc::new(Memtable::new(&options));
    let (insert, ()) = time(keys.len(), || {
        for (sequence, key) in keys.iter().enumerate() {
            memtable.insert(key, sequence as u64, ValueKind::Put, value, 0);
        }
    });
    let (get, sum) = time(keys.len(), || {
        let get = |&i: &usize| memtable.get(&keys[i], u64::MAX).map_or(0, |f| f.value[99] as usize);
        order.iter().map(get).sum::<usize>()
    });
    assert_eq!(sum, keys.len());
    let (miss, hits) = time(missing.len(), || {
        missing.iter().filter(|key| memtable.get(key, u64::MAX).is_some()).count()
    });
    assert_eq!(hits, 0);
    let (scan, count) = time(keys.len(), || {
        let mut cursor = memtable.cursor();
        let mut count = 0;
        let mut moved = cursor.seek_to_first();
        while cursor.valid() {
            count += usize::from(cursor.key().len() + usize::from(cursor.value()[99]) > 1);
            moved = cursor.next();
        }
        moved.expect("a memtable's cursor never fails");
        count
    });
    assert_eq!(count, keys.len());
    [insert, get, miss, scan, memtable.bytes() as f64 / keys.len() as f64]
}

/// Times insert, get, missing get and scan of a `BTreeMap`, and returns also its bytes per entry.
fn btree_map(keys: &[Vec<u8>], order: &[usize], missing: &[Vec<u8>], value: &[u8]) -> [f64; 4] {
    let (insert, map) = time(keys.len(), || {
        let mut map: BTreeMap<Box<[u8]>, Box<[u8]>> = BTreeMap::new();
        for key in keys {
            map.insert(key.as_slice().into(), value.into());
        }
        map
    });
    let (get, sum) = time(keys.len(), || {
        let get = |&i: &usize| map.get(keys[i].as_slice()).map_or(0, |value| value[99] as usize);
        order.iter().map(get).sum::<usize>()
    });
    assert_eq!(sum, keys.len());
    let (miss, hits) = time(missing.len(), || {
        missing.iter().filter(|key| map.contains_key(key.as_slice())).count()
    });
    assert_eq!(hits, 0);
    let (scan, count) =
        time(keys.len(), || map.iter().filter(|(k, v)| k.len() + usize::from(v[99]) > 1).count());
    assert_eq!(count, keys.len());
    [insert, get, miss, scan]
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

fn main() {
    let number = |n| std::env::args().nth(n).and_then(|text| text.parse::<usize>().ok());
    let (entries, rounds) = (number(1).unwrap_or(550_000), number(2).unwrap_or(3));
    println!("{entries} entries of 100-byte values, ns per entry, median of {rounds} rounds");
    println!("(memtable | BTreeMap)");
    let value = [1u8; 100];
    let only = std::env::args().nth(3);
    let wanted = |shape: &&(&str, MakeKey)| only.as_ref().is_none_or(|only| only == shape.0);
    for &(name, make) in SHAPES.iter().filter(wanted) {
        let mut keys: Vec<Vec<u8>> = (0..entries as u64).map(make).collect();
        let mut distinct = keys.clone();
        distinct.sort_unstable();
        if distinct.windows(2).any(|pair| pair[0] == pair[1]) {
            distinct.dedup();
            distinct.sort_by_cached_key(|key| key.iter().fold(0, |h, &b| mix(h ^ u64::from(b))));
            keys = distinct;
        }
        let missing: Vec<Vec<u8>> = keys.iter().map(|key| [key, &b"~"[..]].concat()).collect();
        let mut order: Vec<usize> = (0..keys.len()).collect();
        order.sort_by_key(|&index| mix(index as u64 ^ 0x5555));
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            ours.push(memtable(&keys, &order, &missing, &value));
            theirs.push(btree_map(&keys, &order, &missing, &value));
        }
        let our = |i: usize| median(ours.iter().map(|row| row[i]).collect());
        let their = |i: usize| median(theirs.iter().map(|row| row[i]).collect());
        println!(
            "{name:12} insert {:4.0} | {:4.0}   get {:4.0} | {:4.0}   missing {:4.0} | {:4.0}   \
             scan {:4.0} | {:4.0}   {:3.0} bytes per entry",
            our(0),
            their(0),
            our(1),
            their(1),
            our(2),
            their(2),
            our(3),
            their(3),
            our(4)
        );
    }
}
