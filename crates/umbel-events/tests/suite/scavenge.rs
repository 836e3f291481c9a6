//! Scavenges: which events are removed and which stay. Readers and writers see no other difference.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use umbel_env::{Env, JoinHandle, Threads};
use umbel_events::{
    Direction, Durability, ExpectedVersion, NewEvent, Position, RecordedEvent, Revision,
    ScavengeOptions, ScavengeReport, Store, StoreOptions, StreamState, metadata_stream,
};
use umbel_sim::Sim;

use super::support::{id, options, outline};

/// Scavenges everything at once, without stubs for retries.
pub fn all() -> ScavengeOptions {
    ScavengeOptions { busy_percent: 100, retry_bytes: 0, ..ScavengeOptions::default() }
}

/// Appends one event at a time, each of this many bytes.
pub fn append_each(store: &Store, stream: &str, numbers: std::ops::Range<u64>, bytes: usize) {
    let data = vec![b'x'; bytes];
    for number in numbers {
        let event = NewEvent::binary(id(number), "Happened", &data);
        store.append(stream, ExpectedVersion::Any, &[event]).expect("appended");
    }
}

pub fn set_metadata(store: &Store, stream: &str, number: u64, json: &str) {
    let event = NewEvent::json(id(number), "$metadata", json.as_bytes());
    store.append(&metadata_stream(stream), ExpectedVersion::Any, &[event]).expect("metadata");
}

/// All events of the store, in order.
pub fn everything(store: &Store) -> Vec<RecordedEvent> {
    let events = store.read_all(Position::START, Direction::Forwards);
    events.map(|event| event.expect("readable")).collect()
}

/// Names, states and events of all streams, except tombstoned ones.
pub fn streams(store: &Store) -> Vec<(String, StreamState, Vec<RecordedEvent>)> {
    let named = store.streams("", None, 1000).expect("listed");
    let read = |(name, state): (String, StreamState)| {
        let is_ended =
            |name: &str| store.stream_state(name).expect("known") == StreamState::Tombstoned;
        let ended = is_ended(&name) || name.strip_prefix("$$").is_some_and(is_ended);
        let events = match ended {
            true => Vec::new(),
            false => {
                let events = store.read(&name, Revision::START, Direction::Forwards);
                events.map(|event| event.expect("readable")).collect()
            }
        };
        (name, state, events)
    };
    named.into_iter().map(read).collect()
}

