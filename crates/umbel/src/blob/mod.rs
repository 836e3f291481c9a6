//! Files of long values (blobs) and their lifetime. `write::blob_writer` makes new ones.

pub mod blob_files;
