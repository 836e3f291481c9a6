//! Errors of all crates. Two errors have different kinds only if the caller acts differently on
//! them; other differences are in the message.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::shell_word::quote_path;

/// Result of every fallible function of Umbel.
pub type Result<T> = std::result::Result<T, Error>;

/// An error, whose kind says what the caller can do.
///
/// A missing key is not an error. Every message names the cause, the place and the remedy.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Error {
    /// The request is invalid (an option out of range, a key over the limit): change the request.
    Invalid(String),
    /// A condition of a conditional batch does not hold, since a key was changed: read the keys
    /// again and retry.
    Conflict(String),
    /// Bytes on disk differ from the bytes that were written: run `umbel verify`, or restore the
    /// store from a copy that shares no files with it.
    Corruption {
        /// The damaged file.
        file: PathBuf,
        /// Offset of the damage in the file, in bytes.
        offset: u64,
        /// Difference between the bytes and the expected ones.
        reason: String,
    },
    /// The operating system refused a call.
    Io {
        /// The failed operation, as a verb phrase: "sync", "open", "read 4096 bytes at 512 of".
        operation: String,
        /// File or directory of the operation.
        path: PathBuf,
        /// Error of the operating system.
        source: Arc<io::Error>,
    },
    /// The disk or the quota is full, or a file reached its length limit: free space and continue.
    /// No acknowledged write is lost, the refused operation had no effect, and deletes still work.
    /// A sync of the WAL or the manifest without space is an [`Error::Io`].
    DiskFull {
        /// Failed operation, as a verb phrase.
        operation: String,
        /// The file that could not grow.
        path: PathBuf,
        /// Error of the operating system.
        source: Arc<io::Error>,
    },
    /// The directory of an open store was removed, or holds files of another program or store:
    /// close the handle, and open the intended directory. The handle does not overwrite these
    /// files.
    Replaced {
        /// Directory or file that this handle did not write.
        path: PathBuf,
        /// Change that the check found.
        reason: String,
    },
    /// A writer changed the store while a reader had it open, and no pin could keep the files: open
    /// the store for reading again. Nothing is damaged.
    Stale {
        /// The store's directory, or the file that the writer has removed.
        path: PathBuf,
        /// The change that the reader found.
        reason: String,
    },
    /// Another process or handle has the store open: close that handle first.
    Locked(PathBuf),
    /// An earlier write or sync failed, so that the handle refuses writes: open the store again.
    ReadOnly(String),
    /// The store was closed.
    Closed,
    /// The store in this directory, or this file, was opened by a process that forked this one.
    /// Only the parent process can use the handle: open the store after the fork.
    Forked(PathBuf),
}

impl Error {
    /// Creates an [`Error::Io`], or an [`Error::DiskFull`] if the cause is a full disk or quota, or
    /// the limit of a file's length.
    pub fn io(operation: impl Into<String>, path: &Path, source: io::Error) -> Error {
        let operation = operation.into();
        let path = path.to_path_buf();
        let full = Error::advice(source.kind()).is_some();
        let source = Arc::new(source);
        if full {
            Error::DiskFull { operation, path, source }
        } else {
            Error::Io { operation, path, source }
        }
    }

    /// Returns an [`Error::Io`] for an [`Error::DiskFull`], where it is unknown whether the
    /// operation had an effect, or where freeing space is no remedy. Returns other errors
    /// unchanged.
    pub fn without_disk_full(self) -> Error {
        match self {
            Error::DiskFull { operation, path, source } => Error::Io { operation, path, source },
            other => other,
        }
    }

