//! One group of consumers: a task that reads what the group is of, gives it to consumers, and keeps
//! what became of it in the store.
//!
//! What is parked is out of the group only once that is written; a checkpoint is behind no event
//! that is held. So after a crash everything that was not done comes again.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tonic::Status;
use umbel_events::{Direction, Error, Revision, Since, Store, StreamState, Subscribed};
use umbel_proto::persistent::{ReadResp, RetryCount, Sent, SentEvent};
use umbel_proto::streams::read_resp::EventPosition;

use crate::consumers::{ConsumerId, Consumers, Key, Sending, original};
use crate::deadline::Deadline;
use crate::follower::{Bell, Follower, Found};
use crate::group_config::GroupConfig;
use crate::group_info::Figures;
use crate::group_keep::{self, Trouble};
use crate::group_key::GroupKey;
use crate::group_message::{Joined, Message};
use crate::group_pace::Pace;
use crate::group_room::{Part, Wanted};
use crate::limits::{GROUP_CONSUMERS_MAX, GROUP_RETRY_TIME, GROUP_TICK, PARKED_AT_ONCE};
use crate::planted::{Bug, planted};
use crate::service::Service;
use crate::{convert, failure};

/// A group that is being served.
pub struct Group {
    service: Arc<Service>,
    /// Which.
    key: GroupKey,
    /// How it works.
    config: GroupConfig,
    /// Who gets what.
    consumers: Consumers,
    /// The checkpoint that is kept.
    checkpoint: Option<u64>,
    /// The last event that was read.
    last_known: Option<u64>,
    /// How many are parked.
    parked: u64,
    joined: HashMap<ConsumerId, Joined>,
    /// How many events it is sent in a second.
    pace: Pace,
    /// Taken away while it reads.
    follower: Option<Follower>,
    bell: Option<Bell>,
    is_at_the_end: bool,
    /// What is parked and to be sent again: from, to before.
    replay: Option<(u64, u64)>,
    /// Before which revision everything parked was to be sent again.
    replayed: Option<u64>,
    /// Before which revision nothing is parked any more, as it is kept.
    parked_from: u64,
    /// How many were done when the last checkpoint was written, and when that was.
    checkpointed: (u64, Instant),
    /// When what was refused is tried again.
    again: Option<Instant>,
    /// Whether what it keeps was refused, and was not written since.
    is_stuck: bool,
    /// What it holds of the room of all groups,
    part: Part,
    /// and whether others wait for some.
    wanted: Wanted,
    /// When it looks next for what it can let go of, while others wait.
    looks: Option<Instant>,
    /// How many events had been sent and were done when that last changed, and when that was.
    moved: (u64, Instant),
    ended: Option<oneshot::Sender<()>>,
}

impl Group {
    /// Goes on behind what is kept.
    pub async fn open(
        service: Arc<Service>,
        key: GroupKey,
        config: GroupConfig,
    ) -> Result<Group, Error> {
        let (of, settings) = (key.clone(), config.clone());
        let opened = service.store.blocking(move |store| Opened::read(store, &of, &settings));
        let opened = opened.await?;
        let after = opened.checkpoint.or(config.after);
        let clock = &service.env.clock;
        let resolves = config.settings.resolve_links;
        let interval = config.filter.is_some().then_some(u64::MAX);
        let follower = Follower::new(opened.subscription, clock, interval, resolves, false);
        Ok(Group {
            consumers: Consumers::new(&config, after),
            checkpoint: opened.checkpoint,
            last_known: after,
            parked: opened.parked.1 - opened.parked.0,
            joined: HashMap::new(),
            pace: Pace::new(Instant::now()),
            follower: Some(follower),
            bell: None,
            is_at_the_end: false,
            replay: None,
            replayed: None,
            parked_from: opened.parked.0,
            checkpointed: (0, Instant::now()),
            again: None,
            is_stuck: false,
            part: service.group_room.part(),
            wanted: service.group_room.wanted(),
            looks: None,
            moved: (0, Instant::now()),
            ended: None,
            service,
            key,
            config,
        })
    }

