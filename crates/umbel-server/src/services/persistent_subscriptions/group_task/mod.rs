//! Task of one consumer group: reads the source, delivers events to consumers, and stores the
//! progress.
//!
//! A parked event leaves the group only after the park is durable. The checkpoint never passes an
//! event in flight. So after a crash every unprocessed event is delivered again.

use std::collections::HashMap;
use std::future::{pending, poll_fn};
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tonic::Status;
use umbel_base::fail_point;
use umbel_events::{
    Direction, Error, Position, Revision, Source, Store, Subscription, SubscriptionStart, Wakeup,
};
use umbel_proto::persistent::{
    DeliveryPosition, ReadResp, ReadRespContent, ReadRespEvent, RetryCount,
};

use crate::consumer_groups::checkpoint_store::{self, GroupError};
use crate::consumer_groups::dispatcher::{
    ConsumerId, Delivery, Dispatcher, EventKey, ParkRequest, link_or_event,
};
use crate::consumer_groups::group_command::{ConnectedConsumer, GroupCommand};
use crate::consumer_groups::group_config::GroupConfig;
use crate::consumer_groups::group_reading::GroupState;
use crate::consumer_groups::group_stats::GroupStats;
use crate::consumer_groups::parked_stream;
use crate::consumer_groups::rate_meter::RateMeter;
use crate::event_store::event_resolution::{EventResolution, resolved_bytes};
use crate::event_store::subscription_pager::{SubscriptionItem, SubscriptionPager};
use crate::limits::{
    GROUP_CONSUMERS_MAX, GROUP_RETRY_TIME, GROUP_SKIPPED_BYTES_MAX, GROUP_TICK,
    PARK_BATCH_EVENTS_MAX,
};
use crate::protocol::deadline::Deadline;
use crate::protocol::group_key::GroupKey;
use crate::protocol::{grpc_status, proto_convert};
use crate::resources::bounded_steps::BoundedSteps;
use crate::resources::group_quota::{GroupShare, QuotaDemand};
use crate::server_context::ServerContext;

/// A running consumer group.
pub struct GroupTask {
    service: Arc<ServerContext>,
    /// Identity of the group.
    key: GroupKey,
    /// Settings of the group.
    config: GroupConfig,
    /// Assigns events to consumers.
    dispatcher: Dispatcher,
    /// The stored checkpoint.
    checkpoint: Option<u64>,
    /// Revision or position of the last event that the group has seen.
    last_read: Option<u64>,
    /// Name of the stream of parked events.
    parked_stream: String,
    /// Number of parked events.
    parked_count: u64,
    connected: HashMap<ConsumerId, ConnectedConsumer>,
    /// Rate of deliveries per second.
    rate: RateMeter,
    /// Pager of the source; `None` while a page is read.
    pager: Option<SubscriptionPager>,
    /// Wake-up of the last pager.
    wakeup: Option<Arc<Wakeup>>,
    is_caught_up: bool,
    /// Revisions of parked events to replay: first, and end (exclusive).
    replay_range: Option<(u64, u64)>,
    /// Revision of the parked stream before which all events are to be replayed.
    replayed: Option<u64>,
    /// Lowest revision of the parked stream that is not truncated, as stored.
    first_parked: u64,
    /// Number of completed events at the last checkpoint, and its time.
    last_checkpoint: (u64, Instant),
    /// Time of the next retry of a failed operation.
    retry_at: Option<Instant>,
    /// Whether the last write of the group's state failed.
    has_storage_error: bool,
    /// The group's share of the quota of all groups.
    quota_share: GroupShare,
    /// Receiver that notices when other groups wait for quota.
    quota_demand: QuotaDemand,
    /// Time of the next eviction, while other groups wait.
    evict_at: Option<Instant>,
    /// Number of sent and completed events, and the time of this number's last change.
    moved: (u64, Instant),
    end_reply: Option<oneshot::Sender<()>>,
}

