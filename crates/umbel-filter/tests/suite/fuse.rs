//! Fuse filters against their oracle: rates, sizes, damage, hashes of all shapes, golden files.

use crate::{Numbers, fuse_oracle as bloom_oracle, golden_files, hash_shapes};
use proptest::prelude::*;
use umbel_filter::{FilterError, FuseArity, FuseBuilder, FuseView, HEADER_BYTES, PeelingError};

const ARITIES: [FuseArity; 2] = [FuseArity::Three, FuseArity::Four];

fn build(hashes: &[u64], bits: u32, arity: FuseArity) -> Vec<u8> {
    FuseBuilder::from_hashes(bits, hashes.to_vec()).with_arity(arity).finish().expect("it peels")
}

fn random(seed: u64, count: usize) -> Vec<u64> {
    let mut numbers = Numbers(seed);
    (0..count).map(|_| numbers.draw()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_multiset_of_hashes_has_a_false_negative(
        hashes in hash_shapes(),
        bits in 4u32..=16,
        four: bool,
        shift in 0usize..9,
        seed: u64,
    ) {
        let arity = ARITIES[usize::from(four)];
        let bytes = build(&hashes, bits, arity);
        let mut moved = vec![0; shift];
        moved.extend_from_slice(&bytes);
        let view = FuseView::parse(&moved[shift..]).unwrap();
        let mut different = hashes.clone();
        different.sort_unstable();
        different.dedup();
        prop_assert_eq!(view.keys(), different.len() as u64);
        prop_assert_eq!((view.fingerprint_bits(), view.arity()), (bits, arity));
        prop_assert!(bytes == build(&different, bits, arity), "the order of hashes shows");

        let probed = [hashes.clone(), random(seed, 100)].concat();
        let mut found = vec![false; probed.len()];
        view.contains_batch(&probed, &mut found);
        for (index, hash) in probed.into_iter().enumerate() {
            let expected = bloom_oracle::contains(&bytes, hash);
            prop_assert!(expected || index >= hashes.len(), "a false negative");
            prop_assert_eq!(view.contains(hash), expected);
            prop_assert_eq!(found[index], expected);
        }
    }

    #[test]
    fn nothing_panics_on_any_bytes(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        valid_head: bool,
        arity in 2u8..6,
        segment_log in 0u8..24,
        bits in 3u8..18,
        units in 0u64..600,
    ) {
        let mut bytes = bytes;
        if valid_head && bytes.len() >= 64 {
            bytes[..8].copy_from_slice(&[b'u', b'F', b'L', b'T', 5, 1, 1, bits]);
            bytes[16..24].copy_from_slice(&units.to_le_bytes());
            bytes[32..34].copy_from_slice(&[arity, segment_log]);
            bytes[34..64].fill(0);
        }
        if let Ok(view) = FuseView::parse(&bytes) {
            for hash in [0, 1, u64::MAX / 2, u64::MAX] {
                prop_assert_eq!(view.contains(hash), bloom_oracle::contains(&bytes, hash));
            }
            prop_assert!((0.0..=1.0).contains(&view.designed_rate()));
        }
    }
}

/// The slots of keys that peel are independent. What does not peel may still be independent, which
/// is why it is tried again with another seed, but never the other way round.
#[test]
fn parallel_builds_are_independent() {
    let (mut dependent, mut at_once) = (0, 0);
    for seed in 0..300 {
        let hashes = random(seed, 3 + seed as usize % 40);
        for arity in ARITIES {
            let bytes = build(&hashes, 8, arity);
            let attempt = bloom_oracle::number(&bytes[28..32]) as u32;
            let units = bloom_oracle::number(&bytes[16..24]);
            let (log, slots) = (u32::from(bytes[33]), u64::from(arity.slots()));
            let place = |hash: &u64| {
                bloom_oracle::slots(bloom_oracle::key(*hash, attempt), slots, log, units)
            };
            let rows: Vec<Vec<u64>> = hashes.iter().map(place).collect();
            assert!(bloom_oracle::are_independent(&rows));
            at_once += u32::from(attempt == 0);
            dependent += u32::from(attempt > 0);
        }
    }
    assert!(at_once > 5 * dependent, "{dependent} of 600 needed another seed");
}

/// Measured and designed rates agree within a twentieth, or four standard deviations. With three,
/// one in ten runs would fail, because there are many comparisons.
fn check_rate(view: &FuseView<'_>, numbers: &mut Numbers, queries: usize) {
    let passed = (0..queries).filter(|_| view.contains(numbers.draw())).count() as f64;
    let expected = view.designed_rate() * queries as f64;
    let error = (passed - expected).abs();
    println!(
        "{} keys, {} bits, {:?}: {:.3} bits a key, designed {:.4e}, measured {:.4e}",
        view.keys(),
        view.fingerprint_bits(),
        view.arity(),
        view.slots() as f64 * f64::from(view.fingerprint_bits()) / view.keys() as f64,
        view.designed_rate(),
        passed / queries as f64,
    );
    assert!(error <= (expected * 0.05).max(4.0 * expected.sqrt()), "{passed} for {expected}");
}

#[test]
fn the_designed_rate_is_the_measured_rate() {
    let mut numbers = Numbers(51);
    for arity in ARITIES {
        for bits in 4..=16 {
            let bytes = build(&random(u64::from(bits), 10_000), bits, arity);
            check_rate(&FuseView::parse(&bytes).unwrap(), &mut numbers, 300_000);
        }
    }
}

/// Consecutive and clustered hashes, as bad hash functions make them.
#[test]
fn unmixed_hashes_have_the_same_rate() {
    for shift in [0, 8, 24, 44] {
        let hashes: Vec<u64> = (0..20_000).map(|at| at << shift).collect();
        let bytes = build(&hashes, 8, FuseArity::Three);
        let view = FuseView::parse(&bytes).unwrap();
        let passed = (20_000..520_000u64).filter(|at| view.contains(at << shift)).count() as f64;
        let expected = view.designed_rate() * 500_000.0;
        assert!((passed - expected).abs() <= expected * 0.1, "{shift}: {passed} for {expected}");
    }
}

/// Large filters have the share of slots that theory requires, and small ones what they need.
#[test]
fn sizes_are_as_documented() {
    let slots_per_key = |keys: usize, arity| {
        let bytes = build(&random(7, keys), 8, arity);
        let builder = FuseBuilder::new(8).with_arity(arity);
        assert_eq!(builder.expected_bytes(keys as u64), Some(bytes.len() as u64));
        FuseView::parse(&bytes).unwrap().slots() as f64 / keys as f64
    };
    for (keys, three, four) in [(100, 2.0, 2.0), (1_000, 1.45, 1.45), (10_000, 1.28, 1.26)] {
        let found = (slots_per_key(keys, ARITIES[0]), slots_per_key(keys, ARITIES[1]));
        println!("{keys} keys: {found:?} slots a key");
        assert!(found.0 <= three && found.1 <= four, "{keys} keys: {found:?}");
    }
    assert_eq!(FuseBuilder::new(16).expected_bytes(u64::MAX), None);
}

#[test]
#[cfg_attr(debug_assertions, ignore = "seconds without --release")]
fn a_million_keys_have_the_documented_size_and_rate() {
    let mut numbers = Numbers(53);
    let hashes = random(54, 1_000_000);
    for (arity, factor_max) in [(FuseArity::Three, 1.125 * 1.02), (FuseArity::Four, 1.075 * 1.02)] {
        for bits in [4, 7, 8, 10, 16] {
            let bytes = build(&hashes, bits, arity);
            let view = FuseView::parse(&bytes).unwrap();
            assert!(hashes.iter().all(|hash| view.contains(*hash)));
            check_rate(&view, &mut numbers, 4_000_000);
            let per_key = bytes.len() as f64 * 8.0 / 1e6;
            assert!(per_key <= f64::from(bits) * factor_max, "{per_key} bits a key");
        }
    }
}

#[test]
fn zero_one_and_two_keys_work() {
    for arity in ARITIES {
        for keys in 0..6 {
            let hashes = random(9, keys);
            let bytes = build(&hashes, 4, arity);
            let view = FuseView::parse(&bytes).unwrap();
            assert!(hashes.iter().all(|hash| view.contains(*hash)));
            assert!(bytes.len() <= HEADER_BYTES + 24, "{} bytes", bytes.len());
            assert!(random(10, 1000).iter().filter(|hash| view.contains(**hash)).count() < 120);
        }
    }
}

#[test]
fn failed_build_returns_the_hashes() {
    let error = FuseBuilder::from_hashes(8, vec![1, 2, 3]).with_attempts(0).finish().unwrap_err();
    assert!(error.to_string().contains("3 hashes") && format!("{error:?}").contains('3'));
    assert_eq!(PeelingError::into_hashes(error), [1, 2, 3]);
}

#[test]
fn builders_count_and_record_the_hash() {
    let mut builder = FuseBuilder::new(99).with_seed_id(77).with_hash_kind(3);
    assert!(builder.is_empty());
    [5, 5, 8, 5].into_iter().for_each(|hash| builder.add(hash));
    assert_eq!((builder.len(), builder.is_empty()), (3, false));
    let bytes = builder.finish().unwrap();
    let view = FuseView::parse(&bytes).unwrap();
    assert_eq!((view.keys(), view.seed_id(), view.hash_kind()), (2, 77, 3));
    assert_eq!(view.fingerprint_bits(), 16);
    let (mut few, mut many) = ([false; 1], [true; 3]);
    view.contains_batch(&[5, 8], &mut few);
    view.contains_batch(&[5, 8], &mut many);
    assert_eq!((few, many), ([true], [true; 3]));
}

#[test]
fn damaged_header_fields_are_classified() {
    let whole = build(&random(3, 20), 9, FuseArity::Three);
    let damaged = |at: usize, value: u8| {
        let mut bytes = whole.clone();
        bytes[at] = value;
        FuseView::parse(&bytes).map(drop)
    };
    let reason = |result: Result<(), FilterError>| match result {
        Err(FilterError::Malformed { reason }) => reason,
        other => panic!("not malformed: {other:?}"),
    };
    for at in 0..4 {
        assert!(reason(damaged(at, 0)).contains("magic"));
    }
    for (at, value, unknown) in [(4, 1, (1, 1, 1)), (5, 9, (5, 9, 1)), (6, 14, (5, 1, 14))] {
        let (kind, version, hash_kind) = unknown;
        let error = FilterError::Unknown { kind, version, hash_kind };
        assert!(error.means_maybe());
        assert_eq!(damaged(at, value), Err(error));
    }
    assert!(damaged(6, 0).is_err_and(|error| error.means_maybe()));
    assert!(reason(damaged(7, 3)).contains("4 to 16"));
    assert!(reason(damaged(7, 17)).contains("4 to 16"));
    assert!(reason(damaged(7, 16)).contains("length"));
    for at in 16..24 {
        assert!(reason(damaged(at, 0xf1)).contains("slots"));
    }
    for arity in [0, 2, 5, 255] {
        assert!(reason(damaged(32, arity)).contains("neither 3 nor 4"));
    }
    for log in [19, 64, 255] {
        assert!(reason(damaged(33, log)).contains("too long"));
    }
    for at in 34..HEADER_BYTES {
        assert!(reason(damaged(at, 1)).contains("reserved"));
    }
    assert!(reason(damaged(whole.len() - 1, 1)).contains("after"));
    assert_eq!(FuseView::parse(&[]).map(drop), Err(FilterError::Empty));
    for length in 1..whole.len() {
        assert!(!reason(FuseView::parse(&whole[..length]).map(drop)).is_empty());
    }
    let mut longer = whole.clone();
    longer.push(0);
    assert!(reason(FuseView::parse(&longer).map(drop)).contains("length"));
}

/// Each flipped bit gives an error, or a filter that answers by its bytes.
#[test]
fn every_flipped_bit_is_handled() {
    for arity in ARITIES {
        let whole = build(&random(4, 60), 7, arity);
        for bit in 0..whole.len() * 8 {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let Ok(view) = FuseView::parse(&bytes) else { continue };
            let probed = random(5, 20);
            let mut found = vec![false; probed.len()];
            view.contains_batch(&probed, &mut found);
            for (hash, found) in probed.iter().zip(found) {
                assert_eq!(found, bloom_oracle::contains(&bytes, *hash), "bit {bit}");
                assert_eq!(found, view.contains(*hash), "bit {bit}");
            }
        }
    }
}

/// FORMAT: these bytes are in existing files. If this test fails, the format has changed and needs
/// a new version number.
#[test]
fn golden_filters_are_written_and_read() {
    for (name, keys, bits, arity) in [
        ("fuse-3x8-none", 0, 8, FuseArity::Three),
        ("fuse-3x8-one", 1, 8, FuseArity::Three),
        ("fuse-3x7-hundred", 100, 7, FuseArity::Three),
        ("fuse-3x16-hundred", 100, 16, FuseArity::Three),
        ("fuse-4x11-hundred", 100, 11, FuseArity::Four),
        ("fuse-4x4-thousand", 1000, 4, FuseArity::Four),
    ] {
        let hashes = random(0x600d, keys);
        let builder = FuseBuilder::from_hashes(bits, hashes.clone()).with_arity(arity);
        let built = builder.with_seed_id(7).finish().unwrap();
        let bytes = golden_files::check(name, &built);
        let view = FuseView::parse(&bytes).unwrap();
        assert_eq!((view.keys(), view.seed_id()), (keys as u64, 7));
        assert!(hashes.iter().all(|hash| view.contains(*hash)));
    }
}

/// The example of the format page.
#[test]
fn example_of_the_format_page_matches() {
    let hashes = [0x7010_ed72_4425_1ba6, 0x7db7_a87e_5826_fc8c, 0x8778_15cd_0567_0902];
    let bytes = FuseBuilder::from_hashes(8, hashes.to_vec()).with_seed_id(7).finish().unwrap();
    assert_eq!(
        bytes,
        golden_files::unhex(
            "75464c5405010108030000000000000010000000000000000700000000000000 \
         0302000000000000000000000000000000000000000000000000000000000000 \
         00680000000000950000000000d000000000000000000000",
        )
    );
    assert!(!FuseView::parse(&bytes).unwrap().contains(0x300c_0e9a_9c34_6680));
}
