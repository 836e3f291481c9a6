//! Histories of appends, retries, flushes, restarts, kills and power cuts on the crash disk. After
//! each the store holds a prefix of what was appended, with everything that was acknowledged at
//! its durability level, and no position that anybody saw holds another event.

use std::collections::BTreeMap;

use umbel_events::{
    Direction, Durability, Error, EventId, Expected, NewEvent, Position, Revision, Store,
    StoreOptions,
};
use umbel_sim::{Sim, Survival, When};

use super::support::{id, options};

const STREAMS: [&str; 4] = ["a", "b", "c", "$$a"];
const METADATA: &[u8] = br#"{"x":1}"#;

/// A small random number generator.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let mixed = (self.0 ^ self.0 >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
        (mixed ^ mixed >> 32) % end
    }
}

/// One append, as the user knows it.
#[derive(Debug, Clone)]
struct Append {
    stream: &'static str,
    ids: Vec<EventId>,
}

/// What the user knows.
#[derive(Debug, Default)]
struct Model {
    /// Every append that may be there, in order.
    appends: Vec<Append>,
    /// So many of them were acknowledged.
    acknowledged: usize,
    /// So many of them survive a power cut.
    durable: usize,
    /// What was seen at which position.
    seen: BTreeMap<u64, EventId>,
    next_id: u64,
}

impl Model {
    fn last(&self, stream: &str) -> Option<u64> {
        let events = self.appends.iter().filter(|append| append.stream == stream);
        (events.map(|append| append.ids.len() as u64).sum::<u64>()).checked_sub(1)
    }
}

struct History {
    sim: Sim,
    random: Random,
    model: Model,
    durability: Durability,
}

impl History {
    fn options(&self) -> StoreOptions {
        StoreOptions { durability: self.durability, ..options(&self.sim) }
    }

    fn has_metadata(&self, stream: &str) -> bool {
        stream == "a" && self.model.last("$$a").is_some()
    }

    fn append(&mut self, store: &Store) -> Result<(), Error> {
        let stream = STREAMS[self.random.below(STREAMS.len() as u64) as usize];
        let last = self.model.last(stream);
        let (expected, is_good) = match self.random.below(8) {
            0 => (Expected::NoStream, last.is_none()),
            1 => (Expected::Exists, last.is_some() || self.has_metadata(stream)),
            2..=4 => (last.map_or(Expected::NoStream, Expected::Exact), true),
            5 => (Expected::Exact(last.map_or(3, |last| last + 1)), false),
            _ => (Expected::Any, true),
        };
        let count = 1 + self.random.below(3);
        let ids: Vec<_> = (self.model.next_id..self.model.next_id + count).map(id).collect();
        self.model.next_id += count;
        let large = vec![b' '; self.random.below(9000) as usize];
        let data = if stream.starts_with("$$") { METADATA } else { &large };
        let events: Vec<_> = ids.iter().map(|id| NewEvent::json(*id, "Happened", data)).collect();
        let answer = store.append(stream, expected, &events);
        if matches!(answer, Err(Error::WrongExpected { .. })) {
            assert!(!is_good, "{stream} at {last:?} is as {expected:?}");
            return Ok(());
        }
        assert!(is_good || answer.is_err(), "{stream} at {last:?} is not as {expected:?}");
        self.model.appends.push(Append { stream, ids });
        let answer = answer?;
        assert_eq!(answer.first, Some(last.map_or(0, |last| last + 1)));
        self.model.acknowledged = self.model.appends.len();
        Ok(())
    }

