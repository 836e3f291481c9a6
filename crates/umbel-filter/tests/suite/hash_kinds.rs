//! The other hashes: their numbers, names and published results; the seeds of each use.
//!
//! Hashes that a build lacks are requested too: the error must name the feature. `cargo xtask
//! test` runs this with every feature too.

use crate::{Numbers, build};
use std::collections::HashSet;
use umbel_filter::{
    Bloom, HashDomain, HashError, HashKind, HashSecret, KeyHasher, hash_key, hash_with,
};

/// The kinds that are in this build, with no seed.
pub fn built() -> Vec<KeyHasher> {
    HashKind::ALL.into_iter().filter_map(|kind| KeyHasher::new(kind, [0; 16]).ok()).collect()
}

fn golden_key(length: u64) -> Vec<u8> {
    (0..length).map(|at| ((at * at * 31 + at * 7 + 3) >> 2) as u8).collect()
}

/// Halves 0123456789abcdef and fedcba9876543210, so that every kind has a seed in it.
const SEED: [u8; 16] = 0xfedc_ba98_7654_3210_0123_4567_89ab_cdef_u128.to_le_bytes();

/// A kind; the hashes of keys of 0, 1, 16, 100 and 1,000 bytes with no seed; those of all keys of
/// 0 to 400 bytes as one number, with no seed and with [`SEED`].
type Golden = (HashKind, [u64; 5], u64, u64);

/// FORMAT: made with the authors' own code (xxHash, MurmurHash3, CityHash, MetroHash and SpookyHash
/// in C++), the standard library (SipHash-1-3), the crates seahash 4.1, rustc-hash 2.1 and fxhash
/// 0.2, and LevelDB's description; widened where there are 32 bits. Fxhash has no seed of its own.
const GOLDEN: [Golden; 12] = [
    (
        HashKind::SipHash13,
        [
            0xd1fb_a762_150c_532c,
            0x68a9_1412_8e01_e473,
            0xe116_544a_af41_1148,
            0x0331_b4ad_2308_b642,
            0x92f0_b01b_634c_848a,
        ],
        0x43e4_1355_8c59_13c0,
        0x6920_929f_eed9_9f46,
    ),
    (
        HashKind::Xxh64,
        [
            0xef46_db37_51d8_e999,
            0xe934_a84a_db05_2768,
            0x60d4_c576_be53_d167,
            0x9c3e_234b_8ca5_6848,
            0x4335_0552_93b1_458d,
        ],
        0x0d1f_7b20_ade9_c3c6,
        0xbc31_941e_d0c7_b986,
    ),
    (
        HashKind::Xxh3,
        [
            0x2d06_8005_38d3_94c2,
            0xc44b_dff4_074e_ecdb,
            0x4b85_7338_2921_37f5,
            0x8f40_7cc4_3fa4_2135,
            0x9236_91eb_e928_8447,
        ],
        0xfb14_1666_1ad5_bbdb,
        0xb3d5_9e77_d9d4_aa88,
    ),
    (
        HashKind::Murmur3x32,
        [
            0x0000_0000_0000_0000,
            0x589b_9c9d_3aae_5dd9,
            0x5ece_b997_c2a5_396f,
            0x2962_a3e7_045b_c06c,
            0x3163_7f6a_3ab2_cd0c,
        ],
        0xb493_0d27_5492_8022,
        0xbdc1_3fbb_e646_d663,
    ),
    (
        HashKind::Murmur3x128,
        [
            0x0000_0000_0000_0000,
            0x4610_abe5_6eff_5cb5,
            0xdfd7_72ea_06ea_23b0,
            0x9aff_eed1_244c_8e74,
            0xb0d4_a207_050a_77aa,
        ],
        0xdd64_9804_f9da_36e7,
        0x9642_47db_6356_e1af,
    ),
    (
        HashKind::SeaHash,
        [
            0xc920_ca43_256f_dcb9,
            0x78d3_db1f_028a_c5fd,
            0x1798_8285_ba73_ce11,
            0x60e4_b438_4bc2_3182,
            0x65c3_5b9f_16e2_b18e,
        ],
        0xd094_c5ba_ac58_8f42,
        0x00cb_07cb_b623_2274,
    ),
    (
        HashKind::CityHash64,
        [
            0x9ae1_6a3b_2f90_404f,
            0xbe60_56ed_f5e9_4b54,
            0xb3d7_33b8_976d_c9f2,
            0x752b_2699_162c_b438,
            0x769d_6bef_c4ab_a310,
        ],
        0x7b45_9ec0_a1ab_578d,
        0x1fa8_bcb3_cf3f_6bea,
    ),
    (
        HashKind::MetroHash64,
        [
            0x705f_b008_071e_967d,
            0x0e7f_1596_6a3d_61f8,
            0x62cc_91a9_f63c_86ad,
            0xb012_5a6e_44d1_3399,
            0x8915_3596_d74d_a522,
        ],
        0x7ef2_29b0_518f_9073,
        0x66d2_c909_29de_e452,
    ),
    (
        HashKind::RustcHash,
        [
            0xf456_d268_76d7_2d91,
            0x4b9d_47c1_6312_57a6,
            0xb28a_b6c1_c19a_5096,
            0x318c_4a49_ec49_8e4b,
            0x6ddf_5ad6_3cde_d47f,
        ],
        0xfd0a_5a1b_626b_f8d4,
        0xcd43_f632_6eed_bbe6,
    ),
    (
        HashKind::FxHash,
        [
            0x0000_0000_0000_0000,
            0x0000_0000_0000_0000,
            0x30e7_29e1_be5c_dff1,
            0x67db_e72a_ad7a_0607,
            0x8c03_5440_9c18_af2f,
        ],
        0x2722_fe1c_1eb1_3ae1,
        0x77a5_86a2_13d3_541a,
    ),
    (
        HashKind::Spooky,
        [
            0x2327_06fc_6bf5_0919,
            0x8ae2_f418_0429_1280,
            0x41c2_357a_b24d_8fbb,
            0xac07_ea36_7f4a_8099,
            0x234f_81cf_9fbb_baed,
        ],
        0x5f8a_1e95_8352_46c1,
        0xb369_f63a_1f19_8c20,
    ),
    (
        HashKind::LevelDb,
        [
            0x0000_0000_0000_0000,
            0xa636_30ff_e720_6666,
            0xfe9d_fe37_845f_4181,
            0x962f_28aa_aaa4_b64f,
            0x992d_cc0f_909b_6931,
        ],
        0x0472_c1ef_b45b_e698,
        0xa021_ac37_c1ad_fab5,
    ),
];

