//! Repairs: salvaged events keep their places, losses are named, and nothing is invented.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use umbel_events::{
    Direction, Error, ExpectedVersion, NewEvent, Position, RecordedEvent, RepairOptions,
    RepairReport, Revision, ScavengeOptions, Store, repair,
};
use umbel_sim::Sim;

use super::support::{all, append, append_large, event, id, options};

pub const FOLDER: &str = "/events";

pub fn chunk(id: u64) -> PathBuf {
    PathBuf::from(format!("{FOLDER}/log/{id:08}.chunk"))
}

pub fn repair_store(sim: &Sim) -> RepairReport {
    repair(&sim.env(), FOLDER.as_ref(), RepairOptions::default()).expect("repaired")
}

/// A closed store with several chunks: appends of one event and of several, to four streams.
pub fn specimen(seed: u64) -> (Sim, Vec<RecordedEvent>) {
    let sim = Sim::new(seed);
    let store = Store::open(FOLDER, options(&sim)).expect("a new store");
    fill(&store, 0..220);
    let events = all(&store);
    assert!(store.stats().expect("stats").chunks > 3);
    store.close().expect("closed");
    (sim, events)
}

pub fn fill(store: &Store, numbers: std::ops::Range<u64>) {
    for number in numbers {
        let first = number * 10;
        match number % 5 {
            0 => append(store, "cart-1", first..first + 4),
            1 => append_large(store, "cart-2", first, 700 + (number % 7) as usize * 300),
            2 => append(store, "order-1", first..first + 1),
            3 => append_large(store, "note", first, 3000),
            _ => append(store, "cart-1", first..first + 1),
        }
    }
}

/// The events of each append, which are adjacent and have the same time.
fn appends(events: &[RecordedEvent]) -> Vec<&[RecordedEvent]> {
    // Each append of the specimen has ten numbers for its ids.
    let number = |event: &RecordedEvent| {
        u64::from_le_bytes(*event.id.0.first_chunk().expect("eight bytes")) / 10
    };
    events.chunk_by(|one, other| number(one) == number(other)).collect()
}

/// Checks that a repaired store is whole and accepts appends. All events of the store existed
/// before the repair; only whole appends are missing, and only where the report says so.
pub fn check(sim: &Sim, before: &[RecordedEvent], report: &RepairReport, what: &str) {
    let store = Store::open(FOLDER, options(sim)).unwrap_or_else(|e| panic!("{what}: {e}"));
    let after = all(&store);
    let left: BTreeMap<Position, &RecordedEvent> =
        after.iter().map(|event| (Position(event.position), event)).collect();
    assert_eq!(left.len(), after.len(), "{what}");
    let ranges: Vec<_> = report.chunks.iter().flat_map(|chunk| &chunk.lost).collect();
    let is_lost = |event: &RecordedEvent| {
        let at = event.position;
        ranges.iter().any(|range| range.from.0 <= at && at < range.to.0)
    };
    let mut found = 0;
    for append in appends(before) {
        let there = append.iter().filter(|event| left.contains_key(&Position(event.position)));
        let there = there.count();
        assert!(there == 0 || there == append.len(), "{what}: half of an append");
        for event in append {
            match left.get(&Position(event.position)) {
                Some(saved) => assert_eq!(*saved, event, "{what}"),
                None => assert!(is_lost(event), "{what}: {event:?} is in no range of {report}"),
            }
        }
        found += there;
    }
    assert_eq!(found, after.len(), "{what}: there are events that were never written");
    for stream in ["cart-1", "cart-2", "order-1", "note"] {
        let wanted: Vec<_> = after.iter().filter(|event| event.stream == stream).collect();
        for direction in [Direction::Forwards, Direction::Backwards] {
            let from =
                if direction == Direction::Forwards { Revision::START } else { Revision::END };
            let read: Result<Vec<_>, _> = store.read(stream, from, direction).collect();
            let mut read = read.unwrap_or_else(|error| panic!("{what}: {stream}: {error}"));
            if direction == Direction::Backwards {
                read.reverse();
            }
            assert_eq!(read.iter().collect::<Vec<_>>(), wanted, "{what}: {stream}");
        }
    }
    for view in ["$ce-cart", "$et-Happened", "$et-Large", "$streams"] {
        let read = store.read_view(view, Revision::START, Direction::Forwards, Position::END);
        assert!(read.into_iter().all(|event| event.is_ok()), "{what}: {view}");
    }
    let verified = store.verify().expect("verified");
    assert!(verified.damage.is_empty(), "{what}: {:?}", verified.damage);
    assert!(verified.index.damage.is_empty(), "{what}");
    store.append("cart-9", ExpectedVersion::NoStream, &[event(9_000_000)]).expect("appended");
    store.close().expect("closed");
    let again = repair_store(sim);
    assert!(again.is_undamaged(), "{what}: repaired twice: {again}");
}

