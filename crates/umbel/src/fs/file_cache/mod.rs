//! File descriptors: limits the number of open table files, and closes files when descriptors are
//! exhausted.
//!
//! A table's file is closed when other files need its descriptor, and opened again by its path at
//! its next read. Opening by path is safe: a table's file is removed only with its last reference,
//! and ids are never reused.
//!
//! A program other than Umbel could put another file at the table's path. So each reopening
//! compares the file's length and last bytes, which hold the checksum of the table's footer. The
//! last bytes prove more than the inode number: file systems reuse the number of a removed file,
//! and a copy-up of overlayfs changes it.
//!
//! INVARIANT: a thread holds at most one of the locks of the file cache and its files at a time.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use umbel_base::ignore_poison::IgnorePoison;

use umbel_base::{Error, Result};
use umbel_env::{Access, File, FileIdentity, FileSystem, Mapping, ProcessMark};

/// Number of bytes at the end of a file that are compared when the file is opened again.
const TAIL_BYTES: usize = 32;

/// Minimum of the limit on open table files.
pub const OPEN_TABLES_MIN: u64 = 4;

/// Returns the limit on open table files, if the process can open `limit` files. Some descriptors
/// are set aside for the WAL, the manifest and the program; tables get half of the others.
pub fn open_tables_max(limit: Option<u64>) -> u64 {
    limit.map_or(u64::MAX, |limit| (limit.saturating_sub(32) / 2).max(OPEN_TABLES_MIN))
}

/// Explains why a file is missing that a writer in another process can remove.
pub trait MissingFileExplainer: Send + Sync + Debug {
    /// Returns the error to report instead of `error`, which says that the file at `path` is
    /// missing.
    fn explain(&self, path: &Path, error: Error) -> Error;
}

/// The open files of a store's tables.
#[derive(Debug)]
pub struct FileCache {
    /// Mark of the process that opened the store.
    process: ProcessMark,
    files: Arc<dyn FileSystem>,
    capacity: u64,
    open: AtomicU64,
    reopened: AtomicU64,
    exhaustions: AtomicU64,
    /// Open files, and some closed files, in the order in which they were opened.
    entries: Mutex<VecDeque<Weak<CachedFile>>>,
    /// Whether the store is closed, after which a path can belong to another store.
    is_shut_down: AtomicBool,
    /// Explainer of missing files; unset if only this handle removes files.
    missing_file_explainer: OnceLock<Arc<dyn MissingFileExplainer>>,
}

impl FileCache {
    /// Creates a cache of at most `open_max` open files.
    pub fn new(files: Arc<dyn FileSystem>, open_max: u64) -> Arc<FileCache> {
        Arc::new(FileCache {
            process: ProcessMark::current(),
            files,
            capacity: open_max.max(OPEN_TABLES_MIN),
            open: AtomicU64::new(0),
            reopened: AtomicU64::new(0),
            exhaustions: AtomicU64::new(0),
            entries: Mutex::default(),
            is_shut_down: AtomicBool::new(false),
            missing_file_explainer: OnceLock::new(),
        })
    }

    /// Returns the limit on open files, the number of open files, of reopened files, and of calls
    /// that found no free descriptor.
    pub fn summary(&self) -> [u64; 4] {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        [self.capacity, read(&self.open), read(&self.reopened), read(&self.exhaustions)]
    }

    /// Returns an error in a forked child, where the cache's locks may be held forever.
    pub fn check_process(&self, path: &Path) -> Result<()> {
        if self.process.is_current() { Ok(()) } else { Err(Error::Forked(path.to_path_buf())) }
    }

    /// Makes the cache refuse to open files from now on.
    pub fn shut_down(&self) {
        self.is_shut_down.store(true, Ordering::Release);
    }

    /// Opens the file at `path` for reading; between two reads the cache can close and reopen the
    /// file.
    pub fn open(self: &Arc<Self>, path: &Path) -> Result<Arc<CachedFile>> {
        self.check_process(path)?;
        let file = self.open_with_retry(path)?;
        let len = file.len()?;
        let tail = tail(&*file, len)?;
        self.open.fetch_add(1, Ordering::Relaxed);
        let pooled = Arc::new(CachedFile {
            path: path.to_path_buf(),
            len,
            tail,
            cache: Arc::clone(self),
            touched: AtomicBool::new(false),
            file: Mutex::new(Some(file)),
            pinned_bytes: PinnedBytes::default(),
        });
        self.insert(&pooled);
        Ok(pooled)
    }

