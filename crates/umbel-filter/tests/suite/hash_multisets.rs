//! Multisets of hashes that good hash functions do not make, and some that they do.

use crate::Numbers;
use proptest::prelude::*;

fn random(seed: u64, count: usize) -> Vec<u64> {
    let mut numbers = Numbers(seed);
    (0..count).map(|_| numbers.draw()).collect()
}

/// Returns random hashes, one repeated hash, consecutive hashes, few different hashes including the
/// extremes, and clustered hashes.
pub fn hash_shapes() -> impl Strategy<Value = Vec<u64>> {
    let few = 0usize..300;
    prop_oneof![
        (any::<u64>(), few.clone()).prop_map(|(seed, count)| random(seed, count)),
        (any::<u64>(), few.clone()).prop_map(|(hash, count)| vec![hash; count]),
        (any::<u64>(), 0u32..64, few.clone()).prop_map(|(from, shift, count)| {
            (0..count as u64).map(|at| from.wrapping_add(at << shift)).collect()
        }),
        proptest::collection::vec(prop_oneof![Just(0), Just(1), Just(u64::MAX), 0..50u64], 0..300),
        (any::<u64>(), few).prop_map(|(seed, count)| {
            let spread = |hash: &u64| seed ^ ((hash % 5) << 61) ^ (hash >> 57);
            random(seed, count).iter().map(spread).collect()
        }),
    ]
}
