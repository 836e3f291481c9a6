//! Views read through the store: `$ce-…`, `$et-…` and `$streams`, compared with a naive scan of all
//! events.

use std::collections::{BTreeMap, HashSet};

use umbel_events::{
    Direction, Durability, Error, ExpectedVersion, NewEvent, Position, RecordedEvent, Revision,
    Source, Store, StoreOptions, StreamAppend, ViewEvent, ViewKind, ViewState, is_view,
    metadata_stream,
};
use umbel_sim::Sim;

use super::support::{append, event, id, options, store};

/// The events of every view, by its name, from a scan of all events.
pub fn oracle(store: &Store) -> BTreeMap<String, Vec<RecordedEvent>> {
    let mut views: BTreeMap<String, Vec<RecordedEvent>> = BTreeMap::new();
    for event in store.read_all(Position::START, Direction::Forwards) {
        let event = event.expect("readable");
        let mut names = vec![format!("$et-{}", event.kind)];
        if !event.stream.starts_with('$') {
            let category = event.stream.find('-').filter(|at| *at > 0);
            names.extend(category.map(|at| format!("$ce-{}", &event.stream[..at])));
            names.extend((event.revision == 0).then(|| "$streams".to_string()));
        }
        for name in names {
            views.entry(name).or_default().push(event.clone());
        }
    }
    views
}

pub fn read(store: &Store, view: &str, from: u64, direction: Direction) -> Vec<ViewEvent> {
    let read = store.read_view(view, Revision(from), direction, Position::END);
    read.map(|event| event.expect("readable")).collect()
}

/// Compares numbers and links of a view with the expected ones, from its beginning and its end.
pub fn check_view(store: &Store, view: &str, wanted: &[RecordedEvent]) {
    let all = read(store, view, 0, Direction::Forwards);
    assert_eq!(all.len(), wanted.len(), "{view}");
    for (number, (found, wanted)) in (0..).zip(all.iter().zip(wanted)) {
        let link = &found.link;
        assert_eq!((&link.stream[..], link.revision, &link.kind[..]), (view, number, "$>"));
        assert_eq!((link.position, link.created), (wanted.position, wanted.created));
        let data = format!("{}@{}", wanted.revision, wanted.stream);
        assert_eq!(std::str::from_utf8(&link.data), Ok(&data[..]), "{view}");
        assert!(!link.is_json && link.metadata.is_empty());
        assert!(found.event.as_ref().is_none_or(|event| event == wanted), "{view} {number}");
    }
    let mut backwards = read(store, view, u64::MAX, Direction::Backwards);
    backwards.reverse();
    assert_eq!(backwards, all, "{view} backwards");
    let last = wanted.len() as u64 - 1;
    let state = store.view(view, Position::END).expect("there is a view");
    assert_eq!(state, Some(ViewState { first: 0, last }), "{view}");
}

/// Compares all views, and the lists of them, with the expected ones.
pub fn check_all(store: &Store) {
    let views = oracle(store);
    for (view, wanted) in &views {
        check_view(store, view, wanted);
    }
    for (kind, prefix) in [(ViewKind::Category, "$ce-"), (ViewKind::Type, "$et-")] {
        let of_kind = views.iter().filter(|(view, _)| view.starts_with(prefix));
        let wanted = of_kind.map(|(view, events)| (view[4..].to_string(), events.len() as u64));
        let listed = store.views(kind, "", None, usize::MAX).expect("listed");
        assert!(listed.into_iter().eq(wanted));
    }
    assert!(store.verify().expect("verified").damage.is_empty());
}

fn numbers(events: &[ViewEvent]) -> Vec<u64> {
    events.iter().map(|event| event.link.revision).collect()
}

