//! Keys of an attacker that knows the code and wants false positives.
//!
//! Without a secret an attacker can find keys that a filter passes, and can fill it so that it
//! passes everything. With the keyed hash and an unknown seed, neither is possible. Every attack
//! here targets a known hash, and is tried on the keyed one as well.

use crate::hash_kinds::built;
use crate::{Numbers, build};
use umbel_filter::{Bloom, HashKind, HashSecret, KeyHasher};

const KEYS: u64 = 60_000;

/// The hash under a secret seed.
fn secret() -> KeyHasher {
    KeyHasher::keyed(HashSecret::from_seed(*b"secret of a test"))
}

/// The filter of these keys, at 10 bits for each.
fn filter<K: AsRef<[u8]>>(hasher: &KeyHasher, keys: impl IntoIterator<Item = K>) -> Bloom {
    let hashes = keys.into_iter().map(|key| hasher.hash(key.as_ref()));
    Bloom::decode(&build(hashes, 10)).expect("it was built just now")
}

/// The share of these keys that pass, over the designed rate.
fn rate<K: AsRef<[u8]>>(hasher: &KeyHasher, bloom: &Bloom, keys: &[K]) -> f64 {
    let passed = keys.iter().filter(|key| bloom.may_contain(hasher.hash(key.as_ref()))).count();
    passed as f64 / keys.len() as f64 / bloom.designed_rate()
}

fn ordinary(number: u64) -> Vec<u8> {
    format!("account/{number:08}").into_bytes()
}

