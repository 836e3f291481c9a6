//! Commands for key-value stores, one module each, whose `run` executes the command.

pub mod advise;
pub mod checkpoint;
pub mod compact;
pub mod delete;
pub mod get;
pub mod import;
pub mod inspect;
pub mod object_backup;
pub mod put;
pub mod scan;
pub mod stats;
pub mod verify_store;
