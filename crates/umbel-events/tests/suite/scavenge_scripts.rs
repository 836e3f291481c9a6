//! Scripts of appends, truncations, scavenges, restarts, kills and power cuts on the crash disk.
//! After each restart the streams match a simple model, whatever was scavenged.

use std::collections::BTreeMap;

use umbel_events::{
    Direction, Durability, Error, EventId, ExpectedVersion, NewEvent, Position, RecordedEvent,
    Revision, Store, StoreOptions, metadata_stream,
};
use umbel_sim::{CrashSide, Random, Sim, Survival};

use super::scavenge::all;
use super::support::{id, options};

const STREAMS: [&str; 3] = ["a", "cart-b", "cart-c"];

/// Operation of the client on a stream.
#[derive(Debug, Clone)]
struct StreamOperation {
    stream: &'static str,
    ids: Vec<EventId>,
    /// New `$tb` and `$maxCount`.
    hides: Option<(u64, u64)>,
    /// Position of the operation's last event; `None` if unknown.
    position: Option<u64>,
    is_durable: bool,
}

struct ScavengeScript {
    sim: Sim,
    random: Random,
    durability: Durability,
    done: Vec<StreamOperation>,
    next_id: u64,
    seen: BTreeMap<u64, EventId>,
    removed: u64,
}

impl ScavengeScript {
    /// Readable revisions and ids of a stream, and the rules that hide the others.
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
        self.done.push(StreamOperation {
            stream,
            ids,
            hides: None,
            position: None,
            is_durable: false,
        });
        let result = store.append(stream, ExpectedVersion::Any, &events)?;
        self.acknowledged(result.position, is_durable);
        Ok(())
    }

    fn hide(&mut self, store: &Store) -> Result<(), Error> {
        let stream = STREAMS[self.random.below(3) as usize];
        let (left, (truncated, counted)) = self.stream(stream);
        let Some((first, _)) = left.first() else { return Ok(()) };
        // Hidden events stay hidden: scavenged events do not come back.
        let hides = match self.random.below(2) {
            0 => (truncated.max(first + self.random.below(left.len() as u64 + 1)), counted),
            _ => (truncated, counted.min(1 + self.random.below(20))),
        };
        let json = format!(r#"{{"$tb":{},"$maxCount":{}}}"#, hides.0, hides.1);
        let ids = self.ids(1);
        let event = NewEvent::json(ids[0], "$metadata", json.as_bytes());
        let is_durable = self.durability == Durability::Synced;
        let hides = Some(hides);
        self.done.push(StreamOperation {
            stream,
            ids: ids.clone(),
            hides,
            position: None,
            is_durable: false,
        });
        let result = store.append(&metadata_stream(stream), ExpectedVersion::Any, &[event])?;
        self.acknowledged(result.position, is_durable);
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

    fn run_process(&mut self) -> Result<(), Error> {
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
                6 => self.check_reads(&store)?,
                _ => self.append(&store)?,
            }
        }
        self.check_reads(&store)?;
        store.close()?;
        self.all_durable();
        Ok(())
    }

    /// Checks that all events keep their positions, and that streams match the model.
    fn check_reads(&mut self, store: &Store) -> Result<(), Error> {
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

    /// Opens the surviving store, and removes from the model what did not survive.
    fn check(&mut self) {
        let settings = StoreOptions { durability: self.durability, ..options(&self.sim) };
        let store = Store::open("/events", settings).expect("the store opens");
        let visible = store.visible_position().0;
        let known = self.done.iter().filter_map(|done| done.position).max().unwrap_or(0);
        for done in std::mem::take(&mut self.done) {
            // An operation without a position survived if the visible position is after all known
            // ones.
            let is_there = match done.position {
                Some(position) => position <= visible,
                None => visible > known,
            };
            assert!(is_there || !done.is_durable, "{done:?} is lost after {visible}");
            if is_there {
                let position = done.position.or(Some(visible));
                self.done.push(StreamOperation { position, is_durable: true, ..done });
            }
        }
        self.check_reads(&store).expect("readable");
    }
}

#[test]
fn scripts_of_scavenges_and_crashes_keep_readable_events() {
    let seeds = std::env::var("UMBEL_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(60);
    let mut removed = 0;
    for seed in 0..seeds {
        let mut random = Random::new(seed);
        let durability =
            if random.below(2) == 0 { Durability::Buffered } else { Durability::Synced };
        let (done, seen) = (Vec::new(), BTreeMap::new());
        let (sim, next_id) = (Sim::new(seed), 0);
        let mut script =
            ScavengeScript { sim, random, durability, done, next_id, seen, removed: 0 };
        for _ in 0..4 {
            let calls = 1 + script.random.below(900);
            let when =
                if script.random.below(2) == 0 { CrashSide::Before } else { CrashSide::After };
            script.sim.crash_at(script.sim.calls() + calls, when);
            let ran = script.run_process();
            assert!(script.sim.is_dead() || ran.is_ok(), "seed {seed}: {ran:?}");
            script.sim = match script.random.below(3) {
                0 => {
                    // Killed: acknowledged events are there.
                    let done = script.done.iter_mut().filter(|done| done.position.is_some());
                    done.for_each(|done| done.is_durable = true);
                    script.sim.kill_image()
                }
                _ => {
                    let units = script.sim.pending_units();
                    let seed = script.random.next();
                    let survival = Survival::any(seed, units);
                    script.sim.crash_image(&survival, seed)
                }
            };
            script.check();
        }
        removed += script.removed;
    }
    assert!(removed > seeds * 5, "{removed} events were scavenged in {seeds} histories");
}
