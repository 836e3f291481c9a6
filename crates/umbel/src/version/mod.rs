//! What the store consists of: tables in levels, and the manifest that says so durably.

pub mod current;
pub mod edit;
pub mod features;
pub mod head;
pub mod levels;
pub mod manifest;
pub mod open_table;
pub mod openings;
pub mod ownership;
pub mod table_file;

pub use edit::{Edit, LogState};
pub use levels::Version;
pub use manifest::Manifest;
pub use open_table::{OpenTable, PrefixAsked, PrefixCounters};
pub use ownership::Ownership;
pub use table_file::{Keeper, TableContext, TableFile};
