//! Removal of data for good: a scavenge that removes all, and redactions. Afterwards no file of the
//! store has the data, nor has a new backup.

use std::path::PathBuf;
use std::time::Duration;

use umbel_events::{
    Direction, Durability, Error, ExpectedVersion, NewEvent, RecordedEvent, Redaction, Revision,
    ScavengeOptions, Store, StoreOptions, parse_event_place,
};
use umbel_sim::{CrashSide, Sim, Survival};

use super::scavenge::{append_each, everything, set_metadata};
use super::support::{append, id, options, restored};

/// Text in the data and in the metadata of the events to remove.
const MARKER: &[u8] = b"Qx7vLw2pRz9kTm4s";

fn open(sim: &Sim) -> Store {
    let settings = StoreOptions { durability: Durability::Synced, ..options(sim) };
    Store::open("/events", settings).expect("opened")
}

fn removes_all() -> ScavengeOptions {
    ScavengeOptions { busy_percent: 100, removes_all: true, ..ScavengeOptions::default() }
}

/// Appends an event with the marker in its data and metadata.
fn append_marked(store: &Store, stream: &str, number: u64) {
    let event = NewEvent::binary(id(number), "Happened", MARKER).with_metadata(MARKER);
    store.append(stream, ExpectedVersion::Any, &[event]).expect("appended");
}

fn marked_files(sim: &Sim) -> Vec<PathBuf> {
    let is_marked =
        |path: &PathBuf| sim.read(path).windows(MARKER.len()).any(|bytes| bytes == MARKER);
    sim.files().into_iter().filter(is_marked).collect()
}

