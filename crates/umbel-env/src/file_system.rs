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
    /// The file's length in bytes; 0 for a directory.
    pub len: u64,
    /// Whether it is a directory.
    pub is_directory: bool,
    /// Identity of the file or directory.
    pub identity: FileIdentity,
}

/// Identity of a file or directory of a running system, independent of its names: device and inode.
/// Equal identities mean the same file as long as one of the two is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileIdentity {
    /// The device that holds it.
    pub device: u64,
    /// Its number on that device.
    pub inode: u64,
}

/// Location of a held directory, compared with the path it was opened by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DirectoryLocation {
    /// The path still leads to it.
    Unchanged,
    /// The path leads to something else or to nothing: the directory was renamed, a link points
    /// elsewhere now, or something is mounted over it.
    Moved {
        /// Current path, where the system reports it.
        path: Option<PathBuf>,
    },
    /// The directory has no name any more.
    Removed,
}

/// An open file. Reads and writes name their offset; there is no position.
pub trait File: Send + Sync + Debug {
    /// The path it was opened by, for error messages.
    fn path(&self) -> &Path;
    /// Identity of the file, independent of its current name.
    fn identity(&self) -> Result<FileIdentity>;
    /// Whether other names stand for it, too: a hard-linked copy of its directory holds it. It may
    /// be in use there, and is neither cut nor used for something else.
    fn has_other_names(&self) -> Result<bool> {
        Ok(false)
    }
    /// Its length in bytes.
    fn len(&self) -> Result<u64>;
    /// Whether it is empty.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Fills `buffer` from `offset`; fewer bytes only where the file ends. Interrupted and short
    /// system calls are retried inside.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize>;
    /// Fills `buffer` from `offset`. A file that ends earlier is [`Error::Corruption`].
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
    /// Writes all of `bytes` at `offset`, growing the file where needed.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> Result<()>;
    /// Writes all of `bytes` at `offset` directly from the caller's memory, past the page cache,
    /// growing the file where needed. `false` where this file system or platform does not allow
    /// it. Then use `write_all_at`, which is correct after any direct write. Only `sync` makes
    /// the bytes durable, as for other writes: the device has a cache of its own, and the new
    /// extent may not be on it yet.
    /// REQUIRES: address, length and offset are multiples of [`crate::DIRECT_ALIGNMENT`]; no thread
    /// else uses this handle at the same time.
    fn write_direct(&self, bytes: &[u8], offset: u64) -> Result<bool> {
        let _ = (bytes, offset);
        Ok(false)
    }
    /// Cuts the file or grows it with zeros.
    fn set_len(&self, len: u64) -> Result<()>;
    /// Reserves space so that writes below `len` cannot fail for lack of it, and makes the file at
    /// least `len` long; new bytes read as zeros.
    fn preallocate(&self, len: u64) -> Result<()>;
    /// Makes the bytes and the length durable, but **not** the name: see [`FileSystem::sync_dir`].
    /// Also covers bytes written through a [`Mapping`] of this file. A failure is final: the bytes
    /// may be lost although a later sync succeeds.
    fn sync(&self) -> Result<()>;
    /// Starts the write-back of these bytes to the device, including stores through a
    /// [`Mapping`], so that [`File::sync`] waits less. Promises nothing: only `sync` makes bytes
    /// durable and reports failures. Does nothing where the platform
    /// has no such call. Useful for bytes that will not change any more.
    fn write_back(&self, range: Range<u64>) {
        let _ = range;
    }
    /// Starts a read of these bytes from the device, so that a later [`File::read_at`] waits
    /// less. Promises nothing and reports no error: the later read reports it. Does nothing where
    /// the platform has no such call.
    fn read_ahead(&self, range: Range<u64>) {
        let _ = range;
    }
    /// Maps the first `len` bytes for writing. Pages are made writable step by step, ahead of the
    /// stores, so that no store can fault.
    /// REQUIRES: `preallocate(len)` succeeded, through any handle, and no process truncates the
    /// file while it is mapped.
    /// `None` where this file system or platform cannot map safely. Then use `write_all_at`, and do
    /// not overwrite existing bytes, since that may need new space.
    fn map(&self, len: u64) -> Result<Option<Box<dyn Mapping>>>;
    /// Reason why [`File::map`] returned `None`, as the end of a sentence; `None` if unknown.
    fn unmapped_reason(&self) -> Option<String> {
        None
    }
}

/// A file's bytes mapped into memory for writing. Stores survive the death of the process at once
/// and power loss after [`File::sync`].
pub trait Mapping: Send + Sync + Debug {
    /// Number of bytes that are mapped.
    fn len(&self) -> u64;
    /// Whether nothing is mapped.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Stores `bytes` at `offset`. An error where they do not fit.
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> Result<()>;
    /// Prefaulter for another thread; `None` where no page needs it.
    fn prefaulter(&self) -> Option<Arc<dyn Prefaulter>> {
        None
    }
}

/// Makes pages of a [`Mapping`] ready ahead of its stores, so that the thread that stores does not
/// have to. It keeps the pages mapped.
pub trait Prefaulter: Send + Sync + Debug {
    /// Makes the pages below `end`, or below the mapping's length, present and writable. Such a
    /// page counts as dirty and goes to the disk with the next sync. So call it only for pages that
    /// are written soon.
    fn prefault(&self, end: u64) -> Result<()>;
    /// Evicts the whole pages of this range from the mapping. The file keeps the bytes that were
    /// written to them.
    /// The write-back of a mapped page stops every processor that runs the process for a
    /// moment. A later store to such a page is correct, but faults.
    fn release(&self, range: Range<u64>) {
        let _ = range;
    }
}

