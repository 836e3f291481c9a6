//! Where a benchmark's store lies, and how an old one is cleared away.
//!
//! A store that a benchmark made has an empty keyspace called [`MARK`]. INVARIANT: a store without
//! it is never removed, whatever the flags say: `UMBEL_DB` may point to somebody's data.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use umbel::{Db, Options};

use crate::errors::{Failure, Outcome};
use crate::output::note;

/// The keyspace that marks a store as made by a benchmark.
pub const MARK: &str = "umbel-bench";
/// How the names of temporary folders begin.
const TEMPORARY_PREFIX: &str = "umbel-bench-";

/// The folder of the store.
pub struct Folder {
    path: PathBuf,
    temporary: Option<Temporary>,
}

/// What removes a temporary folder when this process cannot.
struct Temporary {
    keep: bool,
    watcher: Option<Child>,
}

impl Folder {
    /// The folder that was named.
    pub fn named(path: &Path) -> Folder {
        Folder { path: path.to_path_buf(), temporary: None }
    }

    /// A new temporary folder. It is removed when this value is dropped, and by a watching process
    /// where this one is interrupted or killed before.
    pub fn temporary(keep: bool, wall_micros: u64) -> Outcome<Folder> {
        let parent = temporary_parent();
        let name = format!("{TEMPORARY_PREFIX}{}-{wall_micros}", std::process::id());
        let path = parent.join(&name);
        fs::create_dir(&path).map_err(|error| Failure::system("create", &path, &error))?;
        let watcher = if keep { None } else { watch(&name) };
        Ok(Folder { path, temporary: Some(Temporary { keep, watcher }) })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is temporary and will be removed.
    pub fn is_removed_at_end(&self) -> bool {
        self.temporary.as_ref().is_some_and(|temporary| !temporary.keep)
    }

    /// Makes room for a fresh store: removes the one that an earlier benchmark left here. Refuses
    /// to touch anything else.
    pub fn clear(&self, options: &Options) -> Outcome<()> {
        let entries = match fs::read_dir(&self.path) {
            Ok(entries) => entries.count(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(Failure::system("read", &self.path, &error)),
        };
        if entries == 0 {
            return Ok(());
        }
        self.require_mark(options)?;
        fs::remove_dir_all(&self.path)
            .and_then(|()| fs::create_dir(&self.path))
            .map_err(|error| Failure::system("clear", &self.path, &error))
    }

    /// Opens the store for writing, so that nobody else holds it, and looks for the mark.
    fn require_mark(&self, options: &Options) -> Outcome<()> {
        let options = Options { create_if_missing: false, ..options.clone() };
        let db = Db::open(&self.path, options)?;
        let marked = db.keyspaces().iter().any(|name| name == MARK);
        db.close()?;
        if marked {
            return Ok(());
        }
        Err(Failure::usage(format!(
            "the store in {} was not made by `umbel bench` and would be replaced; name another \
             folder with --db, or pass --use_existing_db to work on it as it is",
            self.path.display()
        )))
    }
}

impl Drop for Folder {
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

/// `TMPDIR` where it is set; else /var/tmp, which lies on a disk where /tmp may be memory.
fn temporary_parent() -> PathBuf {
    let on_disk = Path::new("/var/tmp");
    if std::env::var_os("TMPDIR").is_none() && on_disk.is_dir() {
        return on_disk.to_path_buf();
    }
    std::env::temp_dir()
}

/// Starts a process that removes the folder once this one is gone, however it went: its standard
/// input ends then. It runs in a process group of its own, where Ctrl-C does not reach it. Without
/// it the folder of an interrupted run stays, no more.
fn watch(name: &str) -> Option<Child> {
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

/// What the watching process does: waits for the end of its input, then removes the folder.
/// REQUIRES: nothing. A name that no benchmark gives is refused.
pub fn remove_when_left(name: &str) -> Outcome<()> {
    let is_ours = name.strip_prefix(TEMPORARY_PREFIX).is_some_and(|rest| {
        !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
    });
    if !is_ours {
        return Err(Failure::usage(format!("`{name}` is no temporary folder of a benchmark")));
    }
    let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
    let path = temporary_parent().join(name);
    match fs::remove_dir_all(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Failure::system("remove", &path, &error))
        }
        _ => Ok(()),
    }
}
