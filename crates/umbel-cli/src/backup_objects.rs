//! Object stores as the commands for backups open them.

use std::path::Path;
use std::sync::Arc;

use umbel_backup::{BackupIdentity, BackupKind, ObjectRequestOptions};
use umbel_env::{Env, ObjectError, ObjectErrorKind, Objects};
use umbel_objects::{Probe, ProbeVerdict};

use crate::errors::{CommandError, CommandResult};

/// Returns the URL if the argument is one, and no directory.
pub fn url_of(argument: &Path) -> Option<&str> {
    argument.to_str().filter(|text| text.contains("://"))
}

/// Options of the requests, with a maximum of bytes per second.
pub fn options(throttle: Option<u64>) -> ObjectRequestOptions {
    ObjectRequestOptions { bytes_per_second: throttle, ..ObjectRequestOptions::default() }
}

/// Opens the object store. A store whose prefix is empty is probed before anything is written.
pub fn open_for_backup(env: &Env, url: &str) -> CommandResult<Arc<dyn Objects>> {
    let objects = umbel_objects::open(env, url).map_err(CommandError::Store)?;
    let listed = objects.list("", None, 1).map_err(request_error)?;
    if listed.value.objects.is_empty() {
        let report = Probe::new(env, &*objects).map_err(CommandError::Store)?.run();
        if report.verdict() != ProbeVerdict::Suitable {
            return Err(CommandError::Usage(format!(
                "{} was not found suitable for backups; `umbel store probe {url}` names what it \
                 breaks",
                objects.location()
            )));
        }
    }
    Ok(objects)
}

/// Opens an object store, and returns the kind of store whose backup it holds.
pub fn open_backup(env: &Env, url: &str) -> CommandResult<(Arc<dyn Objects>, Option<BackupKind>)> {
    let objects = umbel_objects::open(env, url).map_err(CommandError::Store)?;
    let kind = BackupIdentity::find_kind(env, Arc::clone(&objects), options(None));
    Ok((objects, kind.map_err(backup_error)?))
}

/// Returns the failure of a command about a backup.
pub fn backup_error(error: umbel::BackupError) -> CommandError {
    match error {
        umbel::BackupError::Store(error) => error.into(),
        umbel::BackupError::Objects(error) => request_error(error),
        error => CommandError::Usage(error.to_string()),
    }
}

/// Returns the failure of a command whose request to an object store failed.
pub fn request_error(error: ObjectError) -> CommandError {
    match error.kind {
        ObjectErrorKind::Damaged => CommandError::Damaged(error.to_string()),
        ObjectErrorKind::Unavailable => CommandError::System(error.to_string()),
        ObjectErrorKind::Denied | ObjectErrorKind::Refused => {
            CommandError::Usage(error.to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_told_from_directories() {
        assert_eq!(url_of(Path::new("file:///mnt/share")), Some("file:///mnt/share"));
        assert_eq!(url_of(Path::new("/mnt/share")), None);
    }
}
