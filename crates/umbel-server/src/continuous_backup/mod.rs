//! [`ContinuousBackup`]: the thread that backs up a store of the server into an object store.
//!
//! INVARIANTS:
//! 1. Only this thread and that of the upkeep wait for the object store. A start waits for its
//!    first outcome for [`BACKUP_START_TIME`] at most, a shutdown for the last run for
//!    [`BACKUP_LAST_RUN_TIME`]. No lock is held while they wait or log, so no call waits for them.
//! 2. A backup that was refused for good stays stopped until the server starts again: what refused
//!    it, such as another server at the same prefix, does not end by itself.
//! 3. The upkeep does not delay a run: a search for lost objects and a retention can list and
//!    delete millions of objects, which takes hours. They share a thread of their own, one at a
//!    time, and end after the last run.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::Value;
use umbel_base::damage_count::StoreError;
use umbel_base::ignore_poison::IgnorePoison;
use umbel_env::{Env, JobThread, ObjectErrorKind, Objects};
use umbel_events::{
    ObjectBackupError, ObjectBackupErrorKind, ObjectBackupResult, ObjectRequestOptions,
};

use crate::continuous_backup::backed_up_store::{BackedUpStore, StartedBackup};
use crate::continuous_backup::backup_status::ContinuousBackupStatus;
use crate::limits::{
    BACKUP_CANCEL_TIME, BACKUP_INTERVAL, BACKUP_LAST_RUN_TIME, BACKUP_PAUSE_MAX, BACKUP_RETRY_TIME,
    BACKUP_START_TIME, LOST_OBJECTS_INTERVAL, LOST_OBJECTS_RETRY_TIME, RETENTION_INTERVAL,
    RETENTION_INTERVAL_MAX, RETENTIONS_PER_AGE,
};

pub mod backed_up_store;
pub mod backup_status;

/// The largest exponent of the pauses between failed runs.
const PAUSE_DOUBLINGS_MAX: u32 = 16;

/// Backup of a store of the server into an object store.
#[derive(Debug, Clone)]
pub struct ObjectBackupConfig {
    /// The object store, below the prefix of the backup.
    pub objects: Arc<dyn Objects>,
    /// Checks the object store before the first run.
    pub check: fn(&Env, &dyn Objects) -> ObjectBackupResult<()>,
    /// Pause between two runs. A run without new data sends no request.
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

/// The thread that backs up a store of the server into an object store.
#[derive(Debug)]
pub struct ContinuousBackup {
    shared: Arc<Shared>,
}

/// State that the thread shares.
#[derive(Debug)]
struct Shared {
    store: Box<dyn BackedUpStore>,
    env: Env,
    config: ObjectBackupConfig,
    cancel: Arc<AtomicBool>,
    /// Time of the monotonic clock at the start.
    started: Duration,
    state: Mutex<RunState>,
    changed: Condvar,
    upkeep: JobThread,
}

/// State of the runs.
#[derive(Debug, Default)]
struct RunState {
    /// The backup, once the object store accepted it.
    backup: Option<Arc<dyn StartedBackup>>,
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
    /// End of the last successful retention, by the wall clock.
    retained_micros: Option<u64>,
    /// Time of the monotonic clock from which on the next search is due.
    next_search: Duration,
    search_error: Option<String>,
    /// End of the last successful search for lost objects, by the wall clock.
    searched_micros: Option<u64>,
    /// Lost objects that searches found.
    lost_objects: u64,
    /// Runs that failed because a file of the store is damaged.
    damaged_runs: u64,
    /// Whether the upkeep runs.
    is_in_upkeep: bool,
    is_ending: bool,
    has_ended: bool,
}

impl ContinuousBackup {
    /// Starts the threads that back up these stores, and waits for the outcomes of their first
    /// attempts for a few seconds.
    ///
    /// # Errors
    /// The reason why an object store, or the backup in it, cannot be the one of its store.
    pub fn start(
        env: &Env,
        stores: Vec<(Box<dyn BackedUpStore>, ObjectBackupConfig)>,
    ) -> Result<Vec<Arc<ContinuousBackup>>, String> {
        // A failed start drops them, which ends their threads.
        let mut backups: Vec<Arc<ContinuousBackup>> = Vec::new();
        for (store, config) in stores {
            let after = backups.last().map(|before| Arc::clone(&before.shared));
            let spawned = ContinuousBackup::spawn(env, store, config, after);
            let failed = |error| format!("could not start a thread for the backup: {error}");
            backups.push(Arc::new(spawned.map_err(failed)?));
        }
        let end = env.clock.now() + BACKUP_START_TIME;
        for backup in &backups {
            let mut begun = backup.shared.wait_until(end, |state| state.has_begun);
            // A later failure does not prevent the start.
            begun.has_begun = true;
            if let Some(refused) = begun.start_error.clone() {
                return Err(refused);
            }
        }
        Ok(backups)
    }