    /// Appends something again that is there.
    fn retry(&mut self, store: &Store) -> Result<(), Error> {
        let Some(which) = (self.model.acknowledged as u64).checked_sub(1) else { return Ok(()) };
        let which = self.random.below(which + 1) as usize;
        let Append { stream, ids } = self.model.appends[which].clone();
        let before = self.model.appends[..which].iter().filter(|a| a.stream == stream);
        let first: u64 = before.map(|append| append.ids.len() as u64).sum();
        let expected = match (self.random.below(2), first.checked_sub(1)) {
            (0, _) => Expected::Any,
            (_, None) => Expected::NoStream,
            (_, Some(last)) => Expected::Exact(last),
        };
        let events: Vec<_> =
            ids.iter().map(|id| NewEvent::json(*id, "Happened", METADATA)).collect();
        let answer = store.append(stream, expected, &events)?;
        assert!(answer.was_there, "{stream}, {expected:?}: a retry is known");
        assert_eq!(answer.first, Some(first));
        Ok(())
    }

    fn live(&mut self) -> Result<(), Error> {
        let store = Store::open("/events", self.options())?;
        for _ in 0..20 + self.random.below(60) {
            match self.random.below(24) {
                0 => {
                    store.flush()?;
                    self.model.durable = self.model.acknowledged;
                }
                1 => {
                    store.sync()?;
                    self.model.durable = self.model.acknowledged;
                }
                2..=5 => self.retry(&store)?,
                6 => self.look(&store),
                _ => self.append(&store)?,
            }
            if self.durability == Durability::Synced {
                self.model.durable = self.model.acknowledged;
            }
        }
        self.look(&store);
        store.close()?;
        self.model.durable = self.model.acknowledged;
        Ok(())
    }

    /// Notes what stands where.
    fn look(&mut self, store: &Store) {
        for event in store.read_all(Position::START, Direction::Forwards) {
            let Ok(event) = event else { return };
            let before = self.model.seen.insert(event.position, event.id);
            assert!(
                before.is_none_or(|id| id == event.id),
                "position {} used twice",
                event.position
            );
        }
    }

    /// Opens the store as it survived, and compares it with what the user knows.
    fn check(&mut self, survives: usize) {
        let store = Store::open("/events", self.options()).expect("the store opens");
        let mut found = store.read_all(Position::START, Direction::Forwards);
        let mut kept = 0;
        for append in &self.model.appends {
            let mut ids = append.ids.iter();
            let Some(first) = ids.next() else { continue };
            let Some(event) = found.next() else { break };
            let event = event.expect("readable");
            assert_eq!((&event.stream[..], event.id), (append.stream, *first));
            for id in ids {
                let event = found.next().expect("all of it").expect("readable");
                assert_eq!((&event.stream[..], event.id), (append.stream, *id));
            }
            kept += 1;
        }
        assert!(found.next().is_none(), "nothing that was never appended");
        assert!(kept >= survives, "{kept} appends are left, {survives} were promised");
        self.model.appends.truncate(kept);
        (self.model.acknowledged, self.model.durable) = (kept, survives.min(kept));
        for stream in STREAMS.iter().filter(|stream| !stream.starts_with("$$")) {
            let events = self.model.appends.iter().filter(|append| append.stream == *stream);
            let ids: Vec<_> = events.flat_map(|append| &append.ids).copied().collect();
            let read = store.read(stream, Revision::START, Direction::Forwards);
            let read: Vec<_> =
                read.map(|e| e.expect("readable")).map(|e| (e.revision, e.id)).collect();
            assert!(read.into_iter().eq((0..).zip(ids)), "{stream}");
        }
        self.look(&store);
        let report = store.verify().expect("verified");
        assert!(report.damage.is_empty(), "{:?}", report.damage);
        drop(store);
    }
}

