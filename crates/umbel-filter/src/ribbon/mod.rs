//! The homogeneous ribbon filter: any rate, for a twentieth more space than theory demands.
//!
//! A key is a row of 64 random bits at a position of a long band. The filter is a solution of the
//! system in which every key's row, multiplied with its slots, gives zeros. Undetermined bits
//! are random, so that an absent key's row gives other bits. There always is such a
//! solution. After Dillinger and Walzer, "Ribbon Filter: Practically Smaller Than Bloom and Xor"
//! (2021), and Dillinger, Hübschle-Schneider, Sanders and Walzer, "Fast Succinct Retrieval and
//! Approximate Membership Using Ribbon" (2022).
//!
//! The band is cut into independent parts of some ten thousand keys. So a part is built
//! within the cache, and with a seed under which its rows crowd nowhere so much that every row
//! would pass. This needs fewer slots than a band in which that is rare everywhere.
//!
//! The bytes are described in `docs/formats/filter-ribbon.md`.

mod back_substitution;
mod banding;
mod column_layout;
mod parity;
mod ribbon_builder;
mod ribbon_view;
mod row_density;
mod row_hash;

pub use ribbon_builder::RibbonBuilder;
pub use ribbon_view::RibbonView;

/// FORMAT: the number of this kind of filter.
const KIND: u8 = 6;
