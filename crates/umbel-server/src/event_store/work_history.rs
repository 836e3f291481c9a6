//! [`WorkHistory`]: the outcomes of scavenges, or of backups. A system stream keeps the last
//! [`HISTORY_MAX`] of them across restarts.
//!
//! Changes are in memory at once. [`WorkHistory::flush`] writes them, and what it could not write,
//! as on a full disk, stays for the next flush.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use umbel_base::ignore_poison::IgnorePoison;

use serde::de::{DeserializeOwned, Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio::sync::Notify;
use tracing::Level;
use umbel_env::Clock;
use umbel_events::{
    Direction, Error, EventId, ExpectedVersion, MetadataUpdate, NewEvent, RecordedEvent, Revision,
    Store, StreamState, read_json_keys,
};

use crate::limits::{HISTORY_MAX, WORK_ERROR_BYTES_MAX, WORK_RECORD_BYTES_MAX};
use crate::protocol::truncate_text::truncate_text;
use crate::system_stream;

/// Number of events that the stream keeps: a start and an outcome of each work.
const EVENTS_MAX: usize = 2 * HISTORY_MAX;
/// Maximum number of details of a record that is read.
const DETAILS_MAX: usize = 32;
/// Error of a work whose outcome is unknown.
const INTERRUPTED: &str = "no outcome was recorded: the server ended before, or this store was \
    restored from a backup that was made meanwhile";
/// Error of a work without outcome in a store that was restored since the start of the work.
const RESTORED: &str = "this store was restored from a backup that was made during this work; the \
    original store has the outcome";

/// Kind of the recorded work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkKind {
    /// Scavenges, in the stream of EventStoreDB.
    Scavenge,
    /// Backups.
    Backup,
}

impl WorkKind {
    /// Name of the work, with which names of JSON members begin.
    pub fn name(self) -> &'static str {
        match self {
            WorkKind::Scavenge => "scavenge",
            WorkKind::Backup => "backup",
        }
    }

    fn stream(self) -> &'static str {
        match self {
            WorkKind::Scavenge => "$scavenges",
            WorkKind::Backup => "$umbel-backups",
        }
    }

    fn event_type(self, outcome: WorkOutcome) -> String {
        let end = if outcome == WorkOutcome::InProgress { "Started" } else { "Completed" };
        format!("${}{end}", self.name())
    }
}

/// Outcome of a work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum WorkOutcome {
    /// The work is running.
    InProgress,
    /// The work is complete.
    Success,
    /// A caller stopped the work.
    Stopped,
    /// The work failed.
    Errored,
    /// The server ended before the work.
    Interrupted,
    /// The work did not start at its time, because another one was running.
    Skipped,
    /// The work did not start at its time, because the server was not running then.
    Missed,
}

impl WorkOutcome {
    /// All outcomes of ended work.
    pub const ENDED: [WorkOutcome; 6] = [
        WorkOutcome::Success,
        WorkOutcome::Stopped,
        WorkOutcome::Errored,
        WorkOutcome::Interrupted,
        WorkOutcome::Skipped,
        WorkOutcome::Missed,
    ];

    /// Name of the outcome.
    pub fn name(self) -> &'static str {
        match self {
            WorkOutcome::InProgress => "InProgress",
            WorkOutcome::Success => "Success",
            WorkOutcome::Stopped => "Stopped",
            WorkOutcome::Errored => "Errored",
            WorkOutcome::Interrupted => "Interrupted",
            WorkOutcome::Skipped => "Skipped",
            WorkOutcome::Missed => "Missed",
        }
    }
}

/// Reason why a work stops before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// A caller stopped it.
    Requested,
    /// Auto-scavenge was paused.
    Paused,
    /// The server stops.
    Shutdown,
}

/// Reason why a work started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkOrigin {
    /// The user who started the work; `None` for the schedule, and without authentication.
    pub user: Option<String>,
    /// Time in the schedule, in microseconds since 1970; `None` if a caller started the work.
    pub scheduled_micros: Option<u64>,
}

impl WorkOrigin {
    /// The origin of a work that this user starts.
    pub fn of_user(user: Option<&str>) -> WorkOrigin {
        WorkOrigin { user: user.map(str::to_string), scheduled_micros: None }
    }

