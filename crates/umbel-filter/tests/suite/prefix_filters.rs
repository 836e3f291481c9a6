//! Prefix filters: their answers and their bytes, intact and damaged.

use crate::{Numbers, bloom_oracle};
use proptest::prelude::*;
use std::collections::HashSet;
use umbel_filter::{
    BloomView, FilterError, HEADER_BYTES, HashDomain, HashKind, HashSecret, KeyPrefix, ParsedBloom,
    ParsedPrefixFilter, PrefixExtractor, PrefixFilterBuilder, PrefixFilterView, PrefixHasher,
    hash_key,
};

const SEED: [u8; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

fn rule(name: &str) -> KeyPrefix {
    name.parse().expect(name)
}

fn hasher() -> PrefixHasher {
    PrefixHasher::new(HashKind::Keyed, SEED).expect("the keyed hash is always there")
}

fn build<'k>(name: &str, keys: impl IntoIterator<Item = &'k [u8]>, bits_per_key: i32) -> Vec<u8> {
    let builder = PrefixFilterBuilder::new(rule(name), hasher());
    let mut builder = builder.expect("built-in names fit");
    keys.into_iter().for_each(|key| builder.add(key));
    builder.finish(bits_per_key, 7)
}

fn view(bytes: &[u8]) -> PrefixFilterView<'_> {
    match PrefixFilterView::parse(bytes) {
        ParsedPrefixFilter::Filter(view) => view,
        other => panic!("no filter: {other:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// The oracle: a set of prefixes, and the filter written once more from the format pages.
    #[test]
    fn filter_equals_the_oracle_without_false_negatives(
        name in prop_oneof![
            Just("fixed:3"), Just("capped:4"), Just("until:/"), Just("until:-:2"),
            Just("until:0x00"),
        ],
        keys in proptest::collection::btree_set("[abc/0-]{0,9}", 0..60),
        starts in proptest::collection::vec("[abc/0-]{0,9}", 20),
    ) {
        let keys: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
        let rule = rule(name);
        let secret = HashSecret::from_seed(HashDomain::Prefix.seed(SEED));
        let mut hashes: Vec<u64> = Vec::new();
        for key in &keys {
            hashes.extend(rule.prefix(key).map(|prefix| hash_key(&secret, prefix)));
        }
        hashes.dedup();
        let bytes = build(name, keys.iter().copied(), 10);
        prop_assert_eq!(bytes.is_empty(), hashes.is_empty());
        if bytes.is_empty() {
            return Ok(());
        }
        let mut expected = [&b"uPFX\x01"[..], &[name.len() as u8, 0, 0], name.as_bytes()].concat();
        expected.resize(64, 0);
        let lines = (hashes.len() as u64 * 10).div_ceil(512);
        let mut inner = bloom_oracle::build(&hashes, lines, 6);
        inner[24] = 7;
        expected.extend(inner);
        prop_assert!(bytes == expected);

        let view = view(&bytes);
        prop_assert_eq!(view.extractor_name(), name);
        for key in &keys {
            prop_assert!(view.may_contain_key(&rule, &hasher(), key));
            for end in 0..=key.len() {
                prop_assert!(view.may_contain_start(&rule, &hasher(), &key[..end]));
            }
        }
        for start in &starts {
            let start = start.as_bytes();
            let prefix_hash = rule.shared(start).map(|prefix| hash_key(&secret, prefix));
            let expected = prefix_hash.is_none_or(|it| bloom_oracle::may_contain(&bytes[64..], it));
            prop_assert_eq!(view.may_contain_start(&rule, &hasher(), start), expected);
        }
    }

    #[test]
    fn nothing_panics_on_any_bytes(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        valid_head: bool,
        name in 0u8..80,
    ) {
        let mut bytes = bytes;
        if valid_head && bytes.len() >= 8 {
            bytes[..8].copy_from_slice(&[b'u', b'P', b'F', b'X', 1, name, 0, 0]);
            let padded = (8 + usize::from(name)).next_multiple_of(64).min(bytes.len());
            bytes[8..padded].fill(0);
            let inner = &mut bytes[padded..];
            if let Some(head) = inner.first_chunk_mut::<64>() {
                head.fill(0);
                head[..8].copy_from_slice(b"uFLT\x01\x01\x01\x06");
                head[16] = 1;
            }
            bytes.truncate((padded + 128).min(bytes.len()));
        }
        if let ParsedPrefixFilter::Filter(view) = PrefixFilterView::parse(&bytes) {
            let _ = view.may_contain_start(&rule("fixed:2"), &hasher(), b"abc");
            prop_assert!(view.extractor_name().len() == usize::from(bytes[5]));
            prop_assert!(bytes.ends_with(view.inner()));
        }
    }
}

/// The example of the format page.
fn cities() -> Vec<u8> {
    let keys: [&[u8]; 4] = [b"berlin/1", b"berlin/2", b"paris/7", b"rome"];
    build("until:/", keys, 10)
}

/// FORMAT: these bytes are in existing files. If this test fails, the format has changed and needs
/// a new version number.
#[test]
fn the_golden_filter_is_written_and_read() {
    let golden = include_bytes!("../golden/filter-prefix-v1");
    assert_eq!(cities(), golden);
    let (view, rule) = (view(golden), rule("until:/"));
    assert_eq!((view.extractor_name(), view.inner().len()), ("until:/", 128));
    assert_eq!((view.filter().keys(), view.filter().seed_id()), (2, 7));
    for (start, expected) in [
        ("berlin/", true),
        ("berlin/12", true),
        ("paris/", true),
        ("rome/", false),
        ("madrid/4", false),
        ("ber", true),
        ("", true),
        ("madrid", true),
    ] {
        assert_eq!(view.may_contain_start(&rule, &hasher(), start.as_bytes()), expected, "{start}");
    }
    assert!(view.may_contain_key(&rule, &hasher(), b"rome"), "it has no prefix");
    assert!(!view.may_contain_key(&rule, &hasher(), b"rome/1"));
}

/// Another rule would get "no" for present keys.
#[test]
fn other_extractor_or_hash_answers_maybe() {
    let bytes = cities();
    let view = view(&bytes);
    for other in ["until:/:2", "until:-", "fixed:7", "capped:7"] {
        let other = rule(other);
        for start in [&b"madrid/4"[..], b"madrid/4/-", b"berlin/"] {
            assert!(view.may_contain_start(&other, &hasher(), start), "{other}");
            assert!(view.may_contain_key(&other, &hasher(), start), "{other}");
        }
    }
    for kind in HashKind::ALL.into_iter().skip(1) {
        if let Ok(hasher) = PrefixHasher::new(kind, SEED) {
            assert!(view.may_contain_start(&rule("until:/"), &hasher, b"madrid/4"), "{kind}");
        }
    }
}

/// The header of a filter over another hash names that hash, and a reader that does not know it
/// answers "maybe".
#[test]
fn the_hash_is_named_in_the_inner_filter() {
    for kind in HashKind::ALL {
        let Ok(hasher) = PrefixHasher::new(kind, SEED) else {
            continue;
        };
        let mut builder =
            PrefixFilterBuilder::new(rule("fixed:2"), hasher).expect("built-in names fit");
        builder.add(b"abc");
        let bytes = builder.finish(10, 0);
        assert_eq!(bytes[64 + 6], kind.number());
        match PrefixFilterView::parse(&bytes) {
            ParsedPrefixFilter::Filter(view) => {
                assert!(view.may_contain_start(&rule("fixed:2"), &hasher, b"ab"));
            }
            other => assert!(matches!(other, ParsedPrefixFilter::Maybe), "{other:?}"),
        }
    }
}

/// A prefix can equal a key; an added key must not make its equal prefix pass, nor an added prefix
/// the key.
#[test]
fn whole_keys_and_prefixes_are_hashed_apart() {
    let whole = HashSecret::from_seed(SEED);
    let mut seen = HashSet::new();
    for key in [&b""[..], b"a", b"berlin/", b"berlin/1", &[0; 100]] {
        assert!(seen.insert(hasher().hash(key)));
        assert!(seen.insert(hash_key(&whole, key)));
    }
}

/// The rate is the designed one, in sorted order with many keys of each prefix.
#[test]
fn measured_rate_is_the_designed_rate() {
    let mut numbers = Numbers(9);
    let mut users: Vec<u64> = (0..40_000).map(|_| numbers.draw()).collect();
    users.sort_unstable();
    let keys: Vec<String> = users
        .iter()
        .flat_map(|user| (0..5).map(move |item| format!("{user:016x}/{item}")))
        .collect();
    let bytes = build("until:/", keys.iter().map(String::as_bytes), 10);
    let (view, rule) = (view(&bytes), rule("until:/"));
    assert_eq!(view.filter().keys(), 40_000);
    let queries = 200_000;
    let absent = (0..queries).map(|_| format!("{:016x}/", numbers.draw()));
    let passed =
        absent.filter(|start| view.may_contain_start(&rule, &hasher(), start.as_bytes())).count();
    let expected = view.filter().designed_rate() * f64::from(queries);
    assert!((passed as f64 - expected).abs() < expected / 10.0, "{passed} for {expected}");
}

#[test]
fn empty_bytes_answer_maybe() {
    assert!(build("until:/", [&b"a"[..], b"", b"rome"], 10).is_empty());
    assert!(build("until:/", [&b"a/"[..]], 0).is_empty());
    assert!(build("fixed:1", [], 10).is_empty());
    assert!(matches!(PrefixFilterView::parse(&[]), ParsedPrefixFilter::Maybe));
    let builder = PrefixFilterBuilder::new(rule("fixed:1"), hasher());
    let mut builder = builder.expect("built-in names fit");
    assert!(builder.is_empty());
    builder.add(b"abc");
    builder.add(b"axe");
    assert_eq!((builder.len(), builder.is_empty()), (1, false));
    assert!(builder.finish_with(|_| Vec::new()).is_empty(), "no inner filter, no filter");
}

fn reason(bytes: &[u8]) -> &'static str {
    match PrefixFilterView::parse(bytes) {
        ParsedPrefixFilter::Malformed(FilterError::Malformed { reason }) => reason,
        other => panic!("not malformed: {other:?}"),
    }
}

