//! [`TemporaryDirectory`]: directory that is removed when this process ends, even if it is killed.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::errors::{CommandError, CommandResult};
use crate::io::output::note;

/// Prefix of the names of directories of benchmarks.
pub const BENCH_PREFIX: &str = "umbel-bench-";
/// Prefix of the names of directories of `umbel serve --mem-db`.
pub const MEM_DB_PREFIX: &str = "umbel-mem-db-";

/// A temporary directory, which is removed when this value is dropped. If this process is killed
/// before, a cleanup process removes the directory.
#[derive(Debug)]
pub struct TemporaryDirectory {
    path: PathBuf,
    is_removed: bool,
    remover: Option<Child>,
}

impl TemporaryDirectory {
    /// Creates a directory with a name of its own, which begins with `prefix`.
    ///
    /// # Errors
    /// The directory cannot be created.
    pub fn create(prefix: &str, wall_micros: u64) -> CommandResult<TemporaryDirectory> {
        let path = TemporaryDirectory::create_kept(prefix, wall_micros)?;
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let remover = spawn_remover(name);
        Ok(TemporaryDirectory { path, is_removed: false, remover })
    }

    /// Creates a directory that is never removed; returns its path.
    ///
    /// # Errors
    /// The directory cannot be created.
    pub fn create_kept(prefix: &str, wall_micros: u64) -> CommandResult<PathBuf> {
        let name = format!("{prefix}{}-{wall_micros}", std::process::id());
        let path = temporary_parent().join(name);
        fs::create_dir(&path).map_err(|error| CommandError::system("create", &path, &error))?;
        Ok(path)
    }

    /// Path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the directory.
    ///
    /// # Errors
    /// The directory cannot be removed.
    pub fn remove(mut self) -> CommandResult<()> {
        self.remove_once()
    }

    fn remove_once(&mut self) -> CommandResult<()> {
        if std::mem::replace(&mut self.is_removed, true) {
            return Ok(());
        }
        let removed = fs::remove_dir_all(&self.path);
        removed.map_err(|error| CommandError::system("remove", &self.path, &error))
    }
}

impl Drop for TemporaryDirectory {
    fn drop(&mut self) {
        if let Err(failure) = self.remove_once() {
            note(&format!("umbel: {failure}"));
        }
        if let Some(mut remover) = self.remover.take() {
            drop(remover.stdin.take());
            // It sees that nothing is left to remove and ends at once.
            let _ = remover.wait();
        }
    }
}

/// Parent of temporary directories: `TMPDIR` if set, otherwise `/var/tmp`, which is on a disk,
/// while `/tmp` may be in memory.
fn temporary_parent() -> PathBuf {
    let on_disk = Path::new("/var/tmp");
    if std::env::var_os("TMPDIR").is_none() && on_disk.is_dir() {
        return on_disk.to_path_buf();
    }
    std::env::temp_dir()
}

/// Starts a process that removes the directory once this process has ended, for any reason: its
/// standard input then ends. The cleanup process is in a process group of its own, which Ctrl-C
/// does not reach. If the cleanup process cannot start, only the directory of an interrupted run
/// stays.
fn spawn_remover(name: &str) -> Option<Child> {
    let program = std::env::current_exe().ok()?;
    Command::new(program)
        .args(["remove-bench-folder", name])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .ok()
}

/// Runs the cleanup process: waits for the end of its input, then removes the directory. A name
/// that this program gives to no temporary directory is refused.
pub fn remove_after_parent_exit(name: &str) -> CommandResult<()> {
    let is_ours = [BENCH_PREFIX, MEM_DB_PREFIX].iter().any(|prefix| {
        name.strip_prefix(prefix).is_some_and(|rest| {
            !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
        })
    });
    if !is_ours {
        return Err(CommandError::usage(format!(
            "`{name}` is not a temporary directory of a benchmark or a server"
        )));
    }
    let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
    let path = temporary_parent().join(name);
    match fs::remove_dir_all(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(CommandError::system("remove", &path, &error))
        }
        _ => Ok(()),
    }
}
