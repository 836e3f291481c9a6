//! A folder on a real disk that is removed when its owner goes.

use std::path::{Path, PathBuf};

/// A folder of this process.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// A new folder with this name in it, in the folder for temporary files.
    pub fn new(name: &str) -> Result<Scratch, String> {
        let folder = format!("umbel-torture-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(folder);
        let said = |error| format!("cannot make {}: {error}", path.display());
        std::fs::create_dir_all(&path).map_err(said)?;
        Ok(Scratch { path })
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes of the files in one of its folders.
    pub fn bytes(&self, folder: &str) -> u64 {
        let Ok(entries) = std::fs::read_dir(self.path.join(folder)) else { return 0 };
        entries.flatten().filter_map(|entry| entry.metadata().ok()).map(|meta| meta.len()).sum()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What stays is in the folder for temporary files.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
