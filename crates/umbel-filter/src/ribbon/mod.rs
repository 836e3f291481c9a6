//! The homogeneous ribbon filter: any rate, in a twentieth more space than the theoretical minimum.
//!
//! A key is a row of 64 random bits at a position of a long band. The filter is a solution of the
//! system in which every key's row, multiplied with its slots, gives zeros. Undetermined bits are
//! random, so that an absent key's row gives random bits. Such a solution always exists. After
//! Dillinger and Walzer, "Ribbon Filter: Practically Smaller Than Bloom and Xor" (2021), and
//! Dillinger, Hübschle-Schneider, Sanders and Walzer, "Fast Succinct Retrieval and Approximate
//! Membership Using Ribbon" (2022).
//!
//! The band is divided into independent parts of about 16,000 keys. So a part is built within
//! the cache, and with a seed under which no stretch is so crowded that every row would pass.
//! Choosing seeds needs fewer slots than a band in which such stretches are rare.
//!
//! `docs/formats/filter-ribbon.md` describes the bytes of the filter.

mod back_substitution;
mod banding;
mod column_layout;
mod parity;
mod ribbon_builder;
mod ribbon_view;
mod row_hash;
mod rows_per_slot;

pub use ribbon_builder::RibbonBuilder;
pub use ribbon_view::RibbonView;

/// FORMAT: the number of this kind of filter.
const KIND: u8 = 6;
