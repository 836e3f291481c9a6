//! Files and directories as traits.

use std::any::Any;
use std::fmt::Debug;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use umbel_base::{Error, Result};

/// Access to an existing file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Reading only.
    Read,
    /// Reading and writing.
    ReadWrite,
}

/// A name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// The name, without the directory; bytes that are not UTF-8 are replaced.
    pub name: String,
    /// Length of the file in bytes; 0 for a directory.
    pub len: u64,
    /// Whether the name is that of a directory.
    pub is_directory: bool,
    /// Whether the name is that of a regular file, and not of a directory, a symbolic link, a pipe
    /// or a device.
    pub is_file: bool,
    /// Identity of the file or directory.
    pub identity: FileIdentity,
    /// Time of the last change of the bytes, as [`File::modified_micros`] returns it.
    pub modified_micros: u64,
}

/// Identity of a file or directory, independent of its names: device and inode number. Two equal
/// identities mean the same file only if the file is open in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileIdentity {
    /// The device of the file.
    pub device: u64,
    /// The number of the file on its device.
    pub inode: u64,
}

/// Location of a directory that is held open, compared with the path by which it was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DirectoryLocation {
    /// The path still leads to the directory.
    Unchanged,
    /// The path does not lead to the directory any more: it was renamed, a link points elsewhere
    /// now, or another file system is mounted over it.
    Moved {
        /// Current path of the directory, if the system reports it.
        path: Option<PathBuf>,
    },
    /// The directory has no name any more.
    Removed,
}

/// An open file. Every read and write has an offset as argument; the file has no current position.
pub trait File: Send + Sync + Debug {
    /// The path by which the file was opened, for error messages.
    fn path(&self) -> &Path;
    /// Identity of the file, independent of its current name.
    fn identity(&self) -> Result<FileIdentity>;
    /// Whether the file has other names, too, because a hard-linked copy of its directory has it.
    /// Such a file can be in use in the copy, so callers neither truncate nor reuse it.
    fn has_other_names(&self) -> Result<bool> {
        Ok(false)
    }
    /// Time of the last change of the bytes, in microseconds since 1970. The clock is that of the
    /// file system: a file system on the network has the clock of its server.
    fn modified_micros(&self) -> Result<u64>;
    /// Length of the file in bytes.
    fn len(&self) -> Result<u64>;
    /// Whether the file is empty.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Fills `buffer` with the bytes from `offset` on, and returns their number, which is smaller
    /// only at the end of the file. Interrupted and short system calls are retried.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize>;
    /// Fills `buffer` with the bytes from `offset` on. Returns [`Error::Corruption`] if the file
    /// ends earlier.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        let read = self.read_at(buffer, offset)?;
        if read == buffer.len() {
            return Ok(());
        }
        let end = offset + read as u64;
        let reason =
            format!("the file ends here, {} more bytes were expected", buffer.len() - read);
        Err(Error::corruption(self.path(), end, reason))
    }
    /// Writes all of `bytes` at `offset`, growing the file if needed.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> Result<()>;
    /// Writes all of `bytes` at `offset` directly from the caller's memory, past the page cache,
    /// growing the file if needed. Returns `false` if this file system or platform does not allow
    /// direct writes. The caller then uses `write_all_at`, which is correct after any direct write.
    /// Only `sync` makes the bytes durable, as for other writes: the device has a cache of its own,
    /// and metadata of new blocks is possibly not on the device yet.
    /// REQUIRES: address, length and offset are multiples of [`crate::DIRECT_ALIGNMENT`]; no other
    /// thread uses this handle at the same time.
    fn write_direct(&self, bytes: &[u8], offset: u64) -> Result<bool> {
        let _ = (bytes, offset);
        Ok(false)
    }
    /// Truncates the file to `len` bytes, or extends it with zeros.
    fn set_len(&self, len: u64) -> Result<()>;
    /// Reserves disk space so that writes below offset `len` cannot fail for lack of space. Makes
    /// the file at least `len` bytes long; new bytes read as zeros.
    fn preallocate(&self, len: u64) -> Result<()>;
    /// Makes the bytes and the length of the file durable, but **not** its name: see
    /// [`FileSystem::sync_dir`]. The sync also covers bytes written through a [`Mapping`] of this
    /// file. A failure is final: the bytes can be lost although a later sync succeeds.
    fn sync(&self) -> Result<()>;
    /// Starts the write-back of these bytes to the device, including stores through a [`Mapping`],
    /// so that [`File::sync`] waits less. Promises nothing: only `sync` makes bytes durable and
    /// reports failures. Does nothing if the platform has no such call. Callers use it for bytes
    /// that will not change any more.
    fn write_back(&self, range: Range<u64>) {
        let _ = range;
    }
    /// Starts a read of these bytes from the device, so that a later [`File::read_at`] waits less.
    /// Promises nothing and reports no error, since the later read reports it. Does nothing if the
    /// platform has no such call.
    fn read_ahead(&self, range: Range<u64>) {
        let _ = range;
    }
    /// Maps the first `len` bytes for writing. Pages are made writable step by step before the
    /// stores, so that no store can fault. Returns `None` if this file system or platform cannot
    /// map safely. The caller then uses `write_all_at`, and does not overwrite existing bytes,
    /// since that can need new space.
    /// REQUIRES: `preallocate(len)` succeeded, through any handle, and no process truncates the
    /// file while it is mapped.
    fn map(&self, len: u64) -> Result<Option<Box<dyn Mapping>>>;
    /// Reason why [`File::map`] returned `None`, as the second half of a sentence; `None` if
    /// unknown.
    fn unmapped_reason(&self) -> Option<String> {
        None
    }
}

