//! Filters of every kind against the oracle; options that are refused; keys that are unusual.

use crate::Numbers;
use crate::kind_oracle::{Shape, every_kind};
use proptest::prelude::*;
use umbel_filter::{
    BloomBuilder, BuildError, Filter, FilterBuilder, FilterKind, FilterOptions, FilterSize,
    FilterView, Probing,
};

/// The encoded filter of these hashes.
pub fn build(options: FilterOptions, hashes: &[u64]) -> Vec<u8> {
    let mut builder = FilterBuilder::new(options).expect("good options");
    hashes.iter().for_each(|hash| builder.add(*hash));
    builder.finish().expect("sizes within reach")
}

fn view(bytes: &[u8]) -> FilterView<'_> {
    FilterView::parse(bytes).expect("it was built just now")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn every_kind_agrees_with_the_oracle(
        seed: u64,
        count in 1usize..300,
        size in prop_oneof![
            (0.1..40.0f64).prop_map(FilterSize::BitsPerKey),
            (0.1..1000.0f64).prop_map(FilterSize::BitsPerKey),
            (1e-4..0.9f64).prop_map(FilterSize::Rate),
        ],
        probes in prop_oneof![Just(None), (1..=24u32).prop_map(Some)],
        shift in 0usize..9,
    ) {
        for options in every_kind() {
            let probes = if options.kind == FilterKind::SplitBlock { None } else { probes };
            // One probe cannot reach a low rate.
            let size = match (size, probes) {
                (FilterSize::Rate(rate), Some(_)) => FilterSize::Rate(rate.max(0.3)),
                _ => size,
            };
            let options = FilterOptions { size, probes, seed_id: 3, hash_kind: 7, ..options };
            let mut numbers = Numbers(seed);
            let hashes: Vec<u64> = (0..count).map(|_| numbers.draw()).collect();
            let bytes = build(options, &hashes);
            prop_assert_eq!(bytes.len() as u64, options.bytes_for(count as u64).expect("checked"));
            let shape = Shape::of(&bytes);
            prop_assert!(bytes[64..] == shape.build(&hashes), "{:?}", shape);

            let mut moved = vec![0; shift];
            moved.extend_from_slice(&bytes);
            let owned = Filter::decode(&bytes).expect("it was built just now");
            prop_assert_eq!(owned.bytes(), &bytes);
            prop_assert!(owned.clone().bytes().as_ptr().addr().is_multiple_of(64));
            let view = view(&moved[shift..]);
            prop_assert_eq!(view.kind(), Some(options.kind));
            prop_assert_eq!((view.keys(), view.seed_id(), view.hash_kind()), (count as u64, 3, 7));
            prop_assert_eq!(view.probes(), shape.probes);

            let absent: Vec<u64> = (0..300).map(|_| numbers.draw()).collect();
            let probed = [hashes, absent].concat();
            let mut found = vec![false; probed.len()];
            view.contains_batch(&probed, &mut found);
            for (index, hash) in probed.into_iter().enumerate() {
                let expected = shape.contains(&bytes[64..], hash);
                prop_assert!(expected || index >= count, "a false negative");
                prop_assert_eq!(view.contains(hash), expected);
                prop_assert_eq!(owned.view().contains(hash), expected);
                prop_assert_eq!(found[index], expected, "{:?}", shape);
            }
        }
    }
}

#[test]
fn kind_1_equals_the_table_filter() {
    let mut numbers = Numbers(5);
    for bits_per_key in [1, 2, 10, 14, 100, 1000] {
        let hashes: Vec<u64> = (0..500).map(|_| numbers.draw()).collect();
        let mut builder = BloomBuilder::new(bits_per_key).with_seed_id(9);
        hashes.iter().for_each(|hash| builder.add(*hash));
        let size = FilterSize::BitsPerKey(f64::from(bits_per_key));
        let options = FilterOptions { size, seed_id: 9, ..FilterOptions::default() };
        assert!(build(options, &hashes) == builder.finish());
    }
}

