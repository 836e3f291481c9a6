//! Size, best number of probes and false-positive rate of a blocked filter.
//!
//! The textbook's formula assumes that a key's bits are spread over the whole filter. In a blocked
//! filter keys are spread over lines, and some lines get more keys than others. Within a line the
//! probes of keys and of a lookup can coincide. [`designed_rate`] includes all of that, without
//! approximation.

use crate::probe::cache_line::{LINE_BITS, MAX_PROBES};
use crate::rate::double_double::DoubleDouble;

/// The most bits per key of a filter; larger values are clamped to this.
pub const MAX_BITS_PER_KEY: i32 = 1000;

/// Number of lines of 512 bits of a filter of `keys` keys with `bits_per_key` bits each, at least
/// 1.
pub fn line_count(keys: u64, bits_per_key: i32) -> u64 {
    let bits = u128::from(keys) * bits_per_key.clamp(0, MAX_BITS_PER_KEY).unsigned_abs() as u128;
    u64::try_from(bits.div_ceil(u128::from(LINE_BITS))).unwrap_or(u64::MAX).max(1)
}

/// Bits per key from which 1, 2, 3 ... probes are best; a test computes these numbers again.
const PROBES_BEST_FROM: [i32; MAX_PROBES as usize] =
    [1, 3, 4, 6, 7, 9, 11, 13, 15, 17, 20, 22, 25, 29, 33, 37, 42, 48, 55, 62, 71, 81, 93, 107];

/// The best number of probes at `bits_per_key` bits per key, 1 to [`MAX_PROBES`]: the fewest whose
/// [`designed_rate`] in a large filter is within 1 % of the lowest.
///
/// The number is smaller than for a standard Bloom filter: with many probes, a line with more keys
/// than its share is overfull.
pub fn probes(bits_per_key: i32) -> u32 {
    let reached = PROBES_BEST_FROM.iter().filter(|&&from| from <= bits_per_key).count();
    (reached as u32).max(1)
}

/// Number of thresholds, in tenths of bits per key, that `bits_per_key` reaches, at least one.
pub(crate) fn best_from(thresholds: &[u16], bits_per_key: f64) -> u32 {
    let tenths = bits_per_key * 10.0;
    let reached = thresholds.iter().filter(|from| f64::from(**from) <= tenths).count();
    (reached as u32).max(1)
}

/// Share of absent keys that a filter of `lines` lines with `keys` keys passes.
///
/// A lookup tests `d` different positions with the probability that `probes` throws into 512 places
/// hit `d` different places. The probability that all `d` are set follows by inclusion and
/// exclusion: the alternating sum over `i` of `d` choose `i` times the probability that no key of
/// the filter touches `i` given positions. A key does not touch them if it is in another line or
/// all its probes miss them: `1 - (1 - (1 - i/512)^probes) / lines`, to the power of `keys`. Added
/// to that is the probability that the looked-up key has the hash of an added key, one in 2^64 for
/// each.
///
/// If the rate is small, most digits of the sum cancel, so it is computed with twice the digits of
/// a float. The remaining error is below the probability of equal hashes. Takes some microseconds.
/// Returns 1.0 for a filter without lines or probes.
pub fn designed_rate(keys: u64, lines: u64, probes: u32) -> f64 {
    rate_in_cells(LINE_BITS as u32, keys, lines, probes)
}

/// Computes [`designed_rate`] for blocks of `cells` bits instead of lines.
pub fn rate_in_cells(cells: u32, keys: u64, blocks: u64, probes: u32) -> f64 {
    if blocks == 0 || probes == 0 {
        return 1.0;
    }
    let probes = probes.min(MAX_PROBES);
    let untouched: Vec<DoubleDouble> = (0..=probes)
        .map(|positions| {
            let miss = DoubleDouble::from(1.0 - f64::from(positions) / f64::from(cells));
            untouched(miss.power(u64::from(probes)), keys, blocks)
        })
        .collect();
    let passed: f64 = distinct_positions(cells, probes)
        .iter()
        .enumerate()
        .map(|(distinct, chance)| chance * chance_all_set(distinct, &untouched))
        .sum();
    with_same_hash(passed, keys, 64)
}

