//! [`AutoScavenge`]: scavenges that a schedule starts. A system stream keeps the settings across
//! restarts, and so backups include them.
//!
//! INVARIANT: a change is written before it takes effect, so that a restart undoes no change.

use std::sync::{Arc, Mutex, MutexGuard};
use umbel_base::ignore_poison::IgnorePoison;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tonic::Status;
use umbel_env::Clock;
use umbel_events::{
    Error, ExpectedVersion, MetadataUpdate, NewEvent, RecordedEvent, Store, StreamState,
};

use crate::event_store::EventStore;
use crate::event_store::scavenge_schedule::{DueTime, ScavengeSchedule, Timetable};
use crate::event_store::scavenging::{
    ScavengeOptions, ScavengePhase, ScavengeStart, ScavengeState, Scavenger,
};
use crate::event_store::work_history::{
    StopReason, WorkHistory, WorkOrigin, WorkOutcome, time_span, time_text,
};
use crate::limits::AUTO_SCAVENGE_BYTES_MAX;
use crate::protocol::grpc_status;
use crate::system_stream;

/// The stream that records the settings. Only the stream's last event is valid.
const STREAM: &str = "$umbel-auto-scavenge";
/// Type of the events that record the settings.
pub const CHANGED_TYPE: &str = "$autoScavengeConfigured";
/// Number of earlier settings that the stream keeps.
const SETTINGS_KEPT: u64 = 10;
const SKIPPED: &str = "another scavenge was running at this time";
const MISSED: &str = "the server was not running at this time, or its clock jumped over it; the \
    schedule continues with its next time";

/// Settings of auto-scavenge.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AutoScavengeSettings {
    /// Times of scavenges; `None` for no automatic scavenges.
    #[serde(with = "schedule_text")]
    pub schedule: Option<ScavengeSchedule>,
    /// Least share of dead bytes at which a chunk is rewritten, in percent.
    pub threshold_percent: u64,
    /// Percentage of time in which a scavenge works.
    pub throttle_percent: u64,
    /// Whether no scavenge starts.
    pub is_paused: bool,
    /// Time of the scavenge that the pause stopped, in microseconds since 1970.
    resume_micros: Option<u64>,
    /// Time at which the schedule was set, in microseconds since 1970.
    scheduled_since: u64,
    /// Whether the schedule is the option of the server, which a change replaces.
    is_from_option: bool,
}

impl Default for AutoScavengeSettings {
    fn default() -> AutoScavengeSettings {
        AutoScavengeSettings {
            schedule: None,
            threshold_percent: 30,
            throttle_percent: 25,
            is_paused: false,
            resume_micros: None,
            scheduled_since: 0,
            is_from_option: true,
        }
    }
}

/// The schedule of stored settings as text.
mod schedule_text {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    use super::ScavengeSchedule;

    pub fn serialize<S: Serializer>(
        schedule: &Option<ScavengeSchedule>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match schedule {
            Some(schedule) => serializer.collect_str(schedule),
            None => serializer.serialize_none(),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<ScavengeSchedule>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        text.map(|text| text.parse().map_err(D::Error::custom)).transpose()
    }
}

/// Change of settings; `None` leaves a setting as it is.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AutoScavengeChange {
    /// A cron expression; null for no automatic scavenges.
    #[serde(default, deserialize_with = "present")]
    pub schedule: Option<Option<String>>,
    /// Least share of dead bytes at which a chunk is rewritten, in percent, 0 to 100.
    pub threshold_percent: Option<u64>,
    /// Percentage of time in which a scavenge works, 1 to 100.
    pub throttle_percent: Option<u64>,
}

/// A member that is present, even if it is null.
fn present<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

