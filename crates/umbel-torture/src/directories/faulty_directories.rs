//! The world of a script: it notes which directories were held, and may have a planted mistake.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use umbel::{Env, Error, Result};
use umbel_env::{Access, File, FileIdentity, FileSystem, Lock};
use umbel_sim::Sim;

/// What a planted file system leaves out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeftOut {
    /// Nothing.
    Nothing,
    /// Directories are not held: each call resolves its path from the root.
    Hold,
    /// Relative paths stay relative: each call resolves its path from the current directory.
    Absolute,
    /// Subdirectories are not held: each call resolves them from the store's directory.
    Subdirectories,
    /// The directory is not locked, only the lock file is.
    DirectoryLock,
}

impl LeftOut {
    /// What the name of a planted mistake means.
    pub fn named(name: Option<&str>) -> LeftOut {
        match name {
            Some(super::HOLD) => LeftOut::Hold,
            Some(super::ABSOLUTE) => LeftOut::Absolute,
            Some(super::SUBDIRECTORIES) => LeftOut::Subdirectories,
            Some(super::DIRECTORY_LOCK) => LeftOut::DirectoryLock,
            _ => LeftOut::Nothing,
        }
    }
}

/// What the file systems of a script share.
#[derive(Debug)]
struct Notes {
    sim: Sim,
    left_out: LeftOut,
    held: Mutex<Vec<(PathBuf, Option<FileIdentity>)>>,
    locked: Mutex<BTreeSet<FileIdentity>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The world of a script.
#[derive(Debug, Clone)]
pub struct Rig {
    notes: Arc<Notes>,
}

impl Rig {
    /// The world of `sim` with a mistake.
    pub fn new(sim: &Sim, left_out: LeftOut) -> Rig {
        let (held, locked) = Default::default();
        Rig { notes: Arc::new(Notes { sim: sim.clone(), left_out, held, locked }) }
    }

    /// The world as the engine sees it.
    pub fn env(&self) -> Env {
        let env = self.notes.sim.env();
        let (inner, notes) = (Arc::clone(&env.files), Arc::clone(&self.notes));
        Env { files: Arc::new(RigFiles { inner, notes, held_at: None }), ..env }
    }

    /// The directories held from the outside since the last call, by their paths as they were.
    pub fn take_held(&self) -> Vec<(PathBuf, Option<FileIdentity>)> {
        std::mem::take(&mut *lock(&self.notes.held))
    }
}

#[derive(Debug)]
struct RigFiles {
    inner: Arc<dyn FileSystem>,
    notes: Arc<Notes>,
    held_at: Option<PathBuf>,
}

impl RigFiles {
    /// The file system for a path.
    fn files(&self, path: &Path) -> Result<Arc<dyn FileSystem>> {
        if let (LeftOut::Subdirectories, Some(held)) = (self.notes.left_out, &self.held_at)
            && let Some(parent) = path.parent()
            && parent != held
            && path != held
        {
            return self.inner.hold(parent);
        }
        Ok(Arc::clone(&self.inner))
    }
}

/// The lock of a file alone.
#[derive(Debug)]
struct FileLock {
    notes: Arc<Notes>,
    file: FileIdentity,
}

impl Lock for FileLock {}

impl Drop for FileLock {
    fn drop(&mut self) {
        lock(&self.notes.locked).remove(&self.file);
    }
}

impl FileSystem for RigFiles {
    umbel_env::pass_on! {
        inner: place innermost create_dir_all hard_link remove_dir read_dir sync_dir pin
    }

    fn absolute(&self, path: &Path) -> Result<PathBuf> {
        match self.notes.left_out {
            LeftOut::Absolute => Ok(path.to_path_buf()),
            _ => self.inner.absolute(path),
        }
    }

    fn hold(&self, path: &Path) -> Result<Arc<dyn FileSystem>> {
        let holds = !matches!(self.notes.left_out, LeftOut::Hold | LeftOut::Absolute);
        let inner = match holds {
            true => self.inner.hold(path)?,
            // The directory has to be there.
            false => self.inner.read_dir(path).map(|_| Arc::clone(&self.inner))?,
        };
        if self.held_at.is_none() {
            let found = self.inner.absolute(path).map(|path| self.notes.sim.identity(path));
            lock(&self.notes.held).push((path.to_path_buf(), found.ok().flatten()));
        }
        let (notes, held_at) = (Arc::clone(&self.notes), Some(path.to_path_buf()));
        Ok(Arc::new(RigFiles { inner, notes, held_at }))
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
        if self.notes.left_out != LeftOut::DirectoryLock {
            return self.inner.lock(path);
        }
        if !self.inner.exists(path)? {
            self.inner.create(path)?;
        }
        let Some(file) = self.inner.identity(path)? else {
            return Err(Error::invalid("the lock file has gone"));
        };
        match lock(&self.notes.locked).insert(file) {
            true => Ok(Box::new(FileLock { notes: Arc::clone(&self.notes), file })),
            false => Err(Error::Locked(path.to_path_buf())),
        }
    }
}
