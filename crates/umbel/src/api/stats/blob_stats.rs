//! Statistics of long values, each of which is in a file of its own.

use std::fmt;

use super::{KeyspaceStats, MEBIBYTE};
use crate::fs::blob_files::BlobTotals;
use crate::state::store::Store;
use crate::super_version::SuperVersion;
use crate::thread_counters::read;

/// Statistics of the files of long values.
#[derive(Debug, Clone, Default)]
pub struct BlobStats {
    /// Number of files of long values that memtables and tables reference.
    pub files: u64,
    /// Bytes of the files that memtables and tables reference.
    pub bytes: u64,
    /// Number of files of long values without references that are kept for readers.
    pub held_files: u64,
    /// Bytes of the files that are kept for readers.
    pub held_bytes: u64,
    /// Bytes of files of long values written since the store was opened.
    pub bytes_written: u64,
}

/// Statistics of the long values of a store, of which `keyspaces` are the keyspaces.
pub(super) fn of_store(store: &Store, keyspaces: &[KeyspaceStats]) -> BlobStats {
    let held = store.context.blobs.obsolete_totals();
    BlobStats {
        files: keyspaces.iter().map(|keyspace| keyspace.blobs).sum(),
        bytes: keyspaces.iter().map(|keyspace| keyspace.blob_bytes).sum(),
        held_files: held.files,
        held_bytes: held.bytes,
        bytes_written: read(&store.counters.blob_bytes),
    }
}

/// Totals of the long values that the memtables and tables of a super version reference.
pub(super) fn of_view(view: &SuperVersion) -> BlobTotals {
    let in_memory: Vec<_> =
        view.frozen.iter().chain([&view.active]).flat_map(|buffer| buffer.blobs()).collect();
    let in_tables = view.version.tables().flat_map(|(_, table)| &table.meta.blobs);
    BlobTotals::of(in_memory.iter().map(|blob| &blob.pointer).chain(in_tables))
}

impl fmt::Display for BlobStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.files + self.held_files + self.bytes_written == 0 {
            return Ok(());
        }
        writeln!(
            f,
            "long values: {} files of {:.1} MiB, {} pinned by readers of {:.1} MiB, {:.1} MiB \
             written",
            self.files,
            self.bytes as f64 / MEBIBYTE,
            self.held_files,
            self.held_bytes as f64 / MEBIBYTE,
            self.bytes_written as f64 / MEBIBYTE
        )
    }
}
