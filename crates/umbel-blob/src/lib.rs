//! One long value in a file of its own (a blob file): the writer that stores the value, and the
//! reader that checks it.
//!
//! A blob file is written once, before any pointer to it, and never changed. A [`BlobPointer`] has
//! the file's id, the value's length and the checksum in the file's header. This checksum covers
//! the checksums of all chunks of the value. `docs/formats/blob.md` describes the format.
//!
//! INVARIANT: every returned byte of a value was checked against the pointer.
#![forbid(unsafe_code)]

mod format;

pub mod reader;
pub mod writer;

pub use format::{CHUNK_BYTES, file_bytes};
pub use reader::{BlobReader, read};
pub use umbel_base::BlobPointer;
pub use writer::write;
