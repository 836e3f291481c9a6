//! The check of the backup directory at a start, so that not only the first backup reports a
//! mistake in its path.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use umbel::{Error, Result};
use umbel_env::{Env, check_path};
use umbel_events::Store;

use crate::server::StartError;

/// Schemes of object stores, which a value with one slash too few can begin with.
const SCHEMES: [&str; 4] = ["s3", "gs", "az", "file"];

/// State of the path of the backup directory.
#[derive(Debug, PartialEq, Eq)]
enum BackupPlace {
    /// A directory that the server can list and write to.
    Directory,
    /// Nothing; the server can write to this directory above.
    Missing(PathBuf),
    /// A file, which the path names or has above it.
    File(PathBuf),
}

/// Refuses a backup directory that is certainly a mistake. Logs a warning if the directory is
/// missing, or cannot be read or written: its disk can come later, and the server can serve without
/// it.
///
/// # Errors
/// The path is empty or a URL, or names or has above it what is no directory.
pub fn check_backup_directory(env: &Env, directory: &Path) -> std::result::Result<(), StartError> {
    if let Some(scheme) = url_scheme(directory) {
        // The URL may have a password.
        return Err(StartError::ObjectBackup(format!(
            "--backup-dir takes a directory, but has a URL with the scheme {scheme:?}; name an \
             object store with --backup-to"
        )));
    }
    let refused =
        |why: String| StartError::system("use the backup directory", io::Error::other(why));
    check_path("the backup", directory).map_err(|error| refused(error.to_string()))?;
    let path = directory.display().to_string();
    match find_place(env, directory) {
        Ok(BackupPlace::Directory) => {}
        Ok(BackupPlace::Missing(above)) => tracing::warn!(
            path,
            "the backup directory does not exist: the first backup creates it in {}; check that \
             its disk is mounted",
            above.display()
        ),
        Ok(BackupPlace::File(file)) => {
            return Err(refused(format!(
                "{} is no directory; name another one with --backup-dir",
                file.display()
            )));
        }
        Err(error) => tracing::warn!(
            path,
            %error,
            "the backup directory cannot be used: backups fail until the server can read it and \
             write to it"
        ),
    }
    Ok(())
}

/// Logs a warning if the directory holds the backup of another store, or of another copy of this
/// store. Failures of its disk are not reported again.
pub fn check_backup_owner(store: &Store, directory: &Path) {
    match store.check_backup_owner(directory) {
        Ok(()) | Err(umbel_events::Error::Store(Error::Io { .. })) => {}
        Err(error) => tracing::warn!(
            path = directory.display().to_string(),
            %error,
            "backups into the backup directory will fail; name another one with --backup-dir"
        ),
    }
}

/// Returns the scheme if the path is a URL of an object store, also with one slash too few.
fn url_scheme(path: &Path) -> Option<&str> {
    let text = path.to_str()?;
    if let Some((scheme, _)) = text.split_once("://") {
        let begins_with_letter = scheme.starts_with(|first: char| first.is_ascii_alphabetic());
        let is_scheme = |letter: char| letter.is_ascii_alphanumeric() || "+.-".contains(letter);
        return (begins_with_letter && scheme.chars().all(is_scheme)).then_some(scheme);
    }
    let (scheme, _) = text.split_once(":/")?;
    SCHEMES.contains(&&*scheme.to_ascii_lowercase()).then_some(scheme)
}

/// Finds what is at the path of a directory. Creates nothing, and lists no directory above it.
///
/// # Errors
/// The directory, or the one in which it has to be created, cannot be used.
fn find_place(env: &Env, directory: &Path) -> Result<BackupPlace> {
    let directory = env.files.absolute(directory)?;
    for path in directory.ancestors() {
        match env.files.exists(path) {
            Ok(true) => {}
            Ok(false) => continue,
            // Nothing has a name below a file, so the next one that exists is the file.
            Err(error) if is_not_a_directory(&error) => continue,
            Err(error) => return Err(error),
        }
        return match env.files.check_writable(path) {
            Err(error) if is_not_a_directory(&error) => Ok(BackupPlace::File(path.to_path_buf())),
            Err(error) => Err(error),
            Ok(()) if path == directory => {
                env.files.read_dir(path)?;
                Ok(BackupPlace::Directory)
            }
            Ok(()) => Ok(BackupPlace::Missing(path.to_path_buf())),
        };
    }
    Ok(BackupPlace::Missing(PathBuf::from("/")))
}

