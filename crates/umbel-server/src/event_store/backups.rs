//! [`Backups`]: backups of the store while it is served, into the directory that the operator
//! configured.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use umbel_base::ignore_poison::IgnorePoison;

use serde_json::{Map, Value, json};
use tonic::Status;
use umbel_env::{Env, Threads};
use umbel_events::{
    BackupReport, CopyCancellation, CopyOptions, CopyProgress, Error, Result as StoreResult, Store,
};

use crate::event_store::work_history::{StopReason, WorkHistory, WorkOrigin, WorkOutcome};
use crate::limits::OUTCOMES_MAX;
use crate::protocol::grpc_status;

/// Backups of one store, one at a time. Dropping this value stops a running backup.
pub struct Backups {
    store: Store,
    threads: Arc<dyn Threads>,
    directory: Option<PathBuf>,
    history: Arc<WorkHistory>,
    started: Arc<Mutex<StartedBackups>>,
}

/// Backups of this run of the server.
#[derive(Debug, Default)]
struct StartedBackups {
    /// The last [`OUTCOMES_MAX`] backups, oldest first.
    backups: VecDeque<StartedBackup>,
    /// Whether no further backup may start.
    is_shut_down: bool,
}

/// A backup, running or ended.
#[derive(Debug)]
struct StartedBackup {
    state: BackupState,
    cancellation: CopyCancellation,
    stop_reason: Option<StopReason>,
}

/// Phase of a backup.
#[derive(Debug, Clone)]
pub enum BackupPhase {
    /// The backup is running.
    InProgress,
    /// The backup is complete.
    Success(BackupReport),
    /// A caller, or the stop of the server, stopped the backup.
    Stopped,
    /// The backup failed with this error.
    Errored(String),
}

/// State of a backup.
#[derive(Debug, Clone)]
pub struct BackupState {
    /// Id of the backup.
    pub id: String,
    /// Progress; `None` before the first byte.
    pub progress: Option<CopyProgress>,
    /// Phase of the backup.
    pub phase: BackupPhase,
}

impl BackupState {
    /// Whether the backup has not ended yet.
    pub fn is_running(&self) -> bool {
        matches!(self.phase, BackupPhase::InProgress)
    }
}

impl StartedBackups {
    fn find(&mut self, id: &str) -> Option<&mut StartedBackup> {
        self.backups.iter_mut().find(|backup| backup.state.id == id)
    }

    /// The running backup; only the last one can be running.
    fn running(&mut self) -> Option<&mut StartedBackup> {
        self.backups.back_mut().filter(|backup| backup.state.is_running())
    }

    /// Adds a backup that starts.
    ///
    /// # Errors
    /// A backup is running, or the server is stopping.
    fn add(&mut self, id: &str) -> Result<CopyCancellation, Status> {
        if self.is_shut_down {
            return Err(Status::unavailable("the server is stopping"));
        }
        if let Some(running) = self.running() {
            let why = format!("a backup is already running; its id is {}", running.state.id);
            return Err(Status::already_exists(why));
        }
        if self.backups.len() == OUTCOMES_MAX {
            self.backups.pop_front();
        }
        let state =
            BackupState { id: id.to_string(), progress: None, phase: BackupPhase::InProgress };
        let cancellation = CopyCancellation::default();
        self.backups.push_back(StartedBackup {
            state,
            cancellation: cancellation.clone(),
            stop_reason: None,
        });
        Ok(cancellation)
    }
}