    fn spawn(
        env: &Env,
        store: Box<dyn BackedUpStore>,
        config: ObjectBackupConfig,
        after: Option<Arc<Shared>>,
    ) -> umbel_base::Result<ContinuousBackup> {
        let shared = Arc::new(Shared {
            store,
            env: env.clone(),
            config,
            cancel: Arc::default(),
            started: env.clock.now(),
            state: Mutex::default(),
            changed: Condvar::new(),
            upkeep: JobThread::new("umbel-backup-keep"),
        });
        let own = Arc::clone(&shared);
        env.threads.spawn("umbel-backup-to", Box::new(move || own.run(after.as_deref())))?;
        Ok(ContinuousBackup { shared })
    }

    /// Makes last runs, and ends the threads. A run that takes longer than some seconds is
    /// cancelled; the next start of the server continues it.
    pub fn finish(backups: &[Arc<ContinuousBackup>]) {
        let Some(first) = backups.first() else { return };
        backups.iter().for_each(|backup| backup.shared.end());
        let end = first.shared.env.clock.now() + BACKUP_LAST_RUN_TIME;
        for backup in backups {
            if !backup.shared.wait_until(end, |state| state.has_ended).has_ended {
                backup.shared.cancel.store(true, Ordering::Relaxed);
            }
        }
        for backup in backups {
            let end = end + BACKUP_CANCEL_TIME;
            let has_ended = backup.shared.wait_until(end, |state| state.has_ended).has_ended;
            backup.log_end(has_ended);
            // The upkeep ends at its next request; until then it holds the store open.
            let end = backup.shared.env.clock.now() + BACKUP_CANCEL_TIME;
            drop(backup.shared.wait_until(end, |state| !state.is_in_upkeep));
        }
    }

    /// Logs whether the backup has everything.
    fn log_end(&self, has_ended: bool) {
        let ContinuousBackupStatus { names, progress, last_error, location, stopped, .. } =
            self.status();
        let data = names.data;
        match progress.lag {
            lag if stopped.is_some() => tracing::error!(
                to = location,
                lag,
                reason = stopped,
                "the backup has stopped, and lacks the last {data}"
            ),
            Some(0) => tracing::info!(to = location, "the backup has all {data}"),
            lag => tracing::warn!(
                to = location,
                lag,
                reason = last_error,
                is_hanging = !has_ended,
                "the backup lacks the last {data}; the next start of the server continues it"
            ),
        }
    }

