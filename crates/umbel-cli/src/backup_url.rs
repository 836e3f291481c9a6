//! URLs of object stores in the commands for backups.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use umbel_backup::{BackupError, BackupIdentity, BackupKind, BackupResult, ObjectRequestOptions};
use umbel_base::shell_word::{directory_url, quote};
use umbel_env::{Env, ObjectError, ObjectErrorKind, Objects};
use umbel_objects::{CheckOutcome, Probe, ProbeVerdict};

use crate::errors::{CommandError, CommandResult};

/// Bytes that are read of a file `BACKUP`; its first ones tell its kind.
const IDENTITY_BYTES_MAX: u64 = 4096;
/// Schemes that an argument with one slash too few can begin with.
const SCHEMES: [&str; 4] = ["s3", "gs", "az", "file"];

/// Returns the URL if the argument is one; `None` for a directory.
///
/// # Errors
/// The argument is a URL with one slash too few, which would name a directory.
pub fn url_of(argument: &Path) -> CommandResult<Option<&str>> {
    let Some(text) = argument.to_str() else { return Ok(None) };
    if text.contains("://") {
        return Ok(Some(text));
    }
    match text.split_once(":/") {
        Some((scheme, rest)) if SCHEMES.contains(&&*scheme.to_ascii_lowercase()) => {
            let rest =
                if scheme.eq_ignore_ascii_case("file") { format!("/{rest}") } else { rest.into() };
            Err(CommandError::usage(format!(
                "{text} is no URL of an object store; write {}, or {} for a directory",
                quote(&format!("{scheme}://{rest}")),
                quote(&format!("./{text}"))
            )))
        }
        _ => Ok(None),
    }
}

/// Rejects a directory that holds the backup of an object store, which is checked by its URL.
pub fn refuse_unnamed_url(directory: &Path) -> CommandResult<()> {
    let Some(url) = url_of_backup(directory) else { return Ok(()) };
    Err(CommandError::usage(format!(
        "{} holds a backup of an object store: check it by its URL, `umbel verify --from {url}`",
        directory.display()
    )))
}

/// Returns the URL of a directory that holds the backup of an object store; `None` for others.
fn url_of_backup(directory: &Path) -> Option<String> {
    let mut start = Vec::new();
    let file = std::fs::File::open(directory.join("BACKUP")).ok()?;
    file.take(IDENTITY_BYTES_MAX).read_to_end(&mut start).ok()?;
    let absolute = std::path::absolute(directory).ok()?;
    BackupIdentity::is_start_of(&start).then(|| directory_url(&absolute))
}

/// Options of the requests, with a maximum of bytes per second.
pub fn options(throttle: Option<u64>) -> ObjectRequestOptions {
    ObjectRequestOptions { bytes_per_second: throttle, ..ObjectRequestOptions::default() }
}

/// Opens the object store. A store whose prefix is empty is probed before anything is written.
pub fn open_for_backup(env: &Env, url: &str) -> CommandResult<Arc<dyn Objects>> {
    let objects = open(env, url)?;
    check_for_backup(env, &*objects).map_err(backup_error)?;
    Ok(objects)
}

/// Probes an object store whose prefix is empty.
///
/// # Errors
/// The store breaks a guarantee, or the probe was not finished; and failed requests.
pub fn check_for_backup(env: &Env, objects: &dyn Objects) -> BackupResult<()> {
    if !objects.list("", None, 1)?.value.objects.is_empty() {
        return Ok(());
    }
    let report = Probe::new(env, objects)?.run();
    let location = objects.location();
    let unfinished = report.checks.iter().find_map(|(_, outcome)| match outcome {
        CheckOutcome::Unfinished(kind, reason) => Some((*kind, reason.as_str())),
        _ => None,
    });
    match report.verdict() {
        ProbeVerdict::Suitable => Ok(()),
        ProbeVerdict::Refused => Err(BackupError::refused(format!(
            "{location} was not found suitable for backups; `umbel store probe {}` names what it \
             breaks",
            quote(location)
        ))),
        ProbeVerdict::Unfinished => {
            let unknown = (ObjectErrorKind::Unavailable, "the store did not serve all requests");
            let (kind, cause) = unfinished.unwrap_or(unknown);
            Err(ObjectError::new(kind, "probe", location, cause).into())
        }
    }
}

/// Opens the object store of an existing backup.
pub fn open(env: &Env, url: &str) -> CommandResult<Arc<dyn Objects>> {
    umbel_objects::open(env, url).map_err(CommandError::Store)
}

/// Returns the kind of store whose backup the objects are; `None` without a backup.
pub fn find_kind(env: &Env, objects: &Arc<dyn Objects>) -> CommandResult<Option<BackupKind>> {
    BackupIdentity::find_kind(env, Arc::clone(objects), options(None)).map_err(backup_error)
}

/// Returns the failure of a command about a backup.
pub fn backup_error(error: BackupError) -> CommandError {
    match error {
        BackupError::Store(error) => error.into(),
        BackupError::Objects(error) => request_error(error),
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
        let url = |text: &'static str| url_of(Path::new(text));
        assert_eq!(url("file:///mnt/share").unwrap(), Some("file:///mnt/share"));
        for directory in ["/mnt/share", "./s3:/a", "a:/b", "s3"] {
            assert_eq!(url(directory).unwrap(), None, "{directory}");
        }
        let error = url("s3:/shop/backups").unwrap_err().to_string();
        assert!(error.contains("write s3://shop/backups, or ./s3:/shop/backups"), "{error}");
    }
}
