//! Ribbon filters against their oracle: rates, sizes, damage, hashes of all shapes, golden files.

use crate::{Numbers, golden_files, hash_shapes, ribbon_oracle as bloom_oracle};
use proptest::prelude::*;
use umbel_filter::{FilterError, HEADER_BYTES, RibbonBuilder, RibbonView};

fn build(hashes: &[u64], rate: f64) -> Vec<u8> {
    RibbonBuilder::from_hashes(rate, hashes.to_vec()).finish()
}

fn random(seed: u64, count: usize) -> Vec<u64> {
    let mut numbers = Numbers(seed);
    (0..count).map(|_| numbers.draw()).collect()
}

/// Checks that both readers and the oracle give the same answers.
fn compare(bytes: &[u8], view: &RibbonView<'_>, probed: &[u64]) -> Vec<bool> {
    let mut found = vec![false; probed.len()];
    view.contains_batch(probed, &mut found);
    for (hash, found) in probed.iter().zip(&found) {
        assert_eq!(*found, bloom_oracle::contains(bytes, *hash), "hash {hash:#x}");
        assert_eq!(*found, view.contains(*hash), "hash {hash:#x}");
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_multiset_of_hashes_has_a_false_negative(
        hashes in hash_shapes(),
        rate in prop_oneof![1e-3..0.6f64, 1e-10..1e-3f64, Just(0.0), Just(f64::NAN), Just(1.0)],
        shift in 0usize..9,
        seed: u64,
    ) {
        let mut moved = vec![0; shift];
        moved.extend_from_slice(&build(&hashes, rate));
        let view = RibbonView::parse(&moved[shift..]).unwrap();
        let probed = [hashes.clone(), random(seed, 100)].concat();
        let found = compare(&moved[shift..], &view, &probed);
        prop_assert!(found[..hashes.len()].iter().all(|found| *found), "a false negative");
        prop_assert!(view.keys() <= hashes.len() as u64);
    }

    #[test]
    fn nothing_panics_on_any_bytes(
        words in proptest::collection::vec(any::<u64>(), 0..60),
        cut in 0usize..8,
        columns in 0u8..36,
        lower in prop_oneof![0u32..70_000, Just(0), Just(65_536)],
        parts in prop_oneof![0u32..9, any::<u32>()],
        blocks in 0u64..20,
        last in 0u64..20,
        first in 0u64..80,
    ) {
        let mut bytes = vec![0; 64];
        bytes[..8].copy_from_slice(b"uFLT\x06\x01\x01\x00");
        bytes[16..24].copy_from_slice(&(blocks * 64).to_le_bytes());
        bytes[28] = columns;
        bytes[30..34].copy_from_slice(&parts.to_le_bytes());
        bytes[34..38].copy_from_slice(&lower.to_le_bytes());
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        let at = 64 + parts as usize * 8;
        if parts > 0 && at <= bytes.len() {
            bytes[at - 8..at].copy_from_slice(&(first << 24 | last << 8 | 3).to_le_bytes());
        }
        bytes.truncate(bytes.len() - if cut == 1 { 1 } else { 0 });
        if let Ok(view) = RibbonView::parse(&bytes) {
            compare(&bytes, &view, &[0, 1, u64::MAX / 2, u64::MAX]);
            prop_assert!((0.0..=1.0).contains(&view.designed_rate()));
        }
    }
}

/// Measured and designed rates agree within a twentieth, or four standard deviations. With three,
/// one in ten runs would fail, because there are many comparisons.
fn check_rate(view: &RibbonView<'_>, bytes: usize, numbers: &mut Numbers, queries: usize) {
    let passed = (0..queries).filter(|_| view.contains(numbers.draw())).count() as f64;
    let expected = view.designed_rate() * queries as f64;
    let error = (passed - expected).abs();
    let per_key = bytes as f64 * 8.0 / view.keys() as f64;
    println!(
        "{} keys: {per_key:.3} bits a key, {:.3} times the bound; designed {:.4e}, measured {:.4e}",
        view.keys(),
        per_key / -view.designed_rate().log2(),
        view.designed_rate(),
        passed / queries as f64,
    );
    assert!(error <= (expected * 0.05).max(4.0 * expected.sqrt()), "{passed} for {expected}");
}

const RATES: [f64; 12] =
    [0.5, 0.3, 0.25, 0.05, 0.03, 0.01, 1.0 / 128.0, 0.005, 1.0 / 256.0, 0.003, 1e-3, 1e-4];

#[test]
fn requested_designed_and_measured_rates_agree() {
    let mut numbers = Numbers(61);
    for rate in RATES {
        let bytes = build(&random((rate * 1e6) as u64, 10_000), rate);
        let view = RibbonView::parse(&bytes).unwrap();
        assert!((view.designed_rate() / rate - 1.0).abs() < 0.01, "{}", view.designed_rate());
        check_rate(&view, bytes.len(), &mut numbers, 200_000);
    }
}

/// The rate of many columns is too low to measure, but no single column may be wrong.
#[test]
fn filters_of_many_columns_pass_no_absent_key() {
    for rate in [1e-5, 1e-6, 1e-8, 0.0] {
        let hashes = random(71, 3_000);
        let bytes = build(&hashes, rate);
        let view = RibbonView::parse(&bytes).unwrap();
        assert!(hashes.iter().all(|hash| view.contains(*hash)));
        let passed = random(72, 50_000).iter().filter(|hash| view.contains(**hash)).count();
        assert!(passed <= 4, "{passed} pass at {rate}");
    }
}

/// Consecutive and clustered hashes, as bad hash functions make them.
#[test]
fn unmixed_hashes_have_the_same_rate() {
    for shift in [0, 8, 24, 44] {
        let hashes: Vec<u64> = (0..40_000).map(|at| at << shift).collect();
        let bytes = build(&hashes, 1.0 / 256.0);
        let view = RibbonView::parse(&bytes).unwrap();
        let passed = (40_000..540_000u64).filter(|at| view.contains(at << shift)).count() as f64;
        let expected = view.designed_rate() * 500_000.0;
        assert!((passed - expected).abs() <= expected * 0.1, "{shift}: {passed} for {expected}");
    }
}

#[test]
fn sizes_are_as_documented() {
    for (keys, factor_max) in [(0, 0.0), (100, 2.12), (1_000, 1.18), (5_000, 1.065), (16_384, 1.05)]
    {
        let builder = RibbonBuilder::from_hashes(1.0 / 128.0, random(5, keys));
        let expected = builder.expected_bytes(keys as u64);
        let bytes = builder.finish();
        assert_eq!(bytes.len() as u64, expected);
        let bound = 7.0 * keys as f64 / 8.0;
        let found = (bytes.len() - HEADER_BYTES) as f64 / bound;
        println!("{keys} keys: {found:.3} times the bound");
        assert!(keys == 0 || found <= factor_max, "{keys} keys: {found} times the bound");
    }
    assert!(RibbonBuilder::new(0.01).expected_bytes(u64::MAX) > 1 << 30);
}

#[test]
#[cfg_attr(debug_assertions, ignore = "seconds without --release")]
fn a_million_keys_have_the_documented_size_and_rate() {
    let mut numbers = Numbers(63);
    let hashes = random(64, 1_000_000);
    for rate in RATES {
        let bytes = build(&hashes, rate);
        let view = RibbonView::parse(&bytes).unwrap();
        assert!(hashes.iter().all(|hash| view.contains(*hash)));
        check_rate(&view, bytes.len(), &mut numbers, 4_000_000);
        let bound = -view.designed_rate().log2();
        // Between whole numbers of columns a mixture of two takes up to 0.086 bits more.
        let per_key = bytes.len() as f64 * 8.0 / 1e6;
        assert!(per_key <= 1.05 * (bound + 0.0861), "{per_key} bits a key, the bound is {bound}");
    }
}

#[test]
fn zero_one_and_two_keys_work() {
    for keys in 0..6 {
        let hashes = random(9, keys);
        let bytes = build(&hashes, 1.0 / 16.0);
        let view = RibbonView::parse(&bytes).unwrap();
        assert!(hashes.iter().all(|hash| view.contains(*hash)));
        assert_eq!((view.keys(), view.slots(), view.columns()), (keys as u64, 128, 4.0));
        assert!(random(10, 1000).iter().filter(|hash| view.contains(**hash)).count() < 120);
    }
}

/// Repeated hashes that are not consecutive do not make a part overfull.
#[test]
fn many_equal_hashes_are_deduplicated() {
    let once = random(11, 3_000);
    let bytes = build(&[once.as_slice(), once.as_slice(), once.as_slice()].concat(), 0.01);
    let view = RibbonView::parse(&bytes).unwrap();
    assert!(once.iter().all(|hash| view.contains(*hash)));
    assert_eq!((view.keys(), bytes.len()), (3_000, build(&once, 0.01).len()));
    let same = build(&vec![7; 100_000], 0.01);
    let view = RibbonView::parse(&same).unwrap();
    assert!(view.contains(7) && view.keys() == 1);
    compare(&same, &view, &random(12, 50));
}

#[test]
fn builders_count_and_record_the_hash() {
    let mut builder = RibbonBuilder::new(0.01).with_seed_id(77).with_hash_kind(3);
    assert!(builder.is_empty());
    [5, 5, 8].into_iter().for_each(|hash| builder.add(hash));
    assert_eq!((builder.len(), builder.is_empty()), (2, false));
    let bytes = builder.finish();
    let view = RibbonView::parse(&bytes).unwrap();
    assert_eq!((view.keys(), view.seed_id(), view.hash_kind()), (2, 77, 3));
    let (mut few, mut many) = ([false; 1], [true; 3]);
    view.contains_batch(&[5, 8], &mut few);
    view.contains_batch(&[5, 8], &mut many);
    assert_eq!((few, many), ([true], [true; 3]));
}

#[test]
fn damaged_header_fields_are_classified() {
    let whole = build(&random(3, 20), 0.01);
    let damaged = |at: usize, value: u8| {
        let mut bytes = whole.clone();
        bytes[at] = value;
        RibbonView::parse(&bytes).map(drop)
    };
    let reason = |result: Result<(), FilterError>| match result {
        Err(FilterError::Malformed { reason }) => reason,
        other => panic!("not malformed: {other:?}"),
    };
    for at in 0..4 {
        assert!(reason(damaged(at, 0)).contains("magic"));
    }
    for (at, value, unknown) in [(4, 5, (5, 1, 1)), (5, 9, (6, 9, 1)), (6, 14, (6, 1, 14))] {
        let (kind, version, hash_kind) = unknown;
        let error = FilterError::Unknown { kind, version, hash_kind };
        assert!(error.means_maybe());
        assert_eq!(damaged(at, value), Err(error));
    }
    for at in [7, 29, 38, 63] {
        assert!(reason(damaged(at, 1)).contains("reserved"));
    }
    for at in 16..24 {
        assert!(reason(damaged(at, 0xf1)).contains("slots"));
    }
    assert!(reason(damaged(28, 33)).contains("columns"));
    assert!(reason(damaged(28, 8)).contains("slots"));
    assert!(reason(damaged(37, 1)).contains("columns"));
    for (at, value) in [(30, 0), (30, 99), (33, 255)] {
        assert!(reason(damaged(at, value)).contains("parts"));
    }
    for (at, value) in [(65, 0), (65, 9), (67, 1)] {
        assert!(reason(damaged(at, value)).contains("slots"));
    }
    assert_eq!(RibbonView::parse(&[]).map(drop), Err(FilterError::Empty));
    for length in 1..whole.len() {
        assert!(!reason(RibbonView::parse(&whole[..length]).map(drop)).is_empty());
    }
    let longer = [whole.clone(), vec![0; 8]].concat();
    assert!(reason(RibbonView::parse(&longer).map(drop)).contains("slots"));
}

/// Each flipped bit gives an error, or a filter that answers by its bytes.
#[test]
fn every_flipped_bit_is_handled() {
    for rate in [0.02, 1e-4] {
        let whole = build(&random(4, 60), rate);
        for bit in 0..whole.len() * 8 {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let Ok(view) = RibbonView::parse(&bytes) else { continue };
            compare(&bytes, &view, &random(5, 10));
        }
    }
    // With several parts, only the last one is checked when the filter is parsed.
    let whole = build(&random(4, 60_000), 0.05);
    let probed = random(5, 64);
    for bit in 0..8 * (HEADER_BYTES + 4 * 8) {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let Ok(view) = RibbonView::parse(&bytes) else { continue };
        compare(&bytes, &view, &probed);
    }
}

/// FORMAT: these bytes are in existing files. If this test fails, the format has changed and needs
/// a new version number.
#[test]
fn golden_filters_are_written_and_read() {
    for (name, keys, rate) in [
        ("ribbon-128th-none", 0, 1.0 / 128.0),
        ("ribbon-hundredth-one", 1, 0.01),
        ("ribbon-hundredth-hundred", 100, 0.01),
        ("ribbon-1e-4-hundred", 100, 1e-4),
        ("ribbon-third-of-40000", 40_000, 1.0 / 3.0),
    ] {
        let hashes = random(0x600d, keys);
        let built = RibbonBuilder::from_hashes(rate, hashes.clone()).with_seed_id(7).finish();
        let bytes = golden_files::check(name, &built);
        let view = RibbonView::parse(&bytes).unwrap();
        assert_eq!((view.keys(), view.seed_id()), (keys as u64, 7));
        assert!(hashes.iter().all(|hash| view.contains(*hash)));
    }
}

/// The example of the format page.
#[test]
fn example_of_the_format_page_matches() {
    let hashes = [0x7010_ed72_4425_1ba6, 0x7db7_a87e_5826_fc8c, 0x8778_15cd_0567_0902];
    let bytes = RibbonBuilder::from_hashes(0.2, hashes.to_vec()).with_seed_id(7).finish();
    assert_eq!(
        bytes,
        golden_files::unhex(
            "75464c5406010100030000000000000080000000000000000700000002000100 \
         00009a9900000000000000000000000000000000000000000000000000000000 \
         00020000000000004103ede1247ff05b6bc6a66cf1ffe44943e5910563f56553 \
         834afe8307a25e8b54906312acfba1d6af3595148144d698",
        )
    );
    assert!(!RibbonView::parse(&bytes).unwrap().contains(0x300c_0e9a_9c34_6680));
}
