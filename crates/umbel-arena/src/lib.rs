//! Memory for long-lived data: cached blocks, indexes, block slots.
//!
//! An [`Arena`] takes memory in chunks of 2 MiB on huge pages, which have fewer TLB misses than a
//! page for each block. The arena makes [`Allocation`]s of any length in these chunks, frees whole
//! chunks and counts every byte. Readers use allocations in a [`SlotArray`] without a lock and
//! without a reference count while other threads clear slots. The [`epoch`] in which a reader
//! entered protects it.
//!
//! All unsafe code that tables need is in this crate, so that the table crate can forbid unsafe
//! code.

mod allocation;
mod arena;
mod arena_array;
mod atomics;
mod cache_line;
mod chunk;
mod chunk_allocator;
mod free_extents;
mod huge_pages;
mod prefetch;
mod slot_array;

pub mod epoch;

pub use allocation::Allocation;
pub use arena::{Arena, ArenaUsage};
pub use arena_array::ArenaArray;
pub use cache_line::equal_in_line;
pub use chunk::Chunk;
pub use chunk_allocator::ChunkUsage;
pub use huge_pages::advise_huge_pages;
pub use prefetch::{PREFETCHES, prefetch, prefetch_address, prefetch_lines};
pub use slot_array::{SlotArray, SlotsGuard};
