//! Filters: all readers of a kind must agree on every input and every hash, and conversions of a
//! filter must be valid.
#![no_main]

use libfuzzer_sys::fuzz_target;
use umbel_filter::{
    Bloom, BloomView, CountingBloom, Filter, FilterKind, FilterView, ParsedBloom, from_leveldb,
    from_parquet, to_leveldb, to_parquet,
};

const HASHES: [u64; 6] = [0, 1, u64::MAX, 1 << 63, 0x9e37_79b9_7f4a_7c15, 0x0123_4567_89ab_cdef];

fuzz_target!(|input: &[u8]| {
    lines(input);
    if let Ok(view) = FilterView::parse(input) {
        any_kind(input, &view);
    }
    if let Ok(filter) = from_leveldb(input) {
        let view = FilterView::parse(&filter).expect("a filter was made of it");
        assert_eq!(to_leveldb(&view).as_deref(), Some(input));
    }
    if let Ok((filter, length)) = from_parquet(input) {
        assert!(length <= input.len() && filter.len() <= 64 + length);
        let view = FilterView::parse(&filter).expect("a filter was made of it");
        let again = to_parquet(&view).expect("it came from there");
        let (filter_again, _) = from_parquet(&again).expect("it was written just now");
        assert_eq!(filter, filter_again);
    }
});

/// Compares the filter readers of tables, which support lines of 512 bits with the keyed hash.
fn lines(input: &[u8]) {
    let owned = Bloom::decode(input);
    match (BloomView::parse(input), owned) {
        (ParsedBloom::Bloom(view), Ok(bloom)) => {
            let any = FilterView::parse(input).expect("one of the kinds");
            for hash in HASHES {
                assert_eq!(view.may_contain(hash), bloom.may_contain(hash), "hash {hash:#x}");
                assert_eq!(view.may_contain(hash), any.contains(hash), "hash {hash:#x}");
            }
            assert_eq!(view.keys(), bloom.keys());
            assert_eq!(view.probes(), bloom.probes());
        }
        (ParsedBloom::Bloom(_), Err(error)) => panic!("only the borrowed reader takes it: {error}"),
        (_, Ok(bloom)) => panic!("only the owned reader takes it: {} keys", bloom.keys()),
        (ParsedBloom::Maybe | ParsedBloom::Malformed(_), Err(_)) => {}
    }
}

/// Probes and converts a filter of any kind in all ways.
fn any_kind(input: &[u8], view: &FilterView<'_>) {
    let mut found = [false; HASHES.len()];
    view.contains_batch(&HASHES, &mut found);
    let owned = Filter::decode(input).ok();
    assert_eq!(owned.is_some(), view.kind().is_some());
    for (hash, found) in HASHES.into_iter().zip(found) {
        assert_eq!(view.contains(hash), found, "hash {hash:#x}");
        assert_eq!(owned.as_ref().is_none_or(|owned| owned.view().contains(hash)), found);
    }
    assert!((0.0..=1.0).contains(&view.designed_rate()));
    assert!((0.0..=1.0).contains(&view.estimated_rate()));
    assert!(view.estimated_keys() >= 0.0);
    for factor in [2, 3] {
        if let Some(folded) = view.fold(factor) {
            let folded = FilterView::parse(&folded).expect("it was folded just now");
            for hash in HASHES.into_iter().filter(|hash| view.contains(*hash)) {
                assert!(folded.contains(hash), "hash {hash:#x} is lost");
            }
        }
    }
    if let Ok(union) = view.union(view) {
        assert_eq!(union.len(), input.len());
        assert!(FilterView::parse(&union).is_ok());
    }
    if view.kind() == Some(FilterKind::Counting) {
        let mut counting = CountingBloom::decode(input).expect("the view reads it");
        counting.add(HASHES[5]);
        assert!(counting.remove(HASHES[5]));
    }
}
