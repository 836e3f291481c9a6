//! The clients: what they send, and what they wait for. Both servers get the same.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use futures_util::stream;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tonic::{Request, Streaming};
use umbel_lab::engine::Result;
use umbel_proto::reading::{at_most, of_all, of_stream, subscription};
use umbel_proto::streams::read_req::{AllOption, Options, RevisionOption};
use umbel_proto::streams::{
    BatchAppendReq, BatchAppendResp, ExpectedRevision, ReadReq, ReadResp, append_resp,
    batch_append_resp, read_resp,
};

use super::connection::Connection;
use super::messages::{append, batch, batch_number, id, made_at, mix, now, proposed};
use super::work::{
    ALL_EVENTS, BATCH_EVENTS, BATCHES_UNDER_WAY, Kind, STREAM_EVENTS, STREAMS, Work,
};

/// Subscriptions on each connection.
const SUBSCRIPTIONS: usize = 100;
/// Who appends to streams that are subscribed to.
const APPENDERS: u64 = 4;
/// Events of each append to subscribers to all: many enough that appending them is not what takes
/// the time.
const LIVE_EVENTS: u64 = 10;
/// How long subscribers may take to get what was appended before that is an error.
const DELIVERY_TIME: Duration = Duration::from_secs(30);

/// What was done in a while.
#[derive(Debug, Default)]
pub(super) struct Done {
    /// Events that were appended, read or delivered.
    pub(super) events: u64,
    /// How long it took.
    pub(super) time: Duration,
    /// How long each call took, or each event was on its way to a subscriber, in microseconds.
    pub(super) times_us: Vec<u32>,
}

impl Done {
    fn join(mut self, other: Done) -> Done {
        self.events += other.events;
        self.time = self.time.max(other.time);
        self.times_us.extend(other.times_us);
        self
    }

    fn count(&mut self, events: u64, since: Instant) {
        self.events += events;
        self.times_us.push(micros(since.elapsed()));
    }
}

fn micros(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX)
}

/// Writes the streams that are read later.
pub(super) async fn prepare(address: SocketAddr) -> Result<()> {
    let connection = Connection::to(address).await?;
    for stream in 0..STREAMS {
        let events = (0..STREAM_EVENTS).map(|at| proposed(id(stream, at)));
        let parts = append(&read_name(stream), ExpectedRevision::NoStream(()), events);
        succeeded(connection.append_parts(parts).await?.result)?;
    }
    Ok(())
}

fn read_name(stream: u64) -> String {
    format!("read-{stream}")
}

/// Does the work for so long. `tag` differs from every other one that this server ever got.
pub(super) async fn perform(
    work: Work,
    address: SocketAddr,
    tag: u64,
    time: Duration,
) -> Result<Done> {
    match work.kind {
        Kind::LiveAll => return live_all(work.clients, address, tag, time).await,
        Kind::LiveStreams => return live_streams(work.clients, address, tag, time).await,
        _ => {}
    }
    let connections = connect(address, work.clients).await?;
    let end = Instant::now() + time;
    let clients = (0..).zip(connections).map(|(client, connection)| {
        let asker = Asker { connection, tag, client, end };
        tokio::spawn(async move {
            let began = Instant::now();
            let done = asker.work(work.kind).await.map_err(|error| error.to_string())?;
            Ok::<Done, String>(Done { time: began.elapsed(), ..done })
        })
    });
    let mut all = Done::default();
    for done in try_join_all(clients).await? {
        all = all.join(done?);
    }
    Ok(all)
}

async fn connect(address: SocketAddr, count: usize) -> Result<Vec<Connection>> {
    let mut connections = Vec::new();
    for _ in 0..count {
        connections.push(Connection::to(address).await?);
    }
    Ok(connections)
}

/// A client.
struct Asker {
    connection: Connection,
    tag: u64,
    client: u64,
    end: Instant,
}

impl Asker {
    async fn work(&self, kind: Kind) -> Result<Done> {
        match kind {
            Kind::AppendNew => self.appends(true).await,
            Kind::AppendOld => self.appends(false).await,
            Kind::BatchNew => self.batches(true, 1).await,
            Kind::BatchOld => self.batches(false, 1).await,
            Kind::BatchMany => self.batches(true, BATCH_EVENTS).await,
            Kind::ReadOne => {
                self.reads(1, |at| {
                    let revision = RevisionOption::Revision(mix(at) % STREAM_EVENTS);
                    of_stream(&read_name(mix(!at) % STREAMS), revision)
                })
                .await
            }
            Kind::ReadStream => {
                let from = RevisionOption::Start(());
                let stream = |at| of_stream(&read_name(mix(at) % STREAMS), from);
                self.reads(STREAM_EVENTS, stream).await
            }
            Kind::ReadAll => self.reads(ALL_EVENTS, |_| of_all(AllOption::Start(()))).await,
            Kind::LiveAll | Kind::LiveStreams => Err("subscribers are no askers".into()),
        }
    }

