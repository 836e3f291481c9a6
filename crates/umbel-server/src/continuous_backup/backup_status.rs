//! [`ContinuousBackupStatus`]: state and lag of a continuous backup, for metrics and operators.

use std::time::Duration;

use serde_json::{Value, json};

use crate::continuous_backup::backed_up_store::{BackupProgress, StoreNames};
use crate::event_store::work_history::time_text;

/// State of a continuous backup.
#[derive(Debug, Clone)]
pub struct ContinuousBackupStatus {
    /// Names of the store.
    pub names: &'static StoreNames,
    /// Location of the backup.
    pub location: String,
    /// Age of the last moment before which everything that was written is in the backup; zero if
    /// everything is. Before the first successful run, the time since the start of the server.
    pub lag_age: Duration,
    /// Progress of the backup; the default before the first contact with the object store.
    pub progress: BackupProgress,
    /// Runs that succeeded.
    pub successes: u64,
    /// Runs that failed, attempts to reach the object store included.
    pub failures: u64,
    /// Runs that failed since the last successful run.
    pub failures_in_row: u32,
    /// Reason of the last failure, until a run succeeds.
    pub last_error: Option<String>,
    /// Start of the last successful run, in microseconds since 1970.
    pub last_success_micros: Option<u64>,
    /// Reason why there are no further runs until the server starts again.
    pub stopped: Option<String>,
    /// Reason why the last retention failed.
    pub retention_error: Option<String>,
    /// End of the last successful retention, in microseconds since 1970.
    pub retained_micros: Option<u64>,
    /// Reason why the last search for lost objects failed.
    pub search_error: Option<String>,
    /// End of the last successful search for lost objects, in microseconds since 1970.
    pub searched_micros: Option<u64>,
    /// Lost objects that searches found since the start of the server.
    pub lost_objects: u64,
    /// Runs that failed because a file of the store is damaged.
    pub damaged_runs: u64,
}

impl ContinuousBackupStatus {
    /// Name of the state.
    pub fn state_name(&self) -> &'static str {
        match () {
            () if self.stopped.is_some() => "Stopped",
            () if self.failures_in_row > 0 => "Failing",
            () if self.successes == 0 => "Starting",
            () => "Running",
        }
    }

    /// The status as the HTTP API and the console show it.
    pub fn to_json(&self) -> Value {
        let mut shown = json!({
            "location": self.location,
            "state": self.state_name(),
            "lagSeconds": self.lag_age.as_secs_f64(),
            "lastSuccess": self.last_success_micros.and_then(time_text),
            "successes": self.successes,
            "failures": self.failures,
            "failuresInRow": self.failures_in_row,
            "error": self.stopped.as_ref().or(self.last_error.as_ref()),
            "retentionError": self.retention_error,
            "lastRetention": self.retained_micros.and_then(time_text),
            "searchError": self.search_error,
            "lastSearch": self.searched_micros.and_then(time_text),
            "lostObjects": self.lost_objects,
            "uploadedBytes": self.progress.uploaded_bytes,
            "requests": self.progress.requests,
        });
        shown[self.names.lag] = json!(self.progress.lag);
        shown[self.names.end] = json!(self.progress.end.map(|end| end.to_string()));
        shown
    }
}
