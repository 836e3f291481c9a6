//! [`SubscriptionPager`]: events of a store subscription in pages, with checkpoints of filtered
//! ones.

use std::collections::VecDeque;
use std::sync::Arc;

use umbel_env::Clock;
use umbel_events::{Error, Position, RecordedEvent, ResolvedEvent, Store, Subscription, Watch};

use tokio::sync::oneshot;

use crate::access_control::readable_streams::ReadableStreams;
use crate::event_store::event_pager::{is_visible, recorded_bytes, resolve, resolved_bytes};
use crate::limits::{EXAMINED_EVENTS_MAX, PAGE_BYTES, PAGE_EVENTS_MAX, PAGE_TIME};

/// An open subscription to the store.
#[derive(Debug)]
pub struct SubscriptionPager {
    subscription: Subscription,
    clock: Arc<dyn Clock>,
    /// Number of examined events between checkpoints; `None` without a filter.
    checkpoint_interval: Option<u64>,
    /// Number of events examined since the last checkpoint.
    examined: u64,
    resolve_links: bool,
    /// The other streams that the reader may see; `None` for all.
    readable_streams: Option<ReadableStreams>,
    /// Whether the source is the events of all streams.
    reads_all_streams: bool,
    /// Items taken from the store and not returned yet.
    pending: VecDeque<PendingItem>,
    /// Whether the subscription was caught up when the pending items were taken.
    is_caught_up: bool,
}

#[derive(Debug)]
enum PendingItem {
    Event(RecordedEvent),
    Checkpoint(u64),
}

/// An item for the client.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly every item is an event; a box would cost an allocation for each"
)]
pub enum SubscriptionItem {
    /// An event.
    Event(ResolvedEvent),
    /// All events up to this position were examined.
    Checkpoint(u64),
}

/// The next items of a subscription.
#[derive(Debug)]
pub struct SubscriptionPage {
    /// The items, in order.
    pub items: Vec<SubscriptionItem>,
    /// The pager that continues after them.
    pub pager: SubscriptionPager,
    /// Whether no more events were visible when the page was read.
    pub is_caught_up: bool,
}

/// A one-time signal that more events are visible than when it was made.
#[derive(Debug)]
pub struct NewEventSignal {
    signal: oneshot::Receiver<()>,
    _watch: Watch,
}

impl NewEventSignal {
    /// Waits for the signal.
    pub async fn notified(&mut self) {
        // An error means that no signal comes: the caller then has to read.
        let _ = (&mut self.signal).await;
    }
}

impl SubscriptionPage {
    /// The bytes of the page, with the pending items of its pager.
    pub fn bytes(&self) -> usize {
        let found = self.items.iter().map(|found| match found {
            SubscriptionItem::Event(event) => resolved_bytes(event),
            SubscriptionItem::Checkpoint(_) => 0,
        });
        let taken = self.pager.pending.iter().map(|taken| match taken {
            PendingItem::Event(event) => recorded_bytes(event),
            PendingItem::Checkpoint(_) => 0,
        });
        found.chain(taken).sum()
    }
}

impl SubscriptionPager {
    /// A pager of an open subscription.
    pub fn new(
        subscription: Subscription,
        clock: &Arc<dyn Clock>,
        interval: Option<u64>,
        resolves: bool,
        is_of_all: bool,
    ) -> SubscriptionPager {
        SubscriptionPager {
            subscription,
            clock: Arc::clone(clock),
            checkpoint_interval: interval,
            examined: 0,
            resolve_links: resolves,
            readable_streams: None,
            reads_all_streams: is_of_all,
            pending: VecDeque::new(),
            is_caught_up: false,
        }
    }

    /// Hides events of a view after this position from now on.
    pub fn limit_to(&mut self, through: Position) {
        self.subscription.limit_view_to(through);
    }

    /// Restricts from now on the other streams that are shown.
    pub fn set_read_scope(&mut self, scope: Option<ReadableStreams>) {
        self.readable_streams = scope;
    }

    /// A signal that fires when more events are visible than now.
    pub fn new_event_signal(&self) -> NewEventSignal {
        let (sender, receiver) = oneshot::channel();
        let watch = self.subscription.watch(move |_| {
            // The receiver may have been dropped just now.
            let _ = sender.send(());
        });
        NewEventSignal { signal: receiver, _watch: watch }
    }

    /// The revision or position of the last examined event. `None` before the first one, and while
    /// earlier items are pending.
    pub fn position(&self) -> Option<u64> {
        self.subscription.position().filter(|_| self.pending.is_empty())
    }

    /// The next page, bounded in bytes and time.
    pub fn next_page(mut self, store: &Store) -> Result<SubscriptionPage, Error> {
        if self.pending.is_empty() {
            self.is_caught_up = self.fill_pending()?;
        }
        let (mut found, mut bytes) = (Vec::new(), 0);
        // The targets of links may be much larger than the links.
        while bytes < PAGE_BYTES
            && let Some(taken) = self.pending.pop_front()
        {
            let scope = self.readable_streams.as_ref();
            found.push(match taken {
                PendingItem::Event(event)
                    if self.reads_all_streams && !is_visible(store, scope, &event)? =>
                {
                    continue;
                }
                PendingItem::Event(event) => {
                    let event = resolve(store, event, self.resolve_links, scope)?;
                    bytes += resolved_bytes(&event);
                    SubscriptionItem::Event(event)
                }
                PendingItem::Checkpoint(position) => SubscriptionItem::Checkpoint(position),
            });
        }
        let is_caught_up = self.is_caught_up && self.pending.is_empty();
        Ok(SubscriptionPage { items: found, pager: self, is_caught_up })
    }

    /// Takes events from the store. Returns whether the subscription is caught up.
    fn fill_pending(&mut self) -> Result<bool, Error> {
        let began = self.clock.now();
        let (mut bytes, mut examined) = (0, 0);
        loop {
            let until_checkpoint =
                self.checkpoint_interval.map(|interval| interval - self.examined);
            let left = until_checkpoint.unwrap_or(u64::MAX).min(EXAMINED_EVENTS_MAX as u64);
            let max_events = PAGE_EVENTS_MAX - self.pending.len();
            let batch = self
                .subscription
                .try_next_batch(max_events, usize::try_from(left).unwrap_or(usize::MAX))?;
            for event in batch.events {
                bytes += recorded_bytes(&event);
                self.pending.push_back(PendingItem::Event(event));
            }
            examined += batch.examined;
            if let Some(interval) = self.checkpoint_interval {
                self.examined += batch.examined;
                if self.examined >= interval
                    && let Some(checkpoint) = batch.checkpoint
                {
                    self.examined = 0;
                    self.pending.push_back(PendingItem::Checkpoint(checkpoint.0));
                }
            }
            let is_enough = self.checkpoint_interval.is_none()
                || self.pending.len() >= PAGE_EVENTS_MAX
                || bytes >= PAGE_BYTES
                || examined >= EXAMINED_EVENTS_MAX as u64
                || self.clock.now().saturating_sub(began) >= PAGE_TIME;
            if batch.is_caught_up || is_enough {
                return Ok(batch.is_caught_up);
            }
        }
    }
}
