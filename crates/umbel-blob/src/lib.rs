//! One long value in a file of its own: the writer that stores it, the reader that checks it.
//!
//! A blob file is written once, before anything points at it, and never changed. What points at it
//! is a [`BlobPointer`]: the file's id, the value's length, and the checksum in the file's header,
//! which covers the checksums of all chunks of the value. The bytes are described in
//! `docs/formats/blob.md`.
//!
//! INVARIANT: no byte of a value is handed out that was not checked against the pointer.
#![forbid(unsafe_code)]

mod format;
pub mod reader;
pub mod writer;

pub use format::{CHUNK_BYTES, file_bytes};
pub use reader::{Blob, read};
pub use umbel_base::BlobPointer;
pub use writer::write;
