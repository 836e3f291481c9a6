//! Folders on a real disk for campaigns.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A folder of this process, removed with its contents on drop.
#[derive(Debug)]
pub struct ScratchDirectory {
    path: PathBuf,
}

/// Returns the default parent of folders: beside the program, in the target folder of the build,
/// since the system's temporary folder is in memory on many machines.
pub fn default_parent() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    program.parent().unwrap_or(Path::new(".")).join("torture-scratch")
}

impl ScratchDirectory {
    /// Creates an empty folder in `place`.
    pub fn new(place: &Path, name: &str) -> Result<ScratchDirectory, String> {
        let path = place.join(format!("{name}-{}", std::process::id()));
        let describe = |error| format!("no folder {} can be made: {error}", path.display());
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).map_err(describe)?;
        Ok(ScratchDirectory { path })
    }

    /// Returns the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps the folder and returns its path.
    pub fn keep(mut self) -> PathBuf {
        std::mem::take(&mut self.path)
    }
}

impl Drop for ScratchDirectory {
    fn drop(&mut self) {
        if !self.path.as_os_str().is_empty() {
            let _ = fs::remove_dir_all(&self.path);
            // The parent is removed with its last folder.
            let _ = self.path.parent().map(fs::remove_dir);
        }
    }
}

/// Replaces a folder by a copy of a store's folder with its subfolders.
pub fn copy(source: &Path, target: &Path) -> Result<(), String> {
    let describe = |error| format!("{} cannot be copied: {error}", source.display());
    let _ = fs::remove_dir_all(target);
    fs::create_dir_all(target).map_err(describe)?;
    if !source.exists() {
        return Ok(());
    }
    for entry in fs::read_dir(source).map_err(describe)? {
        let entry = entry.map_err(describe)?;
        let target = target.join(entry.file_name());
        match entry.file_type().map_err(describe)?.is_dir() {
            true => copy(&entry.path(), &target)?,
            false => drop(fs::copy(entry.path(), target).map_err(describe)?),
        }
    }
    Ok(())
}

/// Returns the names of the files in a folder; none if the folder does not exist.
pub fn names(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Returns the disk space of the files in a folder.
pub fn disk_bytes(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    // A block is 512 bytes here, whatever the file system's block size.
    entries.flatten().filter_map(|entry| entry.metadata().ok()).map(|m| m.blocks() * 512).sum()
}

/// Returns the type of the file system of `place`, if the system reports it: the type of the mount
/// with the longest path above `place`.
pub fn file_system(place: &Path) -> Option<String> {
    let place = place.ancestors().find_map(|folder| folder.canonicalize().ok())?;
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let mounts = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        Some((words.next()?, words.next()?))
    });
    // Of two mounts on the same path the later hides the earlier.
    let found =
        mounts.filter(|(path, _)| place.starts_with(path)).max_by_key(|(path, _)| path.len())?;
    Some(found.1.to_string())
}
