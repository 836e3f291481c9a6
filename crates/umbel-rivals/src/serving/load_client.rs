//! Load clients: their requests, and the answers that they wait for. Both servers get the same
//! requests.

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
use umbel_proto::read_options::{at_most, of_all, of_stream, subscription};
use umbel_proto::streams::read_req::{AllOption, Options, RevisionOption};
use umbel_proto::streams::{
    BatchAppendReq, BatchAppendResp, ExpectedRevision, ReadReq, ReadResp, append_resp,
    batch_append_resp, read_resp,
};

use super::messages::{append, batch, batch_number, id, made_at, mix, now, proposed};
use crate::serving::load_kinds::{
    ALL_EVENTS, BATCH_EVENTS, BATCHES_IN_FLIGHT, STREAM_EVENTS, STREAMS, Work, WorkKind,
};
use umbel_testing::server_connection::Connection;

/// Number of subscriptions on each connection.
const SUBSCRIPTIONS: usize = 100;
/// Writers of streams that are subscribed to.
const APPENDERS: u64 = 4;
/// Number of events in each append whose events go to subscribers to all: enough that the append
/// does not dominate the time.
const LIVE_EVENTS: u64 = 10;
/// Timeout of the delivery of appended events to subscribers.
const DELIVERY_TIME: Duration = Duration::from_secs(30);

/// Events and times of one measured piece of work.
#[derive(Debug, Default)]
pub(super) struct WorkCounts {
    /// Events that were appended, read or delivered.
    pub(super) events: u64,
    /// Duration of the work.
    pub(super) time: Duration,
    /// Microseconds of each call, or from the creation of each event to its delivery.
    pub(super) times_us: Vec<u32>,
}

impl WorkCounts {
    fn join(mut self, other: WorkCounts) -> WorkCounts {
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
        check_append_answer(connection.append_parts(parts).await?.result)?;
    }
    Ok(())
}

fn read_name(stream: u64) -> String {
    format!("read-{stream}")
}

