//! A short book about filters: their idea, their kinds, and the traps.
//!
//! 1. [`idea`]: idea of a filter, its savings and its cost
//! 2. [`kinds`]: when to use which kind, with a picture of each kind
//! 3. [`sizes`]: computing one of keys, rate and memory from the other two; the formulas and their
//!    traps
//! 4. [`hashes`]: one hash for all filters, and why the hash is keyed
//! 5. [`building`]: building for an unknown number of keys; folding, joining, files, batches
//!
//! The guide is about this crate alone. No filter needs a store, a file or a thread.

pub mod building;
pub mod hashes;
pub mod idea;
pub mod kinds;
pub mod sizes;
