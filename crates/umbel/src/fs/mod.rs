//! File names, directories, the file cache, blob files, obsolete files and the fatal error of a
//! store.

pub mod blob_files;
pub mod create_dir;
pub mod fatal_error;
pub mod file_cache;
pub mod filenames;
pub mod obsolete_files;
pub mod retrying_files;
