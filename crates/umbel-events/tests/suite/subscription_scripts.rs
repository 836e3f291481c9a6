//! Histories of subscribers of four kinds against appends, kills, power cuts and restarts on the
//! crash disk. Each goes on behind the place it had, and at the end was told every event that it
//! is about once, in order.

use umbel_events::{
    Direction, Durability, Error, EventFilter, EventId, Expected, NewEvent, Position, Request,
    Since, Store, StoreOptions, StreamAppend, Subscribed, Subscription,
};
use umbel_sim::{Sim, Survival, When};

use super::support::{id, options};

const STREAMS: [&str; 4] = ["cart-1", "cart-2", "order-1", "$system"];
const TYPES: [&str; 3] = ["Opened", "Added", "Closed"];
const LIVES: u64 = 4;

/// A small random number generator.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let mixed = (self.0 ^ self.0 >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
        (mixed ^ mixed >> 32) % end
    }
}

/// What somebody who follows the store might get wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mistake {
    None,
    /// To go on with the place it had.
    GoesOnBeforeItsPlace,
    /// To go on further than it came.
    GoesOnBehindTheEnd,
    /// To take the checkpoint of a batch and leave its events.
    LeavesEventsOut,
}

/// Somebody who follows the store, with what outlives a crash.
struct Follower {
    what: Subscribed,
    place: Option<u64>,
    told: Vec<EventId>,
}

fn followers() -> Vec<Follower> {
    let filtered = |filter: Result<_, Error>| Subscribed::Filtered(filter.expect("good"));
    let kinds = [
        Subscribed::Stream("cart-1".to_string()),
        Subscribed::All,
        filtered(EventFilter::stream_prefixes(&["order-", "cart-2"])),
        filtered(EventFilter::type_regex("^(?!Added)")),
    ];
    kinds.map(|what| Follower { what, place: None, told: Vec::new() }).into()
}

impl Follower {
    fn subscribe(&self, store: &Store, mistake: Mistake) -> Result<Subscription, Error> {
        let since = match (self.place, mistake) {
            (Some(place), Mistake::GoesOnBeforeItsPlace) => {
                place.checked_sub(1).map_or(Since::Start, Since::After)
            }
            (Some(_), Mistake::GoesOnBehindTheEnd) => Since::End,
            (Some(place), _) => Since::After(place),
            (None, _) => Since::Start,
        };
        store.subscribe(self.what.clone(), since)
    }

    /// Takes a batch; whether it has caught up.
    fn take(
        &mut self,
        from: &mut Subscription,
        store: &Store,
        sizes: (usize, usize),
        mistake: Mistake,
    ) -> Result<bool, Error> {
        let batch = from.take(sizes.0, sizes.1)?;
        let last = batch.events.last().map(|event| Position(event.position));
        assert!(batch.events.iter().all(|event| event.position <= store.visible().0));
        if !matches!(self.what, Subscribed::Stream(_)) {
            assert!(last <= batch.checkpoint && batch.checkpoint <= Some(store.visible()));
        }
        let leaves_out = mistake == Mistake::LeavesEventsOut && batch.events.len() > 2;
        if !leaves_out {
            self.told.extend(batch.events.iter().map(|event| event.id));
        }
        self.place = from.place();
        Ok(batch.is_caught_up)
    }

    /// The ids of what it is about.
    fn wanted(&self, store: &Store) -> Vec<EventId> {
        let all = store.read_all(Position::START, Direction::Forwards);
        let all = all.map(|event| event.expect("readable"));
        let is_wanted = |stream: &str, kind: &str| match &self.what {
            Subscribed::Stream(name) => name == stream,
            Subscribed::All => true,
            Subscribed::Filtered(filter) => filter.passes(stream, kind).expect("in time"),
            Subscribed::View(view) => panic!("{view} is followed elsewhere"),
        };
        all.filter(|event| is_wanted(&event.stream, &event.kind)).map(|event| event.id).collect()
    }
}

struct History {
    sim: Sim,
    random: Random,
    durability: Durability,
    mistake: Mistake,
    followers: Vec<Follower>,
    next_id: u64,
}

