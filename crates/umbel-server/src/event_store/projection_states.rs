//! [`Gates`]: up to where the built-in views show what there is. A view that was stopped shows what
//! was there then, over restarts too: a stream of the store has the last word.
//!
//! INVARIANT: a gate that closes does so before that is written, one that opens after it was. So
//! nobody sees more of a stopped view than whoever comes after a restart.

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};
use tokio::sync::Mutex;
use umbel_events::{
    Direction, Error, EventId, Expected, NewEvent, Position, RecordedEvent, Revision, Store,
};

use crate::store::EventStore;

/// The stream that says which views are stopped. Its last event counts.
const STREAM: &str = "$umbel-views";
/// The type of its events.
const CHANGED: &str = "$viewsChanged";
/// How many events of it are looked at when the last ones are none of ours.
const LOOKED_AT_MAX: usize = 1000;
/// How often a change is tried when somebody else writes to the stream.
const TRIES: usize = 3;

/// The views that can be stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum View {
    /// Those of categories, `$ce-…`.
    ByCategory,
    /// Those of types, `$et-…`.
    ByEventType,
    /// `$streams`.
    Streams,
}

/// How many there are.
const COUNT: usize = 3;

/// Each with the name under which it is stopped.
const VIEWS: [(View, &str); COUNT] = [
    (View::ByCategory, "$by_category"),
    (View::ByEventType, "$by_event_type"),
    (View::Streams, "$streams"),
];

/// What can be done with a view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Let it go on.
    Enable,
    /// Let it show no more than it does now.
    Disable,
    /// Let it begin anew: one that is stopped shows nothing until it goes on.
    Reset,
}

/// What a view is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Gate {
    /// The position behind which it shows nothing; `None` while it goes on.
    pub through: Option<u64>,
    /// How often it was stopped, started or reset.
    pub version: u64,
    /// How often it was reset.
    pub epoch: u64,
}

/// Up to where the built-in views show what there is.
#[derive(Debug)]
pub struct Gates {
    /// What readers look at; the highest number while a view goes on.
    through: [AtomicU64; COUNT],
    /// Held by whoever changes one.
    kept: Mutex<Kept>,
}

/// What the stream says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Kept {
    gates: [Gate; COUNT],
    /// The revision of its last event.
    last: Option<u64>,
}

impl Gates {
    /// Those of a store.
    pub fn read(store: &Store) -> Result<Gates, Error> {
        let kept = Kept::read(store)?;
        let through = kept.gates.map(|gate| AtomicU64::new(gate.position()));
        Ok(Gates { through, kept: Mutex::new(kept) })
    }

    /// The position through which a view shows what there is: [`Position::END`] while it goes on.
    pub fn through(&self, view: &str) -> Position {
        let view = match view {
            "$streams" => View::Streams,
            view if view.starts_with("$ce-") => View::ByCategory,
            view if view.starts_with("$et-") => View::ByEventType,
            _ => return Position::END,
        };
        Position(self.through[view as usize].load(Ordering::Acquire))
    }

    /// What a view is at.
    pub async fn gate(&self, view: View) -> Gate {
        self.kept.lock().await.gates[view as usize]
    }

