//! Reading every byte of a store and checking that it says what the manifest says.

use umbel_base::{Error, Result};
use umbel_blob::file_bytes;

use crate::store::Store;

/// What [`crate::Db::verify`] read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Tables read.
    pub tables: u64,
    /// Bytes of their files.
    pub bytes: u64,
    /// Entries in them.
    pub entries: u64,
    /// Files of long values read.
    pub blobs: u64,
    /// Bytes of these files.
    pub blob_bytes: u64,
    /// Damage found, one sentence each, with file and offset.
    pub damage: Vec<String>,
}

impl VerifyReport {
    /// Notes what came of reading a file: damage is to be reported, but what could not be read is
    /// not known to be damaged.
    fn note<T: Default>(&mut self, read: Result<T>) -> Result<T> {
        match read {
            Err(error @ Error::Corruption { .. }) => {
                // What helps is said once, by the caller who knows what the store is part of.
                self.damage.push(error.without_remedy());
                Ok(T::default())
            }
            read => read,
        }
    }
}

/// Verifies every live table and every long value; the manifest and the logs were verified when the
/// store was opened.
///
/// Goes on after damage, so that the report names all of it; ends with an error where the system
/// refuses to read.
pub fn verify(store: &Store) -> Result<VerifyReport> {
    store.check_open()?;
    let mut report = VerifyReport::default();
    for keyspace in store.keyspaces() {
        let view = keyspace.view.hold();
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
