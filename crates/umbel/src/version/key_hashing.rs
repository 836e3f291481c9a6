//! What keys are hashed with: everything that is made of the store's secret seed.

use umbel_base::{Error, Result};
use umbel_filter::{HashKind, HashSecret, KeyHasher, PrefixHasher};
use umbel_table::TableHasher;

/// The hashes of a store.
#[derive(Debug, Clone)]
pub struct Hashers {
    /// What the usual hash is made with, and the salts of the logs.
    pub secret: HashSecret,
    /// One for each of [`TableHasher::KINDS`].
    tables: [TableHasher; TableHasher::KINDS.len()],
}

impl Hashers {
    /// Those of a store with this seed, which has that number.
    pub fn new(seed: [u8; 16], seed_id: u32) -> Result<Hashers> {
        let secret = HashSecret::from_seed(seed);
        let prefixes = PrefixHasher::new(HashKind::Keyed, seed).ok();
        let mut tables = [TableHasher { prefixes, ..TableHasher::keyed(seed, seed_id) }; 2];
        for (hasher, kind) in tables.iter_mut().zip(TableHasher::KINDS) {
            let lacks = |error| Error::invalid(format!("internal: {error}"));
            hasher.keys = KeyHasher::new(kind, seed).map_err(lacks)?;
        }
        Ok(Hashers { secret, tables })
    }

    /// The hash of tables with this kind; the usual one for a kind that tables do not have.
    pub fn of(&self, kind: HashKind) -> &TableHasher {
        let [usual, ..] = &self.tables;
        self.tables.iter().find(|hasher| hasher.keys.kind() == kind).unwrap_or(usual)
    }

    /// What prefixes are hashed with, whatever whole keys are.
    pub fn prefixes(&self) -> Option<PrefixHasher> {
        self.of(HashKind::Keyed).prefixes
    }
}
