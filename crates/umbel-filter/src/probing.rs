//! Which bits of a standard, or which counters of a counting, Bloom filter belong to a key.

use crate::hash::fold;
use crate::widened::narrow_hash;

/// How the positions of a key are made of its hash.
///
/// FORMAT: the number stands in byte 28 of a standard Bloom filter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum Probing {
    /// Enhanced double hashing over 64 bits: from probe to probe a number grows by a step, and the
    /// step by an increment; all three are of 64 bits and made of the hash. The position is the
    /// high half of number times bits, so that no position is preferred.
    ///
    /// With the increments 1, 2, 3 ... that the method is published with, the increments never
    /// reach the high bits which choose a position, and it would be plain double hashing.
    #[default]
    Enhanced = 0,
    /// LevelDB's: a number of 32 bits that grows by itself, rotated right by 17 bits; the position
    /// is the rest by the number of bits. Only for filters that are exchanged with LevelDB: its
    /// rate is higher than theory's, and never below `keys / 2^32`.
    LevelDb = 1,
}

/// FORMAT: what makes the step and the increment of the hash.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
const INCREMENT: u64 = 0xbb67_ae85_84ca_a73b;

impl Probing {
    /// The number in a filter's header.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// The probing of that number; `None` for one that this version does not know.
    pub fn from_number(number: u8) -> Option<Probing> {
        [Probing::Enhanced, Probing::LevelDb].into_iter().find(|known| known.number() == number)
    }

    /// Whether `holds` is true for all positions, each below `bits`; does not ask it beyond the
    /// first for which it is not.
    ///
    /// REQUIRES: `bits` is not 0.
    #[inline(always)]
    pub(crate) fn all(
        self,
        hash: u64,
        bits: u64,
        probes: u8,
        mut holds: impl FnMut(u64) -> bool,
    ) -> bool {
        match self {
            Probing::Enhanced => {
                let (mut number, mut step) = (hash, fold(hash, STEP));
                let increment = fold(hash, INCREMENT);
                (0..probes).all(|_| {
                    let position = ((u128::from(number) * u128::from(bits)) >> 64) as u64;
                    number = number.wrapping_add(step);
                    step = step.wrapping_add(increment);
                    holds(position)
                })
            }
            Probing::LevelDb => {
                let mut number = narrow_hash(hash);
                let step = number.rotate_right(17);
                (0..probes).all(|_| {
                    let position = u64::from(number) % bits;
                    number = number.wrapping_add(step);
                    holds(position)
                })
            }
        }
    }

    /// Calls `take` with every position.
    ///
    /// REQUIRES: `bits` is not 0.
    #[inline(always)]
    pub(crate) fn each(self, hash: u64, bits: u64, probes: u8, mut take: impl FnMut(u64)) {
        self.all(hash, bits, probes, |position| {
            take(position);
            true
        });
    }
}
