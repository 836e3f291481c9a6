//! Seeded scripts of a group on a store, compared with a model of its deliveries. The test controls
//! the clock and the order: it calls the steps of the group's task instead of running it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use umbel_events::{EventId, ExpectedVersion, NewEvent, RecordedEvent, ResolvedEvent};
use umbel_proto::persistent::{
    CheckpointAfter, CreateOptions, GroupAllOptions, GroupOrigin, GroupStart, MessageTimeout,
    Settings,
};
use umbel_proto::streams::read_req::{
    Expression, Filter, FilterOptions, StreamOptions, UuidForm, Window,
};
use umbel_sim::Random;

use super::*;
use crate::consumer_groups::dispatcher::NackDecision;
use crate::consumer_groups::group_command::{ConsumerRequest, ConsumerResponse};
use crate::services::persistent_subscriptions::group_manager::GroupChange;
use crate::test_support::test_service::{TestService, run_paused};

/// Number of scripts in a test run; `UMBEL_GROUP_SEEDS` sets another one.
const SEEDS: u64 = 300;
/// Number of scripts that must detect each failpoint.
#[cfg(feature = "failpoints")]
const FAILPOINT_SEEDS: u64 = 300;
const STRATEGIES: [&str; 4] = ["DispatchToSingle", "RoundRobin", "Pinned", "PinnedByCorrelation"];

mod delivery_checks;

type CheckResult = Result<(), String>;

/// A consumer's own record of deliveries.
struct DeliveryRecord {
    answers: mpsc::Receiver<ConsumerResponse>,
    capacity: usize,
    /// Events in flight: id for the ack, delivery time, and pin.
    has: BTreeMap<EventKey, (EventId, Instant, String)>,
    /// Ids of events that the consumer had in flight earlier.
    had: Vec<EventId>,
}

/// Model of one life of the group, from one open to the next.
#[derive(Default)]
struct EventModel {
    consumers: BTreeMap<ConsumerId, DeliveryRecord>,
    retries: BTreeMap<EventKey, u32>,
    parking: BTreeSet<EventKey>,
    done: BTreeSet<EventKey>,
    given: BTreeSet<EventKey>,
    /// Consumers that got an event in the group's last step.
    fed: BTreeSet<ConsumerId>,
    /// Last delivered position, for each pin if the strategy uses pins.
    last: BTreeMap<String, u64>,
    after: Option<u64>,
}

struct GroupModel<'a> {
    fixture: &'a TestService,
    random: Random,
    seed: u64,
    strategy: &'static str,
    key: GroupKey,
    config: GroupConfig,
    group: Option<GroupTask>,
    life: EventModel,
    /// Appended events with their pins.
    source: BTreeMap<u64, String>,
    /// Positions of the events that links point at.
    positions: HashMap<String, u64>,
    done: BTreeSet<u64>,
    /// Target of each parked link, by its revision.
    links: Vec<u64>,
    links_done: BTreeSet<u64>,
    checkpoint: Option<u64>,
}

fn error_text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> CheckResult {
    if holds { Ok(()) } else { Err(otherwise()) }
}

