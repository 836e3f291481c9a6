//! Files and directories of the operating system, through `std::fs` and `rustix`.
//!
//! INVARIANT: every file is opened with `O_CLOEXEC` and `O_NOFOLLOW`, and checked to be a regular
//! file. So neither a link nor a pipe planted in the store's directory is followed.

use std::any::Any;
use std::fs::{self, DirBuilder};
use std::io;
#[cfg(target_os = "linux")]
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

#[cfg(target_os = "linux")]
use rustix::fs::{Advice, fadvise};
use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, Stat, accessat, fstat, linkat, renameat, statat, unlinkat,
};
use rustix::io::Errno;
use umbel_base::{Error, Result};

use super::write_back;
use crate::aligned_buffer::DIRECT_ALIGNMENT;
use crate::file_system::{
    Access, DirectoryEntry, DirectoryLocation, File, FileIdentity, FileSystem, Lock, Mapping, Pin,
};
use crate::process::ProcessMark;
use crate::system::direct_io::{self, DirectMode};
use crate::system::lock_file::SystemLock;
use crate::system::mapped_file::{self, MappingCount};
use crate::system::open_directory::{self, Location, OpenDirectory};
use crate::system::open_file::open_file;
use crate::system::reader_pin;

/// The file system of the operating system.
#[derive(Debug)]
pub(super) struct SystemFiles {
    /// The directory that is held open, with whose path every path begins; `None` if the system
    /// resolves paths.
    held: Option<OpenDirectory>,
}

impl SystemFiles {
    /// Returns the whole file system, without a directory that is held open.
    pub(super) fn new() -> SystemFiles {
        SystemFiles { held: None }
    }
}