#[test]
fn a_batch_needs_no_equal_lengths() {
    for options in every_kind() {
        let bytes = build(options, &[1, 2, 3]);
        let view = view(&bytes);
        let mut found = [false; 5];
        view.contains_batch(&[1, 77, 3], &mut found);
        assert_eq!(found, [true, view.contains(77), true, true, true]);
        let mut found = [false; 1];
        view.contains_batch(&[2, 3, 4], &mut found);
        assert_eq!(found, [true]);
        view.contains_batch(&[2], &mut []);
        view.contains_batch(&[], &mut []);
    }
    let mut found = [false; 2];
    FilterView::MAYBE.contains_batch(&[5], &mut found);
    assert_eq!(found, [true, true]);
}

#[test]
fn empty_and_duplicate_keys_are_accepted() {
    for options in every_kind() {
        let mut builder = FilterBuilder::new(options).expect("good options");
        assert!(builder.is_empty());
        assert_eq!(builder.clone().finish(), Ok(vec![]));
        for hash in [5, 5, 5, 8, 8, 5] {
            builder.add(hash);
        }
        let counts_all =
            options.probing == Probing::LevelDb || options.kind == FilterKind::Counting;
        let kept = if counts_all { 6 } else { 3 };
        assert_eq!(builder.len(), kept);
        let bytes = builder.finish().expect("a small filter");
        assert_eq!(view(&bytes).keys(), kept as u64);
        assert!(view(&bytes).contains(5) && view(&bytes).contains(8));

        let size = FilterSize::Rate(0.01);
        let alone = build(FilterOptions { size, ..options }, &[u64::MAX]);
        assert!(view(&alone).contains(u64::MAX));
        let same = build(options, &[0; 20_000]);
        assert!(view(&same).contains(0));
    }
}

#[test]
fn invalid_options_are_refused() {
    let refused = |options: FilterOptions| {
        let error = FilterBuilder::new(options).map(drop).expect_err("bad options");
        // As text, for NaN is not equal to itself.
        assert_eq!(options.bytes_for(10).map_err(|e| e.to_string()), Err(error.to_string()));
        assert!(!error.to_string().is_empty());
        error
    };
    let zero = |error| match error {
        BuildError::BitsPerKey { given } | BuildError::Rate { given } => given,
        other => panic!("{other}"),
    };
    for options in every_kind() {
        for given in [0.0, -0.0, -1.0, 1000.1, f64::INFINITY, f64::NEG_INFINITY, f64::NAN] {
            let size = FilterSize::BitsPerKey(given);
            let error = refused(FilterOptions { size, ..options });
            assert!(zero(error) == given || given.is_nan());
        }
        for given in [0.0, 1.0, -0.1, 2.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN] {
            let error = refused(FilterOptions { size: FilterSize::Rate(given), ..options });
            assert!(zero(error) == given || given.is_nan());
        }
        for given in [0, 256, u32::MAX] {
            let error = refused(FilterOptions { probes: Some(given), ..options });
            assert!(matches!(error, BuildError::Probes { .. }), "{error}");
        }
        for hash_kind in [0, 14, 255] {
            let error = refused(FilterOptions { hash_kind, ..options });
            assert_eq!(error, BuildError::HashKind { given: hash_kind });
        }
        if options.kind != FilterKind::Standard {
            let error = refused(FilterOptions { probing: Probing::LevelDb, ..options });
            assert_eq!(error, BuildError::Probing { kind: options.kind });
        }
    }
    for kind in [FilterKind::BinaryFuse, FilterKind::Ribbon] {
        let probes = Some(7);
        let error = refused(FilterOptions { kind, probes, ..FilterOptions::default() });
        assert_eq!(error, BuildError::NoProbes { kind });
    }
    let probing = Probing::LevelDb;
    let kind = FilterKind::Standard;
    refused(FilterOptions { kind, probing, probes: Some(31), ..FilterOptions::default() });
}

