//! [`BackupError`]: the failure of a backup into an object store, or of its restore.

use std::fmt;

use umbel_base::Error;
use umbel_env::{ObjectError, ObjectErrorKind};

/// Result of a call about a backup in an object store.
pub type BackupResult<T> = Result<T, BackupError>;

/// Failure of a backup into an object store, or of its restore.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum BackupError {
    /// A request to the object store failed, or an object has other bytes than were written.
    Objects(ObjectError),
    /// The local store failed, or its files are damaged.
    Store(Error),
    /// The prefix belongs to another store or another process, or holds foreign objects.
    Refused(String),
    /// No state of the backup is as old as the requested time.
    NoState {
        /// URL of the backup.
        location: String,
        /// Time of the first state that can be restored, in microseconds since 1970.
        first_micros: u64,
    },
    /// The caller set the cancellation flag.
    Cancelled,
}

/// Kind of a failure: what the caller can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BackupErrorKind {
    /// The object store cannot serve requests now: call again later.
    Retry,
    /// An operator has to act first: a repetition fails, too.
    Stop,
    /// The caller ended the call.
    Cancelled,
}

impl BackupError {
    /// Returns what the caller can do.
    pub fn kind(&self) -> BackupErrorKind {
        match self {
            BackupError::Objects(error) if error.is_temporary() => BackupErrorKind::Retry,
            BackupError::Cancelled => BackupErrorKind::Cancelled,
            _ => BackupErrorKind::Stop,
        }
    }

    /// Whether an object of the backup is damaged or missing.
    pub fn is_damage(&self) -> bool {
        matches!(self, BackupError::Objects(error) if error.kind == ObjectErrorKind::Damaged)
    }

    /// Creates a [`BackupError::Refused`].
    pub fn refused(message: impl Into<String>) -> BackupError {
        BackupError::Refused(message.into())
    }
}

impl fmt::Display for BackupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BackupError::Objects(error) => error.fmt(f),
            BackupError::Store(error) => error.fmt(f),
            BackupError::Refused(message) => f.write_str(message),
            BackupError::NoState { location, first_micros } => write!(
                f,
                "the backup in {location} has no state of that time or before; its first state is \
                 of {first_micros} µs after 1970-01-01; name that time or a later one"
            ),
            BackupError::Cancelled => f.write_str("the caller cancelled the call"),
        }
    }
}

impl std::error::Error for BackupError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            BackupError::Objects(error) => Some(error),
            BackupError::Store(error) => Some(error),
            _ => None,
        }
    }
}

impl From<ObjectError> for BackupError {
    fn from(error: ObjectError) -> BackupError {
        BackupError::Objects(error)
    }
}

impl From<Error> for BackupError {
    fn from(error: Error) -> BackupError {
        BackupError::Store(error)
    }
}
