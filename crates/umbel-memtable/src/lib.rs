//! The memtable: an ordered map from (key ascending, sequence number descending) to a kind and a
//! value, with a filter. The memtable has one writer at a time, and readers take no lock.
//!
//! No entry is ever removed. Keys, values and nodes are in arenas that are freed with the memtable.
//! So a reader's references are valid as long as the reader keeps the memtable.
//!
//! The map is a B+tree over eight-byte key heads. `docs/decisions/0003-memtable.md` has the reasons
//! and costs, and the `node` module describes the protocol of concurrent readers. Unsafe code is
//! only in this crate's modules `bump_arena`, `entry`, `growing_filter`, `node`, `tree` and
//! `memtable_cursor`, so that the engine can forbid it.
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

mod bump_arena;
mod entry;
mod growing_filter;
mod loom_atomics;
mod memtable;
mod memtable_cursor;
mod node;
mod range_tombstones;
mod tree;

#[cfg(all(test, loom))]
mod loom_tests;

pub use memtable::{Memtable, MemtableHit, MemtableOptions};
pub use memtable_cursor::MemtableCursor;
