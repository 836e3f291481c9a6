//! Directory of a benchmark's store, and removal of an old store.
//!
//! A store that a benchmark made has an empty keyspace called [`MARKER_KEYSPACE`]. INVARIANT: a
//! store without that keyspace is never removed, whatever the flags: `UMBEL_DB` may name user data.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use umbel::{Db, Options};

use crate::errors::{CommandError, CommandResult};
use crate::io::temporary_directory::{BENCH_PREFIX, TemporaryDirectory};

/// The keyspace that marks a store as made by a benchmark.
pub const MARKER_KEYSPACE: &str = "umbel-bench";

/// Directory of the store that a run uses.
pub struct StoreDirectory {
    path: PathBuf,
    /// Guard of a temporary directory that is removed.
    temporary: Option<TemporaryDirectory>,
}

impl StoreDirectory {
    /// Uses the directory that `--db` or `UMBEL_DB` names.
    pub fn named(path: &Path) -> StoreDirectory {
        StoreDirectory { path: path.to_path_buf(), temporary: None }
    }

    /// Creates a temporary directory, which is removed when this value is dropped, unless `keep` is
    /// set.
    pub fn temporary(keep: bool, wall_micros: u64) -> CommandResult<StoreDirectory> {
        if keep {
            let path = TemporaryDirectory::create_kept(BENCH_PREFIX, wall_micros)?;
            return Ok(StoreDirectory { path, temporary: None });
        }
        let temporary = TemporaryDirectory::create(BENCH_PREFIX, wall_micros)?;
        Ok(StoreDirectory { path: temporary.path().to_path_buf(), temporary: Some(temporary) })
    }

    /// Path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the directory is temporary and will be removed.
    pub fn is_removed_at_end(&self) -> bool {
        self.temporary.is_some()
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
