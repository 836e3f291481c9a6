//! Folders on a real disk for campaigns that need one.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A folder of this process that goes when this is dropped, with everything in it.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
}

/// Where folders are made unless somebody says otherwise: beside the program, which lies in the
/// build's target folder. The folder for temporary files is in memory on many machines.
pub fn default_place() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    program.parent().unwrap_or(Path::new(".")).join("torture-scratch")
}

impl Scratch {
    /// A new, empty folder in `place`.
    pub fn new(place: &Path, name: &str) -> Result<Scratch, String> {
        let path = place.join(format!("{name}-{}", std::process::id()));
        let said = |error| format!("no folder {} can be made: {error}", path.display());
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).map_err(said)?;
        Ok(Scratch { path })
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Leaves the folder where it is and says where that is.
    pub fn keep(mut self) -> PathBuf {
        std::mem::take(&mut self.path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !self.path.as_os_str().is_empty() {
            let _ = fs::remove_dir_all(&self.path);
            // The place goes with the last folder in it.
            let _ = self.path.parent().map(fs::remove_dir);
        }
    }
}

/// Copies the files of a store's folder, and those of the folders in it, to another, which is made
/// anew.
pub fn copy(source: &Path, target: &Path) -> Result<(), String> {
    let said = |error| format!("{} cannot be copied: {error}", source.display());
    let _ = fs::remove_dir_all(target);
    fs::create_dir_all(target).map_err(said)?;
    if !source.exists() {
        return Ok(());
    }
    for entry in fs::read_dir(source).map_err(said)? {
        let entry = entry.map_err(said)?;
        let target = target.join(entry.file_name());
        match entry.file_type().map_err(said)?.is_dir() {
            true => copy(&entry.path(), &target)?,
            false => drop(fs::copy(entry.path(), target).map_err(said)?),
        }
    }
    Ok(())
}

/// The names of the files in a folder; none where there is no such folder.
pub fn names(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Bytes of disk that the files of a folder occupy.
pub fn disk_bytes(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    // A block is 512 bytes here, whatever the file system's own are.
    entries.flatten().filter_map(|entry| entry.metadata().ok()).map(|m| m.blocks() * 512).sum()
}

/// The kind of file system `place` lies on, where the system tells: the mount with the longest
/// path that leads there.
pub fn file_system(place: &Path) -> Option<String> {
    let place = place.ancestors().find_map(|folder| folder.canonicalize().ok())?;
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let mounts = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        Some((words.next()?, words.next()?))
    });
    // Of two on the same path the later hides the earlier.
    let found =
        mounts.filter(|(path, _)| place.starts_with(path)).max_by_key(|(path, _)| path.len())?;
    Some(found.1.to_string())
}
