//! One line of the filter: where a hash lies, and which bits of it are its own.
//!
//! FORMAT: a line has 480 bits; bit `b` is bit `b % 64` of word `b / 64`. The line of a hash is the
//! high word of hash times lines. What is left of the product, its low word, chooses the bits: what
//! chose the line is not used again.

use std::sync::atomic::{AtomicU64, Ordering};

/// FORMAT: bits of a line that keys set.
pub(crate) const LINE_BITS: u64 = 480;
/// Bytes of a line, the four of its checksum included.
pub(crate) const LINE_BYTES: usize = 64;
/// Words of a line. The upper half of the last one is the checksum's on disk and zero in memory.
pub(crate) const LINE_WORDS: usize = 8;
/// FORMAT: the bits of the last word that keys set.
pub(crate) const LAST_WORD: u64 = 0xffff_ffff;
/// FORMAT: fewest and most bits that a key sets.
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

/// The line of which every bit is set: it says "maybe" to every hash.
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
    /// Rest of the hash, which chooses the bits.
    pub(crate) rest: u64,
}

/// Position of `hash` among `lines` lines.
#[inline(always)]
pub(crate) fn locate(hash: u64, lines: u64) -> LinePosition {
    let product = u128::from(hash) * u128::from(lines);
    LinePosition { line: (product >> 64) as u64, rest: product as u64 }
}

/// FORMAT: a mix of the rest of a hash.
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

/// Has its lowest bit set where the line has the bit at `position`.
#[inline(always)]
fn bit(line: &AtomicLine, position: usize) -> u64 {
    line[position / 64].load(Ordering::Relaxed) >> (position % 64)
}

/// Whether the line has all bits of the hash that lies at `place`.
///
/// For processors that cannot test all probes at once. The first two refuse most absent hashes,
/// so there is one branch after these. The shorter a probe is, the
/// more lines are in flight from memory at a time. For the same reason the rest is a separate
/// call.
#[inline(always)]
pub(crate) fn has_all(line: &AtomicLine, place: LinePosition, probes: u32) -> bool {
    let first = mix(place.rest, MULTIPLIERS[0]);
    let two = bit(line, position(first, 0)) & bit(line, position(first, 1));
    two & 1 != 0 && has_rest(line, place, probes)
}

/// The probes after the second, without a branch: they find nearly always the same.
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

/// Calls `each` with the position of every bit of the hash that lies at `place`.
#[inline(always)]
fn for_each_position(place: LinePosition, probes: u32, mut each: impl FnMut(usize)) {
    let mut left = probes;
    for multiplier in MULTIPLIERS {
        let mix = mix(place.rest, multiplier);
        (0..left.min(PROBES_PER_MIX)).for_each(|number| each(position(mix, number)));
        left = left.saturating_sub(PROBES_PER_MIX);
    }
}

/// The bits of the hash that lies at `place`.
#[inline]
pub(crate) fn mask(place: LinePosition, probes: u32) -> Line {
    let mut mask = [0; LINE_WORDS];
    for_each_position(place, probes, |position| mask[position / 64] |= 1 << (position % 64));
    mask
}

/// Sets bits. Returns whether one of them was not set before.
///
/// INVARIANT: bits only change from 0 to 1 here. So relaxed writes of several threads end in
/// the same line in every order, and none is lost.
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

/// Sets the bits of the hash at `place` as [`set`] does, without locked instructions,
/// each of which takes longer than all the rest. It sets single bits, because a read of a whole
/// line stalls on a mask that was written in words.
///
/// REQUIRES: no other thread changes the line meanwhile. Readers may probe.
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

/// The line as it is now.
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
