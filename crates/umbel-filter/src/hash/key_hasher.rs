//! A hasher of keys by a hash of any kind.

use crate::hash::algorithms::{Function, function};
use crate::hash::hash_domain::HashDomain;
use crate::hash::hash_kind::{HashError, HashKind};
use crate::hash::keyed_hash::{HashSecret, hash_key};
use std::fmt;

/// Computes the 64-bit hash of a key for filters, by one kind of hash and one seed.
///
/// ```
/// use umbel_filter::{HashKind, HashSecret, KeyHasher, hash_key};
///
/// let seed = *b"sixteen  octets!";
/// let hasher = KeyHasher::new(HashKind::Keyed, seed)?;
/// assert_eq!(hasher.hash(b"basil"), hash_key(&HashSecret::from_seed(seed), b"basil"));
/// # Ok::<(), umbel_filter::HashError>(())
/// ```
#[derive(Clone, Copy)]
pub struct KeyHasher {
    kind: HashKind,
    method: HashMethod,
}

#[derive(Clone, Copy)]
enum HashMethod {
    Keyed(HashSecret),
    Seeded { function: Function, seed: u128 },
}

impl KeyHasher {
    /// Creates a hasher of a kind with a seed.
    ///
    /// The keyed hash derives its secret from all 16 bytes. Each other hash takes the first bytes
    /// that fit its own seed, as little-endian words: 4 bytes (murmur3-32, murmur3-128, leveldb), 8
    /// or 16 (siphash-1-3, seahash, spooky). With a seed of 16 zeros the hash equals that of other
    /// programs with the seed 0 or without a seed; LevelDB's filters have [`crate::LEVELDB_SEED`].
    ///
    /// # Errors
    /// [`HashError::NotBuilt`] where the kind's feature is off.
    pub fn new(kind: HashKind, seed: [u8; 16]) -> Result<KeyHasher, HashError> {
        if kind == HashKind::Keyed {
            return Ok(KeyHasher::keyed(HashSecret::from_seed(seed)));
        }
        let function = function(kind).ok_or(HashError::NotBuilt { kind })?;
        let seed = u128::from_le_bytes(seed);
        Ok(KeyHasher { kind, method: HashMethod::Seeded { function, seed } })
    }

    /// Creates a hasher of the keyed hash with an existing secret.
    pub fn keyed(secret: HashSecret) -> KeyHasher {
        KeyHasher { kind: HashKind::Keyed, method: HashMethod::Keyed(secret) }
    }

    /// Creates a hasher of a kind for one use of a store, with the seed of that use.
    ///
    /// # Errors
    /// [`HashError::NotBuilt`] where the kind's feature is off.
    pub fn of_store(
        kind: HashKind,
        store_seed: [u8; 16],
        domain: HashDomain,
    ) -> Result<KeyHasher, HashError> {
        KeyHasher::new(kind, domain.seed(store_seed))
    }

    /// Kind of the hash.
    pub fn kind(&self) -> HashKind {
        self.kind
    }

    /// The hash of `key`.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> u64 {
        match &self.method {
            HashMethod::Keyed(secret) => hash_key(secret, key),
            HashMethod::Seeded { function, seed } => function(*seed, key),
        }
    }
}

impl fmt::Debug for KeyHasher {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "KeyHasher({}, ..)", self.kind)
    }
}

/// Hashes a single key, as [`KeyHasher::new`] and [`KeyHasher::hash`] do together.
///
/// # Errors
/// [`HashError::NotBuilt`] where the kind's feature is off.
pub fn hash_with(kind: HashKind, seed: [u8; 16], key: &[u8]) -> Result<u64, HashError> {
    KeyHasher::new(kind, seed).map(|hasher| hasher.hash(key))
}
