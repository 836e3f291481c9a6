//! [`Backups`]: backups of the store while it is served, into the directory that the operator
//! configured.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use umbel_base::ignore_poison::IgnorePoison;

use serde_json::{Map, Value, json};
use tonic::Status;
use umbel_env::{Env, Threads};
use umbel_events::{BackupReport, CopyOptions, CopyProgress, Store};

use crate::event_store::work_history::{WorkHistory, WorkOrigin, WorkOutcome};
use crate::limits::OUTCOMES_MAX;
use crate::protocol::grpc_status;

/// Backups of one store, one at a time.
pub struct Backups {
    store: Store,
    threads: Arc<dyn Threads>,
    directory: Option<PathBuf>,
    history: Arc<WorkHistory>,
    /// The last [`OUTCOMES_MAX`] backups, oldest first.
    states: Arc<Mutex<VecDeque<BackupState>>>,
}

/// State of a backup.
#[derive(Debug, Clone)]
pub struct BackupState {
    /// Id of the backup.
    pub id: String,
    /// Progress; `None` before the first byte.
    pub progress: Option<CopyProgress>,
    /// The result; `None` while the backup is running.
    pub result: Option<Result<BackupReport, String>>,
}

impl Backups {
    /// Creates the backups of a store into this directory; `None` means that no backups are
    /// possible. The history records them.
    pub fn new(
        store: Store,
        env: &Env,
        directory: Option<PathBuf>,
        history: Arc<WorkHistory>,
    ) -> Backups {
        let (threads, states) = (Arc::clone(&env.threads), Arc::default());
        Backups { store, threads, directory, history, states }
    }

    /// Outcomes of backups.
    pub fn history(&self) -> &Arc<WorkHistory> {
        &self.history
    }

    /// The directory of the backups.
    pub fn directory(&self) -> Option<&Path> {
        self.directory.as_deref()
    }

    /// Starts a backup that copies at most `bytes_per_second`; it continues after this function
    /// has returned. Returns its id, with which [`Backups::state`] finds the backup.
    ///
    /// # Errors
    /// No backup directory is configured, or a backup is running.
    pub fn start(
        &self,
        origin: WorkOrigin,
        bytes_per_second: Option<u64>,
    ) -> Result<String, Status> {
        let Some(directory) = self.directory.clone() else {
            return Err(Status::failed_precondition(
                "no backup directory is configured: start the server with --backup-dir DIR",
            ));
        };
        let id = self.store.new_id().map_err(|error| grpc_status::status(&error))?.to_string();
        {
            let mut states = self.states.lock().ignore_poison();
            if let Some(running) = states.back().filter(|state| state.result.is_none()) {
                let why = format!("a backup is already running; its id is {}", running.id);
                return Err(Status::already_exists(why));
            }
            if states.len() == OUTCOMES_MAX {
                states.pop_front();
            }
            states.push_back(BackupState { id: id.clone(), progress: None, result: None });
        }
        self.history.begin(&id, origin);
        let (store, states) = (self.store.clone(), Arc::clone(&self.states));
        let (own, history) = (id.clone(), Arc::clone(&self.history));
        let work = move || {
            // The backup has the record of its start. A failure is logged.
            let _ = history.flush(&store);
            let mut note = |progress| {
                change(&states, &own, |state| state.progress = Some(progress));
            };
            let progress: Option<&mut dyn FnMut(CopyProgress)> = Some(&mut note);
            let options = CopyOptions { bytes_per_second, progress, ..CopyOptions::default() };
            let ended = store.backup(&directory, options).map_err(|error| error.to_string());
            record_end(&history, &own, &ended);
            change(&states, &own, |state| state.result = Some(ended));
        };
        if let Err(error) = self.threads.spawn("umbel-backup", Box::new(work)) {
            self.states.lock().ignore_poison().retain(|state| state.id != id);
            let why = format!("could not start a thread for the backup: {error}");
            self.history.end(&id, WorkOutcome::Errored, Some(&why), Map::new());
            return Err(Status::unavailable(why));
        }
        Ok(id)
    }

    /// State of the backup with this id; `None` if it is none of the last [`OUTCOMES_MAX`] backups
    /// of this run of the server.
    pub fn state(&self, id: &str) -> Option<BackupState> {
        self.states.lock().ignore_poison().iter().find(|state| state.id == id).cloned()
    }

    /// State of the last backup.
    pub fn last_state(&self) -> Option<BackupState> {
        self.states.lock().ignore_poison().back().cloned()
    }

    /// Progress or result of the last backup.
    pub fn progress(&self) -> Value {
        let last = self.last_state();
        let progress = last.as_ref().and_then(|state| state.progress);
        let (bytes, total) =
            progress.map_or((0, 0), |progress| (progress.bytes, progress.total_bytes));
        let result = last.as_ref().and_then(|state| state.result.as_ref());
        json!({
            "folder": self.directory,
            "isRunning": last.as_ref().is_some_and(|state| state.result.is_none()),
            "bytes": bytes,
            "totalBytes": total,
            "through": result.and_then(|ended| Some(ended.as_ref().ok()?.through.0.to_string())),
            "error": result.and_then(|ended| ended.as_ref().err().cloned()),
        })
    }
}

/// Records the outcome of a backup.
fn record_end(history: &WorkHistory, id: &str, ended: &Result<BackupReport, String>) {
    match ended {
        Ok(report) => history.end(id, WorkOutcome::Success, None, report_json(report)),
        Err(error) => history.end(id, WorkOutcome::Errored, Some(error), Map::new()),
    }
}

/// The members of a report that the HTTP API and the history have.
pub fn report_json(report: &BackupReport) -> Map<String, Value> {
    let value = json!({
        "through": report.through.0.to_string(),
        "number": report.number,
        "files": report.files,
        "backupBytes": report.bytes,
        "copiedFiles": report.copied_files,
        "copiedBytes": report.copied_bytes,
    });
    match value {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}

/// Changes the state of the backup with this id.
fn change(states: &Mutex<VecDeque<BackupState>>, id: &str, work: impl FnOnce(&mut BackupState)) {
    let mut states = states.lock().ignore_poison();
    if let Some(state) = states.iter_mut().find(|state| state.id == id) {
        work(state);
    }
}

impl std::fmt::Debug for Backups {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Backups").field("directory", &self.directory).finish_non_exhaustive()
    }
}
