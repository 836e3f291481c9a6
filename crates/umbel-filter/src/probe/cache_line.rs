//! The layout of lines, shared by all filters of kind 1: the line of a hash, and its bits in the
//! line.
//!
//! FORMAT: a line is 512 bits; bit `b` of a line is bit `b % 64` of its word `b / 64`. The number
//! of a hash's line is the high half of hash times lines, which is monotonic in the hash. So a
//! filter of `m` lines becomes one of `m / f` lines by joining `f` adjacent lines, for every `f`
//! that divides `m`.
//!
//! INVARIANT: within one line the positions depend on the bits below those that chose the line.
//! Positions come from a multiplication that carries low bits upwards. The bits that all hashes of
//! a line share are only an offset in that product.

use crate::hash::keyed_hash::fold;

/// Bits in a line.
pub(crate) const LINE_BITS: u64 = 512;
/// Bytes in a line.
pub(crate) const LINE_BYTES: usize = 64;
/// The most probes of a filter.
pub const MAX_PROBES: u32 = 24;

/// Number of positions of nine bits from one remix of 64 bits.
const PROBES_PER_REMIX: u32 = 7;
/// Default number of probes, for which the code has no loop.
const PROBES_AT_TEN_BITS: u32 = 6;
/// FORMAT: the multipliers of the remixes are the golden ratio, and the fractions of the square
/// roots of 3, 7 and 13, which are odd and have their highest bit set.
pub(crate) const MULTIPLIERS: [u64; 4] =
    [0x9e37_79b9_7f4a_7c15, 0xbb67_ae85_84ca_a73b, 0xa54f_f53a_5f1d_36f1, 0x9b05_688c_2b3e_6c1f];

/// A line in memory, aligned to a cache line.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
pub(crate) struct Line(pub(crate) [u64; 8]);

/// The number of the line of `hash`: less than `lines`, unless that is 0.
#[inline(always)]
pub(crate) fn line_of(hash: u64, lines: u64) -> u64 {
    ((u128::from(hash) * u128::from(lines)) >> 64) as u64
}

/// Whether all bits of `hash` are set in its line `words`.
///
/// The first two probes refuse three of four absent keys, so there is one branch after them. The
/// other probes have no branch before their end: half of a full filter's bits are set, so a branch
/// per probe would be mispredicted every other time. The other probes are a separate function.
/// Otherwise the compiler would compute the positions of all probes ahead of callers' loops over
/// filters, even for keys that two probes refuse.
#[inline(always)]
pub(crate) fn all_set(hash: u64, probes: u32, words: &impl Words) -> bool {
    let remix = fold(hash, MULTIPLIERS[0]);
    let second = probe(words, remix >> 9) | u64::from(probes < 2);
    probe(words, remix) & second & 1 != 0 && rest_set(hash, remix >> 18, probes, words)
}

/// The words of a line.
pub(crate) trait Words {
    /// Word `index`, less than 8.
    fn word(&self, index: usize) -> u64;
}

impl Words for Line {
    #[inline(always)]
    fn word(&self, index: usize) -> u64 {
        self.0[index]
    }
}

impl Words for [u64; 8] {
    #[inline(always)]
    fn word(&self, index: usize) -> u64 {
        self[index]
    }
}

/// Returns a word whose lowest bit is the bit of the line at the position in the lowest nine bits
/// of `remix`.
#[inline(always)]
fn probe(words: &impl Words, remix: u64) -> u64 {
    let bit = remix % LINE_BITS;
    words.word((bit / 64) as usize) >> (bit % 64)
}

/// Tests the probes after the second. `remix` has the remaining positions of the first remix.
#[inline(never)]
fn rest_set(hash: u64, remix: u64, probes: u32, words: &impl Words) -> bool {
    let probe_of = |number: u32| probe(words, remix >> (9 * number));
    if probes == PROBES_AT_TEN_BITS {
        return probe_of(0) & probe_of(1) & probe_of(2) & probe_of(3) & 1 != 0;
    }
    let of_first = probes.saturating_sub(2).min(PROBES_PER_REMIX - 2);
    if (0..of_first).fold(1, |found, number| found & probe_of(number)) & 1 == 0 {
        return false;
    }
    let mut left = probes.saturating_sub(PROBES_PER_REMIX);
    for multiplier in &MULTIPLIERS[1..] {
        let remix = fold(hash, *multiplier);
        let here = left.min(PROBES_PER_REMIX);
        if (0..here).fold(1, |found, number| found & probe(words, remix >> (9 * number))) & 1 == 0 {
            return false;
        }
        left -= here;
    }
    true
}

