//! An environment in memory: files without a disk, a stopped clock, constant entropy, and no
//! threads.

use std::any::Any;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use umbel_base::{Error, Result};
use umbel_env::{
    Access, Clock, DirectoryEntry, DirectoryLocation, Entropy, Env, File, FileIdentity, FileSystem,
    JoinHandle, Lock, Mapping, Pin, Resources, Threads,
};

/// The bytes of every file by path.
pub type Image = BTreeMap<PathBuf, Vec<u8>>;

type Bytes = Arc<Mutex<Vec<u8>>>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Files in memory. A folder exists if it was created or a file in it exists.
#[derive(Debug, Default, Clone)]
pub struct MemoryFiles {
    files: Arc<Mutex<BTreeMap<PathBuf, Bytes>>>,
    folders: Arc<Mutex<Vec<PathBuf>>>,
}

/// Identity of a file: the address of its bytes in memory.
fn identity(bytes: &Bytes) -> FileIdentity {
    FileIdentity { device: 0, inode: Arc::as_ptr(bytes).addr() as u64 }
}

impl MemoryFiles {
    /// Creates files with these bytes.
    pub fn new(image: &Image) -> Arc<MemoryFiles> {
        let bytes = |bytes: &Vec<u8>| Arc::new(Mutex::new(bytes.clone()));
        let files = image.iter().map(|(path, content)| (path.clone(), bytes(content))).collect();
        Arc::new(MemoryFiles { files: Arc::new(Mutex::new(files)), folders: Arc::default() })
    }

    /// Current content of every file.
    pub fn image(&self) -> Image {
        lock(&self.files).iter().map(|(path, bytes)| (path.clone(), lock(bytes).clone())).collect()
    }

    /// Returns an environment with these files.
    pub fn env(self: &Arc<Self>) -> Env {
        Env {
            files: Arc::clone(self) as Arc<dyn FileSystem>,
            clock: Arc::new(Still),
            entropy: Arc::new(Still),
            threads: Arc::new(Still),
            resources: Arc::new(Still),
        }
    }

    fn missing(operation: &str, path: &Path) -> Error {
        Error::io(operation, path, io::Error::from(io::ErrorKind::NotFound))
    }

    fn taken(operation: &str, path: &Path) -> Error {
        Error::io(operation, path, io::Error::from(io::ErrorKind::AlreadyExists))
    }
}

/// One file in memory, and a mapping of it.
#[derive(Debug, Clone)]
pub struct MemoryFile {
    path: PathBuf,
    bytes: Bytes,
}

impl MemoryFile {
    /// Creates a file with these bytes that is in no folder.
    pub fn alone(path: &str, bytes: Vec<u8>) -> Arc<MemoryFile> {
        Arc::new(MemoryFile { path: PathBuf::from(path), bytes: Arc::new(Mutex::new(bytes)) })
    }

    /// Current content of the file.
    pub fn bytes(&self) -> Vec<u8> {
        lock(&self.bytes).clone()
    }

    fn store(&self, bytes: &[u8], offset: u64) {
        let mut content = lock(&self.bytes);
        let start = offset as usize;
        if content.len() < start + bytes.len() {
            content.resize(start + bytes.len(), 0);
        }
        content[start..start + bytes.len()].copy_from_slice(bytes);
    }
}