    /// Serves the group until it is told to end or nobody can ask it any more.
    pub async fn run(mut self, mut messages: mpsc::Receiver<Message>) {
        let service = Arc::clone(&self.service);
        loop {
            if let Err(trouble) = self.work().await {
                // Consumers learn it, and may come again.
                let status = self.told(&trouble);
                self.tell_all(&status);
                if matches!(trouble, Trouble::Source(Error::Deleted { .. })) {
                    return;
                }
                self.again = Instant::now().checked_add(GROUP_RETRY_TIME);
            }
            self.settle(Instant::now());
            let wait = Deadline::at(self.wakes());
            let (is_ready, follows) = (self.has_more(), self.follows());
            if !is_ready {
                self.part.leave();
            }
            let gives_back = self.consumers.held().1 > 0 && !self.wanted.is_now();
            tokio::select! {
                biased;
                message = messages.recv() => match message {
                    Some(message) => self.take(message),
                    None => return,
                },
                () = service.stopping() => {
                    // Whoever is connected is told by his call.
                    let _ = self.keep_checkpoint().await;
                    return;
                }
                () = self.part.page_comes(), if is_ready => {}
                () = self.wanted.comes(), if gives_back => {}
                () = rung(&mut self.bell), if follows => {
                    (self.bell, self.is_at_the_end) = (None, false);
                }
                () = wait.passed() => {}
            }
            if let Some(ended) = self.ended.take() {
                let _ = self.keep_checkpoint().await;
                self.tell_all(&failure::group_dropped(&self.key));
                // Who asked may have gone away.
                let _ = ended.send(());
                return;
            }
        }
    }

    /// Does what can be done without waiting for anybody.
    async fn work(&mut self) -> Result<(), Trouble> {
        let now = Instant::now();
        self.consumers.tick(now);
        if self.again.is_some_and(|again| again > now) {
            self.send(now);
            return Ok(());
        }
        self.again = None;
        self.write_parked().await.map_err(Trouble::Kept)?;
        self.read_parked().await.map_err(Trouble::Kept)?;
        self.read().await.map_err(Trouble::Source)?;
        // What was missing to be parked may be there now.
        self.write_parked().await.map_err(Trouble::Kept)?;
        self.send(Instant::now());
        if self.checkpoint_is_due(now) {
            self.keep_checkpoint().await.map_err(Trouble::Kept)?;
        }
        self.is_stuck = false;
        Ok(())
    }

    /// What consumers are told of why the group does not go on; the log is, too, when it begins.
    fn told(&mut self, trouble: &Trouble) -> Status {
        match trouble {
            Trouble::Source(error) => failure::status(error),
            Trouble::Kept(error) => {
                if !std::mem::replace(&mut self.is_stuck, true) {
                    let (stream, group) = (self.key.source(), &self.key.group);
                    tracing::warn!(stream, group, %error, "a group cannot keep what it did");
                }
                failure::group_stuck(&self.key, error)
            }
        }
    }

    /// When something is to be done although nothing comes.
    fn wakes(&self) -> Option<Instant> {
        let (_, at) = self.checkpointed;
        let wait = self.config.checkpoint_after.max(GROUP_TICK);
        let is_worth = self.has_news() && self.has_enough_news();
        let checkpoint = is_worth.then(|| at.checked_add(wait)).flatten();
        let checkpoint = checkpoint.map(|at| at.max(Instant::now() + GROUP_TICK));
        [self.consumers.due(), self.again, checkpoint, self.looks].into_iter().flatten().min()
    }

    /// Writes down what is to be parked.
    async fn write_parked(&mut self) -> Result<(), Error> {
        loop {
            let parking = self.consumers.to_park(PARKED_AT_ONCE);
            if parking.is_empty() {
                return self.keep_parked().await;
            }
            let keys: Vec<Key> = parking.iter().map(|(key, ..)| *key).collect();
            let added = self.service.env.clock.wall_micros();
            let stream = self.key.parked_stream();
            let is_of_view = self.key.is_of_view();
            let write =
                move |store: &Store| group_keep::park(store, &stream, &parking, is_of_view, added);
            if !planted(Bug::ParkedUnwritten) {
                self.service.store.blocking(write).await?;
            }
            self.parked += keys.len() as u64;
            for key in keys {
                self.consumers.finish(key);
            }
        }
    }