/// A file's bytes mapped into memory for writing. Stores to a mapping survive the death of the
/// process at once, and power loss after [`File::sync`].
pub trait Mapping: Send + Sync + Debug {
    /// Number of bytes that are mapped.
    fn len(&self) -> u64;
    /// Whether nothing is mapped.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Stores `bytes` at `offset`. Returns an error if they exceed the mapping.
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> Result<()>;
    /// Returns the prefaulter for another thread; `None` if no page needs prefaulting.
    fn prefaulter(&self) -> Option<Arc<dyn Prefaulter>> {
        None
    }
}

/// Populates pages of a [`Mapping`] before stores to them, so that the storing thread need not. A
/// prefaulter keeps the file mapped.
pub trait Prefaulter: Send + Sync + Debug {
    /// Makes the pages below `end`, or below the mapping's length, present and writable. A
    /// prefaulted page counts as dirty and is written by the next sync, so callers prefault only
    /// pages that are stored to soon.
    fn prefault(&self, end: u64) -> Result<()>;
    /// Evicts the whole pages of this range from the mapping; the file keeps their bytes. The
    /// write-back of a mapped page interrupts every processor that runs the process, which the
    /// eviction avoids. A later store to an evicted page is correct, but faults.
    fn release(&self, range: Range<u64>) {
        let _ = range;
    }
}

/// A lock that this process holds. Dropping the value releases the lock, as does the death of the
/// process.
pub trait Lock: Send + Sync + Debug {
    /// Whether a reader pins version `through` or an earlier one: see [`FileSystem::pin`]. The
    /// check never waits, and never keeps a reader from pinning.
    fn is_pinned(&self, through: u64) -> Result<bool> {
        let _ = through;
        Ok(false)
    }
}

/// A reader's pin of a version. Dropping the value releases the pin, as does the death of the
/// process.
pub trait Pin: Send + Sync + Debug {}