/// An open file.
#[derive(Debug)]
pub(super) struct SystemFile {
    path: PathBuf,
    file: fs::File,
    /// The largest length of the file that this handle knows; writes beyond it change the length.
    len_known: AtomicU64,
    /// Whether the length of the file changed since the last sync.
    len_changed: AtomicBool,
    /// Whether a preallocation could not reserve space, so that a store to a mapping could fail.
    unreserved: AtomicBool,
    /// Reason why the file was not mapped on request.
    unmapped_reason: OnceLock<String>,
    mappings: MappingCount,
    direct: DirectMode,
    /// Mark of the process that opened the file. A forked child shares the kernel's state of the
    /// open file: a sync in the child would consume an error that this process must see.
    process: ProcessMark,
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
            unmapped_reason: OnceLock::new(),
            mappings: MappingCount::default(),
            direct: DirectMode::default(),
            process: ProcessMark::current(),
        })
    }

    fn error(&self, operation: impl Into<String>, error: io::Error) -> Error {
        Error::io(operation, &self.path, error)
    }

    /// Returns an error in a child that was forked since the file was opened.
    fn check_process(&self) -> Result<()> {
        if self.process.is_current() { Ok(()) } else { Err(Error::Forked(self.path.clone())) }
    }

    /// Notes that the file has at least `end` bytes.
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

    fn identity(&self) -> Result<FileIdentity> {
        match open_directory::retry_on_interrupt(|| fstat(&self.file)) {
            Ok(stat) => Ok(open_directory::identity(&stat)),
            Err(error) => Err(self.error("read the metadata of", error)),
        }
    }

    fn has_other_names(&self) -> Result<bool> {
        match open_directory::retry_on_interrupt(|| fstat(&self.file)) {
            Ok(stat) => Ok(stat.st_nlink > 1),
            Err(error) => Err(self.error("read the metadata of", error)),
        }
    }

    fn modified_micros(&self) -> Result<u64> {
        match open_directory::retry_on_interrupt(|| fstat(&self.file)) {
            Ok(stat) => Ok(open_directory::modified_micros(&stat)),
            Err(error) => Err(self.error("read the metadata of", error)),
        }
    }

    fn len(&self) -> Result<u64> {
        match self.file.metadata() {
            Ok(metadata) => Ok(metadata.len()),
            Err(error) => Err(self.error("read the length of", error)),
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
        if !direct_io::is_aligned(bytes, offset) || !self.direct.enter(&self.file) {
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
                    // The cut part of a sector is written once more.
                    done -= if done < bytes.len() { done % DIRECT_ALIGNMENT } else { 0 };
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if direct_io::is_refusal(&error) => {
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

    /// On Linux a sync also writes back every page dirtied through a mapping of the file: `fsync`
    /// and `fdatasync` cover the page cache, which the mapping shares. On other platforms `map`
    /// returns `None`, so that there are no mappings.
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
            let _ = self.unmapped_reason.set("the file system cannot reserve space".into());
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
        match mapped_file::map(&self.file, &self.path, len, &self.mappings) {
            Ok(mapping) => Ok(Some(Box::new(mapping))),
            Err(reason) => {
                // The first reason is as good as a later one.
                let _ = self.unmapped_reason.set(reason);
                Ok(None)
            }
        }
    }

    fn unmapped_reason(&self) -> Option<String> {
        self.unmapped_reason.get().cloned()
    }
}

/// Reserves disk space for `len` bytes; returns `false` if the file system or platform cannot.
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

/// Exchanges the files of two names; returns `false` if the file system cannot.
#[cfg(any(target_os = "linux", target_os = "android", target_os = "macos"))]
fn exchange(one: &Location, other: &Location) -> io::Result<bool> {
    use rustix::fs::{RenameFlags, renameat_with};
    const CANNOT: [Errno; 5] =
        [Errno::NOSYS, Errno::INVAL, Errno::PERM, Errno::NOTSUP, Errno::OPNOTSUPP];
    let (from, to) = (one.directory(), other.directory());
    let exchanged = open_directory::retry_on_interrupt(|| {
        renameat_with(from, one.name(), to, other.name(), RenameFlags::EXCHANGE)
    });
    match exchanged {
        Ok(()) => Ok(true),
        Err(error) if open_directory::is_any(&error, &CANNOT) => Ok(false),
        Err(error) => Err(error),
    }
}

/// This platform cannot exchange the files of two names.
#[cfg(not(any(target_os = "linux", target_os = "android", target_os = "macos")))]
fn exchange(_one: &Location, _other: &Location) -> io::Result<bool> {
    Ok(false)
}

/// Returns the error for a refused open. For a link, the operating system reports only "too many
/// levels", which this error replaces.
fn link_error(location: &Location, error: io::Error) -> io::Error {
    match open_directory::is_any(&error, &[Errno::LOOP]) && location.is_link() {
        true => io::Error::other("it is a symbolic link, which is not followed"),
        false => error,
    }
}

impl SystemFiles {
    /// Returns the location of a path: below the directory that is held open, or anywhere if none
    /// is.
    fn locate(&self, path: &Path) -> Result<Location> {
        match &self.held {
            Some(held) => held.locate(path),
            None => Ok(Location::anywhere(path)),
        }
    }

    /// Returns the metadata of a path; `None` if the file or its directory is missing.
    fn stat(&self, path: &Path, operation: &str) -> Result<Option<Stat>> {
        let location = match self.locate(path) {
            Err(error) if error.is_missing_file() => return Ok(None),
            located => located?,
        };
        match location.stat() {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io(operation, path, error)),
        }
    }

    /// Returns the open directory at `path`.
    fn directory(&self, path: &Path) -> Result<io::Result<Arc<OwnedFd>>> {
        if let Some(held) = &self.held
            && let Some(directory) = held.opened(path)?
        {
            return Ok(Ok(directory));
        }
        Ok(self.locate(path)?.open_directory().map(Arc::new))
    }
}

impl FileSystem for SystemFiles {
    fn absolute(&self, path: &Path) -> Result<PathBuf> {
        if path.as_os_str().is_empty() {
            return Err(Error::invalid("the path is empty; name a directory"));
        }
        let failed = |error| Error::io("find the current directory for", path, error);
        let absolute = std::path::absolute(path).map_err(failed)?;
        if path.is_relative() {
            let current = std::env::current_dir().map_err(failed)?;
            let look = |at: &Path| {
                Location::anywhere(at).stat().map(|stat| open_directory::identity(&stat))
            };
            if look(&current).ok() != Some(look(Path::new(".")).map_err(failed)?) {
                return Err(Error::invalid(format!(
                    "the relative path {} cannot be used: the path {} of the current directory \
                     leads elsewhere now, as something is mounted over it; change into the \
                     directory again, or name an absolute path",
                    path.display(),
                    current.display()
                )));
            }
        }
        Ok(absolute)
    }

    fn open_directory(&self, path: &Path) -> Result<Arc<dyn FileSystem>> {
        let held = OpenDirectory::open(&self.locate(path)?, path)?;
        Ok(Arc::new(SystemFiles { held: Some(held) }))
    }

    fn reaches(&self, path: &Path) -> bool {
        self.held.as_ref().is_none_or(|held| held.rest(path).is_ok())
    }

    fn directory_location(&self) -> Result<DirectoryLocation> {
        self.held.as_ref().map_or(Ok(DirectoryLocation::Unchanged), OpenDirectory::place)
    }

    fn is_removed(&self) -> Result<bool> {
        self.held.as_ref().map_or(Ok(false), OpenDirectory::is_removed)
    }

    fn identity(&self, path: &Path) -> Result<Option<FileIdentity>> {
        let found = self.stat(path, "read the metadata of")?;
        Ok(found.map(|found| open_directory::identity(&found)))
    }

    fn create_dir_all(&self, path: &Path) -> Result<()> {
        if let Some(held) = &self.held {
            return held.create_all(path, Mode::RWXU);
        }
        let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
        made.map_err(|error| Error::io("create the directory", path, error))
    }

    fn create(&self, path: &Path) -> Result<Arc<dyn File>> {
        let flags = OFlags::CREATE | OFlags::EXCL;
        let file = open_file(&self.locate(path)?, Access::ReadWrite, flags);
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
        let location = self.locate(path)?;
        let file = open_file(&location, access, OFlags::empty());
        let file =
            file.map_err(|error| Error::io(operation, path, link_error(&location, error)))?;
        Ok(Arc::new(SystemFile::new(path, file, operation)?))
    }

    fn rename(&self, source: &Path, target: &Path) -> Result<()> {
        let operation = || format!("give the name {} to", target.display());
        let (from, to) = (self.locate(source)?, self.locate(target)?);
        let renamed = open_directory::retry_on_interrupt(|| {
            renameat(from.directory(), from.name(), to.directory(), to.name())
        });
        renamed.map_err(|error| Error::io(operation(), source, error))?;
        if let Some(held) = &self.held {
            held.forget(source);
            held.forget(target);
        }
        Ok(())
    }

    fn exchange(&self, one: &Path, other: &Path) -> Result<bool> {
        let (first, second) = (self.locate(one)?, self.locate(other)?);
        let operation = || format!("exchange the file of {} with that of", other.display());
        let done = exchange(&first, &second).map_err(|error| Error::io(operation(), one, error))?;
        if let (true, Some(held)) = (done, &self.held) {
            held.forget(one);
            held.forget(other);
        }
        Ok(done)
    }

    fn hard_link(&self, source: &Path, target_files: &dyn FileSystem, target: &Path) -> Result<()> {
        let operation = || format!("give the second name {} to", target.display());
        let Some(target_files) = target_files.innermost().downcast_ref::<SystemFiles>() else {
            let error = io::Error::other("internal: the target is on another kind of file system");
            return Err(Error::io(operation(), source, error));
        };
        let (from, to) = (self.locate(source)?, target_files.locate(target)?);
        let linked = open_directory::retry_on_interrupt(|| {
            linkat(from.directory(), from.name(), to.directory(), to.name(), AtFlags::empty())
        });
        linked.map_err(|error| Error::io(operation(), source, error))
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        let location = self.locate(path)?;
        let removed = open_directory::retry_on_interrupt(|| {
            unlinkat(location.directory(), location.name(), AtFlags::empty())
        });
        removed.map_err(|error| Error::io("remove", path, error))
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        let location = self.locate(path)?;
        let removed = open_directory::retry_on_interrupt(|| {
            unlinkat(location.directory(), location.name(), AtFlags::REMOVEDIR)
        });
        removed.map_err(|error| Error::io("remove the directory", path, error))?;
        if let Some(held) = &self.held {
            held.forget(path);
        }
        Ok(())
    }

    fn read_dir(&self, path: &Path) -> Result<Vec<DirectoryEntry>> {
        let failed = |error: io::Error| Error::io("list the directory", path, error);
        let directory = self.directory(path)?.map_err(failed)?;
        let mut entries = Vec::new();
        for entry in Dir::read_from(&*directory).map_err(|error| failed(error.into()))? {
            let entry = entry.map_err(|error| failed(error.into()))?;
            if matches!(entry.file_name().to_bytes(), b"." | b"..") {
                continue;
            }
            let name = entry.file_name();
            let stat = open_directory::retry_on_interrupt(|| {
                statat(&*directory, name, AtFlags::SYMLINK_NOFOLLOW)
            });
            let name = name.to_string_lossy().into_owned();
            let stat = match stat {
                Ok(stat) => stat,
                // It was removed between the listing and this call.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => {
                    return Err(Error::io("read the metadata of", &path.join(name), error));
                }
            };
            entries.push(open_directory::entry(name, &stat));
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        Ok(self.stat(path, "look for")?.is_some())
    }

    fn check_writable(&self, path: &Path) -> Result<()> {
        let failed = |error: io::Error| Error::io("write to the directory", path, error);
        let location = self.locate(path)?;
        let (directory, name) = (location.directory(), location.name());
        let stat = open_directory::retry_on_interrupt(|| statat(directory, name, AtFlags::empty()))
            .map_err(failed)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            return Err(failed(io::Error::from(Errno::NOTDIR)));
        }
        // Root is permitted everything, but not on a file system that is mounted read-only.
        let access = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
        let ask = |flags: AtFlags| accessat(directory, name, access, flags);
        open_directory::retry_on_interrupt(|| effective_access(ask)).map_err(failed)
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
        // Through the standard library, which on macOS requests more than `fsync` does.
        let synced = self
            .directory(path)?
            .and_then(|directory| fs::File::from(directory.try_clone()?).sync_all());
        synced.map_err(|error| Error::io("sync the directory", path, error))
    }

    fn innermost(&self) -> &dyn Any {
        self
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Lock>> {
        Ok(Box::new(SystemLock::take(&self.locate(path)?, path)?))
    }

    fn pin(&self, path: &Path, version: u64) -> Result<Option<Box<dyn Pin>>> {
        let taken = reader_pin::take(&self.locate(path)?, path, version)?;
        Ok(taken.map(|pin| Box::new(pin) as Box<dyn Pin>))
    }
}

/// Asks for the access of the effective user. Older container runtimes refuse the call that this
/// needs, with the error of an immutable directory. The answer for the real user then counts: it
/// has the same error for an immutable directory only.
fn effective_access(
    ask: impl Fn(AtFlags) -> std::result::Result<(), Errno>,
) -> std::result::Result<(), Errno> {
    match ask(AtFlags::EACCESS) {
        Err(Errno::PERM) => ask(AtFlags::empty()),
        answer => answer,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Story: each start of a server in an older container runtime warned that the backup directory
    /// cannot be used, although the backups succeeded.
    #[test]
    fn refused_call_for_the_effective_user_does_not_say_that_a_directory_cannot_be_written() {
        let answer = |effective, real| {
            effective_access(|flags| if flags.is_empty() { real } else { effective })
        };
        assert_eq!(answer(Err(Errno::PERM), Ok(())), Ok(()));
        assert_eq!(answer(Err(Errno::PERM), Err(Errno::PERM)), Err(Errno::PERM), "it is immutable");
        assert_eq!(answer(Err(Errno::PERM), Err(Errno::ROFS)), Err(Errno::ROFS));
        assert_eq!(answer(Err(Errno::ACCESS), Ok(())), Err(Errno::ACCESS));
        assert_eq!(answer(Ok(()), Err(Errno::ACCESS)), Ok(()));
    }
}
