//! Files and directories of the operating system, by `std::fs` and `rustix`.
//!
//! INVARIANT: every file is opened with `O_CLOEXEC` (by `std`), `O_NOFOLLOW`, and checked to be a
//! regular file, so that neither a link nor a pipe planted in the store's folder is followed.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
#[cfg(target_os = "linux")]
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use rustix::fs::OFlags;
#[cfg(target_os = "linux")]
use rustix::fs::{Advice, fadvise};
use rustix::io::Errno;
use umbel_base::{Error, Result};

use super::direct::{self, Direct};
use super::lock::SystemLock;
use super::mapping::{self, MappingCount};
use super::write_back;
use crate::aligned::DIRECT_ALIGNMENT;
use crate::file::{Access, DirectoryEntry, File, FileSystem, Lock, Mapping};
use crate::process::ProcessMark;

/// The file system of the operating system.
#[derive(Debug)]
pub(super) struct SystemFiles;

/// An open file.
#[derive(Debug)]
pub(super) struct SystemFile {
    path: PathBuf,
    file: fs::File,
    /// The largest length this handle knows of; writes beyond it change the length.
    len_known: AtomicU64,
    /// Whether the length changed since the last sync.
    len_changed: AtomicBool,
    /// Whether a preallocation could not reserve space, so that a mapped store might not find any.
    unreserved: AtomicBool,
    /// Why the file was not mapped, where somebody wanted it to be.
    unmapped: OnceLock<String>,
    mappings: MappingCount,
    direct: Direct,
    /// The process that opened it. A forked child shares what the kernel keeps of the open file:
    /// a sync there would take an error that this process has to see.
    process: ProcessMark,
}

/// Options that every open of ours shares. `O_NONBLOCK` keeps the open of a pipe from waiting for
/// its other end and means nothing to a regular file.
pub(super) fn careful_options(access: Access) -> OpenOptions {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mut options = OpenOptions::new();
    options.read(true).write(access == Access::ReadWrite).mode(0o600);
    options.custom_flags(flags.bits().cast_signed());
    options
}

impl SystemFile {
    fn new(path: &Path, file: fs::File, operation: &str) -> Result<SystemFile> {
        let metadata = file.metadata().map_err(|error| Error::io(operation, path, error))?;
        if !metadata.is_file() {
            let error = io::Error::other("it is not a regular file");
            return Err(Error::io(operation, path, error));
        }
        Ok(SystemFile {
            path: path.to_path_buf(),
            file,
            len_known: AtomicU64::new(metadata.len()),
            len_changed: AtomicBool::new(metadata.len() > 0),
            unreserved: AtomicBool::new(false),
            unmapped: OnceLock::new(),
            mappings: MappingCount::default(),
            direct: Direct::default(),
            process: ProcessMark::current(),
        })
    }

    fn error(&self, operation: impl Into<String>, error: io::Error) -> Error {
        Error::io(operation, &self.path, error)
    }

    /// An error in a child that was forked since the file was opened.
    fn check_process(&self) -> Result<()> {
        if self.process.is_current() { Ok(()) } else { Err(Error::Forked(self.path.clone())) }
    }

    /// Notes that the file reaches at least to `end`.
    fn note_end(&self, end: u64) {
        if self.len_known.load(Ordering::Relaxed) < end
            && self.len_known.fetch_max(end, Ordering::Relaxed) < end
        {
            self.len_changed.store(true, Ordering::Release);
        }
    }
}