/// Appends to streams of the categories `order` and `cart`, and to streams without a category.
fn fill(store: &Store, rounds: std::ops::Range<u64>) {
    for round in rounds {
        let stream = match round % 5 {
            0 => "plain".to_string(),
            1 => "order-1".to_string(),
            2 => "$system-1".to_string(),
            _ => format!("cart-{}", round % 97),
        };
        let kind = ["Opened", "Filled", "Paid"][round as usize % 3];
        let ids = round * 20..round * 20 + 1 + round % 17;
        let events: Vec<_> = ids.map(|number| NewEvent { kind, ..event(number) }).collect();
        store.append(&stream, ExpectedVersion::Any, &events).expect("appended");
    }
}

#[test]
fn view_is_readable_from_any_number_across_flushes_and_opens() {
    let sim = Sim::new(1);
    let store = Store::open("/events", options(&sim)).expect("a new store");
    check_all(&store);
    fill(&store, 0..40);
    check_all(&store);
    store.flush().expect("flushed");
    check_all(&store);
    fill(&store, 40..600);
    store.flush().expect("flushed");
    fill(&store, 600..700);
    check_all(&store);
    let count = oracle(&store)["$ce-cart"].len() as u64;
    assert!(count > 2048 + 16, "{count} events are several blocks");
    for from in [0, 1, 31, 32, 33, 1023, 1024, 1025, 2048, count - 1, count, count + 9] {
        let forwards = read(&store, "$ce-cart", from, Direction::Forwards);
        assert!(numbers(&forwards).into_iter().eq(from..count), "from {from}");
        let backwards = read(&store, "$ce-cart", from, Direction::Backwards);
        let wanted = (0..=from.min(count - 1)).rev();
        assert!(numbers(&backwards).into_iter().eq(wanted), "from {from}");
    }
    let before = read(&store, "$ce-cart", 0, Direction::Forwards);
    store.close().expect("closed");
    let store = Store::open("/events", options(&sim)).expect("opened again");
    assert_eq!(read(&store, "$ce-cart", 0, Direction::Forwards), before, "ids, too");
    fill(&store, 700..720);
    check_all(&store);
    drop(store);
    let store = Store::open_read_only("/events", options(&sim)).expect("opened to be read");
    check_all(&store);
    assert!(read(&store, "$ce-absent", 0, Direction::Forwards).is_empty());
    assert_eq!(store.view("$ce-absent", Position::END).expect("no error"), None);
}

#[test]
fn link_ids_are_unique() {
    let store = store();
    fill(&store, 0..60);
    let mut ids = HashSet::new();
    let mut links = 0;
    for view in oracle(&store).keys() {
        for event in read(&store, view, 0, Direction::Forwards) {
            ids.insert(event.link.id);
            links += 1;
            let text = event.link.id.to_string();
            assert!(
                text.as_bytes()[14] == b'8' && b"89ab".contains(&text.as_bytes()[19]),
                "{text}"
            );
        }
    }
    assert_eq!(ids.len(), links);
    let (sim, other) = (Sim::new(99), Sim::new(98));
    let first_id = |sim: &Sim| {
        let store = Store::open("/events", options(sim)).expect("a new store");
        append(&store, "cart-1", 0..1);
        read(&store, "$ce-cart", 0, Direction::Forwards)[0].link.id
    };
    assert_ne!(first_id(&sim), first_id(&other), "another store");
}

#[test]
fn view_read_stops_at_the_given_position() {
    let store = store();
    fill(&store, 0..300);
    store.flush().expect("flushed");
    fill(&store, 300..400);
    let all = &oracle(&store)["$ce-cart"];
    for at in (0..all.len()).step_by(37) {
        for (position, count) in [(all[at].position, at + 1), (all[at].position - 1, at)] {
            let through = Position(position);
            let state = store.view("$ce-cart", through).expect("a view");
            let last = (count as u64).checked_sub(1);
            assert_eq!(state, last.map(|last| ViewState { first: 0, last }));
            let read = |direction, from| {
                let read = store.read_view("$ce-cart", from, direction, through);
                read.map(|event| event.expect("readable").link.revision).collect::<Vec<_>>()
            };
            let forwards = read(Direction::Forwards, Revision::START);
            assert!(forwards.into_iter().eq(0..count as u64));
            let backwards = read(Direction::Backwards, Revision::END);
            assert!(backwards.into_iter().eq((0..count as u64).rev()));
        }
    }
}

