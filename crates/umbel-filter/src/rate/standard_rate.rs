//! The exact rate of a Bloom filter whose keys set bits in the whole filter.
//!
//! The textbook's formula uses the expected number of set bits. But the number of set bits varies.
//! The rate is the mean of the `k`-th power of the share of set bits, not the power of the mean.
//! Mean and variance of the number of set bits are known exactly; the distribution is nearly
//! normal.

use crate::rate::blocked_rate::with_same_hash;

/// Maximum number of throws for the exact computation: some sixty keys at ten bits.
const EXACT_STEPS: u64 = 1 << 18;
/// Number of points of the sum over the normal distribution, and the number of deviations that they
/// cover.
const POINTS: i32 = 400;
const REACH: f64 = 9.0;

/// The false-positive rate of `bits` bits (or counters) with `probes` probes for each of `keys`
/// keys.
pub(crate) fn standard_rate(keys: u64, bits: u64, probes: u32) -> f64 {
    if bits == 0 || probes == 0 {
        return 1.0;
    }
    if keys == 0 {
        return 0.0;
    }
    let throws = keys.saturating_mul(u64::from(probes));
    let rate = if throws.saturating_mul(bits) <= EXACT_STEPS {
        all_set_exactly(throws, bits as usize, probes)
    } else {
        all_set(keys as f64 * f64::from(probes), bits as f64, probes)
    };
    with_same_hash(rate, keys, 64)
}

/// Computes [`all_set`] from the exact distribution of the number of set bits after every throw.
fn all_set_exactly(throws: u64, bits: usize, probes: u32) -> f64 {
    let mut set = vec![0.0; bits + 1];
    set[0] = 1.0;
    for _ in 0..throws {
        for hit in (1..=bits).rev() {
            let fresh = set[hit - 1] * (bits - hit + 1) as f64;
            set[hit] = (set[hit] * hit as f64 + fresh) / bits as f64;
        }
        set[0] = 0.0;
    }
    let query = |hit: usize| (hit as f64 / bits as f64).powi(probes as i32);
    set.iter().enumerate().map(|(hit, chance)| chance * query(hit)).sum()
}

/// The chance that `probes` throws into `bits` places hit only places that `throws` earlier throws
/// hit.
fn all_set(throws: f64, bits: f64, probes: u32) -> f64 {
    // The logarithm of the chance that a place, and that each of two places, is not hit.
    let one = if bits > 1.0 { throws * (-1.0 / bits).ln_1p() } else { f64::NEG_INFINITY };
    let two = if bits > 2.0 { throws * (-2.0 / bits).ln_1p() } else { f64::NEG_INFINITY };
    let mean = -one.exp_m1();
    // Var = u/m + (1 - 1/m) u2 - u^2, where u2 - u^2 = u^2 (e^(two - 2 one) - 1) is nearly nothing.
    let unset = one.exp();
    let apart = if two.is_finite() { (two - 2.0 * one).exp_m1() } else { 0.0 };
    let variance = (unset - two.exp()) / bits + unset * unset * apart;
    let deviation = variance.max(0.0).sqrt();
    // The sum of the power over the normal distribution, weighed by its density.
    let (mut sum, mut weights) = (0.0, 0.0);
    for point in -POINTS..=POINTS {
        let away = f64::from(point) / f64::from(POINTS) * REACH;
        let weight = (-away * away / 2.0).exp();
        let set = (mean + away * deviation).clamp(0.0, 1.0);
        sum += weight * set.powi(probes as i32);
        weights += weight;
    }
    sum / weights
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_equals_the_sum_over_throws() {
        for (keys, bits, probes, error_max) in [
            (100, 1_000, 7, 1e-4),
            (100, 1_000, 1, 1e-9),
            (40, 960, 17, 1e-3),
            (200, 1_000, 3, 1e-5),
            (30, 3_000, 69, 1e-2),
            (20, 200, 7, 1e-3),
            (5, 64, 6, 0.05),
        ] {
            let expected = all_set_exactly(keys * u64::from(probes), bits, probes);
            let found = all_set(keys as f64 * f64::from(probes), bits as f64, probes);
            let error = (found / expected - 1.0).abs();
            assert!(
                error < error_max,
                "{keys} keys, {bits} bits, {probes}: {found:e} for {expected:e}"
            );
        }
    }

    #[test]
    fn rate_at_the_limits_is_valid() {
        assert_eq!((standard_rate(0, 9, 3), standard_rate(9, 0, 3)), (0.0, 1.0));
        assert_eq!(standard_rate(9, 9, 0), 1.0);
        assert_eq!((standard_rate(1, 1, 255), standard_rate(u64::MAX, 2, 1)), (1.0, 1.0));
        let large = standard_rate(30_000_000, 480_000_000, 11);
        assert!((large / 4.588e-4 - 1.0).abs() < 1e-3, "{large}");
    }
}