    /// A number that no other client and no other call has.
    fn number(&self, call: u64) -> u64 {
        self.client << 40 | call
    }

    fn target(&self, new: bool, call: u64) -> (String, ExpectedRevision) {
        let (tag, number) = (self.tag, self.number(call));
        match new {
            true => (format!("order-{tag:04x}{number:012x}"), ExpectedRevision::NoStream(())),
            false => (format!("old-{tag:04x}-{:012x}", self.client), ExpectedRevision::Any(())),
        }
    }

    async fn appends(&self, new: bool) -> Result<Done> {
        let mut done = Done::default();
        for call in 0.. {
            let since = Instant::now();
            if since >= self.end {
                break;
            }
            let (stream, expected) = self.target(new, call);
            let event = proposed(id(self.tag, self.number(call)));
            let parts = append(&stream, expected, [event]);
            succeeded(self.connection.append_parts(parts).await?.result)?;
            done.count(1, since);
        }
        Ok(done)
    }

    async fn batches(&self, new: bool, events: u64) -> Result<Done> {
        let (sender, receiver) = mpsc::channel::<BatchAppendReq>(BATCHES_UNDER_WAY);
        let requests = stream::unfold(receiver, |mut receiver| async {
            Some((receiver.recv().await?, receiver))
        });
        let next = |number: u64| {
            let (stream, expected) = self.target(new, number);
            let ids = (0..events).map(|at| id(self.tag, self.number(number * events + at)));
            batch(number, &stream, expected, ids.map(proposed).collect())
        };
        let mut sent = Vec::new();
        for number in 0..BATCHES_UNDER_WAY as u64 {
            sent.push(Instant::now());
            sender.send(next(number)).await?;
        }
        let mut sender = Some(sender);
        let mut answers = self.connection.batches(requests).await?;
        let mut done = Done::default();
        while let Some(answer) = answers.message().await? {
            let number = answered(answer)?;
            let since = *sent.get(number as usize).ok_or("an answer to no batch")?;
            done.count(events, since);
            if Instant::now() >= self.end {
                // The call ends once what was sent is answered.
                sender = None;
            }
            if let Some(sender) = &sender {
                let number = sent.len() as u64;
                sent.push(Instant::now());
                sender.send(next(number)).await?;
            }
        }
        if done.times_us.len() != sent.len() {
            return Err("batches were not answered".into());
        }
        Ok(done)
    }

    async fn reads(&self, events: u64, what: impl Fn(u64) -> Options) -> Result<Done> {
        let mut done = Done::default();
        for call in 0.. {
            let since = Instant::now();
            if since >= self.end {
                break;
            }
            let options = at_most(events, what(self.number(call)));
            let mut answers = self.open(options).await?;
            let mut got = 0;
            while let Some(answer) = answers.message().await? {
                got += u64::from(matches!(answer.content, Some(read_resp::Content::Event(_))));
            }
            if got != events {
                return Err(format!("{got} events were read in place of {events}").into());
            }
            done.count(events, since);
        }
        Ok(done)
    }

    async fn open(&self, options: Options) -> Result<Streaming<ReadResp>> {
        open(&self.connection, options).await
    }
}

async fn open(connection: &Connection, options: Options) -> Result<Streaming<ReadResp>> {
    Ok(connection.open(Request::new(ReadReq { options: Some(options) })).await?)
}

fn succeeded(result: Option<append_resp::Outcome>) -> Result<()> {
    match result {
        Some(append_resp::Outcome::Success(_)) => Ok(()),
        other => Err(format!("an append was answered with {other:?}").into()),
    }
}

fn answered(answer: BatchAppendResp) -> Result<u64> {
    match answer.result {
        Some(batch_append_resp::Outcome::Success(_)) => {}
        other => return Err(format!("a batch was answered with {other:?}").into()),
    }
    Ok(batch_number(answer.correlation_id).ok_or("an answer without a number")?)
}