impl GroupTask {
    /// Opens a group at its stored state.
    pub async fn open(
        service: Arc<ServerContext>,
        key: GroupKey,
        config: GroupConfig,
    ) -> Result<GroupTask, Error> {
        let (of, settings) = (key.clone(), config.clone());
        let opened = service.store.blocking(move |store| StoredGroup::read(store, &of, &settings));
        let opened = opened.await?;
        let after = opened.checkpoint.or(config.start_after);
        let follower = source_pager(&config, opened.subscription);
        Ok(GroupTask {
            dispatcher: Dispatcher::new(&config, after),
            checkpoint: opened.checkpoint,
            // A start position of the settings was not seen.
            last_read: opened.checkpoint,
            parked_stream: opened.parked_stream,
            parked_count: opened.parked.1 - opened.parked.0,
            connected: HashMap::new(),
            rate: RateMeter::new(Instant::now()),
            wakeup: Some(follower.wakeup()),
            pager: Some(follower),
            is_caught_up: false,
            replay_range: None,
            replayed: None,
            first_parked: opened.parked.0,
            last_checkpoint: (0, Instant::now()),
            retry_at: None,
            has_storage_error: false,
            quota_share: service.group_quota.new_share(),
            quota_demand: service.group_quota.demand(),
            evict_at: None,
            moved: (0, Instant::now()),
            end_reply: None,
            service,
            key,
            config,
        })
    }

    /// Runs the group until it is ended or all senders are dropped.
    pub async fn run(mut self, mut messages: mpsc::Receiver<GroupCommand>) {
        let service = Arc::clone(&self.service);
        loop {
            if let Err(failure) = self.run_once().await {
                // Consumers get the error, and may reconnect.
                let status = self.failure_status(&failure);
                self.disconnect_all(&status).await;
                if matches!(failure, GroupError::Source(Error::StreamDeleted { .. })) {
                    return;
                }
                self.retry_at = Instant::now().checked_add(GROUP_RETRY_TIME);
            }
            self.rebalance_quota(Instant::now());
            let wait = Deadline::at(self.next_wakeup());
            let (is_ready, follows) = (self.has_more(), self.waits_for_source());
            if !is_ready {
                self.quota_share.cancel();
            }
            let gives_back = self.dispatcher.tracked().1 > 0 && !self.quota_demand.is_waiting();
            tokio::select! {
                biased;
                message = messages.recv() => match message {
                    Some(message) => self.receive(message).await,
                    None => return,
                },
                () = service.wait_stopping() => {
                    // The call of each consumer reports the end.
                    let _ = self.write_checkpoint().await;
                    return;
                }
                () = self.quota_share.reserve_page(), if is_ready => {}
                () = self.quota_demand.wait(), if gives_back => {}
                () = wait_for_events(self.wakeup.as_deref()), if follows && self.is_caught_up => {
                    self.is_caught_up = false;
                }
                () = wait.wait() => {}
            }
            if let Some(ended) = self.end_reply.take() {
                let _ = self.write_checkpoint().await;
                self.disconnect_all(&grpc_status::group_dropped(&self.key)).await;
                // The caller may have left.
                let _ = ended.send(());
                return;
            }
        }
    }

    /// Does all work that does not depend on consumers.
    async fn run_once(&mut self) -> Result<(), GroupError> {
        let now = Instant::now();
        self.expire_timeouts(now).await;
        if self.retry_at.is_some_and(|again| again > now) {
            self.send(now).await;
            return Ok(());
        }
        self.retry_at = None;
        self.park_events().await.map_err(GroupError::Storage)?;
        self.read_parked().await.map_err(GroupError::Storage)?;
        self.read_page().await.map_err(GroupError::Source)?;
        // Evicted events that are to be parked may have been read again.
        self.park_events().await.map_err(GroupError::Storage)?;
        self.send(Instant::now()).await;
        if self.checkpoint_is_due(now) {
            self.write_checkpoint().await.map_err(GroupError::Storage)?;
        }
        self.has_storage_error = false;
        Ok(())
    }

    /// Sends events again whose timeouts have passed.
    async fn expire_timeouts(&mut self, now: Instant) {
        let mut steps = BoundedSteps::default();
        while self.dispatcher.expire_timeout(now) {
            steps.count(0).await;
        }
    }

    /// Returns the status for consumers of a group that fails; also logs the first such failure.
    fn failure_status(&mut self, failure: &GroupError) -> Status {
        match failure {
            GroupError::Source(error) => grpc_status::status(error),
            GroupError::Storage(error) => {
                if !std::mem::replace(&mut self.has_storage_error, true) {
                    let (stream, group) = (self.key.source(), &self.key.group);
                    tracing::warn!(
                        stream,
                        group,
                        %error,
                        "a consumer group could not store its progress"
                    );
                }
                grpc_status::group_unavailable(&self.key, error)
            }
        }
    }

