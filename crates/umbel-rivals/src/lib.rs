//! The comparison of Umbel with other key-value engines: the same work, in the same process, on the
//! same file system, with answers checked against each other.
//!
//! Unsafe code is in the files that speak to a C library, and nowhere else. Pebble is written in
//! Go: the folder `pebble` has what `build.rs` makes a C library of.

pub mod arguments;
pub mod beside;
pub mod engines;
#[cfg(feature = "filters")]
pub mod filters;
pub mod lab;
pub mod memory;
pub mod plan;
pub mod population;
pub mod record;
pub mod report;
pub mod run;
#[cfg(feature = "serving")]
pub mod serving;
pub mod work;