/// FORMAT: stored filters hold these hashes. If this fails, a hash has changed.
#[test]
fn every_hash_equals_the_published_one() {
    for (kind, expected, plain, seeded) in GOLDEN {
        let (Ok(hasher), Ok(with_seed)) =
            (KeyHasher::new(kind, [0; 16]), KeyHasher::new(kind, SEED))
        else {
            continue;
        };
        for (length, expected) in [0, 1, 16, 100, 1_000].into_iter().zip(expected) {
            assert_eq!(hasher.hash(&golden_key(length)), expected, "{kind}, {length} bytes");
        }
        let all = |hasher: &KeyHasher| {
            let hash = |length| hasher.hash(&golden_key(length));
            (0..=400).fold(0u64, |all, length| all.rotate_left(5) ^ hash(length))
        };
        assert_eq!(all(&hasher), plain, "{kind}");
        assert_eq!(all(&with_seed), seeded, "{kind} with a seed");
    }
}

/// Results that the authors print in their papers, tests and read-me files.
#[test]
fn published_vectors_match() {
    let counting: [u8; 16] = std::array::from_fn(|index| index as u8);
    let digits = "012345678901234567890123456789012345678901234567890123456789012";
    let one = u128::to_le_bytes(1);
    let bytes = "These are some bytes for testing rustc_hash.";
    let vectors: [(HashKind, [u8; 16], &[u8], u64); 9] = [
        (HashKind::SipHash13, counting, &[], 0xabac_0158_050f_c4dc),
        (HashKind::SipHash13, counting, &[0], 0xc9f4_9bf3_7d57_ca93),
        (HashKind::SipHash13, counting, &[0, 1], 0x82cb_9b02_4dc7_d44d),
        (HashKind::SeaHash, [0; 16], b"to be or not to be", 1_988_685_042_348_123_509),
        (HashKind::MetroHash64, [0; 16], digits.as_bytes(), 0xad4b_7006_ae3d_756b),
        (HashKind::MetroHash64, one, digits.as_bytes(), 0xdfb8_b9f4_1c48_0d3b),
        (HashKind::RustcHash, [0; 16], b"uwu", 7_168_164_714_682_931_527),
        (HashKind::RustcHash, [0; 16], bytes.as_bytes(), 2_349_210_501_944_688_211),
        (HashKind::Xxh64, [0; 16], b"", 0xef46_db37_51d8_e999),
    ];
    for (kind, seed, key, expected) in vectors {
        let hash = hash_with(kind, seed, key);
        assert!(hash == Ok(expected) || hash == Err(HashError::NotBuilt { kind }), "{kind}");
    }
    // LevelDB's test of its hash, widened as every hash of 32 bits is.
    let mut long = [0; 48];
    for (at, byte) in
        [(0, 1), (1, 0xc0), (16, 0x14), (22, 4), (27, 0x14), (31, 0x18), (32, 0x28), (40, 2)]
    {
        long[at] = byte;
    }
    let leveldb: [(u32, &[u8], u32); 6] = [
        (0xbc9f_1d34, &[], 0xbc9f_1d34),
        (0xbc9f_1d34, &[0x62], 0xef13_45c4),
        (0xbc9f_1d34, &[0xc3, 0x97], 0x5b66_3814),
        (0xbc9f_1d34, &[0xe2, 0x99, 0xa5], 0x323c_078f),
        (0xbc9f_1d34, &[0xe1, 0x80, 0xb9, 0x32], 0xed21_633a),
        (0x1234_5678, &long, 0xf333_dabb),
    ];
    for (seed, key, expected) in leveldb {
        let hash = hash_with(HashKind::LevelDb, u128::from(seed).to_le_bytes(), key);
        assert_eq!(hash.unwrap_or(widened(expected)), widened(expected));
    }
}

