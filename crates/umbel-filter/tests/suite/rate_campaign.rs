//! The campaign: every kind, with ten thousand, a million and a hundred million keys of five
//! shapes. The rate is compared with theory, the space with publications, and each key must be
//! found.
//!
//! `cargo test --release -p umbel-filter --test suite -- --ignored --nocapture every_kind_up_to`
//! prints a table, line by line.

use crate::hash_quality::{MakeKey, SHAPES};
use umbel_filter::{
    BuildError, FilterKind, FilterOptions, FilterPlan, FilterSize, FilterView, FuseArity,
    FuseBuilder, HashSecret, Probing, hash_key,
};

/// Requested rate of kinds that can have any.
const RATE: f64 = 0.01;
/// Number of absent keys that are probed, in all filters of the same number and shape of keys.
const QUERIES: u64 = 5_000_000;
/// Keys of one batch of probes.
const TOGETHER: usize = 1 << 12;

/// Structure that is built from the hashes.
#[derive(Clone, Copy)]
enum Structure {
    Kind(FilterKind, Probing),
    Fuse(FuseArity, u32),
}

struct Contestant {
    name: &'static str,
    structure: Structure,
    /// Bits for each key at this rate, as published: `reference/filters.md` has them for 1 %, and
    /// for fuse filters the bits for each bit of fingerprint. `None` for a filter without a
    /// publication.
    bits: Option<f64>,
}

const fn of_kind(name: &'static str, kind: FilterKind, bits: f64) -> Contestant {
    Contestant { name, structure: Structure::Kind(kind, Probing::Enhanced), bits: Some(bits) }
}

const fn fuse(name: &'static str, arity: FuseArity, bits: u32, factor: f64) -> Contestant {
    Contestant { name, structure: Structure::Fuse(arity, bits), bits: Some(bits as f64 * factor) }
}

const CONTESTANTS: [Contestant; 12] = [
    of_kind("blocked-512", FilterKind::Blocked512, 9.90),
    of_kind("blocked-256", FilterKind::Blocked256, 10.18),
    of_kind("standard", FilterKind::Standard, 9.59),
    Contestant {
        name: "standard, multiplied",
        structure: Structure::Kind(FilterKind::Standard, Probing::Multiplied),
        bits: Some(9.59),
    },
    Contestant {
        name: "standard, LevelDB's probing",
        structure: Structure::Kind(FilterKind::Standard, Probing::LevelDb),
        bits: Some(9.59),
    },
    of_kind("split-block", FilterKind::SplitBlock, 10.53),
    Contestant {
        name: "counting",
        structure: Structure::Kind(FilterKind::Counting, Probing::Multiplied),
        bits: Some(4.0 * 9.59),
    },
    of_kind("ribbon", FilterKind::Ribbon, 7.31),
    fuse("fuse, 3 of 4 bits", FuseArity::Three, 4, 1.125),
    fuse("fuse, 3 of 8 bits", FuseArity::Three, 8, 1.125),
    fuse("fuse, 4 of 8 bits", FuseArity::Four, 8, 1.075),
    fuse("fuse, 4 of 16 bits", FuseArity::Four, 16, 1.075),
];

impl Contestant {
    fn build(&self, hashes: &[u64]) -> Vec<u8> {
        match self.structure {
            Structure::Kind(kind, probing) => {
                let probing =
                    if kind == FilterKind::Standard { probing } else { Probing::default() };
                let size = FilterSize::Rate(RATE);
                crate::kinds::build(
                    FilterOptions { kind, probing, size, ..FilterOptions::default() },
                    hashes,
                )
            }
            Structure::Fuse(arity, bits) => {
                let builder = FuseBuilder::from_hashes(bits, hashes.to_vec()).with_arity(arity);
                builder.finish().expect("it peels")
            }
        }
    }

