//! [`Backups`]: backups of the store while it is served, into the directory that the operator
//! configured.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use umbel_base::ignore_poison::IgnorePoison;

use serde_json::{Value, json};
use tonic::Status;
use umbel_env::{Env, Threads};
use umbel_events::{BackupReport, CopyOptions, CopyProgress, Store};

/// Backups of one store, one at a time.
pub struct Backups {
    store: Store,
    threads: Arc<dyn Threads>,
    directory: Option<PathBuf>,
    last: Arc<Mutex<LastBackup>>,
}

/// State of the last backup.
#[derive(Debug, Default)]
struct LastBackup {
    is_running: bool,
    progress: Option<CopyProgress>,
    result: Option<Result<BackupReport, String>>,
}

impl Backups {
    /// Creates the backups of a store into this directory; `None` means that no backups are
    /// possible.
    pub fn new(store: Store, env: &Env, directory: Option<PathBuf>) -> Backups {
        Backups { store, threads: Arc::clone(&env.threads), directory, last: Arc::default() }
    }

    /// Starts a backup, which continues after this function has returned.
    ///
    /// # Errors
    /// No backup directory is configured, or a backup is running.
    pub fn start(&self) -> Result<(), Status> {
        let Some(directory) = self.directory.clone() else {
            return Err(Status::failed_precondition(
                "no backup directory is configured: start the server with --backup-dir DIR",
            ));
        };
        {
            let mut last = self.last.lock().ignore_poison();
            if last.is_running {
                return Err(Status::already_exists("a backup is already running"));
            }
            *last = LastBackup { is_running: true, ..LastBackup::default() };
        }
        let (store, state) = (self.store.clone(), Arc::clone(&self.last));
        let work = move || {
            let mut note = |progress| state.lock().ignore_poison().progress = Some(progress);
            let options = CopyOptions { progress: Some(&mut note), ..CopyOptions::default() };
            let ended = store.backup(&directory, options).map_err(|error| error.to_string());
            let mut last = state.lock().ignore_poison();
            (last.is_running, last.result) = (false, Some(ended));
        };
        if let Err(error) = self.threads.spawn("umbel-backup", Box::new(work)) {
            self.last.lock().ignore_poison().is_running = false;
            return Err(Status::unavailable(format!(
                "could not start a thread for the backup: {error}"
            )));
        }
        Ok(())
    }

    /// Progress or result of the last backup.
    pub fn progress(&self) -> Value {
        let last = self.last.lock().ignore_poison();
        let (bytes, total) =
            last.progress.map_or((0, 0), |progress| (progress.bytes, progress.total_bytes));
        json!({
            "folder": self.directory,
            "isRunning": last.is_running,
            "bytes": bytes,
            "totalBytes": total,
            "through": last.result.as_ref().and_then(|ended| {
                Some(ended.as_ref().ok()?.through.0.to_string())
            }),
            "error": last.result.as_ref().and_then(|ended| ended.as_ref().err().cloned()),
        })
    }
}

impl std::fmt::Debug for Backups {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Backups").field("directory", &self.directory).finish_non_exhaustive()
    }
}