    /// Opens the file at `path` for a short read, outside the cache.
    pub fn open_uncached(&self, path: &Path) -> Result<Arc<dyn File>> {
        if self.is_shut_down.load(Ordering::Acquire) {
            return Err(Error::Closed);
        }
        self.open_named(path)
    }

    fn open_with_retry(&self, path: &Path) -> Result<Arc<dyn File>> {
        if self.is_shut_down.load(Ordering::Acquire) {
            return Err(Error::Closed);
        }
        while self.open.load(Ordering::Relaxed) >= self.capacity && self.close_one() {}
        self.open_named(path)
    }

    fn open_named(&self, path: &Path) -> Result<Arc<dyn File>> {
        let opened = self.retry_without_descriptors(|| self.files.open(path, Access::Read));
        opened.map_err(|error| match self.missing_file_explainer.get() {
            Some(missing) if error.is_missing_file() => missing.explain(path, error),
            _ => error,
        })
    }

    /// Sets the explainer of missing files, for a store whose files other processes can remove.
    pub fn set_missing_file_explainer(&self, missing: Arc<dyn MissingFileExplainer>) {
        // Nothing else sets it.
        let _ = self.missing_file_explainer.set(missing);
    }

    fn lock_entries(&self) -> MutexGuard<'_, VecDeque<Weak<CachedFile>>> {
        self.entries.lock().ignore_poison()
    }

    /// Adds an open file, which is counted already, to the queue.
    fn insert(&self, file: &Arc<CachedFile>) {
        let mut entries = self.lock_entries();
        // Closed files leave dead entries in the queue.
        if entries.len() as u64 > 2 * self.open.load(Ordering::Relaxed) + 64 {
            entries.retain(|entry| entry.strong_count() > 0);
        }
        entries.push_back(Arc::downgrade(file));
    }

    /// Closes the first file in the queue that was not read since the last visit of this function.
    /// Returns `false` if no file is open.
    fn close_one(&self) -> bool {
        // Each file is visited once to clear its mark and once to be closed.
        let mut steps = 2 * self.lock_entries().len();
        while steps > 0 {
            steps -= 1;
            let Some(entry) = self.lock_entries().pop_front() else { return false };
            let Some(file) = entry.upgrade() else { continue };
            if steps > 0 && file.touched.swap(false, Ordering::Relaxed) {
                self.lock_entries().push_back(entry);
                continue;
            }
            if file.close() {
                return true;
            }
        }
        false
    }

    /// Runs `call`. If `call` fails for lack of a descriptor, closes half of the cached files and
    /// retries, until no file is left to close.
    pub fn retry_without_descriptors<T>(&self, mut call: impl FnMut() -> Result<T>) -> Result<T> {
        loop {
            match call() {
                Err(error) if error.is_out_of_descriptors() => {
                    self.exhaustions.fetch_add(1, Ordering::Relaxed);
                    let half = self.open.load(Ordering::Relaxed).div_ceil(2).max(1);
                    if (0..half).filter(|_| self.close_one()).count() == 0 {
                        return Err(error);
                    }
                }
                done => return done,
            }
        }
    }
}

/// Bytes that an open table keeps in memory, and the sum that includes them until the table's file
/// is dropped.
#[derive(Debug, Default)]
struct PinnedBytes(Mutex<Option<(u64, Arc<AtomicU64>)>>);

