//! Directories that are held open, and paths resolved from them.
//!
//! INVARIANT: below a directory that is held open, each call names one file in one open directory.
//! No call leaves the directory, even if links, renames or mounts change the path by which it was
//! opened.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use umbel_base::ignore_poison::IgnorePoison;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, fstat, mkdirat, openat, statat};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use umbel_base::{Error, Result};

use crate::file_system::{DirectoryEntry, DirectoryLocation, FileIdentity};

/// Flags with which every directory is opened.
const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Repeats `call` while a signal interrupts it.
pub(super) fn retry_on_interrupt<T>(
    mut call: impl FnMut() -> std::result::Result<T, Errno>,
) -> io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            done => return done.map_err(io::Error::from),
        }
    }
}

/// Returns the descriptor, duplicated if necessary to a number above those of standard input,
/// output and error. A program that has closed one of these streams would print into a file that
/// gets its number.
pub(super) fn above_standard_streams(descriptor: OwnedFd) -> io::Result<OwnedFd> {
    const FIRST: i32 = 3;
    match descriptor.as_raw_fd() < FIRST {
        true => retry_on_interrupt(|| fcntl_dupfd_cloexec(&descriptor, FIRST)),
        false => Ok(descriptor),
    }
}

/// Returns the identity of the file that a `stat` describes.
pub(super) fn identity(stat: &Stat) -> FileIdentity {
    // The types differ from platform to platform.
    #[expect(clippy::unnecessary_cast, reason = "the types of the fields depend on the platform")]
    FileIdentity { device: stat.st_dev as u64, inode: stat.st_ino as u64 }
}

/// Returns the time of the last change of a file's bytes, in microseconds since 1970; 0 for earlier
/// times.
pub(super) fn modified_micros(stat: &Stat) -> u64 {
    // The types differ from platform to platform.
    #[expect(clippy::unnecessary_cast, reason = "the types of the fields depend on the platform")]
    let (seconds, nanoseconds) = (stat.st_mtime as i64, stat.st_mtime_nsec as i64);
    let micros = seconds.saturating_mul(1_000_000).saturating_add(nanoseconds / 1000);
    u64::try_from(micros).unwrap_or(0)
}

/// Returns the entry of a directory that a `stat` describes.
pub(super) fn entry(name: String, stat: &Stat) -> DirectoryEntry {
    let kind = FileType::from_raw_mode(stat.st_mode);
    let is_directory = kind == FileType::Directory;
    DirectoryEntry {
        name,
        len: if is_directory { 0 } else { u64::try_from(stat.st_size).unwrap_or(0) },
        is_directory,
        is_file: kind == FileType::RegularFile,
        identity: identity(stat),
        modified_micros: modified_micros(stat),
    }
}

/// Whether a name in a directory is that of a symbolic link.
fn is_link(directory: BorrowedFd<'_>, name: &Path) -> bool {
    let found = retry_on_interrupt(|| statat(directory, name, AtFlags::SYMLINK_NOFOLLOW));
    found.is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Symlink)
}

/// Whether an error is one of `of`.
pub(super) fn is_any(error: &io::Error, of: &[Errno]) -> bool {
    of.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// Opens a directory by its name in another directory.
fn open(directory: BorrowedFd<'_>, name: &Path, more: OFlags) -> io::Result<OwnedFd> {
    retry_on_interrupt(|| openat(directory, name, DIRECTORY | more, Mode::empty())).map_err(
        |error| match more.contains(OFlags::NOFOLLOW) && is_link(directory, name) {
            true => io::Error::other(
                "it is a symbolic link, and links in a store's directory are not followed; mount \
                 the other directory there instead",
            ),
            false => error,
        },
    )
}

/// A name, and the open directory in which it is looked up; the current directory if none is held
/// open.
#[derive(Debug)]
pub(super) struct Location {
    directory: Option<Arc<OwnedFd>>,
    name: PathBuf,
}

impl Location {
    /// Returns the location of a path that the system resolves, from the root or the current
    /// directory.
    pub(super) fn anywhere(path: &Path) -> Location {
        // The parent of a bare relative name is the empty path, which means the current directory.
        let name = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        Location { directory: None, name: name.to_path_buf() }
    }

    /// Returns the directory in which the name is looked up.
    pub(super) fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_ref().map_or(CWD, |directory| directory.as_fd())
    }

    /// Returns the name to look up.
    pub(super) fn name(&self) -> &Path {
        &self.name
    }

    /// Opens the directory at this location. Links are not followed in a directory that is held
    /// open.
    pub(super) fn open_directory(&self) -> io::Result<OwnedFd> {
        let links = if self.directory.is_some() { OFlags::NOFOLLOW } else { OFlags::empty() };
        open(self.directory(), &self.name, links)
    }

    /// Whether the name is that of a symbolic link.
    pub(super) fn is_link(&self) -> bool {
        is_link(self.directory(), &self.name)
    }

    /// Returns the metadata of the file at this location, without following a link.
    pub(super) fn stat(&self) -> io::Result<Stat> {
        retry_on_interrupt(|| statat(self.directory(), &self.name, AtFlags::SYMLINK_NOFOLLOW))
    }
}

/// A directory that is held open.
#[derive(Debug)]
pub(super) struct OpenDirectory {
    path: PathBuf,
    directory: Arc<OwnedFd>,
    /// Whether the file system counts names of files. Some file systems in user space report 0 for
    /// every file.
    has_links: bool,
    /// Open subdirectories that a call has named, by their path relative to this directory.
    subdirectories: Mutex<BTreeMap<PathBuf, Arc<OwnedFd>>>,
}