#[test]
fn damaged_header_fields_are_classified() {
    let whole = cities();
    let damaged = |at: usize, value: u8| {
        let mut bytes = whole.clone();
        bytes[at] = value;
        bytes
    };
    for at in 0..4 {
        assert!(reason(&damaged(at, 0)).contains("magic"));
    }
    assert!(matches!(PrefixFilterView::parse(&damaged(4, 2)), ParsedPrefixFilter::Maybe));
    for (at, value) in [(5, 0), (6, 1), (7, 9)] {
        assert!(reason(&damaged(at, value)).contains("contradicts"));
    }
    // A longer name includes zeros; a shorter one leaves letters after it.
    assert_eq!(view(&damaged(5, 8)).extractor_name(), "until:/\0");
    assert!(reason(&damaged(5, 6)).contains("not zero"));
    assert!(reason(&damaged(5, 57)).contains("not zero"), "the inner filter's bytes");
    assert!(reason(&damaged(5, 255)).contains("shorter"));
    assert!(reason(&damaged(8, 0xff)).contains("UTF-8"));
    for at in 15..64 {
        assert!(reason(&damaged(at, 1)).contains("not zero"));
    }
    for length in (1..64).chain(65..whole.len()) {
        assert!(!reason(&whole[..length]).is_empty(), "cut to {length}");
    }
    assert!(
        matches!(PrefixFilterView::parse(&whole[..64]), ParsedPrefixFilter::Maybe),
        "no filter"
    );
    for (at, unknown) in [(64 + 4, 9), (64 + 5, 9), (64 + 6, 99)] {
        assert!(matches!(
            PrefixFilterView::parse(&damaged(at, unknown)),
            ParsedPrefixFilter::Maybe
        ));
    }
}

