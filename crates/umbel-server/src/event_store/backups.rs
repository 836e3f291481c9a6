//! [`Backups`]: backups of the store while it is served, into the directory that the operator
//! configured.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use umbel_base::ignore_poison::IgnorePoison;

use serde_json::{Map, Value, json};
use tonic::Status;
use umbel_env::{Env, JobThread, Threads};
use umbel_events::{
    BackupReport, CopyCancellation, CopyOptions, CopyProgress, Error, Result as StoreResult, Store,
};

use crate::event_store::work_history::{StopReason, WorkHistory, WorkOrigin, WorkOutcome};
use crate::limits::OUTCOMES_MAX;
use crate::protocol::grpc_status;

/// Name of the subdirectory of an event store with the server's keys and values.
pub const KV_DIRECTORY: &str = "kv";

/// Member that says whether a backup leaves out keys and values.
pub const OMITS_KEYS_AND_VALUES: &str = "omitsKeysAndValues";

/// Reason of a backup that the stop of the server ended.
const INTERRUPTED: &str = "the server stopped; the next backup reuses the complete files";
/// Error of a backup whose thread panicked.
const PANICKED: &str = "internal: the backup panicked, and the log of the server has the message; \
    start another backup";

/// Backups of one store, one at a time. Dropping this value stops a running backup.
pub struct Backups {
    store: Store,
    threads: Arc<dyn Threads>,
    thread: JobThread,
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
    /// The backup was stopped for this reason.
    Stopped(StopReason),
    /// The backup failed with this error.
    Errored(String),
}

