//! Directory of a benchmark's store, and removal of an old store.
//!
//! A store that a benchmark made has an empty keyspace called [`MARKER_KEYSPACE`]. INVARIANT: a
//! store without that keyspace is never removed, whatever the flags: `UMBEL_DB` may name user data.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use umbel::{Db, Options};

use crate::errors::{CommandError, CommandResult};
use crate::io::output::note;

/// The keyspace that marks a store as made by a benchmark.
pub const MARKER_KEYSPACE: &str = "umbel-bench";
/// Prefix of the names of temporary directories.
const TEMPORARY_PREFIX: &str = "umbel-bench-";

/// Directory of the store that a run uses.
pub struct StoreDirectory {
    path: PathBuf,
    temporary: Option<RemovalGuard>,
}

/// Process that removes a temporary directory if this process ends before it can.
struct RemovalGuard {
    keep: bool,
    watcher: Option<Child>,
}

impl StoreDirectory {
    /// Uses the directory that `--db` or `UMBEL_DB` names.
    pub fn named(path: &Path) -> StoreDirectory {
        StoreDirectory { path: path.to_path_buf(), temporary: None }
    }

    /// Creates a temporary directory, which is removed when this value is dropped. If this process
    /// is interrupted or killed before, a cleanup process removes the directory.
    pub fn temporary(keep: bool, wall_micros: u64) -> CommandResult<StoreDirectory> {
        let parent = temporary_parent();
        let name = format!("{TEMPORARY_PREFIX}{}-{wall_micros}", std::process::id());
        let path = parent.join(&name);
        fs::create_dir(&path).map_err(|error| CommandError::system("create", &path, &error))?;
        let watcher = if keep { None } else { spawn_remover(&name) };
        Ok(StoreDirectory { path, temporary: Some(RemovalGuard { keep, watcher }) })
    }

    /// Path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the directory is temporary and will be removed.
    pub fn is_removed_at_end(&self) -> bool {
        self.temporary.as_ref().is_some_and(|temporary| !temporary.keep)
    }

    /// Prepares the directory for a fresh store: removes a store that an earlier benchmark left in
    /// it. Returns an error if the directory holds anything else.
    pub fn clear(&self, options: &Options) -> CommandResult<()> {
        let entries = match fs::read_dir(&self.path) {
            Ok(entries) => entries.count(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(CommandError::system("read", &self.path, &error)),
        };
        if entries == 0 {
            return Ok(());
        }
        self.require_marker(options)?;
        fs::remove_dir_all(&self.path)
            .and_then(|()| fs::create_dir(&self.path))
            .map_err(|error| CommandError::system("clear", &self.path, &error))
    }

    /// Opens the store for writing, so that no other process has it open, and returns an error
    /// without the marker keyspace.
    fn require_marker(&self, options: &Options) -> CommandResult<()> {
        let options = Options { create_if_missing: false, ..options.clone() };
        let db = Db::open(&self.path, options)?;
        let marked = db.keyspaces().iter().any(|name| name == MARKER_KEYSPACE);
        db.close()?;
        if marked {
            return Ok(());
        }
        Err(CommandError::usage(format!(
            "the store in {} was not created by `umbel bench` and would be replaced; name another \
             directory with --db, or pass --use_existing_db to use the store",
            self.path.display()
        )))
    }
}

impl Drop for StoreDirectory {
    fn drop(&mut self) {
        let Some(temporary) = &mut self.temporary else { return };
        if temporary.keep {
            return;
        }
        if let Err(error) = fs::remove_dir_all(&self.path) {
            note(&format!("umbel: could not remove {}: {error}", self.path.display()));
        }
        if let Some(mut watcher) = temporary.watcher.take() {
            drop(watcher.stdin.take());
            // It sees that nothing is left to remove and ends at once.
            let _ = watcher.wait();
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
/// that no benchmark gives to its directory is refused.
pub fn remove_after_parent_exit(name: &str) -> CommandResult<()> {
    let is_ours = name.strip_prefix(TEMPORARY_PREFIX).is_some_and(|rest| {
        !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
    });
    if !is_ours {
        return Err(CommandError::usage(format!(
            "`{name}` is not a temporary directory of a benchmark"
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
