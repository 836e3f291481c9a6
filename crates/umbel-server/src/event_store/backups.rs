//! [`Backups`]: copies of the store while it is served, into the folder that whoever runs the
//! server named.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use tonic::Status;
use umbel_env::{Env, Threads};
use umbel_events::{BackupReport, CopyOptions, CopyProgress, Store};

/// Backups of one store, one at a time.
pub struct Backups {
    store: Store,
    threads: Arc<dyn Threads>,
    folder: Option<PathBuf>,
    last: Arc<Mutex<Last>>,
}

/// What is known of the last one.
#[derive(Debug, Default)]
struct Last {
    is_running: bool,
    progress: Option<CopyProgress>,
    ended: Option<Result<BackupReport, String>>,
}

impl Backups {
    /// Backups into this folder; none where nobody named one.
    pub fn new(store: Store, env: &Env, folder: Option<PathBuf>) -> Backups {
        Backups { store, threads: Arc::clone(&env.threads), folder, last: Arc::default() }
    }

    /// Begins one. It goes on after the call.
    ///
    /// # Errors
    /// Nobody named a folder, or one is under way.
    pub fn start(&self) -> Result<(), Status> {
        let Some(folder) = self.folder.clone() else {
            return Err(Status::failed_precondition(
                "nobody said where to: start the server with --backup-dir DIR",
            ));
        };
        {
            let mut last = locked(&self.last);
            if last.is_running {
                return Err(Status::already_exists("a backup is under way"));
            }
            *last = Last { is_running: true, ..Last::default() };
        }
        let (store, state) = (self.store.clone(), Arc::clone(&self.last));
        let work = move || {
            let mut note = |progress| locked(&state).progress = Some(progress);
            let options = CopyOptions { progress: Some(&mut note), ..CopyOptions::default() };
            let ended = store.backup(&folder, options).map_err(|error| error.to_string());
            let mut last = locked(&state);
            (last.is_running, last.ended) = (false, Some(ended));
        };
        if let Err(error) = self.threads.spawn("umbel-backup", Box::new(work)) {
            locked(&self.last).is_running = false;
            return Err(Status::unavailable(format!("no thread for a backup: {error}")));
        }
        Ok(())
    }

    /// How far the last one is, or what came of it.
    pub fn progress(&self) -> Value {
        let last = locked(&self.last);
        let (bytes, total) =
            last.progress.map_or((0, 0), |progress| (progress.bytes, progress.total_bytes));
        json!({
            "folder": self.folder,
            "isRunning": last.is_running,
            "bytes": bytes,
            "totalBytes": total,
            "through": last.ended.as_ref().and_then(|ended| {
                Some(ended.as_ref().ok()?.through.0.to_string())
            }),
            "error": last.ended.as_ref().and_then(|ended| ended.as_ref().err().cloned()),
        })
    }
}

fn locked(last: &Mutex<Last>) -> MutexGuard<'_, Last> {
    last.lock().unwrap_or_else(PoisonError::into_inner)
}

impl std::fmt::Debug for Backups {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Backups").field("folder", &self.folder).finish_non_exhaustive()
    }
}
