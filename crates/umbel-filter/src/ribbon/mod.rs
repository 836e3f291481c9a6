//! The homogeneous ribbon filter: any rate, for a twentieth more space than theory demands.
//!
//! A key is a row of 64 random bits at a place of a long band, and the filter is a solution of the
//! system in which every key's row, multiplied with the slots it lies over, gives zeros; what is
//! not determined is random, so that an absent key's row gives other bits. There always is such a
//! solution. After Dillinger and Walzer, "Ribbon Filter: Practically Smaller Than Bloom and Xor"
//! (2021), and Dillinger, Hübschle-Schneider, Sanders and Walzer, "Fast Succinct Retrieval and
//! Approximate Membership Using Ribbon" (2022).
//!
//! The band is cut into parts of some ten thousand keys that share nothing. So a part is built
//! within the cache, and with a seed for which nowhere in it rows crowd so that every row would
//! pass; the slots need not be as many as would make that rare everywhere.
//!
//! The bytes are described in `docs/formats/filter-ribbon.md`.

mod band;
mod builder;
mod crowd;
mod parity;
mod place;
mod shape;
mod solve;
mod view;

pub use builder::RibbonBuilder;
pub use view::RibbonView;

/// FORMAT: the number of this kind of filter.
const KIND: u8 = 6;
