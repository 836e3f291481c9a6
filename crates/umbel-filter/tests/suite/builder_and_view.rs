//! Every kind through the one builder and the one view: no key is denied, rates and sizes are those
//! that were planned.

use crate::Numbers;
use umbel_filter::{
    BuildError, FilterBuilder, FilterKind, FilterOptions, FilterPlan, FilterSize, FilterView,
};

fn options(kind: FilterKind, size: FilterSize) -> FilterOptions {
    FilterOptions { kind, size, seed_id: 9, hash_kind: 1, ..FilterOptions::default() }
}

fn build(options: FilterOptions, hashes: &[u64]) -> Vec<u8> {
    let mut builder = FilterBuilder::new(options).expect("it is right");
    hashes.iter().for_each(|hash| builder.add(*hash));
    builder.finish().expect("it is right")
}

#[test]
fn no_kind_has_a_false_negative() {
    let mut numbers = Numbers(1);
    let random: Vec<u64> = (0..5000).map(|_| numbers.draw()).collect();
    let inputs: [Vec<u64>; 6] = [
        vec![0],
        vec![u64::MAX, 0],
        vec![7; 3000],
        (0..3000).collect(),
        (0..3000).map(|number| number << 48).collect(),
        random,
    ];
    for kind in FilterKind::ALL {
        for size in [FilterSize::BitsPerKey(10.0), FilterSize::Rate(0.01)] {
            for hashes in &inputs {
                let bytes = build(options(kind, size), hashes);
                let view = FilterView::parse(&bytes).expect("it is right");
                assert_eq!((view.kind(), view.seed_id(), view.hash_kind()), (Some(kind), 9, 1));
                let mut found = vec![false; hashes.len()];
                view.contains_batch(hashes, &mut found);
                assert!(found.iter().all(|found| *found), "{kind}");
                assert!(hashes.iter().all(|hash| view.contains(*hash)), "{kind}");
            }
            assert_eq!(build(options(kind, size), &[]), [], "{kind}: no keys, no bytes");
        }
    }
}

#[test]
fn every_kind_matches_its_plan() {
    let mut numbers = Numbers(2);
    let hashes: Vec<u64> = (0..20_000).map(|_| numbers.draw()).collect();
    let absent: Vec<u64> = (0..400_000).map(|_| numbers.draw()).collect();
    for kind in FilterKind::ALL {
        for size in [5.0, 8.0, 10.0]
            .map(FilterSize::BitsPerKey)
            .into_iter()
            .chain([0.05, 0.01, 0.002].map(FilterSize::Rate))
        {
            let options = options(kind, size);
            let plan = FilterPlan::of(&options, hashes.len() as u64).expect("it is right");
            let bytes = build(options, &hashes);
            // A ribbon's parts are whole blocks, a fuse filter's second seed has more slots.
            let apart = plan.bytes.abs_diff(bytes.len() as u64) as f64 / plan.bytes as f64;
            assert!(apart <= if kind.is_static() { 0.05 } else { 0.0 }, "{kind} {size:?}");
            let view = FilterView::parse(&bytes).expect("it is right");
            let (designed, planned) = (view.designed_rate(), plan.designed_rate);
            assert!((designed / planned - 1.0).abs() < 0.02, "{kind} {size:?}");
            if let FilterSize::Rate(rate) = size {
                assert!(designed <= rate * 1.05, "{kind}: {designed} for {rate}");
            }
            if let (FilterSize::BitsPerKey(bits), false) = (size, kind == FilterKind::Counting) {
                let taken = (bytes.len() - 64) as f64 * 8.0 / hashes.len() as f64;
                assert!(taken <= (bits * 1.02).max(5.3), "{kind}: {taken} bits for {bits}");
            }
            let mut found = vec![false; absent.len()];
            view.contains_batch(&absent, &mut found);
            let passed = found.iter().filter(|found| **found).count() as f64;
            let expected = designed * absent.len() as f64;
            let far = (passed - expected).abs();
            assert!(
                far < (expected * 0.05).max(4.0 * expected.sqrt()),
                "{kind} {size:?}: {passed}"
            );
            for (hash, found) in absent.iter().zip(found).take(2000) {
                assert_eq!(view.contains(*hash), found, "{kind}");
            }
        }
    }
}

#[test]
fn static_kinds_refuse_impossible_options() {
    for (kind, least) in
        [(FilterKind::BinaryFuse, 2f64.powi(-16)), (FilterKind::Ribbon, 2f64.powi(-32))]
    {
        let low = options(kind, FilterSize::Rate(least / 2.0));
        let error = low.bytes_for(1000).expect_err("it is refused");
        assert_eq!(error, BuildError::RateOutOfReach { given: least / 2.0, lowest: least });
        assert_eq!(FilterPlan::of(&low, 1000).expect_err("it is refused"), error);
        // Too few bits for the kind give the fewest that it has, not an error.
        let few =
            FilterPlan::of(&options(kind, FilterSize::BitsPerKey(0.1)), 1000).expect("it is right");
        assert!(few.designed_rate <= 0.5, "{kind}");
        let many = FilterPlan::of(&options(kind, FilterSize::BitsPerKey(1000.0)), 1000)
            .expect("it is right");
        assert_eq!(many.designed_rate, least, "{kind}");
    }
}