impl BackupPhase {
    /// Outcome of the backup, and its reason if the backup failed or was interrupted.
    pub fn outcome(&self) -> (WorkOutcome, Option<&str>) {
        match self {
            BackupPhase::InProgress => (WorkOutcome::InProgress, None),
            BackupPhase::Success(_) => (WorkOutcome::Success, None),
            BackupPhase::Stopped(StopReason::Shutdown) => {
                (WorkOutcome::Interrupted, Some(INTERRUPTED))
            }
            BackupPhase::Stopped(_) => (WorkOutcome::Stopped, None),
            BackupPhase::Errored(error) => (WorkOutcome::Errored, Some(error)),
        }
    }
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
    /// Whether the server or the directory of its store had keys and values at the start, which are
    /// not in the backup.
    pub omits_keys_and_values: bool,
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
    fn add(&mut self, id: &str, has_kv: bool) -> Result<CopyCancellation, Status> {
        if self.is_shut_down {
            return Err(grpc_status::shutting_down());
        }
        if let Some(running) = self.running() {
            let why = format!("a backup is already running; its id is {}", running.state.id);
            return Err(Status::already_exists(why));
        }
        if self.backups.len() == OUTCOMES_MAX {
            self.backups.pop_front();
        }
        let state = BackupState {
            id: id.to_string(),
            progress: None,
            phase: BackupPhase::InProgress,
            omits_keys_and_values: has_kv,
        };
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
        let thread = JobThread::new("umbel-backup");
        Backups { store, threads, thread, directory, history, started }
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
    /// has returned. Returns its id, with which [`Backups::state`] finds the backup. `has_kv` says
    /// whether the server has keys and values; the directory of its store can have some of earlier.
    ///
    /// # Errors
    /// No backup directory is configured, a backup is running, or the server is stopping.
    pub fn start(
        &self,
        origin: WorkOrigin,
        bytes_per_second: Option<u64>,
        has_kv: bool,
    ) -> Result<String, Status> {
        let Some(directory) = self.directory.clone() else {
            return Err(Status::failed_precondition(
                "no backup directory is configured: start the server with --backup-dir DIR",
            ));
        };
        let id = self.store.new_id().map_err(|error| grpc_status::status(&error))?.to_string();
        let cancellation = self.started().add(&id, has_kv)?;
        self.history.begin(&id, origin);
        let (store, started) = (self.store.clone(), Arc::clone(&self.started));
        let (own, history) = (id.clone(), Arc::clone(&self.history));
        let work = move || {
            let mut end = EndOfBackup::new(own, history, started);
            // The backup has the record of its start. A failure is logged.
            let _ = end.history.flush(&store);
            if has_kv || store.path().join(KV_DIRECTORY).is_dir() {
                end.note_omitted_keys();
            }
            let mut note = |progress| {
                if let Some(backup) = end.started.lock().ignore_poison().find(&end.id) {
                    backup.state.progress = Some(progress);
                }
            };
            let progress: Option<&mut dyn FnMut(CopyProgress)> = Some(&mut note);
            let options =
                CopyOptions { bytes_per_second, progress, cancellation, ..CopyOptions::default() };
            let ended = store.backup(&directory, options);
            end.set(ended);
        };
        if let Err(error) = self.thread.run(&*self.threads, Box::new(work)) {
            self.started().backups.retain(|backup| backup.state.id != id);
            let why = format!("could not start a thread for the backup: {error}");
            self.history.end(&id, WorkOutcome::Errored, Some(&why), Map::new());
            return Err(Status::unavailable(why));
        }
        Ok(id)
    }

    /// Stops the backup with this id. The request has the limits of [`CopyCancellation::cancel`]: a
    /// backup that has copied everything may still succeed. The previous backup in the directory
    /// stays, and the next one reuses the complete files.
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

    /// Stops the running backup like [`Backups::stop`], and returns its id; `None` if no backup is
    /// running.
    pub fn stop_running(&self, reason: StopReason) -> Option<String> {
        let mut started = self.started();
        let running = started.running()?;
        running.stop(reason);
        Some(running.state.id.clone())
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
        let through = match phase {
            Some(BackupPhase::Success(report)) => Some(report.through.0.to_string()),
            _ => None,
        };
        let (outcome, error) = phase.map(BackupPhase::outcome).unzip();
        json!({
            "id": last.as_ref().map(|state| &state.id),
            "folder": self.directory,
            "isRunning": outcome == Some(WorkOutcome::InProgress),
            "isStopped": outcome == Some(WorkOutcome::Stopped),
            "bytes": bytes,
            "totalBytes": total,
            "through": through,
            "error": error.flatten(),
        })
    }
}

impl Drop for Backups {
    fn drop(&mut self) {
        self.shut_down();
    }
}

/// Records the end of a backup when it is dropped, also after a panic.
struct EndOfBackup {
    id: String,
    history: Arc<WorkHistory>,
    started: Arc<Mutex<StartedBackups>>,
    /// Phase of the backup after its end.
    phase: BackupPhase,
}

impl EndOfBackup {
    /// The end by a panic, unless [`EndOfBackup::set`] is called.
    fn new(
        id: String,
        history: Arc<WorkHistory>,
        started: Arc<Mutex<StartedBackups>>,
    ) -> EndOfBackup {
        let phase = BackupPhase::Errored(PANICKED.to_string());
        EndOfBackup { id, history, started, phase }
    }

    /// Notes that the backup leaves out keys and values.
    fn note_omitted_keys(&self) {
        tracing::info!(
            id = self.id,
            "the backup leaves out keys and values; --kv with --backup-to backs them up, too"
        );
        if let Some(backup) = self.started.lock().ignore_poison().find(&self.id) {
            backup.state.omits_keys_and_values = true;
        }
    }

