//! Object stores behind [`umbel_env::Objects`], and a probe of their guarantees.
//!
//! [`open`] opens the store that a URL names. [`DirectoryObjects`] keeps objects in a directory of
//! a mounted file system. With the feature `buckets` a URL can name a bucket of S3, Google Cloud
//! Storage or Azure; [`Variables`] have its credentials. [`Probe`] tries every guarantee that the
//! callers of a store rely on, and reports by name which one a store breaks.
#![forbid(unsafe_code)]

#[cfg(feature = "buckets")]
mod bucket;
mod directory_objects;
mod file_errors;
mod probe;
mod store_url;
mod variables;

pub use directory_objects::DirectoryObjects;
pub use probe::{Check, CheckOutcome, Probe, ProbeReport, ProbeVerdict};
pub use store_url::{location, open, open_with};
pub use variables::Variables;
