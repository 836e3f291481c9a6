//! Compares Umbel with other key-value engines: the same work, in the same process, on the same
//! file system, with answers checked against each other.
//!
//! Unsafe code is in the files that call a C library, and nowhere else. Pebble is written in Go:
//! `build.rs` makes a C library of the folder `pebble`.

pub mod deletions;
pub mod engine_runs;
pub mod kv;
pub mod queues;
pub mod whole_number;

pub mod engines;
pub mod lab;

#[cfg(feature = "filters")]
pub mod filters;
#[cfg(feature = "serving")]
pub mod serving;
