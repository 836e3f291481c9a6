//! [`ContinuousBackup`]: the thread that backs up a served store into an object store.
//!
//! INVARIANTS:
//! 1. Only this thread waits for the object store. A start waits for its first outcome for
//!    [`BACKUP_START_TIME`] at most, a shutdown for the last run for [`BACKUP_LAST_RUN_TIME`].
//!    No lock is held while it waits or logs, so no call waits for it.
//! 2. A backup that was refused for good stays stopped until the server starts again: what refused
//!    it, such as another server at the same prefix, does not end by itself.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::{Value, json};
use umbel_base::ignore_poison::IgnorePoison;
use umbel_env::{Env, ObjectErrorKind, Objects};
use umbel_events::{
    ObjectBackup, ObjectBackupError, ObjectBackupErrorKind, ObjectBackupOptions,
    ObjectBackupResult, ObjectBackupState, ObjectRequestOptions, Store,
};

use crate::event_store::work_history::time_text;
use crate::limits::{
    BACKUP_CANCEL_TIME, BACKUP_INTERVAL, BACKUP_LAST_RUN_TIME, BACKUP_PAUSE_MAX, BACKUP_RETRY_TIME,
    BACKUP_START_TIME, RETENTION_INTERVAL,
};

/// The largest exponent of the pauses between failed runs.
const PAUSE_DOUBLINGS_MAX: u32 = 16;

/// Backup of a served store into an object store.
#[derive(Debug, Clone)]
pub struct ObjectBackupConfig {
    /// The object store, below the prefix of the backup.
    pub objects: Arc<dyn Objects>,
    /// Checks the object store before the first run.
    pub check: fn(&Env, &dyn Objects) -> ObjectBackupResult<()>,
    /// Pause between two runs. A run without new events sends no request.
    pub interval: Duration,
    /// Age from which on earlier states of the backup are deleted; `None` keeps all.
    pub keep: Option<Duration>,
    /// Options of the requests. Their cancellation flag is replaced.
    pub requests: ObjectRequestOptions,
}

impl ObjectBackupConfig {
    /// Returns the default options of a backup into these objects.
    pub fn new(objects: Arc<dyn Objects>) -> ObjectBackupConfig {
        let retry_for = BACKUP_RETRY_TIME;
        ObjectBackupConfig {
            objects,
            check: |_, _| Ok(()),
            interval: BACKUP_INTERVAL,
            keep: None,
            requests: ObjectRequestOptions { retry_for, ..ObjectRequestOptions::default() },
        }
    }
}

/// The thread that backs up a served store into an object store.
#[derive(Debug)]
pub struct ContinuousBackup {
    shared: Arc<Shared>,
}

/// State that the thread shares.
#[derive(Debug)]
struct Shared {
    store: Store,
    env: Env,
    config: ObjectBackupConfig,
    cancel: Arc<AtomicBool>,
    /// Time of the monotonic clock at the start.
    started: Duration,
    state: Mutex<RunState>,
    changed: Condvar,
}

/// State of the runs.
#[derive(Debug, Default)]
struct RunState {
    /// The backup, once the object store accepted it.
    backup: Option<Arc<ObjectBackup>>,
    /// Whether the object store accepted the backup, or the first attempt has failed, or the start
    /// of the server does not wait for it any more.
    has_begun: bool,
    /// Reason of the first failure, if it prevents the start of the server.
    start_error: Option<String>,
    /// Reason why there are no further runs.
    stopped: Option<String>,
    successes: u64,
    failures: u64,
    failures_in_row: u32,
    last_error: Option<(ObjectBackupErrorKind, String)>,
    /// Start of the last successful run, by the monotonic clock and by the wall clock.
    last_success: Option<(Duration, u64)>,
    last_retention: Option<Duration>,
    retention_error: Option<String>,
    is_ending: bool,
    has_ended: bool,
}

