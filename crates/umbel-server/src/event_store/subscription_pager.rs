//! [`SubscriptionPager`]: events of a store subscription in pages, with checkpoints if the
//! subscription is filtered.

use std::collections::VecDeque;
use std::sync::Arc;

use umbel_events::{Error, Position, RecordedEvent, ResolvedEvent, Store, Subscription, Wakeup};

use crate::access_control::readable_streams::ReadableStreams;
use crate::event_store::event_resolution::{EventResolution, recorded_bytes, resolved_bytes};
use crate::event_store::page_limits::{PageLimits, PageTimer};
use crate::limits::PAGE_BYTES;

/// An open subscription to the store.
#[derive(Debug)]
pub struct SubscriptionPager {
    subscription: Subscription,
    /// Number of examined events between checkpoints; `None` without a filter.
    checkpoint_interval: Option<u64>,
    /// Number of events examined since the last checkpoint.
    examined: u64,
    resolution: EventResolution,
    /// Items taken from the store and not returned yet.
    pending: VecDeque<PendingItem>,
    /// Whether the subscription was caught up when the pending items were taken.
    is_caught_up: bool,
    /// Whether the next page belongs into the read pool.
    is_pooled: bool,
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
    /// The pager that continues after the items.
    pub pager: SubscriptionPager,
    /// Whether no more events were visible when the page was read.
    pub is_caught_up: bool,
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
    /// Creates a pager of an open subscription.
    pub fn new(
        subscription: Subscription,
        interval: Option<u64>,
        resolution: EventResolution,
    ) -> SubscriptionPager {
        SubscriptionPager {
            subscription,
            checkpoint_interval: interval,
            examined: 0,
            resolution,
            pending: VecDeque::new(),
            is_caught_up: false,
            is_pooled: false,
        }
    }

    /// Whether the next page belongs into the read pool, because it follows others.
    pub fn is_pooled(&self) -> bool {
        self.is_pooled
    }

    /// Sets which other streams are shown from now on.
    pub fn set_readable_streams(&mut self, scope: Option<ReadableStreams>) {
        self.resolution.readable_streams = scope;
    }

    /// Wake-up for events after the last page.
    pub fn wakeup(&self) -> Arc<Wakeup> {
        Arc::clone(self.subscription.wakeup())
    }

    /// The revision or position of the last examined event. `None` before the first event, and
    /// while earlier items are pending.
    pub fn position(&self) -> Option<u64> {
        self.subscription.position().filter(|_| self.pending.is_empty())
    }

    /// Reads the next page within these limits and [`PAGE_BYTES`]. A view shows no event after
    /// `through`.
    pub fn next_page(
        mut self,
        store: &Store,
        through: Position,
        limits: &PageLimits,
    ) -> Result<SubscriptionPage, Error> {
        self.subscription.limit_view_to(through);
        let mut timer = limits.timer();
        if self.pending.is_empty() {
            self.is_caught_up = self.fill_pending(limits, &mut timer)?;
        }
        let (mut found, mut bytes) = (Vec::new(), 0);
        // The targets of links may be much larger than the links.
        while bytes < PAGE_BYTES
            && let Some(taken) = self.pending.pop_front()
        {
            match taken {
                PendingItem::Event(event) => {
                    if let Some(event) = self.resolution.resolve(store, event)? {
                        bytes += resolved_bytes(&event);
                        found.push(SubscriptionItem::Event(event));
                    }
                }
                PendingItem::Checkpoint(position) => {
                    found.push(SubscriptionItem::Checkpoint(position));
                }
            }
            if timer.has_passed_after_event() {
                break;
            }
        }
        let is_caught_up = self.is_caught_up && self.pending.is_empty();
        self.is_pooled = !is_caught_up;
        Ok(SubscriptionPage { items: found, pager: self, is_caught_up })
    }

    /// Takes events from the store. Returns whether the subscription is caught up.
    fn fill_pending(
        &mut self,
        limits: &PageLimits,
        timer: &mut PageTimer<'_>,
    ) -> Result<bool, Error> {
        let (mut bytes, mut examined) = (0, 0);
        loop {
            let until_checkpoint =
                self.checkpoint_interval.map(|interval| interval - self.examined);
            let step = limits.next_step(usize::try_from(examined).unwrap_or(usize::MAX));
            let left = until_checkpoint.unwrap_or(u64::MAX).min(step as u64);
            let max_events = limits.events_max - self.pending.len();
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
            let is_enough = self.pending.len() >= limits.events_max
                || bytes >= PAGE_BYTES
                || examined >= limits.examined_max as u64
                || timer.has_passed();
            if batch.is_caught_up || is_enough {
                return Ok(batch.is_caught_up);
            }
        }
    }
}
