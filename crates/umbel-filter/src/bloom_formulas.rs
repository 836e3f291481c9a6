//! The textbook's formulas for a Bloom filter of `m` bits with `k` probes for each of `n` keys.
//!
//! The formulas are for [`crate::FilterKind::Standard`] and [`crate::FilterKind::Counting`]. In
//! blocked filters some blocks get more keys than others, so such a filter needs more bits and
//! fewer probes. For blocked filters [`crate::designed_rate`] is exact.

use std::f64::consts::LN_2;

/// Number of bits that `n` keys need for a false positive rate of `p` with the best number of
/// probes: `m = ceil(-n ln p / (ln 2)^2)`, at least 1.
///
/// Trap: the formula assumes that `k = m/n ln 2` needs no rounding. With the rounded `k` the rate
/// can be a few per cent higher than `p`, and far higher if `k` is 1; [`rate`] returns that rate. A
/// `p` of 1 or more gives 1 bit; a `p` of 0 or less, or NaN, gives the maximum.
pub fn bits(keys: u64, p: f64) -> u64 {
    if p >= 1.0 {
        return 1;
    }
    if p.is_nan() || p <= 0.0 {
        return u64::MAX;
    }
    // The conversion keeps to the largest number.
    ((-(keys as f64) * p.ln() / (LN_2 * LN_2)).ceil() as u64).max(1)
}

/// The best number of probes for `m` bits and `n` keys: `k = round(m/n ln 2)`, 1 to 255.
///
/// Trap: an integer division of `m` by `n` drops the fraction. Truncating `k` instead of rounding
/// it (as [`leveldb_probes`] does) raises the rate by some per cent.
pub fn probes(bits: u64, keys: u64) -> u32 {
    probes_at(bits as f64 / keys.max(1) as f64)
}

/// The best number of probes for a number of bits per key: its product with ln 2, rounded, 1 to
/// 255.
pub fn probes_at(bits_per_key: f64) -> u32 {
    ((bits_per_key * LN_2).round().clamp(1.0, 255.0) as u32).max(1)
}

/// LevelDB's number of probes: `floor(0.69 bits)`, 1 to 30.
pub fn leveldb_probes(bits_per_key: f64) -> u32 {
    (bits_per_key * 0.69).floor().clamp(1.0, 30.0) as u32
}

/// The false positive rate of `n` keys in `m` bits with `k` probes: `(1 - e^(-kn/m))^k`.
///
/// Trap: the formula is the limit for large `m`. With few bits, such as 1,000, the result is some
/// per cent too low, because the number of set bits varies; [`crate::FilterView::designed_rate`]
/// includes that. The formula also ignores collisions of hashes: a hash of `b` bits adds
/// [`hash_floor`].
pub fn rate(keys: u64, bits: u64, probes: u32) -> f64 {
    if probes == 0 || bits == 0 {
        return 1.0;
    }
    let probes = f64::from(probes);
    let set = -(-probes * keys as f64 / bits as f64).exp_m1();
    set.powf(probes)
}

/// Number of keys up to which `m` bits with `k` probes have a rate below `p`: `n = m / (-k / ln(1 -
/// p^(1/k)))`, rounded down.
pub fn most_keys(bits: u64, probes: u32, p: f64) -> u64 {
    if probes == 0 || p.is_nan() || p <= 0.0 {
        return 0;
    }
    if p >= 1.0 {
        return u64::MAX;
    }
    let probes = f64::from(probes);
    let unset = -(p.ln() / probes).exp_m1();
    (bits as f64 * -unset.ln() / probes).floor() as u64
}

/// Estimated number of keys in `m` bits with `k` probes, of which `set` bits are set: `n = -m/k
/// ln(1 - set/m)`. Infinite if all bits are set.
pub fn cardinality(bits: u64, probes: u32, set: u64) -> f64 {
    let unset = 1.0 - set as f64 / bits as f64;
    -(bits as f64) / f64::from(probes) * unset.ln() + 0.0
}

/// Rate that collisions of a hash of `b` bits cause with `n` keys, in a filter of any size: `1 -
/// e^(-n / 2^b)`. 0.7 % for 30 million keys and 32 bits.
pub fn hash_floor(keys: u64, hash_bits: u32) -> f64 {
    -(-(keys as f64) / 2f64.powi(hash_bits.min(1000) as i32)).exp_m1()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formulas_give_the_published_values() {
        assert_eq!(bits(1_000_000, 0.01), 9_585_059);
        assert_eq!(probes(9_585_059, 1_000_000), 7);
        assert_eq!((probes(10_000, 1_000), probes(9, 1_000), probes(1 << 40, 1)), (7, 1, 255));
        assert_eq!([1.0, 10.0, 16.0, 100.0].map(leveldb_probes), [1, 6, 11, 30]);
        assert!((rate(1_000_000, 10_000_000, 7) - 0.008_194).abs() < 1e-6);
        assert!((hash_floor(30_000_000, 32) - 0.006_961).abs() < 1e-6);
        let keys = most_keys(9_585_059, 7, 0.01);
        assert!((990_000..=1_000_000).contains(&keys), "{keys}");
        let set = (10_000_000.0 * (1.0 - (-0.7f64).exp())) as u64;
        assert!((cardinality(10_000_000, 7, set) - 1_000_000.0).abs() < 2.0);
    }

    #[test]
    fn formulas_at_the_limits_are_valid() {
        for p in [1.0, 7.0, f64::INFINITY] {
            assert_eq!((bits(9, p), most_keys(9, 3, p)), (1, u64::MAX));
        }
        for p in [0.0, -1.0, f64::NAN, f64::NEG_INFINITY] {
            assert_eq!((bits(9, p), most_keys(9, 3, p)), (u64::MAX, 0));
        }
        assert_eq!((bits(0, 0.01), probes(0, 0)), (1, 1));
        assert_eq!([f64::NAN, -4.0, 0.0, f64::INFINITY].map(probes_at), [1, 1, 1, 255]);
        assert_eq!((rate(5, 0, 3), rate(5, 10, 0), rate(0, 10, 3)), (1.0, 1.0, 0.0));
        assert_eq!((cardinality(10, 3, 0), cardinality(10, 3, 10)), (0.0, f64::INFINITY));
    }
}
