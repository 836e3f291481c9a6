//! Bugs between the engine and its environment, each a likely mistake of a programmer.

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use umbel_base::ignore_poison::IgnorePoison;

use umbel::{Env, Result};
use umbel_env::{Access, File, FileIdentity, FileSystem, Lock, Mapping};
use umbel_sim::Sim;

use crate::kv::crash::EnvPlant;

/// Planted bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnvBug {
    /// The n-th rename of `CURRENT` is omitted.
    StaleCurrent(u64),
    /// `CURRENT` is removed and only then replaced.
    RenameInTwoSteps,
    /// The n-th append to the manifest is lost.
    LostManifestAppend(u64),
    /// The n-th record of the WAL is never stored, but later records are.
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

/// Returns a plant with `bug`.
pub fn plant_bug(bug: EnvBug) -> EnvPlant {
    Arc::new(move |_, mut env: Env| {
        let notes = Arc::new(BugNotes { bug, counted: AtomicU64::new(0), logs: Mutex::default() });
        env.files = Arc::new(BuggyFileSystem { inner: Arc::clone(&env.files), notes });
        env
    })
}

/// Returns a plant that omits calls.
pub fn omit_calls(site: &'static str) -> EnvPlant {
    Arc::new(move |sim: &Sim, env: Env| {
        sim.ignore_calls(site);
        env
    })
}

#[derive(Debug)]
struct BugNotes {
    bug: EnvBug,
    counted: AtomicU64,
    /// Logs in the order of their creation.
    logs: Mutex<Vec<PathBuf>>,
}

impl BugNotes {
    fn is_nth(&self, nth: u64) -> bool {
        self.counted.fetch_add(1, Ordering::Relaxed) + 1 == nth
    }

    fn logs(&self) -> std::sync::MutexGuard<'_, Vec<PathBuf>> {
        self.logs.lock().ignore_poison()
    }
}

fn is(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|found| found == extension)
}

#[derive(Debug)]
struct BuggyFileSystem {
    inner: Arc<dyn FileSystem>,
    notes: Arc<BugNotes>,
}

#[derive(Debug)]
struct BuggyFile {
    inner: Arc<dyn File>,
    notes: Arc<BugNotes>,
    files: Arc<dyn FileSystem>,
}

#[derive(Debug)]
struct BuggyMapping {
    inner: Box<dyn Mapping>,
    notes: Arc<BugNotes>,
}

#[derive(Debug)]
struct NoLock;

impl Lock for NoLock {}

impl BuggyFileSystem {
    fn file(&self, inner: Arc<dyn File>) -> Arc<dyn File> {
        let (notes, files) = (Arc::clone(&self.notes), Arc::clone(&self.inner));
        Arc::new(BuggyFile { inner, notes, files })
    }
}

impl FileSystem for BuggyFileSystem {
    umbel_env::delegate_calls! {
        inner: absolute reaches directory_location identity innermost create_dir_all hard_link
            remove_dir read_dir exists sync_dir pin
    }

    fn open_directory(&self, path: &Path) -> Result<Arc<dyn FileSystem>> {
        let inner = self.inner.open_directory(path)?;
        Ok(Arc::new(BuggyFileSystem { inner, notes: Arc::clone(&self.notes) }))
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
            EnvBug::StaleCurrent(nth) if self.notes.is_nth(nth) => Ok(()),
            EnvBug::RenameInTwoSteps if self.inner.exists(target)? => {
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
            EnvBug::LogRemovedEarly if !self.inner.exists(path)? => Ok(()),
            _ => self.inner.remove_file(path),
        }
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Lock>> {
        match self.notes.bug {
            EnvBug::IgnoredLock => Ok(Box::new(NoLock)),
            _ => self.inner.lock(path),
        }
    }
}

impl BuggyFile {
    fn written(&self, result: Result<()>) -> Result<()> {
        match self.notes.bug {
            EnvBug::IgnoredWriteError => Ok(()),
            _ => result,
        }
    }
}

impl File for BuggyFile {
    fn path(&self) -> &Path {
        self.inner.path()
    }

    fn identity(&self) -> Result<FileIdentity> {
        self.inner.identity()
    }

    fn modified_micros(&self) -> Result<u64> {
        self.inner.modified_micros()
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
            EnvBug::LostManifestAppend(nth)
                if is(path, "manifest") && offset > 64 && self.notes.is_nth(nth) =>
            {
                return Ok(());
            }
            EnvBug::HoleInTheLog(nth)
                if is(path, "log") && offset >= 64 && self.notes.is_nth(nth) =>
            {
                return Ok(());
            }
            // Headers of new segments are stored into the mapping.
            EnvBug::RelabelNotSynced if is(path, "log") && offset == 0 => {
                self.notes.counted.store(1, Ordering::Relaxed);
            }
            EnvBug::LostTableSector if is(path, "table") && bytes.len() > 700 => {
                self.inner.write_all_at(&bytes[..100], offset)?;
                return self.inner.write_all_at(&bytes[612..], offset + 612);
            }
            _ => {}
        }
        self.written(self.inner.write_all_at(bytes, offset))
    }

    fn set_len(&self, len: u64) -> Result<()> {
        match self.notes.bug {
            EnvBug::LogCutShort if is(self.inner.path(), "log") => self.inner.set_len(len - 8),
            _ => self.inner.set_len(len),
        }
    }

    fn preallocate(&self, len: u64) -> Result<()> {
        self.written(self.inner.preallocate(len))
    }

    fn sync(&self) -> Result<()> {
        let path = self.inner.path();
        match self.notes.bug {
            EnvBug::IgnoredSyncError => {
                let _ = self.inner.sync();
                Ok(())
            }
            EnvBug::RelabelNotSynced
                if is(path, "log") && self.notes.counted.swap(0, Ordering::Relaxed) > 0 =>
            {
                Ok(())
            }
            EnvBug::OldSegmentsNotSynced if is(path, "log") => {
                let newest = self.notes.logs().last().cloned();
                if newest.as_deref() == Some(path) { self.inner.sync() } else { Ok(()) }
            }
            EnvBug::LogRemovedEarly if is(path, "table") => {
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
        let bad = |inner| Box::new(BuggyMapping { inner, notes: Arc::clone(&self.notes) }) as _;
        Ok(mapping.map(bad))
    }
}

impl Mapping for BuggyMapping {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn write_at(&mut self, bytes: &[u8], offset: u64) -> Result<()> {
        if let EnvBug::HoleInTheLog(nth) = self.notes.bug
            && offset >= 64
            && self.notes.is_nth(nth)
        {
            return Ok(());
        }
        self.inner.write_at(bytes, offset)
    }
}
