//! Union, intersection and folding of every kind; the counting filter.

use crate::Numbers;
use crate::kind_oracle::every_kind;
use crate::kinds::build;
use umbel_filter::{
    BuildError, CombineError, CountingBloom, FilterError, FilterKind, FilterOptions, FilterSize,
    FilterView, Probing,
};

fn view(bytes: &[u8]) -> FilterView<'_> {
    FilterView::parse(bytes).expect("it was built just now")
}

fn draw(numbers: &mut Numbers, count: usize) -> Vec<u64> {
    (0..count).map(|_| numbers.draw()).collect()
}

#[test]
fn the_union_is_the_filter_of_all_keys() {
    let mut numbers = Numbers(61);
    for options in every_kind() {
        let (left, right) = (draw(&mut numbers, 2_000), draw(&mut numbers, 2_000));
        let (a, b) = (build(options, &left), build(options, &right));
        let union = view(&a).union(&view(&b)).expect("equal shapes");
        let doubled = match options.size {
            FilterSize::BitsPerKey(bits) => FilterSize::BitsPerKey(bits / 2.0),
            other => other,
        };
        let probes = Some(view(&a).probes());
        let all = [left.clone(), right.clone()].concat();
        let natively = build(FilterOptions { size: doubled, probes, ..options }, &all);
        assert!(union == natively, "{:?}", options.kind);

        let intersection = view(&a).intersection(&view(&b)).expect("equal shapes");
        assert_eq!(view(&intersection).keys(), 2_000);
        for hash in all.into_iter().chain(draw(&mut numbers, 5_000)) {
            let both = view(&a).contains(hash) && view(&b).contains(hash);
            assert!(view(&intersection).contains(hash) <= both);
        }
        let third = draw(&mut numbers, 1_000);
        let [a, b] =
            [&left[..1_000], &right[..1_000]].map(|own| build(options, &[own, &third].concat()));
        let intersection = view(&a).intersection(&view(&b)).expect("equal shapes");
        assert!(third.iter().all(|hash| view(&intersection).contains(*hash)));
        assert!(view(&intersection).estimated_rate() < view(&a).estimated_rate());
    }
}

#[test]
fn different_filters_are_not_combined() {
    let hashes: Vec<u64> = draw(&mut Numbers(62), 500);
    let options = FilterOptions { kind: FilterKind::Standard, ..FilterOptions::default() };
    let first = build(options, &hashes);
    for (what, other) in [
        ("kind", FilterOptions { kind: FilterKind::Counting, ..options }),
        ("hash", FilterOptions { hash_kind: 3, ..options }),
        ("seed", FilterOptions { seed_id: 3, ..options }),
        ("probes", FilterOptions { probes: Some(3), ..options }),
        ("probing", FilterOptions { probing: Probing::LevelDb, probes: Some(7), ..options }),
        ("size", FilterOptions { size: FilterSize::BitsPerKey(11.0), probes: Some(7), ..options }),
    ] {
        let other = build(other, &hashes);
        let error = view(&first).union(&view(&other)).expect_err("they differ");
        assert!(matches!(error, CombineError::Mismatch { what: found, .. } if found == what));
        assert_eq!(view(&first).intersection(&view(&other)), Err(error));
        assert!(error.to_string().contains(what));
    }
    let error = Err(CombineError::NotCombinable { kind: None });
    assert_eq!(view(&first).union(&FilterView::MAYBE), error);
    assert_eq!(FilterView::MAYBE.intersection(&view(&first)), error);
}

