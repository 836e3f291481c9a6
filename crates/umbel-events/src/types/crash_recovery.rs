//! [`CrashRecovery`]: the work of an open after a crash.

use std::path::PathBuf;
use std::time::Duration;

use umbel_env::Clock;

/// Work of the open of a store that was not closed: the process was killed, or the machine lost
/// power.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CrashRecovery {
    /// Number of chunks of the event log that were in use.
    pub chunks: usize,
    /// Bytes after the last complete events that were removed: appends that were never acknowledged
    /// as durable.
    pub bytes_cut: u64,
    /// Files without a valid event but with bytes that may be events. They are no part of the log.
    pub files_left_out: Vec<PathBuf>,
    /// Number of events that the index, or the filter of stream names, lacked.
    pub events_indexed: u64,
    /// Time from the first read of the log's end until the index had all events.
    pub took: Duration,
}

impl CrashRecovery {
    /// Adds the work on the index, which ends now, to that on the event log. `start` is the time of
    /// the first read of the log's end.
    pub(crate) fn complete(
        self,
        events_indexed: u64,
        start: Duration,
        clock: &dyn Clock,
    ) -> CrashRecovery {
        let took = clock.now().saturating_sub(start);
        CrashRecovery { events_indexed, took, ..self }
    }
}