    /// Returns the remedy for a file that cannot grow; `None` for other errors.
    fn advice(kind: io::ErrorKind) -> Option<&'static str> {
        match kind {
            io::ErrorKind::StorageFull => Some("free space on that disk"),
            io::ErrorKind::QuotaExceeded => Some("free space, or raise the disk quota"),
            io::ErrorKind::FileTooLarge => Some("raise the limit of a file's length (`ulimit -f`)"),
            _ => None,
        }
    }

    /// Returns the remedy for a disk or share that is full, read-only, failing or not mounted any
    /// more; `None` for other errors.
    pub fn disk_remedy(&self) -> Option<&'static str> {
        /// The numbers of `EIO`, `ENXIO` and `ENODEV`, which are the same on every Unix.
        const FAILING: [i32; 3] = [5, 6, 19];
        let (Error::Io { source, .. } | Error::DiskFull { source, .. }) = self else { return None };
        if let Some(remedy) = Error::advice(source.kind()) {
            return Some(remedy);
        }
        match source.kind() {
            io::ErrorKind::ReadOnlyFilesystem => Some("mount its file system for writing"),
            io::ErrorKind::NotConnected
            | io::ErrorKind::StaleNetworkFileHandle
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkDown
            | io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::TimedOut => {
                Some("check the server of the share, and mount its file system again")
            }
            _ if source.raw_os_error().is_some_and(|number| FAILING.contains(&number)) => {
                Some("check the disk and its connection, and the log of the system")
            }
            _ => None,
        }
    }

    /// Creates an [`Error::Corruption`] at `offset` of `file`.
    pub fn corruption(file: &Path, offset: u64, reason: impl Into<String>) -> Error {
        Error::Corruption { file: file.to_path_buf(), offset, reason: reason.into() }
    }

    /// Creates an [`Error::Invalid`] with this message.
    pub fn invalid(message: impl Into<String>) -> Error {
        Error::Invalid(message.into())
    }

    /// Returns the message of a corruption error without the remedy, for callers that print a
    /// better remedy or one for several errors. The message of other errors is unchanged.
    pub fn message_without_advice(&self) -> String {
        match self {
            Error::Corruption { file, offset, reason } => {
                format!("corruption in {} at byte {offset}: {reason}", file.display())
            }
            error => error.to_string(),
        }
    }

    /// Whether the cause is a missing file or directory.
    pub fn is_missing_file(&self) -> bool {
        matches!(self, Error::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    /// Whether the cause is that the process or the machine has no file descriptor left. The failed
    /// call had no effect, and can succeed later.
    pub fn is_out_of_descriptors(&self) -> bool {
        /// The numbers of `ENFILE` and `EMFILE`, which are the same on every Unix.
        const NUMBERS: [i32; 2] = [23, 24];
        let short =
            |source: &io::Error| source.raw_os_error().is_some_and(|n| NUMBERS.contains(&n));
        matches!(self, Error::Io { source, .. } if short(source))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Invalid(message) => f.write_str(message),
            Error::Conflict(message) => {
                write!(f, "conflict: {message}; read the key again and retry the batch")
            }
            // An event store prints its own remedy instead.
            Error::Corruption { file, .. } => write!(
                f,
                "{}; `{}` names all damage; restore the store from a backup, or from a checkpoint \
                 on another disk",
                self.message_without_advice(),
                verify_command(file)
            ),
            Error::Io { operation, path, source } => {
                write!(f, "could not {operation} {}: {source}", path.display())?;
                match self.is_out_of_descriptors() {
                    true => f.write_str("; raise `ulimit -n`"),
                    false => Ok(()),
                }
            }
            Error::DiskFull { operation, path, source } => {
                let remedy = Error::advice(source.kind()).unwrap_or("free space");
                write!(
                    f,
                    "could not {operation} {}: {source}; {remedy} and go on: nothing acknowledged \
                     is lost, and deleting is possible meanwhile",
                    path.display()
                )
            }
            Error::Replaced { path, reason } => write!(
                f,
                "{} was changed by another program while the store was open: {reason}; nothing was \
                 written over it; put it back, or name the directory that is meant, and start this \
                 program again",
                path.display()
            ),
            Error::Stale { path, reason } => write!(
                f,
                "{} is out of date for this reader: {reason}; open the store for reading again",
                path.display()
            ),
            Error::Locked(path) => write!(
                f,
                "the store in {} is in use by another process or handle; close that one first",
                path.display()
            ),
            Error::ReadOnly(reason) => write!(
                f,
                "the store is read-only since an earlier failure ({reason}); close it and open it \
                 again, for a server by a restart"
            ),
            Error::Closed => f.write_str("the store is closed; open it again"),
            Error::Forked(path) => write!(
                f,
                "{} was opened by the process that forked this one, which alone may use that \
                 handle; open the store after the fork, in one process at a time",
                path.display()
            ),
        }
    }
}

