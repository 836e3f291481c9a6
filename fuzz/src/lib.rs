//! What the fuzz targets share: a world in memory, and files put together from mutated parts with
//! right checksums, so that mutations reach the decoders behind the checksums.
#![forbid(unsafe_code)]

pub mod blob_file;
pub mod existence_files;
pub mod log_file;
pub mod memory;
pub mod parts;
pub mod store;
pub mod table_file;