    /// Time of the next work that no message triggers.
    fn next_wakeup(&self) -> Option<Instant> {
        let (_, at) = self.last_checkpoint;
        let wait = self.config.checkpoint_after.max(GROUP_TICK);
        let is_worth = self.has_progress() && self.has_enough_progress();
        let checkpoint = is_worth.then(|| at.checked_add(wait)).flatten();
        let checkpoint = checkpoint.map(|at| at.max(Instant::now() + GROUP_TICK));
        [self.dispatcher.next_timeout(), self.retry_at, checkpoint, self.evict_at]
            .into_iter()
            .flatten()
            .min()
    }

    /// Writes events to the parked stream.
    async fn park_events(&mut self) -> Result<(), Error> {
        loop {
            let parking = self.dispatcher.events_to_park(PARK_BATCH_EVENTS_MAX);
            if parking.is_empty() {
                return self.truncate_parked().await;
            }
            let keys: Vec<EventKey> = parking.iter().map(|(key, ..)| *key).collect();
            let stream = self.parked_stream.clone();
            match write_parked(&self.service, &self.key, stream, parking).await {
                Err(Error::StreamDeleted { .. }) => {
                    self.replace_parked_stream().await?;
                    continue;
                }
                written => written?,
            }
            self.parked_count += keys.len() as u64;
            for key in keys {
                self.dispatcher.finish(key);
            }
        }
    }

    /// Truncates replayed and completed events from the parked stream.
    async fn truncate_parked(&mut self) -> Result<(), Error> {
        let Some(replayed) = self.replayed else { return Ok(()) };
        let first = self.first_unfinished_replay().unwrap_or(replayed);
        if first > self.first_parked {
            let stream = self.parked_stream.clone();
            let truncate =
                move |store: &Store| parked_stream::truncate_parked(store, &stream, first);
            match self.service.store.blocking(truncate).await {
                Err(Error::StreamDeleted { .. }) => return self.replace_parked_stream().await,
                truncated => truncated?,
            }
            self.parked_count = self.parked_count.saturating_sub(first - self.first_parked);
            self.first_parked = first;
        }
        Ok(())
    }

    /// The first event of a replay that is not complete.
    fn first_unfinished_replay(&self) -> Option<u64> {
        let unread = self.replay_range.map(|(from, _)| from);
        fail_point!("group-truncate-replayed-early", |_| unread);
        self.dispatcher.first_replayed().or(unread)
    }

    /// Sends events to consumers with capacity.
    async fn send(&mut self, now: Instant) {
        let mut steps = BoundedSteps::default();
        while let Some(Delivery { consumer, event, retries }) = self.dispatcher.next_delivery(now) {
            let Some(joined) = self.connected.get(&consumer) else { continue };
            let form = joined.request.form;
            let position = match link_or_event(&event) {
                Some(original) => DeliveryPosition::CommitPosition(original.position),
                None => DeliveryPosition::NoPosition(()),
            };
            let sent = ReadRespEvent {
                event: event.event.clone().map(|event| proto_convert::recorded_event(event, form)),
                link: event.link.clone().map(|event| proto_convert::recorded_event(event, form)),
                position: Some(position),
                count: Some(RetryCount::RetryCount(i32::try_from(retries).unwrap_or(i32::MAX))),
            };
            let answer = Ok(ReadResp { content: Some(ReadRespContent::Event(sent)) });
            if joined.request.responses.try_send(answer).is_err() {
                // The consumer left, or acks events without reading its responses.
                self.disconnect(consumer).await;
            }
            steps.count(resolved_bytes(&event)).await;
        }
    }

    fn has_progress(&self) -> bool {
        let has_completed = self.dispatcher.completed > self.last_checkpoint.0
            && self.dispatcher.completed_through() > self.checkpoint;
        has_completed || self.has_skipped_much()
    }

    /// Whether a group on all events has passed enough bytes of the log since its checkpoint that
    /// it should not examine them again after a restart. A checkpoint is an event, too: the limit
    /// exceeds what the checkpoints of all groups take, so they cause no further checkpoints.
    fn has_skipped_much(&self) -> bool {
        let through = self.dispatcher.completed_through().unwrap_or(0);
        let stored = self.checkpoint.or(self.config.start_after).unwrap_or(0);
        self.key.stream.is_none() && through.saturating_sub(stored) >= GROUP_SKIPPED_BYTES_MAX
    }

    fn checkpoint_is_due(&self, now: Instant) -> bool {
        let limit = u64::try_from(self.config.settings.max_checkpoint_count).unwrap_or(0);
        let done = self.dispatcher.completed - self.last_checkpoint.0;
        let waited = now.saturating_duration_since(self.last_checkpoint.1);
        let is_full = limit > 0 && done >= limit;
        let is_old = self.has_enough_progress() && waited >= self.config.checkpoint_after;
        self.has_progress() && (is_full || is_old)
    }

