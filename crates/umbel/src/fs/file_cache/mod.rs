//! File descriptors: how many the tables of a store may have open, and what happens when there are
//! none left.
//!
//! A table's file is closed when others need its descriptor and opened again by its path when it
//! is next read. That is safe because nobody reads a file that was removed: a table's file goes
//! with the last reference of it, and ids are never given twice. A program other than Umbel may put
//! another file there, so the length and the last bytes, which hold the checksum of a table's
//! footer, are compared each time. They tell more than the identity: a file system gives the number
//! of a removed file to the next one, and a copy-up of overlayfs changes it.
//!
//! INVARIANT: of the pool and the files in it only one lock is held at a time.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use umbel_base::{Error, Result};
use umbel_env::{Access, File, FileIdentity, FileSystem, Mapping, ProcessMark};

/// Bytes at the end of a file that are compared when it is opened again.
const TAIL_BYTES: usize = 32;

/// The fewest files of tables that stay open.
pub const OPEN_TABLES_MIN: u64 = 4;

/// How many files of tables may be open where the process may open `limit` files: half of what is
/// left when logs, manifest and the program around the store have had theirs.
pub fn open_tables_max(limit: Option<u64>) -> u64 {
    limit.map_or(u64::MAX, |limit| (limit.saturating_sub(32) / 2).max(OPEN_TABLES_MIN))
}

/// Explains that a file is missing where the writer of another process may have removed it.
pub trait MissingFile: Send + Sync + Debug {
    /// The error to report in place of `error`.
    fn explain(&self, path: &Path, error: Error) -> Error;
}

/// The open files of a store's tables.
#[derive(Debug)]
pub struct Descriptors {
    /// The process that opened the store.
    process: ProcessMark,
    files: Arc<dyn FileSystem>,
    most: u64,
    open: AtomicU64,
    reopened: AtomicU64,
    shortages: AtomicU64,
    /// Those that are open, and some that are not any more, in the order in which they were opened.
    seats: Mutex<VecDeque<Weak<PooledFile>>>,
    /// Set once the store was closed: what lies at a path may be another's since.
    ended: AtomicBool,
    /// What explains that a file is missing; nothing where this handle alone removes files.
    missing: OnceLock<Arc<dyn MissingFile>>,
}

impl Descriptors {
    /// A pool of at most `most` open files.
    pub fn new(files: Arc<dyn FileSystem>, most: u64) -> Arc<Descriptors> {
        Arc::new(Descriptors {
            process: ProcessMark::current(),
            files,
            most: most.max(OPEN_TABLES_MIN),
            open: AtomicU64::new(0),
            reopened: AtomicU64::new(0),
            shortages: AtomicU64::new(0),
            seats: Mutex::default(),
            ended: AtomicBool::new(false),
            missing: OnceLock::new(),
        })
    }

    /// How many files may be open, how many are, how often one was opened again, and how often a
    /// call found no descriptor left.
    pub fn summary(&self) -> [u64; 4] {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        [self.most, read(&self.open), read(&self.reopened), read(&self.shortages)]
    }

    /// An error in a forked child, where what guards the pool may be locked for ever.
    pub fn check_process(&self, path: &Path) -> Result<()> {
        if self.process.is_current() { Ok(()) } else { Err(Error::Forked(path.to_path_buf())) }
    }

    /// Opens no file again from now on.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }

    /// Opens the file at `path` for reading, as a file that may be closed between two reads.
    pub fn open(self: &Arc<Self>, path: &Path) -> Result<Arc<PooledFile>> {
        self.check_process(path)?;
        let file = self.open_now(path)?;
        let len = file.len()?;
        let tail = tail(&*file, len)?;
        self.open.fetch_add(1, Ordering::Relaxed);
        let pooled = Arc::new(PooledFile {
            path: path.to_path_buf(),
            len,
            tail,
            pool: Arc::clone(self),
            touched: AtomicBool::new(false),
            file: Mutex::new(Some(file)),
            pinned_bytes: PinnedBytes::default(),
        });
        self.seat(&pooled);
        Ok(pooled)
    }

    /// Opens the file at `path` for reading, to be closed soon: it has no seat in the pool.
    pub fn open_for_once(&self, path: &Path) -> Result<Arc<dyn File>> {
        if self.ended.load(Ordering::Acquire) {
            return Err(Error::Closed);
        }
        self.open_named(path)
    }

    fn open_now(&self, path: &Path) -> Result<Arc<dyn File>> {
        if self.ended.load(Ordering::Acquire) {
            return Err(Error::Closed);
        }
        while self.open.load(Ordering::Relaxed) >= self.most && self.close_one() {}
        self.open_named(path)
    }

    fn open_named(&self, path: &Path) -> Result<Arc<dyn File>> {
        let opened = self.with_room(|| self.files.open(path, Access::Read));
        opened.map_err(|error| match self.missing.get() {
            Some(missing) if error.is_missing_file() => missing.explain(path, error),
            _ => error,
        })
    }

    /// Says what explains a missing file, where others may remove files.
    pub fn explain_missing_by(&self, missing: Arc<dyn MissingFile>) {
        // Nothing else sets it.
        let _ = self.missing.set(missing);
    }

