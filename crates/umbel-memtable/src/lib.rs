//! The memtable: an ordered map from (key ascending, sequence number descending) to a kind and a
//! value, with one writer at a time and readers that take no lock, and the filter in front of it.
//!
//! Nothing is ever removed. Keys, values and nodes live in arenas that are freed with the memtable,
//! so that whatever a reader has found stays good as long as it holds the memtable.
//!
//! The map is a B+tree over eight-byte key heads. Why, and what it costs, is told in
//! `docs/decisions/0003-memtable.md`; how readers run beside the writer, in the `node` module.
//! Unsafe code lives here, in `arena`, `entry`, `filter`, `node`, `tree` and `cursor`, so that the
//! engine above can forbid it.
//!
//! ```
//! use std::sync::Arc;
//! use umbel_base::{Cursor, ValueKind};
//! use umbel_memtable::{Memtable, MemtableOptions};
//!
//! let options = MemtableOptions { capacity_bytes: 1 << 20, bloom_bits: 10 };
//! let memtable = Arc::new(Memtable::new(&options));
//! memtable.insert(b"basil", 1, ValueKind::Put, b"green", 0x5eed);
//! memtable.insert(b"basil", 2, ValueKind::Delete, b"", 0x5eed);
//! assert_eq!(memtable.get(b"basil", 1).map(|found| found.value), Some(&b"green"[..]));
//! assert_eq!(memtable.get(b"basil", 9).map(|found| found.kind), Some(ValueKind::Delete));
//! let mut cursor = memtable.cursor();
//! cursor.seek_to_first()?;
//! assert_eq!((cursor.key(), cursor.sequence()), (&b"basil"[..], 2));
//! # Ok::<(), umbel_base::Error>(())
//! ```

mod arena;
mod cursor;
mod entry;
mod filter;
mod memtable;
mod node;
mod sync;
mod tombstones;
mod tree;

#[cfg(all(test, loom))]
mod interleavings;

pub use cursor::MemtableCursor;
pub use memtable::{Found, Memtable, MemtableOptions};
