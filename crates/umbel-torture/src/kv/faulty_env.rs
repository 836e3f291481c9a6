//! Bugs to plant between the engine and its world, each one a mistake a programmer could make.

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use umbel::{Env, Result};
use umbel_env::{Access, File, FileIdentity, FileSystem, Lock, Mapping};
use umbel_sim::Sim;

use crate::crash::Plant;

/// A mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// The n-th rename of `CURRENT` is forgotten.
    StaleCurrent(u64),
    /// `CURRENT` is removed and only then replaced.
    RenameInTwoSteps,
    /// The n-th append to the manifest is lost.
    LostManifestAppend(u64),
    /// The n-th record of the log is never stored, the next ones are.
    HoleInTheLog(u64),
    /// One sector of each table is not written.
    LostTableSector,
    /// The lock is not taken.
    IgnoredLock,
    /// Only the newest log segment is synced.
    OldSegmentsNotSynced,
    /// Errors of syncs are dropped.
    IgnoredSyncError,
    /// Errors of writes are dropped.
    IgnoredWriteError,
    /// Closing cuts the log eight bytes too short.
    LogCutShort,
    /// The oldest log is removed as soon as a table is written.
    LogRemovedEarly,
    /// The new header of a log in a used file is not synced before the file gets its new name.
    RelabelNotSynced,
}

/// A plant that puts `bug` in.
pub fn plant(bug: Bug) -> Plant {
    Arc::new(move |_, mut env: Env| {
        let notes = Arc::new(Notes { bug, counted: AtomicU64::new(0), logs: Mutex::default() });
        env.files = Arc::new(BadFiles { inner: Arc::clone(&env.files), notes });
        env
    })
}

/// A plant that leaves calls out.
pub fn forget(site: &'static str) -> Plant {
    Arc::new(move |sim: &Sim, env: Env| {
        sim.ignore_calls(site);
        env
    })
}

#[derive(Debug)]
struct Notes {
    bug: Bug,
    counted: AtomicU64,
    /// Logs in the order of their creation.
    logs: Mutex<Vec<PathBuf>>,
}

impl Notes {
    fn is_nth(&self, nth: u64) -> bool {
        self.counted.fetch_add(1, Ordering::Relaxed) + 1 == nth
    }

    fn logs(&self) -> std::sync::MutexGuard<'_, Vec<PathBuf>> {
        self.logs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|found| found == extension)
}

#[derive(Debug)]
struct BadFiles {
    inner: Arc<dyn FileSystem>,
    notes: Arc<Notes>,
}

#[derive(Debug)]
struct BadFile {
    inner: Arc<dyn File>,
    notes: Arc<Notes>,
    files: Arc<dyn FileSystem>,
}

#[derive(Debug)]
struct BadMapping {
    inner: Box<dyn Mapping>,
    notes: Arc<Notes>,
}

#[derive(Debug)]
struct NoLock;

impl Lock for NoLock {}

impl BadFiles {
    fn file(&self, inner: Arc<dyn File>) -> Arc<dyn File> {
        let (notes, files) = (Arc::clone(&self.notes), Arc::clone(&self.inner));
        Arc::new(BadFile { inner, notes, files })
    }
}

impl FileSystem for BadFiles {
    umbel_env::pass_on! {
        inner: absolute reaches place identity innermost create_dir_all hard_link remove_dir
            read_dir exists sync_dir pin
    }

    fn hold(&self, path: &Path) -> Result<Arc<dyn FileSystem>> {
        let inner = self.inner.hold(path)?;
        Ok(Arc::new(BadFiles { inner, notes: Arc::clone(&self.notes) }))
    }

    fn create(&self, path: &Path) -> Result<Arc<dyn File>> {
        let file = self.inner.create(path)?;
        if is(path, "log") {
            self.notes.logs().push(path.to_path_buf());
        }
        Ok(self.file(file))
    }

    fn open(&self, path: &Path, access: Access) -> Result<Arc<dyn File>> {
        Ok(self.file(self.inner.open(path, access)?))
    }