impl History {
    fn open(&self) -> Result<Store, Error> {
        let durability = self.durability;
        Store::open("/events", StoreOptions { durability, ..options(&self.sim) })
    }

    fn append(&mut self, store: &Store) -> Result<(), Error> {
        let stream = STREAMS[self.random.below(4) as usize];
        let data = vec![b' '; self.random.below(6000) as usize];
        let events: Vec<_> = (0..1 + self.random.below(3))
            .map(|_| {
                self.next_id += 1;
                let kind = TYPES[self.random.below(3) as usize];
                NewEvent::binary(id(self.next_id), kind, &data)
            })
            .collect();
        let appends = [StreamAppend { stream, expected: Expected::Any, events: &events }];
        let ticket = store.submit(&Request { appends: &appends, checks: &[] })?;
        // One that nobody waits for is in the log and cannot be seen yet.
        if self.random.below(4) > 0 {
            ticket.wait()?;
        }
        Ok(())
    }

    fn live(&mut self) -> Result<(), Error> {
        let store = self.open()?;
        let mistake = self.mistake;
        let mut open: Vec<_> = self
            .followers
            .iter()
            .map(|follower| follower.subscribe(&store, mistake))
            .collect::<Result<_, _>>()?;
        for _ in 0..30 + self.random.below(80) {
            match self.random.below(10) {
                0 => store.flush()?,
                1..=4 => {
                    let which = self.random.below(4) as usize;
                    let sizes = (1 + self.random.below(6), 1 + self.random.below(12));
                    let sizes = (sizes.0 as usize, sizes.1 as usize);
                    self.followers[which].take(&mut open[which], &store, sizes, mistake)?;
                }
                _ => self.append(&store)?,
            }
        }
        drop(open);
        store.close()
    }

    /// Lets everybody catch up, and compares.
    fn check(&mut self) {
        let store = self.open().expect("the store opens");
        for follower in &mut self.followers {
            let mut open = follower.subscribe(&store, self.mistake).expect("subscribed");
            while !follower.take(&mut open, &store, (50, 100), self.mistake).expect("readable") {}
            assert_eq!(follower.told, follower.wanted(&store), "{:?}", follower.what);
        }
        drop(store);
    }
}

/// A few lives, each ended by a kill, a power cut, or in good order. Where appends are not synced
/// a power cut may take what was seen, so that there are kills alone.
fn history(seed: u64, mistake: Mistake) {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let durability = if random.below(2) == 0 { Durability::Buffered } else { Durability::Synced };
    let sim = Sim::new(seed);
    let mut history =
        History { sim, random, durability, mistake, followers: followers(), next_id: 0 };
    for life in 0..LIVES {
        let calls = 1 + history.random.below(if life == 0 { 600 } else { 400 });
        let when = if history.random.below(2) == 0 { When::Before } else { When::After };
        history.sim.crash_at(history.sim.calls() + calls, when);
        let lived = history.live();
        assert!(history.sim.is_dead() || lived.is_ok(), "seed {seed}: {lived:?}");
        let is_killed = durability == Durability::Buffered || history.random.below(3) == 0;
        history.sim = match is_killed {
            true => history.sim.kill_image(),
            false => {
                let survival = Survival::any(history.random.0, history.sim.pending_units());
                history.sim.crash_image(&survival, history.random.0)
            }
        };
    }
    history.check();
}

#[test]
fn four_kinds_of_subscribers_miss_nothing_and_are_told_nothing_twice() {
    let seeds = std::env::var("UMBEL_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(120);
    for seed in 0..seeds {
        history(seed, Mistake::None);
    }
}

#[test]
fn histories_notice_who_goes_on_at_the_wrong_place() {
    use Mistake::{GoesOnBeforeItsPlace, GoesOnBehindTheEnd, LeavesEventsOut};
    for mistake in [GoesOnBeforeItsPlace, GoesOnBehindTheEnd, LeavesEventsOut] {
        let notices = |seed: &u64| std::panic::catch_unwind(|| history(*seed, mistake)).is_err();
        assert!((0..100).any(|seed| notices(&seed)), "{mistake:?}: nobody noticed");
    }
}
