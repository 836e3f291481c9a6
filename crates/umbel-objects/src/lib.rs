//! Object stores behind [`umbel_env::Objects`], and a probe of their guarantees.
//!
//! [`open`] opens the store that a URL names. [`DirectoryObjects`] keeps objects in a directory of
//! a mounted file system.
#![forbid(unsafe_code)]

mod directory_objects;
mod file_errors;
mod store_url;

pub use directory_objects::DirectoryObjects;
pub use store_url::open;