/// The widening, written once more from `docs/formats/hashes.md`.
fn widened(hash: u32) -> u64 {
    let mut state = u64::from(hash) * 0x1_0000_0001;
    for multiplier in [0xff51_afd7_ed55_8ccd_u64, 0xc4ce_b9fe_1a85_ec53] {
        state ^= state >> 33;
        state = state.wrapping_mul(multiplier);
    }
    state ^ state >> 33
}

/// FORMAT: numbers are in filters, names in options.
#[test]
fn numbers_and_names_are_fixed() {
    let names = [
        "keyed",
        "siphash-1-3",
        "xxh64",
        "xxh3",
        "murmur3-32",
        "murmur3-128",
        "seahash",
        "cityhash64",
        "metrohash64",
        "rustc-hash",
        "fxhash",
        "spooky",
        "leveldb",
    ];
    for (index, (kind, name)) in HashKind::ALL.into_iter().zip(names).enumerate() {
        assert_eq!(usize::from(kind.number()), index + 1);
        assert_eq!(HashKind::from_number(kind.number()), Some(kind));
        assert_eq!((kind.name(), kind.to_string().as_str()), (name, name));
        assert_eq!(name.parse(), Ok(kind));
    }
    assert_eq!((HashKind::from_number(0), HashKind::from_number(14)), (None, None));
    assert_eq!(HashKind::default(), HashKind::Keyed);
    for wrong in ["", "Keyed", "xxh", "xxh3 ", "sha-256"] {
        let error = wrong.parse::<HashKind>().expect_err(wrong).to_string();
        assert!(error.contains(&format!("`{wrong}`")), "{error}");
        assert!(names.iter().all(|name| error.contains(name)), "{error}");
    }
}

/// The test command sets `UMBEL_EVERY_HASH`, because its build has every hash.
#[test]
fn a_kind_that_is_not_built_names_its_feature() {
    let needs_all = std::env::var_os("UMBEL_EVERY_HASH").is_some();
    let features = [
        true,
        true,
        cfg!(feature = "xxh64"),
        cfg!(feature = "xxh3"),
        cfg!(feature = "murmur3-32"),
        cfg!(feature = "murmur3-128"),
        cfg!(feature = "seahash"),
        cfg!(feature = "cityhash64"),
        cfg!(feature = "metrohash64"),
        cfg!(feature = "rustc-hash"),
        cfg!(feature = "fxhash"),
        cfg!(feature = "spooky"),
        cfg!(feature = "leveldb"),
    ];
    for (kind, is_built) in HashKind::ALL.into_iter().zip(features) {
        match KeyHasher::new(kind, SEED) {
            Ok(hasher) => {
                assert!(is_built, "{kind}");
                assert_eq!(hasher.kind(), kind);
                assert_eq!(format!("{hasher:?}"), format!("KeyHasher({kind}, ..)"));
                assert_eq!(hash_with(kind, SEED, b"basil"), Ok(hasher.hash(b"basil")));
            }
            Err(error) => {
                assert!(!is_built, "{kind}");
                assert!(!needs_all, "{kind} is not tested");
                assert_eq!(error, HashError::NotBuilt { kind });
                let feature = kind.feature().expect("the keyed hash is always there");
                assert!(error.to_string().contains(&format!("feature `{feature}`")), "{error}");
            }
        }
    }
    assert_eq!(HashKind::Keyed.feature(), None);
}

