//! The words that every floor of Umbel shares: keys and sequence numbers, the kinds of entries,
//! cursors, range tombstones, varints, checksums, limits and the error kinds.
//!
//! Nothing here touches a file, a clock or a thread.
#![forbid(unsafe_code)]

pub mod blob_pointer;
#[cfg(feature = "canary")]
pub mod canary;
pub mod checksum;
pub mod cursor;
pub mod decode;
pub mod entry;
pub mod error;
pub mod limits;
pub mod range_tombstone;
pub mod varint;

pub use blob_pointer::BlobPointer;
pub use cursor::Cursor;
pub use decode::Decoder;
pub use entry::{SequenceNumber, ValueKind, cmp_internal};
pub use error::{Error, Result};
pub use range_tombstone::{FragmentedTombstones, RangeTombstone};
