//! Which bits of a standard, or which counters of a counting, Bloom filter belong to a key.

use crate::hash::fold;
use crate::widened::narrow_hash;
use std::ops::Range;

/// How the positions of a key are made of its hash.
///
/// FORMAT: the number stands in byte 28 of a standard Bloom filter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum Probing {
    /// The hash is multiplied by a constant again for each probe, and the high bits of the product
    /// choose the position. Every probe depends on all 64 bits of the hash, so that probes are
    /// as independent in small filters as in large ones.
    #[default]
    Multiplied = 0,
    /// Enhanced double hashing over 64 bits: from probe to probe a number grows by a step, and the
    /// step by an increment; all three are of 64 bits and made of the hash. The high bits of the
    /// number choose the position.
    ///
    /// With the increments 1, 2, 3 ... that the method is published with, the increments never
    /// reach the high bits, and it would be plain double hashing. In filters of a few hundred bits
    /// the three numbers of different keys meet too often: by a third more false positives at 64.
    Enhanced = 1,
    /// LevelDB's: a number of 32 bits that grows by itself, rotated right by 17 bits; the position
    /// is the rest by the number of bits. Only for filters that are exchanged with LevelDB.
    ///
    /// Its rate is above theory's, by up to a half in tests, and never below `keys / 2^32`: number
    /// and step are the same 32 bits, and the third probe is the sum of their halves, so that it
    /// reaches less than 2^18 positions.
    LevelDb = 2,
}

/// FORMAT: what the hash is multiplied by, and what makes the step and the increment of it.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
const STEP: u64 = FACTOR;
const INCREMENT: u64 = 0xbb67_ae85_84ca_a73b;

impl Probing {
    /// The number in a filter's header.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// The probing of that number; `None` for one that this version does not know.
    pub fn from_number(number: u8) -> Option<Probing> {
        let known = [Probing::Multiplied, Probing::Enhanced, Probing::LevelDb];
        known.into_iter().find(|known| known.number() == number)
    }

    /// Whether `holds` is true for all positions of those probes, each below `bits`; does not ask
    /// it beyond the first for which it is not.
    ///
    /// REQUIRES: `bits` is not 0.
    #[inline(always)]
    pub(crate) fn all(
        self,
        hash: u64,
        bits: u64,
        probes: Range<u8>,
        mut holds: impl FnMut(u64) -> bool,
    ) -> bool {
        // No position is preferred: they are high halves of products with 64 bits, not rests.
        let position = |number| ((u128::from(number) * u128::from(bits)) >> 64) as u64;
        match self {
            Probing::Multiplied => {
                let mut number = hash;
                (0..probes.start).for_each(|_| number = number.wrapping_mul(FACTOR));
                probes.clone().all(|_| {
                    number = number.wrapping_mul(FACTOR);
                    holds(position(number))
                })
            }
            Probing::Enhanced => {
                let (mut number, mut step) = (hash, fold(hash, STEP));
                let increment = fold(hash, INCREMENT);
                for _ in 0..probes.start {
                    number = number.wrapping_add(step);
                    step = step.wrapping_add(increment);
                }
                probes.clone().all(|_| {
                    let position = position(number);
                    number = number.wrapping_add(step);
                    step = step.wrapping_add(increment);
                    holds(position)
                })
            }
            Probing::LevelDb => {
                let mut number = narrow_hash(hash);
                let step = number.rotate_right(17);
                number = number.wrapping_add(step.wrapping_mul(u32::from(probes.start)));
                probes.clone().all(|_| {
                    let position = u64::from(number) % bits;
                    number = number.wrapping_add(step);
                    holds(position)
                })
            }
        }
    }

    /// Calls `take` with every position of those probes.
    ///
    /// REQUIRES: `bits` is not 0.
    #[inline(always)]
    pub(crate) fn each(self, hash: u64, bits: u64, probes: Range<u8>, mut take: impl FnMut(u64)) {
        self.all(hash, bits, probes, |position| {
            take(position);
            true
        });
    }
}
