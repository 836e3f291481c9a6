//! Super versions: a reader's state of a keyspace, and cursors over it and over merge inputs.

pub mod memtable_cursor;
pub mod merge_inputs;
pub mod super_version;
pub mod super_version_cursor;
pub mod table_runs;
