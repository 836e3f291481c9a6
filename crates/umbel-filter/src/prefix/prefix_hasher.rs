//! The hash of prefixes, with another seed than that of whole keys.

use crate::hash::hash_domain::HashDomain;
use crate::hash::hash_kind::{HashError, HashKind};
use crate::hash::key_hasher::KeyHasher;

/// Hashes prefixes under a seed of their own.
///
/// A filter can contain both whole keys and prefixes, and a prefix can equal a key. With one seed
/// for both, a present key would make an absent prefix pass.
#[derive(Clone, Copy, Debug)]
pub struct PrefixHasher {
    hasher: KeyHasher,
}

impl PrefixHasher {
    /// Creates the hasher of prefixes of a store with a seed, see [`HashDomain::Prefix`].
    ///
    /// # Errors
    /// [`HashError::NotBuilt`] if the kind's feature is off.
    pub fn new(kind: HashKind, store_seed: [u8; 16]) -> Result<PrefixHasher, HashError> {
        let hasher = KeyHasher::of_store(kind, store_seed, HashDomain::Prefix)?;
        Ok(PrefixHasher { hasher })
    }

    /// Kind of the hash.
    pub fn kind(&self) -> HashKind {
        self.hasher.kind()
    }

    /// The hash of `prefix`.
    #[inline]
    pub fn hash(&self, prefix: &[u8]) -> u64 {
        self.hasher.hash(prefix)
    }
}
