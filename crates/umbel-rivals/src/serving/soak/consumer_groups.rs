//! Groups that stay, with consumers who acknowledge, park and ask again; and those that come and
//! go.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use umbel_proto::persistent::{NackAction, RetryCount};

use super::consumer::{Consumer, Name, Of};
use super::events::told;
use super::ground::{Done, Ground, Phase};
use super::ledger::{stream_name, stream_of};
use super::plan::{APPENDERS, Kind, STREAMS};
use crate::serving::connection::Connection;
use crate::serving::messages::{mix, now};

/// Consumers of each group that stays.
const CONSUMERS: usize = 2;
/// After so long one of them leaves and joins again.
const STAYS: Duration = Duration::from_secs(20);
/// After so long what is parked is sent again.
const PARKED: Duration = Duration::from_secs(30);
/// Of so many events one is parked, and one asked for again.
const REFUSED: u64 = 100;
/// Events that a consumer of a group that goes again takes.
const TAKEN: u64 = 5;

/// A group that stays.
#[derive(Debug)]
struct Group {
    name: Name,
    /// The streams whose events it gives.
    streams: Vec<usize>,
    /// Writer and number of every event that was given.
    given: Mutex<HashSet<(usize, u64)>>,
    sent: AtomicU64,
    /// Everything is acknowledged from now on.
    is_draining: AtomicBool,
}

/// The groups that stay.
#[derive(Debug)]
pub(super) struct Groups(Vec<Arc<Group>>);

impl Groups {
    /// Makes them and has their consumers join: two of a stream each, one of all events of one
    /// writer's streams.
    pub(super) async fn begin(ground: &Arc<Ground>) -> Done<Groups> {
        let of_stream = |stream: usize| (Of::Stream(stream_name(stream)), vec![stream]);
        let writer = APPENDERS + 1;
        let prefix = stream_name(stream_of(writer, 0));
        let prefix = prefix[..prefix.len() - 2].to_string();
        let streams = (0..STREAMS as u64).map(|choice| stream_of(writer, choice)).collect();
        let all =
            [of_stream(0), of_stream(ground.ledger.streams() - 1), (Of::All(prefix), streams)];
        let connection = ground.connect().await?;
        let mut groups = Vec::new();
        for (at, (of, streams)) in all.into_iter().enumerate() {
            let name = Name { of, group: format!("soak-stays-{at}") };
            name.create(&connection).await?;
            let group = Arc::new(Group {
                name,
                streams,
                given: Mutex::default(),
                sent: AtomicU64::new(0),
                is_draining: AtomicBool::new(false),
            });
            for consumer in 0..CONSUMERS {
                tokio::spawn(consume(Arc::clone(ground), Arc::clone(&group), consumer == 0));
            }
            tokio::spawn(replay(Arc::clone(ground), Arc::clone(&group)));
            groups.push(group);
        }
        Ok(Groups(groups))
    }

    /// Their names.
    pub(super) fn names(&self) -> Vec<String> {
        self.0.iter().map(|group| group.name.group.clone()).collect()
    }

    /// How many events were sent, and how many different ones they were.
    pub(super) fn sent(&self) -> (u64, u64) {
        let sent = self.0.iter().map(|group| group.sent.load(Ordering::SeqCst)).sum();
        (sent, self.0.iter().map(|group| group.given()).sum())
    }

    /// Has everything acknowledged from now on, and waits until nothing is left to be done.
    /// REQUIRES: nobody appends to the streams that grow.
    pub(super) async fn finish(&self, ground: &Ground, patience: Duration) -> Done {
        let connection = ground.connect().await?;
        for group in &self.0 {
            group.is_draining.store(true, Ordering::SeqCst);
            let wanted = group.streams.iter().map(|stream| ground.ledger.in_stream(*stream)).sum();
            let finished = tokio::time::timeout(patience, group.finish(&connection, wanted)).await;
            if let Ok(finished) = finished {
                finished?;
            } else {
                let (given, info) = (group.given(), group.name.info(&connection).await?);
                return Err(format!("a group gave {given} of {wanted} events; {info:?}"));
            }
        }
        Ok(())
    }
}

