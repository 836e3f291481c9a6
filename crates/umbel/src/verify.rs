//! Reading every byte of a store and checking that it says what the manifest says.

use umbel_base::{Error, Result};

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
    /// Damage found, one sentence each, with file and offset.
    pub damage: Vec<String>,
}

/// Verifies every live table; the manifest and the logs were verified when the store was opened.
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
            match table.reader().and_then(|reader| reader.verify()) {
                Ok(checked) => report.entries += checked.entries,
                Err(error @ Error::Corruption { .. }) => report.damage.push(error.to_string()),
                // What could not be read is not known to be damaged.
                Err(error) => return Err(error),
            }
        }
    }
    Ok(report)
}
