//! Positions of a key in a standard or a counting Bloom filter.

use crate::hash::hash_widening::narrow_hash;
use crate::hash::keyed_hash::fold;
use std::ops::Range;

/// Derivation of a key's positions from its hash.
///
/// FORMAT: the number is byte 28 of a standard Bloom filter.
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
    /// step by an increment. Number, step and increment have 64 bits and are derived from the hash.
    /// The high bits of the number choose the position.
    ///
    /// The published increments 1, 2, 3 ... never reach the high bits, so that the method would be
    /// plain double hashing. In filters of a few hundred bits the positions of different keys
    /// coincide too often: a filter of 64 bits has a third more false positives.
    Enhanced = 1,
    /// LevelDB's probing: from probe to probe a number of 32 bits grows by its first value, rotated
    /// right by 17 bits. The position is the number's remainder by the filter's number of bits.
    /// Only for filters that are exchanged with LevelDB.
    ///
    /// The rate of LevelDB's probing is above the theoretical rate, by up to a half in tests, and
    /// never below `keys / 2^32`. Number and step consist of the same 32 bits. The third probe is
    /// the sum of their halves, so that it has less than 2^18 different positions.
    LevelDb = 2,
}

/// FORMAT: multiplier of the hash, and multipliers for its step and increment.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
const STEP: u64 = FACTOR;
const INCREMENT: u64 = 0xbb67_ae85_84ca_a73b;

/// Runs code in which `next` yields an endless sequence of positions of the hash. The code has one
/// copy for each probing, so that the probing is tested only once.
macro_rules! with_positions {
    ($probing:expr, $hash:expr, $bits:expr, $next:ident => $run:expr) => {
        match $probing {
            Probing::Multiplied => {
                let mut $next = multiplied($hash, $bits);
                $run
            }
            Probing::Enhanced => {
                let mut $next = enhanced($hash, $bits);
                $run
            }
            Probing::LevelDb => {
                let mut $next = leveldb($hash, $bits);
                $run
            }
        }
    };
}

impl Probing {
    /// The probing's number in a filter's header.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// The probing with a number; `None` for a number that this build does not know.
    pub fn from_number(number: u8) -> Option<Probing> {
        let known = [Probing::Multiplied, Probing::Enhanced, Probing::LevelDb];
        known.into_iter().find(|known| known.number() == number)
    }

    /// Calls `take` with the position of every probe, each below `bits`.
    ///
    /// REQUIRES: `bits` is not 0.
    #[inline(always)]
    pub(crate) fn for_each_position(
        self,
        hash: u64,
        bits: u64,
        probes: Range<u8>,
        mut take: impl FnMut(u64),
    ) {
        with_positions!(self, hash, bits, next => {
            for _ in 0..probes.start {
                next();
            }
            for _ in probes {
                take(next());
            }
        });
    }

    /// Whether `holds` is true for the positions of all probes, each below `bits`: the filter's
    /// answer for one hash.
    ///
    /// Half of a full filter's bits are set. So a branch after each of the first probes would be
    /// mispredicted every other time for absent keys. There is one branch after the first two
    /// probes, which refuse three of four absent keys. Only the remaining quarter pays for the
    /// branches after later probes.
    ///
    /// REQUIRES: `bits` is not 0.
    #[inline(always)]
    pub(crate) fn all_positions(
        self,
        hash: u64,
        bits: u64,
        probes: u8,
        holds: impl Fn(u64) -> bool,
    ) -> bool {
        with_positions!(self, hash, bits, next => {
            let first = holds(next());
            let second = holds(next()) | (probes < FIRST_ROUND_PROBES);
            first & second && (FIRST_ROUND_PROBES..probes).all(|_| holds(next()))
        })
    }

    /// Tests positions as [`Probing::all_positions`] does, but for a filter of at least
    /// [`crate::bloom_variants::kind_view::FAR`] bytes, with a branch after every probe. For such a
    /// filter a misprediction costs little compared with the line of another probe.
    #[inline(always)]
    pub(crate) fn all_positions_branching(
        self,
        hash: u64,
        bits: u64,
        probes: u8,
        holds: impl Fn(u64) -> bool,
    ) -> bool {
        // The first stands apart: half of all absent keys need no more.
        with_positions!(self, hash, bits, next => {
            holds(next()) && (1..probes).all(|_| holds(next()))
        })
    }
}

/// Number of probes that are tested before the others: three of four absent keys need no more.
pub(crate) const FIRST_ROUND_PROBES: u8 = 2;

/// Probes of an uncached filter, in three rounds: the third round fetches no line for a hash that
/// the second round refused.
pub(crate) fn three_rounds(probes: u8) -> [Range<u8>; 3] {
    let (first, second) = (probes.min(FIRST_ROUND_PROBES), probes.min(2 * FIRST_ROUND_PROBES));
    [0..first, first..second, second..probes]
}

#[inline(always)]
fn multiplied(hash: u64, bits: u64) -> impl FnMut() -> u64 {
    let mut number = hash;
    move || {
        number = number.wrapping_mul(FACTOR);
        share(number, bits)
    }
}

#[inline(always)]
fn enhanced(hash: u64, bits: u64) -> impl FnMut() -> u64 {
    let (mut number, mut step) = (hash, fold(hash, STEP));
    let increment = fold(hash, INCREMENT);
    move || {
        let position = share(number, bits);
        number = number.wrapping_add(step);
        step = step.wrapping_add(increment);
        position
    }
}

#[inline(always)]
fn leveldb(hash: u64, bits: u64) -> impl FnMut() -> u64 {
    let mut number = narrow_hash(hash);
    let step = number.rotate_right(17);
    move || {
        let position = u64::from(number) % bits;
        number = number.wrapping_add(step);
        position
    }
}

/// No position is preferred: they are high halves of products with 64 bits, not rests.
#[inline(always)]
fn share(number: u64, bits: u64) -> u64 {
    ((u128::from(number) * u128::from(bits)) >> 64) as u64
}