    /// The origin of a work that the schedule starts at this time.
    pub fn scheduled(micros: u64) -> WorkOrigin {
        WorkOrigin { user: None, scheduled_micros: Some(micros) }
    }
}

/// Record of a work.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkRecord {
    /// Id of the work.
    pub id: String,
    /// Reason of the start.
    #[serde(flatten)]
    pub origin: WorkOrigin,
    /// Start, in microseconds since 1970 by the wall clock.
    pub started_micros: u64,
    /// End; `None` while the work is running, and if the end is unknown.
    pub ended_micros: Option<u64>,
    /// Outcome.
    #[serde(rename = "result")]
    pub outcome: WorkOutcome,
    /// Reason of the outcome.
    pub error: Option<String>,
    /// Numbers and names that the work reports, such as the freed bytes.
    pub details: Map<String, Value>,
    /// End of the last success up to this record.
    last_success_micros: Option<u64>,
    /// Id of the copy of the store in which the work began. A restored store has another one.
    store_instance: Option<String>,
}

/// Outcomes of scavenges, or of backups.
#[derive(Debug)]
pub struct WorkHistory {
    kind: WorkKind,
    clock: Arc<dyn Clock>,
    /// Id of this copy of the store.
    store_instance: Option<String>,
    /// Notified after each change that is to be written.
    pub changed: Notify,
    state: Mutex<HistoryState>,
    /// Locked while the stream is written.
    writer: Mutex<()>,
}

#[derive(Debug, Default)]
struct HistoryState {
    /// The last records, oldest first.
    records: VecDeque<WorkRecord>,
    /// Records that are not in the stream yet, oldest first.
    unwritten: VecDeque<WorkRecord>,
    last_success_micros: Option<u64>,
    /// Number of works that ended since the start of the server, or that the start closed, by
    /// outcome.
    ended: BTreeMap<WorkOutcome, u64>,
    /// Whether the last write failed, which was logged.
    is_write_failing: bool,
}

impl WorkHistory {
    /// Loads the history of a store. A work without outcome is closed as interrupted, and counts as
    /// ended since the start: the server that began it could not count it. A work of the store from
    /// which this one was restored does not count: it did not fail here, and may have succeeded.
    ///
    /// # Errors
    /// Errors of reads.
    pub fn read(
        kind: WorkKind,
        store: &Store,
        clock: Arc<dyn Clock>,
    ) -> Result<WorkHistory, Error> {
        let mut records = read_records(kind, store)?;
        let last_success_micros = records.iter().filter_map(|last| last.last_success_micros).max();
        let mut state = HistoryState { last_success_micros, ..HistoryState::default() };
        let store_instance = store.directory().instance_id.map(|id| EventId(id).to_string());
        for record in &mut records {
            if record.outcome != WorkOutcome::InProgress {
                continue;
            }
            // Records of earlier versions have no id.
            let is_foreign = record.store_instance.is_some()
                && store_instance.is_some()
                && record.store_instance != store_instance;
            record.outcome = WorkOutcome::Interrupted;
            record.error = Some(if is_foreign { RESTORED } else { INTERRUPTED }.to_string());
            record.last_success_micros = last_success_micros;
            state.enqueue(record.clone());
            if is_foreign {
                tracing::info!(id = record.id, reason = RESTORED, "{} closed", kind.name());
            } else {
                state.count(record);
                record.log_end(kind);
            }
        }
        state.records = records.into();
        let (changed, writer) = (Notify::new(), Mutex::default());
        Ok(WorkHistory { kind, clock, store_instance, changed, state: Mutex::new(state), writer })
    }