/// With any damage before the inner filter, no present prefix is denied.
#[test]
fn damaged_header_never_answers_no() {
    let whole = cities();
    for bit in 0..HEADER_BYTES * 8 {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        if let ParsedPrefixFilter::Filter(view) = PrefixFilterView::parse(&bytes) {
            assert!(view.may_contain_start(&rule("until:/"), &hasher(), b"berlin/"), "{bit}");
            assert!(view.may_contain_start(&rule("until:/"), &hasher(), b"madrid/"), "{bit}");
        }
    }
}

/// A name of any length leaves the inner filter as aligned as the whole.
#[test]
fn the_inner_filter_is_aligned() {
    struct Named(String);
    impl PrefixExtractor for Named {
        fn name(&self) -> &str {
            &self.0
        }
        fn prefix<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
            Some(key)
        }
    }
    for length in [1, 55, 56, 57, 119, 120, 121, 255] {
        let named = Named("n".repeat(length));
        let mut builder = PrefixFilterBuilder::new(named, hasher()).expect("the name fits");
        builder.add(b"key");
        let bytes = builder.finish(10, 0);
        let view = view(&bytes);
        assert_eq!(view.extractor_name().len(), length);
        assert_eq!(bytes.len() - view.inner().len(), (8 + length).next_multiple_of(64));
        assert!(matches!(BloomView::parse(view.inner()), ParsedBloom::Bloom(_)));
        let named = Named("n".repeat(length));
        assert!(view.may_contain_key(&named, &hasher(), b"key"));
        assert!(!view.may_contain_key(&named, &hasher(), b"yek"));
        assert!(view.may_contain_start(&named, &hasher(), b"yek"), "it promises nothing");
    }
}