#[test]
fn a_folded_filter_is_the_one_built_smaller() {
    let mut numbers = Numbers(63);
    for options in every_kind() {
        // 2,520 lines of 512 bits, 5,040 blocks, 1,290,240 bits or counters.
        let hashes = draw(&mut numbers, 129_024);
        let large = build(options, &hashes);
        let probes = Some(view(&large).probes());
        for factor in [1, 2, 3, 5, 7, 9, 24, 2_520] {
            let small = view(&large).fold(factor).expect("it divides the units");
            let size = FilterSize::BitsPerKey(10.0 / factor as f64);
            let natively = build(FilterOptions { size, probes, ..options }, &hashes);
            assert!(small == natively, "{:?} folded by {factor}", options.kind);
            assert_eq!(view(&small).units() * factor, view(&large).units());
        }
        for factor in [0, 11, 1 << 20, u64::MAX] {
            assert_eq!(view(&large).fold(factor), None);
        }
    }
    assert_eq!(FilterView::MAYBE.fold(1), None);
    // LevelDB's filters are whole bytes.
    let options = FilterOptions {
        kind: FilterKind::Standard,
        probing: Probing::LevelDb,
        ..FilterOptions::default()
    };
    let bytes = build(options, &draw(&mut numbers, 12));
    assert_eq!(view(&bytes).units(), 120);
    assert!(view(&bytes).fold(2).is_none() && view(&bytes).fold(3).is_some());
}

fn counting() -> FilterOptions {
    FilterOptions { kind: FilterKind::Counting, ..FilterOptions::default() }
}

#[test]
fn removed_keys_miss_and_others_hit() {
    let mut numbers = Numbers(64);
    let mut filter = CountingBloom::new(10_000, counting()).expect("good options");
    let (stay, go) = (draw(&mut numbers, 5_000), draw(&mut numbers, 5_000));
    stay.iter().chain(&go).for_each(|hash| filter.add(*hash));
    assert_eq!(filter.keys(), 10_000);
    assert!(filter.to_bytes() == build(counting(), &[stay.clone(), go.clone()].concat()));
    assert!(go.iter().all(|hash| filter.remove(*hash)));
    assert!(stay.iter().all(|hash| filter.contains(*hash)));
    let left = go.iter().filter(|hash| filter.contains(**hash)).count();
    // As many as false positives at half the keys: 0.025 %.
    assert!(left < 20, "{left}");
    assert_eq!((filter.keys(), filter.view().keys()), (5_000, 5_000));
    let estimated = filter.view().estimated_keys();
    assert!((estimated / 5_000.0 - 1.0).abs() < 0.05, "{estimated}");
    let again = CountingBloom::decode(&filter.to_bytes()).expect("it was encoded just now");
    assert_eq!(again.to_bytes(), filter.to_bytes());
}

#[test]
fn absent_keys_are_not_removed() {
    let mut numbers = Numbers(65);
    let mut filter = CountingBloom::new(1_000, counting()).expect("good options");
    draw(&mut numbers, 1_000).iter().for_each(|hash| filter.add(*hash));
    let before = filter.to_bytes();
    let absent = draw(&mut numbers, 2_000);
    for hash in absent.iter().filter(|hash| !before_contains(&before, **hash)) {
        assert!(!filter.remove(*hash));
    }
    assert_eq!(filter.to_bytes(), before);
    let mut empty = CountingBloom::new(0, counting()).expect("good options");
    assert!(!empty.remove(5) && empty.keys() == 0 && !empty.contains(5));
}

fn before_contains(bytes: &[u8], hash: u64) -> bool {
    view(bytes).contains(hash)
}

/// A key added more often than a counter counts stays, however often it is removed.
#[test]
fn a_full_counter_stays_full() {
    let mut filter = CountingBloom::new(100, counting()).expect("good options");
    (0..14).for_each(|_| filter.add(9));
    assert!((0..14).all(|_| filter.remove(9)) && !filter.contains(9));
    (0..15).for_each(|_| filter.add(9));
    assert!((0..40).all(|_| filter.remove(9)) && filter.contains(9));
}

#[test]
fn only_counting_filters_count() {
    let error = CountingBloom::new(5, FilterOptions::default()).map(drop);
    assert_eq!(error, Err(BuildError::Kind { kind: FilterKind::Blocked512 }));
    let nan = FilterOptions { size: FilterSize::Rate(f64::NAN), ..counting() };
    assert!(CountingBloom::new(5, nan).is_err());
    let other = build(FilterOptions::default(), &[1]);
    let error = CountingBloom::decode(&other).map(drop);
    assert!(matches!(error, Err(FilterError::Malformed { .. })));
    assert_eq!(CountingBloom::decode(&[]).map(drop), Err(FilterError::Empty));
}
