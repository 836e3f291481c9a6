//! Shared code of the fuzz targets: an environment in memory, and files of mutated parts. The files
//! have correct checksums, so that mutations reach the decoders after the checksums.
#![forbid(unsafe_code)]

pub mod blob_file;
pub mod existence_files;
pub mod log_file;
pub mod memory_env;
pub mod structured_input;
pub mod table_file;
pub mod template_store;
