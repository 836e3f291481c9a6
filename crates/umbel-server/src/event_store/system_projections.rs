//! [`SystemProjections`]: the positions up to which the built-in views show events. A stopped view
//! shows only events up to its stop, also after restarts: a stream of the store records the states.
//!
//! INVARIANT: a lower limit takes effect before the change is written, a higher limit afterwards.
//! So no reader sees more of a stopped view than a reader after a restart.

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};
use tokio::sync::Mutex;
use umbel_events::{
    Error, EventId, ExpectedVersion, NewEvent, Position, RecordedEvent, Source, Store, StreamState,
    read_json_keys,
};

use crate::event_store::EventStore;
use crate::system_stream;

/// The stream that records which views are stopped. Only the stream's last event is valid.
const STREAM: &str = "$umbel-views";
/// Type of the events that record stopped views.
const CHANGED_TYPE: &str = "$viewsChanged";
/// Number of attempts at a change while other writers append to the stream.
const WRITE_ATTEMPTS: usize = 3;

/// The views that can be stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SystemProjection {
    /// The views of categories, `$ce-…`.
    ByCategory,
    /// The views of event types, `$et-…`.
    ByEventType,
    /// The view `$streams`.
    Streams,
}

/// Number of views that can be stopped.
const COUNT: usize = 3;

/// Each view with its projection name.
const PROJECTION_NAMES: [(SystemProjection, &str); COUNT] = [
    (SystemProjection::ByCategory, "$by_category"),
    (SystemProjection::ByEventType, "$by_event_type"),
    (SystemProjection::Streams, "$streams"),
];

/// A command for a view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProjectionCommand {
    /// Show all events.
    Enable,
    /// Show no more events than now.
    Disable,
    /// Reset the view: a stopped view is empty until it is enabled.
    Reset,
}

/// State of a view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProjectionState {
    /// The last position that the view shows; `None` while the view is enabled.
    pub visible_through: Option<u64>,
    /// Number of times that the view was stopped, started or reset.
    pub version: u64,
    /// Number of resets.
    pub epoch: u64,
}

/// The positions up to which the built-in views show events.
#[derive(Debug)]
pub struct SystemProjections {
    /// The limits that readers use; the highest number while a view is enabled.
    visible_through: [AtomicU64; COUNT],
    /// Locked during each change.
    stored: Mutex<StoredStates>,
}

/// The states that the stream of the projections records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct StoredStates {
    states: [ProjectionState; COUNT],
    /// The revision of the stream's last event.
    last: Option<u64>,
}

impl SystemProjections {
    /// Loads the states from a store.
    pub fn read(store: &Store) -> Result<SystemProjections, Error> {
        let kept = StoredStates::read(store)?;
        let through = kept.states.map(|gate| AtomicU64::new(gate.position()));
        Ok(SystemProjections { visible_through: through, stored: Mutex::new(kept) })
    }

    /// Reads the states again, which another node of a replicated log may have changed.
    ///
    /// # Errors
    /// Errors of reads.
    pub async fn reload(&self, store: &EventStore) -> Result<(), Error> {
        let mut kept = self.stored.lock().await;
        let before = *kept;
        *kept = store.blocking(move |store| before.refresh(store)).await?;
        for (view, _) in PROJECTION_NAMES {
            self.set(view, kept.states[view as usize]);
        }
        Ok(())
    }

    /// The last position that a source shows: [`Position::END`] unless the source is a stopped
    /// view.
    pub fn limit_of(&self, source: &Source) -> Position {
        source.name().map_or(Position::END, |name| self.visible_through(name))
    }

    /// The last position that a view shows: [`Position::END`] while the view is enabled.
    pub fn visible_through(&self, view: &str) -> Position {
        let view = match view {
            "$streams" => SystemProjection::Streams,
            view if view.starts_with("$ce-") => SystemProjection::ByCategory,
            view if view.starts_with("$et-") => SystemProjection::ByEventType,
            _ => return Position::END,
        };
        Position(self.visible_through[view as usize].load(Ordering::Acquire))
    }

    /// State of a view.
    pub async fn state(&self, view: SystemProjection) -> ProjectionState {
        self.stored.lock().await.states[view as usize]
    }