    /// Adds the states of the backups to an object of JSON.
    pub fn show_all(backups: &[Arc<ContinuousBackup>], shown: &mut Value) {
        for status in backups.iter().map(|backup| backup.status()) {
            shown[status.names.field] = status.to_json();
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

    /// Waits until the state fulfils a condition, or until this time of the monotonic clock.
    fn wait_until(
        &self,
        end: Duration,
        is_fulfilled: impl Fn(&RunState) -> bool,
    ) -> MutexGuard<'_, RunState> {
        let time = end.saturating_sub(self.env.clock.now());
        let state = self.state();
        let waited = self.changed.wait_timeout_while(state, time, |state| !is_fulfilled(state));
        waited.ignore_poison().0
    }

    fn end(&self) {
        self.state().is_ending = true;
        self.changed.notify_all();
    }

    /// Backs up until the server stops, and then once more.
    fn run(self: &Arc<Self>, after: Option<&Shared>) {
        let _end = EndOfThread(self);
        if !after.is_none_or(|earlier| self.wait_for(earlier)) {
            return;
        }
        let mut pause = self.run_once();
        while let Some(time) = pause {
            let end = self.env.clock.now() + time;
            if self.wait_until(end, |state| state.is_ending).is_ending {
                self.run_once();
                return;
            }
            pause = self.run_once();
        }
    }

    /// Waits until the object store has accepted an earlier backup of the server. Until then the
    /// prefix can be that of another server, into which this backup must not write. Returns whether
    /// the backup can begin.
    fn wait_for(&self, earlier: &Shared) -> bool {
        let is_undecided =
            |state: &mut RunState| state.backup.is_none() && !state.is_ending && !state.has_ended;
        let state = earlier.state();
        let state = earlier.changed.wait_while(state, is_undecided).ignore_poison();
        let (is_accepted, is_ending) = (state.backup.is_some(), state.is_ending);
        let reason = state.start_error.clone().or_else(|| state.stopped.clone());
        drop(state);
        if !is_accepted && !is_ending {
            let data = earlier.store.names().data;
            let reason = reason.unwrap_or_default();
            self.state().stopped = Some(format!("the backup of {data} cannot begin: {reason}"));
        }
        is_accepted
    }

    /// Makes a run. Returns the pause before the next one; `None` if there is none.
    fn run_once(self: &Arc<Self>) -> Option<Duration> {
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
            Err(error) => {
                let pause = self.record_failure(&error);
                // A damaged local file fails each run, but must not end retentions.
                let is_local = matches!(error, ObjectBackupError::Store(_));
                (pause, self.state().backup.clone().filter(|_| is_local && pause.is_some()))
            }
        };
        self.changed.notify_all();
        if let Some(backup) = backup {
            self.maintain_if_due(backup);
        }
        pause
    }

