//! Memory for what stays: cached blocks, indexes, slots.
//!
//! An [`Arena`] takes memory in chunks of 2 MiB on huge pages, so that address translation does not
//! miss as often as with a page for each block, cuts [`Piece`]s of any length from them, and gives
//! whole chunks back. It counts every byte. [`Slots`] hold pieces that readers look at without a
//! lock and without a count, protected by the [`epoch`] in which they entered, while others empty
//! the slots.
//!
//! All unsafe code that the tables need is here, so that they can forbid it.

mod arena;
mod chunk;
pub mod epoch;
mod extents;
mod fixed;
mod huge;
mod line;
mod memory;
mod piece;
mod prefetch;
mod slots;
mod sync;

pub use arena::{Arena, ArenaBytes};
pub use chunk::Chunk;
pub use fixed::Fixed;
pub use huge::wish_for_huge_pages;
pub use line::equal_in_line;
pub use memory::ChunkUse;
pub use piece::Piece;
pub use prefetch::{PREFETCHES, prefetch, prefetch_address, prefetch_lines};
pub use slots::{Reading, Slots};
