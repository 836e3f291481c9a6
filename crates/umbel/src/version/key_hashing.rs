//! [`KeyHashers`]: the key hash functions, which all derive from the store's secret seed.

use umbel_base::{Error, Result};
use umbel_filter::{HashKind, HashSecret, KeyHasher, PrefixHasher};
use umbel_table::TableHasher;

/// The hash functions of a store.
#[derive(Debug, Clone)]
pub struct KeyHashers {
    /// Secret of the default hash function, from which the salts of the WAL are also derived.
    pub secret: HashSecret,
    /// One hash function for each kind in [`TableHasher::KINDS`].
    tables: [TableHasher; TableHasher::KINDS.len()],
}

impl KeyHashers {
    /// Creates the hash functions of a store from its `seed`, whose number is `seed_id`.
    pub fn new(seed: [u8; 16], seed_id: u32) -> Result<KeyHashers> {
        let secret = HashSecret::from_seed(seed);
        let prefixes = PrefixHasher::new(HashKind::Keyed, seed).ok();
        let mut tables = [TableHasher { prefixes, ..TableHasher::keyed(seed, seed_id) }; 2];
        for (hasher, kind) in tables.iter_mut().zip(TableHasher::KINDS) {
            let lacks = |error| Error::invalid(format!("internal: {error}"));
            hasher.keys = KeyHasher::new(kind, seed).map_err(lacks)?;
        }
        Ok(KeyHashers { secret, tables })
    }

    /// Returns the hash function of kind `kind`; the default one for a kind that tables do not use.
    pub fn of(&self, kind: HashKind) -> &TableHasher {
        let [usual, ..] = &self.tables;
        self.tables.iter().find(|hasher| hasher.keys.kind() == kind).unwrap_or(usual)
    }

    /// Returns the hash function of prefixes, which does not depend on the hash function of whole
    /// keys.
    pub fn prefixes(&self) -> Option<PrefixHasher> {
        self.of(HashKind::Keyed).prefixes
    }
}