/// Revision of the next event of a stream.
pub fn next_revision(sim: &Sim, stream: &str) -> u64 {
    let store = Store::open(FOLDER, options(sim)).expect("opened");
    let done = store.append(stream, ExpectedVersion::Any, &[event(8_000_000)]).expect("appended");
    store.close().expect("closed");
    done.first.expect("one event")
}

#[test]
fn undamaged_store_is_unchanged() {
    let (sim, _) = specimen(1);
    let before: Vec<_> = sim.files().iter().map(|path| (path.clone(), sim.read(path))).collect();
    let report = repair_store(&sim);
    assert!(report.is_undamaged(), "{report}");
    assert_eq!(report.to_string(), "");
    let after: Vec<_> = sim.files().iter().map(|path| (path.clone(), sim.read(path))).collect();
    assert_eq!(before, after);
}

#[test]
fn one_damaged_event_loses_only_its_append() {
    let (sim, before) = specimen(2);
    let victim = before.iter().find(|event| event.position > 40_000 && event.stream == "note");
    let victim = victim.expect("there is one").clone();
    // In the middle of the data of the event.
    sim.flip(chunk(1), victim.position + 1000, 4);
    let dry = RepairOptions { dry_run: true, ..RepairOptions::default() };
    let dry_report = repair(&sim.env(), FOLDER.as_ref(), dry).expect("examined");
    assert!(!sim.files().iter().any(|path| path.to_string_lossy().contains("damaged")));
    let report = repair_store(&sim);
    assert_eq!(RepairReport { folder: None, ..report.clone() }, dry_report);
    assert_eq!(report.folder.as_deref(), Some("damaged-1"));
    let [damaged] = &report.chunks[..] else { panic!("{report}") };
    let [lost] = &damaged.lost[..] else { panic!("{report}") };
    assert_eq!((damaged.id, lost.unproven), (1, 0));
    assert_eq!(lost.from.0 + 32, victim.position);
    let [revisions] = &report.streams[..] else { panic!("{report}") };
    assert_eq!((&revisions.stream[..], revisions.is_certain), ("note", true));
    assert_eq!((revisions.first, revisions.last), (victim.revision, victim.revision));
    assert!(sim.has("/events/damaged-1/00000001.chunk"));
    assert!(sim.has("/events/damaged-1/report.txt"));
    assert!(sim.has("/events/damaged-1/CHUNKS"));
    check(&sim, &before, &report, "one flip");
    let store = Store::open(FOLDER, options(&sim)).expect("opened");
    assert_eq!(all(&store).len(), before.len() - 1 + 1);
}

/// The last revisions of a stream are not assigned again, whatever happened to its last event.
#[test]
fn revision_of_a_lost_last_event_is_not_reused() {
    let (sim, before) = specimen(3);
    let last = before.iter().rev().find(|event| event.stream == "note").expect("there is one");
    let id = chunk_of(&sim, last.position);
    sim.flip(chunk(id.0), last.position - id.1 + 500, 1);
    let report = repair_store(&sim);
    assert_eq!(report.streams.len(), 1, "{report}");
    check(&sim, &before, &report, "the last event of a stream");
    assert_eq!(next_revision(&sim, "note"), last.revision + 1);
    let store = Store::open(FOLDER, options(&sim)).expect("opened");
    let expected = ExpectedVersion::Exact(last.revision);
    let refused =
        store.append("note", expected, &[event(5)]).expect_err("another event was appended");
    assert!(matches!(refused, Error::WrongExpectedVersion { .. }), "{refused}");
}

/// Id of the chunk with a position, and the chunk's first position, read from the files.
pub fn chunk_of(sim: &Sim, position: u64) -> (u64, u64) {
    let mut found = (0, 0);
    for id in 1..100 {
        if !sim.has(chunk(id)) {
            continue;
        }
        let bytes = sim.read(chunk(id));
        // The sequence of the first record is the position of the event after its header.
        let sequence = u64::from_le_bytes(*bytes[80..].first_chunk().expect("eight bytes"));
        if sequence - 96 <= position {
            found = (id, sequence - 96);
        }
    }
    found
}

