//! A hash of any kind, ready to be used.

use crate::algorithms::{Function, function};
use crate::hash::{HashSecret, hash_key};
use crate::hash_domain::HashDomain;
use crate::hash_kind::{HashError, HashKind};
use std::fmt;

/// Makes the 64 bits that a filter is given for a key, by the kind of hash that was chosen.
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
    method: Method,
}

#[derive(Clone, Copy)]
enum Method {
    Keyed(HashSecret),
    Seeded { function: Function, seed: u128 },
}

impl KeyHasher {
    /// The hash of that kind with that seed.
    ///
    /// The keyed hash makes its secret of all 16 bytes. Of the others each takes what its own
    /// seed has room for from the beginning, as little-endian words: 4 bytes (murmur3-32,
    /// murmur3-128, leveldb), 8 or 16 (siphash-1-3, seahash, spooky). With 16 zeros it is the hash
    /// as other programs compute it with the seed 0, or with none; LevelDB's filters have
    /// [`crate::LEVELDB_SEED`].
    ///
    /// # Errors
    /// [`HashError::NotBuilt`] where the kind's feature is off.
    pub fn new(kind: HashKind, seed: [u8; 16]) -> Result<KeyHasher, HashError> {
        if kind == HashKind::Keyed {
            return Ok(KeyHasher::keyed(HashSecret::from_seed(seed)));
        }
        let function = function(kind).ok_or(HashError::NotBuilt { kind })?;
        let seed = u128::from_le_bytes(seed);
        Ok(KeyHasher { kind, method: Method::Seeded { function, seed } })
    }

    /// The keyed hash under a secret that is there already.
    pub fn keyed(secret: HashSecret) -> KeyHasher {
        KeyHasher { kind: HashKind::Keyed, method: Method::Keyed(secret) }
    }

    /// The hash of that kind for one use of a store, with the seed of that use.
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

    /// Which hash it is.
    pub fn kind(&self) -> HashKind {
        self.kind
    }

    /// The hash of `key`.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> u64 {
        match &self.method {
            Method::Keyed(secret) => hash_key(secret, key),
            Method::Seeded { function, seed } => function(*seed, key),
        }
    }
}

impl fmt::Debug for KeyHasher {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "KeyHasher({}, ..)", self.kind)
    }
}

/// The hash of one key, where there are no more: as [`KeyHasher::new`] and [`KeyHasher::hash`],
/// which keeps what the keyed hash makes of its seed.
///
/// # Errors
/// [`HashError::NotBuilt`] where the kind's feature is off.
pub fn hash_with(kind: HashKind, seed: [u8; 16], key: &[u8]) -> Result<u64, HashError> {
    KeyHasher::new(kind, seed).map(|hasher| hasher.hash(key))
}