impl AutoScavengeChange {
    /// Applies the change. Finding the times of an expression takes time. The error says what to
    /// change.
    fn apply(&self, settings: &mut AutoScavengeSettings, now: u64) -> Result<(), String> {
        if let Some(schedule) = &self.schedule {
            settings.schedule = schedule.as_deref().map(str::parse).transpose()?;
            settings.scheduled_since = now;
            settings.is_from_option = false;
        }
        for (name, value, min, setting) in [
            ("thresholdPercent", self.threshold_percent, 0, &mut settings.threshold_percent),
            ("throttlePercent", self.throttle_percent, 1, &mut settings.throttle_percent),
        ] {
            let Some(value) = value else { continue };
            if !(min..=100).contains(&value) {
                return Err(format!("{name} is {value}, but must be {min} to 100"));
            }
            *setting = value;
        }
        Ok(())
    }
}

/// State of auto-scavenge, with KurrentDB's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AutoScavengeState {
    /// No schedule is set.
    NotConfigured,
    /// The next scavenge starts at its time.
    Waiting,
    /// A scavenge that the schedule started is running.
    InProgress,
    /// No scavenge starts, but one is still stopping.
    Pausing,
    /// No scavenge starts.
    Paused,
}

impl AutoScavengeState {
    /// Name of the state.
    pub fn name(self) -> &'static str {
        match self {
            AutoScavengeState::NotConfigured => "NotConfigured",
            AutoScavengeState::Waiting => "Waiting",
            AutoScavengeState::InProgress => "InProgress",
            AutoScavengeState::Pausing => "Pausing",
            AutoScavengeState::Paused => "Paused",
        }
    }
}

/// State and settings of auto-scavenge.
#[derive(Debug, Clone)]
pub struct AutoScavengeStatus {
    /// State.
    pub state: AutoScavengeState,
    /// Settings.
    pub settings: AutoScavengeSettings,
    /// Time of the next scavenge, in microseconds since 1970; `None` if none starts.
    pub next_micros: Option<u64>,
    /// Time until then, in microseconds.
    pub until_next_micros: Option<u64>,
}

impl AutoScavengeStatus {
    /// The status as the HTTP API and the console show it, with the members of KurrentDB first.
    pub fn to_json(&self) -> Value {
        let settings = &self.settings;
        json!({
            "state": self.state.name(),
            "schedule": settings.schedule.as_ref().map(|schedule| schedule.to_string()),
            "timeUntilNextCycle": self.until_next_micros.map(time_span),
            "nextScavenge": self.next_micros.and_then(time_text),
            "thresholdPercent": settings.threshold_percent,
            "throttlePercent": settings.throttle_percent,
        })
    }
}

/// Scavenges that a schedule starts.
#[derive(Debug)]
pub struct AutoScavenge {
    clock: Arc<dyn Clock>,
    scavenger: Arc<dyn Scavenger>,
    history: Arc<WorkHistory>,
    state: Mutex<ScheduleState>,
    /// Locked during each change.
    changing: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct ScheduleState {
    settings: AutoScavengeSettings,
    timetable: Option<Timetable>,
    /// Id of the scavenge because of which a time was skipped, which is recorded once.
    skipped_by: Option<String>,
}

/// Logs a change of auto-scavenge with the user that made it.
fn log_change(change: &'static str, by: Option<&str>) {
    tracing::info!(by, "auto-scavenge {change}");
}

impl AutoScavenge {
    /// Loads the settings of a store. `option` is the schedule until a change sets one.
    ///
    /// # Errors
    /// Errors of reads.
    pub fn read(
        store: &Store,
        clock: Arc<dyn Clock>,
        (scavenger, history): (Arc<dyn Scavenger>, Arc<WorkHistory>),
        option: Option<ScavengeSchedule>,
    ) -> Result<AutoScavenge, Error> {
        let now = clock.wall_micros();
        let (stream, _) = system_stream::find_or_own(store, STREAM)?;
        let stored = system_stream::newest_valid(store, &stream, None, |event| Ok(parse(event)))?;
        let mut settings = stored.unwrap_or_default();
        if settings.is_from_option && settings.schedule != option {
            (settings.schedule, settings.scheduled_since) = (option, now);
            if let Err(error) = write(store, &settings) {
                tracing::warn!(%error, "the schedule of scavenges could not be written");
            }
        }
        let since = settings.scheduled_since.max(history.last_scheduled_micros().unwrap_or(0));
        let timetable = settings.schedule.clone().map(|times| Timetable::new(times, since, now));
        let state = Mutex::new(ScheduleState { settings, timetable, skipped_by: None });
        let changing = tokio::sync::Mutex::default();
        Ok(AutoScavenge { clock, scavenger, history, state, changing })
    }

