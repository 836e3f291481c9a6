//! Seeded histories of a group on a store, beside a model of what it owes its consumers. The clock
//! is the test's, and so is the order: the group's task is not run, its steps are called.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use umbel_events::{EventId, Expected, NewEvent};
use umbel_proto::persistent::{
    CheckpointAfter, CreateOptions, GroupAllOptions, GroupOrigin, GroupStart, MessageTimeout,
    Settings,
};
use umbel_proto::streams::read_req::{StreamOptions, UuidForm};

use super::*;
use crate::consumers::Action;
use crate::group_message::Joining;
use crate::planted::plant;
use crate::stage::{Stage, run};

/// Histories that the test command takes, and those within which a planted bug must be found.
const SEEDS: u64 = 1000;
const PLANTED_SEEDS: u64 = 300;
const STRATEGIES: [&str; 4] = ["DispatchToSingle", "RoundRobin", "Pinned", "PinnedByCorrelation"];

#[path = "group_model_checks.rs"]
mod checks;

type Found = Result<(), String>;

struct Random(u64);

impl Random {
    /// A number below this one (splitmix64).
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % most
    }
}

/// A consumer as it sees itself.
struct Seen {
    answers: mpsc::Receiver<crate::group_message::Answer>,
    room: usize,
    /// What is on the way: what acknowledges it, since when, and its pin.
    has: BTreeMap<Key, (EventId, Instant, String)>,
    /// What it had once.
    had: Vec<EventId>,
}

/// From one opening of the group to the next.
#[derive(Default)]
struct Life {
    consumers: BTreeMap<ConsumerId, Seen>,
    retries: BTreeMap<Key, u32>,
    parking: BTreeSet<Key>,
    done: BTreeSet<Key>,
    given: BTreeSet<Key>,
    /// Who was given something when the group worked last.
    fed: BTreeSet<ConsumerId>,
    /// The last place that was given, of each pin where pins count.
    last: BTreeMap<String, u64>,
    after: Option<u64>,
}

struct Model<'a> {
    stage: &'a Stage,
    random: Random,
    seed: u64,
    strategy: &'static str,
    key: GroupKey,
    config: GroupConfig,
    group: Option<Group>,
    life: Life,
    /// What was appended, with its pin.
    source: BTreeMap<u64, String>,
    /// What links name, and where that is.
    places: HashMap<String, u64>,
    done: BTreeSet<u64>,
    /// What each parked link names, by its revision.
    links: Vec<u64>,
    links_done: BTreeSet<u64>,
    checkpoint: Option<u64>,
}