    /// Returns the backup. The first call asks the object store for it.
    fn opened(&self) -> ObjectBackupResult<Arc<dyn StartedBackup>> {
        if let Some(backup) = &self.state().backup {
            return Ok(Arc::clone(backup));
        }
        let objects = &self.config.objects;
        (self.config.check)(&self.env, &**objects)?;
        let cancel = Some(Arc::clone(&self.cancel));
        let requests = ObjectRequestOptions { cancel, ..self.config.requests.clone() };
        let backup = self.store.begin(Arc::clone(objects), requests)?;
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
            (true, 0) => {
                tracing::info!(to, "the continuous backup has all {}", self.store.names().data);
            }
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
        let is_damage = error.is_store_damage();
        let (is_repetition, failures_in_row) = {
            let mut state = self.state();
            let is_first = !std::mem::replace(&mut state.has_begun, true);
            state.failures += 1;
            state.damaged_runs += u64::from(is_damage);
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

    /// Starts the upkeep, unless it runs or nothing of it is due.
    fn maintain_if_due(self: &Arc<Self>, backup: Arc<dyn StartedBackup>) {
        let now = self.env.clock.now();
        let is_due = |last: Option<Duration>, interval| {
            last.is_none_or(|last| now.saturating_sub(last) >= interval)
        };
        let (is_search_due, expired_age) = {
            let mut state = self.state();
            if state.is_ending || state.is_in_upkeep {
                return;
            }
            let is_search_due = now >= state.next_search;
            let is_expired =
                |keep: &Duration| is_due(state.last_retention, retention_interval(*keep));
            let expired_age = self.config.keep.filter(is_expired);
            if !is_search_due && expired_age.is_none() {
                return;
            }
            if is_search_due {
                state.next_search = now.saturating_add(LOST_OBJECTS_RETRY_TIME);
            }
            if expired_age.is_some() {
                state.last_retention = Some(now);
            }
            state.is_in_upkeep = true;
            (is_search_due, expired_age)
        };
        let own = Arc::clone(self);
        let work = move || {
            let _end = EndOfUpkeep(&own);
            if is_search_due {
                own.find_lost(&*backup);
            }
            if let Some(keep) = expired_age {
                own.retain(&*backup, keep);
            }
            // The end of the upkeep is visible after the store is no longer held open.
            drop(backup);
        };
        if let Err(error) = self.upkeep.run(&*self.env.threads, Box::new(work)) {
            let reason = format!("could not start a thread: {error}");
            let mut state = self.state();
            (state.is_in_upkeep, state.search_error) = (false, Some(reason.clone()));
            state.retention_error = expired_age.map(|_| reason).or(state.retention_error.take());
        }
    }

    /// Looks for objects of the newest state that something else deleted. The next run replaces
    /// them.
    fn find_lost(&self, backup: &dyn StartedBackup) {
        let found = backup.find_lost();
        let to = self.config.objects.location();
        let error = match found {
            Ok(lost) => {
                let mut state = self.state();
                state.searched_micros = Some(self.env.clock.wall_micros());
                state.next_search = self.env.clock.now().saturating_add(LOST_OBJECTS_INTERVAL);
                state.lost_objects += lost.len() as u64;
                drop(state);
                if let Some(first) = lost.first() {
                    tracing::error!(
                        to,
                        objects = lost.len(),
                        first = first.as_str(),
                        "objects of the backup are missing; the next run replaces them; check the \
                         rules of the bucket and who can delete objects"
                    );
                }
                None
            }
            Err(ObjectBackupError::Cancelled) => return,
            Err(error) => Some(error.to_string()),
        };
        let earlier = std::mem::replace(&mut self.state().search_error, error.clone());
        if let Some(reason) = error.filter(|_| earlier.is_none()) {
            tracing::warn!(to, reason, "the objects of the backup could not be looked for");
        }
    }

    /// Deletes what only expired states need.
    fn retain(&self, backup: &dyn StartedBackup, keep: Duration) {
        let retained = backup.retain(keep);
        let to = self.config.objects.location();
        let error = match retained {
            Ok(report) => {
                self.state().retained_micros = Some(self.env.clock.wall_micros());
                if report.manifests + report.objects > 0 {
                    tracing::info!(
                        to,
                        manifests = report.manifests,
                        objects = report.objects,
                        bytes = report.bytes,
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
        let has_data = self.store.has_data();
        let backup = self.state().backup.clone();
        let mut progress = backup.map(|backup| backup.progress()).unwrap_or_default();
        let now = self.env.clock.now();
        let state = self.state();
        if state.stopped.is_some() && state.last_success.is_none() {
            // The backup can have another history of the store, with which no lag can be counted.
            (progress.lag, progress.end) = (None, None);
        }
        let is_behind = progress.lag.map_or(has_data, |lag| lag > 0);
        let since = state.last_success.map_or(self.started, |(began, _)| began);
        let lag_age = if is_behind { now.saturating_sub(since) } else { Duration::ZERO };
        ContinuousBackupStatus {
            names: self.store.names(),
            location: self.config.objects.location().to_owned(),
            lag_age,
            progress,
            successes: state.successes,
            failures: state.failures,
            failures_in_row: state.failures_in_row,
            last_error: state.last_error.as_ref().map(|(_, reason)| reason.clone()),
            last_success_micros: state.last_success.map(|(_, micros)| micros),
            stopped: state.stopped.clone(),
            retention_error: state.retention_error.clone(),
            retained_micros: state.retained_micros,
            search_error: state.search_error.clone(),
            searched_micros: state.searched_micros,
            lost_objects: state.lost_objects,
            damaged_runs: state.damaged_runs,
        }
    }
}

/// Time between two retentions. Each one lists all objects, so it is rare where much is kept.
fn retention_interval(keep: Duration) -> Duration {
    (keep / RETENTIONS_PER_AGE).clamp(RETENTION_INTERVAL, RETENTION_INTERVAL_MAX)
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
        // The upkeep ends at its next request.
        self.0.cancel.store(true, Ordering::Relaxed);
        self.0.changed.notify_all();
    }
}

/// Reports the end of the upkeep, also after a panic.
struct EndOfUpkeep<'a>(&'a Shared);

impl Drop for EndOfUpkeep<'_> {
    fn drop(&mut self) {
        self.0.state().is_in_upkeep = false;
        self.0.changed.notify_all();
    }
}
