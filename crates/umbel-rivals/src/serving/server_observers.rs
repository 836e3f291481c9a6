//! Observers of a server in operation: a scrape of the metrics each second, an open console, and a
//! collector that takes the metrics, logs and spans.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval_at, sleep};

/// Share of the calls that are traced, as the flag of `umbel serve` takes it.
pub const TRACE_SAMPLE_RATIO: &str = "0.01";
/// Interval of the scrapes.
const SCRAPE_INTERVAL: Duration = Duration::from_secs(1);
/// Interval of the console's overview.
const OVERVIEW_INTERVAL: Duration = Duration::from_secs(5);
/// Interval of the console's live page at the end of the log.
const LIVE_INTERVAL: Duration = Duration::from_millis(500);
/// Interval of the console's live page while it is behind.
const BEHIND_INTERVAL: Duration = Duration::from_millis(250);
/// Limit of one message to the collector.
const EXPORT_MAX: usize = 64 << 20;

/// Kind of observer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ObserverKind {
    /// Scrapes of the metrics, one a second.
    Metrics,
    /// The overview of the console.
    Overview,
    /// The live page of the console.
    Live,
    /// Exports of metrics, logs and spans to a collector.
    Telemetry,
}

/// Numbers of answers that the observers got, and of exports that the collector took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ObserverCounts {
    /// Scrapes of the metrics.
    pub scrapes: u64,
    /// Answers to the console's overview.
    pub overviews: u64,
    /// Answers to the console's live page.
    pub live: u64,
    /// Exports of spans.
    pub traces: u64,
}

impl ObserverCounts {
    /// Adds the answers that other observers got.
    pub fn add(&mut self, other: ObserverCounts) {
        self.scrapes += other.scrapes;
        self.overviews += other.overviews;
        self.live += other.live;
        self.traces += other.traces;
    }
}

/// Collector for OTLP over HTTP that takes every export and counts those of spans.
#[derive(Debug)]
pub struct Collector {
    /// Address at which it listens.
    pub address: SocketAddr,
    traces: Arc<AtomicU64>,
}

impl Collector {
    /// Starts the collector in the current runtime.
    ///
    /// # Errors
    /// No port is free.
    pub async fn start() -> std::io::Result<Collector> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let collector =
            Collector { address: listener.local_addr()?, traces: Arc::new(AtomicU64::new(0)) };
        let traces = Arc::clone(&collector.traces);
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                let traces = Arc::clone(&traces);
                tokio::spawn(async move { take_exports(connection, &traces).await.ok() });
            }
        });
        Ok(collector)
    }

    /// Number of exports of spans so far.
    pub fn traces(&self) -> u64 {
        self.traces.load(Ordering::Relaxed)
    }
}

/// Answers each request of a connection with an empty success.
async fn take_exports(mut connection: TcpStream, traces: &AtomicU64) -> std::io::Result<()> {
    let mut received = Vec::new();
    loop {
        let head_end = loop {
            if let Some(at) = received.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
            if connection.read_buf(&mut received).await? == 0 {
                return Ok(());
            }
        };
        let head = String::from_utf8_lossy(&received[..head_end]).to_ascii_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
        let length = length.and_then(|length| length.trim().parse::<usize>().ok());
        let Some(length) = length.filter(|&length| length <= EXPORT_MAX) else {
            return connection.write_all(b"HTTP/1.1 411 Length Required\r\n\r\n").await;
        };
        while received.len() < head_end + length {
            if connection.read_buf(&mut received).await? == 0 {
                return Ok(());
            }
        }
        received.drain(..head_end + length);
        if head.starts_with("post /v1/traces ") {
            traces.fetch_add(1, Ordering::Relaxed);
        }
        connection
            .write_all(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\n\
                  content-length: 0\r\n\r\n",
            )
            .await?;
    }
}

/// Observers of one server, which end when this value is dropped.
#[derive(Debug)]
pub struct Observers {
    tasks: JoinSet<Result<Infallible, String>>,
    scrapes: Arc<AtomicU64>,
    overviews: Arc<AtomicU64>,
    live: Arc<AtomicU64>,
}

impl Observers {
    /// Starts to observe a server that was observed for some time before, with the observers for
    /// which `has` is true.
    pub fn start(
        runtime: &Runtime,
        server: SocketAddr,
        before: Duration,
        has: impl Fn(ObserverKind) -> bool,
    ) -> Observers {
        let [scrapes, overviews, live] = [(); 3].map(|()| Arc::new(AtomicU64::new(0)));
        let (mut tasks, runtime) = (JoinSet::new(), runtime.handle());
        if has(ObserverKind::Metrics) {
            let times = next_time(SCRAPE_INTERVAL, before);
            let scraped = repeat(server, times, &["/metrics"], Arc::clone(&scrapes));
            tasks.spawn_on(scraped, runtime);
        }
        let overview = &["/console/api/overview", "/console/api/history?minutes=15"];
        if has(ObserverKind::Overview) {
            let times = next_time(OVERVIEW_INTERVAL, before);
            let shown = repeat(server, times, overview, Arc::clone(&overviews));
            tasks.spawn_on(shown, runtime);
        }
        if has(ObserverKind::Live) {
            tasks.spawn_on(follow(server, Arc::clone(&live)), runtime);
        }
        Observers { tasks, scrapes, overviews, live }
    }