fn is_not_a_directory(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if source.kind() == ErrorKind::NotADirectory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use umbel_sim::{Fault, FaultKind, Sim};

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
        for directory in ["./s3:/b", "a:/b", "s3", "/srv/a://b", "user:secret@s3://b", "://b"] {
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
            let place = format!("backup directory: {} is no directory", file.display());
            assert!(refusal.contains(&place) && refusal.contains("--backup-dir"), "{refusal}");
        }
        let env = Env::system();
        for path in [directory.path().to_path_buf(), directory.path().join("a/b/copy")] {
            check_backup_directory(&env, &path).unwrap();
        }
        let left = std::fs::read_dir(directory.path()).unwrap().count();
        assert_eq!(left, 1, "the check leaves no file and creates no directory");
        assert_eq!(find_place(&env, directory.path()).unwrap(), BackupPlace::Directory);
    }

    /// Story: the database did not start while the share for its backups was not mounted, or was
    /// not permitted to be read.
    #[test]
    fn disk_of_the_backups_prevents_no_start() {
        for kind in [FaultKind::Eacces, FaultKind::Eio, FaultKind::Emfile] {
            let sim = Sim::new(1);
            sim.env().files.create_dir_all("/mnt/share".as_ref()).unwrap();
            let found = |path: &str| find_place(&sim.env(), path.as_ref());
            let above = BackupPlace::Missing("/mnt/share".into());
            assert_eq!(found("/mnt/share/umbel/copy").unwrap(), above);
            sim.fail_site("read_dir directory", 1, Fault { kind, sticky: true });
            found("/mnt/share").unwrap_err();
            let checked = check_backup_directory(&sim.env(), "/mnt/share".as_ref());
            checked.unwrap_or_else(|error| panic!("{kind:?}: {error}"));
            assert!(sim.faults_fired() > 0, "{kind:?}");
            // Only the directory itself is listed.
            assert_eq!(found("/mnt/share/umbel/copy").unwrap(), above);
        }
    }

    /// Story: a directory in which no backup could create a file passed the check.
    #[test]
    fn directory_without_write_permission_is_noticed() {
        let sim = Sim::new(1);
        sim.env().files.create_dir_all("/mnt/share".as_ref()).unwrap();
        let found = |path: &str| find_place(&sim.env(), path.as_ref());
        assert_eq!(found("/mnt/share").unwrap(), BackupPlace::Directory);
        let fault = Fault { kind: FaultKind::Eacces, sticky: true };
        sim.fail_site("check_writable directory", 1, fault);
        for path in ["/mnt/share", "/mnt/share/umbel/copy"] {
            let error = found(path).unwrap_err().to_string();
            assert!(error.contains("could not write to the directory /mnt/share:"), "{error}");
            check_backup_directory(&sim.env(), path.as_ref()).unwrap();
        }
    }

    /// Story: a missing directory below one that may not be listed was reported as one that cannot
    /// be read.
    #[test]
    fn directory_above_needs_no_permission_to_be_listed() {
        // A simulated disk refuses it to root, too.
        let sim = Sim::new(1);
        sim.env().files.create_dir_all("/mnt/share".as_ref()).unwrap();
        let fault = Fault { kind: FaultKind::Eacces, sticky: true };
        sim.fail_site("read_dir directory", 1, fault);
        let found = find_place(&sim.env(), "/mnt/share/umbel/copy".as_ref());
        assert_eq!(found.unwrap(), BackupPlace::Missing("/mnt/share".into()));
        find_place(&sim.env(), "/mnt/share".as_ref()).unwrap_err();
        assert!(sim.faults_fired() > 0);
    }

    /// Story: a dangling link was reported as a directory that the first backup creates.
    #[test]
    fn dangling_link_is_no_directory_that_a_backup_creates() {
        let directory = tempfile::tempdir().unwrap();
        let (link, env) = (directory.path().join("link"), Env::system());
        std::os::unix::fs::symlink(directory.path().join("missing"), &link).unwrap();
        for path in [link.clone(), link.join("copy")] {
            let error = find_place(&env, &path).unwrap_err().to_string();
            assert!(error.contains("No such file"), "{error}");
            check_backup_directory(&env, &path).unwrap();
        }
    }
}
