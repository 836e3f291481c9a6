//! Builder, owned filter and view against the oracle; the golden bytes; damage.

use crate::{Numbers, bloom_oracle, build};
use proptest::prelude::*;
use umbel_filter::{
    Bloom, BloomBuilder, BloomView, FilterError, HEADER_BYTES, HashSecret, ParsedBloom, hash_key,
    line_count, probes,
};

fn view(bytes: &[u8]) -> BloomView<'_> {
    match BloomView::parse(bytes) {
        ParsedBloom::Bloom(view) => view,
        other => panic!("no filter: {other:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn all_readers_agree_with_the_oracle(
        seed: u64,
        count in 1usize..400,
        bits_per_key in prop_oneof![1..40i32, 1..=1000i32],
        shift in 0usize..9,
    ) {
        let mut numbers = Numbers(seed);
        let hashes: Vec<u64> = (0..count).map(|_| numbers.draw()).collect();
        let bytes = build(hashes.iter().copied(), bits_per_key);
        let lines = line_count(count as u64, bits_per_key);
        prop_assert!(bytes == bloom_oracle::build(&hashes, lines, probes(bits_per_key) as u8));

        let bloom = Bloom::decode(&bytes).expect("it was built just now");
        let mut moved = vec![0; shift];
        moved.extend_from_slice(&bytes);
        let view = view(&moved[shift..]);
        prop_assert_eq!((bloom.keys(), bloom.lines()), (count as u64, lines));
        prop_assert_eq!((view.keys(), view.lines()), (count as u64, lines));
        prop_assert_eq!(bloom.designed_rate(), view.designed_rate());
        prop_assert_eq!(bloom.to_bytes(), &moved[shift..]);

        let absent: Vec<u64> = (0..500).map(|_| numbers.draw()).collect();
        let probed = [hashes, absent].concat();
        let mut found = vec![false; probed.len()];
        bloom.contains_batch(&probed, &mut found);
        for (index, hash) in probed.into_iter().enumerate() {
            let expected = bloom_oracle::may_contain(&bytes, hash);
            prop_assert!(expected || index >= count, "a false negative");
            prop_assert_eq!(bloom.may_contain(hash), expected);
            prop_assert_eq!(view.may_contain(hash), expected);
            prop_assert_eq!(found[index], expected);
        }
    }

    #[test]
    fn nothing_panics_on_any_bytes(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        valid_head: bool,
        lines in 0u64..6,
    ) {
        let mut bytes = bytes;
        if valid_head && bytes.len() >= 64 {
            bytes[..8].copy_from_slice(b"uFLT\x01\x01\x01\x06");
            bytes[16..24].copy_from_slice(&lines.to_le_bytes());
            bytes[28..64].fill(0);
        }
        let decoded = Bloom::decode(&bytes);
        match BloomView::parse(&bytes) {
            ParsedBloom::Bloom(view) => {
                let bloom = decoded.expect("a view is as strict");
                for hash in [0, 1, u64::MAX / 2, u64::MAX] {
                    prop_assert_eq!(view.may_contain(hash), bloom.may_contain(hash));
                }
            }
            ParsedBloom::Maybe => prop_assert!(decoded.is_err_and(|error| error.means_maybe())),
            ParsedBloom::Malformed(error) => prop_assert_eq!(decoded.err(), Some(error)),
        }
    }
}

