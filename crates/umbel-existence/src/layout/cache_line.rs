//! One line of the filter: in which line a hash is, and which bits of the line it sets.
//!
//! FORMAT: a line has 480 bits; bit `b` is bit `b % 64` of word `b / 64`. The number of a hash's
//! line is the high word of the 128-bit product of hash and number of lines. The low word of the
//! product chooses the bits, so that the bits that chose the line are not used again.

use std::sync::atomic::{AtomicU64, Ordering};

/// FORMAT: bits of a line that keys set.
pub(crate) const LINE_BITS: u64 = 480;
/// Bytes of a line, including four bytes of checksum.
pub(crate) const LINE_BYTES: usize = 64;
/// Words of a line. The upper half of the last word is the checksum on disk, and zero in memory.
pub(crate) const LINE_WORDS: usize = 8;
/// FORMAT: mask of the bits of the last word that keys can set.
pub(crate) const LAST_WORD: u64 = 0xffff_ffff;
/// FORMAT: smallest and largest number of bits that a key sets.
pub(crate) const PROBES_RANGE: std::ops::RangeInclusive<u32> = 2..=8;

/// Number of positions from a mix of 64 bits.
const PROBES_PER_MIX: u32 = 4;
/// FORMAT: the multipliers of the two mixes: the golden ratio and the fraction of the square root
/// of 3.
pub(crate) const MULTIPLIERS: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0xbb67_ae85_84ca_a73b];

/// A line in memory.
pub(crate) type AtomicLine = [AtomicU64; LINE_WORDS];
/// A line as it was at some moment.
pub(crate) type Line = [u64; LINE_WORDS];

/// The line with all bits set, which answers "maybe" to every hash.
pub(crate) const ALL_ONES: Line = {
    let mut line = [u64::MAX; LINE_WORDS];
    line[LINE_WORDS - 1] = LAST_WORD;
    line
};

/// Position of a hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LinePosition {
    /// Number of the line.
    pub(crate) line: u64,
    /// Low word of the product, which chooses the bits in the line.
    pub(crate) rest: u64,
}

/// Position of `hash` among `lines` lines.
#[inline(always)]
pub(crate) fn locate(hash: u64, lines: u64) -> LinePosition {
    let product = u128::from(hash) * u128::from(lines);
    LinePosition { line: (product >> 64) as u64, rest: product as u64 }
}

/// FORMAT: a mix of a hash's low word of the product.
#[inline(always)]
pub(crate) fn mix(word: u64, multiplier: u64) -> u64 {
    let product = u128::from(word) * u128::from(multiplier);
    product as u64 ^ (product >> 64) as u64
}

/// FORMAT: position `number` of a mix: sixteen of its bits, times 480, without the low sixteen.
#[inline(always)]
fn position(mix: u64, number: u32) -> usize {
    let sixteen = mix >> (16 * number) & 0xffff;
    ((sixteen * LINE_BITS) >> 16) as usize
}

/// Returns a word whose lowest bit is the bit of the line at `position`.
#[inline(always)]
fn bit(line: &AtomicLine, position: usize) -> u64 {
    line[position / 64].load(Ordering::Relaxed) >> (position % 64)
}

/// Whether the line has all bits of the hash whose position is `place`.
///
/// For processors that cannot test all bits at once. The first two bits refuse most absent hashes,
/// so there is one branch after them. Shorter code has more lines in flight from memory at a time,
/// so the other bits are tested in a separate function.
#[inline(always)]
pub(crate) fn has_all(line: &AtomicLine, place: LinePosition, probes: u32) -> bool {
    let first = mix(place.rest, MULTIPLIERS[0]);
    let two = bit(line, position(first, 0)) & bit(line, position(first, 1));
    two & 1 != 0 && has_rest(line, place, probes)
}

/// Tests the bits after the second, without branches, since nearly all of them are set.
#[inline(never)]
fn has_rest(line: &AtomicLine, place: LinePosition, probes: u32) -> bool {
    let (first, second) = (mix(place.rest, MULTIPLIERS[0]), mix(place.rest, MULTIPLIERS[1]));
    let mut found = 1;
    for number in 2..probes.min(PROBES_PER_MIX) {
        found &= bit(line, position(first, number));
    }
    for number in PROBES_PER_MIX..probes {
        found &= bit(line, position(second, number - PROBES_PER_MIX));
    }
    found & 1 != 0
}

