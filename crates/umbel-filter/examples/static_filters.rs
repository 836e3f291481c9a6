//! Measures the filters that are built once, fuse and ribbon, on this machine:
//! `cargo run --release -p umbel-filter --example static_filters`.
//!
//! Prints bits and rate, and medians in nanoseconds: over three builds for each key, over many
//! chunks of queries for each probe. Arguments are numbers of keys; 100,000 and 30 million without.

use std::hint::black_box;
use std::time::Duration;
use umbel_filter::{BloomBuilder, BloomView, FuseArity, FuseBuilder, FuseView, ParsedBloom};
use umbel_filter::{RibbonBuilder, RibbonView};

const BUILDS: usize = 3;
const QUERIES: usize = 1 << 20;
const CHUNK: usize = 1 << 12;
const ROUNDS: usize = 5;

#[expect(clippy::disallowed_methods, reason = "an example measures real time")]
fn timed(work: impl FnOnce()) -> Duration {
    let start = std::time::Instant::now();
    work();
    start.elapsed()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// Evenly spread numbers, as good as hashes.
struct Numbers(u64);

impl Numbers {
    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}

/// The median over chunks of the nanoseconds for each query.
fn probe(hashes: &[u64], mut ask: impl FnMut(&[u64])) -> f64 {
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        for chunk in hashes.chunks(CHUNK) {
            times.push(timed(|| ask(chunk)));
        }
    }
    median(times).as_secs_f64() * 1e9 / CHUNK as f64
}

struct Queries<'a> {
    hashes: &'a [u64],
    present: Vec<u64>,
    absent: Vec<u64>,
}

/// Measures one kind of filter and prints a line.
fn measure(
    name: &str,
    queries: &Queries<'_>,
    build: impl Fn(Vec<u64>) -> Vec<u8>,
    contains: impl Fn(&[u8], &[u64]) -> usize,
    contains_batch: impl Fn(&[u8], &[u64], &mut [bool]),
) {
    let mut bytes = Vec::new();
    let builds = (0..BUILDS).map(|_| {
        let hashes = queries.hashes.to_vec();
        timed(|| bytes = build(hashes))
    });
    let build = median(builds.collect()).as_secs_f64() * 1e9 / queries.hashes.len() as f64;
    assert_eq!(contains(&bytes, &queries.present), QUERIES, "a false negative");
    let rate = contains(&bytes, &queries.absent) as f64 / QUERIES as f64;
    let mut found = [false; CHUNK];
    let single = |hashes: &[u64]| {
        probe(hashes, |chunk| {
            black_box(contains(&bytes, chunk));
        })
    };
    let (absent, present) = (single(&queries.absent), single(&queries.present));
    let mut batch = |hashes: &[u64]| {
        probe(hashes, |chunk| {
            contains_batch(&bytes, chunk, &mut found);
            black_box(&found);
        })
    };
    let (batch_absent, batch_present) = (batch(&queries.absent), batch(&queries.present));
    let per_key = bytes.len() as f64 * 8.0 / queries.hashes.len() as f64;
    println!(
        "{name:<18} {:>10} keys {per_key:7.3} bits {rate:9.3e} passed  build {build:6.1}  absent \
         {absent:6.2} present {present:6.2}  batch {batch_absent:6.2} {batch_present:6.2}",
        queries.hashes.len(),
    );
}

fn bloom(bytes: &[u8]) -> BloomView<'_> {
    match BloomView::parse(bytes) {
        ParsedBloom::Bloom(view) => view,
        other => panic!("what the builder wrote is a filter, not {other:?}"),
    }
}

fn fuse(bytes: &[u8]) -> FuseView<'_> {
    FuseView::parse(bytes).expect("what the builder wrote is a filter")
}

fn ribbon(bytes: &[u8]) -> RibbonView<'_> {
    RibbonView::parse(bytes).expect("what the builder wrote is a filter")
}

fn measure_all(keys: usize) {
    let mut numbers = Numbers(keys as u64);
    let hashes: Vec<u64> = (0..keys).map(|_| numbers.draw()).collect();
    let step = (keys / QUERIES).max(1);
    let present = (0..QUERIES).map(|at| hashes[at * step * 7 % keys]).collect();
    let absent = (0..QUERIES).map(|_| numbers.draw()).collect();
    let queries = Queries { hashes: &hashes, present, absent };
    measure(
        "blocked 10 bits",
        &queries,
        |hashes| {
            let mut builder = BloomBuilder::new(10);
            hashes.into_iter().for_each(|hash| builder.add(hash));
            builder.finish()
        },
        |bytes, hashes| {
            let view = bloom(bytes);
            hashes.iter().filter(|hash| view.may_contain(**hash)).count()
        },
        |bytes, hashes, found| {
            let view = bloom(bytes);
            hashes.iter().zip(found).for_each(|(hash, found)| *found = view.may_contain(*hash));
        },
    );
    for (bits, arity) in [
        (8, FuseArity::Three),
        (16, FuseArity::Three),
        (7, FuseArity::Three),
        (12, FuseArity::Three),
        (8, FuseArity::Four),
    ] {
        measure(
            &format!("fuse {} x {bits} bits", arity.slots()),
            &queries,
            |hashes| {
                let builder = FuseBuilder::from_hashes(bits, hashes).with_arity(arity);
                builder.finish().expect("random hashes peel")
            },
            |bytes, hashes| {
                let view = fuse(bytes);
                hashes.iter().filter(|hash| view.contains(**hash)).count()
            },
            |bytes, hashes, found| fuse(bytes).contains_batch(hashes, found),
        );
    }
    for (name, rate) in [
        ("1/4", 0.25),
        ("3 %", 0.03),
        ("1 %", 0.01),
        ("1/128", 1.0 / 128.0),
        ("1/256", 1.0 / 256.0),
        ("0.1 %", 0.001),
        ("1/65536", 1.0 / 65536.0),
    ] {
        measure(
            &format!("ribbon {name}"),
            &queries,
            |hashes| RibbonBuilder::from_hashes(rate, hashes).finish(),
            |bytes, hashes| {
                let view = ribbon(bytes);
                hashes.iter().filter(|hash| view.contains(**hash)).count()
            },
            |bytes, hashes, found| ribbon(bytes).contains_batch(hashes, found),
        );
    }
}

fn main() {
    let requested: Vec<usize> =
        std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    let sizes = if requested.is_empty() { vec![100_000, 30_000_000] } else { requested };
    sizes.into_iter().for_each(measure_all);
}
