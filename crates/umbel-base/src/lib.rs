//! Types shared by every layer of Umbel: keys and sequence numbers, kinds of entries,
//! cursors, range tombstones, varints, checksums, limits, the error kinds and a count of damage.
//!
//! No code in this crate uses a file, a clock or a thread.
#![forbid(unsafe_code)]

pub mod blob_pointer;
pub mod checksum;
pub mod common_prefix_heads;
pub mod cursor;
pub mod damage_count;
pub mod decoder;
pub mod entry;
pub mod error;
pub mod failpoints;
pub mod fragmented_tombstones;
mod frame_of_reference;
pub mod ignore_poison;
pub mod key_head;
pub mod limits;
pub mod range_tombstone;
pub mod shell_word;
pub mod varint;

pub use blob_pointer::BlobPointer;
pub use common_prefix_heads::CommonPrefix;
pub use cursor::Cursor;
pub use decoder::Decoder;
pub use entry::{SequenceNumber, ValueKind, cmp_internal};
pub use error::{Error, Result};
#[cfg(feature = "failpoints")]
pub use failpoints::fail_point;
pub use fragmented_tombstones::FragmentedTombstones;
pub use key_head::key_head;
pub use range_tombstone::{RangeTombstone, RangeTombstoneRef};
