//! [`Scavenger`]: starts and stops scavenges for client calls.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use umbel_base::ignore_poison::IgnorePoison;

use serde_json::{Map, Value, json};
use tonic::Status;
use umbel_events::{Scavenge, ScavengeReport, Store};

use crate::event_store::work_history::{StopReason, WorkHistory, WorkOrigin, WorkOutcome};
use crate::limits::OUTCOMES_MAX;
use crate::protocol::grpc_status;

/// Options of a scavenge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScavengeOptions {
    /// Number of threads, at least one.
    pub threads: u32,
    /// Number of the first chunk, counted from 0.
    pub first_chunk: u32,
    /// Whether the data of all hidden events is removed, also of the newest ones.
    pub removes_all: bool,
    /// Percentage of time in which the scavenge works, 1 to 100; `None` for the store's default.
    pub busy_percent: Option<u64>,
    /// Maximum bytes that the scavenge reads and writes a second; `None` for no limit.
    pub bytes_per_second: Option<u64>,
    /// Least share of dead bytes at which a chunk is rewritten, in percent.
    pub dead_percent_min: u64,
}

impl Default for ScavengeOptions {
    fn default() -> ScavengeOptions {
        ScavengeOptions {
            threads: 1,
            first_chunk: 0,
            removes_all: false,
            busy_percent: None,
            bytes_per_second: None,
            dead_percent_min: 0,
        }
    }
}

/// The result of a request to start a scavenge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScavengeStart {
    /// The scavenge has started; the value is its id.
    Started(String),
    /// Another scavenge is running; the value is its id.
    InProgress(String),
}

/// Starts and stops scavenges.
pub trait Scavenger: Debug + Send + Sync {
    /// Starts a scavenge unless one is running. The scavenge continues after this function has
    /// returned. Blocks while its start is recorded.
    ///
    /// # Errors
    /// The scavenge cannot be started.
    fn start(&self, options: ScavengeOptions, origin: WorkOrigin) -> Result<ScavengeStart, Status>;

    /// Stops the scavenge with this id, unless it has ended. Disk space that the scavenge has freed
    /// stays free.
    ///
    /// # Errors
    /// The last scavenge has another id, or there was none.
    fn stop(&self, id: &str, reason: StopReason) -> Result<(), Status>;

    /// Generates an id of a scavenge that does not start.
    fn new_id(&self) -> String {
        String::new()
    }

    /// Requests that a running scavenge stops, because the server stops.
    fn shut_down(&self) {}

    /// Progress of the last scavenge, for display; null if there was none.
    fn progress(&self) -> Value {
        Value::Null
    }

    /// State of the last scavenge; `None` if the server has started none.
    fn last_state(&self) -> Option<ScavengeState> {
        None
    }

    /// State of the scavenge with this id; `None` if it is none of the last
    /// [`OUTCOMES_MAX`] scavenges of this run of the server.
    fn state(&self, id: &str) -> Option<ScavengeState> {
        self.last_state().filter(|state| state.id == id)
    }
}

/// Phase of a scavenge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScavengePhase {
    /// The scavenge is running.
    InProgress,
    /// The scavenge has examined all chunks.
    Success,
    /// A caller stopped the scavenge.
    Stopped,
    /// The scavenge failed with this error.
    Errored(String),
}

/// State of a scavenge.
#[derive(Debug, Clone)]
pub struct ScavengeState {
    /// Id of the scavenge.
    pub id: String,
    /// Phase of the scavenge.
    pub phase: ScavengePhase,
    /// Reason of its start.
    pub origin: WorkOrigin,
    /// Whether the scavenge removes the data of all hidden events.
    pub removes_all: bool,
    /// Progress, or the final report.
    pub report: ScavengeReport,
}

/// Scavenges of the served store, one at a time, on a thread of the store. Dropping this value
/// stops a running scavenge.
#[derive(Debug)]
pub struct StoreScavenger {
    store: Store,
    history: Arc<WorkHistory>,
    scavenges: Mutex<Scavenges>,
    /// Locked while a scavenge starts. Callers that only read do not wait for it.
    starting: Mutex<()>,
}

