//! What the tests share.

use umbel_events::{EventId, Expected, NewEvent, RecordedEvent, Result, Store, StoreOptions};
use umbel_sim::Sim;

/// The id of the event with this number.
pub fn id(number: u64) -> EventId {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    EventId(bytes)
}

/// An event with this number.
pub fn event(number: u64) -> NewEvent<'static> {
    NewEvent::json(id(number), "Happened", b"{}")
}

/// A store on a simulated disk, without threads, so that every run is the same.
pub fn options(sim: &Sim) -> StoreOptions {
    StoreOptions {
        background_threads: 0,
        chunk_bytes: 64 << 10,
        memory_bytes: Some(8 << 20),
        env: sim.env(),
        ..StoreOptions::default()
    }
}

/// An open store on a disk of its own.
pub fn store() -> Store {
    let sim = Sim::new(1);
    Store::open("/events", options(&sim)).expect("a new store")
}

/// Appends events with these numbers, whatever the stream is.
pub fn append(store: &Store, stream: &str, numbers: std::ops::Range<u64>) {
    let events: Vec<_> = numbers.map(event).collect();
    store.append(stream, Expected::Any, &events).expect("appended");
}

/// Revisions and ids of what was read.
pub fn outline(events: impl Iterator<Item = Result<RecordedEvent>>) -> Vec<(u64, EventId)> {
    events.map(|event| event.expect("readable")).map(|event| (event.revision, event.id)).collect()
}