    /// Ends the observation, and returns how often the server answered.
    ///
    /// # Errors
    /// An answer was not a success.
    pub fn end(mut self) -> Result<ObserverCounts, String> {
        if let Some(ended) = self.tasks.try_join_next() {
            return Err(ended.map_or_else(|error| error.to_string(), |Err(error)| error));
        }
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let (scrapes, overviews) = (of(&self.scrapes), of(&self.overviews));
        Ok(ObserverCounts { scrapes, overviews, live: of(&self.live), traces: 0 })
    }
}

/// Interval, and the time until its next end after an observation of the time `before`.
fn next_time(every: Duration, before: Duration) -> (Duration, Duration) {
    let since = before.as_nanos() % every.as_nanos();
    let left = every - Duration::from_nanos(u64::try_from(since).unwrap_or(0));
    (every, if since == 0 { Duration::ZERO } else { left })
}

/// Requests some paths at intervals, first after some time.
async fn repeat(
    server: SocketAddr,
    (every, first): (Duration, Duration),
    paths: &'static [&'static str],
    answers: Arc<AtomicU64>,
) -> Result<Infallible, String> {
    let mut times = interval_at(Instant::now() + first, every);
    loop {
        times.tick().await;
        for path in paths {
            get(server, path).await?;
        }
        answers.fetch_add(1, Ordering::Relaxed);
    }
}

/// Requests what the console's live page requests.
async fn follow(server: SocketAddr, answers: Arc<AtomicU64>) -> Result<Infallible, String> {
    let mut next = get(server, "/console/api/tail?stream=&type=&system=&count=20").await?;
    loop {
        let answer: Value = serde_json::from_slice(&next).map_err(|error| error.to_string())?;
        answers.fetch_add(1, Ordering::Relaxed);
        let cursor = answer["next"].as_str().ok_or("the live page has no cursor")?;
        let is_end = answer["isEnd"].as_bool() == Some(true);
        sleep(if is_end { LIVE_INTERVAL } else { BEHIND_INTERVAL }).await;
        let path = format!("/console/api/tail?stream=&type=&system=&from={cursor}");
        next = get(server, &path).await?;
    }
}

/// Returns the body of the answer to a GET request.
async fn get(server: SocketAddr, path: &str) -> Result<Vec<u8>, String> {
    let failed = |error: &dyn std::fmt::Display| format!("GET {path} failed: {error}");
    let answer = answer_to_get(server, path).await.map_err(|error| failed(&error))?;
    let head_end = answer.windows(4).position(|window| window == b"\r\n\r\n");
    let head_end = head_end.ok_or_else(|| failed(&"the answer has no end of its head"))?;
    let status = answer.split(|&byte| byte == b'\r').next().unwrap_or_default();
    if status.get(8..13) != Some(b" 200 ") {
        return Err(failed(&String::from_utf8_lossy(status)));
    }
    Ok(answer[head_end + 4..].to_vec())
}

async fn answer_to_get(server: SocketAddr, path: &str) -> std::io::Result<Vec<u8>> {
    let mut connection = TcpStream::connect(server).await?;
    // Without chunks, and without further requests.
    let request = format!("GET {path} HTTP/1.0\r\nhost: {server}\r\n\r\n");
    connection.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    connection.read_to_end(&mut answer).await?;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn collector_counts_exports_of_spans() {
        let collector = Collector::start().await.unwrap();
        let mut connection = TcpStream::connect(collector.address).await.unwrap();
        for (path, body) in [("traces", "abc"), ("logs", ""), ("traces", "\r\n\r\n")] {
            let request =
                format!("POST /v1/{path} HTTP/1.1\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            connection.write_all(request.as_bytes()).await.unwrap();
            let mut answer = [0; 16];
            connection.read_exact(&mut answer).await.unwrap();
            assert!(answer.starts_with(b"HTTP/1.1 200 OK"), "{answer:?}");
            let mut rest = Vec::new();
            while !rest.ends_with(b"\r\n\r\n") {
                connection.read_buf(&mut rest).await.unwrap();
            }
        }
        assert_eq!(collector.traces(), 2);
        connection.write_all(b"POST /v1/traces HTTP/1.1\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 411 "), "{answer}");
    }

    #[test]
    fn intervals_continue_after_a_pause() {
        let (every, second) = (Duration::from_secs(5), Duration::from_secs(1));
        for (before, first) in [(0, 0), (2, 3), (5, 0), (9, 1)] {
            assert_eq!(next_time(every, second * before), (every, second * first));
        }
    }

    #[test]
    fn failed_answer_of_an_observed_server_is_reported() {
        let runtime = Runtime::new().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let server = listener.local_addr().unwrap();
        runtime.spawn(async move {
            while let Ok((mut connection, _)) = listener.accept().await {
                let mut request = [0; 64];
                let _ = connection.read(&mut request).await;
                let _ = connection.write_all(b"HTTP/1.0 503 Unavailable\r\n\r\n").await;
            }
        });
        let mut observers = Observers::start(&runtime, server, Duration::ZERO, |_| true);
        let ended = runtime.block_on(observers.tasks.join_next()).unwrap().unwrap();
        let Err(error) = ended;
        assert!(error.ends_with(" failed: HTTP/1.0 503 Unavailable"), "{error}");
        runtime.block_on(observers.tasks.join_next()).unwrap().unwrap().unwrap_err();
        assert!(observers.end().unwrap_err().ends_with("503 Unavailable"));
    }
}
