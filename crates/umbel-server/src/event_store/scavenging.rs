//! [`Scavenger`]: starts and stops scavenges for client calls.

use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};
use umbel_base::ignore_poison::IgnorePoison;

use serde_json::{Value, json};
use tonic::Status;
use umbel_events::{Scavenge, Store};

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
}

/// Scavenges of the served store, one at a time, each on its own thread. Dropping this value stops
/// a running scavenge.
#[derive(Debug)]
pub struct StoreScavenger {
    store: Store,
    last: Mutex<Option<LastScavenge>>,
}

/// The last scavenge.
#[derive(Debug)]
struct LastScavenge {
    id: String,
    scavenge: Scavenge,
    removes_all: bool,
}

impl StoreScavenger {
    /// Creates the scavenger of this store.
    pub fn new(store: Store) -> StoreScavenger {
        StoreScavenger { store, last: Mutex::default() }
    }

    fn last(&self) -> MutexGuard<'_, Option<LastScavenge>> {
        self.last.lock().ignore_poison()
    }
}

impl Scavenger for StoreScavenger {
    /// Ignores the numbers: a scavenge has one thread, and the client's chunk numbers do not apply
    /// to this store. The scavenge begins with the oldest chunk, or resumes a stopped scavenge.
    fn start(&self, options: ScavengeOptions) -> Result<ScavengeStart, Status> {
        let mut last = self.last();
        if let Some(last) = last.as_ref().filter(|last| !last.scavenge.is_done()) {
            return Ok(ScavengeStart::InProgress(last.id.clone()));
        }
        let removes_all = options.removes_all;
        let options = umbel_events::ScavengeOptions { removes_all, ..Default::default() };
        let id = self.store.new_id().map_err(|error| grpc_status::status(&error))?.to_string();
        let begun = self.store.start_scavenge(&options);
        let scavenge = begun.map_err(|error| grpc_status::status(&error))?;
        *last = Some(LastScavenge { id: id.clone(), scavenge, removes_all });
        Ok(ScavengeStart::Started(id))
    }

    fn stop(&self, id: &str) -> Result<(), Status> {
        match self.last().as_ref() {
            Some(last) if last.id == id => {
                last.scavenge.stop();
                Ok(())
            }
            _ => Err(grpc_status::scavenge_not_found(id)),
        }
    }

    fn progress(&self) -> Value {
        let last = self.last();
        let Some(LastScavenge { id, scavenge, removes_all }) = last.as_ref() else {
            return Value::Null;
        };
        let report = scavenge.progress();
        json!({
            "id": id,
            "isDone": scavenge.is_done(),
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
}

/// Names of files in the event log of the store.
pub fn file_names(files: &[PathBuf]) -> Vec<String> {
    let names = files.iter().filter_map(|file| file.file_name());
    names.map(|name| name.to_string_lossy().into_owned()).collect()
}