/// Distance from the end of the backup to the end of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackupLag {
    /// Bytes of the log after the last event in the backup; `None` before the first contact with
    /// the object store.
    pub bytes: Option<u64>,
    /// Age of the last moment before which everything that was appended is in the backup; zero if
    /// everything is. Before the first successful run, the time since the start of the server.
    pub age: Duration,
}

/// State of a continuous backup, for metrics and operators.
#[derive(Debug, Clone)]
pub struct ContinuousBackupStatus {
    /// Location of the backup.
    pub location: String,
    /// Lag of the backup.
    pub lag: BackupLag,
    /// State of the backup; the default before the first contact with the object store.
    pub backup: ObjectBackupState,
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
}

impl ContinuousBackup {
    /// Starts the thread, and waits for the outcome of its first attempt for a few seconds.
    ///
    /// # Errors
    /// The reason why the object store, or the backup in it, cannot be the one of this store.
    pub fn start(
        store: Store,
        env: &Env,
        config: ObjectBackupConfig,
    ) -> Result<ContinuousBackup, String> {
        let shared = Arc::new(Shared {
            store,
            env: env.clone(),
            config,
            cancel: Arc::default(),
            started: env.clock.now(),
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let own = Arc::clone(&shared);
        let spawned = env.threads.spawn("umbel-backup-to", Box::new(move || own.run()));
        spawned.map_err(|error| format!("could not start a thread for the backup: {error}"))?;
        // A failed start drops it, which ends the thread.
        let backup = ContinuousBackup { shared };
        let mut begun = backup.shared.wait_until(BACKUP_START_TIME, |state| state.has_begun);
        // A later failure does not prevent the start.
        begun.has_begun = true;
        let refused = begun.start_error.clone();
        drop(begun);
        refused.map_or(Ok(backup), Err)
    }

    /// Makes a last run, and ends the thread. A run that takes longer than some seconds is
    /// cancelled; the next start of the server continues it.
    pub fn finish(&self) {
        self.shared.end();
        let mut has_ended =
            self.shared.wait_until(BACKUP_LAST_RUN_TIME, |state| state.has_ended).has_ended;
        if !has_ended {
            self.shared.cancel.store(true, Ordering::Relaxed);
            has_ended =
                self.shared.wait_until(BACKUP_CANCEL_TIME, |state| state.has_ended).has_ended;
        }
        let ContinuousBackupStatus { lag, last_error, location, .. } = self.status();
        match lag.bytes {
            Some(0) => tracing::info!(to = location, "the backup has every event"),
            lag_bytes => tracing::warn!(
                to = location,
                lag_bytes,
                reason = last_error,
                is_hanging = !has_ended,
                "the backup lacks the last events; the next start of the server continues it"
            ),
        }
    }

    /// State and lag.
    pub fn status(&self) -> ContinuousBackupStatus {
        self.shared.status()
    }
}

impl Drop for ContinuousBackup {
    fn drop(&mut self) {
        self.shared.cancel.store(true, Ordering::Relaxed);
        self.shared.end();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, RunState> {
        self.state.lock().ignore_poison()
    }

    /// Waits until the state fulfils a condition, or for this time.
    fn wait_until(
        &self,
        time: Duration,
        is_fulfilled: impl Fn(&RunState) -> bool,
    ) -> MutexGuard<'_, RunState> {
        let state = self.state();
        let waited = self.changed.wait_timeout_while(state, time, |state| !is_fulfilled(state));
        waited.ignore_poison().0
    }

    fn end(&self) {
        self.state().is_ending = true;
        self.changed.notify_all();
    }

    /// Backs up until the server stops, and then once more.
    fn run(&self) {
        let _end = EndOfThread(self);
        let mut pause = self.run_once();
        while let Some(time) = pause {
            if self.wait_until(time, |state| state.is_ending).is_ending {
                self.run_once();
                return;
            }
            pause = self.run_once();
        }
    }

    /// Makes a run. Returns the pause before the next one; `None` if there is none.
    fn run_once(&self) -> Option<Duration> {
        if self.cancel.load(Ordering::Relaxed) {
            return None;
        }
        let began = (self.env.clock.now(), self.env.clock.wall_micros());
        let outcome = self.opened().and_then(|backup| {
            backup.run_once()?;
            Ok(backup)
        });
        let (pause, backup) = match outcome {
            Ok(backup) => (Some(self.record_success(began)), Some(backup)),
            Err(error) => (self.record_failure(&error), None),
        };
        self.changed.notify_all();
        if let (Some(backup), Some(keep)) = (backup, self.config.keep) {
            self.retain_if_due(&backup, keep);
        }
        pause
    }

    /// Returns the backup. The first call asks the object store for it.
    fn opened(&self) -> ObjectBackupResult<Arc<ObjectBackup>> {
        if let Some(backup) = &self.state().backup {
            return Ok(Arc::clone(backup));
        }
        let objects = &self.config.objects;
        (self.config.check)(&self.env, &**objects)?;
        let cancel = Some(Arc::clone(&self.cancel));
        let requests = ObjectRequestOptions { cancel, ..self.config.requests.clone() };
        let options = ObjectBackupOptions { requests, ..ObjectBackupOptions::default() };
        let backup = Arc::new(self.store.object_backup(Arc::clone(objects), options)?);
        let mut state = self.state();
        state.backup = Some(Arc::clone(&backup));
        // The object store accepted the backup, so that the server can start: its first run can
        // take hours.
        state.has_begun = true;
        self.changed.notify_all();
        Ok(backup)
    }

    /// Records that a run which began at this time succeeded. Returns the pause after it.
    fn record_success(&self, began: (Duration, u64)) -> Duration {
        let (is_first, failed_runs) = {
            let mut state = self.state();
            let is_first = state.last_success.replace(began).is_none();
            state.successes += 1;
            state.last_error = None;
            (is_first, std::mem::take(&mut state.failures_in_row))
        };
        let to = self.config.objects.location();
        match (is_first, failed_runs) {
            (_, 1..) => tracing::info!(to, failed_runs, "the continuous backup succeeds again"),
            (true, 0) => tracing::info!(to, "the continuous backup has every event"),
            (false, 0) => {}
        }
        self.config.interval
    }

    /// Records that a run failed. Returns the pause after it; `None` if no later run can succeed.
    fn record_failure(&self, error: &ObjectBackupError) -> Option<Duration> {
        let (kind, reason) = (error.kind(), error.to_string());
        if kind == ObjectBackupErrorKind::Cancelled {
            return None;
        }
        let is_final = matches!(error, ObjectBackupError::Refused(_));
        let (is_repetition, failures_in_row) = {
            let mut state = self.state();
            let is_first = !std::mem::replace(&mut state.has_begun, true);
            state.failures += 1;
            state.failures_in_row = state.failures_in_row.saturating_add(1);
            if is_first && prevents_start(error) {
                state.start_error = Some(reason);
                return None;
            }
            if is_final {
                state.stopped = Some(reason.clone());
            }
            let earlier = state.last_error.replace((kind, reason.clone()));
            (earlier.is_some_and(|(earlier, _)| earlier == kind), state.failures_in_row)
        };
        let to = self.config.objects.location();
        if is_final {
            tracing::error!(to, reason, "the continuous backup has stopped until a restart");
            return None;
        }
        match kind {
            // A repetition is in the metrics only.
            _ if is_repetition => {}
            ObjectBackupErrorKind::Retry => {
                tracing::warn!(to, reason, "the continuous backup failed, and is repeated");
            }
            _ => tracing::error!(to, reason, "the continuous backup failed, and is repeated"),
        }
        let doublings = failures_in_row.min(PAUSE_DOUBLINGS_MAX);
        let pause = self.config.interval.saturating_mul(1 << doublings);
        Some(pause.min(BACKUP_PAUSE_MAX).max(self.config.interval))
    }

    /// Deletes what only expired states need, unless it was done lately.
    fn retain_if_due(&self, backup: &ObjectBackup, keep: Duration) {
        let now = self.env.clock.now();
        {
            let mut state = self.state();
            let is_early = |last| now.saturating_sub(last) < RETENTION_INTERVAL;
            if state.is_ending || state.last_retention.is_some_and(is_early) {
                return;
            }
            state.last_retention = Some(now);
        }
        let retained = backup.retain(keep);
        let to = self.config.objects.location();
        let error = match retained {
            Ok(report) => {
                if report.deleted_manifests + report.deleted_pieces > 0 {
                    tracing::info!(
                        to,
                        manifests = report.deleted_manifests,
                        objects = report.deleted_pieces,
                        bytes = report.deleted_bytes,
                        "expired states of the backup were deleted"
                    );
                }
                None
            }
            Err(ObjectBackupError::Cancelled) => return,
            Err(error) => Some(error.to_string()),
        };
        let earlier = std::mem::replace(&mut self.state().retention_error, error.clone());
        if let Some(reason) = error.filter(|_| earlier.is_none()) {
            tracing::warn!(to, reason, "expired states of the backup could not be deleted");
        }
    }

    fn status(&self) -> ContinuousBackupStatus {
        // Before the end of the backup, which can be later then, but not earlier.
        let visible = self.store.visible_position();
        let now = self.env.clock.now();
        let state = self.state();
        let backup = state.backup.as_ref().map(|backup| backup.state()).unwrap_or_default();
        let bytes = backup.through.map(|through| visible.0.saturating_sub(through.0));
        let is_behind = bytes.unwrap_or(visible.0) > 0;
        let since = state.last_success.map_or(self.started, |(began, _)| began);
        let age = if is_behind { now.saturating_sub(since) } else { Duration::ZERO };
        ContinuousBackupStatus {
            location: self.config.objects.location().to_owned(),
            lag: BackupLag { bytes, age },
            backup,
            successes: state.successes,
            failures: state.failures,
            failures_in_row: state.failures_in_row,
            last_error: state.last_error.as_ref().map(|(_, reason)| reason.clone()),
            last_success_micros: state.last_success.map(|(_, micros)| micros),
            stopped: state.stopped.clone(),
            retention_error: state.retention_error.clone(),
        }
    }
}

/// Whether a first failure prevents the start of the server: the operator named the wrong place.
/// Missing credentials and damaged objects can also come later, and do not prevent a restart.
fn prevents_start(error: &ObjectBackupError) -> bool {
    match error {
        ObjectBackupError::Refused(_) => true,
        ObjectBackupError::Objects(error) => error.kind == ObjectErrorKind::Refused,
        _ => false,
    }
}

/// Reports the end of the thread, also after a panic.
struct EndOfThread<'a>(&'a Shared);

impl Drop for EndOfThread<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        if std::thread::panicking() {
            let reason = "internal: the thread of the backup panicked; restart the server";
            state.stopped = Some(reason.to_owned());
        }
        (state.has_begun, state.has_ended) = (true, true);
        drop(state);
        self.0.changed.notify_all();
    }
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
        json!({
            "location": self.location,
            "state": self.state_name(),
            "position": self.backup.through.map(|through| through.0.to_string()),
            "lagBytes": self.lag.bytes,
            "lagSeconds": self.lag.age.as_secs_f64(),
            "lastSuccess": self.last_success_micros.and_then(time_text),
            "successes": self.successes,
            "failures": self.failures,
            "failuresInRow": self.failures_in_row,
            "error": self.stopped.as_ref().or(self.last_error.as_ref()),
            "retentionError": self.retention_error,
            "uploadedBytes": self.backup.uploaded_bytes,
            "requests": self.backup.requests,
        })
    }
}