    /// Sets the result of the backup.
    fn set(&mut self, ended: StoreResult<BackupReport>) {
        self.phase = match ended {
            Ok(report) => BackupPhase::Success(report),
            Err(Error::Cancelled) => {
                let mut started = self.started.lock().ignore_poison();
                let reason = started.find(&self.id).and_then(|backup| backup.stop_reason);
                BackupPhase::Stopped(reason.unwrap_or(StopReason::Requested))
            }
            Err(error) => BackupPhase::Errored(error.to_string()),
        };
    }
}

impl Drop for EndOfBackup {
    fn drop(&mut self) {
        let mut details = match &self.phase {
            BackupPhase::Success(report) => report_json(report),
            _ => Map::new(),
        };
        let omits_keys_and_values = {
            let mut started = self.started.lock().ignore_poison();
            started.find(&self.id).is_some_and(|backup| backup.state.omits_keys_and_values)
        };
        details.insert(OMITS_KEYS_AND_VALUES.into(), omits_keys_and_values.into());
        let (outcome, reason) = self.phase.outcome();
        self.history.end(&self.id, outcome, reason, details);
        if let Some(backup) = self.started.lock().ignore_poison().find(&self.id) {
            backup.state.phase = self.phase.clone();
        }
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
    use std::fmt;
    use std::time::Duration;

    use tempfile::TempDir;
    use tonic::Code;
    use umbel_env::{Clock, JoinHandle};
    use umbel_events::{Position, StoreOptions};

    use super::*;
    use crate::event_store::work_history::WorkKind;

    /// Clock that panics in the thread of a backup.
    #[derive(Debug)]
    struct BrokenClock(Arc<dyn Clock>);

    impl Clock for BrokenClock {
        fn now(&self) -> Duration {
            let thread = std::thread::current();
            assert!(thread.name() != Some("umbel-backup"), "the clock is broken");
            self.0.now()
        }

        fn now_with_suspends(&self) -> Duration {
            self.0.now_with_suspends()
        }

        fn wall_micros(&self) -> u64 {
            self.0.wall_micros()
        }
    }

    /// Threads that begin once the test runs them.
    #[derive(Default)]
    struct HeldThreads(Mutex<Vec<Box<dyn FnOnce() + Send>>>);

    impl HeldThreads {
        /// Starts the last thread.
        fn start(&self) -> Box<dyn JoinHandle> {
            let work = self.0.lock().unwrap().pop().unwrap();
            Env::system().threads.spawn("umbel-backup", work).unwrap()
        }
    }

    impl fmt::Debug for HeldThreads {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("HeldThreads")
        }
    }

    impl Threads for HeldThreads {
        fn spawn(
            &self,
            _: &str,
            work: Box<dyn FnOnce() + Send>,
        ) -> umbel_base::Result<Box<dyn JoinHandle>> {
            self.0.lock().unwrap().push(work);
            Ok(Box::new(HeldThread))
        }

        fn parallelism(&self) -> usize {
            1
        }
    }

    #[derive(Debug)]
    struct HeldThread;

    impl JoinHandle for HeldThread {
        fn join(self: Box<Self>) -> bool {
            true
        }
    }

    struct Fixture {
        backups: Backups,
        threads: Arc<HeldThreads>,
        target: PathBuf,
        _directory: TempDir,
    }

    impl Fixture {
        /// Creates a store with this clock, and its backups.
        fn with_clock(clock: Arc<dyn Clock>) -> Fixture {
            let directory = tempfile::tempdir().unwrap();
            let (path, target) = (directory.path().join("events"), directory.path().join("copy"));
            let options =
                StoreOptions { env: Env { clock, ..Env::system() }, ..StoreOptions::default() };
            let store = Store::open(path, options).unwrap();
            let clock = Env::system().clock;
            let history = Arc::new(WorkHistory::read(WorkKind::Backup, &store, clock).unwrap());
            let threads = Arc::new(HeldThreads::default());
            let env = Env { threads: Arc::clone(&threads) as Arc<dyn Threads>, ..Env::system() };
            let backups = Backups::new(store, &env, Some(target.clone()), history);
            Fixture { backups, threads, target, _directory: directory }
        }

        fn new() -> Fixture {
            Fixture::with_clock(Env::system().clock)
        }

        /// Starts a backup whose thread has not begun yet.
        fn start(&self) -> String {
            self.backups.start(WorkOrigin::default(), None, false).unwrap()
        }

        /// Runs the thread of the backups to its end.
        fn run(&self) {
            self.backups.thread.end();
            assert!(self.threads.start().join());
        }

        /// Asserts that the state and the history have this outcome. Returns its reason.
        fn check_outcome(&self, id: &str, wanted: WorkOutcome) -> Option<String> {
            let state = self.backups.state(id).unwrap();
            let (outcome, reason) = state.phase.outcome();
            let record = self.backups.history().record(id).unwrap();
            assert_eq!((outcome, record.outcome), (wanted, wanted), "{state:?}");
            assert_eq!(record.error.as_deref(), reason);
            reason.map(str::to_string)
        }
    }

    #[test]
    fn no_backup_starts_once_the_server_stops() {
        let fixture = Fixture::new();
        fixture.backups.shut_down();
        let refused = fixture.backups.start(WorkOrigin::default(), None, false).unwrap_err();
        assert_eq!(refused.code(), Code::Unavailable);
        let backups = &fixture.backups;
        assert!(backups.last_state().is_none() && backups.history().records().is_empty());
    }