impl StartedBackup {
    /// Requests the end. The reason of the first request counts.
    fn stop(&mut self, reason: StopReason) {
        self.stop_reason.get_or_insert(reason);
        self.cancellation.cancel();
    }
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
        let (threads, started) = (Arc::clone(&env.threads), Arc::default());
        Backups { store, threads, directory, history, started }
    }

    /// Outcomes of backups.
    pub fn history(&self) -> &Arc<WorkHistory> {
        &self.history
    }

    /// The directory of the backups.
    pub fn directory(&self) -> Option<&Path> {
        self.directory.as_deref()
    }

    fn started(&self) -> MutexGuard<'_, StartedBackups> {
        self.started.lock().ignore_poison()
    }

    /// Starts a backup that copies at most `bytes_per_second`; it continues after this function
    /// has returned. Returns its id, with which [`Backups::state`] finds the backup.
    ///
    /// # Errors
    /// No backup directory is configured, a backup is running, or the server is stopping.
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
        let cancellation = self.started().add(&id)?;
        self.history.begin(&id, origin);
        let (store, started) = (self.store.clone(), Arc::clone(&self.started));
        let (own, history) = (id.clone(), Arc::clone(&self.history));
        let work = move || {
            // The backup has the record of its start. A failure is logged.
            let _ = history.flush(&store);
            let mut note = |progress| {
                if let Some(backup) = started.lock().ignore_poison().find(&own) {
                    backup.state.progress = Some(progress);
                }
            };
            let progress: Option<&mut dyn FnMut(CopyProgress)> = Some(&mut note);
            let options =
                CopyOptions { bytes_per_second, progress, cancellation, ..CopyOptions::default() };
            let ended = store.backup(&directory, options);
            record_end(&history, &started, &own, ended);
        };
        if let Err(error) = self.threads.spawn("umbel-backup", Box::new(work)) {
            self.started().backups.retain(|backup| backup.state.id != id);
            let why = format!("could not start a thread for the backup: {error}");
            self.history.end(&id, WorkOutcome::Errored, Some(&why), Map::new());
            return Err(Status::unavailable(why));
        }
        Ok(id)
    }

    /// Stops the backup with this id. The backup ends after its present block. The previous backup
    /// in the directory stays, and the next one reuses the complete files.
    ///
    /// # Errors
    /// The backup has ended, or there is none with this id.
    pub fn stop(&self, id: &str, reason: StopReason) -> Result<(), Status> {
        let mut started = self.started();
        let has_ended = match started.find(id) {
            Some(backup) if backup.state.is_running() => {
                backup.stop(reason);
                return Ok(());
            }
            Some(_) => true,
            // An earlier run of the server may have started it.
            None => self.history.record(id).is_some(),
        };
        Err(match has_ended {
            true => Status::failed_precondition("the backup has already ended"),
            false => Status::not_found("the history has no backup with this id"),
        })
    }

    /// Requests that a running backup stops, because the server stops, and refuses further ones.
    pub fn shut_down(&self) {
        let mut started = self.started();
        started.is_shut_down = true;
        if let Some(running) = started.running() {
            running.stop(StopReason::Shutdown);
        }
    }

    /// State of the backup with this id; `None` if it is none of the last [`OUTCOMES_MAX`] backups
    /// of this run of the server.
    pub fn state(&self, id: &str) -> Option<BackupState> {
        self.started().find(id).map(|backup| backup.state.clone())
    }

    /// State of the last backup.
    pub fn last_state(&self) -> Option<BackupState> {
        self.started().backups.back().map(|backup| backup.state.clone())
    }

    /// State of the running backup.
    pub fn running_state(&self) -> Option<BackupState> {
        self.started().running().map(|backup| backup.state.clone())
    }

    /// Progress or result of the last backup.
    pub fn progress(&self) -> Value {
        let last = self.last_state();
        let progress = last.as_ref().and_then(|state| state.progress);
        let (bytes, total) =
            progress.map_or((0, 0), |progress| (progress.bytes, progress.total_bytes));
        let phase = last.as_ref().map(|state| &state.phase);
        let (through, error) = match phase {
            Some(BackupPhase::Success(report)) => (Some(report.through.0.to_string()), None),
            Some(BackupPhase::Errored(error)) => (None, Some(error)),
            _ => (None, None),
        };
        json!({
            "id": last.as_ref().map(|state| &state.id),
            "folder": self.directory,
            "isRunning": matches!(phase, Some(BackupPhase::InProgress)),
            "isStopped": matches!(phase, Some(BackupPhase::Stopped)),
            "bytes": bytes,
            "totalBytes": total,
            "through": through,
            "error": error,
        })
    }
}

impl Drop for Backups {
    fn drop(&mut self) {
        self.shut_down();
    }
}

/// Records the outcome of a backup.
fn record_end(
    history: &WorkHistory,
    started: &Mutex<StartedBackups>,
    id: &str,
    ended: StoreResult<BackupReport>,
) {
    let reason = started.lock().ignore_poison().find(id).and_then(|backup| backup.stop_reason);
    let phase = match ended {
        Ok(report) => {
            history.end(id, WorkOutcome::Success, None, report_json(&report));
            BackupPhase::Success(report)
        }
        Err(Error::Cancelled) => {
            let (outcome, why) = match reason {
                Some(StopReason::Shutdown) => (
                    WorkOutcome::Interrupted,
                    Some("the server stopped; the next backup reuses the complete files"),
                ),
                _ => (WorkOutcome::Stopped, None),
            };
            history.end(id, outcome, why, Map::new());
            BackupPhase::Stopped
        }
        Err(error) => {
            let error = error.to_string();
            history.end(id, WorkOutcome::Errored, Some(&error), Map::new());
            BackupPhase::Errored(error)
        }
    };
    if let Some(backup) = started.lock().ignore_poison().find(id) {
        backup.state.phase = phase;
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

impl std::fmt::Debug for Backups {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Backups").field("directory", &self.directory).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;
    use umbel_events::StoreOptions;

    use super::*;
    use crate::event_store::work_history::WorkKind;

    #[test]
    fn no_backup_starts_once_the_server_stops() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path().join("events"), StoreOptions::default()).unwrap();
        let (env, target) = (Env::system(), directory.path().join("copy"));
        let history = WorkHistory::read(WorkKind::Backup, &store, Arc::clone(&env.clock)).unwrap();
        let backups = Backups::new(store.clone(), &env, Some(target), Arc::new(history));
        backups.shut_down();
        let refused = backups.start(WorkOrigin::default(), None).unwrap_err();
        assert_eq!(refused.code(), Code::Unavailable);
        assert!(backups.last_state().is_none() && backups.history().records().is_empty());
        store.close().unwrap();
    }
}
