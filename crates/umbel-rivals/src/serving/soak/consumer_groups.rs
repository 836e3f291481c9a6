//! Long-lived consumer groups, whose consumers acknowledge, park and retry; and short-lived groups.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use umbel_base::ignore_poison::IgnorePoison;

use umbel_proto::persistent::{NackAction, RetryCount};

use crate::serving::messages::{mix, now};
use crate::serving::soak::group_consumer::{GroupConsumer, GroupName, GroupSource};
use crate::serving::soak::soak_context::{SoakContext, SoakPhase, WorkResult};
use crate::serving::soak::soak_event::event_info;
use crate::serving::soak::soak_oracle::{stream_name, stream_of};
use crate::serving::soak::soak_plan::{APPENDERS, STREAMS, SoakWork};
use umbel_testing::server_connection::Connection;

/// Number of consumers of each long-lived group.
const CONSUMERS: usize = 2;
/// Time after which a consumer of a long-lived group leaves and joins again.
const STAYS: Duration = Duration::from_secs(20);
/// Interval of the replays of parked events.
const PARKED: Duration = Duration::from_secs(30);
/// One of this many events is parked, and one is retried.
const REFUSED: u64 = 100;
/// Events that the consumer of a short-lived group receives.
const TAKEN: u64 = 5;

/// Group that exists during the whole soak.
#[derive(Debug)]
struct LastingGroup {
    name: GroupName,
    /// Streams whose events the group sends.
    streams: Vec<usize>,
    /// Writer and number of every event that the group sent.
    given: Mutex<HashSet<(usize, u64)>>,
    sent: AtomicU64,
    /// Whether consumers acknowledge every event from now on.
    is_draining: AtomicBool,
}

/// Groups that exist during the whole soak.
#[derive(Debug)]
pub(super) struct LastingGroups(Vec<Arc<LastingGroup>>);

impl LastingGroups {
    /// Creates the groups and starts their consumers: two groups of one stream each, and a group of
    /// all events of one writer's streams.
    pub(super) async fn begin(context: &Arc<SoakContext>) -> WorkResult<LastingGroups> {
        let of_stream = |stream: usize| (GroupSource::Stream(stream_name(stream)), vec![stream]);
        let writer = APPENDERS + 1;
        let prefix = stream_name(stream_of(writer, 0));
        let prefix = prefix[..prefix.len() - 2].to_string();
        let streams = (0..STREAMS as u64).map(|choice| stream_of(writer, choice)).collect();
        let all = [
            of_stream(0),
            of_stream(context.oracle.streams() - 1),
            (GroupSource::All(prefix), streams),
        ];
        let connection = context.connect().await?;
        let mut groups = Vec::new();
        for (at, (of, streams)) in all.into_iter().enumerate() {
            let name = GroupName { of, group: format!("soak-stays-{at}") };
            name.create(&connection).await?;
            let group = Arc::new(LastingGroup {
                name,
                streams,
                given: Mutex::default(),
                sent: AtomicU64::new(0),
                is_draining: AtomicBool::new(false),
            });
            for consumer in 0..CONSUMERS {
                tokio::spawn(consume(Arc::clone(context), Arc::clone(&group), consumer == 0));
            }
            tokio::spawn(replay(Arc::clone(context), Arc::clone(&group)));
            groups.push(group);
        }
        Ok(LastingGroups(groups))
    }

    /// Returns the names of the groups.
    pub(super) fn names(&self) -> Vec<String> {
        self.0.iter().map(|group| group.name.group.clone()).collect()
    }

    /// Returns the number of events that were sent, and the number of distinct events.
    pub(super) fn sent(&self) -> (u64, u64) {
        let sent = self.0.iter().map(|group| group.sent.load(Ordering::SeqCst)).sum();
        (sent, self.0.iter().map(|group| group.given()).sum())
    }

    /// Makes consumers acknowledge every event, and waits until no event is outstanding.
    /// REQUIRES: no client appends to the growing streams.
    pub(super) async fn finish(&self, context: &SoakContext, timeout: Duration) -> WorkResult {
        let connection = context.connect().await?;
        for group in &self.0 {
            group.is_draining.store(true, Ordering::SeqCst);
            let wanted = group.streams.iter().map(|stream| context.oracle.in_stream(*stream)).sum();
            let finished = tokio::time::timeout(timeout, group.finish(&connection, wanted)).await;
            if let Ok(finished) = finished {
                finished?;
            } else {
                let (given, info) = (group.given(), group.name.info(&connection).await?);
                return Err(format!("a group sent {given} of {wanted} events; {info:?}"));
            }
        }
        Ok(())
    }
}