    fn rename(&self, source: &Path, target: &Path) -> Result<()> {
        if is(source, "log") {
            let mut logs = self.notes.logs();
            logs.retain(|made| made != source);
            logs.push(target.to_path_buf());
        }
        match self.notes.bug {
            Bug::StaleCurrent(nth) if self.notes.is_nth(nth) => Ok(()),
            Bug::RenameInTwoSteps if self.inner.exists(target)? => {
                self.inner.remove_file(target)?;
                self.inner.rename(source, target)
            }
            _ => self.inner.rename(source, target),
        }
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        if is(path, "log") {
            self.notes.logs().retain(|made| made != path);
        }
        match self.notes.bug {
            Bug::LogRemovedEarly if !self.inner.exists(path)? => Ok(()),
            _ => self.inner.remove_file(path),
        }
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Lock>> {
        match self.notes.bug {
            Bug::IgnoredLock => Ok(Box::new(NoLock)),
            _ => self.inner.lock(path),
        }
    }
}

impl BadFile {
    fn written(&self, result: Result<()>) -> Result<()> {
        match self.notes.bug {
            Bug::IgnoredWriteError => Ok(()),
            _ => result,
        }
    }
}

impl File for BadFile {
    fn path(&self) -> &Path {
        self.inner.path()
    }

    fn identity(&self) -> Result<FileIdentity> {
        self.inner.identity()
    }

    fn len(&self) -> Result<u64> {
        self.inner.len()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.inner.read_at(buffer, offset)
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        self.inner.read_exact_at(buffer, offset)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        let path = self.inner.path();
        match self.notes.bug {
            Bug::LostManifestAppend(nth)
                if is(path, "manifest") && offset > 64 && self.notes.is_nth(nth) =>
            {
                return Ok(());
            }
            Bug::HoleInTheLog(nth) if is(path, "log") && offset >= 64 && self.notes.is_nth(nth) => {
                return Ok(());
            }
            // Headers of new segments are stored into the mapping.
            Bug::RelabelNotSynced if is(path, "log") && offset == 0 => {
                self.notes.counted.store(1, Ordering::Relaxed);
            }
            Bug::LostTableSector if is(path, "table") && bytes.len() > 700 => {
                self.inner.write_all_at(&bytes[..100], offset)?;
                return self.inner.write_all_at(&bytes[612..], offset + 612);
            }
            _ => {}
        }
        self.written(self.inner.write_all_at(bytes, offset))
    }

    fn set_len(&self, len: u64) -> Result<()> {
        match self.notes.bug {
            Bug::LogCutShort if is(self.inner.path(), "log") => self.inner.set_len(len - 8),
            _ => self.inner.set_len(len),
        }
    }

    fn preallocate(&self, len: u64) -> Result<()> {
        self.written(self.inner.preallocate(len))
    }

    fn sync(&self) -> Result<()> {
        let path = self.inner.path();
        match self.notes.bug {
            Bug::IgnoredSyncError => {
                let _ = self.inner.sync();
                Ok(())
            }
            Bug::RelabelNotSynced
                if is(path, "log") && self.notes.counted.swap(0, Ordering::Relaxed) > 0 =>
            {
                Ok(())
            }
            Bug::OldSegmentsNotSynced if is(path, "log") => {
                let newest = self.notes.logs().last().cloned();
                if newest.as_deref() == Some(path) { self.inner.sync() } else { Ok(()) }
            }
            Bug::LogRemovedEarly if is(path, "table") => {
                self.inner.sync()?;
                let mut logs = self.notes.logs();
                if logs.len() > 1 {
                    let oldest = logs.remove(0);
                    self.files.remove_file(&oldest)?;
                }
                Ok(())
            }
            _ => self.inner.sync(),
        }
    }

    fn map(&self, len: u64) -> Result<Option<Box<dyn Mapping>>> {
        let mapping = self.inner.map(len)?;
        let bad = |inner| Box::new(BadMapping { inner, notes: Arc::clone(&self.notes) }) as _;
        Ok(mapping.map(bad))
    }
}

impl Mapping for BadMapping {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn write_at(&mut self, bytes: &[u8], offset: u64) -> Result<()> {
        if let Bug::HoleInTheLog(nth) = self.notes.bug
            && offset >= 64
            && self.notes.is_nth(nth)
        {
            return Ok(());
        }
        self.inner.write_at(bytes, offset)
    }
}
