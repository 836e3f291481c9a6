//! The memtable's filter: against the oracle, folded, and written by many threads at once.

use crate::{Numbers, bloom_oracle};
use std::sync::atomic::{AtomicUsize, Ordering};
use umbel_filter::{Bloom, ConcurrentBloom};

#[test]
fn filter_equals_the_oracle() {
    let mut numbers = Numbers(21);
    for (expected_keys, bits_per_key) in [(0, 10), (1, 1), (700, 10), (5_000, 30), (300, 1000)] {
        let bloom = ConcurrentBloom::new(expected_keys, bits_per_key);
        let hashes: Vec<u64> = (0..expected_keys).map(|_| numbers.draw()).collect();
        hashes.iter().for_each(|hash| bloom.insert(*hash));
        hashes.iter().for_each(|hash| bloom.insert(*hash));
        assert!(bloom.keys() <= expected_keys && bloom.keys() * 10 >= expected_keys * 6);
        let bytes = bloom.to_bytes();
        let alone = ConcurrentBloom::new(expected_keys, bits_per_key);
        hashes.iter().chain(&hashes).for_each(|hash| alone.insert_unshared(*hash));
        assert!(alone.to_bytes() == bytes);
        let oracle = bloom_oracle::build(&hashes, bloom.lines(), bloom.probes() as u8);
        assert!(bytes[64..] == oracle[64..]);
        for hash in hashes.iter().copied().chain((0..2_000).map(|_| numbers.draw())) {
            assert_eq!(bloom.may_contain(hash), bloom_oracle::may_contain(&oracle, hash));
        }
    }
}

#[test]
fn filter_without_bits_answers_maybe() {
    for bits_per_key in [0, -1] {
        let bloom = ConcurrentBloom::new(1_000, bits_per_key);
        bloom.insert(9);
        bloom.insert_unshared(9);
        assert!(bloom.may_contain(9) && bloom.may_contain(10));
        assert_eq!((bloom.bytes(), bloom.keys(), bloom.designed_rate()), (0, 0, 1.0));
        assert!(bloom.to_bytes().is_empty());
        assert!(bloom.fold(1).is_none() && bloom.fold_to_fit().is_none());
    }
}

#[test]
fn filter_folds_to_its_key_count() {
    let mut numbers = Numbers(23);
    for keys in [0, 1, 900, 7_000, 23_000, 50_000, 99_000, 130_000] {
        let bloom = ConcurrentBloom::new(100_000, 10);
        assert!(bloom.bytes() <= 100_000 * 10 / 8 * 17 / 16 + 64);
        let hashes: Vec<u64> = (0..keys).map(|_| numbers.draw()).collect();
        hashes.iter().for_each(|hash| bloom.insert(*hash));
        let folded = bloom.fold_to_fit().expect("it has lines");
        let bits_per_key = folded.bytes() as f64 * 8.0 / keys as f64;
        assert!(!(900..=100_000).contains(&keys) || bits_per_key >= 9.9, "{bits_per_key}");
        assert!(keys < 900 || bits_per_key <= 14.0, "{keys} keys: {bits_per_key}");
        assert!(hashes.iter().all(|hash| folded.may_contain(*hash)));
        let again = Bloom::decode(&folded.to_bytes()).expect("it was folded just now");
        assert_eq!(again.keys(), bloom.keys());
    }
}

/// Writers add disjoint keys while readers probe keys that a writer has published.
#[test]
fn concurrent_readers_never_miss_a_key() {
    const KEYS: usize = 20_000;
    let mut numbers = Numbers(29);
    let hashes: Vec<Vec<u64>> =
        (0..3).map(|_| (0..KEYS).map(|_| numbers.draw()).collect()).collect();
    let added: [AtomicUsize; 3] = Default::default();
    let bloom = ConcurrentBloom::new(3 * KEYS as u64, 10);
    std::thread::scope(|scope| {
        for (hashes, added) in hashes.iter().zip(&added) {
            let bloom = &bloom;
            scope.spawn(move || {
                for hash in hashes {
                    bloom.insert(*hash);
                    added.fetch_add(1, Ordering::Release);
                }
            });
            scope.spawn(move || {
                let mut until = 0;
                while until < KEYS {
                    let from = until;
                    until = added.load(Ordering::Acquire);
                    assert!(hashes[from..until].iter().all(|hash| bloom.may_contain(*hash)));
                    std::thread::yield_now();
                }
            });
        }
    });
    let all: Vec<u64> = hashes.concat();
    let oracle = bloom_oracle::build(&all, bloom.lines(), bloom.probes() as u8);
    assert!(bloom.to_bytes()[64..] == oracle[64..]);
    assert!(bloom.keys() <= all.len() as u64 && bloom.keys() > all.len() as u64 * 99 / 100);
}
