//! An environment that calls an observer before and after every call of the file system. So one run
//! of a script yields the state of a crash at each call.

use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

use umbel::{Env, Result};
use umbel_env::{
    Access, DirectoryEntry, DirectoryLocation, File, FileIdentity, FileSystem, Lock, Mapping, Pin,
};
use umbel_sim::Sim;

/// Observer of calls. The observer may copy the machine in its current state.
pub trait Observer: Send + Sync + Debug {
    /// Called before a call; `changes` says whether the call can change the disk.
    fn before(&self, sim: &Sim, changes: bool);
    /// Called after a call.
    fn after(&self, sim: &Sim, changes: bool);
}

/// Returns the environment of `sim` with an observer of every call.
pub fn observed_env(sim: &Sim, observer: &Arc<dyn Observer>) -> Env {
    let mut env = sim.env();
    let watch = CallWatch { sim: sim.clone(), observer: Arc::clone(observer) };
    env.files = Arc::new(WatchFiles { inner: Arc::clone(&env.files), watch });
    env
}

#[derive(Debug, Clone)]
struct CallWatch {
    sim: Sim,
    observer: Arc<dyn Observer>,
}

impl CallWatch {
    fn call<T>(&self, changes: bool, call: impl FnOnce() -> T) -> T {
        if self.sim.is_dead() {
            return call();
        }
        self.observer.before(&self.sim, changes);
        let result = call();
        self.observer.after(&self.sim, changes);
        result
    }
}

#[derive(Debug)]
struct WatchFiles {
    inner: Arc<dyn FileSystem>,
    watch: CallWatch,
}

#[derive(Debug)]
struct WatchFile {
    inner: Arc<dyn File>,
    watch: CallWatch,
}

#[derive(Debug)]
struct WatchMapping {
    inner: Box<dyn Mapping>,
    watch: CallWatch,
}

impl WatchFiles {
    fn file(&self, inner: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(WatchFile { inner, watch: self.watch.clone() })
    }
}

impl FileSystem for WatchFiles {
    umbel_env::delegate_calls!(inner: absolute reaches innermost);

    fn open_directory(&self, path: &Path) -> Result<Arc<dyn FileSystem>> {
        let inner = self.watch.call(false, || self.inner.open_directory(path))?;
        Ok(Arc::new(WatchFiles { inner, watch: self.watch.clone() }))
    }

    fn directory_location(&self) -> Result<DirectoryLocation> {
        self.watch.call(false, || self.inner.directory_location())
    }

    fn identity(&self, path: &Path) -> Result<Option<FileIdentity>> {
        self.watch.call(false, || self.inner.identity(path))
    }

    fn create_dir_all(&self, path: &Path) -> Result<()> {
        self.watch.call(true, || self.inner.create_dir_all(path))
    }

    fn create(&self, path: &Path) -> Result<Arc<dyn File>> {
        let file = self.watch.call(true, || self.inner.create(path))?;
        Ok(self.file(file))
    }

    fn open(&self, path: &Path, access: Access) -> Result<Arc<dyn File>> {
        let file = self.watch.call(false, || self.inner.open(path, access))?;
        Ok(self.file(file))
    }

    fn rename(&self, source: &Path, target: &Path) -> Result<()> {
        self.watch.call(true, || self.inner.rename(source, target))
    }

    fn exchange(&self, one: &Path, other: &Path) -> Result<bool> {
        self.watch.call(true, || self.inner.exchange(one, other))
    }

    fn hard_link(&self, source: &Path, target_files: &dyn FileSystem, target: &Path) -> Result<()> {
        self.watch.call(true, || self.inner.hard_link(source, target_files, target))
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        self.watch.call(true, || self.inner.remove_file(path))
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        self.watch.call(true, || self.inner.remove_dir(path))
    }

    fn read_dir(&self, path: &Path) -> Result<Vec<DirectoryEntry>> {
        self.watch.call(false, || self.inner.read_dir(path))
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.watch.call(false, || self.inner.exists(path))
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        self.watch.call(true, || self.inner.sync_dir(path))
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Lock>> {
        self.watch.call(true, || self.inner.lock(path))
    }

    fn pin(&self, path: &Path, version: u64) -> Result<Option<Box<dyn Pin>>> {
        self.watch.call(false, || self.inner.pin(path, version))
    }
}

impl File for WatchFile {
    fn path(&self) -> &Path {
        self.inner.path()
    }

    fn identity(&self) -> Result<FileIdentity> {
        self.watch.call(false, || self.inner.identity())
    }

    fn modified_micros(&self) -> Result<u64> {
        self.watch.call(false, || self.inner.modified_micros())
    }

    fn len(&self) -> Result<u64> {
        self.watch.call(false, || self.inner.len())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.watch.call(false, || self.inner.read_at(buffer, offset))
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        self.watch.call(false, || self.inner.read_exact_at(buffer, offset))
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.watch.call(true, || self.inner.write_all_at(bytes, offset))
    }

    fn write_direct(&self, bytes: &[u8], offset: u64) -> Result<bool> {
        self.watch.call(true, || self.inner.write_direct(bytes, offset))
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.watch.call(true, || self.inner.set_len(len))
    }

    fn preallocate(&self, len: u64) -> Result<()> {
        self.watch.call(true, || self.inner.preallocate(len))
    }

    fn sync(&self) -> Result<()> {
        self.watch.call(true, || self.inner.sync())
    }

    fn map(&self, len: u64) -> Result<Option<Box<dyn Mapping>>> {
        let mapping = self.watch.call(false, || self.inner.map(len))?;
        let watched = |inner| Box::new(WatchMapping { inner, watch: self.watch.clone() }) as _;
        Ok(mapping.map(watched))
    }
}

impl Mapping for WatchMapping {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn write_at(&mut self, bytes: &[u8], offset: u64) -> Result<()> {
        let inner = &mut self.inner;
        self.watch.call(true, || inner.write_at(bytes, offset))
    }
}
