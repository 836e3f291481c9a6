//! Measures the hash and the filters on this machine:
//! `cargo run --release -p umbel-filter --example filter_speed`.
//!
//! Prints the fastest of several rounds, in nanoseconds for each operation. An argument is the
//! size of the largest filter in millions of keys (default 40); each million takes 20 MB.

use std::hint::black_box;
use std::time::Duration;
use umbel_filter::{Bloom, BloomBuilder, ConcurrentBloom, HashSecret, hash_key};

const ROUNDS: u32 = 15;
const QUERIES: usize = 1 << 16;

/// Nanoseconds for each of `operations` operations in the fastest round.
fn fastest(operations: usize, mut round: impl FnMut()) -> f64 {
    let best = (0..ROUNDS).map(|_| timed(&mut round)).min().unwrap_or_default();
    best.as_secs_f64() * 1e9 / operations as f64
}

#[expect(clippy::disallowed_methods, reason = "an example measures real time")]
fn timed(round: &mut impl FnMut()) -> Duration {
    let start = std::time::Instant::now();
    round();
    start.elapsed()
}

fn hashes(secret: &HashSecret, from: u64, count: usize) -> Vec<u64> {
    (from..).take(count).map(|number| hash_key(secret, &number.to_be_bytes())).collect()
}

fn measure_hash(secret: &HashSecret) {
    for length in [8, 16, 36, 73, 147, 1000] {
        let bytes: Vec<u8> = (0..length + 256).map(|at| (at * 7) as u8).collect();
        let keys: Vec<&[u8]> = (0..256).map(|at| &bytes[at..at + length]).collect();
        let together = fastest(64 * keys.len(), || {
            for _ in 0..64 {
                for key in &keys {
                    black_box(hash_key(secret, black_box(key)));
                }
            }
        });
        let chained = fastest(64 * keys.len(), || {
            let mut last = 0;
            for _ in 0..64 * keys.len() {
                last = hash_key(secret, keys[last as usize % keys.len()]);
            }
            black_box(last);
        });
        println!("hash {length:>5} B   {together:6.2} independent {chained:6.2} chained");
    }
}

fn measure_filter(name: &str, bloom: &Bloom, present: &[u64], absent: &[u64]) {
    let mut found = vec![false; QUERIES];
    let one_by_one = |hashes: &[u64]| {
        fastest(hashes.len(), || {
            let passed = hashes.iter().filter(|hash| bloom.may_contain(**hash)).count();
            black_box(passed);
        })
    };
    let chained = fastest(absent.len(), || {
        let mut last = 0;
        for hash in absent {
            last = u64::from(bloom.may_contain(hash.wrapping_add(last)));
        }
        black_box(last);
    });
    let (negative, positive) = (one_by_one(absent), one_by_one(present));
    let batch = fastest(absent.len(), || bloom.contains_batch(absent, &mut found));
    println!(
        "{name} {:>9} KiB k={:<2} absent {negative:6.2} present {positive:6.2} \
         chained {chained:6.2} batch {batch:6.2}",
        bloom.bytes() / 1024,
        bloom.probes()
    );
}

fn main() {
    let secret = HashSecret::from_seed(*b"speed of filters");
    let large = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(40);
    measure_hash(&secret);
    let absent = hashes(&secret, 1 << 40, QUERIES);
    for bits_per_key in [5, 10, 16, 30, 100] {
        for keys in [QUERIES, 100_000, 1_000_000, large * 1_000_000] {
            if keys > 1_000_000 && bits_per_key != 10 {
                continue;
            }
            let mut builder = BloomBuilder::new(bits_per_key);
            hashes(&secret, 0, keys).into_iter().for_each(|hash| builder.add(hash));
            let mut builder = Some(builder);
            let mut encoded = Vec::new();
            let built = timed(&mut || {
                encoded = builder.take().map_or_else(Vec::new, BloomBuilder::finish);
            });
            let bloom = Bloom::decode(&encoded).expect("what the builder wrote is a filter");
            let step = (keys / QUERIES).max(1) as u64;
            let present: Vec<u64> = (0..QUERIES as u64)
                .map(|number| hash_key(&secret, &(number * step).to_be_bytes()))
                .collect();
            let name = format!("{bits_per_key:>4} bits {keys:>9} keys");
            measure_filter(&name, &bloom, &present, &absent);
            println!("     built in {:6.2} a key", built.as_secs_f64() * 1e9 / keys as f64);
        }
    }
    let shared = ConcurrentBloom::new(1_000_000, 10);
    let all = hashes(&secret, 0, 1_000_000);
    let mut insert = || all.iter().for_each(|hash| shared.insert(*hash));
    let first = timed(&mut insert).as_secs_f64() * 1e9 / all.len() as f64;
    let again = fastest(all.len(), &mut insert);
    let absent_ns = fastest(absent.len(), || {
        black_box(absent.iter().filter(|hash| shared.may_contain(**hash)).count());
    });
    let alone = ConcurrentBloom::new(1_000_000, 10);
    let single = timed(&mut || all.iter().for_each(|hash| alone.insert_unshared(*hash)));
    println!("insert alone {:6.2}", single.as_secs_f64() * 1e9 / all.len() as f64);
    println!("concurrent: insert {first:6.2}, insert again {again:6.2}, absent {absent_ns:6.2}");
}