    /// Applies a command to a view. REQUIRES: the caller polls the future to its end; otherwise a
    /// limit can be in effect that is not written.
    ///
    /// # Errors
    /// The change could not be written. The view then shows the same events as before.
    pub async fn apply(
        &self,
        store: &EventStore,
        view: SystemProjection,
        change: ProjectionCommand,
        ids: [EventId; WRITE_ATTEMPTS],
    ) -> Result<(), Error> {
        let mut kept = self.stored.lock().await;
        let mut outcome = Ok(());
        for id in ids {
            let old = kept.states[view as usize];
            let Some(new) = old.after_command(change, store.visible_position()) else {
                return Ok(());
            };
            if new.position() < old.position() {
                self.set(view, new);
            }
            let mut next = *kept;
            next.states[view as usize] = new;
            match store.blocking(move |store| next.write(store, id)).await {
                Ok(last) => {
                    *kept = StoredStates { last: Some(last), ..next };
                    self.set(view, new);
                    return Ok(());
                }
                // Another writer wrote to the stream, or tombstoned it.
                Err(error @ (Error::WrongExpectedVersion { .. } | Error::StreamDeleted { .. })) => {
                    let before = *kept;
                    self.set(view, old);
                    *kept = store.blocking(move |store| before.refresh(store)).await?;
                    for (view, _) in PROJECTION_NAMES {
                        self.set(view, kept.states[view as usize]);
                    }
                    outcome = Err(error);
                }
                Err(error) => {
                    self.set(view, old);
                    return Err(error);
                }
            }
        }
        outcome
    }

    fn set(&self, view: SystemProjection, gate: ProjectionState) {
        self.visible_through[view as usize].store(gate.position(), Ordering::Release);
    }
}

impl ProjectionState {
    fn position(&self) -> u64 {
        self.visible_through.unwrap_or(Position::END.0)
    }

    /// The state as an event of the stream records it.
    fn to_json(self) -> Value {
        json!({ "through": self.visible_through, "version": self.version, "epoch": self.epoch })
    }

    /// The state after a command; `None` if the command changes nothing.
    fn after_command(self, change: ProjectionCommand, visible: u64) -> Option<ProjectionState> {
        let ProjectionState { visible_through: through, version, epoch } = self;
        let version = version.saturating_add(1);
        match (change, through) {
            (ProjectionCommand::Enable, None) | (ProjectionCommand::Disable, Some(_)) => None,
            (ProjectionCommand::Enable, Some(_)) => {
                Some(ProjectionState { visible_through: None, version, epoch })
            }
            (ProjectionCommand::Disable, None) => {
                Some(ProjectionState { visible_through: Some(visible), version, epoch })
            }
            (ProjectionCommand::Reset, through) => Some(ProjectionState {
                visible_through: through.map(|_| 0),
                version,
                epoch: epoch.saturating_add(1),
            }),
        }
    }
}

impl StoredStates {
    fn read(store: &Store) -> Result<StoredStates, Error> {
        // Where every name is tombstoned, every view is enabled, and none can be stopped.
        let (stream, state) = system_stream::find_or_own(store, STREAM)?;
        let last = system_stream::last_revision(state);
        if let Some(states) = newest_states(store, &stream)? {
            return Ok(StoredStates { states, last });
        }
        if matches!(state, StreamState::Live { .. } | StreamState::Deleted { .. })
            || stream != STREAM
        {
            tracing::warn!(
                stream,
                "the stream has no readable record of stopped views; every view is enabled"
            );
        }
        Ok(StoredStates { last, ..StoredStates::default() })
    }

    /// Reads the states again after another writer wrote to the stream. Where the stream has no
    /// states any more, these states stay.
    fn refresh(self, store: &Store) -> Result<StoredStates, Error> {
        let (stream, state) = system_stream::find(store, STREAM)?;
        let states = newest_states(store, &stream)?.unwrap_or(self.states);
        Ok(StoredStates { states, last: system_stream::last_revision(state) })
    }

    /// Writes the states after the last event. Returns the revision of the new event.
    fn write(&self, store: &Store, id: EventId) -> Result<u64, Error> {
        let (stream, _) = system_stream::find(store, STREAM)?;
        let data = encode(&self.states);
        let expected = self.last.map_or(ExpectedVersion::NoStream, ExpectedVersion::Exact);
        let done = store.append(&stream, expected, &[NewEvent::json(id, CHANGED_TYPE, &data)])?;
        if done.first == Some(0) && stream != STREAM {
            let effect = "records the stopped views there";
            system_stream::report_replacement(STREAM, &stream, effect);
        }
        Ok(done.last.unwrap_or(0))
    }
}

/// The states in the newest valid event of this stream.
fn newest_states(store: &Store, stream: &str) -> Result<Option<[ProjectionState; COUNT]>, Error> {
    system_stream::newest_valid(store, stream, None, |event| Ok(parse(event)))
}

/// The data of an event that records these states.
pub fn encode(projection_states: &[ProjectionState; COUNT]) -> Vec<u8> {
    let names = PROJECTION_NAMES.iter().map(|(_, name)| (*name).to_string());
    let views: serde_json::Map<_, _> =
        names.zip(projection_states.iter().map(|state| state.to_json())).collect();
    Value::Object(views).to_string().into_bytes()
}

