//! The check of the backup directory at a start, so that not only the first backup reports a
//! directory that cannot exist.

use std::io::{self, ErrorKind};
use std::path::Path;

use umbel::{Error, Result};
use umbel_env::{Env, check_path};
use umbel_events::EventId;

use crate::server::StartError;

/// Schemes of object stores, which a value with one slash too few can begin with.
const SCHEMES: [&str; 4] = ["s3", "gs", "az", "file"];

/// Checks that backups can be made in this directory.
///
/// # Errors
/// The path is empty or a URL, or the directory does not exist and cannot be created.
pub fn check_backup_directory(env: &Env, directory: &Path) -> std::result::Result<(), StartError> {
    if let Some(scheme) = url_scheme(directory) {
        // The URL may have a password.
        return Err(StartError::ObjectBackup(format!(
            "--backup-dir takes a directory, but has a URL with the scheme {scheme:?}; name an \
             object store with --backup-to"
        )));
    }
    let checked = check_path("the backup", directory).and_then(|()| check_exists(env, directory));
    checked.map_err(|error| {
        StartError::system("use the backup directory", io::Error::other(error.to_string()))
    })
}

/// Returns the scheme if the path is a URL of an object store, also with one slash too few.
fn url_scheme(path: &Path) -> Option<&str> {
    let text = path.to_str()?;
    if let Some((scheme, _)) = text.split_once("://") {
        return Some(scheme);
    }
    let (scheme, _) = text.split_once(":/")?;
    SCHEMES.contains(&&*scheme.to_ascii_lowercase()).then_some(scheme)
}

/// Checks that the directory exists or can be created.
fn check_exists(env: &Env, directory: &Path) -> Result<()> {
    let directory = &*env.files.absolute(directory)?;
    if is_there(env, directory)? {
        let listed = env.files.read_dir(directory).map(drop);
        return listed.map_err(|error| unusable(directory, directory, &error));
    }
    for above in directory.ancestors().skip(1) {
        if is_there(env, above)? {
            return check_writable(env, above).map_err(|error| unusable(directory, above, &error));
        }
    }
    Ok(())
}

/// Whether something has this name. Nothing has a name below a file.
fn is_there(env: &Env, path: &Path) -> Result<bool> {
    match env.files.exists(path) {
        Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotADirectory => Ok(false),
        found => found,
    }
}

/// Checks that names can be created in a directory. A full disk does not prevent a start: its
/// operator may need the server to make space.
fn check_writable(env: &Env, directory: &Path) -> Result<()> {
    let probe = directory.join(format!(".umbel-probe-{}", EventId(env.entropy.id()?)));
    match env.files.create(&probe) {
        Ok(_) => env.files.remove_file(&probe),
        Err(Error::DiskFull { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// The error about a backup directory, which `place` does not allow.
fn unusable(directory: &Path, place: &Path, error: &Error) -> Error {
    let cause = match error {
        Error::Io { source, .. } => source.to_string(),
        error => error.to_string(),
    };
    Error::invalid(format!(
        "{} cannot be the backup directory, because of {}: {cause}; name a directory that the \
         server can create and write to with --backup-dir",
        directory.display(),
        place.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(directory: &Path) -> String {
        check_backup_directory(&Env::system(), directory).unwrap_err().to_string()
    }

    /// Story: `--backup-dir s3://bucket/shop` made a directory `s3:`.
    #[test]
    fn url_is_refused_with_the_other_option() {
        for url in ["s3://user:secret@b/p", "s3:/b/p", "FILE:/mnt", "https://h/p", "file:///mnt"] {
            let refusal = refusal(Path::new(url));
            assert!(refusal.contains("--backup-to"), "{url}: {refusal}");
            assert!(!refusal.contains("secret"), "{refusal}");
        }
        for directory in ["./s3:/b", "a:/b", "s3"] {
            assert_eq!(url_scheme(Path::new(directory)), None, "{directory}");
        }
    }

    /// Story: a backup directory that no backup could create was reported by the first backup.
    #[test]
    fn directory_that_cannot_exist_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        std::fs::write(&file, "no directory").unwrap();
        let impossible = [file.clone(), file.join("copy"), file.join("a/copy")];
        for path in impossible {
            let refusal = refusal(&path);
            let place = file.display().to_string();
            assert!(refusal.contains(&place) && refusal.contains("--backup-dir"), "{refusal}");
        }
        #[cfg(target_os = "linux")]
        {
            let refusal = refusal(Path::new("/proc/umbel/copy"));
            assert!(refusal.contains("because of /proc: "), "{refusal}");
        }
        let env = Env::system();
        for path in [directory.path().to_path_buf(), directory.path().join("a/b/copy")] {
            check_backup_directory(&env, &path).unwrap();
        }
        let left = std::fs::read_dir(directory.path()).unwrap().count();
        assert_eq!(left, 1, "the check leaves no file and creates no directory");
    }
}
