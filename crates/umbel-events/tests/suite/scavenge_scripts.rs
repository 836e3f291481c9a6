//! Histories of appends, truncations, scavenges, restarts, kills and power cuts on the crash disk.
//! After each the streams say what a simple model says, whatever was scavenged.

use std::collections::BTreeMap;

use umbel_events::{
    Direction, Durability, Error, EventId, Expected, NewEvent, Position, RecordedEvent, Revision,
    Store, StoreOptions, metadata_stream,
};
use umbel_sim::{Sim, Survival, When};

use super::scavenging::all;
use super::support::{id, options};

const STREAMS: [&str; 3] = ["a", "cart-b", "cart-c"];

/// A small random number generator.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let mixed = (self.0 ^ self.0 >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
        (mixed ^ mixed >> 32) % end
    }
}

/// What the user did to a stream.
#[derive(Debug, Clone)]
struct Done {
    stream: &'static str,
    ids: Vec<EventId>,
    /// From then on these are `$tb` and `$maxCount`.
    hides: Option<(u64, u64)>,
    /// The position of its last event; `None` where nobody knows.
    position: Option<u64>,
    is_durable: bool,
}

struct History {
    sim: Sim,
    random: Random,
    durability: Durability,
    done: Vec<Done>,
    next_id: u64,
    seen: BTreeMap<u64, EventId>,
    removed: u64,
}

impl History {
    /// Revisions and ids of a stream that can be read, and what hides the others.
    fn stream(&self, stream: &str) -> (Vec<(u64, EventId)>, (u64, u64)) {
        let of_stream = self.done.iter().filter(|done| done.stream == stream);
        let hides =
            of_stream.clone().filter_map(|done| done.hides).next_back().unwrap_or((0, 1000));
        let ids = of_stream.filter(|done| done.hides.is_none()).flat_map(|done| &done.ids);
        let all: Vec<_> = (0..).zip(ids.copied()).collect();
        let first = hides.0.max((all.len() as u64).saturating_sub(hides.1));
        (all.into_iter().filter(|(revision, _)| *revision >= first).collect(), hides)
    }

    fn ids(&mut self, count: u64) -> Vec<EventId> {
        self.next_id += count;
        (self.next_id - count..self.next_id).map(id).collect()
    }

    fn append(&mut self, store: &Store) -> Result<(), Error> {
        let stream = STREAMS[self.random.below(3) as usize];
        let count = 1 + self.random.below(3);
        let ids = self.ids(count);
        let data = vec![b' '; self.random.below(9000) as usize];
        let events: Vec<_> = ids.iter().map(|id| NewEvent::json(*id, "Happened", &data)).collect();
        let is_durable = self.durability == Durability::Synced;
        self.done.push(Done { stream, ids, hides: None, position: None, is_durable: false });
        let answer = store.append(stream, Expected::Any, &events)?;
        self.acknowledged(answer.position, is_durable);
        Ok(())
    }