    /// Changes what a view shows. REQUIRES: it is polled to its end; in the middle a gate may be
    /// closed without that being written.
    ///
    /// # Errors
    /// What goes wrong when it is written. Then the view shows what it did before.
    pub async fn change(
        &self,
        store: &EventStore,
        view: View,
        change: Change,
        ids: [EventId; TRIES],
    ) -> Result<(), Error> {
        let mut kept = self.kept.lock().await;
        let mut outcome = Ok(());
        for id in ids {
            let old = kept.gates[view as usize];
            let Some(new) = old.changed(change, store.visible()) else { return Ok(()) };
            if new.position() < old.position() {
                self.set(view, new);
            }
            let mut next = *kept;
            next.gates[view as usize] = new;
            match store.blocking(move |store| next.write(store, id)).await {
                Ok(last) => {
                    *kept = Kept { last: Some(last), ..next };
                    self.set(view, new);
                    return Ok(());
                }
                Err(error @ Error::WrongExpected { .. }) => {
                    *kept = store.blocking(Kept::read).await?;
                    for (view, _) in VIEWS {
                        self.set(view, kept.gates[view as usize]);
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

    fn set(&self, view: View, gate: Gate) {
        self.through[view as usize].store(gate.position(), Ordering::Release);
    }
}

impl Gate {
    fn position(&self) -> u64 {
        self.through.unwrap_or(Position::END.0)
    }

    /// What an event of the stream says of it.
    fn said(&self) -> Value {
        json!({ "through": self.through, "version": self.version, "epoch": self.epoch })
    }

    /// What comes of a change; `None` where nothing does.
    fn changed(self, change: Change, visible: u64) -> Option<Gate> {
        let Gate { through, version, epoch } = self;
        let version = version.saturating_add(1);
        match (change, through) {
            (Change::Enable, None) | (Change::Disable, Some(_)) => None,
            (Change::Enable, Some(_)) => Some(Gate { through: None, version, epoch }),
            (Change::Disable, None) => Some(Gate { through: Some(visible), version, epoch }),
            (Change::Reset, through) => {
                Some(Gate { through: through.map(|_| 0), version, epoch: epoch.saturating_add(1) })
            }
        }
    }
}

impl Kept {
    fn read(store: &Store) -> Result<Kept, Error> {
        let mut last = None;
        let events = store.read(STREAM, Revision::END, Direction::Backwards);
        for event in events.take(LOOKED_AT_MAX) {
            let event = match event {
                Ok(event) => event,
                // Somebody ended the stream: every view goes on, and none can be stopped.
                Err(Error::Deleted { .. }) => break,
                Err(error) => return Err(error),
            };
            last = last.or(Some(event.revision));
            if let Some(gates) = parse(&event) {
                return Ok(Kept { gates, last });
            }
        }
        Ok(Kept { last, ..Kept::default() })
    }

    /// Writes it behind the last event. Returns the revision of the new one.
    fn write(&self, store: &Store, id: EventId) -> Result<u64, Error> {
        let data = said(&self.gates);
        let expected = self.last.map_or(Expected::NoStream, Expected::Exact);
        let done = store.append(STREAM, expected, &[NewEvent::json(id, CHANGED, &data)])?;
        Ok(done.last.unwrap_or(0))
    }
}

/// The data of an event of the stream that says this.
pub fn said(gates: &[Gate; COUNT]) -> Vec<u8> {
    let names = VIEWS.iter().map(|(_, name)| (*name).to_string());
    let views: serde_json::Map<_, _> = names.zip(gates.iter().map(Gate::said)).collect();
    Value::Object(views).to_string().into_bytes()
}

/// What an event of the stream says; `None` where it is none of ours.
pub fn parse(event: &RecordedEvent) -> Option<[Gate; COUNT]> {
    if event.kind != CHANGED {
        return None;
    }
    let said: Value = serde_json::from_slice(&event.data).ok()?;
    let mut gates = [Gate::default(); COUNT];
    for (gate, (_, name)) in gates.iter_mut().zip(VIEWS) {
        let said = said.get(name)?;
        let through = match said.get("through")? {
            Value::Null => None,
            // It cannot have known what came later.
            number => Some(number.as_u64()?.min(event.position)),
        };
        let (version, epoch) = (said.get("version")?.as_u64()?, said.get("epoch")?.as_u64()?);
        *gate = Gate { through, version, epoch };
    }
    Some(gates)
}

/// The view that is stopped under this name.
pub fn view(name: &str) -> Option<View> {
    VIEWS.iter().find(|(_, known)| *known == name).map(|(view, _)| *view)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::Stage;

    const NAMES: [&str; 3] = ["$ce-cart", "$et-Opened", "$streams"];

    fn wait<F: Future>(future: F) -> F::Output {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(future)
    }

    fn ids(stage: &Stage) -> [EventId; TRIES] {
        [(); TRIES].map(|()| stage.store.new_id().unwrap())
    }

    fn change(stage: &Stage, view: View, change: Change) -> Result<(), Error> {
        let service = &stage.service;
        wait(service.gates.change(&service.store, view, change, ids(stage)))
    }

    fn append(stage: &Stage, stream: &str, kind: &str, data: &[u8]) -> u64 {
        let event = NewEvent::json(stage.store.new_id().unwrap(), kind, data);
        stage.store.append(stream, Expected::Any, &[event]).unwrap().position.unwrap()
    }

    #[test]
    fn a_view_that_is_stopped_shows_what_was_there_also_to_the_next_server() {
        let stage = Stage::new();
        let gates = &stage.service.gates;
        let all = |gates: &Gates| NAMES.map(|name| gates.through(name));
        assert_eq!(all(gates), [Position::END; 3]);
        let seen = append(&stage, "cart-1", "Opened", b"{}");
        change(&stage, View::ByCategory, Change::Disable).unwrap();
        let there = Position(seen);
        assert_eq!(all(gates), [there, Position::END, Position::END]);
        append(&stage, "cart-2", "Opened", b"{}");
        change(&stage, View::ByCategory, Change::Disable).unwrap();
        assert_eq!(gates.through("$ce-cart"), there, "it is stopped already");
        let again = Gates::read(&stage.store).unwrap();
        assert_eq!(all(&again), all(gates));
        let wanted = Gate { through: Some(seen), version: 1, epoch: 0 };
        assert_eq!(wait(again.gate(View::ByCategory)), wanted);
        change(&stage, View::ByCategory, Change::Reset).unwrap();
        assert_eq!(gates.through("$ce-cart"), Position::START);
        change(&stage, View::ByCategory, Change::Enable).unwrap();
        change(&stage, View::Streams, Change::Reset).unwrap();
        let again = Gates::read(&stage.store).unwrap();
        assert_eq!((all(gates), all(&again)), ([Position::END; 3], [Position::END; 3]));
        let of_streams = Gate { through: None, version: 1, epoch: 1 };
        assert_eq!(wait(again.gate(View::Streams)), of_streams);
        assert_eq!(again.through("cart"), Position::END, "no view");
    }

    #[test]
    fn what_others_write_to_the_stream_is_left_out() {
        let stage = Stage::new();
        change(&stage, View::ByEventType, Change::Disable).unwrap();
        let through = stage.service.gates.through("$et-Opened");
        let forged = r#"{"$by_category":{"through":1e99,"version":1,"epoch":0}}"#;
        let half = r#"{"$by_category":{"through":3,"version":1,"epoch":0}}"#;
        for data in [&b"\xff"[..], b"[]", b"7", forged.as_bytes(), half.as_bytes()] {
            append(&stage, STREAM, CHANGED, data);
            append(&stage, STREAM, "Other", data);
            let read = Gates::read(&stage.store).unwrap();
            assert_eq!(read.through("$et-Opened"), through);
            assert_eq!(read.through("$ce-cart"), Position::END);
        }
        change(&stage, View::ByCategory, Change::Disable).unwrap();
        let read = Gates::read(&stage.store).unwrap();
        assert_eq!(read.through("$et-Opened"), through, "what was kept is kept");
        assert_eq!(read.through("$ce-cart"), stage.service.gates.through("$ce-cart"));
        let future = r#"{"through":99999999999,"version":1,"epoch":0}"#;
        let all = NAMES.len();
        let views: Vec<_> = VIEWS.iter().map(|(_, name)| format!("\"{name}\":{future}")).collect();
        let position =
            append(&stage, STREAM, CHANGED, format!("{{{}}}", views.join(",")).as_bytes());
        let read = Gates::read(&stage.store).unwrap();
        assert_eq!(NAMES.map(|name| read.through(name)), [Position(position); 3], "{all}");
    }

    #[test]
    fn a_change_that_cannot_be_written_changes_nothing() {
        let stage = Stage::new();
        append(&stage, STREAM, "Other", b"{}");
        stage.store.tombstone(STREAM, Expected::Any).unwrap();
        for (view, name) in [View::ByCategory, View::ByEventType, View::Streams].iter().zip(NAMES) {
            let refused = change(&stage, *view, Change::Disable).unwrap_err();
            assert!(matches!(refused, Error::Deleted { .. }), "{refused:?}");
            assert_eq!(stage.service.gates.through(name), Position::END);
        }
        assert_eq!(Gates::read(&stage.store).unwrap().through("$streams"), Position::END);
    }
}