/// Does the work for a time. `tag` is unique among all work of this server.
pub(super) async fn run_work(
    work: Work,
    address: SocketAddr,
    tag: u64,
    time: Duration,
) -> Result<WorkCounts> {
    match work.kind {
        WorkKind::LiveAll => return live_all(work.clients, address, tag, time).await,
        WorkKind::LiveStreams => return live_streams(work.clients, address, tag, time).await,
        _ => {}
    }
    let connections = connect(address, work.clients).await?;
    let end = Instant::now() + time;
    let clients = (0..).zip(connections).map(|(client, connection)| {
        let load_client = LoadClient { connection, tag, client, end };
        tokio::spawn(async move {
            let began = Instant::now();
            let done = load_client.work(work.kind).await.map_err(|error| error.to_string())?;
            Ok::<WorkCounts, String>(WorkCounts { time: began.elapsed(), ..done })
        })
    });
    let mut all = WorkCounts::default();
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

/// Load client with its own connection.
struct LoadClient {
    connection: Connection,
    tag: u64,
    client: u64,
    end: Instant,
}

impl LoadClient {
    async fn work(&self, kind: WorkKind) -> Result<WorkCounts> {
        match kind {
            WorkKind::AppendNew => self.append_loop(true).await,
            WorkKind::AppendOld => self.append_loop(false).await,
            WorkKind::BatchNew => self.batch_loop(true, 1).await,
            WorkKind::BatchOld => self.batch_loop(false, 1).await,
            WorkKind::BatchMany => self.batch_loop(true, BATCH_EVENTS).await,
            WorkKind::ReadOne => {
                self.read_loop(1, |at| {
                    let revision = RevisionOption::Revision(mix(at) % STREAM_EVENTS);
                    of_stream(&read_name(mix(!at) % STREAMS), revision)
                })
                .await
            }
            WorkKind::ReadStream => {
                let from = RevisionOption::Start(());
                let stream = |at| of_stream(&read_name(mix(at) % STREAMS), from);
                self.read_loop(STREAM_EVENTS, stream).await
            }
            WorkKind::ReadAll => self.read_loop(ALL_EVENTS, |_| of_all(AllOption::Start(()))).await,
            WorkKind::LiveAll | WorkKind::LiveStreams => Err("subscribers send no requests".into()),
        }
    }

    /// Returns a number that is unique among all clients and calls.
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

    async fn append_loop(&self, new: bool) -> Result<WorkCounts> {
        let mut done = WorkCounts::default();
        for call in 0.. {
            let since = Instant::now();
            if since >= self.end {
                break;
            }
            let (stream, expected) = self.target(new, call);
            let event = proposed(id(self.tag, self.number(call)));
            let parts = append(&stream, expected, [event]);
            check_append_answer(self.connection.append_parts(parts).await?.result)?;
            done.count(1, since);
        }
        Ok(done)
    }

    async fn batch_loop(&self, new: bool, events: u64) -> Result<WorkCounts> {
        let (sender, receiver) = mpsc::channel::<BatchAppendReq>(BATCHES_IN_FLIGHT);
        let requests = stream::unfold(receiver, |mut receiver| async {
            Some((receiver.recv().await?, receiver))
        });
        let next = |number: u64| {
            let (stream, expected) = self.target(new, number);
            let ids = (0..events).map(|at| id(self.tag, self.number(number * events + at)));
            batch(number, &stream, expected, ids.map(proposed).collect())
        };
        let mut sent = Vec::new();
        for number in 0..BATCHES_IN_FLIGHT as u64 {
            sent.push(Instant::now());
            sender.send(next(number)).await?;
        }
        let mut sender = Some(sender);
        let mut answers = self.connection.batches(requests).await?;
        let mut done = WorkCounts::default();
        while let Some(answer) = answers.message().await? {
            let number = check_batch_answer(answer)?;
            let since = *sent.get(number as usize).ok_or("an answer to no batch")?;
            done.count(events, since);
            if Instant::now() >= self.end {
                // The call ends after the answers to all sent batches.
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

    async fn read_loop(&self, events: u64, what: impl Fn(u64) -> Options) -> Result<WorkCounts> {
        let mut done = WorkCounts::default();
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

fn check_append_answer(result: Option<append_resp::Outcome>) -> Result<()> {
    match result {
        Some(append_resp::Outcome::Success(_)) => Ok(()),
        other => Err(format!("an append was answered with {other:?}").into()),
    }
}

fn check_batch_answer(answer: BatchAppendResp) -> Result<u64> {
    match answer.result {
        Some(batch_append_resp::Outcome::Success(_)) => {}
        other => return Err(format!("a batch was answered with {other:?}").into()),
    }
    Ok(batch_number(answer.correlation_id).ok_or("an answer without a number")?)
}

/// Events that all subscribers together have received.
#[derive(Debug, Default)]
struct DeliveryCounts {
    events: AtomicU64,
    wanted: AtomicU64,
    all: Notify,
    /// Microseconds from the creation of each event to its delivery.
    times_us: Mutex<Vec<u32>>,
}

impl DeliveryCounts {
    fn add(&self, event: &read_resp::ReadEvent) {
        let made = event.event.as_ref().and_then(|event| made_at(&event.data));
        let time = now().saturating_sub(made.unwrap_or_default());
        let mut times = self.times_us.lock().expect("no holder of the lock panics");
        times.push(u32::try_from(time).unwrap_or(u32::MAX));
        drop(times);
        let all = self.events.fetch_add(1, Ordering::SeqCst) + 1;
        if all >= self.wanted.load(Ordering::SeqCst) {
            self.all.notify_one();
        }
    }

    /// Waits until all subscribers together have received this many events.
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

/// Starts all subscriptions, and waits for their confirmations.
async fn follow(
    count: usize,
    address: SocketAddr,
    got: &Arc<DeliveryCounts>,
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
            // A subscriber gets an error when its server stops.
            while let Ok(Some(answer)) = answers.message().await {
                if let Some(read_resp::Content::Event(event)) = &answer.content {
                    got.add(event);
                }
            }
        });
    }
    Ok(followers)
}

async fn live_all(
    count: usize,
    address: SocketAddr,
    tag: u64,
    time: Duration,
) -> Result<WorkCounts> {
    let got = Arc::new(DeliveryCounts::default());
    let mut followers = follow(count, address, &got, |_| of_all(AllOption::End(()))).await?;
    let appender = Connection::to(address).await?;
    let (began, mut appended) = (Instant::now(), 0);
    while began.elapsed() < time {
        let events = (appended..appended + LIVE_EVENTS).map(|at| proposed(id(tag, at)));
        let parts = append(&format!("live-{tag}"), ExpectedRevision::Any(()), events);
        check_append_answer(appender.append_parts(parts).await?.result)?;
        appended += LIVE_EVENTS;
        got.wait(appended * count as u64).await?;
    }
    let done = finish(&got, began.elapsed());
    followers.shutdown().await;
    Ok(done)
}

async fn live_streams(
    count: usize,
    address: SocketAddr,
    tag: u64,
    time: Duration,
) -> Result<WorkCounts> {
    let got = Arc::new(DeliveryCounts::default());
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
            check_append_answer(connection.append_parts(parts).await?.result)?;
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

fn finish(got: &DeliveryCounts, time: Duration) -> WorkCounts {
    let mut times = got.times_us.lock().expect("no holder of the lock panics");
    WorkCounts {
        events: got.events.load(Ordering::SeqCst),
        time,
        times_us: std::mem::take(&mut *times),
    }
}