impl<'a> GroupModel<'a> {
    async fn new(fixture: &'a TestService, seed: u64) -> Result<GroupModel<'a>, String> {
        let mut random = Random::new(seed);
        let strategy = STRATEGIES[random.below(4) as usize];
        let of_all = random.below(4) == 0;
        let stream = format!("s-{seed}");
        let (key, config) = settings(&mut random, strategy, (!of_all).then_some(&stream));
        let mut model = GroupModel {
            fixture,
            random,
            seed,
            strategy,
            key,
            config,
            group: None,
            life: EventModel::default(),
            source: BTreeMap::new(),
            positions: HashMap::new(),
            done: BTreeSet::new(),
            links: Vec::new(),
            links_done: BTreeSet::new(),
            checkpoint: None,
        };
        if of_all {
            model.config.start_after =
                last_position(&fixture.store, &model.key).map_err(error_text)?;
        }
        model.open().await?;
        Ok(model)
    }

    /// Opens the group: only the stored state survives.
    async fn open(&mut self) -> CheckResult {
        let service = Arc::clone(&self.fixture.service);
        let group = GroupTask::open(service, self.key.clone(), self.config.clone()).await;
        self.group = Some(group.map_err(error_text)?);
        let after = checkpoint_store::read_checkpoint(&self.fixture.store, &self.key)
            .map_err(error_text)?;
        self.life =
            EventModel { after: after.or(self.config.start_after), ..EventModel::default() };
        Ok(())
    }

    fn group(&mut self) -> &mut GroupTask {
        self.group.as_mut().expect("the group is open")
    }

    fn step_kind(&mut self) -> u64 {
        self.random.below(20)
    }

    async fn step(&mut self) -> CheckResult {
        match self.step_kind() {
            0..4 => self.append()?,
            4 | 5 => {
                let capacity = 1 + self.random.below(6) as usize;
                self.connect(capacity).await?;
            }
            6 => {
                if let Some(id) = self.random_consumer() {
                    // The consumer left, or announced that it stops.
                    self.group().handle(GroupCommand::Disconnect(id)).await;
                    let removed = self.life.consumers.remove(&id);
                    for key in removed.into_iter().flat_map(|removed| removed.has.into_keys()) {
                        *self.life.retries.entry(key).or_default() += 1;
                    }
                }
            }
            7..12 => self.answer(None).await,
            12 => self.answer(Some(NackDecision::Park("no".into()))).await,
            13 => self.answer(Some(NackDecision::Retry)).await,
            14 => self.answer(Some(NackDecision::Skip)).await,
            15 => self.answer_wrongly().await,
            16 => tokio::time::advance(Duration::from_millis(self.random.below(1500))).await,
            17 => {
                let limit = if self.random.below(2) == 0 { u64::MAX } else { self.random.below(5) };
                self.replay(limit).await;
            }
            18 if self.random.below(2) == 0 => {
                // New settings: the checkpoint is stored, and the group restarts. Events that wait
                // to be parked must come again.
                self.answer(Some(NackDecision::Park("no".into()))).await;
                self.group().write_checkpoint().await.map_err(error_text)?;
                self.check_kept()?;
                let stream = self.key.stream.clone();
                let after = self.config.start_after;
                let (_, config) = settings(&mut self.random, self.strategy, stream.as_ref());
                self.config = GroupConfig { start_after: after, ..config };
                self.open().await?;
            }
            // A crash.
            19 if self.random.below(2) == 0 => self.open().await?,
            _ => {}
        }
        if self.random.below(4) > 0 { self.work().await } else { Ok(()) }
    }

    fn append(&mut self) -> CheckResult {
        let store = &self.fixture.store;
        for _ in 0..=self.random.below(4) {
            let number = self.random.below(4);
            let correlation = format!("{}-c-{number}", self.seed);
            let metadata = format!(r#"{{"$correlationId":"{correlation}"}}"#);
            let stream = match &self.key.stream {
                Some(stream) => stream.clone(),
                None => format!("all-{}-{number}", self.seed),
            };
            let id = store.new_id().map_err(error_text)?;
            let event = NewEvent::json(id, "Counted", b"{}").with_metadata(metadata.as_bytes());
            let done = store.append(&stream, ExpectedVersion::Any, &[event]).map_err(error_text)?;
            let revision = done.last.ok_or("no revision")?;
            let position = match self.key.stream {
                Some(_) => revision,
                None => done.position.ok_or("no position")?,
            };
            self.positions.insert(format!("{revision}@{stream}"), position);
            let pin = if self.strategy == "PinnedByCorrelation" { correlation } else { stream };
            self.source.insert(position, pin);
        }
        self.signal_new_events();
        Ok(())
    }

    /// Signals new events to the group, as the task would notice them.
    fn signal_new_events(&mut self) {
        self.group().is_caught_up = false;
    }

    async fn connect(&mut self, capacity: usize) -> Result<ConsumerId, String> {
        let (id, answers) = join(self.group(), capacity).await?;
        let seen = DeliveryRecord { answers, capacity, has: BTreeMap::new(), had: Vec::new() };
        self.life.consumers.insert(id, seen);
        Ok(id)
    }

    fn random_consumer(&mut self) -> Option<ConsumerId> {
        let count = self.life.consumers.len() as u64;
        let at = if count == 0 { return None } else { self.random.below(count) };
        self.life.consumers.keys().nth(at as usize).copied()
    }

    /// A consumer sends an ack or a nack for some of its events.
    async fn answer(&mut self, action: Option<NackDecision>) {
        let Some(id) = self.random_consumer() else { return };
        let of_own = |key: &EventKey, positions: &HashMap<String, u64>| match key {
            EventKey::Parked(_) => true,
            EventKey::Source(position) => positions.values().any(|own| own == position),
        };
        let has = self.life.consumers[&id].has.clone();
        let has =
            has.into_iter().filter(|(key, _)| action.is_none() || of_own(key, &self.positions));
        let chosen: Vec<_> = has.filter(|_| self.random.below(3) > 0).collect();
        let ids: Vec<EventId> = chosen.iter().map(|(_, (id, ..))| *id).collect();
        for (key, _) in chosen {
            self.life.consumers.get_mut(&id).expect("the consumer is connected").has.remove(&key);
            match &action {
                None | Some(NackDecision::Skip) => self.finish(key),
                Some(NackDecision::Park(_)) => drop(self.life.parking.insert(key)),
                Some(NackDecision::Retry) => self.retry(key),
            }
        }
        let message = match action {
            None => GroupCommand::Ack(id, ids),
            Some(action) => GroupCommand::Nack(id, ids, action),
        };
        self.group().handle(message).await;
    }

    /// A consumer acks events that are not in flight to it.
    async fn answer_wrongly(&mut self) {
        let Some(id) = self.random_consumer() else { return };
        let all = self.life.consumers.values();
        let has =
            |event: &EventId| self.life.consumers[&id].has.values().any(|(own, ..)| own == event);
        let ids: Vec<EventId> =
            all.flat_map(|seen| &seen.had).copied().filter(|event| !has(event)).collect();
        self.group().handle(GroupCommand::Ack(id, ids)).await;
    }

    async fn replay(&mut self, before: u64) {
        let (answer, _told) = oneshot::channel();
        self.group().handle(GroupCommand::Replay(before, answer)).await;
    }

    fn finish(&mut self, key: EventKey) {
        self.life.done.insert(key);
        match key {
            EventKey::Source(position) => self.done.insert(position),
            EventKey::Parked(revision) => {
                self.done.insert(self.links[revision as usize]);
                self.links_done.insert(revision)
            }
        };
    }

    fn retry(&mut self, key: EventKey) {
        let limit = self.config.settings.max_retry_count as u32;
        let retries = self.life.retries.entry(key).or_default();
        if *retries >= limit {
            self.life.parking.insert(key);
        } else {
            *retries += 1;
        }
    }

    async fn work(&mut self) -> CheckResult {
        let (now, timeout) =
            (Instant::now(), self.config.message_timeout.expect("the group has a timeout"));
        let dispatcher = &self.group.as_ref().expect("the group is open").dispatcher;
        let is_late = |since: Instant| {
            dispatcher.check_after(since, timeout).is_some_and(|check| check <= now)
        };
        let mut late = Vec::new();
        for seen in self.life.consumers.values_mut() {
            let removed = seen.has.iter().filter(|(_, (_, since, _))| is_late(*since));
            let removed: Vec<EventKey> = removed.map(|(key, _)| *key).collect();
            removed.iter().for_each(|key| drop(seen.has.remove(key)));
            late.extend(removed);
        }
        late.into_iter().for_each(|key| self.retry(key));
        if self.seed % 2 == 1 {
            // As if other groups waited for quota. Evicted events are read again when needed.
            let of_waiting = self.seed % 4 == 1;
            self.group().dispatcher.evict(of_waiting, |_| true);
        }
        self.group().run_once().await.map_err(|error| format!("{error:?}"))?;
        self.check_parked()?;
        self.receive()?;
        self.check_consumers()?;
        self.check_kept()
    }

    /// One consumer processes all remaining events.
    async fn drain(&mut self) -> CheckResult {
        let id = self.connect(1000).await?;
        for _ in 0..10_000 {
            self.signal_new_events();
            self.work().await?;
            let mut any = false;
            let ids: Vec<ConsumerId> = self.life.consumers.keys().copied().collect();
            for id in ids {
                let seen = self.life.consumers.get_mut(&id).expect("the consumer is connected");
                let has = std::mem::take(&mut seen.has);
                any |= !has.is_empty();
                let acks = has.values().map(|(ack, ..)| *ack).collect();
                has.into_keys().for_each(|key| self.finish(key));
                self.group().handle(GroupCommand::Ack(id, acks)).await;
            }
            if !any && self.group().replay_range.is_none() {
                break;
            }
        }
        ensure(self.group().dispatcher.tracked().0 == 0, || "something is held".to_string())?;
        self.group().handle(GroupCommand::Disconnect(id)).await;
        self.life.consumers.remove(&id);
        Ok(())
    }

    /// Checks that every event is completed in the end, and that no further event is delivered.
    async fn check_end(&mut self) -> CheckResult {
        self.drain().await?;
        self.replay(u64::MAX).await;
        self.drain().await?;
        let lost = self.source.keys().find(|position| !self.done.contains(position));
        ensure(lost.is_none(), || format!("{lost:?} never came"))?;
        let left = self.group().parked_count;
        ensure(left == 0, || format!("{left} are parked after all were sent again"))?;
        self.group().write_checkpoint().await.map_err(error_text)?;
        self.check_kept()?;
        let newest = self.source.keys().next_back().copied();
        let kept = self.checkpoint;
        ensure(kept >= newest, || format!("all is done, and the checkpoint is {kept:?}"))?;
        self.open().await?;
        // Events before the checkpoint need not come.
        self.drain().await
    }
}

/// Connects a consumer to a group.
async fn join(
    group: &mut GroupTask,
    capacity: usize,
) -> Result<(ConsumerId, mpsc::Receiver<ConsumerResponse>), String> {
    let (sender, answers) = mpsc::channel(capacity + 2);
    let (answer, answered) = oneshot::channel();
    let joining = ConsumerRequest {
        capacity,
        form: UuidForm::String(()),
        username: String::new(),
        connection_name: String::new(),
        responses: sender,
        connection: None,
    };
    group.handle(GroupCommand::Connect(joining, answer)).await;
    let id = answered.await.map_err(error_text)?.map_err(error_text)?;
    Ok((id, answers))
}

fn settings(
    random: &mut Random,
    strategy: &str,
    stream: Option<&String>,
) -> (GroupKey, GroupConfig) {
    let settings = Settings {
        message_timeout: Some(MessageTimeout::MessageTimeoutMs(1000)),
        checkpoint_after: Some(CheckpointAfter::CheckpointAfterMs(100 + random.below(900) as i32)),
        min_checkpoint_count: 1 + random.below(3) as i32,
        max_checkpoint_count: 4 + random.below(4) as i32,
        max_retry_count: random.below(4) as i32,
        read_batch_size: 1,
        history_buffer_size: 2 + random.below(20) as i32,
        consumer_strategy: strategy.to_string(),
        ..Settings::default()
    };
    let origin = match stream {
        Some(stream) => GroupOrigin::Stream(StreamOptions {
            stream_identifier: Some(stream.as_str().into()),
            revision_option: None,
        }),
        None => GroupOrigin::All(GroupAllOptions {
            all_option: Some(GroupStart::Start(())),
            filter_option: None,
        }),
    };
    let options = CreateOptions {
        stream_identifier: None,
        group_name: format!("group-{}", random.clone().next()),
        settings: Some(settings),
        stream_option: Some(origin),
    };
    GroupConfig::from_request(Some(options)).unwrap()
}

async fn run_script(fixture: &TestService, seed: u64) -> CheckResult {
    let mut model = GroupModel::new(fixture, seed).await?;
    for step in 0..60 {
        model.step().await.map_err(|error| format!("seed {seed}, step {step}: {error}"))?;
    }
    model.check_end().await.map_err(|error| format!("seed {seed}, at the end: {error}"))
}

/// Returns the violation of the first seed that has one.
fn violation(seeds: u64) -> Option<String> {
    run_paused(async {
        let fixture = TestService::new();
        for seed in 0..seeds {
            if let Err(error) = run_script(&fixture, seed).await {
                return Some(error);
            }
        }
        None
    })
}

#[test]
fn random_scripts_keep_the_group_invariants() {
    let seeds = std::env::var("UMBEL_GROUP_SEEDS").ok().and_then(|text| text.parse().ok());
    assert_eq!(violation(seeds.unwrap_or(SEEDS)), None);
}

/// Times that the work yields to other tasks. REQUIRES: it waits for nothing else.
async fn yields(work: impl Future) -> usize {
    let (mut work, mut count) = (std::pin::pin!(work), 0);
    poll_fn(|context| {
        let polled = work.as_mut().poll(context);
        count += usize::from(polled.is_pending());
        polled.map(drop)
    })
    .await;
    count
}

/// Story: 10,000 events that were sent, acknowledged, timed out or left by their consumer at once
/// took a worker thread for many milliseconds.
#[test]
fn group_with_many_events_in_flight_lets_other_tasks_run() {
    const EVENTS: usize = 1000;
    const YIELDS_MIN: usize = EVENTS / crate::limits::POLL_MESSAGES;
    run_paused(async {
        let fixture = TestService::new();
        let mut group = group_with_events(&fixture, EVENTS).await;
        let ids: Vec<EventId> = (0..EVENTS as u64).map(event_id).collect();
        let (consumer, mut answers) = join(&mut group, EVENTS).await.unwrap();
        let mut send = async |group: &mut GroupTask| {
            let count = yields(group.send(Instant::now())).await;
            assert!(count >= YIELDS_MIN, "{count}");
            assert_eq!(std::iter::from_fn(|| answers.try_recv().ok()).count(), EVENTS);
        };
        send(&mut group).await;
        tokio::time::advance(Duration::from_secs(5)).await;
        assert!(yields(group.expire_timeouts(Instant::now())).await >= YIELDS_MIN);
        send(&mut group).await;
        let nack = GroupCommand::Nack(consumer, ids.clone(), NackDecision::Retry);
        assert!(yields(group.handle(nack)).await >= YIELDS_MIN);
        send(&mut group).await;
        assert!(yields(group.handle(GroupCommand::Disconnect(consumer))).await >= YIELDS_MIN);
        let (other, _answers) = join(&mut group, EVENTS).await.unwrap();
        group.send(Instant::now()).await;
        assert!(yields(group.handle(GroupCommand::Ack(other, ids))).await >= YIELDS_MIN);
        assert_eq!(group.dispatcher.tracked(), (0, 0));
    });
}

fn event_id(number: u64) -> EventId {
    EventId(u128::from(number).to_be_bytes())
}

/// A group that has these events and no consumer.
async fn group_with_events(fixture: &TestService, count: usize) -> GroupTask {
    let stream = "s".to_string();
    let (key, mut config) = settings(&mut Random::new(1), "RoundRobin", Some(&stream));
    config.settings.max_retry_count = 10;
    let group = GroupTask::open(Arc::clone(&fixture.service), key, config).await;
    let mut group = group.unwrap();
    for number in 0..count as u64 {
        let event = RecordedEvent {
            stream: stream.clone(),
            revision: number,
            position: number,
            id: event_id(number),
            kind: "Counted".to_string(),
            is_json: true,
            created: 0,
            data: Vec::new(),
            metadata: Vec::new(),
        };
        let event = ResolvedEvent { event: Some(event), link: None };
        group.dispatcher.offer_pinned(EventKey::Source(number), event, 0);
    }
    group
}

/// Story: the limit of an expression's parts was also that of stored groups. An upgrade stopped
/// each group whose filter has more parts.
#[test]
fn stored_group_may_have_more_parts_in_its_filter_than_a_new_group() {
    let fixture = TestService::new();
    let names: Vec<String> = (0..300).map(|number| format!("Opened{number}")).collect();
    let regex = format!(r"^(?!\$)(?:{})$", names.join("|"));
    let (key, config) = settings(&mut Random::new(1), "RoundRobin", None);
    let filter = FilterOptions {
        filter: Some(Filter::EventType(Expression { regex, prefix: Vec::new() })),
        window: Some(Window::Count(())),
        checkpoint_interval_multiplier: 1,
    };
    let config = GroupConfig { filter: Some(filter), ..config };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let create = GroupChange::Create(config.clone());
    let service = &fixture.service;
    let created = runtime.block_on(service.group_registry.change(service, &key, create));
    let refused = created.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::InvalidArgument);
    assert!(refused.message().contains("at most 256 are allowed"), "{refused}");
    let started = StoredGroup::read(&fixture.store, &key, &config);
    assert!(started.is_ok(), "{:?}", started.err());
}

#[cfg(feature = "failpoints")]
#[test]
fn every_group_failpoint_is_detected() {
    use crate::test_support::failpoint_list;
    let panicked = |_| Some("it panics".to_string());
    let hunt = || std::panic::catch_unwind(|| violation(FAILPOINT_SEEDS)).unwrap_or_else(panicked);
    assert_eq!(failpoint_list::unnoticed(&failpoint_list::GROUPS, hunt), [""; 0]);
}