/// Whether each event of a view can be read, by number.
fn shown(store: &Store, view: &str) -> Vec<bool> {
    read(store, view, 0, Direction::Forwards).iter().map(|event| event.event.is_some()).collect()
}

fn set_metadata(store: &Store, stream: &str, number: u64, data: &str) {
    let metadata = NewEvent::json(id(number), "$metadata", data.as_bytes());
    store.append(&metadata_stream(stream), ExpectedVersion::Any, &[metadata]).expect("metadata");
}

#[test]
fn hidden_events_are_links_without_target() {
    let sim = Sim::new(3);
    let store = Store::open("/events", options(&sim)).expect("a new store");
    for (index, stream) in ["a-1", "a-2", "a-3", "a-1"].into_iter().enumerate() {
        let first = 10 * index as u64;
        append(&store, stream, first..first + 2);
    }
    assert_eq!(shown(&store, "$ce-a"), [true; 8]);
    let mut open = store.read_view("$ce-a", Revision(0), Direction::Forwards, Position::END);
    assert!(open.next().expect("one").expect("readable").event.is_some());
    set_metadata(&store, "a-1", 100, r#"{"$tb":2}"#);
    let next = open.next().expect("the second").expect("readable");
    assert_eq!(next.event, None, "metadata is obeyed at once");
    assert_eq!(shown(&store, "$ce-a"), [false, false, true, true, true, true, true, true]);
    set_metadata(&store, "a-1", 101, r#"{"$maxCount":1}"#);
    assert_eq!(shown(&store, "$ce-a"), [false, false, true, true, true, true, false, true]);
    store.delete("a-2", ExpectedVersion::Any).expect("deleted");
    assert_eq!(shown(&store, "$ce-a"), [false, false, false, false, true, true, false, true]);
    store.tombstone("a-3", ExpectedVersion::Any).expect("tombstoned");
    let wanted = [false, false, false, false, false, false, false, true, false];
    assert_eq!(shown(&store, "$ce-a"), wanted, "the last one is the tombstone");
    append(&store, "a-2", 200..201);
    set_metadata(&store, "a-1", 102, "{}");
    let wanted = [true, true, false, false, false, false, true, true, false, true];
    assert_eq!(shown(&store, "$ce-a"), wanted);
    assert_eq!(shown(&store, "$streams"), [true, false, false]);
    let last_only = [false, false, false, true];
    assert_eq!(shown(&store, "$et-$metadata")[..2], last_only[..2]);
    assert_eq!(shown(&store, "$et-$streamDeleted"), [false]);
    set_metadata(&store, "a-2", 103, r#"{"$maxAge":60}"#);
    sim.advance(std::time::Duration::from_secs(120));
    append(&store, "a-2", 201..202);
    assert!(shown(&store, "$ce-a").ends_with(&[false, false, true]), "old, tombstone order");
    let store = {
        store.close().expect("closed");
        Store::open("/events", options(&sim)).expect("opened again")
    };
    assert!(shown(&store, "$ce-a").ends_with(&[false, false, true]));
    check_all(&store);
}

#[test]
fn view_applies_its_metadata_and_rejects_appends() {
    let sim = Sim::new(4);
    let store = Store::open("/events", options(&sim)).expect("a new store");
    for number in 0..10 {
        append(&store, &format!("a-{number}"), number..number + 1);
    }
    for view in ["$ce-a", "$et-Happened", "$streams"] {
        assert!(is_view(view));
        let refused = store.append(view, ExpectedVersion::Any, &[event(50)]).expect_err("refused");
        assert!(refused.to_string().contains("a view of other streams"), "{refused}");
        assert!(store.delete(view, ExpectedVersion::Any).is_err());
        assert!(store.tombstone(view, ExpectedVersion::Any).is_err());
        set_metadata(&store, view, 60, r#"{"$maxCount":4}"#);
        assert_eq!(numbers(&read(&store, view, 0, Direction::Forwards)), [6, 7, 8, 9], "{view}");
        set_metadata(&store, view, 61, r#"{"$tb":8}"#);
        let backwards = read(&store, view, u64::MAX, Direction::Backwards);
        assert_eq!(numbers(&backwards), [9, 8], "{view}");
        let state = store.view(view, Position::END).expect("a view");
        assert_eq!(state, Some(ViewState { first: 8, last: 9 }));
        set_metadata(&store, view, 62, r#"{"$tb":9223372036854775807}"#);
        assert!(read(&store, view, 0, Direction::Forwards).is_empty());
        let state = store.view(view, Position::END).expect("a view").expect("it has events");
        assert!(state.first > state.last && state.last == 9, "{state:?}");
        set_metadata(&store, view, 63, r#"{"$maxAge":60}"#);
    }
    sim.advance(std::time::Duration::from_secs(120));
    append(&store, "a-10", 70..71);
    for view in ["$ce-a", "$et-Happened", "$streams"] {
        assert_eq!(numbers(&read(&store, view, 0, Direction::Forwards)), [10], "{view}");
    }
    let mut wrong = store.read_view("a-1", Revision(0), Direction::Forwards, Position::END);
    let message = wrong.next().expect("an error").expect_err("no view").to_string();
    assert!(message.contains("'a-1' is not a view"), "{message}");
    assert!(wrong.next().is_none() && store.view("$all", Position::END).is_err());
}

#[test]
fn view_includes_only_matching_events() {
    let store = store();
    let link = NewEvent { kind: "$>", data: b"0@a-1", ..event(2) };
    append(&store, "a-1", 0..1);
    append(&store, "$a-1", 1..2);
    store.append("links", ExpectedVersion::Any, &[link]).expect("appended");
    append(&store, "-1", 3..4);
    store.tombstone("never-was", ExpectedVersion::Any).expect("ended");
    let names = |kind| -> Vec<String> {
        let listed = store.views(kind, "", None, 100).expect("listed");
        listed.into_iter().map(|(name, _)| name).collect()
    };
    assert_eq!(names(ViewKind::Category), ["a", "never"]);
    assert_eq!(names(ViewKind::Type), ["$>", "$streamDeleted", "Happened"]);
    let streams = read(&store, "$streams", 0, Direction::Forwards);
    let targets: Vec<_> = streams.iter().map(|event| &event.link.data[..]).collect();
    assert_eq!(targets, [&b"0@a-1"[..], b"0@links", b"0@-1"], "none that was ended at once");
    let tombstone = read(&store, "$ce-never", 0, Direction::Forwards);
    assert_eq!(tombstone[0].link.data, b"9223372036854775807@never-was");
    check_all(&store);
}

#[test]
fn view_watch_is_called() {
    let store = store();
    append(&store, "cart-1", 0..1);
    let (sender, called) = std::sync::mpsc::channel();
    let watch = store.watch(&Source::named("$ce-cart"), move |position| {
        sender.send(position).expect("the receiver exists");
    });
    assert_eq!(watch.position(), store.visible_position());
    assert!(called.try_recv().is_err());
    append(&store, "cart-2", 1..2);
    assert_eq!(called.try_recv().expect("it was called"), store.visible_position());
}

#[test]
fn store_without_views_gets_them_at_open() {
    let sim = Sim::new(5);
    let store = Store::open("/events", options(&sim)).expect("a new store");
    fill(&store, 0..300);
    let before = read(&store, "$ce-cart", 0, Direction::Forwards);
    store.close().expect("closed");
    drop_views(&sim);
    let refused = Store::open_read_only("/events", options(&sim)).expect_err("views are missing");
    assert!(refused.to_string().contains("open the event store for writing"), "{refused}");
    let store = Store::open("/events", options(&sim)).expect("opened");
    assert_eq!(read(&store, "$ce-cart", 0, Direction::Forwards), before, "ids and numbers");
    check_all(&store);
    store.close().expect("closed");
    check_all(&Store::open_read_only("/events", options(&sim)).expect("to be read"));
}

#[test]
fn damaged_index_entry_is_an_error_and_no_panic() {
    let sim = Sim::new(6);
    let store = Store::open("/events", options(&sim)).expect("a new store");
    fill(&store, 0..300);
    let wanted = oracle(&store);
    store.close().expect("closed");
    let spoil = |key: &[u8], change: &dyn Fn(&mut Vec<u8>)| {
        let sim = sim.clone_disk();
        let env = umbel::Options { env: sim.env(), ..umbel::Options::default() };
        let db = umbel::Db::open("/events/index", env).expect("the index");
        let views = db.existing_keyspace("views").expect("open").expect("there");
        let marker = views.marker().expect("a position");
        let mut value = views.get(key).expect("readable").expect("there");
        change(&mut value);
        views.put(key, &value).expect("put");
        db.flush_all(&[&views], &marker).expect("flushed");
        db.close().expect("closed");
        Store::open("/events", options(&sim)).expect("opened")
    };
    let head = b"h\x00cart";
    for cut in 0..12 {
        let store = spoil(head, &|value| value.truncate(cut));
        let read = store.read_view("$ce-cart", Revision(0), Direction::Forwards, Position::END);
        let result: Result<Vec<_>, Error> = read.collect();
        let is_right = result.is_ok_and(|read| read.len() == wanted["$ce-cart"].len());
        assert!(!is_right, "{cut} bytes are no complete head");
        assert!(!store.verify().expect("verified").damage.is_empty(), "{cut} bytes");
        check_view(&store, "$ce-order", &wanted["$ce-order"]);
    }
    // The next-to-last step of the head's block leads to another event, or to none.
    let store = spoil(head, &|value| {
        let at = value.len() - 2;
        value[at] ^= 2;
    });
    let read = store.read_view("$ce-cart", Revision(0), Direction::Forwards, Position::END);
    let result: Result<Vec<_>, Error> = read.collect();
    assert!(matches!(result, Err(Error::Store(umbel::Error::Corruption { .. }))), "{result:?}");
    assert!(!store.verify().expect("verified").damage.is_empty());
}

#[test]
fn many_views_take_bounded_memory() {
    const STREAMS: u64 = 280_000;
    let sim = Sim::new(7);
    let wide = StoreOptions { chunk_bytes: 32 << 20, ..options(&sim) };
    let store = Store::open("/events", wide).expect("a new store");
    let mut bytes_max = 0;
    for first in (0..STREAMS).step_by(5000) {
        let names: Vec<_> =
            (first..first + 5000).map(|number| format!("{number:08x}-9e3b-4b6e")).collect();
        let events: Vec<_> = (first..first + 5000).map(|number| [event(number)]).collect();
        let appends: Vec<_> = names
            .iter()
            .zip(&events)
            .map(|(stream, events)| StreamAppend { stream, expected: ExpectedVersion::Any, events })
            .collect();
        store.append_streams(&appends, &[]).expect("appended");
        bytes_max = bytes_max.max(store.stats().expect("stats").unflushed_view_bytes);
    }
    assert!(bytes_max > 30 << 20, "that many views must cause back-pressure: {bytes_max}");
    assert!(bytes_max < 34 << 20, "{bytes_max} bytes of memory");
    let listed = store.views(ViewKind::Category, "0001", Some("00010fff"), 3).expect("listed");
    let wanted = ["00011000", "00011001", "00011002"].map(|name| (name.to_string(), 1));
    assert_eq!(listed, wanted);
    for number in (0..STREAMS).step_by(9973) {
        let view = format!("$ce-{number:08x}");
        let found = read(&store, &view, 0, Direction::Forwards);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].event.as_ref().map(|event| event.id), Some(id(number)));
    }
    let state = store.view("$streams", Position::END).expect("a view");
    assert_eq!(state, Some(ViewState { first: 0, last: STREAMS - 1 }));
    store.close().expect("closed");
    drop_views(&sim);
    // They are flushed during the rebuild; a kill half-way through loses nothing.
    let made = sim.clone_disk();
    let before = made.calls();
    let store = Store::open("/events", options(&made)).expect("opened");
    let bytes_max = store.stats().expect("stats").unflushed_view_bytes;
    assert!(bytes_max < 16 << 20, "{bytes_max} bytes were left in memory");
    let calls = made.calls() - before;
    sim.crash_at(sim.calls() + calls * 2 / 3, umbel_sim::CrashSide::After);
    assert!(Store::open("/events", options(&sim)).is_err(), "it is killed");
    let killed = sim.kill_image();
    let store = Store::open("/events", options(&killed)).expect("opened again");
    assert!(store.verify().expect("verified").damage.is_empty());
}

/// Returns a store to its state before there were views.
pub fn drop_views(sim: &Sim) {
    let options = umbel::Options { env: sim.env(), ..umbel::Options::default() };
    let db = umbel::Db::open("/events/index", options).expect("the index");
    db.drop_keyspace("views").expect("dropped");
    db.close().expect("closed");
}

#[test]
fn concurrent_appends_and_view_reads_are_consistent() {
    let folder = tempfile::tempdir().expect("a folder");
    for durability in [Durability::Buffered, Durability::Synced] {
        let path = folder.path().join(format!("{durability:?}"));
        let options = StoreOptions { durability, chunk_bytes: 64 << 10, ..StoreOptions::default() };
        let store = Store::open(&path, options.clone()).expect("a store");
        let spawn = |work: Box<dyn FnOnce() + Send>| {
            umbel_env::Env::system().threads.spawn("test", work).expect("a thread")
        };
        let appending = (0..4u64).map(|thread| {
            let store = store.clone();
            spawn(Box::new(move || {
                for number in 0..800 {
                    let stream = format!("c{}-{}", number % 2, thread * 7 + number % 5);
                    let events = [event(thread * 1000 + number)];
                    store.append(&stream, ExpectedVersion::Any, &events).expect("appended");
                }
            }))
        });
        let reading = (0..2u64).map(|half| {
            let store = store.clone();
            spawn(Box::new(move || {
                let view = format!("$ce-c{half}");
                let mut links: Vec<RecordedEvent> = Vec::new();
                while links.len() < 1600 {
                    let visible = store.visible_position();
                    let next_number = Revision(links.len() as u64);
                    let page =
                        store.read_view(&view, next_number, Direction::Forwards, Position::END);
                    for event in page {
                        let event = event.expect("readable");
                        assert_eq!(event.link.revision, links.len() as u64, "numbers are dense");
                        let before = links.last().map_or(0, |link| link.position);
                        assert!(event.link.position > before && event.event.is_some());
                        links.push(event.link);
                    }
                    let state = store.view(&view, visible).expect("a view");
                    let last = state.map_or(0, |state| state.last + 1);
                    assert!(last <= links.len() as u64, "what was visible was read");
                }
            }))
        });
        let threads: Vec<_> = appending.chain(reading).collect();
        threads.into_iter().for_each(|thread| assert!(thread.join(), "no panic"));
        check_all(&store);
        store.close().expect("closed");
        check_all(&Store::open(&path, options).expect("opened again"));
    }
}
