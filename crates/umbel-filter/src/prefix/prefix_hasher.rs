//! The hash of prefixes, which is never that of whole keys.

use crate::hash_domain::HashDomain;
use crate::hash_kind::{HashError, HashKind};
use crate::key_hasher::KeyHasher;

/// Hashes prefixes under a seed of their own.
///
/// A filter may hold whole keys and prefixes both, and a prefix can be a key: with one seed for
/// both, a key that is there would vouch for a prefix that is not.
#[derive(Clone, Copy, Debug)]
pub struct PrefixHasher {
    hasher: KeyHasher,
}

impl PrefixHasher {
    /// The hash of prefixes in a store of that seed, see [`HashDomain::Prefix`].
    ///
    /// # Errors
    /// [`HashError::NotBuilt`] where the kind's feature is off.
    pub fn new(kind: HashKind, store_seed: [u8; 16]) -> Result<PrefixHasher, HashError> {
        let hasher = KeyHasher::of_store(kind, store_seed, HashDomain::Prefix)?;
        Ok(PrefixHasher { hasher })
    }

    /// Which hash it is.
    pub fn kind(&self) -> HashKind {
        self.hasher.kind()
    }

    /// The hash of `prefix`.
    #[inline]
    pub fn hash(&self, prefix: &[u8]) -> u64 {
        self.hasher.hash(prefix)
    }
}
