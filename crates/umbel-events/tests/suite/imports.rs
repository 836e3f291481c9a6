//! Imports: events keep their ids, times, revisions and order; a repeated import adds no
//! duplicates.

use umbel_events::{
    Direction, Durability, Error, ExpectedVersion, ImportReport, ImportedEvent, NewEvent, Position,
    RecordedEvent, Revision, Store, StoreOptions, StreamState, limits,
};
use umbel_sim::{CrashSide, Sim};

use super::support::{all, append, append_large, event, id, options};

/// A store with every kind of event.
fn source() -> Vec<RecordedEvent> {
    let sim = Sim::new(31);
    let store = Store::open("/source", options(&sim)).expect("a new store");
    for number in 0..20 {
        append_large(&store, ["a", "b", "c"][number as usize % 3], number, 5000);
        sim.advance(std::time::Duration::from_millis(number));
    }
    store.delete("b", ExpectedVersion::Any).expect("deleted");
    append(&store, "b", 30..32);
    store.tombstone("c", ExpectedVersion::Any).expect("tombstoned");
    store.tombstone("never", ExpectedVersion::Any).expect("tombstoned");
    let metadata = NewEvent::json(id(40), "$metadata", br#"{"$maxCount":3}"#);
    store.append("$$a", ExpectedVersion::Any, &[metadata]).expect("metadata");
    let odd = NewEvent::json(id(41), "Odd", b"{\n}").with_metadata(&[0, 255]);
    store.append("a", ExpectedVersion::Any, &[odd]).expect("appended");
    all(&store)
}

fn imported(event: &RecordedEvent) -> ImportedEvent<'_> {
    ImportedEvent {
        stream: &event.stream,
        revision: Some(event.revision),
        created: Some(event.created),
        event: NewEvent {
            id: event.id,
            kind: &event.kind,
            is_json: event.is_json,
            data: &event.data,
            metadata: &event.metadata,
        },
    }
}

fn import(store: &Store, events: &[RecordedEvent]) -> Result<ImportReport, Error> {
    let mut import = store.import()?;
    for event in events {
        import.add(&imported(event))?;
    }
    import.finish()
}

/// The events without their positions.
fn outline(events: &[RecordedEvent]) -> Vec<RecordedEvent> {
    events.iter().map(|event| RecordedEvent { position: 0, ..event.clone() }).collect()
}

#[test]
fn import_keeps_events_and_is_idempotent() {
    let events = source();
    for durability in [Durability::Buffered, Durability::Synced] {
        let sim = Sim::new(32);
        let shape = || StoreOptions { durability, ..options(&sim) };
        let store = Store::open("/target", shape()).expect("a new store");
        let half = import(&store, &events[..9]).expect("the first half");
        assert_eq!((half.events, half.duplicates), (9, 0));
        let report = import(&store, &events).expect("all of it");
        let count = events.len() as u64;
        let wanted = ImportReport {
            events: count - 9,
            duplicates: 9,
            position: Position(all(&store).last().expect("events").position),
            ..ImportReport::default()
        };
        assert_eq!(report, wanted);
        assert_eq!(outline(&all(&store)), outline(&events));
        assert_eq!(store.stream_state("c").expect("known"), StreamState::Tombstoned);
        let b = store.read("b", Revision::START, Direction::Forwards);
        assert_eq!(b.count(), 2, "what was deleted is hidden as it was");
        store.close().expect("closed");
        let store = Store::open("/target", shape()).expect("opened again");
        let again = import(&store, &events).expect("once more");
        assert_eq!((again.events, again.duplicates), (0, count));
        assert!(store.verify().expect("verified").damage.is_empty());
        // The store continues, and no new event is older than the imported ones.
        append(&store, "a", 90..91);
        assert!(all(&store).is_sorted_by_key(|event| event.created));
    }
}

#[test]
fn interrupted_import_resumes() {
    let events = source();
    let whole = Sim::new(33);
    import(&Store::open("/target", options(&whole)).expect("a store"), &events).expect("imported");
    let mut cut_off = 0;
    for call in (1..whole.calls()).step_by(5) {
        let sim = Sim::new(33);
        sim.crash_at(call, CrashSide::After);
        let cut = Store::open("/target", options(&sim)).and_then(|store| import(&store, &events));
        cut_off += u64::from(cut.is_err());
        let image = sim.crash_image(&umbel_sim::Survival::any(call, sim.pending_units()), call);
        let store = Store::open("/target", options(&image)).expect("opened");
        import(&store, &events).expect("resumed");
        assert_eq!(outline(&all(&store)), outline(&events), "call {call}");
    }
    assert!(cut_off > 10, "{cut_off}");
}

