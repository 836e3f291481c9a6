//! Vector code gives the same answers as the portable code.

use super::InstructionSet;
use crate::blocked_bloom::bloom_filter::Bloom;
use crate::build::filter_builder::FilterBuilder;
use crate::build::filter_options::FilterOptions;
use crate::build::filter_size::FilterSize;
use crate::filter::filter_view::FilterView;
use crate::format::filter_kind::FilterKind;
use std::cell::Cell;

thread_local! {
    /// Whether this thread must not use the processor's vector instructions.
    pub(super) static PORTABLE: Cell<bool> = const { Cell::new(false) };
    /// Whether it is to do without vectors that count the bits of their lanes.
    pub(super) static WITHOUT_LANES: Cell<bool> = const { Cell::new(false) };
}

fn portably<T>(work: impl FnOnce() -> T) -> T {
    PORTABLE.set(true);
    let result = work();
    PORTABLE.set(false);
    result
}

fn without_lanes<T>(work: impl FnOnce() -> T) -> T {
    WITHOUT_LANES.set(true);
    let result = work();
    WITHOUT_LANES.set(false);
    result
}

/// The suite compares this processor's path with the oracle. Here that path is compared
/// with those of processors without AVX-512 or AVX2.
#[test]
fn portable_code_agrees() {
    let mut state = 9u64;
    let mut draw = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb)
    };
    let kinds = [
        FilterKind::Blocked512,
        FilterKind::Blocked256,
        FilterKind::SplitBlock,
        FilterKind::Ribbon,
    ];
    // Few keys, and more than the processor's cache holds.
    // Ribbons with eight columns and less, and with more.
    let sizes = [(1usize, 40.0), (40, 10.0), (600, 3.0), (20_000, 6.4), (300_000, 9.0)];
    for (keys, size) in sizes {
        let hashes: Vec<u64> = (0..keys).map(|_| draw()).collect();
        let queried: Vec<u64> =
            hashes.iter().copied().take(500).chain((0..2_001).map(|_| draw())).collect();
        for kind in kinds {
            for probes in 1..=24 {
                // A kind that leaves no choice is probed once.
                let choice = kind.most_probes().map(|_| probes);
                if choice.is_none() && probes != 8 || keys > 1_000 && probes % 8 != 0 {
                    continue;
                }
                let options = FilterOptions {
                    kind,
                    size: FilterSize::BitsPerKey(size),
                    probes: choice,
                    ..FilterOptions::default()
                };
                let mut builder = FilterBuilder::new(options).expect("good options");
                hashes.iter().for_each(|hash| builder.add(*hash));
                let bytes = builder.finish().expect("a small filter");
                let answers = || {
                    let view = FilterView::parse(&bytes).expect("it was built just now");
                    let mut found = vec![false; queried.len()];
                    view.contains_batch(&queried, &mut found);
                    let single: Vec<bool> =
                        queried.iter().map(|hash| view.contains(*hash)).collect();
                    assert!(found == single, "{kind}, {probes} probes");
                    if let Ok(bloom) = Bloom::decode(&bytes) {
                        bloom.contains_batch(&queried, &mut found);
                        let of_bloom = queried.iter().map(|hash| bloom.may_contain(*hash));
                        assert!(found == single && of_bloom.eq(single), "{probes} probes");
                    }
                    found
                };
                assert!(answers() == portably(answers), "{kind}, {probes} probes");
                assert!(answers() == without_lanes(answers), "{kind}, {probes} probes");
            }
        }
    }
}

#[test]
fn processor_features_are_detected() {
    let portable = portably(InstructionSet::of_this_processor);
    assert_eq!(portable, InstructionSet::Portable);
    if cfg!(target_arch = "aarch64") {
        assert_eq!(InstructionSet::of_this_processor(), InstructionSet::Neon);
    }
}