/// Returns a line with the bits that adding `hash` sets.
#[inline]
pub(crate) fn mask(hash: u64, probes: u32) -> [u64; 8] {
    let mut mask = [0; 8];
    let mut left = probes;
    for multiplier in MULTIPLIERS {
        let mut remix = fold(hash, multiplier);
        for _ in 0..left.min(PROBES_PER_REMIX) {
            let bit = remix % LINE_BITS;
            mask[(bit / 64) as usize] |= 1 << (bit % 64);
            remix >>= 9;
        }
        left = left.saturating_sub(PROBES_PER_REMIX);
    }
    mask
}

/// Sets the bits of `hash` in its encoded line.
#[inline(always)]
pub(crate) fn add(line: &mut [u8; LINE_BYTES], hash: u64, probes: u32) {
    let (words, _) = line.as_chunks_mut::<8>();
    let mut left = probes;
    for multiplier in MULTIPLIERS {
        let mut remix = fold(hash, multiplier);
        for _ in 0..left.min(PROBES_PER_REMIX) {
            let bit = remix % LINE_BITS;
            let word = &mut words[(bit / 64) as usize];
            *word = (u64::from_le_bytes(*word) | 1 << (bit % 64)).to_le_bytes();
            remix >>= 9;
        }
        if left <= PROBES_PER_REMIX {
            return;
        }
        left -= PROBES_PER_REMIX;
    }
}

/// Joins every `factor` adjacent lines of `lines` into one by OR. `None` if `factor` does not
/// divide their number, because some hashes would then lose their bits.
pub(crate) fn fold_lines(
    lines: impl ExactSizeIterator<Item = Line>,
    factor: u64,
) -> Option<Box<[Line]>> {
    let factor = usize::try_from(factor).ok()?;
    if factor == 0 || !lines.len().is_multiple_of(factor) {
        return None;
    }
    let mut joined = vec![Line::default(); lines.len() / factor];
    for (index, line) in lines.enumerate() {
        for (word, more) in joined[index / factor].0.iter_mut().zip(line.0) {
            *word |= more;
        }
    }
    Some(joined.into_boxed_slice())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate::blocked_rate::designed_rate;

    #[test]
    fn positions_are_those_of_the_mask() {
        for number in 0..2_000u64 {
            let hash = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(7) ^ number;
            for probes in 1..=MAX_PROBES {
                let mask = mask(hash, probes);
                let mut added = [0; LINE_BYTES];
                add(&mut added, hash, probes);
                assert_eq!(added.as_chunks::<8>().0, mask.map(u64::to_le_bytes));
                assert!(all_set(hash, probes, &Line(mask)));
                let set: u32 = mask.iter().map(|word| word.count_ones()).sum();
                assert!((1..=probes).contains(&set));
                for bit in 0..512usize {
                    let mut less = mask;
                    less[bit / 64] &= !(1 << (bit % 64));
                    assert_eq!(all_set(hash, probes, &Line(less)), less == mask);
                }
                if number > 20 {
                    break;
                }
            }
        }
    }

    #[test]
    fn default_probe_count_equals_the_loop() {
        assert_eq!(crate::rate::blocked_rate::probes(10), PROBES_AT_TEN_BITS);
    }

    #[test]
    fn folding_needs_a_divisor() {
        let lines = || vec![Line([1, 0, 0, 0, 0, 0, 0, 2]); 12].into_iter();
        assert!(fold_lines(lines(), 0).is_none());
        assert!(fold_lines(lines(), 5).is_none());
        assert!(fold_lines(lines(), 24).is_none());
        assert_eq!(fold_lines(lines(), 4).map(|folded| folded.len()), Some(3));
    }

    /// In a filter of 2^32 lines, 256 GiB, 32 bits of the hash have chosen the line; the other 32
    /// must do for the positions. Single lines of such a filter are simulated.
    #[test]
    fn lines_of_huge_filters_are_uniform() {
        let mut state = 1u64;
        let mut random = || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ mixed >> 31
        };
        for (keys, probes) in [(51, 6), (64, 7), (34, 14), (22, 24)] {
            let (mut passed, queries) = (0, 150_000);
            let mut line = [0; 8];
            let mut top = 0;
            for query in 0..queries {
                if query % 100 == 0 {
                    line = [0; 8];
                    top = random() << 32;
                    for _ in 0..keys {
                        let more = mask(top | random() >> 32, probes);
                        line.iter_mut().zip(more).for_each(|(word, more)| *word |= more);
                    }
                }
                let hash = top | random() >> 32;
                assert_eq!(line_of(hash, 1 << 32), top >> 32);
                passed += u32::from(all_set(hash, probes, &Line(line)));
            }
            let expected = designed_rate(keys, 1, probes) * f64::from(queries);
            let error = (f64::from(passed) - expected).abs();
            assert!(error < 5.0 * expected.sqrt().max(expected / 50.0), "{passed} for {expected}");
        }
    }
}