    /// Takes from the stream of parked events what was sent again and is done.
    async fn keep_parked(&mut self) -> Result<(), Error> {
        let Some(replayed) = self.replayed else { return Ok(()) };
        let rest = self.replay.map(|(from, _)| from);
        let held = self.consumers.first_parked().filter(|_| !planted(Bug::ReplayTruncatesEarly));
        let first = held.or(rest).unwrap_or(replayed);
        if first > self.parked_from {
            let stream = self.key.parked_stream();
            self.service
                .store
                .blocking(move |store| group_keep::truncate(store, &stream, first))
                .await?;
            self.parked = self.parked.saturating_sub(first - self.parked_from);
            self.parked_from = first;
        }
        Ok(())
    }

    /// Gives events to whoever has room.
    fn send(&mut self, now: Instant) {
        while let Some(Sending { consumer, event, retries }) = self.consumers.next(now) {
            let Some(joined) = self.joined.get(&consumer) else { continue };
            let form = joined.joining.form;
            let position = match original(&event) {
                Some(original) => EventPosition::CommitPosition(original.position),
                None => EventPosition::NoPosition(()),
            };
            let sent = SentEvent {
                event: event.event.clone().map(|event| convert::recorded(event, form)),
                link: event.link.clone().map(|event| convert::recorded(event, form)),
                position: Some(position),
                count: Some(RetryCount::Times(i32::try_from(retries).unwrap_or(i32::MAX))),
            };
            let answer = Ok(ReadResp { content: Some(Sent::Event(sent)) });
            if joined.joining.answers.try_send(answer).is_err() {
                // It went away, or did not take what it said was done.
                self.joined.remove(&consumer);
                self.consumers.disconnect(consumer);
            }
        }
    }

    fn has_news(&self) -> bool {
        self.consumers.done > self.checkpointed.0 && self.consumers.floor() > self.checkpoint
    }

    fn checkpoint_is_due(&self, now: Instant) -> bool {
        let most = u64::try_from(self.config.settings.max_checkpoint_count).unwrap_or(0);
        let done = self.consumers.done - self.checkpointed.0;
        let waited = now.saturating_duration_since(self.checkpointed.1);
        let is_full = most > 0 && done >= most;
        let is_old = self.has_enough_news() && waited >= self.config.checkpoint_after;
        self.has_news() && (is_full || is_old)
    }

    /// Whether so many are done that a checkpoint is worth while.
    fn has_enough_news(&self) -> bool {
        let least = u64::try_from(self.config.settings.min_checkpoint_count).unwrap_or(0);
        self.consumers.done - self.checkpointed.0 >= least.max(1)
    }

