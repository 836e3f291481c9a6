//! Versions: tables in levels, and the manifest that records them durably.

pub mod current_file;
pub mod feature_bits;
pub mod key_hashing;
pub mod live_table;
pub mod lsm_version;
pub mod manifest;
pub mod opened_table;
pub mod read_stats;
pub mod reserved_space;
pub mod sequence_lineage;
pub mod store_identity;
pub mod store_ownership;
pub mod table_bound_heads;
pub mod table_context;
pub mod version_edit;

pub use live_table::LiveTable;
pub use lsm_version::Version;
pub use manifest::Manifest;
pub use opened_table::{OpenedTable, PrefixCounters, PrefixProbe};
pub use store_ownership::StoreOwnership;
pub use table_context::{TableContext, TableOwner};
pub use version_edit::{Edit, LogState};
