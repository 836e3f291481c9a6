//! The hashes of filters, by number and by name.
//!
//! FORMAT: filters contain the number of a hash, options and reports its name; numbers and names
//! are never reused. `docs/formats/hashes.md` describes each hash, and the bytes of a seed that it
//! uses.

use std::fmt;
use std::str::FromStr;

/// Hash function of the keys.
///
/// Stores use [`HashKind::Keyed`] or [`HashKind::SipHash13`]. All other kinds are for filters that
/// are exchanged with other programs, and need the feature of this crate with the kind's name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
#[repr(u8)]
pub enum HashKind {
    /// [`crate::hash_key`] under a secret of the store, available in every build.
    #[default]
    Keyed = 1,
    /// SipHash-1-3 with a key of 128 bits: a pseudorandom function, available in every build.
    SipHash13 = 2,
    /// XXH64: the hash of Apache Parquet's filters, with the seed 0.
    Xxh64 = 3,
    /// XXH3 with 64 bits and a seed. Pairs of keys are known that collide under one seed in 1,400.
    Xxh3 = 4,
    /// MurmurHash3 x86 with 32 bits. 32 bits of entropy, and keys that collide under every seed.
    Murmur3x32 = 5,
    /// The low 64 bits of MurmurHash3 x64 with 128. There are keys that collide under every seed.
    Murmur3x128 = 6,
    /// SeaHash.
    SeaHash = 7,
    /// CityHash64 of CityHash 1.1, with a seed.
    CityHash64 = 8,
    /// MetroHash64.
    MetroHash64 = 9,
    /// `FxHasher` of rustc-hash 2.1 for one `write` on a platform with 64 bits.
    RustcHash = 10,
    /// `FxHasher64` of fxhash 0.2 for one `write`. Only to read filters of other programs: a filter
    /// of keys that differ in few bytes is useless with this hash.
    FxHash = 11,
    /// The low 64 bits of SpookyHash version 2.
    Spooky = 12,
    /// LevelDB's hash of 32 bits. 32 bits of entropy.
    LevelDb = 13,
}

impl HashKind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [HashKind; 13] = [
        HashKind::Keyed,
        HashKind::SipHash13,
        HashKind::Xxh64,
        HashKind::Xxh3,
        HashKind::Murmur3x32,
        HashKind::Murmur3x128,
        HashKind::SeaHash,
        HashKind::CityHash64,
        HashKind::MetroHash64,
        HashKind::RustcHash,
        HashKind::FxHash,
        HashKind::Spooky,
        HashKind::LevelDb,
    ];

    /// The kind's number in a filter's header.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// The kind with a number; `None` for a number that this build does not know.
    pub fn from_number(number: u8) -> Option<HashKind> {
        HashKind::ALL.into_iter().find(|kind| kind.number() == number)
    }

    /// The kind's name, as [`FromStr`] reads it.
    pub fn name(self) -> &'static str {
        match self {
            HashKind::Keyed => "keyed",
            HashKind::SipHash13 => "siphash-1-3",
            HashKind::Xxh64 => "xxh64",
            HashKind::Xxh3 => "xxh3",
            HashKind::Murmur3x32 => "murmur3-32",
            HashKind::Murmur3x128 => "murmur3-128",
            HashKind::SeaHash => "seahash",
            HashKind::CityHash64 => "cityhash64",
            HashKind::MetroHash64 => "metrohash64",
            HashKind::RustcHash => "rustc-hash",
            HashKind::FxHash => "fxhash",
            HashKind::Spooky => "spooky",
            HashKind::LevelDb => "leveldb",
        }
    }

    /// The feature of this crate that enables the kind; `None` for the two kinds of every build.
    pub fn feature(self) -> Option<&'static str> {
        let is_always_there = matches!(self, HashKind::Keyed | HashKind::SipHash13);
        (!is_always_there).then(|| self.name())
    }

    /// Number of independent bits of the hash: 64, or 32 for a widened hash. With 32 no filter of
    /// `n` keys has a rate below `n / 2^32`.
    pub fn entropy_bits(self) -> u32 {
        match self {
            HashKind::Murmur3x32 | HashKind::LevelDb => 32,
            _ => 64,
        }
    }
}

impl fmt::Display for HashKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

impl FromStr for HashKind {
    type Err = HashError;

    fn from_str(name: &str) -> Result<HashKind, HashError> {
        let known = HashKind::ALL.into_iter().find(|kind| kind.name() == name);
        known.ok_or_else(|| HashError::Unknown { name: name.to_string() })
    }
}

/// Errors of hashing a key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HashError {
    /// No hash has the given name.
    Unknown {
        /// The name that was given.
        name: String,
    },
    /// The hash is known, but this build lacks the feature that enables it.
    NotBuilt {
        /// The requested hash, whose name is that of the feature.
        kind: HashKind,
    },
}

impl fmt::Display for HashError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HashError::Unknown { name } => {
                write!(formatter, "there is no hash `{name}`; there are ")?;
                for (index, kind) in HashKind::ALL.into_iter().enumerate() {
                    let comma = if index == 0 { "" } else { ", " };
                    write!(formatter, "{comma}{kind}")?;
                }
                Ok(())
            }
            HashError::NotBuilt { kind } => write!(
                formatter,
                "the hash {kind} is not in this build: build umbel-filter with its feature `{kind}`"
            ),
        }
    }
}

impl std::error::Error for HashError {}