/// Calls `each` with the position of every bit of the hash whose position is `place`.
#[inline(always)]
fn for_each_position(place: LinePosition, probes: u32, mut each: impl FnMut(usize)) {
    let mut left = probes;
    for multiplier in MULTIPLIERS {
        let mix = mix(place.rest, multiplier);
        (0..left.min(PROBES_PER_MIX)).for_each(|number| each(position(mix, number)));
        left = left.saturating_sub(PROBES_PER_MIX);
    }
}

/// Returns a line with only the bits of the hash whose position is `place`.
#[inline]
pub(crate) fn mask(place: LinePosition, probes: u32) -> Line {
    let mut mask = [0; LINE_WORDS];
    for_each_position(place, probes, |position| mask[position / 64] |= 1 << (position % 64));
    mask
}

/// Sets bits of a line. Returns whether one of these bits was not set before.
///
/// INVARIANT: `set` only changes bits from 0 to 1. So relaxed writes of several threads give the
/// same line in every order, and no bit is lost.
#[inline]
pub(crate) fn set(line: &AtomicLine, bits: &Line) -> bool {
    let mut changed = false;
    for (word, more) in line.iter().zip(bits) {
        // A word that has them all is left alone, so that it is not taken from its readers.
        if word.load(Ordering::Relaxed) & more != *more {
            changed |= word.fetch_or(*more, Ordering::Relaxed) & more != *more;
        }
    }
    changed
}

/// Sets the bits of the hash at `place` as [`set`] does, but without locked instructions, which
/// would take most of the time. The function sets single bits, because reading a whole mask would
/// stall on the words just written.
///
/// REQUIRES: no other thread changes the line meanwhile. Readers may probe it.
#[inline]
pub(crate) fn set_unshared(line: &AtomicLine, place: LinePosition, probes: u32) -> bool {
    if has_all(line, place, probes) {
        return false;
    }
    for_each_position(place, probes, |position| {
        let word = &line[position / 64];
        word.store(word.load(Ordering::Relaxed) | 1 << (position % 64), Ordering::Relaxed);
    });
    true
}

/// Reads the words of a line.
#[inline]
pub(crate) fn load(line: &AtomicLine) -> Line {
    std::array::from_fn(|word| line[word].load(Ordering::Relaxed))
}

/// Number of bits that are set.
pub(crate) fn ones(line: &Line) -> u32 {
    line.iter().map(|word| word.count_ones()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(number: u64) -> u64 {
        number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).wrapping_mul(0xd6e8_feb8_6659)
    }

    #[test]
    fn set_bits_are_found_and_partial_bits_are_not() {
        for number in 0..500 {
            for probes in PROBES_RANGE {
                let place = locate(spread(number), 64 + number);
                assert!(place.line < 64 + number);
                let mask = mask(place, probes);
                assert!((1..=probes).contains(&ones(&mask)));
                assert_eq!(mask[LINE_WORDS - 1] & !LAST_WORD, 0, "the checksum's bits are not set");
                let line = AtomicLine::default();
                let set_alone = |line: &AtomicLine| set_unshared(line, place, probes);
                assert!(set_alone(&line) && !set_alone(&line) && !set(&line, &mask));
                assert_eq!(load(&line), mask);
                let line = AtomicLine::default();
                assert!(set(&line, &mask) && !set(&line, &mask) && !set_alone(&line));
                assert!(has_all(&line, place, probes));
                for position in 0..LINE_BITS as usize {
                    let mut less = mask;
                    less[position / 64] &= !(1 << (position % 64));
                    let line = AtomicLine::default();
                    set(&line, &less);
                    assert_eq!(has_all(&line, place, probes), less == mask);
                }
            }
        }
    }

    #[test]
    fn every_bit_is_used_about_as_often() {
        let mut hits = [0u32; LINE_BITS as usize];
        for number in 0..200_000 {
            let mask = mask(locate(spread(number), 4096), 6);
            for (position, hits) in hits.iter_mut().enumerate() {
                *hits += (mask[position / 64] >> (position % 64) & 1) as u32;
            }
        }
        // 1.2 million throws over 480 bits: 2,500 each, with a deviation of 50.
        assert!(hits.iter().all(|hits| (2200..2800).contains(hits)), "{hits:?}");
    }

    #[test]
    fn all_ones_answers_maybe() {
        assert_eq!(u64::from(ones(&ALL_ONES)), LINE_BITS);
        let line = AtomicLine::default();
        set(&line, &ALL_ONES);
        assert!((0..999).all(|number| has_all(&line, locate(spread(number), 7), 8)));
    }
}