impl OpenDirectory {
    /// Opens the directory at a location and holds it open. `path` is the start of all paths below
    /// it.
    pub(super) fn open(location: &Location, path: &Path) -> Result<OpenDirectory> {
        let failed = |error| Error::io("open the directory", path, error);
        if !path.is_absolute() {
            return Err(failed(io::Error::other("internal: its path is not absolute")));
        }
        let directory = location.open_directory().map_err(failed)?;
        let stat = retry_on_interrupt(|| fstat(&directory)).map_err(failed)?;
        Ok(OpenDirectory {
            path: path.to_path_buf(),
            directory: Arc::new(directory),
            has_links: stat.st_nlink > 0,
            subdirectories: Mutex::default(),
        })
    }

    fn subdirectories(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Arc<OwnedFd>>> {
        // The map is whole between any two statements, so a panic elsewhere does not spoil it.
        self.subdirectories.lock().ignore_poison()
    }

    /// Returns the part of `path` after the path of this directory.
    pub(super) fn rest<'a>(&self, path: &'a Path) -> Result<&'a Path> {
        let rest = path.strip_prefix(&self.path).ok();
        let is_plain =
            |rest: &&Path| rest.components().all(|part| matches!(part, Component::Normal(_)));
        rest.filter(is_plain).ok_or_else(|| {
            Error::invalid(format!(
                "internal: {} is not in the directory {}, which this handle holds open",
                path.display(),
                self.path.display()
            ))
        })
    }

    /// Returns the location of a path below this directory.
    pub(super) fn locate(&self, path: &Path) -> Result<Location> {
        let rest = self.rest(path)?;
        let directory = match rest.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => self
                .subdirectory(parent)
                .map_err(|error| Error::io("open the directory of", path, error))?,
            _ => Arc::clone(&self.directory),
        };
        let name = rest.file_name().map_or(Path::new("."), Path::new).to_path_buf();
        Ok(Location { directory: Some(directory), name })
    }

    fn subdirectory(&self, rest: &Path) -> io::Result<Arc<OwnedFd>> {
        if let Some(known) = self.subdirectories().get(rest) {
            return Ok(Arc::clone(known));
        }
        let mut directory = Arc::clone(&self.directory);
        for part in rest.components() {
            directory = Arc::new(open(directory.as_fd(), part.as_ref(), OFlags::NOFOLLOW)?);
        }
        // Of two threads that opened it the first one's counts for all.
        Ok(Arc::clone(self.subdirectories().entry(rest.to_path_buf()).or_insert(directory)))
    }

    /// Creates the directories of `path` that are missing below this directory.
    pub(super) fn create_all(&self, path: &Path, mode: Mode) -> Result<()> {
        let failed = |error| Error::io("create the directory", path, error);
        let mut made = self.path.clone();
        for part in self.rest(path)?.components() {
            made.push(part);
            let location = self.locate(&made)?;
            let done = retry_on_interrupt(|| mkdirat(location.directory(), &location.name, mode));
            match done {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(failed(error));
                }
                // An existing name is opened, so that a file of this name is an error.
                _ => drop(location.open_directory().map_err(failed)?),
            }
        }
        Ok(())
    }

    /// Closes a subdirectory that was removed or renamed, and the subdirectories in it.
    pub(super) fn forget(&self, path: &Path) {
        if let Ok(rest) = self.rest(path) {
            self.subdirectories().retain(|held, _| !held.starts_with(rest));
        }
    }

    /// Returns the open directory at `path` if it is this directory or an open subdirectory.
    pub(super) fn opened(&self, path: &Path) -> Result<Option<Arc<OwnedFd>>> {
        let rest = self.rest(path)?;
        Ok(match rest.as_os_str().is_empty() {
            true => Some(Arc::clone(&self.directory)),
            false => self.subdirectories().get(rest).map(Arc::clone),
        })
    }

    fn stat(&self) -> Result<Stat> {
        retry_on_interrupt(|| fstat(&*self.directory))
            .map_err(|error| Error::io("read the metadata of the directory", &self.path, error))
    }

    /// Whether the directory has no name any more.
    pub(super) fn is_removed(&self) -> Result<bool> {
        Ok(self.has_links && self.stat()?.st_nlink == 0)
    }

    /// Returns the current location of the directory. Follows its path from the root, so slow file
    /// systems on the path make it slow.
    pub(super) fn place(&self) -> Result<DirectoryLocation> {
        let stat = self.stat()?;
        if self.has_links && stat.st_nlink == 0 {
            return Ok(DirectoryLocation::Removed);
        }
        let found = retry_on_interrupt(|| statat(CWD, &self.path, AtFlags::empty()));
        match found {
            Ok(found) if identity(&found) == identity(&stat) => Ok(DirectoryLocation::Unchanged),
            Ok(_) => Ok(DirectoryLocation::Moved { path: path_of(&self.directory) }),
            Err(error) if is_any(&error, &[Errno::NOENT, Errno::NOTDIR, Errno::LOOP]) => {
                Ok(DirectoryLocation::Moved { path: path_of(&self.directory) })
            }
            Err(error) => Err(Error::io("read the metadata of the directory", &self.path, error)),
        }
    }
}

/// Returns the path that the system reports for an open directory now.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn path_of(directory: &OwnedFd) -> Option<PathBuf> {
    fs::read_link(format!("/proc/self/fd/{}", directory.as_raw_fd())).ok()
}

/// This platform does not report the path of an open directory.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn path_of(_directory: &OwnedFd) -> Option<PathBuf> {
    None
}

/// Opens the parent directory of a location again, with a descriptor that shares no state with
/// others.
pub(super) fn open_parent(location: &Location) -> io::Result<fs::File> {
    let parent = match location.directory {
        Some(_) => Path::new("."),
        None => match location.name.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        },
    };
    open(location.directory(), parent, OFlags::empty()).map(fs::File::from)
}