/// One history: a few lives, each ended by a kill, a power cut, or in good order.
fn history(seed: u64, left_out: Option<&str>) {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let durability = if random.below(2) == 0 { Durability::Buffered } else { Durability::Synced };
    let mut history = History { sim: Sim::new(seed), random, model: Model::default(), durability };
    for life in 0..4 {
        if let Some(pattern) = left_out {
            history.sim.ignore_calls(pattern);
        }
        let calls = 1 + history.random.below(if life == 0 { 600 } else { 400 });
        let when = if history.random.below(2) == 0 { When::Before } else { When::After };
        history.sim.crash_at(history.sim.calls() + calls, when);
        let lived = history.live();
        let is_dead = history.sim.is_dead();
        assert!(is_dead || lived.is_ok(), "seed {seed}: {lived:?}");
        let survives = match history.random.below(3) {
            0 => {
                history.sim = history.sim.kill_image();
                history.model.acknowledged
            }
            _ => {
                let survival = Survival::any(history.random.0, history.sim.pending_units());
                history.sim = history.sim.crash_image(&survival, history.random.0);
                history.model.durable
            }
        };
        history.check(survives);
    }
}

#[test]
fn histories_keep_what_was_promised() {
    let seeds = std::env::var("UMBEL_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(150);
    for seed in 0..seeds {
        history(seed, None);
    }
}

/// Calls that somebody might forget, each of which the histories must miss.
const PLANTED: [&str; 3] = ["sync *.chunk", "sync CHUNKS.new", "sync_dir directory"];

#[test]
fn histories_notice_calls_that_are_left_out() {
    for pattern in PLANTED {
        let notices =
            |seed: &u64| std::panic::catch_unwind(|| history(*seed, Some(pattern))).is_err();
        let noticed = (0..600).find(notices);
        assert!(noticed.is_some(), "{pattern}: nobody noticed");
    }
}

/// A chunk of a process that died keeps the positions of all its room, so that a few kills put more
/// than 16 MiB of positions between an event and the end, with hardly an event in between. What was
/// appended before them was then forgotten, although the promise is about bytes of the log.
#[test]
fn an_append_is_known_again_behind_the_gaps_that_kills_leave() {
    let mut sim = Sim::new(9);
    let shape = |sim: &Sim| StoreOptions { chunk_bytes: 32 << 20, ..options(sim) };
    let append = |store: &Store, number: u64| {
        let event = NewEvent::json(id(number), "Happened", b"{}");
        store.append("a", Expected::Any, &[event]).expect("appended")
    };
    for number in 0..5 {
        let store = Store::open("/events", shape(&sim)).expect("opened");
        append(&store, number);
        sim = sim.kill_image();
    }
    let store = Store::open("/events", shape(&sim)).expect("opened");
    let first = append(&store, 0);
    let gap = store.visible().0 - first.position.expect("its position");
    assert!(first.was_there && gap > 32 << 20, "{first:?}, {gap} positions back");
    // Also for those who go on appending.
    append(&store, 100);
    assert!((0..5).all(|number| append(&store, number).was_there));
}

/// The engine flushed the keyspaces of the index one by one when their memtables took too much
/// memory. Where the heads of streams were durable further than their events, a kill hid one event
/// of each stream for good: the one that had been its last, which only the former head knew.
#[test]
fn a_kill_after_the_index_was_flushed_in_part_hides_no_event() {
    let sim = Sim::new(1);
    let settings = |sim: &Sim| StoreOptions { chunk_bytes: 32 << 20, ..options(sim) };
    let store = Store::open("/events", settings(&sim)).expect("a new store");
    let streams: Vec<String> =
        (0..1500).map(|number| format!("order-{number}-{}", "n".repeat(100))).collect();
    for round in 0..12 {
        for (number, stream) in streams.iter().enumerate() {
            let event = id(round * 10_000 + number as u64);
            let event = [NewEvent::binary(event, "Happened", b"bytes")];
            store.append(stream, Expected::Any, &event).expect("appended");
            if number % 500 == 499 {
                let image = sim.kill_image();
                let killed = Store::open("/events", settings(&image)).expect("opened");
                let report = killed.verify().expect("verified");
                let damage = &report.damage;
                assert!(damage.is_empty(), "round {round}, {number}: {} places", damage.len());
                let reader = Store::open_read_only("/events", settings(&sim)).expect("opened");
                assert!(reader.verify().expect("verified").damage.is_empty(), "beside the writer");
            }
        }
    }
}
