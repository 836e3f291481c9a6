//! Versions: tables in levels, and the manifest that records them durably.

pub mod blob_files;
pub mod current_file;
pub mod feature_bits;
pub mod key_hashing;
pub mod key_heads;
pub mod lsm_version;
pub mod manifest;
pub mod open_history;
pub mod read_stats;
pub mod replacement_check;
pub mod reserved_space;
pub mod table_context;
pub mod table_file;
pub mod table_handle;
pub mod version_edit;

pub use lsm_version::Version;
pub use manifest::Manifest;
pub use replacement_check::StoreOwnership;
pub use table_context::{TableContext, TableOwner};
pub use table_file::TableFile;
pub use table_handle::{PrefixCounters, PrefixProbe, TableHandle};
pub use version_edit::{Edit, LogState};