/// A file system. Creating, renaming, linking or removing a file is durable only after
/// [`FileSystem::sync_dir`] of the directory of its name.
///
/// A file system that [`FileSystem::open_directory`] returned **holds** one directory open. All
/// paths of such a file system begin with the path of that directory at its open. These paths are
/// resolved from the open directory, never from the root or the current directory. So the file
/// system keeps its directory even if that is renamed, its path leads elsewhere, or the process
/// changes its current directory.
pub trait FileSystem: Send + Sync + Debug {
    /// Returns the absolute path for `path`, with links unresolved; a relative path is joined to
    /// the current directory. Returns an error if the path is empty or there is no current
    /// directory.
    fn absolute(&self, path: &Path) -> Result<PathBuf>;
    /// Opens a directory, and returns a file system that holds it open. A subdirectory is opened
    /// when a call first names it, and is held open from then on, too.
    /// REQUIRES: `path` is absolute.
    fn open_directory(&self, path: &Path) -> Result<Arc<dyn FileSystem>>;
    /// Whether a path is in the directory that is held open; always `true` if none is.
    fn reaches(&self, path: &Path) -> bool {
        let _ = path;
        true
    }
    /// Current location of the directory that is held open; [`DirectoryLocation::Unchanged`] if
    /// none is.
    fn directory_location(&self) -> Result<DirectoryLocation>;
    /// Whether the directory that is held open has no name any more. The check resolves no path, so
    /// a mount over the directory cannot make the caller wait.
    fn is_removed(&self) -> Result<bool> {
        Ok(self.directory_location()? == DirectoryLocation::Removed)
    }
    /// Returns an error if the directory that is held open, by the path `directory`, was removed:
    /// data in it is lost when the handle closes. If the check itself fails, no error is returned.
    fn check_directory(&self, directory: &Path) -> Result<()> {
        match self.is_removed() {
            Ok(true) => Err(Error::Replaced {
                path: directory.to_path_buf(),
                reason: "the directory was removed".into(),
            }),
            Ok(false) | Err(_) => Ok(()),
        }
    }
    /// Returns an error if the file with this name is not the one that the directory's writer
    /// created or listed: data in the writer's file would be lost. Nothing is checked unless the
    /// file system knows the writer's files: see
    /// [`OwnershipCheckedFiles`](crate::OwnershipCheckedFiles).
    fn check_named(&self, path: &Path) -> Result<()> {
        let _ = path;
        Ok(())
    }
    /// Identity of the file or directory with this name; `None` if there is none. Follows no links.
    fn identity(&self, path: &Path) -> Result<Option<FileIdentity>>;
    /// Creates a directory (mode 0700) and its missing parents; succeeds if the directory exists.
    fn create_dir_all(&self, path: &Path) -> Result<()>;
    /// Creates a file (mode 0600) for reading and writing. Returns an error if the name exists.
    fn create(&self, path: &Path) -> Result<Arc<dyn File>>;
    /// Opens a file that exists. Symbolic links are not followed.
    fn open(&self, path: &Path, access: Access) -> Result<Arc<dyn File>>;
    /// Gives a file another name in one step, replacing a file that has that name.
    fn rename(&self, source: &Path, target: &Path) -> Result<()>;
    /// Exchanges the files of two names in one step. Returns `false`, with nothing done, if the
    /// file system or the platform cannot.
    fn exchange(&self, one: &Path, other: &Path) -> Result<bool> {
        let _ = (one, other);
        Ok(false)
    }
    /// Gives a file a second name, in a directory of `target_files`, which is this file system or
    /// another one of the same kind. Returns an error if the name exists.
    fn hard_link(&self, source: &Path, target_files: &dyn FileSystem, target: &Path) -> Result<()>;
    /// Removes the name of a file.
    fn remove_file(&self, path: &Path) -> Result<()>;
    /// Removes an empty directory. Returns an error if it has entries or the path is not a
    /// directory.
    fn remove_dir(&self, path: &Path) -> Result<()>;
    /// Returns the entries of a directory, sorted by name.
    fn read_dir(&self, path: &Path) -> Result<Vec<DirectoryEntry>>;
    /// Whether a file or directory has this name.
    fn exists(&self, path: &Path) -> Result<bool>;
    /// Returns an error unless the path leads to a directory in which this process may create
    /// files. Follows links, needs no permission to list the directory, and creates nothing. A file
    /// system that cannot tell returns no error.
    fn check_writable(&self, path: &Path) -> Result<()> {
        let _ = path;
        Ok(())
    }
    /// Returns the absolute path with all links resolved, as far as it exists; `path` itself if
    /// that is unknown or the file system has no links.
    fn resolved(&self, path: &Path) -> PathBuf {
        path.to_path_buf()
    }
    /// Makes the names in a directory durable.
    fn sync_dir(&self, path: &Path) -> Result<()>;
    /// Returns the innermost file system, for [`FileSystem::hard_link`] between two file systems. A
    /// wrapper returns the innermost file system that it wraps.
    fn innermost(&self) -> &dyn Any;
    /// Takes the exclusive lock of the file at `path`, which is created if it is missing. Returns
    /// [`Error::Locked`] with the parent directory's path if another process, or another handle of
    /// this process, holds the lock.
    fn lock(&self, path: &Path) -> Result<Box<dyn Lock>>;
    /// Pins a version in the lock file at `path`, so that the holder of the lock keeps the files of
    /// that version and of later ones. The call does not wait, changes no file, and blocks neither
    /// a writer nor another reader. Returns `None` if a pin is impossible: the lock file is missing
    /// or unreadable, or the platform has no such locks.
    /// REQUIRES: `version` is below 2^62.
    fn pin(&self, path: &Path, version: u64) -> Result<Option<Box<dyn Pin>>>;
}