    /// Whether enough events are completed or skipped for a checkpoint.
    fn has_enough_progress(&self) -> bool {
        let least = u64::try_from(self.config.settings.min_checkpoint_count).unwrap_or(0);
        let completed = self.dispatcher.completed - self.last_checkpoint.0;
        completed >= least.max(1) || self.has_skipped_much()
    }

    /// Writes the checkpoint: all events up to it are completed.
    async fn write_checkpoint(&mut self) -> Result<(), Error> {
        if !self.has_progress() {
            return Ok(());
        }
        let Some(floor) = self.dispatcher.completed_through() else { return Ok(()) };
        let key = self.key.clone();
        let writing = self
            .service
            .store
            .blocking(move |store| checkpoint_store::write_checkpoint(store, &key, floor));
        writing.await?;
        self.checkpoint = Some(floor);
        self.last_checkpoint = (self.dispatcher.completed, Instant::now());
        Ok(())
    }

    /// Maximum number of connected consumers.
    fn consumers_max(&self) -> usize {
        let limit = usize::try_from(self.config.settings.max_subscriber_count).unwrap_or(0);
        let limit = if limit == 0 { GROUP_CONSUMERS_MAX } else { limit.min(GROUP_CONSUMERS_MAX) };
        fail_point!("group-admit-extra-consumer", |_| limit + 1);
        limit
    }

    /// Handles a command; those about parked events need the state of the parked stream.
    async fn receive(&mut self, message: GroupCommand) {
        match message {
            GroupCommand::TruncateParked(before, answer) => {
                let removed = self.remove_parked(before).await;
                let _ = answer.send(removed.map_err(|error| grpc_status::status(&error)));
            }
            message => {
                if matches!(message, GroupCommand::Info(_) | GroupCommand::Replay(..)) {
                    // Other writers may have deleted or truncated the parked stream.
                    let _ = self.refresh_parked().await;
                }
                self.handle(message).await;
            }
        }
    }

    async fn handle(&mut self, message: GroupCommand) {
        match message {
            GroupCommand::Connect(joining, answer) => {
                if self.connected.len() >= self.consumers_max() {
                    let _ = answer.send(Err(grpc_status::group_full(&self.key)));
                    return;
                }
                let id = self.dispatcher.connect(joining.capacity);
                let now = Instant::now();
                self.connected.insert(
                    id,
                    ConnectedConsumer {
                        request: joining,
                        rate: RateMeter::new(now),
                        last_taken: (0, now),
                    },
                );
                if answer.send(Ok(id)).is_err() {
                    self.disconnect(id).await;
                }
            }
            GroupCommand::Disconnect(id) => self.disconnect(id).await,
            GroupCommand::Ack(consumer, ids) => {
                let mut steps = BoundedSteps::default();
                for id in ids {
                    self.dispatcher.ack(consumer, &id);
                    steps.count(0).await;
                }
            }
            GroupCommand::Nack(consumer, ids, action) => {
                let mut steps = BoundedSteps::default();
                for id in ids {
                    self.dispatcher.nack(consumer, &id, &action);
                    steps.count(0).await;
                }
            }
            GroupCommand::Info(answer) => {
                let state = self.state();
                let _ = answer.send((self.stats().to_info(), state));
            }
            GroupCommand::ReadState(answer) => {
                let _ = answer.send(self.state());
            }
            GroupCommand::Replay(before, answer) => {
                let end = self.first_parked + self.parked_count;
                let until = before.min(end);
                let from = self.replayed.unwrap_or(0).max(self.first_parked);
                if until > from {
                    let from = self.replay_range.map_or(from, |(from, _)| from);
                    self.replay_range = Some((from, until));
                    self.replayed = Some(until);
                }
                let _ = answer.send(Ok(()));
            }
            GroupCommand::End(ended) => self.end_reply = Some(ended),
            // It needs the store.
            GroupCommand::TruncateParked(..) => {}
        }
    }

    fn state(&self) -> GroupState {
        let consumers = self.dispatcher.consumers();
        GroupState {
            consumers: consumers.len() as u64,
            in_flight: consumers.values().map(|consumer| consumer.in_flight() as u64).sum(),
            pending: self.dispatcher.tracked().0 as u64,
            sent: self.dispatcher.sent,
            checkpoint: self.checkpoint,
            last_read: self.last_read,
            parked_stream: self.parked_stream.clone(),
            first_parked: self.first_parked,
            parked: self.parked_count,
        }
    }

