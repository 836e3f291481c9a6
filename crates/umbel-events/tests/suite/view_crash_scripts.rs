//! Scripts of appends, flushes, restarts, kills and power cuts on the crash disk. After each crash
//! or restart, every view matches a naive scan of the log. A remaining event keeps its number and
//! its link.

use std::collections::BTreeMap;

use umbel_events::{
    Direction, Durability, Error, EventId, ExpectedVersion, NewEvent, Store, StoreOptions,
    StreamAppend,
};
use umbel_sim::{CrashSide, Random, Sim, Survival};

use super::support::{id, options};
use super::views::{check_all, drop_views, oracle, read};

const STREAMS: [&str; 6] = ["cart-1", "cart-2", "order-1", "plain", "$sys-1", "$$cart-1"];

struct ViewScript {
    sim: Sim,
    random: Random,
    durability: Durability,
    next_id: u64,
    /// The link that was seen for an event in a view: its number and its id.
    seen: BTreeMap<(String, EventId), (u64, EventId)>,
}

impl ViewScript {
    fn options(&self) -> StoreOptions {
        StoreOptions { durability: self.durability, ..options(&self.sim) }
    }

    fn append(&mut self, store: &Store) -> Result<(), Error> {
        let large = vec![b' '; self.random.below(6000) as usize];
        let kind = ["Opened", "Paid", "$>"][self.random.below(3) as usize];
        let first = self.random.below(STREAMS.len() as u64) as usize;
        let second = (first + 1) % STREAMS.len();
        let count = 1 + self.random.below(2) as usize;
        let mut event = |stream: &str| {
            self.next_id += 1;
            let data = if stream.starts_with("$$") { b"{}" } else { &large[..] };
            NewEvent { kind, ..NewEvent::json(id(self.next_id), "", data) }
        };
        let events: Vec<Vec<_>> = [first, second][..count]
            .iter()
            .map(|stream| (0..3).map(|_| event(STREAMS[*stream])).collect())
            .collect();
        let appends: Vec<_> = [first, second]
            .iter()
            .zip(&events)
            .map(|(stream, events)| StreamAppend {
                stream: STREAMS[*stream],
                expected: ExpectedVersion::Any,
                events,
            })
            .collect();
        store.append_streams(&appends, &[]).map(drop)
    }

    fn run_process(&mut self) -> Result<(), Error> {
        let store = Store::open("/events", self.options())?;
        for _ in 0..20 + self.random.below(60) {
            match self.random.below(16) {
                0 => store.flush()?,
                1 => store.sync()?,
                2 => drop(store.delete("order-1", ExpectedVersion::Exists)),
                _ => self.append(&store)?,
            }
        }
        store.close()
    }

    /// Opens the surviving store and checks its views.
    fn check(&mut self) {
        let store = Store::open("/events", self.options()).expect("the store opens");
        check_all(&store);
        let mut now = BTreeMap::new();
        for (view, wanted) in oracle(&store) {
            let links = read(&store, &view, 0, Direction::Forwards);
            for (event, found) in wanted.into_iter().zip(links) {
                let link = (found.link.revision, found.link.id);
                let before = self.seen.get(&(view.clone(), event.id));
                assert!(before.is_none_or(|before| *before == link), "{view}: {event:?}");
                now.insert((view.clone(), event.id), link);
            }
        }
        // Events that a power cut removed may come again under other numbers.
        self.seen = now;
    }
}

fn run_script(seed: u64) {
    let mut random = Random::new(seed);
    let durability = if random.below(2) == 0 { Durability::Buffered } else { Durability::Synced };
    let (sim, seen) = (Sim::new(seed), BTreeMap::new());
    let mut script = ViewScript { sim, random, durability, next_id: 0, seen };
    for life in 0..4 {
        let calls = 1 + script.random.below(if life == 0 { 600 } else { 400 });
        let when = if script.random.below(2) == 0 { CrashSide::Before } else { CrashSide::After };
        script.sim.crash_at(script.sim.calls() + calls, when);
        let ran = script.run_process();
        assert!(script.sim.is_dead() || ran.is_ok(), "seed {seed}: {ran:?}");
        script.sim = match script.random.below(3) {
            0 => script.sim.kill_image(),
            _ => {
                let seed = script.random.next();
                let survival = Survival::any(seed, script.sim.pending_units());
                script.sim.crash_image(&survival, seed)
            }
        };
        script.check();
    }
}

#[test]
fn views_match_the_log_after_any_crash() {
    let seeds = std::env::var("UMBEL_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(40);
    for seed in 0..seeds {
        run_script(seed);
    }
}

/// A store without views is killed while they are built: the views that were finished stay right.
#[test]
fn kill_during_view_build_of_an_old_store_is_harmless() {
    let sim = Sim::new(1);
    let store = Store::open("/events", options(&sim)).expect("a new store");
    let mut script = ViewScript {
        sim: sim.clone_disk(),
        random: Random::new(5),
        durability: Durability::Buffered,
        next_id: 0,
        seen: BTreeMap::new(),
    };
    for _ in 0..100 {
        script.append(&store).expect("appended");
    }
    store.close().expect("closed");
    drop_views(&sim);
    for crash in (1..200).step_by(7) {
        let sim = sim.clone_disk();
        sim.crash_at(sim.calls() + crash, CrashSide::After);
        let opened = Store::open("/events", options(&sim)).and_then(Store::close);
        let image = sim.crash_image(&Survival::any(crash, sim.pending_units()), crash);
        assert!(opened.is_ok() || sim.is_dead());
        check_all(&Store::open("/events", options(&image)).expect("opened again"));
    }
}
