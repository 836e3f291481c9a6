//! Object stores behind [`umbel_env::Objects`], and a probe of their guarantees.
//!
//! [`open`] opens the store that a URL names. [`DirectoryObjects`] keeps objects in a directory of
//! a mounted file system. With the feature `s3`, `S3Objects` keeps them in a bucket. [`Probe`]
//! tries every guarantee that the callers of a store rely on, and reports by name which one a store
//! breaks.
#![forbid(unsafe_code)]

mod directory_objects;
mod file_errors;
mod probe;
#[cfg(feature = "s3")]
mod s3;
mod store_url;

pub use directory_objects::DirectoryObjects;
pub use probe::{Check, CheckOutcome, Probe, ProbeReport, ProbeVerdict};
#[cfg(feature = "s3")]
pub use s3::{S3Objects, S3Options};
pub use store_url::open;