    fn state(&self) -> MutexGuard<'_, HistoryState> {
        self.state.lock().ignore_poison()
    }

    /// Records that a work begins.
    pub fn begin(&self, id: &str, origin: WorkOrigin) {
        let (user, is_scheduled) = (origin.user.clone(), origin.scheduled_micros.is_some());
        self.add(id, origin, WorkOutcome::InProgress, None);
        tracing::info!(id, user, is_scheduled, "{} started", self.kind.name());
    }

    /// Records a work that does not begin.
    pub fn omit(&self, id: &str, origin: WorkOrigin, outcome: WorkOutcome, reason: &str) {
        self.add(id, origin, outcome, Some(reason.to_string()));
        tracing::warn!(outcome = outcome.name(), reason, "a {} did not start", self.kind.name());
    }

    fn add(&self, id: &str, origin: WorkOrigin, outcome: WorkOutcome, error: Option<String>) {
        let now = self.clock.wall_micros();
        let mut state = self.state();
        let record = WorkRecord {
            id: id.to_string(),
            origin,
            started_micros: now,
            ended_micros: Some(now).filter(|_| outcome != WorkOutcome::InProgress),
            outcome,
            error,
            details: Map::new(),
            last_success_micros: state.last_success_micros,
            store_instance: self.store_instance.clone(),
        };
        state.records.push_back(record.clone());
        state.count(&record);
        let excess = state.records.len().saturating_sub(HISTORY_MAX);
        state.records.drain(..excess);
        state.enqueue(record);
        drop(state);
        self.changed.notify_one();
    }

    /// Records the outcome of a work that has begun.
    pub fn end(
        &self,
        id: &str,
        outcome: WorkOutcome,
        error: Option<&str>,
        details: Map<String, Value>,
    ) {
        let now = self.clock.wall_micros();
        let mut state = self.state();
        if outcome == WorkOutcome::Success {
            state.last_success_micros = Some(now);
        }
        let last_success_micros = state.last_success_micros;
        let Some(record) = state.records.iter_mut().rev().find(|record| record.id == id) else {
            return;
        };
        record.outcome = outcome;
        record.error = error.map(|text| truncate_text(text, WORK_ERROR_BYTES_MAX).into_owned());
        record.ended_micros = Some(now);
        record.details = details;
        record.last_success_micros = last_success_micros;
        let record = record.clone();
        state.count(&record);
        state.enqueue(record.clone());
        drop(state);
        self.changed.notify_one();
        record.log_end(self.kind);
    }

    /// The last works as the HTTP API and the console show them, newest first.
    pub fn to_json(&self) -> Vec<Value> {
        self.records().iter().map(|record| record.to_json(self.kind)).collect()
    }

    /// The last works, newest first.
    pub fn records(&self) -> Vec<WorkRecord> {
        self.state().records.iter().rev().cloned().collect()
    }

    /// The work with this id; `None` if it is not in the history.
    pub fn record(&self, id: &str) -> Option<WorkRecord> {
        self.state().records.iter().rev().find(|record| record.id == id).cloned()
    }

    /// The newest record; `None` if the history is empty.
    pub fn last_record(&self) -> Option<WorkRecord> {
        self.state().records.back().cloned()
    }

    /// Time of the newest record with a time in the schedule, in microseconds since 1970.
    pub fn last_scheduled_micros(&self) -> Option<u64> {
        self.state().records.iter().filter_map(|record| record.origin.scheduled_micros).max()
    }

    /// End of the last success, in microseconds since 1970; `None` if there was none.
    pub fn last_success_micros(&self) -> Option<u64> {
        self.state().last_success_micros
    }

    /// Number of works that ended since the start of the server, or that the start closed as
    /// interrupted, by outcome.
    pub fn ended(&self) -> BTreeMap<WorkOutcome, u64> {
        self.state().ended.clone()
    }

    /// Whether a flush has records to write.
    pub fn has_unwritten(&self) -> bool {
        !self.state().unwritten.is_empty()
    }

    /// Writes the records that are not in the stream yet. Blocks.
    ///
    /// # Errors
    /// Errors of writes. The records stay for the next flush, and the first of several errors is
    /// logged.
    pub fn flush(&self, store: &Store) -> Result<(), Error> {
        let _writing = self.writer.lock().ignore_poison();
        loop {
            let Some(record) = self.state().unwritten.front().cloned() else { return Ok(()) };
            let written = self.write(store, &record);
            let mut state = self.state();
            let was_failing = std::mem::replace(&mut state.is_write_failing, written.is_err());
            if let Err(error) = &written {
                if !was_failing {
                    let kind = self.kind.name();
                    tracing::warn!(%error, "the history of {kind}s could not be written");
                }
                return written;
            }
            // A change while the record was written is another record.
            if state.unwritten.front() == Some(&record) {
                state.unwritten.pop_front();
            }
        }
    }

    fn write(&self, store: &Store, record: &WorkRecord) -> Result<(), Error> {
        let own = self.kind.stream();
        let (stream, state) = system_stream::find(store, own)?;
        if !matches!(state, StreamState::Live { .. }) {
            store.update_metadata(&stream, MetadataUpdate::DefaultMaxCount(EVENTS_MAX as u64))?;
            if stream != own {
                system_stream::report_replacement(own, &stream, "keeps the history there");
            }
        }
        let data = self.encode(record)?;
        let kind = self.kind.event_type(record.outcome);
        let event = NewEvent::json(store.new_id()?, &kind, &data);
        store.append(&stream, ExpectedVersion::Any, &[event]).map(drop)
    }

    /// The data of a record's event, with the members that EventStoreDB's events have.
    fn encode(&self, record: &WorkRecord) -> Result<Vec<u8>, Error> {
        let wrong = |error: serde_json::Error| Error::Invalid(error.to_string());
        let mut value = serde_json::to_value(record).map_err(wrong)?;
        value[format!("{}Id", self.kind.name())] = value["id"].take();
        if let Some(members) = value.as_object_mut() {
            members.remove("id");
        }
        value["timeTaken"] = json!(record.time_taken());
        if self.kind == WorkKind::Scavenge {
            value["spaceSaved"] = record.details.get("bytesFreed").cloned().unwrap_or(json!(0));
        }
        serde_json::to_vec(&value).map_err(wrong)
    }
}