#[test]
fn the_keyed_kind_is_hash_key() {
    let hasher = KeyHasher::new(HashKind::Keyed, SEED).expect("it is always there");
    let secret = HashSecret::from_seed(SEED);
    for length in 0..300 {
        let key = golden_key(length);
        assert_eq!(hasher.hash(&key), hash_key(&secret, &key));
        assert_eq!(KeyHasher::keyed(secret).hash(&key), hash_key(&secret, &key));
    }
}

/// With 32 bits of entropy some of 300,000 keys have one hash, 10.5 pairs on average; with 64 none
/// has.
#[test]
fn rate_floor_of_32_bit_hashes_is_reported() {
    const KEYS: u64 = 300_000;
    for hasher in built() {
        if hasher.kind() == HashKind::FxHash {
            continue;
        }
        let hash = |number: u64| hasher.hash(&Numbers(number).draw().to_be_bytes());
        let different = (0..KEYS).map(hash).collect::<HashSet<u64>>().len() as u64;
        let expected = if hasher.kind().entropy_bits() == 32 { 1..=30 } else { 0..=0 };
        assert!(expected.contains(&(KEYS - different)), "{hasher:?}: {different}");
    }
}

/// Keys of every length, up to the longest a store takes, are hashed.
#[test]
fn empty_and_long_keys_have_hashes() {
    let long = vec![7; 65_536];
    for hasher in built() {
        let lengths = (0..=260).chain([1_023, 1_024, 1_025, 4_096, 65_535, 65_536]);
        let lengths: Vec<usize> = lengths.collect();
        let hashes: HashSet<u64> = lengths.iter().map(|at| hasher.hash(&long[..*at])).collect();
        assert_eq!(hashes.len(), lengths.len(), "{hasher:?}");
    }
}

/// FORMAT: prefix filters are made with such seeds.
#[test]
fn seeds_of_domains_are_fixed_and_distinct() {
    assert_eq!(HashDomain::Key.seed(SEED), SEED);
    let seed = |domain: HashDomain| u128::from_le_bytes(domain.seed([7; 16]));
    assert_eq!(seed(HashDomain::Prefix), 0x0c8a_18f0_fb5a_fa96_cc94_7ce7_3f6c_30b1);
    let domains = [
        HashDomain::Key,
        HashDomain::Prefix,
        HashDomain::Shard,
        HashDomain::BlockIndex,
        HashDomain::Sketch,
        HashDomain::Other(0),
        HashDomain::Other(1),
        HashDomain::Other(u32::MAX),
    ];
    let halves = domains.map(|domain| [seed(domain) as u64, (seed(domain) >> 64) as u64]);
    assert_eq!(halves.iter().flatten().collect::<HashSet<_>>().len(), 15, "WholeKey's are alike");
    let remixed: HashSet<u64> = domains.iter().map(|domain| domain.remix(5)).collect();
    assert_eq!(remixed.len(), domains.len());
    let of = |domain| KeyHasher::of_store(HashKind::Keyed, SEED, domain);
    let hashes: HashSet<u64> =
        domains.into_iter().filter_map(|domain| Some(of(domain).ok()?.hash(b"a/b"))).collect();
    assert_eq!(hashes.len(), domains.len());
    assert!(hashes.contains(&hash_key(&HashSecret::from_seed(SEED), b"a/b")));
}

/// Story: a caller chose the shard by the highest bits of the filter's hash. All keys of a shard
/// were in a sixteenth of the lines, and the filter answered "maybe" to everything.
#[test]
fn shard_bits_are_not_reused_by_the_filter() {
    const SHARDS: u64 = 16;
    let secret = HashSecret::from_seed(SEED);
    let hash = |number: u64| hash_key(&secret, &number.to_be_bytes());
    let of = |hash: u64| ((u128::from(hash) * u128::from(SHARDS)) >> 64) as u64;
    let rate = |shard: &dyn Fn(u64) -> u64| {
        let inside = |range: std::ops::Range<u64>| range.map(hash).filter(|hash| shard(*hash) == 5);
        let bloom = Bloom::decode(&build(inside(0..800_000), 10)).expect("it was built just now");
        let probed: Vec<u64> = inside(1_000_000..2_600_000).collect();
        let passed = probed.iter().filter(|hash| bloom.may_contain(**hash)).count();
        passed as f64 / probed.len() as f64 / bloom.designed_rate()
    };
    assert!(rate(&of) > 90.0, "the same bits twice");
    let remixed = rate(&|hash| of(HashDomain::Shard.remix(hash)));
    assert!((0.9..1.1).contains(&remixed), "{remixed}");
}