impl File for MemoryFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn identity(&self) -> Result<FileIdentity> {
        Ok(identity(&self.bytes))
    }

    fn modified_micros(&self) -> Result<u64> {
        Ok(0)
    }

    fn len(&self) -> Result<u64> {
        Ok(lock(&self.bytes).len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let content = lock(&self.bytes);
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(content.len());
        let length = buffer.len().min(content.len() - start);
        buffer[..length].copy_from_slice(&content[start..start + length]);
        Ok(length)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.store(bytes, offset);
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<()> {
        lock(&self.bytes).resize(len as usize, 0);
        Ok(())
    }

    fn preallocate(&self, len: u64) -> Result<()> {
        let mut content = lock(&self.bytes);
        let len = content.len().max(len as usize);
        content.resize(len, 0);
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn map(&self, _len: u64) -> Result<Option<Box<dyn Mapping>>> {
        Ok(None)
    }
}

impl FileSystem for MemoryFiles {
    fn absolute(&self, path: &Path) -> Result<PathBuf> {
        Ok(Path::new("/").join(path))
    }

    fn open_directory(&self, _path: &Path) -> Result<Arc<dyn FileSystem>> {
        Ok(Arc::new(self.clone()))
    }

    fn directory_location(&self) -> Result<DirectoryLocation> {
        Ok(DirectoryLocation::Unchanged)
    }

    fn identity(&self, path: &Path) -> Result<Option<FileIdentity>> {
        Ok(lock(&self.files).get(path).map(identity))
    }

    fn innermost(&self) -> &dyn Any {
        self
    }

    fn pin(&self, _path: &Path, _version: u64) -> Result<Option<Box<dyn Pin>>> {
        Ok(None)
    }

    fn create_dir_all(&self, path: &Path) -> Result<()> {
        lock(&self.folders).push(path.to_path_buf());
        Ok(())
    }

    fn create(&self, path: &Path) -> Result<Arc<dyn File>> {
        let mut files = lock(&self.files);
        if files.contains_key(path) {
            return Err(MemoryFiles::taken("create", path));
        }
        let bytes = Bytes::default();
        files.insert(path.to_path_buf(), Arc::clone(&bytes));
        Ok(Arc::new(MemoryFile { path: path.to_path_buf(), bytes }))
    }

    fn open(&self, path: &Path, _access: Access) -> Result<Arc<dyn File>> {
        let bytes = lock(&self.files).get(path).map(Arc::clone);
        let bytes = bytes.ok_or_else(|| MemoryFiles::missing("open", path))?;
        Ok(Arc::new(MemoryFile { path: path.to_path_buf(), bytes }))
    }

    fn rename(&self, source: &Path, target: &Path) -> Result<()> {
        let mut files = lock(&self.files);
        let bytes = files.remove(source).ok_or_else(|| MemoryFiles::missing("rename", source))?;
        files.insert(target.to_path_buf(), bytes);
        Ok(())
    }

    fn hard_link(&self, source: &Path, _files: &dyn FileSystem, target: &Path) -> Result<()> {
        let mut files = lock(&self.files);
        let bytes = files.get(source).map(Arc::clone);
        let bytes = bytes.ok_or_else(|| MemoryFiles::missing("link", source))?;
        if files.contains_key(target) {
            return Err(MemoryFiles::taken("link", target));
        }
        files.insert(target.to_path_buf(), bytes);
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        let removed = lock(&self.files).remove(path);
        removed.map(drop).ok_or_else(|| MemoryFiles::missing("remove", path))
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        lock(&self.folders).retain(|folder| folder != path);
        Ok(())
    }

    fn read_dir(&self, path: &Path) -> Result<Vec<DirectoryEntry>> {
        let files = lock(&self.files);
        let inside = files.iter().filter(|(file, _)| file.parent() == Some(path));
        let entry = |(file, bytes): (&PathBuf, &Bytes)| DirectoryEntry {
            name: file.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            len: lock(bytes).len() as u64,
            is_directory: false,
            is_file: true,
            modified_micros: 0,
            identity: identity(bytes),
        };
        Ok(inside.map(entry).collect())
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        let known = lock(&self.folders).iter().any(|folder| folder.starts_with(path));
        Ok(known || lock(&self.files).keys().any(|file| file.starts_with(path)))
    }

    fn sync_dir(&self, _path: &Path) -> Result<()> {
        Ok(())
    }

    fn lock(&self, _path: &Path) -> Result<Box<dyn Lock>> {
        Ok(Box::new(Still))
    }
}

/// A constant clock, constant entropy, and a lock without contention.
#[derive(Debug)]
struct Still;

impl Resources for Still {
    fn memory_bytes(&self) -> Option<u64> {
        None
    }

    fn open_files_max(&self) -> Option<u64> {
        None
    }
}

impl Clock for Still {
    fn now(&self) -> Duration {
        Duration::ZERO
    }

    fn wall_micros(&self) -> u64 {
        0
    }
}

impl Entropy for Still {
    fn fill(&self, buffer: &mut [u8]) -> Result<()> {
        buffer.fill(0x5a);
        Ok(())
    }
}

impl Threads for Still {
    fn spawn(&self, name: &str, _work: Box<dyn FnOnce() + Send>) -> Result<Box<dyn JoinHandle>> {
        Err(Error::invalid(format!("there are no threads here, so none for {name}")))
    }

    fn parallelism(&self) -> usize {
        1
    }
}

impl Lock for Still {}
