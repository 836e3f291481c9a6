//! Measures the filters of every kind on this machine:
//! `cargo run --release -p umbel-filter --example kind_speed`.
//!
//! Prints the fastest of several rounds, in nanoseconds a probe, for absent and for present keys,
//! one by one and in batches; and of building, which includes sizing. Arguments are numbers of
//! keys, 10000, 1000000 and 40000000 without.

use std::hint::black_box;
use std::time::Duration;
use umbel_filter::{
    Filter, FilterBuilder, FilterKind, FilterOptions, FilterView, HashSecret, InstructionSet,
    Probing, hash_key,
};

const ROUNDS: u32 = 15;
const QUERIES: usize = 1 << 16;

/// Nanoseconds for each of `operations` operations in the fastest round.
fn fastest(rounds: u32, operations: usize, mut round: impl FnMut()) -> f64 {
    let best = (0..rounds).map(|_| timed(&mut round)).min().unwrap_or_default();
    best.as_secs_f64() * 1e9 / operations as f64
}

#[expect(clippy::disallowed_methods, reason = "an example measures real time")]
fn timed(round: &mut impl FnMut()) -> Duration {
    let start = std::time::Instant::now();
    round();
    start.elapsed()
}

fn one_by_one(view: &FilterView<'_>, hashes: &[u64]) -> f64 {
    fastest(ROUNDS, hashes.len(), || {
        let passed = hashes.iter().filter(|hash| view.contains(**hash)).count();
        black_box(passed);
    })
}

fn batch(view: &FilterView<'_>, hashes: &[u64]) -> f64 {
    let mut found = vec![false; hashes.len()];
    fastest(ROUNDS, hashes.len(), || view.contains_batch(hashes, black_box(&mut found)))
}

fn measure(options: FilterOptions, keys: &[u64], absent: &[u64], present: &[u64]) {
    let build = || {
        let mut builder = FilterBuilder::new(options).expect("good options");
        keys.iter().for_each(|hash| builder.add(*hash));
        builder.finish().expect("memory for the filter")
    };
    let building = fastest(3, keys.len(), || {
        black_box(build());
    });
    let filter = Filter::decode(&build()).expect("it was built just now");
    let view = filter.view();
    println!(
        "{:12} {:11} {:>9} keys k={:<2} single absent {:6.2} present {:6.2} batch absent {:6.2} \
         present {:6.2} build {building:6.2}",
        options.kind.name(),
        format!("{:?}", options.probing),
        keys.len(),
        view.probes(),
        one_by_one(&view, absent),
        one_by_one(&view, present),
        batch(&view, absent),
        batch(&view, present),
    );
}

fn main() {
    println!("{:?}", InstructionSet::of_this_processor());
    let mut sizes: Vec<usize> =
        std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    if sizes.is_empty() {
        sizes = vec![10_000, 1_000_000, 40_000_000];
    }
    let secret = HashSecret::from_seed(*b"speed of filters");
    let hash = |number: u64| hash_key(&secret, &number.to_be_bytes());
    for count in sizes {
        let keys: Vec<u64> = (0..count as u64).map(hash).collect();
        let absent: Vec<u64> = (1 << 60..).take(QUERIES).map(hash).collect();
        // Strewn over all keys, so that no two neighbours were added together.
        let present: Vec<u64> =
            (0..QUERIES).map(|at| keys[at.wrapping_mul(0x9e37_79b1) % keys.len()]).collect();
        for (kind, probing) in [
            (FilterKind::Blocked512, Probing::Multiplied),
            (FilterKind::Blocked256, Probing::Multiplied),
            (FilterKind::SplitBlock, Probing::Multiplied),
            (FilterKind::Standard, Probing::Multiplied),
            (FilterKind::Standard, Probing::Enhanced),
            (FilterKind::Standard, Probing::LevelDb),
            (FilterKind::Counting, Probing::Multiplied),
        ] {
            let options = FilterOptions { kind, probing, ..FilterOptions::default() };
            measure(options, &keys, &absent, &present);
        }
    }
}
