//! [`Identity`]: the numbers that distinguish one store from another.

/// Identity of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Random number drawn at the store's creation; every manifest has it.
    pub store_id: [u8; 16],
    /// The secret seed of the keyed hash function.
    pub hash_seed: [u8; 16],
    /// The number by which tables refer to the seed.
    pub seed_id: u32,
    /// Feature bits: features that an Umbel must know to open the store.
    pub features: u64,
}
