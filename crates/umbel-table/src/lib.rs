//! Sorted table files: how they are written, searched, walked and verified.
//!
//! A table holds entries in internal order (see [`umbel_base::cmp_internal`]) and range tombstones,
//! and never changes once it is finished. `docs/formats/table.md` has its bytes.
//!
//! A point read costs one search in the pinned index, one line of tags and the entry; it takes no
//! lock, counts no reference and copies nothing.
#![forbid(unsafe_code)]

mod block;
mod block_builder;
mod compress;
mod cursor;
mod entry;
mod filters;
mod find;
mod footer;
mod format;
mod heads;
mod heads_builder;
mod index;
mod index_builder;
mod index_part;
mod index_region;
mod index_top;
mod key_buffer;
mod meta;
mod narrow;
mod options;
mod output_file;
mod paged;
mod parts;
mod pinned;
mod prefix_filter;
mod properties;
mod reader;
mod run;
mod section;
mod slots;
mod sparse;
mod table_cursor;
mod table_filter;
mod tags;
mod tombstones;
mod verify;
mod warm;
mod writer;

pub use block::Block;
pub use compress::Compression;
pub use cursor::TableWalk;
pub use format::FORMAT_VERSION;
pub use heads::{Below, Way};
pub use meta::{SecondFilter, TableMeta};
pub use options::{FilterChoice, TableHasher, TableOptions};
pub use prefix_filter::PrefixFilter;
pub use properties::Properties;
pub use reader::Table;
pub use run::TableRun;
pub use slots::{BlockCache, BlockSlots, KeepAll};
pub use table_cursor::TableCursor;
pub use table_filter::{FilterKeep, TableFilter};
pub use verify::VerifyReport;
pub use warm::Warmed;
pub use writer::TableBuilder;