impl Group {
    fn given(&self) -> u64 {
        self.given.lock().unwrap_or_else(PoisonError::into_inner).len() as u64
    }

    async fn finish(&self, connection: &Connection, wanted: u64) -> Done {
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

/// A consumer of a group that stays, until the end.
async fn consume(ground: Arc<Ground>, group: Arc<Group>, comes_and_goes: bool) {
    let stays = if comes_and_goes { STAYS } else { Duration::MAX };
    while !ground.is_in(Phase::Ended) && !ground.is_hopeless() {
        if let Err(text) = join(&ground, &group, stays).await
            && !ground.is_in(Phase::Ended)
        {
            ground.ledger.wrong(format!("a consumer of {}: {text}", group.name.group));
        }
    }
}

/// Joins, and leaves with the first event after so long.
async fn join(ground: &Ground, group: &Group, stays: Duration) -> Done {
    let connection = ground.connect().await?;
    let mut consumer = Consumer::join(&connection, &group.name).await?;
    let since = Instant::now();
    for count in 1u64.. {
        let sent = consumer.next().await?;
        if since.elapsed() > stays {
            break;
        }
        group.sent.fetch_add(1, Ordering::SeqCst);
        let is_first = sent.count == Some(RetryCount::Times(0)) && sent.link.is_none();
        let said = sent.event.as_ref().and_then(|event| told(&event.data));
        let said = said.ok_or("a group gave an event that is none of the soak's")?;
        let mut given = group.given.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = given.insert((said.writer, said.number));
        drop(given);
        if is_new {
            let time = now().saturating_sub(said.made_at);
            ground.times.add(Kind::DeliveryGroup, Duration::from_micros(time));
        }
        let refuses = is_first && !group.is_draining.load(Ordering::SeqCst);
        match count % REFUSED {
            7 if refuses => consumer.not_done(&sent, NackAction::Park)?,
            13 if refuses => consumer.not_done(&sent, NackAction::Retry)?,
            _ => consumer.done(&sent)?,
        }
    }
    Ok(())
}

/// Has sent again what is parked, from time to time.
async fn replay(ground: Arc<Ground>, group: Arc<Group>) {
    loop {
        tokio::time::sleep(PARKED).await;
        if ground.is_in(Phase::Stopping) || ground.is_hopeless() {
            return;
        }
        let replayed = async { group.name.replay(&ground.connect().await?).await };
        if let Err(text) = replayed.await
            && !ground.is_in(Phase::Ended)
        {
            ground.ledger.wrong(format!("{}: {text}", group.name.group));
        }
    }
}

/// Makes a group, takes some events as its consumer, asks for it, leaves and deletes it.
pub(super) async fn come_and_go(ground: &Ground, connection: &Connection, call: u64) -> Done<bool> {
    let stream = (mix(call) % ground.ledger.streams() as u64) as usize;
    let events = ground.ledger.in_stream(stream);
    let name = Name { of: Of::Stream(stream_name(stream)), group: format!("soak-goes-{call}") };
    name.create(connection).await?;
    let mut consumer = Consumer::join(connection, &name).await?;
    for wanted in 0..events.min(TAKEN) {
        let sent = consumer.next().await?;
        let revision = sent.event.as_ref().map(|event| event.stream_revision);
        if revision != Some(wanted) {
            return Err(format!("a new group gave {revision:?} for {wanted}"));
        }
        consumer.done(&sent)?;
    }
    let consumers = name.info(connection).await?.connections.len();
    if consumers != 1 {
        return Err(format!("a group with one consumer has {consumers}"));
    }
    drop(consumer);
    name.delete(connection).await?;
    Ok(true)
}
