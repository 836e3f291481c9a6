//! [`Scavenging`]: what the calls that begin and stop a scavenge ask of the store.

use std::fmt::Debug;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use tonic::Status;
use umbel_events::{Scavenge, Store};

use crate::failure;

/// How a scavenge is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScavengeOptions {
    /// With how many threads, at least one.
    pub threads: u32,
    /// From which file of the log on, counted from 0.
    pub first_chunk: u32,
}

/// What came of beginning one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Begun {
    /// It has begun; its name.
    Started(String),
    /// Another one is under way; its name.
    InProgress(String),
}

/// Begins and stops scavenges.
pub trait Scavenging: Debug + Send + Sync {
    /// Begins one, where none is under way. It goes on after the call.
    ///
    /// # Errors
    /// It cannot be begun.
    fn start(&self, options: ScavengeOptions) -> Result<Begun, Status>;

    /// Stops the one with this name. What it gave back stays so.
    ///
    /// # Errors
    /// There is none with this name.
    fn stop(&self, id: &str) -> Result<(), Status>;

    /// What the last one has done so far, for people; nothing where there was none.
    fn progress(&self) -> Value {
        Value::Null
    }
}

/// Scavenges of the store that is served, one at a time, each on a thread of its own. Dropping it
/// stops the one under way.
#[derive(Debug)]
pub struct StoreScavenging {
    store: Store,
    /// The last one that was begun, and its name.
    last: Mutex<Option<(String, Scavenge)>>,
}

impl StoreScavenging {
    /// Scavenges of this store.
    pub fn new(store: Store) -> StoreScavenging {
        StoreScavenging { store, last: Mutex::default() }
    }

    fn last(&self) -> MutexGuard<'_, Option<(String, Scavenge)>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Scavenging for StoreScavenging {
    /// There is one thread whatever is asked for, and files are numbered otherwise than where the
    /// client's numbers come from: it begins with the oldest, or goes on where one was stopped.
    fn start(&self, _: ScavengeOptions) -> Result<Begun, Status> {
        let mut last = self.last();
        if let Some((id, scavenge)) = last.as_ref()
            && !scavenge.is_done()
        {
            return Ok(Begun::InProgress(id.clone()));
        }
        let id = self.store.new_id().map_err(|error| failure::status(&error))?.to_string();
        let begun = self.store.start_scavenge(&umbel_events::ScavengeOptions::default());
        *last = Some((id.clone(), begun.map_err(|error| failure::status(&error))?));
        Ok(Begun::Started(id))
    }

    fn stop(&self, id: &str) -> Result<(), Status> {
        match self.last().as_ref() {
            Some((known, scavenge)) if known == id && !scavenge.is_done() => {
                scavenge.stop();
                Ok(())
            }
            _ => Err(failure::scavenge_not_found(id)),
        }
    }

    fn progress(&self) -> Value {
        let last = self.last();
        let Some((id, scavenge)) = last.as_ref() else { return Value::Null };
        let report = scavenge.progress();
        json!({
            "id": id,
            "isDone": scavenge.is_done(),
            "chunks": report.chunks,
            "chunksExamined": report.chunks_examined,
            "eventsRemoved": report.events_removed,
            "bytesGivenBack": report.bytes_given_back,
        })
    }
}
