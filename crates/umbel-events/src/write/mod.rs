//! Write path around the appender: entry of every write, group sync, acknowledgement, import.

pub mod append_check;
pub mod group_sync;
pub mod import;
pub mod pending_append;
pub mod submit_write;