    fn state(&self) -> MutexGuard<'_, ScheduleState> {
        self.state.lock().ignore_poison()
    }

    /// State and settings.
    pub fn status(&self) -> AutoScavengeStatus {
        let is_running = self.running().is_some_and(|(_, time)| time.is_some());
        let state = self.state();
        let settings = state.settings.clone();
        let now = self.clock.wall_micros();
        let phase = match (settings.is_paused, is_running) {
            (true, true) => AutoScavengeState::Pausing,
            (true, false) => AutoScavengeState::Paused,
            (false, true) => AutoScavengeState::InProgress,
            (false, false) if state.timetable.is_none() => AutoScavengeState::NotConfigured,
            (false, false) => AutoScavengeState::Waiting,
        };
        let next = state.timetable.as_ref().filter(|_| !settings.is_paused);
        let next_micros = next.and_then(Timetable::next);
        let until_next_micros = next_micros.map(|next| next.saturating_sub(now));
        AutoScavengeStatus { state: phase, settings, next_micros, until_next_micros }
    }

    /// Id of the running scavenge, and its time in the schedule if the schedule started it.
    fn running(&self) -> Option<(String, Option<u64>)> {
        let ScavengeState { id, phase, origin, .. } = self.scavenger.last_state()?;
        (phase == ScavengePhase::InProgress).then_some((id, origin.scheduled_micros))
    }

    /// Whether a time has come for which [`AutoScavenge::start_due`] is to be called.
    pub fn is_due(&self) -> bool {
        let now = self.clock.wall_micros();
        self.state().timetable.as_mut().is_some_and(|times| times.is_due(now))
    }

    /// Starts a scavenge if its time has come. Blocks.
    pub fn start_due(&self) {
        let now = self.clock.wall_micros();
        let due = {
            let mut state = self.state();
            let due = state.timetable.as_mut().and_then(|times| times.take_due(now));
            due.filter(|_| !state.settings.is_paused)
        };
        match due {
            Some(DueTime::Now(time)) => self.start(time),
            Some(DueTime::Missed(time)) => self.omit(time, WorkOutcome::Missed, MISSED),
            None => {}
        }
    }

    fn start(&self, time: u64) {
        let options = {
            let state = self.state();
            ScavengeOptions {
                busy_percent: Some(state.settings.throttle_percent),
                dead_percent_min: state.settings.threshold_percent,
                ..ScavengeOptions::default()
            }
        };
        match self.scavenger.start(options, WorkOrigin::scheduled(time)) {
            Ok(ScavengeStart::Started(id)) => {
                if self.state().settings.is_paused {
                    // The pause did not find this scavenge. An error means that it has ended.
                    let _ = self.scavenger.stop(&id, StopReason::Paused);
                }
            }
            Ok(ScavengeStart::InProgress(id)) => {
                let earlier = self.state().skipped_by.replace(id.clone());
                if earlier != Some(id) {
                    self.omit(time, WorkOutcome::Skipped, SKIPPED);
                }
            }
            Err(status) => self.omit(time, WorkOutcome::Errored, status.message()),
        }
    }

    fn omit(&self, time: u64, outcome: WorkOutcome, reason: &str) {
        let id = self.scavenger.new_id();
        self.history.omit(&id, WorkOrigin::scheduled(time), outcome, reason);
    }