impl HistoryState {
    fn count(&mut self, record: &WorkRecord) {
        if record.outcome != WorkOutcome::InProgress {
            *self.ended.entry(record.outcome).or_default() += 1;
        }
    }

    fn enqueue(&mut self, record: WorkRecord) {
        if self.unwritten.len() == EVENTS_MAX {
            self.unwritten.pop_front();
        }
        self.unwritten.push_back(record);
    }
}

impl WorkRecord {
    /// Logs the end of the work: a failure as a warning.
    fn log_end(&self, kind: WorkKind) {
        let number = |name: &str| self.details.get(name).and_then(Value::as_u64);
        let took = self.ended_micros.map(|end| end.saturating_sub(self.started_micros));
        // The level of a tracing event is static.
        macro_rules! line {
            ($level:expr) => {
                tracing::event!(
                    $level,
                    id = self.id,
                    user = self.origin.user,
                    outcome = self.outcome.name(),
                    reason = self.error,
                    bytes_freed = number("bytesFreed"),
                    bytes_copied = number("copiedBytes"),
                    seconds = took.map(|micros| micros as f64 / 1e6),
                    "{} ended",
                    kind.name()
                )
            };
        }
        match self.outcome {
            WorkOutcome::Success | WorkOutcome::Stopped => line!(Level::INFO),
            _ => line!(Level::WARN),
        }
    }

    /// Time between start and end in .NET's form, such as `1.03:04:05.0000006`; `None` without end.
    fn time_taken(&self) -> Option<String> {
        self.ended_micros.map(|end| time_span(end.saturating_sub(self.started_micros)))
    }

    /// The record as the HTTP API and the console show it. The names of its first members begin
    /// with the kind of the work.
    pub fn to_json(&self, kind: WorkKind) -> Value {
        let name = kind.name();
        let mut value = Value::Object(self.details.clone());
        value[format!("{name}Id")] = json!(self.id);
        value[format!("{name}Result")] = json!(self.outcome.name());
        value["error"] = json!(self.error);
        value["user"] = json!(self.origin.user);
        value["scheduled"] = json!(self.origin.scheduled_micros.and_then(time_text));
        value["started"] = json!(time_text(self.started_micros));
        value["ended"] = json!(self.ended_micros.and_then(time_text));
        value["timeTaken"] = json!(self.time_taken());
        value
    }
}

/// The works in the events of the stream, oldest first.
fn read_records(kind: WorkKind, store: &Store) -> Result<Vec<WorkRecord>, Error> {
    let (stream, _) = system_stream::find_or_own(store, kind.stream())?;
    let mut records: Vec<WorkRecord> = Vec::new();
    let events = store.read(&stream, Revision::END, Direction::Backwards);
    for event in events.take(EVENTS_MAX) {
        let event = match event {
            Err(Error::StreamDeleted { .. }) => break,
            event => event?,
        };
        let Some(record) = parse(kind, &event) else { continue };
        if records.len() < HISTORY_MAX && records.iter().all(|later| later.id != record.id) {
            records.push(record);
        }
    }
    records.reverse();
    Ok(records)
}

