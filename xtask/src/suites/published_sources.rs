//! Copies of published packages, in which suites run.

use std::io;
use std::path::{Path, PathBuf};

use crate::tools::built_programs;

/// Returns the folder of everything that a suite downloads, builds and writes.
pub fn suite_folder(client: &str) -> PathBuf {
    built_programs::target().join("suites").join(client)
}

/// Copies a folder. `edit` returns the text of a file to write in place of the original.
pub fn copy_folder(
    source: &Path,
    target: &Path,
    edit: &impl Fn(&Path) -> Option<String>,
) -> io::Result<()> {
    std::fs::create_dir_all(target)?;
    for entry in std::fs::read_dir(source)? {
        let entry = entry?;
        let (from, to) = (entry.path(), target.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            copy_folder(&from, &to, edit)?;
        } else if let Some(text) = edit(&from) {
            std::fs::write(&to, text)?;
        } else {
            // Not `copy`, which would make the copy read-only, as caches of packages are.
            std::fs::write(&to, std::fs::read(&from)?)?;
        }
    }
    Ok(())
}

/// Replaces a folder with a copy of another one. The error names the folder.
pub fn replace_folder(
    source: &Path,
    target: &Path,
    edit: &impl Fn(&Path) -> Option<String>,
) -> Result<(), String> {
    let removed = match std::fs::remove_dir_all(target) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    };
    removed
        .and_then(|()| copy_folder(source, target, edit))
        .map_err(|error| format!("could not copy to {}: {error}", target.display()))
}
