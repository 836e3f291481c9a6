//! [`ObjectBackupError`]: the failure of a backup into an object store, or of its restore.

use std::fmt;

use umbel_backup::{BackupError, BackupErrorKind as ObjectBackupErrorKind};
use umbel_base::damage_count::StoreError;
use umbel_env::ObjectError;

use crate::types::error::Error;
use crate::types::event::Position;

/// Result of a call about a backup in an object store.
pub type ObjectBackupResult<T> = Result<T, ObjectBackupError>;

/// Failure of a backup into an object store, or of its restore.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum ObjectBackupError {
    /// A request to the object store failed, or an object has other bytes than were written.
    Objects(ObjectError),
    /// The event store failed, or its files are damaged.
    Store(Error),
    /// The prefix belongs to another store or another server, or holds foreign objects.
    Refused(String),
    /// A restore would make a store without events: the end is before that of the first append.
    NoEvents {
        /// Position of the last event of the first append.
        position: Position,
        /// Time of that event, in units of 100 ns since 1970.
        created: u64,
    },
    /// The caller set the cancellation flag.
    Cancelled,
}

impl ObjectBackupError {
    /// Returns what the caller can do.
    pub fn kind(&self) -> ObjectBackupErrorKind {
        match self {
            ObjectBackupError::Objects(error) if error.is_temporary() => {
                ObjectBackupErrorKind::Retry
            }
            ObjectBackupError::Cancelled => ObjectBackupErrorKind::Cancelled,
            _ => ObjectBackupErrorKind::Stop,
        }
    }

    /// Creates an [`ObjectBackupError::Refused`].
    pub(crate) fn refused(message: impl Into<String>) -> ObjectBackupError {
        ObjectBackupError::Refused(message.into())
    }
}

impl StoreError for ObjectBackupError {
    fn is_store_damage(&self) -> bool {
        matches!(self, ObjectBackupError::Store(error) if error.is_store_damage())
    }
}

impl fmt::Display for ObjectBackupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ObjectBackupError::Objects(error) => error.fmt(f),
            ObjectBackupError::Store(error) => error.fmt(f),
            ObjectBackupError::Refused(message) => f.write_str(message),
            ObjectBackupError::NoEvents { position, .. } => write!(
                f,
                "the restored store would be empty: the first append of the backup ends at \
                 position {}",
                position.0
            ),
            ObjectBackupError::Cancelled => f.write_str("the caller cancelled the call"),
        }
    }
}

impl std::error::Error for ObjectBackupError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ObjectBackupError::Objects(error) => Some(error),
            ObjectBackupError::Store(error) => Some(error),
            _ => None,
        }
    }
}

impl From<ObjectError> for ObjectBackupError {
    fn from(error: ObjectError) -> ObjectBackupError {
        ObjectBackupError::Objects(error)
    }
}

impl From<Error> for ObjectBackupError {
    fn from(error: Error) -> ObjectBackupError {
        ObjectBackupError::Store(error)
    }
}

impl From<umbel::Error> for ObjectBackupError {
    fn from(error: umbel::Error) -> ObjectBackupError {
        ObjectBackupError::Store(error.into())
    }
}

impl From<BackupError> for ObjectBackupError {
    fn from(error: BackupError) -> ObjectBackupError {
        match error {
            BackupError::Objects(error) => ObjectBackupError::Objects(error),
            BackupError::Store(error) => ObjectBackupError::Store(error.into()),
            BackupError::Cancelled => ObjectBackupError::Cancelled,
            other => ObjectBackupError::Refused(other.to_string()),
        }
    }
}
