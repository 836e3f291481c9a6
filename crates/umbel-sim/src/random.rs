//! Seeded numbers: the generator of all tests and campaigns, and a hash for traces. The numbers and
//! hashes are predictable, so they must not protect secrets.
//!
//! INVARIANT: the sequence of numbers of a seed never changes. Campaign reports, failpoints and
//! regression tests name seeds.

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// Stream of numbers that a seed decides: SplitMix64 by Steele, Lea and Flood.
#[derive(Debug, Clone)]
pub struct Random(SplitMix64);

impl Random {
    /// Creates the stream of a seed. Neighbouring seeds have unrelated streams.
    pub fn new(seed: u64) -> Random {
        Random(SplitMix64::seed_from_u64(seed))
    }

    /// Returns the next number.
    #[expect(clippy::should_implement_trait, reason = "the stream never ends")]
    pub fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Returns a number below `bound`. REQUIRES: `bound > 0`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Returns a number below `bound`, as for an index. REQUIRES: `bound > 0`.
    pub fn below_usize(&mut self, bound: usize) -> usize {
        self.below(bound as u64) as usize
    }

    /// Returns `true` with probability `p`.
    pub fn chance(&mut self, p: f64) -> bool {
        ((self.next() >> 11) as f64) < p * (1u64 << 53) as f64
    }

    /// Returns `true` with a probability of `chance` percent.
    pub fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    /// Returns `true` once in `times` calls on average; always for 0.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times.max(1)) == 0
    }

    /// Returns one of `choices`. REQUIRES: `choices` is not empty.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below_usize(choices.len())]
    }

    /// Fills `buffer` with numbers, each little-endian. The last number may be cut.
    pub fn fill(&mut self, buffer: &mut [u8]) {
        for chunk in buffer.chunks_mut(8) {
            let word = self.next().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }

    /// Returns `count` random bytes.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.fill(&mut bytes);
        bytes
    }
}

/// Returns a number in which every bit depends on every bit of `word`.
pub fn scramble(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

/// Combines two numbers into one, which depends on their order.
pub(crate) fn join(first: u64, second: u64) -> u64 {
    scramble(first.rotate_left(23).wrapping_add(0x9E37_79B9_7F4A_7C15) ^ scramble(second))
}

/// Computes a hash of bytes and their number.
pub(crate) fn digest(bytes: &[u8]) -> u64 {
    let mut hash = bytes.len() as u64;
    let (words, rest) = bytes.as_chunks();
    for word in words {
        let word = u64::from_le_bytes(*word);
        hash = (hash ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    }
    rest.iter().fold(hash, |hash, byte| join(hash, u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Another sequence would change the meaning of every seed that a report or a test names.
    #[test]
    fn numbers_of_a_seed_never_change() {
        let mut random = Random::new(1_234_567);
        // Published with Vigna's `splitmix64.c`.
        for number in [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ] {
            assert_eq!(random.next(), number);
        }
        let bytes = Random::new(1_234_567).bytes(12);
        assert_eq!(bytes[..8], 6_457_827_717_110_365_317_u64.to_le_bytes());
        assert_eq!(bytes[8..], 3_203_168_211_198_807_973_u64.to_le_bytes()[..4]);
    }
}
