//! [`Follower`]: what a subscription to the store brings, a page at a time, with how far a filtered
//! one has looked.

use std::collections::VecDeque;
use std::sync::Arc;

use umbel_env::Clock;
use umbel_events::{Error, Position, RecordedEvent, ResolvedEvent, Store, Subscription, Watch};

use tokio::sync::oneshot;

use crate::limits::{EXAMINED_MAX, PAGE_BYTES, PAGE_EVENTS_MAX, PAGE_TIME};
use crate::reader::{bytes_of, bytes_of_one, is_shown, resolved};
use crate::sight::Sight;

/// A subscription to the store on its way.
#[derive(Debug)]
pub struct Follower {
    subscription: Subscription,
    clock: Arc<dyn Clock>,
    /// After how many events that were looked at a place is told; `None` without a filter.
    interval: Option<u64>,
    /// How many were looked at since.
    examined: u64,
    resolves: bool,
    /// What is seen of other streams; everything where there is nothing.
    sight: Option<Sight>,
    /// Whether it follows the events of all streams.
    is_of_all: bool,
    /// What was taken from the store and not answered yet.
    taken: VecDeque<Taken>,
    /// Whether nothing more could be seen when that was taken.
    is_caught_up: bool,
}

#[derive(Debug)]
enum Taken {
    Event(RecordedEvent),
    Checkpoint(u64),
}

/// What is answered.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly everything is an event; a box would be one more allocation for each"
)]
pub enum Found {
    /// An event.
    Event(ResolvedEvent),
    /// Everything up to this position was looked at.
    Checkpoint(u64),
}

/// What was found next.
#[derive(Debug)]
pub struct Followed {
    /// In order.
    pub found: Vec<Found>,
    /// Goes on behind it.
    pub follower: Follower,
    /// Whether nothing more could be seen when this was asked for.
    pub is_caught_up: bool,
}

/// Rings once, when more can be read than when it was made.
#[derive(Debug)]
pub struct Bell {
    rung: oneshot::Receiver<()>,
    _watch: Watch,
}

impl Bell {
    /// Waits until it rings.
    pub async fn rung(&mut self) {
        // An error would say that it never will: whoever waits has to look.
        let _ = (&mut self.rung).await;
    }
}

impl Followed {
    /// The bytes that it holds, with what was taken from the store besides.
    pub fn bytes(&self) -> usize {
        let found = self.found.iter().map(|found| match found {
            Found::Event(event) => bytes_of(event),
            Found::Checkpoint(_) => 0,
        });
        let taken = self.follower.taken.iter().map(|taken| match taken {
            Taken::Event(event) => bytes_of_one(event),
            Taken::Checkpoint(_) => 0,
        });
        found.chain(taken).sum()
    }
}

impl Follower {
    /// Follows a subscription that has begun.
    pub fn new(
        subscription: Subscription,
        clock: &Arc<dyn Clock>,
        interval: Option<u64>,
        resolves: bool,
        is_of_all: bool,
    ) -> Follower {
        Follower {
            subscription,
            clock: Arc::clone(clock),
            interval,
            examined: 0,
            resolves,
            sight: None,
            is_of_all,
            taken: VecDeque::new(),
            is_caught_up: false,
        }
    }

    /// From now on nothing of a view is taken that lies behind this position.
    pub fn show_through(&mut self, through: Position) {
        self.subscription.show_through(through);
    }

    /// From now on no more than this is shown of other streams than the one that is followed.
    pub fn show(&mut self, sight: Option<Sight>) {
        self.sight = sight;
    }

    /// Rings when more can be read than can be now.
    pub fn bell(&self) -> Bell {
        let (sender, rung) = oneshot::channel();
        let watch = self.subscription.watch(move |_| {
            // Whoever waited may just have gone away.
            let _ = sender.send(());
        });
        Bell { rung, _watch: watch }
    }

    /// The revision or position of the last event that was looked at. `None` before the first one,
    /// and as long as something that lies before it was not answered.
    pub fn place(&self) -> Option<u64> {
        self.subscription.place().filter(|_| self.taken.is_empty())
    }

    /// What there is next, no more than fits in memory at a time, and after no long time.
    pub fn page(mut self, store: &Store) -> Result<Followed, Error> {
        if self.taken.is_empty() {
            self.is_caught_up = self.take()?;
        }
        let (mut found, mut bytes) = (Vec::new(), 0);
        // What links point to may be much more than the links are.
        while bytes < PAGE_BYTES
            && let Some(taken) = self.taken.pop_front()
        {
            let sight = self.sight.as_ref();
            found.push(match taken {
                Taken::Event(event) if self.is_of_all && !is_shown(store, sight, &event)? => {
                    continue;
                }
                Taken::Event(event) => {
                    let event = resolved(store, event, self.resolves, sight)?;
                    bytes += bytes_of(&event);
                    Found::Event(event)
                }
                Taken::Checkpoint(position) => Found::Checkpoint(position),
            });
        }
        let is_caught_up = self.is_caught_up && self.taken.is_empty();
        Ok(Followed { found, follower: self, is_caught_up })
    }

    /// Takes events from the store. Whether no more could be seen.
    fn take(&mut self) -> Result<bool, Error> {
        let began = self.clock.now();
        let (mut bytes, mut examined) = (0, 0);
        loop {
            let until_told = self.interval.map(|interval| interval - self.examined);
            let left = until_told.unwrap_or(u64::MAX).min(EXAMINED_MAX as u64);
            let most = PAGE_EVENTS_MAX - self.taken.len();
            let batch =
                self.subscription.take(most, usize::try_from(left).unwrap_or(usize::MAX))?;
            for event in batch.events {
                bytes += bytes_of_one(&event);
                self.taken.push_back(Taken::Event(event));
            }
            examined += batch.examined;
            if let Some(interval) = self.interval {
                self.examined += batch.examined;
                if self.examined >= interval
                    && let Some(checkpoint) = batch.checkpoint
                {
                    self.examined = 0;
                    self.taken.push_back(Taken::Checkpoint(checkpoint.0));
                }
            }
            let is_enough = self.interval.is_none()
                || self.taken.len() >= PAGE_EVENTS_MAX
                || bytes >= PAGE_BYTES
                || examined >= EXAMINED_MAX as u64
                || self.clock.now().saturating_sub(began) >= PAGE_TIME;
            if batch.is_caught_up || is_enough {
                return Ok(batch.is_caught_up);
            }
        }
    }
}