    /// Parses the filter, and checks its kind and its designed rate.
    fn view<'a>(&self, bytes: &'a [u8], keys: u64) -> FilterView<'a> {
        let view = FilterView::parse_known(bytes).expect("it was built just now");
        let (kind, rate) = match self.structure {
            Structure::Kind(kind, _) => (kind, RATE),
            Structure::Fuse(_, bits) => (FilterKind::BinaryFuse, (-f64::from(bits)).exp2()),
        };
        assert_eq!((view.kind(), view.keys()), (Some(kind), keys));
        let designed = view.designed_rate();
        assert!((0.9..1.05).contains(&(designed / rate)), "{}: {designed}", self.name);
        view
    }

    /// Whether the probing is LevelDB's, whose rate is above the theoretical rate, see
    /// [`Probing::LevelDb`].
    fn is_leveldb(&self) -> bool {
        matches!(self.structure, Structure::Kind(_, Probing::LevelDb))
    }

    /// Whether no filter of the kind has the rate with this number of keys: LevelDB's hash has 32
    /// bits, and keys collide too often. Such options are refused.
    fn is_out_of_reach(&self, keys: u64) -> bool {
        let is = self.is_leveldb() && keys as f64 / 2f64.powi(32) > RATE;
        if is {
            let (size, kind, probing) =
                (FilterSize::Rate(RATE), FilterKind::Standard, Probing::LevelDb);
            let plan =
                FilterPlan::of(&FilterOptions { size, kind, probing, ..Default::default() }, keys);
            assert!(matches!(plan, Err(BuildError::RateOutOfReach { .. })), "{plan:?}");
        }
        is
    }

    fn compare(&self, shape: &str, sum: &Sum) {
        let Sum { keys, filters, bytes, queries, passed, expected } = *sum;
        let (designed, measured) = (expected / queries as f64, passed as f64 / queries as f64);
        let off = (measured / designed - 1.0) * 100.0;
        let bits = 8.0 * bytes as f64 / (keys * filters) as f64;
        println!(
            "| {keys} | {shape} | {} | {designed:.4e} | {measured:.4e} | {off:+.2} % | {bits:.2} |",
            self.name
        );
        let error = (passed as f64 - expected).abs();
        if self.is_leveldb() {
            assert!((0.95..2.2).contains(&(measured / designed)), "{measured} of {designed}");
        } else {
            let error_max = (expected * 0.05).max(3.0 * expected.sqrt() + 1.0);
            assert!(error <= error_max, "{}: {passed} passed of {expected:.1}", self.name);
        }
        // Small fuse filters take more, as every implementation's do.
        if let Some(published) = self.bits.filter(|_| keys >= 1_000_000) {
            assert!(bits <= published * 1.02, "{}: {bits:.3} bits, {published}", self.name);
        }
    }
}

/// Measured totals of filters of the same number and shape of keys.
#[derive(Clone, Copy, Default)]
struct Sum {
    keys: u64,
    filters: u64,
    bytes: usize,
    queries: u64,
    passed: u64,
    /// Expected number of passing keys.
    expected: f64,
}

fn found(view: &FilterView<'_>, hashes: &[u64]) -> u64 {
    let mut answers = [false; TOGETHER];
    let mut all = 0;
    for hashes in hashes.chunks(TOGETHER) {
        let answers = &mut answers[..hashes.len()];
        view.contains_batch(hashes, answers);
        all += answers.iter().filter(|answer| **answer).count() as u64;
    }
    all
}

#[test]
#[ignore = "about twenty minutes and 6 GB with --release"]
fn every_kind_up_to_a_hundred_million_keys() {
    let sequential: (&str, MakeKey) = ("sequential", |number| format!("{number:016}").into_bytes());
    let [integers, random, prefix, uuid, _] = SHAPES;
    println!("| keys | shape | kind | designed rate | measured | off by | bits per key |");
    println!("|---|---|---|---|---|---|---|");
    // Theory gives the average over all hashes. A single small filter deviates more from it than
    // the tolerance permits.
    for (keys, filters) in [(10_000u64, 100u8), (1_000_000, 1), (100_000_000, 1)] {
        for (shape, make) in [sequential, integers, random, prefix, uuid] {
            let mut sums =
                [Sum { keys, filters: filters.into(), ..Sum::default() }; CONTESTANTS.len()];
            for filter in 0..filters {
                let secret = HashSecret::from_seed([filter; 16]);
                let hash = |number| hash_key(&secret, &make(number));
                let hashes: Vec<u64> = (0..keys).map(hash).collect();
                let absent = keys..keys + QUERIES / u64::from(filters);
                let absent: Vec<u64> = absent.map(hash).collect();
                for (contestant, sum) in CONTESTANTS.iter().zip(&mut sums) {
                    if contestant.is_out_of_reach(keys) {
                        continue;
                    }
                    let bytes = contestant.build(&hashes);
                    let view = contestant.view(&bytes, keys);
                    assert_eq!(found(&view, &hashes), keys, "{} denies a key", contestant.name);
                    assert!(hashes.iter().step_by(97).all(|hash| view.contains(*hash)));
                    let passed = found(&view, &absent);
                    let expected = view.designed_rate() * absent.len() as f64;
                    // One by one and at once are different code.
                    let single = absent.iter().filter(|hash| view.contains(**hash)).count();
                    assert_eq!(single as u64, passed, "{}", contestant.name);
                    let bound = if contestant.is_leveldb() { 3.0 } else { 1.5 } * expected;
                    assert!(passed as f64 <= bound + 6.0 * expected.sqrt() + 6.0, "one is bad");
                    sum.passed += passed;
                    sum.queries += absent.len() as u64;
                    sum.expected += expected;
                    sum.bytes += bytes.len();
                }
            }
            for (contestant, sum) in CONTESTANTS.iter().zip(&sums) {
                if contestant.is_out_of_reach(keys) {
                    println!("| {keys} | {shape} | {} | out of reach | | | |", contestant.name);
                } else {
                    contestant.compare(shape, sum);
                }
            }
        }
    }
}
