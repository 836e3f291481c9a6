//! Compares views with a naive list of their entries, also between the steps of a flush, which no
//! caller can observe.

use std::collections::BTreeMap;
use umbel_base::ignore_poison::IgnorePoison;

use umbel::{Keyspace, KeyspaceOptions, Options};
use umbel_sim::Sim;

use super::*;

const SEED: [u8; 16] = [9; 16];

/// Views on a simulated disk, and the expected entries of each view.
struct Fixture {
    sim: Sim,
    db: Db,
    views: Views,
    position: u64,
    model: BTreeMap<(ViewKind, &'static str), Model>,
}

#[derive(Default)]
struct Model {
    entries: Vec<(u64, u64)>,
    numbers: u64,
}

fn open(sim: &Sim) -> (Db, Keyspace) {
    let options = Options { env: sim.env(), background_threads: 0, ..Options::default() };
    let db = Db::open("/index", options).expect("opened");
    let wanted = KeyspaceOptions { log: false, ..KeyspaceOptions::default() };
    let keyspace = db.keyspace("views", wanted).expect("a keyspace");
    (db, keyspace)
}

/// Marker of a view's keyspace; these tests compare no log with the marker.
fn marker(position: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&position.to_le_bytes());
    bytes
}

impl Fixture {
    fn new() -> Fixture {
        let sim = Sim::new(1);
        let (db, keyspace) = open(&sim);
        let views = Views::new(&db, keyspace, SEED, 0);
        Fixture { sim, db, views, position: 88, model: BTreeMap::new() }
    }

    fn reopen(self) -> Fixture {
        let Fixture { sim, db, views, position, model } = self;
        drop(views);
        db.close().expect("closed");
        let (db, keyspace) = open(&sim);
        let marker = keyspace
            .marker()
            .map_or(0, |marker| u64::from_le_bytes(marker.try_into().expect("a position")));
        let views = Views::new(&db, keyspace, SEED, marker);
        Fixture { sim, db, views, position, model }
    }

    fn add(&mut self, stream: &'static str, count: u64, kind: &'static str) {
        let events: Vec<_> = (0..count)
            .map(|number| {
                self.position += 8 + number % 5 * 800;
                IndexedEvent { position: self.position, revision: 1, kind }
            })
            .collect();
        let category = crate::types::view_kind::category(stream).expect("it has one");
        for view in [(ViewKind::Category, category), (ViewKind::Type, kind)] {
            let model = self.model.entry(view).or_default();
            for event in &events {
                model.entries.push((model.numbers, event.position));
                model.numbers += 1;
            }
        }
        self.views.add_events([(stream, events.into_iter())].into_iter());
    }

    fn skip(&mut self, category: &'static str, count: u64) {
        self.position += 8 * count;
        let view = (ViewKind::Category, category);
        self.views.skip_removed(self.position, [(view, count)].into_iter());
        self.model.entry(view).or_default().numbers += count;
    }

    fn flush(&self) {
        let marker = self.views.flush(&self.db, &mut marker).expect("written").to_le_bytes();
        self.db.flush_all(&[self.views.keyspace()], &marker).expect("flushed");
    }

    /// Compares every view with its expected entries, with reads that begin at random numbers.
    fn check(&self, mut random: impl FnMut(u64) -> u64) {
        for ((kind, name), model) in &self.model {
            let entries = self.views.entries(*kind, name).expect("counted");
            assert_eq!(entries, model.entries.len() as u64, "{kind:?} {name}");
            for _ in 0..20 {
                let from = random(model.numbers + 3);
                let limit = 1 + random(2000) as usize;
                self.check_page((*kind, name), model, from, limit);
            }
            for _ in 0..10 {
                let at = random(self.position + 100);
                let latest = model.entries.iter().rev().find(|(_, position)| *position <= at);
                let wanted = latest.map_or(0, |(number, _)| number + 1);
                let found = self.views.count_through(*kind, name, at).expect("found");
                let next = model.entries.iter().find(|(_, position)| *position > at);
                // Numbers of removed events may count with either side.
                let next_number_max = next.map_or(model.numbers, |(number, _)| *number);
                assert!(
                    (wanted..=next_number_max).contains(&found),
                    "{kind:?} {name} at {at}: {found}"
                );
            }
        }
    }

    fn check_page(&self, view: (ViewKind, &str), model: &Model, from: u64, limit: usize) {
        for backwards in [false, true] {
            let page = self.views.positions(view.0, view.1, from, limit, backwards);
            let page = page.expect("readable");
            let wanted: Vec<_> = match backwards {
                false => model.entries.iter().filter(|(number, _)| *number >= from).collect(),
                true => model.entries.iter().rev().filter(|(number, _)| *number <= from).collect(),
            };
            assert!(page.len() <= limit, "{} entries", page.len());
            assert_eq!(page.is_empty(), wanted.is_empty(), "{view:?} from {from}, {backwards}");
            assert!(page.iter().eq(wanted.into_iter().take(page.len())), "{view:?} from {from}");
        }
    }
}

