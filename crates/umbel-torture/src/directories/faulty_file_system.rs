//! File system of a script: it records held directories, and may have a planted bug.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use umbel_base::ignore_poison::IgnorePoison;

use umbel::{Env, Error, Result};
use umbel_env::{Access, File, FileIdentity, FileSystem, Lock};
use umbel_sim::Sim;

/// Step that a planted file system omits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OmittedStep {
    /// Omits no step.
    Nothing,
    /// Directories are not held: each call resolves its path from the root.
    Hold,
    /// Relative paths stay relative: each call resolves its path from the current directory.
    Absolute,
    /// Subdirectories are not held: each call resolves them from the store's directory.
    Subdirectories,
    /// The planted file system locks only the lock file, and not the directory.
    DirectoryLock,
}

impl OmittedStep {
    /// Returns the step with this name.
    pub fn from_name(name: Option<&str>) -> OmittedStep {
        match name {
            Some(super::HOLD) => OmittedStep::Hold,
            Some(super::ABSOLUTE) => OmittedStep::Absolute,
            Some(super::SUBDIRECTORIES) => OmittedStep::Subdirectories,
            Some(super::DIRECTORY_LOCK) => OmittedStep::DirectoryLock,
            _ => OmittedStep::Nothing,
        }
    }
}

/// State that the file systems of a script share.
#[derive(Debug)]
struct FileSystemNotes {
    sim: Sim,
    left_out: OmittedStep,
    held: Mutex<Vec<(PathBuf, Option<FileIdentity>)>>,
    locked: Mutex<BTreeSet<FileIdentity>>,
}

/// Environment of a script.
#[derive(Debug, Clone)]
pub struct FaultyDirectories {
    notes: Arc<FileSystemNotes>,
}

impl FaultyDirectories {
    /// Creates the environment of `sim` with a planted bug.
    pub fn new(sim: &Sim, left_out: OmittedStep) -> FaultyDirectories {
        let (held, locked) = Default::default();
        FaultyDirectories {
            notes: Arc::new(FileSystemNotes { sim: sim.clone(), left_out, held, locked }),
        }
    }

    /// Returns the environment for the engine.
    pub fn env(&self) -> Env {
        let env = self.notes.sim.env();
        let (inner, notes) = (Arc::clone(&env.files), Arc::clone(&self.notes));
        Env { files: Arc::new(FaultyFileSystem { inner, notes, held_at: None }), ..env }
    }

    /// Returns the directories opened since the last call, by their paths at that time.
    pub fn take_held(&self) -> Vec<(PathBuf, Option<FileIdentity>)> {
        std::mem::take(&mut *self.notes.held.lock().ignore_poison())
    }
}

#[derive(Debug)]
struct FaultyFileSystem {
    inner: Arc<dyn FileSystem>,
    notes: Arc<FileSystemNotes>,
    held_at: Option<PathBuf>,
}

impl FaultyFileSystem {
    /// Returns the file system for a path.
    fn files(&self, path: &Path) -> Result<Arc<dyn FileSystem>> {
        if let (OmittedStep::Subdirectories, Some(held)) = (self.notes.left_out, &self.held_at)
            && let Some(parent) = path.parent()
            && parent != held
            && path != held
        {
            return self.inner.open_directory(parent);
        }
        Ok(Arc::clone(&self.inner))
    }
}

/// File system that locks only a file, not the directory.
#[derive(Debug)]
struct LockFileOnly {
    notes: Arc<FileSystemNotes>,
    file: FileIdentity,
}

impl Lock for LockFileOnly {}

impl Drop for LockFileOnly {
    fn drop(&mut self) {
        self.notes.locked.lock().ignore_poison().remove(&self.file);
    }
}

impl FileSystem for FaultyFileSystem {
    umbel_env::delegate_calls! {
        inner: directory_location innermost create_dir_all hard_link remove_dir read_dir sync_dir
            pin
    }

    fn absolute(&self, path: &Path) -> Result<PathBuf> {
        match self.notes.left_out {
            OmittedStep::Absolute => Ok(path.to_path_buf()),
            _ => self.inner.absolute(path),
        }
    }

    fn open_directory(&self, path: &Path) -> Result<Arc<dyn FileSystem>> {
        let holds = !matches!(self.notes.left_out, OmittedStep::Hold | OmittedStep::Absolute);
        let inner = match holds {
            true => self.inner.open_directory(path)?,
            // The directory must exist.
            false => self.inner.read_dir(path).map(|_| Arc::clone(&self.inner))?,
        };
        if self.held_at.is_none() {
            let found = self.inner.absolute(path).map(|path| self.notes.sim.identity(path));
            self.notes.held.lock().ignore_poison().push((path.to_path_buf(), found.ok().flatten()));
        }
        let (notes, held_at) = (Arc::clone(&self.notes), Some(path.to_path_buf()));
        Ok(Arc::new(FaultyFileSystem { inner, notes, held_at }))
    }

    fn reaches(&self, path: &Path) -> bool {
        self.held_at.as_ref().is_none_or(|held| path.starts_with(held))
    }

    fn identity(&self, path: &Path) -> Result<Option<FileIdentity>> {
        self.files(path)?.identity(path)
    }

    fn create(&self, path: &Path) -> Result<Arc<dyn File>> {
        self.files(path)?.create(path)
    }

    fn open(&self, path: &Path, access: Access) -> Result<Arc<dyn File>> {
        self.files(path)?.open(path, access)
    }

    fn rename(&self, source: &Path, target: &Path) -> Result<()> {
        self.files(source)?.rename(source, target)
    }

    fn exchange(&self, one: &Path, other: &Path) -> Result<bool> {
        self.files(one)?.exchange(one, other)
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        self.files(path)?.remove_file(path)
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.files(path)?.exists(path)
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Lock>> {
        if self.notes.left_out != OmittedStep::DirectoryLock {
            return self.inner.lock(path);
        }
        if !self.inner.exists(path)? {
            self.inner.create(path)?;
        }
        let Some(file) = self.inner.identity(path)? else {
            return Err(Error::invalid("the lock file has gone"));
        };
        match self.notes.locked.lock().ignore_poison().insert(file) {
            true => Ok(Box::new(LockFileOnly { notes: Arc::clone(&self.notes), file })),
            false => Err(Error::Locked(path.to_path_buf())),
        }
    }
}
