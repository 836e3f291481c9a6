//! The hash: golden vectors under derived secrets, avalanche, structured keys, seeds.

use crate::Numbers;
use std::collections::HashSet;
use umbel_filter::{HashSecret, hash_key};

/// Makes the key of a number.
type MakeKey = fn(u64) -> Vec<u8>;

fn secret(seed: u128) -> HashSecret {
    HashSecret::from_seed(seed.to_le_bytes())
}

fn golden_key(length: usize) -> Vec<u8> {
    (0..length as u64).map(|at| ((at * at * 31 + at * 7 + 3) >> 2) as u8).collect()
}

/// FORMAT: stored filters hold these hashes. If this test fails, the hash has changed and needs a
/// new hash kind.
#[test]
fn golden_hashes_under_a_derived_secret() {
    let secret = HashSecret::from_seed(std::array::from_fn(|index| index as u8));
    assert_eq!(hash_key(&secret, b"basil"), 0x7010_ed72_4425_1ba6);
    let expected: &[(usize, u64)] = &[
        (0, 0x703c_91d5_2fbe_1d45),
        (1, 0xe48b_6454_e661_3d2e),
        (2, 0x0020_f678_3ef0_f14b),
        (3, 0x4e1a_6a2c_4c21_4148),
        (4, 0x5118_ad3c_47ce_c64b),
        (5, 0x797c_da7a_547c_c0fc),
        (7, 0x058a_1b74_380a_76bb),
        (8, 0xf635_943b_3391_09ff),
        (9, 0x9ccf_e3cc_9924_eb5e),
        (15, 0x7357_cd78_a6d4_dba5),
        (16, 0xad53_8a68_4342_49c2),
        (17, 0xfab6_7c63_c4c0_7f82),
        (32, 0x5cef_65b2_9e24_232d),
        (33, 0xbd1b_fbe6_1757_5be6),
        (48, 0x5763_6d6b_d8f5_8686),
        (49, 0xa7a5_1957_9ccc_ab87),
        (64, 0x5497_1934_fea5_70f5),
        (65, 0x7a87_24af_a907_5075),
        (80, 0x7b00_bc79_32ae_6057),
        (81, 0x3476_611e_6934_f17e),
        (96, 0x7025_b2fe_79c5_8af8),
        (97, 0xd7e7_a30f_a10c_d7f3),
        (112, 0x1304_2ce1_e59e_82dc),
        (113, 0x7edf_9c7e_10e1_35a4),
        (128, 0x6327_0927_6baf_0cba),
        (129, 0x8920_37e9_c80c_cd3f),
        (224, 0xb92a_5bc4_aae6_2ab1),
        (225, 0x08c1_9a31_d7b4_eec1),
        (336, 0x8ff8_fa4e_dd5b_f344),
        (337, 0xe02b_03a9_a165_a703),
        (1000, 0x1e75_2624_18e6_3e39),
        (65536, 0xe01f_d011_777c_1995),
    ];
    for (length, expected) in expected {
        assert_eq!(hash_key(&secret, &golden_key(*length)), *expected, "{length} bytes");
    }
    let all = (0..=1_024)
        .fold(0u64, |all, length| all.rotate_left(5) ^ hash_key(&secret, &golden_key(length)));
    assert_eq!(all, 0xf88e_d9b6_8d66_c8fc);
}

/// Every bit of a key turns every bit of the hash in about half of all keys.
#[test]
fn every_bit_reaches_every_bit() {
    const KEYS: u32 = 256;
    let secret = secret(5);
    let mut numbers = Numbers(5);
    for length in [1, 3, 4, 7, 8, 12, 16, 17, 31, 32, 48, 64, 96, 112, 113, 130, 225] {
        let stride = if length > 40 { 7 } else { 1 };
        for bit in (0..length * 8).step_by(stride) {
            let mut turned = [0u32; 64];
            for _ in 0..KEYS {
                let mut key: Vec<u8> = (0..length).map(|_| numbers.draw() as u8).collect();
                let before = hash_key(&secret, &key);
                key[bit / 8] ^= 1 << (bit % 8);
                let difference = before ^ hash_key(&secret, &key);
                assert_ne!(difference, 0);
                for (output, turned) in turned.iter_mut().enumerate() {
                    *turned += (difference >> output & 1) as u32;
                }
            }
            // Six and a half standard deviations: over all tests here, less than one in a million.
            for (output, turned) in turned.into_iter().enumerate() {
                assert!(
                    (76..=180).contains(&turned),
                    "{length} bytes: {bit} to {output}: {turned}"
                );
            }
        }
    }
}

/// No two of these keys have one hash, and their halves meet as rarely as random ones.
#[test]
fn structured_keys_do_not_collide() {
    const KEYS: u64 = 150_000;
    let secret = secret(6);
    let families: [(&str, MakeKey); 8] = [
        ("big-endian", |number| number.to_be_bytes().to_vec()),
        ("little-endian", |number| number.to_le_bytes().to_vec()),
        ("decimal", |number| number.to_string().into_bytes()),
        ("padded", |number| format!("{number:016}").into_bytes()),
        ("path", |number| {
            format!("/tenants/{}/streams/{}/{}", number % 7, number / 7 % 100, number / 700)
                .into_bytes()
        }),
        ("sparse", |number| (number << 40).to_le_bytes().to_vec()),
        ("wide", |number| [&[0; 120], &number.to_be_bytes()[..], &[1; 50]].concat()),
        ("zeros", |number| vec![0; number as usize % 1_500]),
    ];
    let mut whole = HashSet::new();
    for (name, key) in families {
        let count = if name == "zeros" { 1_500 } else { KEYS };
        let (mut low, mut high) = (HashSet::new(), HashSet::new());
        whole.clear();
        for number in 0..count {
            let hash = hash_key(&secret, &key(number));
            assert!(whole.insert(hash), "{name}: {number}");
            low.insert(hash as u32);
            high.insert((hash >> 32) as u32);
        }
        // 2.6 pairs of 150,000 random halves meet; 16 would be one chance in a hundred million.
        for half in [low, high] {
            assert!(count - half.len() as u64 <= 16, "{name}");
        }
    }
}

/// Keys made of one byte, of every length to 64 KiB: the length itself is hashed.
#[test]
fn every_length_has_its_own_hash() {
    let secret = secret(7);
    let zeros = vec![0; 65_536];
    let lengths = (0..2_000).chain((2_000..=65_536).step_by(97)).chain([65_535, 65_536]);
    let lengths: HashSet<usize> = lengths.collect();
    let hashes: HashSet<u64> = lengths.iter().map(|at| hash_key(&secret, &zeros[..*at])).collect();
    assert_eq!(hashes.len(), lengths.len());
}

/// Under two seeds that differ in one bit the hashes of a key have nothing to do with each other.
#[test]
fn seeds_are_independent() {
    let base = secret(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
    for bit in 0..128 {
        let other = secret(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef ^ 1 << bit);
        let mut turned = [0u32; 64];
        for number in 0..512u64 {
            let key = number.to_be_bytes();
            let difference = hash_key(&base, &key) ^ hash_key(&other, &key);
            assert_ne!(difference, 0);
            for (output, turned) in turned.iter_mut().enumerate() {
                *turned += (difference >> output & 1) as u32;
            }
        }
        let sum: u32 = turned.iter().sum();
        assert!((15_800..=16_968).contains(&sum), "bit {bit}: {sum} of 32,768 turned");
        assert!(turned.iter().all(|turned| (180..=332).contains(turned)), "bit {bit}");
    }
}
