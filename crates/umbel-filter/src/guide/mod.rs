//! A short book about filters: their idea, their kinds, and the traps.
//!
//! 1. [`idea`]: idea of a filter, its savings and its cost
//! 2. [`kinds`]: which kind when, with a picture of each
//! 3. [`sizes`]: from keys, rate and memory the third; the formulas and their traps
//! 4. [`hashes`]: one hash for everything, and why it is keyed
//! 5. [`building`]: without knowing how many keys come; folding, joining, files, batches
//!
//! Everything in it is about this crate alone. Nothing here needs a store, a file or a thread.

pub mod building;
pub mod hashes;
pub mod idea;
pub mod kinds;
pub mod sizes;