impl File for SystemFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn len(&self) -> Result<u64> {
        match self.file.metadata() {
            Ok(metadata) => Ok(metadata.len()),
            Err(error) => Err(self.error("ask the length of", error)),
        }
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.check_process()?;
        self.direct.leave(&self.file);
        let mut done = 0;
        while done < buffer.len() {
            match self.file.read_at(&mut buffer[done..], offset.saturating_add(done as u64)) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let bytes = buffer.len();
                    return Err(self.error(format!("read {bytes} bytes at {offset} of"), error));
                }
            }
        }
        Ok(done)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.check_process()?;
        self.direct.leave(&self.file);
        let mut done = 0;
        while done < bytes.len() {
            let error = match self.file.write_at(&bytes[done..], offset.saturating_add(done as u64))
            {
                Ok(0) => io::Error::from(io::ErrorKind::WriteZero),
                Ok(written) => {
                    done += written;
                    self.note_end(offset.saturating_add(done as u64));
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => error,
            };
            return Err(self.error(format!("write {} bytes at {offset} of", bytes.len()), error));
        }
        Ok(())
    }

    fn write_direct(&self, bytes: &[u8], offset: u64) -> Result<bool> {
        self.check_process()?;
        if !direct::is_aligned(bytes, offset) || !self.direct.enter(&self.file) {
            return Ok(false);
        }
        let mut done = 0;
        while done < bytes.len() {
            let error = match self.file.write_at(&bytes[done..], offset.saturating_add(done as u64))
            {
                Ok(0) => io::Error::from(io::ErrorKind::WriteZero),
                Ok(written) => {
                    done += written;
                    self.note_end(offset.saturating_add(done as u64));
                    // What was cut off within a sector is written once more.
                    done -= if done < bytes.len() { done % DIRECT_ALIGNMENT } else { 0 };
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if direct::is_refusal(&error) => {
                    self.direct.refuse(&self.file);
                    return Ok(false);
                }
                Err(error) => error,
            };
            return Err(self.error(format!("write {} bytes at {offset} of", bytes.len()), error));
        }
        Ok(true)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.check_process()?;
        self.mappings.check_cut(&self.path, len)?;
        self.file
            .set_len(len)
            .map_err(|error| self.error(format!("set the length to {len} bytes of"), error))?;
        self.len_known.store(len, Ordering::Relaxed);
        self.len_changed.store(true, Ordering::Release);
        Ok(())
    }

    fn preallocate(&self, len: u64) -> Result<()> {
        self.check_process()?;
        if len == 0 {
            return Ok(());
        }
        let operation = || format!("reserve {len} bytes for");
        let reserved = reserve(&self.file, len).map_err(|error| self.error(operation(), error))?;
        if !reserved {
            self.unreserved.store(true, Ordering::Release);
            if self.len()? < len {
                self.file.set_len(len).map_err(|error| self.error(operation(), error))?;
            }
        }
        self.note_end(len);
        Ok(())
    }

    /// On Linux this also writes back every page dirtied through a mapping of the file: `fsync`
    /// and `fdatasync` cover the page cache, which the mapping shares. Other platforms owe nothing,
    /// since `map` returns `None` there.
    fn sync(&self) -> Result<()> {
        self.check_process()?;
        let len_changed = self.len_changed.swap(false, Ordering::AcqRel);
        let synced = if len_changed { self.file.sync_all() } else { self.file.sync_data() };
        synced.map_err(|error| {
            self.len_changed.store(true, Ordering::Release);
            self.error("sync", error)
        })
    }

    fn write_back(&self, range: Range<u64>) {
        if self.process.is_current() {
            write_back::begin(&self.file, range);
        }
    }

    fn read_ahead(&self, range: Range<u64>) {
        #[cfg(target_os = "linux")]
        if let Some(len) = NonZeroU64::new(range.end.saturating_sub(range.start)) {
            // Advice: whether it is taken shows in nothing but time.
            let _ = fadvise(&self.file, range.start, Some(len), Advice::WillNeed);
        }
        #[cfg(not(target_os = "linux"))]
        let _ = range;
    }

    fn map(&self, len: u64) -> Result<Option<Box<dyn Mapping>>> {
        self.check_process()?;
        if self.unreserved.load(Ordering::Acquire) {
            let _ = self.unmapped.set("the file system cannot reserve space".into());
            return Ok(None);
        }
        let held = self.len()?;
        if held < len {
            let message = format!(
                "{} is {held} bytes long, {len} of them cannot be mapped; preallocate first",
                self.path.display()
            );
            return Err(Error::invalid(message));
        }
        match mapping::map(&self.file, &self.path, len, &self.mappings) {
            Ok(mapping) => Ok(Some(Box::new(mapping))),
            Err(reason) => {
                // The first reason is as good as a later one.
                let _ = self.unmapped.set(reason);
                Ok(None)
            }
        }
    }

    fn why_unmapped(&self) -> Option<String> {
        self.unmapped.get().cloned()
    }
}