/// The last scavenge, and the states of ended ones.
#[derive(Debug, Default)]
struct Scavenges {
    running: Option<RunningScavenge>,
    /// Final states, oldest first.
    ended: VecDeque<ScavengeState>,
}

/// A scavenge that has not ended, or whose end was not noticed yet.
#[derive(Debug)]
struct RunningScavenge {
    id: String,
    scavenge: Scavenge,
    removes_all: bool,
    origin: WorkOrigin,
    stop_reason: Option<StopReason>,
}

impl Scavenges {
    /// Moves a scavenge that has ended to the final states.
    fn refresh(&mut self, history: &WorkHistory) {
        if self.running.as_ref().is_none_or(|running| !running.scavenge.is_done()) {
            return;
        }
        let Some(RunningScavenge { id, scavenge, removes_all, origin, stop_reason }) =
            self.running.take()
        else {
            return;
        };
        let progress = scavenge.progress();
        let (phase, report) = match scavenge.wait() {
            Ok(report) if report.is_complete => (ScavengePhase::Success, report),
            Ok(report) if stop_reason.is_some() => (ScavengePhase::Stopped, report),
            Ok(report) => (ScavengePhase::Errored("the scavenge ended early".to_string()), report),
            Err(error) => (ScavengePhase::Errored(error.to_string()), progress),
        };
        let (outcome, why) = outcome(&phase, stop_reason);
        history.end(&id, outcome, why, report_json(&report, removes_all));
        if self.ended.len() == OUTCOMES_MAX {
            self.ended.pop_front();
        }
        self.ended.push_back(ScavengeState { id, phase, origin, removes_all, report });
    }

    fn last_state(&self) -> Option<ScavengeState> {
        match &self.running {
            Some(running) => Some(running.state()),
            None => self.ended.back().cloned(),
        }
    }
}

/// The outcome of a scavenge that has ended, and its reason.
fn outcome(phase: &ScavengePhase, stop: Option<StopReason>) -> (WorkOutcome, Option<&str>) {
    match (phase, stop) {
        (ScavengePhase::Errored(error), _) => (WorkOutcome::Errored, Some(error)),
        (ScavengePhase::Stopped, Some(StopReason::Shutdown)) => {
            (WorkOutcome::Interrupted, Some("the server stopped; the next scavenge continues"))
        }
        (ScavengePhase::Stopped, Some(StopReason::Paused)) => {
            (WorkOutcome::Stopped, Some("auto-scavenge was paused; it continues when resumed"))
        }
        (ScavengePhase::Stopped, _) => (WorkOutcome::Stopped, None),
        (ScavengePhase::Success | ScavengePhase::InProgress, _) => (WorkOutcome::Success, None),
    }
}

impl RunningScavenge {
    fn state(&self) -> ScavengeState {
        ScavengeState {
            id: self.id.clone(),
            phase: ScavengePhase::InProgress,
            origin: self.origin.clone(),
            removes_all: self.removes_all,
            report: self.scavenge.progress(),
        }
    }
}

impl StoreScavenger {
    /// Creates the scavenger of this store, which records scavenges in this history.
    pub fn new(store: Store, history: Arc<WorkHistory>) -> StoreScavenger {
        let (scavenges, starting) = (Mutex::default(), Mutex::default());
        StoreScavenger { store, history, scavenges, starting }
    }

    fn scavenges(&self) -> MutexGuard<'_, Scavenges> {
        let mut scavenges = self.scavenges.lock().ignore_poison();
        scavenges.refresh(&self.history);
        scavenges
    }
}

