//! Verification: reads every byte of a store and checks it against the manifest.

use umbel_base::{Error, Result};
use umbel_blob::file_bytes;

use crate::state::store::Store;

/// Result of [`crate::Db::verify`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Number of tables that were read.
    pub tables: u64,
    /// Bytes of the files of the tables that were read.
    pub bytes: u64,
    /// Number of entries in the tables that were read.
    pub entries: u64,
    /// Number of files of long values that were read.
    pub blobs: u64,
    /// Bytes of the files of long values that were read.
    pub blob_bytes: u64,
    /// Damage that was found: one sentence for each place, with file and offset.
    pub damage: Vec<String>,
}

impl VerifyReport {
    /// Adds the damage that reading a file found to the report. Other errors are returned, since an
    /// unreadable file is not known to be damaged.
    fn note<T: Default>(&mut self, read: Result<T>) -> Result<T> {
        match read {
            Err(error @ Error::Corruption { .. }) => {
                // The advice is given once, by the caller that knows the context of the store.
                self.damage.push(error.message_without_advice());
                Ok(T::default())
            }
            read => read,
        }
    }
}

/// Verifies every live table and every long value; the manifest and the WAL were verified when the
/// store was opened.
///
/// The verification continues after damage, so that the report names all damage. The verification
/// ends with an error if the system refuses a read.
pub fn verify(store: &Store) -> Result<VerifyReport> {
    store.check_open()?;
    let mut report = VerifyReport::default();
    for keyspace in store.keyspaces() {
        let view = keyspace.super_version.acquire();
        for (_, table) in view.version.tables() {
            store.check_open()?;
            report.tables += 1;
            report.bytes += table.meta.file_bytes;
            let checked = table.reader().and_then(|reader| reader.verify());
            report.entries += report.note(checked)?.entries;
        }
        let buffers = view.frozen.iter().chain([&view.active]);
        let in_memory = buffers.flat_map(|buffer| buffer.blobs());
        let in_tables = view.version.tables().flat_map(|(_, table)| table.blobs().iter().cloned());
        for blob in in_memory.chain(in_tables) {
            store.check_open()?;
            report.blobs += 1;
            report.blob_bytes += file_bytes(blob.pointer.value_bytes);
            report.note(store.context.blobs.verify(&blob.pointer))?;
        }
    }
    Ok(report)
}