/// A store with every reason for the removal of an event. Ids below 1000 stay, the others are
/// removed.
pub fn specimen(sim: &Sim, durability: Durability) -> Store {
    let settings = StoreOptions { durability, ..options(sim) };
    let store = Store::open("/events", settings.clone()).expect("a new store");
    append_each(&store, "cart-aged", 1000..1008, 2000);
    set_metadata(&store, "cart-aged", 1100, r#"{"$maxAge":1000}"#);
    sim.advance(Duration::from_secs(5000));
    append_each(&store, "cart-deleted", 1010..1020, 2000);
    append_each(&store, "cart-kept", 0..10, 2000);
    append_each(&store, "cart-ended", 1030..1040, 2000);
    set_metadata(&store, "cart-ended", 1041, r#"{"x":1}"#);
    append_each(&store, "cut", 1050..1060, 2000);
    append_each(&store, "cut", 20..23, 2000);
    append_each(&store, "counted", 1070..1080, 2000);
    set_metadata(&store, "counted", 1090, r#"{"$maxCount":5}"#);
    append_each(&store, "counted", 30..32, 2000);
    append_each(&store, "back", 1110..1120, 2000);
    append_each(&store, "cart-aged", 40..43, 2000);
    set_metadata(&store, "cut", 50, r#"{"$tb":10}"#);
    set_metadata(&store, "counted", 51, r#"{"$maxCount":2}"#);
    set_metadata(&store, "cart-aged", 52, r#"{"$maxAge":1001}"#);
    store.delete("cart-deleted", ExpectedVersion::Any).expect("deleted");
    store.delete("back", ExpectedVersion::Any).expect("deleted");
    append_each(&store, "back", 60..62, 2000);
    store.tombstone("cart-ended", ExpectedVersion::Any).expect("tombstoned");
    // Ends all chunks.
    store.close().expect("closed");
    Store::open("/events", settings).expect("opened again")
}

fn is_specimen_kept(event: &RecordedEvent) -> bool {
    let number = u64::from_le_bytes(*event.id.0.first_chunk().expect("sixteen bytes"));
    // The store's own events have random ids; the first metadata of "back" is old.
    number < 1000
        || event.kind == "$streamDeleted"
        || event.stream.starts_with("$$cart-deleted")
        || event.stream == "$$back" && event.revision > 0
}

/// A read from any position finds the next remaining event, in either direction.
fn check_positions(store: &Store, before: &[RecordedEvent], left: &[RecordedEvent]) {
    let backwards = store.read_all(Position::END, Direction::Backwards);
    let backwards: Vec<_> = backwards.map(|event| event.expect("readable")).collect();
    assert!(backwards.iter().rev().eq(left), "the same backwards");
    for at in before.iter().flat_map(|event| [event.position, event.position + 1]) {
        let next = store.read_all(Position(at), Direction::Forwards).next();
        let wanted = left.iter().find(|event| event.position >= at);
        assert_eq!(next.map(|event| event.expect("readable")).as_ref(), wanted, "from {at}");
        let next = store.read_all(Position(at), Direction::Backwards).next();
        let wanted = left.iter().rev().find(|event| event.position < at);
        assert_eq!(next.map(|event| event.expect("readable")).as_ref(), wanted, "before {at}");
    }
}

fn check_whole(store: &Store) {
    let report = store.verify().expect("verified");
    assert!(report.damage.is_empty(), "{:?}", report.damage);
    assert!(report.index.damage.is_empty(), "{:?}", report.index.damage);
}

#[test]
fn scavenge_frees_space_and_keeps_readable_events() {
    for durability in [Durability::Buffered, Durability::Synced] {
        let sim = Sim::new(1);
        let store = specimen(&sim, durability);
        let (before, named) = (everything(&store), streams(&store));
        let bytes = store.stats().expect("stats").log_bytes;
        let report = store.scavenge(&all()).expect("scavenged");
        assert!(report.is_complete && report.resumed_from.is_none(), "{report:?}");
        assert!(report.events_removed > 50 && report.events_stubbed >= 2, "{report:?}");
        let left = everything(&store);
        let wanted: Vec<_> = before.iter().filter(|e| is_specimen_kept(e)).cloned().collect();
        let outline = |events: &[RecordedEvent]| -> Vec<_> {
            events.iter().map(|e| (e.stream.clone(), e.revision, e.position)).collect()
        };
        assert_eq!(outline(&left), outline(&wanted));
        assert_eq!(left, wanted);
        assert_eq!(streams(&store), named);
        check_positions(&store, &before, &left);
        check_whole(&store);
        let stats = store.stats().expect("stats");
        assert_eq!(stats.log_bytes + report.bytes_freed, bytes);
        assert_eq!(stats.scavenged_bytes, report.bytes_freed);
        assert!(
            stats.scavenged_chunks as u64 == report.chunks_rewritten && report.chunks_rewritten > 2
        );
        let again = store.scavenge(&all()).expect("scavenged");
        let none = (again.events_removed, again.events_stubbed, again.bytes_freed);
        assert_eq!(none, (0, 0, 0), "no work is left");
        // Later events get the positions that they would have had.
        append_each(&store, "cart-deleted", 70..72, 10);
        let read = store.read("cart-deleted", Revision::START, Direction::Forwards);
        assert_eq!(super::support::outline(read), [(10, id(70)), (11, id(71))]);
        store.close().expect("closed");
        let store = Store::open("/events", options(&sim)).expect("opened again");
        assert_eq!(everything(&store)[..left.len() - 1], left[..left.len() - 1]);
        check_whole(&store);
    }
}

#[test]
fn index_rebuilt_after_scavenge_is_equal() {
    let sim = Sim::new(2);
    let store = specimen(&sim, Durability::Buffered);
    store.scavenge(&all()).expect("scavenged");
    // The stub is no longer the last event of its stream.
    append_each(&store, "cart-deleted", 70..72, 10);
    let (left, named) = (everything(&store), streams(&store));
    store.close().expect("closed");
    for path in sim.files().iter().filter(|path| path.starts_with("/events/index")) {
        sim.remove(path);
    }
    let store = Store::open("/events", options(&sim)).expect("opened again");
    assert_eq!(everything(&store), left);
    assert_eq!(streams(&store), named);
    check_whole(&store);
    // The stub is removed once it is not needed.
    store.close().expect("closed");
    let store = Store::open("/events", options(&sim)).expect("opened again");
    let report = store.scavenge(&all()).expect("scavenged");
    assert!(report.events_removed >= 1 && report.chunks_rewritten == 2, "{report:?}");
    let kept = |events: Vec<RecordedEvent>| -> Vec<_> {
        events.into_iter().filter(|event| !event.stream.starts_with("$$")).collect()
    };
    assert_eq!(kept(everything(&store)), kept(left));
    assert_eq!(streams(&store), named);
    check_whole(&store);
}

#[test]
fn retries_are_recognized_within_the_documented_window() {
    let sim = Sim::new(3);
    let store = Store::open("/events", options(&sim)).expect("a new store");
    append_each(&store, "a", 0..100, 2000);
    set_metadata(&store, "a", 1000, r#"{"$maxCount":3}"#);
    store.close().expect("closed");
    let store = Store::open("/events", options(&sim)).expect("opened again");
    let gentle = ScavengeOptions { busy_percent: 100, ..ScavengeOptions::default() };
    let report = store.scavenge(&gentle).expect("scavenged");
    assert_eq!((report.events_removed, report.events_stubbed), (0, 97));
    assert!(report.bytes_freed > 97 * 1900, "{report:?}");
    let read = store.read("a", Revision::START, Direction::Forwards);
    assert_eq!(outline(read), [(97, id(97)), (98, id(98)), (99, id(99))]);
    let retried = |store: &Store, expected: ExpectedVersion, number: u64| {
        let event = NewEvent::binary(id(number), "Happened", b"again");
        store.append("a", expected, &[event])
    };
    for store in [store.clone(), {
        store.flush().expect("flushed");
        let image = sim.kill_image();
        Store::open("/events", options(&image)).expect("opened again")
    }] {
        let known = retried(&store, ExpectedVersion::Any, 5).expect("known");
        assert_eq!((known.first, known.is_retry), (Some(5), true));
        let known = retried(&store, ExpectedVersion::Exact(6), 7).expect("known");
        assert_eq!((known.first, known.is_retry), (Some(7), true));
        let known = retried(&store, ExpectedVersion::NoStream, 0).expect("known");
        assert_eq!((known.first, known.is_retry), (Some(0), true));
        check_whole(&store);
    }
    // Without the stubs there is nothing to compare with.
    let report = store.scavenge(&all()).expect("scavenged");
    assert_eq!((report.events_removed, report.events_stubbed), (97, 0));
    retried(&store, ExpectedVersion::Exact(6), 7).expect_err("nothing is there");
    retried(&store, ExpectedVersion::NoStream, 0).expect_err("nothing is there");
    let known = retried(&store, ExpectedVersion::Exact(97), 98).expect("known");
    assert_eq!((known.first, known.is_retry), (Some(98), true));
    check_whole(&store);
}

/// Bytes of the event log's files by the id of their chunk, without unused capacity.
fn chunk_bytes(sim: &Sim) -> BTreeMap<u64, u64> {
    let files = sim.files().into_iter().filter(|path| path.starts_with("/events/log"));
    let id = |path: &PathBuf| {
        let name = path.file_name()?.to_str()?;
        name.split(['-', '.']).next()?.parse().ok()
    };
    let used = |path: &PathBuf| {
        let last = sim.read(path).iter().rposition(|byte| *byte != 0);
        last.map_or(0, |last| last as u64 + 1)
    };
    files.filter_map(|path| Some((id(&path)?, used(&path)))).collect()
}

/// Of two chunks, about three and five tenths are dead. Each is rewritten at a threshold of its
/// share of dead bytes, and stays at the next percent. Both are rewritten without a threshold, or
/// if all data must go.
///
/// Story: the threshold was 40 % for a share of 28 %, so a wrong share went unnoticed.
#[test]
fn chunk_is_rewritten_if_its_share_of_dead_bytes_reaches_the_threshold() {
    let fill = || {
        let sim = Sim::new(9);
        let store = Store::open("/events", options(&sim)).expect("a new store");
        for (first, dead) in [(0, 3), (100, 5)] {
            append_each(&store, "kept", first..first + 10 - dead, 2000);
            append_each(&store, &format!("dead-{dead}"), first + 10..first + 10 + dead, 2000);
            // Ends the chunk.
            store.scavenge(&ScavengeOptions { removes_all: true, ..all() }).expect("ended");
        }
        for dead in [3, 5] {
            store.delete(&format!("dead-{dead}"), ExpectedVersion::Any).expect("deleted");
        }
        store.flush().expect("flushed");
        (sim, store)
    };
    let shares: Vec<u64> = {
        let (sim, store) = fill();
        let before = chunk_bytes(&sim);
        store.scavenge(&all()).expect("scavenged");
        let after = chunk_bytes(&sim);
        let freed = before.iter().filter_map(|(id, old)| {
            let share = old.saturating_sub(*after.get(id)?) * 100 / old;
            (share > 0).then_some(share)
        });
        freed.collect()
    };
    let [least, most] = shares[..] else { panic!("{shares:?}") };
    assert!((15..=30).contains(&least) && (35..=50).contains(&most), "{least} %, {most} %");
    let rewritten = |options: ScavengeOptions| {
        let (_sim, store) = fill();
        let report = store.scavenge(&options).expect("scavenged");
        check_whole(&store);
        (report.chunks_rewritten, report.chunks_below_threshold, report.events_removed)
    };
    let at = |dead_percent_min| ScavengeOptions { dead_percent_min, ..all() };
    // The last event of a deleted stream stays as a stub.
    assert_eq!(rewritten(at(0)), (2, 0, 6));
    assert_eq!(rewritten(at(least)), (2, 0, 6));
    assert_eq!(rewritten(at(least + 1)), (1, 1, 4));
    assert_eq!(rewritten(at(most)), (1, 1, 4));
    assert_eq!(rewritten(at(most + 1)), (0, 2, 0));
    assert_eq!(rewritten(at(100)), (0, 2, 0));
    let removal = ScavengeOptions { removes_all: true, ..at(100) };
    assert_eq!(rewritten(removal), (2, 0, 6));
    let (_sim, store) = fill();
    let wrong = store.scavenge(&at(101)).expect_err("no percentage").to_string();
    assert!(wrong.contains("dead_percent_min is 101"), "{wrong}");
}

#[test]
fn deleting_nine_tenths_frees_most_space() {
    let sim = Sim::new(4);
    let store = Store::open("/events", options(&sim)).expect("a new store");
    for stream in 0..100_u64 {
        append_each(&store, &format!("order-{stream}"), stream * 20..stream * 20 + 20, 300);
    }
    for stream in (0..100).filter(|stream| stream % 10 > 0) {
        store.delete(&format!("order-{stream}"), ExpectedVersion::Any).expect("deleted");
    }
    store.close().expect("closed");
    let store = Store::open("/events", options(&sim)).expect("opened again");
    let before = store.stats().expect("stats").log_bytes;
    let report = store.scavenge(&all()).expect("scavenged");
    let after = store.stats().expect("stats").log_bytes;
    assert_eq!(before - after, report.bytes_freed);
    assert_eq!(report.events_removed + report.events_stubbed, 1800);
    let deleted = before * 9 / 10;
    assert!(report.bytes_freed * 100 >= deleted * 85, "{report:?} of {before}");
    // Compares with the files on disk, not with the manifest.
    let files = sim.files();
    let chunks = files.iter().filter(|path| path.starts_with("/events/log"));
    assert_eq!(chunks.clone().count() as u64, report.chunks, "{files:?}");
    let on_disk: u64 = chunks.map(|path| sim.read(path).len() as u64).sum();
    // A chunk that was only appended to has unused capacity.
    let unused_max = (report.chunks - report.chunks_rewritten) * (64 << 10);
    assert!(unused_max < before / 10 && on_disk <= after + unused_max, "{on_disk} for {after}");
    check_whole(&store);
}

#[test]
fn stopped_scavenge_resumes() {
    let sim = Sim::new(5);
    let store = specimen(&sim, Durability::Buffered);
    let slow = ScavengeOptions { bytes_per_second: Some(200_000), ..all() };
    let running = store.start_scavenge(&slow).expect("begun");
    let message = store.scavenge(&all()).expect_err("one at a time").to_string();
    assert!(message.contains("already"), "{message}");
    running.stop();
    let stopped = running.wait().expect("stopped");
    assert!(!stopped.is_complete, "{stopped:?}");
    check_whole(&store);
    let mut total = ScavengeReport::default();
    for _ in 0..2 {
        total = store.scavenge(&all()).expect("scavenged");
    }
    assert!(total.is_complete && total.events_removed == 0);
    // Closing does not wait for a long scavenge.
    append_each(&store, "cart-kept", 100..200, 2000);
    store.delete("cart-kept", ExpectedVersion::Any).expect("deleted");
    let slow = ScavengeOptions { bytes_per_second: Some(1000), ..all() };
    let running = store.start_scavenge(&slow).expect("begun");
    store.close().expect("closed");
    let ended = running.wait();
    assert!(matches!(ended, Err(umbel_events::Error::Store(umbel::Error::Closed))), "{ended:?}");
}

/// Story: each scavenge had a new thread, whose freed memory the allocator kept.
#[test]
fn scavenges_of_a_store_share_a_thread() {
    let sim = Sim::new(8);
    let threads = sim.env().threads;
    let threads = Arc::new(NamedThreads { threads, names: Mutex::default() });
    let shared: Arc<dyn Threads> = threads.clone();
    let env = Env { threads: shared, ..sim.env() };
    let store = Store::open("/events", StoreOptions { env, ..options(&sim) }).expect("opened");
    append_each(&store, "cart-1", 0..100, 2000);
    for _ in 0..3 {
        let scavenge = store.start_scavenge(&all()).expect("begun");
        assert!(scavenge.wait().expect("scavenged").is_complete);
    }
    store.close().expect("closed");
    let names = threads.names.lock().expect("not poisoned");
    let scavenging = names.iter().filter(|name| *name == "umbel-scavenge").count();
    assert_eq!(scavenging, 1, "{names:?}");
}

/// Threads whose names are kept.
#[derive(Debug)]
struct NamedThreads {
    threads: Arc<dyn Threads>,
    names: Mutex<Vec<String>>,
}

impl Threads for NamedThreads {
    fn spawn(
        &self,
        name: &str,
        work: Box<dyn FnOnce() + Send>,
    ) -> umbel_base::Result<Box<dyn JoinHandle>> {
        self.names.lock().expect("not poisoned").push(name.to_string());
        self.threads.spawn(name, work)
    }

    fn parallelism(&self) -> usize {
        self.threads.parallelism()
    }

    fn pause(&self, time: Duration) {
        self.threads.pause(time);
    }
}

#[test]
fn invalid_scavenge_options_are_rejected() {
    let sim = Sim::new(6);
    let store = specimen(&sim, Durability::Buffered);
    let wrong = [
        (ScavengeOptions { busy_percent: 0, ..all() }, "1 to 100"),
        (ScavengeOptions { busy_percent: 101, ..all() }, "1 to 100"),
        (ScavengeOptions { bytes_per_second: Some(0), ..all() }, "at least"),
    ];
    for (options, why) in wrong {
        let message = store.scavenge(&options).expect_err("refused").to_string();
        assert!(message.contains(why), "{message}");
    }
    store.scavenge(&all()).expect("the task slot is free again");
    let left = everything(&store);
    store.close().expect("closed");
    let store = Store::open_read_only("/events", options(&sim)).expect("opened");
    let message = store.scavenge(&all()).expect_err("read-only").to_string();
    assert!(message.contains("reading only"), "{message}");
    assert_eq!(everything(&store), left);
}

#[test]
fn appends_and_reads_proceed_during_scavenge() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let settings = StoreOptions { chunk_bytes: 64 << 10, ..StoreOptions::default() };
    let store = Store::open(folder.path().join("events"), settings.clone()).expect("a new store");
    append_each(&store, "live", 0..200, 500);
    set_metadata(&store, "live", 1 << 40, r#"{"$maxCount":50}"#);
    append_each(&store, "still", 5000..5100, 500);
    let still = outline(store.read("still", Revision::START, Direction::Forwards));
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let appending = scope.spawn(|| {
            append_each(&store, "live", 200..4000, 500);
            is_over.store(true, std::sync::atomic::Ordering::SeqCst);
        });
        for direction in [Direction::Forwards, Direction::Backwards] {
            let (store, is_over, still) = (&store, &is_over, &still);
            scope.spawn(move || {
                while !is_over.load(std::sync::atomic::Ordering::SeqCst) {
                    let mut last = None;
                    let from = match direction {
                        Direction::Forwards => Position::START,
                        Direction::Backwards => Position::END,
                    };
                    for event in store.read_all(from, direction).take(4000) {
                        let position = event.expect("readable").position;
                        let is_ordered = last.is_none_or(|last| match direction {
                            Direction::Forwards => position > last,
                            Direction::Backwards => position < last,
                        });
                        assert!(is_ordered, "{position} after {last:?}");
                        last = Some(position);
                    }
                    let live = outline(store.read("live", Revision::START, Direction::Forwards));
                    let revisions = live.iter().map(|(revision, _)| *revision);
                    assert!(revisions.is_sorted() && live.iter().all(|(r, i)| *i == id(*r)));
                    let read = store.read("still", Revision::START, Direction::Forwards);
                    assert_eq!(outline(read), *still);
                }
            });
        }
        let mut removed = 0;
        while !appending.is_finished() {
            removed += store.scavenge(&all()).expect("scavenged").events_removed;
            check_whole(&store);
        }
        assert!(removed > 100, "{removed} events removed");
    });
    let live = outline(store.read("live", Revision::START, Direction::Forwards));
    assert!(live.iter().map(|(revision, _)| *revision).eq(3950..4000));
    store.close().expect("closed");
    let store = Store::open(folder.path().join("events"), settings).expect("opened again");
    store.scavenge(&all()).expect("scavenged");
    assert_eq!(outline(store.read("live", Revision::START, Direction::Forwards)), live);
    assert_eq!(outline(store.read("still", Revision::START, Direction::Forwards)), still);
    check_whole(&store);
}

/// Regression: a scavenge kept the ids of the newest events for retries by their positions. After a
/// few restarts, or a restore, positions have gaps of megabytes. So the ids of events that took
/// only a few kilobytes were lost, and a retried append was written a second time.
#[test]
fn retry_is_recognized_after_scavenge_across_position_gaps() {
    let sim = Sim::new(1);
    let settings = || StoreOptions { chunk_bytes: 32 << 20, ..options(&sim) };
    let event = |number| NewEvent::binary(id(number), "Happened", b"bytes");
    let store = Store::open("/events", settings()).expect("a new store");
    for number in 0..20 {
        store.append("a", ExpectedVersion::Any, &[event(number)]).expect("appended");
    }
    store.close().expect("closed");
    for restart in 0..6 {
        let store = Store::open("/events", settings()).expect("opened");
        store.append("other", ExpectedVersion::Any, &[event(100 + restart)]).expect("appended");
        store.close().expect("closed");
    }
    let store = Store::open("/events", settings()).expect("opened");
    set_metadata(&store, "a", 200, r#"{"$maxCount":2}"#);
    let scavenged = ScavengeOptions { busy_percent: 100, ..ScavengeOptions::default() };
    store.scavenge(&scavenged).expect("scavenged");
    for number in 0..20 {
        let again = store.append("a", ExpectedVersion::Any, &[event(number)]).expect("known");
        assert_eq!(again.first, Some(number), "event {number}");
    }
}
