//! Fetching of a group's events, and eviction while other groups wait for quota.

use std::collections::HashSet;

use umbel_events::ResolvedEvent;

use super::*;
use crate::consumer_groups::dispatcher::pin_hash;
use crate::consumer_groups::group_config::Strategy;
use crate::event_store::subscription_pager::SubscriptionPage;
use crate::limits::{GROUP_BYTES, GROUP_IDLE_TIME, GROUP_STALLED_TIME};

/// A parked event with its revision and its pin.
type ParkedItem = (u64, u64, ResolvedEvent);

/// The pins of the page's items; 0 for a checkpoint.
fn pin_hashes(strategy: Strategy, page: &SubscriptionPage) -> Vec<u64> {
    let pin = |item: &SubscriptionItem| match item {
        SubscriptionItem::Event(event) => pin_hash(strategy, event),
        SubscriptionItem::Checkpoint(_) => 0,
    };
    page.items.iter().map(pin).collect()
}

impl GroupTask {
    /// Whether the group may read any events now.
    fn can_read(&self) -> bool {
        self.retry_at.is_none() && self.dispatcher.tracked().1 < GROUP_BYTES
    }

    /// Whether a consumer has capacity for new events and the group's buffer has space.
    fn can_advance(&self) -> bool {
        self.can_read() && !self.connected.is_empty() && !self.is_full()
    }

    /// Whether the group holds the maximum number of events of its settings.
    fn is_full(&self) -> bool {
        let limit = usize::try_from(self.config.settings.history_buffer_size).unwrap_or(0);
        self.dispatcher.tracked().0 >= limit.max(1)
    }

    /// Whether the group would read a page now if it had quota.
    pub(super) fn has_more(&self) -> bool {
        self.has_more_of_source() || self.next_parked_range().is_some()
    }

    /// Whether the group would read a page once the source has more events.
    pub(super) fn waits_for_source(&self) -> bool {
        self.can_advance() || self.needs_evicted()
    }

    fn has_more_of_source(&self) -> bool {
        let goes_back = || self.needs_evicted() && self.dispatcher.has_read_past_evicted();
        (self.waits_for_source() && !self.is_caught_up) || goes_back()
    }

    /// Whether evicted events of the source are needed.
    fn needs_evicted(&self) -> bool {
        let misses = self.dispatcher.first_evicted().is_some() && self.dispatcher.needs_evicted();
        misses && self.can_read()
    }

    /// Range of parked events to read next: first evicted events, then events to replay.
    fn next_parked_range(&self) -> Option<(u64, u64)> {
        match self.dispatcher.evicted_parked_range() {
            Some(missing) => {
                Some(missing).filter(|_| self.can_read() && self.dispatcher.needs_evicted())
            }
            None => self.replay_range.filter(|(from, before)| from < before && self.can_advance()),
        }
    }

    /// Reads a page of the group's source.
    pub(super) async fn read_page(&mut self) -> Result<(), Error> {
        if !self.has_more_of_source() || !self.quota_share.try_reserve_page() {
            return Ok(());
        }
        if self.needs_evicted() && self.dispatcher.rewind_to_evicted() {
            // Evicted events lie before the pager's next page.
            (self.pager, self.is_caught_up) = (None, false);
        }
        let follower = match self.pager.take() {
            Some(follower) => follower,
            None => self.reopen_source().await?,
        };
        // A pager that is lost wakes nothing.
        (self.wakeup, self.is_caught_up) = (Some(follower.wakeup()), false);
        let source = self.key.event_source();
        let through = self.service.system_projections.limit_of(&source);
        let strategy = self.config.strategy;
        let with_pins = move |page| {
            let pins = pin_hashes(strategy, &page);
            (page, pins)
        };
        let reading = self.service.store.read_for_group(follower, through, with_pins);
        let (mut page, pins) = reading.await?;
        // The page registers the wake-up after the limit was read. So it may not be used for events
        // that a higher limit shows.
        let is_current = through == self.service.system_projections.limit_of(&source);
        self.is_caught_up = page.is_caught_up && is_current;
        let only_missing = self.is_full();
        let items = take_items(&mut page);
        self.service.store.count_read(items.len());
        let skipped = pins.len() - items.len();
        let mut steps = BoundedSteps::default();
        for (found, pin) in items.into_iter().zip(pins.into_iter().skip(skipped)) {
            match found {
                SubscriptionItem::Event(event) => {
                    if !self.take_event(event, pin, only_missing) {
                        return Ok(());
                    }
                }
                SubscriptionItem::Checkpoint(position) => self.dispatcher.advance(position),
            }
            steps.count(0).await;
        }
        if let Some(position) = page.pager.position() {
            self.dispatcher.advance(position);
        }
        self.pager = Some(page.pager);
        Ok(())
    }