/// The record in an event; `None` if the event has none.
pub fn parse(kind: WorkKind, event: &RecordedEvent) -> Option<WorkRecord> {
    if event.data.len() > WORK_RECORD_BYTES_MAX {
        return None;
    }
    let record = parse_record(&event.data)?;
    (event.kind == kind.event_type(record.outcome)).then_some(record)
}

/// Reads the known members, without a tree of the others: administrators may append such events.
fn parse_record(data: &[u8]) -> Option<WorkRecord> {
    let [id, scavenge_id, backup_id] =
        read_json_keys(data, ["id", "scavengeId", "backupId"]).ok()?;
    let keys = ["user", "scheduledMicros", "startedMicros", "endedMicros", "result", "error"];
    let [user, scheduled, started, ended, result, error] = read_json_keys(data, keys).ok()?;
    let keys = ["details", "lastSuccessMicros", "storeInstance"];
    let [details, last_success, instance] = read_json_keys(data, keys).ok()?;
    Some(WorkRecord {
        id: value(id.or(scavenge_id).or(backup_id))?,
        origin: WorkOrigin { user: optional(user)?, scheduled_micros: optional(scheduled)? },
        started_micros: value(started)?,
        ended_micros: optional(ended)?,
        outcome: value(result)?,
        error: optional(error)?,
        details: details.map_or(Some(Map::new()), |json| {
            serde_json::from_str::<ScalarMap>(json).ok().map(|details| details.0)
        })?,
        last_success_micros: optional(last_success)?,
        store_instance: optional(instance)?,
    })
}

fn value<T: DeserializeOwned>(json: Option<&str>) -> Option<T> {
    serde_json::from_str(json?).ok()
}

/// The value of a member that may be missing or null; `None` if it has another type.
fn optional<T: DeserializeOwned>(json: Option<&str>) -> Option<Option<T>> {
    json.map_or(Some(None), |json| serde_json::from_str(json).ok())
}

/// Members of an object that are no lists or objects, at most [`DETAILS_MAX`].
struct ScalarMap(Map<String, Value>);

impl<'de> Deserialize<'de> for ScalarMap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ScalarMap, D::Error> {
        deserializer.deserialize_map(ScalarMapVisitor)
    }
}

struct ScalarMapVisitor;

impl<'de> Visitor<'de> for ScalarMapVisitor {
    type Value = ScalarMap;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ScalarMap, A::Error> {
        let mut members = Map::new();
        while let Some(name) = map.next_key::<Cow<'de, str>>()? {
            let json = map.next_value::<&'de RawValue>()?.get();
            if members.len() < DETAILS_MAX && !json.starts_with(['[', '{']) {
                let value = serde_json::from_str(json).map_err(A::Error::custom)?;
                members.insert(name.into_owned(), value);
            }
        }
        Ok(ScalarMap(members))
    }
}

/// A duration in .NET's form, such as `1.03:04:05.0000006`.
pub fn time_span(micros: u64) -> String {
    let seconds = micros / 1_000_000;
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (hours, minutes, seconds) = (rest / 3600, rest / 60 % 60, rest % 60);
    let days = if days > 0 { format!("{days}.") } else { String::new() };
    match micros % 1_000_000 {
        0 => format!("{days}{hours:02}:{minutes:02}:{seconds:02}"),
        micros => format!("{days}{hours:02}:{minutes:02}:{seconds:02}.{:07}", micros * 10),
    }
}

