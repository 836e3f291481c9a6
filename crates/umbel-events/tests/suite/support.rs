//! Helpers that the tests share.

use umbel_events::{
    CopyOptions, Direction, EventId, ExpectedVersion, NewEvent, Position, RecordedEvent, Result,
    Store, StoreOptions, restore,
};
use umbel_sim::Sim;

/// Id of the event with this number.
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

/// Appends events with these numbers, whatever the state of the stream is.
pub fn append(store: &Store, stream: &str, numbers: std::ops::Range<u64>) {
    let events: Vec<_> = numbers.map(event).collect();
    store.append(stream, ExpectedVersion::Any, &events).expect("appended");
}

/// Revisions and ids of what was read.
pub fn outline(events: impl Iterator<Item = Result<RecordedEvent>>) -> Vec<(u64, EventId)> {
    events.map(|event| event.expect("readable")).map(|event| (event.revision, event.id)).collect()
}

/// All events of a store.
pub fn all(store: &Store) -> Vec<RecordedEvent> {
    let events = store.read_all(Position::START, Direction::Forwards);
    events.map(|event| event.expect("readable")).collect()
}

/// Appends one event with this many bytes of data.
pub fn append_large(store: &Store, stream: &str, number: u64, bytes: usize) {
    let data = vec![number as u8; bytes];
    let event = NewEvent::binary(id(number), "Large", &data).with_metadata(b"m");
    store.append(stream, ExpectedVersion::Any, &[event]).expect("appended");
}

/// Events of a backup on this disk, read from a restore on a copy of the disk.
pub fn restored(sim: &Sim, backup: &str) -> Vec<RecordedEvent> {
    let copy = sim.clone_disk();
    restore(&copy.env(), backup.as_ref(), "/probe".as_ref(), CopyOptions::default())
        .expect("restored");
    let store = Store::open("/probe", options(&copy)).expect("opened");
    assert!(store.verify().expect("verified").damage.is_empty());
    all(&store)
}
