//! The hashes of keys: the keyed hash, its domains, and the algorithms of other systems.

pub mod algorithms;
pub mod hash_domain;
pub mod hash_kind;
pub mod hash_widening;
pub mod key_hasher;
pub mod keyed_hash;
pub mod siphash;