/// A held lock; dropping it releases it, as does the death of the process.
pub trait Lock: Send + Sync + Debug {
    /// Whether a reader pins version `through` or an earlier one: see [`FileSystem::pin`]. Never
    /// waits, and never keeps a reader from pinning.
    fn is_pinned(&self, through: u64) -> Result<bool> {
        let _ = through;
        Ok(false)
    }
}

/// A reader's pin of a version; dropping it releases it, as does the death of the process.
pub trait Pin: Send + Sync + Debug {}

/// A file system. Creating, renaming, linking and removing become durable by
/// [`FileSystem::sync_dir`] of the directory that holds the name, and not before.
///
/// A file system that [`FileSystem::open_directory`] returned is **held** at one directory. Its
/// paths all begin with the path of that directory at its open. They are resolved from the open
/// directory, never from the root or the current directory. The handle keeps its directory when
/// that is renamed, when its path leads elsewhere, or when the process changes its directory.
pub trait FileSystem: Send + Sync + Debug {
    /// The path from the root on, links and all. The current directory stands before a relative
    /// one. An error where the path is empty or there is no current directory.
    fn absolute(&self, path: &Path) -> Result<PathBuf>;
    /// Opens a directory and returns the file system held at it. Its subdirectories are opened when
    /// a call first names them, and are held from then on, too.
    /// REQUIRES: `path` is absolute.
    fn open_directory(&self, path: &Path) -> Result<Arc<dyn FileSystem>>;
    /// Whether a path is in the held directory. Where none is held, every path is.
    fn reaches(&self, path: &Path) -> bool {
        let _ = path;
        true
    }
    /// Current location of the held directory. [`DirectoryLocation::Unchanged`] where none is held.
    fn directory_location(&self) -> Result<DirectoryLocation>;
    /// Whether the held directory has no name any more. Checks only the directory: no path
    /// is resolved, so no mount over it can make the caller wait.
    fn is_removed(&self) -> Result<bool> {
        Ok(self.directory_location()? == DirectoryLocation::Removed)
    }
    /// Fails where the held directory, which was opened by the path `directory`, was removed:
    /// data in it would be lost with the handle. A failed check proves nothing.
    fn check_directory(&self, directory: &Path) -> Result<()> {
        match self.is_removed() {
            Ok(true) => Err(Error::Replaced {
                path: directory.to_path_buf(),
                reason: "the directory was removed".into(),
            }),
            Ok(false) | Err(_) => Ok(()),
        }
    }
    /// Fails where a name stands for another file than the one that the writer of the held
    /// directory created or listed, or for none: data in that file would be lost with the
    /// handle. Nothing is checked where the file system does not know the writer's files: see
    /// [`OwnershipCheckedFiles`](crate::OwnershipCheckedFiles).
    fn check_named(&self, path: &Path) -> Result<()> {
        let _ = path;
        Ok(())
    }
    /// Identity of the file or directory with this name; `None` where none has. Follows no links.
    fn identity(&self, path: &Path) -> Result<Option<FileIdentity>>;
    /// Creates a directory (mode 0700) and its missing parents. One that exists is fine.
    fn create_dir_all(&self, path: &Path) -> Result<()>;
    /// Creates a file (mode 0600) for reading and writing. An error where the name exists.
    fn create(&self, path: &Path) -> Result<Arc<dyn File>>;
    /// Opens a file that exists. Symbolic links are not followed.
    fn open(&self, path: &Path, access: Access) -> Result<Arc<dyn File>>;
    /// Gives a file another name in one step, replacing a file that has that name.
    fn rename(&self, source: &Path, target: &Path) -> Result<()>;
    /// Exchanges the files of two names in one step. `false`, with nothing done, where the file
    /// system or the platform cannot.
    fn exchange(&self, one: &Path, other: &Path) -> Result<bool> {
        let _ = (one, other);
        Ok(false)
    }
    /// Gives a file a second name, in a directory of `target_files`, which is this file system or
    /// another one of the same kind. An error where the name exists.
    fn hard_link(&self, source: &Path, target_files: &dyn FileSystem, target: &Path) -> Result<()>;
    /// Removes a name.
    fn remove_file(&self, path: &Path) -> Result<()>;
    /// Removes an empty directory. Fails where it has entries, or where the path is not a
    /// directory.
    fn remove_dir(&self, path: &Path) -> Result<()>;
    /// The names in a directory, sorted.
    fn read_dir(&self, path: &Path) -> Result<Vec<DirectoryEntry>>;
    /// Whether a file or directory has this name.
    fn exists(&self, path: &Path) -> Result<bool>;
    /// The absolute path without links, as far as it exists; the
    /// given path where that is unknown, or where there are no links.
    fn resolved(&self, path: &Path) -> PathBuf {
        path.to_path_buf()
    }
    /// Makes the names in a directory durable.
    fn sync_dir(&self, path: &Path) -> Result<()>;
    /// The innermost file system, for [`FileSystem::hard_link`] between two of them. A wrapper
    /// returns the file system that it wraps.
    fn innermost(&self) -> &dyn Any;
    /// Takes the exclusive lock of the file at `path`, creating it where missing.
    /// [`Error::Locked`] with the parent directory's path where another process or handle (of this
    /// process too) holds it.
    fn lock(&self, path: &Path) -> Result<Box<dyn Lock>>;
    /// Pins a version in the lock file at `path`, so that the holder of the lock keeps the files of
    /// that version and of later ones. Waits for nothing, changes no file, and blocks neither a
    /// writer nor another reader. `None` where a pin is impossible: the lock file is missing or
    /// unreadable, or the platform has no such locks.
    /// REQUIRES: `version` is below 2^62.
    fn pin(&self, path: &Path, version: u64) -> Result<Option<Box<dyn Pin>>>;
}
