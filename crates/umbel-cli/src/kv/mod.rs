//! One module per command; each `run` does the whole of it.

pub mod advise;
pub mod checkpoint;
pub mod compact;
pub mod delete;
pub mod get;
pub mod import;
pub mod inspect;
pub mod put;
pub mod scan;
pub mod stats;
pub mod verify_store;
