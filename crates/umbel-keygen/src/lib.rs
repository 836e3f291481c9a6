//! Keys ([`keys`]) and skews ([`zipfian`]) that all measurements share. The program
//! `hot_operations` measures single operations of the engine with them.
//!
//! This crate is apart from the lab, because the test command builds that program with the release
//! profile: it needs the engine and nothing else.
#![forbid(unsafe_code)]

pub mod keys;
pub mod zipfian;
