//! The error kinds. A kind exists only where the caller would act differently; the rest is text.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What every fallible function of Umbel returns.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong, by what the caller can do about it.
///
/// A missing key is not an error. Every message says what was wrong, where, and what to do.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Error {
    /// The request itself is wrong (an option out of range, a key over the limit): change it.
    Invalid(String),
    /// A conditional batch found a key changed since it was seen: read again and retry.
    Conflict(String),
    /// Bytes on disk are not what was written: run `umbel verify`, restore the store from a copy
    /// that shares no files with it.
    Corruption {
        /// The damaged file.
        file: PathBuf,
        /// Where in the file the damage was noticed, in bytes from its start.
        offset: u64,
        /// What was expected there and what was found.
        reason: String,
    },
    /// The operating system refused a call.
    Io {
        /// What was being done, as a verb phrase: "sync", "open", "read 4096 bytes at 512 of".
        operation: String,
        /// The file or folder it was done to.
        path: PathBuf,
        /// What the operating system said.
        source: Arc<io::Error>,
    },
    /// The disk or the quota is full, or a file met the limit of its length: make room and go on.
    /// Nothing acknowledged is lost, and what was refused was not done. Deletes go on. Where it
    /// was a sync of the log or of the manifest that said so, what was written may be lost:
    /// [`Error::ReadOnly`] says so from then on, and the store is to be opened again.
    Full {
        /// What was being done.
        operation: String,
        /// The file that could not grow.
        path: PathBuf,
        /// What the operating system said.
        source: Arc<io::Error>,
    },
    /// The directory of an open store was removed, or other files were put into it: close this
    /// handle, and open the directory that is meant. This handle writes nothing over those files.
    Replaced {
        /// The directory or the file that is not what this handle wrote.
        path: PathBuf,
        /// What was found there.
        reason: String,
    },
    /// A writer changed the store while it was read or opened for reading only, and no pin could
    /// keep the files: open it for reading again. Nothing is damaged.
    Stale {
        /// The store's directory, or the file that the writer has removed.
        path: PathBuf,
        /// What changed.
        reason: String,
    },
    /// Another process or handle holds the store: close it first.
    Locked(PathBuf),
    /// An earlier write or sync failed and the handle went read-only: open the store again.
    ReadOnly(String),
    /// The store was closed.
    Closed,
    /// The store in this folder, or this file, was opened by a process that forked this one:
    /// only that process uses the handle. Open the store after the fork.
    Forked(PathBuf),
}

impl Error {
    /// An [`Error::Io`], or [`Error::Full`] where the cause is a full disk or quota, or the limit
    /// of a file's length.
    pub fn io(operation: impl Into<String>, path: &Path, source: io::Error) -> Error {
        let operation = operation.into();
        let path = path.to_path_buf();
        let full = Error::remedy(source.kind()).is_some();
        let source = Arc::new(source);
        if full {
            Error::Full { operation, path, source }
        } else {
            Error::Io { operation, path, source }
        }
    }

    /// What to do about a file that cannot grow; `None` where the cause is another.
    fn remedy(kind: io::ErrorKind) -> Option<&'static str> {
        match kind {
            io::ErrorKind::StorageFull => Some("make room on that disk"),
            io::ErrorKind::QuotaExceeded => Some("make room, or raise the disk quota"),
            io::ErrorKind::FileTooLarge => Some("raise the limit of a file's length (`ulimit -f`)"),
            _ => None,
        }
    }

    /// An [`Error::Corruption`] at `offset` of `file`.
    pub fn corruption(file: &Path, offset: u64, reason: impl Into<String>) -> Error {
        Error::Corruption { file: file.to_path_buf(), offset, reason: reason.into() }
    }

    /// An [`Error::Invalid`].
    pub fn invalid(message: impl Into<String>) -> Error {
        Error::Invalid(message.into())
    }

    /// The message of damage without what to do about it, for callers that know better or say it
    /// once for several; of any other error the message.
    pub fn without_remedy(&self) -> String {
        match self {
            Error::Corruption { file, offset, reason } => {
                format!("corruption in {} at byte {offset}: {reason}", file.display())
            }
            error => error.to_string(),
        }
    }

    /// Whether the cause is that a file or folder does not exist.
    pub fn is_missing_file(&self) -> bool {
        matches!(self, Error::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    /// Whether the cause is that the process or the machine has no file descriptor left. Nothing
    /// was done then, and the same call may succeed later.
    pub fn is_short_of_descriptors(&self) -> bool {
        /// `ENFILE` and `EMFILE`, the same on every Unix.
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
            // What helps a store that holds another one besides, that one says.
            Error::Corruption { .. } => write!(
                f,
                "{}; `umbel verify` names all damage; restore the store from a backup, or from a \
                 checkpoint on another disk",
                self.without_remedy()
            ),
            Error::Io { operation, path, source } => {
                write!(f, "could not {operation} {}: {source}", path.display())?;
                match self.is_short_of_descriptors() {
                    true => f.write_str("; raise `ulimit -n`"),
                    false => Ok(()),
                }
            }
            Error::Full { operation, path, source } => {
                let remedy = Error::remedy(source.kind()).unwrap_or("make room");
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
                 written over it; close this handle, and open the directory that is meant",
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
                 again"
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

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io { source, .. } | Error::Full { source, .. } => Some(source.as_ref()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process under `ulimit -f` was told of an internal error of the server.
    #[test]
    fn a_file_that_may_not_grow_is_full_and_says_what_to_do() {
        for (number, remedy) in [(28, "make room"), (122, "quota"), (27, "ulimit -f")] {
            let source = io::Error::from_raw_os_error(number);
            let error = Error::io("write to", Path::new("x"), source);
            assert!(matches!(error, Error::Full { .. }), "{error}");
            assert!(error.to_string().contains(remedy), "{error}");
        }
    }

    /// Story: damage of a key-value store was answered with `umbel repair`, which is for event
    /// stores only.
    #[test]
    fn damage_is_told_with_what_helps_a_key_value_store() {
        let error = Error::corruption(Path::new("data/7.table"), 3, "bad");
        assert_eq!(error.without_remedy(), "corruption in data/7.table at byte 3: bad");
        let said = error.to_string();
        assert!(said.starts_with(&error.without_remedy()), "{said}");
        assert!(said.contains("umbel verify") && said.contains("from a backup"), "{said}");
        assert!(!said.contains("repair"), "{said}");
        assert_eq!(Error::Closed.without_remedy(), Error::Closed.to_string());
    }

    /// Who met the limit of open files was told of it, and not what to do.
    #[test]
    fn what_to_do_about_too_many_open_files_is_said() {
        let said = |number: i32| {
            Error::io("open", Path::new("x"), io::Error::from_raw_os_error(number)).to_string()
        };
        assert!(said(24).ends_with("; raise `ulimit -n`"), "{}", said(24));
        assert!(!said(13).contains("ulimit"), "{}", said(13));
    }
}
