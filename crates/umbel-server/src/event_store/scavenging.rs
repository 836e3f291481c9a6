//! [`Scavenger`]: starts and stops scavenges for client calls.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};
use umbel_base::ignore_poison::IgnorePoison;

use serde_json::{Value, json};
use tonic::Status;
use umbel_events::{Scavenge, ScavengeReport, Store};

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
    /// returned.
    ///
    /// # Errors
    /// The scavenge cannot be started.
    fn start(&self, options: ScavengeOptions) -> Result<ScavengeStart, Status>;

    /// Stops the scavenge with this id, unless it has ended. Disk space that the scavenge has freed
    /// stays free.
    ///
    /// # Errors
    /// The last scavenge has another id, or there was none.
    fn stop(&self, id: &str) -> Result<(), Status>;

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
    /// Whether the scavenge removes the data of all hidden events.
    pub removes_all: bool,
    /// Progress, or the final report.
    pub report: ScavengeReport,
}

/// Scavenges of the served store, one at a time, each on its own thread. Dropping this value stops
/// a running scavenge.
#[derive(Debug)]
pub struct StoreScavenger {
    store: Store,
    scavenges: Mutex<Scavenges>,
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
    is_stopped: bool,
}

impl Scavenges {
    /// Moves a scavenge that has ended to the final states.
    fn refresh(&mut self) {
        if self.running.as_ref().is_none_or(|running| !running.scavenge.is_done()) {
            return;
        }
        let Some(RunningScavenge { id, scavenge, removes_all, is_stopped }) = self.running.take()
        else {
            return;
        };
        let progress = scavenge.progress();
        let (phase, report) = match scavenge.wait() {
            Ok(report) if is_stopped && !report.is_complete => (ScavengePhase::Stopped, report),
            Ok(report) if report.is_complete => (ScavengePhase::Success, report),
            Ok(report) => (ScavengePhase::Errored("the scavenge ended early".to_string()), report),
            Err(error) => (ScavengePhase::Errored(error.to_string()), progress),
        };
        if self.ended.len() == OUTCOMES_MAX {
            self.ended.pop_front();
        }
        self.ended.push_back(ScavengeState { id, phase, removes_all, report });
    }

    fn last_state(&self) -> Option<ScavengeState> {
        match &self.running {
            Some(running) => Some(running.state()),
            None => self.ended.back().cloned(),
        }
    }
}

impl RunningScavenge {
    fn state(&self) -> ScavengeState {
        ScavengeState {
            id: self.id.clone(),
            phase: ScavengePhase::InProgress,
            removes_all: self.removes_all,
            report: self.scavenge.progress(),
        }
    }
}

impl StoreScavenger {
    /// Creates the scavenger of this store.
    pub fn new(store: Store) -> StoreScavenger {
        StoreScavenger { store, scavenges: Mutex::default() }
    }

    fn scavenges(&self) -> MutexGuard<'_, Scavenges> {
        let mut scavenges = self.scavenges.lock().ignore_poison();
        scavenges.refresh();
        scavenges
    }
}

impl Scavenger for StoreScavenger {
    /// Ignores the numbers: a scavenge has one thread, and the client's chunk numbers do not apply
    /// to this store. The scavenge begins with the oldest chunk, or resumes a stopped scavenge.
    fn start(&self, options: ScavengeOptions) -> Result<ScavengeStart, Status> {
        let mut scavenges = self.scavenges();
        if let Some(running) = &scavenges.running {
            return Ok(ScavengeStart::InProgress(running.id.clone()));
        }
        let removes_all = options.removes_all;
        let options = umbel_events::ScavengeOptions { removes_all, ..Default::default() };
        let id = self.store.new_id().map_err(|error| grpc_status::status(&error))?.to_string();
        let begun = self.store.start_scavenge(&options);
        let scavenge = begun.map_err(|error| grpc_status::status(&error))?;
        scavenges.running =
            Some(RunningScavenge { id: id.clone(), scavenge, removes_all, is_stopped: false });
        Ok(ScavengeStart::Started(id))
    }

    fn stop(&self, id: &str) -> Result<(), Status> {
        let mut scavenges = self.scavenges();
        if let Some(running) = scavenges.running.as_mut().filter(|running| running.id == id) {
            running.scavenge.stop();
            running.is_stopped = true;
            return Ok(());
        }
        match scavenges.last_state() {
            Some(last) if last.id == id => Ok(()),
            _ => Err(grpc_status::scavenge_not_found(id)),
        }
    }

    fn progress(&self) -> Value {
        let Some(ScavengeState { id, phase, removes_all, report }) = self.last_state() else {
            return Value::Null;
        };
        json!({
            "id": id,
            "isDone": phase != ScavengePhase::InProgress,
            "chunks": report.chunks,
            "chunksExamined": report.chunks_examined,
            "eventsRemoved": report.events_removed,
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

/// Names of files in the event log of the store.
pub fn file_names(files: &[PathBuf]) -> Vec<String> {
    let names = files.iter().filter_map(|file| file.file_name());
    names.map(|name| name.to_string_lossy().into_owned()).collect()
}