/// The example of the format page.
fn herbs() -> Vec<u8> {
    let secret = HashSecret::from_seed(std::array::from_fn(|index| index as u8));
    let mut builder = BloomBuilder::new(10).with_seed_id(7);
    for key in ["basil", "mint", "sage"] {
        builder.add(hash_key(&secret, key.as_bytes()));
    }
    builder.finish()
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        text.bytes().filter_map(|digit| char::from(digit).to_digit(16)).map(|d| d as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// FORMAT: these bytes are in existing files. If this test fails, the format has changed and needs
/// a new version number.
#[test]
fn the_golden_filter_is_written_and_read() {
    let golden = unhex(
        "75464c5401010106030000000000000001000000000000000700000000000000 \
         0000000000000000000000000000000000000000000000000000000000000000 \
         0004010000010000100800800020000000000000008000000000000000000000 \
         0000000000000000002040041001000000000000000008000084000000020001",
    );
    assert_eq!(herbs(), golden);
    let view = view(&golden);
    assert_eq!((view.keys(), view.lines(), view.probes(), view.seed_id()), (3, 1, 6, 7));
    let secret = HashSecret::from_seed(std::array::from_fn(|index| index as u8));
    for (key, expected) in
        [("basil", true), ("mint", true), ("sage", true), ("thyme", false), ("", false)]
    {
        assert_eq!(view.may_contain(hash_key(&secret, key.as_bytes())), expected, "{key}");
    }
}

#[test]
fn damaged_header_fields_are_classified() {
    let whole = herbs();
    let damaged = |at: usize, value: u8| {
        let mut bytes = whole.clone();
        bytes[at] = value;
        Bloom::decode(&bytes).map(drop)
    };
    let reason = |result: Result<(), FilterError>| match result {
        Err(FilterError::Malformed { reason }) => reason,
        other => panic!("not malformed: {other:?}"),
    };
    for at in 0..4 {
        assert!(reason(damaged(at, 0)).contains("magic"));
    }
    for (at, unknown) in [(4, (9, 1, 1)), (5, (1, 9, 1)), (6, (1, 1, 9))] {
        let (kind, version, hash_kind) = unknown;
        let error = FilterError::Unknown { kind, version, hash_kind };
        assert_eq!(damaged(at, 9), Err(error));
        assert!(error.means_maybe() && error.to_string().contains('9'));
        let mut bytes = whole.clone();
        bytes[at] = 9;
        assert!(matches!(BloomView::parse(&bytes), ParsedBloom::Maybe));
    }
    assert!(reason(damaged(7, 0)).contains("probes"));
    assert!(reason(damaged(7, 25)).contains("probes"));
    for (at, value) in [(16, 0), (16, 2), (23, 1)] {
        assert!(reason(damaged(at, value)).contains("lines"));
    }
    for at in 28..HEADER_BYTES {
        assert!(reason(damaged(at, 1)).contains("reserved"));
    }
    for length in 1..whole.len() {
        let error = Bloom::decode(&whole[..length]).map(drop);
        assert!(!reason(error).is_empty(), "cut to {length}");
    }
    let mut no_lines = whole[..HEADER_BYTES].to_vec();
    no_lines[16] = 0;
    assert!(reason(Bloom::decode(&no_lines).map(drop)).contains("no lines"));
    let mut longer = whole.clone();
    longer.extend([0; 64]);
    assert!(reason(Bloom::decode(&longer).map(drop)).contains("lines"));
}

#[test]
fn empty_bytes_answer_maybe() {
    let mut numbers = Numbers(3);
    for bits_per_key in [-1, 0, i32::MIN] {
        assert!(build((0..9).map(|_| numbers.draw()), bits_per_key).is_empty());
    }
    assert!(build([], 10).is_empty());
    assert_eq!(Bloom::decode(&[]).map(drop), Err(FilterError::Empty));
    assert!(matches!(BloomView::parse(&[]), ParsedBloom::Maybe));
}

#[test]
fn equal_hashes_in_a_row_count_once() {
    let mut builder = BloomBuilder::new(10);
    assert!(builder.is_empty());
    for hash in [5, 5, 5, 8, 8, 5] {
        builder.add(hash);
    }
    assert_eq!((builder.len(), builder.is_empty()), (3, false));
    assert_eq!(view(&builder.finish()).keys(), 3);
}

#[test]
fn a_folded_filter_is_the_one_built_smaller() {
    let mut numbers = Numbers(11);
    // 2,520 lines at 8 bits per key.
    let hashes: Vec<u64> = (0..161_280).map(|_| numbers.draw()).collect();
    let large = Bloom::decode(&build(hashes.iter().copied(), 8)).expect("it was built just now");
    assert_eq!(large.lines(), 2_520);
    for factor in [1, 2, 3, 5, 7, 9, 24, 2_520] {
        let small = large.fold(factor).expect("it divides the lines");
        let natively = bloom_oracle::build(&hashes, 2_520 / factor, large.probes() as u8);
        assert!(small.to_bytes() == natively, "factor {factor}");
        assert_eq!(small.bytes() as u64, 2_520 / factor * 64);
    }
    for factor in [0, 11, 16, 5_040, u64::MAX] {
        assert!(large.fold(factor).is_none());
    }
}