fn told(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Found {
    if holds { Ok(()) } else { Err(otherwise()) }
}

impl<'a> Model<'a> {
    async fn new(stage: &'a Stage, seed: u64) -> Result<Model<'a>, String> {
        let mut random = Random(seed);
        let strategy = STRATEGIES[random.below(4) as usize];
        let of_all = random.below(4) == 0;
        let stream = format!("s-{seed}");
        let (key, config) = settings(&mut random, strategy, (!of_all).then_some(&stream));
        let mut model = Model {
            stage,
            random,
            seed,
            strategy,
            key,
            config,
            group: None,
            life: Life::default(),
            source: BTreeMap::new(),
            places: HashMap::new(),
            done: BTreeSet::new(),
            links: Vec::new(),
            links_done: BTreeSet::new(),
            checkpoint: None,
        };
        if of_all {
            model.config.after = end(&stage.store, &model.key).map_err(told)?;
        }
        model.open().await?;
        Ok(model)
    }

    /// Begins a life: nothing is known but what the store keeps.
    async fn open(&mut self) -> Found {
        let service = Arc::clone(&self.stage.service);
        let group = Group::open(service, self.key.clone(), self.config.clone()).await;
        self.group = Some(group.map_err(told)?);
        let after = group_keep::read_checkpoint(&self.stage.store, &self.key).map_err(told)?;
        self.life = Life { after: after.or(self.config.after), ..Life::default() };
        Ok(())
    }

    fn group(&mut self) -> &mut Group {
        self.group.as_mut().expect("it is open")
    }

    fn step_kind(&mut self) -> u64 {
        self.random.below(20)
    }

    async fn step(&mut self) -> Found {
        match self.step_kind() {
            0..4 => self.append()?,
            4 | 5 => {
                let room = 1 + self.random.below(6) as usize;
                self.connect(room).await?;
            }
            6 => {
                if let Some(id) = self.anybody() {
                    // It went away, or said that it stops.
                    self.group().take(Message::Disconnect(id));
                    let gone = self.life.consumers.remove(&id);
                    for key in gone.into_iter().flat_map(|gone| gone.has.into_keys()) {
                        *self.life.retries.entry(key).or_default() += 1;
                    }
                }
            }
            7..12 => self.answer(None),
            12 => self.answer(Some(Action::Park("no".into()))),
            13 => self.answer(Some(Action::Retry)),
            14 => self.answer(Some(Action::Skip)),
            15 => self.answer_wrongly(),
            16 => tokio::time::advance(Duration::from_millis(self.random.below(1500))).await,
            17 => {
                let most = if self.random.below(2) == 0 { u64::MAX } else { self.random.below(5) };
                self.replay(most);
            }
            18 if self.random.below(2) == 0 => {
                // Settings change: the checkpoint is kept, and the group begins anew. What was to
                // be parked and is not written yet has to come again.
                self.answer(Some(Action::Park("no".into())));
                self.group().keep_checkpoint().await.map_err(told)?;
                self.check_kept()?;
                let stream = self.key.stream.clone();
                let after = self.config.after;
                let (_, config) = settings(&mut self.random, self.strategy, stream.as_ref());
                self.config = GroupConfig { after, ..config };
                self.open().await?;
            }
            // Killed.
            19 if self.random.below(2) == 0 => self.open().await?,
            _ => {}
        }
        if self.random.below(4) > 0 { self.work().await } else { Ok(()) }
    }

    fn append(&mut self) -> Found {
        let store = &self.stage.store;
        for _ in 0..=self.random.below(4) {
            let number = self.random.below(4);
            let correlation = format!("{}-c-{number}", self.seed);
            let metadata = format!(r#"{{"$correlationId":"{correlation}"}}"#);
            let stream = match &self.key.stream {
                Some(stream) => stream.clone(),
                None => format!("all-{}-{number}", self.seed),
            };
            let id = store.new_id().map_err(told)?;
            let event = NewEvent::json(id, "Counted", b"{}").with_metadata(metadata.as_bytes());
            let done = store.append(&stream, Expected::Any, &[event]).map_err(told)?;
            let revision = done.last.ok_or("no revision")?;
            let place = match self.key.stream {
                Some(_) => revision,
                None => done.position.ok_or("no position")?,
            };
            self.places.insert(format!("{revision}@{stream}"), place);
            let pin = if self.strategy == "PinnedByCorrelation" { correlation } else { stream };
            self.source.insert(place, pin);
        }
        self.ring();
        Ok(())
    }

    /// The bell is rung for it, as the task would hear.
    fn ring(&mut self) {
        let group = self.group();
        (group.bell, group.is_at_the_end) = (None, false);
    }

    async fn connect(&mut self, room: usize) -> Result<ConsumerId, String> {
        let (sender, answers) = mpsc::channel(room + 2);
        let (answer, answered) = oneshot::channel();
        let joining = Joining {
            room,
            form: UuidForm::String(()),
            username: String::new(),
            answers: sender,
            peer: None,
        };
        self.group().take(Message::Connect(joining, answer));
        let id = answered.await.map_err(told)?.map_err(told)?;
        let seen = Seen { answers, room, has: BTreeMap::new(), had: Vec::new() };
        self.life.consumers.insert(id, seen);
        Ok(id)
    }

    fn anybody(&mut self) -> Option<ConsumerId> {
        let count = self.life.consumers.len() as u64;
        let at = if count == 0 { return None } else { self.random.below(count) };
        self.life.consumers.keys().nth(at as usize).copied()
    }

    /// Somebody says of some of what it has that it is done, or not.
    fn answer(&mut self, action: Option<Action>) {
        let Some(id) = self.anybody() else { return };
        let of_own = |key: &Key, places: &HashMap<String, u64>| match key {
            Key::Parked(_) => true,
            Key::Source(place) => places.values().any(|own| own == place),
        };
        let has = self.life.consumers[&id].has.clone();
        let has = has.into_iter().filter(|(key, _)| action.is_none() || of_own(key, &self.places));
        let chosen: Vec<_> = has.filter(|_| self.random.below(3) > 0).collect();
        let ids: Vec<EventId> = chosen.iter().map(|(_, (id, ..))| *id).collect();
        for (key, _) in chosen {
            self.life.consumers.get_mut(&id).expect("it is there").has.remove(&key);
            match &action {
                None | Some(Action::Skip) => self.finish(key),
                Some(Action::Park(_)) => drop(self.life.parking.insert(key)),
                Some(Action::Retry) => self.retry(key),
            }
        }
        let message = match action {
            None => Message::Ack(id, ids),
            Some(action) => Message::Nack(id, ids, action),
        };
        self.group().take(message);
    }

    /// Somebody acknowledges what is not on the way to it.
    fn answer_wrongly(&mut self) {
        let Some(id) = self.anybody() else { return };
        let all = self.life.consumers.values();
        let has =
            |event: &EventId| self.life.consumers[&id].has.values().any(|(own, ..)| own == event);
        let ids: Vec<EventId> =
            all.flat_map(|seen| &seen.had).copied().filter(|event| !has(event)).collect();
        self.group().take(Message::Ack(id, ids));
    }

    fn replay(&mut self, before: u64) {
        let (answer, _told) = oneshot::channel();
        self.group().take(Message::Replay(before, answer));
    }

    fn finish(&mut self, key: Key) {
        self.life.done.insert(key);
        match key {
            Key::Source(place) => self.done.insert(place),
            Key::Parked(revision) => {
                self.done.insert(self.links[revision as usize]);
                self.links_done.insert(revision)
            }
        };
    }

    fn retry(&mut self, key: Key) {
        let most = self.config.settings.max_retry_count as u32;
        let retries = self.life.retries.entry(key).or_default();
        if *retries >= most {
            self.life.parking.insert(key);
        } else {
            *retries += 1;
        }
    }

    async fn work(&mut self) -> Found {
        let (now, timeout) = (Instant::now(), self.config.message_timeout.expect("it has one"));
        let mut late = Vec::new();
        for seen in self.life.consumers.values_mut() {
            let gone = seen.has.iter().filter(|(_, (_, since, _))| *since + timeout <= now);
            let gone: Vec<Key> = gone.map(|(key, _)| *key).collect();
            gone.iter().for_each(|key| drop(seen.has.remove(key)));
            late.extend(gone);
        }
        late.into_iter().for_each(|key| self.retry(key));
        if self.seed % 2 == 1 {
            // As where others wait for room. What events say is read again when it is needed.
            let of_waiting = self.seed % 4 == 1;
            self.group().consumers.let_go(of_waiting, |_| true);
        }
        self.group().work().await.map_err(|trouble| format!("{trouble:?}"))?;
        self.check_parked()?;
        self.receive()?;
        self.check_consumers()?;
        self.check_kept()
    }

    /// One consumer does all that is left.
    async fn drain(&mut self) -> Found {
        let id = self.connect(1000).await?;
        for _ in 0..10_000 {
            self.ring();
            self.work().await?;
            let mut any = false;
            let ids: Vec<ConsumerId> = self.life.consumers.keys().copied().collect();
            for id in ids {
                let seen = self.life.consumers.get_mut(&id).expect("it is there");
                let has = std::mem::take(&mut seen.has);
                any |= !has.is_empty();
                let acks = has.values().map(|(ack, ..)| *ack).collect();
                has.into_keys().for_each(|key| self.finish(key));
                self.group().take(Message::Ack(id, acks));
            }
            if !any && self.group().replay.is_none() {
                break;
            }
        }
        ensure(self.group().consumers.held().0 == 0, || "something is held".to_string())?;
        self.group().take(Message::Disconnect(id));
        self.life.consumers.remove(&id);
        Ok(())
    }

    /// Everything is done in the end, and then nothing comes any more.
    async fn finale(&mut self) -> Found {
        self.drain().await?;
        self.replay(u64::MAX);
        self.drain().await?;
        let lost = self.source.keys().find(|place| !self.done.contains(place));
        ensure(lost.is_none(), || format!("{lost:?} never came"))?;
        let left = self.group().parked;
        ensure(left == 0, || format!("{left} are parked after all were sent again"))?;
        self.group().keep_checkpoint().await.map_err(told)?;
        self.check_kept()?;
        let newest = self.source.keys().next_back().copied();
        let kept = self.checkpoint;
        ensure(kept >= newest, || format!("all is done, and the checkpoint is {kept:?}"))?;
        self.open().await?;
        // What is before the checkpoint may not come.
        self.drain().await
    }
}

fn settings(
    random: &mut Random,
    strategy: &str,
    stream: Option<&String>,
) -> (GroupKey, GroupConfig) {
    let settings = Settings {
        message_timeout: Some(MessageTimeout::Millis(1000)),
        checkpoint_after: Some(CheckpointAfter::Millis(100 + random.below(900) as i32)),
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
        group_name: format!("group-{}", random.0),
        settings: Some(settings),
        stream_option: Some(origin),
    };
    GroupConfig::read(Some(options)).unwrap()
}

async fn history(stage: &Stage, seed: u64) -> Found {
    let mut model = Model::new(stage, seed).await?;
    for step in 0..60 {
        model.step().await.map_err(|error| format!("seed {seed}, step {step}: {error}"))?;
    }
    model.finale().await.map_err(|error| format!("seed {seed}, at the end: {error}"))
}

/// What is wrong with the first seed with which anything is.
fn violation(seeds: u64) -> Option<String> {
    run(async {
        let stage = Stage::new();
        for seed in 0..seeds {
            if let Err(error) = history(&stage, seed).await {
                return Some(error);
            }
        }
        None
    })
}

#[test]
fn a_group_owes_nothing_to_its_consumers() {
    assert_eq!(violation(SEEDS), None);
}

#[test]
fn every_bug_planted_in_a_group_is_found() {
    let missed: Vec<Bug> = BUGS.into_iter().filter(|bug| !is_found(*bug)).collect();
    assert_eq!(missed, []);
}

fn is_found(bug: Bug) -> bool {
    plant(Some(bug));
    let found = std::panic::catch_unwind(|| violation(PLANTED_SEEDS));
    plant(None);
    println!("{bug:?}: {found:?}");
    !matches!(found, Ok(None))
}

const BUGS: [Bug; 17] = [
    Bug::FloorIgnoresParking,
    Bug::FloorTooFar,
    Bug::FloorIsLast,
    Bug::AckOfOthers,
    Bug::DisconnectForgets,
    Bug::RoomIgnored,
    Bug::TimeoutForgotten,
    Bug::RetryNotCounted,
    Bug::RetryOnceMore,
    Bug::ParkSkips,
    Bug::RetrySkips,
    Bug::PinIgnored,
    Bug::SingleIsLast,
    Bug::ParkedUnwritten,
    Bug::ReplayTruncatesEarly,
    Bug::ReplaySkips,
    Bug::PageSkips,
];