/// With any known hash, a hundred tries find a key that passes a filter of 1 %. Every such key
/// costs the store a read.
#[test]
fn false_positives_are_found_only_with_a_known_hash() {
    let known = built();
    let wanted = 100_000 / known.len();
    let mut found = Vec::new();
    for hasher in &known {
        let bloom = filter(hasher, (0..KEYS).map(ordinary));
        let tries = (0u64..).map(|number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
        let hits = tries.filter(|key| bloom.may_contain(hasher.hash(key))).take(wanted);
        let hits: Vec<[u8; 8]> = hits.collect();
        let rate = rate(hasher, &bloom, &hits);
        assert!(rate > 5.0, "{hasher:?}: {rate} times the designed rate");
        println!("{:<12} found by search: {rate:.1} times the designed rate", hasher.kind());
        found.extend(hits);
    }
    let rate = rate(&secret(), &filter(&secret(), (0..KEYS).map(ordinary)), &found);
    println!("the same keys under a secret: {rate:.3}");
    assert!((0.9..1.1).contains(&rate), "{rate} times the designed rate");
}

/// Pollution: the stored keys are chosen so that all of them are in a quarter of the lines. Each
/// key takes four tries, and half of all absent keys pass these lines.
#[test]
fn chosen_keys_saturate_only_with_a_known_hash() {
    let mut numbers = Numbers(3);
    let probed: Vec<[u8; 8]> = (0..200_000).map(|_| numbers.draw().to_be_bytes()).collect();
    for hasher in built() {
        if hasher.kind() == HashKind::FxHash {
            continue;
        }
        let chosen = (0..).map(ordinary).filter(|key| hasher.hash(key) < u64::MAX / 4);
        let chosen: Vec<Vec<u8>> = chosen.take(KEYS as usize).collect();
        let polluted = rate(&hasher, &filter(&hasher, &chosen), &probed);
        println!("{:<12} filled by choice: {polluted:.2} times the designed rate", hasher.kind());
        assert!(polluted > 5.0, "{hasher:?}: {polluted} times the designed rate");
        let spared = rate(&secret(), &filter(&secret(), &chosen), &probed);
        println!("             the same keys under a secret: {spared:.3}");
        assert!((0.9..1.1).contains(&spared), "{hasher:?}: {spared} times the designed rate");
    }
}

/// Checks keys that collide under every seed: if one of them is stored, all others pass. So a
/// secret seed does not help these hashes.
fn assert_collide_under_every_seed(kind: HashKind, keys: &[Vec<u8>]) {
    for seed in [*b"one secret seed.", [0; 16], *b"and another seed"] {
        let Ok(hasher) = KeyHasher::new(kind, seed) else {
            return;
        };
        let ordinary = (0..KEYS).map(ordinary);
        let bloom = filter(&hasher, ordinary.chain([keys[0].clone()]));
        assert!(keys.iter().all(|key| bloom.may_contain(hasher.hash(key))), "{kind}");
    }
    let bloom = filter(&secret(), (0..KEYS).map(ordinary).chain([keys[0].clone()]));
    let rate = rate(&secret(), &bloom, &keys[1..]);
    assert!(rate < 1.1, "{kind}: {rate} times the designed rate");
}

/// All 2^16 keys made of 16 blocks of which each is one or the other.
fn combined(block: &[u8], other: &[u8]) -> Vec<Vec<u8>> {
    let choose = |number: u32, at: u32| if number >> at & 1 == 0 { block } else { other };
    (0..1 << 16)
        .map(|number: u32| (0..16).flat_map(|at| choose(number, at).to_vec()).collect())
        .collect()
}

/// The number that undoes a multiplication by the odd `factor`.
fn inverse(factor: u64) -> u64 {
    (0..6).fold(factor, |inverse, _| {
        inverse.wrapping_mul(2u64.wrapping_sub(factor.wrapping_mul(inverse)))
    })
}

/// Aumasson and Bernstein: a difference in one bit is moved to the highest bit, where sums and
/// products by 5 keep it, and cancelled by the next word.
#[test]
fn murmur3_of_32_bits_collides_under_every_seed() {
    let word = |difference: u32| {
        let scrambled = 0x1234_5678 ^ difference;
        let turned = scrambled.wrapping_mul(inverse(0x1b87_3593) as u32).rotate_right(15);
        turned.wrapping_mul(inverse(0xcc9e_2d51) as u32).to_le_bytes()
    };
    let block = [word(0), word(0)].concat();
    let other = [word(1 << 18), word(1 << 31)].concat();
    assert_collide_under_every_seed(HashKind::Murmur3x32, &combined(&block, &other));
}

/// The same with two lanes: the second cancels the difference of the first.
#[test]
fn murmur3_of_128_bits_collides_under_every_seed() {
    let (c1, c2) = (inverse(0x87c3_7b91_1142_53d5), inverse(0x4cf5_ad43_2745_937f));
    let first = |difference: u64| {
        let scrambled = 0x0123_4567_89ab_cdef ^ difference;
        scrambled.wrapping_mul(c2).rotate_right(31).wrapping_mul(c1).to_le_bytes()
    };
    let second = |difference: u64| {
        let scrambled = 0x0123_4567_89ab_cdef ^ difference;
        scrambled.wrapping_mul(c1).rotate_right(33).wrapping_mul(c2).to_le_bytes()
    };
    let block = [first(0), second(0), first(0), second(0)].concat();
    let other = [first(1 << 36), second(1 << 32), first(1 << 63), second(0)].concat();
    assert_collide_under_every_seed(HashKind::Murmur3x128, &combined(&block, &other));
}

/// A word of the key is combined with a published constant by exclusive or. Where it equals the
/// constant, the product is zero and the hash forgets all earlier words.
#[test]
fn rustc_hash_collides_under_every_seed() {
    let constant = 0xa409_3822_299f_31d0_u64.to_le_bytes();
    let key = |number: u64| [&number.to_le_bytes()[..], &constant, &[b'x'; 20]].concat();
    let keys: Vec<Vec<u8>> = (0..50_000).map(key).collect();
    assert_collide_under_every_seed(HashKind::RustcHash, &keys);
}

/// The highest bit of a word stays the highest, and is the fifth of the next word's.
#[test]
fn fxhash_collides_under_every_seed() {
    let (first, second) = (u64::from_le_bytes(*b"sixteen "), u64::from_le_bytes(*b"letters."));
    let block = [first.to_le_bytes(), second.to_le_bytes()].concat();
    let other = [(first ^ 1 << 63).to_le_bytes(), (second ^ 1 << 4).to_le_bytes()].concat();
    assert_collide_under_every_seed(HashKind::FxHash, &combined(&block, &other));
}

/// By xxHash's issue 1127, two keys of 32 bytes that differ by the inverted second half collide
/// under one seed in 2^10.5.
#[test]
fn a_fixed_pair_collides_under_many_seeds_of_xxh3() {
    const SEEDS: u64 = 200_000;
    let half = 0x0501_0004_8200_0000_0000_4440_1012_1551_u128;
    let (one, other) =
        ([[0; 16], half.to_le_bytes()].concat(), [[0; 16], (!half).to_le_bytes()].concat());
    let collide = |hasher: &KeyHasher| hasher.hash(&one) == hasher.hash(&other);
    let seed = |seed: u64| u128::from(seed).to_le_bytes();
    let Ok(published) = KeyHasher::new(HashKind::Xxh3, seed(0x2468_b3bc_26a4_4073)) else {
        return;
    };
    assert_eq!(published.hash(&one), 0xdd68_6b61_e2f6_dc69);
    assert!(collide(&published));
    let mut numbers = Numbers(1_127);
    let (mut of_xxh3, mut of_keyed) = (0, 0);
    for _ in 0..SEEDS {
        let seed = seed(numbers.draw());
        of_xxh3 += u32::from(KeyHasher::new(HashKind::Xxh3, seed).is_ok_and(|h| collide(&h)));
    }
    for _ in 0..SEEDS / 10 {
        let seed = u128::from(numbers.draw()) << 64 | u128::from(numbers.draw());
        of_keyed +=
            u32::from(collide(&KeyHasher::keyed(HashSecret::from_seed(seed.to_le_bytes()))));
    }
    // 141 expected, give or take 12.
    assert!((95..=190).contains(&of_xxh3), "{of_xxh3} of {SEEDS}");
    assert_eq!(of_keyed, 0);
}
