//! Derives a seed for every use of a hash from one seed.

use crate::hash::keyed_hash::fold;
use crate::hash::siphash::siphash_2_4;

/// Use of a hash.
///
/// Two uses must not share hash bits. For example, all keys of a shard agree in the bits that chose
/// the shard. A filter that uses the same bits would put them into a few lines. A probe for a
/// prefix must not hit a whole key of the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HashDomain {
    /// Whole keys in a filter, whose seed is the store's own.
    Key,
    /// Prefixes of keys in a filter.
    Prefix,
    /// Choice of a key's shard, part or thread.
    Shard,
    /// The hash index inside a block.
    BlockIndex,
    /// The sketches that count how often keys are requested.
    Sketch,
    /// A use of the caller's own, by a number of its choice.
    Other(u32),
}

impl HashDomain {
    /// FORMAT: the number of the use, which a seed is made of.
    fn number(self) -> u64 {
        match self {
            HashDomain::Key => 0,
            HashDomain::Prefix => 1,
            HashDomain::Shard => 2,
            HashDomain::BlockIndex => 3,
            HashDomain::Sketch => 4,
            HashDomain::Other(number) => 1 << 32 | u64::from(number),
        }
    }

    /// Seed of this use, derived from the store's seed. [`HashDomain::Key`] uses the store's seed
    /// itself. The seed of every other use is two words. A word is the SipHash-2-4 under the
    /// store's seed of seven fixed bytes, the number of the word, and the number of the use. Such
    /// seeds look random to a program without the store's seed.
    pub fn seed(self, store_seed: [u8; 16]) -> [u8; 16] {
        if self == HashDomain::Key {
            return store_seed;
        }
        let word = |index: u8| {
            let mut message = *b"umbelus.........";
            message[7] = index;
            message[8..].copy_from_slice(&self.number().to_le_bytes());
            siphash_2_4(store_seed, message)
        };
        let both = u128::from(word(0)) | u128::from(word(1)) << 64;
        both.to_le_bytes()
    }

    /// Hash for this use, derived from the `hash` of a whole key, for callers without the key. The
    /// derived hash is independent of `hash`, except that [`HashDomain::Key`] returns `hash`
    /// itself.
    ///
    /// The hash goes through two rounds of multiplying by odd constants and folding the product. A
    /// client that can choose a key's `hash` can choose the result too, so `hash` must be keyed if
    /// clients are adversaries.
    #[inline]
    pub fn remix(self, hash: u64) -> u64 {
        if self == HashDomain::Key {
            return hash;
        }
        let tag = self.number().wrapping_mul(0x9e37_79b9_7f4a_7c15);
        fold(fold(hash ^ tag, 0xd6e8_feb8_6659_fd93) ^ !hash, 0xa076_1d64_78bd_642f)
    }
}
