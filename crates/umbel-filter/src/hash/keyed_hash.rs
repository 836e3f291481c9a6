//! The keyed 64-bit hash of keys for filters and for hash indexes in blocks.
//!
//! The algorithm is rapidhash version 3, which is the fastest at usual key lengths and passes
//! SMHasher3. The eight constants of the hash are not the published ones but are derived from the
//! store's own 128-bit seed. With public constants an attacker can construct keys that collide
//! under every seed. With secret constants a client cannot construct keys that pass a filter.
//!
//! FORMAT: stored filters depend on the hash, so a seed gives the same hashes on every platform
//! forever. A changed algorithm is a new hash kind. `docs/formats/filter.md` has the steps.

use crate::hash::siphash::siphash_2_4;
use std::fmt;

/// FORMAT: the number by which filters and tables name [`hash_key`].
pub const KEYED_HASH_KIND: u8 = 1;

/// Key bytes that one iteration of the wide loop hashes: seven lanes of sixteen.
const BLOCK_BYTES: usize = 112;

/// Secret of [`hash_key`]: all constants of the hash, derived from a 128-bit seed.
///
/// A program that knows the secret can construct keys that collide. So the secret is never printed,
/// and belongs only in files that are as private as the data.
#[derive(Clone, Copy)]
pub struct HashSecret {
    /// Initial state, already mixed with two of the constants.
    start: u64,
    constants: [u64; 8],
}

impl HashSecret {
    /// Derives the secret of a store from its random seed.
    ///
    /// Every 128-bit seed is valid. Word `n` is the SipHash-2-4, keyed with the seed, of twelve
    /// fixed bytes and the number `n`. Words with too many or too few ones, or too similar to an
    /// earlier constant, are skipped.
    pub fn from_seed(seed: [u8; 16]) -> HashSecret {
        let mut words = (0u32..).map(|number| {
            let mut message = *b"umbel hash 1....";
            message[12..].copy_from_slice(&number.to_le_bytes());
            siphash_2_4(seed, message)
        });
        let mut next = || words.next().unwrap_or_default();
        let start = next();
        let mut constants = [0u64; 8];
        for index in 0..constants.len() {
            constants[index] = loop {
                let candidate = next();
                if is_fit(candidate, &constants[..index]) {
                    break candidate;
                }
            };
        }
        HashSecret::from_parts(start, constants)
    }

    fn from_parts(start: u64, constants: [u64; 8]) -> HashSecret {
        let start = start ^ fold(start ^ constants[2], constants[1]);
        HashSecret { start, constants }
    }
}

impl fmt::Debug for HashSecret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("HashSecret(..)")
    }
}

/// Whether a word can be a constant: it has about as many ones as zeros, and differs from earlier
/// constants in at least sixteen bits. Multiplying by long runs of zeros would lose information.
fn is_fit(candidate: u64, earlier: &[u64]) -> bool {
    (24..=40).contains(&candidate.count_ones())
        && earlier.iter().all(|constant| (constant ^ candidate).count_ones() >= 16)
}

/// The 64-bit hash of `key` under `secret`.
#[inline]
pub fn hash_key(secret: &HashSecret, key: &[u8]) -> u64 {
    match key.last_chunk::<16>() {
        Some(last) if key.len() > 16 => hash_long(secret, key, last),
        _ => hash_short(secret, key),
    }
}

#[inline]
fn hash_short(secret: &HashSecret, key: &[u8]) -> u64 {
    let length = key.len() as u64;
    let mut state = secret.start;
    let (first, second) =
        if let (Some(head), Some(tail)) = (key.first_chunk::<8>(), key.last_chunk::<8>()) {
            state ^= length;
            (u64::from_le_bytes(*head), u64::from_le_bytes(*tail))
        } else if let (Some(head), Some(tail)) = (key.first_chunk::<4>(), key.last_chunk::<4>()) {
            state ^= length;
            (u64::from(u32::from_le_bytes(*head)), u64::from(u32::from_le_bytes(*tail)))
        } else if let (Some(head), Some(tail)) = (key.first(), key.last()) {
            ((u64::from(*head) << 45) | u64::from(*tail), u64::from(key[key.len() / 2]))
        } else {
            (0, 0)
        };
    finish(secret, state, first, second, length)
}

/// REQUIRES: `key` is longer than 16 bytes and `last` are its last 16.
fn hash_long(secret: &HashSecret, key: &[u8], last: &[u8; 16]) -> u64 {
    let constants = &secret.constants;
    let (mut state, rest) =
        if key.len() > BLOCK_BYTES { hash_blocks(secret, key) } else { (secret.start, key) };
    // The last sixteen bytes are read below, so each step here needs more than sixteen left.
    for (at, constant) in [(0, 2), (16, 2), (32, 1), (48, 1), (64, 2), (80, 1)] {
        if rest.len() <= at + 16 {
            break;
        }
        state = fold(word(rest, at) ^ constants[constant], word(rest, at + 8) ^ state);
    }
    let length = rest.len() as u64;
    finish(secret, state, word(last, 0) ^ length, word(last, 8), length)
}