/// A time by RFC 3339 with milliseconds, in UTC; `None` for times that have no such text.
pub fn time_text(micros: u64) -> Option<String> {
    let time = chrono::DateTime::from_timestamp_micros(i64::try_from(micros).ok()?)?;
    Some(time.to_rfc3339_opts(chrono::SecondsFormat::Millis, true))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use umbel_env::Env;
    use umbel_events::{CopyOptions, StoreOptions, restore};

    use super::*;

    /// Clock that advances by one second with each reading.
    #[derive(Debug, Default)]
    struct TickingClock(AtomicU64);

    impl Clock for TickingClock {
        fn now(&self) -> Duration {
            Duration::ZERO
        }

        fn wall_micros(&self) -> u64 {
            self.0.fetch_add(1_000_000, Ordering::Relaxed)
        }
    }

    fn read(store: &Store, kind: WorkKind, clock: &Arc<TickingClock>) -> WorkHistory {
        WorkHistory::read(kind, store, Arc::clone(clock) as Arc<dyn Clock>).unwrap()
    }

    fn details(bytes: u64) -> Map<String, Value> {
        Map::from_iter([("bytesFreed".to_string(), json!(bytes))])
    }

    #[test]
    fn last_outcomes_survive_restarts() {
        for kind in [WorkKind::Scavenge, WorkKind::Backup] {
            let directory = tempfile::tempdir().unwrap();
            let store = Store::open(directory.path(), StoreOptions::default()).unwrap();
            let clock = Arc::default();
            let history = read(&store, kind, &clock);
            assert_eq!((history.last_success_micros(), history.records()), (None, vec![]));
            history.begin("good", WorkOrigin::of_user(Some("ada")));
            history.flush(&store).unwrap();
            history.end("good", WorkOutcome::Success, None, details(7));
            let success = history.last_success_micros();
            assert_eq!(success, Some(1_000_000));
            for number in 0..HISTORY_MAX as u64 {
                let id = number.to_string();
                history.begin(&id, WorkOrigin::scheduled(number));
                let why = "x".repeat(10_000);
                history.end(&id, WorkOutcome::Errored, Some(&why), Map::new());
                history.flush(&store).unwrap();
            }
            let records = history.records();
            assert_eq!((records.len(), &*records[0].id, &*records[99].id), (100, "99", "0"));
            assert!(records[0].error.as_ref().unwrap().len() <= WORK_ERROR_BYTES_MAX);
            let again = read(&store, kind, &clock);
            assert_eq!(again.records(), records);
            assert_eq!((again.last_success_micros(), again.has_unwritten()), (success, false));
            assert_eq!(again.last_scheduled_micros(), Some(99));
            let kept = store.read(kind.stream(), Revision::START, Direction::Forwards).count();
            assert_eq!(kept, EVENTS_MAX);
            assert_eq!(again.ended(), BTreeMap::new(), "counters begin at 0");
            assert_eq!(history.ended()[&WorkOutcome::Errored], 100);
        }
    }

    /// Story: an event of 64 KiB became a tree of several megabytes.
    #[test]
    fn details_are_read_without_trees() {
        let members: String = (0..100).map(|number| format!(",\"n{number}\":{number}")).collect();
        let data = format!(
            "{{\"scavengeId\":\"a\",\"startedMicros\":7,\"result\":\"Success\",\"other\":[{{}}],\
             \"user\":null,\"details\":{{\"tree\":[{{\"\":0}}],\"bytesFreed\":9{members}}}}}"
        );
        let record = parse_record(data.as_bytes()).unwrap();
        assert_eq!((&*record.id, record.started_micros, record.origin.user), ("a", 7, None));
        assert_eq!(record.outcome, WorkOutcome::Success);
        assert_eq!((record.details.len(), &record.details["bytesFreed"]), (DETAILS_MAX, &json!(9)));
        assert!(!record.details.contains_key("tree"));
        for wrong in ["{}", "[]", "7", "{\"id\":7,\"startedMicros\":7,\"result\":\"Success\"}"] {
            assert_eq!(parse_record(wrong.as_bytes()), None, "{wrong}");
        }
    }

    /// Story: a backup that ended with its process was in no counter, so no alert fired.
    #[test]
    fn work_without_outcome_counts_as_interrupted() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path(), StoreOptions::default()).unwrap();
        let clock = Arc::default();
        let history = read(&store, WorkKind::Scavenge, &clock);
        history.begin("killed", WorkOrigin::of_user(None));
        history.flush(&store).unwrap();
        // Only the start that closes the record counts it.
        for counted in [BTreeMap::from([(WorkOutcome::Interrupted, 1)]), BTreeMap::new()] {
            let again = read(&store, WorkKind::Scavenge, &clock);
            assert_eq!(again.ended(), counted);
            let record = again.record("killed").unwrap();
            assert_eq!((record.outcome, record.ended_micros), (WorkOutcome::Interrupted, None));
            assert_eq!(record.error.as_deref(), Some(INTERRUPTED));
            again.flush(&store).unwrap();
            assert_eq!(again.records().len(), 1);
        }
        let last = store.read("$scavenges", Revision::END, Direction::Backwards).next();
        assert_eq!(last.unwrap().unwrap().kind, "$scavengeCompleted");
    }

    /// Story: a restored store raised the alert for a failed backup for a day. It has the start of
    /// the backup from which it was restored.
    #[test]
    fn work_of_the_original_store_does_not_count_in_a_restored_one() {
        for kind in [WorkKind::Scavenge, WorkKind::Backup] {
            let directory = tempfile::tempdir().unwrap();
            let path = |name: &str| directory.path().join(name);
            let store = Store::open(path("store"), StoreOptions::default()).unwrap();
            let clock = Arc::default();
            let history = read(&store, kind, &clock);
            history.begin("copied", WorkOrigin::of_user(Some("ops")));
            history.flush(&store).unwrap();
            store.backup(path("copy"), CopyOptions::default()).unwrap();
            let options = CopyOptions::default();
            restore(&Env::system(), &path("copy"), &path("restored"), options).unwrap();
            let restored = Store::open(path("restored"), StoreOptions::default()).unwrap();
            for _ in 0..2 {
                let again = read(&restored, kind, &clock);
                assert_eq!(again.ended(), BTreeMap::new());
                let record = again.record("copied").unwrap();
                assert_eq!(record.outcome, WorkOutcome::Interrupted);
                assert_eq!(record.error.as_deref(), Some(RESTORED));
                again.flush(&restored).unwrap();
            }
            let original = read(&store, kind, &clock);
            assert_eq!(original.ended(), BTreeMap::from([(WorkOutcome::Interrupted, 1)]));
            // Work that begins in the restored store is its own.
            let own = read(&restored, kind, &clock);
            own.begin("killed", WorkOrigin::of_user(None));
            own.flush(&restored).unwrap();
            let counted = read(&restored, kind, &clock).ended();
            assert_eq!(counted, BTreeMap::from([(WorkOutcome::Interrupted, 1)]));
        }
    }

    /// A store that accepts no records keeps them in memory, and in the next flush.
    #[test]
    fn records_that_could_not_be_written_stay() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path(), StoreOptions::default()).unwrap();
        let clock = Arc::default();
        let history = read(&store, WorkKind::Backup, &clock);
        let other = tempfile::tempdir().unwrap();
        let closed = Store::open(other.path(), StoreOptions::default()).unwrap();
        let handle = closed.clone();
        closed.close().unwrap();
        for number in 0..2 * EVENTS_MAX {
            history.omit(&number.to_string(), WorkOrigin::default(), WorkOutcome::Missed, "late");
        }
        history.flush(&handle).unwrap_err();
        assert!(history.has_unwritten());
        assert_eq!(history.records().len(), HISTORY_MAX);
        history.flush(&store).unwrap();
        assert!(!history.has_unwritten());
        assert_eq!(read(&store, WorkKind::Backup, &clock).records(), history.records());
    }

    #[test]
    fn events_have_the_members_of_event_store_db() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path(), StoreOptions::default()).unwrap();
        let history = read(&store, WorkKind::Scavenge, &Arc::default());
        history.begin("a", WorkOrigin::of_user(Some("ops")));
        history.end("a", WorkOutcome::Success, None, details(7));
        history.flush(&store).unwrap();
        let events = store.read("$scavenges", Revision::START, Direction::Forwards);
        let events: Vec<_> = events.map(Result::unwrap).collect();
        let kinds: Vec<&str> = events.iter().map(|event| &*event.kind).collect();
        assert_eq!(kinds, ["$scavengeStarted", "$scavengeCompleted"]);
        let value: Value = serde_json::from_slice(&events[1].data).unwrap();
        assert_eq!((&value["scavengeId"], &value["result"]), (&json!("a"), &json!("Success")));
        assert_eq!((&value["spaceSaved"], &value["error"]), (&json!(7), &Value::Null));
        assert_eq!((&value["timeTaken"], value.get("id")), (&json!("00:00:01"), None));
    }

    #[test]
    fn durations_have_the_form_of_dot_net() {
        for (micros, wanted) in [
            (0, "00:00:00"),
            (1, "00:00:00.0000010"),
            (134_072_629_911, "1.13:14:32.6299110"),
            (86_400_000_000, "1.00:00:00"),
        ] {
            assert_eq!(time_span(micros), wanted);
        }
        assert_eq!(time_text(1_000).as_deref(), Some("1970-01-01T00:00:00.001Z"));
        assert_eq!(time_text(u64::MAX), None);
    }
}