#[test]
fn oversized_filters_are_refused() {
    for options in every_kind() {
        let low = FilterOptions { size: FilterSize::Rate(1e-300), ..options };
        let error = low.bytes_for(1_000).expect_err("no filter is so good");
        assert!(matches!(error, BuildError::RateOutOfReach { .. }), "{error}");
        let size = FilterSize::BitsPerKey(1000.0);
        let error = FilterOptions { size, ..options }.bytes_for(u64::MAX).expect_err("too large");
        assert!(matches!(error, BuildError::TooLarge { .. }), "{error}");
        // 2^31 bits and more are ordinary.
        assert!(options.bytes_for(1 << 32).is_ok_and(|bytes| bytes > 5 << 30));
        let tiny = FilterOptions { size: FilterSize::BitsPerKey(1e-300), ..options };
        assert!(tiny.bytes_for(1 << 40).is_ok_and(|bytes| bytes <= 128));
    }
    // 30 million keys with 32 bits of hash let 0.7 % through whatever the size.
    let options = FilterOptions {
        kind: FilterKind::Standard,
        probing: Probing::LevelDb,
        size: FilterSize::Rate(0.005),
        ..FilterOptions::default()
    };
    assert!(matches!(options.bytes_for(30_000_000), Err(BuildError::RateOutOfReach { .. })));
    let hash_kind = 5;
    let probing = Probing::Multiplied;
    let options = FilterOptions { probing, hash_kind, ..options };
    assert!(matches!(options.bytes_for(30_000_000), Err(BuildError::RateOutOfReach { .. })));
    assert!(FilterOptions { hash_kind: 4, ..options }.bytes_for(30_000_000).is_ok());
}

#[test]
fn requested_rate_is_the_designed_rate() {
    let mut numbers = Numbers(8);
    let hashes: Vec<u64> = (0..20_000).map(|_| numbers.draw()).collect();
    for options in every_kind() {
        for requested in [0.5, 0.1, 0.03, 0.01, 0.001, 0.0001] {
            let bytes =
                build(FilterOptions { size: FilterSize::Rate(requested), ..options }, &hashes);
            let designed = view(&bytes).designed_rate();
            assert!(designed <= requested * 1.05, "{:?} at {requested}: {designed}", options.kind);
            let slack = if options.probing == Probing::LevelDb { 0.8 } else { 0.97 };
            assert!(designed >= requested * slack, "{:?} at {requested}: {designed}", options.kind);
        }
    }
}

/// Bits per key for a rate, computed independently: from the Poisson distribution of keys
/// over blocks, and for the textbook's filter by its formula. That model takes the expected share
/// of set bits of a block and is up to 1 % too small.
#[test]
fn space_for_a_rate_follows_theory() {
    for (kind, expected) in [
        (FilterKind::Standard, [6.24, 7.30, 9.59, 11.03, 14.38, 19.17]),
        (FilterKind::Counting, [6.24, 7.30, 9.59, 11.03, 14.38, 19.17]),
        (FilterKind::Blocked512, [6.31, 7.42, 9.90, 11.50, 15.49, 21.91]),
        (FilterKind::Blocked256, [6.37, 7.53, 10.18, 11.96, 16.57, 24.63]),
        (FilterKind::SplitBlock, [7.23, 8.20, 10.53, 12.20, 16.89, 26.34]),
    ] {
        for (rate, expected) in [0.05, 0.03, 0.01, 0.005, 0.001, 0.0001].into_iter().zip(expected) {
            let options =
                FilterOptions { kind, size: FilterSize::Rate(rate), ..Default::default() };
            let bytes = options.bytes_for(1_000_000).expect("a rate within reach") - 64;
            let per_unit = if kind == FilterKind::Counting { 2.0 } else { 8.0 };
            let found = bytes as f64 * per_unit / 1e6;
            let error = (found / expected - 1.0).abs();
            assert!(error < 0.015, "{kind} at {rate}: {found} bits per key, {expected} expected");
        }
    }
}

#[test]
fn names_and_numbers_are_unique() {
    for (index, kind) in FilterKind::ALL.into_iter().enumerate() {
        assert_eq!(usize::from(kind.number()), index + 1);
        assert_eq!(FilterKind::from_number(kind.number()), Some(kind));
        assert!(FilterKind::ALL.iter().filter(|other| other.name() == kind.name()).count() == 1);
        assert_eq!(kind.to_string(), kind.name());
    }
    assert!([0, 8, 255].iter().all(|number| FilterKind::from_number(*number).is_none()));
}
