//! [`Identity`]: what tells one store from another.

/// Identity of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Random, made at creation; in every manifest.
    pub store_id: [u8; 16],
    /// The seed of the keyed hash. Secret.
    pub hash_seed: [u8; 16],
    /// The number by which tables name the seed.
    pub seed_id: u32,
    /// Features that a reader must know.
    pub features: u64,
}