    fn stats(&mut self) -> GroupStats<'_> {
        let now = Instant::now();
        let mut sent_to = HashMap::new();
        for (id, consumer) in self.dispatcher.consumers() {
            if let Some(joined) = self.connected.get_mut(id) {
                sent_to.insert(*id, joined.rate.measure(consumer.sent, now));
            }
        }
        GroupStats {
            sent: self.rate.measure(self.dispatcher.sent, now),
            sent_by_consumer: sent_to,
            key: &self.key,
            config: &self.config,
            dispatcher: &self.dispatcher,
            connected: &self.connected,
            checkpoint: self.checkpoint,
            parked_count: self.parked_count,
        }
    }

    async fn disconnect(&mut self, id: ConsumerId) {
        self.connected.remove(&id);
        let mut steps = BoundedSteps::default();
        for key in self.dispatcher.disconnect(id) {
            self.dispatcher.reassign(key);
            steps.count(0).await;
        }
    }

    async fn disconnect_all(&mut self, status: &Status) {
        for (id, joined) in std::mem::take(&mut self.connected) {
            // It has capacity, unless the consumer left.
            let _ = joined.request.responses.try_send(Err(status.clone()));
            self.disconnect(id).await;
        }
    }
}

async fn wait_for_events(wakeup: Option<&Wakeup>) {
    match wakeup {
        Some(wakeup) => poll_fn(|context| wakeup.poll_wait(context)).await,
        None => pending().await,
    }
}

/// Pager of an open subscription. Each consumer's call hides the events that the consumer may not
/// read.
fn source_pager(config: &GroupConfig, subscription: Subscription) -> SubscriptionPager {
    let resolve_links = config.settings.resolve_links;
    let resolution =
        EventResolution { resolve_links, hides_streams: false, readable_streams: None };
    let interval = config.filter.is_some().then_some(u64::MAX);
    SubscriptionPager::new(subscription, interval, resolution)
}

/// Stored state of a group.
struct StoredGroup {
    checkpoint: Option<u64>,
    subscription: Subscription,
    /// Name of the stream of parked events.
    parked_stream: String,
    /// First parked revision, and the next free revision of the parked stream.
    parked: (u64, u64),
}

impl StoredGroup {
    fn read(store: &Store, key: &GroupKey, config: &GroupConfig) -> Result<StoredGroup, Error> {
        let checkpoint = checkpoint_store::read_checkpoint(store, key)?;
        let after = checkpoint.or(config.start_after);
        let subscription = subscribe(store, key, config, after)?;
        let (parked_stream, parked) = parked_stream::parked_range(store, &key.parked_stream())?;
        Ok(StoredGroup { checkpoint, subscription, parked_stream, parked })
    }
}

fn subscribe(
    store: &Store,
    key: &GroupKey,
    config: &GroupConfig,
    after: Option<u64>,
) -> Result<Subscription, Error> {
    let source = match (key.event_source(), config.compile_stored()?) {
        (Source::All, Some(filter)) => Source::Filtered(filter),
        (source, _) => source,
    };
    store.subscribe(source, after.map_or(SubscriptionStart::Start, SubscriptionStart::After))
}

/// Last revision or position of a group's source; `None` if it is empty.
pub fn last_position(store: &Store, key: &GroupKey) -> Result<Option<u64>, Error> {
    match key.event_source() {
        Source::Stream(name) => {
            let mut newest = store.read(&name, Revision::END, Direction::Backwards);
            Ok(newest.next().transpose()?.map(|event| event.revision))
        }
        Source::View(name) => Ok(store.view(&name, Position::END)?.map(|view| view.last)),
        Source::All | Source::Filtered(_) => {
            Ok(Some(store.visible_position().0).filter(|at| *at > 0))
        }
    }
}

mod event_fetch;
mod parked_state;

#[cfg(test)]
mod quota_tests;

/// Writes events to the parked stream of a group.
async fn write_parked(
    service: &ServerContext,
    key: &GroupKey,
    stream: String,
    parking: Vec<ParkRequest>,
) -> Result<(), Error> {
    fail_point!("group-park-without-write", |_| Ok(()));
    let added = service.env.clock.wall_micros();
    let is_of_view = key.is_of_view();
    let write = move |store: &Store| {
        parked_stream::append_parked(store, &stream, &parking, is_of_view, added)
    };
    service.store.blocking(write).await
}

#[cfg(test)]
mod tests;