/// Returns the command that checks the key-value store of a damaged file. It names no directory for
/// a file that no key-value store has.
fn verify_command(file: &Path) -> String {
    const EXTENSIONS: [&str; 4] = ["manifest", "log", "table", "blob"];
    let is_of_store = file.file_name().is_some_and(|name| name == "CURRENT")
        || file.extension().is_some_and(|end| EXTENSIONS.iter().any(|of| end == *of));
    let directory = file.parent().filter(|path| is_of_store && !path.as_os_str().is_empty());
    match directory {
        Some(directory) => format!("umbel verify --db {}", quote_path(directory)),
        None => "umbel verify".to_string(),
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io { source, .. } | Error::DiskFull { source, .. } => Some(source.as_ref()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn failing_disks_and_shares_have_a_remedy() {
        for (number, remedy) in [
            (28, Some("free space")),
            (30, Some("for writing")),
            (5, Some("check the disk")),
            (107, Some("mount its file system again")),
            (116, Some("mount its file system again")),
            (13, None),
            (2, None),
        ] {
            let error = Error::io("read", Path::new("x"), io::Error::from_raw_os_error(number));
            let found = error.disk_remedy();
            assert_eq!(found.is_some(), remedy.is_some(), "{number}: {error}");
            assert!(found.unwrap_or_default().contains(remedy.unwrap_or_default()), "{found:?}");
        }
        assert_eq!(Error::Closed.disk_remedy(), None);
    }

    /// Story: a process under `ulimit -f` got an internal error of the server.
    #[test]
    fn length_limit_is_disk_full_with_a_remedy() {
        for (number, remedy) in [(28, "free space"), (122, "quota"), (27, "ulimit -f")] {
            let source = io::Error::from_raw_os_error(number);
            let error = Error::io("write to", Path::new("x"), source);
            assert!(matches!(error, Error::DiskFull { .. }), "{error}");
            assert!(error.to_string().contains(remedy), "{error}");
        }
    }

    /// Story: the message for damage of a key-value store recommended `umbel repair`, which is for
    /// event stores only.
    #[test]
    fn damage_message_names_the_remedy_for_a_key_value_store() {
        let error = Error::corruption(Path::new("data/7.table"), 3, "bad");
        assert_eq!(error.message_without_advice(), "corruption in data/7.table at byte 3: bad");
        let message = error.to_string();
        assert!(message.starts_with(&error.message_without_advice()), "{message}");
        // Story: the command named no store, and was refused as it was printed.
        assert!(message.contains("`umbel verify --db data` names all damage"), "{message}");
        assert!(message.contains("from a backup"), "{message}");
        assert!(!message.contains("repair"), "{message}");
        let blank = Error::corruption(Path::new("/my data/CURRENT"), 3, "bad").to_string();
        assert!(blank.contains("`umbel verify --db '/my data'`"), "{blank}");
        for foreign in ["/my data", "7.table", "names.filter"] {
            let message = Error::corruption(Path::new(foreign), 3, "bad").to_string();
            assert!(message.contains("`umbel verify` names all"), "{message}");
        }
        assert_eq!(Error::Closed.message_without_advice(), Error::Closed.to_string());
    }

    /// Story: the message at the limit of open files named no remedy.
    #[test]
    fn too_many_open_files_has_a_remedy() {
        let message = |number: i32| {
            Error::io("open", Path::new("x"), io::Error::from_raw_os_error(number)).to_string()
        };
        assert!(message(24).ends_with("; raise `ulimit -n`"), "{}", message(24));
        assert!(!message(13).contains("ulimit"), "{}", message(13));
    }
}