#[test]
fn decreasing_timestamps_are_raised_and_counted() {
    let sim = Sim::new(34);
    let store = Store::open("/target", options(&sim)).expect("a new store");
    let base = sim.env().clock.wall_micros() * 10;
    let mut import = store.import().expect("begun");
    for (number, created) in [(0, base - 50), (1, base - 70), (2, base - 60), (3, base - 40)] {
        let (created, event) = (Some(created), event(number));
        let event = ImportedEvent { stream: "a", revision: None, created, event };
        import.add(&event).expect("taken");
    }
    let report = import.finish().expect("done");
    assert_eq!((report.events, report.adjusted_times, report.largest_adjustment), (4, 2, 20));
    let times: Vec<_> = all(&store).iter().map(|event| base - event.created).collect();
    assert_eq!(times, [50, 50, 50, 40]);
    let day = 24 * 60 * 60 * 10_000_000;
    let late = ImportedEvent {
        stream: "a",
        revision: None,
        created: Some(base + 2 * day),
        event: event(4),
    };
    let message = store.import().expect("begun").add(&late).expect_err("the future").to_string();
    assert!(message.contains("more than a day in the future"), "{message}");
}

#[test]
fn missing_revisions_stay_gaps_and_are_counted() {
    let sim = Sim::new(35);
    let store = Store::open("/target", options(&sim)).expect("a new store");
    let mut import = store.import().expect("begun");
    let mut add = |number: u64, revision: u64| {
        let (revision, event) = (Some(revision), event(number));
        import.add(&ImportedEvent { stream: "a", revision, created: None, event })
    };
    for (number, revision) in [(0, 10), (1, 11), (2, 15)] {
        assert_eq!(add(number, revision).expect("taken").revision, revision);
    }
    let between = add(3, 12).expect_err("behind").to_string();
    assert!(
        between.contains(
            "accepts no event with revision 12 any more, because its last revision is 15"
        ),
        "{between}"
    );
    let report = import.finish().expect("done");
    assert_eq!((report.events, report.missing_revisions), (3, 13));
    let read = |from: u64, direction| {
        let events = store.read("a", Revision(from), direction);
        events.map(|event| event.expect("readable").revision).collect::<Vec<_>>()
    };
    assert_eq!(read(0, Direction::Forwards), [10, 11, 15]);
    assert_eq!(read(u64::MAX, Direction::Backwards), [15, 11, 10]);
    assert_eq!(read(12, Direction::Forwards), [15]);
    append(&store, "a", 5..6);
    assert_eq!(read(12, Direction::Forwards), [15, 16]);
    assert!(store.verify().expect("verified").damage.is_empty());
}

#[test]
fn invalid_events_are_rejected_and_the_rest_imported() {
    let sim = Sim::new(36);
    let store = Store::open("/target", options(&sim)).expect("a new store");
    append(&store, "a", 0..3);
    store.tombstone("gone", ExpectedVersion::Any).expect("tombstoned");
    let mut import = store.import().expect("begun");
    let large = vec![0; limits::EVENT_BYTES_MAX + 1];
    let with = |stream, revision, event| ImportedEvent { stream, revision, created: None, event };
    let cases = [
        (with("a", Some(1), event(9)), "has another event with revision 1"),
        (with("gone", Some(0), event(9)), "tombstoned"),
        (with("gone", Some(limits::TOMBSTONE_REVISION), event(9)), "with another event"),
        (with("$ce-a", Some(0), event(9)), "a view"),
        (with("", Some(0), event(9)), "0 bytes"),
        (
            with("a", Some(limits::TOMBSTONE_REVISION + 1), event(9)),
            "the highest possible revision",
        ),
        (with("a", None, NewEvent::json(id(9), "", b"1")), "type"),
        (with("a", None, NewEvent::binary(id(9), "t", &large)), "8388609 bytes"),
    ];
    for (event, why) in cases {
        let message = import.add(&event).expect_err(why).to_string();
        assert!(message.contains(why), "{why}: {message}");
    }
    let taken = import.add(&with("a", Some(3), event(9))).expect("the next one");
    assert!(!taken.is_duplicate);
    let odd = NewEvent::json(id(10), "$metadata", b"no json");
    import.add(&with("$$a", Some(0), odd)).expect("kept as it was");
    let report = import.finish().expect("done");
    assert_eq!((report.events, report.unreadable_metadata), (2, 1));
    assert_eq!(store.stream_state("a").expect("known"), StreamState::Live { first: 0, last: 3 });
}

/// Regression: an event of any type was accepted at the revision of a tombstone. A wrong line with
/// an event `Opened` at that revision tombstoned the stream, which then accepted no appends.
#[test]
fn last_revision_accepts_only_a_tombstone() {
    let sim = Sim::new(37);
    let store = Store::open("/target", options(&sim)).expect("a new store");
    append(&store, "a", 0..2);
    let mut import = store.import().expect("begun");
    let at_the_end = |event| ImportedEvent {
        stream: "a",
        revision: Some(limits::TOMBSTONE_REVISION),
        created: None,
        event,
    };
    let wrong = at_the_end(NewEvent::json(id(9), "Opened", b"{}"));
    let message = import.add(&wrong).expect_err("no tombstone").to_string();
    assert!(message.contains("'$streamDeleted'") && message.contains("'Opened'"), "{message}");
    assert_eq!(store.stream_state("a").expect("known"), StreamState::Live { first: 0, last: 1 });
    let right = at_the_end(NewEvent::json(id(9), "$streamDeleted", b"{}"));
    assert!(!import.add(&right).expect("a tombstone").is_duplicate);
    assert!(import.add(&right).expect("it again").is_duplicate);
    import.finish().expect("done");
    assert_eq!(store.stream_state("a").expect("known"), StreamState::Tombstoned);
}