impl Scavenger for StoreScavenger {
    /// Ignores the numbers: a scavenge has one thread, and the client's chunk numbers do not apply
    /// to this store. The scavenge begins with the oldest chunk, or resumes a stopped scavenge.
    fn start(&self, options: ScavengeOptions, origin: WorkOrigin) -> Result<ScavengeStart, Status> {
        let _starting = self.starting.lock().ignore_poison();
        if let Some(running) = &self.scavenges().running {
            return Ok(ScavengeStart::InProgress(running.id.clone()));
        }
        let defaults = umbel_events::ScavengeOptions::default();
        let removes_all = options.removes_all;
        let options = umbel_events::ScavengeOptions {
            removes_all,
            busy_percent: options.busy_percent.unwrap_or(defaults.busy_percent),
            bytes_per_second: options.bytes_per_second,
            dead_percent_min: options.dead_percent_min,
            ..defaults
        };
        let id = self.store.new_id().map_err(|error| grpc_status::status(&error))?.to_string();
        self.history.begin(&id, origin.clone());
        // Written before the scavenge begins, because a record can hide an older one, whose data a
        // scavenge that removes all must find. A failure is logged: a full disk needs a scavenge.
        let _ = self.history.flush(&self.store);
        let scavenge = self.store.start_scavenge(&options).map_err(|error| {
            let why = error.to_string();
            self.history.end(&id, WorkOutcome::Errored, Some(&why), Map::new());
            grpc_status::status(&error)
        })?;
        let running =
            RunningScavenge { id: id.clone(), scavenge, removes_all, origin, stop_reason: None };
        self.scavenges().running = Some(running);
        Ok(ScavengeStart::Started(id))
    }

    fn stop(&self, id: &str, reason: StopReason) -> Result<(), Status> {
        let mut scavenges = self.scavenges();
        if let Some(running) = scavenges.running.as_mut().filter(|running| running.id == id) {
            running.scavenge.stop();
            running.stop_reason = Some(reason);
            return Ok(());
        }
        match scavenges.last_state() {
            Some(last) if last.id == id => Ok(()),
            _ => Err(grpc_status::scavenge_not_found(id)),
        }
    }

    fn new_id(&self) -> String {
        self.store.new_id().map(|id| id.to_string()).unwrap_or_default()
    }

    fn shut_down(&self) {
        if let Some(running) = &mut self.scavenges().running {
            running.stop_reason.get_or_insert(StopReason::Shutdown);
            running.scavenge.stop();
        }
    }

    fn progress(&self) -> Value {
        let Some(ScavengeState { id, phase, removes_all, report, .. }) = self.last_state() else {
            return Value::Null;
        };
        let error = match &phase {
            ScavengePhase::Errored(error) => Some(error),
            ScavengePhase::InProgress | ScavengePhase::Success | ScavengePhase::Stopped => None,
        };
        json!({
            "id": id,
            "isDone": phase != ScavengePhase::InProgress,
            "isStopped": phase == ScavengePhase::Stopped,
            "error": error,
            "chunks": report.chunks,
            "chunksExamined": report.chunks_examined,
            "eventsRemoved": report.events_removed,
            "eventsStubbed": report.events_stubbed,
            "bytesGivenBack": report.bytes_freed,
            "removesAll": removes_all,
            "hiddenEventsLeft": report.hidden_events_left,
            "filesKept": file_names(&report.files_kept),
            "filesWithOtherNames": file_names(&report.files_with_other_names),
        })
    }

    fn last_state(&self) -> Option<ScavengeState> {
        self.scavenges().last_state()
    }

    fn state(&self, id: &str) -> Option<ScavengeState> {
        let scavenges = self.scavenges();
        if let Some(running) = scavenges.running.as_ref().filter(|running| running.id == id) {
            return Some(running.state());
        }
        scavenges.ended.iter().find(|state| state.id == id).cloned()
    }
}

/// The members of a report that the HTTP API and the history have.
pub fn report_json(report: &ScavengeReport, removes_all: bool) -> Map<String, Value> {
    let value = json!({
        "chunks": report.chunks,
        "chunksExamined": report.chunks_examined,
        "chunksRewritten": report.chunks_rewritten,
        "chunksBelowThreshold": report.chunks_below_threshold,
        "events": report.events,
        "eventsRemoved": report.events_removed,
        "eventsStubbed": report.events_stubbed,
        "bytesFreed": report.bytes_freed,
        "resumedFrom": report.resumed_from,
        "removesAll": removes_all,
        "hiddenEventsLeft": report.hidden_events_left,
    });
    match value {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}

/// Names of files in the event log of the store.
pub fn file_names(files: &[PathBuf]) -> Vec<String> {
    let names = files.iter().filter_map(|file| file.file_name());
    names.map(|name| name.to_string_lossy().into_owned()).collect()
}