    /// Changes settings.
    ///
    /// # Errors
    /// A setting is invalid, or the settings could not be written.
    pub async fn configure(
        &self,
        store: &EventStore,
        change: AutoScavengeChange,
        by: Option<&str>,
    ) -> Result<(), Status> {
        let now = self.clock.wall_micros();
        let is_scheduled = change.schedule.is_some();
        let apply = move |settings: &mut AutoScavengeSettings| change.apply(settings, now);
        self.change(store, apply).await?;
        if is_scheduled {
            let mut state = self.state();
            let schedule = state.settings.schedule.clone();
            state.timetable = schedule.map(|times| Timetable::new(times, now, now));
        }
        log_change("settings changed", by);
        Ok(())
    }

    /// Starts no scavenge until [`AutoScavenge::resume`], and stops one that the schedule started.
    ///
    /// # Errors
    /// The settings could not be written.
    pub async fn pause(&self, store: &EventStore, by: Option<&str>) -> Result<(), Status> {
        self.change(store, |settings| {
            settings.is_paused = true;
            Ok(())
        })
        .await?;
        log_change("paused", by);
        let Some((id, Some(time))) = self.running() else { return Ok(()) };
        self.scavenger.stop(&id, StopReason::Paused)?;
        let resume_at = move |settings: &mut AutoScavengeSettings| {
            settings.resume_micros = Some(time);
            Ok(())
        };
        self.change(store, resume_at).await
    }

    /// Ends a pause. A scavenge that the pause stopped continues.
    ///
    /// # Errors
    /// The settings could not be written.
    pub async fn resume(
        self: &Arc<Self>,
        store: &EventStore,
        by: Option<&str>,
    ) -> Result<(), Status> {
        let stopped = self.state().settings.resume_micros;
        let resume = |settings: &mut AutoScavengeSettings| {
            settings.resume_micros = None;
            settings.is_paused = false;
            Ok(())
        };
        self.change(store, resume).await?;
        log_change("resumed", by);
        if let Some(time) = stopped {
            let this = Arc::clone(self);
            let starting = tokio::task::spawn_blocking(move || this.start(time));
            // An error means that the server is stopping.
            let _ = starting.await;
        }
        Ok(())
    }

    /// Writes changed settings, after which they are in effect.
    async fn change(
        &self,
        store: &EventStore,
        change: impl FnOnce(&mut AutoScavengeSettings) -> Result<(), String> + Send + 'static,
    ) -> Result<(), Status> {
        let _changing = self.changing.lock().await;
        let old = self.state().settings.clone();
        let writing = store.blocking(move |store| {
            let mut settings = old.clone();
            if let Err(why) = change(&mut settings) {
                return Ok(Err(why));
            }
            if settings != old {
                write(store, &settings)?;
            }
            Ok(Ok(settings))
        });
        let written = writing.await.map_err(|error| grpc_status::status(&error))?;
        self.state().settings = written.map_err(Status::invalid_argument)?;
        Ok(())
    }
}

fn write(store: &Store, settings: &AutoScavengeSettings) -> Result<(), Error> {
    let (stream, state) = system_stream::find(store, STREAM)?;
    if !matches!(state, StreamState::Live { .. }) {
        store.update_metadata(&stream, MetadataUpdate::DefaultMaxCount(SETTINGS_KEPT))?;
        if stream != STREAM {
            let effect = "records the settings of auto-scavenge there";
            system_stream::report_replacement(STREAM, &stream, effect);
        }
    }
    let data = serde_json::to_vec(settings).map_err(|error| Error::Invalid(error.to_string()))?;
    let event = NewEvent::json(store.new_id()?, CHANGED_TYPE, &data);
    store.append(&stream, ExpectedVersion::Any, &[event]).map(drop)
}

