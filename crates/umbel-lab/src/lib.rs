//! Workloads that every measurement shares, so that two programs mean the same by "random keys".
#![forbid(unsafe_code)]

pub mod keys;
pub mod zipfian;
