//! Compares designed with measured rates.

use crate::{Numbers, build};
use umbel_filter::{Bloom, HashSecret, designed_rate, hash_key, line_count, probes};

/// Number of random hashes, of `queries`, that pass.
fn passed(bloom: &Bloom, numbers: &mut Numbers, queries: u64) -> u64 {
    (0..queries).filter(|_| bloom.may_contain(numbers.draw())).count() as u64
}

/// Prints one line of a table. Requires the measured rate to be within a tenth of the designed one
/// where at least 1,000 false positives are expected.
fn compare(name: &str, bloom: &Bloom, passed: u64, queries: u64) {
    let expected = bloom.designed_rate() * queries as f64;
    println!(
        "{name}: {} keys, {} lines, {} probes: designed {:.4e}, measured {:.4e} \
         ({passed} of {queries})",
        bloom.keys(),
        bloom.lines(),
        bloom.probes(),
        bloom.designed_rate(),
        passed as f64 / queries as f64,
    );
    if expected >= 1_000.0 {
        let error = (passed as f64 - expected).abs() / expected;
        assert!(error <= 0.1, "{name}: {passed} passed, {expected:.1} expected");
    } else {
        // Ten standard deviations of a Poisson count, and never a single one held against it.
        let passed_max = expected + 10.0 * expected.sqrt() + 1.0;
        assert!(passed as f64 <= passed_max, "{name}: {passed} passed, {expected:.3} expected");
    }
}

#[test]
fn the_designed_rate_is_the_measured_rate() {
    let mut numbers = Numbers(41);
    for (bits_per_key, keys, queries) in [
        (1, 200_000, 20_000),
        (2, 200_000, 20_000),
        (5, 200_000, 100_000),
        (8, 200_000, 100_000),
        (10, 200_000, 300_000),
        (14, 100_000, 700_000),
        (30, 50_000, 300_000),
        (50, 20_000, 300_000),
        (100, 20_000, 300_000),
        (1000, 20_000, 300_000),
    ] {
        let bytes = build((0..keys).map(|_| numbers.draw()), bits_per_key);
        let bloom = Bloom::decode(&bytes).expect("it was built just now");
        let found = passed(&bloom, &mut numbers, queries);
        compare(&format!("{bits_per_key} bits"), &bloom, found, queries);
    }
}

/// Filters with many probes have rates too low to measure. Folded filters have not, and their later
/// probes must be as independent as the first ones.
#[test]
fn many_probes_are_independent() {
    let mut numbers = Numbers(43);
    for (bits_per_key, factor) in
        [(20, 2), (30, 3), (50, 4), (50, 5), (100, 8), (1000, 64), (1000, 80)]
    {
        let keys = 512 * factor * 40;
        let bytes = build((0..keys).map(|_| numbers.draw()), bits_per_key);
        let bloom = Bloom::decode(&bytes).expect("it was built just now");
        let folded = bloom.fold(factor).expect("the number of lines is a multiple");
        assert!(folded.designed_rate() * 500_000.0 > 1_000.0, "{}", folded.designed_rate());
        let found = passed(&folded, &mut numbers, 500_000);
        compare(&format!("{bits_per_key} bits folded by {factor}"), &folded, found, 500_000);
    }
}

/// Checks the rate of filters of one or a few lines, where the exact number of keys matters.
#[test]
fn small_filters_keep_to_theory() {
    let mut numbers = Numbers(47);
    for (bits_per_key, keys) in
        [(10, 2), (10, 20), (10, 51), (10, 52), (10, 110), (5, 500), (1, 300)]
    {
        let filters = 1_500;
        let mut found = 0;
        for _ in 0..filters {
            let bytes = build((0..keys).map(|_| numbers.draw()), bits_per_key);
            let bloom = Bloom::decode(&bytes).expect("it was built just now");
            found += passed(&bloom, &mut numbers, 200);
        }
        let lines = line_count(keys, bits_per_key);
        let expected =
            designed_rate(keys, lines, probes(bits_per_key)) * f64::from(filters) * 200.0;
        let error = (found as f64 - expected).abs();
        assert!(
            error <= (expected * 0.05).max(6.0 * expected.sqrt()) + 1.0,
            "{keys} keys at {bits_per_key} bits: {found} passed, {expected:.1} expected"
        );
    }
}

/// With real keys through the real hash: sequential keys are added, later ones probed.
#[test]
fn sequential_keys_have_the_rate_of_random_keys() {
    let secret = HashSecret::from_seed([9; 16]);
    let hash = |number: u64| hash_key(&secret, &number.to_be_bytes());
    let bloom = Bloom::decode(&build((0..200_000).map(hash), 10)).expect("it was built just now");
    let found = (200_000..500_000).filter(|number| bloom.may_contain(hash(*number))).count();
    compare("sequential", &bloom, found as u64, 300_000);
    assert!((0..200_000).all(|number| bloom.may_contain(hash(number))));
}

/// Ten million keys at every density. Run with `--release -- --ignored --nocapture` it prints the
/// table of rates.
#[test]
#[ignore = "two minutes and 4 GB with --release"]
fn ten_million_keys_at_every_density() {
    const KEYS: u64 = 10_000_000;
    let secret = HashSecret::from_seed([10; 16]);
    for (bits_per_key, queries) in [
        (1, 10_000_000),
        (5, 10_000_000),
        (10, 10_000_000),
        (30, 200_000_000),
        (50, 1_000_000_000),
        (100, 100_000_000),
        (1000, 100_000_000),
    ] {
        let hash = |number: u64| hash_key(&secret, &number.to_be_bytes());
        let bytes = build((0..KEYS).map(hash), bits_per_key);
        let bloom = Bloom::decode(&bytes).expect("it was built just now");
        drop(bytes);
        assert!((0..KEYS).all(|number| bloom.may_contain(hash(number))));
        let absent = KEYS..KEYS + queries;
        let found = absent.filter(|number| bloom.may_contain(hash(*number))).count() as u64;
        compare(&format!("{bits_per_key} bits"), &bloom, found, queries);
    }
}