#[test]
fn bit_flips_lose_only_the_appends_they_hit() {
    let (sim, before) = specimen(4);
    let mut losses = 0;
    for number in 0..120_u64 {
        let damaged = sim.clone_disk();
        let ids: Vec<u64> = (1..20).filter(|id| damaged.has(chunk(*id))).collect();
        for flip in 0..1 + number % 3 {
            let random = (number * 31 + flip).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let path = chunk(ids[(random >> 40) as usize % ids.len()]);
            let offset = (random >> 8) % damaged.read(&path).len() as u64;
            damaged.flip(&path, offset, 1 << (random % 8));
        }
        let report = repair_store(&damaged);
        let what = format!("flips {number}");
        check(&damaged, &before, &report, &what);
        let lost: u64 = report.bytes_lost();
        losses += u64::from(lost > 0);
        // Each flip hits one append.
        assert!(lost <= 3 * 3300, "{what}: {report}");
    }
    assert!(losses > 90, "{losses}");
}

/// Positions and numbers of the events of a view.
fn numbers(sim: &Sim, view: &str) -> BTreeMap<u64, u64> {
    let store = Store::open(FOLDER, options(sim)).expect("opened");
    let read = store.read_view(view, Revision::START, Direction::Forwards, Position::END);
    read.map(|event| event.expect("readable").link).map(|l| (l.position, l.revision)).collect()
}

/// Readers of a view rely on the numbers in it.
#[test]
fn view_numbers_survive_a_loss_known_to_the_index() {
    let views = ["$ce-cart", "$et-Happened", "$et-Large", "$streams"];
    let (sim, before) = specimen(18);
    let wanted: Vec<_> = views.iter().map(|view| numbers(&sim, view)).collect();
    sim.flip(chunk(1), 30_000, 1);
    sim.flip(chunk(2), 10_000, 1);
    sim.remove(chunk(3));
    let report = repair_store(&sim);
    assert_eq!(report.chunks.len(), 3, "{report}");
    for (view, wanted) in views.iter().zip(wanted) {
        let found = numbers(&sim, view);
        assert!(found.len() < wanted.len() || *view == "$streams", "{view}");
        for (position, number) in found {
            assert_eq!(wanted.get(&position), Some(&number), "{view} at {position}");
        }
    }
    check(&sim, &before, &report, "numbers in views");
}

#[test]
fn zeroed_sectors_lose_only_their_events() {
    let (sim, before) = specimen(5);
    for offset in (0..60_000).step_by(4096) {
        let damaged = sim.clone_disk();
        damaged.zero_sector(chunk(2), offset);
        damaged.zero_sector(chunk(2), (offset + 20_000) % 60_000);
        let report = repair_store(&damaged);
        check(&damaged, &before, &report, &format!("zeros at {offset}"));
        assert!(report.bytes_lost() <= 4 * 3300, "{report}");
    }
}

#[test]
fn missing_empty_and_short_chunks_leave_gaps() {
    let (sim, before) = specimen(6);
    type Harm = fn(&Sim);
    let damages: [(&str, Harm); 6] = [
        ("missing", |sim| sim.remove(chunk(2))),
        ("empty", |sim| sim.truncate(chunk(2), 0)),
        ("short", |sim| sim.truncate(chunk(2), 30_000)),
        ("swapped", |sim| sim.swap_files(chunk(2), chunk(3))),
        ("two missing", |sim| {
            sim.remove(chunk(1));
            sim.remove(chunk(3));
        }),
        ("the last is missing", |sim| {
            let last = (1..50).rev().find(|id| sim.has(chunk(*id))).expect("chunks");
            sim.remove(chunk(last));
        }),
    ];
    for (name, damage_fn) in damages {
        let damaged = sim.clone_disk();
        damage_fn(&damaged);
        let report = repair_store(&damaged);
        // Misnamed files are read all the same.
        let is_saved = name == "swapped";
        assert!(!report.chunks.is_empty(), "{name}: {report}");
        assert_eq!(report.streams.is_empty(), is_saved, "{name}: {report}");
        check(&damaged, &before, &report, name);
        let last = before.iter().rev().find(|event| event.stream == "cart-1").expect("events");
        assert_eq!(next_revision(&damaged, "cart-1"), last.revision + 1, "{name}");
    }
}

/// Removes the files below a folder.
pub fn without(sim: &Sim, folder: &str) {
    sim.files().iter().filter(|path| path.starts_with(folder)).for_each(|path| sim.remove(path));
}

pub fn without_index(sim: &Sim) {
    without(sim, "/events/index");
}

pub fn without_filter(sim: &Sim) {
    without(sim, "/events/existence");
}

