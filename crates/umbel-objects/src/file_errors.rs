//! Errors of files as errors of an object store.

use std::io::ErrorKind;

use umbel_base::Error;
use umbel_env::{ObjectError, ObjectErrorKind};

/// Returns the error of a call that failed because of a file.
pub(crate) fn object_error(operation: &'static str, object: &str, error: &Error) -> ObjectError {
    ObjectError::new(kind_of(error), operation, object, cause_of(error))
}

/// The cause, with the remedy for the disk of the objects. The error itself has the remedy for the
/// disk of a store.
fn cause_of(error: &Error) -> String {
    match (error, error.disk_remedy()) {
        (
            Error::Io { operation, path, source } | Error::DiskFull { operation, path, source },
            Some(remedy),
        ) => {
            let shown = path.display();
            format!("could not {operation} {shown}: {source}; in this object store, {remedy}")
        }
        _ => error.to_string(),
    }
}

fn kind_of(error: &Error) -> ObjectErrorKind {
    match error {
        Error::Io { source, .. } => match source.kind() {
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => ObjectErrorKind::Denied,
            ErrorKind::CrossesDevices
            | ErrorKind::InvalidInput
            | ErrorKind::IsADirectory
            | ErrorKind::NotADirectory
            | ErrorKind::Other
            | ErrorKind::TooManyLinks
            | ErrorKind::Unsupported => ObjectErrorKind::Refused,
            _ => ObjectErrorKind::Unavailable,
        },
        Error::Corruption { .. } => ObjectErrorKind::Damaged,
        Error::Invalid(_) | Error::Replaced { .. } | Error::Forked(_) => ObjectErrorKind::Refused,
        _ => ObjectErrorKind::Unavailable,
    }
}

/// Whether a link failed since the file system has no hard links. A missing right to the directory
/// has another error number (13) than a file system without links (1).
pub(crate) fn is_without_links(error: &Error) -> bool {
    let Error::Io { source, .. } = error else { return false };
    source.raw_os_error() == Some(1)
        || matches!(source.kind(), ErrorKind::CrossesDevices | ErrorKind::Unsupported)
}

/// Whether a failed link certainly had no effect, because the file system itself answered. Without
/// an answer of a network file system the link can take effect later.
pub(crate) fn is_definite(error: &Error) -> bool {
    match error {
        Error::DiskFull { .. } | Error::Invalid(_) => true,
        Error::Io { source, .. } => matches!(
            source.kind(),
            ErrorKind::CrossesDevices
                | ErrorKind::InvalidInput
                | ErrorKind::IsADirectory
                | ErrorKind::NotADirectory
                | ErrorKind::NotFound
                | ErrorKind::PermissionDenied
                | ErrorKind::ReadOnlyFilesystem
                | ErrorKind::TooManyLinks
                | ErrorKind::Unsupported
        ),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Story: on a full backup disk, the advice was that deleting from the store is possible.
    #[test]
    fn errors_of_a_full_disk_are_about_the_objects() {
        let full = std::io::Error::from(ErrorKind::StorageFull);
        let error = Error::io("write to", Path::new("/mnt/x"), full);
        let error = object_error("create", "file:///mnt/a", &error).to_string();
        assert!(error.starts_with("could not create file:///mnt/a: could not write to /mnt/x: "));
        assert!(error.ends_with("; in this object store, free space on that disk"), "{error}");
        let denied = std::io::Error::from(ErrorKind::PermissionDenied);
        let error = Error::io("open", Path::new("/mnt/x"), denied);
        let error = object_error("read", "file:///mnt/a", &error);
        assert_eq!(error.kind, ObjectErrorKind::Denied);
        assert!(!error.to_string().contains("in this object store"), "{error}");
    }
}