/// Hashes whole blocks from the front of `key` as long as some bytes remain. Returns the joined
/// lanes and the remaining bytes.
fn hash_blocks<'k>(secret: &HashSecret, key: &'k [u8]) -> (u64, &'k [u8]) {
    let mut lanes = [secret.start; 7];
    let mut rest = key;
    while let Some((block, after)) = rest.split_first_chunk::<BLOCK_BYTES>() {
        if after.is_empty() {
            break;
        }
        for (index, lane) in lanes.iter_mut().enumerate() {
            let at = index * 16;
            *lane = fold(word(block, at) ^ secret.constants[index], word(block, at + 8) ^ *lane);
        }
        rest = after;
    }
    (lanes.iter().fold(0, |joined, lane| joined ^ lane), rest)
}

#[inline]
fn finish(secret: &HashSecret, state: u64, first: u64, second: u64, length: u64) -> u64 {
    let constants = &secret.constants;
    let product = u128::from(first ^ constants[1]) * u128::from(second ^ state);
    let (low, high) = (product as u64, (product >> 64) as u64);
    fold(low ^ constants[7], high ^ constants[1] ^ length)
}

/// Returns the exclusive or of the low and the high half of the 128-bit product.
#[inline]
pub(crate) fn fold(left: u64, right: u64) -> u64 {
    let product = u128::from(left) * u128::from(right);
    product as u64 ^ (product >> 64) as u64
}

/// REQUIRES: `at + 8 <= bytes.len()`.
#[inline(always)]
fn word(bytes: &[u8], at: usize) -> u64 {
    let mut eight = [0; 8];
    eight.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(eight)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PUBLISHED: [u64; 8] = [
        0x2d35_8dcc_aa6c_78a5,
        0x8bb8_4b93_962e_acc9,
        0x4b33_a62e_d433_d4a3,
        0x4d5a_2da5_1de1_aa47,
        0xa076_1d64_78bd_642f,
        0xe703_7ed1_a0b4_28db,
        0x90ed_1765_281c_388c,
        0xaaaa_aaaa_aaaa_aaaa,
    ];

    fn key(length: u32) -> Vec<u8> {
        let byte = |at: u32| at.wrapping_mul(at).wrapping_mul(31).wrapping_add(at * 7 + 3) >> 2;
        (0..length).map(|at| byte(at) as u8).collect()
    }

    /// With the published constants it is the published function; made with another
    /// implementation of rapidhash version 3.
    #[test]
    fn with_the_published_constants_it_is_rapidhash() {
        let secret = HashSecret::from_parts(0, PUBLISHED);
        for (length, expected) in [
            (0, 0x0338_dc4b_e2ce_cdae_u64),
            (1, 0x4f23_c791_b16e_ba02),
            (2, 0xfa97_a9c6_e5f5_1643),
            (3, 0x8ff3_f577_f535_2e86),
            (4, 0x5b29_f520_d3e2_894e),
            (7, 0xdaab_21ba_342d_24de),
            (8, 0x0796_4bef_6445_30ad),
            (15, 0xd5c4_feed_4abe_75a7),
            (16, 0x6f4f_7733_57ec_9b8e),
            (17, 0x026a_e067_8099_64ac),
            (112, 0xabfe_2946_9ec2_723e),
            (113, 0xfda1_535d_30c4_9f69),
            (225, 0x50a9_b44e_d836_1400),
            (65_536, 0xe8f2_1973_2632_3021),
        ] {
            assert_eq!(hash_key(&secret, &key(length)), expected, "{length} bytes");
        }
        assert_eq!(hash_key(&secret, b"hello world"), 0x2f27_cb27_d524_0940);
        for (seed, expected) in
            [(0, 0x0654_8ed2_ab4e_66f1), (0x0123_4567_89ab_cdef, 0x8283_e52c_b03c_8bed)]
        {
            let secret = HashSecret::from_parts(seed, PUBLISHED);
            let all = (0..=2048)
                .fold(0u64, |all, length| all.rotate_left(5) ^ hash_key(&secret, &key(length)));
            assert_eq!(all, expected, "seed {seed:x}");
        }
    }

    /// Reason for secret constants: where a word of a key equals a constant, the product is
    /// zero, and the hash forgets all earlier words, whatever the seed.
    #[test]
    fn colliding_keys_of_rapidhash_do_not_collide() {
        for (length, at, constant) in
            [(32, 0, 2), (48, 0, 2), (48, 16, 2), (64, 16, 2), (64, 32, 1)]
        {
            let mut left = vec![b'x'; length];
            left[at..at + 8].copy_from_slice(&PUBLISHED[constant].to_le_bytes());
            let mut right = left.clone();
            right[at + 8] = b'y';
            right[..at].fill(b'z');
            for seed in 0..64u64 {
                let public = HashSecret::from_parts(seed, PUBLISHED);
                assert_eq!(hash_key(&public, &left), hash_key(&public, &right));
                let secret = HashSecret::from_seed(u128::from(seed).to_le_bytes());
                assert_ne!(hash_key(&secret, &left), hash_key(&secret, &right));
            }
        }
    }

    #[test]
    fn constants_are_valid_and_seeds_differ() {
        for seed in 0..2_000u128 {
            let secret = HashSecret::from_seed(seed.to_le_bytes());
            for (index, constant) in secret.constants.iter().enumerate() {
                assert!(is_fit(*constant, &secret.constants[..index]));
            }
            let other = HashSecret::from_seed((seed ^ 1 << (seed % 128)).to_le_bytes());
            assert_ne!(secret.constants, other.constants);
            assert_ne!(secret.start, other.start);
        }
        assert_eq!(format!("{:?}", HashSecret::from_seed([7; 16])), "HashSecret(..)");
    }
}