/// What subscribers have got together.
#[derive(Debug, Default)]
struct Got {
    events: AtomicU64,
    wanted: AtomicU64,
    all: Notify,
    /// How long each was on its way.
    times_us: Mutex<Vec<u32>>,
}

impl Got {
    fn add(&self, event: &read_resp::ReadEvent) {
        let made = event.event.as_ref().and_then(|event| made_at(&event.data));
        let time = now().saturating_sub(made.unwrap_or_default());
        let mut times = self.times_us.lock().expect("nobody panics with the lock");
        times.push(u32::try_from(time).unwrap_or(u32::MAX));
        drop(times);
        let all = self.events.fetch_add(1, Ordering::SeqCst) + 1;
        if all >= self.wanted.load(Ordering::SeqCst) {
            self.all.notify_one();
        }
    }

    /// Ends when they have got that many more.
    async fn wait(&self, wanted: u64) -> Result<()> {
        self.wanted.store(wanted, Ordering::SeqCst);
        let all = async {
            while self.events.load(Ordering::SeqCst) < wanted {
                self.all.notified().await;
            }
        };
        let waited = tokio::time::timeout(DELIVERY_TIME, all).await;
        Ok(waited.map_err(|_| {
            let got = self.events.load(Ordering::SeqCst);
            format!("subscribers got {got} of {wanted} events")
        })?)
    }
}

/// Subscribes everybody, and waits until they are.
async fn follow(
    count: usize,
    address: SocketAddr,
    got: &Arc<Got>,
    what: impl Fn(usize) -> Options,
) -> Result<JoinSet<()>> {
    let connections = connect(address, count.div_ceil(SUBSCRIPTIONS)).await?;
    let mut followers = JoinSet::new();
    for at in 0..count {
        let mut answers = open(&connections[at / SUBSCRIPTIONS], subscription(what(at))).await?;
        let first = answers.message().await?.and_then(|answer| answer.content);
        if !matches!(first, Some(read_resp::Content::Confirmation(_))) {
            return Err(format!("a subscription began with {first:?}").into());
        }
        let got = got.clone();
        followers.spawn(async move {
            // An error is what a subscriber is told whose server goes away.
            while let Ok(Some(answer)) = answers.message().await {
                if let Some(read_resp::Content::Event(event)) = &answer.content {
                    got.add(event);
                }
            }
        });
    }
    Ok(followers)
}

async fn live_all(count: usize, address: SocketAddr, tag: u64, time: Duration) -> Result<Done> {
    let got = Arc::new(Got::default());
    let mut followers = follow(count, address, &got, |_| of_all(AllOption::End(()))).await?;
    let appender = Connection::to(address).await?;
    let (began, mut appended) = (Instant::now(), 0);
    while began.elapsed() < time {
        let events = (appended..appended + LIVE_EVENTS).map(|at| proposed(id(tag, at)));
        let parts = append(&format!("live-{tag}"), ExpectedRevision::Any(()), events);
        succeeded(appender.append_parts(parts).await?.result)?;
        appended += LIVE_EVENTS;
        got.wait(appended * count as u64).await?;
    }
    let done = finish(&got, began.elapsed());
    followers.shutdown().await;
    Ok(done)
}

async fn live_streams(count: usize, address: SocketAddr, tag: u64, time: Duration) -> Result<Done> {
    let got = Arc::new(Got::default());
    let name = |at: usize| format!("live-{tag}-{at}");
    let end = RevisionOption::End(());
    let mut followers = follow(count, address, &got, |at| of_stream(&name(at), end)).await?;
    let began = Instant::now();
    let appenders = (0..APPENDERS).map(|appender| async move {
        let connection = Connection::to(address).await?;
        let mut appended = 0;
        while began.elapsed() < time {
            let number = appender << 40 | appended;
            let stream = name(mix(number) as usize % count);
            let parts = append(&stream, ExpectedRevision::Any(()), [proposed(id(tag, number))]);
            succeeded(connection.append_parts(parts).await?.result)?;
            appended += 1;
        }
        Result::<u64>::Ok(appended)
    });
    let appended = try_join_all(appenders).await?.into_iter().sum();
    got.wait(appended).await?;
    let done = finish(&got, began.elapsed());
    followers.shutdown().await;
    Ok(done)
}

fn finish(got: &Got, time: Duration) -> Done {
    let mut times = got.times_us.lock().expect("nobody panics with the lock");
    Done { events: got.events.load(Ordering::SeqCst), time, times_us: std::mem::take(&mut *times) }
}