#[test]
fn view_matches_model_across_flushes_gaps_and_opens() {
    let mut state = 7_u64;
    let mut random = move |end: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % end
    };
    let mut fixture = Fixture::new();
    fixture.skip("gone", 3);
    for round in 0..400 {
        let stream = ["a-1", "a-2", "b-1", "c-d-e"][random(4) as usize];
        match random(12) {
            0 => fixture.flush(),
            1 => drop(fixture.views.flush(&fixture.db, &mut marker).expect("written")),
            2 => fixture.skip(["a", "b", "c", "gone"][random(4) as usize], 1 + random(1500)),
            3 => fixture.add(stream, 1 + random(3000), "Large"),
            _ => fixture.add(stream, 1 + random(4), ["A", "B"][random(2) as usize]),
        }
        if round % 20 == 0 {
            fixture.check(&mut random);
        }
        if round % 100 == 99 {
            fixture.flush();
            fixture = fixture.reopen();
            fixture.check(&mut random);
        }
    }
    let b = fixture.model[&(ViewKind::Category, "b")].numbers;
    assert!(
        b > 3 * crate::index::view_block::BLOCK_ENTRIES as u64,
        "{b} numbers are several blocks"
    );
}

#[test]
fn event_is_numbered_once() {
    let mut fixture = Fixture::new();
    fixture.add("a-1", 5, "A");
    let again = IndexedEvent { position: fixture.position, revision: 1, kind: "A" };
    fixture.views.add_events([("a-1", [again].into_iter())].into_iter());
    fixture.views.skip_removed(fixture.position, [((ViewKind::Type, "A"), 7)].into_iter());
    fixture.check(|end| end - 1);
    // It was added before the reopen, and is read from the log once more.
    fixture.flush();
    let mut fixture = fixture.reopen();
    let again = IndexedEvent { position: fixture.position, revision: 1, kind: "A" };
    fixture.views.add_events([("a-1", [again].into_iter())].into_iter());
    fixture.add("a-1", 2, "A");
    fixture.check(|end| end - 1);
}

/// Entries of a failed flush must stay readable, and be written by the next flush.
#[test]
fn failed_flush_keeps_entries_for_the_next() {
    let mut fixture = Fixture::new();
    fixture.add("a-1", 1500, "A");
    fixture.flush();
    let key = head_key(ViewKind::Category, "b");
    fixture.views.keyspace.put(&key, b"\xff").expect("put");
    fixture.add("b-1", 3, "A");
    let model = fixture.model.remove(&(ViewKind::Category, "b")).expect("it was added to");
    let error =
        fixture.views.flush(&fixture.db, &mut marker).expect_err("what is there is no head");
    assert!(error.to_string().contains("'$ce-b' is malformed"), "{error}");
    fixture.add("a-2", 700, "A");
    assert!(fixture.views.flush(&fixture.db, &mut marker).is_err());
    fixture.check(|end| end / 2);
    fixture.views.keyspace.delete(&key).expect("deleted");
    fixture.model.insert((ViewKind::Category, "b"), model);
    fixture.check(|end| end / 2);
    fixture.flush();
    fixture.check(|end| end / 2);
    fixture.reopen().check(|end| end / 2);
}

/// Between the write to the keyspace and the removal from memory, entries are in both places.
#[test]
fn entry_in_keyspace_and_frozen_part_counts_once() {
    let mut fixture = Fixture::new();
    fixture.add("a-1", 1500, "A");
    fixture.flush();
    fixture.add("a-1", 700, "A");
    fixture.add("b-1", 2, "A");
    let through = fixture.position;
    let frozen = {
        let mut live = fixture.views.live.lock().ignore_poison();
        Arc::new(std::mem::replace(&mut live.active, UnflushedViews::new(through)))
    };
    let freeze = |fixture: &Fixture| {
        fixture.views.live.lock().ignore_poison().frozen = Some(Arc::clone(&frozen));
    };
    freeze(&fixture);
    fixture.check(|end| end / 2);
    fixture.flush();
    freeze(&fixture);
    fixture.add("a-2", 3, "A");
    fixture.check(|end| end / 2);
    fixture.flush();
    fixture.check(|end| end / 2);
}