/// The numbers of the 32-bit hashes: murmur3-32 and LevelDB's.
const HASHES_OF_32_BITS: [u8; 2] = [5, 13];

/// Returns `rate`, increased by collisions if the hash with the given number has only 32 bits.
pub(crate) fn with_hash_floor(rate: f64, keys: u64, hash_kind: u8) -> f64 {
    if HASHES_OF_32_BITS.contains(&hash_kind) { with_same_hash(rate, keys, 32) } else { rate }
}

/// Returns `rate`, increased by the chance that an absent key has the hash of one of `keys` keys,
/// for hashes of `bits` bits.
pub(crate) fn with_same_hash(rate: f64, keys: u64, hash_bits: i32) -> f64 {
    let rate = rate.clamp(0.0, 1.0);
    let same_hash = -(-(keys as f64) / 2f64.powi(hash_bits)).exp_m1();
    rate + (1.0 - rate) * same_hash
}

/// The chance that no key touches given positions of a block. A key of that block misses the
/// positions with the chance `miss`.
pub(crate) fn untouched(miss: DoubleDouble, keys: u64, blocks: u64) -> DoubleDouble {
    let touch = DoubleDouble::from(1.0).minus(miss);
    DoubleDouble::from(1.0).minus(touch.divided_by(blocks as f64)).power(keys)
}

/// The chance that `distinct` given positions are all set, where `untouched` are the chances that
/// none, one, two ... of them are touched by no key.
pub(crate) fn chance_all_set(distinct: usize, untouched: &[DoubleDouble]) -> f64 {
    let mut choose = 1.0;
    let mut sum = DoubleDouble::from(0.0);
    for (index, chance) in untouched.iter().take(distinct + 1).enumerate() {
        let term = chance.times(DoubleDouble::from(choose));
        sum = if index % 2 == 0 { sum.plus(term) } else { sum.minus(term) };
        // 24 choose 12 has 22 bits, so that this product and quotient are exact.
        choose = choose * (distinct - index) as f64 / (index + 1) as f64;
    }
    sum.high.max(0.0)
}