/// The settings that an event records; `None` if the event is not valid.
pub fn parse(event: &RecordedEvent) -> Option<AutoScavengeSettings> {
    if event.kind != CHANGED_TYPE || event.data.len() > AUTO_SCAVENGE_BYTES_MAX {
        return None;
    }
    let settings: AutoScavengeSettings = serde_json::from_slice(&event.data).ok()?;
    let are_valid =
        settings.threshold_percent <= 100 && (1..=100).contains(&settings.throttle_percent);
    are_valid.then_some(settings)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use umbel_events::StoreOptions;

    use super::*;
    use crate::event_store::work_history::{WorkKind, WorkRecord};
    use crate::resources::worker_times::TaskSpawner;
    use umbel_events::ScavengeReport;

    const HOUR: u64 = 3_600_000_000;
    const DAY: u64 = 24 * HOUR;
    /// Midnight on 2026-11-29.
    const MIDNIGHT: u64 = 20_786 * DAY;

    /// Clock that a test sets.
    #[derive(Debug, Default)]
    struct ManualClock(AtomicU64);

    impl Clock for ManualClock {
        fn now(&self) -> Duration {
            Duration::from_micros(self.0.load(Ordering::Relaxed))
        }

        fn wall_micros(&self) -> u64 {
            self.0.load(Ordering::Relaxed)
        }
    }

    /// Scavenger whose scavenges end when a test ends them.
    #[derive(Debug, Default)]
    struct StubScavenger {
        starts: Mutex<Vec<(ScavengeOptions, WorkOrigin)>>,
        stops: Mutex<Vec<StopReason>>,
        running: Mutex<Option<ScavengeState>>,
        failure: Mutex<Option<Status>>,
    }

    impl Scavenger for StubScavenger {
        fn start(
            &self,
            options: ScavengeOptions,
            origin: WorkOrigin,
        ) -> Result<ScavengeStart, Status> {
            if let Some(failure) = &*self.failure.lock().unwrap() {
                return Err(failure.clone());
            }
            let mut running = self.running.lock().unwrap();
            if let Some(running) = &*running {
                return Ok(ScavengeStart::InProgress(running.id.clone()));
            }
            let mut starts = self.starts.lock().unwrap();
            starts.push((options, origin.clone()));
            let id = starts.len().to_string();
            *running = Some(ScavengeState {
                id: id.clone(),
                phase: ScavengePhase::InProgress,
                origin,
                removes_all: options.removes_all,
                report: ScavengeReport::default(),
            });
            Ok(ScavengeStart::Started(id))
        }

        fn stop(&self, _: &str, reason: StopReason) -> Result<(), Status> {
            self.stops.lock().unwrap().push(reason);
            self.end();
            Ok(())
        }

        fn last_state(&self) -> Option<ScavengeState> {
            self.running.lock().unwrap().clone()
        }
    }

    impl StubScavenger {
        fn end(&self) {
            *self.running.lock().unwrap() = None;
        }

        fn times(&self) -> Vec<Option<u64>> {
            let starts = self.starts.lock().unwrap();
            starts.iter().map(|(_, origin)| origin.scheduled_micros).collect()
        }
    }

    /// A store, and an auto-scavenge that a test restarts.
    struct Fixture {
        clock: Arc<ManualClock>,
        scavenger: Arc<StubScavenger>,
        store: Store,
        events: EventStore,
        history: Arc<WorkHistory>,
        auto_scavenge: Arc<AutoScavenge>,
        _directory: tempfile::TempDir,
    }

    impl Fixture {
        fn new() -> Fixture {
            let directory = tempfile::tempdir().unwrap();
            let store = Store::open(directory.path(), StoreOptions::default()).unwrap();
            let (events, _) =
                EventStore::new(store.clone(), &umbel_env::Env::system(), &TaskSpawner::default())
                    .unwrap();
            let clock = Arc::new(ManualClock::default());
            clock.0.store(MIDNIGHT, Ordering::Relaxed);
            let scavenger = Arc::default();
            let (history, auto_scavenge) = Fixture::read(&store, &clock, &scavenger, None);
            let _directory = directory;
            Fixture { clock, scavenger, store, events, history, auto_scavenge, _directory }
        }

        fn read(
            store: &Store,
            clock: &Arc<ManualClock>,
            scavenger: &Arc<StubScavenger>,
            option: Option<&str>,
        ) -> (Arc<WorkHistory>, Arc<AutoScavenge>) {
            let clock = Arc::clone(clock) as Arc<dyn Clock>;
            let history = WorkHistory::read(WorkKind::Scavenge, store, Arc::clone(&clock));
            let history = Arc::new(history.unwrap());
            let work = (Arc::clone(scavenger) as Arc<dyn Scavenger>, Arc::clone(&history));
            let option = option.map(|text| text.parse().unwrap());
            let auto_scavenge = AutoScavenge::read(store, clock, work, option).unwrap();
            (history, Arc::new(auto_scavenge))
        }

        fn restart(&mut self, option: Option<&str>) {
            self.history.flush(&self.store).unwrap();
            (self.history, self.auto_scavenge) =
                Fixture::read(&self.store, &self.clock, &self.scavenger, option);
        }

        fn configure(&self, text: &str) -> Result<(), Status> {
            let change = serde_json::from_str(text).expect("a change");
            wait(self.auto_scavenge.configure(&self.events, change, None))
        }

        /// Sets the clock, and starts what is due.
        fn at(&self, micros: u64) {
            self.clock.0.store(micros, Ordering::Relaxed);
            if self.auto_scavenge.is_due() {
                self.auto_scavenge.start_due();
            }
            assert!(!self.auto_scavenge.is_due());
        }

        fn outcomes(&self) -> Vec<WorkOutcome> {
            let records = self.history.records();
            records.iter().map(|record: &WorkRecord| record.outcome).collect()
        }

        fn state(&self) -> AutoScavengeState {
            self.auto_scavenge.status().state
        }
    }

    fn wait<F: Future>(future: F) -> F::Output {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(future)
    }

    #[test]
    fn scavenge_starts_at_its_time_with_its_settings() {
        let mut fixture = Fixture::new();
        assert_eq!(fixture.state(), AutoScavengeState::NotConfigured);
        fixture.at(MIDNIGHT + DAY);
        fixture.configure(r#"{"schedule":"0 3 * * *","throttlePercent":10}"#).unwrap();
        fixture.configure(r#"{"thresholdPercent":50}"#).unwrap();
        let three = MIDNIGHT + DAY + 3 * HOUR;
        for _ in 0..2 {
            let status = fixture.auto_scavenge.status();
            assert_eq!(status.state, AutoScavengeState::Waiting);
            assert_eq!(
                (status.next_micros, status.until_next_micros),
                (Some(three), Some(3 * HOUR))
            );
            fixture.restart(None);
        }
        fixture.at(three - 1);
        assert!(fixture.scavenger.times().is_empty());
        fixture.at(three);
        assert_eq!(fixture.state(), AutoScavengeState::InProgress);
        let (options, origin) = fixture.scavenger.starts.lock().unwrap()[0].clone();
        assert_eq!((options.busy_percent, options.dead_percent_min), (Some(10), 50));
        assert_eq!((options.removes_all, origin), (false, WorkOrigin::scheduled(three)));
        fixture.scavenger.end();
        assert_eq!(fixture.state(), AutoScavengeState::Waiting);
        fixture.at(three + DAY);
        assert_eq!(fixture.scavenger.times(), [Some(three), Some(three + DAY)]);
        fixture.scavenger.end();
        fixture.configure(r#"{"schedule":null}"#).unwrap();
        fixture.at(three + 9 * DAY);
        assert_eq!(fixture.scavenger.times().len(), 2);
        assert_eq!(fixture.state(), AutoScavengeState::NotConfigured);
        fixture.restart(None);
        assert_eq!(fixture.state(), AutoScavengeState::NotConfigured);
    }

    #[test]
    fn wrong_settings_change_nothing() {
        let fixture = Fixture::new();
        fixture.configure(r#"{"schedule":"0 3 * * *"}"#).unwrap();
        let before = fixture.auto_scavenge.status().settings;
        for (change, wanted) in [
            (r#"{"schedule":"0 0 30 2 *","thresholdPercent":1}"#, "schedule is"),
            (r#"{"schedule":"often"}"#, "schedule is"),
            (r#"{"thresholdPercent":101}"#, "thresholdPercent is 101, but must be 0 to 100"),
            (r#"{"throttlePercent":0}"#, "throttlePercent is 0, but must be 1 to 100"),
        ] {
            let refused = fixture.configure(change).unwrap_err();
            assert_eq!(refused.code(), tonic::Code::InvalidArgument);
            assert!(refused.message().contains(wanted), "{refused}");
            assert_eq!(fixture.auto_scavenge.status().settings, before);
        }
        for wrong in [r#"{"threshold":1}"#, r#"{"schedule":3}"#, r#"{"throttlePercent":-1}"#] {
            serde_json::from_str::<AutoScavengeChange>(wrong).unwrap_err();
        }
    }

    #[test]
    fn missed_skipped_and_failed_times_are_recorded_once() {
        let mut fixture = Fixture::new();
        // The server does not run for five days.
        fixture.configure(r#"{"schedule":"0 3 * * *"}"#).unwrap();
        fixture.clock.0.store(MIDNIGHT + 5 * DAY + 12 * HOUR, Ordering::Relaxed);
        for _ in 0..2 {
            fixture.restart(None);
            fixture.at(MIDNIGHT + 5 * DAY + 12 * HOUR);
            assert_eq!(fixture.outcomes(), [WorkOutcome::Missed]);
        }
        assert!(fixture.scavenger.times().is_empty());
        // A manual scavenge runs through several times.
        fixture.configure(r#"{"schedule":"0 * * * *"}"#).unwrap();
        fixture.scavenger.start(ScavengeOptions::default(), WorkOrigin::of_user(None)).unwrap();
        let noon = MIDNIGHT + 5 * DAY + 12 * HOUR;
        (1..4).for_each(|hours| fixture.at(noon + hours * HOUR));
        assert_eq!(fixture.outcomes(), [WorkOutcome::Skipped, WorkOutcome::Missed]);
        fixture.scavenger.end();
        *fixture.scavenger.failure.lock().unwrap() = Some(Status::unavailable("the disk is full"));
        fixture.at(noon + 4 * HOUR);
        let failed = fixture.history.last_record().unwrap();
        assert_eq!(
            (failed.outcome, failed.error.as_deref()),
            (WorkOutcome::Errored, Some("the disk is full"))
        );
        // The next time retries.
        *fixture.scavenger.failure.lock().unwrap() = None;
        fixture.at(noon + 5 * HOUR);
        assert_eq!(fixture.scavenger.times(), [None, Some(noon + 5 * HOUR)]);
        assert_eq!(fixture.history.ended()[&WorkOutcome::Errored], 1);
    }

    #[test]
    fn late_start_of_the_server_starts_the_scavenge_once() {
        let mut fixture = Fixture::new();
        fixture.configure(r#"{"schedule":"0 3 * * *"}"#).unwrap();
        let three = MIDNIGHT + 3 * HOUR;
        fixture.clock.0.store(three + HOUR / 2, Ordering::Relaxed);
        fixture.restart(None);
        fixture.at(three + HOUR / 2);
        assert_eq!(fixture.scavenger.times(), [Some(three)]);
        // The real scavenger records the start, after which the server is killed.
        fixture.history.begin("1", WorkOrigin::scheduled(three));
        fixture.scavenger.end();
        fixture.restart(None);
        fixture.at(three + HOUR / 2 + 1);
        assert_eq!(fixture.scavenger.times(), [Some(three)]);
        assert_eq!(fixture.outcomes(), [WorkOutcome::Interrupted]);
    }

    #[test]
    fn pause_stops_the_scavenge_and_resume_continues_it_across_restarts() {
        let mut fixture = Fixture::new();
        fixture.configure(r#"{"schedule":"0 3 * * *"}"#).unwrap();
        let three = MIDNIGHT + 3 * HOUR;
        fixture.at(three);
        wait(fixture.auto_scavenge.pause(&fixture.events, None)).unwrap();
        assert_eq!(*fixture.scavenger.stops.lock().unwrap(), [StopReason::Paused]);
        for day in 1..3 {
            assert_eq!(fixture.state(), AutoScavengeState::Paused);
            assert_eq!(fixture.auto_scavenge.status().next_micros, None);
            fixture.at(three + day * DAY);
            fixture.restart(None);
        }
        assert_eq!(fixture.scavenger.times(), [Some(three)]);
        wait(fixture.auto_scavenge.resume(&fixture.events, None)).unwrap();
        assert_eq!(fixture.state(), AutoScavengeState::InProgress);
        assert_eq!(fixture.scavenger.times(), [Some(three), Some(three)]);
        fixture.scavenger.end();
        // Nothing is left to continue.
        wait(fixture.auto_scavenge.pause(&fixture.events, None)).unwrap();
        wait(fixture.auto_scavenge.resume(&fixture.events, None)).unwrap();
        assert_eq!(fixture.scavenger.times().len(), 2);
        // A pause does not stop a manual scavenge.
        fixture.scavenger.start(ScavengeOptions::default(), WorkOrigin::of_user(None)).unwrap();
        wait(fixture.auto_scavenge.pause(&fixture.events, None)).unwrap();
        assert_eq!(fixture.scavenger.stops.lock().unwrap().len(), 1);
    }

    #[test]
    fn option_of_the_server_applies_until_a_client_sets_a_schedule() {
        let mut fixture = Fixture::new();
        let schedule = |fixture: &Fixture| {
            fixture.auto_scavenge.status().settings.schedule.map(|schedule| schedule.to_string())
        };
        for option in [Some("0 3 * * *"), Some("0 4 * * *"), None, Some("0 5 * * *")] {
            fixture.restart(option);
            assert_eq!(schedule(&fixture).as_deref(), option);
        }
        fixture.configure(r#"{"thresholdPercent":7}"#).unwrap();
        fixture.restart(Some("0 6 * * *"));
        assert_eq!(schedule(&fixture).as_deref(), Some("0 6 * * *"));
        assert_eq!(fixture.auto_scavenge.status().settings.threshold_percent, 7);
        for set in [Some("0 7 * * *"), None] {
            fixture.configure(&serde_json::json!({ "schedule": set }).to_string()).unwrap();
            fixture.restart(Some("0 6 * * *"));
            assert_eq!(schedule(&fixture).as_deref(), set);
        }
    }

    #[test]
    fn foreign_events_in_the_stream_do_not_count() {
        let mut fixture = Fixture::new();
        fixture.configure(r#"{"schedule":"0 3 * * *"}"#).unwrap();
        for (kind, data) in [
            ("other", r#"{"x":1}"#),
            (CHANGED_TYPE, "[]"),
            (
                CHANGED_TYPE,
                r#"{"schedule":"0 0 30 2 *","thresholdPercent":1,"throttlePercent":1,
                "isPaused":true,"resumeMicros":null,"scheduledSince":0,"isFromOption":false}"#,
            ),
        ] {
            let event = NewEvent::json(fixture.store.new_id().unwrap(), kind, data.as_bytes());
            fixture.store.append(STREAM, ExpectedVersion::Any, &[event]).unwrap();
        }
        fixture.restart(None);
        assert_eq!(fixture.state(), AutoScavengeState::Waiting);
        // The server continues with a replacement of a tombstoned stream.
        fixture.store.tombstone(STREAM, ExpectedVersion::Any).unwrap();
        fixture.restart(None);
        assert_eq!(fixture.state(), AutoScavengeState::NotConfigured);
        fixture.configure(r#"{"schedule":"0 3 * * *"}"#).unwrap();
        fixture.restart(None);
        assert_eq!(fixture.state(), AutoScavengeState::Waiting);
    }
}