    /// Takes an event of the source. Returns false if the event does not fit yet: only evicted
    /// events do if `only_missing` is set.
    fn take_event(&mut self, event: ResolvedEvent, pin: u64, only_missing: bool) -> bool {
        let Some(original) = link_or_event(&event) else { return true };
        let position = match self.key.stream {
            Some(_) => original.revision,
            None => original.position,
        };
        if is_dangling_link(&event) {
            self.last_read = self.last_read.max(Some(position));
            self.dispatcher.skip(position);
            return true;
        }
        if only_missing && self.dispatcher.is_new(EventKey::Source(position)) {
            // It is read again later.
            self.is_caught_up = false;
            if let Some(before) = position.checked_sub(1) {
                self.dispatcher.advance(before);
            }
            return false;
        }
        self.last_read = self.last_read.max(Some(position));
        if self.key.stream.is_none() && checkpoint_store::is_group_stream(&original.stream) {
            self.dispatcher.advance(position);
        } else {
            self.dispatcher.offer_pinned(EventKey::Source(position), event, pin);
        }
        true
    }

    /// Opens the source after the last event read.
    async fn reopen_source(&self) -> Result<SubscriptionPager, Error> {
        let (key, config) = (self.key.clone(), self.config.clone());
        let after = self.dispatcher.read_through();
        let subscribing =
            self.service.store.blocking(move |store| subscribe(store, &key, &config, after));
        Ok(source_pager(&self.config, subscribing.await?))
    }

    /// Reads parked events that are to be replayed.
    pub(super) async fn read_parked(&mut self) -> Result<(), Error> {
        while let Some((from, before)) = self.next_parked_range() {
            if !self.quota_share.try_reserve_page() {
                return Ok(());
            }
            let stream = self.parked_stream.clone();
            let strategy = self.config.strategy;
            let read = move |store: &Store| {
                let events = parked_stream::read_parked(store, &stream, from, before)?;
                let pinned = |(revision, event)| (revision, pin_hash(strategy, &event), event);
                Ok(events.into_iter().map(pinned).collect())
            };
            let mut events: Vec<ParkedItem> = match self.service.store.blocking(read).await {
                Err(Error::StreamDeleted { .. }) => {
                    self.replace_parked_stream().await?;
                    continue;
                }
                events => events?,
            };
            let last = events.last().map_or(before - 1, |(revision, ..)| *revision);
            let mut steps = BoundedSteps::default();
            for (revision, pin, event) in take_parked(&mut events) {
                steps.count(0).await;
                if is_dangling_link(&event) {
                    // The source of the parked event is gone.
                    continue;
                }
                self.dispatcher.offer_pinned(EventKey::Parked(revision), event, pin);
            }
            self.dispatcher.advance_parked(last);
            self.replay_range =
                self.replay_range.map(|(from, before)| (from.max(last + 1), before));
            self.quota_share.shrink_to(self.dispatcher.tracked().1);
        }
        self.replay_range = self.replay_range.filter(|(from, before)| from < before);
        Ok(())
    }

    /// Updates the group's quota share, and evicts payloads while other groups wait for quota.
    pub(super) fn rebalance_quota(&mut self, now: Instant) {
        let moved = self.dispatcher.sent + self.dispatcher.completed;
        if moved != self.moved.0 {
            self.moved = (moved, now);
        }
        if self.dispatcher.tracked().1 == 0 || !self.quota_demand.is_waiting() {
            self.evict_at = None;
        } else if self.evict_at.is_none_or(|due| due <= now) {
            // Consumers that were slow before any group waited are not penalized.
            let begins = self.evict_at.replace(now + GROUP_IDLE_TIME).is_none();
            let taken = self.caught_up_consumers(now, begins);
            let is_idle = now.saturating_duration_since(self.moved.1) >= GROUP_IDLE_TIME;
            if !begins {
                self.dispatcher.evict(is_idle, |id| taken.contains(&id));
            }
        }
        self.quota_share.shrink_to(self.dispatcher.tracked().1);
    }

    /// Returns the consumers that have taken all events sent to them. Ends connections that took
    /// nothing for long: data that a client does not take occupies memory, even if its events are
    /// evicted.
    fn caught_up_consumers(&mut self, now: Instant, begins: bool) -> HashSet<ConsumerId> {
        let mut all = HashSet::new();
        for (id, joined) in &mut self.connected {
            let answers = &joined.request.responses;
            let left = answers.max_capacity() - answers.capacity();
            if left == 0 {
                all.insert(*id);
            }
            let sent = self.dispatcher.consumers().get(id).map_or(0, |consumer| consumer.sent);
            let taken = sent.saturating_sub(left as u64);
            if begins || left == 0 || taken != joined.last_taken.0 {
                joined.last_taken = (taken, now);
            } else if now.saturating_duration_since(joined.last_taken.1) >= GROUP_STALLED_TIME
                && let Some(peer) = &joined.request.connection
            {
                peer.close();
            }
        }
        all
    }
}

/// Whether a link was resolved and leads to no event. Clients drop such a link without an ack, so
/// it would occupy the consumer until it is parked.
fn is_dangling_link(event: &ResolvedEvent) -> bool {
    event.link.is_some() && event.event.is_none()
}

/// Takes the items out of a page and keeps the page's pager.
fn take_items(page: &mut SubscriptionPage) -> Vec<SubscriptionItem> {
    fail_point!("group-skip-first-of-page", !page.items.is_empty(), |_| page.items.split_off(1));
    std::mem::take(&mut page.items)
}

/// Takes the events of a replay and offers them to consumers.
fn take_parked(events: &mut Vec<ParkedItem>) -> Vec<ParkedItem> {
    fail_point!("group-skip-first-of-replay", !events.is_empty(), |_| events.split_off(1));
    std::mem::take(events)
}
