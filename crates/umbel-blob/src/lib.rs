//! One long value in a file of its own: the writer that stores it, the reader that checks it.
//!
//! A blob file is written once, before any pointer to it, and never changed. The pointer
//! is a [`BlobPointer`]: the file's id, the value's length, and the checksum in the file's header,
//! which covers the checksums of all chunks of the value. `docs/formats/blob.md` describes the
//! bytes.
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
