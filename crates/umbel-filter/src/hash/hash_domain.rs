//! One seed, many uses: every use of a hash gets a seed of its own.

use crate::hash::keyed_hash::fold;
use crate::hash::siphash::siphash_2_4;

/// Use of a hash.
///
/// Two uses must not share their bits. Keys whose hashes agree in the bits that chose a shard are
/// all neighbours in a filter that takes the same bits for its lines. A probe for a prefix must not
/// hit a whole key of the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HashDomain {
    /// Whole keys in a filter. Its seed is the store's own, as it has always been.
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
    /// FORMAT: the number that stands in the message a seed is made of.
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

    /// Seed of this use, derived from the store's seed. [`HashDomain::Key`] uses the store's
    /// seed itself. The others use two words, each the SipHash-2-4 under the store's seed of seven
    /// fixed bytes, the number of the word and that of the use. No program can distinguish one seed
    /// from another.
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

    /// Hash for this use, derived from the `hash` of a whole key, for callers that have no other.
    /// It is independent of that hash, except for the use of whole keys.
    ///
    /// Two rounds of multiplying by odd constants and folding the product. A key chosen to have
    /// some `hash` has a chosen result too, so the hash must be a keyed one where that matters.
    #[inline]
    pub fn remix(self, hash: u64) -> u64 {
        if self == HashDomain::Key {
            return hash;
        }
        let tag = self.number().wrapping_mul(0x9e37_79b9_7f4a_7c15);
        fold(fold(hash ^ tag, 0xd6e8_feb8_6659_fd93) ^ !hash, 0xa076_1d64_78bd_642f)
    }
}