/// The states that an event records; `None` if the event is not valid.
pub fn parse(event: &RecordedEvent) -> Option<[ProjectionState; COUNT]> {
    if event.kind != CHANGED_TYPE {
        return None;
    }
    let states = read_json_keys(&event.data, PROJECTION_NAMES.map(|(_, name)| name)).ok()?;
    let mut projection_states = [ProjectionState::default(); COUNT];
    for (state, value) in projection_states.iter_mut().zip(states) {
        let keys = read_json_keys(value?.as_bytes(), ["through", "version", "epoch"]).ok()?;
        let [through, version, epoch] = keys;
        let through = match through? {
            "null" => None,
            // The event cannot know of later positions.
            number => Some(number.parse::<u64>().ok()?.min(event.position)),
        };
        let (version, epoch) = (version?.parse().ok()?, epoch?.parse().ok()?);
        *state = ProjectionState { visible_through: through, version, epoch };
    }
    Some(projection_states)
}

/// The view with this projection name.
pub fn by_name(name: &str) -> Option<SystemProjection> {
    PROJECTION_NAMES.iter().find(|(_, known)| *known == name).map(|(view, _)| *view)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::test_service::TestService;

    const NAMES: [&str; 3] = ["$ce-cart", "$et-Opened", "$streams"];

    fn wait<F: Future>(future: F) -> F::Output {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(future)
    }

    fn ids(fixture: &TestService) -> [EventId; WRITE_ATTEMPTS] {
        [(); WRITE_ATTEMPTS].map(|()| fixture.store.new_id().unwrap())
    }

    fn change(
        fixture: &TestService,
        view: SystemProjection,
        change: ProjectionCommand,
    ) -> Result<(), Error> {
        let service = &fixture.service;
        wait(service.system_projections.apply(&service.store, view, change, ids(fixture)))
    }

    fn append(fixture: &TestService, stream: &str, kind: &str, data: &[u8]) -> u64 {
        let event = NewEvent::json(fixture.store.new_id().unwrap(), kind, data);
        fixture.store.append(stream, ExpectedVersion::Any, &[event]).unwrap().position.unwrap()
    }

    #[test]
    fn stopped_view_keeps_its_events_across_restart() {
        let fixture = TestService::new();
        let projections = &fixture.service.system_projections;
        let all =
            |projections: &SystemProjections| NAMES.map(|name| projections.visible_through(name));
        assert_eq!(all(projections), [Position::END; 3]);
        let seen = append(&fixture, "cart-1", "Opened", b"{}");
        change(&fixture, SystemProjection::ByCategory, ProjectionCommand::Disable).unwrap();
        let there = Position(seen);
        assert_eq!(all(projections), [there, Position::END, Position::END]);
        append(&fixture, "cart-2", "Opened", b"{}");
        change(&fixture, SystemProjection::ByCategory, ProjectionCommand::Disable).unwrap();
        assert_eq!(projections.visible_through("$ce-cart"), there, "it is stopped already");
        let again = SystemProjections::read(&fixture.store).unwrap();
        assert_eq!(all(&again), all(projections));
        let wanted = ProjectionState { visible_through: Some(seen), version: 1, epoch: 0 };
        assert_eq!(wait(again.state(SystemProjection::ByCategory)), wanted);
        change(&fixture, SystemProjection::ByCategory, ProjectionCommand::Reset).unwrap();
        assert_eq!(projections.visible_through("$ce-cart"), Position::START);
        change(&fixture, SystemProjection::ByCategory, ProjectionCommand::Enable).unwrap();
        change(&fixture, SystemProjection::Streams, ProjectionCommand::Reset).unwrap();
        let again = SystemProjections::read(&fixture.store).unwrap();
        assert_eq!((all(projections), all(&again)), ([Position::END; 3], [Position::END; 3]));
        let of_streams = ProjectionState { visible_through: None, version: 1, epoch: 1 };
        assert_eq!(wait(again.state(SystemProjection::Streams)), of_streams);
        assert_eq!(again.visible_through("cart"), Position::END, "no view");
    }

    #[test]
    fn foreign_events_in_the_settings_stream_are_ignored() {
        let fixture = TestService::new();
        change(&fixture, SystemProjection::ByEventType, ProjectionCommand::Disable).unwrap();
        let through = fixture.service.system_projections.visible_through("$et-Opened");
        let forged = r#"{"$by_category":{"through":1e99,"version":1,"epoch":0}}"#;
        let half = r#"{"$by_category":{"through":3,"version":1,"epoch":0}}"#;
        for data in [&b"\xff"[..], b"[]", b"7", forged.as_bytes(), half.as_bytes()] {
            append(&fixture, STREAM, CHANGED_TYPE, data);
            append(&fixture, STREAM, "Other", data);
            let read = SystemProjections::read(&fixture.store).unwrap();
            assert_eq!(read.visible_through("$et-Opened"), through);
            assert_eq!(read.visible_through("$ce-cart"), Position::END);
        }
        change(&fixture, SystemProjection::ByCategory, ProjectionCommand::Disable).unwrap();
        let read = SystemProjections::read(&fixture.store).unwrap();
        assert_eq!(read.visible_through("$et-Opened"), through, "what was kept is kept");
        assert_eq!(
            read.visible_through("$ce-cart"),
            fixture.service.system_projections.visible_through("$ce-cart")
        );
        let future = r#"{"through":99999999999,"version":1,"epoch":0}"#;
        let all = NAMES.len();
        let views: Vec<_> =
            PROJECTION_NAMES.iter().map(|(_, name)| format!("\"{name}\":{future}")).collect();
        let position =
            append(&fixture, STREAM, CHANGED_TYPE, format!("{{{}}}", views.join(",")).as_bytes());
        let read = SystemProjections::read(&fixture.store).unwrap();
        assert_eq!(NAMES.map(|name| read.visible_through(name)), [Position(position); 3], "{all}");
    }

    /// Story: a tombstoned or truncated stream of views could not be written any more, so that no
    /// view could be stopped or started again.
    #[test]
    fn views_are_stopped_and_started_in_every_state_of_their_stream() {
        type Change = fn(&TestService);
        fn metadata(fixture: &TestService, json: &str) {
            append(fixture, "$$$umbel-views", "$metadata", json.as_bytes());
        }
        let changes: [(&str, Change, bool); 6] = [
            ("deleted", |it| _ = it.store.delete(STREAM, ExpectedVersion::Any).unwrap(), false),
            (
                "tombstoned",
                |it| _ = it.store.tombstone(STREAM, ExpectedVersion::Any).unwrap(),
                false,
            ),
            ("truncated", |it| metadata(it, r#"{"$tb":1}"#), false),
            ("limited", |it| metadata(it, r#"{"$maxCount":1}"#), true),
            ("junk", |it| _ = append(it, STREAM, "Other", b"junk"), true),
            (
                "recreated",
                |it| {
                    it.store.delete(STREAM, ExpectedVersion::Any).unwrap();
                    append(it, STREAM, "Other", b"junk");
                },
                false,
            ),
        ];
        let (category, streams) = (SystemProjection::ByCategory, SystemProjection::Streams);
        for (name, harm, is_kept) in changes {
            for reads_again in [false, true] {
                let fixture = TestService::new();
                let seen = Position(append(&fixture, "cart-1", "Opened", b"{}"));
                change(&fixture, category, ProjectionCommand::Disable).unwrap();
                harm(&fixture);
                let again = SystemProjections::read(&fixture.store).unwrap();
                let wanted = if is_kept { seen } else { Position::END };
                assert_eq!(again.visible_through("$ce-cart"), wanted, "{name}");
                let (own, store) = (&fixture.service.system_projections, &fixture.service.store);
                let projections = if reads_again { &again } else { own };
                let apply = |view, command| {
                    wait(projections.apply(store, view, command, ids(&fixture))).unwrap();
                };
                apply(streams, ProjectionCommand::Disable);
                let stopped = projections.visible_through("$streams");
                assert!(stopped < Position::END, "{name}");
                let kept = projections.visible_through("$ce-cart");
                assert_eq!(kept, if reads_again { wanted } else { seen }, "{name}");
                let later = SystemProjections::read(&fixture.store).unwrap();
                let all = ["$ce-cart", "$streams"].map(|view| later.visible_through(view));
                assert_eq!(all, [kept, stopped], "{name}");
                apply(category, ProjectionCommand::Enable);
                apply(streams, ProjectionCommand::Enable);
                let last = SystemProjections::read(&fixture.store).unwrap();
                assert_eq!(NAMES.map(|view| last.visible_through(view)), [Position::END; 3]);
            }
        }
    }

    #[test]
    fn failed_write_leaves_the_view_unchanged() {
        let fixture = TestService::new();
        append(&fixture, STREAM, "Other", b"{}");
        for stream in system_stream::names(STREAM) {
            fixture.store.tombstone(&stream, ExpectedVersion::Any).unwrap();
        }
        for (view, name) in
            [SystemProjection::ByCategory, SystemProjection::ByEventType, SystemProjection::Streams]
                .iter()
                .zip(NAMES)
        {
            let refused = change(&fixture, *view, ProjectionCommand::Disable).unwrap_err();
            assert!(matches!(refused, Error::StreamDeleted { .. }), "{refused:?}");
            assert_eq!(fixture.service.system_projections.visible_through(name), Position::END);
        }
        assert_eq!(
            SystemProjections::read(&fixture.store).unwrap().visible_through("$streams"),
            Position::END
        );
    }
}