    /// Story: whether keys and values are missing was about the server at the time of the question,
    /// and the record of an earlier run of the server did not say it.
    #[test]
    fn backup_records_that_it_leaves_out_keys_and_values() {
        for (has_kv, has_directory) in [(false, false), (true, false), (false, true)] {
            let fixture = Fixture::new();
            if has_directory {
                std::fs::create_dir(fixture.backups.store.path().join(KV_DIRECTORY)).unwrap();
            }
            let id = fixture.backups.start(WorkOrigin::default(), None, has_kv).unwrap();
            fixture.run();
            fixture.check_outcome(&id, WorkOutcome::Success);
            let omits = has_kv || has_directory;
            assert_eq!(fixture.backups.state(&id).unwrap().omits_keys_and_values, omits);
            let record = fixture.backups.history().record(&id).unwrap();
            assert_eq!(record.to_json(WorkKind::Backup)[OMITS_KEYS_AND_VALUES], omits);
        }
    }

    /// Story: after a panic a backup was running until the server was restarted. No further backup
    /// started, and a stop had no effect.
    #[test]
    fn panic_ends_a_backup() {
        let fixture = Fixture::with_clock(Arc::new(BrokenClock(Env::system().clock)));
        let id = fixture.start();
        fixture.run();
        let reason = fixture.check_outcome(&id, WorkOutcome::Errored).unwrap();
        assert!(reason.contains("panicked"), "{reason}");
        let refused = fixture.backups.stop(&id, StopReason::Requested).unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition);
        assert_ne!(fixture.start(), id);
    }

    /// Story: each backup had a new thread, whose freed memory the allocator kept.
    #[test]
    fn backups_share_a_thread() {
        let fixture = Fixture::new();
        let first = fixture.start();
        let thread = fixture.threads.start();
        let wait = |id: &str| {
            while fixture.backups.state(id).unwrap().is_running() {
                std::thread::yield_now();
            }
            fixture.check_outcome(id, WorkOutcome::Success);
        };
        wait(&first);
        let second = fixture.start();
        wait(&second);
        assert!(fixture.threads.0.lock().unwrap().is_empty(), "no other thread was started");
        fixture.backups.thread.end();
        assert!(thread.join());
    }

    #[test]
    fn backup_that_is_stopped_before_its_thread_begins_writes_nothing() {
        let fixture = Fixture::new();
        let id = fixture.start();
        assert_eq!(fixture.backups.stop_running(StopReason::Requested).as_ref(), Some(&id));
        fixture.run();
        assert_eq!(fixture.check_outcome(&id, WorkOutcome::Stopped), None);
        assert_eq!(fixture.backups.progress()["isStopped"], true);
        assert!(!fixture.target.exists());
        assert_eq!(fixture.backups.stop_running(StopReason::Requested), None);
    }

    /// Story: while the server stopped, a client read that a caller had stopped its backup.
    #[test]
    fn stop_of_the_server_interrupts_a_backup() {
        let fixture = Fixture::new();
        let id = fixture.start();
        fixture.backups.shut_down();
        // The reason of the first request counts.
        fixture.backups.stop(&id, StopReason::Requested).unwrap();
        fixture.run();
        let reason = fixture.check_outcome(&id, WorkOutcome::Interrupted).unwrap();
        let shown = fixture.backups.progress();
        assert_eq!((&shown["isStopped"], &shown["error"]), (&json!(false), &json!(reason)));
    }

    #[test]
    fn stop_after_the_last_block_keeps_the_success() {
        let fixture = Fixture::new();
        let id = fixture.start();
        let Backups { history, started, .. } = &fixture.backups;
        let mut end = EndOfBackup::new(id.clone(), Arc::clone(history), Arc::clone(started));
        fixture.backups.stop(&id, StopReason::Requested).unwrap();
        end.set(Ok(BackupReport {
            through: Position(7),
            number: 1,
            files: 1,
            bytes: 9,
            copied_files: 1,
            copied_bytes: 9,
        }));
        drop(end);
        assert_eq!(fixture.check_outcome(&id, WorkOutcome::Success), None);
        assert_eq!(fixture.backups.progress()["through"], "7");
    }
}