#[test]
fn concurrent_flush_neither_hides_nor_repeats_entries() {
    let sim = Sim::new(1);
    let (db, keyspace) = open(&sim);
    let views = Arc::new(Views::new(&db, keyspace, SEED, 0));
    let (added, done) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let reader = {
        let (views, added, done) = (Arc::clone(&views), Arc::clone(&added), Arc::clone(&done));
        move || {
            while !done.load(Ordering::Acquire) {
                let before = added.load(Ordering::Acquire);
                let from = before.saturating_sub(40);
                let page = views.positions(ViewKind::Category, "a", from, 1 << 20, false);
                let page = page.expect("readable");
                let is_right =
                    (from..).zip(&page).all(|(number, entry)| *entry == (number, 96 + 8 * number));
                assert!(is_right, "from {from}: {page:?}");
                assert!(page.len() as u64 >= (before - from).min(1), "{before} were added");
                let count = views.entries(ViewKind::Category, "a").expect("counted");
                let after = added.load(Ordering::Acquire);
                assert!((before..=after + 1).contains(&count), "{before}, {count}, {after}");
            }
        }
    };
    let threads = umbel_env::Env::system().threads;
    let reader = threads.spawn("reader", Box::new(reader)).expect("a thread");
    for number in 0..60_000 {
        let placed = IndexedEvent { position: 96 + 8 * number, revision: 1, kind: "T" };
        views.add_events([("a-1", [placed].into_iter())].into_iter());
        added.store(number + 1, Ordering::Release);
        if number % 5 == 0 {
            views.flush(&db, &mut marker).expect("written");
        }
    }
    done.store(true, Ordering::Release);
    assert!(reader.join(), "no panic");
}

#[test]
fn categories_and_types_are_listed_by_page() {
    let mut fixture = Fixture::new();
    let streams = ["aa-1", "ab-1", "b-1", "ac-1", "$x", "a-1"];
    for (index, stream) in streams.into_iter().enumerate() {
        let placed = IndexedEvent { position: 96 + 8 * index as u64, revision: 0, kind: "T" };
        fixture.views.add_events([(stream, [placed].into_iter())].into_iter());
        if index == 1 {
            fixture.flush();
        }
    }
    fixture.position = 1000;
    let mut names = Vec::new();
    while let Some((name, count)) = {
        let after = names.last().map(String::as_str);
        fixture.views.list(ViewKind::Category, "a", after, 1).expect("listed").pop()
    } {
        assert_eq!(count, 1);
        names.push(name);
    }
    assert_eq!(names, ["a", "aa", "ab", "ac"]);
    let all = fixture.views.list(ViewKind::Category, "", None, usize::MAX).expect("listed");
    assert_eq!(all.len(), 5);
    let first = fixture.views.list(ViewKind::Category, "", None, 2).expect("listed");
    assert_eq!(first, all[..2]);
    let types = fixture.views.list(ViewKind::Type, "", None, 9).expect("listed");
    assert_eq!(types, [("T".to_string(), 6)]);
    let streams = fixture.views.list(ViewKind::Streams, "", None, 9).expect("listed");
    assert_eq!(streams, [(String::new(), 5)]);
}

#[test]
fn damaged_block_is_an_error() {
    let mut fixture = Fixture::new();
    fixture.add("a-1", 5000, "A");
    fixture.flush();
    let head = fixture.views.head(ViewKind::Category, "a").expect("read").expect("there");
    let key = block_key(ViewKind::Category, head.start, 1024);
    fixture.views.keyspace.put(key, [3, 0]).expect("put");
    let read = |from| fixture.views.positions(ViewKind::Category, "a", from, 9, false);
    assert!(read(1500).expect_err("two of three are missing").to_string().contains("'$ce-a'"));
    assert_eq!(read(1023).expect("the block before").len(), 1);
    assert!(fixture.views.count_through(ViewKind::Category, "a", 1000).is_err());
}

#[test]
fn many_views_request_a_flush_then_back_pressure() {
    let fixture = Fixture::new();
    let mut requests = Vec::new();
    let mut position = 96;
    while !fixture.views.is_full() {
        let stream = format!("{position:036x}-1");
        let placed = IndexedEvent { position, revision: 0, kind: "T" };
        if fixture.views.add_events([(&stream[..], [placed].into_iter())].into_iter()) {
            requests.push(fixture.views.bytes());
        }
        position += 8;
    }
    assert!(
        (FLUSH_REQUEST_BYTES..FLUSH_REQUEST_BYTES + 1000).contains(&requests[0])
            && requests.len() == 1,
        "{requests:?}"
    );
    assert!((STALL_BYTES..STALL_BYTES + 1000).contains(&fixture.views.bytes()));
    let count = (position - 96) / 8;
    fixture.flush();
    assert!(!fixture.views.is_full() && fixture.views.bytes() == 0);
    assert_eq!(fixture.views.entries(ViewKind::Type, "T").expect("counted"), count);
    let name = format!("{:036x}", 96 + 8 * (count / 2));
    let page = fixture.views.positions(ViewKind::Category, &name, 0, 9, false).expect("read");
    assert_eq!(page, [(0, 96 + 8 * (count / 2))]);
}