    /// Writes down up to where all is done.
    async fn keep_checkpoint(&mut self) -> Result<(), Error> {
        if !self.has_news() {
            return Ok(());
        }
        let Some(floor) = self.consumers.floor() else { return Ok(()) };
        let key = self.key.clone();
        let writing = self
            .service
            .store
            .blocking(move |store| group_keep::write_checkpoint(store, &key, floor));
        writing.await?;
        self.checkpoint = Some(floor);
        self.checkpointed = (self.consumers.done, Instant::now());
        Ok(())
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Connect(joining, answer) => {
                let most = usize::try_from(self.config.settings.max_subscriber_count).unwrap_or(0);
                let most = if most == 0 { GROUP_CONSUMERS_MAX } else { most };
                #[cfg(feature = "canary")]
                let most =
                    most + usize::from(umbel_base::canary::Switch::ServerGroupOneMore.is_on());
                if self.joined.len() >= most.min(GROUP_CONSUMERS_MAX) {
                    let _ = answer.send(Err(failure::group_full(&self.key)));
                    return;
                }
                let id = self.consumers.connect(joining.room);
                let now = Instant::now();
                self.joined.insert(id, Joined { joining, pace: Pace::new(now), taken: (0, now) });
                if answer.send(Ok(id)).is_err() {
                    self.leave(id);
                }
            }
            Message::Disconnect(id) => self.leave(id),
            Message::Ack(id, ids) => self.consumers.ack(id, &ids),
            Message::Nack(id, ids, action) => self.consumers.nack(id, &ids, &action),
            Message::Info(answer) => {
                let _ = answer.send(self.figures().said());
            }
            Message::Replay(before, answer) => {
                let end = self.parked_from + self.parked;
                let until = before.min(end);
                let from = self.replayed.unwrap_or(0).max(self.parked_from);
                if until > from {
                    let from = self.replay.map_or(from, |(from, _)| from);
                    self.replay = Some((from, until));
                    self.replayed = Some(until);
                }
                let _ = answer.send(Ok(()));
            }
            Message::End(ended) => self.ended = Some(ended),
        }
    }

    fn figures(&mut self) -> Figures<'_> {
        let now = Instant::now();
        let mut sent_to = HashMap::new();
        for (id, consumer) in self.consumers.consumers() {
            if let Some(joined) = self.joined.get_mut(id) {
                sent_to.insert(*id, joined.pace.measure(consumer.sent, now));
            }
        }
        Figures {
            sent: self.pace.measure(self.consumers.sent, now),
            sent_to,
            key: &self.key,
            config: &self.config,
            consumers: &self.consumers,
            joined: &self.joined,
            checkpoint: self.checkpoint,
            last_known: self.last_known,
            parked: self.parked,
        }
    }

    fn leave(&mut self, id: ConsumerId) {
        self.joined.remove(&id);
        self.consumers.disconnect(id);
    }

    fn tell_all(&mut self, status: &Status) {
        for (id, joined) in std::mem::take(&mut self.joined) {
            // There is room for it, unless the consumer went away.
            let _ = joined.joining.answers.try_send(Err(status.clone()));
            self.consumers.disconnect(id);
        }
    }
}

async fn rung(bell: &mut Option<Bell>) {
    match bell {
        Some(bell) => bell.rung().await,
        None => std::future::pending().await,
    }
}

/// What is kept of a group.
struct Opened {
    checkpoint: Option<u64>,
    subscription: umbel_events::Subscription,
    /// The first revision that is parked, and the one that comes next.
    parked: (u64, u64),
}

impl Opened {
    fn read(store: &Store, key: &GroupKey, config: &GroupConfig) -> Result<Opened, Error> {
        let checkpoint = group_keep::read_checkpoint(store, key)?;
        let after = checkpoint.or(config.after);
        let subscription = subscribe(store, key, config, after)?;
        let parked = match store.stream(&key.parked_stream())? {
            StreamState::Live { first, last } => (first.min(last + 1), last + 1),
            StreamState::Deleted { last } => (last + 1, last + 1),
            StreamState::Missing | StreamState::Tombstoned => (0, 0),
        };
        Ok(Opened { checkpoint, subscription, parked })
    }
}

fn subscribe(
    store: &Store,
    key: &GroupKey,
    config: &GroupConfig,
    after: Option<u64>,
) -> Result<umbel_events::Subscription, Error> {
    let what = match (&key.stream, config.compile()?) {
        (Some(name), _) if key.is_of_view() => Subscribed::View(name.clone()),
        (Some(name), _) => Subscribed::Stream(name.clone()),
        (None, None) => Subscribed::All,
        (None, Some(filter)) => Subscribed::Filtered(filter),
    };
    store.subscribe(what, after.map_or(Since::Start, Since::After))
}

/// The last place there is of what a group is of; `None` before the first.
pub fn end(store: &Store, key: &GroupKey) -> Result<Option<u64>, Error> {
    let Some(name) = &key.stream else { return Ok(Some(store.visible().0).filter(|at| *at > 0)) };
    if key.is_of_view() {
        return Ok(store.view(name, umbel_events::Position::END)?.map(|view| view.last));
    }
    let mut newest = store.read(name, Revision::END, Direction::Backwards);
    Ok(newest.next().transpose()?.map(|event| event.revision))
}

#[path = "group_reading.rs"]
mod reading;
#[cfg(test)]
#[path = "group_room_tests.rs"]
mod room_tests;
#[cfg(test)]
#[path = "group_model_tests.rs"]
mod tests;