/// Appends marked events that are hidden for every reason, all in the newest chunk.
fn hide_marked_events(sim: &Sim, store: &Store) {
    let marker = std::str::from_utf8(MARKER).expect("text");
    append_marked(store, "aged", 1);
    set_metadata(store, "aged", 2, r#"{"$maxAge":1000}"#);
    sim.advance(Duration::from_secs(5000));
    append(store, "aged", 3..4);
    for (number, stream) in ["deleted", "ended", "back", "cut", "counted"].iter().enumerate() {
        append_marked(store, stream, 10 + number as u64);
    }
    // Metadata that a later version replaced, and metadata of a tombstoned stream.
    set_metadata(store, "ended", 21, &format!(r#"{{"x":"{marker}"}}"#));
    set_metadata(store, "back", 22, &format!(r#"{{"x":"{marker}","$tb":9223372036854775807}}"#));
    append(store, "back", 23..24);
    set_metadata(store, "back", 24, r#"{"$tb":1}"#);
    append(store, "cut", 25..26);
    set_metadata(store, "cut", 26, r#"{"$tb":1}"#);
    append(store, "counted", 27..28);
    set_metadata(store, "counted", 28, r#"{"$maxCount":1}"#);
    store.delete("deleted", ExpectedVersion::Any).expect("deleted");
    store.tombstone("ended", ExpectedVersion::Any).expect("tombstoned");
}

fn check_whole(store: &Store) {
    let report = store.verify().expect("verified");
    assert!(report.damage.is_empty(), "{:?}", report.damage);
    assert!(report.index.damage.is_empty(), "{:?}", report.index.damage);
}

/// Story: a scavenge left the newest chunk as it was, so that data deleted today stayed until the
/// chunk was full.
#[test]
fn scavenge_that_removes_all_leaves_no_data_in_any_file() {
    let sim = Sim::new(1);
    let store = open(&sim);
    append_each(&store, "kept", 100..110, 3000);
    hide_marked_events(&sim, &store);
    append(&store, "kept", 110..112);
    assert!(!marked_files(&sim).is_empty());
    let report = store.scavenge(&removes_all()).expect("scavenged");
    assert_eq!(report.hidden_events_left, Some(0), "{report:?}");
    assert_eq!((report.files_kept, report.files_with_other_names), (Vec::new(), Vec::new()));
    assert_eq!(marked_files(&sim), Vec::<PathBuf>::new());
    store.backup("/backup", Default::default()).expect("backed up");
    assert_eq!(marked_files(&sim), Vec::<PathBuf>::new());
    check_whole(&store);
    append_marked(&store, "deleted", 200);
    let read = |store: &Store, stream: &str| {
        let events = store.read(stream, Revision::START, Direction::Forwards);
        events.map(|event| event.expect("readable").id).collect::<Vec<_>>()
    };
    assert_eq!(read(&store, "kept").len(), 12);
    assert_eq!(read(&store, "deleted"), [id(200)]);
    assert_eq!(read(&store, "back"), [id(23)]);
    assert_eq!(read(&store, "counted"), [id(27)]);
    store.close().expect("closed");
    assert_eq!(restored(&sim, "/backup").iter().filter(|it| it.stream == "kept").count(), 12);
    // A later one has only the new event to examine, and needs no new chunk without events.
    let store = open(&sim);
    store.delete("deleted", ExpectedVersion::Any).expect("deleted");
    let again = store.scavenge(&removes_all()).expect("scavenged");
    assert_eq!((again.chunks_rewritten, again.hidden_events_left), (1, Some(0)));
    assert_eq!(marked_files(&sim), Vec::<PathBuf>::new());
}

const REDACTED: [(&str, u64); 2] = [("orders-1", 1), ("orders-2", 0)];

fn redaction() -> Redaction<'static> {
    Redaction { events: &REDACTED, reason: "erasure request 17", user: "ops" }
}

fn with_orders(sim: &Sim) -> Store {
    let store = open(sim);
    append(&store, "orders-1", 0..1);
    append_marked(&store, "orders-1", 1);
    append_each(&store, "kept", 100..120, 6000);
    append(&store, "orders-1", 2..3);
    append_marked(&store, "orders-2", 3);
    append(&store, "orders-2", 4..5);
    store
}

/// The events without redacted data and without audit events.
fn outlines(events: Vec<RecordedEvent>) -> Vec<(String, u64, u64, String)> {
    let events = events.into_iter().filter(|event| event.stream != "$redactions");
    events.map(|it| (it.stream, it.revision, it.position, it.kind)).collect()
}

#[test]
fn redacted_data_is_in_no_file() {
    let sim = Sim::new(1);
    let store = with_orders(&sim);
    let before = outlines(everything(&store));
    let report = store.redact(&redaction()).expect("redacted");
    assert_eq!((report.events_redacted, report.events_without_data), (2, 0));
    assert_eq!(marked_files(&sim), Vec::<PathBuf>::new());
    store.backup("/backup", Default::default()).expect("backed up");
    assert_eq!(marked_files(&sim), Vec::<PathBuf>::new());
    let after = everything(&store);
    let redacted: Vec<_> = after.iter().filter(|event| event.data.is_empty()).collect();
    assert_eq!(redacted.len(), 2);
    assert!(redacted.iter().all(|event| event.metadata.is_empty()));
    assert_eq!(redacted.iter().map(|event| event.id).collect::<Vec<_>>(), [id(1), id(3)]);
    let audit: Vec<serde_json::Value> = after
        .iter()
        .filter(|event| event.stream == "$redactions")
        .map(|event| serde_json::from_slice(&event.data).expect("JSON"))
        .collect();
    assert_eq!(audit.len(), 2);
    assert_eq!(audit[0]["stream"], "orders-1");
    assert_eq!(audit[0]["revision"], 1);
    assert_eq!(audit[0]["eventId"], id(1).to_string());
    assert_eq!(
        (&audit[1]["reason"], &audit[1]["user"]),
        (&"erasure request 17".into(), &"ops".into())
    );
    assert_eq!(outlines(after), before);
    check_whole(&store);
    // A redaction of redacted events changes nothing.
    let again = store.redact(&redaction()).expect("redacted");
    assert_eq!((again.events_redacted, again.events_without_data), (0, 2));
    assert_eq!(everything(&store).iter().filter(|it| it.stream == "$redactions").count(), 2);
    // An append that is repeated is still recognized.
    let event = NewEvent::binary(id(1), "Happened", MARKER).with_metadata(MARKER);
    let retried = store.append("orders-1", ExpectedVersion::Any, &[event]).expect("appended");
    assert!(retried.is_retry);
    store.close().expect("closed");
    let store = open(&sim);
    assert_eq!(outlines(everything(&store)), before);
    check_whole(&store);
}

#[test]
fn last_at_sign_separates_stream_and_revision() {
    assert_eq!(parse_event_place("cart-42@7").expect("valid"), ("cart-42", 7));
    assert_eq!(parse_event_place("1@a@b@0").expect("valid"), ("1@a@b", 0));
    let last = u64::MAX.to_string();
    assert_eq!(parse_event_place(&format!("a@{last}")).expect("valid"), ("a", u64::MAX));
    for (place, cause) in [
        ("", "has no @"),
        ("cart-42", "has no @"),
        ("@7", "no stream name"),
        ("a@", "no revision"),
        ("a@-1", "no revision"),
        ("a@+1", "no revision"),
        ("a@ 1", "no revision"),
        ("a@18446744073709551616", "no revision"),
    ] {
        let refused = parse_event_place(place);
        let Err(Error::Invalid(text)) = refused else { panic!("{place}: {refused:?}") };
        assert!(text.contains(cause) && text.contains("STREAM@REVISION"), "{text}");
    }
    let Err(Error::Invalid(text)) = parse_event_place(&"é".repeat(9000)) else { panic!("valid") };
    assert!(text.len() < 500, "{text}");
}

/// Story: the last event of a stream was refused as absent.
#[test]
fn last_event_of_a_stream_is_redacted() {
    let sim = Sim::new(1);
    let store = open(&sim);
    let streams = ["single", "ended", "deleted"];
    for (number, stream) in streams.iter().enumerate() {
        append_marked(&store, stream, number as u64);
    }
    store.tombstone("ended", ExpectedVersion::Any).expect("tombstoned");
    store.delete("deleted", ExpectedVersion::Any).expect("deleted");
    let events = streams.map(|stream| (stream, 0));
    let request = Redaction { events: &events, ..redaction() };
    let report = store.redact(&request).expect("redacted");
    assert_eq!((report.events_redacted, report.events_without_data), (3, 0));
    assert_eq!(marked_files(&sim), Vec::<PathBuf>::new());
    check_whole(&store);
    // The tombstone has no data.
    let tombstone = [("ended", u64::MAX >> 1)];
    let refused = store.redact(&Redaction { events: &tombstone, ..redaction() });
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
}

/// Story: a second removal named no file, although a reader kept a replaced file of the first.
#[test]
fn kept_files_are_reported_by_later_removals() {
    let sim = Sim::new(1);
    let store = with_orders(&sim);
    let settings = StoreOptions { create_if_missing: false, ..options(&sim) };
    let reader = Store::open_read_only("/events", settings).expect("opened");
    for is_first in [true, false] {
        let redacted = store.redact(&redaction()).expect("redacted");
        assert_eq!(redacted.events_redacted > 0, is_first);
        let scavenged = store.scavenge(&removes_all()).expect("scavenged");
        assert_eq!(scavenged.hidden_events_left, Some(0));
        for kept in [redacted.files_kept, scavenged.files_kept] {
            assert!(!kept.is_empty() && marked_files(&sim).iter().all(|file| kept.contains(file)));
        }
        assert!(!marked_files(&sim).is_empty());
    }
    drop(reader);
    store.close().expect("closed");
    let store = open(&sim);
    let report = store.scavenge(&removes_all()).expect("scavenged");
    assert_eq!(report.files_kept, Vec::<PathBuf>::new());
    assert_eq!(marked_files(&sim), Vec::<PathBuf>::new());
}

#[test]
fn invalid_redactions_change_nothing() {
    let sim = Sim::new(1);
    let store = with_orders(&sim);
    set_metadata(&store, "orders-1", 50, r#"{"x":1}"#);
    let many = vec![("orders-1", 1); 1001];
    let long = "x".repeat(4097);
    let of = |events| Redaction { events, reason: "", user: "" };
    let cases = [
        (of(&[("orders-1", 1), ("orders-1", 9)]), "no event with revision 9"),
        (of(&[("absent", 0)]), "no event with revision 0"),
        (of(&[("$$orders-1", 0)]), "system stream"),
        (of(&many), "1001 events"),
        (Redaction { reason: &long, ..redaction() }, "4097 bytes"),
    ];
    for (request, part) in cases {
        let refused = store.redact(&request);
        let Err(Error::Invalid(text)) = refused else { panic!("{part}: {refused:?}") };
        assert!(text.contains(part), "{text}");
    }
    assert!(everything(&store).iter().all(|event| event.stream != "$redactions"));
    assert!(!marked_files(&sim).is_empty());
}

/// After a crash at each call of a removal, the store opens, no other event is lost, and a second
/// removal leaves no data. A redacted event has its audit event.
#[test]
fn removal_continues_after_a_crash() {
    for is_redaction in [false, true] {
        let prepare = |sim: &Sim| {
            let store = with_orders(sim);
            if !is_redaction {
                for (stream, _) in REDACTED {
                    store.delete(stream, ExpectedVersion::Any).expect("deleted");
                }
            }
            store
        };
        let remove = |store: &Store| match is_redaction {
            true => store.redact(&redaction()).map(drop),
            false => store.scavenge(&removes_all()).map(drop),
        };
        let calls: Vec<u64> = {
            let sim = Sim::new(1);
            let store = prepare(&sim);
            let before = sim.calls();
            remove(&store).expect("removed");
            sim.changing_calls().into_iter().filter(|&call| call > before).collect()
        };
        assert!(calls.len() > 20, "{} calls", calls.len());
        for (number, &call) in calls.iter().enumerate() {
            for side in [CrashSide::Before, CrashSide::After] {
                let sim = Sim::new(1);
                let store = prepare(&sim);
                sim.crash_at(call, side);
                let _ = remove(&store);
                drop(store);
                let survival = Survival::any(number as u64, sim.pending_units());
                let image = sim.crash_image(&survival, number as u64);
                check_after_crash(&image, is_redaction, remove, &format!("{call} {side:?}"));
            }
        }
    }
}

fn check_after_crash(
    sim: &Sim,
    is_redaction: bool,
    remove: impl Fn(&Store) -> umbel_events::Result<()>,
    context: &str,
) {
    let store = open(sim);
    let events = everything(&store);
    let kept = events.iter().filter(|event| event.stream == "kept");
    assert_eq!(kept.count(), 20, "{context}");
    let is_blank = |event: &&RecordedEvent| event.data.is_empty();
    let audits = events.iter().filter(|event| event.stream == "$redactions").count();
    let blank = events.iter().filter(is_blank).count();
    assert!(!is_redaction || blank == 0 || audits >= 2, "{context}: {blank} {audits}");
    remove(&store).expect("removed");
    assert_eq!(marked_files(sim), Vec::<PathBuf>::new(), "{context}");
    let events = everything(&store);
    let audits = events.iter().filter(|event| event.stream == "$redactions").count();
    assert!(!is_redaction || audits >= 2, "{context}");
    assert_eq!(events.iter().filter(is_blank).count(), if is_redaction { 2 } else { 0 });
    check_whole(&store);
}