impl Drop for PinnedBytes {
    fn drop(&mut self) {
        let counted = self.0.get_mut().ignore_poison().take();
        if let Some((bytes, sum)) = counted {
            sum.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

/// A table's file, open or closed. It is dropped together with the table's reader.
#[derive(Debug)]
pub struct CachedFile {
    path: PathBuf,
    len: u64,
    /// Last bytes of the file; zeros if the file is shorter.
    tail: [u8; TAIL_BYTES],
    cache: Arc<FileCache>,
    /// Whether the file was read since the last visit by `close_one`.
    touched: AtomicBool,
    file: Mutex<Option<Arc<dyn File>>>,
    pinned_bytes: PinnedBytes,
}

impl CachedFile {
    /// Adds the `bytes` that the table's reader keeps in memory to `sum`, until the file is
    /// dropped.
    pub fn count_pinned(&self, bytes: u64, sum: &Arc<AtomicU64>) {
        sum.fetch_add(bytes, Ordering::Relaxed);
        let mut counted = self.pinned_bytes.0.lock().ignore_poison();
        *counted = Some((bytes, Arc::clone(sum)));
    }

    fn slot(&self) -> MutexGuard<'_, Option<Arc<dyn File>>> {
        self.file.lock().ignore_poison()
    }

    /// Closes the file; the descriptor is released when current readers are done. Returns `false`
    /// if the file was not open.
    fn close(&self) -> bool {
        let closed = self.slot().take().is_some();
        if closed {
            self.cache.open.fetch_sub(1, Ordering::Relaxed);
        }
        closed
    }
}

/// Returns the last bytes of a file of length `len`.
fn tail(file: &dyn File, len: u64) -> Result<[u8; TAIL_BYTES]> {
    let mut bytes = [0; TAIL_BYTES];
    file.read_at(&mut bytes, len.saturating_sub(TAIL_BYTES as u64))?;
    Ok(bytes)
}

/// Returns an error if `file`, opened by the path of `pooled`, is not the file that was opened
/// first.
fn check_same(pooled: &CachedFile, file: &dyn File) -> Result<()> {
    let len = file.len()?;
    if len == pooled.len && tail(file, len)? == pooled.tail {
        return Ok(());
    }
    let reason = "another file has its name, or its bytes have changed";
    Err(Error::Replaced { path: pooled.path.clone(), reason: reason.into() })
}

/// Returns the open file, after opening it again if it was closed.
fn opened(pooled: &CachedFile) -> Result<Arc<dyn File>> {
    if !pooled.touched.load(Ordering::Relaxed) {
        pooled.touched.store(true, Ordering::Relaxed);
    }
    if let Some(file) = &*pooled.slot() {
        return Ok(Arc::clone(file));
    }
    let file = pooled.cache.open_with_retry(&pooled.path)?;
    check_same(pooled, &*file)?;
    pooled.cache.reopened.fetch_add(1, Ordering::Relaxed);
    Ok(file)
}

/// A reader's handle of a cached file.
#[derive(Debug)]
pub struct CachedFileHandle(pub Arc<CachedFile>);

impl File for CachedFileHandle {
    fn path(&self) -> &Path {
        &self.0.path
    }

    fn identity(&self) -> Result<FileIdentity> {
        opened(&self.0)?.identity()
    }

    fn modified_micros(&self) -> Result<u64> {
        opened(&self.0)?.modified_micros()
    }

    fn len(&self) -> Result<u64> {
        Ok(self.0.len)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.0.cache.check_process(&self.0.path)?;
        let file = opened(&self.0)?;
        let read = file.read_at(buffer, offset);
        let mut slot = self.0.slot();
        if slot.is_none() {
            // Counted before any thread can close it.
            self.0.cache.open.fetch_add(1, Ordering::Relaxed);
            *slot = Some(file);
            drop(slot);
            self.0.cache.insert(&self.0);
        }
        read
    }

    fn write_all_at(&self, _bytes: &[u8], _offset: u64) -> Result<()> {
        Err(read_only(&self.0.path))
    }

    fn set_len(&self, _len: u64) -> Result<()> {
        Err(read_only(&self.0.path))
    }

    fn preallocate(&self, _len: u64) -> Result<()> {
        Err(read_only(&self.0.path))
    }

    fn sync(&self) -> Result<()> {
        Err(read_only(&self.0.path))
    }

    fn map(&self, _len: u64) -> Result<Option<Box<dyn Mapping>>> {
        Err(read_only(&self.0.path))
    }
}

fn read_only(path: &Path) -> Error {
    Error::invalid(format!("internal: {} is open for reading only", path.display()))
}

impl Drop for CachedFile {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests;
