//! All hashes except the keyed hash, each behind its feature.
//!
//! A hash is computed by a crate if one exists that gives the same result on every platform.
//! Otherwise it is written here from its description. Every word of a key is read as little-endian
//! on every machine, and positions in a key and lengths are 64 bits wide.

use crate::hash::hash_kind::HashKind;
#[cfg(any(feature = "murmur3-32", feature = "leveldb"))]
use crate::hash::hash_widening::widen_hash as widen;
use crate::hash::siphash::siphash_1_3;

#[cfg(feature = "fxhash")]
mod fxhash;
#[cfg(feature = "leveldb")]
mod leveldb_hash;
#[cfg(feature = "metrohash64")]
mod metrohash;
#[cfg(any(feature = "murmur3-32", feature = "murmur3-128"))]
mod murmur3;
#[cfg(feature = "rustc-hash")]
mod rustc_hash;
#[cfg(feature = "spooky")]
mod spooky;

/// A hash function of a key and a seed, of which it uses the lowest bits.
pub(crate) type Function = fn(u128, &[u8]) -> u64;

/// The hash function of a kind; `None` if the kind's feature is off, and for the keyed hash.
pub(crate) fn function(kind: HashKind) -> Option<Function> {
    match kind {
        HashKind::SipHash13 => Some(siphash_1_3),
        #[cfg(feature = "xxh64")]
        HashKind::Xxh64 => Some(|seed, key| xxhash_rust::xxh64::xxh64(key, seed as u64)),
        #[cfg(feature = "xxh3")]
        HashKind::Xxh3 => Some(|seed, key| xxhash_rust::xxh3::xxh3_64_with_seed(key, seed as u64)),
        #[cfg(feature = "murmur3-32")]
        HashKind::Murmur3x32 => Some(|seed, key| widen(murmur3::of_32_bits(seed as u32, key))),
        #[cfg(feature = "murmur3-128")]
        HashKind::Murmur3x128 => Some(|seed, key| murmur3::of_128_bits(seed as u32, key)[0]),
        #[cfg(feature = "seahash")]
        HashKind::SeaHash => Some(|seed, key| {
            // The published start, which the seed 0 leaves as it is.
            let (low, high) = (seed as u64, (seed >> 64) as u64);
            seahash::hash_seeded(
                key,
                0x16f1_1fe8_9b0d_677c ^ low,
                0xb480_a793_d8e6_c86c ^ high,
                0x6fe2_e5aa_f078_ebc9,
                0x14f9_94a4_c525_9381,
            )
        }),
        #[cfg(feature = "cityhash64")]
        HashKind::CityHash64 => Some(|seed, key| match seed as u64 {
            0 => cityhasher::hash(key),
            seed => cityhasher::hash_with_seed(key, seed),
        }),
        #[cfg(feature = "metrohash64")]
        HashKind::MetroHash64 => Some(|seed, key| metrohash::hash(seed as u64, key)),
        #[cfg(feature = "rustc-hash")]
        HashKind::RustcHash => Some(|seed, key| rustc_hash::hash(seed as u64, key)),
        #[cfg(feature = "fxhash")]
        HashKind::FxHash => Some(|seed, key| fxhash::hash(seed as u64, key)),
        #[cfg(feature = "spooky")]
        HashKind::Spooky => Some(|seed, key| spooky::hash(seed as u64, (seed >> 64) as u64, key)),
        #[cfg(feature = "leveldb")]
        HashKind::LevelDb => Some(|seed, key| widen(leveldb_hash::hash(seed as u32, key))),
        _ => None,
    }
}

/// MurmurHash3's finish for 64 bits: every bit reaches every bit, and it can be undone.
#[cfg(feature = "murmur3-128")]
fn finish_64(mut state: u64) -> u64 {
    state = (state ^ state >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    state = (state ^ state >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    state ^ state >> 33
}