/// Reserves `len` bytes; `false` where the file system or platform cannot.
#[cfg(any(target_os = "linux", target_os = "android", target_os = "macos", target_os = "freebsd"))]
fn reserve(file: &fs::File, len: u64) -> io::Result<bool> {
    use rustix::fs::{FallocateFlags, fallocate};
    use rustix::io::Errno;
    loop {
        return match fallocate(file, FallocateFlags::empty(), 0, len) {
            Ok(()) => Ok(true),
            Err(Errno::INTR) => continue,
            Err(error) if error == Errno::NOTSUP || error == Errno::OPNOTSUPP => Ok(false),
            Err(Errno::NOSYS) => Ok(false),
            Err(error) => Err(error.into()),
        };
    }
}

/// This platform cannot reserve space.
#[cfg(not(any(
    target_os = "linux",
    target_os = "android",
    target_os = "macos",
    target_os = "freebsd"
)))]
fn reserve(_file: &fs::File, _len: u64) -> io::Result<bool> {
    Ok(false)
}

/// Why a file was not opened: of a link the operating system says only that there are too many.
fn or_link(path: &Path, error: io::Error) -> io::Error {
    let is_link = || fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink());
    match error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) && is_link() {
        true => io::Error::other("it is a symbolic link, and none is followed"),
        false => error,
    }
}

impl FileSystem for SystemFiles {
    fn create_dir_all(&self, path: &Path) -> Result<()> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
        made.map_err(|error| Error::io("create the directory", path, error))
    }

    fn create(&self, path: &Path) -> Result<Arc<dyn File>> {
        let mut options = careful_options(Access::ReadWrite);
        let file = options.create_new(true).open(path);
        let file = file.map_err(|error| Error::io("create", path, error))?;
        let file = SystemFile::new(path, file, "create")?;
        file.len_changed.store(true, Ordering::Release);
        Ok(Arc::new(file))
    }

    fn open(&self, path: &Path, access: Access) -> Result<Arc<dyn File>> {
        let operation = match access {
            Access::Read => "open for reading",
            Access::ReadWrite => "open for writing",
        };
        let file = careful_options(access).open(path);
        let file = file.map_err(|error| Error::io(operation, path, or_link(path, error)))?;
        Ok(Arc::new(SystemFile::new(path, file, operation)?))
    }

    fn rename(&self, source: &Path, target: &Path) -> Result<()> {
        let operation = || format!("give the name {} to", target.display());
        fs::rename(source, target).map_err(|error| Error::io(operation(), source, error))
    }

    fn hard_link(&self, source: &Path, target: &Path) -> Result<()> {
        let operation = || format!("give the second name {} to", target.display());
        fs::hard_link(source, target).map_err(|error| Error::io(operation(), source, error))
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        fs::remove_file(path).map_err(|error| Error::io("remove", path, error))
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        fs::remove_dir(path).map_err(|error| Error::io("remove the directory", path, error))
    }

    fn read_dir(&self, path: &Path) -> Result<Vec<DirectoryEntry>> {
        let failed = |error| Error::io("list the directory", path, error);
        let mut entries = Vec::new();
        for entry in fs::read_dir(path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let metadata = match entry.metadata() {
                Ok(metadata) => metadata,
                // Somebody removed it between the listing and the question.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(Error::io("look at", &entry.path(), error)),
            };
            let is_directory = metadata.is_dir();
            entries.push(DirectoryEntry {
                name: entry.file_name().to_string_lossy().into_owned(),
                len: if is_directory { 0 } else { metadata.len() },
                is_directory,
            });
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        match fs::symlink_metadata(path) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(Error::io("look for", path, error)),
        }
    }

    fn resolved(&self, path: &Path) -> PathBuf {
        let found = path.ancestors().find_map(|above| {
            let above_or_here = if above.as_os_str().is_empty() { Path::new(".") } else { above };
            let real = fs::canonicalize(above_or_here).ok()?;
            // Nothing joined to a path would end it with a slash.
            let rest = path.strip_prefix(above).ok()?;
            Some(if rest.as_os_str().is_empty() { real } else { real.join(rest) })
        });
        found.unwrap_or_else(|| path.to_path_buf())
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        // The parent of a bare relative name is the empty path, which means the current directory.
        let named = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let synced = fs::File::open(named).and_then(|directory| directory.sync_all());
        synced.map_err(|error| Error::io("sync the directory", path, error))
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Lock>> {
        Ok(Box::new(SystemLock::take(path)?))
    }
}
