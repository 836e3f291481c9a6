//! Scripts of four kinds of subscribers with appends, kills, power cuts and restarts on the crash
//! disk. Each subscriber resumes after its checkpoint, and in the end has received every event of
//! its source once, in order.

use umbel_events::{
    AppendRequest, Direction, Durability, Error, EventFilter, EventId, ExpectedVersion, NewEvent,
    Position, Source, Store, StoreOptions, StreamAppend, Subscription, SubscriptionStart,
};
use umbel_sim::{CrashSide, Random, Sim, Survival};

use super::support::{id, options};

const STREAMS: [&str; 4] = ["cart-1", "cart-2", "order-1", "$system"];
const TYPES: [&str; 3] = ["Opened", "Added", "Closed"];
const LIVES: u64 = 4;

/// Possible bug of a subscriber.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SubscriberBug {
    None,
    /// Resumes from its old checkpoint.
    ResumesTooEarly,
    /// Resumes after its checkpoint.
    ResumesTooLate,
    /// Takes the checkpoint of a batch and skips its events.
    SkipsEvents,
}

/// Subscriber, with the state that survives a crash.
struct Subscriber {
    what: Source,
    position: Option<u64>,
    received: Vec<EventId>,
}

fn subscribers() -> Vec<Subscriber> {
    let filtered = |filter: Result<_, Error>| Source::Filtered(filter.expect("good"));
    let kinds = [
        Source::Stream("cart-1".into()),
        Source::All,
        filtered(EventFilter::stream_prefixes(&["order-", "cart-2"])),
        filtered(EventFilter::type_regex("^(?!Added)")),
    ];
    kinds.map(|what| Subscriber { what, position: None, received: Vec::new() }).into()
}

impl Subscriber {
    fn subscribe(&self, store: &Store, bug: SubscriberBug) -> Result<Subscription, Error> {
        let since = match (self.position, bug) {
            (Some(place), SubscriberBug::ResumesTooEarly) => {
                place.checked_sub(1).map_or(SubscriptionStart::Start, SubscriptionStart::After)
            }
            (Some(_), SubscriberBug::ResumesTooLate) => SubscriptionStart::End,
            (Some(place), _) => SubscriptionStart::After(place),
            (None, _) => SubscriptionStart::Start,
        };
        store.subscribe(self.what.clone(), since)
    }

    /// Takes a batch; returns whether it is live.
    fn take(
        &mut self,
        from: &mut Subscription,
        store: &Store,
        sizes: (usize, usize),
        bug: SubscriberBug,
    ) -> Result<bool, Error> {
        let batch = from.try_next_batch(sizes.0, sizes.1)?;
        let last = batch.events.last().map(|event| Position(event.position));
        assert!(batch.events.iter().all(|event| event.position <= store.visible_position().0));
        if !matches!(self.what, Source::Stream(_)) {
            assert!(last <= batch.checkpoint && batch.checkpoint <= Some(store.visible_position()));
        }
        let leaves_out = bug == SubscriberBug::SkipsEvents && batch.events.len() > 2;
        if !leaves_out {
            self.received.extend(batch.events.iter().map(|event| event.id));
        }
        self.position = from.position();
        Ok(batch.is_caught_up)
    }

    /// Ids of the events of the subscriber's source.
    fn wanted(&self, store: &Store) -> Vec<EventId> {
        let all = store.read_all(Position::START, Direction::Forwards);
        let all = all.map(|event| event.expect("readable"));
        let is_wanted = |stream: &str, kind: &str| match &self.what {
            Source::Stream(name) => **name == *stream,
            Source::All => true,
            Source::Filtered(filter) => filter.passes(stream, kind).expect("in time"),
            Source::View(view) => panic!("{view} is followed elsewhere"),
        };
        all.filter(|event| is_wanted(&event.stream, &event.kind)).map(|event| event.id).collect()
    }
}

struct SubscriptionScript {
    sim: Sim,
    random: Random,
    durability: Durability,
    bug: SubscriberBug,
    followers: Vec<Subscriber>,
    next_id: u64,
}

impl SubscriptionScript {
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
        let appends = [StreamAppend { stream, expected: ExpectedVersion::Any, events: &events }];
        let ticket = store.submit(&AppendRequest { appends: &appends, checks: &[] })?;
        // An append without a waiter is in the log and not visible yet.
        if self.random.below(4) > 0 {
            ticket.wait()?;
        }
        Ok(())
    }

    fn run_process(&mut self) -> Result<(), Error> {
        let store = self.open()?;
        let bug = self.bug;
        let mut open: Vec<_> = self
            .followers
            .iter()
            .map(|follower| follower.subscribe(&store, bug))
            .collect::<Result<_, _>>()?;
        for _ in 0..30 + self.random.below(80) {
            match self.random.below(10) {
                0 => store.flush()?,
                1..=4 => {
                    let which = self.random.below(4) as usize;
                    let sizes = (1 + self.random.below(6), 1 + self.random.below(12));
                    let sizes = (sizes.0 as usize, sizes.1 as usize);
                    self.followers[which].take(&mut open[which], &store, sizes, bug)?;
                }
                _ => self.append(&store)?,
            }
        }
        drop(open);
        store.close()
    }

    /// Waits until all subscribers are live, and compares the received events with the expected
    /// ones.
    fn check(&mut self) {
        let store = self.open().expect("the store opens");
        for follower in &mut self.followers {
            let mut open = follower.subscribe(&store, self.bug).expect("subscribed");
            while !follower.take(&mut open, &store, (50, 100), self.bug).expect("readable") {}
            assert_eq!(follower.received, follower.wanted(&store), "{:?}", follower.what);
        }
        drop(store);
    }
}

/// Runs a few process lives, each ended by a kill, a power cut or a close. If appends are not
/// synced, a power cut could remove visible events, so such scripts use only kills.
fn run_script(seed: u64, bug: SubscriberBug) {
    let mut random = Random::new(seed);
    let durability = if random.below(2) == 0 { Durability::Buffered } else { Durability::Synced };
    let sim = Sim::new(seed);
    let mut script =
        SubscriptionScript { sim, random, durability, bug, followers: subscribers(), next_id: 0 };
    for life in 0..LIVES {
        let calls = 1 + script.random.below(if life == 0 { 600 } else { 400 });
        let when = if script.random.below(2) == 0 { CrashSide::Before } else { CrashSide::After };
        script.sim.crash_at(script.sim.calls() + calls, when);
        let ran = script.run_process();
        assert!(script.sim.is_dead() || ran.is_ok(), "seed {seed}: {ran:?}");
        let is_killed = durability == Durability::Buffered || script.random.below(3) == 0;
        script.sim = match is_killed {
            true => script.sim.kill_image(),
            false => {
                let seed = script.random.next();
                let survival = Survival::any(seed, script.sim.pending_units());
                script.sim.crash_image(&survival, seed)
            }
        };
    }
    script.check();
}

#[test]
fn subscribers_of_four_kinds_get_each_event_once() {
    let seeds = std::env::var("UMBEL_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(100);
    for seed in 0..seeds {
        run_script(seed, SubscriberBug::None);
    }
}

#[test]
fn wrong_resume_position_fails_the_scripts() {
    use SubscriberBug::{ResumesTooEarly, ResumesTooLate, SkipsEvents};
    for bug in [ResumesTooEarly, ResumesTooLate, SkipsEvents] {
        let notices = |seed: &u64| std::panic::catch_unwind(|| run_script(*seed, bug)).is_err();
        assert!((0..100).any(|seed| notices(&seed)), "{bug:?}: not detected");
    }
}
