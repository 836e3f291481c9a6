//! The one layout all filters share: which line a hash falls into, and which bits of it.
//!
//! FORMAT: a line is 512 bits; bit `b` of a line is bit `b % 64` of its word `b / 64`. The line is
//! the high half of hash times lines, which is monotonous in the hash: a filter of `m` lines
//! becomes one of `m / f` lines by joining `f` neighbours, for every `f` that divides `m`.
//!
//! INVARIANT: within one line the positions depend on the bits below those that chose the line.
//! They are read from a multiplication that carries low bits upwards; to it, the bits that all
//! hashes of the line have in common are only an offset.

use crate::hash::fold;

/// Bits in a line.
pub(crate) const LINE_BITS: u64 = 512;
/// Bytes in a line.
pub(crate) const LINE_BYTES: usize = 64;
/// The most probes a filter has.
pub const MAX_PROBES: u32 = 24;

/// How many positions of nine bits one remix of 64 bits gives.
const PROBES_PER_REMIX: u32 = 7;
/// FORMAT: the multipliers of the remixes: the golden ratio, and the fractions of the square
/// roots of 3, 7 and 13, which are odd and have their highest bit set.
const MULTIPLIERS: [u64; 4] =
    [0x9e37_79b9_7f4a_7c15, 0xbb67_ae85_84ca_a73b, 0xa54f_f53a_5f1d_36f1, 0x9b05_688c_2b3e_6c1f];

/// A line in memory, never across two cache lines.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
pub(crate) struct Line(pub(crate) [u64; 8]);

/// The line of `hash` among `lines`: less than `lines`, where there are any.
#[inline(always)]
pub(crate) fn line_of(hash: u64, lines: u64) -> u64 {
    ((u128::from(hash) * u128::from(lines)) >> 64) as u64
}

/// Whether all probes of `hash` find their bit set; `words(n)` is word `n` of its line.
///
/// Within a remix nothing branches: half of a full filter's bits are set, so that a branch per
/// probe would be mispredicted every other time.
#[inline(always)]
pub(crate) fn all_set(hash: u64, probes: u32, word: impl Fn(usize) -> u64) -> bool {
    let mut left = probes;
    for multiplier in MULTIPLIERS {
        let mut remix = fold(hash, multiplier);
        let mut found = 1;
        for _ in 0..left.min(PROBES_PER_REMIX) {
            let bit = remix % LINE_BITS;
            found &= word((bit / 64) as usize) >> (bit % 64);
            remix >>= 9;
        }
        if found & 1 == 0 {
            return false;
        }
        if left <= PROBES_PER_REMIX {
            break;
        }
        left -= PROBES_PER_REMIX;
    }
    true
}

/// The bits that adding `hash` sets in its line.
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

/// Joins every `factor` neighbouring lines of `lines` into one by OR; `None` where `factor` does
/// not divide their number, for then some hashes would fall into a line that lacks their bits.
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
