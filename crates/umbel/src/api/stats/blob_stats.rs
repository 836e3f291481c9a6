//! Long values, each in a file of its own, in numbers.

use std::fmt;

use super::{KeyspaceStats, MEBIBYTE};
use crate::blobs::Sum;
use crate::counters::read;
use crate::memory::View;
use crate::store::Store;

/// Files of long values.
#[derive(Debug, Clone, Default)]
pub struct BlobStats {
    /// Files that memtables and tables point at.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Files that nothing points at any more, kept for readers that may.
    pub held_files: u64,
    /// Their bytes.
    pub held_bytes: u64,
    /// Bytes of files written since the store was opened.
    pub bytes_written: u64,
}

/// Those of a store with these keyspaces.
pub(super) fn of_store(store: &Store, keyspaces: &[KeyspaceStats]) -> BlobStats {
    let held = store.context.blobs.leaving();
    BlobStats {
        files: keyspaces.iter().map(|keyspace| keyspace.blobs).sum(),
        bytes: keyspaces.iter().map(|keyspace| keyspace.blob_bytes).sum(),
        held_files: held.files,
        held_bytes: held.bytes,
        bytes_written: read(&store.counters.blob_bytes),
    }
}

/// What the memtables and tables of a view point at.
pub(super) fn of_view(view: &View) -> Sum {
    let in_memory: Vec<_> =
        view.frozen.iter().chain([&view.active]).flat_map(|buffer| buffer.blobs()).collect();
    let in_tables = view.version.tables().flat_map(|(_, table)| &table.meta.blobs);
    Sum::of(in_memory.iter().map(|blob| &blob.pointer).chain(in_tables))
}

impl fmt::Display for BlobStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.files + self.held_files + self.bytes_written == 0 {
            return Ok(());
        }
        writeln!(
            f,
            "long values: {} files of {:.1} MiB, {} held for readers of {:.1} MiB, {:.1} MiB \
             written",
            self.files,
            self.bytes as f64 / MEBIBYTE,
            self.held_files,
            self.held_bytes as f64 / MEBIBYTE,
            self.bytes_written as f64 / MEBIBYTE
        )
    }
}
