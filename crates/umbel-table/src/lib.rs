//! Sorted table files: writes, searches, scans and verifies them.
//!
//! A table holds entries in internal order (see [`umbel_base::cmp_internal`]) and range tombstones,
//! and never changes after it is finished. `docs/formats/table.md` describes the format.
//!
//! A point read of a cached block costs one search in the index, one cache line of tags and the
//! entry. The read takes no lock, counts no reference and copies no value.
#![forbid(unsafe_code)]

mod block;
mod cache;
mod compression;
mod cursor;
mod filter;
mod format;
mod index;
mod options;
mod reader;
mod verify_table;
mod writer;

pub use crate::cache::block_slots::{BlockCache, BlockSlots, UnboundedCache};
pub use crate::cursor::context_table_cursor::ContextTableCursor;
pub use crate::cursor::sequential_reader::SequentialReader;
pub use crate::cursor::table_cursor::TableCursor;
pub use crate::filter::resident_filter::{FilterResidency, ResidentFilter};
pub use crate::filter::resident_prefix_filter::ResidentPrefixFilter;
pub use crate::format::properties::Properties;
pub use crate::format::range_tombstone_block::RangeTombstoneBlock;
pub use crate::format::table_meta::{SecondFilter, TableMeta};
pub use crate::index::key_head_tree::{SearchState, SearchStep};
pub use crate::reader::cache_warming::CacheWarming;
pub use crate::reader::table_reader::Table;
pub use crate::writer::table_builder::TableBuilder;
pub use block::Block;
pub use compression::Compression;
pub use format::FORMAT_VERSION;
pub use options::{FilterChoice, TableHasher, TableOptions};
pub use verify_table::VerifyReport;