    fn hide(&mut self, store: &Store) -> Result<(), Error> {
        let stream = STREAMS[self.random.below(3) as usize];
        let (left, (truncated, counted)) = self.stream(stream);
        let Some((first, _)) = left.first() else { return Ok(()) };
        // What was hidden stays hidden: scavenged events do not come back.
        let hides = match self.random.below(2) {
            0 => (truncated.max(first + self.random.below(left.len() as u64 + 1)), counted),
            _ => (truncated, counted.min(1 + self.random.below(20))),
        };
        let json = format!(r#"{{"$tb":{},"$maxCount":{}}}"#, hides.0, hides.1);
        let ids = self.ids(1);
        let event = NewEvent::json(ids[0], "$metadata", json.as_bytes());
        let is_durable = self.durability == Durability::Synced;
        let hides = Some(hides);
        self.done.push(Done { stream, ids: ids.clone(), hides, position: None, is_durable: false });
        let answer = store.append(&metadata_stream(stream), Expected::Any, &[event])?;
        self.acknowledged(answer.position, is_durable);
        Ok(())
    }

    fn acknowledged(&mut self, position: Option<u64>, is_durable: bool) {
        let last = self.done.last_mut().expect("just begun");
        assert!(position.is_some(), "nothing was there before");
        (last.position, last.is_durable) = (position, is_durable);
    }

    fn all_durable(&mut self) {
        self.done.iter_mut().for_each(|done| done.is_durable = true);
    }

    fn live(&mut self) -> Result<(), Error> {
        let settings = StoreOptions { durability: self.durability, ..options(&self.sim) };
        let store = Store::open("/events", settings)?;
        for _ in 0..20 + self.random.below(60) {
            match self.random.below(20) {
                0 => {
                    store.flush()?;
                    self.all_durable();
                }
                1..=2 => {
                    self.removed += store.scavenge(&all())?.events_removed;
                    self.all_durable();
                }
                3..=5 => self.hide(&store)?,
                6 => self.look(&store)?,
                _ => self.append(&store)?,
            }
        }
        self.look(&store)?;
        store.close()?;
        self.all_durable();
        Ok(())
    }

    /// Everything there is stands where it stood, and streams say what the model says.
    fn look(&mut self, store: &Store) -> Result<(), Error> {
        let found: Vec<_> =
            store.read_all(Position::START, Direction::Forwards).collect::<Result<_, _>>()?;
        for event in &found {
            let before = self.seen.insert(event.position, event.id);
            assert!(before.is_none_or(|id| id == event.id), "{} used twice", event.position);
        }
        let mut backwards: Vec<_> =
            store.read_all(Position::END, Direction::Backwards).collect::<Result<_, _>>()?;
        backwards.reverse();
        assert_eq!(backwards, found, "the same backwards");
        for stream in STREAMS {
            let (wanted, _) = self.stream(stream);
            for (from, direction) in
                [(Revision::START, Direction::Forwards), (Revision::END, Direction::Backwards)]
            {
                let read: Vec<RecordedEvent> =
                    store.read(stream, from, direction).collect::<Result<_, _>>()?;
                let mut read: Vec<_> = read.iter().map(|e| (e.revision, e.id)).collect();
                read.sort_unstable();
                assert_eq!(read, wanted, "{stream}, {direction:?}");
            }
            let there: Vec<_> = found.iter().filter(|event| event.stream == stream).collect();
            for (revision, id) in wanted {
                assert!(there.iter().any(|e| (e.revision, e.id) == (revision, id)), "{stream}");
            }
        }
        let report = store.verify()?;
        assert!(report.damage.is_empty() || self.sim.is_dead(), "{:?}", report.damage);
        Ok(())
    }

    /// Opens the store as it survived, and has the model forget what did not.
    fn check(&mut self) {
        let settings = StoreOptions { durability: self.durability, ..options(&self.sim) };
        let store = Store::open("/events", settings).expect("the store opens");
        let visible = store.visible().0;
        let known = self.done.iter().filter_map(|done| done.position).max().unwrap_or(0);
        for done in std::mem::take(&mut self.done) {
            // Of one that was not acknowledged there is more than of those before it.
            let is_there = match done.position {
                Some(position) => position <= visible,
                None => visible > known,
            };
            assert!(is_there || !done.is_durable, "{done:?} is lost behind {visible}");
            if is_there {
                let position = done.position.or(Some(visible));
                self.done.push(Done { position, is_durable: true, ..done });
            }
        }
        self.look(&store).expect("readable");
    }
}

#[test]
fn streams_say_the_same_whatever_is_scavenged_and_lost() {
    let seeds = std::env::var("UMBEL_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(100);
    let mut removed = 0;
    for seed in 0..seeds {
        let mut random = Random((seed * 0x9e37_79b9) | 1);
        let durability =
            if random.below(2) == 0 { Durability::Buffered } else { Durability::Synced };
        let (done, seen) = (Vec::new(), BTreeMap::new());
        let (sim, next_id) = (Sim::new(seed), 0);
        let mut history = History { sim, random, durability, done, next_id, seen, removed: 0 };
        for _ in 0..4 {
            let calls = 1 + history.random.below(900);
            let when = if history.random.below(2) == 0 { When::Before } else { When::After };
            history.sim.crash_at(history.sim.calls() + calls, when);
            let lived = history.live();
            assert!(history.sim.is_dead() || lived.is_ok(), "seed {seed}: {lived:?}");
            history.sim = match history.random.below(3) {
                0 => {
                    // Killed: what was acknowledged is there.
                    let done = history.done.iter_mut().filter(|done| done.position.is_some());
                    done.for_each(|done| done.is_durable = true);
                    history.sim.kill_image()
                }
                _ => {
                    let units = history.sim.pending_units();
                    let survival = Survival::any(history.random.0, units);
                    history.sim.crash_image(&survival, history.random.0)
                }
            };
            history.check();
        }
        removed += history.removed;
    }
    assert!(removed > seeds * 5, "{removed} events were scavenged in {seeds} histories");
}
