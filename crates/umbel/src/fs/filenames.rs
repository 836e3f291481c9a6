//! Names of a store's files. A name depends on the file's kind and id, never on its content.

use std::path::{Path, PathBuf};

/// Name of the file that says which manifest is current.
pub const CURRENT: &str = "CURRENT";
/// Name of the new [`CURRENT`] before it is renamed over the old one.
pub const CURRENT_NEW: &str = "CURRENT.new";
/// Largest id of a file, chosen far below `u64` overflow.
pub const ID_MAX: u64 = u64::MAX >> 1;
/// Name of the file whose lock says that the store is open.
pub const LOCK: &str = "LOCK";
/// Name of the file that reserves disk space for the manifest of the next open.
pub const RESERVED: &str = "RESERVED";

/// Name of the marker of a restore that did not end.
pub const RESTORING: &str = "RESTORING";

/// Kind of a store's file, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// The file [`CURRENT`].
    Current,
    /// The file [`CURRENT_NEW`].
    CurrentNew,
    /// The file [`LOCK`].
    Lock,
    /// The file [`RESERVED`].
    Reserved,
    /// A manifest with this id.
    Manifest(u64),
    /// A WAL segment with this id.
    Segment(u64),
    /// A table with this id.
    Table(u64),
    /// A long value with this id.
    Blob(u64),
}

/// Returns the path of the manifest with this id.
pub fn manifest(folder: &Path, id: u64) -> PathBuf {
    folder.join(format!("{id:06}.manifest"))
}

/// Returns the path of the WAL segment with this id.
pub fn segment(folder: &Path, id: u64) -> PathBuf {
    folder.join(format!("{id:06}.log"))
}

/// Returns the path of the table with this id.
pub fn table(folder: &Path, id: u64) -> PathBuf {
    folder.join(format!("{id:06}.table"))
}

/// Returns the path of the long value with this id.
pub fn blob(folder: &Path, id: u64) -> PathBuf {
    folder.join(format!("{id:06}.blob"))
}

/// Returns the path of [`RESERVED`].
pub fn reserved(folder: &Path) -> PathBuf {
    folder.join(RESERVED)
}

/// Returns the directory of the existence filter of the keyspace with this id.
pub fn existence(folder: &Path, keyspace: u32) -> PathBuf {
    folder.join(format!("{keyspace:06}.existence"))
}

/// Returns the id of the keyspace whose existence filter's directory has this name.
pub fn parse_existence(name: &str) -> Option<u32> {
    let id = name.strip_suffix(".existence")?.parse().ok()?;
    existence(Path::new(""), id).to_str().is_some_and(|own| own == name).then_some(id)
}

/// Returns the kind of the file `name`; `None` if a store has no file of such a name.
pub fn parse(name: &str) -> Option<FileKind> {
    match name {
        CURRENT => return Some(FileKind::Current),
        CURRENT_NEW => return Some(FileKind::CurrentNew),
        LOCK => return Some(FileKind::Lock),
        RESERVED => return Some(FileKind::Reserved),
        _ => {}
    }
    let (digits, extension) = name.split_once('.')?;
    if digits.len() < 6 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let id = digits.parse().ok().filter(|&id| id <= ID_MAX)?;
    // Each id has exactly one name, so that removal by id removes the listed file.
    if digits != format!("{id:06}") {
        return None;
    }
    match extension {
        "manifest" => Some(FileKind::Manifest(id)),
        "log" => Some(FileKind::Segment(id)),
        "table" => Some(FileKind::Table(id)),
        "blob" => Some(FileKind::Blob(id)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_round_trip() {
        let folder = Path::new("store");
        for id in [1, 999_999, 12_345_678] {
            let kinds = [
                (manifest(folder, id), FileKind::Manifest(id)),
                (segment(folder, id), FileKind::Segment(id)),
                (table(folder, id), FileKind::Table(id)),
                (blob(folder, id), FileKind::Blob(id)),
            ];
            for (path, kind) in kinds {
                let name = path.file_name().unwrap().to_str().unwrap();
                assert_eq!(parse(name), Some(kind), "{name}");
            }
        }
        assert_eq!(parse("RESERVED"), Some(FileKind::Reserved));
        let numbers =
            ["1.log", "0000001.log", "18446744073709551615.log", "99999999999999999999.log"];
        let others = ["notes.txt", "000001.log.bak", "00000x.table", "+00001.log", ""];
        for foreign in numbers.into_iter().chain(others) {
            assert_eq!(parse(foreign), None, "{foreign}");
        }
        assert_eq!(parse_existence("000007.existence"), Some(7));
        for foreign in ["7.existence", "0000007.existence", "000007.log", ".existence"] {
            assert_eq!(parse_existence(foreign), None, "{foreign}");
        }
    }
}