impl LastingGroup {
    fn given(&self) -> u64 {
        self.given.lock().ignore_poison().len() as u64
    }

    async fn finish(&self, connection: &Connection, wanted: u64) -> WorkResult {
        loop {
            let info = self.name.info(connection).await?;
            let is_idle = info.parked_message_count == 0
                && info.total_in_flight_messages == 0
                && info.retry_buffer_count == 0;
            if is_idle && self.given() == wanted {
                return Ok(());
            }
            if info.parked_message_count > 0 && info.total_in_flight_messages == 0 {
                self.name.replay(connection).await?;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}

/// Runs a consumer of a long-lived group, until the end.
async fn consume(context: Arc<SoakContext>, group: Arc<LastingGroup>, rejoins: bool) {
    let stays = if rejoins { STAYS } else { Duration::MAX };
    while !context.has_reached(SoakPhase::Ended) && !context.has_too_many_errors() {
        if let Err(text) = join(&context, &group, stays).await
            && !context.has_reached(SoakPhase::Ended)
        {
            context.oracle.wrong(format!("a consumer of {}: {text}", group.name.group));
        }
    }
}

/// Joins the group, and leaves with the first event after the given time.
async fn join(context: &SoakContext, group: &LastingGroup, stays: Duration) -> WorkResult {
    let connection = context.connect().await?;
    let mut consumer = GroupConsumer::join(&connection, &group.name).await?;
    let since = Instant::now();
    for count in 1u64.. {
        let sent = consumer.next().await?;
        if since.elapsed() > stays {
            break;
        }
        group.sent.fetch_add(1, Ordering::SeqCst);
        let is_first = sent.count == Some(RetryCount::RetryCount(0)) && sent.link.is_none();
        let info = sent.event.as_ref().and_then(|event| event_info(&event.data));
        let info = info.ok_or("a group sent an event that is not one of the soak")?;
        let mut given = group.given.lock().ignore_poison();
        let is_new = given.insert((info.writer, info.number));
        drop(given);
        if is_new {
            let time = now().saturating_sub(info.made_at);
            context.times.add(SoakWork::DeliveryGroup, Duration::from_micros(time));
        }
        let refuses = is_first && !group.is_draining.load(Ordering::SeqCst);
        match count % REFUSED {
            7 if refuses => consumer.refuse(&sent, NackAction::Park)?,
            13 if refuses => consumer.refuse(&sent, NackAction::Retry)?,
            _ => consumer.acknowledge(&sent)?,
        }
    }
    Ok(())
}

/// Replays parked events from time to time.
async fn replay(context: Arc<SoakContext>, group: Arc<LastingGroup>) {
    loop {
        tokio::time::sleep(PARKED).await;
        if context.has_reached(SoakPhase::Stopping) || context.has_too_many_errors() {
            return;
        }
        let replayed = async { group.name.replay(&context.connect().await?).await };
        if let Err(text) = replayed.await
            && !context.has_reached(SoakPhase::Ended)
        {
            context.oracle.wrong(format!("{}: {text}", group.name.group));
        }
    }
}

/// Creates a group, receives some events as its consumer, requests its state, leaves and deletes
/// it.
pub(super) async fn use_short_group(
    context: &SoakContext,
    connection: &Connection,
    call: u64,
) -> WorkResult<bool> {
    let stream = (mix(call) % context.oracle.streams() as u64) as usize;
    let events = context.oracle.in_stream(stream);
    let name = GroupName {
        of: GroupSource::Stream(stream_name(stream)),
        group: format!("soak-goes-{call}"),
    };
    name.create(connection).await?;
    let mut consumer = GroupConsumer::join(connection, &name).await?;
    for wanted in 0..events.min(TAKEN) {
        let sent = consumer.next().await?;
        let revision = sent.event.as_ref().map(|event| event.stream_revision);
        if revision != Some(wanted) {
            return Err(format!("a new group sent revision {revision:?} in place of {wanted}"));
        }
        consumer.acknowledge(&sent)?;
    }
    let consumers = name.info(connection).await?.connections.len();
    if consumers != 1 {
        return Err(format!("a group with one consumer has {consumers}"));
    }
    drop(consumer);
    name.delete(connection).await?;
    Ok(true)
}