    fn seats(&self) -> MutexGuard<'_, VecDeque<Weak<PooledFile>>> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a file that was opened, and counted, into the row.
    fn seat(&self, file: &Arc<PooledFile>) {
        let mut seats = self.seats();
        // Files that went leave their seats behind.
        if seats.len() as u64 > 2 * self.open.load(Ordering::Relaxed) + 64 {
            seats.retain(|seat| seat.strong_count() > 0);
        }
        seats.push_back(Arc::downgrade(file));
    }

    /// Closes the first file in the row that was not read since it was last passed. `false` where
    /// none is open.
    fn close_one(&self) -> bool {
        // Each is passed once to clear its mark and once to be closed.
        let mut steps = 2 * self.seats().len();
        while steps > 0 {
            steps -= 1;
            let Some(seat) = self.seats().pop_front() else { return false };
            let Some(file) = seat.upgrade() else { continue };
            if steps > 0 && file.touched.swap(false, Ordering::Relaxed) {
                self.seats().push_back(seat);
                continue;
            }
            if file.close() {
                return true;
            }
        }
        false
    }

    /// Runs `call`; where it fails for want of a descriptor, closes half of the pool's files and
    /// tries again, until there is none left to close.
    pub fn with_room<T>(&self, mut call: impl FnMut() -> Result<T>) -> Result<T> {
        loop {
            match call() {
                Err(error) if error.is_short_of_descriptors() => {
                    self.shortages.fetch_add(1, Ordering::Relaxed);
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

/// Bytes that an open table keeps in memory, counted in a sum while the table's file lives.
#[derive(Debug, Default)]
struct PinnedBytes(Mutex<Option<(u64, Arc<AtomicU64>)>>);

impl Drop for PinnedBytes {
    fn drop(&mut self) {
        let counted = self.0.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((bytes, sum)) = counted {
            sum.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

/// A table's file, open or not. It goes with the table's reader.
#[derive(Debug)]
pub struct PooledFile {
    path: PathBuf,
    len: u64,
    /// Its last bytes; zeros where it is shorter.
    tail: [u8; TAIL_BYTES],
    pool: Arc<Descriptors>,
    /// Whether it was read since the pool last passed it.
    touched: AtomicBool,
    file: Mutex<Option<Arc<dyn File>>>,
    pinned_bytes: PinnedBytes,
}

impl PooledFile {
    /// Counts `bytes` that the table's reader keeps in memory in `sum`, until the file goes.
    pub fn count_pinned(&self, bytes: u64, sum: &Arc<AtomicU64>) {
        sum.fetch_add(bytes, Ordering::Relaxed);
        let mut counted = self.pinned_bytes.0.lock().unwrap_or_else(PoisonError::into_inner);
        *counted = Some((bytes, Arc::clone(sum)));
    }

    fn slot(&self) -> MutexGuard<'_, Option<Arc<dyn File>>> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the descriptor back once those who read have done. `false` where it was not open.
    fn close(&self) -> bool {
        let closed = self.slot().take().is_some();
        if closed {
            self.pool.open.fetch_sub(1, Ordering::Relaxed);
        }
        closed
    }
}

/// The last bytes of a file of this length.
fn tail(file: &dyn File, len: u64) -> Result<[u8; TAIL_BYTES]> {
    let mut bytes = [0; TAIL_BYTES];
    file.read_at(&mut bytes, len.saturating_sub(TAIL_BYTES as u64))?;
    Ok(bytes)
}

/// An error where the file that has the name now is not the one that was opened first.
fn check_same(pooled: &PooledFile, file: &dyn File) -> Result<()> {
    let len = file.len()?;
    if len == pooled.len && tail(file, len)? == pooled.tail {
        return Ok(());
    }
    let reason = "another file has its name, or its bytes have changed";
    Err(Error::Replaced { path: pooled.path.clone(), reason: reason.into() })
}

/// Opens the file again where it was closed.
fn opened(pooled: &PooledFile) -> Result<Arc<dyn File>> {
    if !pooled.touched.load(Ordering::Relaxed) {
        pooled.touched.store(true, Ordering::Relaxed);
    }
    if let Some(file) = &*pooled.slot() {
        return Ok(Arc::clone(file));
    }
    let file = pooled.pool.open_now(&pooled.path)?;
    check_same(pooled, &*file)?;
    pooled.pool.reopened.fetch_add(1, Ordering::Relaxed);
    Ok(file)
}

/// A reader's handle of a file in the pool.
#[derive(Debug)]
pub struct PooledHandle(pub Arc<PooledFile>);

impl File for PooledHandle {
    fn path(&self) -> &Path {
        &self.0.path
    }

    fn identity(&self) -> Result<FileIdentity> {
        opened(&self.0)?.identity()
    }

    fn len(&self) -> Result<u64> {
        Ok(self.0.len)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.0.pool.check_process(&self.0.path)?;
        let file = opened(&self.0)?;
        let read = file.read_at(buffer, offset);
        let mut slot = self.0.slot();
        if slot.is_none() {
            // Counted before anybody can close it.
            self.0.pool.open.fetch_add(1, Ordering::Relaxed);
            *slot = Some(file);
            drop(slot);
            self.0.pool.seat(&self.0);
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

impl Drop for PooledFile {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
#[path = "descriptors_tests.rs"]
mod tests;