#[test]
fn damaged_index_is_moved_aside_and_rebuilt() {
    let (sim, before) = specimen(9);
    let tables = |path: &PathBuf| path.starts_with("/events/index") && sim.read(path).len() > 500;
    for path in sim.files().iter().filter(|path| tables(path)) {
        let damaged = sim.clone_disk();
        damaged.flip(path, 200, 1);
        let report = repair_store(&damaged);
        if !report.is_undamaged() {
            assert!(report.index.is_some() && report.chunks.is_empty(), "{report}");
            assert!(damaged.files().iter().any(|p| p.starts_with("/events/damaged-1/index")));
        }
        check(&damaged, &before, &report, &path.display().to_string());
    }
    for directory in ["/events/index", "/events/existence"] {
        let damaged = sim.clone_disk();
        for path in damaged.files().iter().filter(|path| path.starts_with(directory)) {
            damaged.remove(path);
        }
        let report = repair_store(&damaged);
        check(&damaged, &before, &report, directory);
    }
}

/// Without the index only the events around a loss show what is lost.
#[test]
fn loss_is_inferred_from_neighbors_without_index() {
    let (sim, before) = specimen(10);
    without_index(&sim);
    let victim = before.iter().find(|e| e.position > 40_000 && e.stream == "note").expect("one");
    sim.flip(chunk(1), victim.position + 1000, 4);
    let report = repair_store(&sim);
    assert_eq!(report.index_through, None, "{report}");
    let [lost] = &report.streams[..] else { panic!("{report}") };
    assert_eq!((&lost.stream[..], lost.is_certain), ("note", false));
    assert_eq!((lost.first, lost.last), (victim.revision, victim.revision));
    check(&sim, &before, &report, "without an index");
}

#[test]
fn open_store_and_empty_directory_are_rejected() {
    let (sim, _) = specimen(11);
    let store = Store::open(FOLDER, options(&sim)).expect("opened");
    let refused = repair(&sim.env(), FOLDER.as_ref(), RepairOptions::default());
    assert!(matches!(refused, Err(Error::Store(umbel_events_error)) if umbel_events_error
        .to_string().contains("/events")));
    store.close().expect("closed");
    let refused = repair(&sim.env(), Path::new("/none"), RepairOptions::default());
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
}

#[test]
fn damaged_scavenged_chunks_keep_readable_events() {
    let (sim, _) = specimen(14);
    let store = Store::open(FOLDER, options(&sim)).expect("opened");
    let metadata = NewEvent::json(id(6_000_000), "$metadata", br#"{"$maxCount":20}"#);
    store.append("$$note", ExpectedVersion::Any, &[metadata]).expect("metadata");
    store.flush().expect("flushed");
    store
        .scavenge(&ScavengeOptions { busy_percent: 100, ..ScavengeOptions::default() })
        .expect("scavenged");
    let before = all(&store);
    store.close().expect("closed");
    let files = sim.files();
    let scavenged: Vec<_> =
        files.iter().filter(|path| path.to_string_lossy().contains("-000001.chunk")).collect();
    assert!(scavenged.len() > 1, "{files:?}");
    let mut losses = 0;
    for path in scavenged {
        let len = sim.read(path).len() as u64;
        for offset in [0, 30, 70, 100, len / 3, len / 2, len - 200, len - 60, len - 4] {
            for is_manifest_lost in [false, true] {
                let damaged = sim.clone_disk();
                damaged.flip(path, offset, 1);
                if is_manifest_lost {
                    damaged.remove("/events/CHUNKS");
                }
                let report = repair_store(&damaged);
                let what = format!("{} at {offset}, {is_manifest_lost}", path.display());
                check_single(&damaged, &before, &report, &what);
                losses += u64::from(report.bytes_lost() > 0);
            }
        }
    }
    assert!(losses > 10, "{losses}");
}

/// Like [`check`], for appends of a single event each.
fn check_single(sim: &Sim, before: &[RecordedEvent], report: &RepairReport, what: &str) {
    let store = Store::open(FOLDER, options(sim)).unwrap_or_else(|e| panic!("{what}: {e}"));
    let after = all(&store);
    assert!(after.iter().all(|event| before.contains(event)), "{what}");
    let ranges: Vec<_> = report.chunks.iter().flat_map(|chunk| &chunk.lost).collect();
    for event in before.iter().filter(|event| !after.contains(event)) {
        let at = event.position;
        let is_reported = ranges.iter().any(|range| range.from.0 <= at && at < range.to.0);
        assert!(is_reported, "{what}: {event:?}: {report}");
    }
    assert!(before.len() - after.len() < 3, "{what}: {report}");
    let verified = store.verify().expect("verified");
    assert!(verified.damage.is_empty(), "{what}: {:?}", verified.damage);
    store.close().expect("closed");
    let again = repair_store(sim);
    assert!(again.is_undamaged(), "{what}: repaired twice: {again}");
}