/// The chances that `throws` throws hit 0, 1, 2 ... different ones of `cells` positions.
fn distinct_positions(cells: u32, throws: u32) -> Vec<f64> {
    let cells = f64::from(cells);
    let mut chances = vec![0.0; throws as usize + 1];
    chances[0] = 1.0;
    for _ in 0..throws {
        for hit in (0..chances.len()).rev() {
            let fresh = if hit == 0 { 0.0 } else { chances[hit - 1] * (cells - hit as f64 + 1.0) };
            chances[hit] = (chances[hit] * hit as f64 + fresh) / cells;
        }
    }
    chances
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Computes the tenths of bits per key from which each number of probes is the smallest whose
    /// rate is within 1 % of the lowest.
    pub(crate) fn table_of_probes(cells: u32, near: &[u16]) -> Vec<u16> {
        let blocks = 1u64 << 16;
        let fewest = |tenths: u16| {
            let keys = blocks * u64::from(cells) * 10 / u64::from(tenths);
            let rates: Vec<f64> =
                (1..=MAX_PROBES).map(|probes| rate_in_cells(cells, keys, blocks, probes)).collect();
            let enough = rates.iter().copied().fold(1.0, f64::min) * 1.01;
            rates.iter().position(|&rate| rate <= enough).map_or(0, |at| at + 1)
        };
        // Two neighbours show whether a threshold is right; only a wrong one is searched.
        let right = |(index, from): (usize, &u16)| {
            fewest(*from) > index && (*from == 1 || fewest(from - 1) <= index)
        };
        if near.iter().enumerate().all(right) {
            return near.to_vec();
        }
        let mut table = vec![];
        for tenths in 1..4_000 {
            while table.len() < fewest(tenths) {
                table.push(tenths);
            }
        }
        table
    }

    /// The same chance the long way: the distribution of set bits after every single throw, and
    /// the lines' occupancy key by key. No difference of near numbers, so no lost digits.
    fn rate_throw_by_throw(cells: usize, keys: u64, lines: u64, probes: u32) -> f64 {
        let mut set = vec![0.0; cells + 1];
        set[0] = 1.0;
        let share = 1.0 / lines as f64;
        // The chance of `held` keys in a line: binomial, as a logarithm so that nothing underflows.
        let mut log_chance = keys as f64 * (-share).ln_1p();
        let mut rate = 0.0;
        for held in 0..=keys.min(4000) {
            let query: f64 = (0..=cells)
                .map(|bits| set[bits] * (bits as f64 / cells as f64).powi(probes as i32))
                .sum();
            rate += if lines == 1 { 0.0 } else { log_chance.exp() * query };
            if lines == 1 && held == keys {
                return query;
            }
            log_chance += ((keys - held) as f64 / (held + 1) as f64 * share / (1.0 - share)).ln();
            for _ in 0..probes {
                for bits in (1..=cells).rev() {
                    let fresh = set[bits - 1] * (cells - bits + 1) as f64;
                    set[bits] = (set[bits] * bits as f64 + fresh) / cells as f64;
                }
                set[0] = 0.0;
            }
        }
        rate
    }

    #[test]
    fn the_closed_form_is_the_sum_over_throws() {
        for (keys, lines, probes) in [
            (1, 1, 1),
            (50, 1, 6),
            (900, 1, 2),
            (51, 2, 6),
            (1_000, 20, 6),
            (1_000_000, 1 << 20, 24),
            (1 << 24, 1 << 20, 14),
            (5 << 20, 1 << 20, 23),
            (300 << 20, 1 << 20, 1),
        ] {
            for cells in [LINE_BITS as u32, 256] {
                let expected = rate_throw_by_throw(cells as usize, keys, lines, probes);
                let found = rate_in_cells(cells, keys, lines, probes);
                let same_hash = keys as f64 / 2f64.powi(64);
                let error = (found - same_hash - expected).abs();
                assert!(
                    error <= expected * 1e-9 + same_hash * 0.01,
                    "{cells} bits, {keys} keys, {lines} lines, {probes} probes: {found:e} for \
                     {expected:e}"
                );
            }
        }
    }

    #[test]
    fn rates_at_the_limits_are_exact() {
        assert_eq!(designed_rate(0, 10, 6), 0.0);
        assert_eq!(designed_rate(10, 0, 6), 1.0);
        assert_eq!(designed_rate(10, 10, 0), 1.0);
        assert!(designed_rate(u64::MAX, 1, 24) == 1.0);
        assert!(designed_rate(1 << 40, u64::MAX, 24) < 1e-6);
    }

    #[test]
    fn probe_table_follows_the_rate() {
        let lines = 1 << 16;
        for bits_per_key in 1..=MAX_BITS_PER_KEY {
            let keys = lines * LINE_BITS / bits_per_key as u64;
            let rates: Vec<f64> =
                (1..=MAX_PROBES).map(|probes| designed_rate(keys, lines, probes)).collect();
            let enough = rates.iter().copied().fold(1.0, f64::min) * 1.01;
            let chosen = probes(bits_per_key) as usize;
            assert!(rates[chosen - 1] <= enough, "{bits_per_key} bits: {chosen} probes");
            // Beyond that many bits only equal hashes distinguish numbers of probes.
            if bits_per_key < 200 {
                let fewest = rates.iter().position(|&rate| rate <= enough);
                assert_eq!(fewest, Some(chosen - 1), "{bits_per_key} bits");
            }
        }
    }

    #[test]
    fn lines_have_the_requested_bits() {
        assert_eq!(line_count(0, 10), 1);
        assert_eq!(line_count(1, 1000), 2);
        assert_eq!(line_count(512, 1), 1);
        assert_eq!(line_count(513, 1), 2);
        assert_eq!(line_count(1_000_000, 10), 19_532);
        assert_eq!(line_count(1_000_000, -1), 1);
        assert_eq!(line_count(1_000, 5_000), line_count(1_000, 1_000));
        assert_eq!(line_count(u64::MAX, 1000), u64::MAX);
        assert_eq!([-1, 0, 1, 10, 100, 1000, i32::MAX].map(probes), [1, 1, 1, 6, 23, 24, 24]);
    }
}
